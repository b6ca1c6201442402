"""What the demo enqueues, and where workers are to die.

Payments of every kind, webhooks, reservations of stock that does not suffice for all, and the nightly trigger, twice;
duplicates of each, a reused key and a body that is not JSON.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum

from demo.deaths import Death, Moment
from jobs.payments import Payment
from jobs.stock import Reservation
from jobs.webhooks import Webhook

LEAST_PAYMENTS = 10
NOT_JSON = "order o-0000, 5 EUR: not JSON"
Message = Payment | Webhook | Reservation | str


class Kind(StrEnum):
    """How a payment goes; most are plain."""

    PLAIN = "plain"
    KILL = "kill"
    FLAKY = "flaky"
    SLOW = "slow"
    DECLINED = "declined"
    NO_AMOUNT = "no_amount"
    DIES_RAN = "dies_ran"
    DIES_COMMITTED = "dies_committed"
    DIES_SENT = "dies_sent"

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

    def death(self, order_id: str) -> Death | None:
        """Return where the worker of such a payment is to die by its own hand."""
        match self:
            case Kind.DIES_RAN:
                return Death(Moment.RAN, "process_payment", order_id)
            case Kind.DIES_COMMITTED:
                return Death(Moment.COMMITTED, "process_payment", order_id)
            case Kind.DIES_SENT:
                return Death(Moment.SENT, "send_receipt", order_id)
            case _:
                return None


# One payment of so many is of that kind, and at least one.
ONE_OF = {
    Kind.KILL: 60,
    Kind.FLAKY: 20,
    Kind.SLOW: 20,
    Kind.DECLINED: 40,
    Kind.NO_AMOUNT: 40,
    Kind.DIES_RAN: 120,
    Kind.DIES_COMMITTED: 120,
    Kind.DIES_SENT: 240,
}
ONE_DUPLICATE_OF = 10
ONE_RECEIPT_OF = 3
ONE_WEBHOOK_OF = 12
# One piece of the scarce article for so many payments, and half as many orders again as there are pieces.
ONE_PIECE_OF = 20
SCARCE, PLENTY = "scarce", "plenty"
PIECES_OF_PLENTY = 100
# Orders of the other article, each with its fate: where its worker, or the one of its booking, is killed.
# More than one of a kind, since another one's death may come first.
FATES = (*[Moment.CALLED] * 3, Moment.RAN, *[Moment.COMMITTED] * 2, *[Moment.CLAIMED] * 2)
ONE_MORE_OF = 20
MOST_HELD = 4
BATCH = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What to enqueue, and where workers die.

    Args:
        kinds: Every payment's kind by its order id, which is its idempotency key.
        messages: What to send, in this order: payloads, of which equal ones are duplicates, and bodies as they are.
        shelf: Pieces in stock at the start, by article.
        deaths: Where workers kill themselves.
    """

    kinds: dict[str, Kind]
    messages: tuple[Message, ...]
    shelf: dict[str, int] = field(default_factory=dict)
    deaths: tuple[Death, ...] = ()

    @property
    def orders(self) -> dict[str, Reservation]:
        """The reservations by order."""
        return {message.order_id: message for message in self.messages if isinstance(message, Reservation)}

    @property
    def webhooks(self) -> dict[str, Webhook]:
        """The webhooks by event."""
        return {message.event_id: message for message in self.messages if isinstance(message, Webhook)}

    @property
    def without_receipt(self) -> set[str]:
        """The orders whose customer has no address."""
        return {m.order_id for m in self.messages if isinstance(m, Payment) and not m.email}

    @property
    def sendings(self) -> int:
        """How many messages leave through the outbox: receipts, and bookings as far as the stock goes."""
        receipts = sum(kind.is_charged for kind in self.kinds.values()) - sum(
            self.kinds[order_id].is_charged for order_id in self.without_receipt
        )
        asked = Counter(order.sku for order in self.orders.values())
        return receipts + sum(min(number, self.shelf.get(sku, 0)) for sku, number in asked.items())


def make_plan(payments: int, seed: int, nightly: str) -> Plan:
    """Plan that many payments, and the other jobs in proportion.

    Args:
        payments: How many, `LEAST_PAYMENTS` at least.
        seed: The same one makes the same plan.
        nightly: The body that the nightly schedule sends.

    Returns:
        The plan.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    special = [kind for kind, one_of in ONE_OF.items() for _ in range(max(1, payments // one_of))]
    kinds = special + [Kind.PLAIN] * (payments - len(special))
    chance.shuffle(kinds)
    messages: list[Message] = [_payment(number, kind, chance) for number, kind in enumerate(kinds, start=1)]
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
    pieces = max(3, payments // ONE_PIECE_OF)
    orders, deaths = _orders(pieces, max(2, payments // ONE_MORE_OF))
    # Early, since what they send takes its time.
    early: list[Message] = [*_webhooks(max(3, payments // ONE_WEBHOOK_OF)), *orders, nightly]
    dying = {death.key for death in deaths if death.moment is Moment.CLAIMED}
    for message in early:
        # A worker that is killed takes other bookings with it, which are then uncertain without a call: so these late.
        late = isinstance(message, Reservation) and message.order_id in dying
        position = chance.randrange(len(messages) // 2) + (len(messages) // 2 if late else 0)
        messages.insert(position, message)
        # So each comes a second time a batch later, to another worker at the same moment.
        messages.insert(position + BATCH, message)
    names = [f"o-{number:04}" for number in range(1, payments + 1)]
    own = (kind.death(name) for name, kind in zip(names, kinds, strict=True))
    return Plan(
        kinds=dict(zip(names, kinds, strict=True)),
        messages=tuple(messages),
        shelf={SCARCE: pieces, PLENTY: PIECES_OF_PLENTY},
        deaths=(*filter(None, own), *deaths),
    )


def _payment(number: int, kind: Kind, chance: random.Random) -> Payment:
    order_id = f"o-{number:04}"
    amount = 0 if kind is Kind.NO_AMOUNT else chance.randrange(100, 100_000)
    has_mail = kind.death(order_id) is not None or chance.randrange(ONE_RECEIPT_OF) == 0
    return Payment(order_id, f"{kind.customer}-{order_id}", amount, f"ada-{number}@example.com" if has_mail else "")


def _webhooks(count: int) -> list[Webhook]:
    customers = {1: "cus_flaky", 2: "cus_slow"}
    return [
        Webhook(f"e-{number:04}", "order.paid", f"o-{number:04}", customers.get(number, "cus_plain"))
        for number in range(1, count + 1)
    ]


def _orders(pieces: int, more: int) -> tuple[list[Reservation], list[Death]]:
    """Return reservations: more than there are pieces of one article, and of the other those whose worker dies."""
    orders = [
        Reservation(f"r-{number:04}", "cus_plain", SCARCE, 1) for number in range(1, pieces + (pieces + 1) // 2 + 1)
    ]
    deaths = []
    for fate in (*FATES, *(None for _ in range(more))):
        order_id = f"r-{len(orders) + 1:04}"
        if fate is Moment.CLAIMED:
            deaths.append(Death(fate, "book_order", order_id))
        elif fate in (Moment.RAN, Moment.COMMITTED):
            deaths.append(Death(fate, "reserve_stock", order_id))
        customer = f"cus_kill-{order_id}" if fate is Moment.CALLED else "cus_plain"
        orders.append(Reservation(order_id, customer, PLENTY, 1))
    return orders, deaths
