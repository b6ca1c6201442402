"""The receipt job, an ``async def``: as a plain function, delivered twice, by two at once, with a worker that dies."""

from __future__ import annotations

import asyncio

import pytest

from jobs import receipts
from jobs.gateway import ProviderError
from jobs.receipts import Receipt, send_receipt
from kit.provider import Provider
from kit.world import World, event_of, kept
from onceq import Context
from onceq.testing import EffectRecorder, Environment, prove_effectively_once

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


def test_two_workers_at_once_are_one_mail(world: World, provider: Provider, at_once) -> None:
    """One of them claims the job; the other one waits and is answered from its result."""
    at_once(world, "send_receipt", RECEIPT, send_receipt, key="o-1", workers=2)

    assert len(provider.effects) == provider.calls.total() == 1


def test_a_worker_that_dies_at_any_call_leaves_one_mail(provider: Provider, deaths) -> None:
    """Only a death between the mail and its record calls again, with the same key: the provider mails once."""
    for key, point in deaths(send_receipt, lambda key: Receipt(order_id=key, email="ada@example.com")):
        mail = Context("send_receipt", key).idempotency_key_for("mail")

        assert [body["subject"] for body in provider.effects.values()].count(f"Your receipt for {key}") == 1, point
        assert provider.calls[mail] == (2 if point == "before-Store.complete" else 1), point


def test_whatever_happens_a_receipt_is_mailed_once(onceq_env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, at once, killed at every point, as a zombie: one mail, by the key that the mail provider knows."""
    gateway = EffectRecorder(like=receipts.gateway)
    monkeypatch.setattr(receipts, "gateway", gateway)

    prove_effectively_once(send_receipt, RECEIPT, effects=gateway, env=onceq_env)
