"""A wall clock that is stepped within a run, and the time left when a claim is made."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import stored
from kit.clock import FakeLambdaContext
from kit.seams import OneRenewalClock, Seams, SimulatedCrash
from kit.skew import Falling, WallContext, Watch, process_with, runtime_with
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, JobType, Reject, Retry, job
from onceq.clock import LambdaDeadline, OpenDeadline, ShorterDeadline
from onceq.outcome import LONGEST_VISIBILITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

# A correction by NTP, one past the clock skew, five minutes, an hour that a local time would lose, a day.
STEPS = [-86_400, -3_600, -300, -11, -0.5, 0.5, 11, 300, 3_600]
both_ways = pytest.mark.parametrize("seconds", STEPS)


class Stepped:
    """One worker whose clock a test steps; the body of its job is the test's.

    Attributes:
        tokens: The fencing token of every start, in order.
        visibility: Seconds that SQS was told for the last delivery, if any.
    """

    def __init__(self, world: World, **options: Any) -> None:
        """Start it with the right time."""
        self.world = world
        self.watch = Watch(world.clock)
        self.body: Callable[[Context], object] = lambda _: None
        self.tokens: list[int] = []
        self.context: object = None
        self.visibility: int | None = None
        self._options = {"max_duration": 20} | options

    def job_type(self) -> JobType[..., Any]:
        """Return its job type."""

        @job("pay", **self._options)
        def pay(payload: dict[str, Any], ctx: Context) -> object:
            self.tokens.append(ctx.fencing_token)
            return self.body(ctx)

        return pay

    def deliver(self) -> bool:
        """Deliver the message; return whether it was kept."""
        sqs = FakeSqs()
        runtime = SpiedRuntime(runtime_with(self.world, self.watch), sqs)
        message = self.world.message("pay", message_id="m-1")
        context = self.context or WallContext(self.world.clock, self.watch)
        answer = kept(self.world.app(self.job_type(), runtime=runtime).consumer(event_of(message), context))
        self.visibility = next(iter(sqs.visibility().values()), None)
        return answer != []


@both_ways
def test_a_step_between_claim_and_completion_changes_nothing(world: World, seconds: float) -> None:
    """G3: the completion follows the claim by version, not by time; a duplicate is replayed before and after."""
    stepped = Stepped(world)
    stepped.body = lambda _: stepped.watch.step(seconds)

    assert not stepped.deliver()
    record = stored(world)
    stepped.watch.step(-seconds)
    assert not stepped.deliver()

    assert (record.status, record.version, len(stepped.tokens)) == ("completed", 2, 1)
    assert (record.expires_at or 0) * 1000 > world.clock.now_ms() + 50 * 86_400_000
    assert "job.overran" not in world.names(), "how long a job took is not read from the wall clock"


@both_ways
def test_a_step_between_two_deliveries_raises_the_fencing_token_and_bounds_the_wait(
    world: World, seconds: float
) -> None:
    """The second attempt's token is higher whatever the clock says; its wait is the back-off and the step at most."""
    stepped = Stepped(world, max_attempts=9)
    stepped.context = FakeLambdaContext()

    def fail(_: Context) -> None:
        raise Retry(delay=10)

    stepped.body = fail
    assert stepped.deliver()
    assert stepped.visibility == 10
    world.clock.advance(10)
    stepped.watch.step(seconds)

    stepped.body = lambda _: None
    while stepped.deliver():
        # What it waits for is the moment that it wrote down, by its own clock; and never longer than SQS can hide it.
        assert stepped.visibility is not None
        assert 0 < stepped.visibility <= min(max(-seconds, 0) + 2, LONGEST_VISIBILITY)
        world.clock.advance(stepped.visibility)

    assert len(stepped.tokens) == 2
    assert stepped.tokens[0] < stepped.tokens[1]
    assert stored(world).status == "completed"


@both_ways
def test_a_step_between_claim_and_release_raises_the_next_fencing_token(world: World, seconds: float) -> None:
    """A step back inside of an attempt lets the next one start by an earlier clock, and still with a higher token."""
    stepped = Stepped(world, max_attempts=9)
    stepped.context = FakeLambdaContext()

    def fail(_: Context) -> None:
        stepped.watch.step(seconds)
        raise Retry(delay=0)

    stepped.body = fail
    assert stepped.deliver()
    assert stepped.visibility == 0
    stepped.body = lambda _: None
    assert not stepped.deliver()

    assert stepped.tokens[1] > stepped.tokens[0]


