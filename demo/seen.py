"""What was observed in a run, wherever it stands: tables, queues, the provider's books, the processes' events."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onceq.codec import fingerprint
from onceq.outbox import Delivery, OutboxEntry
from onceq.record import Record, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from demo.plan import Plan


@dataclass(frozen=True, slots=True)
class Sent:
    """One message that was sent; job type and key are empty where its body is no envelope."""

    job_type: str
    key: str
    content: str

    @classmethod
    def job(cls, job_type: str, key: str, payload: Mapping[str, Any]) -> Sent:
        """Name a job's message by its job type, its key and its payload's fingerprint, as the claim does."""
        return cls(job_type, key, fingerprint(payload))

    @classmethod
    def body(cls, body: str) -> Sent:
        """Name a message by its body."""
        try:
            envelope = json.loads(body)
            return cls.job(envelope["job_type"], envelope["idempotency_key"], envelope["payload"])
        except (ValueError, KeyError, TypeError):
            return cls("", "", body)

    def __str__(self) -> str:
        """Name it for a person."""
        return self.key or self.content


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message in the dead-letter queue, and why it is there."""

    sent: Sent
    reason: str


@dataclass(frozen=True)
class Seen:
    """What was observed.

    Args:
        plan: What was to be enqueued, and where workers were to die.
        sent: Every message that the producer sent.
        records: The claims table at the end.
        outbox: The outbox table at the end.
        stock: Pieces that are available at the end, by article.
        dead_letters: The dead-letter queue at the end.
        left: Messages still in the queue at the end.
        stats: What the provider tells.
        events: The telemetry events of workers and relay, and the deaths of workers.
        exits: Exit codes of processes that ended before they were told to.
        seconds: How long it took.
    """

    plan: Plan
    sent: Sequence[Sent]
    records: Sequence[Record]
    outbox: Sequence[OutboxEntry]
    stock: Mapping[str, int]
    dead_letters: Sequence[DeadLetter]
    left: int
    stats: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    exits: Sequence[int]
    seconds: float

    @cached_property
    def jobs(self) -> Mapping[str, Mapping[str, Record]]:
        """The records by job type and key."""
        found: dict[str, dict[str, Record]] = defaultdict(dict)
        for record in self.records:
            found[record.job_type][record.idempotency_key] = record
        return found

    def status(self, job_type: str, key: str) -> Status | None:
        """Return how a job stands."""
        record = self.jobs[job_type].get(key)
        return record.status if record else None

    def completed(self, job_type: str) -> list[str]:
        """Return the keys of the completed jobs of a type."""
        return [key for key, record in self.jobs[job_type].items() if record.status is Status.COMPLETED]

    def done(self, what: str) -> dict[str, int]:
        """Return how often the provider did something, by order: ``charges``, ``mails``, ``webhooks``, ``legacy``."""
        return {order_id: order["done"] for order_id, order in self.stats[what]["orders"].items()}

    @cached_property
    def names(self) -> Counter[str]:
        """How often each event happened."""
        return Counter(event["name"] for event in self.events)

    @cached_property
    def lost(self) -> list[Sent]:
        """The messages whose job is not completed and that are not in the dead-letter queue.

        Those of the outbox are among them once they were sent. A message that is still in the queue counts too:
        `left` knows how many those are.
        """
        completed = {
            Sent(record.job_type, record.idempotency_key, record.payload_fingerprint or "")
            for record in self.records
            if record.status is Status.COMPLETED
        }
        relayed = [Sent.body(entry.body) for entry in self.outbox if entry.status == Delivery.SENT]
        copies = Counter(letter.sent for letter in self.dead_letters)
        missing = Counter(message for message in (*self.sent, *relayed) if message not in completed) - copies
        return list(missing.elements())

    @property
    def pending(self) -> list[OutboxEntry]:
        """The messages of the outbox that were not sent."""
        return [entry for entry in self.outbox if entry.status == Delivery.PENDING]

    def receipts_missing(self) -> list[str]:
        """Return the orders of completed payments whose receipt should have been mailed and was not."""
        mailed = self.done("mails")
        paid = (key for key in self.completed("process_payment") if key not in self.plan.without_receipt)
        return [key for key in paid if not mailed.get(f"Your receipt for {key}")]

    def units_taken(self) -> dict[str, int]:
        """Return how many pieces were taken off the shelf, by article."""
        return {sku: pieces - self.stock.get(sku, 0) for sku, pieces in self.plan.shelf.items()}

    def units_reserved(self) -> Counter[str]:
        """Return how many pieces completed reservations asked for, by article."""
        reserved: Counter[str] = Counter()
        for order in self.plan.orders.values():
            if self.status("reserve_stock", order.order_id) is Status.COMPLETED:
                reserved[order.sku] += order.quantity
        return reserved
