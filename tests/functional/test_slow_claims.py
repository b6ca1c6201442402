"""A claim that was answered late: outside Lambda its lease is whole again before the job starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import Worker
from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import Context, JobType

if TYPE_CHECKING:
    from kit.world import World

LEASE_SECONDS = 3


def _nothing(payload: Any) -> None:
    """Do nothing."""


def _slow(world: World, seconds: float) -> Worker:
    """Return a worker whose first claim is answered after so many seconds, the write having landed at once."""
    world.settings = replace(world.settings, clock_skew=0.2)
    worker = Worker.of(world)

    def late(call: Any) -> Any:
        answer = worker.client.forward(call)
        world.clock.advance(seconds)
        return answer

    worker.client.plan("claim", late)
    return worker


@pytest.mark.parametrize("after", [0, 0.5, 1, 3.19])
def test_nobody_takes_over_a_job_whose_claim_was_slow(world: World, after: float) -> None:
    """G1: at most one claimant runs the job at any moment: a second worker that comes while it runs is told to wait."""
    slow, other = _slow(world, 2.8), Worker.of(world)
    running = 0
    runs: list[int] = []
    answers: list[list[str]] = []

    def act(payload: dict[str, Any], ctx: Context) -> None:
        nonlocal running
        running += 1
        runs.append(running)
        if len(runs) == 1:
            world.clock.advance(after)
            answers.append(kept(world.app(job_type, runtime=other.runtime).consumer(event_of(duplicate))))
        running -= 1

    job_type = JobType(act, "act", max_duration=LEASE_SECONDS)
    duplicate = world.message("act")

    assert kept(world.app(job_type, runtime=slow.runtime).consumer(event_of(world.message("act")))) == []
    assert runs == [1]
    assert answers == [[duplicate["messageId"]]]
    assert "job.deferred" in world.names()
    assert "claim.lost" not in world.names()
    record = world.record(job_type, "k-1")
    assert record is not None
    assert (record.status, record.attempts) == ("completed", 1)


@pytest.mark.parametrize(
    ("seconds", "renewals"), [(0, 0), (1, 0), (1.001, 1), (2.8, 1)], ids=["at once", "two thirds left", "less", "late"]
)
def test_a_lease_is_renewed_before_the_start_when_less_than_two_thirds_of_it_are_left(
    world: World, seconds: float, renewals: int
) -> None:
    """G1: the first renewal comes after a third of a lease, so as much and a spare must be left at the start."""
    worker = _slow(world, seconds)
    left: list[int] = []

    def act(payload: dict[str, Any], ctx: Context) -> None:
        record = world.record("act", "k-1")
        assert record is not None
        left.append((record.lease_expires_at or 0) - world.clock.now_ms())

    app = world.app(JobType(act, "act", max_duration=LEASE_SECONDS), runtime=worker.runtime)

    assert kept(app.consumer(event_of(world.message("act")))) == []
    assert worker.client.names().count("renew") == renewals
    assert left == [3_000 if renewals else 3_000 - round(seconds * 1000)]


@pytest.mark.parametrize("answered_after", [3.3, 60])
def test_a_job_that_was_taken_over_before_its_claim_was_answered_does_not_start(
    world: World, answered_after: float
) -> None:
    """G2: the renewal before the start is refused, and so the late worker runs nothing."""
    world.settings = replace(world.settings, clock_skew=0.2)
    late, other = Worker.of(world), Worker.of(world)
    runs: list[int] = []

    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.attempt)

    job_type = JobType(act, "act", max_duration=LEASE_SECONDS)

    def overtaken(call: Any) -> Any:
        answer = late.client.forward(call)
        world.clock.advance(answered_after)
        assert kept(world.app(job_type, runtime=other.runtime).consumer(event_of(world.message("act")))) == []
        return answer

    late.client.plan("claim", overtaken)

    assert kept(world.app(job_type, runtime=late.runtime).consumer(event_of(world.message("act")))) == []
    assert runs == [2]
    assert "claim.lost" in world.names()


def test_a_lease_that_cannot_be_renewed_starts_nothing(world: World) -> None:
    """G4: without an answer to the renewal the message is kept, and nothing ran."""
    worker = _slow(world, 2.8)
    worker.client.refuse("renew", "ValidationException")
    runs: list[Any] = []
    message = world.message("act")

    def act(payload: Any) -> None:
        runs.append(payload)

    app = world.app(JobType(act, "act", max_duration=LEASE_SECONDS), runtime=worker.runtime)

    assert kept(app.consumer(event_of(message))) == [message["messageId"]]
    assert runs == []
    assert "message.faulted" in world.names()


def test_on_lambda_nothing_is_renewed(world: World) -> None:
    """There the lease lasts until the process is killed, however late the claim was answered."""
    worker = _slow(world, 20)
    app = world.app(JobType(_nothing, "act", max_duration=LEASE_SECONDS), runtime=worker.runtime)

    assert kept(app.consumer(event_of(world.message("act")), FakeLambdaContext(30_000))) == []
    assert "renew" not in worker.client.names()
