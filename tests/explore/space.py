"""What is explored: a job or a consumer, the deliveries that meet, and how unkind the world may be to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from explore.outside import Letter, Snapshot, handle_of
from onceq.settings import QueueSettings, Settings
from onceq.testing.clock import START_MS
from onceq.testing.events import envelope, queue_arn, sqs_event, sqs_record

if TYPE_CHECKING:
    from explore.outside import Gateway
    from onceq.testing.subject import Subject

CLAIMS, OUTBOX, OWN = "claims", "outbox", "own"
SECONDS = 60
# Lease, its margin, the clock skew, and a second: after it whatever was claimed before it is stale.
LEAP_MS = (SECONDS + 1 + 10 + 1) * 1000
KEY = "o-1"
BODY = {"order_id": KEY, "customer_id": "cus_1", "amount_cents": 500}
URL = "https://sqs.us-east-1.amazonaws.com/123456789012/"
SETTINGS = Settings(
    queues={"default": QueueSettings("default", URL + "JobsQueue", queue_arn("JobsQueue"), URL + "DeadLetterQueue")},
    claims_table=CLAIMS,
    outbox_table=OUTBOX,
)


@dataclass(frozen=True, slots=True)
class Used:
    """What the world did in a schedule: how many crashes, lost responses, leases that passed, failed effects."""

    crashes: int = 0
    losses: int = 0
    expiries: int = 0
    failures: int = 0
    late: int = 0

    @property
    def nothing(self) -> bool:
        """Whether it was kind."""
        return self == Used()


Check = Callable[[Snapshot, Used], Iterator[str]]


@dataclass(frozen=True)
class Play:
    """What is explored.

    Args:
        name: Its name.
        subject: Makes what is delivered to, given the provider.
        check: Says what is wrong with the outside at the end, given what the world did.
        messages: The message of each worker: two workers of one message are a redelivery that meets the first.
        bodies: The body of each message; without one it is the job's.
        before: Messages that were delivered before, one after the other, whose first effect fails.
        job_type: Name of the job type; empty for a consumer of another make.
        at_most_once: Whether the job may start once in all.
        exclusive: Whether a consumer of another make says that one worker is at it at a time.
        once: Effects that may happen once, with a key or without one.
        used: The most that the world may do.
        answers: What the provider answers.
    """

    name: str
    subject: Callable[[Gateway], Subject]
    check: Check
    messages: tuple[str, ...] = ("m1", "m1")
    bodies: dict[str, Any] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    job_type: str = "charge"
    at_most_once: bool = False
    exclusive: bool = False
    once: tuple[str, ...] = ()
    used: Used = Used(crashes=1, losses=1, expiries=1)
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the workers."""
        return tuple(f"w{number}" for number in range(1, len(self.messages) + 1))

    def body(self, message_id: str) -> str | dict[str, Any]:
        """Return the body of a message."""
        given = self.bodies.get(message_id, {})
        payload = {**BODY, **given}
        return envelope(self.job_type, payload, key=payload["order_id"]) if self.job_type else payload

    def event(self, message_id: str, worker: str, outside: Snapshot) -> dict[str, Any]:
        """Return the event of a delivery; a message that was copied to the dead-letter queue comes as a redrive."""
        attributes = None
        for _, entry in outside.sent if message_id.startswith("redriven") else ():
            attributes = {name: one["StringValue"] for name, one in entry.get("MessageAttributes", {}).items()}
        record = sqs_record(self.body(message_id), message_id=message_id, attributes=attributes)
        return sqs_event(record | {"receiptHandle": handle_of(message_id, worker)})

    def begins(self) -> Snapshot:
        """Return the outside at the beginning."""
        ids = dict.fromkeys([*self.before, *self.messages])
        return Snapshot({}, letters=tuple(Letter(one, START_MS) for one in ids))
