"""Rules of the claim that only a mutant showed to be untested."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import NOW, RETENTION_S, SKEW_MS, Worker, pass_lease, record_of, request_of
from onceq.claim import Claim, decide
from onceq.clock import OpenDeadline
from onceq.decision import UNENDED_RETENTION_S, Ended, Hold, Stale, TakeOver
from onceq.errors import ClaimLost
from onceq.record import Semantics, Status
from onceq.store import Refused

if TYPE_CHECKING:
    from kit.world import World
    from onceq.record import Record


@pytest.fixture
def worker(world: World) -> Worker:
    """One process."""
    return Worker.of(world)


def test_a_record_is_read_consistently(world: World, worker: Worker) -> None:
    """A look-up that follows a write shows it: the read asks for consistency, which no local backend can lack."""
    store = worker.runtime.store(OpenDeadline())

    assert store.get("pay#k-1") is None
    assert worker.client.calls[-1].request["ConsistentRead"] is True


def test_a_processing_record_without_a_lease_is_stale() -> None:
    """G4: nobody can be seen to hold it, so it must not be busy for ever."""
    record = record_of(lease_expires_at=None)

    assert decide(record, request_of(), NOW) == Stale(record)
    assert decide(record, request_of(alone=True), NOW) == TakeOver(record.attempts + 1)


@pytest.mark.parametrize("waited", [0, -60_000, 60_000], ids=["now", "a back-off that has passed", "a back-off"])
def test_a_record_is_kept_from_its_end_on(worker: Worker, waited: int) -> None:
    """G3, G6: the retention counts from the end of the attempt; what goes on is kept while its message may come."""
    later = NOW + 7_000

    completed = worker.take("one").complete(later, "1")
    rejected = worker.take("two").reject(later, error="no")
    released = worker.take("three").release(later, not_before=later + waited, error=None, counted=True)

    assert completed.expires_at == rejected.expires_at == later // 1000 + RETENTION_S
    assert released.expires_at == (later + max(0, waited)) // 1000 + UNENDED_RETENTION_S


def test_a_job_that_has_not_ended_is_kept_for_a_longer_retention_too(worker: Worker) -> None:
    """G6: where ended jobs are kept longer than a message lives, one that has not ended is kept as long."""
    claim = worker.take(retention_s=UNENDED_RETENTION_S + 5)

    assert claim.record.expires_at == NOW // 1000 + UNENDED_RETENTION_S + 5


def test_the_record_remembers_that_a_job_starts_at_most_once(worker: Worker) -> None:
    """G9: what may happen to a job stands in its record, by whichever claim said so, and it is never forgotten."""
    first = worker.take(semantics=Semantics.AT_MOST_ONCE)
    released = first.release(NOW, not_before=NOW, error=None, counted=True)

    assert (first.record.semantics, first.record.expires_at) == (Semantics.AT_MOST_ONCE, None)
    assert (released.semantics, released.expires_at) == (Semantics.AT_MOST_ONCE, None)
    assert worker.take().record.semantics is Semantics.AT_MOST_ONCE
    worker.take("k-2").release(NOW, not_before=NOW, error=None, counted=True)
    assert worker.take("k-2", semantics=Semantics.AT_MOST_ONCE).record.semantics is Semantics.AT_MOST_ONCE


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [(Semantics.AT_MOST_ONCE, Semantics.AT_LEAST_ONCE), (Semantics.AT_LEAST_ONCE, Semantics.AT_MOST_ONCE)],
)
def test_an_at_most_once_job_is_held_by_what_its_record_or_its_job_type_says(
    recorded: Semantics, asked: Semantics
) -> None:
    """G9: a release that changes ``semantics=`` does not start a job whose effect may have happened."""
    stale = record_of(lease_expires_at=NOW - SKEW_MS, semantics=recorded)

    assert decide(stale, request_of(semantics=asked, alone=True), NOW) == Hold()


def test_a_job_that_was_given_back_unstarted_may_still_kill(world: World, worker: Worker) -> None:
    """G5: it went stale, was taken over and not started: nothing is known of it yet, so it runs alone again."""
    worker.take()
    pass_lease(world)
    given_back = worker.take().give_back(world.clock.now_ms())

    assert (given_back.status, given_back.attempts) == (Status.FAILED, 1)
    assert worker.ask(alone=False) == Stale(given_back)
    assert worker.take().record.attempts == 2


def test_an_attempt_that_ends_by_itself_clears_that_the_job_may_kill(world: World, worker: Worker) -> None:
    """G5: the attempt after the stale one failed and killed nobody, so the next one runs beside others."""
    worker.take()
    pass_lease(world)
    now = world.clock.now_ms()
    worker.take().release(now, not_before=now, error="ValueError", counted=True)

    assert isinstance(worker.ask(alone=False), Claim)


def test_a_job_that_was_rejected_since_it_kills_runs_alone_when_it_is_redriven(world: World, worker: Worker) -> None:
    """G5: nobody knows whether the job was mended: its redrive runs alone too, and begins without the old error."""
    worker.take(max_attempts=1)
    pass_lease(world)
    ended = worker.ask(max_attempts=1)
    assert isinstance(ended, Ended)
    version = ended.record.version

    assert worker.ask(redriven_version=version, alone=False) == Stale(ended.record)
    redriven = worker.take(redriven_version=version)
    assert (redriven.record.attempts, redriven.record.error) == (1, None)


@dataclass
class _SlowStore:
    """A store whose renewal lasts until it is let go, and which counts the writes under way."""

    entered: threading.Event
    go_on: threading.Event
    under_way: int = 0
    most: int = 0

    def renew(self, held: Record, **values: Any) -> Record:
        self._write()
        return record_of(claimant=held.claimant, version=held.version + 1)

    def complete(self, held: Record, **values: Any) -> Record:
        self._write()
        return record_of(Status.COMPLETED, claimant=held.claimant, version=held.version + 1)

    def _write(self) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.entered.set()
        # Time enough for another write to come in between, if nothing keeps it out.
        self.go_on.wait(0.2)
        self.under_way -= 1


def test_one_write_of_a_claim_waits_for_another() -> None:
    """Section 6: a renewal under way keeps the end waiting, which then follows the version that it left."""
    store = _SlowStore(threading.Event(), threading.Event())
    claim = Claim(store, record_of(version=4), request_of(), previous=None)  # type: ignore[arg-type]  # stands in

    with ThreadPoolExecutor(2) as pool:
        renewal = pool.submit(claim.renew, NOW + SKEW_MS)
        assert store.entered.wait(20)
        completion = pool.submit(claim.complete, NOW, "1")
        assert (renewal.result(20).version, completion.result(20).version) == (5, 6)

    assert store.most == 1


class _RefusingStore:
    """A store that refuses every renewal, with the same record."""

    def __init__(self, seen: Record) -> None:
        self._refusal = Refused(seen)
        self.asked = 0

    def renew(self, held: Record, *, lease_expires_at: int) -> Refused[Record]:
        self.asked += 1
        return self._refusal


@pytest.mark.parametrize(("version", "asked"), [(3, 1), (4, 1), (5, 2)])
def test_only_a_later_version_is_an_earlier_write_of_ours(version: int, asked: int) -> None:
    """G11: a refusal that shows what we follow already shows no write of ours; nothing is sent again for it."""
    seen = record_of(version=version)
    store = _RefusingStore(seen)
    claim = Claim(store, record_of(version=4), request_of(), previous=None)  # type: ignore[arg-type]  # stands in

    with pytest.raises(ClaimLost) as lost:
        claim.renew(NOW)
    assert (lost.value.seen, store.asked) == (seen, asked)
