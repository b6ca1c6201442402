"""Every error and signal of the framework, and nothing else.

The families, and who meets them::

    OnceqError                      base of all that is not a signal
    ├── ConfigurationError          wiring contradicts itself: raised before a message is touched
    ├── NotAnSqsEvent               the consumer was given something that SQS did not send
    ├── UnnameableRecord            a failing record has no message id, so the whole batch is kept
    ├── MessageError                one message cannot become a job: it is refused, its neighbours go on
    │   ├── EnvelopeError           the body cannot be read
    │   │   └── EncodingUnknown     ... by this process: it is kept for one that can
    │   ├── IdempotencyKeyError     the key is missing, blank or of a wrong type
    │   └── PayloadError            a value cannot be encoded, decoded or fitted to its type
    │       └── NotJson             ... since the text is no JSON at all
    ├── EnqueueRefused              SQS or DynamoDB would refuse the message: nothing was sent
    ├── EnqueueFailed               some entries could not be sent
    ├── StoreError                  a table of ours did not take a request
    │   └── StoreUnavailable        ... for reasons that pass: the outcome of the request is unknown
    ├── ConditionFailed             a conditional write was refused (store.py turns it into a value)
    ├── TransactionCancelled        a transaction was refused, with a reason for each write (effects.py reads them)
    ├── TransactionFailed           a job's transaction did not happen
    │   ├── TransactionRefused      ... since DynamoDB would not, or did not, take it
    │   ├── ConditionNotMet         ... since a condition of the job's own did not hold
    │   ├── TransactionDenied       ... since a table is missing, or may not be written
    │   └── TransactionContended    ... since others wrote the same items at that moment, again and again
    ├── StepRefused                 a step cannot be begun: its name was used before, or there is no room for it
    ├── LockBusy                    somebody else holds the lock
    ├── ResolveRefused              the job is not, or no longer, what a person decided about
    ├── JobTimedOut                 an ``async def`` job was cancelled at its ``max_duration``
    ├── BucketError                 S3 refused a request
    │   ├── ObjectNotThere          ... since the object is missing, or may not be read
    │   └── BucketUnavailable       ... or did not answer in time
    └── QueueError                  SQS refused a request
        └── QueueUnavailable        ... or did not answer in time
    JobControl                      what a job raises to say how its attempt ends
    ├── Retry  Snooze  Reject
    Signal (BaseException)          what a job's own ``except Exception`` must not swallow
    ├── ClaimLost
    ├── StepUncertain               nobody knows whether an effect happened: the job goes to a person
    └── StepNotRecorded             a step's write did not reach the table: the attempt ends, and its claim goes stale

This module sits at the bottom of the import chain: it imports nothing of ours.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta


# SQS keeps a message for 14 days at most: a job that waits longer would lose its message.
LONGEST_DELAY = 1_209_600


class OnceqError(Exception):
    """Something went wrong in onceq; the subclass says what and what to do.

    Example:
        >>> issubclass(ConfigurationError, OnceqError), issubclass(Reject, OnceqError)
        (True, False)
    """

    def __init__(self, message: str = "") -> None:
        """Keep the message; without one, the first line of the class's docstring stands for it."""
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or "").partition("\n")[0])


class ConfigurationError(OnceqError):
    """Settings, job types or wiring contradict each other: correct them and deploy again.

    Example:
        >>> from onceq import job
        >>> job("Pay Now")(print)
        Traceback (most recent call last):
        onceq.errors.ConfigurationError: ...
    """


class NotAnSqsEvent(OnceqError):
    """The event did not come from SQS: connect the consumer to an SQS event source mapping."""


class UnnameableRecord(OnceqError):
    """A record that must be kept has no message id, so only failing the whole batch keeps it."""


class MessageError(OnceqError):
    """This message cannot become a job."""


class EnvelopeError(MessageError):
    """The body of the message cannot be read."""


class EncodingUnknown(EnvelopeError):
    """The body is compressed in a way that this process cannot open."""


class IdempotencyKeyError(MessageError):
    """An idempotency key is a string that is not blank, or an int.

    Example:
        >>> from onceq import join_key
        >>> join_key("invoice", " ")
        Traceback (most recent call last):
        onceq.errors.IdempotencyKeyError: ...
    """


class PayloadError(MessageError):
    """A value cannot be encoded as JSON, or does not fit the type that the job type declares.

    Example:
        >>> from onceq.codec import encode
        >>> encode(object())
        Traceback (most recent call last):
        onceq.errors.PayloadError: ...
    """


class NotJson(PayloadError):
    """The text is no JSON."""


