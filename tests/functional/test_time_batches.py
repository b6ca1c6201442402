"""A batch that is too late: its window ate its visibility, or Lambda's time-out ended it in the middle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import RunningContext
from kit.delivery import Poller, hold_sqs_time, kept_as_aws_reads, peek, record_of
from kit.seams import Seams, SimulatedCrash
from kit.ten import TenInABatch
from kit.timed_queue import StrictHandles, StrictRuntime
from kit.world import event_of
from onceq import Context, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq import App, JobType

# moto's default, and what a receive before the window starts.
VISIBILITY = 30
WINDOW = 25
JOBS = 4
# Enough for two rounds of the batch in one invocation.
SECONDS = 120


class Pipe:
    """A queue whose messages are received before their batch is invoked, and jobs that take ten seconds each."""

    def __init__(self, world: World, *, refuses: bool) -> None:
        """Put strict receipt handles before the queue."""
        self.world = world
        self.runs: Counter[str] = Counter()
        self.during: dict[str, Callable[[], object]] = {}
        self.sqs = StrictHandles(world.sqs, refuses=refuses)
        world.runtime._given = replace(world.settings, concurrency=1)
        self.job_type = self._job_type()
        self.app: App = world.app(self.job_type, runtime=StrictRuntime(world.runtime, self.sqs))
        self.poller = Poller.of(self.app)

    def _job_type(self) -> JobType[..., Any]:
        @job("pay", max_duration=20)
        def pay(payload: dict[str, Any], ctx: Context) -> str:
            self.runs[ctx.key] += 1
            self.world.clock.advance(10)
            self.during.pop(ctx.key, lambda: None)()
            return ctx.key

        return pay

    def receive(self) -> list[dict[str, Any]]:
        """Receive a batch, as Lambda's pollers do before its window."""
        return self.poller.queue.receive(self.poller.settings.url)

    def invoke(self, messages: list[dict[str, Any]]) -> int:
        """Invoke the function with a batch, delete what it acknowledged, and return how many messages it kept."""
        records = [record_of(message, self.poller.settings.arn) for message in messages]
        answer = self.app.consumer(event_of(*records), RunningContext(self.world.clock, SECONDS))
        keep = kept_as_aws_reads(answer, [message["MessageId"] for message in messages])
        done = [message["ReceiptHandle"] for message in messages if message["MessageId"] not in keep]
        entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(done)]
        assert self.poller.queue.delete_batch(self.poller.settings.url, entries) == {}
        return len(keep)

    def waiting(self) -> int:
        """Return how many messages the queue holds, visible or not."""
        return len(peek(self.poller.settings.url))


@pytest.mark.parametrize("refuses", [False, True], ids=["a stale handle is ignored", "a stale handle is refused"])
@pytest.mark.parametrize("at", ["k-0", "k-1", "k-3"])
def test_a_batch_whose_window_ate_its_visibility_has_each_effect_once(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str, *, refuses: bool
) -> None:
    """G1, G3, G4: redelivered while the first invocation runs: replayed, deferred or run there, and once in all.

    The first one's receipt handles are stale by then, so its acknowledgements delete nothing; the copies end later.
    """
    hold_sqs_time(monkeypatch, world.clock)
    pipe = Pipe(world, refuses=refuses)
    for number in range(JOBS):
        pipe.app.enqueue(pipe.job_type, {}, key=f"k-{number}")
    first = pipe.receive()
    world.clock.advance(WINDOW)
    kept_by: list[int] = []
    pipe.during[at] = lambda: kept_by.append(pipe.invoke(pipe.receive()))

    kept_by.append(pipe.invoke(first))

    assert len(first) == JOBS
    # One was under way, and that one alone was deferred; those before it were replayed, those behind it ran there.
    assert kept_by == [1, 0]
    assert pipe.runs == Counter({f"k-{number}": 1 for number in range(JOBS)})
    assert pipe.sqs.stale == ["delete"] * JOBS
    assert pipe.waiting() == 1, "what was acknowledged by the second is gone; the first deleted nothing"
    told = Counter(event.name for event in world.events)
    assert (told["job.deferred"], told["job.replayed"]) == (1, JOBS - 1)

    assert not pipe.receive(), "hidden for as long as the first may live"
    world.clock.advance(SECONDS + 12)
    assert pipe.invoke(pipe.receive()) == 0

    assert pipe.waiting() == 0
    assert pipe.runs.total() == JOBS


