"""One SQS record as delivered, and the envelope in its body.

Wire format of the body (design, section 8)::

    {"onceq": 1, "job_type": "process_payment", "idempotency_key": "o-1", "payload": {...},
     "created_at": "2026-11-29T12:00:00Z"}

The body is the truth. Message attributes are only copies (SNS drops them), and a redrive changes message ids
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html),
so nothing here is keyed on the message id.
"""

from __future__ import annotations

import base64
import binascii
import math
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from onceq.codec import decode, encode, printable
from onceq.errors import EnvelopeError, PayloadError
from onceq.layers import Layers, layers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
ATTRIBUTE = "onceq"
LONGEST_NOTED_KEY = 500
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
LONGEST_RETENTION_MS = 1_209_600_000
# How often the message whose job runs here was sent on: what the job enqueues is one hop further.
current_hops: ContextVar[int] = ContextVar("onceq_hops", default=-1)


@dataclass(frozen=True, slots=True)
class DeadLetterNote:
    """Why a message went to the dead-letter queue; it travels as one small attribute of the copy.

    Args:
        reason: Why, in the framework's words.
        error: What the job raised, if anything.
        job_type: Name of the job type; empty where none could be found.
        idempotency_key: The job's key; empty where there is none.
        attempts: Starts of the job.
        version: Version of the claim's record, by which a redrive of this copy is known; 0 without a record.
        source_queue: Name of the queue that the message came from.
    """

    reason: str
    error: str = ""
    job_type: str = ""
    idempotency_key: str = ""
    attempts: int = 0
    version: int = 0
    source_queue: str = ""

    def to_text(self) -> str:
        """Return the note as the attribute's JSON: bounded, and only of characters that SQS takes."""
        return encode(
            {
                "reason": printable(self.reason, 500),
                "error": printable(self.error, 1_000),
                "job_type": self.job_type,
                "key": printable(self.idempotency_key, LONGEST_NOTED_KEY),
                "attempts": self.attempts,
                "version": self.version,
                "source_queue": self.source_queue,
            }
        )


