"""The explorer finds what it is there for: each rule of the protocol weakened, and the wrong consumers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from explore.by_hand import RIGHT, WRONG
from explore.explorer import Explorer
from explore.jobs import plays
from explore.rerun import Rerun
from explore.space import Play, Used
from onceq import claim, settling, store
from onceq.decision import Busy, Request, TakeOver
from onceq.outcome import Answer, Deferred, answer_of
from onceq.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

PLAYS = {play.name: play for play in plays()}
Patch = pytest.MonkeyPatch


def unchanged_without_version(patch: Patch) -> None:
    """A write asks for the claimant alone."""
    patch.setattr(store, "UNCHANGED", "claimant = :claimant")


def unchanged_without_anything(patch: Patch) -> None:
    """A write asks only for a record."""
    patch.setattr(store, "UNCHANGED", "version > version OR attempts > :version OR attempts <= :version")


def free_at_any_age(patch: Patch) -> None:
    """What has ended is free at once."""
    patch.setattr(store, "FREE", "attribute_not_exists(pk) OR #status IN (:completed, :rejected)")


def free_whatever_there_is(patch: Patch) -> None:
    """A first claim asks for nothing."""
    patch.setattr(store, "FREE", "attribute_not_exists(nothing)")


def completes_whatever_was_refused(patch: Patch) -> None:
    """A completion that was refused counts as written."""
    complete = store.Store.complete

    def ignoring(self: Any, own: Any, **end: Any) -> Any:
        answer = complete(self, own, **end)
        return store.completed(own, own.claimant, **end) if isinstance(answer, store.Refused) else answer

    patch.setattr(store.Store, "complete", ignoring)


def takes_over_under_the_old_token(patch: Patch) -> None:
    """A taker goes on under the token of whom it replaces."""
    following = Request.next
    patch.setattr(Request, "next", lambda self, seen, _token, *rest: following(self, seen, seen.claimant, *rest))


def recognises_by_the_version(patch: Patch) -> None:
    """A refused write is taken for ours if the version is right."""

    def refused(new: Any, item: Any) -> Any:
        seen = type(new).from_item(item) if item else None
        return new if seen is not None and seen.version == new.version else store.Refused(seen)

    patch.setattr(store, "_refused", refused)


def recognises_nothing(patch: Patch) -> None:
    """A refused write is never taken for ours."""
    patch.setattr(store, "_refused", lambda new, item: store.Refused(type(new).from_item(item) if item else None))


def takes_over_who_is_busy(patch: Patch) -> None:
    """Nobody waits for a lease."""
    decide = claim.decide

    def deciding(record: Any, request: Any, now_ms: int) -> Any:
        decision = decide(record, request, now_ms)
        return TakeOver(record.attempts + 1) if isinstance(decision, Busy) else decision

    patch.setattr(claim, "decide", deciding)


def forgets_what_starts_once(patch: Patch) -> None:
    """What went stale is run again, whatever its semantics."""
    patch.setattr(claim, "_starts_once", lambda _record, _request: False)


def forgets_its_steps(patch: Patch) -> None:
    """A recorded step is not looked up."""
    patch.setattr(Steps, "_begin", lambda _self, _name, _semantics: None)


def acknowledges_who_is_busy(patch: Patch) -> None:
    """A message whose job somebody else runs is acknowledged."""

    def answering(outcome: Any, now_ms: int, jitter: float) -> Any:
        answer = answer_of(outcome, now_ms, jitter)
        return Answer(keep=False, visible_in=None) if isinstance(outcome, Deferred) else answer

    patch.setattr(settling, "answer_of", answering)


def commits_one_write_after_the_other(patch: Patch) -> None:
    """A job's own writes follow its completion, each by itself."""

    def transact(table: Any, items: Any, _token: str) -> None:
        for item in items:
            table.dynamodb.call("UpdateItem", item["Update"], table.deadline)

    patch.setattr(store, "transact", transact)


