"""The producer: keys, batches, partial failures, and everything that is refused before it is sent."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import (
    ConfigurationError,
    EnqueueFailed,
    EnqueueRefused,
    Entry,
    JobType,
    Producer,
    job,
)
from onceq.errors import QueueError
from onceq.message import seal
from onceq.queue import MAX_BYTES, Queue
from onceq.runtime import Runtime
from onceq.settings import QueueSettings, Settings

if TYPE_CHECKING:
    from kit.world import World
    from onceq.clock import Deadline

SRC = Path(__file__).resolve().parents[2] / "src"


@dataclasses.dataclass(frozen=True)
class Order:
    order_id: str
    amount: int = 1


class OrderModel(pydantic.BaseModel):
    order_id: str


def ran(payload: Any) -> Any:
    """Return what it got."""
    return payload


@job("pay")
def pay(payload: Order) -> str:
    """Return the order's id."""
    return payload.order_id


@job("derived", key="order_id")
def derived(payload: Order) -> None:
    """Do nothing."""


@job("ordered", queue="ordered")
def ordered(payload: dict[str, Any]) -> None:
    """Do nothing."""


def received(world: World, name: str = "JobsQueue") -> list[dict[str, Any]]:
    """Receive what lies in a queue, in the order it was sent."""
    url = world.sqs.get_queue_url(QueueName=name)["QueueUrl"]
    found: list[dict[str, Any]] = []
    while True:
        messages = world.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        ).get("Messages", [])
        if not messages:
            return found
        found += messages
        for message in messages:
            world.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_a_job_is_sent_in_an_envelope_with_its_key(world: World) -> None:
    """The wire format: version, job type, key, payload and time; the key and SQS's id come back."""
    sent = world.app(pay).enqueue(pay, Order("o-1", 500), key="o-1")

    (message,) = received(world)
    assert (sent.key, sent.message_id) == ("o-1", message["MessageId"])
    assert json.loads(message["Body"]) == {
        "onceq": 1,
        "job_type": "pay",
        "idempotency_key": "o-1",
        "payload": {"order_id": "o-1", "amount": 500},
        "created_at": "2026-11-29T12:00:00.000Z",
    }


def test_what_was_sent_is_what_the_job_gets(world: World) -> None:
    """From enqueue to the job: the typed payload arrives, and its first duplicate is a replay."""
    app = world.app(pay)
    app.enqueue(pay, Order("é😀\ufffe"), key=7)
    (message,) = received(world)

    for _ in range(2):
        assert kept(app.consumer(event_of(world.raw(message["Body"])), FakeLambdaContext())) == []

    status = app.lookup(pay, 7)
    assert status is not None
    assert (status.key, status.result, status.attempts) == ("7", "é😀\ufffe", 1)


@pytest.mark.parametrize(
    ("given", "options", "key"),
    [
        ("derived", {}, "o-1"),
        (derived, {}, "o-1"),
        (derived, {"key": "other"}, "other"),
        (derived, {"key": 0}, "0"),
    ],
)
def test_a_key_is_the_callers_or_derived(world: World, given: Any, options: dict[str, Any], key: str) -> None:
    """The caller's key wins; without one the job type's ``key=`` selects it from the payload."""
    assert world.app(derived).enqueue(given, {"order_id": "o-1"}, **options).key == key


def test_a_key_is_made_once_where_none_is_given(world: World) -> None:
    """Two calls are two jobs; the key is stamped into the body, so every delivery of one carries the same."""
    app = world.app(pay)
    keys = [app.enqueue(pay, Order("o-1")).key for _ in range(3)]

    assert len(set(keys)) == 3
    assert {uuid.UUID(key).version for key in keys} == {7}
    assert [json.loads(message["Body"])["idempotency_key"] for message in received(world)] == keys


