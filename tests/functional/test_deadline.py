"""When a job is started, and how long its lease is."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.seams import OneRenewalClock, Seams
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, job
from onceq.clock import OpenDeadline
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from kit.seams import When
    from kit.world import World
    from onceq.job_type import JobType


def _act(runs: list[str], **options: Any) -> JobType[..., Any]:
    @job("act", **options)
    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.key)

    return act


@pytest.mark.parametrize(
    ("max_duration", "remaining_ms", "starts"),
    [
        (20, 21_000, True),  # the reserve is one second
        (20, 20_999, False),
        (20, 0, False),
        (20, -5, False),
        (0.5, 1_500, True),
        (0.5, 1_499, False),
        (None, 5_000, True),  # a job that declares nothing is started while five seconds remain
        (None, 4_999, False),
        (None, 0, False),
    ],
)
def test_a_job_is_not_started_when_less_than_it_needs_remains(
    world: World, max_duration: float | None, remaining_ms: int, *, starts: bool
) -> None:
    """A job starts only with max_duration and the reserve left; otherwise it is kept, visible at once, unclaimed."""
    context = FakeLambdaContext(21_000)
    runs: list[str] = []
    sqs = FakeSqs()
    hooks = [lambda event: setattr(context, "remaining_ms", remaining_ms) if event.name == "job.completed" else None]
    act = _act(runs, max_duration=max_duration)

    @job("first", max_duration=1)
    def first(payload: dict[str, Any]) -> None:
        """Take the time that is missing afterwards."""

    world.runtime._given = replace(world.settings, concurrency=1)
    app = world.app(first, act, runtime=SpiedRuntime(world.runtime, sqs), hooks=hooks)
    message = world.message("act")

    answer = kept(app.consumer(event_of(world.message("first", key="f"), message), context))

    assert (runs, answer) == ((["k-1"], []) if starts else ([], [message["messageId"]]))
    assert (world.record("act", "k-1") is not None) == starts
    # With less than half a second left not even the visibility is changed: the answer comes first.
    asked = not starts and remaining_ms >= 500
    assert sqs.visibility() == ({message["receiptHandle"]: 0} if asked else {})


def test_on_lambda_the_lease_is_the_time_left_and_a_margin(world: World) -> None:
    """G1: a claim cannot go stale while its process may live, and is stale soon after."""
    seen: list[int] = []

    @job("act", max_duration=20)
    def act(payload: dict[str, Any], ctx: Context) -> None:
        record = world.record("act", ctx.key)
        assert record is not None
        assert record.lease_expires_at is not None
        seen.append(record.lease_expires_at - world.clock.now_ms())

    assert kept(world.app(act).consumer(event_of(world.message("act")), FakeLambdaContext(42_000))) == []
    assert seen == [43_000]


class _NoTime:
    """A context of some other runtime."""

    aws_request_id = "request-1"
    get_remaining_time_in_millis = None


@pytest.mark.parametrize("context", [None, _NoTime(), object(), {}], ids=["none", "no time", "object", "dict"])
@pytest.mark.parametrize(("max_duration", "lease"), [(20, 20_000), (None, 30_000)])
def test_without_a_deadline_the_lease_is_short_and_renewed(
    world: World, context: object, max_duration: float | None, lease: int
) -> None:
    """Outside Lambda the lease is max_duration or 30 s, and is renewed while the job runs."""
    renewed = threading.Event()
    leases: list[int] = []

    def lease_now(ctx: Context) -> int:
        record = world.record("act", ctx.key)
        assert record is not None
        assert record.lease_expires_at is not None
        return record.lease_expires_at - world.clock.now_ms()

    @job("act", max_duration=max_duration)
    def act(payload: dict[str, Any], ctx: Context) -> None:
        assert renewed.wait(20)
        leases.append(lease_now(ctx))

    def watch(method: str, when: When) -> None:
        if method == "renew" and when == "before":
            record = world.record("act", "k-1")
            assert record is not None
            assert record.lease_expires_at is not None
            leases.append(record.lease_expires_at - world.clock.now_ms())
            world.clock.advance(5)
        if method == "renew" and when == "after":
            renewed.set()

    # The renewal's time was read before the clock moved on by five seconds.
    runtime = Seams(watch=watch).process(world.runtime, clock=OneRenewalClock(world.clock))

    assert kept(world.app(act, runtime=runtime).consumer(event_of(world.message("act")), context)) == []
    assert leases == [lease, lease - 5_000]
    record = world.record("act", "k-1")
    assert record is not None
    assert (record.status, record.version) == ("completed", 3)


def test_a_lease_is_renewed_three_times_within_its_length(world: World) -> None:
    """A renewal that fails is followed by another before the lease ends."""
    waits: list[float] = []

    class Clock(OneRenewalClock):
        def wait(self, event: threading.Event, seconds: float) -> bool:
            waits.append(seconds)
            started.set()
            return event.wait(20)

    started = threading.Event()

    @job("act", max_duration=30)
    def act(payload: dict[str, Any]) -> None:
        assert started.wait(20)

    runtime = Runtime(world.settings, clock=Clock(world.clock), tokens=world.tokens)

    assert kept(world.app(act, runtime=runtime).consumer(event_of(world.message("act")))) == []
    assert waits == [10.0]


def test_a_job_that_was_taken_over_while_it_ran_completes_nothing(world: World) -> None:
    """G2: a zombie's completion changes nothing; its message is acknowledged only because the taker completed it."""
    runs: list[str] = []

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> str:
        runs.append(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            world.clock.advance(3_600)
            assert kept(app.consumer(event_of(world.message("act")), FakeLambdaContext())) == []
        return f"of attempt {ctx.attempt}"

    app = world.app(act)

    assert kept(app.consumer(event_of(world.message("act")), FakeLambdaContext())) == []
    assert runs == ["attempt 1", "attempt 2"]
    status = app.lookup(act, "k-1")
    assert status is not None
    assert (status.result, status.attempts) == ("of attempt 2", 2)
    assert "claim.lost" in world.names()


def test_a_job_that_was_taken_over_and_not_completed_keeps_its_message(world: World) -> None:
    """G2, G4: the zombie's message stays, as the taker's attempt failed."""

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        if ctx.attempt == 1:
            world.clock.advance(3_600)
            app.consumer(event_of(world.message("act")), FakeLambdaContext())
            return
        raise ConnectionError

    app = world.app(act)
    message = world.message("act")

    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    record = world.record("act", "k-1")
    assert record is not None
    assert (record.status, record.attempts) == ("failed", 2)


def test_time_that_runs_short_after_the_claim_gives_the_job_back_uncounted(world: World) -> None:
    """A job whose time ran short while it was claimed is released as never started: no attempt is used."""
    runs: list[str] = []
    sqs = FakeSqs()
    context = FakeLambdaContext(30_000)

    def watch(method: str, when: When) -> None:
        if (method, when) == ("claim", "after"):
            context.remaining_ms = 3_000

    slow = Seams(watch=watch)
    spied = SpiedRuntime(world.runtime, sqs)
    process = slow.process(spied)
    act = _act(runs, max_duration=20, max_attempts=1)
    message = world.message("act")

    assert kept(world.app(act, runtime=process).consumer(event_of(message), context)) == [message["messageId"]]
    record = world.record(act, "k-1")
    assert record is not None
    assert (runs, record.status, record.attempts, record.not_before) == ([], "failed", 0, world.clock.now_ms())
    assert sqs.visibility() == {message["receiptHandle"]: 0}

    assert kept(world.app(act).consumer(event_of(message), FakeLambdaContext())) == []
    assert runs == ["k-1"]


def test_a_runner_that_is_stopping_starts_nothing(world: World) -> None:
    """SIGTERM's side of the executor: what is not started yet goes back to the queue at once, what runs may finish."""
    runs: list[str] = []
    stopping = threading.Event()
    sqs = FakeSqs()

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.key)
        stopping.set()

    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))
    batch = [world.message("act", key=key, queue="Ordered.fifo", group="g") for key in ("one", "two")]

    answer = kept(app.consumer(event_of(*batch), OpenDeadline(stopping.is_set)))

    assert (runs, answer) == (["one"], [batch[1]["messageId"]])
    assert sqs.visibility() == {batch[1]["receiptHandle"]: 0}
    assert world.record("act", "two") is None
    reasons = [event.fields().get("reason") for event in world.events if event.name == "job.not_started"]
    assert reasons[0] == "the runner is stopping"


def test_a_job_that_overruns_is_reported_and_completed(world: World) -> None:
    """A sync job cannot be cancelled: its lease still covers it, and ``job.overran`` says what to raise."""

    @job("act", max_duration=20)
    def act(payload: dict[str, Any]) -> None:
        world.clock.advance(25)

    assert kept(world.app(act).consumer(event_of(world.message("act")), FakeLambdaContext())) == []
    overran = [event.fields() for event in world.events if event.name == "job.overran"]
    assert [(event["seconds"], event["max_duration"]) for event in overran] == [(25.0, 20)]
