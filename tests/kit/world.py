"""A world to run jobs in: tables and queues, a clock, events collected, deliveries made by hand."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kit.clock import CountingTokens
from onceq import App
from onceq.clock import OpenDeadline
from onceq.message import seal
from onceq.record import Record, pk_of
from onceq.runtime import Runtime
from onceq.settings import QueueSettings, Settings

if TYPE_CHECKING:
    from kit.clock import FrozenClock
    from onceq.job_type import JobType
    from onceq.telemetry import Event

ACCOUNT = "123456789012"
REGION = "us-east-1"
TABLE = "ClaimsTable"
OUTBOX_TABLE = "OutboxTable"


def arn_of(name: str) -> str:
    """Return the ARN of a queue of the local account."""
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


@dataclass
class World:
    """Holds what a test needs; `runtime` may be replaced by one with faults."""

    settings: Settings
    clock: FrozenClock
    tokens: CountingTokens
    runtime: Runtime
    sqs: Any
    dynamodb: Any
    events: list[Event] = field(default_factory=list)
    _ids: Any = field(default_factory=lambda: itertools.count(1))

    def app(self, *job_types: JobType[..., Any], runtime: Runtime | None = None, **options: Any) -> App:
        """Compose an application on this world, its events collected in `events`."""
        options.setdefault("hooks", [self.events.append])
        return App(job_types, runtime=runtime or self.runtime, **options)

    def record(self, job_type: JobType[..., Any] | str, key: str) -> Record | None:
        """Read a job's record."""
        name = job_type if isinstance(job_type, str) else job_type.storage_name
        return self.runtime.store(OpenDeadline()).get(pk_of(name, key))

    def names(self) -> list[str]:
        """Return the names of the events so far."""
        return [event.name for event in self.events]

    def message(
        self, job_type: str, payload: Any = None, *, key: Any = "k-1", queue: str = "JobsQueue", **extra: Any
    ) -> dict[str, Any]:
        """Return a record of a Lambda event that carries an envelope."""
        payload = {} if payload is None else payload
        body = seal(job_type=job_type, idempotency_key=key, payload=payload, created_at="2026-11-29T12:00:00Z")
        return self.raw(body, queue=queue, **extra)

    def raw(
        self,
        body: Any,
        *,
        queue: str = "JobsQueue",
        group: str | None = None,
        attributes: dict[str, Any] | None = None,
        message_id: str | None = None,
        receive_count: int = 1,
    ) -> dict[str, Any]:
        """Return a record of a Lambda event with every attribute that SQS gives."""
        number = next(self._ids)
        system = {
            "ApproximateReceiveCount": str(receive_count),
            "SentTimestamp": "1795953600000",
            "SenderId": "AIDAEXAMPLE",
            "ApproximateFirstReceiveTimestamp": "1795953600001",
        }
        if group is not None:
            system |= {
                "MessageGroupId": group,
                "SequenceNumber": f"{number:020}",
                "MessageDeduplicationId": f"d-{number}",
            }
        return {
            "messageId": message_id or f"m-{number}",
            "receiptHandle": f"r-{number}",
            "body": body,
            "attributes": system,
            "messageAttributes": attributes or {},
            "md5OfBody": "unused",
            "eventSource": "aws:sqs",
            "eventSourceARN": arn_of(queue),
            "awsRegion": REGION,
        }

    def dead_letters(self, name: str = "DeadLetterQueue") -> list[dict[str, Any]]:
        """Receive what lies in a dead-letter queue; each message's note is under ``note``."""
        url = self.sqs.get_queue_url(QueueName=name)["QueueUrl"]
        found: list[dict[str, Any]] = []
        while True:
            batch = self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
            messages = batch.get("Messages", [])
            if not messages:
                return found
            for message in messages:
                note = message.get("MessageAttributes", {}).get("onceq")
                found.append(message | {"note": json.loads(note["StringValue"]) if note else None})


def event_of(*records: Any) -> dict[str, Any]:
    """Return a Lambda event of these records."""
    return {"Records": list(records)}


def kept(answer: dict[str, Any]) -> list[str]:
    """Return the ids that an answer keeps."""
    assert set(answer) == {"batchItemFailures"}
    return [entry["itemIdentifier"] for entry in answer["batchItemFailures"]]


def queue_settings(sqs: Any, name: str, *, queue: str, dlq: str) -> QueueSettings:
    """Create a queue and its dead-letter queue and return their settings."""
    fifo = {"FifoQueue": "true"} if queue.endswith(".fifo") else {}
    dlq_url = sqs.create_queue(QueueName=dlq, Attributes=fifo)["QueueUrl"]
    url = sqs.create_queue(QueueName=queue, Attributes=fifo)["QueueUrl"]
    return QueueSettings(name, url, arn_of(queue), dlq_url)


def create_table(dynamodb: Any, name: str, *, key: str = "pk") -> None:
    """Create a table with a partition key of text, and nothing else."""
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def create_outbox_table(dynamodb: Any, name: str) -> None:
    """Create an outbox table with its sparse index of pending entries, as the template does."""
    index = [{"AttributeName": "shard", "KeyType": "HASH"}, {"AttributeName": "next_at", "KeyType": "RANGE"}]
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "shard", "AttributeType": "S"},
            {"AttributeName": "next_at", "AttributeType": "N"},
        ],
        GlobalSecondaryIndexes=[
            {"IndexName": "pending", "KeySchema": index, "Projection": {"ProjectionType": "ALL"}},
        ],
        BillingMode="PAY_PER_REQUEST",
    )


def furniture(dynamodb: Any, sqs: Any) -> Settings:
    """Create the tables and queues of a world and return their settings."""
    create_table(dynamodb, TABLE)
    create_outbox_table(dynamodb, OUTBOX_TABLE)
    queues = {
        "default": queue_settings(sqs, "default", queue="JobsQueue", dlq="DeadLetterQueue"),
        "ordered": queue_settings(sqs, "ordered", queue="Ordered.fifo", dlq="OrderedDead.fifo"),
    }
    return Settings(queues=queues, claims_table=TABLE, outbox_table=OUTBOX_TABLE)


def world_of(settings: Settings, dynamodb: Any, sqs: Any, clock: FrozenClock) -> World:
    """Return the world of these tables and queues."""
    tokens = CountingTokens(clock)
    return World(settings, clock, tokens, Runtime(settings, clock=clock, tokens=tokens), sqs, dynamodb)


def furnished(dynamodb: Any, sqs: Any, clock: FrozenClock) -> World:
    """Create the tables and queues of a world and return it."""
    return world_of(furniture(dynamodb, sqs), dynamodb, sqs, clock)
