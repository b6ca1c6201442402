"""Locked moto: one winner in this process, and a server that never outlives its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

from onceq.local import AWS_VARIABLES, MotoServer, child_environment, embedded_moto, serialise_moto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THREADS = 8
ROUNDS = 30
WIDE_GAP = (
    "import time; from moto.dynamodb.models.table import Table as T; get = T.get_item; "
    "T.get_item = lambda *given, **more: (get(*given, **more), time.sleep(0.05))[0]"
)


@contextmanager
def racing() -> Iterator[None]:
    """Let threads take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def at_once(call: Callable[[int], object], threads: int = THREADS) -> list[object]:
    """Call from many threads, all of them held at a barrier; return what each returned or raised."""
    barrier = threading.Barrier(threads)
    answers: list[object] = [None] * threads

    def run(number: int) -> None:
        barrier.wait()
        try:
            answers[number] = call(number)
        except Exception as error:  # noqa: BLE001 - moto without its lock raises anything
            answers[number] = error

    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return answers


@pytest.fixture
def dynamodb() -> Iterator[Any]:
    """A table on locked moto in this process."""
    with embedded_moto():
        client = boto3.client("dynamodb")
        make_table(client)
        yield client


def make_table(client: Any) -> None:
    """Create a table of one key."""
    client.create_table(
        TableName="T",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def winners(answers: list[object]) -> int:
    """Count the calls that succeeded; the others must be refusals."""
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    codes = {error.response["Error"]["Code"] if isinstance(error, ClientError) else repr(error) for error in errors}
    assert codes <= {"ConditionalCheckFailedException", "TransactionCanceledException"}
    return len(answers) - len(errors)


def test_one_put_if_absent_wins(dynamodb: Any) -> None:
    """Of racing puts on attribute_not_exists one is let through, as DynamoDB promises."""
    with racing():
        for number in range(ROUNDS):

            def put(thread: int, key: str = f"k-{number}") -> None:
                item = {"pk": {"S": key}, "by": {"N": str(thread)}}
                dynamodb.put_item(TableName="T", Item=item, ConditionExpression="attribute_not_exists(pk)")

            assert winners(at_once(put)) == 1


def test_one_conditional_update_wins(dynamodb: Any) -> None:
    """Of racing updates on one version one is let through."""
    dynamodb.put_item(TableName="T", Item={"pk": {"S": "k"}, "version": {"N": "0"}})
    with racing():
        for number in range(ROUNDS):

            def update(thread: int, version: int = number) -> None:
                dynamodb.update_item(
                    TableName="T",
                    Key={"pk": {"S": "k"}},
                    UpdateExpression="SET version = :next",
                    ConditionExpression="version = :seen",
                    ExpressionAttributeValues={":seen": {"N": str(version)}, ":next": {"N": str(version + 1)}},
                )

            assert winners(at_once(update)) == 1


def test_one_transaction_wins_and_nobody_elses_writes_are_lost(dynamodb: Any) -> None:
    """A failing transaction takes nothing back that others wrote."""
    rounds = 10
    with racing():
        for number in range(rounds):

            def transact(thread: int, key: str = f"k-{number}") -> None:
                put = {"Item": {"pk": {"S": key}}, "ConditionExpression": "attribute_not_exists(pk)"}
                count = {
                    "Key": {"pk": {"S": "count"}},
                    "UpdateExpression": "ADD n :one",
                    "ExpressionAttributeValues": {":one": {"N": "1"}},
                }
                writes = [{"Put": {"TableName": "T", **put}}, {"Update": {"TableName": "T", **count}}]
                dynamodb.transact_write_items(TransactItems=writes)
                dynamodb.put_item(TableName="T", Item={"pk": {"S": f"{key}-winner"}})

            assert winners(at_once(transact)) == 1
    items = dynamodb.scan(TableName="T")["Items"]
    assert len(items) == 2 * rounds + 1
    assert [item["n"]["N"] for item in items if "n" in item] == [str(rounds)]


def test_a_message_sent_while_others_are_deleted_is_not_lost() -> None:
    """G4 needs a queue that keeps its messages: moto's deletes write a filtered copy of the whole queue back."""
    with embedded_moto():
        sqs = boto3.client("sqs")
        url = sqs.create_queue(QueueName="Q")["QueueUrl"]
        each = 12

        def send_or_delete(thread: int) -> None:
            for number in range(each):
                sqs.send_message(QueueUrl=url, MessageBody=f"{thread}-{number}")
                if thread % 2:
                    for message in sqs.receive_message(QueueUrl=url).get("Messages", []):
                        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                        deleted.append(message["Body"])

        deleted: list[str] = []
        with racing():
            assert at_once(send_or_delete) == [None] * THREADS
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        left = int(attributes["ApproximateNumberOfMessages"]) + int(attributes["ApproximateNumberOfMessagesNotVisible"])
        assert (left + len(deleted), len(set(deleted))) == (THREADS * each, len(deleted))


def test_a_long_poll_does_not_hold_the_lock() -> None:
    """A receive that waits lets others send, and returns what they sent."""
    with embedded_moto():
        sqs = boto3.client("sqs")
        url = sqs.create_queue(QueueName="Q")["QueueUrl"]

        def poll_or_send(thread: int) -> object:
            if thread:
                return sqs.send_message(QueueUrl=url, MessageBody="hello")["MessageId"]
            return sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"][0]["MessageId"]

        received, sent = at_once(poll_or_send, threads=2)
        assert received == sent


def test_locking_moto_twice_changes_nothing() -> None:
    """Whoever needs it calls it; two locks around each other would cost twice."""
    from moto.dynamodb.responses import DynamoHandler

    serialise_moto()
    first = DynamoHandler.call_action
    serialise_moto()
    assert DynamoHandler.call_action is first


def test_embedded_moto_hides_real_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local run cannot reach AWS: the shell's own credentials and endpoint are gone inside, and back after."""
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with embedded_moto():
        assert "AWS_PROFILE" not in os.environ
        assert "AWS_ENDPOINT_URL" not in os.environ
        assert boto3.client("sqs").list_queues().get("QueueUrls", []) == []
    assert os.environ["AWS_PROFILE"] == "production"


def test_the_server_answers_on_127_0_0_1_and_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is there inside the block, locked, and gone after it."""
    with MotoServer() as server:
        pid = server.pid
        assert pid is not None
        assert server.endpoint.startswith("http://127.0.0.1:")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        sqs = boto3.client("sqs")
        url = sqs.create_queue(QueueName="Q")["QueueUrl"]
        assert url.startswith(server.endpoint)
    assert not is_running(pid)


def test_the_server_is_locked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child serialises requests before it serves: of racing updates over HTTP one is let through.

    moto's gap between condition and write is widened in the child, so that a missing lock is sure to be seen.
    """
    monkeypatch.setattr("onceq.local.SERVE", f"{WIDE_GAP}; from onceq.local import serve_moto; serve_moto()")
    with MotoServer() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        dynamodb = boto3.client("dynamodb")
        make_table(dynamodb)
        for number in range(3):

            def put(thread: int, key: str = f"k-{number}") -> None:
                dynamodb.put_item(
                    TableName="T", Item={"pk": {"S": key}}, ConditionExpression="attribute_not_exists(pk)"
                )

            assert winners(at_once(put)) == 1


def test_a_long_poll_behind_a_group_in_flight_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is visible, and behind one of its group that is in flight, is looked for now and then."""
    with embedded_moto():
        sqs = boto3.client("sqs")
        url = sqs.create_queue(QueueName="a.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        for number in range(2):
            sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g", MessageDeduplicationId=str(number))
        assert len(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1)["Messages"]) == 1
        looks = count_looks(monkeypatch)

        assert "Messages" not in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)
        assert 1 < len(looks) < 30


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets an entry whenever moto looks into a queue."""
    from moto.sqs.models import Queue

    looks: list[str] = []
    messages = Queue.messages.fget  # type: ignore[attr-defined]  # a property

    def looked(queue: Any) -> Any:
        looks.append(queue.name)
        return messages(queue)

    monkeypatch.setattr(Queue, "messages", property(looked))
    return looks


def test_the_server_ends_when_its_parent_is_killed() -> None:
    """No orphan: a parent that dies without a word takes the server with it."""
    program = (
        "from onceq.local import MotoServer\n"
        "import os, signal\n"
        "server = MotoServer().__enter__()\n"
        "print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", program],
        env=child_environment(os.environ | AWS_VARIABLES),
        stdout=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    pid = int(parent.stdout)
    end = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < end, "the server outlived its parent"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Say whether a process is there and no zombie."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
