"""Who counts what a job does outside: recorders, and functions that return how many effects there are by now."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from onceq.settings import require
from onceq.testing.recorder import Effect, EffectRecorder

Counted = EffectRecorder | Callable[[], int]
Effects = Counted | Sequence[Counted]

FIT = "an EffectRecorder or a function that returns the number by now"
# What a function's effects are called where it counts alone.
ALONE = "effects"


class Counter(Protocol):
    """Counts effects, from one beginning to the next."""

    @property
    def told(self) -> str:
        """What a person calls it."""

    @property
    def sees_all(self) -> bool:
        """Whether it may have counted what the job wrote by itself."""

    def begin(self) -> None:
        """Count from here on."""

    def calls(self) -> list[Effect]:
        """Return what came since, by the names that a report has."""


def counters_of(effects: Effects | None) -> tuple[Counter, ...]:
    """Return what counts, by what was given as ``effects=``.

    Raises:
        ConfigurationError: If something of it cannot count, or stands there twice.
    """
    __tracebackhide__ = True
    if effects is None:
        return ()
    if not isinstance(effects, list | tuple):
        return (_counter("effects=", "", _checked("effects=", effects, f"{FIT}, or a list of these")),)
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
        callable(given),
        f"{place} is {fit}, no {type(given).__name__}: put EffectRecorder(like=…) in the place of what the job calls, "
        "and give that",
    )
    return given


def _names(given: Sequence[Counted]) -> list[str]:
    """Return the names that tell several apart: their own, or the place of one that has none, or that of another."""
    if len(given) == 1:
        return [""]
    own = [str(getattr(one, "__name__", "")).rpartition(".")[2] for one in given]
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

    def begin(self) -> None:
        self.recorder.clear()

    def calls(self) -> list[Effect]:
        return [replace(call, name=f"{self.prefix}{call.name}") for call in self.recorder.calls]


@dataclass(slots=True)
class _Function:
    """Asks a function for the number, which knows of no keys, jobs or workers."""

    told: str
    name: str
    count: Callable[[], int]
    sees_all: bool = True
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
