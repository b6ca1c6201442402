"""The bad-input table of docs/lifecycle.md: each row through the consumer, between two good neighbours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.tables import table
from kit.world import event_of, kept
from onceq import JobType, OnceqError
from onceq.errors import NotAnSqsEvent, UnnameableRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

TABLE = table("bad input")


@dataclass(frozen=True)
class Order:
    order: str
    amount: int


def envelope(**fields: Any) -> str:
    """Return the body of an envelope whose fields are changed; ``...`` leaves one out."""
    whole = {
        "onceq": 1,
        "job_type": "pay",
        "idempotency_key": "bad",
        "payload": {"order": "o-1", "amount": 5},
        "created_at": "2026-11-29T12:00:00Z",
    } | fields
    return json.dumps({name: value for name, value in whole.items() if value is not ...})


# One record each, as a body.
BODIES: dict[str, Any] = {
    "an empty body": "",
    "a body that is not JSON": "charge order 3, please",
    "a body with a lone surrogate": '"\\ud800"',
    "a body nested too deeply": "[" * 100_000 + "]" * 100_000,
    "a whole number of 5000 digits": "9" * 5_000,
    "an envelope of a newer version": envelope(onceq=2),
    "an envelope of version true": envelope(onceq=True),
    "an envelope of version 0": envelope(onceq=0),
    "an envelope of version -1": envelope(onceq=-1),
    'an envelope of version "1"': envelope(onceq="1"),
    "an envelope without job type": envelope(job_type=...),
    "an envelope with broken hops": envelope(hops="many"),
    "an envelope sent on too often": envelope(hops=1001),
    "an unknown job type": envelope(job_type="unknown"),
    "no envelope, and no default job type": '{"order": "o-1", "amount": 5}',
    "no key": envelope(idempotency_key=...),
    "a blank key": envelope(idempotency_key=" \t"),
    "a key of true": envelope(idempotency_key=True),
    "a key of 1.5": envelope(idempotency_key=1.5),
    "a key that is a list": envelope(idempotency_key=["a"]),
    "a key that is an object": envelope(idempotency_key={"a": 1}),
    "a key of 9000 bytes": envelope(idempotency_key="x" * 9_000),
    "`key=` selects nothing": envelope(job_type="selected", idempotency_key=...),
    "`key=` raises": envelope(job_type="derived", idempotency_key=...),
    "a payload that does not fit": envelope(payload={"order": "o-1", "amount": "five"}),
    "no payload": envelope(payload=...),
    "a key that another payload used": envelope(idempotency_key="used"),
}
# One record each, made of a good one.
RECORDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a record without body": lambda record: {name: value for name, value in record.items() if name != "body"},
    "a queue that is not in the settings": lambda record: record | {"eventSourceARN": "arn:aws:sqs:us-east-1:1:Other"},
    "a record that is null": lambda record: None,
    "a record that is a string": lambda record: "charge order 3, please",
    "a bad record without message id": lambda record: record | {"messageId": None, "body": "nonsense"},
    "an unserved record without message id": lambda record: (
        record | {"messageId": "", "body": envelope(job_type="unknown")}
    ),
}
TWICE = "two records with one message id"
# A whole event each.
EVENTS: dict[str, Any] = {
    "`Records` missing": {},
    "`Records` null": {"Records": None},
    "`Records` empty": {"Records": []},
    "`Records` that is no list": {"Records": {"a": 1}},
    "an event that is no object": "text",
    "an event from S3": {"Records": [{"eventSource": "aws:s3", "s3": {}}]},
    "an event from SNS": {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": "{}"}}]},
}


def test_every_row_has_its_case() -> None:
    """A row without a case, and a case without a row, fail."""
    assert sorted(TABLE) == sorted([*BODIES, *RECORDS, TWICE, *EVENTS])
    assert {cells["What happens"] for cells in TABLE.values()} == {
        "copied",
        "kept",
        "kept, named once",
        "nothing to keep",
        "the batch is kept",
    }


def pay(payload: Order) -> str:
    """Return the order's id."""
    return payload.order


def job_types() -> list[JobType[..., Any]]:
    """Return the job types that the cases are for."""

    def raising(payload: Order) -> str:
        raise KeyError("order")

    return [JobType(pay, "pay"), JobType(pay, "selected", key="nothing"), JobType(pay, "derived", key=raising)]


def reasons(world: World) -> list[str]:
    """Return what the events say."""
    return [str(getattr(event, "reason", "")) for event in world.events]


def records_of(world: World, row: str) -> list[Any]:
    """Return the bad records of a row."""
    if row in BODIES:
        return [world.raw(BODIES[row])]
    if row in RECORDS:
        return [RECORDS[row](world.raw(envelope()))]
    unserved = world.raw(envelope(job_type="unknown"))
    return [unserved, unserved | {"receiptHandle": "another"}]


