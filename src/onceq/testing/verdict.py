"""What is wrong with a run: pure functions from its facts to findings, each with a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from onceq.codec import encode_result
from onceq.errors import Retry, Snooze
from onceq.record import Status
from onceq.testing.timeline import Kind
from onceq.testing.trial import TRANSACTION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onceq.record import Record
    from onceq.testing.subject import Return, Start
    from onceq.testing.timeline import Entry
    from onceq.testing.trial import Done, Run

RESULT_LIMIT = 400_000


class Diagnosis(StrEnum):
    """What is wrong, in the order in which one is named before another: the nearest to the cause first."""

    KEPT_IN_MEMORY = "the job remembers in its process: a warm one does something else than a fresh one"
    FALSY_RESULT = "a result that is false counts as none, so the job runs again"
    CHECK_THEN_ACT = "check, then act: nothing is claimed by a conditional write before the effect"
    EFFECT_BEFORE_CLAIM = "the effect comes before the claim"
    LOST_AFTER_COMPLETION = "the effect comes after the completion: a crash between the two loses it"
    LOCK_ONLY = "a lock alone: nothing remembers that the job is done"
    RELEASED_BY_ANOTHER = "a claim is deleted by a worker that does not hold it any more"
    COMPLETED_BY_ANOTHER = "a record is written by a worker that does not hold the claim any more"
    KEY_RANDOM = "the downstream key is made of something random, so that every attempt has another"
    KEY_SHARED = "two different jobs have one downstream key, so that the second has no effect"
    KEY_WITH_OTHER_ARGUMENTS = "one downstream key came with other arguments: a provider refuses the second call"
    KEY_FROM_MESSAGE_ID = "the key is made of the message id, which every send and every redrive changes"
    KEY_FROM_SEND = "the key is made of when the message was sent, so that a second send has another"
    KEY_FROM_TIME = "the key is made of the time, so that a later attempt has another"
    KEY_FROM_ATTEMPT = "the downstream key changes from one attempt to the next"
    OUTSIDE_STEP = "an effect outside a step, without a downstream key: every further attempt repeats it"
    NO_DOWNSTREAM_KEY = "an effect without a downstream key: a crash between it and its record repeats it"
    NO_EFFECT = "acknowledged without its effect"
    STARTED_AGAIN = "a job that had ended was run again"
    STARTED_TWICE = "what may start at most once was started twice"
    TWO_AT_ONCE = "two workers ran the job at once, and neither lease was over"
    TWICE = "an effect happened more than once"
    TOO_FEW = "an effect is missing"
    NOT_COMPLETED = "the job is not completed"
    COMPLETED_TWICE = "the job was completed more than once"
    RESULT_DIFFERS = "the stored result is not the one that the job returned"
    NEVER_SETTLED = "the message never comes to an end"
    OTHER_PATH = "the job takes another path from one run to the next, so that it cannot be proved"
    NOTHING_COUNTED = "nothing was counted: say with effects= what the job does outside"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a run.

    Args:
        diagnosis: What is wrong.
        evidence: What shows it, in one sentence.
    """

    diagnosis: Diagnosis
    evidence: str


@dataclass(frozen=True)
class Hints:
    """What undisturbed runs told, in which only one thing was different.

    Args:
        expected: How many effects of each name one job has.
        varies: What the downstream keys and the keys of items changed with.
        forgotten: Whether the effect was missing when the job ran in the same process once more.
        falsy: Whether the job's results are false in this run.
        after_completion: Whether an effect comes after the last write.
        claims: Whether anything was written beside the effects.
        remembers: Whether anything stands in the consumer's own table when it is done; ``None`` for onceq's.
    """

    expected: Mapping[str, int] = field(default_factory=dict)
    varies: tuple[Diagnosis, ...] = ()
    forgotten: bool = False
    falsy: bool = False
    after_completion: bool = False
    claims: bool = True
    remembers: bool | None = None


