"""Bodies as other services write them: what AWS's pages show, with values of our own."""

from __future__ import annotations

import json
from typing import Any

TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"
SCHEDULE = "arn:aws:scheduler:eu-west-1:123456789012:schedule/default/nightly"
RULE = "arn:aws:events:eu-west-1:123456789012:rule/nightly"


def notification(message: Any, *, message_id: str = "sns-1", **fields: Any) -> str:
    """Return what SNS puts on a queue; ``...`` leaves a field out.

    https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html
    """
    whole = {
        "Type": "Notification",
        "MessageId": message_id,
        "TopicArn": TOPIC,
        "Message": message if isinstance(message, str) else json.dumps(message),
        "Timestamp": "2026-11-30T12:00:00.000Z",
        "SignatureVersion": "1",
        "Signature": "EXAMPLE",
        "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/cert.pem",
        "UnsubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=Unsubscribe",
        "MessageAttributes": {"order": {"Type": "String", "Value": "o-1"}},
    } | fields
    return json.dumps({name: value for name, value in whole.items() if value is not ...})


def event(detail: Any, **fields: Any) -> dict[str, Any]:
    """Return an event of EventBridge.

    https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html
    """
    return {
        "version": "0",
        "id": "event-1",
        "detail-type": "Order Placed",
        "source": "shop.orders",
        "account": "123456789012",
        "time": "2026-11-30T12:00:00Z",
        "region": "eu-west-1",
        "resources": [],
        "detail": detail,
    } | fields


def s3_record(key: str = "a+cat%2B1.jpg", *, bucket: str = "photos", **fields: Any) -> dict[str, Any]:
    """Return a record of S3's own notification; fields are the object's.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
    """
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-west-1",
        "eventTime": "2026-11-30T12:00:00.123Z",
        "eventName": "ObjectCreated:Put",
        "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "uploads",
            "bucket": {"name": bucket, "ownerIdentity": {"principalId": "A3"}, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {"key": key, "size": 1024, "eTag": "d41d8cd9", "versionId": "v1", "sequencer": "0055AED6"}
            | fields,
        },
    }


def s3_event(key: str = "a cat+1.jpg", *, bucket: str = "photos", **fields: Any) -> dict[str, Any]:
    """Return the same change as EventBridge tells it.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html
    """
    detail = {
        "version": "0",
        "bucket": {"name": bucket},
        "object": {"key": key, "size": 1024, "etag": "d41d8cd9", "version-id": "v1", "sequencer": "0055AED6"},
        "request-id": "C3D13FE58DE4C810",
        "requester": "123456789012",
        "reason": "PutObject",
    }
    return event(detail | fields, source="aws.s3", **{"detail-type": "Object Created"})


def s3_test_event(bucket: str = "photos") -> dict[str, Any]:
    """Return what S3 sends when notifications are set up."""
    return {
        "Service": "Amazon S3",
        "Event": "s3:TestEvent",
        "Time": "2026-11-30T12:00:00.000Z",
        "Bucket": bucket,
        "RequestId": "5582815E1AEA5ADF",
        "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR",
    }


def scheduled(detail: Any = "{}", **fields: Any) -> dict[str, Any]:
    """Return the event of a schedule without an input."""
    known = {"source": "aws.scheduler", "detail-type": "Scheduled Event", "resources": [SCHEDULE]}
    return event(detail, **(known | fields))


def stream_record(number: int = 1) -> dict[str, Any]:
    """Return a record of a DynamoDB stream, as EventBridge Pipes sends it on."""
    return {
        "eventID": f"event-{number}",
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-west-1",
        "dynamodb": {"Keys": {"pk": {"S": f"o-{number}"}}, "NewImage": {"pk": {"S": f"o-{number}"}}},
        "eventSourceARN": "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/x",
    }
