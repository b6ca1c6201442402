"""The demo's own check: it must notice every broken promise, and nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from rich.console import Console

from onceq.outbox import Delivery, OutboxEntry
from onceq.record import Record, Status

pytest.importorskip("demo.run", reason="the demo is gone, or an example job")

from demo import screen
from demo.deaths import Death, Moment
from demo.plan import NOT_JSON, Kind, Message, Plan
from demo.progress import Progress
from demo.report import Report
from demo.run import Options
from demo.seen import DeadLetter, Seen, Sent
from jobs.payments import Payment
from jobs.stock import Reservation
from jobs.webhooks import Webhook

NIGHT = "nightly_report:2026-11-30T02:00:00Z"
RECEIPT = {"order_id": "o-1", "email": "ada@example.com"}
PAYMENTS = {
    "o-1": Payment("o-1", "cus_plain", 500, "ada@example.com"),
    "o-2": Payment("o-2", "cus_kill", 500),
    "o-3": Payment("o-3", "cus_plain", 0, "eve@example.com"),
}
ORDERS = {
    "r-1": Reservation("r-1", "cus_plain", "book", 1),
    "r-2": Reservation("r-2", "cus_kill", "book", 1),
    "r-3": Reservation("r-3", "cus_plain", "book", 1),
}
PAYLOADS: dict[tuple[str, str], dict[str, Any]] = {
    **{("process_payment", key): asdict(payment) for key, payment in PAYMENTS.items()},
    **{("reserve_stock", key): asdict(order) for key, order in ORDERS.items()},
    **{("book_order", key): asdict(order) for key, order in ORDERS.items()},
    ("send_receipt", "o-1"): RECEIPT,
    ("deliver_webhook", "e-1"): {"event_id": "e-1"},
    ("nightly_report", NIGHT): {"scheduled_at": "2026-11-30T02:00:00Z"},
}


def sent(job_type: str, key: str, **changes: Any) -> Sent:
    """Return a job's message."""
    return Sent.job(job_type, key, PAYLOADS[job_type, key] | changes)


def record(
    job_type: str, key: str, status: Status = Status.COMPLETED, error: str | None = None, attempts: int = 1
) -> Record:
    """Return a job's record."""
    return Record(
        pk=f"{job_type}#{key}",
        job_type=job_type,
        idempotency_key=key,
        status=status,
        claimant="t1",
        version=2,
        fencing_token=1,
        attempts=attempts,
        created_at=1,
        expires_at=2,
        payload_fingerprint=sent(job_type, key).content,
        error=error,
    )


def entry(job_type: str, key: str, status: Delivery = Delivery.SENT) -> OutboxEntry:
    """Return a message of the outbox."""
    envelope = {"job_type": job_type, "idempotency_key": key, "payload": PAYLOADS[job_type, key]}
    return OutboxEntry(f"t-{key}", job_type, key, "default", json.dumps(envelope), 1, 2, status)


def books(**done: int) -> dict[str, Any]:
    """Return what the provider counted for one address, by order (o_1 for o-1)."""
    orders = {name.replace("_", "-"): {"done": number} for name, number in done.items()}
    return {"calls": 9, "done": sum(done.values()), "orders": orders}


def stats(**changes: Any) -> dict[str, Any]:
    """Return what the provider tells of a good run, with changes."""
    good = {
        "charges": books(o_1=1, o_2=1),
        "mails": {"calls": 1, "done": 1, "orders": {"Your receipt for o-1": {"done": 1}}},
        "webhooks": books(e_1=1),
        "legacy": books(r_1=1, r_2=1),
        "kills": [{"order_id": "o-2", "pid": 7}],
    }
    return good | changes


