"""Wrong jobs, each with one mistake, as people write them.

The framework keeps its promises, and the effect is doubled or lost all the same (guarantee G12).
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

from gallery.outside import Order, booking_of, dynamodb, gateway, now, row_of
from onceq import Context, Entry, Producer, Retry, Semantics, job

LOG = logging.getLogger("gallery")
DAY_MS = 86_400_000
# After so many failures a job of these gives up by itself.
FAILURES = 3
# What a warm container remembers.
REMEMBERED: set[str] = set()
FIRST: dict[str, Order] = {}


@job("effect_outside_the_step", key="order_id")
def effect_outside_the_step(order: Order, ctx: Context) -> Any:
    """Charge before the step, which records a log line: another attempt charges again."""
    charged = gateway.charge(order.customer_id, order.amount_cents)
    return ctx.step("log", lambda: charged["id"])


@job("effect_in_a_step_without_key", key="order_id")
def effect_in_a_step_without_key(order: Order, ctx: Context) -> Any:
    """Charge in a step, without a key for the provider: a crash between charge and record charges again."""
    return ctx.step("charge", gateway.charge, order.customer_id, order.amount_cents)


@job("key_from_the_message_id", key="order_id")
def key_from_the_message_id(order: Order, ctx: Context) -> Any:
    """Give the provider SQS's message id: a second send, and a redrive, have another one."""
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=ctx.message.message_id)


@job("key_from_the_attempt", key="order_id")
def key_from_the_attempt(order: Order, ctx: Context) -> Any:
    """Give the provider a key with the attempt's number: each attempt is another charge."""
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=f"{ctx.key}-{ctx.attempt}")


@job("key_from_the_fencing_token", key="order_id")
def key_from_the_fencing_token(order: Order, ctx: Context) -> Any:
    """Give the provider the fencing token, which rises with each attempt."""
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=f"{ctx.key}-{ctx.fencing_token}")


@job("key_from_a_timestamp", key="order_id")
def key_from_a_timestamp(order: Order, ctx: Context) -> Any:
    """Give the provider order and time: a later attempt has another key."""
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=f"{ctx.key}-{now()}")


@job("key_from_chance", key="order_id")
def key_from_chance(order: Order, ctx: Context) -> Any:
    """Give the provider a new UUID on each attempt, as its client library does when it is given none."""
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=str(uuid4()))


@job("customer_amount_day", key="order_id")
def customer_amount_day(order: Order, ctx: Context) -> Any:
    """Give the provider customer, amount and day: the second order of a day is never charged."""
    key = f"{order.customer_id}-{order.amount_cents}-{now() // DAY_MS}"
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("customer_and_amount", key="order_id")
def customer_and_amount(order: Order, ctx: Context) -> Any:
    """Give the provider customer and amount: who buys the same again gets it for nothing."""
    key = f"{order.customer_id}-{order.amount_cents}"
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("job_key_from_chance", key=lambda order: f"{order.order_id}-{uuid4()}")
def job_key_from_chance(order: Order, ctx: Context) -> Any:
    """Derive the job's own key from chance: each delivery of a message that no producer of ours made is another job."""
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("swallows_the_error", key="order_id")
def swallows_the_error(order: Order, ctx: Context) -> Any:
    """Log what the provider's failure was, and return: the job is completed, and nobody was charged."""
    key = ctx.idempotency_key_for("charge")
    try:
        return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)
    except Exception:
        LOG.exception("order %s failed", order.order_id)
        return "ok"


@job("gives_up_politely", key="order_id")
def gives_up_politely(order: Order, ctx: Context) -> Any:
    """Return at the fourth failure what the provider's failure was: the job is completed, and nobody was charged."""
    return _charged_or_given_up(order, ctx)


@job("gives_up_at_the_last_attempt", key="order_id", max_attempts=4)
def gives_up_at_the_last_attempt(order: Order, ctx: Context) -> Any:
    """Return at the last attempt what the provider's failure was, so that nobody finds it in the dead-letter queue."""
    return _charged_or_given_up(order, ctx)


def _charged_or_given_up(order: Order, ctx: Context) -> Any:
    try:
        key = ctx.idempotency_key_for("charge")
        return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)
    except ConnectionError:
        if ctx.attempt <= FAILURES:
            raise
        return {"status": "failed"}


