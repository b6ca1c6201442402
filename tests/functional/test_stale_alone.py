"""A job whose claimant died runs alone, after the others: it may be what killed the process."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.seams import Seams, SimulatedCrash
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, job

if TYPE_CHECKING:
    from kit.world import World

# A lease of 60 s and its margin, and the clock skew.
STALE_SECONDS = 72


@pytest.mark.parametrize("concurrency", [1, 10])
def test_a_job_that_kills_its_process_ends_rejected_by_itself_and_its_neighbours_complete(
    world: World, concurrency: int
) -> None:
    """G5: batched each time with three good ones, the killer runs alone after them, and is rejected in the end."""
    good: list[str] = []
    starts: list[int] = []
    process = Seams().process(world.runtime)

    @job("act", max_attempts=3)
    def act(payload: dict[str, Any], ctx: Context) -> None:
        if ctx.key != "killer":
            good.append(ctx.key)
            return
        starts.append(ctx.attempt)
        process.kill()

    settings = replace(world.settings, concurrency=concurrency)
    killer = world.message("act", key="killer")
    deliveries = 0
    while True:
        deliveries += 1
        batch = [killer, *[world.message("act", key=f"good-{deliveries}-{number}") for number in range(3)]]
        process = Seams().process(world.runtime, settings)
        try:
            answer = world.app(act, runtime=process).consumer(event_of(*batch), FakeLambdaContext())
        except SimulatedCrash:
            # The first time it is new, runs beside the others and may take them along; from then on it is alone.
            if deliveries > 1:
                assert sum(key.startswith(f"good-{deliveries}") for key in good) == 3
                for number in range(3):
                    record = world.record("act", f"good-{deliveries}-{number}")
                    assert record is not None
                    assert record.status == "completed"
            world.clock.advance(STALE_SECONDS)
            continue
        assert kept(answer) == []
        break

    assert (starts, deliveries) == ([1, 2, 3], 4)
    record = world.record("act", "killer")
    assert record is not None
    assert (record.status, record.attempts) == ("rejected", 3)
    assert record.error == "attempts used up: the last attempt never ended"
    (copy,) = world.dead_letters()
    assert copy["note"]["reason"] == "rejected"
    assert sum(key.startswith("good-4") for key in good) == 3


def _leave_stale(world: World, *keys: str, attempts: int = 1) -> None:
    for _ in range(attempts):
        for key in keys:
            process = Seams().process(world.runtime)

            @job("act", max_attempts=9)
            def dying(payload: dict[str, Any]) -> None:
                process.kill()  # noqa: B023 - called within the round

            with pytest.raises(SimulatedCrash):
                world.app(dying, runtime=process).consumer(event_of(world.message("act", key=key)), FakeLambdaContext())
        world.clock.advance(STALE_SECONDS)


def test_stale_jobs_run_one_at_a_time_after_all_others_the_fewest_attempts_first(world: World) -> None:
    """G5: of several that died together the innocent ones get away before the one that died most often runs."""
    _leave_stale(world, "often", attempts=2)
    _leave_stale(world, "once-a", "once-b")
    order: list[str] = []
    lock = threading.Lock()
    running = 0

    @job("act", max_attempts=9)
    def act(payload: dict[str, Any], ctx: Context) -> None:
        nonlocal running
        with lock:
            running += 1
            order.append(ctx.key)
            if ctx.attempt > 1:
                assert running == 1, "a stale job does not run alone"
        with lock:
            running -= 1

    batch = [world.message("act", key=key) for key in ("often", "new-1", "once-b", "new-2", "once-a", "new-3")]

    answer = world.app(act).consumer(event_of(*batch), FakeLambdaContext())

    assert kept(answer) == []
    assert set(order[:3]) == {"new-1", "new-2", "new-3"}
    assert order[3:] == ["once-b", "once-a", "often"]
    taken = [event.fields()["previous_status"] for event in world.events if event.name == "job.taken_over"]
    # Two of them come from the deaths that left it so.
    assert taken.count("processing") == 4


def test_a_stale_job_halts_its_lane_and_the_lane_goes_on_behind_it(world: World) -> None:
    """The order of a group holds: what stands behind a stale job waits for it, and runs after it in the same batch."""
    world.runtime._given = replace(world.settings, concurrency=1)
    _leave_stale(world, "stale")
    order: list[str] = []

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        order.append(ctx.key)

    batch = [
        world.message("act", key=key, queue="Ordered.fifo", group=group)
        for key, group in (("a1", "a"), ("stale", "a"), ("a3", "a"), ("b1", "b"))
    ]

    assert kept(world.app(act).consumer(event_of(*batch), FakeLambdaContext())) == []
    assert order == ["a1", "b1", "stale", "a3"]


def test_a_lane_behind_a_stale_job_that_fails_is_not_started(world: World) -> None:
    """A taken-over head that fails stops its lane as any other."""
    _leave_stale(world, "stale")
    sqs = FakeSqs()

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        raise ConnectionError

    batch = [world.message("act", key=key, queue="Ordered.fifo", group="a") for key in ("stale", "a2")]
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))

    assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == [record["messageId"] for record in batch]
    assert world.record("act", "a2") is None
    assert sqs.visibility()[batch[1]["receiptHandle"]] == 0


@pytest.mark.parametrize(("seconds", "stale"), [(0, False), (61, False), (71 - 0.001, False), (71, True)])
def test_a_claim_goes_stale_after_its_lease_and_the_clock_skew(world: World, seconds: float, *, stale: bool) -> None:
    """G1: until lease and skew have passed everybody else is told when to come back."""
    process = Seams().process(world.runtime)

    @job("act")
    def dying(payload: dict[str, Any]) -> None:
        process.kill()

    with pytest.raises(SimulatedCrash):
        world.app(dying, runtime=process).consumer(event_of(world.message("act")), FakeLambdaContext(60_000))
    world.clock.advance(seconds)
    runs: list[int] = []
    sqs = FakeSqs()

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.attempt)

    message = world.message("act")
    answer = world.app(act, runtime=SpiedRuntime(world.runtime, sqs)).consumer(event_of(message), FakeLambdaContext())

    assert runs == ([2] if stale else [])
    assert kept(answer) == ([] if stale else [message["messageId"]])
    if not stale:
        # The rest of 71 s, a second of jitter, rounded up.
        assert sqs.visibility() == {message["receiptHandle"]: {0: 72, 61: 11}.get(int(seconds), 2)}


def test_time_that_runs_short_before_the_stale_ones_leaves_them_untouched(world: World) -> None:
    """A stale job whose turn comes too late is not started: kept, visible within a minute, no attempt used."""
    world.runtime._given = replace(world.settings, concurrency=1)
    _leave_stale(world, "stale")
    context = FakeLambdaContext(60_000)
    sqs = FakeSqs()
    runs: list[str] = []

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.key)
        context.remaining_ms = 2_000

    batch = [world.message("act", key="stale"), world.message("act", key="slow")]

    answer = world.app(act, runtime=SpiedRuntime(world.runtime, sqs)).consumer(event_of(*batch), context)

    assert (kept(answer), runs) == ([batch[0]["messageId"]], ["slow"])
    assert 0 < sqs.visibility()[batch[0]["receiptHandle"]] <= 61
    record = world.record("act", "stale")
    assert record is not None
    assert (record.status, record.attempts) == ("processing", 1)
