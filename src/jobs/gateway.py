"""The services that the example jobs call, over plain HTTP. Replace this with your providers' own clients."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

TIMEOUT_SECONDS = 10.0


class CardDeclined(Exception):
    """The provider will never take this payment: there is no use in asking again."""


class ProviderError(Exception):
    """The provider failed, or did not answer: ask again with the same key."""


def charge(customer_id: str, amount_cents: int, *, order_id: str, idempotency_key: str) -> dict[str, Any]:
    """Charge a customer.

    Args:
        customer_id: Whom to charge.
        amount_cents: How much.
        order_id: For what.
        idempotency_key: The same on every attempt, so that the provider charges once.

    Returns:
        The provider's charge.

    Raises:
        CardDeclined: If the provider refuses it for good.
        ProviderError: If it failed in a way that may pass.
    """
    body = {"customer_id": customer_id, "amount_cents": amount_cents, "order_id": order_id}
    return _post("PAYMENTS_URL", "/charges", body, idempotency_key)


def send_mail(to: str, subject: str, text: str, *, idempotency_key: str) -> dict[str, Any]:
    """Send a mail.

    Args:
        to: The customer.
        subject: The subject line.
        text: The text.
        idempotency_key: The same on every attempt, so that the provider sends once.

    Returns:
        The provider's answer.

    Raises:
        ProviderError: If it failed in a way that may pass.
    """
    return _post("MAIL_URL", "/mails", {"to": to, "subject": subject, "text": text}, idempotency_key)


def call_webhook(event: dict[str, Any], *, idempotency_key: str) -> dict[str, Any]:
    """Tell the receiver of our webhooks what happened.

    Args:
        event: What happened.
        idempotency_key: The same on every attempt, so that the receiver acts on it once.

    Returns:
        The receiver's answer.

    Raises:
        ProviderError: If it failed in a way that may pass.
    """
    return _post("WEBHOOK_URL", "/webhooks", event, idempotency_key)


def address(variable: str, path: str) -> str:
    """Return where to call: the base URL that the environment gives, and a path.

    Raises:
        ProviderError: If there is none.
    """
    base = os.environ.get(variable, "")
    if not base.startswith(("http://", "https://")):
        message = f"{variable} is not set: give the provider's base URL (template.yaml has a parameter for it)"
        raise ProviderError(message)
    return base.rstrip("/") + path


def _post(variable: str, path: str, body: dict[str, Any], idempotency_key: str) -> dict[str, Any]:
    request = urllib.request.Request(
        address(variable, path),
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": idempotency_key},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            answer: dict[str, Any] = json.loads(response.read())
            return answer
    except urllib.error.HTTPError as error:
        error.close()  # it is the response, too, and holds its connection open
        if error.code == 402:
            message = "the provider declined the card"
            raise CardDeclined(message) from error
        message = f"the provider answered {error.code}"
        raise ProviderError(message) from error
    except OSError as error:
        message = f"the provider did not answer: {error}"
        raise ProviderError(message) from error
