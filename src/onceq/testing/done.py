"""One effect that happened in a run, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Where a value stands in what a call was given.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """One effect that happened in a run.

    Args:
        name: Which.
        key: Its downstream key; ``None`` without one.
        worker: Whose doing it was.
        at: The entry of the timeline; 0 if it is not known.
        once: Whether it was started inside what may start at most once.
        steps: Names of the steps that it was started inside, and that may start at most once.
        in_step: Whether it was called inside a step.
        job: The key of the job that did it; ``""`` if it is not known.
        given: What it was called with, as it can be compared: each value by its place.
        commit: The entry of the commit that it was staged for; 0 if it was not staged.
    """

    name: str
    key: str | None = None
    worker: str = ""
    at: int = 0
    once: bool = False
    steps: tuple[str, ...] = ()
    in_step: bool = False
    job: str = ""
    given: Mapping[Path, Any] = field(default_factory=dict, compare=False)
    commit: int = 0

    @property
    def asked(self) -> dict[Path, Any]:
        """What it was called with, without its key where that stands among it."""
        return {place: value for place, value in self.given.items() if self.key is None or value != self.key}


def distinct(effects: Sequence[Done], name: str, job: str | None = None) -> int:
    """Return how many effects of a name happened, of a job or of all; those with one key are counted once."""
    found = [effect for effect in effects if effect.name == name and job in (None, effect.job)]
    return len({effect.key for effect in found if effect.key is not None}) + sum(effect.key is None for effect in found)


def leaves(value: Any, *place: str | int) -> Iterator[tuple[Path, Any]]:
    """Yield the single values of what can be compared, each with where it stands."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, *place, name)
    elif isinstance(value, tuple):
        for position, inner in enumerate(value):
            yield from leaves(inner, *place, position)
    else:
        yield place, value
