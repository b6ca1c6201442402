"""The doubles of `kit.memory` do what moto does, where moto does what AWS does."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from fuzz.application import URL, Application
from fuzz.cases import case_of
from kit.clock import FakeLambdaContext
from kit.delivery import peek
from kit.memory import MemoryS3, MemorySqs
from kit.memory_tables import MemoryDynamoDB, holds
from kit.strict_reading import POINTERS
from kit.world import TABLE
from onceq import store
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

CONDITIONS = (store.FREE, store.UNCHANGED, store.NEW, store.PENDING, store.UNLOCKED, store.HELD)
NAMES = {"#status": "status", "#token": "token"}
VALUES: dict[str, Any] = {
    ":now": {"N": "10"},
    ":completed": {"S": "completed"},
    ":rejected": {"S": "rejected"},
    ":pending": {"S": "pending"},
    ":claimant": {"S": "t1"},
    ":version": {"N": "9"},
    ":holder": {"S": "me"},
    ":free_from": {"N": "10"},
    ":token": {"S": "t1"},
    ":released": {"N": "0"},
}
FIELDS: dict[str, list[Any]] = {
    "status": [{"S": "completed"}, {"S": "processing"}, {"S": "pending"}],
    "expires_at": [None, {"N": "9"}, {"N": "10"}, {"N": "100"}],
    "claimant": [{"S": "t1"}, {"S": "t2"}],
    "version": [{"N": "9"}, {"N": "10"}],
}
LOCKS: dict[str, list[Any]] = {
    "holder": [{"S": "me"}, {"S": "you"}],
    "token": [{"S": "t1"}, {"S": "t2"}],
    "lease_expires_at": [None, {"N": "0"}, {"N": "9"}, {"N": "10"}, {"N": "100"}],
}


def items() -> list[dict[str, Any]]:
    """Return the items that conditions are asked of; ``{}`` is none."""
    found: list[dict[str, Any]] = [{}]
    for fields in (FIELDS, LOCKS):
        for values in itertools.product(*fields.values()):
            known = {name: value for name, value in zip(fields, values, strict=True) if value is not None}
            found.append({"pk": {"S": "a"}, **known})
    return found


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_holds_where_it_holds_on_moto(world: World, condition: str) -> None:
    """Each condition of the project, on each item that tells its clauses apart."""
    used = {name: value for name, value in VALUES.items() if name in condition.replace("(", " ").split(" ")} | {
        name: value for name, value in VALUES.items() if f"{name}," in condition or f"{name})" in condition
    }
    request: dict[str, Any] = {"ConditionExpression": condition}
    if used:
        request["ExpressionAttributeValues"] = used
    if names := {name: path for name, path in NAMES.items() if name in condition}:
        request["ExpressionAttributeNames"] = names
    answers = set()
    for item in items():
        key = {"pk": {"S": "a"}}
        world.dynamodb.delete_item(TableName=TABLE, Key=key)
        if item:
            world.dynamodb.put_item(TableName=TABLE, Item=item)
        try:
            world.dynamodb.put_item(TableName=TABLE, Item=key, **request)
            held = True
        except world.dynamodb.exceptions.ConditionalCheckFailedException:
            held = False
        answers.add(held)

        assert holds(condition, item, NAMES, VALUES) is held, item
    assert answers == {True, False}


def test_the_consumer_does_the_same_on_the_doubles_and_on_moto(world: World) -> None:
    """Answers, exceptions, records and copies of fuzzed events agree, where moto's SQS refuses what AWS's does."""
    for name in ("Jobs.fifo", "Dead.fifo"):
        world.sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
    for name in ("Bare", "BareDead", "Foreign", "ForeignDead"):
        world.sqs.create_queue(QueueName=name)
    ours, theirs = Application(1), Application(1, Runtime)
    compared = 0
    for number in range(90):
        case = case_of("doubles", number, ours.serving)
        # No bucket and no deduplication here; a FIFO queue of moto's forgets and renumbers (docs/local.md).
        if any(word in repr(case.event) for word in (*POINTERS, "fifo")) or case.planted:
            continue
        ours.runtime.plant(TABLE, [])
        mine = delivered(ours, case.event, lambda: ours.runtime.dynamodb.tables.get(TABLE, {}))
        copies = [(url, entry["MessageBody"]) for url, entry in ours.runtime.sqs.sent]
        if ours.runtime.sqs.refused:
            continue
        found = delivered(theirs, case.event, lambda: emptied(world))

        assert found == mine, number
        assert sorted(copies) == sorted(letters(world)), number
        compared += 1
    assert compared > 20


def delivered(application: Application, event: Any, table: Callable[[], Any]) -> tuple[Any, str, Any]:
    """Deliver an event; return the answer, the exception's name and the claims table."""
    application.reset()
    answer, error = None, ""
    try:
        answer = application.app.consumer(event, FakeLambdaContext())
    except Exception as raised:  # noqa: BLE001 - both are to raise the same
        error = type(raised).__name__
    return answer, error, dict(table())


