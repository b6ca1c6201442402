"""What the demo measured, and what must hold.

Nothing here is taken from the plan but what was sent and which payments are to be charged. Everything else was seen:
charges and calls by the provider, attempts and ends in the claims table, reasons on the messages in the dead-letter
queue, the rest in the telemetry events of the workers.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onceq.codec import fingerprint
from onceq.record import Record, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A problem of many jobs is told with the first few of them.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Sent:
    """One message that the producer sent; ``key`` is ``None`` where it was sent raw."""

    key: str | None
    content: str

    @classmethod
    def payment(cls, key: str, payload: Mapping[str, Any]) -> Sent:
        """Name a payment's message by its key and its payload's fingerprint, as the claim does."""
        return cls(key, fingerprint(payload))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message in the dead-letter queue, and why it is there."""

    sent: Sent
    reason: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What was observed.

    Args:
        sent: Every message that was sent.
        unsent: How many were planned beside those.
        to_charge: Whether a job is to be charged in the end, by its key.
        records: The claims table at the end.
        dead_letters: The dead-letter queue at the end.
        left: Messages still in the queue at the end.
        charges: What the provider tells: its stats.
        events: The workers' telemetry events.
        exits: Exit codes of workers that ended before they were told to.
        seconds: How long it took.
    """

    sent: Sequence[Sent]
    unsent: int
    to_charge: Mapping[str, bool]
    records: Sequence[Record]
    dead_letters: Sequence[DeadLetter]
    left: int
    charges: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    exits: Sequence[int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The figures, and the sentences about what does not hold."""

    ok: bool
    problems: list[str]
    seconds: float
    jobs: int
    messages: int
    deliveries: int
    attempts: int
    completed: int
    replays: int
    retries: int
    deferred: int
    kills: int
    takeovers: int
    claims_lost: int
    rejected: int
    rejected_by_reason: dict[str, int]
    refused: int
    refused_by_reason: dict[str, int]
    dead_lettered: int
    raw_calls: int
    charges: int
    charges_per_job: dict[str, int]
    jobs_charged_once: int
    jobs_charged_twice: int
    jobs_not_charged: int
    lost: int
    left_in_queue: int

    @classmethod
    def of(cls, seen: Seen) -> Report:
        """Count, and check what must hold."""
        names = Counter(event["name"] for event in seen.events)
        stale = sum(
            event["name"] == "job.taken_over" and event["previous_status"] == Status.PROCESSING for event in seen.events
        )
        orders = seen.charges["orders"]
        charges = {key: orders.get(key, {"done": 0})["done"] for key in seen.to_charge}
        ended = Counter(record.status for record in seen.records)
        refused = Counter(letter.reason for letter in seen.dead_letters if _is_refused(letter, seen.records))
        lost = lost_messages(seen)
        figures: dict[str, Any] = {
            "seconds": round(seen.seconds, 1),
            "jobs": len(seen.records),
            "messages": len(seen.sent),
            "deliveries": sum(event["records"] for event in seen.events if event["name"] == "batch.delivered"),
            "attempts": sum(record.attempts for record in seen.records),
            "completed": ended[Status.COMPLETED],
            "replays": names["job.replayed"],
            "retries": names["job.retried"],
            "deferred": names["job.deferred"],
            "kills": len(seen.charges["kills"]),
            "takeovers": stale,
            "claims_lost": names["claim.lost"],
            "rejected": ended[Status.REJECTED],
            "rejected_by_reason": dict(
                Counter(record.error or "" for record in seen.records if record.status is Status.REJECTED)
            ),
            "refused": refused.total(),
            "refused_by_reason": dict(refused),
            "dead_lettered": len(seen.dead_letters),
            "raw_calls": seen.charges["calls"],
            "charges": seen.charges["done"],
            "charges_per_job": {str(number): jobs for number, jobs in sorted(Counter(charges.values()).items())},
            "jobs_charged_once": sum(number == 1 for number in charges.values()),
            "jobs_charged_twice": sum(number > 1 for number in charges.values()),
            "jobs_not_charged": sum(number == 0 for number in charges.values()),
            "lost": max(0, len(lost) - seen.left),
            "left_in_queue": seen.left,
        }
        problems = _broken(seen, charges, figures) + _not_shown(figures)
        return cls(ok=not problems, problems=problems, **figures)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return asdict(self)


def lost_messages(seen: Seen) -> list[Sent]:
    """Return the messages whose job is not completed and that are not in the dead-letter queue.

    A message that is still in the queue is among them: the caller knows how many those are.
    """
    completed = {
        Sent(record.idempotency_key, record.payload_fingerprint or "")
        for record in seen.records
        if record.status is Status.COMPLETED
    }
    copies = Counter(letter.sent for letter in seen.dead_letters)
    missing = Counter(message for message in seen.sent if message not in completed) - copies
    return list(missing.elements())


def _is_refused(letter: DeadLetter, records: Sequence[Record]) -> bool:
    rejected = {record.idempotency_key for record in records if record.status is Status.REJECTED}
    return letter.sent.key not in rejected


def _broken(seen: Seen, charges: Mapping[str, int], figures: Mapping[str, Any]) -> list[str]:
    """Say what was promised and does not hold."""
    status = {record.idempotency_key: record.status for record in seen.records}
    wanted = {key: Status.COMPLETED if charged else Status.REJECTED for key, charged in seen.to_charge.items()}
    found = {
        "charged more than once": [key for key, number in charges.items() if number > 1],
        "not charged, and should be": [key for key, number in charges.items() if number < seen.to_charge[key]],
        "charged, and should not be": [key for key, number in charges.items() if number and not seen.to_charge[key]],
        "charged for an order that nobody enqueued": [key for key in seen.charges["orders"] if key not in charges],
        "not ended as it should": [
            f"{key} ({status.get(key, 'no record')})" for key, end in wanted.items() if status.get(key) != end
        ],
    }
    problems = [_named(what, keys) for what, keys in found.items() if keys]
    if figures["lost"]:
        problems.append(_named("lost", [message.key or message.content for message in lost_messages(seen)]))
    if seen.unsent:
        problems.append(f"{seen.unsent} messages were still to be sent when the time was over (--limit)")
    if seen.left:
        problems.append(f"{seen.left} messages were still in the queue when the time was over (--limit)")
    for code, number in sorted(Counter(seen.exits).items()):
        if code != -signal.SIGKILL:
            problems.append(f"{number} workers ended by themselves with exit code {code}")
    return problems


def _not_shown(figures: Mapping[str, Any]) -> list[str]:
    """Say what the demo set out to show and did not."""
    shown = {
        "no worker was killed between a charge and its completion": figures["kills"],
        "no job was taken over from a killed worker": figures["takeovers"],
        "no duplicate was answered from the stored result": figures["replays"],
        "no failed job ran again": figures["retries"],
        "no job was rejected": figures["rejected"],
        "no message was refused": figures["refused"],
        "nothing was dead-lettered": figures["dead_lettered"],
    }
    return [f"not shown: {what}" for what, number in shown.items() if not number]


def _named(what: str, keys: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return f"{what}: {', '.join(keys[:NAMED])}{more}"
