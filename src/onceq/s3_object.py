"""What happened to an object of S3, read from S3's own notification or from EventBridge's event: one form for both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote_plus

from onceq.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

# EventBridge's reasons, in the words of S3's own notifications
# (https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html).
_CREATED = {
    "PutObject": "ObjectCreated:Put",
    "POST Object": "ObjectCreated:Post",
    "CopyObject": "ObjectCreated:Copy",
    "CompleteMultipartUpload": "ObjectCreated:CompleteMultipartUpload",
}
_REQUEST_ID = "responseElements.x-amz-request-id"
_REMOVED = {
    "Permanently Deleted": "ObjectRemoved:Delete",
    "Delete Marker Created": "ObjectRemoved:DeleteMarkerCreated",
}


@dataclass(frozen=True, slots=True)
class S3Object:
    """What happened to an object of S3, the same however it was told. Annotate the payload of an S3 job with it.

    Args:
        bucket: Name of the bucket.
        key: The object's key, decoded.
        event: What happened, for example ``ObjectCreated:Put``.
        time: When, as S3 told it: ISO 8601.
        sequencer: Orders the events of one key; ``None`` for what neither makes nor removes an object.
        request_id: S3's id of the request that did it; ``None`` for what S3 does by itself.
        size: Bytes.
        etag: The object's entity tag.
        version_id: Its version, in a bucket with versions.

    Example:
        >>> S3Object("photos", "a cat.jpg", "ObjectCreated:Put", "2026-11-30T12:00:00Z").key
        'a cat.jpg'
    """

    # What every way of telling agrees on; size and entity tag of what was removed are told by one and not by another.
    COMPARED: ClassVar[tuple[str, ...]] = ("bucket", "key", "sequencer")

    bucket: str
    key: str
    event: str
    time: str
    sequencer: str | None = None
    size: int | None = None
    etag: str | None = None
    version_id: str | None = None
    request_id: str | None = None

    @property
    def identity(self) -> tuple[str, ...]:
        """What names the change; the idempotency key is made of it."""
        return self.bucket, self.key, self.sequencer or self.request_id or f"{self.event}@{self.time}"

    @property
    def payload(self) -> dict[str, Any]:
        """It as JSON, without what is not known."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def object_in_record(record: Mapping[str, Any]) -> S3Object:
    """Read a record of S3's own notification.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html

    Raises:
        PayloadError: If it names no bucket and object, or says something that S3 does not.
    """
    told = _inner(record, "s3")
    bucket, told_object = _inner(told, "s3.bucket"), _inner(told, "s3.object")
    key, responded = _text(told_object, "s3.object.key"), record.get("responseElements")
    try:
        decoded = unquote_plus(key, errors="strict")  # form encoding, with "+" for a space
    except UnicodeDecodeError as error:
        message = "the S3 record's object key is not UTF-8"
        raise PayloadError(message) from error
    return S3Object(
        bucket=_text(bucket, "s3.bucket.name"),
        key=decoded,
        event=_text(record, "eventName").removeprefix("s3:"),
        time=_text(record, "eventTime"),
        sequencer=_optional(told_object, "s3.object.sequencer", str),
        size=_optional(told_object, "s3.object.size", int),
        etag=_optional(told_object, "s3.object.eTag", str),
        version_id=_optional(told_object, "s3.object.versionId", str),
        request_id=_optional(responded if isinstance(responded, dict) else {}, _REQUEST_ID, str),
    )


def object_in_event(event: Mapping[str, Any]) -> S3Object:
    """Read an event of EventBridge, in the words of S3's own notifications.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html

    Raises:
        PayloadError: If it names no bucket and object, or says something that S3 does not.
    """
    detail = _inner(event, "detail")
    bucket, told_object = _inner(detail, "detail.bucket"), _inner(detail, "detail.object")
    kind = _text(event, "detail-type")
    names = {
        "Object Created": _CREATED.get(str(detail.get("reason")), "ObjectCreated"),
        "Object Deleted": _REMOVED.get(str(detail.get("deletion-type")), "ObjectRemoved"),
    }
    return S3Object(
        bucket=_text(bucket, "detail.bucket.name"),
        key=_text(told_object, "detail.object.key"),  # as it is: only notifications encode it
        event=names.get(kind, kind.replace(" ", "")),
        time=_text(event, "time"),
        sequencer=_optional(told_object, "detail.object.sequencer", str),
        size=_optional(told_object, "detail.object.size", int),
        etag=_optional(told_object, "detail.object.etag", str),
        version_id=_optional(told_object, "detail.object.version-id", str),
        request_id=_optional(detail, "detail.request-id", str),
    )


def _inner(value: Any, path: str) -> Mapping[str, Any]:
    inner = value.get(_name(path)) if isinstance(value, dict) else None
    if not isinstance(inner, dict):
        message = f"the S3 record has no {path}"
        raise PayloadError(message)
    return inner


def _text(value: Mapping[str, Any], path: str) -> str:
    text = _optional(value, path, str)
    if not text:
        message = f"the S3 record has no {path}"
        raise PayloadError(message)
    return str(text)


def _optional(value: Mapping[str, Any], path: str, type_: type) -> Any:
    told = value.get(_name(path))
    # A bucket without versions has the version null, or an empty one.
    if told is None or told == "":
        return None
    if not isinstance(told, type_) or isinstance(told, bool):
        message = f"the S3 record's {path} is a {type(told).__name__}, not a {type_.__name__}"
        raise PayloadError(message)
    return told


def _name(path: str) -> str:
    return path.rpartition(".")[2]
