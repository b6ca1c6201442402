"""The seams to DynamoDB and SQS, watched: every call is written down, and the process may die before or after any.

The points are read from the classes themselves, so a new method is a new point at once.
"""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from onceq.errors import Signal
from onceq.queue import Queue
from onceq.record import Record
from onceq.runtime import Runtime
from onceq.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.clock import Clock, Deadline
    from onceq.settings import Settings

When = Literal["before", "after"]


class SimulatedCrash(Signal):
    """The process died here. A `Signal`, so nothing that the framework or a job catches holds it up."""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """Where a process may die: before or after a call of a seam's method."""

    seam: str
    method: str
    when: When

    def __str__(self) -> str:
        """Name it for a test's id."""
        return f"{self.when}-{self.seam}.{self.method}"


def methods_of(seam: type) -> list[str]:
    """Return the public methods that make requests: all but those that only return the seam again."""
    return [
        name
        for name, function in inspect.getmembers(seam, inspect.isfunction)
        if not name.startswith("_") and inspect.signature(function).return_annotation != seam.__name__
    ]


def points() -> list[Point]:
    """Return every point of both seams."""
    whens: tuple[When, ...] = ("before", "after")
    return [Point(seam.__name__, name, when) for seam in (Store, Queue) for name in methods_of(seam) for when in whens]


@dataclass
class Seams:
    """Watches the seams of all the processes of one run.

    Args:
        crash: The point to die at, and at which call of that method in the whole run, from 1.
        watch: Told ``(method, when)`` of every call; it may wait, or raise `SimulatedCrash`.
    """

    crash: tuple[Point, int] | None = None
    watch: Callable[[str, When], object] = lambda _method, _when: None
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    landed: Counter[tuple[str, str]] = field(default_factory=Counter)
    crashed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def process(self, base: Runtime, settings: Settings | None = None, clock: Clock | None = None) -> Process:
        """Start a process: a runtime of its own that shares only the network clients."""
        return Process(self, base, settings or base.settings, clock or base.clock)


class Process(Runtime):
    """The runtime of one process. Once it is dead, no call of any of its threads reaches the network."""

    def __init__(self, seams: Seams, base: Runtime, settings: Settings, clock: Clock) -> None:
        """Share the clients of ``base``."""
        super().__init__(settings, clock=clock, tokens=base.tokens)
        self.dead = False
        self._seams = seams
        self._base = base
        self._watched_store = self._watched(Store)
        self._watched_queue = self._watched(Queue)

    def store(self, deadline: Deadline) -> Store:
        """Return the watched claims table."""
        inner = self._base.store(deadline)
        store: Store = self._watched_store(inner.dynamodb, inner.table, deadline)
        return store

    def queue(self, deadline: Deadline) -> Queue:
        """Return the watched queue."""
        inner = self._base.queue(deadline)
        queue: Queue = self._watched_queue(self.clock, self.tokens, deadline, client=inner._client)
        return queue

    def loop(self) -> Any:
        """Return the base's event loop."""
        return self._base.loop()

    def kill(self) -> None:
        """Die: the caller and every later call of this process get `SimulatedCrash`."""
        self.dead = True
        raise SimulatedCrash

    def _watched(self, seam: type[Any]) -> Any:
        return type(f"Watched{seam.__name__}", (seam,), {name: self._call(seam, name) for name in methods_of(seam)})

    def _call(self, seam: type[Any], method: str) -> Any:
        original = getattr(seam, method)
        seams = self._seams

        def call(instance: Any, *arguments: Any, **named: Any) -> Any:
            if self.dead:
                raise SimulatedCrash
            with seams._lock:
                seams.calls[seam.__name__, method] += 1
                number = seams.calls[seam.__name__, method]
            seams.watch(method, "before")
            self._die_at(Point(seam.__name__, method, "before"), number)
            answer = original(instance, *arguments, **named)
            if isinstance(answer, Record):
                with seams._lock:
                    seams.landed[answer.pk, method] += 1
            seams.watch(method, "after")
            self._die_at(Point(seam.__name__, method, "after"), number)
            return answer

        return call

    def _die_at(self, point: Point, number: int) -> None:
        if self._seams.crash == (point, number):
            self._seams.crashed = True
            self.kill()


class OneRenewalClock:
    """The time of another clock; the first wait for a renewal is over at once, the next lasts until the job ends."""

    longest_wait: ClassVar[float] = 30

    def __init__(self, clock: Clock) -> None:
        """Keep the clock that tells the time."""
        self._clock = clock
        self._waits = 0

    def now_ms(self) -> int:
        """Return the other clock's time."""
        return self._clock.now_ms()

    def monotonic(self) -> float:
        """Return the other clock's time in seconds."""
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep on the other clock."""
        self._clock.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Return at once the first time, then wait for the event."""
        self._waits += 1
        return False if self._waits == 1 else event.wait(self.longest_wait)