@job("returns_when_it_comes_often", key="order_id")
def returns_when_it_comes_often(order: Order, ctx: Context) -> Any:
    """Take a message that comes a fifth time for poison, and return: it was the provider that was down."""
    if ctx.message.receive_count > FAILURES + 1:
        return None
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("charges_again_to_be_sure", key="order_id")
def charges_again_to_be_sure(order: Order, ctx: Context) -> Any:
    """Try a second time in the same attempt, with a key of its own: the first one may have happened."""
    for number in range(2):
        key = ctx.idempotency_key_for(f"charge-{number}")
        try:
            return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)
        except ConnectionError:
            LOG.warning("try %s failed", number)
    raise Retry(reason="the provider is down")


@job("remembers_in_memory", key="order_id")
def remembers_in_memory(order: Order, ctx: Context) -> Any:
    """Remember in the process what was begun: the attempt after a failure meets a warm container, and does nothing."""
    if ctx.key in REMEMBERED:
        return None
    REMEMBERED.add(ctx.key)
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("remembers_what_is_done", key="order_id")
def remembers_what_is_done(order: Order, ctx: Context) -> Any:
    """Remember in the process what is charged, instead of a key: another container charges again."""
    if ctx.key in REMEMBERED:
        return None
    charged = gateway.charge(order.customer_id, order.amount_cents)
    REMEMBERED.add(ctx.key)
    return charged


@job("key_from_when_it_was_sent", key="order_id")
def key_from_when_it_was_sent(order: Order, ctx: Context) -> Any:
    """Give the provider order and SQS's time of sending: a second send, and a redrive, have another one."""
    key = f"{ctx.key}-{ctx.message.sent_at}"
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("skips_while_the_provider_is_down", key="order_id", semantics=Semantics.AT_MOST_ONCE)
def skips_while_the_provider_is_down(order: Order) -> Any:
    """Note in a table that the provider is down, and let other orders pass without a charge for a minute."""
    table, key = os.environ["BOOKINGS_TABLE"], {"customer_id": {"S": "provider#down"}}
    item = dynamodb().get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
    if item is not None and now() < int(item["until"]["N"]):
        return "skipped"
    try:
        return gateway.charge(order.customer_id, order.amount_cents)
    except ConnectionError:
        dynamodb().put_item(TableName=table, Item={**key, "until": {"N": str(now() + 60_000)}})
        raise


@job("gives_up_after_the_first_attempt", key="order_id")
def gives_up_after_the_first_attempt(order: Order, ctx: Context) -> Any:
    """Take a second attempt for a duplicate: a crash before the charge loses it."""
    if ctx.attempt > 1:
        return "done before"
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("at_most_once_but_retries", key="order_id", semantics=Semantics.AT_MOST_ONCE)
def at_most_once_but_retries(order: Order, ctx: Context) -> Any:
    """Ask for another attempt after the charge, though the job may be started only once: it charges again."""
    charged = gateway.charge(order.customer_id, order.amount_cents)
    try:
        gateway.receipt(order.customer_id, charged["id"])
    except ConnectionError as error:
        raise Retry(reason=str(error)) from error
    return charged


@job("writes_beside_the_transaction", key="order_id")
def writes_beside_the_transaction(order: Order, ctx: Context) -> Any:
    """Book in the transaction, and the same at once "so that the page shows it": that one is not undone or held."""
    dynamodb().update_item(**booking_of(order))
    ctx.transaction.write({"Put": _receipt_of(order)})
    return order.order_id


@job("swallows_what_the_table_says", key="order_id")
def swallows_what_the_table_says(order: Order) -> str:
    """Log that the row could not be written, and return: the job is completed, and nothing is booked."""
    try:
        dynamodb().put_item(**row_of(order))
    except Exception:
        LOG.exception("order %s was not booked", order.order_id)
    return order.order_id


@job("enqueues_directly", key="order_id")
def enqueues_directly(order: Order, ctx: Context) -> Any:
    """Enqueue the receipt at once instead of with `Context.send`: each attempt sends another job, with a new key."""
    Producer().enqueue("send_receipt", {"order_id": order.order_id})
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


@job("empty_key", key="order_id")
def empty_key(order: Order, ctx: Context) -> Any:
    """Give the provider a key that is never filled in, which is none."""
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key="")


@job("two_charges_under_one_key", key="order_id")
def two_charges_under_one_key(order: Order, ctx: Context) -> Any:
    """Charge the order and its postage under one key: the provider refuses the second, or takes it for the first."""
    key = ctx.idempotency_key_for("charge")
    gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)
    return gateway.charge(order.customer_id, 390, idempotency_key=key)


