"""Dead-letter copies of records that share a message: alone where SQS takes them, else the whole, each for its job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kit.buckets import attribute, open_buckets, pointer, put
from kit.clock import FakeLambdaContext
from kit.delivery import record_of
from kit.faults import faulty_sqs
from kit.world import arn_of, event_of, kept
from onceq import Reject, job, source
from onceq.message import seal, timestamp
from onceq.queue import MAX_BYTES, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.faults import Call, FaultyClient
    from kit.world import World

SENT_AT = timestamp(1_795_953_600_000)


@pytest.fixture(autouse=True)
def s3(world: World) -> Iterator[FaultyClient]:
    """The world's buckets."""
    with open_buckets(world) as client:
        yield client


class Desk:
    """An app whose job takes bare records, and rejects those that a test says.

    Args:
        ran: Ids of the starts, in order.
        bad: Ids that are rejected.
    """

    def __init__(self, world: World, *, queue: str = "default") -> None:
        """Make the app."""
        self.world = world
        self.ran: list[str] = []
        self.bad: set[str] = set()

        @job("act", source=source.records(), queue=queue)
        def act(payload: dict[str, Any]) -> None:
            self.ran.append(payload["eventID"])
            if payload["eventID"] in self.bad:
                message = f"no {payload['eventID']}"
                raise Reject(message)

        self.app = world.app(act)
        self.sqs = faulty_sqs(world.runtime)

    def consume(self, *records: dict[str, Any]) -> list[str]:
        """Consume messages, and return the ids that are kept."""
        return kept(self.app.consumer(event_of(*records), FakeLambdaContext()))

    def copied(self) -> list[dict[str, Any]]:
        """Return the entries that were sent to a dead-letter queue, or were to be."""
        calls = [call for call in self.sqs.calls if call.method == "send_message_batch"]
        return [entry for call in calls for entry in call.request["Entries"]]

    def whole(self, *filled: int, **options: Any) -> dict[str, Any]:
        """Return a message whose body in the bucket holds a record of each so many bytes: e-0, e-1, ..."""
        records = [record(f"e-{number}", size) for number, size in enumerate(filled)]
        put("whole", json.dumps(records))
        return self.world.raw(pointer("whole"), **options)


def record(name: str, size: int = 0) -> dict[str, Any]:
    """Return one record of a list, of about so many bytes."""
    return {"eventSource": "aws:x", "eventID": name, "data": "x" * size}


def refused(call: Call) -> dict[str, Any]:
    """Return SQS's answer to a batch of which it takes nothing."""
    return {"Failed": [{"Id": entry["Id"], "SenderFault": True, "Code": "no"} for entry in call.request["Entries"]]}


def test_a_redrive_of_a_copy_of_the_whole_restarts_only_the_job_of_its_note(world: World) -> None:
    """Two records too large for a message: each copy is the pointer, and says for whom.

    The other is still rejected: it is copied again, like any message that comes again for a rejected job.
    """
    desk = Desk(world)
    desk.bad = {"e-0", "e-1"}

    assert desk.consume(desk.whole(1_200_000, 1_200_000, 10)) == []
    copies = {copy["note"]["key"]: copy for copy in world.dead_letters()}
    assert sorted(copies) == ["e-0", "e-1"]
    assert {copy["Body"] for copy in copies.values()} == {pointer("whole")}
    assert sorted(desk.ran) == ["e-0", "e-1", "e-2"]

    desk.bad.clear()
    desk.ran.clear()
    assert desk.consume(record_of(copies["e-1"], arn_of("JobsQueue"))) == []
    assert desk.ran == ["e-1"]
    [again] = world.dead_letters()
    assert again["note"]["key"] == "e-0"

    for copy in (again, copies["e-0"], copies["e-1"]):
        assert desk.consume(record_of(copy, arn_of("JobsQueue"))) == []
    assert desk.ran == ["e-1", "e-0"]
    assert world.dead_letters() == []


@pytest.mark.parametrize("size", [10, 1_200_000], ids=["alone", "whole"])
def test_the_copies_of_one_message_on_a_fifo_queue_all_arrive(world: World, size: int) -> None:
    """G4: SQS swallows a deduplication id that comes again, and both were rejected in the same version."""
    desk = Desk(world, queue="ordered")
    desk.bad = {"e-0", "e-1"}

    assert desk.consume(desk.whole(size, size, queue="Ordered.fifo", group="g")) == []
    first, second = desk.copied()
    assert first["MessageDeduplicationId"] != second["MessageDeduplicationId"]
    assert first["MessageGroupId"] == second["MessageGroupId"] == "g"


@pytest.mark.parametrize("size", [10, 1_200_000], ids=["alone", "whole"])
def test_a_copy_that_is_made_again_has_the_deduplication_id_it_had(world: World, size: int) -> None:
    """One whose answer was lost arrives once: nothing in it is of the time at which it is made."""
    desk = Desk(world, queue="ordered")
    desk.bad = {"e-0"}
    message = desk.whole(size, 10, queue="Ordered.fifo", group="g")
    desk.sqs.plan("send_message_batch", refused)

    assert desk.consume(message) == [message["messageId"]]
    world.clock.advance(1_000)
    assert desk.consume(message | {"receiptHandle": "r-again"}) == []
    first, second = desk.copied()
    assert first["MessageBody"] == second["MessageBody"]
    assert first["MessageDeduplicationId"] == second["MessageDeduplicationId"]


@pytest.mark.parametrize("over", [-1_500, 0, 1], ids=["with its note", "to the byte", "one byte more"])
def test_a_copy_of_a_record_is_the_whole_where_its_attributes_make_it_too_large(world: World, over: int) -> None:
    """G4: SQS counts attributes, and would refuse the copy for ever."""
    desk = Desk(world)
    desk.bad = {"e-0"}
    attributes = {"trace": attribute("t" * 1_000)}
    sendable = {"trace": {"DataType": "String", "StringValue": "t" * 1_000}}
    known: dict[str, Any] = {"job_type": "act", "idempotency_key": "e-0", "created_at": SENT_AT}
    empty = size_of({"MessageBody": seal(payload=record("e-0"), **known), "MessageAttributes": sendable})
    message = desk.whole(MAX_BYTES - empty + over, 10, attributes=attributes)

    assert desk.consume(message) == []
    [copy] = desk.copied()
    assert size_of(copy) <= MAX_BYTES
    assert copy["MessageAttributes"]["trace"] == sendable["trace"]
    if over <= 0:
        assert json.loads(copy["MessageBody"])["idempotency_key"] == "e-0"
        assert json.loads(copy["MessageBody"])["created_at"] == SENT_AT
    else:
        assert copy["MessageBody"] == pointer("whole")
        assert json.loads(copy["MessageAttributes"]["onceq"]["StringValue"])["key"] == "e-0"


def test_a_body_is_sealed_only_where_a_record_is_copied(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred records that all end well nothing is written a second time."""
    sealed: list[str] = []

    def counting(**known: Any) -> str:
        sealed.append(known["idempotency_key"])
        return seal(**known)

    monkeypatch.setattr("onceq.settling.seal", counting)
    desk = Desk(world)
    assert desk.consume(desk.whole(*[10] * 100)) == []
    assert (len(desk.ran), sealed) == (100, [])

    put("more", json.dumps([record(f"m-{number}") for number in range(3)]))
    desk.bad = {"m-1"}
    assert desk.consume(world.raw(pointer("more"))) == []
    assert sealed == ["m-1"]
