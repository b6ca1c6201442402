"""How a message ends, as frozen values of a closed set, and what each means to SQS.

Two decisions, both pure: `end_of` turns what a job returned or raised into what is written; `answer_of` turns an
outcome into the answer to SQS. `docs/lifecycle.md` has both tables, asserted cell by cell.
"""

from __future__ import annotations

import math
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceq.codec import printable, text_of
from onceq.errors import (
    ConditionNotMet,
    JobControl,
    Reject,
    Retry,
    Snooze,
    StepUncertain,
    TransactionContended,
    TransactionDenied,
    TransactionFailed,
)
from onceq.queue import MAX_VISIBILITY
from onceq.record import Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onceq.job_type import JobType
    from onceq.message import DeadLetterNote
    from onceq.outbox import OutboxEntry

MOST_FRAMES = 8
# How long a job waits, in seconds, whose transaction others were in the way of, or no permission was there for.
CONTENDED_SECONDS = (0.5, 30)
DENIED_SECONDS = (60, 900)
LONGEST_TRACE = 4_000
# SQS's 12 hours count from the receive: less what an invocation of 15 minutes may have taken since then.
LONGEST_VISIBILITY = MAX_VISIBILITY - 1_000


@dataclass(frozen=True, slots=True)
class Complete:
    """The job returned: complete it."""


@dataclass(frozen=True, slots=True)
class Release:
    """The job is to run again, from ``not_before`` (epoch ms) on; ``counted`` says whether this start was one."""

    not_before: int
    error: str
    counted: bool


@dataclass(frozen=True, slots=True)
class RejectFor:
    """The job ends for good, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class HoldFor:
    """Nobody knows whether an effect of this job happened: leave it to a person."""

    reason: str


End = Complete | Release | RejectFor | HoldFor


def end_of(
    error: BaseException | None,
    job_type: JobType[..., Any],
    attempt: int,
    now_ms: int,
    uniform: Callable[..., float],
    *,
    kept_until: float = math.inf,
    open_steps: Sequence[str] = (),
) -> End:
    """Say how an attempt ends.

    Args:
        error: What the job raised; ``None`` if it returned.
        job_type: The job's type.
        attempt: Which start this was, from 1.
        now_ms: Now, epoch ms.
        uniform: Draws the jitter of the back-off.
        kept_until: Until when SQS keeps the message, epoch ms: a job cannot wait for longer than its message.
        open_steps: At-most-once steps that were started and are not known to have ended, whatever the job made of it.

    Returns:
        What to write.
    """
    if open_steps and not isinstance(error, Reject | StepUncertain):
        said = "the job returned" if error is None else describe(error)
        names = ", ".join(open_steps)
        return HoldFor(f"an at-most-once step was started and is not known to have ended: {names}; {said}")
    try:
        end = _end_of(error, job_type, attempt, now_ms, uniform)
    except Exception as broken:  # noqa: BLE001 - a Retry of the user's own class may lack its delay
        end = _end_of(broken, job_type, attempt, now_ms, uniform)
    if isinstance(end, Release) and end.not_before >= kept_until:
        return RejectFor(f"it was to run again only after SQS has deleted its message (14 days): {end.error}")
    return end


def _end_of(
    error: BaseException | None, job_type: JobType[..., Any], attempt: int, now_ms: int, uniform: Callable[..., float]
) -> End:
    if isinstance(error, StepUncertain):
        return HoldFor(text_of(error))
    if error is None:
        return Complete()
    if isinstance(error, Snooze):
        return Release(now_ms + math.ceil(error.delay * 1000), text_of(error), counted=False)
    if isinstance(error, Reject):
        return RejectFor(text_of(error))
    said = describe(error)
    # What the job says itself stands before what its type says of its errors: reject=(Exception,) leaves Retry alone.
    if isinstance(error, job_type.reject) and not isinstance(error, JobControl | TransactionFailed):
        return RejectFor(said)
    if isinstance(error, ConditionNotMet) and error.rejects:
        return RejectFor(text_of(error))
    if job_type.semantics is Semantics.AT_MOST_ONCE and not isinstance(error, Retry):
        return HoldFor(f"an at-most-once job failed: {said}")
    if isinstance(error, TransactionContended | TransactionDenied):
        # Nothing was applied, and it is not the job's fault: no attempt is used for it. SQS moves a message after 100
        # receives, so a table that is missing is asked for rarely enough that a deployment comes first.
        low, high = DENIED_SECONDS if isinstance(error, TransactionDenied) else CONTENDED_SECONDS
        return Release(now_ms + math.ceil(uniform(low, high) * 1000), said, counted=False)
    if attempt >= job_type.max_attempts:
        return RejectFor(f"attempts used up ({attempt} of {job_type.max_attempts}): {said}")
    delay = error.delay if isinstance(error, Retry) else None
    if delay is None:
        delay = job_type.backoff.delay(attempt, uniform)
    return Release(now_ms + math.ceil(delay * 1000), said, counted=True)


def describe(error: BaseException) -> str:
    """Return an exception as one bounded line."""
    text = text_of(error)
    return printable(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def trace_of(error: BaseException | None) -> str | None:
    """Return where a job failed: the innermost frames, bounded; ``None`` for what it said, or what is no code of it."""
    if error is None or isinstance(error, JobControl | TransactionFailed):
        return None
    try:
        text = "".join(traceback.format_exception(error, limit=-MOST_FRAMES))
    except BaseException:  # noqa: BLE001 - as for its message
        text = "".join(traceback.format_tb(error.__traceback__, limit=-MOST_FRAMES))
    text = text.encode("utf-8", "replace").decode()  # a log line takes no lone surrogate
    return text if len(text) <= LONGEST_TRACE else "…" + text[-LONGEST_TRACE:]


@dataclass(frozen=True, slots=True)
class Completed:
    """The job ran and is recorded; ``result`` is what every duplicate will get, ``entries`` what it has to be sent."""

    result: Any
    entries: tuple[OutboxEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Replayed:
    """The job had run; ``result`` is the stored one."""

    result: Any


@dataclass(frozen=True, slots=True)
class Deferred:
    """Busy: somebody holds the job, or its back-off runs, until ``until`` (epoch ms)."""

    until: int


@dataclass(frozen=True, slots=True)
class Released:
    """The attempt failed, or the job asked for another one, from ``not_before`` (epoch ms) on."""

    not_before: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The job ended for good."""

    note: DeadLetterNote


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """The message cannot become a job; no record was touched."""

    note: DeadLetterNote


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Nobody knows whether the job's effect happened; it waits for a person."""

    note: DeadLetterNote


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The job was not started: time is short, its lane was stopped, or the runner stops."""

    reason: str


@dataclass(frozen=True, slots=True)
class TakenFromUs:
    """The claim was lost; ``completed`` says whether the one who took it completed the job."""

    completed: bool


@dataclass(frozen=True, slots=True)
class Unserved:
    """This release does not know the job type, the envelope's version or the queue; another one may."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoWork:
    """There is nothing to do for the message, such as the test event that S3 sends when notifications are set up."""

    reason: str


