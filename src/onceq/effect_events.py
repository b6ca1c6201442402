"""What happened to effects: steps, locks, the outbox, and what the sweep and people found."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from onceq.telemetry import Event, JobEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReplayed(JobEvent):
    """A step was answered from its record; its effect was not run again."""

    name: ClassVar[str] = "step.replayed"
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWasBusy(JobEvent):
    """Somebody else holds the job's lock; the job was not started and comes back at ``until`` (epoch ms)."""

    name: ClassVar[str] = "lock.busy"
    metric: ClassVar[str | None] = "LocksBusy"
    lock: str
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWasLost(Event):
    """A lock could not be renewed or released; whoever waits for it gets it when it ends by itself."""

    name: ClassVar[str] = "lock.lost"
    level: ClassVar[int] = logging.WARNING
    lock: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResolved(JobEvent):
    """A person decided about a job."""

    name: ClassVar[str] = "job.resolved"
    level: ClassVar[int] = logging.WARNING
    decision: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimWentStale(JobEvent):
    """The sweep found a claim whose attempt never ended, and marked it as ``status``."""

    name: ClassVar[str] = "claim.went_stale"
    metric: ClassVar[str | None] = "ClaimsWentStale"
    level: ClassVar[int] = logging.ERROR
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryEnded(Event):
    """A run of the sweep is over; ``finished`` says whether it came to the end of the table."""

    name: ClassVar[str] = "recovery.ended"
    scanned: int
    failed: int
    uncertain: int
    lost: int
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEvent(Event):
    """Something happened to a message in the outbox."""

    entry: str
    job_type: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSent(OutboxEvent):
    """A message of the outbox was sent, so many seconds after it was due."""

    name: ClassVar[str] = "outbox.sent"
    metric: ClassVar[str | None] = "OutboxSent"
    message_id: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxFailed(OutboxEvent):
    """A message of the outbox could not be sent; it stays and is tried again."""

    name: ClassVar[str] = "outbox.failed"
    metric: ClassVar[str | None] = "OutboxFailed"
    level: ClassVar[int] = logging.WARNING
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxNotMarked(OutboxEvent):
    """What became of a message could not be written to the outbox; it may be sent again, under the same key."""

    name: ClassVar[str] = "outbox.not_marked"
    level: ClassVar[int] = logging.WARNING
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxOverdue(Event):
    """Messages are past due for longer than they may be; the oldest one by so many seconds."""

    name: ClassVar[str] = "outbox.overdue"
    metric: ClassVar[str | None] = "OutboxOverdue"
    level: ClassVar[int] = logging.ERROR
    entries: int
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemUnreadable(Event):
    """An item of a table is none that this release can read; it was passed over, and holds up no other."""

    name: ClassVar[str] = "item.unreadable"
    metric: ClassVar[str | None] = "ItemsUnreadable"
    level: ClassVar[int] = logging.ERROR
    table: str
    item: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayEnded(Event):
    """A run of the relay is over; the oldest message that it left behind is so many seconds past due."""

    name: ClassVar[str] = "relay.ended"
    sent: int
    failed: int
    left: int
    seconds: int
