"""Jobs that send jobs: an app with a sender and two receivers, faults under its tables and queues, and its outbox."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kit.clock import FakeLambdaContext
from kit.faults import faulty_dynamodb, faulty_sqs
from kit.seams import SimulatedCrash
from kit.world import OUTBOX_TABLE, event_of, kept
from onceq import Context, job
from onceq.outbox import OutboxEntry
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.faults import Call, FaultyClient
    from kit.world import World


def entries_of(world: World) -> list[OutboxEntry]:
    """Return every entry of the outbox, in the order of their ids."""
    pages = world.dynamodb.get_paginator("scan").paginate(TableName=OUTBOX_TABLE, ConsistentRead=True)
    return sorted((OutboxEntry.from_item(item) for page in pages for item in page["Items"]), key=lambda one: one.pk)


def die(client: FaultyClient, name: str, when: str) -> None:
    """Let the process die before or after the next request of that name."""

    def meet(call: Call) -> Any:
        if when == "after":
            client.forward(call)
        raise SimulatedCrash

    client.plan(name, meet)


def stand(world: World, *entries: OutboxEntry) -> None:
    """Let entries stand in the outbox."""
    for entry in entries:
        world.dynamodb.put_item(TableName=OUTBOX_TABLE, Item=entry.to_item())


class Post:
    """An app whose job ``pay`` sends what a test says: to ``ship``, or to ``track``, whose queue is FIFO.

    Args:
        send: What the job does.
        ran: Keys of the jobs of `ship` and `track` that ran, in order.
        dynamodb: The client under the tables, with its faults.
        sqs: The client under the queues, with its faults.
    """

    def __init__(self, world: World, *, settings: dict[str, Any] | None = None, **options: Any) -> None:
        """Put faulty clients under a runtime of its own."""
        self.world = world
        self.send: Callable[[Context], object] = lambda _: None
        self.ran: list[str] = []
        changed = replace(world.settings, **(settings or {}))
        self.runtime = Runtime(changed, clock=world.clock, tokens=world.tokens)
        self.dynamodb, self.sqs = faulty_dynamodb(self.runtime), faulty_sqs(self.runtime)

        @job("pay", **({"max_attempts": 3, "max_duration": 20} | options))
        def pay(payload: dict[str, Any], ctx: Context) -> object:
            return self.send(ctx)

        @job("ship")
        def ship(payload: dict[str, Any], ctx: Context) -> None:
            self.ran.append(ctx.key)

        @job("track", queue="ordered")
        def track(payload: dict[str, Any], ctx: Context) -> None:
            self.ran.append(ctx.key)

        self.pay, self.ship, self.track = pay, ship, track
        self.app = world.app(pay, ship, track, runtime=self.runtime)

    def deliver(self, *keys: str, context: object = None) -> list[str]:
        """Deliver one message of ``pay`` for each key in one batch; return the keys that were kept."""
        messages = [self.world.message("pay", key=key) for key in keys or ("k-1",)]
        ids = set(kept(self.app.consumer(event_of(*messages), context or FakeLambdaContext())))
        return [key for key, message in zip(keys or ("k-1",), messages, strict=True) if message["messageId"] in ids]

    def relay(self, context: object = None) -> dict[str, int]:
        """Run the relay once."""
        return self.app.relay({}, context or FakeLambdaContext())

    def entries(self) -> list[OutboxEntry]:
        """Return the outbox."""
        return entries_of(self.world)

    def entry(self) -> OutboxEntry:
        """Return the only entry of the outbox."""
        [entry] = self.entries()
        return entry

    def requests(self) -> list[list[dict[str, Any]]]:
        """Return what each request to SQS was to send, in order; copies for a dead-letter queue are none of them."""
        urls = {queue.url for queue in self.world.settings.queues.values()}
        calls = [call for call in self.sqs.calls if call.name == "send_message_batch"]
        return [call.request["Entries"] for call in calls if call.request["QueueUrl"] in urls]

    def sent(self) -> list[dict[str, Any]]:
        """Return every message that SQS was given, in order."""
        return [message for request in self.requests() for message in request]

    def envelopes(self) -> list[dict[str, Any]]:
        """Return the bodies of those, read."""
        return [json.loads(message["MessageBody"]) for message in self.sent()]

    def receive(self, name: str = "default") -> list[dict[str, Any]]:
        """Take everything that is visible out of a queue."""
        url, found = self.world.settings.queue(name).url, []
        while messages := self.world.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        ).get("Messages"):
            found += messages
            for message in messages:
                self.world.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def consume(self, name: str = "default") -> int:
        """Take everything that is visible out of a queue and run it; return how many messages there were."""
        queue = self.world.settings.queue(name).arn.rsplit(":", 1)[-1]
        found = self.receive(name)
        for message in found:
            group = message["Attributes"].get("MessageGroupId")
            record = self.world.raw(message["Body"], queue=queue, group=group, message_id=message["MessageId"])
            assert kept(self.app.consumer(event_of(record), FakeLambdaContext())) == []
        return len(found)

    def told(self, name: str) -> list[dict[str, Any]]:
        """Return the fields of every event of that name."""
        return [event.fields() for event in self.world.events if event.name == name]
