"""Mail a receipt once."""

from __future__ import annotations

import asyncio
from typing import TypedDict

from jobs import gateway
from onceq import Context, job


class Receipt(TypedDict):
    """For which order, and to whom."""

    order_id: str
    email: str


@job("send_receipt", key="order_id", max_attempts=8, max_duration=15)
async def send_receipt(receipt: Receipt, ctx: Context) -> None:
    """Send the mail from an ``async def`` job; a blocking client runs in a thread."""
    await asyncio.to_thread(
        gateway.send_mail,
        receipt["email"],
        f"Your receipt for {receipt['order_id']}",
        "Thank you.",
        idempotency_key=ctx.idempotency_key_for("mail"),
    )
