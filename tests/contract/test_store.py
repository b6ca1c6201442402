"""The contract of `onceq.store.Store`, whatever backend serves it.

Each transition, with its precondition met and with each clause of it broken alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import NOW, record_of
from kit.transitions import CLAIMS, EFFECTS, LATER, NOW_S, Transition, take_over
from onceq.errors import StoreError, StoreUnavailable
from onceq.record import Record, Semantics, Status
from onceq.store import Refused, is_free

if TYPE_CHECKING:
    from contract.conftest import Backend


def first_of(key: str, **changes: Any) -> Record:
    """Return the record of a first claim."""
    new = record_of(Status.PROCESSING, key, claimant="ours", version=1, attempts=1, fencing_token=NOW, message_id="m-1")
    return replace(new, **changes)


TRANSITIONS = [*CLAIMS, *EFFECTS]
every_transition = pytest.mark.parametrize("transition", TRANSITIONS, ids=[each.name for each in TRANSITIONS])


def test_a_first_claim_writes_the_whole_record_and_nothing_else(backend: Backend) -> None:
    """FREE, first clause: nobody ever claimed the job."""
    new = first_of(backend.name())

    assert backend.store.claim(new, NOW) == new
    assert backend.item(new.pk) == new.to_item()
    assert backend.store.get(new.pk) == new


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.REJECTED])
def test_an_ended_record_past_its_retention_is_claimed_anew(backend: Backend, status: Status) -> None:
    """FREE, second clause: age frees what ended; nothing of the old record stays, also not of another release."""
    old = backend.put(record_of(status, backend.name(), expires_at=NOW_S), **LATER)
    new = first_of(old.idempotency_key)

    assert backend.store.claim(new, NOW) == new
    assert backend.item(old.pk) == new.to_item()


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.REJECTED])
@pytest.mark.parametrize("expires_at", [NOW_S + 1, NOW_S + 9_999, None])
def test_an_ended_record_within_its_retention_refuses_a_claim(
    backend: Backend, status: Status, expires_at: int | None
) -> None:
    """G3: a completed or rejected job is not claimed again within its retention."""
    old = backend.put(record_of(status, backend.name(), expires_at=expires_at), **LATER)
    before = backend.item(old.pk)

    assert backend.store.claim(first_of(old.idempotency_key), NOW) == Refused(old)
    assert backend.item(old.pk) == before


@pytest.mark.parametrize("status", [Status.PROCESSING, Status.FAILED, Status.UNCERTAIN])
@pytest.mark.parametrize("expires_at", [NOW_S - 9_999, NOW_S, NOW_S + 1, None])
def test_age_never_frees_a_record_that_did_not_end(backend: Backend, status: Status, expires_at: int | None) -> None:
    """FREE names the two ended states: a live claim, its steps and an uncertain record are not overwritten by age."""
    old = backend.put(record_of(status, backend.name(), expires_at=expires_at), **LATER)
    before = backend.item(old.pk)

    assert backend.store.claim(first_of(old.idempotency_key), NOW) == Refused(old)
    assert backend.item(old.pk) == before


def test_a_claim_sent_twice_is_ours_once(backend: Backend) -> None:
    """G11: the refusal of a repeated claim shows the record being written, so the claim is ours."""
    new = first_of(backend.name())

    assert backend.store.claim(new, NOW) == new
    assert backend.store.claim(new, NOW) == new
    assert backend.item(new.pk) == new.to_item()


@pytest.mark.parametrize(
    "changes",
    [
        {"claimant": "ours-not"},
        {"version": 2},
        {"status": Status.COMPLETED},
        {"lease_expires_at": NOW},
        {"attempts": 2},
        {"message_id": "m-2"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_record_that_differs_from_what_was_written_is_never_ours(backend: Backend, changes: dict[str, Any]) -> None:
    """G11: a write is recognised by its whole record; one attribute that differs is somebody's, or another write."""
    new = first_of(backend.name())
    other = backend.put(replace(new, **changes))

    assert backend.store.claim(new, NOW) == Refused(other)


