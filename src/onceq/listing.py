"""What the command line shows: as plain JSON values, and as text for a person."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from onceq.codec import ResultNotStored, decode, encode, printable
from onceq.errors import PayloadError
from onceq.message import ATTRIBUTE
from onceq.outbox import Delivery
from onceq.record import Record, Status
from onceq.status import JobStatus
from onceq.steps import read_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onceq.locks import LockItem
    from onceq.outbox import OutboxEntry

CELL_WIDTH = 80
_NO_NOTE = {"reason": "", "error": "", "job_type": "", "key": "", "attempts": 0, "version": 0, "source_queue": ""}


def job_values(status: JobStatus) -> dict[str, Any]:
    """Return how a job stands as JSON values."""
    values = {field.name: getattr(status, field.name) for field in fields(JobStatus)}
    result = values.pop("result")
    if isinstance(result, ResultNotStored):
        values["result_not_stored"] = result.reason
        result = None
    plain = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}
    return plain | {"result": json.loads(encode(result))}


def lease_values(record: Record, now_ms: int, clock_skew: float) -> dict[str, Any]:
    """Return when the lease of a job that is being processed ends, and whether the claim is stale by now."""
    lease_ms = record.lease_expires_at or 0
    return {"lease_expires_at": _iso(lease_ms), "stale": now_ms >= lease_ms + int(clock_skew * 1000)}


def step_values(record: Record, *, results: bool) -> dict[str, dict[str, Any]]:
    """Return how each step of a job stands, with its result only where it is asked for: it may be large, or secret."""
    found: dict[str, dict[str, Any]] = {}
    for name, state in read_steps(record.steps).items():
        if "started" in state:
            found[name] = {"state": "started", "started_at": _iso(state["started"])}
        elif "not_stored" in state:
            found[name] = {"state": "done", "result_not_stored": state["not_stored"]}
        else:
            found[name] = {"state": "done"} | ({"result": state.get("result")} if results else {})
    return found


def job_text(values: Mapping[str, Any]) -> str:
    """Return how a job stands, a line for each thing that is known; a completed job always has a result."""
    completed = values["status"] == Status.COMPLETED
    known = {name: value for name, value in values.items() if value is not None or (completed and name == "result")}
    steps = known.pop("steps", {})
    known |= {f"step {name}": _step_text(step) for name, step in steps.items()}
    return "\n".join(
        f"{name if name.startswith('step ') else name.replace('_', ' '):<17} {_text(value)}"
        for name, value in known.items()
    )


def _step_text(step: Mapping[str, Any]) -> str:
    state, *more = step.items()
    return ", ".join([state[1], *(f"{name.replace('_', ' ')} {_text(value)}" for name, value in more)])


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def record_values(record: Record) -> dict[str, Any]:
    """Return a record as JSON values, without what is not set."""
    values = {field.name: getattr(record, field.name) for field in fields(Record)}
    return {name: value for name, value in values.items() if value is not None}


def records_text(records: Sequence[Record]) -> str:
    """Return records as a table."""
    rows = [
        (
            record.job_type,
            record.idempotency_key,
            record.status,
            record.attempts,
            datetime.fromtimestamp(record.created_at / 1000, UTC).isoformat(timespec="seconds"),
            record.error or record.result or record.result_not_stored,
        )
        for record in records
    ]
    return table(rows, ("JOB TYPE", "KEY", "STATUS", "ATTEMPTS", "CREATED", "ERROR OR RESULT"))


def letter_values(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter as JSON values: its note, empty where the redrive policy put it there, and its body."""
    attribute = message.get("MessageAttributes", {}).get(ATTRIBUTE, {})
    try:
        note = decode(attribute.get("StringValue", "{}"))
    except PayloadError:
        note = {}
    known = _NO_NOTE | note if isinstance(note, dict) else _NO_NOTE
    return {"message_id": message["MessageId"], **known, "body": message["Body"]}


def letters_text(letters: Sequence[Mapping[str, Any]], *, with_queue: bool = False) -> str:
    """Return dead letters as a table."""
    names = [*(["queue"] if with_queue else []), "job_type", "key", "attempts", "reason", "error"]
    rows = [[letter[name] for name in names] for letter in letters]
    return table(rows, [name.replace("_", " ").upper() for name in names])


def entry_values(entry: OutboxEntry, now_ms: int) -> dict[str, Any]:
    """Return an entry of the outbox as JSON values, without its body; the seconds past due are negative until then."""
    waits = entry.status == Delivery.PENDING
    return {
        "id": entry.pk,
        "job_type": entry.job_type,
        "key": entry.idempotency_key,
        "queue": entry.queue,
        "group": entry.group,
        "status": entry.status,
        "due_at": _iso(entry.due_at),
        "seconds_past_due": round((now_ms - entry.due_at) / 1000, 3) if waits else None,
        "attempts": entry.attempts,
        "error": entry.error,
        "sent_at": None if entry.sent_at is None else _iso(entry.sent_at),
        "message_id": entry.message_id,
    }


def entries_text(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return entries of the outbox as a table."""
    names = ("id", "job_type", "key", "queue", "status", "due", "attempts", "error")
    timed = [{**entry, "due": _due(entry["due_at"], entry["seconds_past_due"])} for entry in entries]
    rows = [[entry[name] for name in names] for entry in timed]
    return table(rows, ("ID", "JOB TYPE", "KEY", "QUEUE", "STATUS", "DUE", "ATTEMPTS", "LAST ERROR"))


def lock_values(lock: LockItem, now_ms: int) -> dict[str, Any]:
    """Return a lock that was not released as JSON values; one whose holder died has its end behind it."""
    left = round((lock.lease_expires_at - now_ms) / 1000, 3)
    return {"name": lock.name, "holder": lock.holder, "ends_at": _iso(lock.lease_expires_at), "seconds_left": left}


def locks_text(locks: Sequence[Mapping[str, Any]]) -> str:
    """Return locks as a table."""
    rows = [(lock["name"], lock["holder"], _due(lock["ends_at"], -lock["seconds_left"])) for lock in locks]
    return table(rows, ("LOCK", "HOLDER", "ENDS"))


def _due(time: str, seconds_past: float | None) -> str:
    text = datetime.fromisoformat(time).isoformat(timespec="seconds")
    if seconds_past is None:
        return text
    return f"{text} ({seconds_past:.0f} s ago)" if seconds_past >= 0 else f"{text} (in {-seconds_past:.0f} s)"


def _iso(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat()


def table(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """Return rows as text in columns; what is not known is a dash.

    Example:
        >>> print(table([("a", 1), ("", 22)], ("NAME", "N")))
        NAME  N
        a     1
        -     22
    """
    lines = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else printable(value, CELL_WIDTH)