@pytest.mark.parametrize("ends", ["completed", "rejected"])
def test_a_fencing_token_rises_over_an_expiry_behind_a_step_back(world: World, ends: str) -> None:
    """Claimed by a clock that was ahead, ended by the right one, with a short retention: the next token is higher."""
    stepped = Stepped(world, retention=timedelta(seconds=5))
    stepped.context = FakeLambdaContext()
    stepped.watch.step(300)

    def end(_: Context) -> None:
        stepped.watch.step(-300)
        if ends == "rejected":
            raise Reject("no")

    stepped.body = end
    assert not stepped.deliver()
    assert stored(world).status == ends
    stepped.body = lambda _: None
    for _ in range(10):
        world.clock.advance(60)
        assert not stepped.deliver()

    assert len(stepped.tokens) > 1
    assert stepped.tokens == sorted(set(stepped.tokens))


@pytest.mark.parametrize("seconds", STEPS)
def test_a_step_between_claim_and_renewal_loses_no_completion(world: World, seconds: float) -> None:
    """The renewal writes a lease of one length by the stepped clock, the job completes, and nobody waits any longer."""
    watch, renewed = Watch(world.clock), threading.Event()
    leases: list[int] = []

    def watched(method: str, when: str) -> None:
        if method == "renew" and when == "before":
            watch.step(seconds)
        if method == "renew" and when == "after":
            leases.append((stored(world).lease_expires_at or 0) - world.clock.now_ms())
            renewed.set()

    @job("pay", max_duration=30)
    def pay(payload: dict[str, Any]) -> None:
        assert renewed.wait(20)

    process = Seams(watch=watched).process(world.runtime, clock=OneRenewalClock(watch))
    assert kept(world.app(pay, runtime=process).consumer(event_of(world.message("pay")), None)) == []

    # The renewal's time was read before the step.
    assert leases == [30_000]
    assert stored(world).status == "completed"


@both_ways
def test_a_step_does_not_move_the_deadline_of_a_part_of_the_time(world: World, seconds: float) -> None:
    """What bounds a wait by itself is read from the clock that never steps."""
    watch = Watch(world.clock)
    part = ShorterDeadline(OpenDeadline(), 5, watch)

    world.clock.advance(2)
    watch.step(seconds)

    assert part.remaining() == pytest.approx(3)
    world.clock.advance(3)
    assert part.remaining() == pytest.approx(0)


@both_ways
def test_a_step_before_the_claim_leaves_the_lease_where_lambda_kills(world: World, seconds: float) -> None:
    """G1: Lambda's time left is read from the wall clock too, so the lease is the service's deadline after any step."""
    stepped = Stepped(world)
    stepped.context = WallContext(world.clock, stepped.watch, seconds=60)
    deadline_ms = world.clock.now_ms() + 60_000
    leases: list[int | None] = []
    stepped.body = lambda _: leases.append(stored(world).lease_expires_at)
    stepped.watch.step(seconds)

    keeps = stepped.deliver()

    # A clock that is past the deadline believes that no time is left: nothing is claimed, and the message is kept.
    believes_enough = 60 - seconds >= 21
    assert keeps is not believes_enough
    assert leases == ([deadline_ms + 1_000] if believes_enough else [])
    assert (world.record("pay", "k-1") is None) is not believes_enough
    assert stepped.visibility is None, "kept, with the queue's own visibility timeout"


def test_a_process_that_a_clock_deceives_about_its_time_is_killed_and_taken_over(world: World) -> None:
    """G6: after a step back a job starts that cannot end in time; its lease is the true one, and no more."""
    stepped = Stepped(world)
    process = process_with(world, stepped.watch, Seams())
    context = WallContext(world.clock, stepped.watch, seconds=60)
    world.clock.advance(55)
    stepped.watch.step(-300)

    def killed(_: Context) -> None:
        world.clock.advance(5)
        process.kill()

    stepped.body = killed
    with pytest.raises(SimulatedCrash):
        world.app(stepped.job_type(), runtime=process).consumer(event_of(world.message("pay")), context)
    # NTP corrects the clock; the next invocation comes when the lease, its margin and the skew have passed.
    stepped.watch.step(300)
    stepped.body = lambda _: None
    world.clock.advance(10.999)
    assert stepped.deliver()
    world.clock.advance(0.001)
    assert not stepped.deliver()

    assert len(stepped.tokens) == 2
    assert stepped.tokens[1] > stepped.tokens[0]