@every_transition
def test_a_transition_changes_exactly_its_attributes_and_raises_the_version(
    backend: Backend, transition: Transition
) -> None:
    """UNCHANGED met: the version rises by one, what a later release wrote stays, and nothing else moves."""
    seen = backend.put(transition.record(backend.name()), **LATER)

    written = transition.write(backend.store, seen)

    expected = seen.to_item() | LATER | {"version": {"N": "5"}} | dict(transition.changes)
    assert backend.item(seen.pk) == {name: value for name, value in expected.items() if value is not None}
    assert written == backend.store.get(seen.pk)


@every_transition
@pytest.mark.parametrize(
    "moved",
    [{"claimant": "another"}, {"version": 5}, {"version": 3}],
    ids=["another claimant", "a later version", "an earlier version"],
)
def test_a_transition_is_refused_when_the_record_is_not_what_was_seen(
    backend: Backend, transition: Transition, moved: dict[str, Any]
) -> None:
    """G2, each clause of UNCHANGED alone: another claimant or another version refuses; the refusal shows the record."""
    seen = transition.record(backend.name())
    stands = backend.put(replace(seen, **moved), **LATER)
    before = backend.item(seen.pk)

    assert transition.write(backend.store, seen) == Refused(stands)
    assert backend.item(seen.pk) == before


@every_transition
def test_a_transition_on_a_record_that_is_gone_is_refused_and_makes_none(
    backend: Backend, transition: Transition
) -> None:
    """G2: UpdateItem makes an item where there is none; UNCHANGED does not let it."""
    seen = transition.record(backend.name())

    assert transition.write(backend.store, seen) == Refused(None)
    assert backend.item(seen.pk) is None


@every_transition
def test_a_transition_sent_twice_is_ours_and_written_once(backend: Backend, transition: Transition) -> None:
    """G11: every transition recognises its own earlier arrival, and the version rises once."""
    seen = backend.put(transition.record(backend.name()), **LATER)

    first = transition.write(backend.store, seen)
    after = backend.item(seen.pk)

    assert transition.write(backend.store, seen) == first
    assert isinstance(first, Record)
    assert backend.item(seen.pk) == after


@every_transition
def test_a_transition_is_not_taken_for_another_write_of_the_same_claimant_and_version(
    backend: Backend, transition: Transition
) -> None:
    """G11: the same claimant and the version being written are not enough: an earlier write of ours has both."""
    seen = transition.record(backend.name())
    backend.put(seen)
    written = transition.write(backend.store, seen)
    assert isinstance(written, Record)
    other = backend.put(replace(written, lease_expires_at=NOW + 12_345))

    assert transition.write(backend.store, seen) == Refused(other)


def test_a_record_that_ttl_should_have_deleted_is_still_read(backend: Backend) -> None:
    """TTL deletes late: the record is there until it is gone, and no transition looks at the clock for it."""
    old = backend.put(record_of(Status.PROCESSING, backend.name(), expires_at=NOW_S - 86_400, lease_expires_at=1))

    assert backend.store.get(old.pk) == old
    taken = take_over(backend.store, old)
    assert isinstance(taken, Record)
    assert taken.version == old.version + 1


def test_there_is_no_record_of_a_job_that_was_never_claimed(backend: Backend) -> None:
    """A read of nothing is nothing."""
    assert backend.store.get("pay#never") is None


def test_every_attribute_of_a_record_survives_the_table(backend: Backend) -> None:
    """A record is read as it was written: text with its odd characters, whole numbers to the digit."""
    record = record_of(
        Status.COMPLETED,
        backend.name(),
        semantics=Semantics.AT_MOST_ONCE,
        result='["","\\u0000", "😀", 1e22]',
        error="",
        fencing_token=9_007_199_254_740_993,
        not_before=0,
        lease_expires_at=1,
        result_not_stored="é" * 100,
        message_id=None,
    )

    assert backend.store.claim(record, NOW) == record
    assert backend.store.get(record.pk) == record


