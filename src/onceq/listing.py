"""Records, jobs and dead letters as the command line shows them: as plain JSON values, and as text for a person."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from onceq.application import JobStatus
from onceq.codec import ResultNotStored, decode, encode, printable
from onceq.errors import PayloadError
from onceq.message import ATTRIBUTE
from onceq.record import Record, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    ends = datetime.fromtimestamp(lease_ms / 1000, UTC).isoformat()
    return {"lease_expires_at": ends, "stale": now_ms >= lease_ms + int(clock_skew * 1000)}


def job_text(values: Mapping[str, Any]) -> str:
    """Return how a job stands, a line for each thing that is known; a completed job always has a result."""
    completed = values["status"] == Status.COMPLETED
    known = {name: value for name, value in values.items() if value is not None or (completed and name == "result")}
    return "\n".join(
        f"{name.replace('_', ' '):<17} {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in known.items()
    )


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


def letters_text(letters: Sequence[Mapping[str, Any]]) -> str:
    """Return dead letters as a table."""
    rows = [
        (letter["job_type"], letter["key"], letter["attempts"], letter["reason"], letter["error"]) for letter in letters
    ]
    return table(rows, ("JOB TYPE", "KEY", "ATTEMPTS", "REASON", "ERROR"))


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
