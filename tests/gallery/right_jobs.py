"""Right jobs, one for each protection that a job can have: the kit must pass them."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from gallery.outside import Order, booking_of, dynamodb, gateway, now, row_of
from onceq import Context, Entry, Producer, Retry, Semantics, Snooze, job

TEN_MINUTES_MS = 600_000


@job("send_receipt", key="order_id")
def send_receipt(receipt: dict[str, Any], ctx: Context) -> None:
    """Mail a receipt: what the jobs of the gallery send on."""
    gateway.mail(receipt["order_id"], idempotency_key=ctx.idempotency_key_for("mail"))


@job("keyed_step", key="order_id")
def keyed_step(order: Order, ctx: Context) -> Any:
    """Charge in a step, with the job's key."""
    key = ctx.idempotency_key_for("charge")
    return ctx.step("charge", gateway.charge, order.customer_id, order.amount_cents, idempotency_key=key)


@job("keyed_effect", key="order_id")
def keyed_effect(order: Order, ctx: Context) -> Any:
    """Charge with the job's key, outside of a step."""
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("key_of_the_order", key="order_id")
def key_of_the_order(order: Order) -> Any:
    """Charge with the order's own number as the key: it is one order's, and the same on every attempt."""
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=order.order_id)


@job("at_most_once_job", key="order_id", semantics=Semantics.AT_MOST_ONCE)
def at_most_once_job(order: Order) -> Any:
    """Charge where the provider takes no key: what is not known to have finished waits for a person."""
    return gateway.charge(order.customer_id, order.amount_cents)


@job("at_most_once_step", key="order_id")
def at_most_once_step(order: Order, ctx: Context) -> Any:
    """Charge where the provider takes no key, in a step that is never started twice."""
    semantics = Semantics.AT_MOST_ONCE
    return ctx.step("charge", gateway.charge, order.customer_id, order.amount_cents, semantics=semantics)


@job("transactional", key="order_id")
def transactional(order: Order, ctx: Context) -> str:
    """Book in the transaction of the completion."""
    ctx.transaction.write({"Update": booking_of(order)})
    return order.order_id


@job("writes_its_own_row", key="order_id")
def writes_its_own_row(order: Order) -> str:
    """Write a row that is the same when it is written again."""
    dynamodb().put_item(**row_of(order))
    return order.order_id


@job("sends_on", key="order_id")
def sends_on(order: Order, ctx: Context) -> str:
    """Send the receipt with the completion."""
    ctx.send(send_receipt, {"order_id": order.order_id})
    return order.order_id


@job("asynchronous", key="order_id")
async def asynchronous(order: Order, ctx: Context) -> Any:
    """Charge from a coroutine."""
    key = ctx.idempotency_key_for("charge")
    return await ctx.step("charge", _charge, order.customer_id, order.amount_cents, idempotency_key=key)


async def _charge(*arguments: Any, **named: Any) -> Any:
    return gateway.charge(*arguments, **named)


@job("retrying", key="order_id")
def retrying(order: Order, ctx: Context) -> Any:
    """Ask for another attempt first, as if the goods were not there yet."""
    if ctx.attempt == 1:
        raise Retry(delay=5, reason="not there yet")
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("at_most_once_retrying", key="order_id", semantics=Semantics.AT_MOST_ONCE)
def at_most_once_retrying(order: Order, ctx: Context) -> Any:
    """Ask for another attempt before anything was done: that is the one way to start such a job again."""
    if ctx.attempt == 1:
        raise Retry(delay=5, reason="not there yet")
    return gateway.charge(order.customer_id, order.amount_cents)


@job("several_effects", key="order_id")
def several_effects(order: Order, ctx: Context) -> list[Any]:
    """Charge, mail, book and send on, each with its own protection."""
    charged = ctx.step(
        "charge",
        gateway.charge,
        order.customer_id,
        order.amount_cents,
        idempotency_key=ctx.idempotency_key_for("charge"),
    )
    ctx.step("letter", gateway.print_letter, order.customer_id, semantics=Semantics.AT_MOST_ONCE)
    ctx.transaction.write({"Update": booking_of(order)})
    ctx.send(send_receipt, {"order_id": order.order_id})
    return [charged["id"]]


@job("looks_first", key="order_id")
def looks_first(order: Order, ctx: Context) -> Any:
    """Look the balance up on every attempt, which changes nothing, and charge with the job's key."""
    balance = gateway.balance(order.customer_id)
    key = ctx.idempotency_key_for("charge")
    return ctx.step("charge", gateway.charge, order.customer_id, order.amount_cents, idempotency_key=key) or balance


@job("falsy_result", key="order_id")
def falsy_result(order: Order, ctx: Context) -> int:
    """Return 0, which is a result."""
    gateway.charge(order.customer_id, order.amount_cents, idempotency_key=ctx.idempotency_key_for("charge"))
    return 0


@job("result_of_the_clock", key="order_id")
def result_of_the_clock(order: Order, ctx: Context) -> dict[str, Any]:
    """Return what differs on every attempt: the one that is stored is what everybody gets."""
    key = ctx.idempotency_key_for("charge")
    charged = gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)
    return {"id": charged["id"], "at": now(), "attempt": ctx.attempt}


@job("two_charges", key="order_id")
def two_charges(order: Order, ctx: Context) -> list[Any]:
    """Charge twice on purpose, each with a key of its own: a deposit and the rest."""
    half = order.amount_cents // 2
    return [
        ctx.step(name, gateway.charge, order.customer_id, half, idempotency_key=ctx.idempotency_key_for(name))
        for name in ("deposit", "rest")
    ]


@job("sends_to_itself", key="order_id")
def sends_to_itself(order: Order, ctx: Context) -> str:
    """Send the next page to its own job type: another job, with a key of its own."""
    ctx.send(sends_to_itself, {**asdict(order), "order_id": f"{order.order_id}-next"})
    return order.order_id


