"""Tell another system what happened, over HTTP, with a key: it acts on it once, however often we call."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from jobs import gateway
from onceq import Context, job


@dataclass(frozen=True)
class Webhook:
    """What happened, for example ``Webhook("e-1", "order.paid", "o-1", "cus_1")``."""

    event_id: str
    kind: str
    order_id: str
    customer_id: str


@job("deliver_webhook", key="event_id", max_attempts=12, max_duration=15)  # within about half an hour
def deliver_webhook(webhook: Webhook, ctx: Context) -> dict[str, Any]:
    """Post the event. No step: there is nothing after the call that an attempt could fail at."""
    return gateway.call_webhook(asdict(webhook), idempotency_key=ctx.idempotency_key_for("webhook"))
