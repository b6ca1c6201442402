"""What a record of a Lambda event stands for, read by the letter of the documents and by none of the framework's code.

`docs/lifecycle.md` (bad input), `events/envelope.schema.json` and RFC 8259 are what is read here. Where they leave
room, the reading is `Fate.OPEN`: `kit.strict_answer` then takes any end that loses nothing.
"""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# Deeper is not read (docs/lifecycle.md: "nested too deeply"); near the limit either is right.
MOST_LEVELS = 200
OPEN_LEVELS = 5
MOST_HOPS = 1_000
MOST_KEY_BYTES = 8_192
UNKNOWN_TYPE = "nobody serves its job type"
POINTERS = (
    "software.amazon.payloadoffloading.PayloadS3Pointer",
    "com.amazon.sqs.javamessaging.MessageS3Pointer",
)
PLACEHOLDER = "<aws.scheduler."


class Fate(enum.Enum):
    """How a message ends, as far as it can be told from the message alone."""

    JOB = "it is a job"
    REFUSED = "it can never be one: it is copied"
    UNSERVED = "this release does not serve it, or it cannot be copied: it is kept"
    OPEN = "it ends in any way that loses nothing"
    NO_WORK = "there is nothing to do: it is acknowledged"


class Identity(NamedTuple):
    """What names a job: the oldest name of its type, and its key."""

    job_type: str
    key: str


@dataclass(frozen=True)
class Served:
    """A job type as the documents describe it.

    Args:
        name: Its oldest name.
        key: The field of the payload that is its key where none is stamped.
        fields: The payload's fields and their types; without them any object is taken.
        once: Whether it is at most once.
        locked: Whether it takes a lock, and may have to wait for it.
    """

    name: str
    key: str | None = None
    fields: Mapping[str, type] = field(default_factory=dict)
    once: bool = False
    locked: bool = False


@dataclass(frozen=True)
class Source:
    """A queue.

    Args:
        dlq_url: Its dead-letter queue.
        fifo: Whether it is FIFO.
        default: Name of the job type that takes bodies that are no envelope.
        foreign: Whether job types with ``source=`` are served from it: bodies that are no envelope are then theirs.
    """

    dlq_url: str
    fifo: bool = False
    default: str | None = None
    foreign: bool = False


@dataclass(frozen=True)
class Serving:
    """What an application serves: job types by every name, queues by ARN."""

    job_types: Mapping[str, Served]
    queues: Mapping[str, Source]


@dataclass(frozen=True)
class Reading:
    """What a record stands for.

    Args:
        fate: How it ends.
        why: Why, for people.
        identity: The job's, where it is one.
        payload: The job's.
        shown: What of it the job sees: the fields that its type declares, or all of it.
        parts: For how many jobs an open one stands.
        may_wait: Whether the job may have to wait for another one.
    """

    fate: Fate
    why: str = ""
    identity: Identity | None = None
    payload: Any = None
    shown: Any = None
    parts: int = 1
    may_wait: bool = False


class Unreadable(ValueError):
    """The text is no JSON."""


class AtTheLimit(ValueError):
    """Whether it is read is a matter of a level or a digit."""


def id_of(record: object) -> str | None:
    """Return the message id by which a record can be named: a text that JSON can carry."""
    found = record.get("messageId") if isinstance(record, dict) else None
    if not isinstance(found, str) or not found:
        return None
    try:
        found.encode()
    except UnicodeEncodeError:
        return None
    return found


def source_of(record: object, serving: Serving) -> Source | None:
    """Return the queue of a record."""
    arn = record.get("eventSourceARN") if isinstance(record, dict) else None
    return serving.queues.get(arn) if isinstance(arn, str) else None


def group_of(record: object) -> str:
    """Return the message group, or ``""``."""
    system = record.get("attributes") if isinstance(record, dict) else None
    group = system.get("MessageGroupId") if isinstance(system, dict) else None
    return group if isinstance(group, str) else ""


def body_of(record: object) -> str | None:
    """Return the body as text."""
    body = record.get("body") if isinstance(record, dict) else None
    return body if isinstance(body, str) else None


def read(record: object, serving: Serving) -> Reading:
    """Return what a record stands for."""
    queue, body = source_of(record, serving), body_of(record)
    if queue is None:
        return Reading(Fate.UNSERVED, "its queue is not served")
    if not body:
        return Reading(Fate.UNSERVED, "there is no body to copy")
    # Base64 never begins as JSON does, so what begins so is what it seems.
    if (_is_encoded(record) and body.lstrip()[:1] not in ("{", "[")) or any(name in body for name in POINTERS):
        return Reading(Fate.OPEN, "its body is elsewhere, or compressed")
    try:
        value = strictly(body)
        message = _unwrapped(value)
    except AtTheLimit as limit:
        return Reading(Fate.OPEN, str(limit))
    except Unreadable as error:
        return Reading(Fate.REFUSED, f"no JSON: {error}")
    inner = message["detail"] if _is_event(message) else message
    if isinstance(value, dict) and "onceq" in value:
        return _enveloped(value, serving)
    if isinstance(inner, dict) and type(inner.get("onceq")) is int and isinstance(inner.get("job_type"), str):
        return _enveloped(inner, serving)
    if isinstance(message, dict) and (message.get("Service"), message.get("Event")) == ("Amazon S3", "s3:TestEvent"):
        return Reading(Fate.NO_WORK, "S3's test event")
    if queue.foreign:
        return _foreign(message)
    if queue.default is None:
        return Reading(Fate.REFUSED, "no envelope, and no job type takes it")
    return _job(serving.job_types[queue.default], value, None)