def test_a_step_of_the_wall_clock_does_not_pass_over_a_jobs_limit(world: World) -> None:
    """What a job sees of its own time left is its max_duration by the clock that never steps, and Lambda's deadline."""
    stepped = Stepped(world)
    seen: list[float] = []

    def look(ctx: Context) -> None:
        world.clock.advance(5)
        stepped.watch.step(-300)
        seen.append(ctx.remaining())

    stepped.body = look
    assert not stepped.deliver()

    assert seen == [pytest.approx(15)]


def test_the_beginning_of_an_invocation_reads_the_time_left_four_times(world: World) -> None:
    """What `Falling` rests on: total, may it start, the lease, and after the claim whether it may still start."""
    reads: list[int] = []

    class Counted(FakeLambdaContext):
        def get_remaining_time_in_millis(self) -> float:
            reads.append(1)
            return 60_000

    def counted(payload: dict[str, Any]) -> int:
        return len(reads)

    world.app(JobType(counted, "pay", max_duration=20)).consumer(event_of(world.message("pay")), Counted())

    assert stored(world).result == "4"


@pytest.mark.parametrize("left", [0, -1, -5_000, 1, 20_999.9])
def test_time_that_is_over_when_the_claim_is_made_gives_the_job_back(world: World, left: float) -> None:
    """A claim with 0 ms left starts nothing: it is given back uncounted, its lease over a margin later at most."""
    starts: list[int] = []

    def act(payload: dict[str, Any], ctx: Context) -> None:
        starts.append(ctx.attempt)

    app = world.app(JobType(act, "pay", max_duration=20))
    message = world.message("pay")

    assert kept(app.consumer(event_of(message), Falling(60_000, 60_000, left))) == [message["messageId"]]

    record = stored(world)
    assert (starts, record.status, record.attempts, record.error) == ([], "failed", 0, None)
    assert (record.not_before or 0) <= world.clock.now_ms()
    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == []
    assert starts == [1]


@pytest.mark.parametrize("left", [0, -1])
def test_a_claim_with_no_time_left_that_nobody_gives_back_is_free_after_margin_and_skew(
    world: World, left: float
) -> None:
    """Killed right behind such a claim: its lease is the margin, so it goes stale as soon as any, and runs."""
    starts: list[int] = []

    def die(method: str, when: str) -> None:
        if method == "give_back":
            process.kill()

    process = Seams(watch=die).process(world.runtime)

    def act(payload: dict[str, Any], ctx: Context) -> None:
        starts.append(ctx.attempt)

    act_type = JobType(act, "pay", max_duration=20)
    with pytest.raises(SimulatedCrash):
        world.app(act_type, runtime=process).consumer(event_of(world.message("pay")), Falling(60_000, 60_000, left))
    app = world.app(act_type)
    world.clock.advance(10.990)
    assert kept(app.consumer(event_of(world.message("pay")), FakeLambdaContext())) != []
    world.clock.advance(0.010)
    assert kept(app.consumer(event_of(world.message("pay")), FakeLambdaContext())) == []

    assert starts == [2]


@pytest.mark.parametrize(("left", "starts"), [(21_000, [1]), (20_999, []), (0, [])])
def test_a_job_is_claimed_with_exactly_what_it_needs_and_not_with_less(
    world: World, left: float, starts: list[int]
) -> None:
    """At the boundary: its limit and the reserve are enough; a millisecond less leaves no record behind."""
    ran: list[int] = []

    def act(payload: dict[str, Any], ctx: Context) -> None:
        ran.append(ctx.attempt)

    app = world.app(JobType(act, "pay", max_duration=20))
    answer = kept(app.consumer(event_of(world.message("pay")), Falling(60_000, left)))

    assert (ran, answer == []) == (starts, starts != [])
    assert (world.record("pay", "k-1") is None) is (starts == [])


def test_zero_is_zero_and_not_unknown() -> None:
    """A context that tells 0 ms has a deadline that is over; one that tells nothing has none."""
    assert LambdaDeadline(lambda: 0).remaining() == 0
    assert LambdaDeadline(lambda: 0).kills
    assert LambdaDeadline(lambda: 0).total == 0
