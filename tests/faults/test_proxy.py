"""The proxy itself: each fault really is what the client sees, and the server has, or has not, carried it out."""

from __future__ import annotations

import http.client
import json
import urllib.parse
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from botocore import exceptions

from kit import wire_faults as wire
from kit.fault_proxy import Fault, name_of
from kit.fault_stand import Stand, Wire, wired
from kit.fault_table import KINDS, OF_DYNAMODB, OF_SQS, OF_WRITES
from kit.world import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

ERRORS = [
    fault
    for group in (KINDS, OF_DYNAMODB, OF_SQS, OF_WRITES)
    for faults in group.values()
    for fault in faults
    if fault.name[0].isupper()
]


@pytest.fixture(scope="module")
def opened(ministack: str) -> Iterator[Wire]:
    """A world of ministack behind the proxy."""
    with wired(ministack) as found:
        yield found


@pytest.fixture
def stand(opened: Wire) -> Stand:
    """A queue and a name of its own, and a proxy without plans."""
    return Stand(opened)


def put(opened: Wire, key: str) -> Any:
    """Put an item through the proxy."""
    return opened.clients["dynamodb"].put_item(TableName=TABLE, Item={"pk": {"S": key}})


def is_there(opened: Wire, key: str) -> bool:
    """Return whether the server has it."""
    return "Item" in opened.world.dynamodb.get_item(TableName=TABLE, Key={"pk": {"S": key}}, ConsistentRead=True)


def _ask(opened: Wire, service: str, stand: Stand) -> None:
    if service == "dynamodb":
        put(opened, stand.key)
    else:
        opened.clients["sqs"].send_message(QueueUrl=stand.queue.url, MessageBody="x")


def by_hand(stand: Stand, fault: Fault | None = None) -> tuple[dict[str, str], bytes]:
    """List the tables without botocore; return the headers and what came of the body."""
    if fault is not None:
        stand.proxy.plan("ListTables", fault)
    headers = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"}
    with closing(http.client.HTTPConnection(urllib.parse.urlsplit(stand.proxy.endpoint).netloc, timeout=10)) as opened:
        opened.request("POST", "/", b"{}", headers)
        response = opened.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        try:
            return found, response.read()
        except http.client.IncompleteRead as cut:
            return found | {"cut": "yes"}, cut.partial


@pytest.mark.parametrize(
    ("fault", "error", "applied"),
    [
        (wire.SLOW, exceptions.ReadTimeoutError, True),
        (wire.SILENT, exceptions.ReadTimeoutError, False),
        (wire.SLOW_BODY, exceptions.ReadTimeoutError, True),
        (wire.RESET_BEFORE, exceptions.ConnectionClosedError, False),
        (wire.RESET_AFTER, exceptions.ConnectionClosedError, True),
    ],
    ids=str,
)
def test_a_response_that_never_comes(
    opened: Wire, stand: Stand, fault: Fault, error: type[Exception], *, applied: bool
) -> None:
    """The client waits in vain, or loses its connection; the request was carried out, or it was not."""
    stand.proxy.plan("PutItem", fault)

    with pytest.raises(error):
        put(opened, stand.key)
    assert is_there(opened, stand.key) is applied
    assert stand.proxy.met() == 1
    put(opened, stand.key)
    assert is_there(opened, stand.key)


def test_a_truncated_body_is_shorter_than_it_says(stand: Stand) -> None:
    """The length is the whole body's, and the connection ends before it."""
    headers, body = by_hand(stand, wire.TRUNCATED)

    assert headers["cut"] == "yes"
    assert len(body) < int(headers["content-length"])


def test_a_garbled_body_is_as_long_as_it_says_and_no_json(stand: Stand) -> None:
    """The length is right, and the rest is missing."""
    headers, body = by_hand(stand, wire.GARBLED)

    assert "cut" not in headers
    assert len(body) == int(headers["content-length"])
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)


@pytest.mark.parametrize(("fault", "right"), [(None, True), (wire.WRONG_CRC, False)], ids=str)
def test_a_wrong_crc_stands_beside_a_right_body(stand: Stand, fault: Fault | None, *, right: bool) -> None:
    """The body is whole, and its checksum is another's."""
    headers, body = by_hand(stand, fault)

    assert "TableNames" in json.loads(body)
    assert (int(headers["x-amz-crc32"]) == zlib.crc32(body)) is right


def test_a_wrong_md5_stands_beside_a_message_that_was_taken(opened: Wire, stand: Stand) -> None:
    """SQS has the message, and says another checksum of it."""
    stand.proxy.plan("SendMessage", wire.WRONG_MD5)

    answer = opened.clients["sqs"].send_message(QueueUrl=stand.queue.url, MessageBody="x")
    assert answer["MD5OfMessageBody"] == "0" * 32
    assert stand.waiting() == 1


