"""A stale job that found no time left behind its neighbours comes back apart from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.seams import Seams, SimulatedCrash
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, JobType
from onceq.consumer import APART_SECONDS

if TYPE_CHECKING:
    from kit.world import World
    from onceq import App

STALE_SECONDS = 72
JITTER_SECONDS = 1


def _leave_stale(world: World, *keys: str) -> None:
    for key in keys:
        process = Seams().process(world.runtime)

        def dying(payload: dict[str, Any]) -> None:
            process.kill()  # noqa: B023 - called within the round

        with pytest.raises(SimulatedCrash):
            world.app(JobType(dying, "act"), runtime=process).consumer(
                event_of(world.message("act", key=key)), FakeLambdaContext()
            )
    world.clock.advance(STALE_SECONDS)
    world.events.clear()


def _short_of_time(world: World, sqs: FakeSqs, context: FakeLambdaContext, runs: list[str]) -> App:
    """Return an application whose first job leaves no time, one job at a time."""

    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.key)
        context.remaining_ms = 2_000

    runtime = SpiedRuntime(world.runtime, sqs)
    runtime._given = replace(world.settings, concurrency=1)
    return world.app(JobType(act, "act"), runtime=runtime)


def test_a_stale_job_without_time_comes_back_apart_from_its_neighbours(world: World) -> None:
    """G5: it is hidden for up to a minute, so that it meets an invocation without the same neighbours before it."""
    _leave_stale(world, "stale")
    runs: list[str] = []
    sqs, context = FakeSqs(), FakeLambdaContext(60_000)
    app = _short_of_time(world, sqs, context, runs)
    batch = [world.message("act", key=key) for key in ("stale", "slow", "late")]

    answer = kept(app.consumer(event_of(*batch), context))

    assert (answer, runs) == ([batch[0]["messageId"], batch[2]["messageId"]], ["slow"])
    # The counting tokens draw the upper limit, of the jitter too.
    assert sqs.visibility() == {
        batch[0]["receiptHandle"]: APART_SECONDS + JITTER_SECONDS,
        batch[2]["receiptHandle"]: 0,
    }
    record = world.record("act", "stale")
    assert record is not None
    assert (record.status, record.attempts, record.version) == ("processing", 1, 1)


def test_what_stands_behind_it_in_its_group_is_visible_at_once(world: World) -> None:
    """Only the stale head waits apart: SQS itself holds its group back until then."""
    _leave_stale(world, "stale")
    runs: list[str] = []
    sqs, context = FakeSqs(), FakeLambdaContext(60_000)
    app = _short_of_time(world, sqs, context, runs)
    batch = [
        world.message("act", key=key, queue="Ordered.fifo", group=group)
        for key, group in (("stale", "a"), ("behind", "a"), ("slow", "b"))
    ]

    answer = kept(app.consumer(event_of(*batch), context))

    assert (answer, runs) == ([record["messageId"] for record in batch[:2]], ["slow"])
    assert sqs.visibility() == {
        batch[0]["receiptHandle"]: APART_SECONDS + JITTER_SECONDS,
        batch[1]["receiptHandle"]: 0,
    }


def test_it_is_taken_over_when_it_comes_back_alone(world: World) -> None:
    """G6: with the time of an invocation of its own it runs, as the second attempt."""
    _leave_stale(world, "stale")
    runs: list[str] = []
    context = FakeLambdaContext(60_000)
    app = _short_of_time(world, FakeSqs(), context, runs)
    stale = world.message("act", key="stale")
    app.consumer(event_of(stale, world.message("act", key="slow")), context)
    world.clock.advance(APART_SECONDS + JITTER_SECONDS)

    assert kept(app.consumer(event_of(stale), FakeLambdaContext(60_000))) == []
    assert runs == ["slow", "stale"]
    record = world.record("act", "stale")
    assert record is not None
    assert (record.status, record.attempts) == ("completed", 2)
