"""Messages, envelopes and idempotency keys: anything may arrive, and a job never runs under an unclear key."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceq.errors import EnvelopeError, IdempotencyKeyError
from onceq.keys import check_key, join_key
from onceq.layers import Layers
from onceq.message import (
    DeadLetterNote,
    Envelope,
    Message,
    NewerEnvelope,
    open_envelope,
    seal,
)
from onceq.record import MAX_PLAIN_BYTES, pk_of

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["messageId", "body", "receiptHandle", "attributes", "messageAttributes", "eventSourceARN", "eventSource"]
)
SYSTEM = st.dictionaries(st.sampled_from(["ApproximateReceiveCount", "MessageGroupId"]), ANY_JSON)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["onceq", "trace", "blob"]),
    st.dictionaries(st.sampled_from(["dataType", "stringValue", "binaryValue"]), ANY_JSON) | ANY_JSON,
)
ODD_RECORDS = (
    ANY_JSON
    | st.dictionaries(FIELDS, ANY_JSON)
    | st.fixed_dictionaries({"attributes": SYSTEM, "messageAttributes": ATTRIBUTES})
)
KEYS = st.text(min_size=1).filter(str.strip) | st.integers(-(10**30), 10**30)


def opened_or_reason(body: str | None) -> Envelope | NewerEnvelope | Layers | str:
    """Return the envelope, or why there is none."""
    try:
        return open_envelope(body)
    except EnvelopeError as error:
        return str(error)


@given(ODD_RECORDS)
def test_reading_a_record_never_raises(record: Any) -> None:
    """G5: whatever a record holds, reading it is no reason to fail: what is odd is left empty."""
    message = Message.from_record(record)

    assert message.message_id is None or message.message_id
    assert message.body is None or isinstance(message.body, str)
    assert message.receive_count >= 0
    assert all(attribute["DataType"] for attribute in message.sendable_attributes().values())


@given(ANY_JSON.map(json.dumps) | st.text() | st.none())
def test_opening_any_body_gives_an_envelope_or_a_readable_reason(body: str | None) -> None:
    """G4: a body is read, kept for a newer release, or refused with a reason; nothing else comes out."""
    opened = opened_or_reason(body)

    assert opened
    assert isinstance(opened, Envelope | NewerEnvelope | Layers | str)


@given(
    st.fixed_dictionaries(
        {"onceq": ANY_JSON | st.just(1)},
        optional={"job_type": ANY_JSON, "hops": ANY_JSON, "payload": ANY_JSON, "idempotency_key": ANY_JSON},
    )
)
def test_opening_any_envelope_gives_an_envelope_or_a_readable_reason(body: dict[str, Any]) -> None:
    """The same for what looks like an envelope and has odd fields."""
    opened = opened_or_reason(json.dumps(body))

    assert opened
    assert not isinstance(opened, Envelope) or (isinstance(opened.job_type, str) and opened.hops >= 0)


@pytest.mark.parametrize("version", [True, False, 0, -1, 1.0, 1.5, "1", None, [], {}], ids=repr)
def test_a_version_that_is_no_whole_number_from_one_on_is_refused(version: object) -> None:
    """An envelope that nobody's release made can never be served."""
    with pytest.raises(EnvelopeError, match="the envelope's version is"):
        open_envelope(json.dumps({"onceq": version, "job_type": "pay", "payload": {}}))


@pytest.mark.parametrize("version", [2, 3, 10**30])
def test_a_newer_version_is_kept_whatever_else_it_says(version: int) -> None:
    """G4: a roll-back must not lose what a newer release sent, even where its fields mean something else."""
    assert open_envelope(json.dumps({"onceq": version, "job_type": 7})) == NewerEnvelope(version)


@pytest.mark.parametrize("body", ["[1]", '"text"', "5", "null", '{"order": 1}', '{"job_type": "pay"}'])
def test_json_without_the_envelopes_field_is_whole_the_payload(body: str) -> None:
    """A message that no onceq producer made goes whole to the queue's default job type."""
    value = json.loads(body)

    assert open_envelope(body) == Layers(value, message=value, inner=value)


@pytest.mark.parametrize("field", [{"job_type": None}, {"job_type": ""}, {"job_type": 5}, {"hops": -1}, {"hops": True}])
def test_an_envelope_with_a_broken_field_is_refused(field: dict[str, Any]) -> None:
    """Its reason names the field."""
    with pytest.raises(EnvelopeError, match=next(iter(field))):
        open_envelope(json.dumps({"onceq": 1, "job_type": "pay", "payload": {}} | field))


def test_a_sealed_body_is_opened_as_it_was() -> None:
    """What the producer wrote is what the consumer reads; a character that SQS refuses travels as an escape."""
    payload = {"text": "\ufffe\uffff\x00\x1f é 😀", "n": 2**70}
    body = seal(job_type="pay", idempotency_key="k", payload=payload, created_at="2026-11-29T12:00:00Z")

    assert open_envelope(body) == Envelope("pay", payload, "k", 0)
    assert not set("\ufffe\uffff\x00\x1f") & set(body)
    assert json.loads(body)["created_at"] == "2026-11-29T12:00:00Z"


