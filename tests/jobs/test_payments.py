"""The payment job: called as a plain function, and delivered twice."""

from __future__ import annotations

import pytest

from jobs.gateway import CardDeclined, ProviderError
from jobs.payments import Payment, process_payment
from kit.provider import Provider
from kit.world import World, event_of, kept
from onceq import Context, Reject

PAYMENT = Payment(order_id="o-1", customer_id="cus_1", amount_cents=500)


def test_a_payment_is_charged_once_with_the_jobs_own_key(provider: Provider) -> None:
    """The provider gets the order, and the key that is the same on every attempt."""
    ctx = Context(key="o-1")

    assert process_payment(PAYMENT, ctx) == {"charge_id": "effect-1"}

    charge = {"order_id": "o-1", "customer_id": "cus_1", "amount_cents": 500}
    assert provider.effects == {ctx.idempotency_key_for("charge"): charge}


@pytest.mark.parametrize("amount", [0, -500])
def test_an_amount_that_is_not_positive_is_rejected(provider: Provider, amount: int) -> None:
    """It is never tried again, and never charged."""
    with pytest.raises(Reject, match="amount must be positive"):
        process_payment(Payment("o-1", "cus_1", amount), Context(key="o-1"))

    assert not provider.calls


def test_a_declined_card_is_rejected(provider: Provider) -> None:
    """`CardDeclined` stands in ``reject=`` of the job, so the job ends in the dead-letter queue."""
    provider.answers.append(402)

    with pytest.raises(CardDeclined):
        process_payment(PAYMENT, Context(key="o-1"))
    assert CardDeclined in process_payment.reject


def test_a_provider_that_fails_is_asked_again(provider: Provider) -> None:
    """Any other exception is a retry."""
    provider.answers.append(503)

    with pytest.raises(ProviderError):
        process_payment(PAYMENT, Context(key="o-1"))


def test_a_message_that_comes_twice_is_one_charge(world: World, provider: Provider) -> None:
    """SQS delivers at least once; the second delivery gets the stored result."""
    app = world.app(process_payment)
    payload = {"order_id": "o-1", "customer_id": "cus_1", "amount_cents": 500}

    for _ in range(2):
        message = world.message("process_payment", payload, key="o-1")
        assert kept(app.consumer(event_of(message))) == []

    assert len(provider.effects) == provider.calls.total() == 1
    status = app.lookup(process_payment, "o-1")
    assert status is not None
    assert status.result == {"charge_id": "effect-1"}
