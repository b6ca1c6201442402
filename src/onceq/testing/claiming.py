"""What is wrong with the claims of a run, of whatever make: a write over another's, a start too many or too early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.testing.diagnosis import Diagnosis, Finding
from onceq.testing.timeline import RECEIVES, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.testing.diagnosis import Hints
    from onceq.testing.subject import Start
    from onceq.testing.timeline import Entry
    from onceq.testing.trial import Run


def overwritten(run: Run) -> Iterator[Finding]:
    """Find what a worker wrote over another's item that it had not seen: a zombie's write that landed."""
    last: dict[str, str] = {}
    wrote: dict[tuple[str, str], int] = {}
    looked: dict[tuple[str, str], int] = {}
    changed: dict[str, int] = {}
    for entry in run.timeline.entries:
        call = entry.call
        if entry.kind is not Kind.CALL or call is None:
            continue
        if not call.is_write or not entry.landed:
            looked |= {(entry.worker, item): entry.number for item in call.looks}
            continue
        for write in call.writes:
            item, mine = write.item, (entry.worker, write.item)
            other = last.get(item)
            unseen = looked.get(mine, 0) < changed.get(item, 0)
            loses = not (write.adds or write.guarded)
            if loses and mine in wrote and other not in (None, entry.worker) and unseen:
                diagnosis = Diagnosis.RELEASED_BY_ANOTHER if write.deletes else Diagnosis.COMPLETED_BY_ANOTHER
                yield Finding(diagnosis, f"{entry.worker} wrote {item}, which {other} had taken over: {call}")
            last[item], changed[item], wrote[mine] = entry.worker, entry.number, entry.number


def written_over(run: Run, hints: Hints) -> Iterator[Finding]:
    """Find what a job wrote by what it had read, although another job had written there since."""
    jobs: dict[str, set[str]] = {}
    for start in run.seen.starts:
        jobs.setdefault(start.worker, set()).add(start.key)
    changed: dict[str, tuple[int, str]] = {}
    looked: dict[tuple[str, str], int] = {}
    for entry in run.timeline.entries:
        call = entry.call
        if call is None or (call.is_write and not entry.landed):
            continue
        if not call.is_write:
            looked |= {(entry.worker, item): entry.number for item in call.looks}
            continue
        for write in call.writes:
            at, other = changed.get(write.item, (0, entry.worker))
            is_shared = bool(jobs.get(entry.worker, set()) & jobs.get(other, set()))
            is_stale = looked.get((entry.worker, write.item), at) < at and not is_shared
            if write.item in hints.derived and is_stale and not (write.adds or call.asks_of(run.framework)):
                told = f"{entry.worker} wrote {write.item} by what it had read before {other} wrote there: {call}"
                yield Finding(Diagnosis.OVERWRITES, told)
            changed[write.item] = entry.number, entry.worker


def started_again(run: Run, hints: Hints) -> Iterator[Finding]:
    """Find a start after the job had ended, and its message was acknowledged."""
    if _is_by_key_alone(run, hints):
        return
    acknowledged = [one for one in run.timeline.entries if one.kind is Kind.ACKNOWLEDGED]
    ends = [one.number for one in acknowledged if _is_end(run, one)]
    ended = next(iter(ends), len(run.timeline.entries))
    again = [start for start in run.seen.starts if start.at > ended and not _is_late(run, start, ended)]
    if again and run.jobs == 1:
        diagnosis = Diagnosis.STARTED_AGAIN
        if hints.falsy:
            diagnosis = Diagnosis.FALSY_RESULT
        elif hints.renames:
            diagnosis = hints.renames[0]
        elif claims_nothing(run, again[0].worker, again[0].at):
            diagnosis = Diagnosis.CHECK_THEN_ACT
        elif hints.remembers is False or _is_forgotten(run, again[0], ended):
            diagnosis = Diagnosis.LOCK_ONLY
        yield Finding(diagnosis, f"{again[0].worker} started the job after it had ended")


def _is_end(run: Run, acknowledged: Entry) -> bool:
    """Whether a message was acknowledged since its job had returned: not if it was sent again instead."""
    mine = [one.at for one in run.seen.returns if one.start.worker == acknowledged.worker and one.error is None]
    returned = [at for at in mine if at < acknowledged.number]
    since = run.timeline.entries[returned[-1] : acknowledged.number] if returned else []
    sent = [
        one for one in since if one.call is not None and one.call.operation.startswith("SendMessage") and one.landed
    ]
    return bool(returned) and not any(one.worker == acknowledged.worker for one in sent)


def claims_nothing(run: Run, worker: str, at: int) -> bool:
    """Return whether a worker had written something until then, and not on a condition that refuses anybody."""
    entries = [one for one in run.timeline.entries[:at] if one.worker == worker and one.landed]
    writes = [one.call for one in entries if one.call is not None and one.call.is_write]
    return bool(writes) and not any(call.is_conditional for call in writes)


def marks_first(run: Run) -> bool:
    """Return whether a job found what an earlier start of it had written, that died, or was refused by that."""
    if any(entry.kind is Kind.FAULT for entry in run.timeline.entries):
        return False
    jobs = {start.worker: start.key for start in run.seen.starts}
    marked: dict[str, str] = {}
    for entry in run.timeline.entries:
        if entry.call is None or not entry.call.own:
            continue
        if not entry.call.is_write or not entry.landed:
            known = [marked[item] for item in entry.call.looks if item in marked]
            if any(one != entry.worker and jobs.get(one) == jobs.get(entry.worker) for one in known):
                return True
        else:
            marked |= {write.item: entry.worker for write in entry.call.writes}
    return False


def _is_forgotten(run: Run, again: Start, ended: int) -> bool:
    """Whether nothing but time passed after the job ended: what was written down did not last for so long."""
    passed = any(entry.kind is Kind.TIME for entry in run.timeline.entries[ended : again.at])
    return passed and not run.troubled


def _is_late(run: Run, start: Start, ended: int) -> bool:
    """Whether a worker had its message before the job ended, and its late start does nothing: the key is known."""
    came = [
        entry.number
        for entry in run.timeline.entries[: start.at]
        if entry.worker == start.worker and entry.kind is Kind.DELIVERY and entry.what.startswith(RECEIVES)
    ]
    done = [effect for effect in run.effects if effect.worker in ("", start.worker)]
    return bool(came) and came[-1] < ended and not any(effect.key is None for effect in done)


def at_once(run: Run, hints: Hints) -> Iterator[Finding]:
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
                    (*hints.renames, Diagnosis.TWO_AT_ONCE)[0], f"{start.worker} started while {first.worker} ran"
                )


def _is_by_key_alone(run: Run, hints: Hints) -> bool:
    """Whether a consumer claims nothing, and its downstream key is all that it rests on: it may run the job again."""
    return not hints.claims and all(effect.key is not None for effect in run.effects)


def _at_ms(run: Run, start: Start) -> int:
    return run.timeline.entries[start.at - 1].at_ms