@pytest.mark.parametrize("payload", [{"order_id": "o-1"}, Order("o-1"), OrderModel(order_id="o-1")], ids=type)
def test_a_payload_may_be_any_form_that_fits(world: World, payload: Any) -> None:
    """A dict, a dataclass and a pydantic model are the same message."""
    world.app(pay).enqueue("pay", payload, key="k")

    assert json.loads(received(world)[0]["Body"])["payload"]["order_id"] == "o-1"


@pytest.mark.parametrize("delay", [900, 899.5, timedelta(minutes=15)])
def test_a_delay_is_passed_on_in_whole_seconds(world: World, delay: Any) -> None:
    """Up to 900 seconds, rounded up: never earlier than was asked."""
    app = world.app(pay)
    app.enqueue(pay, Order("o-1"), delay=delay)

    assert received(world) == []
    (entry,) = [app._producer.sealer.seal(Entry(pay, Order("o-1"), delay=delay))]
    assert entry.request["DelaySeconds"] == 900


def refusals() -> dict[str, tuple[dict[str, Any], str]]:
    """Return what is refused: the arguments of enqueue, and the reason."""
    order = {"order_id": "o-1"}
    return {
        "NaN": ({"job_type": "any", "payload": {"a": [math.nan]}}, "NaN and the infinities"),
        "an object": ({"job_type": "any", "payload": object()}, "cannot be written as JSON"),
        "a lone surrogate": ({"job_type": "any", "payload": "\ud800"}, "cannot be written as JSON"),
        "a wrong payload type": ({"job_type": pay, "payload": {"order_id": 5}}, "at `$.order_id`"),
        "a missing field": ({"job_type": pay, "payload": {}}, "missing required field `order_id`"),
        "a blank key": ({"job_type": pay, "payload": order, "key": " "}, "is blank"),
        "a key of True": ({"job_type": pay, "payload": order, "key": True}, "is a bool"),
        "a key of 1.5": ({"job_type": pay, "payload": order, "key": 1.5}, "is a float"),
        "a key too long": ({"job_type": pay, "payload": order, "key": "x" * 9000}, "9000 bytes"),
        "a key with a surrogate": ({"job_type": pay, "payload": order, "key": "\ud800"}, "lone surrogate"),
        "a delay too long": ({"job_type": pay, "payload": order, "delay": 900.5}, "at most 900 s"),
        "a negative delay": ({"job_type": pay, "payload": order, "delay": -1}, "a delay is a number"),
        "a delay of text": ({"job_type": pay, "payload": order, "delay": "5"}, "a delay is a number"),
        "a delay of NaN": ({"job_type": pay, "payload": order, "delay": math.nan}, "a delay is a number"),
        "an empty group": ({"job_type": pay, "payload": order, "group": ""}, "1 to 128 printable ASCII"),
        "a group with a space": ({"job_type": pay, "payload": order, "group": "a b"}, "1 to 128 printable ASCII"),
        "a group too long": ({"job_type": pay, "payload": order, "group": "g" * 129}, "1 to 128 printable ASCII"),
        "a group of another type": ({"job_type": pay, "payload": order, "group": 5}, "1 to 128 printable ASCII"),
        "FIFO without group": ({"job_type": ordered, "payload": {}}, "queue 'ordered' is FIFO: give group="),
        "FIFO with a delay": ({"job_type": ordered, "payload": {}, "group": "g", "delay": 1}, "takes no delay"),
        "a plain function": ({"job_type": ran, "payload": {}}, "is not a job type"),
        "no name": ({"job_type": None, "payload": {}}, "is not a job type"),
    }


