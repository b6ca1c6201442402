"""A user's own tables, as a job's transaction meets them: models with every kind of key, and how they stand."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from pynamodb.attributes import ListAttribute, MapAttribute, NumberAttribute, UnicodeAttribute, VersionAttribute
from pynamodb.models import Model

from kit.clock import FakeLambdaContext
from kit.faults import faulty_dynamodb
from kit.world import OUTBOX_TABLE, REGION, TABLE, create_table, event_of, kept
from onceq import Context, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

STOCK, ORDERS, LINES = "StockTable", "OrdersTable", "LinesTable"
Item = dict[str, Any]


class Stock(Model):
    """Pieces of an article; a partition key, and an attribute that is nobody else's business."""

    class Meta:
        """Where it is."""

        table_name = STOCK
        region = REGION

    sku = UnicodeAttribute(hash_key=True)
    pieces = NumberAttribute(default=0)
    reserved = NumberAttribute(default=0)
    supplier = UnicodeAttribute(null=True)


class Address(MapAttribute[str, Any]):
    """A nested attribute."""

    street = UnicodeAttribute()
    lines: ListAttribute[Any] = ListAttribute(default=list)


class Order(Model):
    """An order, whose version attribute pynamodb raises and checks."""

    class Meta:
        """Where it is."""

        table_name = ORDERS
        region = REGION

    order_id = UnicodeAttribute(hash_key=True)
    state = UnicodeAttribute(default="new")
    card = UnicodeAttribute(null=True)
    address = Address(null=True)  # type: ignore[no-untyped-call]  # pynamodb's
    version = VersionAttribute()


class Line(Model):
    """A line of an order; a partition key and a sort key."""

    class Meta:
        """Where it is."""

        table_name = LINES
        region = REGION

    order_id = UnicodeAttribute(hash_key=True)
    number = NumberAttribute(range_key=True)
    sku = UnicodeAttribute(null=True)


def address_of(street: str, *lines: Any) -> Address:
    """Return an address."""
    return Address(street=street, lines=list(lines))  # type: ignore[no-untyped-call]  # pynamodb's


def open_shop(world: World) -> None:
    """Create the user's tables in a world."""
    create_table(world.dynamodb, STOCK, key="sku")
    create_table(world.dynamodb, ORDERS, key="order_id")
    world.dynamodb.create_table(
        TableName=LINES,
        KeySchema=[
            {"AttributeName": "order_id", "KeyType": "HASH"},
            {"AttributeName": "number", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "order_id", "AttributeType": "S"},
            {"AttributeName": "number", "AttributeType": "N"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )


def items(world: World, table: str) -> list[Item]:
    """Return every item of a table, in one order."""
    pages = world.dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return sorted((item for page in pages for item in page["Items"]), key=lambda item: json.dumps(item, sort_keys=True))


def everything(world: World, *, claims: bool = False) -> dict[str, list[Item]]:
    """Return every item of the user's tables and of the outbox, and of the claims table if asked for."""
    tables = (STOCK, ORDERS, LINES, OUTBOX_TABLE, *([TABLE] if claims else []))
    return {table: items(world, table) for table in tables}


def put(world: World, *models: Model) -> None:
    """Let items stand as their models say, without a check."""
    for model in models:
        world.dynamodb.put_item(TableName=model.Meta.table_name, Item=model.serialize())


def pieces_of(world: World, sku: str) -> tuple[int, int]:
    """Return how many pieces of an article are left, and how many are reserved."""
    item = world.dynamodb.get_item(TableName=STOCK, Key={"sku": {"S": sku}}, ConsistentRead=True)["Item"]
    return int(item["pieces"]["N"]), int(item["reserved"]["N"])


def is_on_moto() -> bool:
    """Say whether moto serves the world of this test, and not ministack."""
    return "AWS_ENDPOINT_URL" not in os.environ


class Till:
    """An app with one job, ``pay``, that stages what a test says, beside a user's tables."""

    def __init__(self, world: World, **options: Any) -> None:
        """Create the tables, and put a faulty client under all of them."""
        open_shop(world)
        self.world = world
        self.attempts: list[int] = []
        self.stage: Callable[[Context], object] = lambda _: None
        self.client = faulty_dynamodb(world.runtime)

        @job("pay", **({"max_attempts": 3, "max_duration": 20} | options))
        def pay(payload: dict[str, Any], ctx: Context) -> object:
            self.attempts.append(ctx.attempt)
            return self.stage(ctx)

        self.job_type = pay
        self.app = world.app(pay)

    def deliver(self, key: str = "k-1", context: object = None) -> bool:
        """Deliver a message of that job once; return whether it was kept."""
        message = self.world.message("pay", key=key)
        return kept(self.app.consumer(event_of(message), context or FakeLambdaContext())) != []

    def take_one(self, ctx: Context) -> None:
        """Stage what must never happen twice: one piece less, one more reserved, and the line that says so."""
        taken = [Stock.pieces.set(Stock.pieces - 1), Stock.reserved.set(Stock.reserved + 1)]
        ctx.transaction.update(Stock("s-1"), taken, Stock.pieces >= 1)
        ctx.transaction.save(Line(ctx.key, 1, sku="s-1"), Line.order_id.does_not_exist())