def test_an_item_that_is_too_large_is_an_error_and_not_a_refusal(backend: Backend) -> None:
    """DynamoDB takes 400 KB: a larger record is a StoreError that names the operation, and the old one stands."""
    seen = backend.put(record_of(Status.PROCESSING, backend.name()))
    before = backend.item(seen.pk)

    with pytest.raises(StoreError, match="UpdateItem was refused") as caught:
        backend.store.complete(seen, now_ms=NOW, expires_at=NOW_S, result="x" * 420_000)

    assert not isinstance(caught.value, StoreUnavailable)
    if not backend.is_moto:  # moto 5.2.5 refuses the update and has applied it all the same
        assert backend.item(seen.pk) == before
    with pytest.raises(StoreError, match="PutItem was refused"):
        backend.store.claim(first_of(backend.name(), error="x" * 420_000), NOW)


def test_an_item_of_almost_400_kb_is_taken(backend: Backend) -> None:
    """The largest result that ONCEQ_RESULT_LIMIT allows fits an item, beside the longest key and error."""
    key = backend.name().ljust(8_000, "k")
    seen = backend.put(replace(record_of(Status.PROCESSING, key), pk=f"pay#{backend.name()}"))

    written = backend.store.complete(seen, now_ms=NOW, expires_at=NOW_S, result="x" * 350_000)

    assert isinstance(written, Record)
    assert backend.store.get(seen.pk) == written


def test_a_table_that_is_not_there_is_an_error(backend: Backend) -> None:
    """A mistake of the wiring is a StoreError that says so, for reads and writes alike."""
    store = replace(backend.store, table="onceq-no-such-table")

    with pytest.raises(StoreError, match=r"GetItem was refused.*ResourceNotFound"):
        store.get("pay#k")
    with pytest.raises(StoreError, match=r"PutItem was refused.*ResourceNotFound"):
        store.claim(first_of("k"), NOW)
    with pytest.raises(StoreError, match=r"UpdateItem was refused.*ResourceNotFound"):
        store.renew(record_of(), lease_expires_at=NOW)


def test_one_of_many_racing_claims_wins(backend: Backend) -> None:
    """G1: DynamoDB lets one of several racing first claims through, and shows the others the winner's record."""
    from concurrent.futures import ThreadPoolExecutor

    key = backend.name()
    news = [first_of(key, claimant=f"c{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda new: backend.store.claim(new, NOW), news))

    winners = [answer for answer in answers if isinstance(answer, Record)]
    assert len(winners) == 1
    assert [answer for answer in answers if isinstance(answer, Refused)] == [Refused(winners[0])] * 7


def test_one_of_many_racing_take_overs_wins(backend: Backend) -> None:
    """G1: of several that saw the same record one takes it over."""
    from concurrent.futures import ThreadPoolExecutor

    seen = backend.put(record_of(Status.FAILED, backend.name(), not_before=NOW))
    news = [replace(seen, status=Status.PROCESSING, claimant=f"c{number}", version=5) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda new: backend.store.take_over(seen, new), news))

    winners = [answer for answer in answers if isinstance(answer, Record)]
    assert len(winners) == 1
    assert backend.store.get(seen.pk) == winners[0]


@pytest.mark.parametrize("passed_ms", [0, 1, 999], ids=["on the second", "a moment later", "a moment before the next"])
def test_what_is_read_as_free_is_what_can_be_claimed(backend: Backend, passed_ms: int) -> None:
    """G3: a look-up and FREE agree on every status, and to the second, wherever in a second the time stands."""
    now_ms = NOW + passed_ms
    found = {}
    for status in Status:
        for expires_at in (None, NOW_S - 1, NOW_S, NOW_S + 1):
            old = backend.put(record_of(status, backend.name(), expires_at=expires_at))
            claimed = isinstance(backend.store.claim(first_of(old.idempotency_key), now_ms), Record)
            found[status, expires_at] = (is_free(old, now_ms), claimed)

    free = {(status, expires_at) for status in ("completed", "rejected") for expires_at in (NOW_S - 1, NOW_S)}
    assert found == {cell: (cell in free, cell in free) for cell in found}
