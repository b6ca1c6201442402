"""Inside a step nothing is staged: a replayed step does not call its function, and would stage nothing again."""

from __future__ import annotations

import asyncio
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
    with pytest.raises(TransactionRefused, match="stage it after the step"):
        Context().step("book", stage, Context())


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


def test_a_transaction_that_is_not_the_jobs_may_be_made_inside_a_step() -> None:
    """It is committed by itself, not with the completion."""
    assert Context().step("own", lambda: len(Transaction([DELETE]).writes)) == 1
