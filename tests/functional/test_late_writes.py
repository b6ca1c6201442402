"""Writes that arrive after the ones that followed them: each is refused, and the record stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kit.claims import RETENTION_S, Worker, pass_lease, stored
from onceq.client import ATTEMPTS
from onceq.errors import ClaimLost, StoreUnavailable
from onceq.record import Semantics, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq.claim import Claim
    from onceq.record import Record


@dataclass(frozen=True)
class Write:
    """A write of a claimant, and the status that it leaves."""

    name: str
    make: Callable[[Claim, int], Record]
    status: Status


WRITES = [
    Write("complete", lambda claim, now: claim.complete(now, '"ours"'), Status.COMPLETED),
    Write(
        "release",
        lambda claim, now: claim.release(now, not_before=now, error="ValueError", counted=True),
        Status.FAILED,
    ),
    Write("reject", lambda claim, now: claim.reject(now, error="no"), Status.REJECTED),
    Write("hold", lambda claim, now: claim.hold(error="who knows"), Status.UNCERTAIN),
    Write("renew", lambda claim, now: claim.renew(now + 99_000), Status.PROCESSING),
]
every_write = pytest.mark.parametrize("write", WRITES, ids=[each.name for each in WRITES])


def late(worker: Worker, claim: Claim, write: Write, *, times: int = ATTEMPTS) -> None:
    """Send a write that nobody answers and that has not arrived yet."""
    worker.client.hold_back(write.name, times=times)
    with pytest.raises(StoreUnavailable):
        write.make(claim, worker.world.clock.now_ms())


@every_write
def test_a_write_that_arrives_again_after_its_own_retry_changes_nothing(world: World, write: Write) -> None:
    """G2: the retry landed; the first request, on its way all the time, finds another version."""
    worker = Worker.of(world)
    claim = worker.take()
    worker.client.hold_back(write.name)

    written = write.make(claim, world.clock.now_ms())

    assert written.status is write.status
    assert stored(world) == written
    assert worker.client.land() == [False]
    assert stored(world) == written


@every_write
def test_a_write_that_arrives_after_a_take_over_changes_nothing(world: World, write: Write) -> None:
    """G2: the taker's token stands in the record, so what the previous claimant sent before is refused."""
    first, second = Worker.of(world), Worker.of(world)
    late(first, first.take(), write)
    pass_lease(world)
    taken = second.take()

    assert first.client.land() == [False] * ATTEMPTS
    assert stored(world) == taken.record


@every_write
def test_a_write_that_arrives_after_the_taker_ended_changes_nothing(world: World, write: Write) -> None:
    """G3: a completed job stays completed, whatever arrives from before."""
    first, second = Worker.of(world), Worker.of(world)
    late(first, first.take(), write)
    pass_lease(world)
    completed = second.take().complete(world.clock.now_ms(), '"theirs"')

    assert first.client.land() == [False] * ATTEMPTS
    assert stored(world) == completed


def test_a_claim_that_arrives_again_changes_nothing(world: World) -> None:
    """G2: the retry of the claim landed and the job is completed; the first request is refused."""
    worker = Worker.of(world)
    worker.client.hold_back("claim")
    completed = worker.take().complete(world.clock.now_ms(), "1")

    assert worker.client.land() == [False]
    assert stored(world) == completed


