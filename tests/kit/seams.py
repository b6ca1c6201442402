"""The seams to DynamoDB and SQS, watched: every call is written down, and the process may die before or after any.

The points are read from the classes themselves, so a new method is a new point at once.
"""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from onceq.dynamodb import DynamoDB
from onceq.errors import Signal
from onceq.locks import Locks
from onceq.outbox import Outbox
from onceq.queue import Queue
from onceq.record import Record, Status
from onceq.runtime import Runtime
from onceq.steps import open_steps
from onceq.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceq.clock import Clock, Deadline
    from onceq.settings import Settings

When = Literal["before", "after"]
SEAMS: tuple[type[Any], ...] = (Store, Locks, Outbox, Queue)
# Public methods that make no request: one returns the seam again, the other a write for a transaction.
LOCAL = {(Queue, "within"), (Outbox, "staged")}
# What goes past the tables, straight to DynamoDB: the sweep, which reads the claims table and keeps its place in it.
DIRECT = ("GetItem", "PutItem", "Scan")
STARTS = {"claim", "take_over"}
ENDS = {"complete", "commit", "release", "give_back", "reject", "hold", "mark_stale", "resolve"}


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
    """Return the public methods that make requests."""
    return [
        name
        for name, _ in inspect.getmembers(seam, inspect.isfunction)
        if not name.startswith("_") and (seam, name) not in LOCAL
    ]


def calls_of_interest() -> list[tuple[str, str]]:
    """Return every call that is watched, as seam and method."""
    through = [(seam.__name__, name) for seam in SEAMS for name in methods_of(seam)]
    return [*through, *((DynamoDB.__name__, operation) for operation in DIRECT)]


def points() -> list[Point]:
    """Return every point of all seams."""
    whens: tuple[When, ...] = ("before", "after")
    return [Point(seam, method, when) for seam, method in calls_of_interest() for when in whens]


@dataclass
class Seams:
    """Watches the seams of all the processes of one run.

    Args:
        crash: The point to die at, and at which call of that method in the whole run, from 1.
        watch: Told ``(method, when)`` of every call; it may wait, or raise `SimulatedCrash`.
        on_death: Told that a process has died.
        calls: How often each method was called.
        completed: How often a job was completed, by its partition key.
        cut_jobs: The jobs that were claimed and had not ended when a process died.
        cut_steps: Those of them that had begun an at-most-once step, which had not ended.
    """

    crash: tuple[Point, int] | None = None
    watch: Callable[[str, When], object] = lambda _method, _when: None
    on_death: Callable[[], object] = lambda: None
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    completed: Counter[str] = field(default_factory=Counter)
    crashed: bool = False
    cut_jobs: set[str] = field(default_factory=set)
    cut_steps: set[str] = field(default_factory=set)
    _running: set[str] = field(default_factory=set)
    _stepping: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def process(self, base: Runtime, settings: Settings | None = None, clock: Clock | None = None) -> Process:
        """Start a process: a runtime of its own that shares only the network clients."""
        return Process(self, base, settings or base.settings, clock or base.clock)

    def count(self, seam: str, method: str) -> int:
        """Count a call and return its number."""
        with self._lock:
            self.calls[seam, method] += 1
            return self.calls[seam, method]

    def note(self, method: str, answer: object) -> None:
        """Write down what a call did to a record, if anything."""
        if not isinstance(answer, Record) or method == "get":
            return
        with self._lock:
            _put_in(self._running, answer.pk, method in STARTS or (answer.pk in self._running and method not in ENDS))
            _put_in(self._stepping, answer.pk, answer.pk in self._running and bool(open_steps(answer.steps)))
            self.completed[answer.pk] += answer.status is Status.COMPLETED
            if method == "resolve":
                # A person has looked: what was cut before is known now.
                self.cut_jobs.discard(answer.pk)
                self.cut_steps.discard(answer.pk)

    def died(self) -> None:
        """Write down what a death cut short."""
        with self._lock:
            self.cut_jobs |= self._running
            self.cut_steps |= self._stepping
        self.on_death()


