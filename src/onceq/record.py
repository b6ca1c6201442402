"""One job's item in the claims table: its attributes, its states and its key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTITION_KEY = "pk"
# No job type can begin with it, so it is free for what is not a job's record: locks, and the sweep's place.
RESERVED = "~"
# The table's TTL attribute, in epoch seconds.
EXPIRES_AT = "expires_at"
# DynamoDB takes 2,048 bytes; a key is written out below this and hashed from it on, so the two forms never meet.
MAX_PLAIN_BYTES = 1_024


class Status(StrEnum):
    """Where a job stands."""

    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    UNCERTAIN = "uncertain"


class Semantics(StrEnum):
    """What may happen to a job, or a step, whose claimant died: run again, or wait for a person.

    Example:
        >>> Semantics("at_most_once") is Semantics.AT_MOST_ONCE
        True
    """

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Item:
    """A frozen dataclass of text and whole numbers that is one item of a table, an attribute for each field."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Self:
        """Read an item; attributes of other releases are passed over, and no write of ours touches them."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            attribute = item.get(field.name)
            if attribute is not None:
                ((kind, value),) = attribute.items()
                values[field.name] = int(value) if kind == "N" else value
        return cls(**values)

    def to_item(self) -> dict[str, dict[str, str]]:
        """Return the item, without what is not set."""
        item = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                item[field.name] = {"N": str(value)} if isinstance(value, int) else {"S": str(value)}
        return item


@dataclass(frozen=True, slots=True)
class Record(Item):
    """One job's item in the claims table.

    Args:
        pk: ``<oldest job type name>#<key>``.
        job_type: Name of the job type.
        idempotency_key: The job's key.
        status: Where the job stands.
        claimant: Token of whoever wrote the record last.
        version: Raised by one with every write.
        fencing_token: Rises with every attempt.
        attempts: Starts of the job.
        created_at: When it was first claimed, epoch ms.
        expires_at: When the record may go, epoch seconds; ``None`` keeps it.
        semantics: What may happen when the claimant dies.
        payload_fingerprint: SHA-256 that duplicates must agree with; ``None`` where the comparison is off.
        message_id: The message that the last claim came from.
        lease_expires_at: Epoch ms after which, plus the clock skew, others may take over; only while processing.
        not_before: Epoch ms before which a failed job is not run again.
        result: The result as JSON.
        result_not_stored: Why there is no result although the job is completed.
        error: Why the last attempt failed, or the job was rejected.
        completed_at: When the job was completed, epoch ms.
        steps: What is known of the job's steps, as JSON (`onceq.steps`); gone with the completion.
        resolved_at: When a person opened the job again, epoch ms.
        went_stale: 1 while the last start that came to anything is one whose claim went stale: the job may have killed
            its process, so it runs alone until an attempt ends by itself (G5).
    """

    pk: str
    job_type: str
    idempotency_key: str
    status: Status
    claimant: str
    version: int
    fencing_token: int
    attempts: int
    created_at: int
    expires_at: int | None = None
    semantics: Semantics = Semantics.AT_LEAST_ONCE
    payload_fingerprint: str | None = None
    message_id: str | None = None
    lease_expires_at: int | None = None
    not_before: int | None = None
    result: str | None = None
    result_not_stored: str | None = None
    error: str | None = None
    completed_at: int | None = None
    steps: str | None = None
    resolved_at: int | None = None
    went_stale: int | None = None

    def __post_init__(self) -> None:
        """Read both words as what they mean."""
        object.__setattr__(self, "status", Status(self.status))
        object.__setattr__(self, "semantics", Semantics(self.semantics))

    @property
    def never_started(self) -> bool:
        """Whether no attempt at the job has begun: each claim so far was given back."""
        return self.status is Status.FAILED and self.attempts == 0 and self.error is None

    @property
    def may_kill(self) -> bool:
        """Whether the last start went stale, as far as a taker can tell: the job may kill the process it runs in."""
        return self.status is Status.PROCESSING or self.went_stale is not None

    def retained_from(self, now_ms: int) -> int:
        """Return from when the retention of the ended job counts, epoch ms.

        Not before its fencing token, which is later than now where the clock was stepped back since: the first claim
        after the retention must have a higher one.
        """
        return max(now_ms, self.fencing_token)


def pk_of(job_type: str, key: str) -> str:
    """Return the partition key of a job's record.

    Args:
        job_type: The oldest name of the job type.
        key: The idempotency key.

    Returns:
        ``<job type>#<key>``; where that is too long for DynamoDB, a readable prefix and the SHA-256 of the key.

    Example:
        >>> pk_of("process_payment", "o-1")
        'process_payment#o-1'
    """
    plain = f"{job_type}#{key}"
    data = plain.encode()
    if len(data) < MAX_PLAIN_BYTES:
        return plain
    prefix = data[:MAX_PLAIN_BYTES].decode(errors="ignore")
    return f"{prefix}~{hashlib.sha256(data).hexdigest()}"
