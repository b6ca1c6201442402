"""The environment, read once into a frozen value. Unknown and contradictory settings are errors with a suggestion."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.codec import decode
from onceq.errors import ConfigurationError, PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX = "ONCEQ_"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False, "": False}


def require(holds: bool, message: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Raise a `ConfigurationError` with that message unless the condition holds."""
    if not holds:
        raise ConfigurationError(message)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One queue.

    Args:
        name: The name that job types use for it.
        url: The queue's URL, which producers send to.
        arn: Its ARN, which a record's ``eventSourceARN`` is matched with; a producer needs none.
        dlq_url: URL of its dead-letter queue; needed where ``arn`` is given.
    """

    name: str
    url: str
    arn: str = ""
    dlq_url: str = ""

    @property
    def is_fifo(self) -> bool:
        """Whether SQS keeps the order of a message group here."""
        return self.url.endswith(".fifo")

    @property
    def dlq_is_fifo(self) -> bool:
        """Whether the dead-letter queue is FIFO: then copies need a group and a deduplication id."""
        return self.dlq_url.endswith(".fifo")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says.

    Args:
        queues: The queues by name.
        claims_table: Name of the claims table; a producer needs none.
        outbox_table: Name of the outbox table; needed where something is sent through the outbox.
        concurrency: Jobs that run at once in one invocation.
        clock_skew: Seconds by which the clocks of two workers may differ (guarantee G1).
        reserve: Seconds kept at the end of an invocation to write outcomes.
        result_limit: The largest result that is stored, in bytes: every write of a record costs its whole size.
        max_hops: How often a message may be sent on from job to job.
        outbox_overdue: Seconds past due after which a pending message is reported.
        recovery_rate: Read capacity units a second that the sweep may use.
        log_payloads: Whether payloads may be logged.
        payload_bucket: Bucket of the bodies that SQS does not take; empty for none.
        fetch_from: Other buckets that a message may point into, for producers that are not ours.
        payload_limit: The largest body that is fetched or decompressed, in bytes.

    Example:
        >>> Settings.from_env({"ONCEQ_CLAIMS_TABLE": "claims", "ONCEQ_CONCURRENCY": "4"}).concurrency
        4
    """

    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    claims_table: str = ""
    outbox_table: str = ""
    concurrency: int = 10
    clock_skew: float = 10.0
    reserve: float = 1.0
    result_limit: int = 32_768
    max_hops: int = 1_000
    outbox_overdue: int = 300
    recovery_rate: int = 50
    log_payloads: bool = False
    payload_bucket: str = ""
    fetch_from: tuple[str, ...] = ()
    payload_limit: int = 4_194_304

    def __post_init__(self) -> None:
        """Check every number, wherever it came from.

        Raises:
            ConfigurationError: If one is out of its range.
        """
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                message = f"{_VARIABLES[name]}={value!r}: give a number from {low:g} to {high:g}"
                raise ConfigurationError(message)

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings from environment variables.

        Args:
            environ: The environment, for example ``os.environ``.

        Returns:
            The settings; an absent variable keeps its default.

        Raises:
            ConfigurationError: If a variable with our prefix is unknown, or its value cannot be used.
        """
        values: dict[str, object] = {}
        for name, text in environ.items():
            if not name.startswith(PREFIX):
                continue
            if name not in _READERS:
                # Above difflib's own 0.6, which the shared prefix alone would reach.
                near = difflib.get_close_matches(name, _READERS, n=1, cutoff=0.8)
                hint = f" Did you mean {near[0]}?" if near else f" Known are {', '.join(sorted(_READERS))}."
                message = f"unknown setting {name}.{hint}"
                raise ConfigurationError(message)
            if text != "":
                field_name, read = _READERS[name]
                values[field_name] = read(name, text)
        return cls(**values)  # type: ignore[arg-type]  # each reader returns its field's type

    def named_outbox(self) -> str:
        """Return the name of the outbox table. Raises: ConfigurationError, if there is none."""
        require(self.outbox_table != "", "ONCEQ_OUTBOX_TABLE is not set: name the outbox table (template.yaml does)")
        return self.outbox_table

    def queue(self, name: str) -> QueueSettings:
        """Return the queue of that name.

        Raises:
            ConfigurationError: If there is none.
        """
        try:
            return self.queues[name]
        except KeyError:
            known = ", ".join(sorted(self.queues)) or "none"
            message = f"queue {name!r} is not in ONCEQ_QUEUES (known: {known})"
            raise ConfigurationError(message) from None

    def queue_of(self, arn: str) -> QueueSettings | None:
        """Return the queue that has this ARN, or ``None``."""
        return next((queue for queue in self.queues.values() if arn and queue.arn == arn), None)


def _number(convert: Callable[[str], float]) -> Callable[[str, str], float]:
    def read(name: str, text: str) -> float:
        try:
            return convert(text)
        except ValueError:
            kind = "a whole number" if convert is int else "a number"
            message = f"{name}={text!r}: give {kind}"
            raise ConfigurationError(message) from None

    return read


def _text(_name: str, text: str) -> str:
    return text


def _names(_name: str, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _boolean(name: str, text: str) -> bool:
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        message = f"{name}={text!r}: give true or false"
        raise ConfigurationError(message) from None


def _queues(name: str, text: str) -> dict[str, QueueSettings]:
    shape = '{"default": {"url": "…", "arn": "…", "dlq_url": "…"}}'
    try:
        raw = decode(text)
    except PayloadError as error:
        message = f"{name} is not JSON ({error}): give {shape}"
        raise ConfigurationError(message) from error
    queues = {}
    for queue_name, entry in raw.items() if isinstance(raw, dict) else [("", None)]:
        known = {"url", "arn", "dlq_url"}
        if (
            not isinstance(entry, dict)
            or not all(isinstance(value, str) for value in entry.values())
            or not entry.get("url")
            or not set(entry) <= known
        ):
            message = f"{name}: queue {queue_name!r} needs a url and knows only {sorted(known)}: give {shape}"
            raise ConfigurationError(message)
        if entry.get("arn") and not entry.get("dlq_url"):
            message = f"{name}: queue {queue_name!r} has an arn, so it is consumed, and needs a dlq_url"
            raise ConfigurationError(message)
        queue = queues[queue_name] = QueueSettings(queue_name, **entry)
        # SQS takes no other pair (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/
        # sqs-dead-letter-queues.html), so one of the two is somebody else's.
        if queue.dlq_url and queue.is_fifo != queue.dlq_is_fifo:
            message = f"{name}: queue {queue_name!r} is FIFO and its dead-letter queue is not, or the other way round"
            raise ConfigurationError(message)
    arns = [queue.arn for queue in queues.values() if queue.arn]
    for arn in arns:
        if arns.count(arn) > 1:
            message = f"{name}: two queues have the arn {arn!r}, so a message would not tell which one it is from"
            raise ConfigurationError(message)
    return queues


_READERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "ONCEQ_CLAIMS_TABLE": ("claims_table", _text),
    "ONCEQ_OUTBOX_TABLE": ("outbox_table", _text),
    "ONCEQ_QUEUES": ("queues", _queues),
    "ONCEQ_CONCURRENCY": ("concurrency", _number(int)),
    "ONCEQ_CLOCK_SKEW": ("clock_skew", _number(float)),
    "ONCEQ_RESERVE": ("reserve", _number(float)),
    "ONCEQ_RESULT_LIMIT": ("result_limit", _number(int)),
    "ONCEQ_MAX_HOPS": ("max_hops", _number(int)),
    "ONCEQ_OUTBOX_OVERDUE": ("outbox_overdue", _number(int)),
    "ONCEQ_RECOVERY_RATE": ("recovery_rate", _number(int)),
    "ONCEQ_LOG_PAYLOADS": ("log_payloads", _boolean),
    "ONCEQ_PAYLOAD_BUCKET": ("payload_bucket", _text),
    "ONCEQ_FETCH_FROM": ("fetch_from", _names),
    "ONCEQ_PAYLOAD_LIMIT": ("payload_limit", _number(int)),
}

_VARIABLES = {field_name: variable for variable, (field_name, _) in _READERS.items()}
_RANGES: dict[str, tuple[float, float]] = {
    "concurrency": (1, 100),
    "clock_skew": (0, 3_600),
    "reserve": (0, 600),
    # An item is at most 400 KB with everything else in it.
    "result_limit": (0, 350_000),
    "max_hops": (0, 1_000_000),
    "outbox_overdue": (0, 1_209_600),
    "recovery_rate": (1, 1_000_000),
    # A function has 10 GB at the most, and several are fetched at once.
    "payload_limit": (1_024, 1_073_741_824),
}
