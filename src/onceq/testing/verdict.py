"""What is wrong with a run: pure functions from its facts to findings, each with a diagnosis."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from onceq.codec import encode_result
from onceq.errors import Retry, Snooze
from onceq.record import Status
from onceq.testing.causes import made_up, missing
from onceq.testing.claiming import (
    at_once,
    marks_first,
    overwritten,
    started_again,
    written_over,
)
from onceq.testing.diagnosis import Diagnosis, Finding, Own
from onceq.testing.errors import StandsStill
from onceq.testing.staged import TRANSACTION
from onceq.testing.timeline import Kind
from onceq.testing.wording import numbered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.record import Record
    from onceq.testing.diagnosis import Hints
    from onceq.testing.done import Done
    from onceq.testing.subject import Return, Start
    from onceq.testing.timeline import Entry
    from onceq.testing.trial import Run

RESULT_LIMIT = 400_000


def findings_of(run: Run, hints: Hints, *, starts_once: bool) -> list[Finding]:
    """Say what is wrong with a run, the nearest to the cause first.

    Args:
        run: Its facts.
        hints: What undisturbed runs told.
        starts_once: Whether the job as a whole may start at most once.
    """
    if run.blocked:
        return []
    if isinstance(run.error, StandsStill):
        return [Finding(Diagnosis.NEVER_SETTLED, str(run.error).partition("\n")[0])]
    is_onceq = hints.remembers is None
    found = [*_effects(run, hints)]
    if is_onceq:
        found += [*_records(run, hints, starts_once=starts_once), *_results(run)]
    else:
        found += [*overwritten(run), *started_again(run, hints)]
    found += [*at_once(run, hints), *written_over(run, hints)]
    again = sum(isinstance(returned.error, Retry | Snooze) for returned in run.seen.returns)
    if starts_once and len(run.seen.starts) > run.jobs + again:
        found.append(Finding(Diagnosis.STARTED_TWICE, f"{len(run.seen.starts)} starts"))
    unsettled = run.left or run.stranded
    if run.error is not None or unsettled:
        names = ", ".join(letter.name for letter in unsettled) or "the message"
        found.append(Finding(Diagnosis.NEVER_SETTLED, f"{names} comes back again and again{_raised(run)}"))
    found += [Finding(Diagnosis.KEY_WITH_OTHER_ARGUMENTS, name) for name in run.differing]
    if not run.troubled:
        found += [Finding(Diagnosis.KEY_USED_TWICE, name) for name in run.in_vain]
        found += [*_in_several_starts(run)]
    if run.strayed:
        found.append(Finding(Diagnosis.OTHER_PATH, "it did not come by the point where something was to go wrong"))
    order = [*Diagnosis]
    return sorted(dict.fromkeys(found), key=lambda finding: order.index(finding.diagnosis))


def _raised(run: Run) -> str:
    """Return what the invocations failed with."""
    said = [entry.what for entry in run.timeline.entries if entry.kind is Kind.RAISE]
    return ". ".join([f": {'; '.join(dict.fromkeys(said))}", *missing(run)]) if said else ""


# ----------------------------------------------------------------------------------------------------------- effects


def _effects(run: Run, hints: Hints) -> Iterator[Finding]:
    jobs = [hints.own.get(number) or Own("", hints.expected) for number in run.numbers]
    swayed = hints.swayed.get(run.numbers[-1], {}) if run.numbers else {}
    names = [name for own in jobs for name in own.counts]
    for name in dict.fromkeys([*names, *(effect.name for effect in run.effects)]):
        if run.jobs > 1 and name in swayed:
            if run.distinct(name) > swayed[name]:
                told = f"{name}: {run.distinct(name)} times, and {swayed[name]} where one job comes after the other"
                yield Finding(Diagnosis.OVERWRITES, told)
            continue
        counts = sorted(own.counts.get(name, 0) for own in jobs)
        if not any(counts) and hints.remembers is None and _comes_alone(run, name):
            continue
        # Whichever the excused ones are.
        least = sum(counts[: max(0, len(jobs) - _excused(run))])
        if run.distinct(name) > sum(counts):
            yield _too_many(run, hints, name, sum(counts))
        elif run.kept(name) < least:
            yield _too_few(run, hints, name, sum(counts))
        else:
            yield from _shifted(run, hints, name, jobs)
    yield from _mixed_up(run, jobs)


def _comes_alone(run: Run, name: str) -> bool:
    """Return whether what no undisturbed run has is committed with a completion, or stands beside no lost answer."""
    return run.only_reads_failed or all(effect.commit for effect in run.effects if effect.name == name)


def _in_several_starts(run: Run) -> Iterator[Finding]:
    """Find what may start at most once and has its effect in each of several starts."""
    starts: dict[tuple[str, str, tuple[str, ...]], set[Start | None]] = {}
    for effect in run.effects:
        if effect.once and effect.key is None:
            starts.setdefault((effect.name, effect.job, effect.steps), set()).add(run.start_of(effect))
    for (name, *_), several in starts.items():
        if len(several) > 1:
            yield Finding(Diagnosis.STARTED_TWICE, f"{name} in each of {len(several)} starts")


def _shifted(run: Run, hints: Hints, name: str, jobs: list[Own]) -> Iterator[Finding]:
    """Find the effect of one job twice and another one's never, which is as many in all."""
    if {effect.job for effect in run.effects if effect.name == name} - {own.key for own in jobs if own.key}:
        return  # of some it is not known whose they are
    for own in jobs:
        if run.distinct(name, own.key) > own.counts.get(name, 0):
            yield _too_many(run, hints, name, own.counts.get(name, 0), own.key)
    lack = [own for own in jobs if run.kept(name, own.key) < own.counts.get(name, 0)]
    if len(lack) > _excused(run):
        yield _too_few(run, hints, name, lack[0].counts[name], lack[0].key)


