"""Wrong jobs whose mistake shows in what is counted: what they stage, what goes with a key, what a failure sets off."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from gallery.outside import Order, booking_of, dynamodb, gateway
from onceq import Context, Retry, Semantics, job

# What a warm container remembers.
FIRST: dict[str, Order] = {}
CALLS = 3


def _table() -> str:
    return os.environ["BOOKINGS_TABLE"]


def _row(name: str) -> dict[str, Any]:
    return {"customer_id": {"S": name}}


@job("one_message_for_two_readers", key="order_id")
def one_message_for_two_readers(order: Order, ctx: Context) -> None:
    """Send the receipt to customer and shop: its key is the order's, so the second is refused."""
    for reader in ("customer", "shop"):
        ctx.send("send_receipt", {"order_id": order.order_id, "to": reader})


@job("sends_itself_its_own_key", key="customer_id")
def sends_itself_its_own_key(order: Order, ctx: Context) -> None:
    """Send itself the rest, page by page, under the key that it has: all but the first page are refused."""
    if order.amount_cents > 100:
        rest = {"order_id": order.order_id, "customer_id": order.customer_id, "amount_cents": 100}
        ctx.send(sends_itself_its_own_key, rest)
    key = ctx.idempotency_key_for("charge")
    gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("sends_itself_again", key="order_id")
def sends_itself_again(order: Order, ctx: Context) -> None:
    """Charge, and send itself once more for the next day: that one is taken for a duplicate of this one."""
    gateway.charge(order.customer_id, order.amount_cents, idempotency_key=ctx.idempotency_key_for("charge"))
    ctx.send(sends_itself_again, asdict(order), delay=86_400)


@job("message_under_the_customers_key", key="order_id")
def message_under_the_customers_key(order: Order, ctx: Context) -> None:
    """Send the receipt under the customer's key: their second order gets none."""
    ctx.send("send_receipt", {"order_id": order.order_id}, key=order.customer_id)


@job("books_in_the_first_attempt", key="order_id")
def books_in_the_first_attempt(order: Order, ctx: Context) -> None:
    """Stage the booking in the first attempt alone, "since it is booked by the second": nothing was committed."""
    if ctx.attempt == 1:
        ctx.transaction.write({"Update": booking_of(order)})
    ctx.transaction.write({"Put": {"TableName": _table(), "Item": _row(f"receipt#{order.order_id}")}})


@job("books_unless_marked", key="order_id")
def books_unless_marked(order: Order, ctx: Context) -> None:
    """Mark the order at once, and stage the booking only where no mark stands: the second attempt finds its own."""
    mark = {"TableName": _table(), "Key": _row(f"seen#{order.order_id}")}
    is_new = "Item" not in dynamodb().get_item(**mark, ConsistentRead=True)
    dynamodb().put_item(TableName=_table(), Item=mark["Key"])
    ctx.transaction.write({"Put": {"TableName": _table(), "Item": _row(f"receipt#{order.order_id}")}})
    if is_new:
        ctx.transaction.write({"Update": booking_of(order)})


@job("marks_before_it_charges", key="order_id")
def marks_before_it_charges(order: Order, ctx: Context) -> Any:
    """Claim the order in a table of its own, though the framework has: a crash before the charge loses it."""
    mark = {"TableName": _table(), "Item": _row(f"paid#{order.order_id}")}
    try:
        dynamodb().put_item(**mark, ConditionExpression="attribute_not_exists(customer_id)")
    except dynamodb().exceptions.ConditionalCheckFailedException:
        return "a duplicate"
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("books_the_first_order", key="order_id")
def books_the_first_order(order: Order, ctx: Context) -> None:
    """Keep the first order in the module: its row is written for every later one."""
    first = FIRST.setdefault("order", order)
    item = {**_row(f"booking#{first.order_id}"), "bookings": {"N": "1"}}
    ctx.transaction.write({"Put": {"TableName": _table(), "Item": item}})


@job("sends_the_first_order", key="order_id")
def sends_the_first_order(order: Order, ctx: Context) -> None:
    """Keep the first order in the module: its receipt is sent for every later one."""
    first = FIRST.setdefault("order", order)
    ctx.send("send_receipt", {"order_id": first.order_id}, key=order.order_id)


@job("sends_in_a_loop", key="order_id")
def sends_in_a_loop(order: Order, ctx: Context) -> Any:
    """Stage the message before the call that is tried again: it is staged again, too."""
    key = ctx.idempotency_key_for("charge")
    for number in range(2):
        ctx.send("send_receipt", {"order_id": order.order_id, "number": number}, key=f"{order.order_id}-{number}")
        try:
            return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)
        except ConnectionError as error:
            failed = error
    raise failed


