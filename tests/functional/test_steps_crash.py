"""Jobs with steps whose process dies: at every call of the store, and between an effect and its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import Bench
from kit.world import create_table
from onceq import Context, Semantics
from onceq.record import Status
from onceq.steps import open_steps, read_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.seams import When
    from kit.world import World

ONCE = Semantics.AT_MOST_ONCE
# The store's calls of a job with two steps and an at-most-once one between them, in their order.
CALLS = ["claim", "step", "step", "step", "step", "complete"]
WHENS: tuple[When, ...] = ("before", "after")
POINTS: list[tuple[str, int, When]] = [
    (method, CALLS[: position + 1].count(method), when) for position, method in enumerate(CALLS) for when in WHENS
]


def three_steps(bench: Bench) -> Callable[[Context], Any]:
    """Return a job that charges, calls what takes no key, and mails."""

    def body(ctx: Context) -> Any:
        charge = ctx.step("charge", bench.effect("charge", {"id": 1}), ctx.idempotency_key_for("charge"))
        called = ctx.step("call", bench.effect("call", "yes"), semantics=ONCE)
        mail = ctx.step("mail", bench.effect("mail"), ctx.idempotency_key_for("mail"))
        return [charge, called, mail]

    return body


def test_the_points_are_all_the_calls_of_the_job(both_worlds: World) -> None:
    """A write that is added to the protocol of steps is a point to die at: this list names every call."""
    bench = Bench(both_worlds)
    bench.body = three_steps(bench)

    assert not bench.deliver()
    assert bench.process._seams.calls == {("Store", method): CALLS.count(method) for method in CALLS} | {
        ("Queue", name): count for (seam, name), count in bench.process._seams.calls.items() if seam == "Queue"
    }
    assert bench.effects == ["charge", "call", "mail"]


@pytest.mark.parametrize(("method", "number", "when"), POINTS, ids=str)
def test_a_death_at_any_call_repeats_nothing_that_was_recorded(
    both_worlds: World, method: str, number: int, when: When
) -> None:
    """G6, G9: the next delivery goes on after the last record; what starts once is not started twice."""
    bench = Bench(both_worlds)
    bench.body = three_steps(bench)

    assert bench.crash(method, when, number), "the point was not reached"
    left = both_worlds.record("pay", "k-1")
    recorded = read_steps(left.steps) if left else {}
    before = list(bench.effects)
    if left is not None and left.status is not Status.COMPLETED:
        assert bench.deliver(), "its lease still runs"
        assert bench.effects == before
    bench.later()
    assert not bench.deliver()

    record = bench.record
    repeated = [name for name in bench.effects[len(before) :] if name in before]
    assert all(name not in recorded for name in bench.effects[len(before) :]), (recorded, bench.effects)
    if open_steps(left.steps if left else None):
        # G9: nobody knows whether the call happened.
        assert (record.status, record.attempts) == (Status.UNCERTAIN, 1)
        assert bench.effects == before
        assert bench.notes()[0]["error"].startswith("the attempt never ended, and may start at most once: call.")
    else:
        assert (record.status, record.result) == (Status.COMPLETED, '[{"id":1},"yes",null]')
    # G12: only what was done and not recorded is attempted again, with the same key.
    assert len(repeated) <= (method == "step" and when == "before" and number != 2)
    assert all(len(keys) == 1 for keys in bench.keys.values())
    assert bench.effects.count("call") <= 1


def test_a_death_between_an_effect_and_its_record_attempts_it_again_with_the_same_key(world: World) -> None:
    """G12, said plainly: the effect is attempted again; the key tells the service that it is the same one."""

    def body(ctx: Context) -> str:
        def charge(key: str) -> str:
            bench.effect("charge")(key)
            if ctx.attempt == 1:
                bench.die()
            return "ch_1"

        return str(ctx.step("charge", charge, ctx.idempotency_key_for("charge")))

    bench = Bench(world, body)
    bench.deliver_dying()
    bench.later()

    assert not bench.deliver()
    assert bench.effects == ["charge", "charge"]
    assert len(bench.keys["charge"]) == 1
    assert bench.record.result == '"ch_1"'


def test_a_death_between_two_steps_runs_only_the_second(world: World) -> None:
    """G6: the first is recorded, and answered from its record."""

    def body(ctx: Context) -> Any:
        first = ctx.step("one", bench.effect("one", 1))
        if ctx.attempt == 1:
            bench.die()
        return [first, ctx.step("two", bench.effect("two", 2))]

    bench = Bench(world, body)
    bench.deliver_dying()
    assert read_steps(bench.record.steps) == {"one": {"result": 1}}
    bench.later()

    assert not bench.deliver()
    assert (bench.effects, bench.record.result) == (["one", "two"], "[1,2]")


def test_a_job_that_dies_after_each_of_its_steps_still_gets_on(world: World) -> None:
    """G6: every attempt does one step more, until attempts are used up or the job is done."""

    def body(ctx: Context) -> Any:
        got = []
        for number in range(4):
            before = len(bench.effects)
            got.append(ctx.step(f"s{number}", bench.effect(f"s{number}", number)))
            if len(bench.effects) > before and number < 3:
                bench.die()
        return got

    bench = Bench(world, body)
    for _ in range(3):
        bench.deliver_dying()
        bench.later()

    assert not bench.deliver()
    assert bench.effects == ["s0", "s1", "s2", "s3"]
    assert (bench.record.result, bench.record.attempts) == ("[0,1,2,3]", 4)


def test_a_death_after_a_result_was_not_stored_leaves_the_job_to_a_person(world: World) -> None:
    """G10: "done, not stored" stands in the record before the job ends, so no attempt runs the effect again."""

    def body(ctx: Context) -> None:
        ctx.step("charge", bench.effect("charge", object()))

    bench = Bench(world, body)

    assert bench.crash("hold", "before")
    assert bench.record.status == "processing"
    bench.later()
    assert not bench.deliver()
    assert bench.record.status == "uncertain"
    assert bench.effects == ["charge"]


@pytest.mark.parametrize("when", WHENS)
def test_a_death_at_a_commit_repeats_no_step_and_no_write(both_worlds: World, when: When) -> None:
    """G6, G7: steps before a transaction are recorded one by one, and go with its completion, all at once."""
    bench = Bench(both_worlds)
    create_table(both_worlds.dynamodb, "Orders", key="order_id")

    def body(ctx: Context) -> str:
        ctx.step("charge", bench.effect("charge"), ctx.idempotency_key_for("charge"))
        condition = "attribute_not_exists(order_id)"
        item = {"order_id": {"S": "o-1"}}
        ctx.transaction.write({"Put": {"TableName": "Orders", "Item": item, "ConditionExpression": condition}})
        return "done"

    bench.body = body

    assert bench.crash("commit", when)
    written = both_worlds.dynamodb.scan(TableName="Orders")["Count"]
    assert (written, read_steps(bench.record.steps)) == (
        (0, {"charge": {"result": None}}) if when == "before" else (1, {})
    )
    bench.later()
    assert not bench.deliver()
    assert (bench.effects, bench.record.result, bench.record.steps) == (["charge"], '"done"', None)
    assert both_worlds.dynamodb.scan(TableName="Orders")["Count"] == 1


def test_a_zombie_in_the_middle_of_its_steps_records_nothing_more(world: World) -> None:
    """G2: the taker replays what was recorded before it; the zombie's next record is refused, and it ends."""

    def body(ctx: Context) -> Any:
        first = ctx.step("one", bench.effect("one", 1))
        if ctx.attempt == 1:
            bench.later()
            assert not bench.deliver()
        return [first, ctx.step("two", bench.effect(f"two of attempt {ctx.attempt}", ctx.attempt))]

    bench = Bench(world, body)

    assert not bench.deliver()
    # G12: a zombie's foreign effect cannot be held up; its record is.
    assert bench.effects == ["one", "two of attempt 2", "two of attempt 1"]
    assert (bench.record.result, bench.record.attempts) == ("[1,2]", 2)
    assert len(bench.events("claim.lost")) == 1


def test_a_zombie_does_not_start_an_at_most_once_step(world: World) -> None:
    """G9: "started" is refused to who lost the claim, so the effect is not run."""

    def body(ctx: Context) -> Any:
        if ctx.attempt == 1:
            bench.later()
            assert not bench.deliver()
        return ctx.step("call", bench.effect("call", ctx.attempt), semantics=ONCE)

    bench = Bench(world, body)

    assert not bench.deliver()
    assert (bench.effects, bench.record.result) == (["call"], "2")


def test_a_zombie_whose_at_most_once_step_runs_makes_the_job_uncertain_and_stays_out(world: World) -> None:
    """G9: the taker finds it started and runs nothing; what the zombie records later changes nothing."""

    def body(ctx: Context) -> Any:
        def call() -> str:
            bench.effects.append("call")
            bench.later()
            assert not bench.deliver()
            return "late"

        return ctx.step("call", call, semantics=ONCE)

    bench = Bench(world, body)

    assert bench.deliver()
    assert (bench.starts, bench.effects) == ([1], ["call"])
    record = bench.record
    assert (record.status, record.version) == (Status.UNCERTAIN, 3)
    assert open_steps(record.steps) == ["call"]
    assert not bench.deliver()
    assert bench.record == record
