"""Recovery: a sweep over the claims table that marks stale claims, so that stuck work shows.

It never runs a job, and correctness does not need it: the next delivery takes a stale job over. It finds those that no
delivery comes for any more, and says so. It reads the whole table a page at a time, at a bounded rate; a sweep that
runs out of time goes on where it stopped at its next run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onceq import effect_events as events
from onceq.codec import decode, encode
from onceq.decision import may_have_started_what_starts_once
from onceq.errors import PayloadError
from onceq.record import PARTITION_KEY, RESERVED, Record, Status
from onceq.steps import open_steps
from onceq.store import Refused, Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onceq.clock import Clock, Deadline, TokenFactory
    from onceq.settings import Settings
    from onceq.telemetry import Telemetry

CURSOR = f"{RESERVED}recovery"
PAGE = 500
RESERVE_SECONDS = 5.0
STALE = "the attempt never ended: its claim went stale, and no delivery took it over"
UNCERTAIN = "the attempt never ended, and what may start at most once had started: its effect may have happened"


@dataclass(slots=True)
class Swept:
    """What a run of the sweep did.

    Args:
        scanned: Items that were read.
        failed: Claims marked as failed.
        uncertain: Claims marked as uncertain.
        lost: Claims that moved on while they were looked at.
        finished: Whether the end of the table was reached.
    """

    scanned: int = 0
    failed: int = 0
    uncertain: int = 0
    lost: int = 0
    finished: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return what `onceq.App.recovery` answers."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Marks stale claims.

    Args:
        store: The claims table.
        settings: The clock skew, and how fast to read.
        deadline: When the process stops.
        clock: The time.
        tokens: Where the marks' tokens come from.
        telemetry: Told about every mark.
        at_most_once: Oldest names of the job types that may start once now, whatever their records say.
    """

    store: Store
    settings: Settings
    deadline: Deadline
    clock: Clock
    tokens: TokenFactory
    telemetry: Telemetry
    at_most_once: frozenset[str] = frozenset()

    def run_once(self) -> Swept:
        """Go on with the sweep, to the end of the table or as far as the time goes.

        Returns:
            What was done.

        Raises:
            StoreError: If the claims table did not answer; the next run goes on from the last page.
        """
        done = Swept()
        start = self._cursor()
        while self.deadline.remaining() > RESERVE_SECONDS:
            started = self.clock.monotonic()
            page, scanned, units, start = self._page(start)
            done.scanned += scanned
            if not self._mark_page(page, done):
                break
            self._keep(start)
            if start is None:
                done.finished = True
                break
            pause = units / self.settings.recovery_rate - (self.clock.monotonic() - started)
            if pause > self.deadline.remaining() - RESERVE_SECONDS:
                break
            self.clock.sleep(max(0.0, pause))
        self.telemetry.emit(events.RecoveryEnded(**done.to_json()))
        return done

    def _mark_page(self, page: Sequence[Record], done: Swept) -> bool:
        """Mark the claims of a page; return whether there was time for all. If not, the page is read again."""
        for record in page:
            if self.deadline.remaining() < RESERVE_SECONDS:
                return False
            self._mark(record, done)
        return True

    def _mark(self, record: Record, done: Swept) -> None:
        now_ms, token = self.clock.now_ms(), self.tokens.token()
        held = record.job_type in self.at_most_once or may_have_started_what_starts_once(record)
        if held:
            answer = self.store.hold(record, claimant=token, error=UNCERTAIN, went_stale=1)
        else:
            answer = self.store.mark_stale(record, claimant=token, now_ms=now_ms, error=STALE)
        if isinstance(answer, Refused):
            done.lost += 1
            return
        done.uncertain += held
        done.failed += not held
        self.telemetry.emit(
            events.ClaimWentStale(
                job_type=record.job_type,
                key=record.idempotency_key,
                message_id=record.message_id,
                attempt=record.attempts,
                claimant=record.claimant,
                status=str(answer.status),
            )
        )

    def _page(self, start: Mapping[str, Any] | None) -> tuple[list[Record], int, float, Mapping[str, Any] | None]:
        """Read a page: its stale claims, how many items it had, what it cost, and where the next one starts."""
        stale_before = self.clock.now_ms() - int(self.settings.clock_skew * 1000)
        request: dict[str, Any] = {
            "TableName": self.store.table,
            "Limit": PAGE,
            "FilterExpression": "#status = :processing AND lease_expires_at <= :stale_before",
            "ExpressionAttributeNames": {"#status": "status"},
            "ExpressionAttributeValues": {
                ":processing": {"S": Status.PROCESSING},
                ":stale_before": {"N": str(stale_before)},
            },
            "ReturnConsumedCapacity": "TOTAL",
        }
        if start is not None:
            request["ExclusiveStartKey"] = start
        answer = self.store.dynamodb.call("Scan", request, self.deadline)
        units = float(answer.get("ConsumedCapacity", {}).get("CapacityUnits", 0))
        page = [record for item in answer.get("Items", []) if (record := self._read(item)) is not None]
        return page, int(answer.get("ScannedCount", 0)), units, answer.get("LastEvaluatedKey")

    def _read(self, item: Mapping[str, Any]) -> Record | None:
        """Read a record. What cannot be read holds up no other; a delivery of its message is kept and says so, too."""
        try:
            record = Record.from_item(item)
            open_steps(record.steps)
        except (TypeError, ValueError, PayloadError):
            self.telemetry.emit(events.ItemUnreadable(table=self.store.table, item=str(item[PARTITION_KEY]["S"])))
            return None
        return record

    def _cursor(self) -> Mapping[str, Any] | None:
        request = {"TableName": self.store.table, "Key": {PARTITION_KEY: {"S": CURSOR}}, "ConsistentRead": True}
        item = self.store.dynamodb.call("GetItem", request, self.deadline).get("Item")
        text = item.get("next", {}).get("S") if item else None
        try:
            start: Mapping[str, Any] | None = decode(text) if text else None
        except PayloadError:
            return None  # nobody knows where it stopped: from the beginning
        return start if isinstance(start, dict) else None

    def _keep(self, start: Mapping[str, Any] | None) -> None:
        """Keep the place. Two sweeps at once do not hurt each other: every mark has its condition."""
        item = {PARTITION_KEY: {"S": CURSOR}, "next": {"S": encode(start) if start else ""}}
        self.store.dynamodb.call("PutItem", {"TableName": self.store.table, "Item": item}, self.deadline)
