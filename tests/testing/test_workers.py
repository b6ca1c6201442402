"""Processes that are watched: a job's own requests, its threads, and workers that move one step at a time."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from pynamodb.attributes import UnicodeAttribute
from pynamodb.models import Model

from onceq import App, Context, job
from onceq.testing import Crash, Move, NeverSettled, Point, environment
from onceq.testing.timeline import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from onceq import JobType
    from onceq.testing import EffectRecorder, Environment


class Item(Model):
    """An item of the claims table, as somebody's own model."""

    class Meta:
        """Where it stands."""

        table_name = "ClaimsTable"
        region = "us-east-1"

    pk = UnicodeAttribute(hash_key=True)


@job("own_calls", max_duration=5)
def own_calls(_payload: dict[str, Any]) -> None:
    """Write with clients of the job's own."""
    boto3.client("dynamodb").put_item(TableName="ClaimsTable", Item={"pk": {"S": "~mine"}})
    Item("~theirs").save()
    boto3.client("sqs").send_message(
        QueueUrl=boto3.client("sqs").get_queue_url(QueueName="DeadLetterQueue")["QueueUrl"], MessageBody="x"
    )


@job("threads", max_duration=5)
def threads(_payload: dict[str, Any]) -> None:
    """Write from threads of the job's own, and from a pool."""
    dynamodb = boto3.client("dynamodb")

    def put(name: str) -> None:
        dynamodb.put_item(TableName="ClaimsTable", Item={"pk": {"S": name}})

    thread = threading.Thread(target=put, args=["~thread"])
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(put, "~pool").result()


def point_of(env: Environment, what: str, move: Move, job_type: JobType[..., Any]) -> Any:
    """Deliver a job whose process makes a move at the point that is named so."""
    return env.deliver(
        env.enqueue(job_type, {}, key="k"), director=lambda point: move if what in point.what else Move.PASS
    )


@pytest.mark.parametrize("what", ["PutItem ClaimsTable ~mine", "PutItem ClaimsTable ~theirs", "send a message"])
def test_a_jobs_own_requests_are_its_doing_and_may_be_its_end(nowhere: Path, what: str) -> None:
    """boto3's and pynamodb's: they stand in the timeline, and the process may die at each."""
    with environment(App([own_calls])) as env:
        delivered = point_of(env, what, Move.CRASH, own_calls)

        assert isinstance(delivered.error, Crash)
        assert f"dies before: {what}" in env.timeline.text()
        assert what not in [entry.what.removesuffix(", no condition") for entry in env.timeline.entries]
        env.drain()
        assert [what in entry.what for entry in env.timeline.entries if entry.kind is Kind.CALL].count(True) == 1
        assert len(env.dead_letters()) == 1


@pytest.mark.parametrize("where", ["~thread", "~pool"])
def test_threads_that_a_job_starts_are_its_doing(nowhere: Path, where: str) -> None:
    """Their requests stand in its lane, and a process that died there does nothing more."""
    with environment(App([threads])) as env:
        delivered = point_of(env, f"PutItem ClaimsTable {where}", Move.CRASH, threads)

        assert isinstance(delivered.error, Crash | None)
        written = [item["pk"]["S"] for item in env.stock("ClaimsTable")]
        assert where not in written
        env.drain()
        assert {"~thread", "~pool"} < {item["pk"]["S"] for item in env.stock("ClaimsTable")}
        assert {entry.worker for entry in env.timeline.entries if where in entry.what} == {"w1", "w2"}


def test_a_pool_that_outlives_a_process_works_for_the_next(nowhere: Path, gateway: EffectRecorder) -> None:
    """One thread for two processes: each call is the doing of the one that made it."""
    pool = ThreadPoolExecutor(1)

    @job("pooled", max_duration=5)
    def pooled(_payload: dict[str, Any]) -> Any:
        return pool.submit(gateway.charge, 1).result()

    with environment(App([pooled])) as env:
        point_of(env, "effect charge", Move.CRASH, pooled)
        env.drain()

        assert [(effect.worker, effect.number) for effect in gateway.effects] == [("w2", 1)]
        assert env.records()[0].status == "completed"
    pool.shutdown()
    gateway.charge(1)
    assert gateway.calls[-1].worker == ""


def test_a_response_that_is_lost_was_applied(env: Environment, charge: JobType[..., Any]) -> None:
    """The framework asks again and recognises its own write."""
    letter = env.enqueue(charge, {"cents": 1}, key="k")
    lost = iter([True])

    env.deliver(letter, director=lambda point: Move.LOSE if point.what == "claim" and next(lost, False) else Move.PASS)

    text = env.timeline.text()
    assert "the response is lost: claim" in text
    assert "claim: refused" in text
    assert (env.records()[0].status, env.records()[0].attempts) == ("completed", 1)


def test_an_effect_that_fails_did_not_happen(
    env: Environment, charge: JobType[..., Any], gateway: EffectRecorder
) -> None:
    """It raises a ConnectionError, as a provider that is down does."""
    letter = env.enqueue(charge, {"cents": 1}, key="k")

    delivered = env.deliver(letter, director=lambda point: Move.FAIL if point.call is None else Move.PASS)

    assert delivered.kept == [letter.message_id]
    assert gateway.calls == []
    assert "EffectFailed: charge: the provider is down" in env.timeline.text()


