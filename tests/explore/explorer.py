"""Every schedule of a play: a graph of states, each visited once.

A state is what stands outside, the time, what the world may still do, and for each worker the point where it stands
(`explore.behaviour.Node`, which is all that it has been told). Its code is deterministic in that, so equal states have
equal futures, and a schedule is a path through the graph. What a worker does at its next point is asked of the real
code once, whatever the others did meanwhile; what a request means is asked of the doubles once for each outside.

At each point the explorer chooses who goes on; whether this worker dies here; whether the response of this write is
lost; whether this effect fails; and whether the lease passes now, which moves the clock past every lease and the skew.
A crash after a request is one before the next.

*Readings of the clock.* A reading changes nothing, so it commutes with every move of another worker, and only the
passing of time does not commute with it. Therefore a worker reads on at once, or it is *paused* before that reading
until the time has passed; nothing else is worth waiting for there. The same holds for the beginning of an invocation.

*Preemptions.* With a bound, a worker that could go on is passed over at most that many times; changing over from one
that is over, dead or paused is free.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from explore.behaviour import Kind, Node
from explore.outside import FAILED, LOST, RENEWS, SILENCE, Snapshot, Told
from explore.space import RENEWED_AFTER, Play, Used
from explore.stage import Stage
from onceq.testing.clock import START_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

UNBORN, LATE, OVER, DEAD = -1, -2, -3, -4
# The order of `Used`.
CRASH, LOSS, EXPIRY, FAILURE, LATE_WRITE, RENEWAL = range(6)
STARTED_TWICE = "G9: an at-most-once job was started twice"


class State(NamedTuple):
    """Everything, in small numbers; ``left`` is what the world may still do, in the order of `Used`."""

    outside: int
    now: int
    left: tuple[int, ...]
    workers: tuple[int, ...]
    starts: int = 0
    late: int = -1
    last: int = -1
    free: int = 0


class Choice(NamedTuple):
    """One move of a worker, ``begin``, ``go``, or what happens to it where it stands.

    - ``crash``: it dies;
    - ``lose``: this request lands, and its response is lost; ``silence``: nor is it answered when it is sent again;
    - ``delay``: this request lands later, and is sent again; ``stray``: nor does it arrive when it is sent again;
    - ``fail``: this effect fails; ``doubt``: it happens, and fails for its caller;
    - ``renew``: the lease is to be renewed; so much time has passed.

    Without a worker ``time`` passes, or the request ``lands`` that is late. ``readings`` is how many points the worker
    passes after it at once, where nothing happens.
    """

    verb: str
    worker: int = -1
    readings: int = 0


# A move, where it leads, and what it breaks.
Move = tuple[Choice, State, tuple[str, ...]]


@dataclass
class Exploration:
    """What was found.

    Args:
        play: The play.
        bound: The most preemptions, or ``None``.
        states: How many states.
        transitions: How many moves between them.
        schedules: How many paths from the beginning to an end there are.
        ends: How many states are an end.
        nodes: How many points the workers' trees have.
        runs: How often the real code was run for them.
        found: The shortest schedule to each kind of violation.
        changes: Each change of a record that a write made: before, after, and when and whose it was.
        samples: Some whole schedules, and what stands outside after each.
    """

    play: Play
    bound: int | None
    states: int = 0
    transitions: int = 0
    schedules: int = 0
    ends: int = 0
    nodes: int = 0
    runs: int = 0
    found: dict[str, list[Choice]] = field(default_factory=dict)
    changes: set[Any] = field(default_factory=set)
    samples: list[tuple[list[Choice], Snapshot]] = field(default_factory=list)


class Explorer:
    """Explores one play.

    Args:
        play: The play.
        bound: The most preemptions; ``None`` for all of them.
        symmetry: Whether of schedules that only exchange the names of workers one is walked; all are counted.
    """

    def __init__(self, play: Play, bound: int | None = None, *, symmetry: bool = True) -> None:
        """Know nothing yet."""
        self.play, self.bound, self.symmetry = play, bound, symmetry
        self.stage = Stage(play)
        self._nodes = self.stage.behaviour.nodes

    def explore(self, *, until: Collection[str] = (), sample: int = 0) -> Exploration:
        """Visit every state, breadth first, so that what is found is found by a shortest schedule.

        Args:
            until: Stop as soon as each violation that begins so is found.
            sample: Keep a shortest schedule to each so many-th end.
        """
        result = Exploration(self.play, self.bound)
        first = self._first()
        numbers, states = {first: 0}, [first]
        parents: list[tuple[int, Choice]] = [(-1, Choice("begin"))]
        edges, offsets = array("l"), array("l", [0])
        queue, ends = deque([0]), set()
        while queue:
            number = queue.popleft()
            state = states[number]
            moves = 0
            for choice, after, broken in self._moves(state):
                moves += 1
                for rule in broken:
                    if rule not in result.found:
                        result.found[rule] = [*_trace(parents, number), choice]
                if broken:
                    continue
                at = numbers.setdefault(after, len(states))
                if at == len(states):
                    states.append(after)
                    parents.append((number, choice))
                    queue.append(at)
                edges.append(at)
            offsets.append(len(edges))
            if not moves:
                ends.add(number)
                for rule in self._end(state):
                    result.found.setdefault(rule, _trace(parents, number))
                if sample and len(ends) % sample == 0:
                    settled = self.stage.settle(state.outside, state.now)
                    result.samples.append((_trace(parents, number), self.stage.snapshots[settled.outside]))
            if until and all(any(rule.startswith(one) for rule in result.found) for one in until):
                break
        result.states, result.transitions, result.ends = len(states), len(edges), len(ends)
        result.nodes, result.runs = len(self._nodes), self.stage.behaviour.runs
        result.changes = self.stage.watch.changes
        result.schedules = 0 if queue else _paths(edges, offsets, ends) * self._alike
        return result

    @property
    def _alike(self) -> int:
        """How many schedules only exchange the names of workers, for each that is walked."""
        alike = Counter(self.play.messages).values() if self.symmetry else ()
        return math.prod(map(math.factorial, alike))

    def _first(self) -> State:
        outside, now = self.stage.intern(self.play.begins()), START_MS
        for number, message_id in enumerate(self.play.before, 1):
            role = self.stage.role(f"before{number}", message_id, outside, now)
            outside, *_ = self.stage.alone(role, outside, now, fails=True)
        left = astuple(self.play.used)
        workers = tuple(UNBORN for _ in self.play.workers)
        return State(outside, now, left, workers, free=-1 if self.bound is None else self.bound)

    def _moves(self, state: State) -> Iterator[Move]:
        if UNBORN in state.workers:
            # One after the other, since beginnings commute.
            yield from self._begin(state, state.workers.index(UNBORN))
            return
        live = [index for index, number in enumerate(state.workers) if number >= 0]
        able = [index for index in live if self._nodes[state.workers[index]].kind is not Kind.CLOCK]
        for index in able:
            if self.symmetry and self._has_twin(state, index):
                continue
            free = state.free
            if free >= 0 and state.last in able and index != state.last:
                free -= 1
                if free < 0:
                    continue
            yield from self._work(state._replace(free=free), index)
        if state.left[EXPIRY] and (live or LATE in state.workers):
            yield self._time(state)
        if state.late >= 0:
            yield self._land(state)

    def _begin(self, state: State, index: int) -> Iterator[Move]:
        least = self._readings_of(state, index - 1) if self.symmetry and self._are_alike(index - 1, index) else -1
        if state.left[EXPIRY] and least < 0:
            yield Choice("begin", index, -1), _with(state, index, LATE), ()
        state, node = self._receive(state, index)
        for choice, after, broken in self._arrive(state, index, node, Choice("begin", index)):
            # Nobody has moved yet, so nobody is passed over.
            if choice.readings >= least:
                yield choice, self._moved(after, -1), broken

    def _readings_of(self, state: State, index: int) -> int:
        """Return how often a worker that has only begun has read the clock."""
        shape = self._nodes[state.workers[index]].shape if state.workers[index] >= 0 else None
        return -1 if shape is None else len(shape) - 1

    def _are_alike(self, one: int, other: int) -> bool:
        return one >= 0 and self.play.messages[one] == self.play.messages[other]

    def _has_twin(self, state: State, index: int) -> bool:
        """Return whether a worker before this one stands where it stands, and both have only begun: that one is first.

        Workers of one message differ by their names alone until they move, so each schedule is one of as many that only
        exchange names.
        """
        shape = self._nodes[state.workers[index]].shape
        return shape is not None and any(
            number >= 0 and self._nodes[number].shape == shape and self._are_alike(other, index)
            for other, number in enumerate(state.workers[:index])
        )

    def _receive(self, state: State, index: int) -> tuple[State, Node]:
        outside, node = self.stage.born(index, state.outside, state.now)
        return state._replace(outside=outside), node

    def _work(self, state: State, index: int) -> Iterator[Move]:
        """What one worker may do next, and what may happen to it."""
        node = self._nodes[state.workers[index]]
        left = state.left
        ends = node.kind in (Kind.ANSWER, Kind.RAISED)
        # Before an end that acknowledges nothing, dying changes nothing.
        if left[CRASH] and not (ends and self.stage.answer(state.outside, node)[0] == state.outside):
            dead = _with(state, index, DEAD)
            yield Choice("crash", index), self._moved(dead._replace(left=_less(left, CRASH)), -1), ()
        if ends:
            outside, broken = self.stage.answer(state.outside, node)
            yield Choice("go", index), self._moved(_with(state, index, OVER)._replace(outside=outside), -1), broken
            return
        if node.renewable and left[RENEWAL]:
            renewed = state._replace(left=_less(left, RENEWAL), now=state.now + RENEWED_AFTER * 1000)
            yield from self._tell(renewed, Choice("renew", index), RENEWS)
        if node.kind is Kind.BACK:
            yield from self._tell(state, Choice("go", index), self.stage.passing(node, state.now))
            return
        happened = self.stage.happen(node, state.outside, state.now)
        there, broken = state._replace(outside=happened.outside), happened.broken
        yield from self._tell(there, Choice("go", index), happened.told, broken)
        if node.kind is Kind.EFFECT:
            if left[FAILURE]:
                less = _less(left, FAILURE)
                yield from self._tell(state._replace(left=less), Choice("fail", index), FAILED)
                yield from self._tell(there._replace(left=less), Choice("doubt", index), FAILED, broken)
        elif node.call.is_write:
            if left[LOSS]:
                lost = there._replace(left=_less(left, LOSS))
                yield from self._tell(lost, Choice("lose", index), LOST, broken)
                yield from self._tell(lost, Choice("silence", index), SILENCE, broken)
            if left[LATE_WRITE] and state.late < 0:
                delayed = state._replace(left=_less(left, LATE_WRITE), late=node.number)
                yield from self._tell(delayed, Choice("delay", index), LOST)
                yield from self._tell(delayed, Choice("stray", index), SILENCE)

    def _tell(self, state: State, choice: Choice, told: Told, broken: tuple[str, ...] = ()) -> Iterator[Move]:
        if broken:
            yield choice, state, broken
            return
        node = self._nodes[state.workers[choice.worker]]
        after = node.children.get(told.name)
        if after is None:
            after = self.stage.behaviour.after(node, told, self.stage.alone_from(state.outside, state.now))
        yield from self._arrive(state, choice.worker, after, choice)

    def _arrive(self, state: State, index: int, node: Node, choice: Choice) -> Iterator[Move]:
        """Pass the points where nothing happens, or pause at one of them that is worth it."""
        readings, starts = 0, state.starts
        broken: tuple[str, ...] = ()
        while True:
            broken += self.stage.check(node)
            if self.play.at_most_once:
                starts = min(2, starts + len(node.news.starts))
            stands = node.kind not in (Kind.CLOCK, Kind.BACK)
            if stands or state.left[EXPIRY if node.kind is Kind.CLOCK else RENEWAL]:
                after = self._moved(_with(state, index, node.number)._replace(starts=starts), index)
                yield choice._replace(readings=readings), after, broken + self._running(after)
            if stands:
                return
            told = self.stage.passing(node, state.now)
            node = self.stage.behaviour.after(node, told, self.stage.alone_from(state.outside, state.now))
            readings += 1

    def _moved(self, state: State, index: int) -> State:
        return state if self.bound is None else state._replace(last=index)

    def _time(self, state: State) -> Move:
        """Let every lease pass; who was paused, or had not begun, goes on as far as its next point."""
        after = state._replace(now=state.now + self.play.leap * 1000, left=_less(state.left, EXPIRY))
        broken: tuple[str, ...] = ()
        for index, number in enumerate(state.workers):
            if number == LATE or (number >= 0 and self._nodes[number].kind is Kind.CLOCK):
                if number == LATE:
                    after, node = self._receive(after, index)
                else:
                    paused = self._nodes[number]
                    told, go_on = self.stage.passing(paused, after.now), self.stage.alone_from(after.outside, after.now)
                    node = self.stage.behaviour.after(paused, told, go_on)
                # With two leaps, which only the comparison with the model asks for, a worker is paused for one alone.
                *_, (_, after, found) = self._arrive(after, index, node, Choice("time"))
                broken += found
        return Choice("time"), self._moved(after, -1), broken + self._running(after)

    def _land(self, state: State) -> Move:
        """Let the write land that nobody waits for any more."""
        happened = self.stage.happen(self._nodes[state.late], state.outside, state.now)
        return Choice("lands"), state._replace(outside=happened.outside, late=-1), happened.broken

    def _end(self, state: State) -> tuple[str, ...]:
        settled = self.stage.settle(state.outside, state.now)
        if settled.broken:
            return settled.broken
        if self.play.at_most_once and state.starts + settled.starts > 1:
            return (STARTED_TWICE,)
        used = Used(*(most - left for most, left in zip(astuple(self.play.used), state.left, strict=True)))
        return tuple(self.stage.watch.of_the_end(self.stage.snapshots[settled.outside], used))

    def _running(self, state: State) -> tuple[str, ...]:
        nodes = self._nodes
        running = [nodes[number] for number in state.workers if number >= 0 and nodes[number].running]
        broken = self.stage.watch.of_running(running, state.now) if len(running) > 1 else ()
        return (*broken, STARTED_TWICE) if state.starts > 1 else broken


def _with(state: State, index: int, number: int) -> State:
    return state._replace(workers=(*state.workers[:index], number, *state.workers[index + 1 :]))


def _less(left: tuple[int, ...], position: int) -> Any:
    return (*left[:position], left[position] - 1, *left[position + 1 :])


def _trace(parents: list[tuple[int, Choice]], number: int) -> list[Choice]:
    choices: list[Choice] = []
    while number:
        number, choice = parents[number]
        choices.append(choice)
    return choices[::-1]


def _paths(edges: array[int], offsets: array[int], ends: set[int]) -> int:
    """Count the paths from the first state to an end: each is a schedule."""
    arrivals = array("l", [0]) * (len(offsets) - 1)
    for at in edges:
        arrivals[at] += 1
    ways = [0] * len(arrivals)
    ways[0], ready, total, done = 1, deque([0]), 0, 0
    while ready:
        number = ready.popleft()
        done += 1
        if number in ends:
            total += ways[number]
        for at in edges[offsets[number] : offsets[number + 1]]:
            ways[at] += ways[number]
            arrivals[at] -= 1
            if not arrivals[at]:
                ready.append(at)
    assert done == len(arrivals), "a schedule that never ends: the states form a circle"
    return total