EVENTS: list[dict[str, Any]] = [
    {"name": "batch.delivered", "records": 16},
    {"name": "job.replayed", "job_type": "nightly_report"},
    {"name": "job.retried"},
    {"name": "job.taken_over", "previous_status": "processing"},
    {"name": "job.taken_over", "previous_status": "rejected"},
    {"name": "step.replayed"},
    {"name": "process.killed", "moment": str(Moment.COMMITTED)},
    {"name": "outbox.sent", "who": "worker", "entry": "t-o-1"},
    {"name": "outbox.sent", "who": "relay", "entry": "t-r-1"},
    {"name": "outbox.sent", "who": "worker", "entry": "t-r-2"},
    {"name": "outbox.sent", "who": "relay", "entry": "t-r-2"},
]
MESSAGES: tuple[Message, ...] = (
    *(PAYMENTS[key] for key in ("o-1", "o-1", "o-2", "o-3")),
    replace(PAYMENTS["o-2"], amount_cents=600),
    NOT_JSON,
    Webhook("e-1", "order.paid", "o-1", "cus_plain"),
    *ORDERS.values(),
    "the night",
    "the night",
)
# Two payments completed, one of them sent twice, one with a receipt; one rejected; one key reused; one body that is not
# JSON; one webhook; three orders for two pieces, of which one is booked, and one killed in the call; one night, twice.
GOOD = Seen(
    plan=Plan(
        kinds={"o-1": Kind.PLAIN, "o-2": Kind.KILL, "o-3": Kind.NO_AMOUNT},
        messages=MESSAGES,
        shelf={"book": 2},
        deaths=(Death(Moment.COMMITTED, "reserve_stock", "r-1"),),
    ),
    sent=[
        *(sent("process_payment", key) for key in ("o-1", "o-1", "o-2", "o-3")),
        sent("process_payment", "o-2", amount_cents=600),
        Sent.body(NOT_JSON),
        sent("deliver_webhook", "e-1"),
        *(sent("reserve_stock", key) for key in ORDERS),
        *[sent("nightly_report", NIGHT)] * 2,
    ],
    records=[
        record("process_payment", "o-1", attempts=2),
        record("process_payment", "o-2"),
        record("process_payment", "o-3", Status.REJECTED, "amount must be positive"),
        record("send_receipt", "o-1"),
        record("deliver_webhook", "e-1"),
        record("reserve_stock", "r-1"),
        record("reserve_stock", "r-2"),
        record("reserve_stock", "r-3", Status.REJECTED, "out of stock"),
        record("book_order", "r-1"),
        record("book_order", "r-2", Status.UNCERTAIN, "the attempt never ended"),
        record("nightly_report", NIGHT),
    ],
    outbox=[entry("send_receipt", "o-1"), entry("book_order", "r-1"), entry("book_order", "r-2")],
    stock={"book": 0},
    dead_letters=[
        DeadLetter(sent("process_payment", "o-3"), "amount must be positive"),
        DeadLetter(sent("reserve_stock", "r-3"), "out of stock"),
        DeadLetter(sent("book_order", "r-2"), "the attempt never ended"),
        DeadLetter(sent("process_payment", "o-2", amount_cents=600), "key reuse"),
        DeadLetter(Sent.body(NOT_JSON), "not JSON"),
    ],
    left=0,
    stats=stats(),
    events=EVENTS,
    exits=[-9],
    seconds=1.0,
)


def problems(**changes: Any) -> list[str]:
    """Return what the check says about the good run with changes."""
    found: list[str] = Report.of(replace(GOOD, **changes)).problems
    return found


def without(job_type: str, key: str, *others: Record) -> list[Record]:
    """Return the records of the good run without one, and with others."""
    return [one for one in GOOD.records if (one.job_type, one.idempotency_key) != (job_type, key)] + list(others)


def test_a_good_run_has_no_problem_and_its_figures_are_counted() -> None:
    """Every figure comes from what was seen."""
    report = Report.of(GOOD)
    assert (report.ok, report.problems) == (True, [])
    assert (report.jobs, report.messages, report.deliveries, report.attempts) == (11, 12, 16, 12)
    assert (report.completed, report.replays, report.retries, report.takeovers) == (8, 1, 1, 1)
    assert report.kills == 2
    assert {moment: number for moment, number in report.kills_by_moment.items() if number} == {
        Moment.CALLED: 1,
        Moment.COMMITTED: 1,
    }
    assert report.rejected_by_reason == {"amount must be positive": 1, "out of stock": 1}
    assert (report.refused_by_reason, report.refused) == ({"key reuse": 1, "not JSON": 1}, 2)
    assert (report.uncertain, report.dead_lettered, report.lost) == (1, 5, 0)
    assert (report.raw_calls, report.charges, report.charges_per_job) == (9, 2, {"0": 1, "1": 2})
    assert (report.jobs_charged_once, report.jobs_charged_twice, report.jobs_not_charged) == (2, 0, 1)
    assert (report.outbox_sent, report.outbox_pending) == (3, 0)
    assert (report.outbox_sent_by_relay, report.outbox_sent_again) == (2, 1)
    assert (report.receipts, report.webhooks, report.legacy_called, report.steps_replayed) == (1, 1, 2, 1)
    assert (report.stock_reserved, report.stock_reserved_twice, report.stock_below_zero) == (2, 0, 0)
    assert (report.nightly_triggers, report.nightly_runs) == (2, 1)


