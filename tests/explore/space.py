"""What is explored: a job or a consumer, the deliveries that meet, and how unkind the world may be to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from explore.outside import RELAY, Letter, Snapshot, handle_of
from onceq.attempt import RENEWALS_PER_LEASE
from onceq.executor import OPEN_LEASE_SECONDS
from onceq.settings import QueueSettings, Settings
from onceq.testing.clock import START_MS
from onceq.testing.events import envelope, queue_arn, sqs_event, sqs_record

if TYPE_CHECKING:
    from explore.outside import Gateway
    from onceq.testing.subject import Subject

CLAIMS, OUTBOX, OWN = "claims", "outbox", "own"
SECONDS = 60
# Lease, its margin, the clock skew, and a second: after it whatever was claimed before it is stale.
LEAP_SECONDS = SECONDS + 1 + 10 + 1
# Seconds until a renewal is due: no lease is over by then.
RENEWED_AFTER = int(OPEN_LEASE_SECONDS / RENEWALS_PER_LEASE)
# A message that a job sent, by its place among all that were.
SENT = "sent-"
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
    """What the world did in a schedule, or may do.

    Args:
        crashes: How many workers died.
        losses: How many requests landed and were not answered.
        expiries: How often the leases passed.
        failures: How many effects failed, or happened and were not answered.
        late: How many writes were not answered, and land later.
        renewals: How often a lease was renewed; that is nothing unkind.
    """

    crashes: int = 0
    losses: int = 0
    expiries: int = 0
    failures: int = 0
    late: int = 0
    renewals: int = 0

    @property
    def nothing(self) -> bool:
        """Whether it was kind."""
        return replace(self, renewals=0) == Used()


Check = Callable[[Snapshot, Used], Iterator[str]]


@dataclass(frozen=True)
class Play:
    """What is explored.

    Args:
        name: Its name.
        subject: Makes what is delivered to, given the provider.
        check: Says what is wrong with the outside at the end, given what the world did.
        messages: The message of each worker: two workers of one message are a redelivery that meets the first. One of
            `RELAY` runs the relay.
        bodies: The body of each message; without one it is the job's.
        before: Messages that were delivered before, one after the other, whose first effect fails.
        job_type: Name of the job type; empty for a consumer of another make.
        at_most_once: Whether the job may start once in all.
        exclusive: Whether a consumer of another make says that one worker is at it at a time.
        once: Effects that may happen once, with a key or without one.
        renews: Whether nothing ends an invocation: the lease is short, and renewed.
        relayed: Whether at the end the relay runs, and what was sent is delivered.
        leap: Seconds that pass where time passes.
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
    renews: bool = False
    relayed: bool = False
    leap: int = LEAP_SECONDS
    used: Used = Used(crashes=1, losses=1, expiries=1)
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the workers."""
        names = (RELAY if one == RELAY else "w" for one in self.messages)
        return tuple(f"{name}{number}" for number, name in enumerate(names, 1))

    def with_one_more(self) -> Play:
        """Return the play with its last worker twice: a third worker, or a second relay. No response is lost."""
        return replace(self, messages=(*self.messages, self.messages[-1]), used=replace(self.used, losses=0))

    def ends_at(self, began_at: int) -> int | None:
        """Return when an invocation must end, epoch ms."""
        return None if self.renews else began_at + SECONDS * 1000

    def body(self, message_id: str, outside: Snapshot) -> str | dict[str, Any]:
        """Return the body of a message."""
        if message_id.startswith(SENT):
            return str(outside.sent[int(message_id.removeprefix(SENT))][1]["MessageBody"])
        given = self.bodies.get(message_id, {})
        payload = {**BODY, **given}
        return envelope(self.job_type, payload, key=payload["order_id"]) if self.job_type else payload

    def event(self, message_id: str, worker: str, outside: Snapshot) -> dict[str, Any]:
        """Return the event of a delivery; a message that was copied to the dead-letter queue comes as a redrive."""
        if message_id == RELAY:
            return {}
        attributes = None
        for _, entry in outside.sent if message_id.startswith("redriven") else ():
            attributes = {name: one["StringValue"] for name, one in entry.get("MessageAttributes", {}).items()}
        record = sqs_record(self.body(message_id, outside), message_id=message_id, attributes=attributes)
        return sqs_event(record | {"receiptHandle": handle_of(message_id, worker)})

    def begins(self) -> Snapshot:
        """Return the outside at the beginning."""
        ids = dict.fromkeys(one for one in (*self.before, *self.messages) if one != RELAY)
        return Snapshot({}, letters=tuple(Letter(one, START_MS) for one in ids))
