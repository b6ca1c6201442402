"""A FIFO queue from end to end: sent, received in groups by our own poller, failed, deferred, and received again.

On ministack, since moto gives a group's messages back out of order. Its time is real, so what waits here waits for a
second, in a long poll.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.ministack import open_world_on
from kit.racing import all_at_once, eager_switching
from kit.seams import Point, Seams, SimulatedCrash
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Backoff, Context, Reject, Retry, Snooze, job
from onceq.clock import OpenDeadline
from onceq.poller import Poller
from onceq.queue import Queue
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.clock import FrozenClock
    from kit.world import World
    from onceq import App
    from onceq.job_type import JobType

DEAD = "OrderedDead.fifo"
# Of a long poll, which ends with the first message: more than the second that a visibility timeout takes here.
WAIT_SECONDS = 3
# Of polls, before a test that does not come to an end is given up.
MOST_POLLS = 200
# A lease of `FakeLambdaContext` and the clock skew.
LEASE_SECONDS = 80


@pytest.fixture
def ordered(ministack: str, clock: FrozenClock) -> Iterator[World]:
    """A world on ministack, whose FIFO queue gives a group back in order."""
    with open_world_on(ministack, clock) as world:
        yield world


@dataclass
class Group:
    """What ran: keys in the order of their starts, and of their ends, by group.

    Args:
        plan: By key what its attempts do one after another: an exception is raised. Then it returns.
        runs: Every start.
        done: Every return.
        broken: Starts while another job of the group ran, or before an earlier one was over.
    """

    plan: dict[str, list[BaseException]] = field(default_factory=dict)
    runs: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    done: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    broken: list[str] = field(default_factory=list)
    _running: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def job_type(self) -> JobType[..., Any]:
        """Return the job type; the group of a key is its first letter, its place what follows."""

        @job("act", queue="ordered", max_attempts=20, backoff=Backoff(base=0, cap=0))
        def act(payload: dict[str, Any], ctx: Context) -> str:
            group = ctx.key[0]
            with self._lock:
                if group in self._running or len(self.done[group]) < int(ctx.key[1:]) - 1:
                    self.broken.append(ctx.key)
                self._running.add(group)
                self.runs[group].append(ctx.key)
                rest = self.plan.get(ctx.key)
                raised = rest.pop(0) if rest else None
            try:
                if raised is not None:
                    raise raised
                with self._lock:
                    self.done[group].append(ctx.key)
                return ctx.key
            finally:
                with self._lock:
                    self._running.discard(group)

        return act


def app_of(
    world: World, jobs: Group, *, concurrency: int = 10, seams: Seams | None = None, sqs: FakeSqs | None = None
) -> App:
    """Return an application of that job type, with a death or an SQS of the test's own."""
    world.settings = replace(world.settings, concurrency=concurrency)
    world.runtime = Runtime(world.settings, clock=world.clock, tokens=world.tokens)
    runtime = seams.process(world.runtime) if seams else SpiedRuntime(world.runtime, sqs) if sqs else world.runtime
    return world.app(jobs.job_type(), runtime=runtime)


def send(app: App, *keys: str) -> None:
    """Enqueue these, in this order."""
    for key in keys:
        app.enqueue("act", {}, key=key, group=key[0])


def poller_of(world: World, app: App, *, batch_size: int = 10, wait: int = 0) -> Poller:
    """Return our own poller of the FIFO queue."""
    settings = world.settings.queue("ordered")
    queue = Queue(world.clock, world.tokens, OpenDeadline(), longest_wait=wait)

    def handler(event: dict[str, Any], _: object) -> object:
        return app.consumer(event, FakeLambdaContext())

    return Poller(handler, queue, url=settings.url, arn=settings.arn, batch_size=batch_size, wait=wait)


def drain(poller: Poller) -> int:
    """Poll until nothing comes; return how often something came."""
    for number in range(MOST_POLLS):
        if not poller.poll():
            return number
    pytest.fail("it does not come to an end")


def again() -> Retry:
    """Return what asks for another attempt at once."""
    return Retry(delay=0)


@pytest.mark.parametrize("concurrency", [1, 10])
def test_a_group_keeps_its_order_over_failures_and_retries(ordered: World, concurrency: int) -> None:
    """A job that fails comes back before what stands behind it; other groups are done at the first delivery."""
    jobs = Group(plan={"a1": [again(), ConnectionError()], "a3": [ConnectionError()]})
    app = app_of(ordered, jobs, concurrency=concurrency)
    send(app, "a1", "b1", "a2", "b2", "a3", "a4", "b3")
    poller = poller_of(ordered, app)

    assert poller.poll() == 7
    assert (jobs.runs["a"], jobs.done["b"]) == (["a1"], ["b1", "b2", "b3"])
    drain(poller)

    assert jobs.runs["a"] == ["a1", "a1", "a1", "a2", "a3", "a3", "a4"]
    assert jobs.done == {"a": ["a1", "a2", "a3", "a4"], "b": ["b1", "b2", "b3"]}
    assert not jobs.broken