def test_a_second_charge_is_found() -> None:
    """A job that was charged twice is named."""
    seen = replace(GOOD, stats=stats(charges=books(o_1=2, o_2=1)))
    assert Report.of(seen).problems == ["charged more than once: o-1"]
    assert Report.of(seen).jobs_charged_twice == 1


def test_a_missing_charge_is_found() -> None:
    """A job that should be charged and was not is named, although its record says completed."""
    assert problems(stats=stats(charges=books(o_1=1))) == ["not charged, and should be: o-2"]


def test_a_charge_of_a_rejected_job_is_found() -> None:
    """A rejected job must not have been charged."""
    assert problems(stats=stats(charges=books(o_1=1, o_2=1, o_3=1))) == ["charged, and should not be: o-3"]


def test_a_charge_for_nothing_is_found() -> None:
    """A charge for an order that was never enqueued is named."""
    found = problems(stats=stats(charges=books(o_1=1, o_2=1, o_9=1)))
    assert found == ["charged for an order that nobody enqueued: o-9"]


def test_a_receipt_that_was_not_mailed_is_found() -> None:
    """G8: a charge brings its receipt along, and only one."""
    none = stats(mails={"calls": 0, "done": 0, "orders": {}})
    assert problems(stats=none) == ["charged, and no receipt: o-1"]
    twice = stats(mails={"calls": 2, "done": 2, "orders": {"Your receipt for o-1": {"done": 2}}})
    assert problems(stats=twice) == ["more than one receipt: Your receipt for o-1"]
    assert Report.of(replace(GOOD, stats=twice)).receipts_twice == 1


def test_a_message_that_waits_in_the_outbox_is_found() -> None:
    """G8: what was committed must be sent. Its job has not run, so its effects are missing too."""
    seen = replace(
        GOOD,
        outbox=[entry("send_receipt", "o-1", Delivery.PENDING), *GOOD.outbox[1:]],
        records=without("send_receipt", "o-1"),
        stats=stats(mails={"calls": 0, "done": 0, "orders": {}}),
    )
    report = Report.of(seen)
    assert (report.outbox_pending, report.receipts_missing) == (1, 1)
    assert report.problems == ["charged, and no receipt: o-1", "pending in the outbox: send_receipt o-1"]


def test_a_message_is_there_if_and_only_if_its_transaction_committed() -> None:
    """G8: neither a completion without its message, nor a message without its completion, nor two of them."""
    assert problems(outbox=GOOD.outbox[:2]) == [
        "completed without the message that belongs to it: book_order r-2",
    ]
    assert problems(outbox=[*GOOD.outbox, entry("book_order", "r-3")]) == [
        "a message without the completion that it belongs to: book_order r-3",
        "lost: r-3",
    ]
    assert problems(outbox=[*GOOD.outbox, entry("send_receipt", "o-1")]) == ["staged more than once: send_receipt o-1"]


def test_a_message_of_the_outbox_that_was_sent_and_is_gone_is_lost() -> None:
    """G4: a message from the outbox is one like any other."""
    assert problems(records=without("send_receipt", "o-1")) == ["lost: o-1"]


def test_stock_that_was_taken_twice_is_found() -> None:
    """G7: what is gone from the shelf is what completed reservations asked for, and never more than there was."""
    seen = replace(GOOD, stock={"book": -1})
    report = Report.of(seen)
    assert (report.stock_reserved_twice, report.stock_below_zero) == (1, 1)
    assert report.problems == ["stock below zero: book", "stock taken and not reserved: book (3 taken, 2 reserved)"]


