"""What a worker does next, given all that it has been told: the real code, run up to there.

A worker's code is deterministic in what it is told: the answers of its requests, those of its effects, and the time
(its tokens are counted, nothing draws a random number). So what it does is a tree: a `Node` is a point where it
stands, and has a child for each thing that it can be told there. A node that nobody has visited yet is found by
running the handler again from its start, on this thread, feeding it what was told on the way; at the first point
beyond that `Standing` ends the run. Every such run is compared with the nodes that it passes, so code that is not
deterministic is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from explore.outside import FAILED, LOST, RELAY, RENEWS, SILENCE, Gateway, Told, Wanted
from explore.strands import OneThread, in_one_thread, waited
from kit.memory import MemorySqs
from kit.memory_tables import MemoryDynamoDB
from onceq.errors import Signal
from onceq.testing.calls import Call
from onceq.testing.clock import CountingTokens, FrozenClock
from onceq.testing.errors import Crash
from onceq.testing.process import CURRENT
from onceq.testing.subject import Seen
from onceq.testing.timeline import Timeline

if TYPE_CHECKING:
    import threading
    from collections.abc import Hashable

    from onceq.settings import Settings
    from onceq.telemetry import Event
    from onceq.testing.keyed import Asked
    from onceq.testing.points import Point
    from onceq.testing.subject import Return, Start, Subject

# More points than any worker of a play passes: one that goes on for ever shows.
MOST_POINTS = 200


class Kind(Enum):
    """Where a worker stands."""

    CALL = auto()
    EFFECT = auto()
    CLOCK = auto()
    BACK = auto()  # behind an effect, before the job hears of it, where the lease is renewed
    ANSWER = auto()  # before the answer, which acknowledges
    RAISED = auto()  # before the end of an invocation that failed


class Standing(Signal):
    """The worker has come as far as what it was told reaches."""


class NotDeterministic(AssertionError):
    """A worker did something else although it was told the same."""


class News(NamedTuple):
    """What was seen of the job from one point to the next."""

    starts: tuple[Start, ...] = ()
    returns: tuple[Return, ...] = ()
    events: tuple[Event, ...] = ()

    def tells(self, *names: str) -> bool:
        """Return whether one of these telemetry events came."""
        return any(event.name in names for event in self.events)


@dataclass(slots=True, eq=False)
class Node:
    """A point where a worker stands.

    Args:
        number: Tells it apart from every other node.
        role: Which worker.
        parent: The point before; ``None`` for the first.
        told: What was told there.
        kind: What it stands at.
        what: The request, the effect, the answer or the exception.
        news: What was seen on the way here.
        running: Whether the job's function is under way.
        renewable: Whether the lease may be renewed here.
        count: How many starts, returns and events there were up to here.
        shape: While it was told nothing but the time: what tells it apart from other workers of its message.
        children: The next points, by what is told.
    """

    number: int
    role: Role
    parent: Node | None
    told: Told | None
    kind: Kind
    what: Any
    news: News
    running: bool
    renewable: bool
    count: tuple[int, int, int]
    shape: tuple[int, ...] | None = None
    children: dict[Hashable, Node] = field(default_factory=dict)

    @property
    def call(self) -> Call:
        """The request that it stands at."""
        assert isinstance(self.what, Call)
        return self.what

    @property
    def path(self) -> list[Node]:
        """The points up to here."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def __str__(self) -> str:
        return f"{self.role.name}: {self.kind.name.lower()} {self.what if self.kind is not Kind.CLOCK else ''}".rstrip()


class Role(NamedTuple):
    """One invocation: the worker's name, its event, and when it begins and must end (epoch ms), if anything ends it."""

    name: str
    message_id: str
    event: Any
    began_at: int
    ends_at: int | None

    @property
    def relays(self) -> bool:
        """Whether it is one of the relay."""
        return self.message_id == RELAY

    def context(self, clock: Any) -> Lambda | None:
        """Return its Lambda context; none where nothing ends it, and the lease is renewed."""
        return None if self.ends_at is None else Lambda(self.name, self.ends_at, clock)

    def identity(self) -> Hashable:
        """Return what tells it apart."""
        return self.name, self.message_id, repr(self.event), self.began_at, self.ends_at