@pytest.mark.parametrize("ended", [True, False], ids=["the other completed", "the other still runs"])
def test_a_claim_that_arrives_after_another_claimants_is_refused(world: World, *, ended: bool) -> None:
    """G1: a claim that nobody answered arrives when somebody else holds or ended the job."""
    first, second = Worker.of(world), Worker.of(world)
    first.client.hold_back("claim", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        first.ask()
    claim = second.take()
    if ended:
        claim.complete(world.clock.now_ms(), "1")

    assert first.client.land() == [False] * ATTEMPTS
    assert stored(world) == claim.record


def test_a_claim_that_arrives_first_after_all_is_one_more_start_and_no_more(world: World) -> None:
    """G4, G6: nobody runs on it; it goes stale and the next delivery takes it over."""
    first, second = Worker.of(world), Worker.of(world)
    first.client.hold_back("claim", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        first.ask()

    assert first.client.land() == [True, False, False, False, False]
    pass_lease(world)
    taken = second.take()
    assert taken.record.attempts == 2
    assert taken.complete(world.clock.now_ms(), "1") == stored(world)


def test_a_claim_that_arrives_after_the_record_expired_was_asked_at_its_own_time(world: World) -> None:
    """G3: FREE compares with the time the claim was asked at, so a late one does not free what ended after it."""
    first, second = Worker.of(world), Worker.of(world)
    first.client.hold_back("claim", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        first.ask()
    completed = second.take().complete(world.clock.now_ms(), "1")
    world.clock.advance(RETENTION_S + 1)

    assert first.client.land() == [False] * ATTEMPTS
    assert stored(world) == completed


def test_a_take_over_that_arrives_again_changes_nothing(world: World) -> None:
    """G2: the retry of the take-over landed, and the job went on; the first request finds another version."""
    first, second = Worker.of(world), Worker.of(world)
    first.take()
    pass_lease(world)
    second.client.hold_back("take_over")
    claim = second.take()

    assert second.client.land() == [False]
    assert stored(world) == claim.record
    completed = claim.complete(world.clock.now_ms(), "1")
    assert (stored(world), completed.attempts) == (completed, 2)


def test_a_take_over_that_arrives_after_another_one_changes_nothing(world: World) -> None:
    """G1: of two that saw the same stale record, the one that arrives later is refused."""
    first, second, third = Worker.of(world), Worker.of(world), Worker.of(world)
    first.take()
    pass_lease(world)
    second.client.hold_back("take_over", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        second.ask()
    taken = third.take()

    assert second.client.land() == [False] * ATTEMPTS
    assert stored(world) == taken.record


@pytest.mark.parametrize("name", ["reject", "hold"])
def test_an_end_by_a_taker_that_arrives_after_the_zombies_end_changes_nothing(world: World, name: str) -> None:
    """G3: a taker gave the job up; the zombie completed it meanwhile, and that stands."""
    semantics = Semantics.AT_MOST_ONCE if name == "hold" else Semantics.AT_LEAST_ONCE
    first, second = Worker.of(world), Worker.of(world)
    claim = first.take(semantics=semantics)
    pass_lease(world)
    second.client.hold_back(name, times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        second.ask(max_attempts=1, semantics=semantics)
    completed = claim.complete(world.clock.now_ms(), "1")

    assert second.client.land() == [False] * ATTEMPTS
    assert stored(world) == completed


ENDS = [write for write in WRITES if write.name != "renew"]
every_end = pytest.mark.parametrize("end", ENDS, ids=[each.name for each in ENDS])


@every_end
def test_a_renewal_of_unknown_outcome_that_landed_is_followed_by_the_end(world: World, end: Write) -> None:
    """Rule 5: the end is refused, finds our own renewal, follows it, and is recorded with the next version."""
    worker = Worker.of(world)
    claim = worker.take()
    late(worker, claim, WRITES[-1], times=ATTEMPTS)
    assert worker.client.land() == [True, False, False, False, False]

    ended = end.make(claim, world.clock.now_ms())

    assert (ended.status, ended.version) == (end.status, 3)
    assert stored(world) == ended


@every_end
def test_a_renewal_that_arrives_between_our_last_look_and_the_end_is_followed(world: World, end: Write) -> None:
    """Rule 5: it lands just before the end's request does."""
    worker = Worker.of(world)
    claim = worker.take()
    late(worker, claim, WRITES[-1])
    worker.client.before(end.name, worker.client.land)

    ended = end.make(claim, world.clock.now_ms())

    assert (ended.status, ended.version) == (end.status, 3)
    assert stored(world) == ended


@every_end
def test_a_renewal_that_arrives_after_the_end_changes_nothing(world: World, end: Write) -> None:
    """G2, G3: the record has moved on."""
    worker = Worker.of(world)
    claim = worker.take()
    late(worker, claim, WRITES[-1])
    ended = end.make(claim, world.clock.now_ms())

    assert worker.client.land() == [False] * ATTEMPTS
    assert (stored(world), ended.version) == (ended, 2)


@every_end
def test_a_renewal_is_never_taken_for_the_end_that_was_lost(world: World, end: Write) -> None:
    """G11: same claimant, same version, another write: the end is not believed because the renewal has landed.

    The end times out and is still on its way; the renewal lands; the retry of the end finds the version it was
    writing, under our token. By claimant and version alone it would be taken for recorded.
    """
    worker = Worker.of(world)
    claim = worker.take()
    late(worker, claim, WRITES[-1])
    renewals = worker.client.held_back
    worker.client.held_back = []
    worker.client.hold_back(end.name)

    def renewal_lands() -> None:
        worker.client.forward(renewals[0])

    worker.client.before(end.name, renewal_lands)
    ended = end.make(claim, world.clock.now_ms())

    assert (ended.status, ended.version) == (end.status, 3)
    assert stored(world) == ended
    assert worker.client.land() == [False]
    assert stored(world) == ended


def test_two_renewals_of_unknown_outcome_leave_one_and_the_completion_follows_it(world: World) -> None:
    """Rule 5: both follow the same version, so one lands; whichever it is, the completion finds and follows it."""
    for landing in (0, ATTEMPTS):
        key = f"k-{landing}"
        worker = Worker.of(world)
        claim = worker.take(key)
        for lease in (50_000, 60_000):
            worker.client.hold_back("renew", times=ATTEMPTS)
            with pytest.raises(StoreUnavailable):
                claim.renew(world.clock.now_ms() + lease)
        worker.client.forward(worker.client.held_back[landing])

        completed = claim.complete(world.clock.now_ms(), "1")

        assert (completed.status, completed.version) == (Status.COMPLETED, 3)
        assert worker.client.land() == [False] * 2 * ATTEMPTS
        assert stored(world, key) == completed


def test_a_renewal_follows_an_earlier_one_of_unknown_outcome(world: World) -> None:
    """Rule 5 holds for the next renewal too: the lease is the later one."""
    worker = Worker.of(world)
    claim = worker.take()
    late(worker, claim, WRITES[-1])
    worker.client.land()

    renewed = claim.renew(world.clock.now_ms() + 500_000)

    assert renewed.lease_expires_at == world.clock.now_ms() + 500_000
    assert (stored(world), renewed.version) == (renewed, 3)


def test_a_completion_of_unknown_outcome_is_never_followed(world: World) -> None:
    """Rule 5 reads records that still process: after the end nothing more is written, whoever asks."""
    worker = Worker.of(world)
    claim = worker.take()
    worker.client.lose_response("complete", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        claim.complete(world.clock.now_ms(), "1")
    completed = stored(world)
    assert completed.status is Status.COMPLETED

    for write in WRITES:
        if write.name != "complete":
            with pytest.raises(ClaimLost):
                write.make(claim, world.clock.now_ms())

    assert stored(world) == completed


@every_write
def test_nothing_is_written_after_the_end(world: World, write: Write) -> None:
    """G2: a renewing thread that wakes after the end of the job sends no request at all."""
    worker = Worker.of(world)
    claim = worker.take()
    completed = claim.complete(world.clock.now_ms(), "1")
    calls = len(worker.client.calls)

    with pytest.raises(ClaimLost):
        write.make(claim, world.clock.now_ms())

    assert len(worker.client.calls) == calls
    assert stored(world) == completed