NO_FAULT, EXPIRY, CRASH, LOSS = Used(), Used(expiries=1), Used(crashes=1), Used(losses=1)
WEAKENED: list[tuple[Callable[[Patch], None], str, Used, str]] = [
    (unchanged_without_version, "one step", Used(late=1), "G3: a completed record was changed"),
    (unchanged_without_anything, "plain", EXPIRY, "G3: a completed record was changed"),
    (free_at_any_age, "plain", NO_FAULT, "G3: a completed record was changed"),
    (free_whatever_there_is, "plain", NO_FAULT, "G2: w2 wrote over a record of w1"),
    (completes_whatever_was_refused, "plain", EXPIRY, "G2: a claimant whose write was refused"),
    (takes_over_under_the_old_token, "plain", EXPIRY, "G2: w1 wrote under the token w2"),
    (recognises_by_the_version, "plain", NO_FAULT, "G1: two claimants run at once"),
    (recognises_nothing, "plain", LOSS, "G11: a worker took its own write"),
    (takes_over_who_is_busy, "plain", NO_FAULT, "G2: w2 wrote over a record of w1"),
    (forgets_what_starts_once, "at-most-once job", EXPIRY, "G9: an at-most-once job was started twice"),
    (acknowledges_who_is_busy, "plain", NO_FAULT, "G4: m1 was acknowledged, and its job has not ended"),
    (commits_one_write_after_the_other, "transaction", CRASH, "G7: 0 bookings for one completion"),
    (forgets_its_steps, "one step", CRASH, "G6: the recorded step charge was run again"),
]


@pytest.mark.parametrize(("weaken", "name", "used", "rule"), WEAKENED, ids=[one[0].__name__ for one in WEAKENED])
def test_a_weakened_rule_is_found(
    weaken: Callable[[Patch], None], name: str, used: Used, rule: str, monkeypatch: Patch
) -> None:
    """Each rule of claim and store is there for a reason: without it some schedule breaks a promise, and is shown."""
    weaken(monkeypatch)
    play = replace(PLAYS[name], used=used)
    found = Explorer(play).explore(until=[rule]).found

    schedule = next(choices for broken, choices in found.items() if broken.startswith(rule))
    shown = picture(play, schedule)
    assert "w1" in shown
    assert "w2" in shown


@pytest.mark.parametrize("weaken", [unchanged_without_version, recognises_by_the_version], ids=lambda one: one.__name__)
def test_nothing_is_found_where_the_rule_stands(weaken: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """The same plays pass unweakened, so what is found above is found for the weakening."""
    (_, name, used, _) = next(one for one in WEAKENED if one[0] is weaken)

    assert Explorer(replace(PLAYS[name], used=used)).explore().found == {}


@pytest.mark.parametrize(("play", "rule"), WRONG, ids=[play.name for play, _ in WRONG])
def test_a_wrong_consumer_is_found(play: Play, rule: str) -> None:
    """Each mistake of the gallery that depends on timing has a schedule that shows it, a lane for each worker."""
    found = Explorer(play).explore(until=[rule]).found

    schedule = next(choices for broken, choices in found.items() if broken.startswith(rule))
    shown = picture(play, schedule)
    assert "w1" in shown
    assert "w2" in shown
    times = re.search(r"happened (\d) times", rule)
    assert times is None or shown.count("effect: charge") == int(times[1])


@pytest.mark.parametrize("play", RIGHT, ids=lambda play: play.name)
def test_a_right_consumer_passes(play: Play) -> None:
    """A consumer that is right is right in every schedule, however unlike the framework it is written."""
    result = Explorer(play).explore()

    assert result.found == {}
    assert result.schedules > 100


def picture(play: Play, schedule: Any) -> str:
    """Return the lanes of a schedule, as real workers run it."""
    rerun = Rerun(play)
    rerun.run(schedule)
    return rerun.timeline.lanes()
