"""Jobs that are coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import Context, Reject, Retry, Snooze, job

if TYPE_CHECKING:
    from kit.world import World


def test_an_async_job_runs_and_its_result_is_replayed(world: World) -> None:
    """G3: an ``async def`` job is claimed, awaited, completed and replayed as any other."""
    runs: list[str] = []

    @job("act")
    async def act(payload: dict[str, Any], ctx: Context) -> dict[str, Any]:
        await asyncio.sleep(0)
        runs.append(ctx.key)
        return {"of": ctx.key}

    app = world.app(act)
    for _ in range(2):
        assert kept(app.consumer(event_of(world.message("act")), FakeLambdaContext())) == []

    status = app.lookup(act, "k-1")
    assert status is not None
    assert (runs, status.result) == (["k-1"], {"of": "k-1"})


def test_a_coroutine_that_a_plain_function_returns_is_awaited(world: World) -> None:
    """A sync job that returns a coroutine means its result; the coroutine object itself is nobody's result."""

    async def later(name: str) -> str:
        await asyncio.sleep(0)
        return f"Hello {name}"

    @job("act")
    def act(payload: dict[str, Any]) -> Awaitable[str]:
        return later(payload["name"])

    app = world.app(act)

    assert kept(app.consumer(event_of(world.message("act", {"name": "Ada"})), FakeLambdaContext())) == []
    status = app.lookup(act, "k-1")
    assert status is not None
    assert status.result == "Hello Ada"


def test_an_async_job_is_cancelled_at_its_max_duration_and_tried_again(world: World) -> None:
    """An ``async def`` job does not overrun: at max_duration it is cancelled, which is a failed attempt."""
    cancelled: list[int] = []

    @job("act", max_duration=0.05)
    async def act(payload: dict[str, Any], ctx: Context) -> str:
        if ctx.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(ctx.attempt)
        return "done"

    app = world.app(act)
    message = world.message("act")

    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    record = world.record(act, "k-1")
    assert record is not None
    assert (cancelled, record.status) == ([1], "failed")
    assert record.error == "JobTimedOut: cancelled after max_duration, 0.05 s"
    world.clock.advance(5)
    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == []


def test_a_timeout_of_the_jobs_own_is_told_as_such(world: World) -> None:
    """A TimeoutError that the job raises itself is not reported as ours."""

    @job("act", max_duration=20)
    async def act(payload: dict[str, Any]) -> None:
        message = "the provider is slow"
        raise TimeoutError(message)

    world.app(act).consumer(event_of(world.message("act")), FakeLambdaContext())

    record = world.record(act, "k-1")
    assert record is not None
    assert record.error == "TimeoutError: the provider is slow"


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("concurrency", [1, 10])
def test_an_exit_inside_a_coroutine_does_not_hang_later_jobs(
    world: World, error: type[BaseException], concurrency: int
) -> None:
    """G5: a SystemExit that reached the loop's task would end the loop's thread, and every later job would hang."""
    runs: list[str] = []

    @job("act")
    async def act(payload: dict[str, Any], ctx: Context) -> None:
        await asyncio.sleep(0)
        if ctx.key == "bad":
            raise error
        runs.append(ctx.key)

    world.runtime._given = replace(world.settings, concurrency=concurrency)
    app = world.app(act)
    batch = [world.message("act", key=key) for key in ("bad", "one", "two")]

    assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == [batch[0]["messageId"]]
    assert kept(app.consumer(event_of(world.message("act", key="three")), FakeLambdaContext())) == []
    assert sorted(runs) == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("error", "status", "attempts"),
    [(Reject("no"), "rejected", 1), (Retry(5), "failed", 1), (Snooze(5), "failed", 0)],
    ids=["reject", "retry", "snooze"],
)
def test_an_async_job_says_how_its_attempt_ends_as_a_sync_one_does(
    world: World, error: Exception, status: str, attempts: int
) -> None:
    """Retry, Snooze and Reject mean the same in a coroutine."""

    @job("act")
    async def act(payload: dict[str, Any]) -> None:
        raise error

    world.app(act).consumer(event_of(world.message("act")), FakeLambdaContext())

    record = world.record(act, "k-1")
    assert record is not None
    assert (record.status, record.attempts) == (status, attempts)


def test_async_jobs_run_together_on_one_loop_and_never_more_than_allowed(world: World) -> None:
    """The same bounded concurrency holds for coroutines, and all of them share one loop."""
    running, most, finished = 0, 0, 0
    loops: set[int] = set()
    threads: set[str] = set()
    full = asyncio.Event()

    @job("act")
    async def act(payload: dict[str, Any]) -> None:
        nonlocal running, most, finished
        loops.add(id(asyncio.get_running_loop()))
        threads.add(threading.current_thread().name)
        running += 1
        most = max(most, running)
        if running == 4:
            full.set()
        await asyncio.wait_for(full.wait(), 20)
        await asyncio.sleep(0.001)
        running -= 1
        finished += 1

    world.runtime._given = replace(world.settings, concurrency=4)
    batch = [world.message("act", key=str(number)) for number in range(12)]

    assert kept(world.app(act).consumer(event_of(*batch), FakeLambdaContext())) == []
    assert (running, most, finished) == (0, 4, 12)
    assert (len(loops), threads) == (1, {"onceq-loop"})


def test_the_loop_stays_open_between_batches(world: World) -> None:
    """A client bound to the loop, made by one job, can be used by the next one."""
    shared: dict[str, asyncio.Lock] = {}

    @job("act")
    async def act(payload: dict[str, Any]) -> None:
        lock = shared.setdefault("lock", asyncio.Lock())
        async with lock:
            await asyncio.sleep(0)

    app = world.app(act)
    for number in range(3):
        batch = [world.message("act", key=f"{number}-{other}") for other in range(3)]
        assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == []
