"""Who counts what a job does outside: recorders, and functions that return how many effects there are by now."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from onceq.settings import require
from onceq.testing.likeness import is_stand_in
from onceq.testing.memory import Effect
from onceq.testing.recorder import EffectRecorder, fails_by_default, mistakes_of

Counted = EffectRecorder | Callable[[], int]
Effects = Counted | Sequence[Counted]

FIT = "an EffectRecorder or a function that returns the number by now"
# What the effects of a function without a name are called where it counts alone.
ALONE = "effects"


class Counter(Protocol):
    """Counts effects, from one beginning to the next."""

    @property
    def told(self) -> str:
        """What a person calls it."""

    @property
    def sees_all(self) -> bool:
        """Whether it may have counted what the job wrote by itself."""

    @property
    def fails_by_default(self) -> bool:
        """Whether what it counts fails with what nobody said that it raises."""

    def begin(self) -> None:
        """Count from here on."""

    def calls(self) -> list[Effect]:
        """Return what came since, by the names that a report has. Raises: ConfigurationError, if it cannot be told."""


def counters_of(effects: Effects | None) -> tuple[Counter, ...]:
    """Return what counts, by what was given as ``effects=``.

    Raises:
        ConfigurationError: If something of it cannot count, or stands there twice.
    """
    __tracebackhide__ = True
    if effects is None:
        return ()
    if not isinstance(effects, list | tuple):
        alone = _checked("effects=", effects, f"{FIT}, or a list of these")
        return (_counter("effects=", _names([alone])[0], alone),)
    require(bool(effects), f"effects= is an empty list: give {FIT}, or leave it out")
    places = [_place(number) for number in range(len(effects))]
    given = [_checked(place, one, FIT) for place, one in zip(places, effects, strict=True)]
    for number, one in enumerate(given):
        is_new = all(one is not other for other in given[:number])
        require(is_new, f"{places[number]} stands in the list twice: give each of them once")
    return tuple(_counter(*what) for what in zip(places, _names(given), given, strict=True))


def _place(number: int) -> str:
    return f"effects[{number}]"


def _checked(place: str, given: Any, fit: str) -> Any:
    __tracebackhide__ = True
    is_count = inspect.ismethod(given) and isinstance(given.__self__, EffectRecorder)
    require(not is_count, f"{place} takes the recorder itself, not its count: it is cleared before each scenario")
    require(
        not is_stand_in(given),
        f"{place} takes the recorder itself, not a function of it, which has an effect and counts none",
    )
    require(
        not isinstance(given, type),
        f"{place} is a class, {getattr(given, '__name__', '')}: give one that is made, EffectRecorder(like=…)",
    )
    require(
        callable(given),
        f"{place} is {fit}, no {type(given).__name__}: put EffectRecorder(like=…) in the place of what the job calls, "
        "and give that",
    )
    return given


def _names(given: Sequence[Counted]) -> list[str]:
    """Return the names that tell several apart: their own, or the place of one that has none, or that of another.

    A recorder alone needs none before those of its functions.
    """
    own = [str(getattr(one, "__name__", "")).rpartition(".")[2] for one in given]
    if len(given) == 1:
        is_recorder = isinstance(given[0], EffectRecorder)
        return ["" if is_recorder or not own[0].isidentifier() else own[0]]
    return [name if name.isidentifier() and own.count(name) == 1 else _place(number) for number, name in enumerate(own)]


def _counter(place: str, name: str, given: Counted) -> Counter:
    told = f"{place} ({name})" if name not in ("", place) else place
    if isinstance(given, EffectRecorder):
        return _Recorded(told, f"{name}." if name else "", given)
    return _Function(told, name or ALONE, given)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """Counts the calls of a recorder, whose name comes before those of its functions."""

    told: str
    prefix: str
    recorder: EffectRecorder
    sees_all: bool = False

    @property
    def fails_by_default(self) -> bool:
        return fails_by_default(self.recorder)

    def begin(self) -> None:
        self.recorder.clear()

    def calls(self) -> list[Effect]:
        for mistake in mistakes_of(self.recorder):
            raise mistake
        return [replace(call, name=f"{self.prefix}{call.name}") for call in self.recorder.calls]


@dataclass(slots=True)
class _Function:
    """Asks a function for the number, which knows of no keys, jobs or workers."""

    told: str
    name: str
    count: Callable[[], int]
    sees_all: bool = True
    fails_by_default: bool = False
    before: int = field(default=0, init=False)

    def begin(self) -> None:
        self.before = self._number()

    def calls(self) -> list[Effect]:
        return [Effect(self.name, None)] * (self._number() - self.before)

    def _number(self) -> int:
        number = self.count()
        fit = "it is an EffectRecorder, or a function that returns how many effects there are by now, a whole number"
        require(isinstance(number, int), f"{self.told} returned {number!r}: {fit}")
        return number