def _is_encoded(record: Any) -> bool:
    attributes = record.get("messageAttributes")
    names = attributes if isinstance(attributes, dict) else ()
    return any(name.lower() == "content-encoding" for name in names)


def _unwrapped(value: Any) -> Any:
    """Return what was published, if a body is what SNS makes of it."""
    if not (isinstance(value, dict) and value.get("Type") == "Notification" and isinstance(value.get("Message"), str)):
        return value
    if value.keys().isdisjoint({"TopicArn", "MessageId"}):
        return value
    try:
        return strictly(value["Message"])
    except Unreadable:
        return value["Message"]


def _is_event(value: Any) -> bool:
    """Return whether a value is an event of EventBridge."""
    if not isinstance(value, dict) or "detail" not in value:
        return False
    return isinstance(value.get("detail-type"), str) and isinstance(value.get("source"), str)


def _foreign(message: Any) -> Reading:
    """Return for how many jobs another service's message stands, if it is what its own documents describe."""
    several = message.get("Records") if isinstance(message, dict) else message
    return Reading(Fate.OPEN, "another service's", parts=max(1, len(several)) if isinstance(several, list) else 1)


def _enveloped(envelope: Mapping[str, Any], serving: Serving) -> Reading:
    version, name, hops = envelope["onceq"], envelope.get("job_type"), envelope.get("hops", 0)
    if type(version) is not int or version < 1:
        return Reading(Fate.REFUSED, "its version")
    if version > 1:
        return Reading(Fate.UNSERVED, "its version is newer")
    if not isinstance(name, str) or not name:
        return Reading(Fate.REFUSED, "no job type")
    if type(hops) is not int or hops < 0:
        return Reading(Fate.REFUSED, "its hops")
    if name not in serving.job_types:
        return Reading(Fate.UNSERVED, UNKNOWN_TYPE)
    if hops > MOST_HOPS:
        return Reading(Fate.REFUSED, "too many hops")
    return _job(serving.job_types[name], envelope.get("payload"), envelope.get("idempotency_key"))


def _job(served: Served, payload: Any, stamped: Any) -> Reading:
    if not isinstance(payload, dict):
        return Reading(Fate.REFUSED, "the payload is no object")
    for name, type_ in served.fields.items():
        found = payload.get(name)
        if type(found) is float and type_ is int:
            return Reading(Fate.OPEN, "a whole number written as another one")
        if type(found) is not type_:
            return Reading(Fate.REFUSED, f"the payload's {name}")
    key = stamped
    if key is None and served.key is not None:
        key = payload.get(served.key)
        if isinstance(key, list):
            return Reading(Fate.OPEN, "a key of several parts")
    if type(key) is int and abs(key) < 10**100:
        key = str(key)
    if not isinstance(key, str) or not key.strip() or len(key.encode()) > MOST_KEY_BYTES or PLACEHOLDER in key:
        return Reading(Fate.REFUSED, "no key")
    shown = {name: payload[name] for name in served.fields} or payload
    return Reading(Fate.JOB, "", Identity(served.name, key), payload, shown, may_wait=served.locked)


def strictly(text: str) -> Any:
    """Read JSON by RFC 8259: no NaN, no lone surrogate, no infinite number, 200 levels.

    Raises:
        Unreadable: If it is none.
        AtTheLimit: If it is at the limit of what is read.
    """
    try:
        text.encode()
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_encodable)
        _check_levels(text, value)
        if "\\u" in text:
            canonical(value).encode()
    except AtTheLimit:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)[:100]) from error
    return value


def _check_levels(text: str, value: Any) -> None:
    if text.count("[") + text.count("{") <= MOST_LEVELS - OPEN_LEVELS:
        return
    levels = _levels(value)
    if levels > MOST_LEVELS + OPEN_LEVELS:
        raise Unreadable(f"{levels} levels")
    if levels > MOST_LEVELS - OPEN_LEVELS:
        raise AtTheLimit(f"{levels} levels")


def _refuse(word: str) -> Any:
    raise Unreadable(word)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Unreadable("an infinite number")
    return value


def _encodable(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, value in pairs:
        name.encode()
        if isinstance(value, str):
            value.encode()
    return dict(pairs)


def _levels(value: Any) -> int:
    levels, level = 0, [value]
    while level:
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        levels += 1
    return levels


def canonical(value: Any) -> str:
    """Return a JSON value as one text, equal for equal values: sorted, and ``1.0`` as ``1``."""
    return json.dumps(_whole(value), sort_keys=True, ensure_ascii=False)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(inner) for name, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list) else value