@dataclass(frozen=True, slots=True)
class Faulted:
    """The store, the queue or the framework itself failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class GoneStale:
    """Not an end: the job's last claimant died, so it runs alone after the others (G5)."""

    attempts: int


Outcome = (
    Completed
    | Replayed
    | Deferred
    | Released
    | Rejected
    | RefusedMessage
    | Uncertain
    | NotStarted
    | TakenFromUs
    | Unserved
    | NoWork
    | Faulted
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What SQS is told about one message.

    Args:
        keep: Whether the message stays in the queue.
        visible_in: Seconds until it is delivered again; ``None`` leaves the queue's visibility timeout.
        copy: The note to copy the message to the dead-letter queue with; if the copy fails, the message is kept.
    """

    keep: bool
    visible_in: int | None = None
    copy: DeadLetterNote | None = None


def answer_of(outcome: Outcome, now_ms: int, jitter: float) -> Answer:
    """Say what an outcome means to SQS.

    Args:
        outcome: How the message ended.
        now_ms: Now, epoch ms.
        jitter: Seconds added to a wait for somebody else, so that duplicates do not come back together.

    Returns:
        The answer.
    """
    match outcome:
        case Completed() | Replayed() | NoWork():
            return Answer(keep=False)
        case Deferred(until):
            return Answer(keep=True, visible_in=_seconds_until(until, now_ms, jitter))
        case Released(not_before):
            return Answer(keep=True, visible_in=_seconds_until(not_before, now_ms, 0))
        case Rejected(note) | RefusedMessage(note) | Uncertain(note):
            return Answer(keep=False, copy=note)
        case NotStarted():
            return Answer(keep=True, visible_in=0)
        case TakenFromUs(completed):
            return Answer(keep=not completed)
        case Unserved() | Faulted():
            return Answer(keep=True)


def _seconds_until(then_ms: int, now_ms: int, jitter: float) -> int:
    # Rounded up: a message that comes back a moment too soon only finds the record still busy.
    return max(0, min(LONGEST_VISIBILITY, math.ceil((then_ms - now_ms) / 1000 + jitter)))
