"""The demo's own check: it must notice every broken promise, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from onceq.record import Record, Status

pytest.importorskip("demo", reason="the demo is gone")

from demo import screen
from demo.report import DeadLetter, Report, Seen, Sent

KEYS = ("o-1", "o-2", "o-3")


def sent(key: str, amount: int = 500) -> Sent:
    """Return a payment's message."""
    return Sent.payment(key, {"order_id": key, "amount_cents": amount})


def record(key: str, status: Status = Status.COMPLETED, error: str | None = None, attempts: int = 1) -> Record:
    """Return a payment's record."""
    return Record(
        pk=f"process_payment#{key}",
        job_type="process_payment",
        idempotency_key=key,
        status=status,
        claimant="t1",
        version=2,
        fencing_token=1,
        attempts=attempts,
        created_at=1,
        expires_at=2,
        payload_fingerprint=sent(key).content,
        error=error,
    )


def provider(**charges: int) -> dict[str, Any]:
    """Return the provider's stats: how often each order (o_1 for o-1) was charged."""
    orders = {name.replace("_", "-"): {"done": number} for name, number in charges.items()}
    return {"calls": 9, "done": sum(charges.values()), "orders": orders, "kills": [{"order_id": "o-1", "pid": 7}]}


EVENTS: list[dict[str, Any]] = [
    {"name": "batch.delivered", "records": 6},
    {"name": "job.replayed"},
    {"name": "job.retried"},
    {"name": "job.taken_over", "previous_status": "processing"},
    {"name": "job.taken_over", "previous_status": "rejected"},
]
# Two payments completed, one of them sent twice; one rejected; one key reused; one body that is not JSON.
GOOD = Seen(
    sent=[sent("o-1"), sent("o-1"), sent("o-2"), sent("o-3"), sent("o-2", amount=600), Sent(None, "{")],
    unsent=0,
    to_charge={"o-1": True, "o-2": True, "o-3": False},
    records=[record("o-1", attempts=2), record("o-2"), record("o-3", Status.REJECTED, "amount must be positive")],
    dead_letters=[
        DeadLetter(sent("o-3"), "amount must be positive"),
        DeadLetter(sent("o-2", amount=600), "key reuse"),
        DeadLetter(Sent(None, "{"), "not JSON"),
    ],
    left=0,
    charges=provider(o_1=1, o_2=1),
    events=EVENTS,
    exits=[-9],
    seconds=1.0,
)


def problems(**changes: Any) -> list[str]:
    """Return what the check says about the good run with changes."""
    found: list[str] = Report.of(replace(GOOD, **changes)).problems
    return found


def test_a_good_run_has_no_problem_and_its_figures_are_counted() -> None:
    """Every figure comes from what was seen."""
    report = Report.of(GOOD)
    assert (report.ok, report.problems) == (True, [])
    assert (report.jobs, report.messages, report.deliveries, report.attempts) == (3, 6, 6, 4)
    assert (report.completed, report.replays, report.retries, report.takeovers, report.kills) == (2, 1, 1, 1, 1)
    assert (report.rejected_by_reason, report.rejected) == ({"amount must be positive": 1}, 1)
    assert (report.refused_by_reason, report.refused) == ({"key reuse": 1, "not JSON": 1}, 2)
    assert (report.dead_lettered, report.lost, report.raw_calls, report.charges) == (3, 0, 9, 2)
    assert (report.jobs_charged_once, report.jobs_charged_twice, report.jobs_not_charged) == (2, 0, 1)
    assert report.charges_per_job == {"0": 1, "1": 2}


def test_a_second_charge_is_found() -> None:
    """A job that was charged twice is named."""
    seen = replace(GOOD, charges=provider(o_1=2, o_2=1))
    assert Report.of(seen).problems == ["charged more than once: o-1"]
    assert Report.of(seen).jobs_charged_twice == 1


def test_a_missing_charge_is_found() -> None:
    """A job that should be charged and was not is named, although its record says completed."""
    assert problems(charges=provider(o_1=1)) == ["not charged, and should be: o-2"]


def test_a_charge_of_a_rejected_job_is_found() -> None:
    """A rejected job must not have been charged."""
    assert problems(charges=provider(o_1=1, o_2=1, o_3=1)) == ["charged, and should not be: o-3"]


