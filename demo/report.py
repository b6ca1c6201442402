"""What the demo measured: figures, each counted from what was seen, and the verdict of `demo.checks`.

Nothing here is taken from the plan but what was sent, what stood on the shelf and which payments are to be charged.
Charges, mails, events and bookings are counted by the provider, attempts and ends in the claims table, messages in the
outbox table and the dead-letter queue, the rest in the events of workers and relay.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from demo.checks import broken, not_shown
from demo.deaths import Moment
from onceq.outbox import Delivery
from onceq.record import Status

if TYPE_CHECKING:
    from demo.seen import Seen


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
    kills_by_moment: dict[str, int]
    takeovers: int
    steps_replayed: int
    claims_lost: int
    rejected: int
    rejected_by_reason: dict[str, int]
    refused: int
    refused_by_reason: dict[str, int]
    uncertain: int
    dead_lettered: int
    lost: int
    left_in_queue: int
    raw_calls: int
    charges: int
    charges_per_job: dict[str, int]
    jobs_charged_once: int
    jobs_charged_twice: int
    jobs_not_charged: int
    outbox_sent: int
    outbox_sent_by_relay: int
    outbox_sent_again: int
    outbox_pending: int
    receipts: int
    receipts_missing: int
    receipts_twice: int
    webhooks: int
    webhooks_missing: int
    webhooks_twice: int
    stock_reserved: int
    stock_reserved_twice: int
    stock_below_zero: int
    legacy_called: int
    legacy_called_twice: int
    nightly_triggers: int
    nightly_runs: int

    @classmethod
    def of(cls, seen: Seen) -> Report:
        """Count, and check what must hold."""
        figures = {**_consumed(seen), **_ended(seen), **_charged(seen), **_outbox(seen), **_effects(seen)}
        problems = broken(seen, figures) + not_shown(seen, figures)
        return cls(ok=not problems, problems=problems, seconds=round(seen.seconds, 1), **figures)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return asdict(self)


def _consumed(seen: Seen) -> dict[str, Any]:
    names = seen.names
    moments = Counter(dict.fromkeys(Moment, 0))
    moments[Moment.CALLED] += len(seen.stats["kills"])
    moments.update(Moment(event["moment"]) for event in seen.events if event["name"] == "process.killed")
    stale = sum(
        event["name"] == "job.taken_over" and event["previous_status"] == Status.PROCESSING for event in seen.events
    )
    return {
        "jobs": len(seen.records),
        "messages": len(seen.sent),
        "deliveries": sum(event["records"] for event in seen.events if event["name"] == "batch.delivered"),
        "attempts": sum(record.attempts for record in seen.records),
        "replays": names["job.replayed"],
        "retries": names["job.retried"],
        "deferred": names["job.deferred"],
        "kills": moments.total(),
        "kills_by_moment": {str(moment): number for moment, number in moments.items()},
        "takeovers": stale,
        "steps_replayed": names["step.replayed"],
        "claims_lost": names["claim.lost"],
    }


def _ended(seen: Seen) -> dict[str, Any]:
    ended = Counter(record.status for record in seen.records)
    rejected = Counter(record.error or "" for record in seen.records if record.status is Status.REJECTED)
    for_good = (Status.REJECTED, Status.UNCERTAIN)
    refused = Counter(
        letter.reason
        for letter in seen.dead_letters
        if seen.status(letter.sent.job_type, letter.sent.key) not in for_good
    )
    return {
        "completed": ended[Status.COMPLETED],
        "rejected": ended[Status.REJECTED],
        "rejected_by_reason": dict(rejected),
        "refused": refused.total(),
        "refused_by_reason": dict(refused),
        "uncertain": ended[Status.UNCERTAIN],
        "dead_lettered": len(seen.dead_letters),
        "lost": max(0, len(seen.lost) - seen.left),
        "left_in_queue": seen.left,
    }


def _charged(seen: Seen) -> dict[str, Any]:
    done = seen.done("charges")
    charges = [done.get(order_id, 0) for order_id in seen.plan.kinds]
    return {
        "raw_calls": seen.stats["charges"]["calls"],
        "charges": seen.stats["charges"]["done"],
        "charges_per_job": {str(number): jobs for number, jobs in sorted(Counter(charges).items())},
        "jobs_charged_once": sum(number == 1 for number in charges),
        "jobs_charged_twice": sum(number > 1 for number in charges),
        "jobs_not_charged": sum(number == 0 for number in charges),
    }


def _outbox(seen: Seen) -> dict[str, Any]:
    sendings = [event for event in seen.events if event["name"] == "outbox.sent"]
    return {
        "outbox_sent": sum(entry.status == Delivery.SENT for entry in seen.outbox),
        "outbox_sent_by_relay": len({event["entry"] for event in sendings if event["who"] == "relay"}),
        "outbox_sent_again": len(sendings) - len({event["entry"] for event in sendings}),
        "outbox_pending": sum(entry.status == Delivery.PENDING for entry in seen.outbox),
    }


def _effects(seen: Seen) -> dict[str, Any]:
    mails, webhooks, legacy = seen.done("mails"), seen.done("webhooks"), seen.done("legacy")
    taken, reserved = seen.units_taken(), seen.units_reserved()
    return {
        "receipts": sum(mails.values()),
        "receipts_missing": len(seen.receipts_missing()),
        "receipts_twice": sum(number > 1 for number in mails.values()),
        "webhooks": sum(webhooks.values()),
        "webhooks_missing": sum(webhooks.get(event_id, 0) == 0 for event_id in seen.plan.webhooks),
        "webhooks_twice": sum(number > 1 for number in webhooks.values()),
        "stock_reserved": reserved.total(),
        "stock_reserved_twice": sum(max(0, number - reserved[sku]) for sku, number in taken.items()),
        "stock_below_zero": sum(number < 0 for number in seen.stock.values()),
        "legacy_called": sum(legacy.values()),
        "legacy_called_twice": sum(number > 1 for number in legacy.values()),
        "nightly_triggers": sum(message.job_type == "nightly_report" for message in seen.sent),
        "nightly_runs": len(seen.completed("nightly_report")),
    }
