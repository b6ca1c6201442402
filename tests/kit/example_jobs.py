"""Two jobs as a user writes them, for the framework's own tests: a charge and, `async def`, a mail at the provider."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypedDict

from onceq import Context, Reject, job

PROVIDER_URL = "KIT_PROVIDER_URL"


class Declined(Exception):
    """The provider will never take this payment."""


@dataclass(frozen=True)
class Order:
    """What an order costs."""

    order_id: str
    amount_cents: int


class Mail(TypedDict):
    """For which order, and to whom."""

    order_id: str
    to: str


@job("charge_order", key="order_id", max_attempts=5, max_duration=20, reject=(Declined,))
def charge_order(order: Order, ctx: Context) -> dict[str, Any]:
    """Charge an order with the key that is the same on every attempt."""
    if order.amount_cents <= 0:
        raise Reject("amount must be positive")
    body = {"order_id": order.order_id, "amount_cents": order.amount_cents}
    return {"charge_id": _post("/charges", body, ctx.idempotency_key_for("charge"))["id"]}


@job("mail_order", key="order_id", max_attempts=8, max_duration=15)
async def mail_order(mail: Mail, ctx: Context) -> None:
    """Mail with a key of its own."""
    await asyncio.to_thread(_post, "/mails", dict(mail), ctx.idempotency_key_for("mail"))


def _post(path: str, body: dict[str, Any], idempotency_key: str) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - the URL of a provider in this process
        os.environ[PROVIDER_URL] + path,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": idempotency_key},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - as above
            answer: dict[str, Any] = json.loads(response.read())
            return answer
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == HTTPStatus.PAYMENT_REQUIRED:
            message = "the provider declined the card"
            raise Declined(message) from error
        raise
