"""A job that needs more time than the function ever has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, JobType

if TYPE_CHECKING:
    from kit.world import World


def _into(runs: list[Any], name: str = "act", **options: Any) -> JobType[..., Any]:
    def act(payload: Any) -> None:
        runs.append(payload)

    return JobType(act, name, **options)


@pytest.mark.parametrize(
    ("max_duration", "total_ms", "need"),
    [(20, 20_999, "21 s"), (0.5, 1_499, "1.5 s"), (None, 4_999, "5 s"), (20, 0, "21 s")],
)
def test_a_job_that_can_never_start_is_unserved(
    world: World, max_duration: float | None, total_ms: int, need: str
) -> None:
    """G4: it is kept unclaimed, with the queue's own visibility and not at once for ever, and the log says why."""
    runs: list[Any] = []
    sqs = FakeSqs()
    act = _into(runs, max_duration=max_duration)
    message = world.message("act")
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))

    answer = kept(app.consumer(event_of(message), FakeLambdaContext(total_ms)))

    assert (answer, runs, sqs.requests) == ([message["messageId"]], [], [])
    assert world.record(act, "k-1") is None
    (told,) = [event.fields() for event in world.events if event.name == "message.unserved"]
    assert told["message_id"] == message["messageId"]
    assert f"act needs {need} with the reserve" in told["reason"]
    assert f"had {total_ms / 1000:g} s at its start" in told["reason"]
    assert "job.not_started" not in world.names()


@pytest.mark.parametrize(("max_duration", "total_ms"), [(20, 21_000), (None, 5_000)])
def test_a_job_that_needs_all_the_time_there_is_starts(world: World, max_duration: float | None, total_ms: int) -> None:
    """What the function has at its start is enough when it is just what the job needs."""
    runs: list[Any] = []
    act = _into(runs, max_duration=max_duration)

    assert kept(world.app(act).consumer(event_of(world.message("act")), FakeLambdaContext(total_ms))) == []
    assert len(runs) == 1


def test_a_job_whose_time_ran_short_only_later_is_not_started(world: World) -> None:
    """A function that had enough time at its start gives the message back at once: the next invocation can run it."""
    context = FakeLambdaContext(30_000)
    sqs = FakeSqs()
    runs: list[str] = []

    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.key)
        context.remaining_ms = 20_000

    # One at a time, so that the first has used up the time when the second comes.
    runtime = SpiedRuntime(world.runtime, sqs)
    runtime._given = replace(world.settings, concurrency=1)
    app = world.app(JobType(act, "act", max_duration=20), runtime=runtime)
    batch = [world.message("act", key=key) for key in ("first", "second")]

    answer = kept(app.consumer(event_of(*batch), context))

    assert (answer, runs) == ([batch[1]["messageId"]], ["first"])
    assert sqs.visibility() == {batch[1]["receiptHandle"]: 0}
    assert "job.not_started" in world.names()
    assert "message.unserved" not in world.names()


def test_one_job_that_can_never_start_leaves_its_neighbours_alone(world: World) -> None:
    """G5: the short job of the same batch runs."""
    runs: list[Any] = []
    long, short = _into(runs, "long", max_duration=600), _into(runs, "short", max_duration=5)
    batch = [world.message("long", {"n": 1}, key="l"), world.message("short", {"n": 2}, key="s")]

    answer = kept(world.app(long, short).consumer(event_of(*batch), FakeLambdaContext(30_000)))

    assert (answer, runs) == ([batch[0]["messageId"]], [{"n": 2}])
