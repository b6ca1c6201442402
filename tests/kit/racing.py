"""Many consumers at once."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
# Threads change places between almost any two bytecodes, so races in our own code show.
EAGER_SWITCH = 1e-6


@contextmanager
def eager_switching() -> Iterator[None]:
    """Let threads change places as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(EAGER_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def all_at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run every call in a thread of its own, started together, and return what they return."""
    barrier = threading.Barrier(len(calls))

    def start(call: Callable[[], T]) -> T:
        barrier.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(start, calls))
