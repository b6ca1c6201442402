"""The queues of an environment: what SQS does with messages, on the kit's clock."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from onceq import App, job
from onceq.testing import FrozenClock, Move, envelope, environment
from onceq.testing.contents import Contents, Place
from onceq.testing.mailbox import DEDUPLICATION_MS, Mailbox
from onceq.testing.plain import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceq import JobType
    from onceq.testing import Environment
    from onceq.testing.mailbox import Letter


@job("post_entry", queue="default", max_duration=5)
def post_entry(payload: dict[str, Any]) -> Any:
    """Return what came; without a number, fail."""
    return payload["n"]


@pytest.fixture
def fifo(nowhere: Path) -> Iterator[Environment]:
    """An ordered queue, of the kit's own template."""
    template = copy.deepcopy(PLAIN)
    for name in ("JobsQueue", "DeadLetterQueue"):
        template["Resources"][name]["Properties"] |= {"FifoQueue": True}
    template["Resources"]["JobsQueue"]["Properties"] |= {"DeduplicationScope": "messageGroup"}
    (nowhere / "template.yaml").write_text(json.dumps(template), encoding="utf-8")
    with environment(App([post_entry])) as opened:
        yield opened


def url_of(env: Environment, queue: str = "default") -> str:
    """Return a queue's URL."""
    return env.mailbox.place_of(queue).url


def named(letters: list[Letter]) -> list[str]:
    """Return the names of messages."""
    return [letter.name for letter in letters]


# ------------------------------------------------------------------------------------------------------ in order


def test_a_group_is_kept_in_order_behind_its_hidden_head(fifo: Environment) -> None:
    """While a message of a group is in flight or deferred nothing behind it comes; other groups go on."""
    for number, group in ((1, "a"), (2, "a"), (3, "b"), (4, "a")):
        fifo.enqueue(post_entry, {"n": number} if number != 1 else {}, group=group, key=f"k-{number}")
    mailbox = fifo.mailbox
    assert named(mailbox.due()) == ["m1", "m2", "m3", "m4"]

    fifo.deliver(mailbox.due()[0])  # it fails, and is deferred

    assert named(mailbox.due()) == ["m3"]
    assert named(fifo.letters()) == ["m1", "m2", "m3", "m4"]
    fifo.pass_time(600)
    assert named(mailbox.due()) == ["m1", "m2", "m3", "m4"]


def test_drain_delivers_a_group_in_the_order_of_sending(fifo: Environment) -> None:
    """Eleven messages are two batches; the order does not rest on moto."""
    for number in range(11):
        fifo.enqueue(post_entry, {"n": number}, group="a", key=f"k-{number}")

    assert fifo.drain() == 2

    assert [start.key for start in fifo.seen.starts] == [f"k-{number}" for number in range(11)]


def test_drain_waits_for_a_head_that_it_does_not_deliver(fifo: Environment) -> None:
    """What stands behind a hidden message of somebody else comes when that is visible again."""
    head, behind = (fifo.enqueue(post_entry, {"n": n} if n else {}, group="a", key=f"k-{n}") for n in (0, 1))
    fifo.deliver(head)

    assert fifo.drain(only=lambda letter: letter is behind) == 1

    assert fifo.letters() == [head]


@pytest.mark.parametrize(("later", "taken"), [(DEDUPLICATION_MS - 1, 0), (DEDUPLICATION_MS, 1)])
def test_a_deduplication_id_is_known_for_five_minutes(fifo: Environment, later: int, taken: int) -> None:
    """Also once its message was deleted, which moto forgets; and inside its group, where the queue says so."""
    sqs = boto3.client("sqs")

    def send(group: str) -> int:
        sqs.send_message(QueueUrl=url_of(fifo), MessageBody="x", MessageGroupId=group, MessageDeduplicationId="d-1")
        return len(fifo.letters())

    assert (send("a"), send("a"), send("b")) == (1, 1, 2)
    fifo.mailbox.letters.clear()
    fifo.clock.advance(later / 1000)

    assert send("a") == taken


def test_a_dead_letter_of_an_ordered_queue_keeps_its_group(fifo: Environment) -> None:
    """Redriven, it is in its group again, under a deduplication id of its own."""
    fifo.put("no JSON", group="a")
    fifo.drain()
    [dead] = fifo.dead_letters()

    again = fifo.redrive(dead)

    assert (dead.group, again.group, again.place.name) == ("a", "a", "JobsQueue.fifo")
    ids = {letter.message["Attributes"]["MessageDeduplicationId"] for letter in (dead, again)}
    assert len(ids) == 2


