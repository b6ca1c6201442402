"""What the tests of the deployment send, stage and count."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from kit.claims import record_of
from kit.stack import envelope
from onceq.outbox import OutboxEntry, shard_of
from onceq.record import pk_of

if TYPE_CHECKING:
    from demo.provider import Provider
    from kit.stack import Stack


def a_key() -> str:
    """Return a key that no other test has."""
    return f"o-{uuid.uuid4().hex}"


def payment(key: str, customer: str = "cus_1", amount: int = 500, email: str = "") -> dict[str, Any]:
    """Return the payload of a payment."""
    return {"order_id": key, "customer_id": customer, "amount_cents": amount, "email": email}


def reservation(key: str, sku: str, quantity: int) -> dict[str, Any]:
    """Return the payload of a reservation."""
    return {"order_id": key, "customer_id": "cus_1", "sku": sku, "quantity": quantity}


def webhook(key: str) -> dict[str, Any]:
    """Return the payload of a webhook."""
    return {"event_id": key, "kind": "order.paid", "order_id": "o-1", "customer_id": "cus_1"}


def done(provider: Provider, path: str, order: str) -> tuple[int, int]:
    """Return how often the provider was called for an order, and how often it did something."""
    summary = provider.stats()[path]["orders"].get(order, {"calls": 0, "done": 0})
    return summary["calls"], summary["done"]


def mails(provider: Provider, key: str) -> int:
    """Return how many receipts of an order were mailed."""
    return done(provider, "mails", f"Your receipt for {key}")[1]


def stage_receipt(stack: Stack, key: str, *, in_ms: int = 0) -> str:
    """Let a receipt stand in the outbox, as it is when its committer died before sending it; return the entry's id."""
    token, now_ms = uuid.uuid4().hex, int(time.time() * 1000)
    entry = OutboxEntry(
        pk=f"{token}-000",
        job_type="send_receipt",
        idempotency_key=key,
        queue="default",
        body=envelope("send_receipt", {"order_id": key, "email": "ada@example.com"}, key),
        created_at=now_ms,
        due_at=now_ms + in_ms,
        shard=shard_of(token),
        next_at=now_ms + in_ms,
    )
    stack.put("OutboxTable", entry.to_item())
    return entry.pk


def stand_stale(stack: Stack, key: str) -> None:
    """Let a payment's claim stand that its worker left an hour ago."""
    now_ms = int(time.time() * 1000)
    record = record_of(
        key=key,
        pk=pk_of("process_payment", key),
        job_type="process_payment",
        payload_fingerprint=None,
        lease_expires_at=now_ms - 3_600_000,
        created_at=now_ms - 3_700_000,
        expires_at=now_ms // 1000 + 86_400,
    )
    stack.put("ClaimsTable", record.to_item())
