"""The relay: sends what waits in the outbox, so that a crash between a commit and its sending costs a minute or two.

The consumer sends what its own batch has committed by the same `Relay.send`. Both may send one entry: it is one job.
docs/decisions/0007-a-relay-on-a-schedule.md says why no stream does this.
"""

from __future__ import annotations

import math
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceq import effect_events as events
from onceq.clock import ShorterDeadline
from onceq.codec import printable
from onceq.errors import StoreError
from onceq.offload import stamps
from onceq.outbox import LOOK_AHEAD_MS, SHARDS, OutboxEntry
from onceq.outcome import describe, trace_of
from onceq.telemetry import MessageFaulted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onceq.clock import Clock, Deadline
    from onceq.outbox import Outbox
    from onceq.queue import Queue
    from onceq.settings import QueueSettings, Settings
    from onceq.telemetry import Telemetry

# Kept at the end: a request that is begun last may take three seconds, and what was sent is to be marked.
RESERVE_SECONDS = 5.0
LEAST_SECONDS = 1.0
# A queue that does not answer costs no more than this of a run, so that it does not hold up the others.
QUEUE_SECONDS = 10.0
PAGE = 100
# Others of a queue that failed as a whole are left alone in this run after so many.
MOST_FAILURES = 20


@dataclass(slots=True)
class Sent:
    """What a run of the relay did.

    Args:
        sent: Entries that SQS took.
        failed: Entries that it did not take; they are tried again.
        left: Entries that are due and were not tried: no time, or their queue failed.
        oldest_ms: How long the oldest entry of `failed` and `left` is past due.
        overdue: How many of them are past due for longer than the setting allows, and what cannot be read at all.
    """

    sent: int = 0
    failed: int = 0
    left: int = 0
    oldest_ms: int = 0
    overdue: int = 0

    def to_json(self) -> dict[str, int]:
        """Return what `onceq.App.relay` answers."""
        return {"sent": self.sent, "failed": self.failed, "left": self.left, "overdue": self.overdue}


