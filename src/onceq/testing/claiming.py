"""What is wrong with the claims of a run, of whatever make: a write over another's, a start too many or too early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.testing.diagnosis import Diagnosis, Finding
from onceq.testing.timeline import RECEIVES, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.testing.diagnosis import Hints
    from onceq.testing.subject import Start
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


def started_again(run: Run, hints: Hints) -> Iterator[Finding]:
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
    again = [start for start in run.seen.starts if start.at > ended and not _is_late(run, start, ended)]
    if again and run.jobs == 1:
        diagnosis = Diagnosis.STARTED_AGAIN
        if hints.falsy:
            diagnosis = Diagnosis.FALSY_RESULT
        elif hints.varies:
            diagnosis = hints.varies[0]
        elif hints.remembers is False:
            diagnosis = Diagnosis.LOCK_ONLY
        yield Finding(diagnosis, f"{again[0].worker} started the job after it had ended")


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
                    (*hints.varies, Diagnosis.TWO_AT_ONCE)[0], f"{start.worker} started while {first.worker} ran"
                )


def _is_by_key_alone(run: Run, hints: Hints) -> bool:
    """Whether a consumer claims nothing, and its downstream key is all that it rests on: it may run the job again."""
    return not hints.claims and all(effect.key is not None for effect in run.effects)


def _at_ms(run: Run, start: Start) -> int:
    return run.timeline.entries[start.at - 1].at_ms
