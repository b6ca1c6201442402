"""`@job(lock=…)`: how a lock is named, when it is taken and given back, and what becomes of a job that does not get it.

A lock proves nothing; but whoever waits for one must lose no attempt and no message.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import PAST_LEASE, Bench
from kit.clock import FakeLambdaContext
from kit.faults import faulty_dynamodb
from kit.locking import stored_lock, taken_by
from kit.racing import all_at_once, eager_switching
from kit.seams import Point, Seams, SimulatedCrash
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import create_table, event_of, kept
from onceq import Context, Reject, Retry, Semantics, Snooze, job
from onceq.models import claims_table, records
from onceq.record import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.seams import When
    from kit.world import World
    from onceq import App, JobType
    from onceq.locks import LockItem

SKEW_SECONDS = 10
THREADS = 16


def lock(world: World, name: str = "till") -> LockItem:
    """Return a lock, which must be there."""
    item = stored_lock(world, name)
    assert item is not None
    return item


def consume(app: App, *messages: dict[str, Any]) -> list[str]:
    """Deliver messages in one batch; return the keys of those that are kept."""
    ids = {message["messageId"]: message for message in messages}
    answer = kept(app.consumer(event_of(*messages), FakeLambdaContext()))
    return [ids[message_id]["body"].partition('"idempotency_key":"')[2].partition('"')[0] for message_id in answer]


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        ("till", "till"),
        (lambda payload: payload["shop"], "s-1"),
        (lambda payload: payload["number"], "7"),
        (lambda payload: payload["shop"] * 1_000, "s-1" * 1_000),
    ],
    ids=["a name", "of the payload", "a number", "a long one"],
)
def test_a_job_holds_the_lock_of_that_name_while_it_runs(world: World, declared: Any, name: str) -> None:
    """A name, or a function of the payload; the lock is the job's, by its claim's token, as long as its claim is."""
    held: list[LockItem | None] = []
    bench = Bench(world, lambda _ctx: held.append(stored_lock(world, name)), lock=declared)

    assert not bench.deliver(payload={"shop": "s-1", "number": 7})
    (item,) = held
    assert item is not None
    assert (item.holder, item.token) == ("pay#k-1", "t1")
    assert item.lease_expires_at == world.clock.now_ms() + 61_000


def raising(_payload: object) -> str:
    """Raise what a payload of another shape raises."""
    raise KeyError("shop")


@pytest.mark.parametrize(
    "declared",
    [raising, *(lambda _payload, name=name: name for name in ("", "  ", None, 1.5, ["till"], True))],
    ids=["raises", "empty", "blank", "None", "a float", "a list", "a bool"],
)
def test_a_payload_that_names_no_lock_is_refused(world: World, declared: Callable[[Any], Any]) -> None:
    """The message is copied to the dead-letter queue with a reason that speaks of the lock; nothing was claimed."""
    bench = Bench(world, lock=declared)

    assert not bench.deliver(payload={"a": 1})

    (note,) = bench.notes()
    assert "lock" in note["reason"]
    assert bench.starts == []
    assert world.record("pay", "k-1") is None
    assert [event["reason"] for event in bench.events("message.refused")] == [note["reason"]]


def test_a_lock_is_taken_between_claim_and_start_and_released_behind_the_end(world: World) -> None:
    """Nobody waits for a lock who has no claim, and nobody else gets it before the job's end is written."""
    done: list[str] = []

    def watch(method: str, when: When) -> None:
        if when == "after" and method in {"claim", "acquire", "complete", "extend"}:
            done.append(method)

    bench = Bench(world, lambda _ctx: done.append("run"), lock="till")
    bench.start(Seams(watch=watch))

    assert not bench.deliver()
    assert done == ["claim", "acquire", "run", "complete", "extend"]
    assert lock(world).lease_expires_at == 0


def test_a_job_without_a_lock_asks_for_none(world: World) -> None:
    """The floor stays: two requests; a lock costs two more."""
    client = faulty_dynamodb(world.runtime)
    bench = Bench(world)
    bench.deliver(key="plain")
    plain = [call.method for call in client.calls]
    client.calls.clear()
    bench.release(lock="till")
    bench.deliver(key="locked")

    assert plain == ["put_item", "update_item"]
    assert [call.method for call in client.calls] == ["put_item", "put_item", "update_item", "update_item"]


