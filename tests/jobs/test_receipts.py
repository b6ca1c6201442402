"""The receipt job, an ``async def``: called as a plain function, and delivered twice."""

from __future__ import annotations

import asyncio

import pytest

from jobs.gateway import ProviderError
from jobs.receipts import Receipt, send_receipt
from kit.provider import Provider
from kit.world import World, event_of, kept
from onceq import Context

RECEIPT: Receipt = {"order_id": "o-1", "email": "ada@example.com"}


def test_a_receipt_is_mailed_with_the_jobs_own_key(provider: Provider) -> None:
    """The customer gets one mail that names the order."""
    ctx = Context(key="o-1")

    asyncio.run(send_receipt(RECEIPT, ctx))

    (mail,) = provider.effects.values()
    assert (mail["to"], mail["subject"]) == ("ada@example.com", "Your receipt for o-1")
    assert list(provider.effects) == [ctx.idempotency_key_for("mail")]


def test_a_provider_that_fails_is_asked_again(provider: Provider) -> None:
    """Any other exception than `Reject` is a retry."""
    provider.answers.append(503)

    with pytest.raises(ProviderError):
        asyncio.run(send_receipt(RECEIPT, Context(key="o-1")))


def test_a_message_that_comes_twice_is_one_mail(world: World, provider: Provider) -> None:
    """SQS delivers at least once; the second delivery is answered from the claim."""
    app = world.app(send_receipt)

    for _ in range(2):
        message = world.message("send_receipt", RECEIPT, key="o-1")
        assert kept(app.consumer(event_of(message))) == []

    assert len(provider.effects) == provider.calls.total() == 1
