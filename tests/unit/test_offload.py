"""The wire format of large messages: the Extended Client's pointers, and what we stamp beside ours."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.buckets import as_lambda_passes, attribute
from onceq.keys import MAX_KEY_BYTES
from onceq.message import Message
from onceq.offload import CLASS, JOB_TYPE, KEY, LEGACY_CLASS, SIZE, Pointer, pointer_in, stamped, stamps, with_message

# Literal bodies, as they stand in queues.
JAVA = '["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"payloads","s3Key":"0f1e"}]'
JAVA_LEGACY = '["com.amazon.sqs.javamessaging.MessageS3Pointer",{"s3BucketName":"payloads","s3Key":"0f1e"}]'
PYTHON = '["software.amazon.payloadoffloading.PayloadS3Pointer", {"s3BucketName": "payloads", "s3Key": "0f1e"}]'
OTHER_ORDER = '["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3Key":"0f1e","s3BucketName":"payloads"}]'
MORE_FIELDS = '["com.amazon.sqs.javamessaging.MessageS3Pointer",{"s3BucketName":"payloads","s3Key":"0f1e","x":[1]}]'
SNS = {"Type": "Notification", "MessageId": "m-1", "TopicArn": "arn:aws:sns:us-east-1:123456789012:t", "Message": JAVA}
TAKEN = {
    "java": JAVA,
    "java-legacy": JAVA_LEGACY,
    "python": PYTHON,
    "other-order": OTHER_ORDER,
    "more-fields": MORE_FIELDS,
    "sns": json.dumps(SNS),
    "sns-legacy": json.dumps(SNS | {"Message": JAVA_LEGACY}),
    "spaces-around": f"\n {JAVA} ",
}
BROKEN: dict[str, Any] = {
    "class-only": [CLASS],
    "three-parts": [CLASS, {"s3BucketName": "payloads", "s3Key": "k"}, {}],
    "another-class": [f"{CLASS}2", {"s3BucketName": "payloads", "s3Key": "k"}],
    "class-in-a-list": [[CLASS], {"s3BucketName": "payloads", "s3Key": "k"}],
    "no-key": [CLASS, {"s3BucketName": "payloads"}],
    "no-bucket": [CLASS, {"s3Key": "k"}],
    "empty-key": [CLASS, {"s3BucketName": "payloads", "s3Key": ""}],
    "empty-bucket": [CLASS, {"s3BucketName": "", "s3Key": "k"}],
    "number-for-key": [CLASS, {"s3BucketName": "payloads", "s3Key": 7}],
    "null-for-bucket": [CLASS, {"s3BucketName": None, "s3Key": "k"}],
    "list-for-fields": [CLASS, ["payloads", "k"]],
    "text-for-fields": [CLASS, "payloads/k"],
    "an-object": {CLASS: {"s3BucketName": "payloads", "s3Key": "k"}},
    "inside-a-payload": {"note": JAVA},
    "inside-a-list": [[CLASS, {"s3BucketName": "payloads", "s3Key": "k"}]],
    "sns-without-a-pointer": SNS | {"Message": f"about {CLASS}"},
    "sns-with-an-object": SNS | {"Message": {"s3": CLASS}},
}
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
TAKEN_BY_SQS = re.compile("[\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200).filter(str.strip)


def carrying(attributes: dict[str, Any]) -> Message:
    """Return a message with these attributes."""
    return Message("m-1", JAVA, attributes=attributes)


@pytest.mark.parametrize("body", TAKEN.values(), ids=TAKEN)
def test_every_pointer_that_the_extended_client_writes_is_read(body: str) -> None:
    """Both class names, either library's spacing, fields that are not known, and SNS around it."""
    assert pointer_in(body) == Pointer("payloads", "0f1e")