# ------------------------------------------------------------------------------------------------------- delays


def test_a_delayed_message_becomes_visible_in_its_time(env: Environment, charge: JobType[..., Any]) -> None:
    """The producer's delay, and that of somebody's own client: both on the frozen clock."""
    now = env.clock.now_ms()
    env.enqueue(charge, {"cents": 1}, key="a", delay=60)
    boto3.client("sqs").send_message(QueueUrl=url_of(env), MessageBody="x", DelaySeconds=90)
    boto3.client("sqs").send_message_batch(
        QueueUrl=url_of(env), Entries=[{"Id": "1", "MessageBody": "x", "DelaySeconds": 30}]
    )

    assert [letter.visible_at - now for letter in env.letters()] == [60_000, 90_000, 30_000]
    assert env.mailbox.due() == []
    env.pass_time(60)
    assert named(env.mailbox.due()) == ["m1", "m3"]


def test_a_queues_own_delay_counts_where_a_message_has_none(nowhere: Path, charge: JobType[..., Any]) -> None:
    """As ``DelaySeconds`` of the template's queue says."""
    template = copy.deepcopy(PLAIN)
    template["Resources"]["JobsQueue"]["Properties"]["DelaySeconds"] = 20
    (nowhere / "template.yaml").write_text(json.dumps(template), encoding="utf-8")
    with environment(App([charge])) as env:
        now = env.clock.now_ms()
        letters = [env.enqueue(charge, {"cents": 1}, key="a", delay=delay) for delay in (0, 5)]

        assert [letter.visible_at - now for letter in letters] == [20_000, 5_000]


# ------------------------------------------------------------------------------------------ receipts and visibility


def test_receives_are_counted_and_only_the_newest_receipt_handle_counts(env: Environment) -> None:
    """A message that was received again is neither deleted nor deferred by an older handle."""
    letter = env.put("x")
    first = env.mailbox.receive([letter])["Records"][0]
    env.pass_time(1)
    second = env.mailbox.receive([letter])["Records"][0]
    visible_at = letter.visible_at

    assert [one["attributes"]["ApproximateReceiveCount"] for one in (first, second)] == ["1", "2"]
    times = {one["attributes"]["ApproximateFirstReceiveTimestamp"] for one in (first, second)}
    assert times == {str(env.clock.now_ms() - 1000)}
    assert env.mailbox.settle({"Records": [first]}, None) == []
    assert not env.mailbox.hide(first["receiptHandle"], 5)
    assert letter.visible_at == visible_at
    assert env.mailbox.hide(second["receiptHandle"], 0)
    assert env.mailbox.due() == [letter]
    assert env.mailbox.settle({"Records": [second]}, {"batchItemFailures": []}) == [letter]
    assert env.mailbox.deleted == [letter]


def test_anybodys_client_sees_the_same_queues(env: Environment) -> None:
    """Receiving, deferring and deleting with boto3: one at a time and in batches, by the kit's clock."""
    sqs, url = boto3.client("sqs"), url_of(env)
    for body in ("a", "b", "c"):
        sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageAttributes={"n": {"DataType": "Number", "StringValue": "1"}}
        )

    first = sqs.receive_message(QueueUrl=url)["Messages"]
    others = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=7)["Messages"]

    assert [message["Body"] for message in [*first, *others]] == ["a", "b", "c"]
    assert first[0]["MessageAttributes"]["n"]["StringValue"] == "1"
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    handles = [message["ReceiptHandle"] for message in [*first, *others]]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[0], VisibilityTimeout=0)
    [again] = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[0], VisibilityTimeout=0)  # too old
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    entries = [{"Id": str(n), "ReceiptHandle": handle, "VisibilityTimeout": 9} for n, handle in enumerate(handles[:2])]
    changed = sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert ([one["Id"] for one in changed["Successful"]], [one["Id"] for one in changed["Failed"]]) == (["1"], ["0"])
    env.pass_time(8)
    assert [letter.body for letter in env.mailbox.due()] == ["c"]
    sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": "1", "ReceiptHandle": handles[2]}])
    assert [letter.body for letter in env.letters()] == ["b"]


