"""Rules of a batch and of one attempt that only a mutant showed to be untested."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import Worker, pass_lease
from kit.clock import FakeLambdaContext, FrozenClock
from kit.seams import Seams, SimulatedCrash
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, Reject, job
from onceq import outcome as ends
from onceq.attempt import LONGEST_LIFE_SECONDS, renewing
from onceq.clock import OpenDeadline
from onceq.errors import StoreUnavailable
from onceq.job_type import JobType
from onceq.keys import join_key
from onceq.queue import Queue
from onceq.record import Semantics, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.seams import When
    from kit.world import World
    from onceq.claim import Claim


def test_an_at_most_once_job_whose_claimant_died_is_held(world: World) -> None:
    """G9: the effect may have happened, so the next delivery starts nothing and goes to a person."""
    runs: list[int] = []

    def run(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.attempt)
        raise SimulatedCrash

    app = world.app(JobType(run, "pay", semantics=Semantics.AT_MOST_ONCE))
    message = world.message("pay")
    with pytest.raises(SimulatedCrash):
        app.consumer(event_of(message), FakeLambdaContext())
    world.clock.advance(3_600)

    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == []

    record = world.record("pay", "k-1")
    assert record is not None
    assert (runs, record.status) == ([1], Status.UNCERTAIN)
    assert [copy["note"]["reason"] for copy in world.dead_letters()] == ["uncertain"]
    assert [name for name in world.names() if name in ("job.held", "job.rejected")] == ["job.held"]


@pytest.mark.parametrize("concurrency", [2, 3])
def test_more_jobs_than_threads_wait_for_a_thread(world: World, concurrency: int) -> None:
    """ONCEQ_CONCURRENCY bounds the jobs at once, also when many more are ready and each takes its time."""
    lock, crowd = threading.Lock(), threading.Event()
    running, most = 0, 0

    def run(payload: dict[str, Any]) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running > concurrency:
                crowd.set()
        # Time enough for one too many to come, if nothing keeps it out.
        crowd.wait(0.1)
        with lock:
            running -= 1

    world.runtime._given = replace(world.settings, concurrency=concurrency)
    batch = [world.message("act", key=str(number)) for number in range(concurrency * 3)]

    assert kept(world.app(JobType(run, "act")).consumer(event_of(*batch))) == []
    assert most == concurrency


def test_a_message_of_another_releases_queue_is_not_copied_anywhere(world: World) -> None:
    """G4: a queue that is not in the settings has no dead-letter queue here: the message is kept, and no copy tried."""
    message = world.message("act", queue="SomebodyElses")

    @job("act")
    def act(payload: dict[str, Any]) -> None: ...

    answer = world.app(act).consumer(event_of(message), FakeLambdaContext())

    assert kept(answer) == [message["messageId"]]
    assert [name for name in world.names() if name.startswith(("message.", "copy."))] == ["message.unserved"]


def test_a_claim_slower_than_its_lease_is_renewed_before_the_job_starts(world: World) -> None:
    """G1: outside Lambda a claim may take longer than its lease holds; nobody took it over, so it holds anew."""
    runs: list[str] = []

    @job("act", max_duration=20)
    def act(payload: dict[str, Any]) -> None:
        runs.append("run")

    def watch(method: str, when: When) -> None:
        if (method, when) == ("claim", "after"):
            world.clock.advance(20)

    app = world.app(act, runtime=Seams(watch=watch).process(world.runtime))
    message = world.message("act")

    assert kept(app.consumer(event_of(message))) == []
    record = world.record(act, "k-1")
    assert record is not None
    assert (runs, record.status, record.version) == (["run"], Status.COMPLETED, 3)


def test_a_signal_passes_the_job_and_its_end(world: World) -> None:
    """G2: what the framework, or a test of it, sends through a job is no end of the job: nothing is written."""

    def run(payload: dict[str, Any], ctx: Context) -> None:
        raise SimulatedCrash

    app = world.app(JobType(run, "pay"))

    with pytest.raises(SimulatedCrash):
        app.consumer(event_of(world.message("pay")), FakeLambdaContext())

    record = world.record("pay", "k-1")
    assert record is not None
    assert (record.status, record.version) == (Status.PROCESSING, 1)


def test_the_record_names_the_message_and_the_retention_of_the_job_type(world: World) -> None:
    """``@job(retention=)`` sets how long duplicates are recognised; the record says whose claim it was."""

    @job("pay", retention=timedelta(hours=7))
    def pay(payload: dict[str, Any]) -> None: ...

    message = world.message("pay")
    world.app(pay).consumer(event_of(message), FakeLambdaContext())

    record = world.record(pay, "k-1")
    assert record is not None
    assert record.message_id == message["messageId"]
    assert record.expires_at == world.clock.now_ms() // 1000 + 7 * 3_600


class _Waits:
    """A clock for `renewing`: each wait moves time on and does what the test says; then the block is over."""

    def __init__(self, world: World, step: float, acts: list[Callable[[], object]]) -> None:
        self._clock = world.clock
        self._step = step
        self._acts = acts
        self.waits = 0
        self.over = threading.Event()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if self.waits == len(self._acts):
            self.over.set()
            return event.wait(5)
        self._acts[self.waits]()
        self.waits += 1
        self._clock.advance(self._step)
        return False


def _claim(world: World) -> tuple[Worker, Claim]:
    worker = Worker.of(world)
    return worker, worker.take()


def test_a_renewal_that_is_not_answered_is_told_and_followed_by_another(world: World) -> None:
    """G1: the next renewal is tried all the same, and holds for a whole lease."""
    worker, claim = _claim(world)
    told: list[StoreUnavailable] = []
    clock = _Waits(world, 1.0, [lambda: worker.client.drop("renew", times=5), lambda: None])

    with renewing(claim, lease_ms=9_000, clock=clock, report=told.append):  # type: ignore[arg-type]  # told this kind
        assert clock.over.wait(5)

    assert [type(error) for error in told] == [StoreUnavailable]
    assert claim.record.version == 2
    assert claim.record.lease_expires_at == world.clock.now_ms() + 9_000


def test_a_job_that_hangs_is_not_renewed_for_ever(world: World) -> None:
    """A job that hangs outside Lambda goes stale in the end: renewals stop after as long as Lambda's longest run."""
    worker, claim = _claim(world)
    clock = _Waits(world, LONGEST_LIFE_SECONDS / 2, [lambda: None] * 6)
    before = threading.active_count()

    with renewing(claim, lease_ms=9_000, clock=clock, report=lambda error: None):
        for thread in threading.enumerate():
            if thread.name.endswith("(renew)"):
                thread.join(5)

    assert threading.active_count() <= before
    # Twice within the time, and not once after it.
    assert (clock.waits, worker.client.names().count("renew")) == (3, 2)


