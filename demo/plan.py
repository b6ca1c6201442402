"""What the demo enqueues: payments of every kind, duplicates, a reused key and a body that is not JSON."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from jobs.payments import Payment

LEAST_PAYMENTS = 10
NOT_JSON = "order o-0000, 5 EUR: not JSON"


class Kind(StrEnum):
    """How a payment goes; most are plain. The customers' names are the provider's."""

    PLAIN = "plain"
    KILL = "kill"
    FLAKY = "flaky"
    SLOW = "slow"
    DECLINED = "declined"
    NO_AMOUNT = "no_amount"

    @property
    def customer(self) -> str:
        """The customer whom the provider treats so."""
        return {
            Kind.KILL: "cus_kill",
            Kind.FLAKY: "cus_flaky",
            Kind.SLOW: "cus_slow",
            Kind.DECLINED: "cus_declined",
        }.get(self, "cus_plain")

    @property
    def is_charged(self) -> bool:
        """Whether the payment is to be charged in the end."""
        return self not in (Kind.DECLINED, Kind.NO_AMOUNT)


# One payment of so many is of that kind, and at least one.
ONE_OF = {Kind.KILL: 60, Kind.FLAKY: 20, Kind.SLOW: 20, Kind.DECLINED: 40, Kind.NO_AMOUNT: 40}
ONE_DUPLICATE_OF = 10
MOST_HELD = 4
BATCH = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What to enqueue.

    Args:
        kinds: Every payment's kind by its order id, which is its idempotency key.
        messages: What to send, in this order: payments, of which equal ones are duplicates, and bodies as they are.
    """

    kinds: dict[str, Kind]
    messages: tuple[Payment | str, ...]


def make_plan(payments: int, seed: int) -> Plan:
    """Plan that many payments.

    Args:
        payments: How many, `LEAST_PAYMENTS` at least.
        seed: The same one makes the same plan.

    Returns:
        The plan.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    special = [kind for kind, one_of in ONE_OF.items() for _ in range(max(1, payments // one_of))]
    kinds = special + [Kind.PLAIN] * (payments - len(special))
    chance.shuffle(kinds)
    messages: list[Payment | str] = [_payment(number, kind, chance) for number, kind in enumerate(kinds, start=1)]
    by_kind = {kind: [message for message, its in zip(messages, kinds, strict=True) if its is kind] for kind in Kind}
    reused, *others = by_kind[Kind.PLAIN]
    # Duplicates of the first killed, slow and flaky ones come a batch later, and so meet a job that somebody holds.
    held = [payment for kind in (Kind.KILL, Kind.SLOW, Kind.FLAKY) for payment in by_kind[kind][:MOST_HELD]]
    for payment in held:
        messages.insert(messages.index(payment) + BATCH, payment)
    for payment in chance.sample(others, max(1, payments // ONE_DUPLICATE_OF - len(held))):
        messages.insert(chance.randrange(len(messages)), payment)
    assert isinstance(reused, Payment)
    messages.insert(chance.randrange(len(messages)), replace(reused, amount_cents=reused.amount_cents + 100))
    messages.insert(chance.randrange(len(messages)), NOT_JSON)
    orders = [f"o-{number:04}" for number in range(1, payments + 1)]
    return Plan(dict(zip(orders, kinds, strict=True)), tuple(messages))


def _payment(number: int, kind: Kind, chance: random.Random) -> Payment:
    order_id = f"o-{number:04}"
    amount = 0 if kind is Kind.NO_AMOUNT else chance.randrange(100, 100_000)
    return Payment(order_id, f"{kind.customer}-{order_id}", amount)
