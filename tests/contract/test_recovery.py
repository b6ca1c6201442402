"""The contract of the sweep, whatever backend serves it: what it reads, what it marks, and the place that it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import NOW, SKEW_MS, record_of
from kit.world import create_table
from onceq import recovery as sweeping
from onceq.clock import OpenDeadline
from onceq.codec import decode
from onceq.errors import StoreError
from onceq.record import PARTITION_KEY, Record, Semantics, Status
from onceq.recovery import STALE, UNCERTAIN, Recovery, Swept
from onceq.settings import Settings
from onceq.store import Refused, Store
from onceq.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from contract.conftest import Backend

LATER = {"trace": {"S": "of a later release"}}
# The last moment at which a claim is stale.
STALE_END = NOW - SKEW_MS
CURSOR = "~recovery"


class Table:
    """A claims table that no other test uses, and the sweep over it."""

    def __init__(self, backend: Backend, name: str) -> None:
        """Make the table."""
        self.backend = backend
        self.name = name
        create_table(backend.dynamodb, name)
        self.store = Store(backend.seam, name, OpenDeadline())

    def sweep(self) -> Recovery:
        """Return the sweep."""
        backend = self.backend
        return Recovery(self.store, Settings(), OpenDeadline(), backend.clock, backend.tokens, Telemetry([]))

    def put(self, record: Record, **unknown: Any) -> Record:
        """Let a record stand in the table, with attributes that this release does not know."""
        self.backend.dynamodb.put_item(TableName=self.name, Item=record.to_item() | unknown)
        return record

    def items(self) -> dict[str, dict[str, Any]]:
        """Return what stands in the table, the sweep's own place left out."""
        items = self.backend.dynamodb.scan(TableName=self.name, ConsistentRead=True)["Items"]
        return {item["pk"]["S"]: item for item in items if item["pk"]["S"] != CURSOR}

    def place(self) -> dict[str, Any] | None:
        """Return the sweep's place as it stands."""
        key = {PARTITION_KEY: {"S": CURSOR}}
        answer = self.backend.dynamodb.get_item(TableName=self.name, Key=key, ConsistentRead=True)
        item: dict[str, Any] | None = answer.get("Item")
        return item


@pytest.fixture
def table(backend: Backend) -> Iterator[Table]:
    """An empty claims table."""
    made = Table(backend, f"onceq-{backend.name()}")
    yield made
    backend.dynamodb.delete_table(TableName=made.name)


def stale(key: str, **changes: Any) -> Record:
    """Return a record whose claimant is gone."""
    return record_of(Status.PROCESSING, key, **({"lease_expires_at": STALE_END} | changes))


def test_a_stale_claim_is_marked_as_failed(table: Table) -> None:
    """Nothing of it is lost: attempts, steps, key and semantics stay, and so does what a later release wrote."""
    seen = table.put(stale("k-1", steps='{"charge":{"result":1}}', error="of the attempt before"), **LATER)

    swept = table.sweep().run_once()

    (item,) = table.items().values()
    marked = Record.from_item(item)
    assert item == marked.to_item() | LATER
    assert marked == replace(
        seen,
        status=Status.FAILED,
        claimant=marked.claimant,
        version=seen.version + 1,
        lease_expires_at=None,
        not_before=NOW,
        error=STALE,
        went_stale=1,
    )
    assert marked.claimant not in ("", seen.claimant)
    assert swept.to_json() == {"scanned": 1, "failed": 1, "uncertain": 0, "lost": 0, "finished": True}


@pytest.mark.parametrize(
    "changes",
    [
        {"semantics": Semantics.AT_MOST_ONCE},
        {"steps": '{"call":{"started":1795953600000},"charge":{"result":1}}'},
    ],
    ids=["the job", "a step"],
)
def test_a_stale_claim_of_what_may_start_once_is_marked_as_uncertain(table: Table, changes: dict[str, Any]) -> None:
    """G9: nobody knows whether it happened; the record waits for a person, and does not expire."""
    seen = table.put(stale("k-1", **changes), **LATER)

    swept = table.sweep().run_once()

    (item,) = table.items().values()
    marked = Record.from_item(item)
    assert item == marked.to_item() | LATER
    assert marked == replace(
        seen,
        status=Status.UNCERTAIN,
        claimant=marked.claimant,
        version=seen.version + 1,
        lease_expires_at=None,
        expires_at=None,
        error=UNCERTAIN,
        went_stale=1,
    )
    assert (swept.failed, swept.uncertain) == (0, 1)


