"""What a caller of the kit gives: an error that says what was given, and what to give, where it is none of that."""

from __future__ import annotations

from reprlib import Repr
from typing import TYPE_CHECKING

from onceq.application import App
from onceq.job_type import JobType
from onceq.settings import require

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def shown(given: object) -> str:
    """Return what was given as an error shows it: short, whatever it is."""
    return _SHORT.repr(given)


def check_app(given: object) -> None:
    """Raise: ConfigurationError, if this is no application."""
    require(isinstance(given, App), f"{shown(given)} is no App: give App([…]) of your job types")


def check_job_type(given: object, *, named: bool = False) -> None:
    """Raise: ConfigurationError, if this is no job type; ``named`` lets a text be the name of one."""
    told = f"{shown(given)} is no job type: give the function that has @job above it{', or its name' * named}"
    require(isinstance(given, JobType) or (named and isinstance(given, str)), told)


def check_text(option: str, given: object) -> None:
    """Raise: ConfigurationError, if this is no text."""
    require(isinstance(given, str), f"{option}= is {shown(given)}: give a text")


def check_function(option: str, given: object, does: str) -> None:
    """Raise: ConfigurationError, if nothing can call this; ``does`` says what is called there."""
    require(callable(given), f"{option}= is {shown(given)}: give a function that {does}")


def check_known(what: str, given: object, known: Iterable[str]) -> None:
    """Raise: ConfigurationError, if an environment has nothing of that name."""
    names = [*known]
    require(given in names, f"there is no {what} {shown(given)} in this environment: {', '.join(names)}")
