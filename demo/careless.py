"""Two of the example jobs with one mistake each, to see the check fail: `make demo ARGS=--careless`.

The first gives the provider no idempotency key: taken over from a killed worker, it charges twice. The claim cannot
help there, since the charge had happened before the worker could record anything (guarantee G12). The second writes
the stock at once and not in the job's transaction: taken over, it reserves twice.
"""

from __future__ import annotations

from typing import Any

from jobs.gateway import CardDeclined, charge
from jobs.legacy import Booking, book_order
from jobs.payments import Payment, process_payment
from jobs.receipts import Receipt, send_receipt
from jobs.stock import Reservation, reserve_stock, stock_table
from onceq import Context, Reject, job


@job(process_payment.name, key="order_id", max_attempts=5, max_duration=20, reject=(CardDeclined,))
def careless_payment(payment: Payment, ctx: Context) -> dict[str, Any]:
    """Charge the order, and again on every attempt that finds no record of it."""
    if payment.amount_cents <= 0:
        raise Reject("amount must be positive")
    whom, cents = payment.customer_id, payment.amount_cents
    charged = ctx.step("charge", charge, whom, cents, order_id=payment.order_id, idempotency_key="")
    if payment.email:
        ctx.send(send_receipt, Receipt(order_id=payment.order_id, email=payment.email))
    return {"charge_id": charged["id"]}


@job(reserve_stock.name, key="order_id", max_attempts=8, max_duration=10)
def careless_reservation(order: Reservation, ctx: Context) -> dict[str, Any]:
    """Take the quantity off the stock, on every attempt."""
    from pynamodb.exceptions import UpdateError  # noqa: PLC0415 - as in jobs.stock

    stock = stock_table()
    try:
        stock(order.sku).update(
            actions=[stock.available.set(stock.available - order.quantity)],
            condition=stock.available >= order.quantity,
        )
    except UpdateError as error:
        if error.cause_response_code != "ConditionalCheckFailedException":
            raise
        raise Reject("out of stock") from error
    ctx.send(book_order, Booking(order.order_id, order.customer_id, order.sku, order.quantity))
    return {"sku": order.sku, "reserved": order.quantity}


CARELESS = (careless_payment, careless_reservation)