@pytest.mark.parametrize("case", refusals())
def test_what_aws_or_the_job_type_would_refuse_is_refused_before_it_is_sent(world: World, case: str) -> None:
    """Nothing is sent, alone or among others that are good."""
    arguments, reason = refusals()[case]
    app = world.app(pay, ordered, JobType(ran, "any"))
    payload, job_type, options = arguments["payload"], arguments["job_type"], dict(arguments)
    del options["payload"], options["job_type"]

    with pytest.raises(EnqueueRefused) as one:
        app.enqueue(job_type, payload, **options)
    with pytest.raises(EnqueueRefused) as many:
        app.enqueue_many([Entry(pay, Order("o-1")), Entry(job_type, payload, **options)])

    assert reason in str(one.value)
    assert str(one.value) == str(many.value)
    assert received(world) == received(world, "Ordered.fifo") == []


def test_a_message_may_have_one_mib_in_bytes_and_not_one_byte_more(world: World) -> None:
    """SQS counts UTF-8: half a million characters of two bytes fill a message."""
    app = world.app(JobType(ran, "any"))
    empty = seal(job_type="any", idempotency_key="k", payload="", created_at="2026-11-29T12:00:00.000Z")
    room = MAX_BYTES - len(empty.encode())
    fits = "é" * (room // 2) + "x" * (room % 2)

    app.enqueue("any", fits, key="k")
    with pytest.raises(EnqueueRefused, match=f"the message has {MAX_BYTES + 1} bytes, and SQS takes {MAX_BYTES}"):
        app.enqueue("any", fits + "x", key="k")

    (message,) = received(world)
    assert len(message["Body"].encode()) == MAX_BYTES
    assert len(message["Body"]) < MAX_BYTES * 0.51


@pytest.mark.parametrize(
    ("job_type", "options", "reason"),
    [
        ("pey", {}, "no job type is named 'pey': did you mean 'pay'?"),
        (JobType(ran, "stranger"), {}, "job type 'stranger' is not in the App's list: nobody would serve it"),
        ("pay", {"queue": "nowhere"}, "queue 'nowhere' is not in ONCEQ_QUEUES (known: default, ordered)"),
        (JobType(ran, "lost", queue="nowhere"), {}, "is not in the App's list"),
    ],
)
def test_wrong_wiring_is_an_error_with_a_suggestion(
    world: World, job_type: Any, options: dict[str, Any], reason: str
) -> None:
    """A job type or a queue that nobody knows is a mistake of the program, and nothing is sent."""
    with pytest.raises(ConfigurationError) as refused:
        world.app(pay).enqueue(job_type, {"order_id": "o-1"}, **options)

    assert reason in str(refused.value)
    assert received(world) == []


def test_a_fifo_queue_gets_the_group_and_a_fresh_deduplication_id(world: World) -> None:
    """Claims do the deduplication: SQS's own would swallow a wanted re-send for five minutes."""
    app = world.app(ordered)
    for _ in range(2):
        app.enqueue(ordered, {}, key="same", group="g-1")
    app.enqueue_many([Entry(ordered, {}, key="same", group="g-1")])

    messages = received(world, "Ordered.fifo")
    assert [message["Attributes"]["MessageGroupId"] for message in messages] == ["g-1"] * 3
    assert len({message["Attributes"]["MessageDeduplicationId"] for message in messages}) == 3


def test_a_group_on_a_standard_queue_is_a_tenant(world: World) -> None:
    """SQS takes it there for fair queues; it needs no deduplication id."""
    world.app(pay).enqueue(pay, Order("o-1"), group="tenant-1")

    (message,) = received(world)
    assert message["Attributes"]["MessageGroupId"] == "tenant-1"
    assert "MessageDeduplicationId" not in message["Attributes"]


class Answering:
    """A client of SQS that notes each request and answers as a test says."""

    def __init__(self, answer: Any = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self._answer = answer or (lambda entry, number: None)

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        """Answer each entry: sent, or with the failure that the test says."""
        self.requests.append(request)
        successful, failed = [], []
        for entry in request["Entries"]:
            failure = self._answer(entry, len(self.requests))
            if failure is None:
                successful.append({"Id": entry["Id"], "MessageId": f"m-{entry['Id']}"})
            else:
                failed.append({"Id": entry["Id"], **failure})
        return {"Successful": successful, "Failed": failed}


class Wired(Runtime):
    """A runtime whose queue speaks to a client of the test's own."""

    def __init__(self, world: World, client: Any) -> None:
        super().__init__(world.settings, clock=world.clock, tokens=world.tokens)
        self._client = client

    def queue(self, deadline: Deadline) -> Queue:
        """Return a queue on that client."""
        return Queue(self.clock, self.tokens, deadline, client=self._client)


def test_many_jobs_are_sent_in_batches_of_ten_in_order(world: World) -> None:
    """Keys and ids come back in the order of the entries, whatever the batches were."""
    client = Answering()
    app = world.app(pay, runtime=Wired(world, client))

    sent = app.enqueue_many(Entry(pay, Order(f"o-{number}"), key=f"k-{number}") for number in range(25))

    assert [len(request["Entries"]) for request in client.requests] == [10, 10, 5]
    assert [(one.key, one.message_id) for one in sent] == [(f"k-{number}", f"m-{number}") for number in range(25)]


def test_many_large_jobs_are_sent_in_batches_of_one_mib(world: World) -> None:
    """The limit is of the batch together, in bytes."""
    client = Answering()
    app = world.app(JobType(ran, "any"), runtime=Wired(world, client))

    app.enqueue_many([Entry("any", "é" * 200_000, key=number) for number in range(6)])

    assert [len(request["Entries"]) for request in client.requests] == [2, 2, 2]


def test_jobs_of_several_queues_are_sent_to_each(world: World) -> None:
    """One call may hold jobs of any type; the answer keeps the order of the entries."""
    entries = [Entry(pay, Order("o-1"), key=1), Entry(ordered, {}, key=2, group="g"), Entry(pay, Order("o-3"), key=3)]

    sent = world.app(pay, ordered).enqueue_many(entries)

    assert [one.key for one in sent] == ["1", "2", "3"]
    plain, fifo = received(world), received(world, "Ordered.fifo")
    assert sorted(str(one.message_id) for one in sent) == sorted(message["MessageId"] for message in plain + fifo)
    assert (len(plain), len(fifo)) == (2, 1)
    assert world.app(pay).enqueue_many([]) == []


def test_entries_that_fail_for_a_passing_reason_are_sent_again_by_themselves(world: World) -> None:
    """SQS answers 200 although entries failed: only those are sent again, under their ids and keys."""
    client = Answering(
        lambda entry, number: (
            {"Code": "InternalError", "SenderFault": False} if number < 3 and entry["Id"] in {"1", "2"} else None
        )
    )
    sent = world.app(pay, runtime=Wired(world, client)).enqueue_many(
        [Entry(pay, Order(f"o-{number}"), key=number) for number in range(4)]
    )

    assert [[entry["Id"] for entry in request["Entries"]] for request in client.requests] == [
        ["0", "1", "2", "3"],
        ["1", "2"],
        ["1", "2"],
    ]
    assert [one.key for one in sent] == ["0", "1", "2", "3"]
    bodies = [{entry["Id"]: entry["MessageBody"] for entry in request["Entries"]} for request in client.requests]
    assert bodies[1] == bodies[2] == {name: bodies[0][name] for name in ("1", "2")}


def test_what_could_not_be_sent_is_raised_with_its_keys(world: World) -> None:
    """A sender's fault is not repeated; the error holds both lists, and the failed entries are the same jobs again."""
    client = Answering(
        lambda entry, _number: {
            "1": {"Code": "InvalidMessageContents", "Message": "no", "SenderFault": True},
            "2": {"Code": "ServiceUnavailable", "Message": "later", "SenderFault": False},
        }.get(entry["Id"])
    )
    app = world.app(pay, runtime=Wired(world, client))

    with pytest.raises(EnqueueFailed) as failed:
        app.enqueue_many([Entry(pay, Order(f"o-{number}")) for number in range(4)])

    error = failed.value
    assert [(entry.payload.order_id, enqueued.message_id) for entry, enqueued in error.sent] == [
        ("o-0", "m-0"),
        ("o-3", "m-3"),
    ]
    assert [(entry.payload.order_id, reason) for entry, reason in error.failed] == [
        ("o-1", "InvalidMessageContents: no"),
        ("o-2", "ServiceUnavailable: later"),
    ]
    assert [[entry["Id"] for entry in request["Entries"]] for request in client.requests][1:] == [["2"], ["2"]]
    assert str(error).startswith("2 of 4 entries were not sent: InvalidMessageContents: no; ServiceUnavailable: later")
    keys = [entry.key for entry, _ in error.failed]
    stamped = {
        entry["Id"]: json.loads(entry["MessageBody"])["idempotency_key"] for entry in client.requests[0]["Entries"]
    }
    assert keys == [stamped["1"], stamped["2"]]

    again = Answering()
    sent = world.app(pay, runtime=Wired(world, again)).enqueue_many(entry for entry, _ in error.failed)
    assert [one.key for one in sent] == keys


def test_a_queue_that_does_not_exist_is_a_queue_error(world: World) -> None:
    """The caller knows that nothing was taken, and which queue it was about."""
    settings = Settings(queues={"default": QueueSettings("default", "https://sqs.us-east-1.amazonaws.com/1/Gone")})
    producer = Producer(runtime=Runtime(settings, clock=world.clock, tokens=world.tokens))

    with pytest.raises(EnqueueFailed, match="SendMessage was refused") as failed:
        producer.enqueue("pay", {})
    ((entry, _),) = failed.value.failed
    assert entry.key is not None
    assert isinstance(failed.value.__cause__, QueueError)
    with pytest.raises(EnqueueFailed, match="1 of 1 entries were not sent"):
        producer.enqueue_many([Entry("pay", {}, key="k")])


def test_a_producer_by_name_needs_no_job_modules(world: World) -> None:
    """An API function sends by name; the consumer checks the payload."""
    url = world.settings.queue("default").url
    producer = Producer({"default": url, "reports": url})

    sent = producer.enqueue("pay", {"order_id": "o-1"}, key="o-1")
    many = producer.enqueue_many([Entry("report", {}, key=1, queue="reports")])

    (first, second) = received(world)
    assert (sent.message_id, many[0].message_id) == (first["MessageId"], second["MessageId"])
    assert json.loads(second["Body"])["job_type"] == "report"
    for name in ("", "Pay", "pay#1", None, 5):
        with pytest.raises(EnqueueRefused, match="is not a job type"):
            producer.enqueue(name, {})  # type: ignore[arg-type]  # the point
    with pytest.raises(ConfigurationError, match="queue 'other' is not in ONCEQ_QUEUES"):
        producer.enqueue("pay", {}, queue="other")


def test_a_producer_reads_only_its_queues_and_loads_no_table(world: World) -> None:
    """No claims table in the environment, no DynamoDB client, no jobs and no app in the process."""
    script = """
import sys
from onceq import Producer, EnqueueRefused
try:
    Producer().enqueue("pay", {"a": float("nan")}, key="k")
except EnqueueRefused:
    pass
producer = Producer()
try:
    producer.enqueue("pay", {}, key="k")
except Exception as error:
    print(type(error).__name__)
print([name for name in ("app", "jobs", "onceq.dynamodb", "pynamodb", "boto3", "moto") if name in sys.modules])
"""
    environment = {
        "ONCEQ_QUEUES": '{"default": {"url": "http://127.0.0.1:9/1/Jobs"}}',
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }

    found = subprocess.run(
        [sys.executable, "-c", script], cwd=SRC, env=environment, capture_output=True, text=True, check=True
    )

    assert found.stdout.splitlines() == ["EnqueueFailed", "[]"]
