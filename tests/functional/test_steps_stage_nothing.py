"""Inside a step nothing is staged: a replayed step does not call its function, and would stage nothing again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import Bench
from onceq import Context
from onceq.errors import TransactionRefused
from onceq.record import Status
from onceq.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

DELETE = {"Delete": {"TableName": "Carts", "Key": {"id": {"S": "c-1"}}}}


def stages_a_write(ctx: Context) -> None:
    """Stage a write of the job's own."""
    ctx.transaction.write(DELETE)


def sends_a_message(ctx: Context) -> None:
    """Stage a message."""
    ctx.send("mark", {}, key="k-1")


@pytest.mark.parametrize("stage", [stages_a_write, sends_a_message])
def test_inside_a_step_nothing_is_staged(world: World, stage: Callable[[Context], None]) -> None:
    """G7, G8: the next attempt answers the step from its record, and would commit without what it had staged."""
    bench = Bench(world, lambda ctx: ctx.step("book", lambda: stage(ctx)), max_attempts=1)

    bench.finish()

    assert bench.record.status is Status.REJECTED
    assert "inside the step 'book' nothing is staged" in str(bench.record.error)
    ctx = Context()
    with pytest.raises(TransactionRefused, match="stage it after the step"):
        ctx.step("book", stage, ctx)


@pytest.mark.parametrize("stage", [stages_a_write, sends_a_message])
def test_inside_an_async_step_nothing_is_staged_and_beside_it_all_is(stage: Callable[[Context], None]) -> None:
    """G8: whether its function is ``async def`` or gives an awaitable; what runs beside it stages what it likes."""
    ctx = Context()

    async def step() -> None:
        await asyncio.sleep(0)
        stage(ctx)

    async def beside() -> None:
        await asyncio.sleep(0)
        stage(ctx)

    async def job() -> list[Any]:
        stepping: list[Any] = [ctx.step("one", step), ctx.step("two", lambda: step())]  # noqa: PLW0108 - a plain function
        return await asyncio.gather(*stepping, beside(), return_exceptions=True)

    one, two, free = asyncio.run(job())

    assert [type(one), type(two), free] == [TransactionRefused, TransactionRefused, None]
    assert len(ctx.transaction.writes) + len(ctx.sent) == 1
    ctx.step("after", lambda: None)
    sends_a_message(ctx)


@pytest.mark.parametrize("swallowed", ["by the step's function", "by the job"])
def test_a_refusal_that_is_swallowed_ends_the_attempt(world: World, swallowed: str) -> None:
    """G8: a job that completed all the same would have lost its message for good."""

    def sends_quietly(ctx: Context) -> None:
        with suppress(TransactionRefused):
            sends_a_message(ctx)

    def body(ctx: Context) -> None:
        with suppress(TransactionRefused):
            ctx.step("book", sends_quietly if swallowed == "by the step's function" else sends_a_message, ctx)

    bench = Bench(world, body, max_attempts=2)

    bench.finish()

    assert (bench.starts, bench.record.status) == ([1, 2], Status.REJECTED)
    assert "inside the step 'book' nothing is staged" in str(bench.record.error)
    assert bench.record.steps is None, "a step that is recorded would be replayed, and the message never be staged"


def test_an_async_job_is_refused_like_a_plain_one(world: World) -> None:
    """Also in a thread that the step's function waits for."""

    async def step(ctx: Context) -> None:
        await asyncio.to_thread(sends_a_message, ctx)

    async def body(ctx: Context) -> None:
        await ctx.step("book", step, ctx)

    bench = Bench(world, body, max_attempts=1)

    bench.finish()

    assert "inside the step 'book' nothing is staged" in str(bench.record.error)


def test_what_a_step_of_another_job_stages_is_that_jobs_affair() -> None:
    """A job's function that is called inside a step, with a context of its own, stages there."""
    inner = Context("other", "k-2")

    Context().step("call", sends_a_message, inner)

    assert len(inner.sent) == 1


def test_after_its_step_a_task_stages_and_so_does_a_job_after_a_nested_step() -> None:
    """Both run in each attempt again."""
    ctx = Context()

    async def job() -> None:
        ended = asyncio.Event()

        async def later() -> None:
            await ended.wait()
            sends_a_message(ctx)

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(later())

        tasks: list[asyncio.Task[None]] = []

        async def step() -> None:
            tasks.append(await begin())

        await ctx.step("begin", step)
        ended.set()
        await tasks[0]

    asyncio.run(job())
    ctx.step("outer", lambda: ctx.step("inner", lambda: None))
    stages_a_write(ctx)

    assert len(ctx.sent) + len(ctx.transaction.writes) == 2

    def around() -> None:
        ctx.step("within", lambda: None)
        stages_a_write(ctx)

    with pytest.raises(TransactionRefused, match="inside the step 'around'"):
        ctx.step("around", around)


def test_a_transaction_that_is_not_the_jobs_may_be_made_inside_a_step() -> None:
    """It is committed by itself, not with the completion."""
    assert Context().step("own", lambda: len(Transaction([DELETE]).writes)) == 1
