"""Steps whose results fill the record. On ministack alone: moto 5.2 adds an attribute's old size to its new one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from kit.bench import Bench
from kit.ministack import open_world_on
from onceq.errors import StepUncertain
from onceq.record import Status
from onceq.steps import MOST_BYTES, ROOM, read_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.clock import FrozenClock
    from kit.world import World
    from onceq import Context


@pytest.fixture
def world(ministack: str, clock: FrozenClock) -> Iterator[World]:
    """A world on ministack, which compares what an item becomes with 400 KB, as DynamoDB does."""
    with open_world_on(ministack, clock) as opened:
        yield opened


def test_many_steps_end_where_the_next_result_has_no_room(world: World) -> None:
    """G10: the ninth result does not fit beside the others: recorded as done, never run again, left to a person."""

    def body(ctx: Context) -> None:
        for number in range(20):
            ctx.step(f"s{number}", bench.effect(f"s{number}", "x" * 32_000))

    bench = Bench(world, body)

    assert not bench.deliver()
    record = bench.record
    assert record.status is Status.UNCERTAIN
    assert "the step 's8' is done, and its result is not stored: too large: 32002 bytes" in str(record.error)
    assert MOST_BYTES - 32_000 < len((record.steps or "").encode()) <= MOST_BYTES
    bench.app.resolve("pay", "k-1", "retry")
    assert not bench.deliver()
    assert bench.effects == [f"s{number}" for number in range(9)]


def test_a_step_without_room_for_its_record_is_refused_before_its_effect(world: World) -> None:
    """Bad input: a job with too much in its steps fails by name, and what has been done is not repeated."""

    def body(ctx: Context) -> None:
        for number in range(20):
            # Its state takes 16 to 17 bytes beside the text, so sixteen of them end within the last kilobyte.
            ctx.step(f"s{number}", bench.effect(f"s{number}", "x" * 16_344))

    bench = Bench(world, body, max_attempts=2)

    assert bench.finish() == 2
    assert bench.effects == [f"s{number}" for number in range(16)]
    record = bench.record
    assert record.status is Status.REJECTED
    assert "StepRefused: no room for the step 's16'" in str(record.error)
    assert MOST_BYTES - ROOM < len((record.steps or "").encode()) <= MOST_BYTES


def test_the_largest_steps_and_the_largest_result_fit_one_item(world: World) -> None:
    """G10: at the highest ONCEQ_RESULT_LIMIT a job with full steps completes, and its duplicate is replayed."""
    world.runtime._given = replace(world.settings, result_limit=350_000)

    def body(ctx: Context) -> str:
        ctx.step("first", bench.effect("first", "x" * (MOST_BYTES - 2 * ROOM)))
        ctx.step("second", bench.effect("second", "y" * (ROOM - 100)))
        return "z" * 349_998

    bench = Bench(world, body)

    assert [bench.deliver(), bench.deliver()] == [False, False]
    assert (bench.record.status, len(bench.record.result or "")) == (Status.COMPLETED, 350_000)
    assert bench.effects == ["first", "second"]


def test_large_steps_that_end_together_never_overfill_the_item(world: World) -> None:
    """G10: two results that only fit alone: one is stored, the other recorded as done; neither is run again."""
    world.runtime._given = replace(world.settings, result_limit=350_000)
    meet = Barrier(2)

    def body(ctx: Context) -> None:
        def run(name: str) -> str:
            def effect() -> str:
                meet.wait(20)
                bench.effects.append(name)
                return "x" * 200_000

            try:
                ctx.step(name, effect)
            except StepUncertain:
                return "uncertain"
            return "stored"

        with ThreadPoolExecutor(2) as pool:
            ends.extend(pool.map(run, ("one", "two")))

    ends: list[str] = []
    bench = Bench(world, body)

    assert not bench.deliver()
    assert sorted(ends) == ["stored", "uncertain"]
    assert sorted(str(list(state)) for state in read_steps(bench.record.steps).values()) == [
        "['not_stored']",
        "['result']",
    ]
    assert bench.record.status is Status.UNCERTAIN
    assert sorted(bench.effects) == ["one", "two"]