def test_what_was_received_too_often_moves_to_its_dead_letter_queue(nowhere: Path, charge: JobType[..., Any]) -> None:
    """As the redrive policy says: when it would be received once more, with the queue that it came from."""
    template = copy.deepcopy(PLAIN)
    template["Resources"]["JobsQueue"]["Properties"]["RedrivePolicy"]["maxReceiveCount"] = 2
    (nowhere / "template.yaml").write_text(json.dumps(template), encoding="utf-8")
    with environment(App([charge])) as env:
        letter = env.put(envelope("unknown", {}, key="k"))
        for _ in range(2):
            env.redeliver(letter)
        assert env.dead_letters() == []  # in flight
        before, sent = letter.message_id, letter.message["Attributes"]["SentTimestamp"]

        env.pass_time(91)

        assert env.dead_letters() == [letter]
        # It is the same message there: the next receive counts on.
        assert (letter.message_id, letter.message["Attributes"]["SentTimestamp"]) == (before, sent)
        [dead] = env.mailbox.received([letter])
        assert dead["Attributes"]["ApproximateReceiveCount"] == "3"
        env.pass_time(100)
        assert env.dead_letters() == [letter]
        [again] = env.mailbox.received([env.redrive(letter)])
        # A redrive makes a new one of it.
        assert again["MessageId"] != before
        assert again["Attributes"]["ApproximateReceiveCount"] == "1"
        assert int(again["Attributes"]["SentTimestamp"]) == env.clock.now_ms()
        assert "DeadLetterQueueSourceArn" not in again["Attributes"]
        assert letter.message["Attributes"]["DeadLetterQueueSourceArn"] == env.mailbox.place_of("default").arn
        assert letter.attributes == {}  # nobody had a reason to write


def test_a_message_has_the_same_name_and_id_in_every_run(env: Environment, charge: JobType[..., Any]) -> None:
    """Pictures can be compared; `skip` gives the next one another id, to see what depends on it."""

    def ids() -> tuple[str, str]:
        letter = env.enqueue(charge, {"cents": 1}, key="k")
        return letter.message_id, env.mailbox.duplicate(letter).message_id

    first = ids()
    env.reset()
    assert ids() == first
    env.reset()
    env.mailbox.skip()
    assert ids()[0] == first[1]


def test_two_enqueues_of_one_run_are_two_messages_on_an_ordered_queue(fifo: Environment) -> None:
    """The producer makes a fresh deduplication id for each call, in an environment too."""
    fifo.enqueue(post_entry, {"n": 1}, group="a", key="k")
    fifo.enqueue(post_entry, {"n": 1}, group="a", key="k")

    assert len(fifo.letters()) == 2


def test_a_replaced_message_comes_under_another_id_alone(env: Environment) -> None:
    """As after a redrive."""
    letter = env.put("x", attributes={"a": "1"})

    other = env.mailbox.replace(letter)

    assert env.letters() == [other]
    assert (other.body, other.attributes, other.message_id != letter.message_id) == ("x", {"a": "1"}, True)


