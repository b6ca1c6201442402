"""Large messages: the wire format by which a body stands in S3 and the queue only says where.

It is the one of the Amazon SQS Extended Client, in both directions
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-managing-large-messages.html).
The body::

    ["software.amazon.payloadoffloading.PayloadS3Pointer", {"s3BucketName": "…", "s3Key": "…"}]

An attribute tells the size. A pointer of the older class name is read as well. Beside it the job type and the key are
stamped as attributes: when the object is gone, they say whose job it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from onceq.codec import decode, encode
from onceq.errors import PayloadError
from onceq.layers import layers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceq.message import Message

CLASS = "software.amazon.payloadoffloading.PayloadS3Pointer"
LEGACY_CLASS = "com.amazon.sqs.javamessaging.MessageS3Pointer"
SIZE = "ExtendedPayloadSize"
LEGACY_SIZE = "SQSLargePayloadSize"
JOB_TYPE = "onceq.job_type"
KEY = "onceq.key"
# Named as in HTTP, in any case; the body is Base64 then, in the message or in the object that it points at.
ENCODING = "content-encoding"
# What SQS refuses in an attribute
# (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html), and the escape itself.
_ESCAPED = re.compile("[^\t\n\r -$&-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a body stands.

    Args:
        bucket: Name of the bucket.
        key: The object's key.

    Example:
        >>> Pointer("payloads", "p-1").to_text()
        '["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"payloads","s3Key":"p-1"}]'
    """

    bucket: str
    key: str

    def to_text(self) -> str:
        """Return the body that stands for it."""
        return encode([CLASS, {"s3BucketName": self.bucket, "s3Key": self.key}])


def pointer_in(body: str) -> Pointer | None:
    """Return where a body stands, if it is a pointer, or an SNS notification of one.

    Args:
        body: The body as text.
    """
    if CLASS not in body and LEGACY_CLASS not in body:
        return None
    try:
        value = layers_of(decode(body)).message
    except PayloadError:
        return None
    match value:
        case [(str() as name), {"s3BucketName": str() as bucket, "s3Key": str() as key}] if name in (
            CLASS,
            LEGACY_CLASS,
        ):
            return Pointer(bucket, key) if bucket and key else None
        case _:
            return None


def with_message(body: str, fetched: str) -> str:
    """Return a body with what its pointer stands for in the pointer's place.

    Args:
        body: A pointer, or an SNS notification of one.
        fetched: What stood there.
    """
    value = decode(body)
    return encode({**value, "Message": fetched}) if isinstance(value, dict) else fetched


def stamps(job_type: str, key: str, size: int) -> dict[str, dict[str, str]]:
    """Return the attributes of an off-loaded message, in the shape that SendMessage takes.

    Args:
        job_type: Name of the job type.
        key: The idempotency key.
        size: Bytes of the body that was off-loaded.
    """
    escaped = _ESCAPED.sub(lambda found: quote(found[0]), key)
    return {
        SIZE: {"DataType": "Number", "StringValue": str(size)},
        JOB_TYPE: {"DataType": "String", "StringValue": job_type},
        KEY: {"DataType": "String", "StringValue": escaped},
    }


def tells_of_the_body(name: str) -> bool:
    """Return whether an attribute of that name says how the body is to be read, and is wrong beside another body."""
    return name in (SIZE, LEGACY_SIZE, JOB_TYPE, KEY) or name.lower() == ENCODING


def stamped(message: Message) -> tuple[str, str] | None:
    """Return job type and key as stamped beside a pointer, if they are."""
    job_type, key = (_text(message.attributes, name) for name in (JOB_TYPE, KEY))
    return (job_type, unquote(key)) if job_type and key else None


def _text(attributes: Mapping[str, Any], name: str) -> str:
    attribute = attributes.get(name)
    value = attribute.get("stringValue") if isinstance(attribute, dict) else None
    return value if isinstance(value, str) else ""
