"""Zombies: claimants past their lease that still run. Whatever they write changes nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import Worker, pass_lease, record_of, stored
from kit.clock import FakeLambdaContext
from kit.world import TABLE, event_of, kept
from onceq import Context, Reject, Retry, Snooze, job
from onceq.claim import CROWDED_MS, ROUNDS, Claim
from onceq.decision import Busy, Ended, Replay
from onceq.errors import ClaimLost, Signal
from onceq.record import Semantics, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq.record import Record

LEFT = object()
# 60 s of lease, a second of margin, 10 s of skew.
PAST_LEASE = 72


def raising(error: BaseException) -> Callable[[], object]:
    """Return a job's end that raises."""

    def end() -> object:
        raise error

    return end


ZOMBIE_ENDS: dict[str, Callable[[], object]] = {
    "completes": lambda: "of the zombie",
    "fails": raising(ValueError("of the zombie")),
    "asks for a retry": raising(Retry(1)),
    "snoozes": raising(Snooze(1)),
    "rejects": raising(Reject("of the zombie")),
    "exits": raising(SystemExit(1)),
}
# What the one that took over leaves: its end, the record's status, and whether the zombie's message may go.
TAKER_ENDS: dict[str, tuple[Callable[[], object], Status, bool]] = {
    "completed": (lambda: "of the taker", Status.COMPLETED, True),
    "failed": (raising(Retry(60)), Status.FAILED, False),
    "rejected": (raising(Reject("of the taker")), Status.REJECTED, False),
    "still running": (lambda: LEFT, Status.PROCESSING, False),
}


class Died(Signal):
    """Stands for a process that dies in the middle of a job."""


@pytest.mark.parametrize("zombie_end", ZOMBIE_ENDS.values(), ids=ZOMBIE_ENDS)
@pytest.mark.parametrize(("taker_end", "status", "acknowledged"), TAKER_ENDS.values(), ids=TAKER_ENDS)
def test_what_a_zombie_ends_with_changes_nothing(
    world: World,
    zombie_end: Callable[[], object],
    taker_end: Callable[[], object],
    status: Status,
    *,
    acknowledged: bool,
) -> None:
    """G2: the first attempt ends after another took over: ClaimLost, and its message goes only if theirs completed."""
    after: list[Record] = []

    @job("pay", max_duration=20)
    def pay(payload: dict[str, Any], ctx: Context) -> object:
        if ctx.attempt == 1:
            world.clock.advance(PAST_LEASE)
            with suppress(Died):
                app.consumer(event_of(world.message("pay")), FakeLambdaContext())
            after.append(stored(world))
            return zombie_end()
        end = taker_end()
        if end is LEFT:
            raise Died
        return end

    app = world.app(pay)
    answer = app.consumer(event_of(world.message("pay")), FakeLambdaContext())

    assert after[0].status is status
    assert after[0].attempts == 2
    assert stored(world) == after[0]
    assert (kept(answer) == []) is acknowledged
    assert world.names()[-2:] == ["claim.lost", "batch.answered"]
    lost = next(event for event in world.events if event.name == "claim.lost").fields()
    assert (lost["status"], lost["winner"]) == (str(status), after[0].claimant)
    # The zombie's end is nowhere: no copy of its message, no replayed value of its own.
    assert len(world.dead_letters()) == (1 if status is Status.REJECTED else 0)


@pytest.fixture
def zombie(world: World) -> Worker:
    """The process that is slow."""
    return Worker.of(world)


@pytest.fixture
def taker(world: World) -> Worker:
    """The process that takes over."""
    return Worker.of(world)