def test_a_stale_claim_of_a_job_type_that_may_start_once_by_now_is_marked_as_uncertain(table: Table) -> None:
    """G9: a release that declares a job at-most-once is obeyed by the sweep, whatever the record says."""
    table.put(stale("k-1"))

    assert replace(table.sweep(), at_most_once=frozenset({"pay"})).run_once().uncertain == 1
    assert table.items()["pay#k-1"]["status"] == {"S": "uncertain"}


def test_only_stale_claims_are_marked(table: Table) -> None:
    """A living claim, to the millisecond, whatever has ended or waits, locks and the sweep's own place stay."""
    for status in Status:
        table.put(record_of(status, f"{status}"))
    table.put(stale("alive", lease_expires_at=STALE_END + 1))
    table.put(stale("expired", lease_expires_at=STALE_END + 1, expires_at=1))
    ended: dict[str, Any] = {"lease_expires_at": 1}  # as no release of ours leaves it
    for status in set(Status) - {Status.PROCESSING}:
        table.put(record_of(status, f"odd-{status}", **ended))
    lock = {"pk": {"S": "~lock#till"}, "holder": {"S": "pay#k-1"}, "token": {"S": "t"}, "lease_expires_at": {"N": "1"}}
    table.backend.dynamodb.put_item(TableName=table.name, Item=lock)
    before = table.items()

    swept = table.sweep().run_once()
    again = table.sweep().run_once()

    assert table.items() == before
    assert swept.to_json() == {"scanned": len(before), "failed": 0, "uncertain": 0, "lost": 0, "finished": True}
    # With its own place among them.
    assert again.scanned == len(before) + 1


def test_a_claim_is_stale_from_its_lease_and_the_clock_skew_on(table: Table) -> None:
    """As for a taker: not a millisecond before."""
    table.put(stale("now", lease_expires_at=STALE_END))
    table.put(stale("soon", lease_expires_at=STALE_END + 1))

    assert table.sweep().run_once().failed == 1
    assert {pk: item["status"]["S"] for pk, item in table.items().items()} == {
        "pay#now": "failed",
        "pay#soon": "processing",
    }


