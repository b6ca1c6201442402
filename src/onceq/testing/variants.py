"""Other values of a payload's fields, of the same form: what makes a second job of the first one's payload."""

from __future__ import annotations

import dataclasses
import enum
import re
import typing
import uuid
from datetime import date, datetime, timedelta
from typing import Any

if typing.TYPE_CHECKING:
    from collections.abc import Iterator

_DAY = timedelta(days=1)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


def variants(value: Any) -> list[Any]:
    """Return other values of the form of one, the likeliest first; nothing for what is no text and no number.

    Example:
        >>> variants("o-1"), variants("2026-12-31"), variants("0099"), variants(7)
        (['o-1-2', 'o-2'], ['2027-01-01', '2026-12-31-2'], ['0100', '0099-2'], [8, 1007, 6])
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return []
    if not isinstance(value, str):
        # Far away, too: a job may count pages, and send itself the next one.
        return [value + 1, value + 1000, value - 1]
    plain = f"{value}-2"
    if _UUID.fullmatch(value):
        return [_other_uuid(value), plain]
    if _DATE.fullmatch(value):
        return [*_later(value), plain]
    if value.isascii() and value.isdigit():
        return [str(int(value) + 1).zfill(len(value)), plain]
    counted = re.sub(r"\d+(?=\D*$)", lambda found: str(int(found[0]) + 1).zfill(len(found[0])), value)
    # A form that is checked often allows the same letters and as many of them.
    return [plain, counted] if counted != value else [plain, f"{value[:-1]}{'b' if value.endswith('a') else 'a'}"]


def members(hint: Any) -> list[Any]:
    """Return the values that an annotation names one by one, of enumerations and ``Literal``, wherever they stand.

    Example:
        >>> members(dict[str, typing.Literal["EUR", "USD"]])
        ['EUR', 'USD']
    """
    return list(dict.fromkeys(_members(hint, [])))


def _members(hint: Any, seen: list[Any]) -> Iterator[Any]:
    if any(one is hint for one in seen):
        return
    seen.append(hint)
    if typing.get_origin(hint) is typing.Literal:
        yield from typing.get_args(hint)
        return
    if isinstance(hint, enum.EnumMeta):
        members_of: dict[str, enum.Enum] = dict(hint.__members__)
        yield from (member.value for member in members_of.values())
        return
    for inner in typing.get_args(hint):
        yield from _members(inner, seen)
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or getattr(hint, "__annotations__", None)):
        for inner in _hints(hint).values():
            yield from _members(inner, seen)


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - an annotation that cannot be read names nothing
        return {}


def _other_uuid(value: str) -> str:
    # The last digit alone: version and variant stay what they are.
    other = value[:-1] + ("1" if value[-1] != "1" else "2")
    return str(uuid.UUID(other)) if "-" in value and value.islower() else other


def _later(value: str) -> list[str]:
    try:
        if len(value) == len("2026-12-31"):
            return [(date.fromisoformat(value) + _DAY).isoformat()]
        later = datetime.fromisoformat(value) + _DAY
    except (ValueError, OverflowError):
        return []
    # The rest of it stands as it did: the zone, and how exact it is.
    return [later.date().isoformat() + value[10:]]