def spied(world: World, bench: Bench) -> FakeSqs:
    """Let SQS be a list of requests."""
    sqs = FakeSqs()
    bench.app = world.app(bench.job_type, runtime=SpiedRuntime(world.runtime, sqs))
    return sqs


def test_a_job_that_does_not_get_its_lock_is_given_back_unstarted(world: World) -> None:
    """No start, no attempt, no error: the message comes back when the lock must have ended, by every clock."""
    bench = Bench(world, lock="till")
    sqs = spied(world, bench)
    theirs = taken_by(world, "pay#k-2", "till", 25)

    assert bench.deliver()

    assert bench.starts == []
    record = bench.record
    assert (record.status, record.attempts, record.error) == (Status.FAILED, 0, None)
    assert record.not_before == world.clock.now_ms()
    # The counting tokens draw the upper limit of the jitter, a second.
    assert list(sqs.visibility().values()) == [25 + SKEW_SECONDS + 1]
    (busy,) = bench.events("lock.busy")
    until = theirs.lease_expires_at + SKEW_SECONDS * 1000
    assert (busy["lock"], busy["until"], busy["key"], busy["job_type"]) == ("till", until, "k-1", "pay")
    assert [event.metric for event in world.events if event.name == "lock.busy"] == ["LocksBusy"]
    assert "job.started" not in world.names()
    assert lock(world) == theirs


@pytest.mark.parametrize("early_ms", [1, 0])
def test_a_lock_that_was_never_released_is_free_after_its_end_and_the_clock_skew(world: World, early_ms: int) -> None:
    """Its holder died: not a millisecond sooner, and without anybody's help. The time is the one that was told."""
    bench = Bench(world, lock="till")
    taken_by(world, "pay#k-2", "till", 25)
    bench.deliver()
    (busy,) = bench.events("lock.busy")
    world.clock.advance((busy["until"] - world.clock.now_ms() - early_ms) / 1000)

    assert bench.deliver() is bool(early_ms)
    assert bench.starts == ([] if early_ms else [1])


@pytest.mark.parametrize("earlier", [0, 1])
def test_waiting_for_a_lock_uses_no_attempt_however_often(world: World, earlier: int) -> None:
    """A job of two attempts waits through thirty deliveries; what an earlier attempt left stays as it was."""

    def body(ctx: Context) -> None:
        if ctx.attempt <= earlier:
            raise ConnectionError

    bench = Bench(world, body, lock="till", max_attempts=2)
    for _ in range(earlier):
        bench.deliver()
        bench.later(10)
    for _ in range(30):
        taken_by(world, "pay#k-2", "till", 60)
        assert bench.deliver()
        record = bench.record
        assert (record.status, record.attempts) == (Status.FAILED, earlier)
        assert record.error == ("ConnectionError" if earlier else None)
        bench.later(60 + SKEW_SECONDS)

    assert not bench.deliver()
    assert bench.starts == list(range(1, earlier + 2))
    assert bench.record.attempts == earlier + 1
    assert bench.notes() == []


def test_a_stale_job_that_waits_for_its_lock_still_runs_alone_later(world: World) -> None:
    """G5: a start that went stale is not forgotten over the waiting."""
    bench = Bench(world, lambda ctx: bench.die() if ctx.attempt == 1 else None, lock="till")
    bench.deliver_dying()
    bench.later()
    taken_by(world, "pay#k-2", "till", 60)
    assert bench.deliver()

    assert (bench.record.attempts, bench.record.went_stale) == (1, 1)


@pytest.mark.parametrize("semantics", list(Semantics))
def test_waiting_for_a_lock_is_no_start_of_an_at_most_once_job(world: World, semantics: Semantics) -> None:
    """G9: it was given back as never started, so it is started later, once."""
    bench = Bench(world, lock="till", semantics=semantics)
    taken_by(world, "pay#k-2", "till", 60)
    for _ in range(3):
        assert bench.deliver()
    bench.later()

    assert not bench.deliver()
    assert bench.starts == [1]


def test_waiting_for_a_lock_makes_no_downstream_key_old(world: World) -> None:
    """No attempt has used a key yet, so none can have been forgotten: the first attempt runs, however late."""
    bench = Bench(world, lambda ctx: ctx.idempotency_key_for("charge"), lock="till", downstream_key_lifetime=600)
    taken_by(world, "pay#k-2", "till", 3_600)
    bench.deliver()
    bench.later(3_600 + SKEW_SECONDS)

    assert not bench.deliver()
    assert bench.record.status is Status.COMPLETED