def test_every_page_is_read_once_and_the_place_is_given_up_at_the_end(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven claims in pages of two: each is marked by one run, and the next run begins at the front."""
    monkeypatch.setattr(sweeping, "PAGE", 2)
    for number in range(7):
        table.put(stale(f"k-{number}"))

    swept = table.sweep().run_once()

    # The place that is kept behind the first page is an item of the table too, which may still be read.
    assert swept.to_json() | {"scanned": 0} == {"scanned": 0, "failed": 7, "uncertain": 0, "lost": 0, "finished": True}
    assert swept.scanned in (7, 8)
    assert {item["version"]["N"] for item in table.items().values()} == {"5"}
    assert table.place() == {"pk": {"S": CURSOR}, "next": {"S": ""}}
    assert table.sweep().run_once().scanned == 8


class PageByPage:
    """A deadline that leaves time for one page."""

    kills = True
    accepting = True
    total = 60.0

    def __init__(self) -> None:
        """Start with time."""
        self._asked = 0

    def remaining(self) -> float:
        """Return the seconds left: enough when the loop asks for the first time."""
        self._asked += 1
        return 60.0 if self._asked == 1 else sweeping.RESERVE_SECONDS


def test_a_run_that_is_out_of_time_leaves_its_place_to_the_next(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page after page, a run each: every claim is marked once, and the last run says that the end was reached."""
    monkeypatch.setattr(sweeping, "PAGE", 2)
    for number in range(5):
        table.put(stale(f"k-{number}"))

    runs: list[Swept] = []
    while not runs or not runs[-1].finished:
        runs.append(replace(table.sweep(), deadline=PageByPage()).run_once())
        place = table.place()
        assert place is not None
        assert (place["next"]["S"] == "") == runs[-1].finished
        assert len(runs) < 9

    assert len(runs) >= 3
    assert all(run.scanned <= 2 for run in runs)
    assert sum(run.failed for run in runs) == 5
    assert {item["version"]["N"] for item in table.items().values()} == {"5"}


def test_a_run_goes_on_although_the_item_at_its_place_is_gone(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """TTL may delete it between two runs: a place is a key, and not an item."""
    monkeypatch.setattr(sweeping, "PAGE", 2)
    for number in range(5):
        table.put(stale(f"k-{number}"))
    first = replace(table.sweep(), deadline=PageByPage()).run_once()
    place = table.place()
    assert place is not None
    at = decode(place["next"]["S"])
    assert at["pk"]["S"] in table.items()
    table.backend.dynamodb.delete_item(TableName=table.name, Key=at)

    rest = table.sweep().run_once()

    assert rest.finished
    assert first.failed + rest.failed == 5
    assert {item["status"]["S"] for item in table.items().values()} == {"failed"}


def mark_stale(store: Store, seen: Record) -> Record | Refused[Record]:
    """Mark as failed."""
    return store.mark_stale(seen, claimant="sweep", now_ms=NOW, error=STALE)


def hold(store: Store, seen: Record) -> Record | Refused[Record]:
    """Mark as uncertain."""
    return store.hold(seen, claimant="sweep", error=UNCERTAIN, went_stale=1)


each_mark = pytest.mark.parametrize("mark", [mark_stale, hold])


@each_mark
@pytest.mark.parametrize(
    "moved",
    [
        {"claimant": "taker", "version": 5},
        {"claimant": "taker"},
        {"version": 5, "lease_expires_at": NOW + 30_000},
        {"version": 3},
        {"version": 5, "status": Status.COMPLETED, "lease_expires_at": None, "result": "1"},
    ],
    ids=["taken over", "another claimant", "renewed", "an earlier version", "completed"],
)
def test_a_record_that_moved_on_is_not_marked(
    table: Table, mark: Callable[[Store, Record], Any], moved: Mapping[str, Any]
) -> None:
    """G2: the sweep's write names what was read; each clause of UNCHANGED alone refuses it, and shows the record."""
    seen = stale("k-1")
    stands = table.put(replace(seen, **moved), **LATER)
    before = table.items()

    assert mark(table.store, seen) == Refused(stands)
    assert table.items() == before


@each_mark
def test_a_record_that_is_gone_is_not_made_anew(table: Table, mark: Callable[[Store, Record], Any]) -> None:
    """UpdateItem makes an item where there is none; the condition does not let it."""
    assert mark(table.store, stale("k-1")) == Refused(None)
    assert table.items() == {}


@each_mark
def test_a_mark_sent_twice_is_our_own(table: Table, mark: Callable[[Store, Record], Any]) -> None:
    """G11: a response that was lost is not a record that moved on."""
    seen = table.put(stale("k-1"))

    first = mark(table.store, seen)

    assert isinstance(first, Record)
    assert mark(table.store, seen) == first
    assert Record.from_item(table.items()[seen.pk]) == first


@each_mark
def test_a_mark_is_not_taken_for_another_ones(table: Table, mark: Callable[[Store, Record], Any]) -> None:
    """Two sweeps at once write the same, but for their tokens: one of them counts it."""
    seen = table.put(stale("k-1"))
    first = mark(table.store, seen)
    assert isinstance(first, Record)
    other = table.put(replace(first, claimant="another sweep"))

    assert mark(table.store, seen) == Refused(other)


def test_a_first_claimant_writes_nothing_behind_a_mark(table: Table) -> None:
    """G2: the zombie's completion, renewal and step follow another version, of another claimant."""
    seen = table.put(stale("k-1"))
    marked = mark_stale(table.store, seen)
    assert isinstance(marked, Record)

    assert table.store.complete(seen, now_ms=NOW, expires_at=NOW // 1000, result="1") == Refused(marked)
    assert table.store.renew(seen, lease_expires_at=NOW + 30_000) == Refused(marked)
    assert table.store.step(seen, steps='{"charge":{"result":1}}', expires_at=None) == Refused(marked)
    assert Record.from_item(table.items()[seen.pk]) == marked


def test_a_table_that_is_not_there_is_an_error(table: Table) -> None:
    """A sweep that cannot read fails, so that its function's error shows."""
    sweep = replace(table.sweep(), store=replace(table.store, table="onceq-no-such-table"))

    with pytest.raises(StoreError, match=r"GetItem was refused.*ResourceNotFound"):
        sweep.run_once()
