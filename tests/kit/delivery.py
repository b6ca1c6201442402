"""An honest delivery loop over moto's SQS: receive, build the event, invoke, read the answer as AWS does, delete."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kit.clock import FakeLambdaContext
from kit.world import ACCOUNT, REGION
from onceq.clock import OpenDeadline

if TYPE_CHECKING:
    import pytest

    from kit.clock import FrozenClock
    from onceq import App
    from onceq.queue import Queue
    from onceq.settings import QueueSettings


def hold_sqs_time(monkeypatch: pytest.MonkeyPatch, clock: FrozenClock) -> None:
    """Let moto's SQS read the frozen clock, so that visibility timeouts pass only when a test says so."""
    monkeypatch.setattr("moto.sqs.models.unix_time", lambda *_: clock.now_ms() / 1000)
    monkeypatch.setattr("moto.sqs.models.unix_time_millis", lambda *_: float(clock.now_ms()))
    # Whether a message's retention is over is asked of the machine's clock, which is elsewhere.
    retained = "moto.sqs.models.SQSBackend.is_message_valid_based_on_retention_period"
    monkeypatch.setattr(retained, lambda *_: True)


def record_of(message: dict[str, Any], arn: str) -> dict[str, Any]:
    """Return a received message as the record that Lambda makes of it, binary attributes in base64."""
    attributes: dict[str, Any] = {}
    for name, value in message.get("MessageAttributes", {}).items():
        attribute = {"dataType": value["DataType"], "stringListValues": [], "binaryListValues": []}
        if "StringValue" in value:
            attribute["stringValue"] = value["StringValue"]
        if "BinaryValue" in value:
            attribute["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode()
        attributes[name] = attribute
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": attributes,
        "md5OfBody": message.get("MD5OfBody", ""),
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": REGION,
    }


def kept_as_aws_reads(answer: object, ids: list[str]) -> set[str]:
    """Return the ids that stay in the queue.

    An empty, null or unknown id, another key name or another shape keeps the whole batch; null, ``{}`` and an empty
    list delete it (https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html).
    """
    everything = set(ids)
    if answer in (None, {}):
        return set()
    failures = answer.get("batchItemFailures") if isinstance(answer, dict) else None
    if not isinstance(failures, list):
        return everything
    named = [entry.get("itemIdentifier") if isinstance(entry, dict) else None for entry in failures]
    unusable = any(not isinstance(name, str) or name not in everything for name in named)
    return everything if unusable or len(set(named)) != len(named) else {str(name) for name in named}


@dataclass
class Poller:
    """Delivers messages of one queue to one application."""

    app: App
    queue: Queue
    settings: QueueSettings

    @classmethod
    def of(cls, app: App, name: str = "default") -> Poller:
        """Poll the queue of that name with the application's own runtime."""
        return cls(app, app.runtime.queue(OpenDeadline()), app.runtime.settings.queue(name))

    def poll(self, *, most: int = 10, context: object = "lambda") -> int:
        """Deliver once; return how many messages were received."""
        messages = self.queue.receive(self.settings.url, most=most)
        if not messages:
            return 0
        event = {"Records": [record_of(message, self.settings.arn) for message in messages]}
        answer = self.app.consumer(event, FakeLambdaContext() if context == "lambda" else context)
        keep = kept_as_aws_reads(answer, [message["MessageId"] for message in messages])
        done = [message for message in messages if message["MessageId"] not in keep]
        if done:
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(done)
            ]
            self.queue.delete_batch(self.settings.url, entries)
        return len(messages)


def peek(url: str) -> list[Any]:
    """Return every message of a queue, visible or not, as moto holds it: past the API, since it is asked so often."""
    from moto.backends import get_backend

    return list(get_backend("sqs")[ACCOUNT][REGION].queues[url.rsplit("/", 1)[-1]]._messages)