def findings_of(run: Run, hints: Hints, *, starts_once: bool) -> list[Finding]:
    """Say what is wrong with a run, the nearest to the cause first.

    Args:
        run: Its facts.
        hints: What undisturbed runs told.
        starts_once: Whether the job as a whole may start at most once.
    """
    is_onceq = hints.remembers is None
    found = [*_effects(run, hints)]
    if is_onceq:
        found += [*_records(run, hints, starts_once=starts_once), *_results(run)]
    else:
        found += [*_overwritten(run), *_started_again(run, hints)]
    found += [*_at_once(run, hints)]
    again = sum(isinstance(returned.error, Retry | Snooze) for returned in run.seen.returns)
    if starts_once and len(run.seen.starts) > run.jobs + again:
        found.append(Finding(Diagnosis.STARTED_TWICE, f"{len(run.seen.starts)} starts"))
    unsettled = run.left or run.stranded
    if run.error is not None or unsettled:
        names = ", ".join(letter.name for letter in unsettled) or "the message"
        found.append(Finding(Diagnosis.NEVER_SETTLED, f"{names} comes back again and again{_raised(run)}"))
    found += [Finding(Diagnosis.KEY_WITH_OTHER_ARGUMENTS, name) for name in run.differing]
    if run.strayed:
        found.append(Finding(Diagnosis.OTHER_PATH, "it did not come by the point where something was to go wrong"))
    order = [*Diagnosis]
    return sorted(dict.fromkeys(found), key=lambda finding: order.index(finding.diagnosis))


def by_memory(findings: list[Finding]) -> list[Finding]:
    """Say of what is wrong in a warm process alone, and not in fresh ones, that it comes of what that remembers."""
    return [Finding(Diagnosis.KEPT_IN_MEMORY, f"{one.evidence}: {one.diagnosis}") for one in findings]


def _raised(run: Run) -> str:
    """Return what the invocations failed with."""
    said = [entry.what for entry in run.timeline.entries if entry.kind is Kind.RAISE]
    return f": {'; '.join(dict.fromkeys(said))}" if said else ""


# ----------------------------------------------------------------------------------------------------------- effects


def _effects(run: Run, hints: Hints) -> Iterator[Finding]:
    for name in dict.fromkeys([*hints.expected, *(effect.name for effect in run.effects)]):
        each, got = hints.expected.get(name, 0), run.distinct(name)
        if got > each * run.jobs:
            yield _too_many(run, hints, name, each * run.jobs)
        elif run.kept(name) < each * (run.jobs - _excused(run)):
            yield _too_few(run, hints, name, each * run.jobs)


def _excused(run: Run) -> int:
    """Return for how many of the jobs an effect may be missing: a person decides about them, or redrives them."""
    ended = sum(record.status in (Status.UNCERTAIN, Status.REJECTED) for record in run.records)
    return max(ended, run.given_up) if run.troubled else 0


def _too_many(run: Run, hints: Hints, name: str, expected: int) -> Finding:
    done = [effect for effect in run.effects if effect.name == name]
    evidence = f"{name}: {run.distinct(name)} times instead of {expected}"
    if hints.falsy:
        return Finding(Diagnosis.FALSY_RESULT, evidence)
    keys = list(dict.fromkeys(effect.key for effect in done))
    if len(keys) > 1 and None not in keys:
        told = f"{evidence}, with the keys {keys[0]} and {keys[1]}"
        return Finding((*hints.varies, Diagnosis.KEY_FROM_ATTEMPT)[0], told)
    if hints.remembers is None:
        return Finding(_of_a_job(run, hints, done), evidence)
    return Finding(_of_a_consumer(run, hints, done), evidence)


def _of_a_job(run: Run, hints: Hints, done: list[Done]) -> Diagnosis:
    if hints.varies and len(run.records) > run.jobs:
        return hints.varies[0]
    if done[0].once:
        return Diagnosis.STARTED_TWICE
    if not done[0].at or done[0].name == TRANSACTION:
        return Diagnosis.TWICE
    return Diagnosis.NO_DOWNSTREAM_KEY if done[0].in_step else Diagnosis.OUTSIDE_STEP