@dataclass(slots=True)
class Relay:
    """Sends entries of the outbox, and marks them.

    Args:
        outbox: The outbox table.
        queue: The seam to SQS.
        settings: Where the queues are, and how late an entry may be.
        deadline: When the process stops.
        clock: The time.
        telemetry: Told about every entry.
    """

    outbox: Outbox
    queue: Queue
    settings: Settings
    deadline: Deadline
    clock: Clock
    telemetry: Telemetry
    _failures: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _silence: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _stopped: set[tuple[str, str]] = field(default_factory=set)

    def run_once(self) -> Sent:
        """Send every entry that is due and pending, as far as the time goes.

        Returns:
            What was done.

        Raises:
            StoreError: If the outbox table could not be read.
        """
        done = Sent()
        for page in self._pages(done):
            self._send_page(page, done)
        seconds = round(done.oldest_ms / 1000)
        if done.overdue:
            self.telemetry.emit(events.OutboxOverdue(entries=done.overdue, seconds=seconds))
        self.telemetry.emit(events.RelayEnded(sent=done.sent, failed=done.failed, left=done.left, seconds=seconds))
        return done

    def send(self, entries: Iterable[OutboxEntry]) -> dict[str, str]:
        """Send what was just committed, as far as it is due; what fails is left to the relay.

        Args:
            entries: The entries; those that are to wait are passed over.

        Returns:
            Message ids by entry id, of those that were sent. Whatever fails here is no failure of who committed them.
        """
        if self.deadline.remaining() < RESERVE_SECONDS:
            return {}
        try:
            return self._send([entry for entry in entries if self._is_due(entry)])[0]
        except Exception as error:  # noqa: BLE001 - as said
            reason = f"a fault of the framework, and messages wait for the relay: {describe(error)}"
            self.telemetry.emit(MessageFaulted(message_id=None, reason=reason, trace=trace_of(error)))
            return {}

    def _pages(self, done: Sent) -> Iterator[list[OutboxEntry]]:
        """Yield pages of entries, of one shard after the other, until all are read or the time is short."""
        now_ms = self.clock.now_ms()
        waiting: dict[str, Mapping[str, Any] | None] = {str(shard): None for shard in range(SHARDS)}
        while waiting:
            for shard, start in list(waiting.items()):
                if self.deadline.remaining() < RESERVE_SECONDS:
                    return
                page = self.outbox.pending(shard, now_ms=now_ms, start=start, limit=PAGE)
                if page.following is None:
                    del waiting[shard]
                else:
                    waiting[shard] = page.following
                done.overdue += len(page.unreadable)  # it waits, and nobody knows since when
                for item in page.unreadable:
                    self.telemetry.emit(events.ItemUnreadable(table=self.outbox.table, item=item))
                yield sorted(page.entries, key=lambda entry: (entry.due_at, entry.created_at, entry.pk))

    def _send_page(self, page: Sequence[OutboxEntry], done: Sent) -> None:
        due = [entry for entry in page if self._is_due(entry)]
        # A queue that failed as a whole keeps its other entries for the next run: the others are not to wait for it.
        # So does a group of a FIFO queue whose head failed.
        tried = [entry for entry in due if not self._is_dead(entry.queue) and _lane(entry) not in self._stopped]
        sent, failed = self._send(tried)
        done.sent += len(sent)
        done.failed += len(failed)
        done.left += len(due) - len(tried)
        now_ms = self.clock.now_ms()
        for entry in due:
            if entry.pk not in sent:
                late_ms = now_ms - entry.due_at
                done.oldest_ms = max(done.oldest_ms, late_ms)
                done.overdue += late_ms > self.settings.outbox_overdue * 1000

    def _is_dead(self, queue: str) -> bool:
        return self._failures[queue] >= MOST_FAILURES or self._silence[queue] >= QUEUE_SECONDS / 2

    def _is_due(self, entry: OutboxEntry) -> bool:
        queue = self.settings.queues.get(entry.queue)
        # A FIFO queue takes no delay for a single message.
        ahead_ms = 0 if queue is not None and queue.is_fifo else LOOK_AHEAD_MS
        return entry.due_at <= self.clock.now_ms() + ahead_ms

    def _send(self, entries: Sequence[OutboxEntry]) -> tuple[dict[str, str], dict[str, str]]:
        """Send entries and mark them; return message ids, and reasons of what failed, by entry id."""
        by_queue: dict[str, list[OutboxEntry]] = defaultdict(list)
        for entry in entries:
            by_queue[entry.queue].append(entry)
        sent: dict[str, str] = {}
        failed: dict[str, str] = {}
        for name, batch in by_queue.items():
            queue = self.settings.queues.get(name)
            if queue is None:
                failed |= dict.fromkeys((entry.pk for entry in batch), f"queue {name!r} is not in ONCEQ_QUEUES")
                self._failures[name] += len(batch)
                continue
            started = self.clock.monotonic()
            seconds = min(QUEUE_SECONDS - self._silence[name], self.deadline.remaining() - RESERVE_SECONDS)
            within = ShorterDeadline(self.deadline, seconds, self.clock)
            messages = [self._message(entry, queue) for entry in batch]
            ids, reasons = self.queue.within(within).send_batch(queue.url, messages)
            self._silence[name] += 0 if ids else self.clock.monotonic() - started
            sent |= ids
            failed |= reasons
            self._failures[name] = 0 if ids else self._failures[name] + len(reasons)
            if queue.is_fifo:
                self._stopped |= {_lane(entry) for entry in batch if entry.pk in reasons}
        self._mark(entries, sent, failed)
        return sent, failed

    def _message(self, entry: OutboxEntry, queue: QueueSettings) -> dict[str, Any]:
        message: dict[str, Any] = {"Id": entry.pk, "MessageBody": entry.body}
        if entry.group is not None:
            message["MessageGroupId"] = entry.group
        if entry.offloaded is not None:
            message["MessageAttributes"] = stamps(entry.job_type, entry.idempotency_key, entry.offloaded)
        if queue.is_fifo:
            # The entry's own, so that SQS takes it for one message when it is sent again.
            message["MessageDeduplicationId"] = entry.pk
        elif (left_ms := entry.due_at - self.clock.now_ms()) > 0:
            message["DelaySeconds"] = math.ceil(left_ms / 1000)
        return message

    def _mark(self, entries: Sequence[OutboxEntry], sent: Mapping[str, str], failed: Mapping[str, str]) -> None:
        if not entries:
            return
        with ThreadPoolExecutor(min(self.settings.concurrency, len(entries)), thread_name_prefix="onceq-mark") as pool:
            list(pool.map(lambda entry: self._mark_one(entry, sent.get(entry.pk), failed.get(entry.pk)), entries))

    def _mark_one(self, entry: OutboxEntry, message_id: str | None, reason: str | None) -> None:
        known: dict[str, Any] = {"entry": entry.pk, "job_type": entry.job_type, "key": entry.idempotency_key}
        now_ms, error = self.clock.now_ms(), printable(reason or "not answered")
        if message_id is not None:
            late = round(max(0, now_ms - entry.due_at) / 1000, 3)
            self.telemetry.emit(events.OutboxSent(**known, message_id=message_id, seconds=late))
        else:
            self.telemetry.emit(events.OutboxFailed(**known, attempts=entry.attempts + 1, error=error))
        if self.deadline.remaining() < LEAST_SECONDS:
            self.telemetry.emit(events.OutboxNotMarked(**known, reason="no time is left in this invocation"))
            return
        try:
            if message_id is not None:
                self.outbox.mark_sent(entry, message_id, now_ms)
            else:
                queue = self.settings.queues.get(entry.queue)
                # On a FIFO queue it keeps its place, so that no later one of its group passes it.
                next_at = entry.next_at if queue is not None and queue.is_fifo else entry.next_try(now_ms)
                self.outbox.mark_failed(entry, error, next_at)
        except StoreError as fault:
            self.telemetry.emit(events.OutboxNotMarked(**known, reason=str(fault)))


def _lane(entry: OutboxEntry) -> tuple[str, str]:
    return entry.queue, entry.group or entry.pk
