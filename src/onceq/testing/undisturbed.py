"""What undisturbed runs tell of a job: what it names things by, and what its effects are called with."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from onceq.testing.diagnosis import Diagnosis, Hints, Own
from onceq.testing.done import leaves
from onceq.testing.recorder import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from onceq.testing.done import Path
    from onceq.testing.trial import Run

# A text of one or two letters stands in many others by chance.
SHORTEST = 3


def hints_of(first: Run, runs: Mapping[Diagnosis, Run], *, remembers: bool | None) -> Hints:
    """Return what undisturbed runs of a job tell.

    Args:
        first: The first one.
        runs: Others in which one thing was different, each by what a key is made of that differs there; what is by
            chance differs where nothing else does.
        remembers: Whether anything stands in the consumer's own table when it is done; ``None`` for onceq's.
    """
    expected = counts_of(first)
    keys, claims = downstream_keys(first), claims_of(first)
    renamed = {
        diagnosis: {key for key in downstream_keys(run) - keys if key[0] in expected} for diagnosis, run in runs.items()
    }
    return Hints(
        expected=expected,
        own={0: Own(key_of(first), expected, told_effects([first, *runs.values()]))},
        varies=tuple(diagnosis for diagnosis, others in renamed.items() if others),
        renames=tuple(diagnosis for diagnosis, run in runs.items() if claims_of(run) - claims),
        forgotten=len(runs[Diagnosis.KEY_RANDOM].effects) < len(first.effects),
        after_completion=is_after_completion(first),
        claims=any(one.call is not None and one.call.is_write for one in first.timeline.entries),
        remembers=remembers,
    )


def other_of(run: Run, first: Own, theirs: Collection[str], mine: Collection[str]) -> Own:
    """Return what a second job does alone: without what it was given of the first one's, which a module may remember.

    Args:
        run: Its run.
        first: What the first one does.
        theirs: The texts of the first one's payload.
        mine: Those of its own.
    """
    given = {
        at: frozenset(value for value in values if not is_of(value, theirs, mine))
        for at, values in told_effects([run]).items()
        if at in first.given
    }
    return Own(key_of(run), counts_of(run), given)


def counts_of(run: Run) -> dict[str, int]:
    """Return how many effects of each name a run had."""
    return {effect.name: run.distinct(effect.name) for effect in run.effects}


def downstream_keys(run: Run) -> set[tuple[str, str]]:
    """Return the downstream keys of a run, each with the name of its effect."""
    return {(effect.name, effect.key) for effect in run.effects if effect.key}


def claims_of(run: Run) -> set[str]:
    """Return the keys by which a run knows its job again: of records, and of items that it looks at or asks for."""
    calls = [entry.call for entry in run.timeline.entries if entry.call is not None]
    looked = {item for call in calls if not call.is_write for item in call.looks}
    written = [write for call in calls for write in call.writes if write.table not in run.framework]
    return {record.pk for record in run.records} | {one.item for one in written if one.asks or one.item in looked}


def key_of(run: Run) -> str:
    """Return the key of the job that ran."""
    return run.seen.starts[0].key if run.seen.starts else ""


def told_effects(runs: Sequence[Run]) -> dict[tuple[str, Path], frozenset[Any]]:
    """Return what the effects of a job were called with, by name and place, where it is the same in each run."""
    each = [_given_in(run) for run in runs]
    return {at: values for at, values in each[0].items() if all(one.get(at) == values for one in each)}


def _given_in(run: Run) -> dict[tuple[str, Path], frozenset[Any]]:
    found: dict[tuple[str, Path], frozenset[Any]] = {}
    for effect in run.effects:
        for place, value in effect.given.items():
            if isinstance(value, Hashable):
                at = (effect.name, place)
                found[at] = found.get(at, frozenset()) | {value}
    return found


def is_of(value: Any, theirs: Collection[str], mine: Collection[str]) -> bool:
    """Return whether a value is, or has in it, a text of another job's payload that is none of a job's own.

    Example:
        >>> is_of("booking#o-1", {"o-1"}, {"o-1-2"}), is_of("booking#o-1-2", {"o-1"}, {"o-1-2"})
        (True, False)
    """
    foreign = {*theirs} - {*mine}
    if not isinstance(value, str) or value in foreign or value in mine:
        return isinstance(value, Hashable) and value in foreign
    for text in sorted(mine, key=len, reverse=True):
        value = _without(text, value)
    return any(_without(text, value) != value for text in foreign if len(text) >= SHORTEST)


def _without(text: str, value: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "", value)


def derived(alone: Run, later: Run, after: Run) -> frozenset[str]:
    """Return the items that a job wrote in another way where another one had written them before.

    Args:
        alone: The run of the job by itself.
        later: Another such run, of another message at another time: what differs there follows nothing that was read.
        after: The run of another job, and of this one after it.
    """
    one, other, both = _last_parts(alone), _last_parts(later), _last_parts(after)
    items = {item for item, _ in one} & {item for item, _ in both}
    steady = [at for at in {**one, **both} if at[0] in items and one.get(at) == other.get(at)]
    return frozenset(at[0] for at in steady if both.get(at) != one.get(at) and not _is_made_up(both.get(at), after))


def swayed(before: Own, alone: Run, after: Run) -> frozenset[str]:
    """Return the names of what a job stages in another number where another job has been: it looked at what that wrote.

    Args:
        before: What the other job does.
        alone: The run of the job by itself.
        after: The run of the other job, and of this one after it.
    """
    worker = after.seen.starts[-1].worker if after.seen.starts else ""
    calls = [(one.worker, one.call) for one in after.timeline.entries if one.call is not None]
    looked = {item for who, call in calls if who == worker and not call.is_write for item in call.looks}
    wrote = {write.item for who, call in calls if who != worker for write in call.writes}
    if not (looked & wrote):
        return frozenset()
    one, both = counts_of(alone), counts_of(after)
    names = {effect.name for effect in (*alone.effects, *after.effects) if effect.commit}
    return frozenset(name for name in names if both.get(name, 0) != before.counts.get(name, 0) + one.get(name, 0))


def most_of(names: Collection[str], runs: Sequence[Run]) -> dict[str, int]:
    """Return how many effects of each of these names the run has that has the most of it."""
    return {name: max(run.distinct(name) for run in runs) for name in names}


def _is_made_up(value: Any, run: Run) -> bool:
    """Return whether a recorder answered with it, which counts its calls."""
    return isinstance(value, str) and value in run.answers


def _last_parts(run: Run) -> dict[tuple[str, Path], Any]:
    """Return the values that the job that started last wrote, by item and place."""
    worker = run.seen.starts[-1].worker if run.seen.starts else ""
    calls = [one.call for one in run.timeline.entries if one.worker == worker and one.call is not None and one.landed]
    parts = {write.item: write.part for call in calls for write in call.writes if write.table not in run.framework}
    return {(item, place): value for item, part in parts.items() for place, value in leaves(plain(part))}


def is_after_completion(run: Run) -> bool:
    """Return whether an effect comes after the last write of its worker."""
    writes = [one.number for one in run.timeline.entries if one.call is not None and one.call.is_write and one.landed]
    return bool(writes) and any(effect.at > writes[-1] for effect in run.effects if effect.at)
