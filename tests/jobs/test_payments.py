"""The payment job: as a plain function, delivered twice, by two workers at once, and with a worker that dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs import payments
from jobs.gateway import CardDeclined, ProviderError
from jobs.payments import Payment, process_payment
from jobs.receipts import send_receipt
from kit.clock import FakeLambdaContext
from kit.provider import Provider
from kit.world import World, event_of, kept
from onceq import Context, Reject
from onceq.testing import EffectRecorder, Environment, prove_effectively_once

EVENTS = Path(__file__).parents[2] / "events"
PAYMENT = Payment(order_id="o-1", customer_id="cus_1", amount_cents=500)
WITH_MAIL = Payment("o-1", "cus_1", 500, "ada@example.com")
PAYLOAD = {"order_id": "o-1", "customer_id": "cus_1", "amount_cents": 500, "email": "ada@example.com"}
DAY = 24 * 3600


def effects_of(provider: Provider, order_id: str) -> list[str]:
    """Return what happened for an order: its charges, and the mails about it."""
    about = {"charge": {"order_id": order_id}, "mail": {"subject": f"Your receipt for {order_id}"}}
    return sorted(
        name for body in provider.effects.values() for name, known in about.items() if known.items() <= body.items()
    )


def test_a_payment_is_charged_once_with_the_jobs_own_key(provider: Provider) -> None:
    """The provider gets the order, and the key that is the same on every attempt."""
    ctx = Context(key="o-1")

    assert process_payment(PAYMENT, ctx) == {"charge_id": "effect-1"}

    charge = {"order_id": "o-1", "customer_id": "cus_1", "amount_cents": 500}
    assert provider.effects == {ctx.idempotency_key_for("charge"): charge}


def test_a_receipt_is_staged_for_who_has_an_address(provider: Provider) -> None:
    """Called as a plain function the job sends nothing: the context shows what it would send."""
    ctx, other = Context(key="o-1"), Context(key="o-2")

    process_payment(WITH_MAIL, ctx)
    process_payment(PAYMENT, other)

    assert [(sending.job_type, sending.payload) for sending in ctx.sent] == [
        ("send_receipt", {"order_id": "o-1", "email": "ada@example.com"})
    ]
    assert other.sent == []


@pytest.mark.parametrize("amount", [0, -500])
def test_an_amount_that_is_not_positive_is_rejected(provider: Provider, amount: int) -> None:
    """It is never tried again, and never charged."""
    with pytest.raises(Reject, match="amount must be positive"):
        process_payment(Payment("o-1", "cus_1", amount), Context(key="o-1"))

    assert not provider.calls


def test_a_declined_card_is_rejected(provider: Provider) -> None:
    """`CardDeclined` stands in ``reject=`` of the job, so the job ends in the dead-letter queue; no receipt is sent."""
    provider.answers.append(402)
    ctx = Context(key="o-1")

    with pytest.raises(CardDeclined):
        process_payment(WITH_MAIL, ctx)
    assert CardDeclined in process_payment.reject
    assert ctx.sent == []


def test_a_provider_that_fails_is_asked_again(provider: Provider) -> None:
    """Any other exception is a retry."""
    provider.answers.append(503)

    with pytest.raises(ProviderError):
        process_payment(PAYMENT, Context(key="o-1"))


@pytest.mark.parametrize(
    ("name", "effects"), [("one-payment", 1), ("duplicate-delivery", 1), ("payment-with-receipt", 2)]
)
def test_sample_events_are_served(world: World, provider: Provider, work, name: str, effects: int) -> None:
    """A payload from before there were receipts has no address, and is a payment without one."""
    event = json.loads((EVENTS / f"{name}.json").read_text())

    assert kept(world.app(process_payment, send_receipt).consumer(event)) == []
    work(process_payment, send_receipt)

    assert len(provider.effects) == provider.calls.total() == effects


def test_a_message_that_comes_twice_is_one_charge_and_one_receipt(world: World, provider: Provider, work) -> None:
    """SQS delivers at least once; the second delivery gets the stored result, and sends nothing."""
    app = world.app(process_payment, send_receipt)

    for _ in range(2):
        message = world.message("process_payment", PAYLOAD, key="o-1")
        assert kept(app.consumer(event_of(message))) == []
    work(process_payment, send_receipt)

    assert effects_of(provider, "o-1") == ["charge", "mail"]
    assert provider.calls.total() == 2
    status = app.lookup(process_payment, "o-1")
    assert status is not None
    assert status.result == {"charge_id": "effect-1"}


def test_two_workers_at_once_are_one_charge_and_one_receipt(world: World, provider: Provider, at_once, work) -> None:
    """One of them claims the job; the other one waits and is answered from its result."""
    at_once(world, "process_payment", PAYLOAD, process_payment, send_receipt, key="o-1", workers=2)
    work(process_payment, send_receipt)

    assert effects_of(provider, "o-1") == ["charge", "mail"]
    assert provider.calls.total() == 2


def test_a_worker_that_dies_at_any_call_leaves_one_charge_and_one_receipt(provider: Provider, deaths) -> None:
    """Only a death between an effect and its record calls again, with the same key: the provider does it once."""
    points = set()
    for key, point in deaths(process_payment, lambda key: Payment(key, "cus_1", 500, "ada@example.com"), send_receipt):
        charge = Context("process_payment", key).idempotency_key_for("charge")
        mail = Context("send_receipt", key).idempotency_key_for("mail")

        assert effects_of(provider, key) == ["charge", "mail"], point
        assert provider.calls[charge] == (2 if point == "before-Store.step" else 1), point
        assert provider.calls[mail] == (2 if point == "before-Store.complete" else 1), point
        points.add(point)
    assert {"after-Store.step", "after-Store.commit", "before-Outbox.mark_sent"} <= points


def test_a_charge_that_is_open_after_a_day_goes_to_a_person(world: World, provider: Provider) -> None:
    """The provider may have forgotten the key by then: it would take a second call for a new charge."""
    app = world.app(process_payment, send_receipt)
    provider.answers.append(503)

    for wait in (0, DAY + 1):
        world.clock.advance(wait)
        app.consumer(event_of(world.message("process_payment", PAYLOAD, key="o-1")), FakeLambdaContext())

    status = app.lookup(process_payment, "o-1")
    assert status is not None
    assert status.status == "uncertain"
    assert "older than downstream_key_lifetime" in world.dead_letters()[0]["note"]["error"]
    assert provider.calls.total() == 1


def test_whatever_happens_an_order_is_charged_once(onceq_env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, at once, killed at every point, as a zombie: one charge, and one receipt that is sent."""
    gateway = EffectRecorder(like=payments.gateway)
    monkeypatch.setattr(payments, "gateway", gateway)

    report = prove_effectively_once(process_payment, WITH_MAIL, effects=gateway, env=onceq_env)

    assert report.effects == {"charge": 1, "the message to send_receipt": 1}
