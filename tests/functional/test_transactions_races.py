"""Transactions of many consumers at once, with threads that change places between almost any two bytecodes.

Isolation is what they rest on. moto has it by our lock alone, so each runs on ministack too.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.faults import client_error
from kit.racing import all_at_once, eager_switching
from kit.seams import Seams, SimulatedCrash
from kit.shop import LINES, Line, Stock, Till, items, pieces_of, put
from kit.world import OUTBOX_TABLE, event_of, kept
from onceq import Context, job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.faults import Call
    from kit.world import World

THREADS = 16


@pytest.fixture(autouse=True)
def _eagerly() -> Iterator[None]:
    with eager_switching():
        yield


@pytest.fixture
def till(both_worlds: World) -> Till:
    """A job that takes a piece and says so; twelve pieces, which are not enough for everybody."""
    till = Till(both_worlds, max_attempts=90)
    put(both_worlds, Stock("s-1", pieces=12))
    till.stage = till.take_one
    return till


def consume_to_the_end(till: Till, *keys: str, shift: int = 0) -> None:
    """Deliver these jobs, one process of its own, until none is kept; time goes on while it waits."""
    app = till.world.app(till.job_type, runtime=Seams().process(till.world.runtime))
    order = keys[shift % len(keys) :] + keys[: shift % len(keys)]
    messages = [till.world.message("pay", key=key) for key in order]
    for _ in range(300):
        open_ids = set(kept(app.consumer(event_of(*messages), FakeLambdaContext())))
        messages = [message for message in messages if message["messageId"] in open_ids]
        if not messages:
            return
        till.world.clock.advance(1)
    pytest.fail("messages are kept for ever")


def lines(till: Till) -> list[str]:
    """Return the keys of the jobs that have written their line."""
    return [item["order_id"]["S"] for item in items(till.world, LINES)]


def test_sixteen_duplicates_of_one_job_reserve_once(till: Till) -> None:
    """G7: one of them runs it and its transaction is there once; the others wait and get the result."""
    all_at_once([lambda: consume_to_the_end(till, "k-1")] * THREADS)

    assert pieces_of(till.world, "s-1") == (11, 1)
    assert lines(till) == ["k-1"]
    assert till.attempts == [1]
    assert Counter(till.world.names())["job.completed"] == 1


def test_sixteen_jobs_on_one_article_reserve_what_there_is_and_no_more(till: Till) -> None:
    """G7: never below zero, and each that completed has reserved exactly once; the others are refused by the stock."""

    def stage(ctx: Context) -> None:
        taken = [Stock.pieces.set(Stock.pieces - 1), Stock.reserved.set(Stock.reserved + 1)]
        ctx.transaction.update(Stock("s-1"), taken, Stock.pieces >= 1, on_conflict="reject")
        ctx.transaction.save(Line(ctx.key, 1, sku="s-1"), Line.order_id.does_not_exist())

    till.stage = stage
    keys = [f"k-{number:02}" for number in range(THREADS)]

    all_at_once([lambda key=key: consume_to_the_end(till, key) for key in keys])  # type: ignore[misc]

    assert pieces_of(till.world, "s-1") == (0, 12)
    ended = {key: till.app.lookup("pay", key) for key in keys}
    completed = [key for key, status in ended.items() if status is not None and status.status == "completed"]
    assert lines(till) == completed
    assert len(completed) == 12
    assert Counter(str(status.status) for status in ended.values() if status) == {"completed": 12, "rejected": 4}
    assert till.attempts == [1] * THREADS


def test_duplicates_of_many_jobs_reserve_once_each(till: Till) -> None:
    """G7: eight processes are given the same twelve jobs in different orders, until nothing is kept."""
    keys = [f"k-{number:02}" for number in range(12)]

    all_at_once([lambda shift=shift: consume_to_the_end(till, *keys, shift=shift) for shift in range(8)])  # type: ignore[misc]

    assert pieces_of(till.world, "s-1") == (0, 12)
    assert lines(till) == keys
    assert len(till.attempts) == 12


@contextmanager
def conflicts_as_on_aws(till: Till) -> Iterator[list[int]]:
    """Cancel a transaction that meets another one under way, as DynamoDB does and neither emulator.

    Yields:
        A list of one number: how many were cancelled.
    """
    under_way = threading.Lock()
    cancelled = [0]

    def meet(call: Call) -> Any:
        if not under_way.acquire(blocking=False):
            cancelled[0] += 1
            error = client_error("TransactionCanceledException", method=call.method)
            error.response["CancellationReasons"] = [{"Code": "None"}, {"Code": "TransactionConflict"}]
            raise error
        try:
            return till.client.forward(call)
        finally:
            under_way.release()

    till.client.plan("commit", meet, times=1_000_000)
    yield cancelled


def test_conflicts_between_transactions_cost_time_and_nothing_else(till: Till) -> None:
    """Of two that meet one is cancelled: tried again, and given back uncounted where that does not help."""
    keys = [f"k-{number:02}" for number in range(12)]

    with conflicts_as_on_aws(till) as cancelled:
        all_at_once([lambda key=key: consume_to_the_end(till, key) for key in keys])  # type: ignore[misc]

    assert cancelled[0] > 0
    assert pieces_of(till.world, "s-1") == (0, 12)
    assert lines(till) == keys
    # However often it was given back: no attempt was used for it.
    assert {status.attempts for key in keys if (status := till.app.lookup("pay", key))} == {1}


def test_zombies_and_takers_that_commit_at_once_reserve_once(till: Till) -> None:
    """G2, G7: eight processes go stale in the middle of one job; those that wake and those that take over race."""
    awake, turns = threading.Barrier(8), [threading.Event() for _ in range(9)]

    def stage(ctx: Context) -> None:
        till.take_one(ctx)
        # Each of the eight takes the job over from the one before it; then all commit together.
        if (number := len(till.attempts)) <= 8:
            till.world.clock.advance(72)
            turns[number].set()
            awake.wait(30)

    till.stage = stage
    turns[0].set()

    def one_attempt(number: int) -> list[str]:
        assert turns[number].wait(30)
        app = till.world.app(till.job_type, runtime=Seams().process(till.world.runtime))
        return kept(app.consumer(event_of(till.world.message("pay", key="k-1")), FakeLambdaContext()))

    all_at_once([lambda number=number: one_attempt(number) for number in range(8)])  # type: ignore[misc]
    consume_to_the_end(till, "k-1")

    assert pieces_of(till.world, "s-1") == (11, 1)
    assert lines(till) == ["k-1"]
    names = Counter(till.world.names())
    assert (names["job.completed"], names["claim.lost"]) == (1, 7)


def test_messages_of_racing_jobs_are_staged_once_each(till: Till) -> None:
    """G8: with sixteen duplicates of eight jobs, the outbox has one entry for each, and none of a job that lost."""

    @job("ship")
    def ship(payload: dict[str, Any]) -> None:
        """Do nothing."""

    def stage(ctx: Context) -> None:
        till.take_one(ctx)
        ctx.send(ship, {"order": ctx.key}, delay=3_600)

    till.stage = stage
    keys = [f"k-{number:02}" for number in range(8)]

    def consume(shift: int) -> None:
        app = till.world.app(till.job_type, ship, runtime=Seams().process(till.world.runtime))
        messages = [till.world.message("pay", key=key) for key in keys[shift % 8 :] + keys[: shift % 8]]
        for _ in range(300):
            open_ids = set(kept(app.consumer(event_of(*messages), FakeLambdaContext())))
            messages = [message for message in messages if message["messageId"] in open_ids]
            if not messages:
                return
        pytest.fail("messages are kept for ever")

    all_at_once([lambda shift=shift: consume(shift) for shift in range(THREADS)])  # type: ignore[misc]

    entries = items(till.world, OUTBOX_TABLE)
    assert len({item["idempotency_key"]["S"] for item in entries}) == len(entries) == 8
    assert pieces_of(till.world, "s-1") == (4, 8)


def test_processes_that_die_around_their_commits_reserve_once(till: Till) -> None:
    """G6, G7: of sixteen duplicates half die before or after their commit; those that come later finish the job."""
    keys = [f"k-{number}" for number in range(4)]

    def die(number: int) -> None:
        def at(method: str, when: str) -> None:
            if (method, when) == ("commit", ("before", "after")[number % 2]):
                process.kill()

        process = Seams(watch=at).process(till.world.runtime)
        app = till.world.app(till.job_type, runtime=process)
        messages = [till.world.message("pay", key=keys[(number // 2 + each) % 4]) for each in range(4)]
        with pytest.raises(SimulatedCrash):
            app.consumer(event_of(*messages), FakeLambdaContext())

    for number in range(4):
        die(number)
        till.world.clock.advance(72)
    all_at_once([lambda shift=shift: consume_to_the_end(till, *keys, shift=shift) for shift in range(8)])  # type: ignore[misc]

    assert pieces_of(till.world, "s-1") == (8, 4)
    assert lines(till) == keys
