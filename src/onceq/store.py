"""Every DynamoDB condition of the project, and the transitions of a claim, one method each.

Two conditions carry everything that keeps a job from running twice (design, section 6):

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

Three more conditions belong to the neighbours: ``NEW`` and ``PENDING`` to `onceq.outbox`, ``UNLOCKED`` and ``HELD`` to
`onceq.locks`. None of them protects an effect: a message that is sent twice is one job, and a lock only saves work.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onceq.codec import ResultNotStored
from onceq.errors import (
    ConditionFailed,
    StoreError,
    StoreUnavailable,
    TransactionCancelled,
    TransactionDenied,
    TransactionRefused,
)
from onceq.record import PARTITION_KEY, Item, Record, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onceq.clock import Deadline
    from onceq.dynamodb import DynamoDB

T = TypeVar("T", bound=Item)
# Of a request that is wrong in itself; one that could not even be sent has no code.
_WRONG = ("ValidationException", "ItemCollectionSizeLimitExceededException", "")
# botocore quotes what it cannot send; a payload is not logged.
_VALUE = re.compile(r"value: .*?, (?=type)", re.DOTALL)

FREE = "attribute_not_exists(pk) OR (expires_at <= :now AND #status IN (:completed, :rejected))"
UNCHANGED = "claimant = :claimant AND version = :version"
# A message is staged once; its id is new, so only our own earlier request can have put it there.
NEW = "attribute_not_exists(pk)"
# A message is marked as sent, or as not sent yet, only while it waits: what was sent stays sent.
PENDING = "#status = :pending"
# Nobody holds the lock, its holder's time is over by every clock, or the holder takes it again after a crash.
UNLOCKED = "attribute_not_exists(pk) OR holder = :holder OR lease_expires_at <= :free_from"
# The lock is still the one that was acquired: not released, and not the next holder's.
HELD = "#token = :token AND lease_expires_at > :released"
ALL_OLD = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


def is_free(record: Record, now_ms: int) -> bool:
    """Return whether ``FREE`` holds for a record that was read: as good as none."""
    ended = record.status in (Status.COMPLETED, Status.REJECTED)
    return ended and record.expires_at is not None and record.expires_at <= now_ms // 1000


@dataclass(frozen=True, slots=True)
class Refused(Generic[T]):
    """A write was refused: the record is not, or no longer, what the writer had seen.

    Args:
        seen: The record as it stands; ``None`` if there is none.
    """

    seen: T | None


@dataclass(frozen=True, slots=True)
class Table:
    """Conditional writes to one table. Each changes an item at most once, however often it is sent.

    Every write returns the item as written, or `Refused`, and raises `onceq.errors.StoreUnavailable` when its outcome
    is unknown and `onceq.errors.StoreError` when the table does not take it at all.

    Args:
        dynamodb: The seam to DynamoDB.
        table: Name of the table.
        deadline: Retries end before it.
    """

    dynamodb: DynamoDB
    table: str
    deadline: Deadline

    def _put(self, new: T, condition: str, values: Mapping[str, Any], **names: str) -> T | Refused[T]:
        return self._write("PutItem", {"Item": new.to_item(), **_conditional(condition, values, names)}, new)

    def _update(self, seen: T, new: T, condition: str, values: Mapping[str, Any], **names: str) -> T | Refused[T]:
        return self._write("UpdateItem", _changes(seen, new, condition, values, names), new)

    def _write(self, operation: str, request: dict[str, Any], new: T) -> T | Refused[T]:
        try:
            self.dynamodb.call(operation, {"TableName": self.table, **request, **ALL_OLD}, self.deadline)
        except ConditionFailed as refusal:
            return _refused(new, refusal.item)
        return new


def _refused(new: T, item: Mapping[str, Any] | None) -> T | Refused[T]:
    seen = type(new).from_item(item) if item else None
    return new if seen == new else Refused(seen)


def _conditional(condition: str, values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    request: dict[str, Any] = {"ConditionExpression": condition}
    if values:
        request["ExpressionAttributeValues"] = {
            f":{name}": {"N": str(value)} if isinstance(value, int) else {"S": str(value)}
            for name, value in values.items()
        }
    if names:
        request["ExpressionAttributeNames"] = {f"#{name}": of for name, of in names.items()}
    return request


def _changes(
    seen: Item, new: Item, condition: str, values: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the parameters of an update that turns one item into the other."""
    before, after = seen.to_item(), new.to_item()
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    removed = [name for name in before if name not in after]
    expression = "SET " + ", ".join(f"#{name} = :new_{name}" for name in changed)
    if removed:
        expression += " REMOVE " + ", ".join(f"#{name}" for name in removed)
    request = _conditional(condition, values, {**names, **{name: name for name in (*changed, *removed)}})
    request["ExpressionAttributeValues"] |= {f":new_{name}": value for name, value in changed.items()}
    return {"Key": {PARTITION_KEY: before[PARTITION_KEY]}, "UpdateExpression": expression, **request}


