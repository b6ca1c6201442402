"""Charge an order once, and send its receipt: a step, and a message that leaves with the completion."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from jobs import gateway
from jobs.receipts import Receipt, send_receipt
from onceq import Context, Reject, job


@dataclass(frozen=True)
class Payment:
    """What an order costs, and whom; without an e-mail address there is no receipt."""

    order_id: str
    customer_id: str
    amount_cents: int
    email: str = ""


@job(
    "process_payment",
    key="order_id",
    max_attempts=5,
    max_duration=20,  # seconds: the realistic worst case of one attempt
    reject=(gateway.CardDeclined,),
    downstream_key_lifetime=timedelta(hours=24),  # as long as the provider remembers the key below
)
def process_payment(payment: Payment, ctx: Context) -> dict[str, Any]:
    """Charge the order, then send the receipt."""
    if payment.amount_cents <= 0:
        raise Reject("amount must be positive")
    # A step is recorded when it is done: a later attempt gets its result and does not call again. Killed before that
    # record, the attempt calls again with the same key, and the provider charges once.
    charge = ctx.step(
        "charge",
        gateway.charge,
        payment.customer_id,
        payment.amount_cents,
        order_id=payment.order_id,
        idempotency_key=ctx.idempotency_key_for("charge"),
    )
    ctx.log.info("charged")
    if payment.email:
        # Nothing is sent yet. The message is written with the completion, or not at all, and leaves after it.
        ctx.send(send_receipt, Receipt(order_id=payment.order_id, email=payment.email))
    return {"charge_id": charge["id"]}
