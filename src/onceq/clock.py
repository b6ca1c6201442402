"""Time and randomness: the only module that reads a clock or draws a random number.

Everything else is given a `Clock`, a `TokenFactory` and a `Deadline`, so that tests can hold all three still.
Tokens are made inside the invocation: Lambda SnapStart clones what is made at init
(https://docs.aws.amazon.com/lambda/latest/dg/snapstart-uniqueness.html).
"""

from __future__ import annotations

import os
import random
import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable


class Clock(Protocol):
    """What the framework asks of time."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never steps back."""

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set, at most that many seconds; return whether it is."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds of a clock that never steps back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set, at most that many seconds; return whether it is."""
        return event.wait(seconds)


class TokenFactory:
    """Where tokens, generated keys and jitter come from."""

    def __init__(self, clock: Clock) -> None:
        """Keep the clock that generated keys are ordered by."""
        self._clock = clock

    def token(self) -> str:
        """Return a random token of 128 bits: the name of one claim attempt."""
        return os.urandom(16).hex()

    def key(self) -> str:
        """Return a new idempotency key: a UUID of version 7, so keys sort by the time they were made (RFC 9562)."""
        value = (self._clock.now_ms() & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10), "big")
        value = value & ~(0xF << 76) | 0x7 << 76
        value = value & ~(0x3 << 62) | 0x2 << 62
        return str(uuid.UUID(int=value))

    def uniform(self, low: float, high: float) -> float:
        """Return a random number between both: the jitter of a back-off."""
        return random.SystemRandom().uniform(low, high)


class Deadline(Protocol):
    """When this process stops being able to work."""

    @property
    def kills(self) -> bool:
        """Whether the process is killed when the time is over; if so, a lease may end with it."""

    @property
    def accepting(self) -> bool:
        """Whether another job may be started at all."""

    @property
    def total(self) -> float:
        """The seconds there were at the beginning: a job that needs more can never start here."""

    def remaining(self) -> float:
        """Return the seconds left; infinite where nothing kills the process."""


class LambdaDeadline:
    """The time-out of a Lambda invocation, told by its context."""

    kills = True
    accepting = True

    def __init__(self, remaining_ms: Callable[[], float]) -> None:
        """Keep the context's ``get_remaining_time_in_millis``, at the beginning of the invocation."""
        self._remaining_ms = remaining_ms
        self.total = self.remaining()

    def remaining(self) -> float:
        """Return the seconds left; zero is zero and not "unknown"."""
        return self._remaining_ms() / 1000


class OpenDeadline:
    """No time-out: the local runner, which stops taking work when it is told to."""

    kills = False
    total = float("inf")

    def __init__(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Keep the question whether the runner is stopping."""
        self._stopping = stopping

    @property
    def accepting(self) -> bool:
        """Whether another job may be started: not while stopping."""
        return not self._stopping()

    def remaining(self) -> float:
        """Return infinity: a job that runs here may finish."""
        return float("inf")


class ShorterDeadline:
    """A part of the time that another deadline leaves, for work that must not use it all up."""

    kills = False

    def __init__(self, outer: Deadline, seconds: float, clock: Clock) -> None:
        """Take so many seconds from now on, and no more than there are."""
        self._outer = outer
        self._clock = clock
        self._until = clock.monotonic() + seconds
        self.total = min(seconds, outer.total)

    @property
    def accepting(self) -> bool:
        """Whether another job may be started at all."""
        return self._outer.accepting

    def remaining(self) -> float:
        """Return the seconds left of the part."""
        return min(self._outer.remaining(), self._until - self._clock.monotonic())


def deadline_of(context: Any) -> Deadline:
    """Return the deadline of a Lambda context.

    Args:
        context: A Lambda context, an `OpenDeadline`, or anything else (``None`` too), which has no deadline.

    Returns:
        What to ask for the time left.

    Example:
        >>> deadline_of(None).remaining()
        inf
    """
    if isinstance(context, OpenDeadline):
        return context
    remaining_ms = getattr(context, "get_remaining_time_in_millis", None)
    return LambdaDeadline(remaining_ms) if callable(remaining_ms) else OpenDeadline()
