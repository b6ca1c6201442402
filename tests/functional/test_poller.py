"""The local poller reads the consumer's answer as AWS does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from kit.world import arn_of
from onceq import Reject, job
from onceq.clock import OpenDeadline
from onceq.errors import QueueUnavailable
from onceq.message import Message
from onceq.poller import Poller, lambda_event, to_delete
from onceq.telemetry import JobStarted

if TYPE_CHECKING:
    from kit.clock import FrozenClock
    from kit.world import World

ARN = arn_of("JobsQueue")
ALL, NONE = {"a", "b"}, set[str]()


def failures(*identifiers: object) -> dict[str, Any]:
    """Return an answer that keeps these."""
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in identifiers]}


@pytest.mark.parametrize(
    ("answer", "deleted"),
    [
        (None, ALL),
        ({}, ALL),
        (failures(), ALL),
        ({"batchItemFailures": None}, ALL),
        (failures("a"), {"b"}),
        (failures("b"), {"a"}),
        (failures("a", "b"), NONE),
        (failures("a") | {"more": 1}, {"b"}),
        (failures(""), NONE),
        (failures(None), NONE),
        (failures("a", ""), NONE),
        (failures("a", None), NONE),
        (failures("c"), NONE),
        (failures("a", "c"), NONE),
        (failures("a", "a"), NONE),
        (failures(5), NONE),
        (failures(["a"]), NONE),
        ({"batchItemFailures": [{"ItemIdentifier": "a"}]}, NONE),
        ({"batchItemFailures": [{"id": "a"}]}, NONE),
        ({"batchItemFailures": [{}]}, NONE),
        ({"batchItemFailures": ["a"]}, NONE),
        ({"batchItemFailures": [None]}, NONE),
        ({"batchItemFailures": "a"}, NONE),
        ({"batchItemFailures": {"itemIdentifier": "a"}}, NONE),
        ({"batchItemFailures": True}, NONE),
        ({"BatchItemFailures": [{"itemIdentifier": "a"}]}, NONE),
        ({"statusCode": 200}, NONE),
        ([], NONE),
        ([{"itemIdentifier": "a"}], NONE),
        ("ok", NONE),
        ("", NONE),
        (True, NONE),
        (0, NONE),
    ],
)
def test_the_answer_is_read_as_strictly_as_aws_reads_it(answer: object, deleted: set[str]) -> None:
    """G4, G5: whatever AWS cannot place keeps the whole batch; null, {} and an empty list delete it."""
    assert to_delete(["a", "b"], answer) == deleted


def test_the_event_has_every_attribute() -> None:
    """A job that works on the local poller meets on Lambda what it met here."""
    message = {
        "MessageId": "m-1",
        "ReceiptHandle": "r-1",
        "Body": "{}",
        "MD5OfBody": "99914b932bd37a50b983c5e7c90ae93b",
        "MD5OfMessageAttributes": "abc",
        "Attributes": {"ApproximateReceiveCount": "2", "MessageGroupId": "g"},
        "MessageAttributes": {
            "text": {"DataType": "String", "StringValue": "t"},
            "bytes": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
        },
    }
    event = lambda_event([message], ARN)
    assert event == {
        "Records": [
            {
                "messageId": "m-1",
                "receiptHandle": "r-1",
                "body": "{}",
                "attributes": {"ApproximateReceiveCount": "2", "MessageGroupId": "g"},
                "messageAttributes": {
                    "text": {
                        "stringValue": "t",
                        "stringListValues": [],
                        "binaryListValues": [],
                        "dataType": "String",
                    },
                    "bytes": {
                        "binaryValue": "AP8=",
                        "stringListValues": [],
                        "binaryListValues": [],
                        "dataType": "Binary.png",
                    },
                },
                "md5OfBody": "99914b932bd37a50b983c5e7c90ae93b",
                "md5OfMessageAttributes": "abc",
                "eventSource": "aws:sqs",
                "eventSourceARN": ARN,
                "awsRegion": "us-east-1",
            }
        ]
    }
    # The copy to the dead-letter queue reads the same attributes back.
    read = Message.from_record(event["Records"][0]).sendable_attributes()
    assert read == message["MessageAttributes"]


class FakeQueue:
    """A queue that hands out what it was given and notes what it was told."""

    def __init__(self, *batches: list[dict[str, Any]] | Exception) -> None:
        self.batches = list(batches)
        self.asked: list[tuple[int, int]] = []
        self.deleted: list[str] = []
        self.shown: list[str] = []

    def receive(self, url: str, *, most: int, wait: int) -> list[dict[str, Any]]:
        """Hand out the next batch, or raise it."""
        self.asked.append((most, wait))
        batch = self.batches.pop(0) if self.batches else []
        if isinstance(batch, Exception):
            raise batch
        return batch

    def delete_batch(self, url: str, entries: list[dict[str, Any]]) -> dict[str, str]:
        """Note what is deleted."""
        self.deleted += [entry["ReceiptHandle"] for entry in entries]
        return {}

    def change_visibility_batch(self, url: str, entries: list[dict[str, Any]]) -> dict[str, str]:
        """Note what is made visible at once."""
        assert all(entry["VisibilityTimeout"] == 0 for entry in entries)
        self.shown += [entry["ReceiptHandle"] for entry in entries]
        return {}


def received(*names: str) -> list[dict[str, Any]]:
    """Return received messages; the receipt handle of ``a`` is ``r-a``."""
    return [{"MessageId": name, "ReceiptHandle": f"r-{name}", "Body": "{}"} for name in names]


def poller_of(handler: Any, queue: FakeQueue, **options: Any) -> Poller:
    """Return a poller on a fake queue."""
    return Poller(handler, queue, url="u", arn=ARN, **options)  # type: ignore[arg-type]  # it has what is called


def test_successes_are_deleted_and_failures_kept() -> None:
    """The messages that the answer does not name are done."""
    queue = FakeQueue(received("a", "b", "c"))
    assert poller_of(lambda event, context: failures("b"), queue).poll() == 3
    assert (queue.deleted, queue.shown) == (["r-a", "r-c"], [])


@pytest.mark.parametrize("wrong", [ValueError("broken"), object(), {"batchItemFailures": {1, 2}}])
def test_an_exception_or_an_answer_that_is_not_json_keeps_the_whole_batch(wrong: object) -> None:
    """G4: a failed invocation deletes nothing, and the poller goes on."""
    said: list[str] = []

    def handler(event: object, context: object) -> object:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    queue = FakeQueue(received("a", "b"))
    assert poller_of(handler, queue, report=said.append).poll() == 2
    assert queue.deleted == []
    assert "the whole batch is kept" in said[0]


def test_a_batch_larger_than_ten_is_filled_without_waiting() -> None:
    """One receive brings ten at most; only the first one waits."""
    names = [f"m{number}" for number in range(14)]
    queue = FakeQueue(received(*names[:10]), received(*names[10:]))
    sizes: list[int] = []
    poller_of(lambda event, context: sizes.append(len(event["Records"])), queue, batch_size=25, wait=3).poll()
    assert (sizes, queue.asked) == ([14], [(10, 3), (10, 0)])


def test_an_empty_receive_invokes_nothing() -> None:
    """Lambda never gets an event without records from the mapping."""
    assert poller_of(lambda event, context: pytest.fail("invoked"), FakeQueue()).poll() == 0


def test_messages_received_while_stopping_are_visible_at_once() -> None:
    """A signal during the long poll loses nothing: what came is given back, and nothing is invoked."""
    queue = FakeQueue()
    poller = poller_of(lambda event, context: pytest.fail("invoked"), queue)

    def receive(url: str, *, most: int, wait: int) -> list[dict[str, Any]]:
        poller.stop()
        return received("a", "b")

    queue.receive = receive  # type: ignore[method-assign]
    poller.run()
    assert queue.shown == ["r-a", "r-b"]


def test_stopping_gives_back_what_is_not_under_way_and_starts_no_more() -> None:
    """The job that runs goes on; its neighbours are visible at the moment of the signal, not at its end."""
    queue = FakeQueue(received("a", "b", "c"))
    shown_meanwhile: list[str] = []

    def handler(event: object, context: Any) -> object:
        assert isinstance(context, OpenDeadline)
        assert context.accepting
        poller.see(JobStarted(job_type="t", key="k", message_id="a"))
        stopper = threading.Thread(target=poller.stop)
        stopper.start()
        stopper.join()
        shown_meanwhile.extend(queue.shown)
        assert not context.accepting
        return failures("b", "c")

    poller = poller_of(handler, queue)
    poller.run()
    assert shown_meanwhile == ["r-b", "r-c"]
    assert queue.deleted == ["r-a"]


def test_a_queue_that_does_not_answer_is_tried_again(clock: FrozenClock) -> None:
    """The poller outlives a queue that is away for a while."""
    said: list[str] = []
    queue = FakeQueue(QueueUnavailable("away"), received("a"))

    def handler(event: object, context: object) -> None:
        poller.stop()

    poller = poller_of(handler, queue, report=said.append, clock=clock)
    poller.run()
    assert (queue.deleted, clock.slept, len(said)) == (["r-a"], [1.0], 1)


def test_an_app_is_consumed_from_queue_to_record(world: World) -> None:
    """The whole path on locked moto: enqueue, receive, run, complete, delete; a rejected job is in the DLQ."""

    @job("double")
    def double(payload: dict[str, int]) -> int:
        if payload["n"] < 0:
            raise Reject("n must not be negative")
        return payload["n"] * 2

    app = world.app(double)
    app.enqueue(double, {"n": 21}, key="k-1")
    app.enqueue(double, {"n": 21}, key="k-1")
    app.enqueue(double, {"n": -1}, key="k-2")
    settings = world.settings.queues["default"]
    queue = world.runtime.queue(OpenDeadline())
    poller = Poller(app.consumer, queue, url=settings.url, arn=settings.arn, wait=0)

    assert poller.poll() == 3
    status = app.lookup(double, "k-1")
    assert status is not None
    assert status.result == 42
    assert world.names().count("job.replayed") == 1
    assert len(world.dead_letters()) == 1
    assert poller.poll() == 0
