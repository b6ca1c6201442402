"""Two workers whose clocks are five minutes apart: every promise but the one that rests on the clock skew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import stored
from kit.clock import FakeLambdaContext
from kit.seams import Seams, SimulatedCrash
from kit.skew import Watch, process_with, runtime_with
from kit.two import Two
from kit.world import event_of, kept
from onceq import Context, Semantics, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq import App

FIVE_MINUTES = 300.0
LEASE = 61.0


def test_five_minutes_ahead_a_living_job_is_taken_over_and_its_zombie_changes_nothing(world: World) -> None:
    """G2, G3: all but G1: the zombie's completion is refused, its message acknowledged since the taker completed."""
    two = Two(world, (0, FIVE_MINUTES))
    two.meet_after(1)

    two.deliver()

    assert (two.starts, two.answers, two.kept) == (["first", "second"], [False], False)
    assert stored(world).result == '"second"'
    assert two.seams.completed["pay#k-1"] == 0
    assert "claim.lost" in world.names()
    assert len(two.keys) == 1, "the provider is given one key by both"


def test_five_minutes_ahead_a_taker_that_dies_loses_no_message(world: World) -> None:
    """G4: the zombie's message is kept, since nobody completed the job, and the next delivery runs it."""
    two = Two(world, (0, FIVE_MINUTES))
    taker = process_with(world, two.watches[1], Seams())

    @job("pay", max_duration=20)
    def dying(payload: dict[str, Any]) -> None:
        two.starts.append("dying")
        taker.kill()

    def take() -> None:
        with pytest.raises(SimulatedCrash):
            world.app(dying, runtime=taker).consumer(event_of(world.message("pay")), FakeLambdaContext())

    two.during = take

    two.deliver()

    assert (two.starts, two.kept) == (["first", "dying"], True)
    assert stored(world).status == "processing", "an uncompleted job is replayed to nobody"
    two.finish()
    assert two.starts == ["first", "dying", "second"]
    assert stored(world).result == '"second"'


@pytest.mark.parametrize("off", [-FIVE_MINUTES, FIVE_MINUTES])
def test_five_minutes_apart_a_failed_job_waits_no_longer_than_that(world: World, off: float) -> None:
    """G4: a back-off that another clock wrote is waited for by one's own: five minutes more at most, or not at all."""
    two = Two(world, (0, off))

    def fail() -> None:
        raise ConnectionError

    two.during = fail
    two.deliver()
    assert two.kept
    failed = stored(world)
    backoff = (failed.not_before or 0) - world.clock.now_ms()

    two.deliver_to_second()

    assert two.starts == (["first", "second"] if off > 0 else ["first"])
    assert all(0 <= seconds <= backoff / 1000 + FIVE_MINUTES + 2 for seconds in two.sqs.visibility().values())
    two.finish()
    assert two.starts == ["first", "second"]
    assert stored(world).fencing_token > failed.fencing_token


@pytest.mark.parametrize("off", [-FIVE_MINUTES, FIVE_MINUTES])
@pytest.mark.parametrize("later", [0, 27 * 86_400])
def test_five_minutes_apart_a_completed_job_is_replayed(world: World, off: float, later: float) -> None:
    """G3: as long as a message can come back, with its redrive, the record is not expired by any of these clocks."""
    two = Two(world, (0, off))
    two.deliver()
    world.clock.advance(later)

    two.finish()

    assert (two.starts, two.answers) == (["first"], [False])


@pytest.mark.parametrize("off", [-FIVE_MINUTES, FIVE_MINUTES])
def test_five_minutes_apart_what_starts_at_most_once_is_started_once(world: World, off: float) -> None:
    """G9: a clock that is ahead takes a living job for a dead one, and then a person decides; it never starts again."""
    two = Two(world, (0, off), semantics=Semantics.AT_MOST_ONCE)
    two.meet_after(1)

    two.deliver()
    two.finish()

    assert two.starts == ["first"]
    assert stored(world).status == ("uncertain" if off > 0 else "completed")


def test_five_minutes_apart_a_living_step_is_held_and_not_started_again(world: World) -> None:
    """G9: the same for an at-most-once step of a job that may otherwise run again."""
    ahead = Watch(world.clock, FIVE_MINUTES)
    calls: list[str] = []

    def app_of(watch: Watch, during: Callable[[], object]) -> App:
        def call() -> None:
            calls.append("call")
            during()

        @job("pay", max_duration=20)
        def pay(payload: dict[str, Any], ctx: Context) -> None:
            ctx.step("call", call, semantics=Semantics.AT_MOST_ONCE)

        return world.app(pay, runtime=runtime_with(world, watch))

    second = app_of(ahead, lambda: None)
    answers: list[list[str]] = []

    def overtake() -> None:
        world.clock.advance(1)
        answers.append(kept(second.consumer(event_of(world.message("pay")), FakeLambdaContext())))

    first = app_of(Watch(world.clock), overtake)
    message = world.message("pay")
    answer = kept(first.consumer(event_of(message), FakeLambdaContext()))

    assert calls == ["call"]
    assert answers == [[]], "held: copied to the dead-letter queue with the reason"
    assert answer == [message["messageId"]], "the zombie's message is kept, and ends as the record says"
    assert stored(world).status == "uncertain"


@pytest.mark.parametrize("off", [-FIVE_MINUTES, FIVE_MINUTES])
def test_the_sweep_of_a_clock_five_minutes_apart_loses_nothing(world: World, off: float) -> None:
    """G2, G4: it marks a living claim as stale, or a dead one late; the zombie is refused, its message runs again."""
    two = Two(world, (0, 0))
    sweeper = world.app(two.job_type("sweeper"), runtime=runtime_with(world, Watch(world.clock, off)))
    two.during = lambda: sweeper.recovery({}, FakeLambdaContext())

    two.deliver()

    assert two.kept == (off > 0)
    assert stored(world).status == ("failed" if off > 0 else "completed")
    world.clock.advance(LEASE)
    two.finish()
    assert two.starts == (["first", "second"] if off > 0 else ["first"])
    assert stored(world).status == "completed"
    assert len(two.keys) == 1
