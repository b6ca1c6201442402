"""What happens when a worker moves: requests and effects on the doubles, answers, and deliveries one by one.

Each is asked once for each outside, and numbered, so that a state of the explorer is small.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from explore.behaviour import Behaviour, GoOn, Kind, Node, Role
from explore.invariants import Watch
from explore.outside import FAILED, GO_ON, RELAY, Gateway, Letter, Outside, Snapshot, Told
from explore.space import SENT, SETTINGS, URL, Play
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
        return Role(name, message_id, event, now, self.play.ends_at(now))

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
            if node.kind in (Kind.CLOCK, Kind.BACK):
                return self.passing(node, now)
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
            if node.kind in (Kind.CLOCK, Kind.BACK):
                told = self.passing(node, now)
            elif node.kind is Kind.EFFECT and fails:
                told = FAILED
            else:
                outside, told, found = self.happen(node, outside, now)
                broken += found
            node = self.behaviour.after(node, told, self.alone_from(outside, now))

    def settle(self, outside: int, now: int) -> Settled:
        """Deliver what was not acknowledged, one message after the other, until nothing is left.

        Where the play says so the relay runs then, and what was sent is delivered.
        """
        name = (outside, now)
        found = self._settled.get(name)
        if found is None:
            found, now = self._delivered(Settled(outside, 0, ()), now, MOST_ROUNDS)
            if self.play.relayed and not found.broken:
                now += self.play.leap * 1000
                found = self._then(found, self.role(f"later-{RELAY}", RELAY, found.outside, now), now)
                there, most = posted(self.snapshots[found.outside], now)
                found, now = self._delivered(found._replace(outside=self.intern(there)), now, MOST_ROUNDS * most)
            self._settled[name] = found
        return found

    def _delivered(self, done: Settled, now: int, most: int) -> tuple[Settled, int]:
        for number in range(1, most + 1):
            letters = self.snapshots[done.outside].letters
            if done.broken or not letters:
                return done, now
            letter = min(letters, key=_visible)
            now = max(now, letter.visible_at)
            done = self._then(done, self.role(f"later{number}", letter.message_id, done.outside, now), now)
        if letters := self.snapshots[done.outside].letters:
            wrong = f"deadlock: {letters[0].message_id} comes back again and again"
            done = done._replace(broken=(*done.broken, wrong))
        return done, now

    def _then(self, done: Settled, role: Role, now: int) -> Settled:
        outside, starts, broken = self.alone(role, done.outside, now)
        return Settled(outside, done.starts + starts, done.broken + broken)

    def check(self, node: Node) -> tuple[str, ...]:
        """Return what is wrong with what a worker made of what it was told."""
        found = self._checked.get(node.number)
        if found is None:
            found = self._checked[node.number] = tuple(self.watch.of_node(node))
        return found

    def passing(self, node: Node, now: int) -> Told:
        """Return what is told where nothing happens: the time, or nothing."""
        if node.kind is Kind.BACK:
            return GO_ON
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


def posted(outside: Snapshot, now: int) -> tuple[Snapshot, int]:
    """Let what was sent to the queue be in it; return what stands outside then, and how many there are."""
    sent = [number for number, (url, _) in enumerate(outside.sent) if url == URL + "JobsQueue"]
    letters = tuple(Letter(f"{SENT}{number}", now) for number in sent)
    return replace(outside, letters=(*outside.letters, *letters)), len(sent)


def _visible(letter: Letter) -> tuple[int, str]:
    return letter.visible_at, letter.message_id