def _put_in(found: set[str], pk: str, belongs: bool) -> None:  # noqa: FBT001 - reads as an assignment
    (found.add if belongs else found.discard)(pk)


class Process(Runtime):
    """The runtime of one process. Once it is dead, no call of any of its threads reaches the network."""

    def __init__(self, seams: Seams, base: Runtime, settings: Settings, clock: Clock) -> None:
        """Share the clients of ``base``."""
        super().__init__(settings, clock=clock, tokens=base.tokens)
        self.dead = False
        self._seams = seams
        self._base = base
        self._inside = threading.local()
        self._classes = {seam: self._watched(seam) for seam in SEAMS}

    def store(self, deadline: Deadline) -> Store:
        """Return the watched claims table."""
        store: Store = self._table(Store, self.settings.claims_table, deadline)
        return store

    def locks(self, deadline: Deadline) -> Locks:
        """Return the watched locks."""
        locks: Locks = self._table(Locks, self.settings.claims_table, deadline)
        return locks

    def outbox(self, deadline: Deadline) -> Outbox:
        """Return the watched outbox table."""
        outbox: Outbox = self._table(Outbox, self.settings.outbox_table, deadline)
        return outbox

    def queue(self, deadline: Deadline) -> Queue:
        """Return the watched queue."""
        inner = self._base.queue(deadline)
        queue: Queue = self._classes[Queue](self.clock, self.tokens, deadline, client=inner._client)
        return queue

    def loop(self) -> Any:
        """Return the base's event loop."""
        return self._base.loop()

    def kill(self) -> None:
        """Die: the caller and every later call of this process get `SimulatedCrash`."""
        self.dead = True
        self._seams.died()
        raise SimulatedCrash

    def _table(self, seam: type[Any], table: str, deadline: Deadline) -> Any:
        return self._classes[seam](_Direct(self, self._base.store(deadline).dynamodb), table, deadline)

    def _watched(self, seam: type[Any]) -> Any:
        return type(f"Watched{seam.__name__}", (seam,), {name: self._call(seam, name) for name in methods_of(seam)})

    def _call(self, seam: type[Any], method: str) -> Any:
        original = getattr(seam, method)

        def call(instance: Any, *arguments: Any, **named: Any) -> Any:
            def act() -> Any:
                with self._in_a_method():
                    return original(instance, *arguments, **named)

            return self._watch(seam.__name__, method, act)

        return call

    @contextmanager
    def _in_a_method(self) -> Iterator[None]:
        before = getattr(self._inside, "a_method", False)
        self._inside.a_method = True
        try:
            yield
        finally:
            self._inside.a_method = before

    def _watch(self, seam: str, method: str, act: Callable[[], Any]) -> Any:
        if self.dead:
            raise SimulatedCrash
        number = self._seams.count(seam, method)
        self._seams.watch(method, "before")
        self._die_at(Point(seam, method, "before"), number)
        try:
            answer = act()
        except Exception:
            self._die_at(Point(seam, method, "after"), number)  # refused, and nobody hears of it
            raise
        self._seams.note(method, answer)
        self._seams.watch(method, "after")
        self._die_at(Point(seam, method, "after"), number)
        return answer

    def _die_at(self, point: Point, number: int) -> None:
        if self._seams.crash == (point, number):
            self._seams.crashed = True
            self.kill()


@dataclass(frozen=True, slots=True)
class _Direct:
    """The seam to DynamoDB, watched where no table's method stands before it."""

    process: Process
    inner: DynamoDB

    def call(self, operation: str, request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Send one request and return its response."""

        def act() -> dict[str, Any]:
            return self.inner.call(operation, request, deadline)

        if getattr(self.process._inside, "a_method", False):
            return act()
        answer: dict[str, Any] = self.process._watch(DynamoDB.__name__, operation, act)
        return answer


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
