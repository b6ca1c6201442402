"""What happened, as frozen values with stable names, and the hooks they are given to.

Operators alarm on the names, so a test holds them. A hook is any callable of one event; one that raises is reported
and never hurts a message. A hook that has a method ``begin(context)`` or ``flush()`` is told, in the invoking thread,
when a batch begins and when it is over.
Payloads are never in an event, unless ``ONCEQ_LOG_PAYLOADS`` asks for them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LOGGER = "onceq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened. ``name`` is stable; ``metric`` counts it; ``level`` is how it is logged.

    Example:
        >>> event = JobReplayed(job_type="greet", key="k-1")
        >>> event.name, event.metric, event.fields()
        ('job.replayed', 'JobsReplayed', {'job_type': 'greet', 'key': 'k-1'})
    """

    name: ClassVar[str] = ""
    metric: ClassVar[str | None] = None
    level: ClassVar[int] = logging.INFO

    def fields(self) -> dict[str, Any]:
        """Return what is known, without what is not."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent(Event):
    """Something happened to a job."""

    job_type: str
    key: str
    message_id: str | None = None
    attempt: int | None = None
    claimant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(JobEvent):
    """An attempt starts; after a time-out this line names the job. ``payload`` is set only where it may be logged."""

    name: ClassVar[str] = "job.started"
    payload: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCompleted(JobEvent):
    """The job ran and is recorded."""

    name: ClassVar[str] = "job.completed"
    metric: ClassVar[str | None] = "JobsCompleted"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReplayed(JobEvent):
    """A duplicate was answered from the stored result."""

    name: ClassVar[str] = "job.replayed"
    metric: ClassVar[str | None] = "JobsReplayed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeferred(JobEvent):
    """The job is busy: somebody holds it, or its back-off runs, until ``until`` (epoch ms)."""

    name: ClassVar[str] = "job.deferred"
    metric: ClassVar[str | None] = "JobsDeferred"
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTakenOver(JobEvent):
    """A job was taken over; ``previous_status`` tells why: ``processing`` is a claim that went stale."""

    name: ClassVar[str] = "job.taken_over"
    metric: ClassVar[str | None] = "JobsTakenOver"
    level: ClassVar[int] = logging.WARNING
    previous_status: str
    previous_claimant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetried(JobEvent):
    """A failed job starts again after its back-off."""

    name: ClassVar[str] = "job.retried"
    metric: ClassVar[str | None] = "JobsRetried"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(JobEvent):
    """The attempt failed, or the job asked for another one, from ``not_before`` (epoch ms) on."""

    name: ClassVar[str] = "job.released"
    metric: ClassVar[str | None] = "JobsReleased"
    level: ClassVar[int] = logging.WARNING
    not_before: int
    error: str
    counted: bool
    trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRejected(JobEvent):
    """The job ended for good; ``before`` says that an earlier delivery ended it."""

    name: ClassVar[str] = "job.rejected"
    metric: ClassVar[str | None] = "JobsRejected"
    level: ClassVar[int] = logging.ERROR
    reason: str
    before: bool = False
    trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeld(JobEvent):
    """Nobody knows whether an effect of the job happened; it is uncertain and waits for a person."""

    name: ClassVar[str] = "job.held"
    metric: ClassVar[str | None] = "JobsUncertain"
    level: ClassVar[int] = logging.ERROR
    reason: str
    before: bool = False
    trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNotStarted(JobEvent):
    """The job was not started: time is short, its lane was stopped, or the runner stops."""

    name: ClassVar[str] = "job.not_started"
    metric: ClassVar[str | None] = "JobsNotStarted"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOverran(JobEvent):
    """An attempt took longer than its ``max_duration``: raise it, or the next one may be cut off."""

    name: ClassVar[str] = "job.overran"
    metric: ClassVar[str | None] = "JobsOverran"
    level: ClassVar[int] = logging.WARNING
    seconds: float
    max_duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimWasLost(JobEvent):
    """A write was refused because somebody else took the claim over."""

    name: ClassVar[str] = "claim.lost"
    metric: ClassVar[str | None] = "ClaimsLost"
    level: ClassVar[int] = logging.ERROR
    status: str | None
    winner: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseNotRenewed(JobEvent):
    """A renewal did not reach the claims table; the job goes on and the next one is tried."""

    name: ClassVar[str] = "lease.not_renewed"
    level: ClassVar[int] = logging.WARNING
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultWasNotStored(JobEvent):
    """The job is completed without its result."""

    name: ClassVar[str] = "result.not_stored"
    metric: ClassVar[str | None] = "ResultsNotStored"
    level: ClassVar[int] = logging.WARNING
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectNotRecorded(JobEvent):
    """The effect is done and could not be recorded: the claim is left leased and will be taken over."""

    name: ClassVar[str] = "effect.not_recorded"
    metric: ClassVar[str | None] = "EffectsNotRecorded"
    level: ClassVar[int] = logging.ERROR
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRefused(Event):
    """The message cannot become a job; it goes to the dead-letter queue."""

    name: ClassVar[str] = "message.refused"
    metric: ClassVar[str | None] = "MessagesRefused"
    level: ClassVar[int] = logging.ERROR
    message_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageUnserved(Event):
    """This release does not know the job type, the envelope's version or the queue; the message is kept."""

    name: ClassVar[str] = "message.unserved"
    metric: ClassVar[str | None] = "MessagesUnserved"
    level: ClassVar[int] = logging.ERROR
    message_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageWithoutWork(Event):
    """There is nothing to do for a message, such as the test event of S3; it is acknowledged."""

    name: ClassVar[str] = "message.without_work"
    metric: ClassVar[str | None] = "MessagesWithoutWork"
    message_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyNotFetched(Event):
    """The body of a large message is missing or may not be read; the message comes back at ``until`` (epoch ms)."""

    name: ClassVar[str] = "body.not_fetched"
    metric: ClassVar[str | None] = "BodiesNotFetched"
    level: ClassVar[int] = logging.ERROR
    message_id: str | None
    reason: str
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFaulted(Event):
    """The store, the queue or the framework failed on a message; it is kept."""

    name: ClassVar[str] = "message.faulted"
    metric: ClassVar[str | None] = "MessagesFaulted"
    level: ClassVar[int] = logging.ERROR
    message_id: str | None
    reason: str
    trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCopied(Event):
    """A message was copied to the dead-letter queue with the reason."""

    name: ClassVar[str] = "message.dead_lettered"
    metric: ClassVar[str | None] = "MessagesDeadLettered"
    level: ClassVar[int] = logging.WARNING
    message_id: str | None
    reason: str
    with_note: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFailed(Event):
    """A message could not be copied to the dead-letter queue; it is kept and tried again."""

    name: ClassVar[str] = "message.copy_failed"
    metric: ClassVar[str | None] = "CopiesFailed"
    level: ClassVar[int] = logging.ERROR
    message_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibilityNotChanged(Event):
    """A message keeps the queue's visibility timeout; it only comes back at another time."""

    name: ClassVar[str] = "visibility.not_changed"
    metric: ClassVar[str | None] = "VisibilityNotChanged"
    level: ClassVar[int] = logging.WARNING
    message_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWithoutRecords(Event):
    """The consumer was invoked without records; there is nothing to lose."""

    name: ClassVar[str] = "event.without_records"
    level: ClassVar[int] = logging.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswered(Event):
    """A batch is over."""

    name: ClassVar[str] = "batch.answered"
    level: ClassVar[int] = logging.DEBUG
    records: int
    kept: int


class Telemetry:
    """Gives events to hooks."""

    def __init__(self, hooks: Iterable[Callable[[Event], object]]) -> None:
        """Keep the hooks."""
        self._hooks = tuple(hooks)

    def emit(self, event: Event) -> None:
        """Give an event to every hook at once, in the thread it happened in."""
        for hook in self._hooks:
            self._guard(hook, event)

    def begin(self, context: object) -> None:
        """Tell the hooks that a batch begins, and Lambda's context of it; called by the invoking thread."""
        self._tell("begin", context)

    def flush(self) -> None:
        """Tell the hooks that a batch is over; called by the invoking thread."""
        self._tell("flush")

    def _tell(self, name: str, *arguments: object) -> None:
        for hook in self._hooks:
            method = getattr(hook, name, None)
            if callable(method):
                self._guard(method, *arguments)

    @staticmethod
    def _guard(call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except BaseException:
            logging.getLogger(LOGGER).exception("hook.failed")
