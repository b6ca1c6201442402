"""What undisturbed runs tell of a job: what it names things by, and what its effects are called with."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.testing.done import Path
    from onceq.testing.trial import Run


def identities(run: Run) -> set[str]:
    """Return what a run named things by: downstream keys, and the keys of the items that it wrote."""
    keys = {effect.key for effect in run.effects if effect.key}
    calls = [entry.call for entry in run.timeline.entries if entry.call is not None]
    return keys | {write.item for call in calls for write in call.writes}


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


def is_after_completion(run: Run) -> bool:
    """Return whether an effect comes after the last write of its worker."""
    writes = [one.number for one in run.timeline.entries if one.call is not None and one.call.is_write and one.landed]
    return bool(writes) and any(effect.at > writes[-1] for effect in run.effects if effect.at)
