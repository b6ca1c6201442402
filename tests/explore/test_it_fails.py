"""The explorer finds what it is there for: each rule of the protocol weakened, and the wrong consumers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from explore.by_hand import RIGHT, WRONG
from explore.explorer import Explorer
from explore.jobs import plays
from explore.outside import RELAY
from explore.rerun import Rerun
from explore.space import Play, Used
from gallery import jobs
from onceq import claim, outbox, settling, store
from onceq.decision import Busy, Request, TakeOver
from onceq.errors import StoreUnavailable
from onceq.outcome import Answer, Deferred, answer_of
from onceq.relay import Relay
from onceq.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLAYS = {play.name: play for play in plays()}
Patch = pytest.MonkeyPatch


def with_(play: Play, **used: int) -> Play:
    """Return a play in which the world may do no more than that."""
    return replace(play, used=Used(**used))


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


def renews_without_version(patch: Patch) -> None:
    """A renewal asks for the claimant alone."""

    def renew(self: Any, own: Any, *, lease_expires_at: int) -> Any:
        new = replace(own, version=own.version + 1, lease_expires_at=lease_expires_at)
        return self._update(own, new, "claimant = :claimant", {"claimant": own.claimant})

    patch.setattr(store.Store, "renew", renew)


def renews_without_owner(patch: Patch) -> None:
    """A renewal asks for the version alone."""

    def renew(self: Any, own: Any, *, lease_expires_at: int) -> Any:
        new = replace(own, version=own.version + 1, lease_expires_at=lease_expires_at)
        return self._update(own, new, "version <= :version", {"version": own.version + 1})

    patch.setattr(store.Store, "renew", renew)


def recognises_by_claimant_and_version(patch: Patch) -> None:
    """A refused write is taken for ours if claimant and version are right, whatever else stands there."""

    def refused(new: Any, item: Any) -> Any:
        seen = type(new).from_item(item) if item else None
        same = seen is not None and (seen.claimant, seen.version) == (new.claimant, new.version)
        return new if same else store.Refused(seen)

    patch.setattr(store, "_refused", refused)


def follows_no_earlier_write(patch: Patch) -> None:
    """A renewal of unknown outcome is forgotten."""
    patch.setattr(claim.Claim, "_is_own_earlier_write", lambda _self, _seen: False)


def completes_without_owner(patch: Patch) -> None:
    """A completion asks whether the job is being processed, and not by whom."""

    def complete(self: Any, own: Any, **end: Any) -> Any:
        new, values = store.completed(own, own.claimant, **end), {"processing": "processing"}
        return self._update(own, new, "#status = :processing", values, status="status")

    patch.setattr(store.Store, "complete", complete)


def takes_silence_for_success(patch: Patch) -> None:
    """A completion that nobody answered counts as written."""
    complete = claim.Claim.complete

    def believing(self: Any, now_ms: int, result: Any, others: Any = ()) -> Any:
        try:
            return complete(self, now_ms, result, others)
        except StoreUnavailable:
            return store.completed(self.record, self.record.claimant, now_ms, 1, result)

    patch.setattr(claim.Claim, "complete", believing)


def marks_before_it_sends(patch: Patch) -> None:
    """An entry is marked first, so that nobody sends it twice."""
    send = Relay._send

    def marking(self: Any, entries: Any) -> Any:
        self._mark(entries, {entry.pk: "to be sent" for entry in entries}, {})
        return send(self, entries)

    patch.setattr(Relay, "_send", marking)


def relay_marks_what_it_finds(patch: Patch) -> None:
    """The relay marks what it finds, so that no other sends it beside it."""
    send_page = Relay._send_page

    def marking(self: Any, page: Any, done: Any) -> None:
        self._mark(page, {entry.pk: "to be sent" for entry in page}, {})
        send_page(self, page, done)

    patch.setattr(Relay, "_send_page", marking)


def marks_whatever_was_sent(patch: Patch) -> None:
    """A mark does not ask whether the entry waits."""
    patch.setattr(outbox, "PENDING", "#status <> :pending OR #status = :pending")


def renews_in_vain_who_took_over(patch: Patch) -> None:
    """Of who took a job over the lease that it claimed counts, and no later write, as a renewal is one."""
    decide = claim.decide

    def deciding(record: Any, request: Any, now_ms: int) -> Any:
        decision = decide(record, request, now_ms)
        wrote = record.attempts > 1 and record.version > record.attempts  # by then each attempt has written once
        return TakeOver(record.attempts + 1) if isinstance(decision, Busy) and wrote else decision

    patch.setattr(claim, "decide", deciding)


def relay_counts_on_being_alone(patch: Patch) -> None:
    """The relay alone sends, so that its mark need not ask whether the entry waits."""
    patch.setattr(Relay, "send", lambda _self, _entries: {})
    marks_whatever_was_sent(patch)


def commits_one_write_after_the_other(patch: Patch) -> None:
    """A job's own writes follow its completion, each by itself."""

    def transact(table: Any, items: Any, _token: str) -> None:
        for item in items:
            table.dynamodb.call("UpdateItem", item["Update"], table.deadline)

    patch.setattr(store, "transact", transact)


