"""What the jobs of the gallery call: a gateway that writes down what it was asked, a table of bookings, the time."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from onceq.testing.process import CURRENT
from onceq.testing.recorder import EffectRecorder

gateway = EffectRecorder(reads=["balance"])


@dataclass(frozen=True)
class Order:
    """What a customer bought."""

    order_id: str = "o-1"
    customer_id: str = "cus_1"
    amount_cents: int = 500


# As a producer sends it that says when.
BODY = {**asdict(Order()), "sent_at": "2028-12-31T11:59:58Z"}


def now() -> int:
    """Return the time, epoch ms: that of the process in which a job runs."""
    process = CURRENT.get()
    if process is None:
        message = "the time is asked for outside of a job"
        raise LookupError(message)
    return process.clock.now_ms()


def order_of(body: dict[str, Any]) -> Order:
    """Return the order that a message is about."""
    return Order(body["order_id"], body["customer_id"], body["amount_cents"])


def booking_of(order: Order) -> dict[str, Any]:
    """Return the update that adds an order to its customer's account, with no condition."""
    return {
        "TableName": os.environ["BOOKINGS_TABLE"],
        "Key": {"customer_id": {"S": order.customer_id}},
        "UpdateExpression": "ADD cents :cents, bookings :one",
        "ExpressionAttributeValues": {":cents": {"N": str(order.amount_cents)}, ":one": {"N": "1"}},
    }


def row_of(order: Order) -> dict[str, Any]:
    """Return the item that is an order's booking: written again it is the same."""
    item = {"customer_id": {"S": f"booking#{order.order_id}"}, "bookings": {"N": "1"}}
    return {"TableName": os.environ["BOOKINGS_TABLE"], "Item": item}


@cache
def dynamodb() -> Any:
    """Return a client of DynamoDB of the jobs' own."""
    import boto3

    return boto3.client("dynamodb")


def bookings() -> int:
    """Count the bookings of all customers."""
    items = dynamodb().scan(TableName=os.environ["BOOKINGS_TABLE"], ConsistentRead=True)["Items"]
    return sum(int(item.get("bookings", {"N": "0"})["N"]) for item in items)
