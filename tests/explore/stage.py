"""What happens when a worker moves: requests and effects on the doubles, answers, and deliveries one by one.

Each is asked once for each outside, and numbered, so that a state of the explorer is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from explore.behaviour import Behaviour, GoOn, Kind, Node, Role
from explore.invariants import Watch
from explore.outside import FAILED, Gateway, Letter, Outside, Snapshot, Told
from explore.space import SECONDS, SETTINGS, Play
from onceq.poller import to_delete

if TYPE_CHECKING:
    from collections.abc import Hashable

# Deliveries after which the messages of a play are said to go round in circles.
MOST_ROUNDS = 6


class Happened(NamedTuple):
    """What a request or an effect comes to, where it meets a certain outside."""

    outside: int
    told: Told
    broken: tuple[str, ...]


class Settled(NamedTuple):
    """What becomes of the messages that are left, delivered one after the other."""

    outside: int
    roles: tuple[Role, ...]
    starts: int
    broken: tuple[str, ...]


class Stage:
    """The doubles of a play and the trees of its workers.

    Attributes:
        snapshots: What stood outside, by number.
    """

    def __init__(self, play: Play) -> None:
        """Make the doubles."""
        self.play = play
        self.behaviour = Behaviour(play.subject, SETTINGS)
        self.watch = Watch(play)
        self.snapshots: list[Snapshot] = []
        self._doubles = Outside(Gateway(**play.answers))
        self._numbers: dict[Hashable, int] = {}
        self._happened: dict[tuple[int, int, int], Happened] = {}
        self._answered: dict[tuple[int, int], tuple[int, tuple[str, ...]]] = {}
        self._settled: dict[tuple[int, int], Settled] = {}
        self._times: dict[int, Told] = {}
        self._checked: dict[int, tuple[str, ...]] = {}
        self._born: dict[tuple[int, int, int], tuple[int, Node]] = {}

    def born(self, index: int, outside: int, now: int) -> tuple[int, Node]:
        """Let a worker receive its message; return what stands outside then, and its first point."""
        name = (index, outside, now)
        found = self._born.get(name)
        if found is None:
            message_id = self.play.messages[index]
            role = self.role(self.play.workers[index], message_id, outside, now)
            received = self.intern(self.snapshots[outside].received(message_id, now))
            found = self._born[name] = received, self.behaviour.begin(role, self.alone_from(received, now))
        return found

    def role(self, name: str, message_id: str, outside: int, now: int) -> Role:
        """Return an invocation that begins now."""
        event = self.play.event(message_id, name, self.snapshots[outside])
        return Role(name, message_id, event, now, now + SECONDS * 1000)

    def happen(self, node: Node, outside: int, now: int) -> Happened:
        """Let the request, or the effect, happen at which a worker stands."""
        name = (node.number, outside, now)
        found = self._happened.get(name)
        if found is None:
            before = self.snapshots[outside]
            if node.kind is Kind.EFFECT:
                after, told = self._doubles.effect(before, node.what, node.role.name, now)
                broken = self.watch.of_effect(before, after, node)
            else:
                after, told = self._doubles.request(before, node.call, now)
                broken = self.watch.of_write(before, after, node, now)
            found = self._happened[name] = Happened(self.intern(after), told, tuple(broken))
        return found

    def alone_from(self, outside: int, now: int) -> GoOn:
        """Let a worker's run go on while nobody else moves: a move of each of its next points is that anyway."""

        def go_on(node: Node) -> Told | None:
            nonlocal outside
            if node.kind is Kind.CLOCK:
                return self.time_told(now)
            if node.kind in (Kind.ANSWER, Kind.RAISED):
                return None
            happened = self.happen(node, outside, now)
            outside = happened.outside
            return happened.told

        return go_on

    def answer(self, outside: int, node: Node) -> tuple[int, tuple[str, ...]]:
        """Let a worker's answer be read: what it acknowledges is gone."""
        name = (node.number, outside)
        found = self._answered.get(name)
        if found is None:
            message_id, after = node.role.message_id, outside
            broken: tuple[str, ...] = ()
            if node.kind is Kind.ANSWER and message_id in to_delete([message_id], node.what):
                before = self.snapshots[outside]
                after = self.intern(before.acknowledged(message_id))
                broken = tuple(self.watch.of_acknowledgement(before, node))
            found = self._answered[name] = (after, broken)
        return found

    def alone(self, role: Role, outside: int, now: int, *, fails: bool = False) -> tuple[int, int, tuple[str, ...]]:
        """Let a worker go to its end while nobody else moves; return also how often it started the job."""
        outside = self.intern(self.snapshots[outside].received(role.message_id, now))
        go_on = self.alone_from(outside, now)
        node, starts = self.behaviour.begin(role, go_on), 0
        broken: tuple[str, ...] = ()
        while True:
            broken += self.check(node)
            starts += len(node.news.starts)
            if node.kind in (Kind.ANSWER, Kind.RAISED):
                outside, found = self.answer(outside, node)
                return outside, starts, broken + found
            if node.kind is Kind.CLOCK:
                told = self.time_told(now)
            elif node.kind is Kind.EFFECT and fails:
                told = FAILED
            else:
                outside, told, found = self.happen(node, outside, now)
                broken += found
            node = self.behaviour.after(node, told, self.alone_from(outside, now))

    def settle(self, outside: int, now: int) -> Settled:
        """Deliver what was not acknowledged, one message after the other, until nothing is left."""
        name = (outside, now)
        found = self._settled.get(name)
        if found is None:
            roles: list[Role] = []
            broken: tuple[str, ...] = ()
            starts = 0
            while (letters := self.snapshots[outside].letters) and not broken:
                if len(roles) == MOST_ROUNDS:
                    broken += (f"deadlock: {letters[0].message_id} comes back again and again",)
                    break
                letter = min(letters, key=_visible)
                now = max(now, letter.visible_at)
                role = self.role(f"later{len(roles) + 1}", letter.message_id, outside, now)
                roles.append(role)
                outside, begun, wrong = self.alone(role, outside, now)
                starts, broken = starts + begun, broken + wrong
            found = self._settled[name] = Settled(outside, tuple(roles), starts, broken)
        return found

    def check(self, node: Node) -> tuple[str, ...]:
        """Return what is wrong with what a worker made of what it was told."""
        found = self._checked.get(node.number)
        if found is None:
            found = self._checked[node.number] = tuple(self.watch.of_node(node))
        return found

    def time_told(self, now: int) -> Told:
        """Return the time as it is told."""
        found = self._times.get(now)
        if found is None:
            found = self._times[now] = Told(("time", now), now)
        return found

    def intern(self, snapshot: Snapshot) -> int:
        """Return the number of a snapshot."""
        number = self._numbers.setdefault(snapshot.name(), len(self.snapshots))
        if number == len(self.snapshots):
            self.snapshots.append(snapshot)
        return number


def _visible(letter: Letter) -> tuple[int, str]:
    return letter.visible_at, letter.message_id
