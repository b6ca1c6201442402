"""`App.recovery`: the sweep finds what no delivery comes for, marks it so that it shows, and never runs a job."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import PAST_LEASE, Bench
from kit.claims import Worker, pass_lease, stored
from kit.clock import FakeLambdaContext
from kit.faults import faulty_dynamodb
from kit.locking import taken_by
from kit.racing import all_at_once, eager_switching
from kit.seams import Seams
from kit.sweeps import answer_of, events, leave_stale
from kit.world import TABLE, event_of, kept
from onceq import Context, Retry, Semantics, StoreError
from onceq import recovery as sweeping
from onceq.errors import ClaimLost
from onceq.record import Status
from onceq.recovery import STALE, UNCERTAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq.record import Record

THREADS = 8


def test_a_job_whose_worker_died_is_marked_and_told_and_not_run(both_worlds: World) -> None:
    """It shows as failed, with an event to alarm on; the sweep starts nothing, and needs no job type to be served."""
    world = both_worlds
    bench = Bench(world, lambda _ctx: bench.die())
    bench.deliver_dying()
    claimant = bench.record.claimant
    bench.later()

    assert world.app().recovery() == answer_of(failed=1)

    record = bench.record
    assert (record.status, record.attempts, record.error) == (Status.FAILED, 1, STALE)
    assert record.not_before == world.clock.now_ms()
    assert bench.starts == [1]
    (told,) = events(world, "claim.went_stale")
    assert told == {
        "job_type": "pay",
        "key": "k-1",
        "message_id": record.message_id,
        "attempt": 1,
        "claimant": claimant,
        "status": "failed",
    }
    assert [event.metric for event in world.events if event.name == "claim.went_stale"] == ["ClaimsWentStale"]
    assert events(world, "recovery.ended") == [answer_of(failed=1)]


@pytest.mark.parametrize("early_ms", [1, 0])
def test_a_living_claim_is_left_alone_to_the_millisecond(world: World, early_ms: int) -> None:
    """Until the lease and the clock skew have passed its claimant may be at work."""
    worker = Worker.of(world)
    claim = worker.take()
    lease = claim.record.lease_expires_at
    assert lease is not None
    world.clock.advance((lease + 10_000 - early_ms - world.clock.now_ms()) / 1000)

    assert world.app().recovery() == answer_of(failed=1 - early_ms)
    assert (stored(world) == claim.record) is bool(early_ms)


def test_a_sweep_of_nothing_is_an_answer(world: World) -> None:
    """An empty table, and one in which nothing is stuck."""
    bench = Bench(world)

    assert world.app().recovery({"source": "aws.scheduler"}, FakeLambdaContext()) == answer_of(scanned=0)
    bench.deliver()
    assert bench.app.recovery(None, FakeLambdaContext()) == answer_of(scanned=2)
    assert "claim.went_stale" not in world.names()


def test_the_next_delivery_takes_a_marked_job_over(both_worlds: World) -> None:
    """The mark is no attempt and no end: the next start is the second one, and completes."""
    bench = Bench(both_worlds, lambda ctx: bench.die() if ctx.attempt == 1 else None, max_attempts=2)
    bench.deliver_dying()
    bench.later()
    bench.app.recovery()

    assert not bench.deliver()
    assert bench.starts == [1, 2]
    record = bench.record
    assert (record.status, record.attempts, record.error, record.went_stale) == (Status.COMPLETED, 2, None, None)


def test_a_marked_job_without_an_attempt_left_is_rejected_by_the_next_delivery(world: World) -> None:
    """The sweep itself rejects nothing: only a delivery has the message that is to be copied."""
    bench = Bench(world, lambda _ctx: bench.die(), max_attempts=1)
    bench.deliver_dying()
    bench.later()
    bench.app.recovery()

    marked = bench.record
    assert bench.notes() == []
    assert not bench.deliver()
    assert bench.starts == [1]
    assert (marked.status, bench.record.status) == (Status.FAILED, Status.REJECTED)
    (note,) = bench.notes()
    assert (note["reason"], note["error"]) == ("rejected", f"attempts used up: {STALE}")


def test_a_marked_job_still_runs_alone(world: World) -> None:
    """G5: it may kill its process again, so its neighbours go first, although the record says failed by now."""
    world.settings = replace(world.settings, concurrency=1)
    order: list[str] = []

    def body(ctx: Context) -> None:
        order.append(ctx.key)
        if order == ["killer"]:
            bench.die()

    bench = Bench(world, body)
    bench.deliver_dying(key="killer")
    bench.later()
    bench.app.recovery()
    batch = [world.message("pay", key=key) for key in ("killer", "good", "other")]
    app = world.app(bench.job_type, runtime=Seams().process(world.runtime, world.settings))

    assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == []
    assert order == ["killer", "good", "other", "killer"]


def test_an_at_most_once_job_is_marked_uncertain_and_goes_to_a_person(both_worlds: World) -> None:
    """G9: the next delivery finds the end, copies the message with the reason, and starts nothing."""
    bench = Bench(both_worlds, lambda _ctx: bench.die(), semantics=Semantics.AT_MOST_ONCE)
    bench.deliver_dying()
    bench.later()

    assert bench.app.recovery() == answer_of(uncertain=1)

    record = bench.record
    assert (record.status, record.error, record.expires_at) == (Status.UNCERTAIN, UNCERTAIN, None)
    assert [told["status"] for told in events(both_worlds, "claim.went_stale")] == ["uncertain"]
    assert not bench.deliver()
    assert bench.starts == [1]
    (note,) = bench.notes()
    assert (note["reason"], note["error"]) == ("uncertain", UNCERTAIN)


def test_a_job_that_died_in_an_at_most_once_step_is_marked_uncertain(world: World) -> None:
    """G9: the step was started, and is not known to have ended."""
    bench = Bench(world, lambda ctx: ctx.step("call", bench.die, semantics=Semantics.AT_MOST_ONCE))
    bench.deliver_dying()
    bench.later()

    assert bench.app.recovery() == answer_of(uncertain=1)
    assert not bench.deliver()
    assert bench.starts == [1]
    assert bench.record.status is Status.UNCERTAIN


def test_a_job_that_died_behind_an_at_most_once_step_goes_on_behind_it(world: World) -> None:
    """The step has ended and is recorded: nothing is uncertain, and nothing is repeated."""

    def body(ctx: Context) -> Any:
        answer = ctx.step("call", bench.effect("call", "done"), semantics=Semantics.AT_MOST_ONCE)
        if ctx.attempt == 1:
            bench.die()
        return answer

    bench = Bench(world, body)
    bench.deliver_dying()
    bench.later()

    assert bench.app.recovery() == answer_of(failed=1)
    assert not bench.deliver()
    assert bench.effects == ["call"]
    assert bench.record.result == '"done"'


def test_a_job_that_a_release_made_at_most_once_is_marked_uncertain(world: World) -> None:
    """G9: the sweep obeys what the job type says now, as a take-over does."""
    bench = Bench(world, lambda _ctx: bench.die())
    bench.deliver_dying()
    bench.release(semantics=Semantics.AT_MOST_ONCE)
    bench.later()

    assert bench.app.recovery() == answer_of(uncertain=1)


def test_a_first_claimant_that_lives_after_all_loses_behind_the_mark(world: World) -> None:
    """G2: its completion changes nothing, and the next delivery runs the job."""
    worker = Worker.of(world)
    claim = worker.take()
    pass_lease(world)
    world.app().recovery()
    marked = stored(world)

    with pytest.raises(ClaimLost) as lost:
        claim.complete(world.clock.now_ms(), '"zombie"')

    assert lost.value.seen == marked
    assert stored(world) == marked
    assert Worker.of(world).take().record.attempts == 2


def test_a_zombie_that_runs_through_the_sweep_keeps_its_message(world: World) -> None:
    """The same from a job's point of view: what it returns is not recorded, and its message comes again."""

    def body(ctx: Context) -> str:
        if ctx.attempt == 1:
            bench.later(3_600)
            bench.app.recovery()
        return f"of attempt {ctx.attempt}"

    bench = Bench(world, body)

    assert bench.deliver()
    assert "claim.lost" in world.names()
    assert not bench.deliver()
    assert bench.record.result == '"of attempt 2"'


