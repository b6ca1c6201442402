"""Where a fault on the wire is met: one queue, tables of its own, deliveries made by hand, effects that are counted."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kit.clock import CountingTokens, FrozenClock, RunningContext
from kit.delivery import kept_as_aws_reads, record_of
from kit.fault_proxy import FaultProxy, fault_proxy
from kit.ministack import open_world_on
from kit.seams import OneRenewalClock
from kit.world import create_outbox_table, create_table, queue_settings
from onceq.client import READ_TIMEOUT, make_client
from onceq.message import seal
from onceq.record import pk_of
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kit.world import World
    from onceq import App, Context, JobType
    from onceq.settings import QueueSettings
    from onceq.telemetry import Event

# Of the client's waits, in real time; the injected clock moves by what production's would be.
WAIT_SECONDS = 0.15
SECONDS = 60
# More than every lease, clock skew, back-off and pause after a transaction that was denied.
ROUND_SECONDS = 1_000
MOST_ROUNDS = 8
GOODS = "Goods"
ENDED = {"completed", "rejected", "uncertain"}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Wire:
    """A world of ministack, the clients that reach it through a proxy, and queues that lie empty."""

    world: World
    proxy: FaultProxy
    clients: Mapping[str, Any]
    free: list[QueueSettings] = field(default_factory=list)


@contextmanager
def wired(server: str) -> Iterator[Wire]:
    """Open a world on that server, and put a proxy between it and every runtime that is made in the block."""
    with fault_proxy(server) as proxy, open_world_on(server, FrozenClock()) as world:
        with patch.dict("os.environ", AWS_ENDPOINT_URL=proxy.endpoint):
            clients = {name: make_client(name, 20, read_timeout=WAIT_SECONDS) for name in ("dynamodb", "sqs")}

        def shared(service: str, connections: int, *, read_timeout: float = 0) -> Any:
            return clients[service]

        with patch("onceq.dynamodb.make_client", shared), patch("onceq.queue.make_client", shared):
            create_table(world.dynamodb, GOODS)
            yield Wire(world, proxy, clients)
            for client in clients.values():
                client.close()


class _OwnTokens(CountingTokens):
    """Tokens that no other cell has, since the tables are shared."""

    def __init__(self, clock: FrozenClock, owner: int) -> None:
        super().__init__(clock)
        self._owner = owner

    def token(self) -> str:
        return f"{super().token()}of{self._owner}"


class _RenewalClock(OneRenewalClock):
    """One renewal, a second later: a lock is not extended to the time that it has."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.sleep(1)
        return super().wait(event, seconds)