def test_renewing_is_over_when_the_job_is(world: World) -> None:
    """Nothing is renewed once the job has ended, also where it raised."""
    _, claim = _claim(world)
    heard: list[bool] = []
    ready, done = threading.Event(), threading.Event()

    class Clock(_Waits):
        def wait(self, event: threading.Event, seconds: float) -> bool:
            ready.set()
            heard.append(event.wait(5))
            done.set()
            return True

    def run() -> None:
        with renewing(claim, lease_ms=9_000, clock=Clock(world, 0, []), report=lambda error: None):
            assert ready.wait(20)
            raise ConnectionError

    with pytest.raises(ConnectionError):
        run()

    assert done.wait(20)
    assert heard == [True]


def test_the_copies_of_two_rejections_of_one_message_are_two(world: World) -> None:
    """G4: a FIFO queue swallows a deduplication id that comes again, so each rejection's copy has its own."""

    def run(payload: dict[str, Any]) -> None:
        raise Reject("no")

    sqs = FakeSqs()
    app = world.app(JobType(run, "pay"), runtime=SpiedRuntime(world.runtime, sqs))
    message = world.message("pay", queue="Ordered.fifo", group="g")
    app.consumer(event_of(message), FakeLambdaContext())
    note = sqs.entries("send")[0]["MessageAttributes"]["onceq"]["StringValue"]
    redriven = message | {"messageAttributes": {"onceq": {"dataType": "String", "stringValue": note}}}
    app.consumer(event_of(redriven), FakeLambdaContext())

    first, second = sqs.entries("send")
    assert first["MessageDeduplicationId"] != second["MessageDeduplicationId"]
    assert first["MessageGroupId"] == second["MessageGroupId"] == "g"


def test_duplicates_that_wait_come_back_a_little_apart(world: World) -> None:
    """A wait for somebody else has jitter; a back-off of our own has had its jitter already."""
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return high

    worker, _ = _claim(world)
    sqs = FakeSqs()
    world.tokens.uniform = uniform  # type: ignore[method-assign]

    @job("pay", fingerprint=None)
    def pay(payload: dict[str, Any]) -> None: ...

    app = world.app(pay, runtime=SpiedRuntime(world.runtime, sqs))
    message = world.message("pay")

    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    assert drawn == [(0, 1.0)]
    assert sqs.visibility() == {message["receiptHandle"]: 41}
    pass_lease(world)
    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == []
    assert worker.world.record("pay", "k-1") is not None


def test_a_wait_that_is_over_is_no_wait() -> None:
    """SQS refuses a negative visibility timeout: what was due a minute ago is visible at once."""
    now = FrozenClock().now_ms()

    assert ends.answer_of(ends.Released(now - 60_000), now, 0) == ends.Answer(keep=True, visible_in=0)
    assert ends.answer_of(ends.Deferred(now - 60_000), now, 1.0) == ends.Answer(keep=True, visible_in=0)


def test_an_entry_that_fails_to_the_end_is_named_beside_one_that_was_refused(world: World) -> None:
    """G4: neither the sender's fault nor the one that never passed is taken for sent."""
    faults = {"a": {"Code": "Bad", "SenderFault": True}, "b": {"Code": "InternalError", "SenderFault": False}}

    def fail(operation: str, entry: dict[str, Any]) -> dict[str, Any] | None:
        return faults.get(entry["MessageBody"])

    sqs = FakeSqs(fail)
    queue = Queue(world.clock, world.tokens, OpenDeadline(), client=sqs)

    sent, failed = queue.send_batch("url", [{"Id": body, "MessageBody": body} for body in "abc"])

    assert (list(sent), sorted(failed)) == (["c"], ["a", "b"])


def test_parts_with_a_separator_inside_make_a_key_of_their_own() -> None:
    """The parts of a key never run into each other, whatever stands in them."""
    keys = [("a", "b"), ("a:b",), ("a%3Ab",), ("a:", "b"), ("a", ":b")]

    assert len({join_key(*parts) for parts in keys}) == len(keys)
