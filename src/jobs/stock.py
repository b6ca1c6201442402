"""Reserve stock: a write to a table of your own that happens with the job's completion, or not at all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.legacy import Booking, book_order
from onceq import Context, Reject, job


@dataclass(frozen=True)
class Reservation:
    """How much of what an order takes."""

    order_id: str
    customer_id: str
    sku: str
    quantity: int


@cache
def stock_table() -> type[Any]:
    """Return the pynamodb model of the stock table.

    Made at its first use: pynamodb is nothing that every cold start should load, nor is the table's name known before.
    """
    from pynamodb.attributes import NumberAttribute, UnicodeAttribute
    from pynamodb.models import Model

    class Stock(Model):
        class Meta:
            table_name = os.environ["STOCK_TABLE"]

        sku = UnicodeAttribute(hash_key=True)
        available = NumberAttribute()

    return Stock


@job("reserve_stock", key="order_id", max_attempts=8, max_duration=10)
def reserve_stock(order: Reservation, ctx: Context) -> dict[str, Any]:
    """Take the quantity off the stock, never below zero, and book the order with the legacy system."""
    if order.quantity <= 0:
        raise Reject("quantity must be positive")
    stock = stock_table()
    # Staged, not written: DynamoDB writes it in the transaction that completes the job. A second attempt, a duplicate
    # or a crash at any point takes the quantity off once.
    ctx.transaction.update(
        stock(order.sku),
        actions=[stock.available.set(stock.available - order.quantity)],
        condition=stock.available >= order.quantity,
        on_conflict="reject",  # out of stock: another attempt would not help
    )
    ctx.send(book_order, Booking(order.order_id, order.customer_id, order.sku, order.quantity))
    return {"sku": order.sku, "reserved": order.quantity}