def test_a_worker_moves_from_point_to_point(
    env: Environment, charge: JobType[..., Any], gateway: EffectRecorder
) -> None:
    """Nothing happens while it stands; what happens next is its point."""
    worker, delivered = env.start(env.enqueue(charge, {"cents": 1}, key="k"))
    passed = []
    while worker.point is not None:
        passed.append(worker.point.what)
        counted = gateway.count()
        assert not worker.is_over
        worker.go()
        assert gateway.count() == counted + (passed[-1] == "effect charge")

    assert passed == ["claim", "effect charge", "record step charge", "complete", "the answer"]
    assert (worker.answer, worker.error) == ({"batchItemFailures": []}, None)
    assert worker.is_over
    worker.go()  # nothing any more
    assert delivered.answer == worker.answer


def test_two_workers_meet_in_a_chosen_order(env: Environment, charge: JobType[..., Any]) -> None:
    """The second comes while the first stands before its effect: it is deferred, and the first goes on."""
    letter = env.enqueue(charge, {"cents": 1}, key="k")
    first, _ = env.start(letter)
    first.go()
    second, deferred = env.start(env.mailbox.duplicate(letter))

    second.finish()
    first.finish()

    assert deferred.kept == ["00000000-0000-4000-8000-000000000002"]
    assert [start.worker for start in env.seen.starts] == ["w1"]
    assert env.records()[0].status == "completed"


def test_a_worker_is_abandoned_where_it_stands(env: Environment, charge: JobType[..., Any]) -> None:
    """As a process that was killed: nothing of it happens any more."""
    worker, delivered = env.start(env.enqueue(charge, {"cents": 1}, key="k"))
    worker.go()

    worker.abandon()

    assert isinstance(worker.error, Crash)
    assert delivered.answer is None
    assert env.records()[0].status == "processing"
    assert "dies before: effect charge" in env.timeline.text()


@pytest.mark.parametrize(("move", "applied"), [(Move.CRASH, 0), (Move.CRASH_AFTER, 1), (Move.LOSE, 1)])
def test_a_worker_dies_before_or_after_a_request_or_loses_its_response(
    env: Environment, charge: JobType[..., Any], move: Move, applied: int
) -> None:
    """At the claim: it stands in the table or it does not."""
    worker, _ = env.start(env.enqueue(charge, {"cents": 1}, key="k"))

    worker.go(move)

    assert len(env.records()) == applied
    assert worker.is_over is (move is not Move.LOSE)
    worker.abandon()


def test_an_async_job_has_points_too(nowhere: Path, gateway: EffectRecorder) -> None:
    """On an event loop of its process alone: one that stands still holds nobody up."""

    @job("asynchronous", max_duration=5)
    async def asynchronous(_payload: dict[str, Any], ctx: Context) -> Any:
        await asyncio.sleep(0)
        return await asyncio.to_thread(gateway.charge, idempotency_key=ctx.idempotency_key_for("charge"))

    with environment(App([asynchronous])) as env:
        letter = env.enqueue(asynchronous, {}, key="k")
        first, _ = env.start(letter)
        first.go()
        assert first.point == Point("effect charge")

        assert env.deliver(env.mailbox.duplicate(letter)).kept
        first.finish()
        env.drain()

        assert (gateway.count(), env.records()[0].status) == (1, "completed")


def test_a_job_whose_threads_work_at_once_moves_one_of_them_at_a_time(nowhere: Path, gateway: EffectRecorder) -> None:
    """The points of all its threads come after each other, and all of them come."""

    @job("wide", max_duration=5)
    def wide(_payload: dict[str, Any]) -> int:
        with ThreadPoolExecutor(4) as pool:
            return len([*pool.map(lambda number: gateway.charge(idempotency_key=f"k-{number}"), range(4))])

    with environment(App([wide])) as env:
        worker, _ = env.start(env.enqueue(wide, {}, key="k"))
        points = []
        while worker.point is not None:
            points.append(worker.point.what)
            worker.go()

        assert points == ["claim", *["effect charge"] * 4, "complete", "the answer"]
        assert (gateway.count(), worker.error) == (4, None)


def test_a_worker_that_waits_for_another_is_found_out(nowhere: Path) -> None:
    """A lock of the job's own that a standing worker holds: the error says so, after the given patience."""
    lock = threading.Lock()

    @job("locking", max_duration=5)
    def locking(_payload: dict[str, Any]) -> None:
        with lock:
            boto3.client("dynamodb").list_tables()

    with environment(App([locking])) as env:
        first, _ = env.start(env.enqueue(locking, {}, key="a"))
        first.go()
        assert str(first.point and first.point.what) == "ListTables"
        second, _ = env.start(env.enqueue(locking, {}, key="b"), patience=1.0)

        with pytest.raises(NeverSettled, match=r"w2 waits for something that never comes.*only one worker moves"):
            second.go()

        first.finish()
        assert {record.status for record in env.records()} == {"completed", "processing"}


def test_what_a_client_does_without_a_request_is_no_point(env: Environment) -> None:
    """Only what its description of the service maps to an operation is one, by the operation's own name."""
    process = env.process()
    client = process.watched["dynamodb"]

    assert client.can_paginate("scan")
    assert "dynamodb" in client.meta.endpoint_url
    assert client.get_waiter("table_exists").name == "TableExists"
    assert env.timeline.entries == []
    client.describe_time_to_live(TableName="ClaimsTable")
    assert [entry.call and entry.call.operation for entry in env.timeline.entries] == ["DescribeTimeToLive"]