def _of_a_consumer(run: Run, hints: Hints, done: list[Done]) -> Diagnosis:
    """Say why an effect without a key was repeated, by what its workers had written before it."""
    if hints.varies:
        return hints.varies[0]
    first = next((effect for effect in done if effect.at), None)
    if first is not None:
        before = [one for one in run.timeline.entries[: first.at] if one.worker == first.worker and one.call]
        claims = [one for one in before if one.call and one.call.is_write and one.call.is_conditional and one.landed]
        if not claims:
            looked = any(one.call and one.call.operation in ("GetItem", "Query") for one in before)
            wrote = any(one.call and one.call.is_write for one in before)
            return Diagnosis.CHECK_THEN_ACT if looked or wrote else Diagnosis.EFFECT_BEFORE_CLAIM
    if hints.remembers is False:
        return Diagnosis.LOCK_ONLY
    return next((one.diagnosis for one in _overwritten(run)), Diagnosis.NO_DOWNSTREAM_KEY)


def _too_few(run: Run, hints: Hints, name: str, expected: int) -> Finding:
    evidence = f"{name}: {run.kept(name)} times instead of {expected}{_raised(run)}"
    if hints.forgotten:
        return Finding(Diagnosis.KEPT_IN_MEMORY, evidence)
    if run.jobs > 1 and run.repeated:
        return Finding(Diagnosis.KEY_SHARED, evidence)
    if hints.after_completion:
        return Finding(Diagnosis.LOST_AFTER_COMPLETION, evidence)
    # What lies in the dead-letter queue for a job that is excused is not the one whose effect is missing.
    acknowledged = not run.left and len({letter.body for letter in run.dead}) <= _excused(run)
    return Finding(Diagnosis.NO_EFFECT if acknowledged else Diagnosis.TOO_FEW, evidence)


# ------------------------------------------------------------------------------------------------- records and results


def _records(run: Run, hints: Hints, *, starts_once: bool) -> Iterator[Finding]:
    wrong = [record for record in run.records if not _may_stand(record, run, starts_once=starts_once)]
    for record in wrong:
        said = f": {record.error}" if record.error else ""
        yield Finding(Diagnosis.NOT_COMPLETED, f"{record.pk} is {record.status}{said}")
    if len(run.records) > run.jobs:
        told = f"{len(run.records)} records for {run.jobs} job{'s' * (run.jobs > 1)}"
        yield Finding((*hints.varies, Diagnosis.COMPLETED_TWICE)[0], told)
    if len(run.records) < run.jobs:
        why = [_reason(event) for _, event in run.seen.events if event.name in ("message.refused", "message.unserved")]
        yield Finding(Diagnosis.NOT_COMPLETED, f"{len(run.records)} records: {'; '.join(dict.fromkeys(why))}")
    for record in run.records:
        landed = [entry for entry in _writes_of(run, record.pk) if entry.call and entry.call.status == Status.COMPLETED]
        if len(landed) > 1:
            yield Finding(Diagnosis.COMPLETED_TWICE, f"{record.pk}: {len(landed)} completions were written")


def _may_stand(record: Record, run: Run, *, starts_once: bool) -> bool:
    """Whether a run may end like that: an uncertain record where trouble met what may start at most once."""
    if record.status is Status.COMPLETED:
        return True
    if record.status is Status.UNCERTAIN and run.troubled:
        began = any(entry.call is not None and entry.call.begins_once for entry in _writes_of(run, record.pk))
        return starts_once or began or run.late
    return False


def _reason(event: object) -> str:
    return str(getattr(event, "reason", ""))


def _results(run: Run) -> Iterator[Finding]:
    for record in run.records:
        if record.status is not Status.COMPLETED:
            continue
        landed = [entry for entry in _writes_of(run, record.pk) if entry.call and entry.call.status == Status.COMPLETED]
        if not landed:
            continue
        returned = _returned_before(run, landed[-1], record.idempotency_key)
        if returned is None:
            continue
        text = encode_result(returned.value, RESULT_LIMIT)
        if record.result is not None and text != record.result:
            yield Finding(Diagnosis.RESULT_DIFFERS, f"{record.pk}: {record.result} is stored, {text} was returned")


