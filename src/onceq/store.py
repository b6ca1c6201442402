"""Every DynamoDB condition of the project, one method a transition.

Two conditions carry everything (design, section 6):

``FREE``
    Nobody ever claimed the job, or what they left is past its retention. TTL deletes late, so the condition reads
    the attribute; it names the two ended states, so age never overwrites a live claim or an uncertain record
    (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ttl-expired-items.html).

``UNCHANGED``
    The record is the one that was seen: same claimant, same version. Every write after the first claim carries it,
    whoever writes. Every write raises the version, and whoever is not the claimant writes a token of its own, so a
    zombie's write and a write that lands late are refused.

A refused write gets the old item back with the refusal. It may be what this very write left: the first response was
lost, the request was sent again (guarantee G11). It is ours exactly if it *is* the record that was being written
(docs/decisions/0002-a-write-is-recognised-by-its-record.md). Everything else is returned as `Refused`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from onceq.codec import ResultNotStored
from onceq.errors import ConditionFailed
from onceq.record import PARTITION_KEY, Record, Status

if TYPE_CHECKING:
    from onceq.clock import Deadline
    from onceq.dynamodb import DynamoDB

FREE = "attribute_not_exists(pk) OR (expires_at <= :now AND #status IN (:completed, :rejected))"
UNCHANGED = "claimant = :claimant AND version = :version"


def is_free(record: Record, now_ms: int) -> bool:
    """Return whether ``FREE`` holds for a record that was read: as good as none."""
    ended = record.status in (Status.COMPLETED, Status.REJECTED)
    return ended and record.expires_at is not None and record.expires_at <= now_ms // 1000


@dataclass(frozen=True, slots=True)
class Refused:
    """A write was refused: the record is not, or no longer, what the writer had seen.

    Args:
        seen: The record as it stands; ``None`` if there is none.
    """

    seen: Record | None


@dataclass(frozen=True, slots=True)
class Store:
    """The transitions of a claim. Each changes a record at most once, however often it is sent.

    Every transition returns the record as written, or `Refused`, and raises `onceq.errors.StoreUnavailable` when the
    outcome of the write is unknown and `onceq.errors.StoreError` when the table does not take it at all.

    Args:
        dynamodb: The seam to DynamoDB.
        table: Name of the claims table.
        deadline: Retries end before it.
    """

    dynamodb: DynamoDB
    table: str
    deadline: Deadline

    def get(self, pk: str) -> Record | None:
        """Read a record consistently."""
        request = {"TableName": self.table, "Key": {PARTITION_KEY: {"S": pk}}, "ConsistentRead": True}
        item = self.dynamodb.call("GetItem", request, self.deadline).get("Item")
        return Record.from_item(item) if item else None

    def claim(self, new: Record, now_ms: int) -> Record | Refused:
        """Claim a job for the first time.

        Precondition: ``FREE``. Effect: the record is ``new``. A refusal means that there is a record already.
        """
        request = {
            "TableName": self.table,
            "Item": new.to_item(),
            "ConditionExpression": FREE,
            "ExpressionAttributeNames": {"#status": "status"},
            "ExpressionAttributeValues": {
                ":now": {"N": str(now_ms // 1000)},
                ":completed": {"S": Status.COMPLETED},
                ":rejected": {"S": Status.REJECTED},
            },
        }
        return self._write("PutItem", request, new)

    def take_over(self, seen: Record, new: Record) -> Record | Refused:
        """Take over a job whose last claim failed, went stale or was rejected and redriven.

        Precondition: ``UNCHANGED`` as seen. Effect: the record names the new claimant; what earlier attempts
        recorded stays. A refusal means that the record moved on meanwhile: decide again.
        """
        return self._write_on_unchanged(seen, new)

    def complete(self, own: Record, *, now_ms: int, expires_at: int, result: str | ResultNotStored) -> Record | Refused:
        """Complete the job with its result.

        Precondition: ``UNCHANGED``, as this claimant last wrote it. A refusal means that the claim was lost.
        """
        return self._end(
            own,
            status=Status.COMPLETED,
            completed_at=now_ms,
            expires_at=expires_at,
            result=None if isinstance(result, ResultNotStored) else result,
            result_not_stored=result.reason if isinstance(result, ResultNotStored) else None,
            error=None,
        )

    def release(
        self, own: Record, *, not_before: int, expires_at: int | None, error: str | None, attempts: int
    ) -> Record | Refused:
        """Give a job that ran back for another attempt, from ``not_before`` on.

        Precondition: ``UNCHANGED``, as this claimant last wrote it. ``attempts`` is one less for a start that is not
        counted. A refusal means that the claim was lost.
        """
        return self._end(
            own,
            status=Status.FAILED,
            not_before=not_before,
            expires_at=expires_at,
            error=error,
            attempts=attempts,
        )

    def give_back(self, own: Record, *, now_ms: int) -> Record | Refused:
        """Give a job back that was claimed and never started: the start is not counted.

        Precondition: ``UNCHANGED``, as this claimant last wrote it. What is known of earlier attempts stays. A refusal
        means that the claim was lost.
        """
        return self._end(
            own,
            status=Status.FAILED,
            not_before=now_ms,
            attempts=own.attempts - 1,
            went_stale=own.went_stale,
        )

    def reject(
        self, seen: Record, *, claimant: str, expires_at: int, error: str, went_stale: int | None = None
    ) -> Record | Refused:
        """End the job for good, as its claimant or as a taker that found no attempt left.

        Precondition: ``UNCHANGED`` as seen. A taker gives a token of its own. A refusal means that the record moved on.
        """
        changes = {"claimant": claimant, "expires_at": expires_at, "error": error, "went_stale": went_stale}
        return self._end(seen, status=Status.REJECTED, **changes)

    def hold(self, seen: Record, *, claimant: str, error: str) -> Record | Refused:
        """Leave an at-most-once job to a person: nobody knows whether its effect happened.

        Precondition: ``UNCHANGED`` as seen. A taker gives a token of its own. The record does not expire. A refusal
        means that the record moved on.
        """
        return self._end(seen, claimant=claimant, status=Status.UNCERTAIN, expires_at=None, error=error)

    def renew(self, own: Record, *, lease_expires_at: int) -> Record | Refused:
        """Move the lease of a job that still runs.

        Precondition: ``UNCHANGED``, as this claimant last wrote it. A refusal means that the claim was lost.
        """
        return self._write_on_unchanged(own, replace(own, version=own.version + 1, lease_expires_at=lease_expires_at))

    def _end(self, seen: Record, **changes: Any) -> Record | Refused:
        cleared = {"lease_expires_at": None, "not_before": None, "went_stale": None}
        return self._write_on_unchanged(seen, replace(seen, version=seen.version + 1, **(cleared | changes)))

    def _write_on_unchanged(self, seen: Record, new: Record) -> Record | Refused:
        before, after = seen.to_item(), new.to_item()
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        removed = [name for name in before if name not in after]
        expression = "SET " + ", ".join(f"#{name} = :new_{name}" for name in changed)
        if removed:
            expression += " REMOVE " + ", ".join(f"#{name}" for name in removed)
        request = {
            "TableName": self.table,
            "Key": {PARTITION_KEY: {"S": seen.pk}},
            "UpdateExpression": expression,
            "ConditionExpression": UNCHANGED,
            "ExpressionAttributeNames": {f"#{name}": name for name in (*changed, *removed)},
            "ExpressionAttributeValues": {
                ":claimant": {"S": seen.claimant},
                ":version": {"N": str(seen.version)},
                **{f":new_{name}": value for name, value in changed.items()},
            },
        }
        return self._write("UpdateItem", request, new)

    def _write(self, operation: str, request: dict[str, Any], new: Record) -> Record | Refused:
        try:
            self.dynamodb.call(operation, request | {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}, self.deadline)
        except ConditionFailed as refusal:
            seen = Record.from_item(refusal.item) if refusal.item else None
            return new if seen == new else Refused(seen)
        return new