class EnqueueRefused(OnceqError):
    """The message was not sent because SQS or DynamoDB would refuse it.

    Example:
        >>> from onceq import Producer
        >>> Producer({"default": "https://sqs.eu-west-1.amazonaws.com/123456789012/JobsQueue"}).enqueue("Pay Now", {})
        Traceback (most recent call last):
        onceq.errors.EnqueueRefused: ...
    """


class EnqueueFailed(OnceqError):
    """Some entries could not be sent: send those in ``failed`` again with the same keys.

    The entries carry the keys that were stamped on them, so that sending one again is the same job.

    Attributes:
        sent: What was sent, as ``(entry, Enqueued)`` pairs.
        failed: What was not sent, as ``(entry, reason)`` pairs.

    Example:
        >>> from onceq import Entry
        >>> failed = EnqueueFailed([], [(Entry("greet", {"name": "Ada"}, key="k-1"), "throttled")])
        >>> str(failed), [entry.key for entry, _ in failed.failed]
        ('1 of 1 entries were not sent: throttled', ['k-1'])
    """

    def __init__(self, sent: Sequence[tuple[Any, Any]], failed: Sequence[tuple[Any, str]]) -> None:
        """Keep both lists and say the first reasons."""
        self.sent = tuple(sent)
        self.failed = tuple(failed)
        reasons = "; ".join(sorted({reason for _, reason in failed})[:3])
        super().__init__(f"{len(self.failed)} of {len(self.failed) + len(self.sent)} entries were not sent: {reasons}")


class StoreError(OnceqError):
    """A table refused a request: check the table's name, region and the function's permissions.

    Attributes:
        code: DynamoDB's code for it; empty where the request could not even be sent.

    Example:
        >>> raise StoreError("AccessDeniedException: the role may not write the table")
        Traceback (most recent call last):
        onceq.errors.StoreError: AccessDeniedException: the role may not write the table
    """

    def __init__(self, message: str = "", *, code: str = "") -> None:
        """Keep the code."""
        self.code = code
        super().__init__(message)


class StoreUnavailable(StoreError):
    """DynamoDB did not answer in time: the request may or may not have been applied."""


class ConditionFailed(OnceqError):
    """A conditional write was refused.

    Attributes:
        item: The item as it was at the refusal, in DynamoDB's own shape; ``None`` if there was none.
    """

    def __init__(self, item: Mapping[str, Any] | None) -> None:
        """Keep the old item."""
        self.item = item
        super().__init__()


class TransactionCancelled(OnceqError):
    """A transaction was refused as a whole.

    Attributes:
        reasons: DynamoDB's reason for each write in its order: ``Code``, ``Message`` and, if asked for, ``Item``.
    """

    def __init__(self, reasons: Sequence[Mapping[str, Any]]) -> None:
        """Keep the reasons."""
        self.reasons = tuple(reasons)
        super().__init__()


class TransactionFailed(OnceqError):
    """A transaction did not happen: none of its writes was applied, and no message of it exists."""


class TransactionRefused(TransactionFailed):
    """DynamoDB does not take this transaction: write less in it, or correct what the text names."""


class TransactionDenied(TransactionRefused):
    """A table did not take it for a reason that is not the job's: no permission, no such table, wrong credentials."""


class ConditionNotMet(TransactionFailed):
    """A condition of the job's own did not hold, so its transaction did not happen.

    Attributes:
        write: Which write, as ``Update of StockTable {'sku': 's-1'}``.
        item: The item that it met, in DynamoDB's own shape; ``None`` if there was none.
        rejects: Whether the job is to be rejected (``on_conflict="reject"``) and not retried.
    """

    def __init__(self, message: str, *, write: str, item: Mapping[str, Any] | None, rejects: bool) -> None:
        """Keep what is known."""
        self.write, self.item, self.rejects = write, item, rejects
        super().__init__(message)


class TransactionContended(TransactionFailed):
    """Others wrote the same items at the same moment, however often it was tried."""


class StepRefused(OnceqError):
    """A step cannot be begun; its function was not called."""


class LockBusy(OnceqError):
    """Somebody else holds the lock.

    Attributes:
        name: The lock's name.
        until: When it ends by itself at the latest, epoch ms.

    Example:
        >>> LockBusy("nightly_report", until=1_795_953_600_000).until
        1795953600000
    """

    def __init__(self, name: str, *, until: int) -> None:
        """Keep both."""
        self.name, self.until = name, until
        super().__init__(f"somebody else holds the lock {name!r}")