def emptied(world: World) -> dict[str, Any]:
    """Return moto's claims table, and empty it."""
    found = {item["pk"]["S"]: item for item in world.dynamodb.scan(TableName=TABLE)["Items"]}
    for pk in found:
        world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": pk}})
    return found


def letters(world: World) -> list[tuple[str, str]]:
    """Return what lies in moto's queues, and empty them."""
    found = []
    for url in world.sqs.list_queues()["QueueUrls"]:
        messages = peek(url)
        found += [(URL + url.rsplit("/", 1)[-1], message.body) for message in messages]
        if messages:
            from moto.backends import get_backend

            from kit.world import ACCOUNT, REGION

            get_backend("sqs")[ACCOUNT][REGION].queues[url.rsplit("/", 1)[-1]]._messages.clear()
    return found


def code_of(call: Callable[[], object]) -> str:
    """Return the code with which a request is refused."""
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ({"pk": {"S": ""}}, "ValidationException"),
        ({"pk": {"S": "é" * 1_025}}, "ValidationException"),
        ({"pk": {"S": "\ud800"}}, "SerializationException"),
        ({"pk": {"S": "a"}, "error": {"S": "\ud800"}}, "SerializationException"),
        ({"pk": {"S": "a"}, "result": {"S": "x" * 409_600}}, "ValidationException"),
        ({"pk": {"S": "a"}, "version": {"N": "1" * 39}}, "ValidationException"),
    ],
)
def test_an_item_that_aws_refuses_is_refused(item: dict[str, Any], code: str) -> None:
    """Where moto takes what AWS does not, the double is AWS: a fault that only AWS shows would not be found."""
    double = MemoryDynamoDB()

    assert code_of(lambda: double.put_item(TableName=TABLE, Item=item)) == code
    assert not double.tables.get(TABLE)


