"""Right jobs, one for each protection that a job can have: the kit must pass them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gallery.outside import Order, booking_of, dynamodb, gateway, now, row_of
from onceq import Context, Retry, Semantics, job


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