def _mixed_up(run: Run, jobs: list[Own]) -> Iterator[Finding]:
    """Find effects that were given what another job of the run gives, and their own one never does."""
    for effect in run.effects:
        mine = next((own for own in jobs if own.key == effect.job), None)
        for other in jobs if mine is not None else ():
            for place, value in effect.given.items():
                at = (effect.name, place)
                if mine is None or other is mine or at not in mine.given or not isinstance(value, Hashable):
                    continue
                if value in other.given.get(at, ()) and value not in mine.given[at]:
                    told = f"{effect.name} of {mine.key} was given {value!r}, which is that of {other.key}"
                    yield Finding(Diagnosis.MIXED_UP, told)


def _excused(run: Run) -> int:
    """Return for how many of the jobs an effect may be missing: a person decides about them, or redrives them."""
    ended = sum(record.status in (Status.UNCERTAIN, Status.REJECTED) for record in run.records)
    return max(ended, run.given_up) if run.troubled else 0


def _too_many(run: Run, hints: Hints, name: str, expected: int, job: str | None = None) -> Finding:
    done = [effect for effect in run.effects if effect.name == name and job in (None, effect.job)]
    evidence = f"{_named(name, job)}: {numbered(run.distinct(name, job), 'time')} instead of {expected}"
    if hints.falsy:
        return Finding(Diagnosis.FALSY_RESULT, evidence)
    if not expected and hints.remembers is None:
        return Finding(Diagnosis.ERROR_PATH, evidence)
    keys = list(dict.fromkeys(effect.key for effect in done))
    if _is_staged_again(done, hints):
        return Finding(Diagnosis.TWICE, f"{evidence}, staged again inside one attempt")
    if len(keys) > 1 and None not in keys:
        told = f"{evidence}, with the keys {keys[0]} and {keys[1]}"
        changed = Diagnosis.ERROR_PATH if _is_instead(run, done) else Diagnosis.KEY_FROM_ATTEMPT
        return Finding((*hints.varies, changed)[0], told)
    if hints.remembers is None:
        diagnosis = _of_a_job(run, hints, done)
        is_again = diagnosis is Diagnosis.STARTED_TWICE and _is_in_one_start(run, done)
        return Finding(diagnosis, f"{evidence}, called again inside one start" if is_again else evidence)
    return Finding(_of_a_consumer(run, hints, done), evidence)


def _is_staged_again(done: list[Done], hints: Hints) -> bool:
    """Return whether one commit has more of these than that of any job has undisturbed."""
    commits = [effect.commit for effect in done if effect.commit]
    most = max((own.counts.get(done[0].name, 0) for own in hints.own.values()), default=0)
    return any(commits.count(commit) > most for commit in commits)


def _is_instead(run: Run, done: list[Done]) -> bool:
    """Return whether something else was asked for under another key, since a call before it in its start had failed."""
    faults = [(one.worker, one.number) for one in run.timeline.entries if one.kind is Kind.FAULT]
    for effect in done:
        start = run.start_of(effect)
        failed = start and any(worker == effect.worker and start.at < at < effect.at for worker, at in faults)
        if failed and any(one.key != effect.key and one.asked != effect.asked for one in done):
            return True
    return False


def _is_in_one_start(run: Run, done: list[Done]) -> bool:
    starts = [start for start in map(run.start_of, done) if start is not None]
    return len({*starts}) < len(starts)