class ResolveRefused(OnceqError):
    """The job is not, or no longer, in the state that a person decided about: look again, then decide again."""


class JobTimedOut(OnceqError):
    """An ``async def`` job was cancelled at its ``max_duration``: the attempt failed, and is retried.

    No ``TimeoutError``, so that ``reject=(TimeoutError,)``, said of a job's own calls, does not make it permanent.
    """


class BucketError(OnceqError):
    """S3 refused a request: look at the role's permissions and at ONCEQ_PAYLOAD_BUCKET."""


class ObjectNotThere(BucketError):
    """The object is missing or may not be read; S3 tells the two apart only for who may list the bucket."""


class BucketUnavailable(BucketError):
    """S3 did not answer in time, or is throttling."""


class QueueError(OnceqError):
    """SQS refused a request: check the queue's URL and the function's permissions.

    Example:
        >>> issubclass(QueueError, OnceqError)
        True
    """


class QueueUnavailable(QueueError):
    """SQS did not answer in time: the request may or may not have been carried out."""


class JobControl(Exception):
    """What a job raises to say how its attempt ends."""


class Retry(JobControl):
    """Ask for another attempt.

    Args:
        delay: Seconds (or a ``timedelta``) until then; ``None`` uses the job type's back-off.
        reason: Said in the log and in the record.

    Raises:
        ValueError: If the delay is not a number, negative, or longer than SQS keeps a message (14 days).

    Example:
        >>> Retry(delay=30).delay
        30.0
    """

    def __init__(self, delay: float | timedelta | None = None, reason: str = "") -> None:
        """Check and keep the delay."""
        self.delay = None if delay is None else seconds_of(delay)
        super().__init__(reason or "the job asked for another attempt")


class Snooze(JobControl):
    """Run the job later without using an attempt.

    Args:
        delay: Seconds (or a ``timedelta``) until then.
        reason: Said in the log and in the record.

    Raises:
        ValueError: If the delay is not a number, negative, or longer than SQS keeps a message (14 days).

    Example:
        >>> Snooze(60).delay
        60.0
    """

    def __init__(self, delay: float | timedelta, reason: str = "") -> None:
        """Check and keep the delay."""
        self.delay = seconds_of(delay)
        super().__init__(reason or "the job asked to run later")


class Reject(JobControl):
    """End the job for good: it is never retried, and its message goes to the dead-letter queue.

    Args:
        reason: Why, for the person who reads the dead-letter queue.

    Example:
        >>> str(Reject("amount must be positive"))
        'amount must be positive'
    """

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        super().__init__(reason)


class Signal(BaseException):
    """A signal that passes through a job's ``except Exception``, so that a job cannot swallow it by accident."""


class ClaimLost(Signal):
    """Somebody else took the claim over: what this attempt writes from here on changes nothing.

    A ``BaseException``, because a job that catches ``Exception`` around its effects must still stop.

    Attributes:
        seen: The record as it stands now (``onceq.record.Record``), or ``None`` if it is gone.
        own: The record as the loser last wrote it, or ``None`` where that is not told.

    Example:
        >>> try:
        ...     raise ClaimLost
        ... except Exception:
        ...     print("swallowed")
        ... except ClaimLost as lost:
        ...     print(lost)
        the claim was taken over by another claimant
    """

    def __init__(self, seen: Any = None, own: Any = None) -> None:
        """Keep both records."""
        self.seen = seen
        self.own = own
        super().__init__("the claim was taken over by another claimant")


class StepUncertain(Signal):
    """Nobody knows whether an effect of the job happened, or what it gave back: the job waits for a person."""


class StepNotRecorded(Signal):
    """What became of a step could not be written: the attempt ends here, and its claim is left to go stale.

    Attributes:
        fault: The `StoreError` of the write.
        ran: Whether the effect had run: not if it was "started" that could not be written.
    """

    def __init__(self, name: str, fault: StoreError, *, ran: bool) -> None:
        """Keep both."""
        self.fault, self.ran = fault, ran
        super().__init__(f"the step {name!r} could not be recorded: {fault}")


def seconds_of(delay: float | timedelta, longest: int = LONGEST_DELAY) -> float:
    """Return a delay in seconds.

    Raises:
        ValueError: If it is not a number, negative, or longer than the longest, which is what SQS keeps a message.
    """
    total_seconds = getattr(delay, "total_seconds", None)
    seconds = total_seconds() if callable(total_seconds) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= longest:
        message = f"a delay is a number of seconds from 0 to {longest} ({longest // 86_400} days), not {delay!r}"
        raise ValueError(message)
    return float(seconds)
