"""Responses that never come: the request was applied, or it was not, and the caller cannot tell."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import Worker, stored
from kit.clock import FakeLambdaContext
from kit.faults import FaultyClient, faulty_dynamodb
from kit.seams import OneRenewalClock
from kit.world import event_of, kept
from onceq import Context, Reject, Retry, job
from onceq.client import ATTEMPTS
from onceq.codec import ResultNotStored
from onceq.decision import Ended
from onceq.errors import StoreUnavailable
from onceq.record import Semantics, Status
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq import App
    from onceq.claim import Claim
    from onceq.telemetry import Event

LOSE, DROP = FaultyClient.lose_response, FaultyClient.drop
unheard = pytest.mark.parametrize("fault", [LOSE, DROP], ids=["applied, then lost", "never applied"])


class Till:
    """An app with one job that counts its effects and ends as it is told."""

    def __init__(self, world: World) -> None:
        """Put a faulty client under the claims table."""
        self.world = world
        self.effects: list[str] = []
        self.end: Callable[[], object] = lambda: "done"
        self.client = faulty_dynamodb(world.runtime)

        @job("pay", max_attempts=2, max_duration=20)
        def pay(payload: dict[str, Any], ctx: Context) -> object:
            self.effects.append(ctx.key)
            return self.end()

        self.app: App = world.app(pay)

    def deliver(self) -> bool:
        """Deliver the message once; return whether it was kept."""
        answer = self.app.consumer(event_of(self.world.message("pay")), FakeLambdaContext())
        return kept(answer) != []

    def fails(self, error: Exception) -> None:
        """Let the job raise that."""

        def end() -> object:
            raise error

        self.end = end

    def leave_failed(self) -> None:
        """Let a first attempt fail, and its back-off pass."""
        self.fails(Retry(1))
        assert self.deliver()
        self.world.clock.advance(2)
        self.effects.clear()
        self.client.calls.clear()
        self.end = lambda: "done"

    def leave_stale(self) -> None:
        """Let a first attempt die with its claim, and its lease pass."""
        self.client.drop("complete", times=ATTEMPTS)
        assert self.deliver()
        self.world.clock.advance(72)
        self.effects.clear()
        self.client.calls.clear()
        self.world.events.clear()


@pytest.fixture
def till(world: World) -> Till:
    """The app."""
    return Till(world)


@unheard
def test_a_claim_whose_response_is_lost_is_ours(till: Till, fault: Any) -> None:
    """G11: the claim is sent again, recognised as ours or made now; the job runs once and completes."""
    fault(till.client, "claim")

    assert not till.deliver()
    assert till.effects == ["k-1"]
    assert till.client.names() == ["claim", "claim", "complete"]
    record = stored(till.world)
    assert (record.status, record.attempts, record.version) == (Status.COMPLETED, 1, 2)


@unheard
def test_a_take_over_of_a_failed_job_whose_response_is_lost_is_ours(till: Till, fault: Any) -> None:
    """G11: the take-over is recognised: it costs one attempt, and the job runs once."""
    till.leave_failed()
    fault(till.client, "take_over")

    assert not till.deliver()
    assert till.effects == ["k-1"]
    assert till.client.names() == ["claim", "take_over", "take_over", "complete"]
    record = stored(till.world)
    assert (record.status, record.attempts, record.version) == (Status.COMPLETED, 2, 4)


@unheard
def test_a_take_over_of_a_stale_job_whose_response_is_lost_is_ours(till: Till, fault: Any) -> None:
    """G11: the same for a claim that went stale."""
    till.leave_stale()
    fault(till.client, "take_over")

    assert not till.deliver()
    assert till.effects == ["k-1"]
    record = stored(till.world)
    assert (record.status, record.attempts, record.version) == (Status.COMPLETED, 2, 3)
    assert "job.taken_over" in till.world.names()


@unheard
def test_a_completion_whose_response_is_lost_is_ours(till: Till, fault: Any) -> None:
    """G11: the completion is recognised; the message is acknowledged and the duplicate replayed."""
    fault(till.client, "complete")

    assert not till.deliver()
    assert not till.deliver()
    assert till.effects == ["k-1"]
    assert "claim.lost" not in till.world.names()
    record = stored(till.world)
    assert (record.status, record.result, record.version) == (Status.COMPLETED, '"done"', 2)


@unheard
def test_a_release_whose_response_is_lost_is_ours(till: Till, fault: Any) -> None:
    """G11: the release is recognised: one attempt is counted, and the back-off is the one that was written."""
    fault(till.client, "release")
    till.fails(Retry(30))

    assert till.deliver()
    record = stored(till.world)
    assert (record.status, record.attempts, record.version) == (Status.FAILED, 1, 2)
    assert "job.released" in till.world.names()
    assert "claim.lost" not in till.world.names()


@unheard
def test_a_rejection_whose_response_is_lost_is_ours(till: Till, fault: Any) -> None:
    """G11: the rejection is recognised; the message is copied to the dead-letter queue once."""
    fault(till.client, "reject")
    till.fails(Reject("no"))

    assert not till.deliver()
    assert (stored(till.world).status, stored(till.world).version) == (Status.REJECTED, 2)
    assert [letter["note"]["version"] for letter in till.world.dead_letters()] == [2]


@unheard
def test_a_rejection_by_a_taker_whose_response_is_lost_is_ours(world: World, fault: Any) -> None:
    """G11: a taker that finds no attempt left writes its own token and recognises its own rejection."""
    first, second = Worker.of(world), Worker.of(world)
    first.take(max_attempts=1)
    world.clock.advance(60)
    fault(second.client, "reject")

    answer = second.ask(max_attempts=1)

    assert isinstance(answer, Ended)
    assert not answer.before
    assert (answer.record, answer.record.version) == (stored(world), 2)
    assert second.client.names() == ["claim", "reject", "reject"]


@unheard
def test_a_hold_whose_response_is_lost_is_ours(world: World, fault: Any) -> None:
    """G9, G11: the hold of an at-most-once job is recognised, and nobody starts it."""
    first, second = Worker.of(world), Worker.of(world)
    first.take(semantics=Semantics.AT_MOST_ONCE)
    world.clock.advance(60)
    fault(second.client, "hold")

    answer = second.ask(semantics=Semantics.AT_MOST_ONCE)

    assert isinstance(answer, Ended)
    assert not answer.before
    assert answer.record == stored(world)
    assert (answer.record.status, answer.record.expires_at, answer.record.version) == (Status.UNCERTAIN, None, 2)


@unheard
def test_a_renewal_whose_response_is_lost_is_ours(world: World, fault: Any) -> None:
    """G11: the renewal is recognised, and the next write follows it."""
    worker = Worker.of(world)
    claim = worker.take()
    fault(worker.client, "renew")

    claim.renew(world.clock.now_ms() + 99_000)

    assert claim.record == stored(world)
    claim.complete(world.clock.now_ms(), "1")
    assert (stored(world).status, stored(world).version) == (Status.COMPLETED, 3)


def test_every_response_of_a_run_may_be_lost_at_once(till: Till) -> None:
    """G11: claim and completion both unheard, four times each: still one run, recorded once."""
    till.client.lose_response("claim", times=ATTEMPTS - 1)
    till.client.lose_response("complete", times=ATTEMPTS - 1)

    assert not till.deliver()
    assert till.effects == ["k-1"]
    assert stored(till.world).version == 2


def test_a_claim_that_is_never_answered_runs_nothing_and_keeps_the_message(till: Till) -> None:
    """Section 6: if a claim cannot be made, the effect is not run and the message is kept; no record is left."""
    till.client.drop("claim", times=ATTEMPTS)

    assert till.deliver()
    assert till.effects == []
    assert till.world.record("pay", "k-1") is None
    assert till.world.names() == ["message.faulted", "batch.answered"]
    assert not till.deliver()
    assert till.effects == ["k-1"]


def test_a_claim_that_landed_without_any_answer_runs_nothing_until_its_lease_has_passed(till: Till) -> None:
    """G1, G4: the claim may be there; nobody runs the job on a guess, and the next delivery after the lease does."""
    till.client.lose_response("claim", times=ATTEMPTS)

    assert till.deliver()
    assert till.effects == []
    assert till.deliver()
    assert till.effects == []
    assert "job.deferred" in till.world.names()
    till.world.clock.advance(72)
    assert not till.deliver()
    assert till.effects == ["k-1"]
    assert stored(till.world).attempts == 2


def test_a_take_over_that_is_never_answered_runs_nothing(till: Till) -> None:
    """The same for a take-over: the message is kept, the failed record stands, and the next delivery runs the job."""
    till.leave_failed()
    before = stored(till.world)
    till.client.drop("take_over", times=ATTEMPTS)

    assert till.deliver()
    assert (till.effects, stored(till.world)) == ([], before)
    assert not till.deliver()
    assert till.effects == ["k-1"]


def test_a_completion_that_cannot_be_recorded_is_reported_and_the_claim_left_leased(till: Till) -> None:
    """Section 6: "effect done, not recorded": the message is kept, others wait for the lease, then one takes over."""
    till.client.drop("complete", times=ATTEMPTS)

    assert till.deliver()
    record = stored(till.world)
    assert (record.status, record.version) == (Status.PROCESSING, 1)
    assert "effect.not_recorded" in till.world.names()
    assert "job.completed" not in till.world.names()
    assert till.deliver()
    assert till.effects == ["k-1"]
    till.world.clock.advance(72)
    assert not till.deliver()
    # G12: the effect was done and not recorded, so it is attempted again, with the same downstream key.
    assert till.effects == ["k-1", "k-1"]
    assert (stored(till.world).status, stored(till.world).attempts) == (Status.COMPLETED, 2)


def test_a_completion_that_landed_without_any_answer_is_found_by_the_next_delivery(till: Till) -> None:
    """G3: the writer does not know, so the message is kept; the next delivery replays at once, without the lease."""
    till.client.lose_response("complete", times=ATTEMPTS)

    assert till.deliver()
    assert "effect.not_recorded" in till.world.names()
    assert not till.deliver()
    assert till.effects == ["k-1"]
    assert "job.replayed" in till.world.names()


@pytest.mark.parametrize("name", ["release", "reject"])
def test_an_end_that_cannot_be_recorded_keeps_the_message_and_copies_nothing(till: Till, name: str) -> None:
    """G4: a fault of the store is a failed record, never a success: no copy says what the record does not."""
    till.client.drop(name, times=ATTEMPTS)
    till.fails(Retry(1) if name == "release" else Reject("no"))

    assert till.deliver()
    assert stored(till.world).status is Status.PROCESSING
    assert till.world.dead_letters() == []
    assert "message.faulted" in till.world.names()


def test_a_result_that_was_not_stored_survives_a_lost_response(till: Till) -> None:
    """G10, G11: the completion without its result is recognised like any other."""
    till.end = lambda: float("nan")
    till.client.lose_response("complete")

    assert not till.deliver()
    status = till.app.lookup("pay", "k-1")
    assert status is not None
    assert isinstance(status.result, ResultNotStored)
    assert till.effects == ["k-1"]


def test_a_renewal_that_is_never_answered_raises_and_the_claim_still_ends(world: World) -> None:
    """Rule 5: the renewal's outcome is unknown; the completion follows it, whether it landed or not."""
    for number, fault in enumerate((LOSE, DROP)):
        worker = Worker.of(world)
        claim: Claim = worker.take(f"k-{number}")
        fault(worker.client, "renew", times=ATTEMPTS)
        with pytest.raises(StoreUnavailable):
            claim.renew(world.clock.now_ms() + 99_000)

        completed = claim.complete(world.clock.now_ms(), "1")

        assert completed == stored(world, f"k-{number}")
        assert (completed.status, completed.result) == (Status.COMPLETED, "1")


@pytest.mark.parametrize(("fault", "version"), [(LOSE, 3), (DROP, 2)], ids=["applied, then lost", "never applied"])
def test_a_job_whose_renewal_was_never_answered_still_completes(world: World, fault: Any, version: int) -> None:
    """Rule 5, with the renewing thread: the job goes on, is completed with its result, and nobody runs it again."""
    runtime = Runtime(world.settings, clock=OneRenewalClock(world.clock), tokens=world.tokens)
    client = faulty_dynamodb(runtime)
    fault(client, "renew", times=ATTEMPTS)
    told = threading.Event()

    def hook(event: Event) -> None:
        world.events.append(event)
        if event.name == "lease.not_renewed":
            told.set()

    @job("pay")
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        assert told.wait(30)
        return "done"

    app = world.app(pay, runtime=runtime, hooks=[hook])

    assert kept(app.consumer(event_of(world.message("pay")), None)) == []
    assert kept(app.consumer(event_of(world.message("pay")), None)) == []
    record = stored(world)
    assert (record.status, record.result, record.version, record.attempts) == (
        Status.COMPLETED,
        '"done"',
        version,
        1,
    )
    assert world.names().count("job.started") == 1
    assert "claim.lost" not in world.names()
