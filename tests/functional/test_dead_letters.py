"""Copies to the dead-letter queue: what they carry, and what happens when they fail."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from kit.clock import FakeLambdaContext
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, Reject, job
from onceq.job_type import JobType
from onceq.queue import MAX_BYTES, size_of
from onceq.record import Semantics

if TYPE_CHECKING:
    from kit.world import World


@job("act", max_attempts=3)
def act(payload: dict[str, Any], ctx: Context) -> None:
    """Reject every job."""
    if payload.get("amount") == 1:
        return
    raise Reject("amount must be positive")


def test_the_copy_carries_the_body_the_attributes_and_why(world: World) -> None:
    """G4: the copy has the body and attributes of the message, binary ones decoded, and one attribute of ours."""
    attributes = {
        "tenant": {"dataType": "String", "stringValue": "t-1", "binaryListValues": [], "stringListValues": []},
        "weight": {"dataType": "Number.float", "stringValue": "1.5"},
        "blob": {"dataType": "Binary.png", "binaryValue": base64.b64encode(b"\x00\xff\x10").decode()},
        "empty": {},
        "odd": {"dataType": "Binary", "binaryValue": "%%%"},
    }
    message = world.message("act", {"amount": 0}, key="o-1", attributes=attributes)

    assert kept(world.app(act).consumer(event_of(message), FakeLambdaContext())) == []

    (copy,) = world.dead_letters()
    record = world.record("act", "o-1")
    assert record is not None
    assert copy["Body"] == message["body"]
    sent = copy["MessageAttributes"]
    assert sent["tenant"] == {"DataType": "String", "StringValue": "t-1"}
    assert sent["weight"] == {"DataType": "Number.float", "StringValue": "1.5"}
    assert sent["blob"] == {"DataType": "Binary.png", "BinaryValue": b"\x00\xff\x10"}
    assert set(sent) == {"tenant", "weight", "blob", "onceq"}
    assert copy["note"] == {
        "reason": "rejected",
        "error": "amount must be positive",
        "job_type": "act",
        "key": "o-1",
        "attempts": 1,
        "version": record.version,
        "source_queue": "default",
    }


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("not json", "not JSON"),
        ('{"amount": 1}', "no default job type"),
        ('{"onceq": 1, "job_type": "act", "payload": {}}', "no idempotency key"),
        ('{"onceq": 1, "job_type": "act", "idempotency_key": "k", "payload": 7}', "the payload does not fit"),
        ('{"onceq": 1, "job_type": "act", "idempotency_key": "k", "payload": {}, "hops": 2000}', "is it a loop?"),
    ],
)
def test_a_message_that_cannot_become_a_job_is_copied_with_the_reason(world: World, body: str, reason: str) -> None:
    """G4: a refused message touches no record; the copy says why, for the person who reads it."""
    assert kept(world.app(act).consumer(event_of(world.raw(body)), FakeLambdaContext())) == []

    (copy,) = world.dead_letters()
    assert copy["Body"] == body
    assert reason in copy["note"]["reason"]
    assert (copy["note"]["version"], copy["note"]["attempts"]) == (0, 0)
    assert world.dynamodb.scan(TableName="ClaimsTable")["Count"] == 0


def test_key_reuse_is_copied_and_leaves_the_record_alone(world: World) -> None:
    """G3: the key belongs to the first payload; the second message is refused and its job never runs."""
    app = world.app(act)
    app.consumer(event_of(world.message("act", {"amount": 1}, key="o-1")), FakeLambdaContext())
    before = world.record("act", "o-1")

    assert kept(app.consumer(event_of(world.message("act", {"amount": 2}, key="o-1")), FakeLambdaContext())) == []

    (copy,) = world.dead_letters()
    assert copy["note"]["reason"].startswith("key reuse")
    assert copy["note"]["key"] == "o-1"
    assert world.record("act", "o-1") == before


def test_an_uncertain_job_is_copied_once_a_message(world: World) -> None:
    """G9: an at-most-once job that failed goes to a person: the copy says uncertain, a duplicate ends the same way."""

    def run(payload: dict[str, Any]) -> None:
        raise ConnectionError

    app = world.app(JobType(run, "once", semantics=Semantics.AT_MOST_ONCE))
    for _ in range(2):
        assert kept(app.consumer(event_of(world.message("once")), FakeLambdaContext())) == []

    copies = world.dead_letters()
    assert [copy["note"]["reason"] for copy in copies] == ["uncertain", "uncertain"]
    assert "ConnectionError" in copies[0]["note"]["error"]


def _attributes(count: int, size: int = 1) -> dict[str, Any]:
    return {f"a{number}": {"dataType": "String", "stringValue": "x" * size} for number in range(count)}


@pytest.mark.parametrize(("count", "with_note"), [(9, True), (10, False)])
def test_a_message_with_ten_attributes_is_copied_without_ours(world: World, count: int, *, with_note: bool) -> None:
    """SQS takes ten attributes: the message's own come first, and the claim has the reason."""
    message = world.message("act", {"amount": 0}, attributes=_attributes(count))

    assert kept(world.app(act).consumer(event_of(message), FakeLambdaContext())) == []

    (copy,) = world.dead_letters()
    assert len(copy["MessageAttributes"]) == 10
    assert (copy["note"] is not None) == with_note
    record = world.record("act", "k-1")
    assert record is not None
    assert record.error == "amount must be positive"
    copied = [event.fields()["with_note"] for event in world.events if event.name == "message.dead_lettered"]
    assert copied == [with_note]


