"""Processes that are watched: a job's own requests, its threads, and workers that move one step at a time."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.httpsession import URLLib3Session
from pynamodb.attributes import UnicodeAttribute
from pynamodb.models import Model

from onceq import App, ConfigurationError, Context, job
from onceq.testing import Crash, Move, NeverSettled, Point, environment
from onceq.testing.calls import Call
from onceq.testing.directors import go_in_step
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

    delivered = env.deliver(letter, director=lambda point: Move.FAIL if point.effect == "charge" else Move.PASS)

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
        assert first.point == Point("effect charge", effect="charge")

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


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have gone to the real AWS: nothing goes."""
    urls: list[str] = []

    def send(_session: Any, request: Any) -> Any:
        urls.append(request.url)
        raise ConnectionError(request.url)

    monkeypatch.setattr(URLLib3Session, "send", send)
    return urls


@pytest.mark.parametrize("ends", ["block", "reset"])
def test_a_worker_that_still_stands_at_the_end_reaches_no_aws(
    nowhere: Path, gateway: EffectRecorder, sent: list[str], ends: str
) -> None:
    """Its job's ``finally`` runs where the process is dead: what it sends there is stopped."""
    raised: list[BaseException] = []

    @job("tidy", max_duration=5)
    def tidy(_payload: dict[str, Any]) -> None:
        client = boto3.client("dynamodb")
        try:
            gateway.charge(1)
        finally:
            try:
                client.list_tables()
            except BaseException as error:
                raised.append(error)
                raise

    with environment(App([tidy])) as env:
        worker, _ = env.start(env.enqueue(tidy, {}, key="k"))
        worker.go()
        assert worker.point is not None
        assert worker.point.what == "effect charge"
        if ends == "reset":
            env.reset()

    assert (worker.is_over, gateway.count(), sent) == (True, 0, [])
    assert [type(error) for error in raised] == [Crash]


@pytest.mark.parametrize("way", ["itself", "by a thread", "by a pool"])
def test_a_worker_that_was_given_up_reaches_no_aws_when_it_wakes(nowhere: Path, sent: list[str], way: str) -> None:
    """Its environment is closed by then, and with it the moto that answered: whatever it does, it does not send."""
    wakes, over = threading.Event(), threading.Event()
    raised: list[type[BaseException]] = []
    pool = ThreadPoolExecutor(1)

    @job("stuck", max_duration=5)
    def stuck(_payload: dict[str, Any]) -> None:
        client = boto3.client("dynamodb")
        wakes.wait()
        try:
            if way == "by a thread":
                thread = threading.Thread(target=client.list_tables)
                thread.start()
                thread.join()
            elif way == "by a pool":
                pool.submit(client.list_tables).result()
            else:
                client.list_tables()
        except BaseException as error:
            raised.append(type(error))
            raise
        finally:
            over.set()

    with environment(App([stuck])) as env:
        worker, _ = env.start(env.enqueue(stuck, {}, key="k"), patience=0.2)
        with pytest.raises(NeverSettled):
            worker.go()
    wakes.set()

    assert over.wait(10)
    assert (raised, sent) == ([Crash], [])
    pool.shutdown()


def test_what_no_process_does_is_sent_after_a_block_as_before(nowhere: Path, sent: list[str]) -> None:
    """Whoever opened an environment has the AWS of their own back: requests, threads and pools."""
    with environment(App([])):
        pass
    given = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "config": Config(retries={"max_attempts": 0})}
    client = boto3.client("dynamodb", region_name="eu-west-1", **given)

    with pytest.raises(ConnectionError), ThreadPoolExecutor(1) as pool:
        pool.submit(client.list_tables).result()

    assert set(sent) == {"https://dynamodb.eu-west-1.amazonaws.com/"}


