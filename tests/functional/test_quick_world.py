"""What makes the tests quick changes nothing: a world that is made again is the one that requests make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from moto import mock_aws
from moto.backends import get_backend
from moto.dynamodb.parsing.expressions import UpdateExpressionParser  # type: ignore[attr-defined]  # has no types

from kit.clock import FrozenClock
from kit.shared import open_world
from kit.world import ACCOUNT, REGION, TABLE, furniture
from onceq.local import quicken_moto

if TYPE_CHECKING:
    from kit.world import World
    from onceq.settings import Settings

# Their own for each that is made.
OWN = {"CreationDateTime", "CreatedTimestamp", "LastModifiedTimestamp", "TableId", "BillingModeSummary"}


def made(settings: Settings) -> dict[str, Any]:
    """Return the settings, and what the services say of every table and queue."""
    dynamodb, sqs = boto3.client("dynamodb"), boto3.client("sqs")
    tables = {name: dynamodb.describe_table(TableName=name)["Table"] for name in dynamodb.list_tables()["TableNames"]}
    urls = sqs.list_queues()["QueueUrls"]
    queues = {url: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"] for url in urls}
    described = {
        name: {key: value for key, value in one.items() if key not in OWN} for name, one in (tables | queues).items()
    }
    return {"settings": settings, "described": described}


def test_a_world_that_is_made_again_is_the_one_that_requests_make() -> None:
    """The first world of a process is furnished by requests and made again; so is every other."""
    with mock_aws():
        by_requests = made(furniture(boto3.client("dynamodb"), boto3.client("sqs")))
    again = []
    for _ in range(2):
        with open_world(FrozenClock()) as world:
            again.append(made(world.settings))

    assert again == [by_requests, by_requests]
    assert len(by_requests["described"]) == 6


def test_a_world_begins_empty_whatever_the_last_one_left() -> None:
    """No item, message or table of one world is in the next."""
    with open_world(FrozenClock()) as world:
        world.dynamodb.put_item(TableName=TABLE, Item={"pk": {"S": "left"}})
        world.sqs.send_message(QueueUrl=world.settings.queue("default").url, MessageBody="left")
        world.dynamodb.delete_table(TableName=world.settings.outbox_table)
        world.sqs.create_queue(QueueName="Left")

    with open_world(FrozenClock()) as world:
        assert world.dynamodb.scan(TableName=TABLE)["Items"] == []
        assert world.settings.outbox_table in world.dynamodb.list_tables()["TableNames"]
        queues = get_backend("sqs")[ACCOUNT][REGION].queues
        assert [queue.messages for queue in queues.values()] == [[]] * 4


def test_an_expression_that_moto_remembers_is_not_changed_by_its_use(world: World) -> None:
    """It is parsed once, and filled with the values of each request; calling `quicken_moto` twice is harmless."""
    quicken_moto()
    expression = "SET n = if_not_exists(n, :zero) + :one, #name = :name REMOVE gone"
    parsed = UpdateExpressionParser.make(expression)
    before = repr_of(parsed)
    for number in (1, 2):
        world.dynamodb.update_item(
            TableName=TABLE,
            Key={"pk": {"S": "counted"}},
            UpdateExpression=expression,
            ConditionExpression="attribute_not_exists(#name) AND (attribute_not_exists(n) OR n < :name)",
            ExpressionAttributeNames={"#name": f"name{number}"},
            ExpressionAttributeValues={":zero": {"N": "0"}, ":one": {"N": "1"}, ":name": {"N": str(number)}},
        )

    item = world.dynamodb.get_item(TableName=TABLE, Key={"pk": {"S": "counted"}})["Item"]
    assert item == {"pk": {"S": "counted"}, "n": {"N": "2"}, "name1": {"N": "1"}, "name2": {"N": "2"}}
    assert UpdateExpressionParser.make(expression) is parsed
    assert repr_of(parsed) == before


def repr_of(node: Any) -> Any:
    """Return a node of an expression with all below it."""
    children = getattr(node, "children", None)
    return type(node).__name__, node if children is None else [repr_of(child) for child in children]