def test_stock_that_was_reserved_and_not_taken_is_found() -> None:
    """G7: the write belongs to the completion."""
    assert problems(stock={"book": 1}) == [
        "stock reserved and not taken: book (1 taken, 2 reserved)",
        "rejected although there was stock: r-3",
    ]


def test_a_second_booking_is_found() -> None:
    """G9: the legacy system knows no keys, so nobody but the claim keeps a second call away."""
    seen = replace(GOOD, stats=stats(legacy=books(r_1=2, r_2=1)))
    assert Report.of(seen).problems == ["booked more than once: r-1"]
    assert Report.of(seen).legacy_called_twice == 1


def test_a_booking_that_is_not_what_its_record_says_is_found() -> None:
    """Completed means called; a booking needs its reservation; what was killed in the call is uncertain."""
    assert problems(stats=stats(legacy=books(r_2=1))) == ["booked, and nobody called: r-1"]
    assert problems(stats=stats(legacy=books(r_1=1, r_2=1, r_3=1))) == [
        "booked for an order without a reservation: r-3"
    ]
    assert "killed in the call, and not uncertain: r-2" in problems(
        records=without("book_order", "r-2", record("book_order", "r-2"))
    )


def test_an_event_that_was_not_delivered_once_is_found() -> None:
    """The receiver got each event once."""
    assert problems(stats=stats(webhooks=books())) == ["an event that was not delivered: e-1"]
    assert problems(stats=stats(webhooks=books(e_1=2))) == ["an event that was delivered more than once: e-1"]


def test_a_job_that_ended_as_it_must_not_is_found() -> None:
    """Only an at-most-once job may be uncertain, and a receipt is not rejected."""
    letter = DeadLetter(sent("send_receipt", "o-1"), "attempts used up")
    found = problems(
        records=without("send_receipt", "o-1", record("send_receipt", "o-1", Status.REJECTED, "attempts used up")),
        dead_letters=[*GOOD.dead_letters, letter],
    )
    assert found == ["ended as it must not: send_receipt o-1 (rejected)"]


def test_a_job_without_its_end_is_found_and_its_message_is_lost() -> None:
    """G4: a message that is neither completed, nor dead-lettered, nor in the queue is lost."""
    report = Report.of(replace(GOOD, records=without("process_payment", "o-2")))
    assert report.lost == 1
    assert report.problems == ["not ended as it should: o-2 (no record)", "lost: o-2"]


def test_a_rejected_job_that_is_not_in_the_dead_letter_queue_is_lost() -> None:
    """G4: a rejection is no end for a message without its copy in the dead-letter queue."""
    assert problems(dead_letters=GOOD.dead_letters[1:]) == ["lost: o-3"]


def test_an_uncertain_job_that_is_not_in_the_dead_letter_queue_is_lost() -> None:
    """G4, G9: nobody would look for it."""
    assert problems(dead_letters=[*GOOD.dead_letters[:2], *GOOD.dead_letters[3:]]) == ["lost: r-2"]


def test_a_reused_key_and_a_bad_body_are_lost_without_their_copies() -> None:
    """G4: the completed job of the same key does not answer for a message with another payload."""
    assert problems(dead_letters=GOOD.dead_letters[:3]) == [
        f"lost: o-2, {NOT_JSON}",
        "not shown: no message was refused",
    ]


def test_what_is_still_in_the_queue_is_not_lost_but_the_run_failed() -> None:
    """A message left in the queue is told from a lost one."""
    report = Report.of(replace(GOOD, records=without("process_payment", "o-2"), left=1))
    assert report.lost == 0
    assert "1 messages were still in the queue when the time was over (--limit)" in report.problems


def test_what_was_never_sent_is_a_problem() -> None:
    """A run that had no time to send everything has shown nothing about the rest."""
    assert problems(sent=GOOD.sent[:-1]) == ["1 messages were still to be sent when the time was over (--limit)"]


def test_a_process_that_ends_by_itself_is_a_problem() -> None:
    """Only SIGKILL is planned."""
    assert problems(exits=[-9, 1]) == ["1 processes ended by themselves with exit code 1"]


