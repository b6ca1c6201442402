"""Rules of the claim that only a mutant showed to be untested."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from kit.claims import NOW, RETENTION_S, SKEW_MS, Worker, record_of, request_of

from onceq.claim import Claim, decide
from onceq.clock import OpenDeadline
from onceq.decision import Stale, TakeOver
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


@pytest.mark.parametrize("waited", [0, -60_000], ids=["now", "a back-off that has passed"])
def test_a_record_is_kept_for_its_retention_from_its_end_on(worker: Worker, waited: int) -> None:
    """G3: the retention counts from the end of the attempt, however it ended."""
    later = NOW + 7_000
    ends = {
        "complete": lambda claim: claim.complete(later, "1"),
        "release": lambda claim: claim.release(later, not_before=later + waited, error=None, counted=True),
        "reject": lambda claim: claim.reject(later, error="no"),
    }

    kept = {name: end(worker.take(name)).expires_at for name, end in ends.items()}

    assert kept == dict.fromkeys(ends, later // 1000 + RETENTION_S)


def test_the_record_remembers_that_a_job_starts_at_most_once(worker: Worker) -> None:
    """G9: what may happen to a job stands in its record, from its first claim on and through a take-over."""
    first = worker.take(semantics=Semantics.AT_MOST_ONCE)
    released = first.release(NOW, not_before=NOW, error=None, counted=True)
    second = worker.take()

    assert {first.record.semantics, released.semantics, second.record.semantics} == {Semantics.AT_MOST_ONCE}


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
    claim = Claim(store, record_of(version=4), previous=None, retention_s=9)  # type: ignore[arg-type]  # stands in

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

    def renew(self, held: Record, *, lease_expires_at: int) -> Refused:
        self.asked += 1
        return self._refusal


@pytest.mark.parametrize(("version", "asked"), [(3, 1), (4, 1), (5, 2)])
def test_only_a_later_version_is_an_earlier_write_of_ours(version: int, asked: int) -> None:
    """G11: a refusal that shows what we follow already shows no write of ours; nothing is sent again for it."""
    seen = record_of(version=version)
    store = _RefusingStore(seen)
    claim = Claim(store, record_of(version=4), previous=None, retention_s=9)  # type: ignore[arg-type]  # stands in

    with pytest.raises(ClaimLost) as lost:
        claim.renew(NOW)
    assert (lost.value.seen, store.asked) == (seen, asked)
