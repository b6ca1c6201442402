"""Steps of `async def` jobs: awaited, gathered, cancelled, never awaited."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import EndpointConnectionError

from kit.bench import Bench
from kit.faults import ENDPOINT, faulty_dynamodb
from kit.seams import SimulatedCrash
from onceq import Context, Semantics
from onceq.client import ATTEMPTS
from onceq.errors import StepRefused, StepUncertain
from onceq.record import Status
from onceq.steps import open_steps, read_steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kit.faults import Call
    from kit.seams import When
    from kit.world import World

ONCE = Semantics.AT_MOST_ONCE


def later(effect: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a coroutine function that has the effect."""

    async def have(*arguments: Any) -> Any:
        await asyncio.sleep(0)
        return effect(*arguments)

    return have


def wrongly(function: Any) -> Callable[[], Awaitable[Any]]:
    """Return the function with more arguments than it takes."""
    return partial(function, 1, 2)


class Gateway:
    """A client of the user's whose call is awaited."""

    def __init__(self, effect: Callable[..., Any]) -> None:
        """Keep the effect."""
        self.effect = effect

    async def __call__(self) -> Any:
        """Have it."""
        return self.effect()


SHAPES: dict[str, Callable[[Callable[..., Any]], Callable[[], Any]]] = {
    "async def": later,
    "partial": lambda effect: partial(later(effect)),
    "callable object": Gateway,
    "function that returns a coroutine": lambda effect: lambda: later(effect)(),  # noqa: PLW0108 - it is no `async def`
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("semantics", Semantics)
def test_an_awaited_step_is_recorded_and_replayed(
    world: World, shape: Callable[[Callable[..., Any]], Callable[[], Any]], semantics: Semantics
) -> None:
    """G6, G10: the same `await` gives the same value, whether the step runs or is answered from its record."""
    got: list[Any] = []

    async def body(ctx: Context) -> None:
        got.append(await ctx.step("charge", shape(bench.effect("charge", (1, None))), semantics=semantics))
        if ctx.attempt == 1:
            raise ConnectionError

    bench = Bench(world, body)

    assert bench.finish() == 2
    assert got == [[1, None], [1, None]]
    assert bench.effects == ["charge"]


def test_a_plain_step_of_an_async_job_is_not_awaited(world: World) -> None:
    """What is not awaited in a plain job is not awaited in an async one."""

    async def body(ctx: Context) -> Any:
        first = ctx.step("one", bench.effect("one", 1))
        return [first, await ctx.step("two", later(bench.effect("two", 2)))]

    bench = Bench(world, body)

    assert not bench.deliver()
    assert bench.record.result == "[1,2]"


def test_the_loop_goes_on_while_a_step_is_recorded(world: World) -> None:
    """The record waits for the network in a thread: other coroutines of this process get their turn meanwhile."""
    meanwhile = threading.Event()
    client = faulty_dynamodb(world.runtime)

    def wait() -> None:
        assert meanwhile.wait(20), "the loop stood still"

    client.before("step", wait, times=2)

    async def body(ctx: Context) -> Any:
        step = asyncio.ensure_future(ctx.step("call", later(bench.effect("call", 1)), semantics=ONCE))
        await asyncio.sleep(0)
        meanwhile.set()
        return await step

    bench = Bench(world, body)

    assert not bench.deliver()
    assert bench.record.result == "1"


def test_gathered_steps_are_all_recorded(world: World) -> None:
    """Several steps at once: each is written, none overwrites another, and all are replayed."""

    async def body(ctx: Context) -> Any:
        names = [f"s{number}" for number in range(6)]
        got = await asyncio.gather(*(ctx.step(name, later(bench.effect(name, name))) for name in names))
        if ctx.attempt == 1:
            raise ConnectionError
        return got

    bench = Bench(world, body)

    assert bench.finish() == 2
    assert sorted(bench.effects) == [f"s{number}" for number in range(6)]
    assert bench.record.result == '["s0","s1","s2","s3","s4","s5"]'


def test_one_of_gathered_steps_that_fails_leaves_the_others_recorded(world: World) -> None:
    """G6: the next attempt runs only the one that failed."""

    async def body(ctx: Context) -> Any:
        fails = ConnectionError() if ctx.attempt == 1 else "b"
        steps = [
            ctx.step("a", later(bench.effect("a", "a"))),
            ctx.step("b", later(bench.effect("b", fails))),
            ctx.step("c", later(bench.effect("c", "c"))),
        ]
        got = await asyncio.gather(*steps, return_exceptions=True)
        for one in got:
            if isinstance(one, Exception):
                raise one
        return got

    bench = Bench(world, body)

    assert bench.finish() == 2
    assert sorted(bench.effects) == ["a", "b", "b", "c"]
    assert bench.record.result == '["a","b","c"]'


def test_an_at_most_once_step_that_still_runs_when_the_attempt_fails_holds_the_job(world: World) -> None:
    """G9: `gather` leaves the others running: one that was started is for a person; its late record is refused."""
    begun: list[asyncio.Event] = []
    go_on: list[asyncio.Event] = []
    ended = threading.Event()

    async def slow() -> None:
        begun[0].set()
        await go_on[0].wait()
        bench.effects.append("slow")

    async def watched(step: Awaitable[Any]) -> None:
        try:
            await step
        finally:
            ended.set()

    async def body(ctx: Context) -> Any:
        begun.append(asyncio.Event())
        go_on.append(asyncio.Event())
        stray.append(asyncio.ensure_future(watched(ctx.step("slow", slow, semantics=ONCE))))
        await begun[0].wait()
        raise ConnectionError

    stray: list[asyncio.Future[None]] = []
    bench = Bench(world, body)

    assert not bench.deliver()
    record = bench.record
    assert (record.status, open_steps(record.steps)) == (Status.UNCERTAIN, ["slow"])
    assert record.error is not None
    assert "slow" in record.error
    world.runtime.loop().call_soon_threadsafe(go_on[0].set)
    assert ended.wait(20)
    assert type(stray[0].exception()).__name__ == "StepUncertain"
    bench.later()
    assert not bench.deliver()
    assert (bench.record, bench.starts, bench.effects) == (record, [1], [])


def test_an_async_step_that_is_never_awaited_fails_the_attempt(world: World) -> None:
    """Nothing would ever run it: the job is not completed without its effect, and the reason names the step."""
    kept: list[Any] = []

    async def body(ctx: Context) -> str:
        kept.append(ctx.step("charge", later(bench.effect("charge"))))
        return "done"

    bench = Bench(world, body, max_attempts=1)

    assert not bench.deliver()
    assert bench.record.status is Status.REJECTED
    assert "StepRefused: the job returned before its steps had ended: charge; await them" in str(bench.record.error)
    assert bench.effects == []
    kept[0].close()  # or Python warns of it, as it does in the user's own log


def test_an_async_step_of_a_plain_job_is_awaited_with_what_the_job_returns(world: World) -> None:
    """A plain job may return the awaitable of its last step; one that drops it is not completed."""
    bench = Bench(world, lambda ctx: ctx.step("charge", later(bench.effect("charge", "ch_1"))))

    assert not bench.deliver()
    assert (bench.effects, bench.record.result) == (["charge"], '"ch_1"')


def _cancelled(world: World, semantics: Semantics) -> tuple[Bench, list[str]]:
    """Return a job that is cancelled at its max_duration in the middle of a step on its first attempt."""
    cut: list[str] = []

    async def call() -> str:
        bench.effects.append("call")
        if len(bench.starts) == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cut.append("cancelled")
                raise
        return "yes"

    async def body(ctx: Context) -> Any:
        return await ctx.step("call", call, semantics=semantics)

    bench = Bench(world, body, max_duration=0.05)
    return bench, cut


def test_an_at_least_once_step_that_is_cancelled_is_attempted_again(world: World) -> None:
    """The job is cancelled at max_duration: nothing of the step is recorded, and the next attempt runs it."""
    bench, cut = _cancelled(world, Semantics.AT_LEAST_ONCE)

    assert bench.deliver()
    assert bench.record.error == "JobTimedOut: cancelled after max_duration, 0.05 s"
    assert bench.record.steps is None
    bench.release(max_duration=20)
    bench.later()
    assert not bench.deliver()
    assert (cut, bench.effects, bench.record.result) == (["cancelled"], ["call", "call"], '"yes"')


def test_an_at_most_once_step_that_is_cancelled_is_uncertain(world: World) -> None:
    """G9: cut off in the middle, nobody knows what it did; the job is held at once, and not run again."""
    bench, cut = _cancelled(world, ONCE)

    assert not bench.deliver()
    assert (cut, bench.record.status) == (["cancelled"], Status.UNCERTAIN)
    assert str(bench.record.error).startswith("the at-most-once step 'call' failed: CancelledError")
    assert not bench.redrive()
    assert bench.effects == ["call"]


def _cut_off_at(world: World, number: int, *, lands: bool = True) -> tuple[Bench, threading.Event]:
    """Return a job whose at-most-once step is cancelled while its write of that number is under way."""
    cancelled = threading.Event()
    client = faulty_dynamodb(world.runtime)
    client.plan("step", client.forward, times=number - 1)

    def wait(call: Call) -> Any:
        # The request is on its way until the job has been cancelled.
        assert cancelled.wait(20)
        if lands:
            return client.forward(call)
        raise EndpointConnectionError(endpoint_url=ENDPOINT)

    client.plan("step", wait, times=1 if lands else ATTEMPTS)

    async def body(ctx: Context) -> Any:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            if client.names().count("step") < number:
                loop.call_later(0.001, cancel)
                return
            task.cancel()
            # Long after: an attempt that does not wait for the record has ended by then, on any machine.
            loop.call_later(0.3, cancelled.set)

        if ctx.attempt == 1:
            loop.call_soon(cancel)
        return await ctx.step("call", later(bench.effect("call", "yes")), semantics=ONCE)

    bench = Bench(world, body)
    return bench, cancelled


def test_a_cancellation_waits_for_the_record_of_a_step_that_is_done(world: World) -> None:
    """G6: the effect has been had, so its record is written to its end; the next attempt replays it."""
    bench, cancelled = _cut_off_at(world, 2)

    assert bench.deliver()
    assert cancelled.is_set()
    assert bench.record.status is Status.FAILED
    assert read_steps(bench.record.steps) == {"call": {"result": "yes"}}
    bench.later()
    assert not bench.deliver()
    assert (bench.effects, bench.record.result) == (["call"], '"yes"')


def test_a_cancellation_while_a_step_is_marked_as_started_starts_nothing(world: World) -> None:
    """G9: the mark is written, the effect is not had; a person is asked rather than guessing."""
    bench, _ = _cut_off_at(world, 1)

    assert not bench.deliver()
    assert open_steps(bench.record.steps) == ["call"]
    assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, [])


