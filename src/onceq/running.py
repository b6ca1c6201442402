"""Which step's function is running in this task or thread, if one is."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STEP: ContextVar[str] = ContextVar("step", default="")


def running_step() -> str:
    """Return the name of the step; ``""`` outside of one.

    Example:
        >>> with inside("charge"):
        ...     running_step()
        'charge'
    """
    return _STEP.get()


@contextmanager
def inside(step: str) -> Iterator[None]:
    """Let this be the step that is running, in the block and in what it calls."""
    token = _STEP.set(step)
    try:
        yield
    finally:
        _STEP.reset(token)
