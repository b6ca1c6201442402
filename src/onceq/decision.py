"""What a delivery asks of the claims table, and the closed set of what `onceq.claim.decide` answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from onceq.record import Record, Semantics, Status
from onceq.steps import open_steps

# A message may come back for 14 days from the queue and for 14 more from the dead-letter queue. As long, TTL must not
# delete the record of a job that has not ended: its attempts and its live claim would be forgotten.
UNENDED_RETENTION_S = 28 * 86_400


def ended_until(now_ms: int, retention_s: int) -> int:
    """Return until when an ended job is remembered, epoch seconds."""
    return math.ceil(now_ms / 1000) + retention_s


def unended_until(now_ms: int, retention_s: int, semantics: Semantics) -> int | None:
    """Return until when a job that has not ended is; one that may start at most once is never forgotten (G9)."""
    if semantics is Semantics.AT_MOST_ONCE:
        return None
    return ended_until(now_ms, max(retention_s, UNENDED_RETENTION_S))


def may_have_started_what_starts_once(record: Record) -> bool:
    """Return whether the last attempt may have started what must not be started again: the job, or a step of it."""
    return record.semantics is Semantics.AT_MOST_ONCE or bool(open_steps(record.steps))


@dataclass(frozen=True, slots=True)
class Request:
    """What a delivery asks of the claims table.

    Args:
        pk: Partition key of the job's record.
        job_type: Name of the job type, the oldest one.
        idempotency_key: The job's key.
        fingerprint: Payload fingerprint, or ``None`` where the comparison is off.
        message_id: The message that asks.
        redriven_version: Version in our dead-letter note, where the message carries one.
        max_attempts: Starts after which the job is rejected.
        lease_ms: How long the claim is to hold.
        skew_ms: By how much the clocks of two claimants may differ.
        retention_s: How long an ended record is kept.
        semantics: What may happen when the claimant dies.
        alone: Whether nothing else runs in this process now, so that a stale job may be taken over (G5).
    """

    pk: str
    job_type: str
    idempotency_key: str
    fingerprint: str | None
    message_id: str | None
    redriven_version: int | None
    max_attempts: int
    lease_ms: int
    skew_ms: int
    retention_s: int
    semantics: Semantics = Semantics.AT_LEAST_ONCE
    alone: bool = False

    def reuses_key_of(self, record: Record) -> bool:
        """Return whether the record's key belongs to a job with another payload."""
        # A message has one payload for a key (`onceq.catalogue`): if it differs now, the job type compares something
        # else since a deployment.
        same = self.message_id is not None and self.message_id == record.message_id
        compared = self.fingerprint is not None and record.payload_fingerprint is not None and not same
        return compared and self.fingerprint != record.payload_fingerprint

    def ended_until(self, now_ms: int) -> int:
        """Return until when an ended job is remembered, epoch seconds."""
        return ended_until(now_ms, self.retention_s)

    def rejected_until(self, now_ms: int) -> int:
        """Return until when a rejected job is; what may start once outlives every message that could start it (G9)."""
        once = self.semantics is Semantics.AT_MOST_ONCE
        return ended_until(now_ms, max(self.retention_s, UNENDED_RETENTION_S) if once else self.retention_s)

    def unended_until(self, now_ms: int) -> int | None:
        """Return until when a job that has not ended is; one that may start at most once is never forgotten (G9)."""
        return unended_until(now_ms, self.retention_s, self.semantics)

    def first(self, token: str, now_ms: int) -> Record:
        """Return the record of a first claim under this token."""
        return Record(
            pk=self.pk,
            job_type=self.job_type,
            idempotency_key=self.idempotency_key,
            status=Status.PROCESSING,
            claimant=token,
            version=1,
            fencing_token=now_ms,
            attempts=1,
            created_at=now_ms,
            expires_at=self.unended_until(now_ms),
            semantics=self.semantics,
            payload_fingerprint=self.fingerprint,
            message_id=self.message_id,
            lease_expires_at=now_ms + self.lease_ms,
        )

    def next(self, seen: Record, token: str, now_ms: int, attempt: int) -> Record:
        """Return the record of a take-over of ``seen`` under this token, as that attempt."""
        return replace(
            seen,
            status=Status.PROCESSING,
            claimant=token,
            version=seen.version + 1,
            fencing_token=max(seen.fencing_token + 1, now_ms),
            attempts=attempt,
            # What does not expire has begun what may start only once: it stays until it ends.
            expires_at=seen.expires_at and self.unended_until(now_ms),
            # An older release does not open what may start only once.
            semantics=max(seen.semantics, self.semantics, key=[*Semantics].index),
            message_id=self.message_id,
            lease_expires_at=now_ms + self.lease_ms,
            not_before=None,
            error=None if seen.status is Status.REJECTED else seen.error,
            went_stale=1 if seen.may_kill else None,
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """The job is completed: answer with its stored result."""

    record: Record


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody holds the job, or its back-off runs: come back at ``until`` (epoch ms)."""

    until: int


@dataclass(frozen=True, slots=True)
class KeyReuse:
    """The key belongs to a job with another payload; its record stays as it is."""

    record: Record


@dataclass(frozen=True, slots=True)
class Ended:
    """The job is rejected or uncertain, now or by an earlier delivery: this message ends the same way."""

    record: Record
    before: bool


@dataclass(frozen=True, slots=True)
class Stale:
    """The last claimant died or overran its lease: the job is to be taken over alone, after the others (G5)."""

    record: Record


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The job may be taken over as this attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No attempt is left: reject the job."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The claimant died, and what may start at most once may have started: leave the job to a person."""


Decision = Replay | Busy | KeyReuse | Ended | Stale | TakeOver | Exhausted | Hold
Settled = Replay | Busy | KeyReuse | Ended | Stale