@dataclass(frozen=True, slots=True)
class Message:
    """One SQS record as delivered. Reading one never fails: what is odd is left empty.

    Args:
        message_id: SQS's id of this message; ``None`` where the record has none.
        body: The body as text; ``None`` where the record has none.
        receipt_handle: Names this delivery to SQS.
        source_arn: ARN of the queue.
        receive_count: SQS's ``ApproximateReceiveCount``.
        sent_at: SQS's ``SentTimestamp``, epoch ms, from which its retention counts; 0 where it is not told.
        group: The FIFO message group, or ``""``.
        attributes: The message attributes in Lambda's shape.
        redriven_version: Version in our dead-letter note, if the message carries one: it is then a redrive.
        redriven_key: The key in that note; a message may hold other jobs beside the one that was rejected.
    """

    message_id: str | None
    body: str | None
    receipt_handle: str = ""
    source_arn: str = ""
    receive_count: int = 0
    sent_at: int = 0
    group: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    redriven_version: int | None = None
    redriven_key: str | None = None

    @classmethod
    def from_record(cls, record: object) -> Message:
        """Read a record of a Lambda event, whatever it holds."""
        if not isinstance(record, dict):
            return cls(None, None)
        system = _mapping(record.get("attributes"))
        attributes = _mapping(record.get("messageAttributes"))
        version, key = _redriven(attributes.get(ATTRIBUTE))
        return cls(
            message_id=_text(record.get("messageId")) or None,
            body=record["body"] if isinstance(record.get("body"), str) else None,
            receipt_handle=_text(record.get("receiptHandle")),
            source_arn=_text(record.get("eventSourceARN")),
            receive_count=_count(system.get("ApproximateReceiveCount")),
            sent_at=_count(system.get("SentTimestamp")),
            group=_text(system.get("MessageGroupId")),
            attributes=attributes,
            redriven_version=version,
            redriven_key=key,
        )

    def redriven_version_of(self, key: str) -> int | None:
        """Return the version in our dead-letter note, if that is about the job of this key."""
        return self.redriven_version if self.redriven_key in (None, printable(key, LONGEST_NOTED_KEY)) else None

    @property
    def kept_until(self) -> float:
        """When SQS deletes the message where its queue keeps it for 14 days, the longest: epoch ms, an hour early."""
        return self.sent_at + LONGEST_RETENTION_MS - 3_600_000 if self.sent_at else math.inf

    def sendable_attributes(self) -> dict[str, dict[str, Any]]:
        """Return the message attributes in the shape that SendMessage takes, binary ones decoded, ours left out."""
        sendable = {}
        for name, attribute in self.attributes.items():
            raw = _mapping(attribute)
            data_type = _text(raw.get("dataType"))
            if name == ATTRIBUTE or not data_type:
                continue
            if isinstance(raw.get("stringValue"), str):
                sendable[name] = {"DataType": data_type, "StringValue": raw["stringValue"]}
            elif isinstance(raw.get("binaryValue"), str):
                try:
                    binary = base64.b64decode(raw["binaryValue"], validate=True)
                except binascii.Error:
                    continue
                sendable[name] = {"DataType": data_type, "BinaryValue": binary}
        return sendable


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the body says.

    Args:
        job_type: Name of the job type.
        payload: The payload.
        idempotency_key: As stamped by the producer, unchecked; ``None`` where there is none.
        hops: How often the message was sent on from job to job.
    """

    job_type: str
    payload: Any
    idempotency_key: Any = None
    hops: int = 0


class NewerEnvelope(NamedTuple):
    """An envelope of a version that this release does not know: kept, since a roll-back must not lose it."""

    version: int


def open_envelope(body: str | None, *, wrapped: bool = False) -> Envelope | NewerEnvelope | Layers:
    """Read the body of a message.

    Args:
        body: The body as text.
        wrapped: Whether an envelope inside SNS or EventBridge is opened as well.

    Returns:
        The envelope; the layers of a body that has none.

    Raises:
        EnvelopeError: If there is no body, it is not JSON, or it is an envelope with a broken field.

    Example:
        >>> open_envelope('{"onceq": 1, "job_type": "greet", "payload": {"name": "Ada"}}').job_type
        'greet'
    """
    if body is None:
        message = "the record has no body"
        raise EnvelopeError(message)
    try:
        value = decode(body)
    except PayloadError as error:
        raise EnvelopeError(str(error)) from error
    if isinstance(value, dict) and "onceq" in value:
        return _opened(value)
    layers = layers_of(value)
    inner = layers.inner
    # Somebody else's JSON may have a field of that name: inside a wrapping only what is an envelope counts as one.
    enveloped = isinstance(inner, dict) and _is_int(inner.get("onceq")) and isinstance(inner.get("job_type"), str)
    return _opened(inner) if wrapped and enveloped else layers


def _opened(value: Mapping[str, Any]) -> Envelope | NewerEnvelope:
    version, job_type, hops = value["onceq"], value.get("job_type"), value.get("hops", 0)
    if not _is_int(version) or version < 1:
        message = f"the envelope's version is {printable(version, 40)}: it must be a whole number from 1 on"
        raise EnvelopeError(message)
    if version > VERSION:
        return NewerEnvelope(version)
    if not isinstance(job_type, str) or not job_type:
        message = "the envelope has no job_type"
        raise EnvelopeError(message)
    if not _is_int(hops) or hops < 0:
        message = f"the envelope's hops are {printable(hops, 40)}: they must be a whole number from 0 on"
        raise EnvelopeError(message)
    return Envelope(job_type, value.get("payload"), value.get("idempotency_key"), hops)


def timestamp(now_ms: int) -> str:
    """Return a time as an envelope tells it: ISO 8601 in UTC.

    Example:
        >>> timestamp(1_780_000_000_000)
        '2026-05-28T20:26:40.000Z'
    """
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seal(*, job_type: str, idempotency_key: str, payload: Any, created_at: str, hops: int = 0) -> str:
    """Return the body of a message.

    Args:
        job_type: Name of the job type.
        idempotency_key: The job's key, checked.
        payload: The payload as plain JSON.
        created_at: Now, as ISO 8601 in UTC.
        hops: How often it was sent on from job to job; 0 for the first of a chain.

    Returns:
        The envelope as JSON text that SQS takes.

    Raises:
        PayloadError: If the payload cannot be encoded.
    """
    body: dict[str, Any] = {
        "onceq": VERSION,
        "job_type": job_type,
        "idempotency_key": idempotency_key,
        "payload": payload,
        "created_at": created_at,
    }
    if hops:
        body["hops"] = hops
    # SQS refuses these two characters raw; inside JSON they can only stand in a string, where an escape is the same.
    return encode(body).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _redriven(attribute: object) -> tuple[int | None, str | None]:
    text = _mapping(attribute).get("stringValue")
    if not isinstance(text, str):
        return None, None
    try:
        note = _mapping(decode(text))
    except PayloadError:
        return None, None
    version, key = note.get("version"), _text(note.get("key")) or None
    return (version, key) if _is_int(version) else (None, None)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    """Return a value that is text; a lone surrogate makes it none, since neither DynamoDB nor SQS takes it."""
    if not isinstance(value, str):
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return ""
    return value


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: object) -> int:
    text = value if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0  # noqa: PLR2004 - no honest number is longer