@job("key_from_the_month", key="order_id")
def key_from_the_month(order: Order, ctx: Context) -> Any:
    """Give the provider order and month: a retry after New Year charges again."""
    month = datetime.fromtimestamp(now() / 1000, UTC).strftime("%Y-%m")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=f"{ctx.key}-{month}")


@job("another_key_from_the_third_attempt", key="order_id", max_attempts=6)
def another_key_from_the_third_attempt(order: Order, ctx: Context) -> Any:
    """Give up on the first key after two attempts "since it may be spoilt"."""
    key = ctx.idempotency_key_for("charge" if ctx.attempt < 3 else "charge-anew")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)


def _receipt_of(order: Order) -> dict[str, Any]:
    booking = booking_of(order)
    return {"TableName": booking["TableName"], "Item": {"customer_id": {"S": f"receipt#{order.order_id}"}}}


@job("amount_of_the_attempt", key="order_id")
def amount_of_the_attempt(order: Order, ctx: Context) -> Any:
    """Charge more with each attempt, under one key, and in a type that is no plain number."""
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, Decimal(order.amount_cents) * ctx.attempt, idempotency_key=key)


@job("charges_the_first_order", key="order_id")
def charges_the_first_order(order: Order, ctx: Context) -> Any:
    """Keep the first order in the module: every later one is charged to its customer."""
    first = FIRST.setdefault("order", order)
    key = ctx.idempotency_key_for("charge")
    return gateway.charge(first.customer_id, first.order_id, order.amount_cents, idempotency_key=key)


@job("swallows_the_second_error", key="order_id")
def swallows_the_second_error(order: Order, ctx: Context) -> Any:
    """Charge the goods, and the postage if it goes well: the second call has the first one's name."""
    charged = gateway.charge(order.customer_id, 450, idempotency_key=ctx.idempotency_key_for("goods"))
    try:
        gateway.charge(order.customer_id, 50, idempotency_key=ctx.idempotency_key_for("postage"))
    except ConnectionError:
        LOG.exception("no postage")
    return charged


@job("swallows_what_the_queue_says", key="order_id")
def swallows_what_the_queue_says(order: Order) -> str:
    """Enqueue the receipt at once, by its key, and go on if the queue does not take it: nobody sends it again."""
    try:
        Producer().enqueue("send_receipt", {"order_id": order.order_id}, key=order.order_id)
    except Exception:
        LOG.exception("no receipt of order %s", order.order_id)
    return order.order_id


@job("swallows_what_the_queue_says_of_many", key="order_id")
def swallows_what_the_queue_says_of_many(order: Order) -> str:
    """Do the same with two receipts in one request."""
    receipts = [f"{order.order_id}-{number}" for number in range(2)]
    try:
        Producer().enqueue_many(Entry("send_receipt", {"order_id": one}, key=one) for one in receipts)
    except Exception:
        LOG.exception("no receipts of order %s", order.order_id)
    return order.order_id


@job("takes_a_failed_look_for_no", key="order_id")
def takes_a_failed_look_for_no(order: Order, ctx: Context) -> Any:
    """Look whether the customer is blocked, and leave the order if that cannot be told: it is completed by that."""
    key = {"customer_id": {"S": f"blocked#{order.customer_id}"}}
    try:
        blocked = "Item" in dynamodb().get_item(TableName=os.environ["BOOKINGS_TABLE"], Key=key, ConsistentRead=True)
    except Exception:
        LOG.exception("is %s blocked?", order.customer_id)
        blocked = True
    if blocked:
        return "blocked"
    key_of_the_charge = ctx.idempotency_key_for("charge")
    return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key_of_the_charge)


@job("one_attempt_without_a_key", key="order_id", max_attempts=1)
def one_attempt_without_a_key(order: Order) -> Any:
    """Trust that one attempt is one charge: a redrive is another attempt."""
    return gateway.charge(order.customer_id, order.amount_cents)


@job("one_attempt_that_swallows", key="order_id", max_attempts=1)
def one_attempt_that_swallows(order: Order, ctx: Context) -> Any:
    """Return though the one attempt failed, so that nobody finds the order in the dead-letter queue."""
    key = ctx.idempotency_key_for("charge")
    try:
        return gateway.charge(order.customer_id, order.amount_cents, idempotency_key=key)
    except ConnectionError:
        LOG.exception("order %s failed", order.order_id)
        return "failed"
