"""The same worker with one mistake in the job: it gives the provider no idempotency key.

`make demo ARGS=--careless` must fail: a job that is taken over from a killed worker is then charged twice. The claim
cannot help there, since the charge had happened before the worker could record anything (guarantee G12).
"""

from __future__ import annotations

from typing import Any

from jobs.gateway import CardDeclined, charge
from jobs.payments import Payment, process_payment
from onceq import Reject, job


@job(process_payment.name, key="order_id", max_attempts=5, max_duration=20, reject=(CardDeclined,))
def careless_payment(payment: Payment) -> dict[str, Any]:
    """Charge the order, and again on every attempt."""
    if payment.amount_cents <= 0:
        raise Reject("amount must be positive")
    charged = charge(payment.customer_id, payment.amount_cents, order_id=payment.order_id, idempotency_key="")
    return {"charge_id": charged["id"]}