@pytest.mark.parametrize("refuses", [False, True])
def test_a_retry_whose_receipt_handle_went_stale_keeps_its_message(
    world: World, monkeypatch: pytest.MonkeyPatch, *, refuses: bool
) -> None:
    """G4: its back-off cannot be told to SQS any more; the record has it, and the other delivery waits for it."""
    hold_sqs_time(monkeypatch, world.clock)
    pipe = Pipe(world, refuses=refuses)
    pipe.app.enqueue(pipe.job_type, {}, key="k-0")
    first = pipe.receive()
    world.clock.advance(WINDOW)
    second: list[dict[str, Any]] = []

    def fail() -> None:
        second.extend(pipe.receive())
        raise ConnectionError

    pipe.during["k-0"] = fail

    assert pipe.invoke(first) == 1
    assert pipe.invoke(second) == 1, "the back-off runs: deferred"
    assert pipe.sqs.stale == ["visibility"]
    assert ("visibility.not_changed" in world.names()) is refuses
    world.clock.advance(40)
    assert pipe.invoke(pipe.receive()) == 0

    assert pipe.runs == Counter({"k-0": 2})
    assert pipe.waiting() == 0


@pytest.mark.parametrize("hanging", ["k-1", "k-6", "k-10"])
@pytest.mark.parametrize("early", [False, True], ids=["after its lease", "before its lease is over"])
def test_a_time_out_in_the_middle_of_ten(world: World, hanging: str, *, early: bool) -> None:
    """G3, G5, G6: those before are replayed next time, the one in flight is taken over by its lease, the rest run."""
    ten = TenInABatch(world, hanging)
    position = ten.batch.index(hanging)
    before, behind = ten.batch[:position], ten.batch[position + 1 :]
    began = world.clock.now_ms()
    with pytest.raises(SimulatedCrash):
        ten.deliver()
    assert [ten.status(key) for key in before] == ["completed"] * len(before)
    assert ten.status(hanging) == "processing"
    assert [ten.status(key) for key in behind] == [None] * len(behind)
    assert ten.starts == [*before, hanging]
    world.events.clear()

    ten.restart()
    if early:
        world.clock.advance(max(0.0, (began - world.clock.now_ms()) / 1000 + 65))
        record = world.record("pay", hanging)
        assert record is not None
        is_stale = world.clock.now_ms() >= (record.lease_expires_at or 0) + 10_000
        if not is_stale:
            assert ten.deliver() == [hanging]
            assert ten.starts == [*before, hanging, *behind]
    world.clock.advance(72)
    assert ten.deliver() == []

    told = Counter(event.name for event in world.events)
    assert told["job.taken_over"] == 1
    assert told["job.replayed"] >= len(before)
    assert Counter(ten.starts) == Counter([*ten.batch, hanging])
    assert ten.starts[-1] == hanging, "taken over alone, after the others"
    assert len(ten.charges) == 10, "each job has one downstream key, on every attempt"
    assert all(ten.seams.completed[f"pay#{key}"] == 1 for key in ten.batch)


def test_ten_jobs_that_time_out_at_once_are_all_taken_over(world: World) -> None:
    """G6: at concurrency 10 every one of them is in flight; each runs again, one at a time, and completes."""
    ten = TenInABatch(world, hanging="none")
    ten.settings = replace(world.settings, concurrency=10)

    def die(method: str, when: str) -> None:
        if (method, when) == ("complete", "before"):
            dying.kill()

    seams = Seams(watch=die)
    dying = seams.process(world.runtime, ten.settings)
    ten.process = dying
    with pytest.raises(SimulatedCrash):
        ten.deliver()
    claimed = [key for key in ten.batch if ten.status(key) == "processing"]
    assert claimed

    ten.restart()
    world.clock.advance(72)
    assert ten.deliver(context=RunningContext(world.clock, 600)) == []

    assert all(ten.status(key) == "completed" for key in ten.batch)
    assert len(ten.charges) == 10
    assert Counter(event.name for event in world.events)["job.taken_over"] == len(claimed)
