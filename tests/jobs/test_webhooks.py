"""The webhook job: as a plain function, delivered twice, by two workers at once, and with a worker that dies."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from jobs import webhooks
from jobs.gateway import ProviderError
from jobs.webhooks import Webhook, deliver_webhook
from kit.clock import FakeLambdaContext
from kit.provider import Provider
from kit.world import World, event_of, kept
from onceq import Context
from onceq.testing import EffectRecorder, Environment, prove_effectively_once

PAID = Webhook(event_id="e-1", kind="order.paid", order_id="o-1", customer_id="cus_1")


def test_an_event_is_posted_with_the_jobs_own_key(provider: Provider) -> None:
    """The receiver gets the event, and a key that it may recognise."""
    ctx = Context(key="e-1")

    assert deliver_webhook(PAID, ctx) == {"id": "effect-1"}

    assert provider.effects == {ctx.idempotency_key_for("webhook"): asdict(PAID)}


def test_a_receiver_that_fails_is_called_again(provider: Provider) -> None:
    """Any exception is a retry."""
    provider.answers.append(500)

    with pytest.raises(ProviderError, match="500"):
        deliver_webhook(PAID, Context(key="e-1"))


def test_a_receiver_without_an_address_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that is missing is named."""
    monkeypatch.delenv("WEBHOOK_URL", raising=False)

    with pytest.raises(ProviderError, match="WEBHOOK_URL is not set"):
        deliver_webhook(PAID, Context(key="e-1"))


def test_a_message_that_comes_twice_is_one_call(world: World, provider: Provider) -> None:
    """SQS delivers at least once; the second delivery is answered from the claim."""
    app = world.app(deliver_webhook)

    for _ in range(2):
        message = world.message("deliver_webhook", asdict(PAID), key="e-1")
        assert kept(app.consumer(event_of(message))) == []

    assert len(provider.effects) == provider.calls.total() == 1


def test_two_workers_at_once_are_one_call(world: World, provider: Provider, at_once) -> None:
    """One of them claims the job; the other one waits and is answered from its result."""
    at_once(world, "deliver_webhook", asdict(PAID), deliver_webhook, key="e-1", workers=2)

    assert len(provider.effects) == provider.calls.total() == 1


def test_a_worker_that_dies_at_any_call_leaves_one_event(provider: Provider, deaths) -> None:
    """Only a death between the call and its record calls again, with the same key: the receiver acts once."""
    for key, point in deaths(deliver_webhook, lambda key: Webhook(key, "order.paid", "o-1", "cus_1")):
        webhook = Context("deliver_webhook", key).idempotency_key_for("webhook")

        assert [body["event_id"] for body in provider.effects.values()].count(key) == 1, point
        assert provider.calls[webhook] == (2 if point == "before-Store.complete" else 1), point


def test_the_sample_event_is_served(world: World, provider: Provider) -> None:
    """`make invoke EVENT=events/one-webhook.json` runs it."""
    event = json.loads((Path(__file__).parents[2] / "events" / "one-webhook.json").read_text())

    assert kept(world.app(deliver_webhook).consumer(event, FakeLambdaContext())) == []

    assert len(provider.effects) == 1


def test_whatever_happens_a_webhook_is_acted_on_once(onceq_env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called twice it may be; with one key the receiver acts on it once."""
    gateway = EffectRecorder(like=webhooks.gateway)
    monkeypatch.setattr(webhooks, "gateway", gateway)

    prove_effectively_once(deliver_webhook, PAID, effects=gateway, env=onceq_env)