def test_what_was_not_shown_is_a_problem() -> None:
    """A run without kills, take-overs, replays, retries or relay proves nothing about them."""
    assert problems(events=EVENTS[:1], stats=stats(kills=[])) == [
        f"not shown: {what}"
        for what in (
            "nothing was killed after a call, before its answer",
            "nothing was killed after the commit, before the sending",
            "no job was taken over from a killed worker",
            "no step was answered from its record",
            "no duplicate was answered from the stored result",
            "no failed job ran again",
            "the relay sent nothing",
            "the second trigger of the night was not replayed",
        )
    ]


def test_a_run_without_uncertain_jobs_or_scarce_stock_has_not_shown_them() -> None:
    """What ends well for everybody shows nothing about those for whom it does not."""
    found = problems(
        plan=replace(GOOD.plan, shelf={"book": 3}),
        stats=stats(legacy=books(r_1=1, r_3=1)),
        records=without("reserve_stock", "r-3", record("reserve_stock", "r-3"), record("book_order", "r-3")),
        outbox=[*GOOD.outbox, entry("book_order", "r-3")],
    )
    assert found == ["not shown: no uncertain order was booked", "not shown: no order was out of stock"]


def test_the_table_shows_the_figures_and_the_verdict_in_eighty_columns() -> None:
    """A person reads the same figures, and each problem."""
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(screen.table(Report.of(GOOD)))
        console.print(screen.table(Report.of(replace(GOOD, stats=stats(charges=books(o_1=2, o_2=1))))))
    text = capture.get()
    assert "amount must be positive" in text
    assert "and no message was lost" in " ".join(text.split())
    assert "✗ charged more than once: o-1" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_file_gets_the_table_without_padding_and_with_the_reasons_for_its_figures() -> None:
    """Deliveries exceed messages and calls exceed charges: the table says why, and no line ends with blanks."""
    text = screen.text(Report.of(GOOD), Console(width=80, force_terminal=False))
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert text == text.strip()
    words = " ".join(text.split())
    assert "of 15 messages; a message comes again after a failure, a kill or a visibility timeout" in words
    assert "7 calls failed, were declined, or the provider knew the key and charged once" in words
    assert "killed 1 after the commit, before the sending" in words
    assert "by the relay 2 of them" in words
    assert "reserved 2 pieces of stock; 0 twice, 0 articles below zero" in words


def test_a_run_is_starting_until_a_message_is_settled() -> None:
    """Nobody reads "0 of 0 messages" while moto and the workers start."""
    console = Console(width=80, force_terminal=False)
    view = screen.Live(Options())
    with console.capture() as capture:
        console.print(view(Progress(messages=0)))
        console.print(view(Progress(messages=266, sent=20, left=20)))
    assert (capture.get().count("starting…"), "of 266 messages" in capture.get()) == (2, False)
    with console.capture() as capture:
        console.print(view(Progress(messages=266, sent=20, left=15)))
    assert "5 of 266 messages" in capture.get()


def test_the_story_tells_what_is_worth_it() -> None:
    """Kills, take-overs, steps from their record, what the relay sends, and what waits for a person; no more."""
    progress = Progress(messages=9)
    about = {"job_type": "book_order", "key": "r-1", "pid": 7}
    for event in (
        {"name": "process.killed", "who": "worker", "moment": Moment.COMMITTED, **about},
        {"name": "job.taken_over", "attempt": 2, **about},
        {"name": "step.replayed", "step": "charge", **about},
        {"name": "outbox.sent", "who": "worker", "entry": "e-1", **about},
        {"name": "outbox.sent", "who": "relay", "entry": "e-1", **about},
        {"name": "job.held", "before": False, **about},
        {"name": "job.held", "before": True, **about},
        {"name": "job.completed", **about},
    ):
        progress.note(event)
    assert progress.story == [
        "worker 7 killed after the commit, before the sending: book_order r-1",
        "worker 7 takes book_order r-1 over, attempt 2",
        "book_order r-1: step charge is answered from its record",
        "the relay sends book_order r-1",
        "book_order r-1 is uncertain and waits for a person",
    ]
    assert (progress.kills, progress.relayed, progress.entries) == (1, 1, {"e-1"})
