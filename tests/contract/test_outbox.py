"""The contract of `onceq.store.Store.commit` and of `onceq.outbox.Outbox`, whatever backend serves them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import NOW, record_of
from kit.racing import all_at_once, eager_switching
from onceq.clock import OpenDeadline
from onceq.codec import ResultNotStored
from onceq.errors import ConditionNotMet, TransactionCancelled, TransactionRefused
from onceq.outbox import SENT_RETENTION_S, Delivery, Outbox, OutboxEntry
from onceq.record import Record, Status
from onceq.store import Refused
from onceq.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.conftest import Backend

NOW_S = NOW // 1000
LATER = {"trace": {"S": "of a later release"}}


@pytest.fixture
def outbox(backend: Backend) -> Outbox:
    """The outbox under test."""
    return Outbox(backend.seam, backend.outbox_table, OpenDeadline())


def entry_of(backend: Backend, **changes: Any) -> OutboxEntry:
    """Return an entry that no other test uses, in a shard of its own."""
    name = backend.name()
    entry = OutboxEntry(
        pk=f"{name}-000",
        job_type="ship",
        idempotency_key="k-1",
        queue="default",
        body='{"a":"é\\u0000"}',
        created_at=NOW,
        due_at=NOW + 5_000,
        shard=name,
        next_at=NOW + 30_000,
    )
    return replace(entry, **changes)


def stands(backend: Backend, entry: OutboxEntry, **unknown: Any) -> OutboxEntry:
    """Let an entry stand in the table, with attributes that this release does not know."""
    backend.dynamodb.put_item(TableName=backend.outbox_table, Item=entry.to_item() | unknown)
    return entry


def item(backend: Backend, entry: OutboxEntry) -> dict[str, Any] | None:
    """Return what stands in the outbox, as it stands."""
    key = {"pk": {"S": entry.pk}}
    answer = backend.dynamodb.get_item(TableName=backend.outbox_table, Key=key, ConsistentRead=True)
    found: dict[str, Any] | None = answer.get("Item")
    return found


def claimed(backend: Backend, **changes: Any) -> Record:
    """Let a live claim stand whose claimant no other test uses: the token of a commit is made of it."""
    record = record_of(Status.PROCESSING, backend.name(), claimant=backend.name(), steps="{}", error="before")
    return backend.put(replace(record, **changes), **LATER)


def sold(backend: Backend, sku: str) -> dict[str, Any]:
    """Return a write of the user's own that must not happen twice: one piece less, if there is one."""
    return {
        "Update": {
            "TableName": backend.user_table,
            "Key": {"sku": {"S": sku}},
            "UpdateExpression": "SET pieces = pieces - :one",
            "ConditionExpression": "pieces >= :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def in_stock(backend: Backend, pieces: int) -> str:
    """Let an article with so many pieces stand in the user's table."""
    sku = backend.name()
    backend.dynamodb.put_item(TableName=backend.user_table, Item={"sku": {"S": sku}, "pieces": {"N": str(pieces)}})
    return sku


def pieces(backend: Backend, sku: str) -> int:
    """Return how many pieces are left."""
    answer = backend.dynamodb.get_item(TableName=backend.user_table, Key={"sku": {"S": sku}}, ConsistentRead=True)
    return int(answer["Item"]["pieces"]["N"])


def commit(backend: Backend, own: Record, *others: Any, result: Any = '"done"') -> Record | Refused[Record]:
    """Commit a job's completion with other writes."""
    return backend.store.commit(own, others, now_ms=NOW, expires_at=NOW_S + 60, result=result)


def test_a_commit_completes_the_record_and_makes_the_other_writes(backend: Backend, outbox: Outbox) -> None:
    """G7, G8: UNCHANGED met: the record is as after a plain completion, the user's item written, the entry there."""
    own, sku, entry = claimed(backend), in_stock(backend, 5), entry_of(backend)

    written = commit(backend, own, sold(backend, sku), outbox.staged(entry))

    expected = own.to_item() | LATER | {"version": {"N": "5"}, "status": {"S": "completed"}, "result": {"S": '"done"'}}
    expected |= {"completed_at": {"N": str(NOW)}, "expires_at": {"N": str(NOW_S + 60)}}
    for removed in ("lease_expires_at", "steps", "error"):
        del expected[removed]
    assert backend.item(own.pk) == expected
    assert written == backend.store.get(own.pk)
    assert pieces(backend, sku) == 4
    assert item(backend, entry) == entry.to_item()


def test_a_commit_without_a_result_says_why(backend: Backend) -> None:
    """G10: the marker stands for the result, and the other writes happen."""
    own, sku = claimed(backend), in_stock(backend, 5)

    written = commit(backend, own, sold(backend, sku), result=ResultNotStored("large"))

    assert isinstance(written, Record)
    assert (written.result, written.result_not_stored) == (None, "large")
    assert backend.store.get(own.pk) == written
    assert pieces(backend, sku) == 4


@pytest.mark.parametrize(
    "moved",
    [{"claimant": "another"}, {"version": 5}, {"version": 3}],
    ids=["another claimant", "a later version", "an earlier version"],
)
def test_a_commit_is_refused_as_a_whole_when_the_record_is_not_what_was_seen(
    backend: Backend, outbox: Outbox, moved: dict[str, Any]
) -> None:
    """G2, each clause of UNCHANGED alone: nothing is written anywhere, and the refusal shows the record."""
    own, sku, entry = claimed(backend), in_stock(backend, 5), entry_of(backend)
    seen = backend.put(replace(own, **moved), **LATER)
    before = backend.item(own.pk)

    assert commit(backend, own, sold(backend, sku), outbox.staged(entry)) == Refused(seen)
    assert backend.item(own.pk) == before
    assert pieces(backend, sku) == 5
    assert item(backend, entry) is None


def test_a_commit_on_a_record_that_is_gone_makes_none(backend: Backend) -> None:
    """G2: UpdateItem makes an item where there is none; UNCHANGED does not let it."""
    own, sku = record_of(key=backend.name(), claimant=backend.name()), in_stock(backend, 5)

    assert commit(backend, own, sold(backend, sku)) == Refused(None)
    assert backend.item(own.pk) is None
    assert pieces(backend, sku) == 5


def test_a_condition_of_another_write_cancels_the_commit_and_shows_its_item(backend: Backend, outbox: Outbox) -> None:
    """G7: the claim stands as it was, nothing is written, and the reasons tell of each write in its order."""
    own, sku, entry = claimed(backend), in_stock(backend, 0), entry_of(backend)
    before = backend.item(own.pk)

    with pytest.raises(TransactionCancelled) as caught:
        commit(backend, own, sold(backend, sku), outbox.staged(entry))

    assert [reason["Code"] for reason in caught.value.reasons] == ["None", "ConditionalCheckFailed", "None"]
    assert caught.value.reasons[1]["Item"] == {"sku": {"S": sku}, "pieces": {"N": "0"}}
    assert backend.item(own.pk) == before
    assert item(backend, entry) is None


def test_a_lost_claim_stands_before_another_writes_condition(backend: Backend) -> None:
    """G2: a zombie is told that its claim is lost, not that there is no stock: nothing of it is to be tried again."""
    own, sku = claimed(backend), in_stock(backend, 0)
    seen = backend.put(replace(own, claimant="another"))

    assert commit(backend, own, sold(backend, sku)) == Refused(seen)


def test_a_commit_sent_twice_is_ours_and_applied_once(backend: Backend, outbox: Outbox) -> None:
    """G11: by its token on AWS and ministack; on moto, and everywhere after ten minutes, by the record it left."""
    own, sku, entry = claimed(backend), in_stock(backend, 5), entry_of(backend)

    first = commit(backend, own, sold(backend, sku), outbox.staged(entry))
    after = backend.item(own.pk)
    second = commit(backend, own, sold(backend, sku), outbox.staged(entry))

    assert isinstance(first, Record)
    assert second == first
    assert backend.item(own.pk) == after
    assert pieces(backend, sku) == 4


def test_a_commit_whose_token_is_forgotten_is_known_by_its_record(
    backend: Backend, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G11: after ten minutes the token means nothing any more: the refusal shows the record that was being written."""
    own, sku, entry = claimed(backend), in_stock(backend, 1), entry_of(backend)
    first = commit(backend, own, sold(backend, sku), outbox.staged(entry))
    send = backend.seam.call

    def forgotten(operation: str, request: dict[str, Any], deadline: Any) -> dict[str, Any]:
        return send(operation, request | {"ClientRequestToken": f"later-{backend.name()}"}, deadline)

    monkeypatch.setattr(backend.seam, "call", forgotten)

    # The user's own condition does not hold any more, and the entry is there: both are what the first one left.
    assert commit(backend, own, sold(backend, sku), outbox.staged(entry)) == first
    assert pieces(backend, sku) == 0


def test_a_commit_is_not_taken_for_another_write_of_the_same_claimant_and_version(backend: Backend) -> None:
    """G11: a renewal that landed has both; only the very record that was being written is ours."""
    own, sku = claimed(backend), in_stock(backend, 5)
    renewed = backend.store.renew(own, lease_expires_at=NOW + 99_000)
    assert isinstance(renewed, Record)

    assert commit(backend, own, sold(backend, sku)) == Refused(renewed)
    assert pieces(backend, sku) == 5
    completed = commit(backend, renewed, sold(backend, sku))
    assert isinstance(completed, Record)
    assert (completed.version, pieces(backend, sku)) == (6, 4)


def test_a_commit_of_a_hundred_items_is_taken_and_of_one_more_refused(backend: Backend) -> None:
    """DynamoDB's limit is that of the staging: 99 beside the record."""
    own, names = claimed(backend), [backend.name() for _ in range(100)]
    puts = [{"Put": {"TableName": backend.user_table, "Item": {"sku": {"S": name}}}} for name in names]

    with pytest.raises(TransactionRefused, match="TransactWriteItems was refused"):
        commit(backend, own, *puts)
    assert isinstance(commit(backend, own, *puts[:99]), Record)


def test_a_commit_to_a_table_that_is_not_there_is_refused_with_its_word(backend: Backend) -> None:
    """A mistake of the user's wiring is told, and the claim stands for its release."""
    own = claimed(backend)
    before = backend.item(own.pk)

    with pytest.raises(TransactionRefused, match="ResourceNotFound"):
        commit(backend, own, {"Put": {"TableName": "onceq-no-such-table", "Item": {"pk": {"S": "1"}}}})
    assert backend.item(own.pk) == before


def test_a_commit_that_races_with_take_overs_happens_whole_or_not_at_all(backend: Backend) -> None:
    """G1, G7: of a zombie's commit and seven take-overs that saw the same record one is applied, in every round."""

    def taking(own: Record, number: int) -> Callable[[], Record | Refused[Record]]:
        new = replace(own, claimant=f"taker-{number}", version=own.version + 1, attempts=own.attempts + 1)
        return lambda: backend.store.take_over(own, new)

    for _ in range(10):
        own, sku = claimed(backend), in_stock(backend, 5)
        calls = [taking(own, number) for number in range(7)]
        calls.insert(3, partial(commit, backend, own, sold(backend, sku)))
        with eager_switching():
            answers = all_at_once(calls)

        [winner] = [answer for answer in answers if isinstance(answer, Record)]
        assert backend.store.get(own.pk) == winner
        assert [answer for answer in answers if isinstance(answer, Refused)] == [Refused(winner)] * 7
        assert pieces(backend, sku) == (4 if winner.status is Status.COMPLETED else 5)


def test_an_entry_is_staged_only_where_there_is_none(backend: Backend, outbox: Outbox) -> None:
    """NEW: an id stands for one message; a second one under it cancels the whole, whatever became of the first."""
    sku, entry = in_stock(backend, 5), entry_of(backend)
    sent = stands(backend, entry.sent("m-1", NOW))

    with pytest.raises(TransactionCancelled) as caught:
        commit(backend, claimed(backend), sold(backend, sku), outbox.staged(entry))

    assert [reason["Code"] for reason in caught.value.reasons] == ["None", "None", "ConditionalCheckFailed"]
    assert item(backend, entry) == sent.to_item()
    assert pieces(backend, sku) == 5


def test_an_entry_is_written_with_the_callers_own_writes(backend: Backend, outbox: Outbox) -> None:
    """G8 outside a job: all of it, or nothing."""
    sku, entry = in_stock(backend, 1), entry_of(backend)

    outbox.commit(Transaction([sold(backend, sku)]), entry, backend.name())

    assert item(backend, entry) == entry.to_item()
    assert pieces(backend, sku) == 0

    other = entry_of(backend)
    with pytest.raises(ConditionNotMet, match=r"the item has \{'pieces': '0'\}") as caught:
        outbox.commit(Transaction([sold(backend, sku)]), other, backend.name())
    assert caught.value.item == {"sku": {"S": sku}, "pieces": {"N": "0"}}
    assert item(backend, other) is None


def test_an_entry_that_is_written_twice_is_ours_and_the_other_writes_happen_once(
    backend: Backend, outbox: Outbox
) -> None:
    """G11 outside a job: by its token, and where that is unknown by the entry that stands."""
    sku, entry, token = in_stock(backend, 1), entry_of(backend), backend.name()
    outbox.commit(Transaction([sold(backend, sku)]), entry, token)

    outbox.commit(Transaction([sold(backend, sku)]), entry, token)
    # As after ten minutes: the caller's own condition does not hold any more, and the entry is this very one.
    outbox.commit(Transaction([sold(backend, sku)]), entry, backend.name())

    assert pieces(backend, sku) == 0
    assert item(backend, entry) == entry.to_item()


def test_an_entry_that_was_marked_meanwhile_is_still_ours(backend: Backend, outbox: Outbox) -> None:
    """G11 outside a job: its id is new with the call, so whatever became of the entry tells that it had happened."""
    sku, entry = in_stock(backend, 1), entry_of(backend)
    outbox.commit(Transaction([sold(backend, sku)]), entry, backend.name())
    sent = outbox.mark_sent(entry, "m-1", NOW)
    assert isinstance(sent, OutboxEntry)

    outbox.commit(Transaction([sold(backend, sku)]), entry, backend.name())

    assert pieces(backend, sku) == 0
    assert item(backend, entry) == sent.to_item()


def test_an_entry_is_marked_as_sent_and_leaves_the_index(backend: Backend, outbox: Outbox) -> None:
    """PENDING met: message id and time, a time to go, and neither key of the index; nothing else moves."""
    entry = stands(backend, entry_of(backend, error="throttled", attempts=2), **LATER)

    marked = outbox.mark_sent(entry, "m-1", NOW)

    expected = entry.to_item() | LATER
    for removed in ("shard", "next_at", "error"):
        del expected[removed]
    assert item(backend, entry) == expected | {
        "status": {"S": "sent"},
        "attempts": {"N": "3"},
        "message_id": {"S": "m-1"},
        "sent_at": {"N": str(NOW)},
        "expires_at": {"N": str(NOW_S + SENT_RETENTION_S)},
    }
    assert marked == OutboxEntry.from_item(expected | (item(backend, entry) or {}))
    assert outbox.pending(entry.shard or "", now_ms=NOW + 99_000)[::2] == ([], None)


def test_an_entry_that_failed_says_why_and_waits_for_its_next_try(backend: Backend, outbox: Outbox) -> None:
    """PENDING met: attempts, the reason and the next time; it stays in the index and never expires."""
    entry = stands(backend, entry_of(backend), **LATER)

    outbox.mark_failed(entry, "no such queue", NOW + 60_000)

    changed = {"attempts": {"N": "1"}, "error": {"S": "no such queue"}, "next_at": {"N": str(NOW + 60_000)}}
    assert item(backend, entry) == entry.to_item() | LATER | changed
    assert "expires_at" not in (item(backend, entry) or {})
    shard = entry.shard or ""
    assert outbox.pending(shard, now_ms=NOW + 59_999)[::2] == ([], None)
    [waiting], *_ = outbox.pending(shard, now_ms=NOW + 60_000)
    assert (waiting.pk, waiting.attempts, waiting.error) == (entry.pk, 1, "no such queue")


def test_an_entry_that_failed_may_keep_its_place(backend: Backend, outbox: Outbox) -> None:
    """On a FIFO queue nothing of its group may pass it, so the time of its next try stays as it is."""
    entry = stands(backend, entry_of(backend))

    outbox.mark_failed(entry, "no", entry.next_at)

    assert item(backend, entry) == entry.to_item() | {"attempts": {"N": "1"}, "error": {"S": "no"}}


MARKS: dict[str, Callable[[Outbox, OutboxEntry], OutboxEntry | Refused[OutboxEntry]]] = {
    "sent": lambda outbox, entry: outbox.mark_sent(entry, "m-2", NOW + 1),
    "failed": lambda outbox, entry: outbox.mark_failed(entry, "late", NOW + 1),
}
every_mark = pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)


@every_mark
def test_what_was_sent_stays_sent(backend: Backend, outbox: Outbox, mark: Any) -> None:
    """PENDING: another one's mark, or a late one of a failed try, does not bring a sent entry back."""
    entry = entry_of(backend)
    sent = stands(backend, entry.sent("m-1", NOW))

    assert mark(outbox, entry) == Refused(sent)
    assert item(backend, entry) == sent.to_item()


@every_mark
def test_a_mark_on_an_entry_that_is_gone_makes_none(backend: Backend, outbox: Outbox, mark: Any) -> None:
    """UpdateItem makes an item where there is none: half an entry would wait in the index for ever."""
    entry = entry_of(backend)

    assert mark(outbox, entry) == Refused(None)
    assert item(backend, entry) is None


@every_mark
def test_a_mark_that_is_written_twice_is_ours(backend: Backend, outbox: Outbox, mark: Any) -> None:
    """G11: a mark whose response was lost is not another one's."""
    entry = stands(backend, entry_of(backend))

    first = mark(outbox, entry)
    after = item(backend, entry)

    assert isinstance(first, OutboxEntry)
    assert mark(outbox, entry) == first
    assert item(backend, entry) == after


def test_of_two_marks_as_sent_the_first_stands(backend: Backend, outbox: Outbox) -> None:
    """Relay and consumer may both send an entry: the message id that stands is of one that was sent."""
    entry = stands(backend, entry_of(backend))
    first = outbox.mark_sent(entry, "m-1", NOW)
    assert isinstance(first, OutboxEntry)

    assert outbox.mark_sent(entry, "m-2", NOW + 5) == Refused(first)
    assert item(backend, entry) == first.to_item()


def test_pending_entries_come_in_the_order_of_their_next_try(backend: Backend, outbox: Outbox) -> None:
    """The relay's question: a shard's entries up to now, whole, the longest waiting first; and no other shard's."""
    shard, other = backend.name(), entry_of(backend)
    times = [30_000, 10_000, 40_000, 20_000]
    entries = {time: stands(backend, entry_of(backend, shard=shard, next_at=NOW + time)) for time in times}
    stands(backend, other)

    assert outbox.pending(shard, now_ms=NOW + 9_999)[::2] == ([], None)
    assert outbox.pending(shard, now_ms=NOW + 30_000)[::2] == (
        [entries[10_000], entries[20_000], entries[30_000]],
        None,
    )
    assert outbox.pending(other.shard or "", now_ms=NOW + 99_000)[::2] == ([other], None)


def test_pending_entries_are_read_in_pages(backend: Backend, outbox: Outbox) -> None:
    """A page goes on where the last one ended: each of seven comes once, also where they have one time."""
    shard = backend.name()
    entries = [stands(backend, entry_of(backend, shard=shard, next_at=NOW)) for _ in range(7)]

    pages, start = [], None
    for _ in range(9):
        page, _, start = outbox.pending(shard, now_ms=NOW, start=start, limit=3)
        pages.append(page)
        if start is None:
            break

    assert start is None
    assert [len(page) for page in pages] == [3, 3, 1]
    assert sorted(entry.pk for page in pages for entry in page) == sorted(entry.pk for entry in entries)


@pytest.mark.parametrize(
    ("change", "is_named"),
    [({"body": None}, True), ({"attempts": {"N": "1.5"}}, True), ({"status": {"S": "held"}}, False)],
    ids=["without a body", "half an attempt", "a state of a later release"],
)
def test_an_item_that_is_no_entry_is_named_and_holds_up_no_other(
    backend: Backend, outbox: Outbox, change: dict[str, Any], *, is_named: bool
) -> None:
    """One spoiled item must not stop the relay for ever; what a later release means by a state is its own to send."""
    shard = backend.name()
    spoiled, good = (entry_of(backend, shard=shard, next_at=NOW + number) for number in range(2))
    raw = {name: value for name, value in (spoiled.to_item() | change).items() if value is not None}
    backend.dynamodb.put_item(TableName=backend.outbox_table, Item=raw)
    stands(backend, good)

    assert outbox.pending(shard, now_ms=NOW + 9) == ([good], [spoiled.pk] if is_named else [], None)


def test_every_attribute_of_an_entry_survives_the_table(backend: Backend, outbox: Outbox) -> None:
    """An entry is read as it was written: text with its odd characters, the group, whole numbers to the digit."""
    entry = entry_of(backend, body='["","\\u0000", "😀"]', group="!-~", error="", attempts=7, message_id="m")

    outbox.commit(Transaction(), entry, backend.name())

    assert outbox.pending(entry.shard or "", now_ms=NOW + 99_000)[::2] == ([entry], None)


def test_only_a_sent_entry_has_a_time_to_go() -> None:
    """TTL reads ``expires_at``: what waits has none, however long it waits."""
    entry = OutboxEntry("t-000", "ship", "k-1", "default", "{}", NOW, NOW, shard="1", next_at=NOW)

    assert (entry.status, entry.expires_at) == (Delivery.PENDING, None)
    assert entry.failed("no", NOW).expires_at is None
    assert entry.sent("m-1", NOW).expires_at == NOW_S + SENT_RETENTION_S
    assert SENT_RETENTION_S == 7 * 86_400