@dataclass(frozen=True, slots=True)
class Store(Table):
    """The claims table: the transitions of a claim."""

    def get(self, pk: str) -> Record | None:
        """Read a record consistently."""
        request = {"TableName": self.table, "Key": {PARTITION_KEY: {"S": pk}}, "ConsistentRead": True}
        item = self.dynamodb.call("GetItem", request, self.deadline).get("Item")
        return Record.from_item(item) if item else None

    def claim(self, new: Record, now_ms: int) -> Record | Refused[Record]:
        """Claim a job for the first time.

        Precondition: ``FREE``. Effect: the record is ``new``. A refusal means that there is, or was, a record already.
        """
        values = {"now": now_ms // 1000, "completed": Status.COMPLETED, "rejected": Status.REJECTED}
        return self._put(new, FREE, values, status="status")

    def take_over(self, seen: Record, new: Record) -> Record | Refused[Record]:
        """Take over a job whose last claim failed, went stale or was rejected and redriven.

        Precondition: ``UNCHANGED`` as seen. Effect: the record names the new claimant; what earlier attempts
        recorded stays. A refusal means that the record moved on meanwhile: decide again.
        """
        return self._write_on_unchanged(seen, new)

    def step(self, own: Record, *, steps: str | None, expires_at: int | None) -> Record | Refused[Record]:
        """Record what became of a step.

        Precondition: ``UNCHANGED``, as this claimant last wrote it. A refusal means that the claim was lost.
        """
        return self._write_on_unchanged(own, replace(own, version=own.version + 1, steps=steps, expires_at=expires_at))

    def complete(
        self, own: Record, *, now_ms: int, expires_at: int, result: str | ResultNotStored
    ) -> Record | Refused[Record]:
        """Complete the job with its result.

        Precondition: ``UNCHANGED``, as this claimant last wrote it. A refusal means that the claim was lost.
        """
        return self._write_on_unchanged(own, completed(own, own.claimant, now_ms, expires_at, result))

    def commit(
        self,
        own: Record,
        others: Sequence[Mapping[str, Any]],
        *,
        now_ms: int,
        expires_at: int,
        result: str | ResultNotStored,
    ) -> Record | Refused[Record]:
        """Complete the job together with other writes: all of them happen, or none (guarantees G7 and G8).

        Precondition: ``UNCHANGED``, as this claimant last wrote it, and the other writes' own conditions. A refusal
        means that the claim was lost. The token makes a request that is sent again the same one for ten minutes
        (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html); after that, the
        record that the refusal shows tells that it had happened.

        Raises:
            TransactionCancelled: If another write's condition did not hold: nothing was written.
            TransactionContended: If others wrote the same items, again and again: nothing was written.
            TransactionRefused: If DynamoDB does not take the request as it is: nothing was written.
        """
        new = completed(own, own.claimant, now_ms, expires_at, result)
        values = {"claimant": own.claimant, "version": own.version}
        update = {"TableName": self.table, **_changes(own, new, UNCHANGED, values, {}), **ALL_OLD}
        # Named after this one write: a renewal in between makes the next request another one.
        token = hashlib.sha256(f"{own.claimant}#{new.version}".encode()).hexdigest()[:36]
        try:
            transact(self, [{"Update": update}, *others], token)
        except TransactionCancelled as cancelled:
            if cancelled.reasons[0].get("Code") != "ConditionalCheckFailed":
                raise
            return _refused(new, cancelled.reasons[0].get("Item"))
        return new

    def release(
        self, own: Record, *, not_before: int, expires_at: int | None, error: str | None, attempts: int
    ) -> Record | Refused[Record]:
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

    def give_back(self, own: Record, *, now_ms: int, error: str | None = None) -> Record | Refused[Record]:
        """Give a job back that was claimed and never started: the start is not counted.

        Precondition: ``UNCHANGED``, as this claimant last wrote it. What is known of earlier attempts stays; where
        nothing is, ``error`` says that there were some. A refusal means that the claim was lost.
        """
        return self._end(
            own,
            status=Status.FAILED,
            not_before=now_ms,
            attempts=own.attempts - 1,
            error=own.error or error,
            went_stale=own.went_stale,
        )

    def reject(
        self, seen: Record, *, claimant: str, expires_at: int, error: str, went_stale: int | None = None
    ) -> Record | Refused[Record]:
        """End the job for good, as its claimant or as a taker that found no attempt left.

        Precondition: ``UNCHANGED`` as seen. A taker gives a token of its own. A refusal means that the record moved on.
        """
        changes = {"claimant": claimant, "expires_at": expires_at, "error": error, "went_stale": went_stale}
        return self._end(seen, status=Status.REJECTED, **changes)

    def hold(
        self, seen: Record, *, claimant: str, error: str, went_stale: int | None = None
    ) -> Record | Refused[Record]:
        """Leave a job to a person: nobody knows whether an at-most-once effect of it happened.

        Precondition: ``UNCHANGED`` as seen. A taker gives a token of its own. The record does not expire. A refusal
        means that the record moved on.
        """
        changes = {"claimant": claimant, "expires_at": None, "error": error, "went_stale": went_stale}
        return self._end(seen, status=Status.UNCERTAIN, **changes)

    def mark_stale(self, seen: Record, *, claimant: str, now_ms: int, error: str) -> Record | Refused[Record]:
        """Mark a job whose claimant is gone as failed, so that it shows; the next delivery takes it over all the same.

        Not for what may start only once, which the sweep holds. Precondition: ``UNCHANGED`` as seen. The sweep gives a
        token of its own. A refusal means that the record moved on.
        """
        changes = {"claimant": claimant, "not_before": now_ms, "error": error, "went_stale": 1}
        return self._end(seen, status=Status.FAILED, **changes)

    def resolve(self, seen: Record, decided: Record) -> Record | Refused[Record]:
        """Write what a person decided about a job that has ended, or waits.

        Precondition: ``UNCHANGED`` as seen. ``decided`` names a token of its own. A refusal means that the record moved
        on.
        """
        return self._write_on_unchanged(seen, decided)

    def renew(self, own: Record, *, lease_expires_at: int) -> Record | Refused[Record]:
        """Move the lease of a job that still runs.

        Precondition: ``UNCHANGED``, as this claimant last wrote it. A refusal means that the claim was lost.
        """
        return self._write_on_unchanged(own, replace(own, version=own.version + 1, lease_expires_at=lease_expires_at))

    def _end(self, seen: Record, **changes: Any) -> Record | Refused[Record]:
        cleared = {"lease_expires_at": None, "not_before": None, "went_stale": None}
        return self._write_on_unchanged(seen, replace(seen, version=seen.version + 1, **(cleared | changes)))

    def _write_on_unchanged(self, seen: Record, new: Record) -> Record | Refused[Record]:
        return self._update(seen, new, UNCHANGED, {"claimant": seen.claimant, "version": seen.version})


def transact(table: Table, items: Sequence[Mapping[str, Any]], token: str) -> None:
    """Send writes that happen together or not at all.

    Args:
        table: Whose seam and deadline to use.
        items: The writes, in TransactWriteItems' shape.
        token: Names this request: sent again with the same token it is not applied again.

    Raises:
        TransactionCancelled: If a condition did not hold.
        TransactionContended: If others wrote the same items at the moment, again and again.
        TransactionRefused: If DynamoDB does not take the request as it is.
        TransactionDenied: If a table is missing, or may not be written.
        StoreUnavailable: If its outcome is unknown.
    """
    try:
        request = {"TransactItems": list(items), "ClientRequestToken": token}
        table.dynamodb.call("TransactWriteItems", request, table.deadline)
    except StoreUnavailable:
        raise
    except StoreError as error:
        # What is wrong with the request is the job's to mend; the rest is a deployment's, and uses no attempt.
        wrong = error.code in _WRONG
        raise (TransactionRefused if wrong else TransactionDenied)(_VALUE.sub("", str(error))) from error


def completed(own: Record, claimant: str, now_ms: int, expires_at: int, result: str | ResultNotStored) -> Record:
    """Return a record as completed with that result; its steps have served."""
    return replace(
        own,
        claimant=claimant,
        version=own.version + 1,
        status=Status.COMPLETED,
        completed_at=now_ms,
        expires_at=expires_at,
        result=None if isinstance(result, ResultNotStored) else result,
        result_not_stored=result.reason if isinstance(result, ResultNotStored) else None,
        error=None,
        steps=None,
        lease_expires_at=None,
        not_before=None,
        went_stale=None,
    )