class Stand:
    """One cell of the matrix: what it needs is its own, so nothing of another cell is met."""

    def __init__(self, wire: Wire, *, own_tables: bool = False) -> None:
        """Take a queue and its dead-letter queue, and tables of its own where all of one is read, past the proxy."""
        self.sqs, self.dynamodb, self.proxy = wire.world.sqs, wire.world.dynamodb, wire.proxy
        self._wire = wire
        self.number = next(_numbers)
        self.key = f"k-{self.number}"
        self.lock = f"till-{self.number}"
        self.queue = wire.free.pop() if wire.free else self._new_queue()
        self.clock = FrozenClock()
        self.settings = replace(wire.world.settings, queues={"default": self.queue}, concurrency=1)
        self._own_tables = own_tables
        if own_tables:
            claims, outbox = f"Claims{self.number}", f"Outbox{self.number}"
            create_table(self.dynamodb, claims)
            create_outbox_table(self.dynamodb, outbox)
            self.settings = replace(self.settings, claims_table=claims, outbox_table=outbox)
        self.events: list[Event] = []
        self.charges: Counter[str] = Counter()
        self.told = threading.Event()
        self.sent: set[str] = set()
        self.awaited: set[str] = set()
        self.proxy.reset()
        self.proxy.silence = lambda: self.clock.advance(READ_TIMEOUT)
        self.proxy.answered = lambda request: self._tell(request.name)

    def serve(self, *job_types: JobType[..., Any], renewing: bool = False) -> App:
        """Start the process that serves these."""
        from onceq import App

        clock = _RenewalClock(self.clock) if renewing else self.clock
        runtime = Runtime(self.settings, clock=clock, tokens=_OwnTokens(self.clock, self.number))
        self.app = App(job_types, runtime=runtime, hooks=[self._hook])
        return self.app

    def wait_for(self, *names: str) -> None:
        """Wait, in a job, until a request of that name was answered, or an event of that name told."""
        self.awaited = set(names)
        if self.awaited & self.sent:
            self.told.set()
        assert self.told.wait(10), names

    def charge(self, ctx: Context) -> str:
        """Have the effect: the provider charges once for one downstream key."""
        name = ctx.idempotency_key_for("charge")
        self.charges[f"{ctx.job_type} {name}"] += 1
        return name

    def post(self, job_type: str = "pay", *, key: str | None = None) -> None:
        """Put a message on the queue, past the proxy."""
        key = key or self.key
        body = seal(job_type=job_type, idempotency_key=key, payload={}, created_at="2026-11-29T12:00:00Z")
        self.sqs.send_message(QueueUrl=self.queue.url, MessageBody=body)

    def deliver(self, *, deadline: bool = True) -> str:
        """Deliver what lies on the queue; return what the answer says: ``acknowledged``, ``kept``, or ``nothing``."""
        request = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["All"]}
        messages = self.sqs.receive_message(QueueUrl=self.queue.url, **request).get("Messages", [])
        if not messages:
            return "nothing"
        context = RunningContext(self.clock, SECONDS) if deadline else None
        answer = self.app.consumer({"Records": [record_of(one, self.queue.arn) for one in messages]}, context)
        assert context is None or context.get_remaining_time_in_millis() > 0, "it ran past its deadline"
        keep = kept_as_aws_reads(answer, [one["MessageId"] for one in messages])
        for message in messages:
            handle = {"QueueUrl": self.queue.url, "ReceiptHandle": message["ReceiptHandle"]}
            if message["MessageId"] in keep:
                self.sqs.change_message_visibility(**handle, VisibilityTimeout=0)
            else:
                self.check_acknowledged(message["Body"])
                self.sqs.delete_message(**handle)
        return "kept" if keep else "acknowledged"

    def relay(self) -> dict[str, int]:
        """Run the relay, as its schedule does."""
        context = RunningContext(self.clock, SECONDS)
        done = self.app.relay(None, context)
        assert context.get_remaining_time_in_millis() > 0, "it ran past its deadline"
        return done

    def check_acknowledged(self, body: str) -> None:
        """Assert that this is no false success: the job is completed, or its message lies in the dead-letter queue."""
        statuses = {key: status for key, status in self.statuses().items() if f'"{key}"' in body}
        assert statuses, f"acknowledged without a record: {body}"
        assert set(statuses.values()) <= ENDED, f"acknowledged, and not ended: {statuses}"
        assert "completed" in statuses.values() or self.dead(), (
            f"acknowledged, and not in the dead-letter queue: {statuses}"
        )

    def until_quiet(self) -> None:
        """Deliver without faults, and let time pass, until nothing waits on the queue or in the outbox."""
        self.proxy.heal()
        for _ in range(MOST_ROUNDS):
            if not self.waiting() and not self.pending():
                return
            self.clock.advance(ROUND_SECONDS)
            if self.pending():
                self.relay()
            self.deliver()
        message = f"left on the queue: {self.waiting()}, in the outbox: {self.pending()}"
        raise AssertionError(message)

    def leave(self) -> None:
        """Give the queue back, if nothing was left on it."""
        if not self.dead():
            self._wire.free.append(self.queue)

    def waiting(self) -> int:
        """Return how many messages lie on the queue, visible or not."""
        return self._count(self.queue.url)

    def dead(self) -> int:
        """Return how many messages lie in the dead-letter queue."""
        return self._count(self.queue.dlq_url)

    def pending(self) -> int:
        """Return how many entries of the outbox wait."""
        if not self._own_tables:
            return 0
        items = self.dynamodb.scan(TableName=self.settings.outbox_table)["Items"]
        return sum(item["status"]["S"] == "pending" for item in items)

    def statuses(self) -> dict[str, str]:
        """Return the status of every job, by key, past the proxy."""
        names = {"ask": [f"{self.key}-ask"], "pay": [self.key, *(f"{self.key}-{number}" for number in range(3))]}
        keys = [{"pk": {"S": pk_of(job_type, key)}} for job_type, found in names.items() for key in found]
        table = self.settings.claims_table
        request = {table: {"Keys": keys, "ConsistentRead": True}}
        items = self.dynamodb.batch_get_item(RequestItems=request)["Responses"][table]
        return {item["idempotency_key"]["S"]: item["status"]["S"] for item in items}

    def counted(self) -> int:
        """Return how often the job's own transaction was carried out."""
        item = self.dynamodb.get_item(TableName=GOODS, Key={"pk": {"S": self.key}}, ConsistentRead=True)
        return int(item["Item"]["times"]["N"]) if "Item" in item else 0

    def counting(self) -> dict[str, Any]:
        """Return a write that counts."""
        return {
            "Update": {
                "TableName": GOODS,
                "Key": {"pk": {"S": self.key}},
                "UpdateExpression": "ADD times :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
        }

    def hold_lock(self) -> Callable[[], object]:
        """Let somebody else hold a lock, past the proxy; return what gives it back."""
        key = {"pk": {"S": pk_of("~lock", self.lock)}}
        until = self.clock.now_ms() + 30_000
        item = {**key, "holder": {"S": "other"}, "token": {"S": "other"}, "lease_expires_at": {"N": str(until)}}
        self.dynamodb.put_item(TableName=self.settings.claims_table, Item=item | {"expires_at": {"N": str(until)}})
        return lambda: self.dynamodb.delete_item(TableName=self.settings.claims_table, Key=key)

    def names(self) -> set[str]:
        """Return the names of the events so far."""
        return {event.name for event in self.events}

    def _new_queue(self) -> QueueSettings:
        return queue_settings(self.sqs, "default", queue=f"Faults{self.number}", dlq=f"FaultsDead{self.number}")

    def _count(self, url: str) -> int:
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return sum(int(value) for name, value in attributes.items() if name.startswith("ApproximateNumberOfMessages"))

    def _hook(self, event: Event) -> None:
        self.events.append(event)
        self._tell(event.name)

    def _tell(self, name: str) -> None:
        self.sent.add(name)
        if self.awaited & self.sent:
            self.told.set()
