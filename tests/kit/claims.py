"""Claims made by hand: requests, records, and the claim of a delivery that a test plays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kit.faults import FaultyClient
from onceq import claim as claims
from onceq.claim import Claim
from onceq.clock import OpenDeadline
from onceq.decision import Request
from onceq.record import Record, Status
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from kit.world import World
    from onceq.decision import Settled

NOW = 1_795_953_600_000
LEASE_MS = 30_000
SKEW_MS = 10_000
RETENTION_S = 1_000


def request_of(key: str = "k-1", **changes: Any) -> Request:
    """Return what a delivery asks."""
    asked = Request(
        pk=f"pay#{key}",
        job_type="pay",
        idempotency_key=key,
        fingerprint="f-1",
        message_id="m-1",
        redriven_version=None,
        max_attempts=3,
        lease_ms=LEASE_MS,
        skew_ms=SKEW_MS,
        retention_s=RETENTION_S,
    )
    return replace(asked, **changes)


def record_of(status: Status = Status.PROCESSING, key: str = "k-1", **changes: Any) -> Record:
    """Return a record as an earlier claimant could have left it."""
    record = Record(
        pk=f"pay#{key}",
        job_type="pay",
        idempotency_key=key,
        status=status,
        claimant="theirs",
        version=4,
        fencing_token=NOW - 5_000,
        attempts=2,
        created_at=NOW - 9_000,
        expires_at=NOW // 1000 + RETENTION_S,
        payload_fingerprint="f-1",
        message_id="m-0",
    )
    by_status: dict[Status, dict[str, Any]] = {
        Status.PROCESSING: {"lease_expires_at": NOW + LEASE_MS},
        Status.COMPLETED: {"result": "1", "completed_at": NOW - 1_000},
        Status.FAILED: {"not_before": NOW + 1_000, "error": "ValueError"},
        Status.REJECTED: {"error": "no"},
        Status.UNCERTAIN: {"error": "unknown", "expires_at": None},
    }
    return replace(record, **(by_status[status] | changes))


@dataclass
class Worker:
    """One process: a client of its own, and so faults of its own."""

    world: World
    runtime: Runtime
    client: FaultyClient

    @classmethod
    def of(cls, world: World) -> Worker:
        """Start another process in that world."""
        runtime = Runtime(world.settings, clock=world.clock, tokens=world.tokens)
        client = FaultyClient(world.dynamodb)
        with patch("onceq.dynamodb.make_client", return_value=client):
            runtime.store(OpenDeadline())
        return cls(world, runtime, client)

    def ask(self, key: str = "k-1", **changes: Any) -> Claim | Settled:
        """Deliver a message: claim, or be told why not. Alone, so that a stale job is taken over at once."""
        asked = request_of(key, **({"alone": True} | changes))
        return claims.claim(self.runtime.store(OpenDeadline()), asked, self.world.clock, self.world.tokens)

    def take(self, key: str = "k-1", **changes: Any) -> Claim:
        """Deliver a message that gets the claim."""
        answer = self.ask(key, **changes)
        assert isinstance(answer, Claim), answer
        return answer


def pass_lease(world: World) -> None:
    """Let the lease of whoever claimed last pass, and the clock skew with it."""
    world.clock.advance((LEASE_MS + SKEW_MS) / 1000 + 1)


def stored(world: World, key: str = "k-1") -> Record:
    """Return the record, which must be there."""
    record = world.record("pay", key)
    assert record is not None
    return record