@pytest.mark.parametrize("service", ["dynamodb", "sqs"])
@pytest.mark.parametrize("fault", ERRORS, ids=str)
def test_an_error_is_the_service_s_own(opened: Wire, stand: Stand, fault: Fault, service: str) -> None:
    """The client reads code and status as it reads the service's, and nothing was carried out."""
    stand.proxy.plan("PutItem" if service == "dynamodb" else f"SendMessage {stand.queue.url.rpartition('/')[2]}", fault)

    with pytest.raises(exceptions.ClientError) as refusal:
        _ask(opened, service, stand)
    assert refusal.value.response["Error"]["Code"] == fault.name
    assert refusal.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert not is_there(opened, stand.key)
    assert stand.waiting() == 0


@pytest.mark.parametrize(
    ("fault", "status", "applied"),
    [(wire.SERVER_ERROR, 500, False), (wire.SERVER_ERROR_AFTER, 500, True), (wire.UNAVAILABLE, 503, False)],
    ids=str,
)
def test_a_server_s_error(opened: Wire, stand: Stand, fault: Fault, status: int, *, applied: bool) -> None:
    """A 500 says nothing of whether the request was carried out; a 503 speaks no JSON."""
    stand.proxy.plan("PutItem", fault)

    with pytest.raises(exceptions.ClientError) as refusal:
        put(opened, stand.key)
    assert refusal.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert is_there(opened, stand.key) is applied


@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        (wire.CANCELLED_CONFLICT, ["TransactionConflict", "None"]),
        (wire.CANCELLED_THROTTLED, ["None", "ThrottlingError"]),
        (wire.CANCELLED_MIXED, ["TransactionConflict", "ConditionalCheckFailed"]),
        (wire.CANCELLED_VALIDATION, ["None", "ValidationError"]),
    ],
    ids=str,
)
def test_a_cancelled_transaction_has_a_reason_for_each_write(
    opened: Wire, stand: Stand, fault: Fault, codes: list[str]
) -> None:
    """None of its writes was carried out."""
    keys = [stand.key, f"{stand.key}-other"]
    stand.proxy.plan("TransactWriteItems", fault)

    with pytest.raises(exceptions.ClientError) as refusal:
        opened.clients["dynamodb"].transact_write_items(
            TransactItems=[{"Put": {"TableName": TABLE, "Item": {"pk": {"S": key}}}} for key in keys]
        )
    assert [reason["Code"] for reason in refusal.value.response["CancellationReasons"]] == codes
    assert not any(is_there(opened, key) for key in keys)


@pytest.mark.parametrize(("fault", "sender"), [(wire.ENTRY_FAILED, False), (wire.ENTRY_REFUSED, True)], ids=str)
def test_an_entry_of_a_batch_fails_alone(opened: Wire, stand: Stand, fault: Fault, *, sender: bool) -> None:
    """The answer is 200, the first entry is named with whose fault it is, and the others were taken."""
    stand.proxy.plan("SendMessageBatch", fault)
    entries = [{"Id": str(number), "MessageBody": "x"} for number in range(3)]

    answer = opened.clients["sqs"].send_message_batch(QueueUrl=stand.queue.url, Entries=entries)
    assert [(one["Id"], one["SenderFault"]) for one in answer["Failed"]] == [("0", sender)]
    assert sorted(one["Id"] for one in answer["Successful"]) == ["1", "2"]
    assert stand.waiting() == 2


def test_a_plan_is_for_the_calls_that_it_names(opened: Wire, stand: Stand) -> None:
    """From the n-th on, so many of them, and no other operation."""
    stand.proxy.plan("PutItem", wire.SERVER_ERROR, first=2, times=2)
    opened.clients["dynamodb"].list_tables()
    outcomes = []
    for _ in range(4):
        try:
            put(opened, stand.key)
        except exceptions.ClientError:
            outcomes.append("failed")
        else:
            outcomes.append("taken")

    assert outcomes == ["taken", "failed", "failed", "taken"]
    assert [one.status for one in stand.proxy.seen if one.request.operation == "PutItem"] == [200, None, None, 200]


def test_a_request_is_named_by_what_it_does() -> None:
    """A lock is no claim, a job's transaction no caller's, and one queue not the other."""
    lock = {"pk": {"S": "~lock#till"}}
    values = {":new_lease_expires_at": {"N": "0"}}
    own = {"UpdateExpression": "SET …", "ConditionExpression": "claimant = :claimant AND version = :version"}

    assert name_of("PutItem", {"Item": {"pk": {"S": "pay#1"}}}) == "claim"
    assert name_of("PutItem", {"Item": lock}) == "acquire"
    assert name_of("UpdateItem", {"Key": lock, "ExpressionAttributeValues": values}) == "unlock"
    assert name_of("UpdateItem", {"Key": lock, "ExpressionAttributeValues": {}}) == "extend"
    assert name_of("TransactWriteItems", {"TransactItems": [{"Update": own}]}) == "commit"
    assert name_of("TransactWriteItems", {"TransactItems": [{"Put": {}}]}) == "stage"
    assert name_of("SendMessage", {"QueueUrl": "http://127.0.0.1:1/1/Jobs"}) == "SendMessage Jobs"
    assert name_of("GetItem", {"Key": {"pk": {"S": "pay#1"}}}) == "GetItem"