def test_buckets_are_brought_back_too(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that was overwritten has its content again, and a later one is gone."""
    template = copy.deepcopy(PLAIN)
    template["Resources"]["Reports"] = {"Type": "AWS::S3::Bucket"}
    (nowhere / "template.yaml").write_text(json.dumps(template), encoding="utf-8")
    with environment() as env:
        s3 = boto3.client("s3")
        s3.put_object(Bucket="reports", Key="a", Body=b"first", ContentType="text/plain")
        env.keep()
        for _ in range(2):
            s3.put_object(Bucket="reports", Key="a", Body=b"second")
            s3.put_object(Bucket="reports", Key="b", Body=b"second")

            env.reset()

            kept = s3.get_object(Bucket="reports", Key="a")
            assert (kept["Body"].read(), kept["ContentType"]) == (b"first", "text/plain")
            assert s3.list_objects_v2(Bucket="reports")["KeyCount"] == 1
            s3.delete_object(Bucket="reports", Key="a")
            env.reset()


def test_a_table_that_was_made_later_is_empty_after_a_reset(env: Environment) -> None:
    """It stays, since the job may need it."""
    dynamodb = boto3.client("dynamodb")
    kept = Contents()
    dynamodb.create_table(
        TableName="later",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.put_item(TableName="later", Item={"pk": {"S": "x"}})

    kept.restore()

    assert env.stock("later") == []
    assert "later" in dynamodb.list_tables()["TableNames"]


def test_a_queue_says_what_it_is() -> None:
    """By its name, as SQS does."""
    assert Place("a.fifo", "", "").is_fifo
    assert not Place("a", "", "").is_fifo
    assert Place("a", "", "", timeout=3).is_consumed
    assert not Place("a", "", "").is_consumed


def test_large_payloads_go_through_the_templates_bucket(
    monkeypatch: pytest.MonkeyPatch, charge: JobType[..., Any]
) -> None:
    """With the parameter that switches it on; the job gets the payload whole."""
    monkeypatch.chdir(__file__.rpartition("/tests/")[0])
    with environment(App([charge]), parameters={"PayloadBucketEnabled": "true"}) as env:
        letter = env.enqueue(charge, {"cents": 3, "large": "x" * 1_200_000}, key="k")

        assert len(letter.body) < 1000
        assert env.deliver(letter).kept == []
        assert env.settings.payload_bucket
        assert "GetObject" in env.timeline.text()


def mailbox_of(*places: Place) -> Mailbox:
    """Return queues without an environment."""
    return Mailbox(FrozenClock(), places)


STANDARD = Place("q", "", "arn:q", dlq_arn="arn:dlq", most_receives=2)
DEAD = Place("dlq", "", "arn:dlq")


def test_a_queue_counts_the_receives_of_its_own() -> None:
    """What came to a dead-letter queue, which has one of its own, may be received there as often as that one says."""
    last = Place("last", "", "arn:last")
    mailbox = mailbox_of(STANDARD, Place("dlq", "", "arn:dlq", dlq_arn="arn:last", most_receives=1), last)
    letter = mailbox.put(STANDARD, "x")
    for _ in range(2):
        mailbox.received([letter], 0)
    mailbox.move_dead()
    assert letter.place.arn == "arn:dlq"

    mailbox.move_dead()
    assert letter.place.arn == "arn:dlq"
    mailbox.received([letter], 0)
    mailbox.move_dead()

    assert (letter.place, letter.receives) == (last, 3)


def test_an_ordered_dead_letter_is_sent_anew_under_its_message_id() -> None:
    """Its time of sending begins again there, and what it is deduplicated by is its message id."""
    source = Place("q.fifo", "", "arn:q.fifo", dlq_arn="arn:dlq.fifo", most_receives=1)
    mailbox = mailbox_of(source, Place("dlq.fifo", "", "arn:dlq.fifo"))
    letter = mailbox.put(source, "x")
    mailbox.received([letter], 0)
    mailbox.clock.advance(60)

    mailbox.move_dead()

    system = letter.message["Attributes"]
    assert int(system["SentTimestamp"]) == mailbox.clock.now_ms()
    assert system["MessageDeduplicationId"] == letter.message_id


@pytest.mark.parametrize(("troubled", "used_up"), [(set(), False), ({1}, False), ({1, 2}, True)])
def test_receives_are_used_up_when_each_of_them_met_a_fault(troubled: set[int], used_up: bool) -> None:  # noqa: FBT001 - a case
    """Of the message that the queue moved, and of a copy that its consumer sent instead."""
    mailbox = mailbox_of(STANDARD, DEAD)
    letter = mailbox.put(STANDARD, "x")
    letter.troubled = troubled
    mailbox.received([letter, letter], 0)
    copy, other = mailbox.put(DEAD, "x"), mailbox.put(DEAD, "y")

    assert mailbox.is_used_up(copy) is used_up
    mailbox.move_dead()

    assert letter.source == STANDARD
    assert mailbox.is_used_up(letter) is used_up
    assert not mailbox.is_used_up(other)


def test_faults_are_counted_by_receive(env: Environment, charge: JobType[..., Any]) -> None:
    """Of the messages that were in the invocation; one in which nothing goes wrong counts nothing."""
    letter = env.enqueue(charge, {"cents": 1}, key="k")
    fails = {"effect charge": Move.FAIL}

    env.deliver(letter, director=lambda point: fails.get(point.what, Move.PASS))
    env.redeliver(letter, director=lambda point: Move.CRASH if point.call else Move.PASS)
    assert letter.troubled == {1, 2}
    env.pass_time(1000)
    env.drain()

    assert (letter.troubled, letter.receives > 2) == ({1, 2}, True)


def test_a_message_that_comes_while_it_is_in_flight_makes_two_receives_useless(
    env: Environment, charge: JobType[..., Any]
) -> None:
    """The first cannot acknowledge it any more, and the second finds it claimed."""
    letter = env.enqueue(charge, {"cents": 1}, key="k")
    first, _ = env.start(letter)
    first.go()

    env.redeliver(letter)
    first.finish()
    env.pass_time(1000)
    env.redeliver(letter)

    assert (letter.troubled, letter.receives) == ({1, 2}, 3)
    env.redeliver(letter)  # acknowledged meanwhile: nobody has it
    assert (letter.troubled, letter.receives) == ({1, 2}, 4)
