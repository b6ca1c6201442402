"""What must hold after a run, and what the run must have shown: a sentence about each that does not."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

from demo.deaths import Moment
from demo.plan import Kind
from onceq.record import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from demo.seen import Seen

# A problem of many jobs is told with the first few of them.
NAMED = 5
# How the jobs of each type may end; of a payment its kind says it.
ENDS = {
    "send_receipt": {Status.COMPLETED},
    "deliver_webhook": {Status.COMPLETED},
    "reserve_stock": {Status.COMPLETED, Status.REJECTED},
    "book_order": {Status.COMPLETED, Status.UNCERTAIN},
    "nightly_report": {Status.COMPLETED},
}
# Which job's completion brings a message of the outbox along: both have the order's key.
SENT_BY = {"send_receipt": "process_payment", "book_order": "reserve_stock"}


def broken(seen: Seen, figures: Mapping[str, Any]) -> list[str]:
    """Say what was promised and does not hold."""
    found = {**_payments(seen), **_outbox(seen), **_stock(seen), **_legacy(seen), **_others(seen)}
    problems = [_named(what, keys) for what, keys in found.items() if keys]
    if figures["lost"]:
        problems.append(_named("lost", [str(message) for message in seen.lost]))
    if unsent := len(seen.plan.messages) - len(seen.sent):
        problems.append(f"{unsent} messages were still to be sent when the time was over (--limit)")
    if seen.left:
        problems.append(f"{seen.left} messages were still in the queue when the time was over (--limit)")
    for code, number in sorted(Counter(seen.exits).items()):
        if code != -signal.SIGKILL:
            problems.append(f"{number} processes ended by themselves with exit code {code}")
    return problems


def _payments(seen: Seen) -> dict[str, list[str]]:
    to_charge = {order_id: kind.is_charged for order_id, kind in seen.plan.kinds.items()}
    done = seen.done("charges")
    status = {order_id: seen.status("process_payment", order_id) for order_id in to_charge}
    wanted = {key: Status.COMPLETED if charged else Status.REJECTED for key, charged in to_charge.items()}
    return {
        "charged more than once": [key for key in to_charge if done.get(key, 0) > 1],
        "not charged, and should be": [key for key, charged in to_charge.items() if charged and not done.get(key)],
        "charged, and should not be": [key for key, charged in to_charge.items() if not charged and done.get(key)],
        "charged for an order that nobody enqueued": [key for key in done if key not in to_charge],
        "not ended as it should": [
            f"{key} ({status[key] or 'no record'})" for key, end in wanted.items() if status[key] != end
        ],
        "charged, and no receipt": seen.receipts_missing(),
        "more than one receipt": _twice(seen.done("mails")),
    }


def _outbox(seen: Seen) -> dict[str, list[str]]:
    entries = [(entry.job_type, entry.idempotency_key) for entry in seen.outbox]
    # A payment brings a message only for who has an address.
    silent = seen.plan.without_receipt
    promised = [
        (job_type, key)
        for job_type, sender in SENT_BY.items()
        for key in seen.completed(sender)
        if job_type != "send_receipt" or key not in silent
    ]
    return {
        "pending in the outbox": [f"{entry.job_type} {entry.idempotency_key}" for entry in seen.pending],
        "completed without the message that belongs to it": _jobs(set(promised) - set(entries)),
        "a message without the completion that it belongs to": _jobs(set(entries) - set(promised)),
        "staged more than once": _jobs(job for job, number in Counter(entries).items() if number > 1),
    }


def _stock(seen: Seen) -> dict[str, list[str]]:
    reserved = seen.units_reserved()
    taken = {sku: (number, reserved[sku]) for sku, number in seen.units_taken().items()}
    said = {sku: f"{sku} ({one} taken, {other} reserved)" for sku, (one, other) in taken.items()}
    refused = [
        order.order_id
        for order in seen.plan.orders.values()
        if seen.status("reserve_stock", order.order_id) is Status.REJECTED and seen.stock.get(order.sku, 0) > 0
    ]
    return {
        "stock below zero": [sku for sku, number in seen.stock.items() if number < 0],
        "stock taken and not reserved": [said[sku] for sku, (one, other) in taken.items() if one > other],
        "stock reserved and not taken": [said[sku] for sku, (one, other) in taken.items() if one < other],
        "rejected although there was stock": refused,
    }


def _legacy(seen: Seen) -> dict[str, list[str]]:
    done, booked = seen.done("legacy"), seen.completed("book_order")
    killed = [order.order_id for order in seen.plan.orders.values() if order.customer_id.startswith("cus_kill")]
    return {
        "booked more than once": _twice(done),
        "booked, and nobody called": [key for key in booked if not done.get(key)],
        "booked for an order without a reservation": sorted(set(done) - set(seen.completed("reserve_stock"))),
        "killed in the call, and not uncertain": [
            key
            for key in killed
            if done.get(key) and seen.status("book_order", key) not in (None, Status.PROCESSING, Status.UNCERTAIN)
        ],
    }


def _others(seen: Seen) -> dict[str, list[str]]:
    webhooks = seen.done("webhooks")
    ends = [(job_type, key, record) for job_type in ENDS for key, record in seen.jobs[job_type].items()]
    return {
        "an event that was not delivered": [key for key in seen.plan.webhooks if not webhooks.get(key)],
        "an event that was delivered more than once": _twice(webhooks),
        "ended as it must not": [
            f"{job_type} {key} ({record.status})"
            for job_type, key, record in ends
            if record.status not in ENDS[job_type]
        ],
    }


def not_shown(seen: Seen, figures: Mapping[str, Any]) -> list[str]:
    """Say what the demo set out to show and did not."""
    moments = {Moment(name): number for name, number in figures["kills_by_moment"].items()}
    planned = {death.moment for death in seen.plan.deaths}
    if Kind.KILL in seen.plan.kinds.values():
        planned.add(Moment.CALLED)
    replayed = sum(event["name"] == "job.replayed" and event["job_type"] == "nightly_report" for event in seen.events)
    out_of_stock = sum(record.status is Status.REJECTED for record in seen.jobs["reserve_stock"].values())
    called = seen.done("legacy")
    uncertain = [key for key, record in seen.jobs["book_order"].items() if record.status is Status.UNCERTAIN]
    shown = {f"nothing was killed {moment}": moments[moment] for moment in Moment if moment in planned}
    shown |= {
        "no job was taken over from a killed worker": figures["takeovers"],
        "no step was answered from its record": figures["steps_replayed"],
        "no duplicate was answered from the stored result": figures["replays"],
        "no failed job ran again": figures["retries"],
        "no job was rejected": figures["rejected"],
        "no message was refused": figures["refused"],
        "nothing was dead-lettered": figures["dead_lettered"],
        "the relay sent nothing": figures["outbox_sent_by_relay"],
        "no job is uncertain": figures["uncertain"],
        "no uncertain order was booked": sum(called.get(key, 0) for key in uncertain),
        "no order was booked": len(seen.completed("book_order")),
        "no order was out of stock": out_of_stock,
        "the second trigger of the night was not replayed": replayed,
    }
    return [f"not shown: {what}" for what, number in shown.items() if not number]


def _twice(done: Mapping[str, int]) -> list[str]:
    return [key for key, number in done.items() if number > 1]


def _jobs(jobs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{job_type} {key}" for job_type, key in sorted(jobs)]


def _named(what: str, keys: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return f"{what}: {', '.join(keys[:NAMED])}{more}"