MOVES: dict[str, Callable[[World, Any], object]] = {
    "completes": lambda world, claim: claim.complete(world.clock.now_ms(), '"late"'),
    "renews": lambda world, claim: claim.renew(world.clock.now_ms() + 60_000),
    "releases": lambda world, claim: claim.release(world.clock.now_ms(), not_before=1, error="late", counted=True),
    "records a step": lambda world, claim: claim.step("charge", {"result": 1}),
    "is taken over": lambda world, claim: Worker.of(world).take(),
    "is gone": lambda world, claim: world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": "pay#k-1"}}),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("semantics", list(Semantics))
def test_a_record_that_moves_on_while_it_is_looked_at_is_left_as_it_is(
    world: World, move: str, semantics: Semantics
) -> None:
    """G2: it is counted as lost; nothing is overwritten, and nothing is told of it."""
    worker = Worker.of(world)
    claim = worker.take(semantics=semantics)
    pass_lease(world)
    if semantics is Semantics.AT_MOST_ONCE and move == "is taken over":
        # Nobody takes an at-most-once job over: a taker holds it.
        moved: Callable[[], object] = lambda: Worker.of(world).ask(semantics=semantics)  # noqa: E731
    else:
        moved = lambda: MOVES[move](world, claim)  # noqa: E731
    client = faulty_dynamodb(world.runtime)
    left: list[Record | None] = []

    def meet(call: Any) -> Any:
        if not left:
            moved()
            left.append(world.record("pay", "k-1"))
        return client.forward(call)

    client.plan("update_item", meet, times=2)

    assert world.app().recovery() == answer_of(lost=1)
    assert [world.record("pay", "k-1")] == left
    assert "claim.went_stale" not in world.names()


def test_locks_and_the_sweeps_own_place_are_passed_over(world: World) -> None:
    """They stand among the records, and have ends of their own; they are read, and that is all."""
    taken_by(world, "pay#k-1", "till", 1)
    world.app().recovery()
    world.clock.advance(86_400)
    before = world.dynamodb.scan(TableName=TABLE)["Items"]

    assert world.app().recovery() == answer_of(scanned=2)
    assert world.dynamodb.scan(TableName=TABLE)["Items"] == before


def test_sweeps_at_once_mark_each_claim_once(both_worlds: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight at a time over one table: no claim is marked twice, and what one has marked is lost to the others."""
    world = both_worlds
    monkeypatch.setattr(sweeping, "PAGE", 5)
    keys = [f"k-{number}" for number in range(20)]
    leave_stale(world, *keys)
    apps = [world.app(runtime=Seams().process(world.runtime)) for _ in range(THREADS)]

    with eager_switching():
        answers = all_at_once([lambda app=app: app.recovery() for app in apps])  # type: ignore[misc]

    # One that begins where another one stands sweeps the rest; the next run makes up for it.
    rest = world.app().recovery()
    assert sum(answer["failed"] for answer in (*answers, rest)) == len(keys)
    assert {stored(world, key).version for key in keys} == {5}
    assert world.names().count("claim.went_stale") == len(keys)
    assert all(answer["finished"] for answer in answers)


def test_a_sweep_and_a_delivery_at_once_start_the_job_once(both_worlds: World) -> None:
    """G1: whoever comes first, one attempt runs, under the number that it should have."""
    world = both_worlds
    bench = Bench(world, lambda ctx: bench.die() if ctx.attempt == 1 else None)
    bench.deliver_dying()
    bench.later()
    deliveries = [world.message("pay") for _ in range(THREADS)]
    apps = [world.app(bench.job_type, runtime=Seams().process(world.runtime)) for _ in range(2 * THREADS)]

    def delivering(number: int) -> Callable[[], object]:
        return lambda: apps[number].consumer(event_of(deliveries[number]), FakeLambdaContext())

    calls = [(delivering(number), apps[THREADS + number].recovery) for number in range(THREADS)]
    with eager_switching():
        all_at_once(list(itertools.chain.from_iterable(calls)))
    bench.finish()

    assert bench.starts == [1, 2]
    assert (bench.record.status, bench.record.attempts) == (Status.COMPLETED, 2)


def test_a_sweep_changes_nothing_for_a_job_that_waits_for_its_back_off(world: World) -> None:
    """It has ended its attempt itself, and comes back by itself."""

    def body(_ctx: Context) -> None:
        raise Retry(delay=3_600)

    bench = Bench(world, body)
    bench.deliver()
    before = bench.record
    bench.later(PAST_LEASE)

    assert bench.app.recovery()["failed"] == 0
    assert bench.record == before


def test_a_sweep_that_may_not_read_says_so(world: World) -> None:
    """A missing permission fails the function, whose errors are alarmed on."""
    client = faulty_dynamodb(world.runtime)
    client.refuse("scan", "AccessDeniedException")

    with pytest.raises(StoreError, match="AccessDeniedException"):
        world.app().recovery()


@pytest.mark.parametrize(
    "spoiled",
    [{"semantics": {"S": "of_tomorrow"}}, {"fencing_token": None}, {"steps": {"S": "not JSON"}}],
    ids=["unknown semantics", "an attribute short", "steps that are none"],
)
def test_a_record_that_cannot_be_read_is_named_and_holds_up_no_other(world: World, spoiled: dict[str, Any]) -> None:
    """One item of another release, or spoiled by hand, must not stop the sweep at its page for ever."""
    first, _ = leave_stale(world, "k-1", "k-2")
    raw = {name: value for name, value in (first.to_item() | spoiled).items() if value is not None}
    world.dynamodb.put_item(TableName=TABLE, Item=raw)

    assert world.app().recovery() == answer_of(scanned=2, failed=1)
    assert stored(world, "k-2").status is Status.FAILED
    assert events(world, "item.unreadable") == [{"table": TABLE, "item": first.pk}]


def test_a_place_that_cannot_be_read_is_the_beginning(world: World) -> None:
    """Nobody knows where the last run stopped: the sweep begins anew, since it can only mark too little."""
    leave_stale(world, "k-1")
    world.dynamodb.put_item(TableName=TABLE, Item={"pk": {"S": sweeping.CURSOR}, "next": {"S": "{"}})

    assert world.app().recovery() == answer_of(scanned=2, failed=1)
