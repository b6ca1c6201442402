"""The sample events are real: what SQS and Lambda would send, checked to the last digest."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from onceq.layers import Layers
from onceq.message import Envelope, open_envelope, seal
from template.reading import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# What the relay and recovery are invoked with; every other event is a batch of messages.
BY_THE_CLOCK = ROOT / "events" / "every-minute.json"
NO_BATCHES = {BY_THE_CLOCK, ROOT / "events" / "envelope.schema.json"}
SHIPPED = {
    ROOT / "events" / f"{name}.json"
    for name in (
        "batch-with-poison",
        "duplicate-delivery",
        "fifo-batch",
        "ledger-entries",
        "nightly-report",
        "one-booking",
        "one-payment",
        "one-webhook",
        "payment-with-receipt",
        "without-envelope",
    )
}
FOUND = {*(ROOT / "events").glob("*.json")}
EVENTS = sorted(FOUND & SHIPPED)
OF_THE_USER = sorted(FOUND - SHIPPED - NO_BATCHES)
SCHEMA: dict[str, Any] = json.loads((ROOT / "events" / "envelope.schema.json").read_text())
# https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html#example-standard-queue-message-event
RECORD = {
    "messageId",
    "receiptHandle",
    "body",
    "attributes",
    "messageAttributes",
    "md5OfBody",
    "eventSource",
    "eventSourceARN",
    "awsRegion",
}
ATTRIBUTES = {"ApproximateReceiveCount", "SentTimestamp", "SenderId", "ApproximateFirstReceiveTimestamp"}
FIFO_ATTRIBUTES = ATTRIBUTES | {"SequenceNumber", "MessageGroupId", "MessageDeduplicationId"}


def _records(path: Path) -> list[dict[str, Any]]:
    event = json.loads(path.read_text())
    assert set(event) == {"Records"}
    records = event["Records"]
    assert isinstance(records, list)
    return records


def _named(name: str) -> list[dict[str, Any]]:
    path = ROOT / "events" / f"{name}.json"
    if not path.exists():
        pytest.skip("the sample event is gone")
    return _records(path)


def _valid(body: str) -> bool:
    try:
        jsonschema.validate(json.loads(body), SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def _digest_of(attributes: dict[str, Any]) -> str:
    """Return SQS's digest of string attributes: lengths and texts of name, type and value, sorted by name."""
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        for text, kind in (
            (name, b""),
            (attributes[name]["dataType"], b""),
            (attributes[name]["stringValue"], b"\x01"),
        ):
            digest.update(kind + struct.pack(">I", len(text.encode())) + text.encode())
    return digest.hexdigest()


def test_every_promised_event_is_there() -> None:
    """The events that the documentation and other tests use exist, as long as their jobs do."""
    pytest.importorskip("jobs.payments", reason="the example job is gone")
    assert not SHIPPED - FOUND


@pytest.mark.parametrize("path", EVENTS, ids=lambda path: path.stem)
def test_records_are_as_lambda_sends_them(path: Path) -> None:
    """Every field is there with its right form, and every digest is right."""
    records = _records(path)
    assert records
    assert len({record["messageId"] for record in records}) == len(records)
    assert len({record["receiptHandle"] for record in records}) == len(records)
    for record in records:
        fifo = record["eventSourceARN"].endswith(".fifo")
        assert set(record) - {"md5OfMessageAttributes"} == RECORD
        assert set(record["attributes"]) == (FIFO_ATTRIBUTES if fifo else ATTRIBUTES)
        assert str(uuid.UUID(record["messageId"])) == record["messageId"]
        assert ("md5OfMessageAttributes" in record) == bool(record["messageAttributes"])
        _check_digests(path, record)
        assert record["eventSource"] == "aws:sqs"
        assert re.fullmatch(r"arn:aws:sqs:us-east-1:123456789012:(Ledger)?JobsQueue(\.fifo)?", record["eventSourceARN"])
        assert record["awsRegion"] == "us-east-1"
        assert int(record["attributes"]["ApproximateReceiveCount"]) >= 1
        first, sent = (
            int(record["attributes"][name]) for name in ("ApproximateFirstReceiveTimestamp", "SentTimestamp")
        )
        assert first >= sent