ASKING = {"ConditionExpression": "n = :n", "ExpressionAttributeValues": {":n": {"N": "1"}}}
A: dict[str, Any] = {"TableName": TABLE, "Key": {"pk": {"S": "a"}}}
ADDING = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": {"N": "2"}}}
ALL_OLD = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
# What consumers of other makes send, to a table in which the item a has n = 1.
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "delete": ("delete_item", A),
    "delete what is not there": ("delete_item", A | {"Key": {"pk": {"S": "b"}}}),
    "delete if": ("delete_item", A | ASKING),
    "delete if not": ("delete_item", A | ASKING | ALL_OLD | {"ConditionExpression": "n <> :n"}),
    "add": ("update_item", A | ADDING),
    "add to nothing": ("update_item", A | ADDING | {"Key": {"pk": {"S": "b"}}}),
    "set, add, remove": (
        "update_item",
        A
        | {
            "UpdateExpression": "SET #s = :s ADD n :n REMOVE m",
            "ExpressionAttributeNames": {"#s": "status"},
            "ExpressionAttributeValues": {":s": {"S": "done"}, ":n": {"N": "2"}},
        },
    ),
    "delete and add": (
        "transact_write_items",
        {"TransactItems": [{"Delete": A}, {"Update": A | ADDING | {"Key": {"pk": {"S": "b"}}}}]},
    ),
    "check and add": (
        "transact_write_items",
        {"TransactItems": [{"ConditionCheck": A | ASKING}, {"Update": A | ADDING | {"Key": {"pk": {"S": "b"}}}}]},
    ),
    "a check that fails": (
        "transact_write_items",
        {
            "TransactItems": [
                {"Update": A | ADDING | {"Key": {"pk": {"S": "b"}}}},
                {"ConditionCheck": A | ASKING | {"ConditionExpression": "n <> :n"}},
            ]
        },
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_does_what_it_does_on_moto(world: World, name: str) -> None:
    """What a request leaves, and the class and code with which it is refused."""
    method, request = REQUESTS[name]
    double, found = MemoryDynamoDB(), []
    for client in (double, world.dynamodb):
        client.put_item(TableName=TABLE, Item={"pk": {"S": "a"}, "n": {"N": "1"}, "m": {"S": "x"}})
        kinds = client.exceptions
        try:
            getattr(client, method)(**request)
            refused = ""
        except (kinds.ConditionalCheckFailedException, kinds.TransactionCanceledException) as error:
            refused = f"{type(error).__name__} {error.response['Error']['Code']}"
        found.append(refused)

    assert found[0] == found[1]
    assert dict(double.tables[TABLE]) == emptied(world)


def test_a_transaction_is_written_whole_or_not_at_all() -> None:
    """One condition that does not hold undoes the other write, and is named in its place."""
    double = MemoryDynamoDB()
    double.put_item(TableName=TABLE, Item={"pk": {"S": "there"}})
    new = {"TableName": TABLE, "ConditionExpression": "attribute_not_exists(pk)"}
    writes = [{"Put": {**new, "Item": {"pk": {"S": "new"}}}}, {"Put": {**new, "Item": {"pk": {"S": "there"}}}}]

    with pytest.raises(ClientError) as caught:
        double.transact_write_items(TransactItems=writes)

    assert [reason["Code"] for reason in caught.value.response["CancellationReasons"]] == [
        "None",
        "ConditionalCheckFailed",
    ]
    assert list(double.tables[TABLE]) == ["there"]


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        ({"MessageBody": "a"}, False),
        ({"MessageBody": ""}, True),
        ({"MessageBody": "\x00"}, True),
        ({"MessageBody": "\ud800"}, True),
        ({"MessageBody": "\uffff"}, True),
        ({"MessageBody": "é" * 524_288}, False),
        ({"MessageBody": "é" * 524_289}, True),
        ({"MessageBody": "a", "MessageAttributes": {"n": {"DataType": "String", "StringValue": ""}}}, True),
        ({"MessageBody": "a", "MessageAttributes": {"a b": {"DataType": "String", "StringValue": "v"}}}, True),
        ({"MessageBody": "a", "MessageAttributes": {"n": {"DataType": "Text", "StringValue": "v"}}}, True),
        ({"MessageBody": "a", "MessageAttributes": {"n": {"DataType": "Binary", "BinaryValue": b"\x00"}}}, False),
    ],
)
def test_a_message_that_sqs_refuses_is_refused(entry: dict[str, Any], refused: object) -> None:
    """As the API's reference has it; a refusal hits one entry, or the whole batch, and nothing of it is sent then."""
    double = MemorySqs()
    try:
        answer = double.send_message_batch(QueueUrl=URL + "Dead", Entries=[{"Id": "0", **entry}])
    except ClientError:
        answer = {"Successful": []}

    assert bool(answer["Successful"]) is not refused
    assert (len(double.sent), len(double.refused)) == (not refused, refused)


def test_an_object_that_is_missing_is_told() -> None:
    """The bucket holds what was put, and nothing else."""
    double = MemoryS3()
    double.put_object(Bucket="payloads", Key="a", Body=b"{}")

    assert double.get_object(Bucket="payloads", Key="a")["Body"].read() == b"{}"
    assert code_of(lambda: double.get_object(Bucket="payloads", Key="b")) == "NoSuchKey"
