"""What other services put on a queue, and how a job type says that it takes it: ``@job(…, source=source.s3())``.

A source recognises a body, takes it apart into payloads, and knows what names each of them: S3 the object and its
sequencer, EventBridge the event's id, SNS the message id. A message with several records becomes several jobs, each
claimed, retried and rejected by itself.

Every source takes ``key=`` and ``payload=``: JMESPath expressions over ``{"body": …, "sns": …, "message": …,
"event": …, "record": …}``, where a layer that is not there is null. A key that the job type declares with ``key=``,
over its payload, stands before what a source knows by itself; a ``key=`` of the source stands before both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jmespath

from onceq.codec import decode
from onceq.errors import IdempotencyKeyError, MessageError
from onceq.keys import check_key, join_key
from onceq.s3_object import S3Object, object_in_event, object_in_record
from onceq.selector import check_expression, select

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onceq.layers import Layers

__all__ = ["S3Object", "Source", "eventbridge", "plain", "records", "s3", "scheduler", "sns"]


class Part(NamedTuple):
    """One job's worth of a body.

    Args:
        payload: What the job gets, as JSON.
        identity: What names it, if the source knows; its idempotency key is made of that.
        record: The record it was made of.
        broken: Why it can be no job, if so; the others of its body go on.
    """

    payload: Any
    identity: tuple[str, ...] | None
    record: Any = None
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Where messages come from that no onceq producer made. Make one with a function of this module.

    Args:
        kind: Its name, for errors.
        parts: Takes a body apart; ``None`` if it is not of this source.
        wanted: What the body must hold, over the layers, by JMESPath expression.
        key: Selects the idempotency key from the layers.
        payload: Selects the payload from the layers.
        breadth: How much its kind recognises, from 0.
        takes_all: Whether it recognises any body.
        takes_text: Whether it takes a body that is not JSON.
        compared: Fields of the payload that must agree between duplicates; all of them without it.
    """

    kind: str
    parts: Callable[[Layers], Sequence[Part] | None]
    wanted: tuple[tuple[str, str], ...] = ()
    key: str | None = None
    payload: str | None = None
    breadth: int = 0
    takes_all: bool = False
    takes_text: bool = False
    compared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the expressions, so that a mistake shows at import.

        Raises:
            ConfigurationError: If one is not JMESPath.
        """
        for option, expression in (("key", self.key), ("payload", self.payload)):
            if expression is not None:
                check_expression(f"source.{self.kind}: {option}", expression)

    @property
    def rank(self) -> tuple[int, int]:
        """Its place among the job types of a queue: what recognises least is asked first."""
        return self.breadth, -len(self.wanted)

    @property
    def selects(self) -> tuple[object, ...]:
        """What it recognises; of two that recognise the same, one would never be asked."""
        return (self.takes_all,) if self.takes_all else (self.parts, self.wanted)

    def parts_of(self, layers: Layers) -> Sequence[Part] | None:
        """Return the parts of a body, or ``None`` if it is not of this source."""
        known = layers.with_record(None)
        if any(jmespath.search(path, known) != value for path, value in self.wanted):
            return None
        return self.parts(layers)

    def payload_of(self, layers: Layers, part: Part) -> Any:
        """Return what the job gets.

        Raises:
            MessageError: If the part is broken, or ``payload=`` cannot be applied to it.
        """
        if part.broken is not None:
            raise MessageError(part.broken)
        if self.payload is None:
            return part.payload
        selected = self._selected("payload", self.payload, layers, part)
        if selected is None:
            message = f"payload={self.payload!r} of source.{self.kind} selects nothing"
            raise MessageError(message)
        return selected

    def key_of(self, layers: Layers, part: Part) -> str | None:
        """Return the idempotency key that ``key=`` selects; ``None`` without it.

        Raises:
            IdempotencyKeyError: If it selects nothing usable.
        """
        if self.key is None:
            return None
        selected = self._selected("key", self.key, layers, part)
        if selected is None:
            message = f"key={self.key!r} of source.{self.kind} selects nothing"
            raise IdempotencyKeyError(message)
        return join_key(*selected) if isinstance(selected, list) else check_key(selected)

    def compared_in(self, payload: Any) -> Any:
        """Return what of a payload must agree between duplicates."""
        if self.payload is not None or not isinstance(payload, dict) or not {"bucket", "key"} <= payload.keys():
            return payload
        return {name: payload.get(name) for name in self.compared} if self.compared else payload

    def _selected(self, option: str, expression: str, layers: Layers, part: Part) -> Any:
        return select(expression, layers.with_record(part.record), None, called=f"{option}= of source.{self.kind}")


def plain(*, key: str | None = None, payload: str | None = None) -> Source:
    """Take any JSON body, whole. The job type declares its ``key=``.

    Example:
        >>> plain().takes_all
        True
    """
    return Source("plain", _plain, key=key, payload=payload, breadth=3, takes_all=True)


def sns(*, raw: bool = False, key: str | None = None, payload: str | None = None) -> Source:
    """Take what was published to an SNS topic: the message as JSON, or as text where it is not JSON.

    Its key is SNS's message id, the same however often SNS delivers it. A publisher that publishes twice makes two:
    declare ``key=`` over the message where it says what it is about.

    Args:
        raw: Whether the subscription may have raw message delivery, which tells no id: then the job type needs
            ``key=``, and every body of the queue is taken.
        key: Selects the key from the layers, for example ``"sns.MessageAttributes.order.Value"``.
        payload: Selects the payload from the layers.

    Example:
        >>> sns(key="sns.MessageId").kind
        'sns'
    """
    return Source(
        "sns", _raw if raw else _sns, key=key, payload=payload, breadth=3 if raw else 2, takes_all=raw, takes_text=raw
    )


def eventbridge(
    *,
    detail_type: str | None = None,
    source: str | None = None,
    key: str | None = None,
    payload: str | None = None,
) -> Source:
    """Take events of EventBridge, sent to the queue by a rule, or to a topic that the queue is subscribed to.

    The payload is the event's detail; its key is the event's id, the same however often the rule delivers it.

    Args:
        detail_type: Only events of this type.
        source: Only events of this source.
        key: Selects the key from the layers, for example ``"event.detail.order_id"``.
        payload: Selects the payload from the layers: ``"event"`` for all of it.

    Example:
        >>> eventbridge(detail_type="Order Placed").wanted
        (('event."detail-type"', 'Order Placed'),)
    """
    given = (('event."detail-type"', detail_type), ("event.source", source))
    wanted = tuple((path, value) for path, value in given if value is not None)
    return Source("eventbridge", _event, wanted, key=key, payload=payload, breadth=1)


def scheduler(*, key: str | None = None, payload: str | None = None) -> Source:
    """Take the event that a schedule of EventBridge sends where it was given no input.

    Its key is made of the schedule and the time, so a doubled trigger is a replay. A schedule with an input of its own
    sends that: best an envelope, as `template.yaml` does for the nightly report.

    Example:
        >>> scheduler().kind
        'scheduler'
    """
    return Source("scheduler", _schedule, key=key, payload=payload)


def s3(*, key: str | None = None, payload: str | None = None) -> Source:
    """Take the events of an S3 bucket: sent to the queue directly, through SNS (raw or not), or through EventBridge.

    The payload is an `S3Object`, the same in all four. Its key is made of bucket, object and sequencer, so an event
    that comes twice, or in two ways, is one job. The test event that S3 sends first is acknowledged and counted.

    Example:
        >>> s3().compared[:2]
        ('bucket', 'key')
    """
    return Source("s3", _s3, key=key, payload=payload, compared=S3Object.COMPARED)


def records(*, key: str | None = None, payload: str | None = None) -> Source:
    """Take the records of a stream that EventBridge Pipes sends on: a bare list of them, or one.

    Each is a job; its key is the record's event id, which DynamoDB and Kinesis give.

    Example:
        >>> records(key="record.dynamodb.NewImage.order_id.S").kind
        'records'
    """
    return Source("records", _records, key=key, payload=payload)


def _plain(layers: Layers) -> Sequence[Part]:
    return [Part(layers.body, None)]


def _sns(layers: Layers) -> Sequence[Part] | None:
    if layers.sns is None:
        return None
    return [Part(layers.message, _identity(layers.sns.get("MessageId")))]


def _raw(layers: Layers) -> Sequence[Part]:
    return _sns(layers) or [Part(layers.body, None)]


def _event(layers: Layers) -> Sequence[Part] | None:
    if layers.event is None:
        return None
    return [Part(layers.event["detail"], _identity(layers.event.get("id")))]


def _schedule(layers: Layers) -> Sequence[Part] | None:
    event = layers.event
    if event is None or event["source"] not in ("aws.scheduler", "aws.events"):
        return None
    if event["detail-type"] != "Scheduled Event":
        return None
    arns, detail = event.get("resources"), event["detail"]
    arn = arns[0] if isinstance(arns, list) and arns else None
    # Scheduler writes the detail as text, a rule as an object.
    return [Part(_decoded(detail) if isinstance(detail, str) else detail, _identity(arn, event.get("time")))]


def _records(layers: Layers) -> Sequence[Part] | None:
    found = layers.message if isinstance(layers.message, list) else [layers.message]
    if not found or not all(isinstance(one, dict) and "eventSource" in one for one in found):
        return None
    return [Part(one, _identity(one.get("eventID")), one) for one in found]


def _s3(layers: Layers) -> Sequence[Part] | None:
    if layers.is_test_event:
        return []
    if layers.event is not None:
        return [_s3_part(layers.event, object_in_event)] if layers.event["source"] == "aws.s3" else None
    value = layers.message
    found = value.get("Records") if isinstance(value, dict) else None
    if not isinstance(found, list) or not any(isinstance(one, dict) and "s3" in one for one in found):
        return None
    return [_s3_part(one, object_in_record) for one in found]


def _s3_part(record: Any, read: Callable[[Mapping[str, Any]], S3Object]) -> Part:
    try:
        told = read(record)
    except MessageError as error:
        return Part(None, None, record, str(error))
    return Part(told.payload, told.identity, record)


def _identity(*parts: Any) -> tuple[str, ...] | None:
    return parts if all(isinstance(part, str) and part for part in parts) else None


def _decoded(text: str) -> Any:
    try:
        return decode(text)
    except MessageError:
        return text