@pytest.mark.parametrize("spare", [0, 2_000])
def test_a_message_of_almost_one_mib_is_copied_without_ours(world: World, spare: int) -> None:
    """What the note would lift over 1 MiB goes without it; the limit counts bytes of body and attributes."""
    message = world.message("act", {"amount": 0, "text": "é" * 1_000})
    padding = MAX_BYTES - spare - size_of({"MessageBody": message["body"]})
    message["body"] = message["body"][:-1] + " " * padding + "}"
    sqs = FakeSqs()

    assert (
        kept(world.app(act, runtime=SpiedRuntime(world.runtime, sqs)).consumer(event_of(message), FakeLambdaContext()))
        == []
    )

    (entry,) = sqs.entries("send")
    assert entry["MessageBody"] == message["body"]
    assert ("MessageAttributes" in entry) == bool(spare)
    assert size_of(entry) <= MAX_BYTES


def test_copies_go_out_by_ten_and_by_bytes(world: World) -> None:
    """Batches of copies respect both limits of SQS, so that one large message does not sink its neighbours."""
    sqs = FakeSqs()
    small = [world.message("act", {"amount": 0}, key=str(number)) for number in range(12)]
    large = [world.message("act", {"amount": 0, "text": "x" * 600_000}, key=f"l{number}") for number in range(2)]

    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))

    assert kept(app.consumer(event_of(*small, *large), FakeLambdaContext())) == []
    sizes = [len(request["Entries"]) for _, request in sqs.requests]
    assert (sum(sizes), max(sizes)) == (14, 10)
    assert all(sum(map(size_of, request["Entries"])) <= MAX_BYTES for _, request in sqs.requests)


def test_a_copy_on_a_fifo_queue_has_a_group_and_a_deduplication_id_of_its_own(world: World) -> None:
    """One made of the job's key would be swallowed within five minutes: two copies of one job both arrive."""
    app = world.app(act)
    batch = [
        world.message("act", {"amount": 0}, key="o-1", queue="Ordered.fifo", group="g"),
        world.message("act", {"amount": 0}, key="o-1", queue="Ordered.fifo", group="g"),
        world.raw("not json", queue="Ordered.fifo"),
    ]

    assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == []

    url = world.settings.queue("ordered").dlq_url
    copies: list[dict[str, Any]] = []
    for _ in range(3):
        found = world.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])
        copies += found.get("Messages", [])
    assert sorted(copy["Body"] for copy in copies) == sorted(record["body"] for record in batch)
    groups = [copy["Attributes"]["MessageGroupId"] for copy in copies]
    assert groups.count("g") == 2
    assert len({copy["Attributes"]["MessageDeduplicationId"] for copy in copies}) == 3


def test_the_same_copy_made_again_has_the_same_deduplication_id(world: World) -> None:
    """A copy whose message could not be deleted is made again, and a FIFO DLQ keeps one of both."""
    sqs = FakeSqs()
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))
    message = world.message("act", {"amount": 0}, queue="Ordered.fifo", group="g")
    for _ in range(2):
        app.consumer(event_of(message), FakeLambdaContext())

    first, second = sqs.entries("send")
    assert first["MessageDeduplicationId"] == second["MessageDeduplicationId"]


def test_a_copy_that_fails_keeps_its_message_and_is_made_at_the_next_delivery(world: World) -> None:
    """G4: acknowledged only when the copy arrived; the job is not run again for it, and its neighbours are not hurt."""
    broken = [True]

    def fail(operation: str, entry: dict[str, Any]) -> dict[str, Any] | None:
        bad = broken and "two" in entry.get("MessageBody", "")
        return {"Code": "InvalidMessageContents", "SenderFault": True} if bad else None

    sqs = FakeSqs(fail)
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))
    batch = [world.message("act", {"amount": 0}, key=key) for key in ("one", "two", "three")]

    assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == [batch[1]["messageId"]]
    assert sqs.visibility() == {}
    failed = [event.fields() for event in world.events if event.name == "message.copy_failed"]
    assert [event["message_id"] for event in failed] == [batch[1]["messageId"]]

    broken.clear()
    assert kept(app.consumer(event_of(batch[1]), FakeLambdaContext())) == []
    record = world.record("act", "two")
    assert record is not None
    assert (record.status, record.attempts) == ("rejected", 1)


@pytest.mark.parametrize("code", ["AccessDenied", "ServiceUnavailable"])
def test_a_dead_letter_queue_that_takes_nothing_loses_nothing(world: World, code: str) -> None:
    """G4: every rejected and refused message stays in its queue; what completed is acknowledged."""

    def fail(operation: str, entry: dict[str, Any]) -> None:
        raise ClientError({"Error": {"Code": code}}, operation)

    app = world.app(act, runtime=SpiedRuntime(world.runtime, FakeSqs(fail)))
    batch = [world.message("act", {"amount": 0}, key="bad"), world.raw("x"), world.message("act", {"amount": 1})]

    assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == [record["messageId"] for record in batch[:2]]


@pytest.mark.parametrize("body", [None, ""])
def test_a_message_without_a_body_is_kept_since_nothing_can_be_copied(world: World, body: str | None) -> None:
    """G4: SQS takes no empty body, so the redrive policy, which moves the message itself, has the last word."""
    message = world.raw(body)

    assert kept(world.app(act).consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    assert world.names().count("message.copy_failed") == 1


def test_an_error_that_sqs_would_not_take_is_made_fit(world: World) -> None:
    """G4: control characters, lone surrogates and a megabyte of text in an error do not keep the copy from arriving."""

    @job("act")
    def odd(payload: dict[str, Any]) -> None:
        raise Reject("\x00\ud800\ufffe" * 400_000)

    assert kept(world.app(odd).consumer(event_of(world.message("act")), FakeLambdaContext())) == []
    (copy,) = world.dead_letters()
    assert copy["note"]["reason"] == "rejected"
