"""The store's writes about effects when the network fails: unheard, refused, landing late, several at once.

What each writes, and on which condition, is in `test_store`.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import NOW, record_of
from kit.faults import FaultyClient
from kit.transitions import DONE, EFFECTS, LATER, NOW_S, OPEN, Transition, hold, mark_stale, step
from onceq.client import ATTEMPTS
from onceq.clock import OpenDeadline
from onceq.errors import StoreError, StoreUnavailable
from onceq.record import Record, Status
from onceq.store import Refused, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.conftest import Backend
    from kit.transitions import Written

every_transition = pytest.mark.parametrize("transition", EFFECTS, ids=[each.name for each in EFFECTS])


def faulty(backend: Backend) -> tuple[Store, FaultyClient]:
    """Return the store on a client that loses and holds back."""
    seam = copy.copy(backend.seam)
    client = seam._client = FaultyClient(seam._client)
    return Store(seam, backend.table, OpenDeadline()), client


@every_transition
@pytest.mark.parametrize(
    "fault", [FaultyClient.lose_response, FaultyClient.drop], ids=["applied, then lost", "never applied"]
)
def test_its_lost_response_is_recognised(backend: Backend, transition: Transition, fault: Any) -> None:
    """G11: sent again by the seam, it is ours; two requests, one write."""
    seen = backend.put(transition.record(backend.name()))
    store, client = faulty(backend)
    fault(client, transition.kind)

    written = transition.write(store, seen)

    assert isinstance(written, Record)
    assert client.names() == [transition.kind] * 2
    assert (backend.store.get(seen.pk), written.version) == (written, 5)


@every_transition
@pytest.mark.parametrize("lost", [True, False], ids=["applied, then lost", "never applied"])
def test_an_outcome_that_nobody_told_is_unknown(backend: Backend, transition: Transition, *, lost: bool) -> None:
    """No answer is no answer: StoreUnavailable, whether it was applied or not; the next look tells."""
    seen = backend.put(transition.record(backend.name()))
    store, client = faulty(backend)
    (client.lose_response if lost else client.drop)(transition.kind, times=ATTEMPTS)

    with pytest.raises(StoreUnavailable):
        transition.write(store, seen)

    record = backend.store.get(seen.pk)
    assert record is not None
    assert (record == seen) is not lost
    assert record.version == (5 if lost else 4)


@every_transition
def test_it_changes_nothing_when_it_lands_after_the_next_write(backend: Backend, transition: Transition) -> None:
    """G2: the retry landed and somebody wrote after it; the first request finds another version."""
    seen = backend.put(transition.record(backend.name()), **LATER)
    store, client = faulty(backend)
    client.hold_back(transition.kind)
    written = transition.write(store, seen)
    assert isinstance(written, Record)
    later = backend.store.take_over(written, replace(written, claimant="taker", version=6, fencing_token=NOW))
    before = backend.item(seen.pk)

    assert client.land() == [False]
    assert backend.item(seen.pk) == before
    assert backend.store.get(seen.pk) == later


@every_transition
def test_it_changes_nothing_when_it_lands_after_a_take_over(backend: Backend, transition: Transition) -> None:
    """G2: on its way when the record was taken over, as seen before it: its condition does not hold any more."""
    seen = backend.put(transition.record(backend.name()))
    store, client = faulty(backend)
    client.hold_back(transition.kind, times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        transition.write(store, seen)
    taken = backend.store.take_over(seen, replace(seen, claimant="taker", version=5, fencing_token=NOW))

    assert client.land() == [False] * ATTEMPTS
    assert backend.store.get(seen.pk) == taken


@every_transition
def test_a_refusal_of_the_table_is_an_error_and_no_outcome(backend: Backend, transition: Transition) -> None:
    """A table that is not there is a StoreError that says so, once."""
    store = replace(backend.store, table="onceq-no-such-table")

    with pytest.raises(StoreError, match=r"UpdateItem was refused.*ResourceNotFound"):
        transition.write(store, transition.record(backend.name()))


@pytest.mark.parametrize("loser", EFFECTS, ids=[each.name for each in EFFECTS])
def test_of_two_that_follow_one_record_the_later_is_refused(backend: Backend, loser: Transition) -> None:
    """G2: whatever came between: a renewal of the same claimant raises the version too."""
    seen = backend.put(loser.record(backend.name()))
    renewed = backend.store.renew(seen, lease_expires_at=NOW + 5)
    assert isinstance(renewed, Record)

    assert loser.write(backend.store, seen) == Refused(renewed)


def test_of_many_decisions_at_once_one_is_written(backend: Backend) -> None:
    """G2: persons, the sweep and a claimant, all of whom saw the same record, race: one of them wins."""
    seen = backend.put(record_of(Status.PROCESSING, backend.name(), steps=OPEN))
    writes: list[Callable[[Store, Record], Written]] = [
        step(DONE),
        hold("taker"),
        mark_stale,
        lambda store, one: store.renew(one, lease_expires_at=NOW + 5),
        lambda store, one: store.take_over(one, replace(one, claimant="taker-2", version=5, fencing_token=NOW)),
        lambda store, one: store.complete(one, now_ms=NOW, expires_at=NOW_S, result="1"),
    ]
    with ThreadPoolExecutor(len(writes)) as pool:
        answers = list(pool.map(lambda write: write(backend.store, seen), writes))

    winners = [answer for answer in answers if isinstance(answer, Record)]
    assert len(winners) == 1
    assert backend.store.get(seen.pk) == winners[0]
    assert [answer for answer in answers if isinstance(answer, Refused)] == [Refused(winners[0])] * (len(writes) - 1)


def test_a_step_whose_text_does_not_fit_is_an_error_and_the_record_stands(backend: Backend) -> None:
    """DynamoDB takes 400 KB: the old steps are still there."""
    seen = backend.put(record_of(Status.PROCESSING, backend.name(), steps=DONE))
    before = backend.item(seen.pk)

    with pytest.raises(StoreError, match="UpdateItem was refused") as caught:
        backend.store.step(seen, steps="x" * 420_000, expires_at=None)

    assert not isinstance(caught.value, StoreUnavailable)
    if not backend.is_moto:  # moto 5.2.5 refuses the update and has applied it all the same
        assert backend.item(seen.pk) == before


def test_full_steps_are_written_again_and_again(backend: Backend) -> None:
    """Every step writes the whole text anew: at its largest it still fits, and so does the completion after it."""
    # moto 5.2.5 adds what stands to what is written, and refuses from 405,000 on.
    most, result = (190_000, 190_000) if backend.is_moto else (262_144, 350_000)
    own = backend.put(record_of(Status.PROCESSING, backend.name().ljust(8_000, "k"), pk=f"pay#{backend.name()}"))
    for size in (most, most - 1, most):
        written = backend.store.step(own, steps="x" * size, expires_at=None)
        assert isinstance(written, Record)
        own = written
    completed = backend.store.complete(own, now_ms=NOW, expires_at=NOW_S, result="y" * result)

    assert isinstance(completed, Record)
    assert backend.store.get(own.pk) == completed
    assert completed.steps is None