@job("charges_and_asks_again", key="order_id")
def charges_and_asks_again(order: Order, ctx: Context) -> Any:
    """Charge with the job's key in each attempt, and ask for another one twice, as if something were not there yet."""
    key = ctx.idempotency_key_for("charge")
    charged = gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)
    if ctx.attempt < 3:
        raise Retry(delay=5, reason="not there yet")
    return charged


@job("charges_and_mails_later", key="order_id")
def charges_and_mails_later(order: Order, ctx: Context) -> Any:
    """Charge at once, and mail when ten minutes have passed."""
    key = ctx.idempotency_key_for("charge")
    charged = gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)
    if now() - (ctx.message.sent_at or 0) < TEN_MINUTES_MS:
        raise Snooze(TEN_MINUTES_MS / 1000 + 100)
    gateway.mail(order.order_id, idempotency_key=ctx.idempotency_key_for("mail"))
    return charged


@job("one_attempt", key="order_id", max_attempts=1)
def one_attempt(order: Order, ctx: Context) -> Any:
    """Charge with the job's key in the one attempt that there is: what fails waits in the dead-letter queue."""
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("two_attempts", key="order_id", max_attempts=2)
def two_attempts(order: Order, ctx: Context) -> Any:
    """Do the same in two attempts."""
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("enqueues_by_keys", key="order_id")
def enqueues_by_keys(order: Order) -> str:
    """Enqueue receipts at once, by keys that are the same in every attempt, one alone and two together."""
    Producer().enqueue("send_receipt", {"order_id": order.order_id}, key=order.order_id)
    receipts = [f"{order.order_id}-{number}" for number in range(2)]
    Producer().enqueue_many(Entry("send_receipt", {"order_id": one}, key=one) for one in receipts)
    return order.order_id


@job("looks_into_its_table", key="order_id")
def looks_into_its_table(order: Order, ctx: Context) -> Any:
    """Look into a table of its own first, and fail where that fails."""
    key = {"customer_id": {"S": f"blocked#{order.customer_id}"}}
    if "Item" in dynamodb().get_item(TableName=os.environ["BOOKINGS_TABLE"], Key=key, ConsistentRead=True):
        return "blocked"
    key_of_the_charge = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key_of_the_charge)


@job("notes_the_last_order", key="order_id")
def notes_the_last_order(order: Order, ctx: Context) -> bool:
    """Look at the customer's row, and note this order there as the last one: which of two at once is all the same."""
    row = {"TableName": os.environ["BOOKINGS_TABLE"], "Key": {"customer_id": {"S": order.customer_id}}}
    is_new = "Item" not in dynamodb().get_item(**row, ConsistentRead=True)
    values = {":last": {"S": order.order_id}}
    ctx.transaction.write(
        {"Update": {**row, "UpdateExpression": "SET last_order = :last", "ExpressionAttributeValues": values}}
    )
    return is_new


@job("writes_an_audit_row", key="order_id")
def writes_an_audit_row(order: Order, ctx: Context) -> Any:
    """Write a row of its own for each attempt, and charge with the job's key."""
    item = {"customer_id": {"S": f"log#{uuid4()}"}}
    dynamodb().put_item(TableName=os.environ["BOOKINGS_TABLE"], Item=item)
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("makes_the_account_once", key="order_id")
def makes_the_account_once(order: Order, ctx: Context) -> None:
    """Make the customer's account with the first order, and add to it with every later one."""
    table, key = os.environ["BOOKINGS_TABLE"], {"customer_id": {"S": order.customer_id}}
    booking = {**key, "cents": {"N": str(order.amount_cents)}, "bookings": {"N": "1"}}
    if "Item" in dynamodb().get_item(TableName=table, Key=key, ConsistentRead=True):
        ctx.transaction.write({"Update": booking_of(order)})
    else:
        absent = {"ConditionExpression": "attribute_not_exists(customer_id)"}
        ctx.transaction.write({"Put": {"TableName": table, "Item": booking, **absent}})


@job("sells_the_last_seat_once", key="order_id")
def sells_the_last_seat_once(order: Order, ctx: Context) -> str:
    """Sell the seat on the condition that nobody has: the second of two at once is attempted again, and sold out."""
    table, key = os.environ["BOOKINGS_TABLE"], {"customer_id": {"S": "seat-1"}}
    if "Item" in dynamodb().get_item(TableName=table, Key=key, ConsistentRead=True):
        return "sold out"
    ctx.send(send_receipt, {"order_id": order.order_id})
    absent = {"ConditionExpression": "attribute_not_exists(customer_id)"}
    ctx.transaction.write({"Put": {"TableName": table, "Item": key, **absent}})
    return "sold"


@job("prints_two_labels", key="order_id")
def prints_two_labels(order: Order, ctx: Context) -> None:
    """Print two labels in a step each that starts once, and ask for another attempt between them."""
    ctx.step("first", gateway.print_label, order.order_id, 1, semantics=Semantics.AT_MOST_ONCE)
    if ctx.attempt == 1:
        raise Retry(delay=5, reason="not there yet")
    ctx.step("second", gateway.print_label, order.order_id, 2, semantics=Semantics.AT_MOST_ONCE)


@job("tells_of_a_failed_look", key="order_id")
def tells_of_a_failed_look(order: Order, ctx: Context) -> Any:
    """Look something up that may be left out, and tell of it in a message where that fails."""
    try:
        dynamodb().get_item(TableName=os.environ["BOOKINGS_TABLE"], Key={"customer_id": {"S": "prices"}})
    except ClientError:
        ctx.send(send_receipt, {"order_id": f"no prices for {order.order_id}"})
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)