def test_what_stands_behind_a_failed_head_is_kept_and_unstarted(ordered: World) -> None:
    """No claim is made and no attempt used for it, however often it is delivered behind its head."""
    jobs = Group(plan={"a1": [again() for _ in range(5)]})
    app = app_of(ordered, jobs)
    send(app, "a1", "a2", "a3", "b1")
    poller = poller_of(ordered, app)

    for _ in range(5):
        assert poller.poll() > 0
        assert [ordered.record("act", key) for key in ("a2", "a3")] == [None, None]
    drain(poller)

    attempts = {key: ordered.record("act", key) for key in ("a1", "a2", "a3", "b1")}
    assert {key: record and record.attempts for key, record in attempts.items()} == {"a1": 6, "a2": 1, "a3": 1, "b1": 1}
    assert jobs.done == {"a": ["a1", "a2", "a3"], "b": ["b1"]}


def test_a_deferred_job_holds_its_group_and_no_other(ordered: World) -> None:
    """Behind a job that waits SQS gives nothing of its group, although that is visible: what follows comes after it."""
    jobs = Group(plan={"a2": [Snooze(1)]})
    app = app_of(ordered, jobs)
    send(app, "a1", "a2", "a3")
    assert poller_of(ordered, app).poll() == 3

    assert poller_of(ordered, app).poll() == 0
    send(app, "a4", "b1")
    assert poller_of(ordered, app).poll() == 1
    assert (jobs.runs["a"], jobs.done["b"]) == (["a1", "a2"], ["b1"])

    ordered.clock.advance(1)
    assert poller_of(ordered, app, wait=WAIT_SECONDS).poll() > 0
    drain(poller_of(ordered, app))
    assert jobs.runs["a"] == ["a1", "a2", "a2", "a3", "a4"]
    assert not jobs.broken


def test_a_job_that_somebody_else_holds_is_deferred_in_its_place(world: World) -> None:
    """Its message waits for the other one's lease; what stands behind it is unstarted and visible at once."""
    jobs, sqs = Group(), FakeSqs()
    batch = [world.message("act", {}, key=key, queue="Ordered.fifo", group="a") for key in ("a1", "a2", "a3")]
    dying = app_of(world, jobs, seams=Seams((Point("Store", "claim", "after"), 1)))
    with pytest.raises(SimulatedCrash):
        dying.consumer(event_of(batch[1]), FakeLambdaContext())

    answer = app_of(world, jobs, sqs=sqs).consumer(event_of(*batch), FakeLambdaContext())

    assert kept(answer) == [message["messageId"] for message in batch[1:]]
    assert (jobs.runs["a"], world.record("act", "a3")) == (["a1"], None)
    until = 60 + world.settings.clock_skew  # of the lease, which is the time that invocation had left
    assert until <= sqs.visibility()[batch[1]["receiptHandle"]] <= until + 2  # the jitter, and whole seconds
    assert sqs.visibility()[batch[2]["receiptHandle"]] == 0


@pytest.mark.parametrize("seed", range(3))
def test_mixed_groups_at_once_keep_each_groups_order(ordered: World, seed: int) -> None:
    """Five groups, ten threads, two pollers, failures of every kind: no group runs out of order, or twice at once."""
    draw = random.Random(seed)
    keys = [f"{group}{number}" for number in range(1, 7) for group in "abcde"]
    plan: dict[str, list[BaseException]] = {
        key: [draw.choice([again(), Snooze(0), ConnectionError()]) for _ in range(draw.choice([0, 0, 1, 3]))]
        for key in keys
    }
    failures = {key: len(raised) for key, raised in plan.items()}
    jobs = Group(plan=plan)
    app = app_of(ordered, jobs)
    send(app, *keys)

    with eager_switching():
        # An empty answer is no end while the other poller has a group; a long poll waits for that.
        all_at_once([partial(drain, poller_of(ordered, app, wait=1)) for _ in range(2)])
    drain(poller_of(ordered, app))

    assert not jobs.broken
    for group in "abcde":
        mine = [key for key in keys if key[0] == group]
        assert jobs.done[group] == mine
        assert jobs.runs[group] == [key for key in mine for _ in range(failures[key] + 1)]


