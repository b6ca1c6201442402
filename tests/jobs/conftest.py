"""What the tests of your jobs share beside the world (queue and tables): a provider that counts, stock, and deaths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from kit.clock import FakeLambdaContext
from kit.delivery import Poller, hold_sqs_time, peek
from kit.provider import Provider, serving_provider
from kit.racing import all_at_once
from kit.seams import Point, Seams, SimulatedCrash
from kit.world import OUTBOX_TABLE, World, create_table, event_of, kept, queue_settings
from onceq import JobType
from onceq.runtime import Runtime

# More than a lease and the clock skew, than a visibility timeout, and than what an entry of the outbox waits.
ROUND_SECONDS = 80
MOST_ROUNDS = 20
# `call` stands inside all others of the queue.
PASSED_OVER = [("Queue", "call")]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """The services that the example jobs call; it counts calls and effects."""
    with serving_provider() as served:
        for variable in ("PAYMENTS_URL", "MAIL_URL", "WEBHOOK_URL", "LEGACY_URL"):
            monkeypatch.setenv(variable, served.url)
        yield served


@dataclass
class StockTable:
    """The stock table of a world."""

    dynamodb: Any
    name: str = "StockTable"

    def put(self, sku: str, available: int) -> None:
        """Put so many pieces on the shelf."""
        self.dynamodb.put_item(TableName=self.name, Item={"sku": {"S": sku}, "available": {"N": str(available)}})

    def available(self, sku: str) -> int:
        """Return how many are there."""
        item = self.dynamodb.get_item(TableName=self.name, Key={"sku": {"S": sku}}, ConsistentRead=True)["Item"]
        return int(item["available"]["N"])


@pytest.fixture
def stock_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], StockTable]:
    """Return the stock table, made in the world that is given."""

    def make(world: World) -> StockTable:
        monkeypatch.setenv("STOCK_TABLE", "StockTable")
        create_table(world.dynamodb, "StockTable", key="sku")
        return StockTable(world.dynamodb)

    return make


@dataclass
class LedgerTable:
    """The ledger's table of a world."""

    dynamodb: Any
    name: str = "LedgerTable"

    def balance(self, account: str) -> int:
        """Return what an account has; one without entries has nothing."""
        item = self._item(account)
        return int(item["balance_cents"]["N"]) if item else 0

    def last_entry(self, account: str) -> str | None:
        """Return the entry that came last."""
        item = self._item(account)
        return str(item["last_entry"]["S"]) if item else None

    def _item(self, account: str) -> dict[str, Any] | None:
        key = {"account": {"S": account}}
        item: dict[str, Any] | None = self.dynamodb.get_item(TableName=self.name, Key=key, ConsistentRead=True).get(
            "Item"
        )
        return item


@pytest.fixture
def ledger_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], LedgerTable]:
    """Return the ledger's table, made in the world that is given, beside the ledger's queue."""

    def make(world: World) -> LedgerTable:
        monkeypatch.setenv("LEDGER_TABLE", "LedgerTable")
        create_table(world.dynamodb, "LedgerTable", key="account")
        own = queue_settings(world.sqs, "ledger", queue="LedgerJobsQueue.fifo", dlq="LedgerDeadLetterQueue.fifo")
        world.settings = replace(world.settings, queues={**world.settings.queues, "ledger": own})
        world.runtime = Runtime(world.settings, clock=world.clock, tokens=world.tokens)
        return LedgerTable(world.dynamodb)

    return make


@pytest.fixture
def work(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what works until queue and outbox are empty; a worker that dies is replaced, and time passes."""
    hold_sqs_time(monkeypatch, world.clock)
    url = world.settings.queue("default").url

    def is_quiet() -> bool:
        pending = world.dynamodb.scan(TableName=OUTBOX_TABLE, IndexName="pending", Select="COUNT")["Count"]
        return not peek(url) and not pending

    def until_quiet(*job_types: JobType, seams: Seams | None = None) -> None:
        seams = seams or Seams()
        app = world.app(*job_types, runtime=seams.process(world.runtime))
        for _ in range(MOST_ROUNDS):
            try:
                while Poller.of(app).poll():
                    pass
                if is_quiet():
                    return
                world.clock.advance(ROUND_SECONDS)
                app.relay()
            except SimulatedCrash:
                app = world.app(*job_types, runtime=seams.process(world.runtime))
        pytest.fail("it does not come to an end")

    return until_quiet


@pytest.fixture
def deaths(world: World, work: Callable[..., None]) -> Callable[..., Iterator[tuple[str, str]]]:
    """Return what kills the worker of a job at another call every time.

    It is given the job type, a function that makes the payload for a key, and the job types that the job sends to. It
    enqueues the job, lets the worker die before or after the call, lets others work until all is quiet, and yields the
    key and the point of the death.
    """

    def each_death(job_type: JobType, payload: Callable[[str], Any], *others: JobType) -> Iterator[tuple[str, str]]:
        app = world.app(job_type, *others)
        alive = Seams()
        app.enqueue(job_type, payload("alive"), key="alive", queue="default")
        work(job_type, *others, seams=alive)
        for (seam, method), calls in alive.calls.items():
            for number in range(1, calls + 1):
                for when in ("before", "after"):
                    point = Point(seam, method, when)  # type: ignore[arg-type]
                    if (seam, method) in PASSED_OVER:
                        continue
                    key = f"{point}-{number}".lower()
                    seams = Seams((point, number))
                    app.enqueue(job_type, payload(key), key=key, queue="default")
                    work(job_type, *others, seams=seams)
                    assert seams.crashed, f"{point}, call {number}, was not reached"
                    yield key, str(point)

    return each_death


@pytest.fixture
def at_once() -> Callable[..., None]:
    """Return what delivers one job to several workers at the same moment, and again until nothing is kept."""

    def deliver(world: World, name: str, payload: Any, *job_types: JobType, key: str, workers: int) -> None:
        meet = Barrier(workers)

        def watch(method: str, when: str) -> None:
            if (method, when) == ("claim", "before"):
                meet.wait(30)

        def consume(event: dict[str, Any]) -> list[str]:
            app = world.app(*job_types, runtime=Seams(watch=watch).process(world.runtime))
            return kept(app.consumer(event, FakeLambdaContext()))

        events = [event_of(world.message(name, payload, key=key)) for _ in range(workers)]
        answers = all_at_once([partial(consume, event) for event in events])
        app = world.app(*job_types)
        for event, answer in zip(events, answers, strict=True):
            if answer:
                world.clock.advance(ROUND_SECONDS)
                assert kept(app.consumer(event, FakeLambdaContext())) == []

    return deliver