def test_a_cancellation_does_not_hide_that_a_step_is_not_recorded(world: World) -> None:
    """Section 6: effect done, not recorded, told as such although the job was cancelled meanwhile."""
    bench, cancelled = _cut_off_at(world, 2, lands=False)

    assert bench.deliver()
    assert cancelled.is_set()
    assert (bench.record.status, open_steps(bench.record.steps)) == (Status.PROCESSING, ["call"])
    assert len(bench.events("effect.not_recorded")) == 1
    assert bench.effects == ["call"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_death_at_the_record_of_an_async_step_is_recovered(world: World, number: int, when: When) -> None:
    """G6: the same crash points as for a plain step, reached through the thread that writes."""

    async def body(ctx: Context) -> Any:
        first = await ctx.step("one", later(bench.effect("one", 1)))
        return [first, await ctx.step("two", later(bench.effect("two", 2)))]

    bench = Bench(world, body)

    assert bench.crash("step", when, number)
    recorded = set(read_steps(bench.record.steps))
    before = len(bench.effects)
    bench.later()
    assert not bench.deliver()
    assert recorded.isdisjoint(bench.effects[before:])
    assert bench.record.result == "[1,2]"


def test_a_signal_that_an_async_job_swallows_still_ends_it(world: World) -> None:
    """G9: in a coroutine as in a plain job; and `asyncio.gather` hands it on as any other exception."""

    async def body(ctx: Context) -> str:
        try:
            await asyncio.gather(
                ctx.step("call", later(bench.effect("call", OSError("no answer"))), semantics=ONCE),
                ctx.step("other", later(bench.effect("other"))),
            )
        except StepUncertain:
            bench.effects.append("swallowed")
        return "done"

    bench = Bench(world, body)

    assert not bench.deliver()
    assert bench.record.status is Status.UNCERTAIN
    assert bench.record.error == "the at-most-once step 'call' failed: OSError: no answer"
    assert "swallowed" in bench.effects


def test_a_task_group_hands_on_what_ended_the_attempt(world: World) -> None:
    """G9: a group wraps the signal and cancels the other steps; the job ends by the first one all the same."""

    async def call() -> None:
        await asyncio.sleep(0.01)
        message = "no answer"
        raise OSError(message)

    async def wait() -> None:
        bench.effects.append("waits")
        await asyncio.Event().wait()

    async def body(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("call", call, semantics=ONCE))
            group.create_task(ctx.step("wait", wait, semantics=ONCE))

    bench = Bench(world, body)

    assert not bench.deliver()
    assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, ["waits"])
    assert bench.record.error == "the at-most-once step 'call' failed: OSError: no answer"
    assert sorted(open_steps(bench.record.steps)) == ["call", "wait"]


