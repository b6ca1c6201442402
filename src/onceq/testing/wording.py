"""How numbers and times are told, and how wide the lines are that a person reads."""

from __future__ import annotations

import shutil
import textwrap

AN_HOUR = 3600
# Where there is no terminal, and what a picture needs at the most.
WIDEST = 120
NARROWEST = 40


def numbered(number: int, noun: str) -> str:
    """Return how many of something there are.

    Example:
        >>> numbered(1, "scenario"), numbered(2, "scenario")
        ('1 scenario', '2 scenarios')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def lasting(seconds: float) -> str:
    """Return how long something takes: in seconds, or in hours and what is left.

    Example:
        >>> lasting(90), lasting(93_600)
        ('90 s', '26 h')
    """
    hours, rest = divmod(seconds, AN_HOUR)
    return " ".join([*([f"{hours:g} h"] if hours else []), *([f"{rest:g} s"] if rest or not hours else [])])


def since(seconds: float) -> str:
    """Return how long after the beginning something is: to the millisecond, or from an hour on in hours.

    Example:
        >>> since(90), since(93_690)
        ('+90.000 s', '+26:01:30')
    """
    if seconds < AN_HOUR:
        return f"{seconds:+.3f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"+{minutes // 60}:{minutes % 60:02}:{rest:02}"


def terminal_columns(margin: int = 0) -> int:
    """Return how wide the terminal is, without a margin that somebody else writes into."""
    return max(NARROWEST, shutil.get_terminal_size((WIDEST, 24)).columns - margin)


def wrapped(line: str, columns: int) -> list[str]:
    """Return a line in as many as fit; what goes on is indented below it.

    Example:
        >>> wrapped("  what to do: claim first", 14)
        ['  what to do:', '    claim', '    first']
    """
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, columns, subsequent_indent=indent) if len(line) > columns else [line]