def test_a_charge_for_nothing_is_found() -> None:
    """A charge for an order that was never enqueued is named."""
    assert problems(charges=provider(o_1=1, o_2=1, o_9=1)) == ["charged for an order that nobody enqueued: o-9"]


def test_a_job_without_its_end_is_found_and_its_message_is_lost() -> None:
    """G4: a message that is neither completed, nor dead-lettered, nor in the queue is lost."""
    seen = replace(GOOD, records=[*GOOD.records[:1], *GOOD.records[2:]])
    report = Report.of(seen)
    assert report.lost == 1
    assert report.problems == ["not ended as it should: o-2 (no record)", "lost: o-2"]


def test_a_rejected_job_that_is_not_in_the_dead_letter_queue_is_lost() -> None:
    """G4: a rejection is no end for a message without its copy in the dead-letter queue."""
    assert problems(dead_letters=GOOD.dead_letters[1:]) == ["lost: o-3"]


def test_a_reused_key_and_a_bad_body_are_lost_without_their_copies() -> None:
    """G4: the completed job of the same key does not answer for a message with another payload."""
    assert problems(dead_letters=GOOD.dead_letters[:1]) == ["lost: o-2, {", "not shown: no message was refused"]


def test_what_is_still_in_the_queue_is_not_lost_but_the_run_failed() -> None:
    """A message left in the queue is told from a lost one."""
    report = Report.of(replace(GOOD, records=[GOOD.records[0], GOOD.records[2]], left=1))
    assert report.lost == 0
    assert "1 messages were still in the queue when the time was over (--limit)" in report.problems


def test_what_was_never_sent_is_a_problem() -> None:
    """A run that had no time to send everything has shown nothing about the rest."""
    assert problems(unsent=4) == ["4 messages were still to be sent when the time was over (--limit)"]


def test_a_worker_that_ends_by_itself_is_a_problem() -> None:
    """Only SIGKILL is planned."""
    assert problems(exits=[-9, 1]) == ["1 workers ended by themselves with exit code 1"]


def test_what_was_not_shown_is_a_problem() -> None:
    """A run without a kill, a take-over, a replay, a retry or a dead letter proves nothing about them."""
    found = problems(events=EVENTS[:1], charges=provider(o_1=1, o_2=1) | {"kills": []})
    assert [problem.removeprefix("not shown: ") for problem in found] == [
        "no worker was killed between a charge and its completion",
        "no job was taken over from a killed worker",
        "no duplicate was answered from the stored result",
        "no failed job ran again",
    ]


def test_the_table_shows_the_figures_and_the_verdict_in_eighty_columns() -> None:
    """A person reads the same figures, and each problem."""
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(screen.table(Report.of(GOOD)))
        console.print(screen.table(Report.of(replace(GOOD, charges=provider(o_1=2, o_2=1)))))
    text = capture.get()
    assert "amount must be positive" in text
    assert "no message was lost" in text
    assert "✗ charged more than once: o-1" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_file_gets_the_table_without_padding_and_with_the_reasons_for_its_figures() -> None:
    """Deliveries exceed messages and calls exceed charges: the table says why, and no line ends with blanks."""
    text = screen.text(Report.of(GOOD), Console(width=80, force_terminal=False))
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert text == text.strip()
    words = " ".join(text.split())
    assert "of 6 messages; a message comes again after a failure, a kill or a visibility timeout" in words
    assert "7 calls failed, were declined, or the provider recognised the key and charged once" in words


def test_a_run_is_starting_until_a_message_is_settled() -> None:
    """Nobody reads "0 of 0 messages" while moto and the workers start."""
    run = pytest.importorskip("demo.run", reason="the example job is gone")
    console = Console(width=80, force_terminal=False)
    view = screen.Live(run.Options())
    with console.capture() as capture:
        console.print(view(run.Progress(messages=0)))
        console.print(view(run.Progress(messages=266, sent=20, left=20)))
    assert (capture.get().count("starting…"), "messages" in capture.get()) == (2, False)
    with console.capture() as capture:
        console.print(view(run.Progress(messages=266, sent=20, left=15)))
    assert "5 of 266 messages" in capture.get()
