"""The contract of the store's writes about effects: a step, a hold, the sweep's mark, a person's decision.

Each with its precondition met, with each clause of it broken alone, sent twice, unheard, and landing late.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import pytest

from kit.claims import NOW, RETENTION_S, record_of
from kit.faults import FaultyClient
from onceq.client import ATTEMPTS
from onceq.clock import OpenDeadline
from onceq.decision import UNENDED_RETENTION_S
from onceq.errors import StoreError, StoreUnavailable
from onceq.record import Record, Semantics, Status
from onceq.resolving import Decision, Resolution, decided
from onceq.store import Refused, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from contract.conftest import Backend

NOW_S = NOW // 1000
LATER_S = NOW_S + 7_777
ONCE = Semantics.AT_MOST_ONCE
LATER = {"plan": {"M": {"charge": {"S": "done"}}}, "trace": {"S": "of a later release"}}
ODD = '{"charge":{"result":["","\\u0000","😀",1e22,null]}}'
DONE = '{"charge":{"result":"ch_1"}}'
OPEN = '{"call":{"started":1},"charge":{"result":"ch_1"}}'

Written = Record | Refused[Record]


@dataclass(frozen=True)
class Transition:
    """A write on UNCHANGED.

    Args:
        name: What it is.
        kind: Its name in `kit.faults`.
        status: The status of what stands.
        seen: What else stands.
        write: How it is written.
        changes: What then stands otherwise, but the version; ``None`` is gone.
    """

    name: str
    kind: str
    status: Status
    seen: Mapping[str, Any]
    write: Callable[[Store, Record], Written]
    changes: Mapping[str, Any]


def _step(text: str | None, *, expires_at: int | None = LATER_S) -> Callable[[Store, Record], Written]:
    return lambda store, own: store.step(own, steps=text, expires_at=expires_at)


def _hold(claimant: str, went_stale: int | None = None) -> Callable[[Store, Record], Written]:
    return lambda store, seen: store.hold(seen, claimant=claimant, error="who knows", went_stale=went_stale)


def _mark_stale(store: Store, seen: Record) -> Written:
    return store.mark_stale(seen, claimant="sweep", now_ms=NOW, error="it never ended")


def _resolve(decision: Decision, **options: Any) -> Callable[[Store, Record], Written]:
    def write(store: Store, seen: Record) -> Written:
        resolution = Resolution(decision, reason="seen there", **options)
        limits: dict[str, Any] = {"now_ms": NOW, "retention_s": RETENTION_S, "result_limit": 1_000}
        return store.resolve(seen, decided(seen, resolution, token="person", **limits))

    return write


KEPT = {"expires_at": {"N": str(LATER_S)}}
HELD = {
    "status": {"S": "uncertain"},
    "error": {"S": "who knows"},
    "expires_at": None,
    "lease_expires_at": None,
    "went_stale": None,
}
STALE = {
    "status": {"S": "failed"},
    "claimant": {"S": "sweep"},
    "error": {"S": "it never ended"},
    "not_before": {"N": str(NOW)},
    "went_stale": {"N": "1"},
    "lease_expires_at": None,
}
# What a decision writes, whatever stood there.
RESOLVED: dict[Decision, dict[str, Any]] = {
    "done": {
        "status": {"S": "completed"},
        "result": {"S": '{"id":1}'},
        "completed_at": {"N": str(NOW)},
        "expires_at": {"N": str(NOW_S + RETENTION_S)},
        "error": None,
        "steps": None,
        "went_stale": None,
        "not_before": None,
    },
    "retry": {
        "status": {"S": "failed"},
        "attempts": {"N": "0"},
        "not_before": {"N": str(NOW)},
        "resolved_at": {"N": str(NOW)},
        "expires_at": {"N": str(NOW_S + UNENDED_RETENTION_S)},
        "error": {"S": "seen there"},
        "steps": {"S": DONE},
    },
    "reject": {
        "status": {"S": "rejected"},
        "expires_at": {"N": str(NOW_S + RETENTION_S)},
        "error": {"S": "seen there"},
        "not_before": None,
    },
}


def _never_expires(decision: Decision, status: Status) -> dict[str, Any]:
    """What is opened again after it was uncertain is not forgotten before it ends."""
    return {"expires_at": None} if (decision, status) == ("retry", Status.UNCERTAIN) else {}


TRANSITIONS = [
    Transition("the first step", "step", Status.PROCESSING, {}, _step(ODD), KEPT | {"steps": {"S": ODD}}),
    Transition(
        "a step that starts at most once",
        "step",
        Status.PROCESSING,
        {"steps": DONE},
        _step(OPEN, expires_at=None),
        {"steps": {"S": OPEN}, "expires_at": None},
    ),
    Transition(
        "the last step is taken out",
        "step",
        Status.PROCESSING,
        {"steps": DONE},
        _step(None),
        KEPT | {"steps": None},
    ),
    Transition(
        "a hold by the claimant, with steps",
        "hold",
        Status.PROCESSING,
        {"steps": OPEN, "went_stale": 1},
        _hold("theirs"),
        HELD,
    ),
    Transition(
        "a hold by a taker, with steps",
        "hold",
        Status.PROCESSING,
        {"steps": OPEN, "semantics": ONCE},
        _hold("taker", went_stale=1),
        HELD | {"claimant": {"S": "taker"}, "went_stale": {"N": "1"}},
    ),
    Transition("the sweep's mark", "mark_stale", Status.PROCESSING, {"steps": DONE}, _mark_stale, STALE),
    Transition("the sweep's mark, again stale", "mark_stale", Status.PROCESSING, {"went_stale": 1}, _mark_stale, STALE),
    *(
        Transition(
            f"{decision}, of one that is {status}",
            "resolve",
            status,
            {"steps": OPEN, "went_stale": 1},
            _resolve(decision, **({"result": {"id": 1}} if decision == "done" else {})),
            RESOLVED[decision] | {"claimant": {"S": "person"}} | _never_expires(decision, status),
        )
        for decision in get_args(Decision)
        for status in (Status.UNCERTAIN, Status.REJECTED, Status.FAILED)
    ),
    Transition(
        "retry, of one that starts at most once",
        "resolve",
        Status.UNCERTAIN,
        {"semantics": ONCE, "resolved_at": NOW - 1_000},
        _resolve("retry", steps={"charge": "ch_1"}),
        RESOLVED["retry"] | {"claimant": {"S": "person"}, "expires_at": None},
    ),
]
every_transition = pytest.mark.parametrize("transition", TRANSITIONS, ids=[each.name for each in TRANSITIONS])


def seen_of(backend: Backend, transition: Transition) -> Record:
    """Return the record that the transition starts from, on a key of its own."""
    return record_of(transition.status, backend.name(), **transition.seen)


def faulty(backend: Backend) -> tuple[Store, FaultyClient]:
    """Return the store on a client that loses and holds back."""
    seam = copy.copy(backend.seam)
    client = seam._client = FaultyClient(seam._client)
    return Store(seam, backend.table, OpenDeadline()), client


@every_transition
def test_it_changes_exactly_its_attributes_and_raises_the_version(backend: Backend, transition: Transition) -> None:
    """UNCHANGED met: what a later release wrote stays, and nothing else moves."""
    seen = backend.put(seen_of(backend, transition), **LATER)

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
def test_it_is_refused_when_the_record_is_not_what_was_seen(
    backend: Backend, transition: Transition, moved: dict[str, Any]
) -> None:
    """G2, each clause of UNCHANGED alone; the refusal shows the record."""
    seen = seen_of(backend, transition)
    stands = backend.put(replace(seen, **moved), **LATER)
    before = backend.item(seen.pk)

    assert transition.write(backend.store, seen) == Refused(stands)
    assert backend.item(seen.pk) == before


@every_transition
def test_it_is_refused_on_a_record_that_is_gone_and_makes_none(backend: Backend, transition: Transition) -> None:
    """G2: UpdateItem makes an item where there is none; UNCHANGED does not let it."""
    seen = seen_of(backend, transition)

    assert transition.write(backend.store, seen) == Refused(None)
    assert backend.item(seen.pk) is None


@every_transition
def test_it_is_ours_and_written_once_when_it_is_sent_twice(backend: Backend, transition: Transition) -> None:
    """G11: it recognises its own earlier arrival, and the version rises once."""
    seen = backend.put(seen_of(backend, transition), **LATER)

    first = transition.write(backend.store, seen)
    after = backend.item(seen.pk)

    assert transition.write(backend.store, seen) == first
    assert isinstance(first, Record)
    assert backend.item(seen.pk) == after


@every_transition
@pytest.mark.parametrize("change", [{"steps": '{"mail":{"result":1}}'}, {"lease_expires_at": NOW + 12_345}], ids=str)
def test_it_is_not_taken_for_another_write_of_the_same_claimant_and_version(
    backend: Backend, transition: Transition, change: dict[str, Any]
) -> None:
    """G11: the same claimant and the version being written are not enough: another step, or a renewal, has both."""
    seen = backend.put(seen_of(backend, transition))
    written = transition.write(backend.store, seen)
    assert isinstance(written, Record)
    other = backend.put(replace(written, **change))

    assert transition.write(backend.store, seen) == Refused(other)


@every_transition
@pytest.mark.parametrize(
    "fault", [FaultyClient.lose_response, FaultyClient.drop], ids=["applied, then lost", "never applied"]
)
def test_its_lost_response_is_recognised(backend: Backend, transition: Transition, fault: Any) -> None:
    """G11: sent again by the seam, it is ours; two requests, one write."""
    seen = backend.put(seen_of(backend, transition))
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
    seen = backend.put(seen_of(backend, transition))
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
    seen = backend.put(seen_of(backend, transition), **LATER)
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
    seen = backend.put(seen_of(backend, transition))
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
        transition.write(store, seen_of(backend, transition))


@pytest.mark.parametrize("loser", TRANSITIONS, ids=[each.name for each in TRANSITIONS])
def test_of_two_that_follow_one_record_the_later_is_refused(backend: Backend, loser: Transition) -> None:
    """G2: whatever came between: a renewal of the same claimant raises the version too."""
    seen = backend.put(seen_of(backend, loser))
    renewed = backend.store.renew(seen, lease_expires_at=NOW + 5)
    assert isinstance(renewed, Record)

    assert loser.write(backend.store, seen) == Refused(renewed)


def test_of_many_decisions_at_once_one_is_written(backend: Backend) -> None:
    """G2: persons, the sweep and a claimant, all of whom saw the same record, race: one of them wins."""
    seen = backend.put(record_of(Status.PROCESSING, backend.name(), steps=OPEN))
    writes: list[Callable[[Store, Record], Written]] = [
        _step(DONE),
        _hold("taker"),
        _mark_stale,
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