class Lambda:
    """The Lambda context of an invocation; asking for the time left asks for the time."""

    def __init__(self, name: str, ends_at: int, clock: Any) -> None:
        """End then, epoch ms."""
        self.aws_request_id = name
        self.function_name = "onceq-testing"
        self._ends_at = ends_at
        self._clock = clock

    def get_remaining_time_in_millis(self) -> int:
        """Return what is left."""
        return max(0, self._ends_at - int(self._clock.now_ms()))


class Asking(FrozenClock):
    """A clock whose every reading is a point of a process. A pause takes no time: the schedule alone moves it on."""

    def __init__(self, ask: Callable[[], int]) -> None:
        """Ask for each reading."""
        super().__init__()
        self._ask = ask

    def now_ms(self) -> int:
        """Ask."""
        return self._ask()

    def monotonic(self) -> float:
        """Ask for the same in seconds."""
        return self._ask() / 1000

    def advance(self, seconds: float) -> None:
        """Do nothing: a pause of a worker moves nobody's time."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait, as the thread that renews a lease."""
        return waited(event)


# What a worker is told at a point that nobody has visited yet, so that its run goes on; ``None`` ends the run.
GoOn = Callable[[Node], Told | None]


class Rehearsal(OneThread):
    """A process that is told what happens, instead of reaching anything.

    Args:
        role: The invocation.
        settings: The settings.
        trail: The points that were visited before, in order.
        told: What is told at each of them; at the last one something new.
        grow: Makes the next point.
        go_on: Says what is told at a new point.
    """

    def __init__(
        self,
        role: Role,
        settings: Settings,
        *,
        trail: list[Node],
        told: list[Told],
        grow: Callable[[Rehearsal, Kind, Any], Node],
        go_on: GoOn,
    ) -> None:
        """Start at the beginning."""
        self.role, self.trail, self.told, self.seen = role, trail, told, Seen()
        self._at, self._grow, self._go_on = 0, grow, go_on
        self._silent: Call | None = None
        clock = Asking(lambda: int(self._next(Kind.CLOCK, None).value))
        super().__init__(
            role.name,
            settings,
            clock=clock,
            tokens=CountingTokens(clock, f"{role.name}-t"),
            clients={"dynamodb": MemoryDynamoDB(), "sqs": MemorySqs()},
            timeline=Timeline(FrozenClock()),
        )

    def call(self, call: Call, _forward: Callable[[], Any]) -> Any:
        """Be told what the request comes to."""
        if call == self._silent:
            raise self._lost(call)
        told = self._next(Kind.CALL, call)
        if told is SILENCE:
            self._silent = call
        if told is SILENCE or told is LOST:
            raise self._lost(call)
        return told.given()

    def effect(self, name: str, act: Callable[[], Any], fail: Callable[[], Exception]) -> Any:
        """Be told what the effect comes to; a `Rehearsed` has left in ``act`` what is wanted."""
        told = self._next(Kind.EFFECT, act())
        if self.may_renew:
            self._next(Kind.BACK, name)
        if told is FAILED:
            raise fail()
        return told.value

    def reach(self, point: Point) -> None:
        """Do nothing: where nothing happens there is nothing to tell."""

    def stand(self, kind: Kind, what: Any) -> Told | None:
        """Stand at a point, and return what is told there."""
        if self._at == len(self.trail):
            node = self._grow(self, kind, what)
            self.trail.append(node)
            told = self._go_on(node)
            if told is None:
                return None
            self.told.append(told)
        before, told = self.trail[self._at], self.told[self._at]
        if before.kind is not kind or before.what != what:
            message = f"told the same, {self.name} did something else: {before}, and now {kind.name} {what}"
            raise NotDeterministic(message)
        self._at += 1
        return told

    def _next(self, kind: Kind, what: Any) -> Told:
        while True:
            if self.dead:
                raise Crash
            told = self.stand(kind, what)
            if told is None:
                # What the code still does on its way out reaches nothing, as after a crash.
                self.dead = True
                raise Standing
            if told is not RENEWS:
                return told
            self.renew()


