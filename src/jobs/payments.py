"""Charge an order once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobs import gateway
from onceq import Context, Reject, job


@dataclass(frozen=True)
class Payment:
    """What an order costs, and whom."""

    order_id: str
    customer_id: str
    amount_cents: int


@job(
    "process_payment",
    key="order_id",
    max_attempts=5,
    max_duration=20,  # seconds: the realistic worst case of one attempt
    reject=(gateway.CardDeclined,),
)
def process_payment(payment: Payment, ctx: Context) -> dict[str, Any]:
    """Charge the order with the provider, with a key that is the same on every attempt."""
    if payment.amount_cents <= 0:
        raise Reject("amount must be positive")
    charge = gateway.charge(
        payment.customer_id,
        payment.amount_cents,
        order_id=payment.order_id,
        idempotency_key=ctx.idempotency_key_for("charge"),
    )
    ctx.log.info("charged")
    return {"charge_id": charge["id"]}