def raise_(error: BaseException) -> None:
    """Raise."""
    raise error


def uncertain(ctx: Context) -> None:
    """Fail inside an at-most-once step."""
    ctx.step("call", lambda: raise_(ConnectionError()), semantics=Semantics.AT_MOST_ONCE)


def refused(ctx: Context) -> None:
    """Stage a write whose condition does not hold."""
    key = {"pk": {"S": "none"}}
    check = {"TableName": "OtherTable", "Key": key, "ConditionExpression": "attribute_exists(pk)"}
    ctx.transaction.write({"ConditionCheck": check})


ENDS: dict[str, tuple[Callable[[Context], object], dict[str, Any], str]] = {
    "complete": (lambda ctx: None, {}, "complete"),
    "commit": (lambda ctx: ctx.send("pay", {}, key="other"), {}, "commit"),
    "raise": (lambda ctx: raise_(ValueError()), {}, "release"),
    "exit": (lambda ctx: raise_(SystemExit(1)), {}, "release"),
    "retry": (lambda ctx: raise_(Retry(5)), {}, "release"),
    "snooze": (lambda ctx: raise_(Snooze(5)), {}, "release"),
    "reject": (lambda ctx: raise_(Reject("no")), {}, "reject"),
    "use up": (lambda ctx: raise_(ValueError()), {"max_attempts": 1}, "reject"),
    "hold": (lambda ctx: raise_(ValueError()), {"semantics": Semantics.AT_MOST_ONCE}, "hold"),
    "uncertain step": (uncertain, {}, "hold"),
    "refused transaction": (refused, {}, "release"),
}


@pytest.mark.parametrize("end", ENDS)
def test_whatever_ends_the_job_releases_its_lock_behind_it(world: World, end: str) -> None:
    """The end is written first; from then on another job gets the lock at once."""
    create_table(world.dynamodb, "OtherTable")
    body, options, write = ENDS[end]
    done: list[str] = []

    def watch(method: str, when: When) -> None:
        if when == "after" and method not in {"call", "pending", "mark_sent"} and "batch" not in method:
            done.append(method)

    bench = Bench(world, body, lock="till", **options)
    bench.start(Seams(watch=watch))
    bench.deliver()

    assert done[-2:] == [write, "extend"]
    assert lock(world).lease_expires_at == 0
    taken_by(world, "pay#k-2", "till", 1)


def test_a_job_that_lost_its_claim_releases_its_lock(world: World) -> None:
    """Somebody else completed it meanwhile: the lock that is still its own is given back all the same."""

    def body(ctx: Context) -> None:
        world.dynamodb.update_item(
            TableName=world.settings.claims_table,
            Key={"pk": {"S": "pay#k-1"}},
            UpdateExpression="SET claimant = :other ADD version :one",
            ExpressionAttributeValues={":other": {"S": "other"}, ":one": {"N": "1"}},
        )

    bench = Bench(world, body, lock="till")

    assert bench.deliver()
    assert "claim.lost" in world.names()
    assert lock(world).lease_expires_at == 0


def test_a_jobs_own_retry_gets_its_lock_back_while_others_wait(world: World) -> None:
    """It died between its end and the release: the lock is still its own, so its retry does not wait for it."""

    def body(ctx: Context) -> None:
        if (ctx.key, ctx.attempt) == ("k-1", 1):
            raise ConnectionError

    bench = Bench(world, body, lock="till")
    bench.start(Seams((Point("Locks", "extend", "before"), 1)))
    with pytest.raises(SimulatedCrash):
        bench.deliver()
    bench.start()
    bench.later(5)
    before = lock(world)
    assert before.lease_expires_at > world.clock.now_ms()

    assert bench.deliver(key="k-2")
    assert len(bench.events("lock.busy")) == 1
    assert not bench.deliver()
    assert bench.starts == [1, 2]
    assert lock(world).token != before.token
    assert not bench.deliver(key="k-2")
    assert len(bench.events("lock.busy")) == 1


def test_a_job_that_died_gets_its_lock_with_its_claim(world: World) -> None:
    """Until its claim is stale nobody has either; then the taker of the claim has both."""
    bench = Bench(world, lambda ctx: bench.die() if ctx.attempt == 1 else None, lock="till")
    bench.deliver_dying()

    assert bench.deliver(key="k-2")
    assert bench.deliver()
    bench.later()
    assert not bench.deliver()
    assert bench.starts == [1, 2]