class Rehearsed(Gateway):
    """A provider that only says what is wanted of it; the answer is told."""

    def _happen(self, asked: Asked, worker: str) -> Wanted:
        return Wanted(asked.function, asked.key, asked.arguments, tuple(sorted(asked.named.items())))


def handler_of(subject: Subject, process: OneThread, seen: Seen, role: Role) -> Callable[[], Any]:
    """Return what an invocation runs."""
    # Of a play with a role for the relay, the application has one.
    handler: Any = subject.relay(process, seen) if role.relays else subject.handler(process, seen)
    context = role.context(process.clock)
    return lambda: handler(role.event, context)


class Behaviour:
    """The trees of all workers of a play.

    Args:
        subject: Makes what is delivered to, given the provider.
        settings: The settings.
    """

    def __init__(self, subject: Callable[[Gateway], Subject], settings: Settings) -> None:
        """Know nothing yet."""
        self._subject = subject(Rehearsed())
        self._settings = settings
        self._first: dict[Hashable, Node] = {}
        self.nodes: list[Node] = []
        self.runs = 0

    def begin(self, role: Role, go_on: GoOn = lambda _: None) -> Node:
        """Return the first point of a worker; ``go_on`` may let a run that is needed for it visit others at once."""
        name = role.identity()
        if name not in self._first:
            self._first[name] = self._run(role, None, None, go_on)
        return self._first[name]

    def after(self, node: Node, told: Told, go_on: GoOn = lambda _: None) -> Node:
        """Return the next point of a worker that is told something where it stands; ``go_on`` as above."""
        found = node.children.get(told.name)
        return found if found is not None else self._run(node.role, node, told, go_on)

    def _run(self, role: Role, parent: Node | None, last: Told | None, go_on: GoOn) -> Node:
        self.runs += 1
        trail = parent.path if parent is not None else []
        told = [one.told for one in trail[1:] if one.told is not None] + ([last] if last is not None else [])
        at = len(trail)
        process = Rehearsal(role, self._settings, trail=trail, told=told, grow=self._grow, go_on=go_on)
        token = CURRENT.set(process)
        try:
            with in_one_thread():
                answer = handler_of(self._subject, process, process.seen, role)()
            process.stand(Kind.ANSWER, answer)
        except (Standing, Crash):
            pass
        except Exception as error:  # noqa: BLE001 - the invocation failed
            process.stand(Kind.RAISED, f"{type(error).__name__}: {error}")
        finally:
            process.close()
            CURRENT.reset(token)
        return process.trail[at]

    def _grow(self, process: Rehearsal, kind: Kind, what: Any) -> Node:
        trail, seen = process.trail, process.seen
        assert len(trail) < MOST_POINTS, f"{process.name} goes on and on: {trail[-1]}"
        parent = trail[-1] if trail else None
        told = process.told[-1] if trail else None
        since = parent.count if parent is not None else (0, 0, 0)
        count = (len(seen.starts), len(seen.returns), len(seen.events))
        news = News(
            tuple(seen.starts[since[0] :]),
            tuple(seen.returns[since[1] :]),
            tuple(event for _, event in seen.events[since[2] :]),
        )
        running = count[0] > count[1] and kind not in (Kind.ANSWER, Kind.RAISED)
        renewable = kind in (Kind.EFFECT, Kind.BACK) and process.may_renew
        node = Node(len(self.nodes), process.role, parent, told, kind, what, news, running, renewable, count)
        if parent is None:
            node.shape = (process.role.began_at,)
        elif parent.shape is not None and parent.kind is Kind.CLOCK and told is not None:
            node.shape = (*parent.shape, told.value)
        self.nodes.append(node)
        if parent is not None and told is not None:
            parent.children[told.name] = node
        return node
