"""What a body is wrapped in: an SNS notification, an EventBridge event, one inside the other.

A service puts its own JSON round what a producer sent. Each wrapping is recognised by what it always has, since the
rest may be missing: a notification of a FIFO topic has no signature, and not every one an address to unsubscribe
(https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html,
https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceq.codec import decode
from onceq.errors import NotJson, PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

# What SNS asks of an endpoint before it sends anything: nobody but a person can answer it.
CONFIRMATIONS = ("SubscriptionConfirmation", "UnsubscribeConfirmation")


@dataclass(frozen=True, slots=True)
class Layers:
    """A body, taken apart.

    Args:
        body: The body as JSON.
        sns: The SNS notification, if it is one.
        message: What SNS was given, as JSON where it is JSON and as text otherwise; the body without SNS.
        event: The EventBridge event, if there is one, in the body or in the notification.
        inner: The innermost value: the event's detail, else ``message``.
    """

    body: Any
    sns: Mapping[str, Any] | None = None
    message: Any = None
    event: Mapping[str, Any] | None = None
    inner: Any = None

    @property
    def is_test_event(self) -> bool:
        """Whether S3 only says that its notifications are set up; there is nothing to do.

        https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
        """
        value = self.message
        return isinstance(value, dict) and (value.get("Service"), value.get("Event")) == ("Amazon S3", "s3:TestEvent")

    @property
    def is_confirmation(self) -> bool:
        """Whether SNS asks to confirm a subscription."""
        return isinstance(self.body, dict) and self.body.get("Type") in CONFIRMATIONS and "SubscribeURL" in self.body

    def with_record(self, record: Any) -> dict[str, Any]:
        """Return what a source's ``key=`` and ``payload=`` select from.

        Args:
            record: The one record, of a body that holds several.
        """
        return {
            "body": self.body,
            "sns": self.sns,
            "message": self.message,
            "event": self.event,
            "record": record,
        }


def layers_of(body: Any) -> Layers:
    """Take a body apart.

    Args:
        body: The body as decoded JSON.

    Returns:
        Its layers; a plain body is its own innermost value.

    Example:
        >>> wrapped = {"Type": "Notification", "MessageId": "m-1", "Message": '{"paid": true}'}
        >>> layers_of(wrapped).inner
        {'paid': True}
    """
    sns = body if _is_notification(body) else None
    message = _json_or_text(body["Message"]) if sns is not None else body
    event = message if _is_event(message) else None
    return Layers(body, sns, message, event, event["detail"] if event is not None else message)


def _is_notification(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("Type") == "Notification"
        and isinstance(value.get("Message"), str)
        and ("TopicArn" in value or "MessageId" in value)
    )


def _is_event(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("detail-type"), str)
        and isinstance(value.get("source"), str)
        and "detail" in value
    )


def is_text(body: str) -> bool:
    """Return whether a body is no JSON at all, and not JSON that is too deep or too large to be read.

    Example:
        >>> is_text("[ALARM] disk full"), is_text("[" * 1_000 + "]" * 1_000)
        (True, False)
    """
    try:
        decode(body)
    except NotJson:
        return True
    except PayloadError:
        return False
    return False


def _json_or_text(text: str) -> Any:
    return text if is_text(text) else decode(text)