def test_a_sample_event_of_the_user_is_one_that_lambda_could_send() -> None:
    """A batch of messages has what the consumer reads and digests that fit; what is no batch is not looked at."""
    for path in OF_THE_USER:
        _check_batch(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"body": '{"order_id": "o-2"}'}, '"md5OfBody": "3b64baa2bcd5e64a612e862eee74c115"'),
        ({"attributes": {"ApproximateReceiveCount": "1"}}, "also has .*'SentTimestamp'"),
    ],
    ids=["body", "attributes"],
)
def test_a_sample_event_that_does_not_fit_is_told_what_to_change(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    """A user writes a body and no digest: the message has the one to put in. An event of another service is theirs."""
    event = json.loads((ROOT / "events" / "envelope.schema.json").read_text())
    own = tmp_path / "own.json"
    own.write_text(json.dumps(event))
    _check_batch(own)
    record = {
        "messageId": "m-1",
        "receiptHandle": "r-1",
        "body": "{}",
        "attributes": dict.fromkeys(ATTRIBUTES, "1"),
        "messageAttributes": {},
        "md5OfBody": hashlib.md5(b"{}", usedforsecurity=False).hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:JobsQueue",
        "awsRegion": "us-east-1",
    }
    own.write_text(json.dumps({"Records": [record]}))
    _check_batch(own)

    own.write_text(json.dumps({"Records": [record | change]}))
    with pytest.raises(AssertionError, match=told):
        _check_batch(own)


def _check_batch(path: Path) -> None:
    event = json.loads(path.read_text())
    records = event.get("Records") if isinstance(event, dict) else event
    if not isinstance(records, list) or not all(one.get("eventSource") == "aws:sqs" for one in records):
        return
    for record in records:
        missing = (RECORD - {"messageAttributes"} - set(record)) | (ATTRIBUTES - set(record.get("attributes", {})))
        assert not missing, f"{path.name}: a record of SQS also has {sorted(missing)}"
        _check_digests(path, record)
    twice = len(records) - len({record["messageId"] for record in records})
    assert not twice, f"{path.name}: give each record a messageId of its own"


def _check_digests(path: Path, record: dict[str, Any]) -> None:
    """Check the digests; whoever has changed a body reads which one to put in."""
    body = hashlib.md5(record["body"].encode(), usedforsecurity=False).hexdigest()
    assert record["md5OfBody"] == body, f'{path.name}: the digest is not that of the body: set "md5OfBody": "{body}"'
    attributes = record.get("messageAttributes") or {}
    if attributes and all("stringValue" in one for one in attributes.values()):
        digest = _digest_of(attributes)
        assert record.get("md5OfMessageAttributes") == digest, (
            f'{path.name}: the digest is not that of the attributes: set "md5OfMessageAttributes": "{digest}"'
        )


def test_one_payment_is_an_envelope_of_the_design() -> None:
    """The first example is the payment that the documentation speaks of."""
    [record] = _named("one-payment")
    payment = {"order_id": "o-1", "customer_id": "cus_1", "amount_cents": 500}
    assert _valid(record["body"])
    assert open_envelope(record["body"]) == Envelope("process_payment", payment, "o-1")


def test_the_poison_message_stands_among_good_ones() -> None:
    """One body of the batch is not JSON; its neighbours are envelopes."""
    assert [_valid(record["body"]) for record in _named("batch-with-poison")] == [True, False, True]


def test_a_duplicate_is_the_same_body_under_another_message_id() -> None:
    """SQS delivers one job twice: same body, other id, so nothing may be keyed on the message id."""
    first, second = _named("duplicate-delivery")
    assert first["body"] == second["body"]
    assert _valid(first["body"])


@pytest.mark.parametrize("name", ["fifo-batch", "ledger-entries"])
def test_a_fifo_batch_keeps_the_order_of_a_group(name: str) -> None:
    """Sequence numbers rise, and one group has more than one message."""
    records = _named(name)
    assert all(_valid(record["body"]) for record in records)
    numbers = [int(record["attributes"]["SequenceNumber"]) for record in records]
    groups = [record["attributes"]["MessageGroupId"] for record in records]
    assert numbers == sorted(set(numbers))
    assert 1 < len(set(groups)) < len(groups)


def test_a_message_without_envelope_is_a_plain_payload() -> None:
    """A body that is not an envelope goes whole, as payload, to the queue's default job type."""
    [record] = _named("without-envelope")
    assert not _valid(record["body"])
    body = json.loads(record["body"])
    assert open_envelope(record["body"]) == Layers(body, message=body, inner=body)


def test_the_nightly_report_is_an_envelope_whose_key_is_the_time() -> None:
    """What EventBridge Scheduler sends is an envelope like any other, and was sent when it says."""
    [record] = _named("nightly-report")
    at = "2026-11-30T02:00:00Z"
    sent = datetime.fromtimestamp(int(record["attributes"]["SentTimestamp"]) / 1000, UTC)
    assert _valid(record["body"])
    assert open_envelope(record["body"]) == Envelope("nightly_report", {"scheduled_at": at}, f"nightly_report:{at}")
    assert sent.strftime("%Y-%m-%dT%H:%M:%SZ") == at


def test_the_clocks_event_is_as_eventbridge_sends_it() -> None:
    """A rule's scheduled event has these fields and no records: neither the relay nor recovery reads any of them.

    Its shape: https://docs.aws.amazon.com/lambda/latest/dg/services-cloudwatchevents.html
    """
    event = json.loads(BY_THE_CLOCK.read_text())
    fields = {"version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail"}
    assert set(event) == fields
    assert (event["detail-type"], event["source"], event["detail"]) == ("Scheduled Event", "aws.events", {})
    assert str(uuid.UUID(event["id"])) == event["id"]
    assert re.fullmatch(r"arn:aws:events:us-east-1:123456789012:rule/[\w-]+", event["resources"][0])


def test_the_schema_describes_what_the_producer_seals() -> None:
    """A sealed body is valid by the schema, which is a valid schema with valid examples."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    at = "2026-11-29T12:00:00.000Z"
    assert _valid(seal(job_type="greet", idempotency_key="k", payload={"name": "Ada"}, created_at=at))
    assert _valid(seal(job_type="greet", idempotency_key="k", payload=None, created_at=at))
    assert all(_valid(json.dumps(example)) for example in SCHEMA["examples"])


@pytest.mark.parametrize(
    "change",
    [
        {"onceq": 2},
        {"onceq": "1"},
        {"job_type": "Process Payment"},
        {"job_type": None},
        {"idempotency_key": "  "},
        {"idempotency_key": True},
        {"hops": -1},
        {"created_at": "yesterday"},
    ],
    ids=json.dumps,
)
def test_the_schema_refuses_what_the_consumer_would(change: dict[str, Any]) -> None:
    """A newer version, a broken name, key, count or time is no valid envelope of version 1."""
    assert not _valid(json.dumps(SCHEMA["examples"][0] | change))
    assert _valid(json.dumps(SCHEMA["examples"][0] | {"tenant": "unknown fields are kept"}))
