"""Many consumers at once on locked moto, with threads that change places between almost any two bytecodes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.racing import all_at_once, eager_switching
from kit.seams import Seams, SimulatedCrash
from kit.world import event_of, kept
from onceq import Context, job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.seams import When
    from kit.world import World
    from onceq.job_type import JobType


@pytest.fixture(autouse=True)
def _eagerly() -> Iterator[None]:
    with eager_switching():
        yield


class Starts:
    """Counts starts by key and finds two that overlap."""

    def __init__(self) -> None:
        """Start with none."""
        self.count: Counter[str] = Counter()
        self.running: set[str] = set()
        self.overlaps: list[str] = []
        self._lock = threading.Lock()

    def job_type(self, *, failures: int = 0) -> JobType[..., Any]:
        """Return a job type whose first attempts fail."""

        @job("act", max_attempts=20)
        def act(payload: dict[str, Any], ctx: Context) -> str:
            with self._lock:
                self.count[ctx.key] += 1
                if ctx.key in self.running:
                    self.overlaps.append(ctx.key)
                self.running.add(ctx.key)
            time.sleep(0)  # another thread's turn
            with self._lock:
                self.running.discard(ctx.key)
            if ctx.attempt <= failures:
                raise ConnectionError
            return ctx.key

        return act


@pytest.mark.parametrize("consumers", [8, 16])
def test_many_consumers_on_one_new_job_start_it_once(world: World, consumers: int) -> None:
    """G1: of sixteen that meet before the claim, one starts the job; the others wait or replay."""
    starts = Starts()
    act = starts.job_type()
    meet = threading.Barrier(consumers)

    def watch(method: str, when: When) -> None:
        if (method, when) == ("claim", "before"):
            meet.wait(30)

    # Each a process of its own: its own application, its own runtime.
    apps = [world.app(act, runtime=Seams(watch=watch).process(world.runtime)) for _ in range(consumers)]
    messages = [world.message("act", {"a": 1}, key="one") for _ in range(consumers)]

    answers = all_at_once(
        [
            lambda app=app, message=message: kept(app.consumer(event_of(message), FakeLambdaContext()))  # type: ignore[misc]
            for app, message in zip(apps, messages, strict=True)
        ]
    )

    assert (starts.count, starts.overlaps) == ({"one": 1}, [])
    waiting = sum(map(len, answers))
    names = Counter(world.names())
    assert names["job.completed"] == 1
    assert names["job.replayed"] + names["job.deferred"] == consumers - 1
    assert waiting == names["job.deferred"]


def test_many_consumers_on_many_jobs_start_each_once(world: World) -> None:
    """G1, G3: eight consumers are given the same twenty jobs in different orders, until nothing is kept."""
    starts = Starts()
    act = starts.job_type()
    keys = [f"k{number}" for number in range(12)]

    def consume(shift: int) -> None:
        app = world.app(act, runtime=Seams().process(world.runtime))
        open_messages = [world.message("act", key=key) for key in keys[shift:] + keys[:shift]]
        for _ in range(200):
            answer = set(kept(app.consumer(event_of(*open_messages), FakeLambdaContext())))
            open_messages = [message for message in open_messages if message["messageId"] in answer]
            if not open_messages:
                return
        pytest.fail("messages are kept for ever")

    all_at_once([lambda shift=shift: consume(shift) for shift in range(8)])  # type: ignore[misc]

    assert starts.count == dict.fromkeys(keys, 1)
    assert starts.overlaps == []


def test_many_takers_of_a_failed_job_start_one_attempt(world: World) -> None:
    """G1: sixteen deliveries of a job whose back-off has passed: one takes over, attempt two is used once."""
    starts = Starts()
    act = starts.job_type(failures=1)
    world.app(act).consumer(event_of(world.message("act", key="one")), FakeLambdaContext())
    world.clock.advance(60)
    meet = threading.Barrier(16)

    def watch(method: str, when: When) -> None:
        # Not every taker gets as far as the take-over: those that are there after a moment go on.
        if (method, when) == ("take_over", "before"):
            with suppress(threading.BrokenBarrierError):
                meet.wait(0.5)

    def consume(message: dict[str, Any]) -> list[str]:
        app = world.app(act, runtime=Seams(watch=watch).process(world.runtime))
        return kept(app.consumer(event_of(message), FakeLambdaContext()))

    messages = [world.message("act", key="one") for _ in range(16)]
    all_at_once([lambda message=message: consume(message) for message in messages])  # type: ignore[misc]

    record = world.record(act, "one")
    assert record is not None
    assert (starts.count["one"], starts.overlaps) == (2, [])
    assert (record.status, record.attempts) == ("completed", 2)


def test_many_takers_of_a_stale_job_start_one_attempt(world: World) -> None:
    """G1: sixteen deliveries find the same stale claim: one takes it over."""
    starts = Starts()
    act = starts.job_type()
    process = Seams().process(world.runtime)

    @job("act")
    def dying(payload: dict[str, Any]) -> None:
        process.kill()

    with pytest.raises(SimulatedCrash):
        world.app(dying, runtime=process).consumer(event_of(world.message("act", key="one")), FakeLambdaContext())
    world.clock.advance(3_600)

    def consume(message: dict[str, Any]) -> list[str]:
        app = world.app(act, runtime=Seams().process(world.runtime))
        return kept(app.consumer(event_of(message), FakeLambdaContext()))

    messages = [world.message("act", key="one") for _ in range(16)]
    all_at_once([lambda message=message: consume(message) for message in messages])  # type: ignore[misc]

    record = world.record(act, "one")
    assert record is not None
    assert (starts.count["one"], starts.overlaps) == (1, [])
    assert (record.status, record.attempts) == ("completed", 2)


def test_many_rejections_by_takers_write_one_end(world: World) -> None:
    """A job without attempts left, met by sixteen takers, is rejected once; every message is acknowledged."""

    @job("act", max_attempts=1)
    def act(payload: dict[str, Any]) -> None:
        process.kill()

    process = Seams().process(world.runtime)
    with pytest.raises(SimulatedCrash):
        world.app(act, runtime=process).consumer(event_of(world.message("act", key="one")), FakeLambdaContext())
    world.clock.advance(3_600)
    app = world.app(act)
    messages = [world.message("act", key="one") for _ in range(16)]

    answers = all_at_once(
        [
            lambda message=message: kept(app.consumer(event_of(message), FakeLambdaContext()))  # type: ignore[misc]
            for message in messages
        ]
    )

    record = world.record(act, "one")
    assert record is not None
    assert (record.status, record.version) == ("rejected", 2)
    assert answers == [[]] * 16
    before = [event.fields()["before"] for event in world.events if event.name == "job.rejected"]
    assert Counter(before) == {False: 1, True: 15}