def test_our_pointer_is_the_extended_clients_own_text() -> None:
    """Byte for byte what the library for Java writes, so that it reads ours."""
    assert Pointer("payloads", "0f1e").to_text() == JAVA


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_what_is_no_pointer_is_a_body_like_any_other(body: Any) -> None:
    """Wrong types, empty names, too few or too many parts: nothing is fetched, and nothing is raised."""
    assert pointer_in(json.dumps(body)) is None


@pytest.mark.parametrize("body", [f"{CLASS} is not JSON", f'["{CLASS}"', f'["{CLASS}", {"[" * 300}', "", "[]"])
def test_a_body_that_only_names_the_class_is_no_pointer(body: str) -> None:
    """Whatever cannot be decoded is left to whoever reads bodies."""
    assert pointer_in(body) is None


@given(st.recursive(st.sampled_from([CLASS, LEGACY_CLASS, "s3Key", "", 1, None]), st.lists, max_leaves=6))
def test_no_body_that_holds_the_class_name_is_a_crash(value: Any) -> None:
    """Property: lists of lists of it are no pointers."""
    assert pointer_in(json.dumps([CLASS, value])) is None


def test_the_body_takes_the_place_of_its_pointer() -> None:
    """Plain, it is the whole body; in a notification of SNS it is the message, and the rest stays."""
    assert with_message(JAVA, '{"onceq": 1}') == '{"onceq": 1}'
    assert json.loads(with_message(json.dumps(SNS), '{"paid": true}')) == SNS | {"Message": '{"paid": true}'}


def test_the_stamps_are_three_attributes() -> None:
    """The size, by which the Extended Client knows an off-loaded message, and whose job it is."""
    assert stamps("act", "o-1", 1_048_577) == {
        "ExtendedPayloadSize": {"DataType": "Number", "StringValue": "1048577"},
        "onceq.job_type": {"DataType": "String", "StringValue": "act"},
        "onceq.key": {"DataType": "String", "StringValue": "o-1"},
    }


def test_only_what_sqs_refuses_is_escaped_in_a_stamped_key() -> None:
    """A person finds the key in the console; a percent sign is escaped, so that no two keys are stamped alike."""
    assert stamps("act", "a/ü 😀%41\x00\ufffe", 1)[KEY]["StringValue"] == "a/ü 😀%2541%00%EF%BF%BE"


@given(keys)
@example("%41")
@example("%")
@example("\x00\x1f\x7f")
@example("\ufffe\uffff\ufdd0")
@example("\u2028\r\n\t")
@example("😀" * (MAX_KEY_BYTES // 4))
@example("\x01" * MAX_KEY_BYTES)
def test_every_key_survives_its_stamp(key: str) -> None:
    """Property: SQS takes what is stamped, and it reads as the key, whatever characters and however long."""
    attributes = stamps("process_payment", key, 1)

    assert TAKEN_BY_SQS.fullmatch(attributes[KEY]["StringValue"])
    assert stamped(carrying(as_lambda_passes(attributes))) == ("process_payment", key)


@given(keys, keys)
def test_different_keys_have_different_stamps(one: str, other: str) -> None:
    """Property: a job is never taken for another's duplicate."""
    same = stamps("act", one, 1)[KEY] == stamps("act", other, 1)[KEY]

    assert same == (one == other)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {SIZE: attribute("1", "Number")},
        {JOB_TYPE: attribute("act")},
        {KEY: attribute("k-1")},
        {JOB_TYPE: attribute(""), KEY: attribute("k-1")},
        {JOB_TYPE: {"dataType": "String"}, KEY: attribute("k-1")},
        {JOB_TYPE: {"stringValue": 7}, KEY: attribute("k-1")},
        {JOB_TYPE: "act", KEY: "k-1"},
        {JOB_TYPE: None, KEY: ["k-1"]},
    ],
)
def test_what_is_not_stamped_whole_is_not_stamped(attributes: dict[str, Any]) -> None:
    """Messages of other producers have no stamps, or odd ones: nobody's job is guessed."""
    assert stamped(carrying(attributes)) is None
