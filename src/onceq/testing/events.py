"""SQS events as Lambda gives them, with every attribute that AWS sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceq.codec import encode
from onceq.keys import check_key
from onceq.message import seal
from onceq.poller import lambda_event
from onceq.settings import require
from onceq.testing.clock import START_MS
from onceq.testing.contents import ACCOUNT, REGION, SENDER, checksums, deduplication_id, message_id_of
from onceq.testing.given import check_job_type, check_text, shown


def queue_arn(name: str) -> str:
    """Return the ARN of a queue of the local account.

    Example:
        >>> queue_arn("JobsQueue")
        'arn:aws:sqs:us-east-1:123456789012:JobsQueue'
    """
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


def envelope(job_type: Any, payload: Any, *, key: str | int, created_at: str = "2026-11-29T12:00:00Z") -> str:
    """Return a message body as `onceq.App.enqueue` makes it.

    Args:
        job_type: The job type, or its name.
        payload: Plain JSON values, a dataclass, or what else the job type takes.
        key: The idempotency key: a string that is not blank, or an int, which is written in decimal.
        created_at: When it was enqueued.

    Raises:
        ConfigurationError: If the job type is none.
        IdempotencyKeyError: If the key is none.
        PayloadError: If the payload cannot be encoded.

    Example:
        >>> envelope("greet", {"name": "Ada"}, key="k-1")[:40]
        '{"created_at":"2026-11-29T12:00:00Z","id'
    """
    check_job_type(job_type, named=True)
    name = job_type if isinstance(job_type, str) else job_type.name
    return seal(job_type=name, idempotency_key=check_key(key), payload=payload, created_at=created_at)


def sqs_record(
    body: Any,
    *,
    number: int = 1,
    queue: str = "JobsQueue",
    message_id: str | None = None,
    receive_count: int = 1,
    sent_ms: int = START_MS,
    received_ms: int | None = None,
    group: str | None = None,
    attributes: Mapping[str, str | bytes | Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return one record of an SQS event, as Lambda gives it.

    The shape is that of https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html.

    Args:
        body: The body: text as it is, everything else as JSON.
        number: Makes message id, receipt handle and sequence number.
        queue: Name of the queue, or its ARN; ``.fifo`` at its end says that it is one.
        message_id: Instead of the one made.
        receive_count: SQS's ``ApproximateReceiveCount``.
        sent_ms: When it was sent, epoch ms.
        received_ms: When it was first received; without it a millisecond later.
        group: The message group. On a FIFO queue ``g`` without one; on a standard one it marks a tenant.
        attributes: Message attributes by name: text, bytes, or as SendMessage takes them, for example
            ``{"DataType": "Number", "StringValue": "3"}``.

    Raises:
        ConfigurationError: If queue or group are no text, or an attribute is none.

    Example:
        >>> sqs_record({"order_id": "o-1"})["body"]
        '{"order_id":"o-1"}'
    """
    check_text("queue", queue)
    check_text("group", group or "")
    text = body if isinstance(body, str) else encode(body)
    arn = queue if queue.startswith("arn:") else queue_arn(queue)
    system = {
        "ApproximateReceiveCount": str(receive_count),
        "SentTimestamp": str(sent_ms),
        "SenderId": SENDER,
        "ApproximateFirstReceiveTimestamp": str(sent_ms + 1 if received_ms is None else received_ms),
    }
    if arn.endswith(".fifo"):
        system |= {"SequenceNumber": f"{number:020}", "MessageDeduplicationId": deduplication_id(number, text)}
        group = group or "g"
    if group is not None:
        system["MessageGroupId"] = group
    message = {
        "MessageId": message_id or message_id_of(number),
        "ReceiptHandle": f"receipt-{number}-{receive_count}",
        "Body": text,
        "Attributes": system,
        "MessageAttributes": attributes_of(attributes),
    }
    [record] = lambda_event([message | checksums(message)], arn)["Records"]
    return dict(record)


def sqs_event(*bodies: Any, **options: Any) -> dict[str, Any]:
    """Return an SQS event as Lambda gives it, a record for each body.

    Args:
        bodies: The bodies, or whole records that `sqs_record` made.
        options: As for `sqs_record`, for each body.

    Example:
        >>> event = sqs_event(envelope("greet", {"name": "Ada"}, key="k-1"), queue="JobsQueue")
        >>> sorted(event["Records"][0]["attributes"])[:2]
        ['ApproximateFirstReceiveTimestamp', 'ApproximateReceiveCount']
    """
    return {
        "Records": [
            body if _is_record(body) else sqs_record(body, number=number, **options)
            for number, body in enumerate(bodies, 1)
        ]
    }


def _is_record(body: Any) -> bool:
    return isinstance(body, dict) and body.get("eventSource") == "aws:sqs"


def attributes_of(given: Mapping[str, str | bytes | Mapping[str, Any]] | None) -> dict[str, dict[str, Any]]:
    """Return message attributes as SendMessage takes them. Raises: ConfigurationError, if these are none."""
    require(given is None or isinstance(given, Mapping), f"attributes= is {shown(given)}: give text or bytes by name")
    return {name: _attribute_of(name, value) for name, value in (given or {}).items()}


def _attribute_of(name: str, value: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(value, str):
        return {"DataType": "String", "StringValue": value}
    if isinstance(value, bytes):
        return {"DataType": "Binary", "BinaryValue": value}
    is_whole = isinstance(value, Mapping) and "DataType" in value and bool({"StringValue", "BinaryValue"} & {*value})
    told = 'give text, bytes, or what SendMessage takes: {"DataType": "Number", "StringValue": "3"}'
    require(is_whole, f"the message attribute {name!r} is {shown(value)}: {told}")
    return dict(value)