NO_FAULT, EXPIRY, CRASH, LOSS = Used(), Used(expiries=1), Used(crashes=1), Used(losses=1)
# What renewals, late writes, silence or the relay alone find: the play that shows it, and the nearest without them.
STEP, RENEWED = PLAYS["one step"], PLAYS["renewals"]
RELAYED = replace(PLAYS["relay"], messages=("m1", RELAY), used=EXPIRY)
NOT_RELAYED = replace(RELAYED, messages=("m1", "m1"), used=NO_FAULT)
ACKNOWLEDGED = "G4: m1 was acknowledged, and its job has not ended"
THROUGH: list[tuple[Callable[[Patch], None], Play, str, Play]] = [
    (unchanged_without_version, with_(STEP, late=1), "G3: a completed record was changed", with_(STEP)),
    (takes_silence_for_success, with_(STEP, late=1), ACKNOWLEDGED, with_(STEP, crashes=1)),
    (
        renews_without_version,
        with_(RENEWED, late=1, renewals=1),
        "G3: a completed record was changed",
        with_(RENEWED, late=1),
    ),
    (
        renews_without_owner,
        with_(RENEWED, expiries=1, renewals=1),
        "G2: w1 wrote over a record of w2",
        with_(RENEWED, renewals=1),
    ),
    (recognises_by_claimant_and_version, with_(RENEWED, losses=1, renewals=1), ACKNOWLEDGED, with_(RENEWED, losses=1)),
    (
        follows_no_earlier_write,
        with_(RENEWED, losses=1, renewals=1),
        "G2: a claim was given up that nobody took",
        with_(RENEWED, losses=1),
    ),
    (relay_marks_what_it_finds, RELAYED, "G8: an entry was marked that nobody has sent", NOT_RELAYED),
    (marks_whatever_was_sent, RELAYED, "G8: an entry was changed that is sent", NOT_RELAYED),
]
# What a third worker, or a second relay, alone finds: the play with one worker more, and the nearest without it.
ONE_PREEMPTION = 1
RENEWED_ONCE = with_(RENEWED, expiries=1, renewals=1)
# Nothing is sent where it was committed, if the rule is weakened so.
ONE_RELAY = replace(RELAYED, before=("m1",), messages=(RELAY,))
ONE_MORE: list[tuple[Callable[[Patch], None], Play, str, list[Play]]] = [
    (
        renews_in_vain_who_took_over,
        replace(RENEWED_ONCE, messages=("m1", "m1", "m1")),
        "G2: w3 wrote over a record of w1",
        [RENEWED_ONCE, with_(RENEWED.with_one_more(), expiries=1)],
    ),
    (
        relay_counts_on_being_alone,
        ONE_RELAY.with_one_more(),
        "G8: an entry was changed that is sent",
        [ONE_RELAY],
    ),
]
# The other plays with a third worker beside renewals.
THIRD = [
    *(
        (renews_in_vain_who_took_over, with_(PLAYS[name].with_one_more(), expiries=1, renewals=1))
        for name in ("renewals and a step", "renewals and a lock", "renewals and an at-most-once step")
    ),
    (follows_no_earlier_write, PLAYS["renewals overtake"].with_one_more()),
]
WEAKENED: list[tuple[Callable[[Patch], None], str, Used, str]] = [
    (unchanged_without_anything, "plain", EXPIRY, "G3: a completed record was changed"),
    (free_at_any_age, "plain", NO_FAULT, "G3: a completed record was changed"),
    (free_whatever_there_is, "plain", NO_FAULT, "G2: w2 wrote over a record of w1"),
    (completes_without_owner, "plain", EXPIRY, "G2: w1 wrote under the token w2"),
    (marks_before_it_sends, "outbox", NO_FAULT, "G8: an entry was marked that nobody has sent"),
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

    shown = picture_of(replace(PLAYS[name], used=used), rule)

    assert "w1" in shown
    assert "w2" in shown


@pytest.mark.parametrize(("weaken", "play", "rule", "without"), THROUGH, ids=[one[0].__name__ for one in THROUGH])
def test_what_one_kind_of_move_alone_finds(
    weaken: Callable[[Patch], None], play: Play, rule: str, without: Play, monkeypatch: Patch
) -> None:
    """No kind of move is idle: renewals, late writes, silence and the relay each find what nothing else does."""
    weaken(monkeypatch)

    shown = picture_of(play, rule)

    assert any(
        told in shown for told in ("renew the lease", "the delayed request arrives", "the response is lost", RELAY)
    )
    assert Explorer(without).explore().found == {}


@pytest.mark.parametrize(("weaken", "play", "rule", "without"), ONE_MORE, ids=[one[0].__name__ for one in ONE_MORE])
def test_what_one_worker_more_alone_finds(
    weaken: Callable[[Patch], None], play: Play, rule: str, without: list[Play], monkeypatch: Patch
) -> None:
    """Neither a third worker beside renewals is idle, nor a second relay: each finds what is not found without it."""
    weaken(monkeypatch)

    shown = picture_of(play, rule, ONE_PREEMPTION)

    assert all(worker in shown for worker in play.workers)
    for one in without:
        assert Explorer(one, ONE_PREEMPTION).explore().found == {}


@pytest.mark.parametrize(("weaken", "play"), THIRD, ids=[play.name for _, play in THIRD])
def test_a_third_worker_beside_renewals_finds_a_weakened_rule(
    weaken: Callable[[Patch], None], play: Play, monkeypatch: Patch
) -> None:
    """No such play passes whatever the rules are."""
    weaken(monkeypatch)

    assert "w1" in picture_of(play, "G2: ", ONE_PREEMPTION)


@pytest.fixture
def restored() -> Iterator[None]:
    """Give the gallery's jobs their own gateway back, which a play replaces."""
    before = dict(vars(jobs))
    yield
    vars(jobs).update(before)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(("play", "rule"), WRONG, ids=[play.name for play, _ in WRONG])
def test_a_wrong_consumer_is_found(play: Play, rule: str) -> None:
    """Each mistake of the gallery that depends on timing has a schedule that shows it, a lane for each worker."""
    shown = picture_of(play, rule)

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


def picture_of(play: Play, rule: str, bound: int | None = None) -> str:
    """Return the lanes of the shortest schedule that breaks a promise, as real workers run it."""
    found = Explorer(play, bound).explore(until=[rule]).found
    schedule = next((choices for broken, choices in found.items() if broken.startswith(rule)), None)
    assert schedule is not None, f"nothing breaks {rule!r} in {play.name}, but: {[*found]}"
    rerun = Rerun(play)
    rerun.run(schedule)
    return rerun.timeline.lanes()