@job("counts_on_what_it_read", key="order_id")
def counts_on_what_it_read(order: Order, ctx: Context) -> None:
    """Write in the transaction what was read and one more: of two orders at once one is not counted."""
    item = dynamodb().get_item(TableName=_table(), Key=_row(order.customer_id), ConsistentRead=True).get("Item", {})
    number = int(item.get("bookings", {"N": "0"})["N"]) + 1
    whole = {**_row(order.customer_id), "bookings": {"N": str(number)}}
    ctx.transaction.write({"Put": {"TableName": _table(), "Item": whole}})


@job("puts_what_it_read", key="order_id")
def puts_what_it_read(order: Order, ctx: Context) -> None:
    """Put a list that it read, with its own order in it: of two orders at once one is not in it."""
    item = dynamodb().get_item(TableName=_table(), Key=_row("all"), ConsistentRead=True).get("Item", {})
    applied = item.get("applied", {"SS": []})["SS"]
    if order.order_id not in applied:
        whole = {"bookings": {"N": str(len(applied) + 1)}, "applied": {"SS": [*applied, order.order_id]}}
        dynamodb().put_item(TableName=_table(), Item={**_row("all"), **whole})


@job("one_key_for_every_line", key="order_id")
def one_key_for_every_line(order: Order, ctx: Context) -> None:
    """Charge two equal lines under one key: the provider takes the second for the first."""
    for _ in range(2):
        key = ctx.idempotency_key_for("charge")
        gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("at_most_once_but_waits", key="order_id", semantics=Semantics.AT_MOST_ONCE)
def at_most_once_but_waits(order: Order, ctx: Context) -> Any:
    """Charge, and ask for another attempt "until it is settled": each attempt charges."""
    charged = gateway.charge(order.customer_id, order.amount_cents)
    if ctx.attempt == 1:
        raise Retry(delay=60, reason="not settled yet")
    return charged


@job("at_most_once_but_calls_again", key="order_id")
def at_most_once_but_calls_again(order: Order, ctx: Context) -> Any:
    """Call again inside of the step that starts once: the call that failed may have happened."""

    def charge() -> Any:
        for number in range(CALLS):
            try:
                return gateway.charge(order.customer_id, order.amount_cents)
            except ConnectionError:
                if number == CALLS - 1:
                    raise
        return None

    return ctx.step("charge", charge, semantics=Semantics.AT_MOST_ONCE)


@job("turns_to_another_provider", key="order_id")
def turns_to_another_provider(order: Order, ctx: Context) -> Any:
    """Charge by another provider where the first one fails: that may have charged."""
    try:
        return gateway.charge(order.customer_id, 500, idempotency_key=ctx.idempotency_key_for("charge"))
    except ConnectionError:
        return gateway.charge_elsewhere(order.customer_id, idempotency_key=ctx.idempotency_key_for("elsewhere"))


@job("refunds_in_a_step", key="order_id")
def refunds_in_a_step(order: Order, ctx: Context) -> Any:
    """Refund what failed, and let it be attempted again: the charge is known to the provider, and stays refunded."""

    def charge() -> Any:
        try:
            return gateway.charge(order.customer_id, 500, idempotency_key=ctx.idempotency_key_for("charge"))
        except ConnectionError:
            gateway.refund(order.customer_id, idempotency_key=ctx.idempotency_key_for("refund"))
            raise

    return ctx.step("charge", charge)


@job("posts_to_another_provider", key="order_id")
def posts_to_another_provider(order: Order, ctx: Context) -> Any:
    """Do the same with one client for both providers."""
    try:
        return gateway.post("https://one", order.amount_cents, idempotency_key=ctx.idempotency_key_for("one"))
    except ConnectionError:
        return gateway.post("https://two", order.amount_cents, idempotency_key=ctx.idempotency_key_for("two"))


@job("sells_the_last_seat", key="order_id")
def sells_the_last_seat(order: Order, ctx: Context) -> str:
    """Look whether the seat is sold, and stage ticket and sale without a condition: two that look at once both sell."""
    seat = {"TableName": _table(), "Key": _row("seat-1")}
    if "Item" in dynamodb().get_item(**seat, ConsistentRead=True):
        return "sold out"
    ctx.send("send_receipt", {"order_id": order.order_id}, key=order.order_id)
    ctx.transaction.write({"Put": {"TableName": _table(), "Item": seat["Key"]}})
    return "sold"


@job("another_key_beside_an_audit_row", key="order_id")
def another_key_beside_an_audit_row(order: Order, ctx: Context) -> Any:
    """Give the provider a key with the attempt's number, and write a row of its own for each attempt."""
    dynamodb().put_item(TableName=_table(), Item=_row(f"log#{uuid4()}"))
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=f"{ctx.key}-{ctx.attempt}")
