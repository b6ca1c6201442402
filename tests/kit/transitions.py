"""Every write on `UNCHANGED`, as data: what stands, how it is written, and what then stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from kit.claims import NOW, RETENTION_S, record_of
from onceq.codec import ResultNotStored
from onceq.decision import UNENDED_RETENTION_S
from onceq.record import Record, Semantics, Status
from onceq.resolving import Decision, Resolution, decided

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceq.store import Refused, Store

    Written = Record | Refused[Record]

NOW_S = NOW // 1000
# What a later release wrote beside: no write of ours touches it.
LATER = {"plan": {"M": {"charge": {"S": "done"}}}, "trace": {"S": "of a later release"}}
LATER_S = NOW_S + 7_777
ONCE = Semantics.AT_MOST_ONCE
ODD = '{"charge":{"result":["","\\u0000","😀",1e22,null]}}'
DONE = '{"charge":{"result":"ch_1"}}'
OPEN = '{"call":{"started":1},"charge":{"result":"ch_1"}}'


@dataclass(frozen=True)
class Transition:
    """A write on UNCHANGED.

    Args:
        name: What it is.
        seen: What stands, beside what `record_of` makes.
        write: How it is written.
        changes: What then stands otherwise, but the version; ``None`` is gone.
        kind: Its name in `kit.faults`.
    """

    name: str
    seen: Mapping[str, Any]
    write: Callable[[Store, Record], Written]
    changes: Mapping[str, Any]
    kind: str = ""

    def record(self, key: str) -> Record:
        """Return the record that it starts from, on that key."""
        return record_of(key=key, **self.seen)


def take_over(store: Store, seen: Record) -> Written:
    """Take the record over."""
    new = replace(
        seen,
        status=Status.PROCESSING,
        claimant="ours",
        version=seen.version + 1,
        fencing_token=NOW,
        attempts=seen.attempts + 1,
        lease_expires_at=NOW + 7,
        not_before=None,
        message_id="m-1",
    )
    return store.take_over(seen, new)


CLAIMS = [
    Transition(
        "take over a failed one",
        {"status": Status.FAILED, "not_before": NOW - 1, "error": "ValueError"},
        take_over,
        {
            "status": {"S": "processing"},
            "claimant": {"S": "ours"},
            "fencing_token": {"N": str(NOW)},
            "attempts": {"N": "3"},
            "lease_expires_at": {"N": str(NOW + 7)},
            "not_before": None,
            "message_id": {"S": "m-1"},
        },
    ),
    Transition(
        "take over a stale one",
        {"lease_expires_at": NOW - 20_000},
        take_over,
        {
            "claimant": {"S": "ours"},
            "fencing_token": {"N": str(NOW)},
            "attempts": {"N": "3"},
            "lease_expires_at": {"N": str(NOW + 7)},
            "message_id": {"S": "m-1"},
        },
    ),
    Transition(
        "complete",
        {"error": "of an earlier attempt"},
        lambda store, seen: store.complete(seen, now_ms=NOW, expires_at=NOW_S + 60, result='{"a":"é\\u0000"}'),
        {
            "status": {"S": "completed"},
            "completed_at": {"N": str(NOW)},
            "expires_at": {"N": str(NOW_S + 60)},
            "result": {"S": '{"a":"é\\u0000"}'},
            "lease_expires_at": None,
            "error": None,
        },
    ),
    Transition(
        "complete without a result",
        {},
        lambda store, seen: store.complete(seen, now_ms=NOW, expires_at=NOW_S + 60, result=ResultNotStored("large")),
        {
            "status": {"S": "completed"},
            "completed_at": {"N": str(NOW)},
            "expires_at": {"N": str(NOW_S + 60)},
            "result_not_stored": {"S": "large"},
            "lease_expires_at": None,
        },
    ),
    Transition(
        "release",
        {},
        lambda store, seen: store.release(
            seen, not_before=NOW + 9, expires_at=NOW_S + 60, error="ValueError", attempts=1
        ),
        {
            "status": {"S": "failed"},
            "not_before": {"N": str(NOW + 9)},
            "expires_at": {"N": str(NOW_S + 60)},
            "error": {"S": "ValueError"},
            "attempts": {"N": "1"},
            "lease_expires_at": None,
        },
    ),
    Transition(
        "reject",
        {},
        lambda store, seen: store.reject(seen, claimant="taker", expires_at=NOW_S + 60, error="no"),
        {
            "status": {"S": "rejected"},
            "claimant": {"S": "taker"},
            "expires_at": {"N": str(NOW_S + 60)},
            "error": {"S": "no"},
            "lease_expires_at": None,
        },
    ),
    Transition(
        "reject a failed one",
        {"status": Status.FAILED, "not_before": NOW - 1, "lease_expires_at": None},
        lambda store, seen: store.reject(seen, claimant="taker", expires_at=NOW_S + 60, error="no"),
        {
            "status": {"S": "rejected"},
            "claimant": {"S": "taker"},
            "expires_at": {"N": str(NOW_S + 60)},
            "error": {"S": "no"},
            "not_before": None,
        },
    ),
    Transition(
        "hold",
        {"semantics": Semantics.AT_MOST_ONCE},
        lambda store, seen: store.hold(seen, claimant="taker", error="who knows"),
        {
            "status": {"S": "uncertain"},
            "claimant": {"S": "taker"},
            "expires_at": None,
            "error": {"S": "who knows"},
            "lease_expires_at": None,
        },
    ),
    Transition(
        "renew",
        {},
        lambda store, seen: store.renew(seen, lease_expires_at=NOW + 99),
        {"lease_expires_at": {"N": str(NOW + 99)}},
    ),
]


def _effect(  # noqa: PLR0917 - the columns of a table
    name: str,
    kind: str,
    status: Status,
    seen: Mapping[str, Any],
    write: Callable[[Store, Record], Written],
    changes: Mapping[str, Any],
) -> Transition:
    return Transition(name, {"status": status, **seen}, write, changes, kind)


def step(text: str | None, *, expires_at: int | None = LATER_S) -> Callable[[Store, Record], Written]:
    """Return the write of that text."""
    return lambda store, own: store.step(own, steps=text, expires_at=expires_at)


def hold(claimant: str, went_stale: int | None = None) -> Callable[[Store, Record], Written]:
    """Return a hold under that token."""
    return lambda store, seen: store.hold(seen, claimant=claimant, error="who knows", went_stale=went_stale)


def mark_stale(store: Store, seen: Record) -> Written:
    """Mark it as the sweep does."""
    return store.mark_stale(seen, claimant="sweep", now_ms=NOW, error="it never ended")


def resolve(decision: Decision, **options: Any) -> Callable[[Store, Record], Written]:
    """Return the write of a person's decision."""

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