def test_a_process_that_dies_in_an_async_step_leaves_it_open(world: World) -> None:
    """G9: started, not finished: the next delivery holds the job without running anything."""

    async def call() -> None:
        bench.effects.append("call")
        bench.die()

    async def body(ctx: Context) -> Any:
        return await ctx.step("call", call, semantics=ONCE)

    bench = Bench(world, body)
    bench.deliver_dying()
    bench.later()

    assert not bench.deliver()
    assert (bench.record.status, bench.effects, bench.starts) == (Status.UNCERTAIN, ["call"], [1])
    assert SimulatedCrash.__name__ not in str(bench.record.error)


def test_an_async_step_that_cannot_be_called_may_be_handled_by_the_job(world: World) -> None:
    """An error of the call is the step's error: the job may go on, and is completed."""

    async def charge(cents: int) -> None:
        bench.effects.append("charge")

    async def body(ctx: Context) -> str:
        try:
            await ctx.step("charge", wrongly(charge))
        except TypeError:
            return "handled"
        return "charged"

    bench = Bench(world, body)

    assert not bench.deliver()
    assert (bench.record.result, bench.effects) == ('"handled"', [])


def test_an_at_most_once_async_step_that_cannot_be_called_is_uncertain(world: World) -> None:
    """G9: it is marked as started, so its error is an error of the effect, and is told with the reason."""

    async def call(cents: int) -> None:
        bench.effects.append("call")

    async def body(ctx: Context) -> None:
        await ctx.step("call", wrongly(call), semantics=ONCE)

    bench = Bench(world, body)

    assert not bench.deliver()
    assert bench.record.status is Status.UNCERTAIN
    assert "the at-most-once step 'call' failed: TypeError" in str(bench.record.error)


