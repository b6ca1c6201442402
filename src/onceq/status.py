"""How a job stands, as a caller sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from onceq.codec import decode_result
from onceq.record import Record, Status


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How a job stands, for a caller that waits for its outcome.

    Args:
        job_type: Name of the job type, the oldest one.
        key: The idempotency key.
        status: ``processing``, ``completed``, ``failed`` (to be run again), ``rejected`` or ``uncertain``.
        result: What the job returned, once completed; `onceq.ResultNotStored` where that could not be stored.
        error: Why the last attempt failed, or the job was rejected.
        attempts: Starts of the job.
        created_at: When it was first claimed.
        completed_at: When it was completed.
        not_before: When a failed job runs again at the earliest.
        version: Rises with every change; give it to `onceq.App.resolve`, so that what you decide is about what you saw.

    Example:
        >>> at = datetime(2026, 1, 1, tzinfo=UTC)
        >>> status = JobStatus("greet", "k-1", Status.COMPLETED, "Hello Ada", None, 1, at, at, None)
        >>> status.status == "completed", status.result
        (True, 'Hello Ada')
    """

    job_type: str
    key: str
    status: Status
    result: Any
    error: str | None
    attempts: int
    created_at: datetime
    completed_at: datetime | None
    not_before: datetime | None
    version: int = 0

    @classmethod
    def of(cls, record: Record) -> JobStatus:
        """Read a record."""
        return cls(
            job_type=record.job_type,
            key=record.idempotency_key,
            status=record.status,
            result=decode_result(record.result, record.result_not_stored)
            if record.status is Status.COMPLETED
            else None,
            error=record.error,
            attempts=record.attempts,
            created_at=_time(record.created_at),
            completed_at=_time(record.completed_at) if record.completed_at is not None else None,
            not_before=_time(record.not_before) if record.not_before is not None else None,
            version=record.version,
        )


def _time(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