def _returned_before(run: Run, entry: Entry, key: str) -> Return | None:
    mine = [one for one in run.seen.returns if one.start.worker == entry.worker and one.start.key == key]
    found = [one for one in mine if one.at < entry.number]
    return found[-1] if found else None


def _writes_of(run: Run, pk: str) -> list[Entry]:
    return [
        entry
        for entry in run.timeline.entries
        if entry.kind is Kind.CALL and entry.landed and entry.call is not None and entry.call.record_key == pk
    ]


# ------------------------------------------------------------------------------------------------ claims of any make


def _overwritten(run: Run) -> Iterator[Finding]:
    """Find what a worker wrote over another's item that it had not seen: a zombie's write that landed."""
    last: dict[str, str] = {}
    wrote: dict[tuple[str, str], int] = {}
    looked: dict[tuple[str, str], int] = {}
    changed: dict[str, int] = {}
    for entry in run.timeline.entries:
        call = entry.call
        if entry.kind is not Kind.CALL or call is None or not call.item:
            continue
        mine = (entry.worker, call.item)
        if not call.is_write or not entry.landed:
            looked[mine] = entry.number
            continue
        other = last.get(call.item)
        was_mine = mine in wrote
        unseen = looked.get(mine, 0) < changed.get(call.item, 0)
        if was_mine and other not in (None, entry.worker) and unseen:
            deleted = call.operation == "DeleteItem"
            diagnosis = Diagnosis.RELEASED_BY_ANOTHER if deleted else Diagnosis.COMPLETED_BY_ANOTHER
            yield Finding(diagnosis, f"{entry.worker} wrote {call.item}, which {other} had taken over: {call}")
        last[call.item], changed[call.item], wrote[mine] = entry.worker, entry.number, entry.number


def _started_again(run: Run, hints: Hints) -> Iterator[Finding]:
    """Find a start after the job had ended, and its message was acknowledged."""
    if _is_by_key_alone(run, hints):
        return
    returned = {(one.start.worker, one.at) for one in run.seen.returns}
    ended = next(
        (
            entry.number
            for entry in run.timeline.entries
            if entry.kind is Kind.ACKNOWLEDGED
            and any(worker == entry.worker and at < entry.number for worker, at in returned)
        ),
        len(run.timeline.entries),
    )
    again = [start for start in run.seen.starts if start.at > ended]
    if again and run.jobs == 1:
        diagnosis = Diagnosis.STARTED_AGAIN
        if hints.falsy:
            diagnosis = Diagnosis.FALSY_RESULT
        elif hints.varies:
            diagnosis = hints.varies[0]
        elif hints.remembers is False:
            diagnosis = Diagnosis.LOCK_ONLY
        yield Finding(diagnosis, f"{again[0].worker} started the job after it had ended")


def _at_once(run: Run, hints: Hints) -> Iterator[Finding]:
    """Find two starts of one job at once although the first may live: no invocation's time had passed."""
    if _is_by_key_alone(run, hints):
        return
    ends = {returned.start.at: returned.at for returned in run.seen.returns}
    deaths = {entry.worker: entry.number for entry in run.timeline.entries if entry.kind is Kind.DEATH}
    for number, start in enumerate(run.seen.starts):
        began = _at_ms(run, start)
        for first in run.seen.starts[:number]:
            over = min(ends.get(first.at, start.at), deaths.get(first.worker, start.at)) < start.at
            if first.key == start.key and not over and began < _at_ms(run, first) + run.alive_ms:
                yield Finding(
                    (*hints.varies, Diagnosis.TWO_AT_ONCE)[0], f"{start.worker} started while {first.worker} ran"
                )


def _is_by_key_alone(run: Run, hints: Hints) -> bool:
    """Whether a consumer claims nothing, and its downstream key is all that it rests on: it may run the job again."""
    return not hints.claims and all(effect.key is not None for effect in run.effects)


def _at_ms(run: Run, start: Start) -> int:
    return run.timeline.entries[start.at - 1].at_ms