def test_two_jobs_of_one_batch_on_one_lock_run_one_after_the_other(world: World) -> None:
    """At once in two threads: one gets it, the other is given back; it runs when it comes again."""
    world.settings = replace(world.settings, concurrency=2)
    given_back = threading.Event()
    running: list[str] = []
    overlaps: list[list[str]] = []

    def watch(method: str, when: When) -> None:
        if (method, when) == ("give_back", "after"):
            given_back.set()

    @job("pay", lock="till")
    def pay(payload: dict[str, Any], ctx: Context) -> None:
        running.append(ctx.key)
        overlaps.append(list(running))
        assert given_back.wait(30)
        running.remove(ctx.key)

    sqs = FakeSqs()
    runtime = Seams(watch=watch).process(SpiedRuntime(world.runtime, sqs), world.settings)
    app = world.app(pay, runtime=runtime)
    batch = {key: world.message("pay", key=key) for key in ("a", "b")}

    (waits,) = consume(app, *batch.values())

    assert sqs.visibility() == {batch[waits]["receiptHandle"]: 61 + SKEW_SECONDS + 1}
    assert consume(app, batch[waits]) == []
    assert [len(keys) for keys in overlaps] == [1, 1]
    attempts = {key: record.attempts for key in "ab" if (record := world.record("pay", key))}
    assert attempts == {"a": 1, "b": 1}


def test_two_jobs_of_one_batch_on_one_lock_run_one_after_the_other_in_one_thread(world: World) -> None:
    """Nobody waits where the first one is done before the second one begins."""
    world.settings = replace(world.settings, concurrency=1)
    bench = Bench(world, lock="till")
    app = world.app(bench.job_type, runtime=Seams().process(world.runtime, world.settings))

    assert consume(app, *(world.message("pay", key=key) for key in "ab")) == []
    assert bench.starts == [1, 1]
    assert "lock.busy" not in world.names()


class Holders:
    """Counts who is at work, and finds two at once."""

    def __init__(self) -> None:
        """Start with none."""
        self.done: Counter[str] = Counter()
        self.overlaps: list[set[str]] = []
        self._at_work: set[str] = set()
        self._lock = threading.Lock()

    def job_type(self) -> JobType[..., Any]:
        """Return a job type that works under a lock."""

        @job("pay", lock="till")
        def pay(payload: dict[str, Any], ctx: Context) -> None:
            with self._lock:
                self._at_work.add(ctx.key)
                if len(self._at_work) > 1:
                    self.overlaps.append(set(self._at_work))
            time.sleep(0)  # another thread's turn
            with self._lock:
                self._at_work.discard(ctx.key)
            self.done[ctx.key] += 1

        return pay


def test_of_many_jobs_on_one_lock_one_is_at_work_at_any_moment(both_worlds: World) -> None:
    """Sixteen consumers with a job each, on one lock, until all are done: never two at once, no attempt lost."""
    world, holders, keys = both_worlds, Holders(), [f"k{number}" for number in range(THREADS)]
    pay = holders.job_type()
    apps = [world.app(pay, runtime=Seams().process(world.runtime)) for _ in keys]
    waiting = list(zip(apps, keys, strict=True))

    for _ in range(THREADS):
        with eager_switching():
            answers = all_at_once(
                [
                    lambda app=app, key=key: consume(app, world.message("pay", key=key))  # type: ignore[misc]
                    for app, key in waiting
                ]
            )
        waiting = [pair for pair, answer in zip(waiting, answers, strict=True) if answer]
        if not waiting:
            break
        world.clock.advance(PAST_LEASE)

    assert not waiting
    assert holders.overlaps == []
    assert holders.done == dict.fromkeys(keys, 1)
    assert {record.attempts for key in keys if (record := world.record("pay", key))} == {1}


def test_locks_show_nowhere_among_the_jobs(world: World) -> None:
    """Not in the records, not in the sweep, not in a look-up: a lock is no job, also one whose time is over."""
    bench = Bench(world, lock="till")
    bench.deliver()
    taken_by(world, "somebody", "other", 1)
    bench.later(86_400)
    table = claims_table(world.settings.claims_table, region="us-east-1")

    assert [record.pk for record in records(table)] == ["pay#k-1"]
    assert bench.app.recovery() | {"scanned": 0} == {
        "scanned": 0,
        "failed": 0,
        "uncertain": 0,
        "lost": 0,
        "finished": True,
    }
    assert bench.app.lookup("pay", "till") is None
    assert lock(world, "other").holder == "somebody"