EFFECTS = [
    _effect("the first step", "step", Status.PROCESSING, {}, step(ODD), KEPT | {"steps": {"S": ODD}}),
    _effect(
        "a step that starts at most once",
        "step",
        Status.PROCESSING,
        {"steps": DONE},
        step(OPEN, expires_at=None),
        {"steps": {"S": OPEN}, "expires_at": None},
    ),
    _effect(
        "the last step is taken out",
        "step",
        Status.PROCESSING,
        {"steps": DONE},
        step(None),
        KEPT | {"steps": None},
    ),
    _effect(
        "a hold by the claimant, with steps",
        "hold",
        Status.PROCESSING,
        {"steps": OPEN, "went_stale": 1},
        hold("theirs"),
        HELD,
    ),
    _effect(
        "a hold by a taker, with steps",
        "hold",
        Status.PROCESSING,
        {"steps": OPEN, "semantics": ONCE},
        hold("taker", went_stale=1),
        HELD | {"claimant": {"S": "taker"}, "went_stale": {"N": "1"}},
    ),
    _effect("the sweep's mark", "mark_stale", Status.PROCESSING, {"steps": DONE}, mark_stale, STALE),
    _effect("the sweep's mark, again stale", "mark_stale", Status.PROCESSING, {"went_stale": 1}, mark_stale, STALE),
    *(
        _effect(
            f"{decision}, of one that is {status}",
            "resolve",
            status,
            {"steps": OPEN, "went_stale": 1},
            resolve(decision, **({"result": {"id": 1}} if decision == "done" else {})),
            RESOLVED[decision] | {"claimant": {"S": "person"}} | _never_expires(decision, status),
        )
        for decision in get_args(Decision)
        for status in (Status.UNCERTAIN, Status.REJECTED, Status.FAILED)
    ),
    _effect(
        "retry, of one that starts at most once",
        "resolve",
        Status.UNCERTAIN,
        {"semantics": ONCE, "resolved_at": NOW - 1_000},
        resolve("retry", steps={"charge": "ch_1"}),
        RESOLVED["retry"] | {"claimant": {"S": "person"}, "expires_at": None},
    ),
]