@pytest.mark.parametrize(
    ("key", "text"),
    [("o-1", "o-1"), (" o ", " o "), ("0", "0"), (0, "0"), (-7, "-7"), (10**99, str(10**99)), ("é😀", "é😀")],
)
def test_a_key_is_a_string_that_is_not_blank_or_an_int(key: object, text: str) -> None:
    """Zero is a key: an int is written in decimal, and nothing is trimmed."""
    assert check_key(key) == text


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, "is missing"),
        ("", "is blank"),
        (" \t\n\u2003", "is blank"),
        (True, "is a bool"),
        (False, "is a bool"),
        (1.0, "is a float"),
        ([], "is a list"),
        (["a"], "is a list"),
        ({}, "is a dict"),
        (b"a", "is a bytes"),
        ("a\ud800", "lone surrogate"),
        ("x" * 8193, "8193 bytes"),
        ("é" * 4097, "8194 bytes"),
        (10**100, "is a int"),
    ],
    ids=repr,
)
def test_any_other_key_is_refused(key: object, reason: str) -> None:
    """A missing or odd key is an error and never an unprotected run, and two values never become one key."""
    with pytest.raises(IdempotencyKeyError, match=reason):
        check_key(key)


@given(st.lists(KEYS, min_size=1, max_size=4), st.lists(KEYS, min_size=1, max_size=4))
def test_different_parts_never_make_one_key(one: list[str | int], other: list[str | int]) -> None:
    """A separator inside a part is escaped; an int and its decimal text are one, as they are in a key alone."""
    same = [str(part) for part in one] == [str(part) for part in other]

    assert (join_key(*one) == join_key(*other)) == same


@example([":"], ["%3A"])
@example(["%3A"], ["%253A"])
@given(st.lists(st.text(alphabet=":%253A", min_size=1), min_size=1), st.lists(st.text(alphabet=":%253A", min_size=1)))
def test_the_escape_itself_cannot_be_forged(one: list[str], other: list[str]) -> None:
    """The same where the parts are made of nothing but the separator and its escape."""
    if other:
        assert (join_key(*one) == join_key(*other)) == (one == other)


def test_no_part_and_a_blank_part_are_refused() -> None:
    """A key of which a part is missing would name another job."""
    for parts in ((), ("",), ("a", " "), ("a", None), ("a", True)):
        with pytest.raises(IdempotencyKeyError):
            join_key(*parts)


@pytest.mark.parametrize("key", ["x" * 2049, "😀" * 700, "é" * 1025, "x" * 8192, "x" * 1024], ids=len)
def test_a_key_too_long_for_dynamodb_keeps_a_readable_prefix_and_a_hash(key: str) -> None:
    """DynamoDB takes 2,048 bytes of UTF-8; the limit counts bytes, and no character is cut in two."""
    pk = pk_of("process_payment", key)

    assert len(pk.encode()) <= MAX_PLAIN_BYTES + 1 + 64
    assert pk.startswith(f"process_payment#{key[:100]}")
    assert "\ufffd" not in pk


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30), st.sampled_from([0, 900, 1100, 2048]))
def test_two_jobs_never_share_a_record(one: str, other: str, length: int) -> None:
    """Long keys that differ only at the end, after the readable prefix, are two records."""
    prefix = "p" * length

    assert (pk_of("pay", prefix + one) == pk_of("pay", prefix + other)) == (one == other)
    assert pk_of("pay", one) != pk_of("pay.x", one)


def test_a_short_key_cannot_be_the_hashed_form_of_a_long_one() -> None:
    """The two forms differ in length, so a key that imitates the hashed form is a record of its own."""
    hashed = pk_of("pay", "x" * 3000)

    assert len(hashed.encode()) > MAX_PLAIN_BYTES > len(pk_of("pay", "x" * (MAX_PLAIN_BYTES - 5)).encode())
    assert pk_of("pay", hashed.removeprefix("pay#")) != hashed


def test_attributes_are_sent_on_as_they_came() -> None:
    """A dead-letter copy keeps the attributes: binary ones decoded, broken ones and our own note left out."""
    record = {
        "messageAttributes": {
            "text": {"dataType": "String", "stringValue": "a"},
            "number": {"dataType": "Number.int", "stringValue": "5"},
            "blob": {"dataType": "Binary", "binaryValue": base64.b64encode(b"\x00\xff").decode()},
            "broken": {"dataType": "Binary", "binaryValue": "***"},
            "typeless": {"stringValue": "a"},
            "empty": {"dataType": "String"},
            "onceq": {"dataType": "String", "stringValue": '{"version":4}'},
        }
    }
    message = Message.from_record(record)

    assert message.sendable_attributes() == {
        "text": {"DataType": "String", "StringValue": "a"},
        "number": {"DataType": "Number.int", "StringValue": "5"},
        "blob": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    assert message.redriven_version == 4


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "{}", '{"version": "4"}', '{"version": true}', '{"version": 4.5}']
)
def test_a_note_that_is_not_ours_is_no_redrive(text: str) -> None:
    """Somebody else's attribute of that name must not run a rejected job again."""
    record = {"messageAttributes": {"onceq": {"dataType": "String", "stringValue": text}}}

    assert Message.from_record(record).redriven_version is None


@given(st.text(), st.text(), st.text(), st.integers(0, 2**63))
def test_a_note_is_small_readable_json_that_sqs_takes(reason: str, error: str, key: str, version: int) -> None:
    """The note goes out as one attribute: bounded, valid JSON, printable, and its version comes back."""
    note = DeadLetterNote(reason * 50, error * 50, "pay", key * 50, attempts=3, version=version, source_queue="default")
    text = note.to_text()

    assert len(text.encode()) < 16_384
    assert text.isprintable()
    assert json.loads(text)["attempts"] == 3
    attribute = {"dataType": "String", "stringValue": text}
    assert Message.from_record({"messageAttributes": {"onceq": attribute}}).redriven_version == version