def test_a_duplicate_inside_a_group_waits_for_its_twin_and_is_replayed(ordered: World) -> None:
    """Two messages of one job in one group: unstarted behind a failure, then answered from the stored result."""
    jobs = Group(plan={"a1": [again()]})
    app = app_of(ordered, jobs)
    send(app, "a1", "a1", "a2", "a1")
    poller = poller_of(ordered, app)

    assert poller.poll() == 4
    assert (jobs.runs["a"], ordered.names().count("job.replayed")) == (["a1"], 0)
    drain(poller)

    assert (jobs.runs["a"], jobs.done["a"]) == (["a1", "a1", "a2"], ["a1", "a2"])
    assert ordered.names().count("job.replayed") == 2


def letters(world: World) -> list[dict[str, Any]]:
    """Receive what lies in the FIFO dead-letter queue, with its group and deduplication id."""
    url, found = world.sqs.get_queue_url(QueueName=DEAD)["QueueUrl"], []
    while messages := world.sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
    ).get("Messages"):
        found += messages
        for message in messages:
            world.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


def test_a_rejected_head_does_not_stop_its_group(ordered: World) -> None:
    """It is over: a copy with the reason lies in the FIFO dead-letter queue, in the same group, and the rest runs."""
    jobs = Group(plan={"a1": [Reject("no")], "a3": [Reject("no")]})
    # A rejected job is over without a return.
    jobs.done["a"] = ["-", "-"]
    app = app_of(ordered, jobs)
    send(app, "a1", "a2", "a3", "a4")

    assert poller_of(ordered, app).poll() == 4

    assert (jobs.runs["a"], jobs.done["a"][2:]) == (["a1", "a2", "a3", "a4"], ["a2", "a4"])
    copies = letters(ordered)
    assert [copy["Attributes"]["MessageGroupId"] for copy in copies] == ["a", "a"]
    assert len({copy["Attributes"]["MessageDeduplicationId"] for copy in copies}) == 2
    assert all('"reason":"rejected"' in copy["MessageAttributes"]["onceq"]["StringValue"] for copy in copies)


def test_a_copy_is_never_swallowed_as_a_duplicate_of_an_earlier_one(ordered: World) -> None:
    """The same job rejected three times within five minutes is three copies: SQS forgets no deduplication id meanwhile.

    A producer that repeats itself must not make a dead letter vanish (G4).
    """
    jobs = Group(plan={"a1": [Reject("no")]})
    app = app_of(ordered, jobs)
    send(app, "a1", "a1")
    assert poller_of(ordered, app).poll() == 2
    first = letters(ordered)

    send(app, "a1")
    assert poller_of(ordered, app).poll() == 1

    assert (len(first), len(letters(ordered)), jobs.runs["a"]) == (2, 1, ["a1"])


def test_a_copy_of_a_message_without_a_group_gets_one_of_its_own(world: World) -> None:
    """A record that lost its group is copied nevertheless: a FIFO queue takes none without."""
    sqs = FakeSqs()
    app = app_of(world, Group(), sqs=sqs)

    event = event_of(*(world.raw("not json", queue="Ordered.fifo", group=group) for group in (None, None, "a")))
    assert kept(app.consumer(event, FakeLambdaContext())) == []

    groups = [entry["MessageGroupId"] for entry in sqs.entries("send")]
    assert (len(set(groups)), groups[2]) == (3, "a")
    assert len({entry["MessageDeduplicationId"] for entry in sqs.entries("send")}) == 3


@pytest.mark.parametrize(
    ("point", "replayed"),
    [
        (Point("Store", "claim", "after"), 0),
        (Point("Store", "complete", "before"), 0),
        (Point("Store", "complete", "after"), 1),
    ],
    ids=str,
)
def test_a_worker_that_dies_in_a_batch_leaves_its_groups_in_order(ordered: World, point: Point, replayed: int) -> None:
    """The whole batch comes back when its visibility is over: what was done is replayed, the rest follows in order."""
    url = ordered.settings.queue("ordered").url
    ordered.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "1"})
    jobs = Group()
    seams = Seams((point, 1))
    dying = app_of(ordered, jobs, concurrency=1, seams=seams)
    send(dying, "a1", "a2", "a3", "b1")

    with pytest.raises(SimulatedCrash):
        poller_of(ordered, dying).poll()
    ordered.clock.advance(LEASE_SECONDS)
    if not replayed:
        jobs.done["a"].clear()  # what it did is not known
    app = app_of(ordered, jobs, concurrency=1)
    assert poller_of(ordered, app, wait=WAIT_SECONDS).poll() == 4
    drain(poller_of(ordered, app))

    assert seams.crashed
    assert (jobs.done["a"], jobs.done["b"]) == (["a1", "a2", "a3"], ["b1"])
    assert not jobs.broken
    assert ordered.names().count("job.replayed") == replayed
