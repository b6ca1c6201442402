"""The builders of events: attribute for attribute what Lambda gives, checksums too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from onceq import job
from onceq.errors import IdempotencyKeyError
from onceq.message import open_envelope
from onceq.poller import lambda_event
from onceq.testing import envelope, queue_arn, sqs_event, sqs_record
from onceq.testing.contents import sent_to

if TYPE_CHECKING:
    from onceq.testing import Environment

EVENTS = Path(__file__).resolve().parents[2] / "events"
GIVEN: dict[str, Any] = {
    "tenant": "t-ä",
    "raw": b"\0\xff",
    "count": {"DataType": "Number", "StringValue": "3"},
    "kind": {"DataType": "String.kind", "StringValue": "x"},
}


def shape(value: Any) -> Any:
    """Return a value's shape: the names of what is in it, and the types."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return type(value).__name__


@pytest.mark.parametrize("name", ["one-payment", "fifo-batch"])
def test_a_record_has_every_attribute_of_the_samples(name: str) -> None:
    """The same names and types, and the same checksum of the same body."""
    path = EVENTS / f"{name}.json"
    if not path.exists():
        pytest.skip("the sample event is gone")
    for sample in json.loads(path.read_text())["Records"]:
        group = sample["attributes"].get("MessageGroupId")

        made = sqs_record(sample["body"], queue=sample["eventSourceARN"], group=group)

        assert shape(made) == shape(sample)
        assert made["md5OfBody"] == sample["md5OfBody"]
        assert made["awsRegion"] == sample["awsRegion"]


@pytest.mark.parametrize("given", [{}, GIVEN], ids=["without attributes", "with attributes"])
def test_a_record_equals_one_that_sqs_made(env: Environment, given: dict[str, Any]) -> None:
    """Sent to moto, received, and made an event by the local poller: the same shape, body and checksums."""
    url = env.mailbox.place_of("default").url
    attributes = {
        name: value
        if isinstance(value, dict)
        else {
            "DataType": "String" if isinstance(value, str) else "Binary",
            "StringValue" if isinstance(value, str) else "BinaryValue": value,
        }
        for name, value in given.items()
    }
    boto3.client("sqs").send_message(QueueUrl=url, MessageBody="bödy", MessageAttributes=attributes)
    [(message, _)] = sent_to(url)
    counted = {"ApproximateReceiveCount": "1", "ApproximateFirstReceiveTimestamp": "1"}
    received = message | {"ReceiptHandle": "r", "Attributes": message["Attributes"] | counted}
    [of_sqs] = lambda_event([received], queue_arn("JobsQueue"))["Records"]

    made = sqs_record("bödy", attributes=given)

    assert shape(made) == shape(of_sqs)
    same = ("body", "md5OfBody", "md5OfMessageAttributes", "messageAttributes", "eventSource", "eventSourceARN")
    assert {name: made.get(name) for name in same} == {name: of_sqs.get(name) for name in same}


@pytest.mark.parametrize("given", [{}, GIVEN], ids=["without attributes", "with attributes"])
def test_a_message_that_was_put_has_the_same_checksums(env: Environment, given: dict[str, Any]) -> None:
    """What comes from the mailbox is as real as what SQS sends."""
    [record] = env.mailbox.receive([env.put("bödy", attributes=given)])["Records"]

    made = sqs_record("bödy", attributes=given)

    assert shape(record) == shape(made)
    same = ("md5OfBody", "md5OfMessageAttributes", "messageAttributes", "messageId", "eventSourceARN")
    assert {name: record.get(name) for name in same} == {name: made.get(name) for name in same}


def test_the_options_are_what_they_say() -> None:
    """Each changes its own attribute."""
    made = sqs_record(
        {"a": 1}, number=7, queue="Other.fifo", message_id="m", receive_count=3, sent_ms=5, received_ms=9, group="g-1"
    )

    assert made["body"] == '{"a":1}'
    assert (made["messageId"], made["receiptHandle"]) == ("m", "receipt-7-3")
    assert made["eventSourceARN"] == "arn:aws:sqs:us-east-1:123456789012:Other.fifo"
    assert made["attributes"] | {"MessageDeduplicationId": ""} == {
        "ApproximateReceiveCount": "3",
        "SentTimestamp": "5",
        "SenderId": "AIDAEXAMPLE",
        "ApproximateFirstReceiveTimestamp": "9",
        "SequenceNumber": "00000000000000000007",
        "MessageGroupId": "g-1",
        "MessageDeduplicationId": "",
    }


def test_a_group_on_a_standard_queue_is_a_tenant() -> None:
    """It has no sequence number there."""
    attributes = sqs_record("x", group="tenant-1")["attributes"]

    assert attributes["MessageGroupId"] == "tenant-1"
    assert "SequenceNumber" not in attributes


def test_an_event_takes_bodies_and_whole_records() -> None:
    """Numbers go on, so that no two are alike; a payload that has a field ``messageId`` is a body."""
    whole = sqs_record("c", number=9)

    records = sqs_event("a", {"messageId": "b"}, whole, receive_count=2)["Records"]

    assert [record["body"] for record in records] == ["a", '{"messageId":"b"}', "c"]
    assert [record["attributes"]["ApproximateReceiveCount"] for record in records] == ["2", "2", "1"]
    assert len({record["messageId"] for record in records}) == 3


def test_an_envelope_is_the_producers() -> None:
    """By a job type or its name."""

    @job("greet", max_duration=5)
    def greet(payload: dict[str, Any]) -> None:
        """Do nothing."""

    opened: Any = open_envelope(envelope(greet, {"n": 1}, key="k"))

    assert (opened.job_type, opened.idempotency_key, opened.payload) == ("greet", "k", {"n": 1})
    assert envelope("greet", {"n": 1}, key="k") == envelope(greet, {"n": 1}, key="k")


def test_an_envelopes_key_is_text_as_the_producers_is() -> None:
    """A number is written in decimal; what is no key is refused, as by the producer."""
    opened: Any = open_envelope(envelope("greet", {}, key=7))

    assert opened.idempotency_key == "7"
    assert json.loads(envelope("greet", {}, key=7))["idempotency_key"] == "7"
    with pytest.raises(IdempotencyKeyError, match="is blank"):
        envelope("greet", {}, key=" ")
