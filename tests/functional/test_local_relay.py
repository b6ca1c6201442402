"""The relay as a local process: when it runs, what a fault of one run costs, and how it stops."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FrozenClock
from kit.world import OUTBOX_TABLE
from onceq import ConfigurationError, job
from onceq.clock import SystemClock
from onceq.errors import StoreUnavailable
from onceq.message import seal
from onceq.outbox import OutboxEntry
from onceq.runtime import Runtime
from onceq.worker import EVERY_SECONDS, relay_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq.telemetry import Event


class EndingClock(FrozenClock):
    """A clock whose waits move it, and which sets the event at the last of them."""

    def __init__(self, waits: int) -> None:
        """Keep how many waits there are."""
        super().__init__()
        self._left = waits
        self.waited: list[float] = []

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Move on at once."""
        self.waited.append(seconds)
        self.advance(seconds)
        self._left -= 1
        if self._left == 0:
            event.set()
        return event.is_set()


def runs(run: Callable[[int], float], waits: int, every: float = 60) -> tuple[list[float], list[str]]:
    """Relay until so many waits are over; return when each run started, and what was reported.

    Args:
        run: Given the number of the run; returns how many seconds it took, or raises.
        waits: How many.
        every: Seconds from start to start.
    """
    clock = EndingClock(waits)
    started: list[float] = []
    reported: list[str] = []
    begin = clock.monotonic()

    def handler(event: object, context: object) -> None:
        started.append(clock.monotonic() - begin)
        clock.advance(run(len(started)))

    relay_until(threading.Event(), handler, every=every, clock=clock, report=reported.append)
    return started, reported


def test_it_runs_at_once_and_then_as_often_as_it_is_told() -> None:
    """From start to start: a run that takes long does not move the next one, unless it takes longer than that."""
    seconds = {1: 7.0, 2: 0.0, 3: 90.0}

    assert runs(lambda number: seconds.get(number, 1.0), waits=4) == ([0, 60, 120, 210], [])


def test_it_runs_once_a_minute_as_on_aws() -> None:
    """The relay sends ahead what is due within a minute, and leaves alone what is younger than half of one."""
    assert EVERY_SECONDS == 60


def test_a_run_that_fails_is_reported_and_the_next_one_comes() -> None:
    """As on Lambda: one failed invocation, and the schedule goes on."""
    message = "Query was not answered"

    def run(number: int) -> float:
        if number == 1:
            raise StoreUnavailable(message)
        if number == 2:
            raise ZeroDivisionError
        return 0.0

    started, reported = runs(run, waits=3)

    assert started == [0, 60, 120]
    assert reported[0] == "the outbox cannot be read, trying again: Query was not answered"
    assert reported[1].startswith("the relay failed, trying again:\nTraceback")
    assert reported[1].rstrip().endswith("ZeroDivisionError")
    assert len(reported) == 2


def test_settings_that_cannot_be_used_end_it(world: World) -> None:
    """They do not mend by themselves, so the process ends with the reason."""
    bare = Runtime(replace(world.settings, outbox_table=""), clock=world.clock, tokens=world.tokens)
    app = world.app(runtime=bare)

    with pytest.raises(ConfigurationError, match="ONCEQ_OUTBOX_TABLE is not set"):
        relay_until(threading.Event(), app.relay, every=1, clock=EndingClock(9), report=lambda _line: None)


@job("pay")
def pay(payload: dict[str, Any]) -> None:
    """Is only sent here."""


def test_stopped_in_the_middle_it_marks_what_it_sent_and_begins_no_other_page(world: World) -> None:
    """G8: nothing is sent without its mark, and what was not sent waits for the next relay."""
    for number in range(6):
        body = seal(job_type="pay", idempotency_key=f"k-{number}", payload={}, created_at="2026-11-29T12:00:00Z")
        now_ms = world.clock.now_ms()
        shard = "0" if number < 3 else "1"
        entry = OutboxEntry(
            f"e-{number}", "pay", f"k-{number}", "default", body, now_ms, now_ms, shard=shard, next_at=now_ms
        )
        world.dynamodb.put_item(TableName=OUTBOX_TABLE, Item=entry.to_item())
    stopping = threading.Event()

    def stop_at_the_first(event: Event) -> None:
        world.events.append(event)
        if event.name == "outbox.sent":
            stopping.set()

    app = world.app(pay, hooks=[stop_at_the_first])
    relay_until(stopping, app.relay, every=60, clock=world.clock, report=world.names().append)

    found = [OutboxEntry.from_item(item) for item in world.dynamodb.scan(TableName=OUTBOX_TABLE)["Items"]]
    assert {entry.pk: entry.status for entry in found} == {
        **dict.fromkeys(("e-0", "e-1", "e-2"), "sent"),
        **dict.fromkeys(("e-3", "e-4", "e-5"), "pending"),
    }
    assert world.names().count("outbox.sent") == 3
    assert "outbox.not_marked" not in world.names()
    url = world.settings.queue("default").url
    counted = world.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    assert counted["Attributes"]["ApproximateNumberOfMessages"] == "3"


def test_stopped_while_it_waits_it_ends_at_once(world: World) -> None:
    """Ctrl-C does not wait for the minute: the stop is what the clock waits for."""
    ran, stopping = threading.Event(), threading.Event()
    app = world.app(pay, hooks=[lambda _event: ran.set()])
    # The machine's own clock, since it is the one that would sleep on.
    options = {"every": 3_600, "clock": SystemClock(), "report": print}
    relaying = threading.Thread(target=relay_until, args=(stopping, app.relay), kwargs=options, daemon=True)
    relaying.start()
    assert ran.wait(20)
    stopping.set()
    relaying.join(20)

    assert not relaying.is_alive()