def test_workers_in_step_that_never_end_are_given_up(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """One spins on a lock that nobody releases: after a number of points together it is said which."""
    monkeypatch.setattr("onceq.testing.directors.MOST_POINTS", 40)
    spun: list[str] = []

    class Spinning:
        """Takes a lock that it never gives back, and asks for it again and again."""

        def handler(self, process: Any, _seen: Any) -> Any:
            def handle(_event: dict[str, Any], _context: Any) -> None:
                process.reach(Point("the lock"))
                while len({process.name, *spun}) > 1:
                    process.reach(Point("the lock"))
                spun.append(process.name)

            return handle

        def relay(self, _process: Any, _seen: Any) -> None:
            """Return nothing."""

    env.use(Spinning())
    workers = [env.start(env.put("x"))[0] for _ in range(2)]

    with pytest.raises(NeverSettled, match=r"w2 came by 40 points together with the others: is it polling\?"):
        go_in_step(workers)

    assert [worker.is_over for worker in workers] == [True, False]


@pytest.mark.parametrize(
    ("move", "what", "told"),
    [
        (Move.FAIL, "claim", "Move.FAIL does nothing at 'claim': only an effect fails, where point.effect is its name"),
        (Move.FAIL, "the answer", "Move.FAIL does nothing at 'the answer': only an effect fails"),
        (Move.LOSE, "the answer", "Move.LOSE does nothing at 'the answer': only a request or an effect has a response"),
    ],
)
def test_a_move_that_does_nothing_at_a_point_is_an_error(
    env: Environment, charge: JobType[..., Any], move: Move, what: str, told: str
) -> None:
    """A test that lets something go wrong, and in which nothing does, would pass and show nothing."""
    letter = env.enqueue(charge, {"cents": 1}, key="k")

    with pytest.raises(ConfigurationError, match=told):
        env.deliver(letter, director=lambda point: move if point.what == what else Move.PASS)


def test_a_point_says_which_effect_it_is(env: Environment, charge: JobType[..., Any]) -> None:
    """By the name that the recorder has for it; a request, and the answer, is none."""
    points: list[Point] = []

    def note(point: Point) -> Move:
        points.append(point)
        return Move.PASS

    env.deliver(env.enqueue(charge, {"cents": 1}, key="k"), director=note)

    assert [(point.effect, point.is_effect) for point in points if point.is_effect] == [("charge", True)]
    assert [point.what for point in points if not point.effect] == [
        "claim",
        "record step charge",
        "complete",
        "the answer",
    ]


@pytest.mark.parametrize(
    ("service", "operation", "is_write"),
    [
        ("sns", "Publish", True),
        ("lambda", "Invoke", True),
        ("stepfunctions", "StartExecution", True),
        ("events", "PutEvents", True),
        ("s3", "CopyObject", True),
        ("s3", "HeadObject", False),
        ("dynamodb", "BatchWriteItem", True),
        ("dynamodb", "BatchGetItem", False),
        ("dynamodb", "TransactGetItems", False),
        ("dynamodb", "Query", False),
        ("dynamodb", "ExecuteStatement", True),
        ("sqs", "ReceiveMessage", False),
        ("kms", "Decrypt", False),
    ],
)
def test_what_does_more_than_read_may_lose_its_response(service: str, operation: str, is_write: bool) -> None:  # noqa: FBT001 - a table's column
    """Whatever the service: only what is known to look something up by its name changes nothing."""
    call = Call(service, operation, {})

    assert Point(str(call), call).may_lose is is_write


def test_another_consumers_own_client_is_not_told_in_the_frameworks_words(env: Environment) -> None:
    """Its writes to the table are no claim of the framework's, whichever client makes them."""

    class ByHand:
        """A consumer that writes to the claims table with a client of its own."""

        def handler(self, process: Any, _seen: Any) -> Any:
            process.claims_table = ""

            def handle(_event: dict[str, Any], _context: Any) -> None:
                boto3.client("dynamodb").put_item(TableName="ClaimsTable", Item={"pk": {"S": "o-1"}})

            return handle

        def relay(self, _process: Any, _seen: Any) -> None:
            """Return nothing."""

    env.use(ByHand()).deliver(env.put("x"))

    assert [entry.what for entry in env.timeline.entries if entry.kind is Kind.CALL] == [
        "PutItem ClaimsTable o-1, no condition"
    ]
