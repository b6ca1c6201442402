"""What a producer fills anew whenever it sends a job, the time for example: it does not say which job it is."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from onceq.settings import require

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")
# A number is a time where its field is called so, too: an id may have as many digits.
_NAMED = re.compile(r"(^at|_at|At|^ts|_ts|[tT]ime|[tT]imestamp)$")
# Between 2001 and 2286, in seconds and in milliseconds.
_SECONDS, _MILLISECONDS = (1e9, 1e10), (1e12, 1e13)


@dataclass(frozen=True, slots=True)
class Stamps:
    """The fields of a body that its producer fills anew with each send, wherever in it they stand.

    Example:
        >>> stamps = Stamps.of({"order_id": "o-1", "sent_at": "2026-11-29T12:00:00Z"}, None, "order_id")
        >>> stamps.at({"order_id": "o-1", "sent_at": "2026-11-29T12:00:00Z"}, 60_000)
        {'order_id': 'o-1', 'sent_at': '2026-11-29T12:01:00Z'}
    """

    names: frozenset[str]

    @classmethod
    def of(cls, body: Any, given: Collection[str] | None, identity: str) -> Stamps:
        """Return the fields that are given, or without them those that hold a time.

        Args:
            body: The body.
            given: Names of fields.
            identity: The field that says which job it is.

        Raises:
            ConfigurationError: If the body has no field of a name, or it says which job it is.
        """
        fields = dict(_fields(body))
        require(not isinstance(given, str), f"stamps= is a list of names: stamps=[{given!r}]")
        told = f"stamps= is a list of names, no {type(given).__name__}: () for none"
        require(given is None or isinstance(given, Collection), told)
        for name in given or ():
            require(name in fields, f"stamps={name!r}: the body has no such field ({', '.join(fields)})")
            require(name != identity, f"stamps={name!r}: that field says which job it is (identity=)")
        if given is None:
            given = [name for name, value in fields.items() if name != identity and _is_time(name, value)]
        return cls(frozenset(given))

    def at(self, body: Any, elapsed_ms: int) -> Any:
        """Return a body as it is sent that many milliseconds later."""
        return self._changed(body, lambda value: _later(value, elapsed_ms)) if elapsed_ms else body

    def without(self, body: Any) -> Any:
        """Return a body in which they say nothing."""
        return self._changed(body, lambda _value: None)

    def _changed(self, value: Any, change: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: change(inner) if name in self.names else self._changed(inner, change)
                for name, inner in value.items()
            }
        return [self._changed(inner, change) for inner in value] if isinstance(value, list) else value


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            yield from _fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner)


def _is_time(name: str, value: Any) -> bool:
    if isinstance(value, str):
        return _time_of(value) is not None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    within = is_number and any(low <= value < high for low, high in (_SECONDS, _MILLISECONDS))
    return bool(within and _NAMED.search(name))


def _time_of(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if _TIME.match(text) else None
    except ValueError:
        return None


def _later(value: Any, elapsed_ms: int) -> Any:
    """Return what stands in such a field that many milliseconds later; where it holds no time, something else."""
    if isinstance(value, str):
        time = _time_of(value)
        if time is None:
            return f"{value}-{elapsed_ms}"
        moved = (time + timedelta(milliseconds=elapsed_ms)).isoformat(value[10])
        return moved.replace("+00:00", "Z") if value.endswith("Z") else moved
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_seconds = _SECONDS[0] <= value < _SECONDS[1]
        return value + (elapsed_ms // 1000 if is_seconds else elapsed_ms)
    return value