def _of_a_job(run: Run, hints: Hints, done: list[Done]) -> Diagnosis:
    if hints.renames and len(run.records) > run.jobs:
        return hints.renames[0]
    if done[0].once:
        return Diagnosis.STARTED_TWICE
    if not done[0].at or done[0].name.startswith(TRANSACTION):
        return Diagnosis.TWICE
    return Diagnosis.NO_DOWNSTREAM_KEY if done[0].in_step else Diagnosis.OUTSIDE_STEP


def _of_a_consumer(run: Run, hints: Hints, done: list[Done]) -> Diagnosis:
    """Say why an effect without a key was repeated, by what its workers had written before it."""
    if hints.renames:
        return hints.renames[0]
    first = next((effect for effect in done if effect.at), None)
    if first is not None:
        before = [one for one in run.timeline.entries[: first.at] if one.worker == first.worker and one.call]
        claims = [one for one in before if one.call and one.call.is_write and one.call.is_conditional and one.landed]
        if not claims:
            looked = any(one.call and one.call.operation in ("GetItem", "Query") for one in before)
            wrote = any(one.call and one.call.is_write for one in before)
            return Diagnosis.CHECK_THEN_ACT if looked or wrote else Diagnosis.EFFECT_BEFORE_CLAIM
    if hints.remembers is False or any(one.diagnosis is Diagnosis.LOCK_ONLY for one in started_again(run, hints)):
        return Diagnosis.LOCK_ONLY
    return next((one.diagnosis for one in overwritten(run)), Diagnosis.NO_DOWNSTREAM_KEY)


def _named(name: str, job: str | None) -> str:
    return name if job is None else f"{name} of {job}"


def _too_few(run: Run, hints: Hints, name: str, expected: int, job: str | None = None) -> Finding:
    evidence = f"{_named(name, job)}: {numbered(run.kept(name, job), 'time')} instead of {expected}{_raised(run)}"
    if hints.forgotten:
        return Finding(Diagnosis.KEPT_IN_MEMORY, evidence)
    if run.jobs > 1 and (run.repeated or _is_sent_twice(run, name)):
        return Finding(Diagnosis.KEY_SHARED, evidence)
    if hints.after_completion:
        return Finding(Diagnosis.LOST_AFTER_COMPLETION, evidence)
    # What lies in the dead-letter queue for a job that is excused is not the one whose effect is missing.
    acknowledged = not run.left and len({letter.body for letter in run.dead}) <= _excused(run)
    if acknowledged and hints.remembers is None and marks_first(run):
        return Finding(Diagnosis.MARKED_FIRST, evidence)
    return Finding(Diagnosis.NO_EFFECT if acknowledged else Diagnosis.TOO_FEW, evidence)


def _is_sent_twice(run: Run, name: str) -> bool:
    """Return whether messages were sent under one key, and not by a relay that could not know of the first one."""
    keys = [effect.key for effect in run.effects if effect.name == name and effect.key is not None]
    return not run.troubled and len({*keys}) < len(keys)


# ------------------------------------------------------------------------------------------------- records and results


def _records(run: Run, hints: Hints, *, starts_once: bool) -> Iterator[Finding]:
    wrong = [record for record in run.records if not _may_stand(record, run, starts_once=starts_once)]
    for record in wrong:
        said = f": {record.error}" if record.error else ""
        causes = missing(run) or made_up(run)
        yield Finding(Diagnosis.NOT_COMPLETED, ". ".join([f"{record.pk} is {record.status}{said}", *causes]))
    if len(run.records) > run.jobs:
        told = f"{numbered(len(run.records), 'record')} for {numbered(run.jobs, 'job')}"
        yield Finding((*hints.renames, Diagnosis.COMPLETED_TWICE)[0], told)
    if len(run.records) < run.jobs:
        why = [_reason(event) for _, event in run.seen.events if event.name in ("message.refused", "message.unserved")]
        yield Finding(Diagnosis.NOT_COMPLETED, f"{len(run.records)} records: {'; '.join(dict.fromkeys(why))}")
    for record in run.records:
        landed = [entry for entry in _writes_of(run, record.pk) if entry.call and entry.call.status == Status.COMPLETED]
        if len(landed) > 1:
            yield Finding(Diagnosis.COMPLETED_TWICE, f"{record.pk}: {len(landed)} completions were written")


def _may_stand(record: Record, run: Run, *, starts_once: bool) -> bool:
    """Whether a run may end so: uncertain where trouble met what may start at most once, rejected without hope."""
    if record.status is Status.COMPLETED:
        return True
    if record.status is Status.REJECTED:
        return run.hopeless
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