def test_a_step_that_still_runs_when_another_fails_ends_before_its_attempt_does(world: World) -> None:
    """G1: it is cancelled with the job, so that its effect never happens beside the next attempt."""
    bench = Bench(world)
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
            bench.effects.append("charge")
        finally:
            ended.append("slow")

    async def fails() -> None:
        raise ConnectionError

    async def body(ctx: Context) -> None:
        await asyncio.gather(ctx.step("charge", slow), ctx.step("fails", fails))

    bench.body = body

    assert bench.deliver()
    assert (ended, bench.effects) == (["slow"], [])
    assert bench.record.status is Status.FAILED
    assert bench.record.steps is None


def test_a_step_is_not_begun_when_its_attempt_is_over(world: World) -> None:
    """A coroutine that somebody kept and awaits later has no effect: the next attempt may be at work."""
    bench = Bench(world)
    kept: list[Any] = []

    def body(ctx: Context) -> None:
        kept.extend([ctx, ctx.step("charge", later(bench.effect("charge")))])
        raise ConnectionError

    bench.body = body
    assert bench.deliver()

    with pytest.raises(StepRefused, match="over"):
        asyncio.run(kept[1])
    with pytest.raises(StepRefused, match="over"):
        kept[0].step("call", bench.effect("call"))
    assert bench.effects == []