@pytest.mark.parametrize("row", [*BODIES, *RECORDS, TWICE])
def test_a_bad_record_is_kept_or_copied_with_its_reason_and_hurts_no_neighbour(world: World, row: str) -> None:
    """G4, G5: the reason can be read, nothing is lost, and the records before and after it complete."""
    reason, happens = TABLE[row]["Reason, as people read it"].replace("`key=`", "key="), TABLE[row]["What happens"]
    app = world.app(*job_types())
    app.consumer(event_of(world.message("pay", {"order": "o", "amount": 9}, key="used")), FakeLambdaContext())
    used = world.record("pay", "used")
    bad = records_of(world, row)
    good = [world.message("pay", {"order": key, "amount": 1}, key=key) for key in ("before", "after")]
    event = event_of(good[0], *bad, good[1])

    if happens == "the batch is kept":
        with pytest.raises(UnnameableRecord, match=reason):
            app.consumer(event, FakeLambdaContext())
    else:
        answer = app.consumer(event, FakeLambdaContext())
        keeps = [bad[0]["messageId"]] if happens.startswith("kept") else []
        assert kept(answer) == keeps

    for key in ("before", "after"):
        status = app.lookup("pay", key)
        assert status is not None
        assert (status.status, status.result) == ("completed", key)
    copies = world.dead_letters()
    assert len(copies) == (happens == "copied")
    if happens == "copied":
        (copy,) = copies
        assert copy["Body"] == bad[0]["body"]
        assert copy["note"]["source_queue"] == "default"
        assert reason in copy["note"]["reason"]
    if happens != "the batch is kept":
        assert any(reason in said for said in reasons(world)), reasons(world)
    assert world.record("pay", "bad") is None
    assert world.record("pay", "used") == used


@pytest.mark.parametrize("row", EVENTS)
def test_an_event_that_is_none_of_ours_is_answered_clearly(world: World, row: str) -> None:
    """G4: no records is a clear answer; what SQS did not send fails the invocation, so its own source keeps it."""
    reason, happens = TABLE[row]["Reason, as people read it"], TABLE[row]["What happens"]
    app = world.app(*job_types())

    if happens == "nothing to keep":
        assert app.consumer(EVENTS[row]) == {"batchItemFailures": []}
        assert world.names() == [reason]
    else:
        with pytest.raises(NotAnSqsEvent, match=reason) as refused:
            app.consumer(EVENTS[row])
        assert isinstance(refused.value, OnceqError)


def test_a_batch_of_every_bad_record_is_answered_exactly(world: World) -> None:
    """G5: all of them in one batch with two good ones: each as its row says, and no row sways another."""
    rows = [row for row in [*BODIES, *RECORDS] if TABLE[row]["What happens"] in {"kept", "copied"}]
    app = world.app(*job_types())
    app.consumer(event_of(world.message("pay", {"order": "o", "amount": 9}, key="used")), FakeLambdaContext())
    bad = {row: records_of(world, row)[0] for row in rows}
    good = [world.message("pay", {"order": key, "amount": 1}, key=key) for key in ("before", "after")]

    answer = app.consumer(event_of(good[0], *bad.values(), good[1]), FakeLambdaContext())

    assert kept(answer) == [bad[row]["messageId"] for row in rows if TABLE[row]["What happens"] == "kept"]
    copies = {copy["Body"] for copy in world.dead_letters()}
    assert copies == {bad[row]["body"] for row in rows if TABLE[row]["What happens"] == "copied"}
    assert all(app.lookup("pay", key) for key in ("before", "after"))


def test_a_body_without_envelope_is_served_by_the_default_job_type(world: World) -> None:
    """Not bad input where a default is declared: the whole body is the payload, and the key is selected from it."""
    served = JobType(pay, "pay", key="order")
    app = world.app(served, default=served)

    assert kept(app.consumer(event_of(world.raw('{"order": "o-1", "amount": 5}')), FakeLambdaContext())) == []
    status = app.lookup("pay", "o-1")
    assert status is not None
    assert status.result == "o-1"


def test_a_copy_that_fails_keeps_the_message(world: World) -> None:
    """G4: a message is acknowledged only when its copy has arrived."""
    world.sqs.delete_queue(QueueUrl=world.settings.queue("default").dlq_url)
    bad, good = world.raw("nonsense"), world.message("pay", {"order": "o", "amount": 1}, key="good")

    answer = world.app(*job_types()).consumer(event_of(bad, good), FakeLambdaContext())

    assert kept(answer) == [bad["messageId"]]
    assert "message.copy_failed" in world.names()
    assert world.record("pay", "good") is not None
