"""The outbox: messages that were written together with a job's completion, and wait to be sent.

An entry exists if and only if its transaction committed (guarantee G8). It is ``pending`` until it was sent and marked.
Sent twice it is one job, since both messages carry one key; so a mark that is lost does no harm.

Pending entries alone have `shard` and `next_at`, the keys of the index ``pending``: what was sent leaves it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from onceq.errors import TransactionCancelled, TransactionRefused
from onceq.record import PARTITION_KEY, Item
from onceq.store import ALL_OLD, NEW, PENDING, Refused, Table, transact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceq.transaction import Transaction

INDEX = "pending"
# Each takes the writes of one partition of the index, 1,000 entries of 1 KB a second. The relay asks all of them.
SHARDS = 8
# The relay comes every minute: what is due before it comes again is sent now, with SQS's own delay.
LOOK_AHEAD_MS = 60_000
# What is due is sent by whoever committed it. The relay leaves it alone for so long, not to send it beside them.
HEAD_START_MS = 30_000
# How long a sent entry is kept, to be looked at.
SENT_RETENTION_S = 7 * 86_400
# A failed entry is tried again after this, doubled with every attempt, so that one that cannot be sent stays cheap.
FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 300_000
# An item holds 400 KB with everything else in it.
MAX_BODY_BYTES = 380_000


class Delivery(StrEnum):
    """Whether an entry was sent."""

    PENDING = "pending"
    SENT = "sent"


@dataclass(frozen=True, slots=True)
class OutboxEntry(Item):
    """One message in the outbox.

    Args:
        pk: Its id; on a FIFO queue the deduplication id too, so that sending it again is one message.
        job_type: Name of the job type that it is for.
        idempotency_key: The job's key.
        queue: Name of the queue.
        body: The envelope.
        created_at: When it was staged, epoch ms.
        due_at: When it is to be delivered, epoch ms.
        status: Whether it was sent.
        group: The message group, if any.
        attempts: How often sending it was tried.
        error: Why the last try failed.
        message_id: SQS's id, once sent.
        sent_at: When, epoch ms.
        expires_at: When a sent entry may go, epoch seconds.
        shard: Which part of the index it waits in.
        next_at: When it is tried next, epoch ms.
        offloaded: Bytes of the body that stands in S3, where ``body`` only points at it.
    """

    pk: str
    job_type: str
    idempotency_key: str
    queue: str
    body: str
    created_at: int
    due_at: int
    status: str = Delivery.PENDING
    group: str | None = None
    attempts: int = 0
    error: str | None = None
    message_id: str | None = None
    sent_at: int | None = None
    expires_at: int | None = None
    shard: str | None = None
    next_at: int | None = None
    offloaded: int | None = None

    def committed(self, now_ms: int) -> OutboxEntry:
        """Return the entry as it is committed: its head start counts from then, and not from when it was staged.

        The number at the end of its id is added, since the index keeps no order between equals.
        """
        number = int(self.pk.rpartition("-")[2])
        return replace(self, next_at=max(self.next_at or 0, now_ms + HEAD_START_MS) + number)

    def sent(self, message_id: str, now_ms: int) -> OutboxEntry:
        """Return the entry as sent."""
        return replace(
            self,
            status=Delivery.SENT,
            attempts=self.attempts + 1,
            message_id=message_id,
            sent_at=now_ms,
            expires_at=now_ms // 1000 + SENT_RETENTION_S,
            error=None,
            shard=None,
            next_at=None,
        )

    def failed(self, error: str, next_at: int | None) -> OutboxEntry:
        """Return the entry as tried in vain."""
        return replace(self, attempts=self.attempts + 1, error=error, next_at=next_at)

    def next_try(self, now_ms: int) -> int:
        """Return when a failed entry is tried again, epoch ms."""
        doublings = min(self.attempts, 20)
        return now_ms + min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << doublings)


def shard_of(token: str) -> str:
    """Return the shard of what one transaction stages: one for all of it, so that its order is kept."""
    return str(zlib.crc32(token.encode()) % SHARDS)


class Page(NamedTuple):
    """A page of the pending entries of a shard.

    Args:
        entries: The entries.
        unreadable: Ids of items that are none, as far as this release can tell.
        following: Where the next page starts; ``None`` after the last one.
    """

    entries: list[OutboxEntry]
    unreadable: list[str]
    following: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Outbox(Table):
    """The outbox table."""

    def staged(self, entry: OutboxEntry) -> dict[str, Any]:
        """Return the write that stages an entry, for a transaction.

        Precondition: ``NEW``. A refusal that shows this very entry means that the transaction had happened.
        """
        return {"Put": {"TableName": self.table, "Item": entry.to_item(), "ConditionExpression": NEW, **ALL_OLD}}

    def commit(self, transaction: Transaction, entry: OutboxEntry, token: str) -> None:
        """Write an entry together with writes of the caller's own: all of them happen, or none.

        Precondition: ``NEW``, and the other writes' own conditions.

        Raises:
            TransactionFailed: If the transaction was refused: nothing was written.
            StoreUnavailable: If its outcome is unknown.
        """
        if transaction.of_a_job:
            message = "a job's ctx.transaction is committed with its completion: fill an app.transaction() for this"
            raise TransactionRefused(message)
        try:
            transact(self, [*(write.to_item() for write in transaction.writes), self.staged(entry)], token)
        except TransactionCancelled as cancelled:
            # Its id is new with this call: if the entry is there, this transaction had happened.
            if cancelled.reasons[-1].get("Code") != "ConditionalCheckFailed":
                raise transaction.failure(cancelled.reasons) from cancelled
        transaction.committed()

    def mark_sent(self, entry: OutboxEntry, message_id: str, now_ms: int) -> OutboxEntry | Refused[OutboxEntry]:
        """Mark an entry as sent.

        Precondition: ``PENDING``. A refusal means that it was marked before, or is gone.
        """
        # The copy may be older than an error that somebody else wrote down meanwhile: it is removed in any case.
        return self._mark(replace(entry, error=entry.error or "-"), entry.sent(message_id, now_ms))

    def mark_failed(self, entry: OutboxEntry, error: str, next_at: int | None) -> OutboxEntry | Refused[OutboxEntry]:
        """Write down why an entry could not be sent, and when it is tried again.

        Precondition: ``PENDING``. A refusal means that somebody else has sent it.
        """
        return self._mark(entry, entry.failed(error, next_at))

    def pending(self, shard: str, *, now_ms: int, start: Mapping[str, Any] | None = None, limit: int = 100) -> Page:
        """Read a page of the pending entries of a shard, those that were to be tried first in front.

        The index follows the table by a moment: an entry may be missing, or be sent already.

        Args:
            shard: The shard.
            now_ms: Entries that are tried later are left out, epoch ms.
            start: Where the last page ended.
            limit: The most entries.

        Returns:
            The page. What a release of another kind wrote and this one cannot read is named in it.
        """
        request: dict[str, Any] = {
            "TableName": self.table,
            "IndexName": INDEX,
            "KeyConditionExpression": "#shard = :shard AND next_at <= :now",
            "ExpressionAttributeNames": {"#shard": "shard"},
            "ExpressionAttributeValues": {":shard": {"S": shard}, ":now": {"N": str(now_ms)}},
            "Limit": limit,
        }
        if start is not None:
            request["ExclusiveStartKey"] = start
        answer = self.dynamodb.call("Query", request, self.deadline)
        page = Page([], [], answer.get("LastEvaluatedKey"))
        for item in answer.get("Items", []):
            try:
                entry = OutboxEntry.from_item(item)
            except (TypeError, ValueError):
                page.unreadable.append(str(item[PARTITION_KEY]["S"]))
                continue
            if entry.status == Delivery.PENDING:  # a later release's own state is its own to send
                page.entries.append(entry)
        return page

    def _mark(self, entry: OutboxEntry, new: OutboxEntry) -> OutboxEntry | Refused[OutboxEntry]:
        return self._update(entry, new, PENDING, {"pending": Delivery.PENDING}, status="status")