WRITES: dict[str, Callable[[Claim, int], object]] = {
    "complete": lambda claim, now: claim.complete(now, '"zombie"'),
    "release": lambda claim, now: claim.release(now, not_before=now, error="zombie", counted=True),
    "release uncounted": lambda claim, now: claim.release(now, not_before=now, error="zombie", counted=False),
    "reject": lambda claim, now: claim.reject(now, error="zombie"),
    "hold": lambda claim, now: claim.hold(error="zombie"),
    "renew": lambda claim, now: claim.renew(now + 99_000),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_every_write_of_a_zombie_is_refused_and_shows_the_winner(
    world: World, zombie: Worker, taker: Worker, write: Callable[[Claim, int], object]
) -> None:
    """G2: the writer gets ClaimLost with the record as it stands, and one request told it so."""
    claim = zombie.take()
    pass_lease(world)
    taken = taker.take()
    before = len(zombie.client.calls)

    with pytest.raises(ClaimLost) as caught:
        write(claim, world.clock.now_ms())

    assert caught.value.seen == taken.record == stored(world)
    assert len(zombie.client.calls) == before + 1


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_zombies_write_on_a_record_that_is_gone_makes_none(
    world: World, zombie: Worker, write: Callable[[Claim, int], object]
) -> None:
    """G2: a record that TTL or a person deleted is not brought back by who held it."""
    claim = zombie.take()
    world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": "pay#k-1"}})

    with pytest.raises(ClaimLost) as caught:
        write(claim, world.clock.now_ms())

    assert caught.value.seen is None
    assert world.record("pay", "k-1") is None


def test_a_claim_lost_to_nobody_keeps_the_message(world: World) -> None:
    """G4: the record is gone, so nobody is known to have completed the job: the message is kept and runs again."""

    @job("pay")
    def pay(payload: dict[str, Any], ctx: Context) -> None:
        if world.names().count("job.started") == 1:
            world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": "pay#k-1"}})

    app = world.app(pay)

    assert kept(app.consumer(event_of(world.message("pay")), FakeLambdaContext())) != []
    assert kept(app.consumer(event_of(world.message("pay")), FakeLambdaContext())) == []
    assert stored(world).status is Status.COMPLETED


def test_a_living_lease_is_not_taken_over_by_a_millisecond(world: World, zombie: Worker, taker: Worker) -> None:
    """G1: until lease and clock skew have passed the job is busy; from then on it may be taken over."""
    claim = zombie.take()
    lease = claim.record.lease_expires_at
    assert lease is not None
    until = lease + 10_000
    world.clock.advance((until - world.clock.now_ms() - 1) / 1000)

    assert taker.ask() == Busy(until)
    world.clock.advance(0.001)
    assert taker.take().record.attempts == 2


def test_a_zombie_completes_between_the_refusal_and_the_take_over(world: World, zombie: Worker, taker: Worker) -> None:
    """G3: the take-over was decided on what is no longer true: it is refused, and decides again: replay."""
    claim = zombie.take()
    pass_lease(world)
    taker.client.before("take_over", lambda: claim.complete(world.clock.now_ms(), '"zombie"'))

    answer = taker.ask()

    assert answer == Replay(stored(world))
    assert (stored(world).result, stored(world).attempts) == ('"zombie"', 1)


def test_a_zombie_renews_between_the_refusal_and_the_take_over(world: World, zombie: Worker, taker: Worker) -> None:
    """G1: the claimant lives after all: the take-over is refused, and decides again: busy until the new lease."""
    claim = zombie.take()
    pass_lease(world)
    lease = world.clock.now_ms() + 30_000
    taker.client.before("take_over", lambda: claim.renew(lease))

    assert taker.ask() == Busy(lease + 10_000)
    assert stored(world) == claim.record
    assert claim.complete(world.clock.now_ms(), "1") == stored(world)


def test_a_zombie_releases_between_the_refusal_and_the_take_over(world: World, zombie: Worker, taker: Worker) -> None:
    """The back-off that the claimant recorded holds for the taker too."""
    claim = zombie.take()
    pass_lease(world)
    now = world.clock.now_ms()
    taker.client.before("take_over", lambda: claim.release(now, not_before=now + 5_000, error="zombie", counted=True))

    assert taker.ask() == Busy(now + 5_000)
    assert stored(world).status is Status.FAILED


def test_a_zombie_releases_at_once_between_the_refusal_and_the_take_over(
    world: World, zombie: Worker, taker: Worker
) -> None:
    """Without a back-off the second take-over follows what the zombie left: its version, its attempts, its error."""
    claim = zombie.take()
    pass_lease(world)
    now = world.clock.now_ms()
    taker.client.before("take_over", lambda: claim.release(now, not_before=now, error="zombie", counted=True))

    taken = taker.take()

    assert taken.previous == claim.record
    assert (taken.record.version, taken.record.attempts, taken.record.error) == (3, 2, "zombie")
    assert stored(world) == taken.record
    assert taker.client.names() == ["claim", "take_over", "take_over"]


def test_a_zombie_rejects_between_the_refusal_and_the_take_over(world: World, zombie: Worker, taker: Worker) -> None:
    """The end that the claimant wrote is the end."""
    claim = zombie.take()
    pass_lease(world)
    taker.client.before("take_over", lambda: claim.reject(world.clock.now_ms(), error="zombie"))

    assert taker.ask() == Ended(stored(world), before=True)
    assert stored(world).error == "zombie"


def test_a_zombie_completes_before_a_taker_rejects_the_job(world: World, zombie: Worker, taker: Worker) -> None:
    """G3: a taker that found no attempt left is refused, and answers from the result."""
    claim = zombie.take()
    pass_lease(world)
    taker.client.before("reject", lambda: claim.complete(world.clock.now_ms(), '"zombie"'))

    assert taker.ask(max_attempts=1) == Replay(stored(world))


def test_a_zombie_completes_before_a_taker_holds_the_job(world: World, zombie: Worker, taker: Worker) -> None:
    """G9: what is known to have finished does not become uncertain."""
    claim = zombie.take(semantics=Semantics.AT_MOST_ONCE)
    pass_lease(world)
    taker.client.before("hold", lambda: claim.complete(world.clock.now_ms(), '"zombie"'))

    assert taker.ask(semantics=Semantics.AT_MOST_ONCE) == Replay(stored(world))


def test_another_taker_is_faster(world: World, zombie: Worker, taker: Worker) -> None:
    """G1: of two takers one gets the job; the other decides again: busy until the winner's lease."""
    zombie.take()
    pass_lease(world)
    rival = Worker.of(world)
    taker.client.before("take_over", rival.take)

    answer = taker.ask()

    winner = stored(world)
    assert winner.lease_expires_at is not None
    assert answer == Busy(winner.lease_expires_at + 10_000)
    assert (winner.attempts, winner.version) == (2, 2)


def test_the_record_goes_between_the_refusal_and_the_take_over(world: World, zombie: Worker, taker: Worker) -> None:
    """No record: claim again, as the first."""
    zombie.take()
    pass_lease(world)
    taker.client.before("take_over", lambda: world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": "pay#k-1"}}))

    taken = taker.take()

    assert (taken.record.version, taken.record.attempts, taken.previous) == (1, 1, None)
    assert taker.client.names() == ["claim", "take_over", "claim"]


def test_a_record_that_moves_every_time_leaves_the_message_for_later(world: World, taker: Worker) -> None:
    """The rounds are bounded: then the job is busy for a few seconds, and nothing of ours was written."""
    moving = record_of(lease_expires_at=1)

    def move() -> None:
        nonlocal moving
        moving = replace(moving, version=moving.version + 1)
        world.dynamodb.put_item(TableName=TABLE, Item=moving.to_item())

    move()
    taker.client.before("take_over", move, times=1_000)

    assert taker.ask() == Busy(world.clock.now_ms() + CROWDED_MS)
    assert stored(world) == moving
    assert taker.client.names().count("take_over") == ROUNDS * ROUNDS
    assert taker.client.names().count("claim") == ROUNDS


def test_a_record_that_is_always_gone_leaves_the_message_for_later(world: World, taker: Worker) -> None:
    """The same for a record that goes and comes back: bounded, then busy."""
    stale = record_of(lease_expires_at=1).to_item()

    def go() -> None:
        world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": "pay#k-1"}})

    def come_back() -> None:
        world.dynamodb.put_item(TableName=TABLE, Item=stale)

    taker.client.before("claim", come_back, times=1_000)
    taker.client.before("take_over", go, times=1_000)

    assert taker.ask() == Busy(world.clock.now_ms() + CROWDED_MS)
    assert taker.client.names() == ["claim", "take_over"] * ROUNDS
    assert world.record("pay", "k-1") is None


def test_each_attempt_to_take_over_has_a_token_of_its_own(world: World, zombie: Worker, taker: Worker) -> None:
    """G2: a take-over that was refused may still arrive; the next one must not be taken for it."""
    claim = zombie.take()
    pass_lease(world)
    now = world.clock.now_ms()
    taker.client.before("take_over", lambda: claim.release(now, not_before=now, error=None, counted=True))

    taker.take()

    tokens = [
        call.request["ExpressionAttributeValues"][":new_claimant"]["S"]
        for call in taker.client.calls
        if call.name == "take_over"
    ]
    assert len(set(tokens)) == 2
    assert claim.record.claimant not in tokens


def test_a_fencing_token_rises_with_every_attempt_although_the_clock_does_not(world: World) -> None:
    """Section 3: `max(previous + 1, now in ms)`: stores of the user refuse a zombie by it."""
    worker = Worker.of(world)
    fences = []
    now = world.clock.now_ms()
    for _ in range(3):
        claim = worker.take(max_attempts=9)
        fences.append(claim.record.fencing_token)
        claim.release(now, not_before=now, error=None, counted=True)
    world.clock.advance(60)
    later = worker.take(max_attempts=9)
    fences.append(later.record.fencing_token)
    completed = later.complete(world.clock.now_ms(), "1")
    world.clock.advance(2_000)
    fences.append(worker.take().record.fencing_token)

    assert fences == [now, now + 1, now + 2, now + 60_000, now + 2_060_000]
    assert fences[-1] > completed.fencing_token
