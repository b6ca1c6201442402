"""A schedule of the explorer, run again as it says: real processes in threads, of which one moves at a time.

The explorer has put it together from what each worker does when it is told what it is told. Here nothing is told:
the workers share the doubles. So this shows the schedule as a picture, and tests compare where both of them end.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ConnectTimeoutError

from explore.behaviour import Asking, Role, handler_of
from explore.outside import RELAY, Gateway, Outside
from explore.space import LEAP_SECONDS, RENEWED_AFTER, SETTINGS, Play
from explore.stage import MOST_ROUNDS, posted
from explore.strands import OneThread, in_one_thread
from onceq.poller import to_delete
from onceq.testing.clock import CountingTokens, FrozenClock
from onceq.testing.points import Move, Point
from onceq.testing.process import CURRENT, Worker
from onceq.testing.subject import Seen
from onceq.testing.timeline import WORLD, Kind, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from explore.explorer import Choice
    from onceq.testing.calls import Call

CLOCK, BACK = Point("the clock"), Point("behind the effect")
MOVES = {"crash": Move.CRASH, "lose": Move.LOSE, "silence": Move.LOSE, "fail": Move.FAIL, "doubt": Move.LOSE}


class Rerun:
    """Runs one schedule.

    Attributes:
        timeline: What happened.
        snapshot: What stands outside.
    """

    def __init__(self, play: Play) -> None:
        """Bring everything to the play's beginning."""
        self.play = play
        self.clock = FrozenClock()
        self.timeline = Timeline(self.clock)
        self.outside = Outside(Gateway(**play.answers))
        self.post = Post()
        self.snapshot = play.begins()
        self.subject = play.subject(self.outside.gateway)
        self.workers: dict[int, Worker] = {}
        self._processes: list[Live] = []

    def run(self, choices: Sequence[Choice], *, ends: bool = True) -> None:
        """Run these moves and, if they are a whole schedule, deliver what is left; everything is over then."""
        with in_one_thread():
            try:
                self._before()
                for choice in choices:
                    self._move(choice)
                    self._take()
                if ends:
                    self._settle()
            finally:
                for process in self._processes:
                    process.close()
                for worker in self.workers.values():
                    worker.abandon()

    def _before(self) -> None:
        for number, message_id in enumerate(self.play.before, 1):
            worker = self._start(f"before{number}", message_id)
            while not worker.is_over:
                is_effect = worker.point is not None and worker.point.what.startswith("effect")
                worker.go(Move.FAIL if is_effect else Move.PASS)
            self._take()

    def _move(self, choice: Choice) -> None:
        index = choice.worker
        if choice.verb == "time":
            self._pass(self.play.leap, "every lease is over" if self.play.leap >= LEAP_SECONDS else "no lease is over")
            for late, name in enumerate(self.play.workers):
                if late not in self.workers:
                    self.workers[late] = self._start(name, self.play.messages[late])
                    self._take()
                if self.workers[late].point is CLOCK:
                    _read_on(self.workers[late])
        elif choice.verb == "lands":
            self.post.deliver()
            self.timeline.add(WORLD, Kind.TIME, "the delayed request arrives")
        elif choice.verb == "begin":
            if choice.readings >= 0:
                self.workers[index] = self._start(self.play.workers[index], self.play.messages[index])
                _read_on(self.workers[index], choice.readings)
        else:
            assert not self.workers[index].is_over, f"{self.workers[index].process.name} is over: {choice}"
            process = self.workers[index].process
            assert isinstance(process, Live)
            process.is_due = choice.verb == "renew"
            if process.is_due:
                self._pass(RENEWED_AFTER, "a renewal is due")
            process.is_silent = choice.verb in ("silence", "stray")
            self.post.holds = choice.verb in ("delay", "stray")
            self.workers[index].go(MOVES.get(choice.verb, Move.PASS))
            _read_on(self.workers[index], choice.readings)

    def _start(self, name: str, message_id: str) -> Worker:
        event = self.play.event(message_id, name, self.snapshot)
        now = self.clock.now_ms()
        role = Role(name, message_id, event, now, self.play.ends_at(now))
        self.snapshot = self.snapshot.received(message_id, now)

        def ask() -> int:
            process.reach(CLOCK)
            return self.clock.now_ms()

        clock = Asking(ask)
        process = Live(
            name,
            SETTINGS,
            clock=clock,
            tokens=CountingTokens(clock, f"{name}-t"),
            clients=self.post.before(dynamodb=self.outside.dynamodb, sqs=self.outside.sqs),
            timeline=self.timeline,
        )
        self._processes.append(process)
        handle = handler_of(self.subject, process, Seen(), role)

        def play() -> Any:
            token = CURRENT.set(process)
            try:
                self.timeline.add(name, Kind.DELIVERY, "begins" if role.relays else f"receives {message_id}")
                try:
                    answer = handle()
                except Exception as error:
                    self.timeline.add(name, Kind.ANSWER, f"{type(error).__name__}: keeps {message_id}")
                    raise
                process.reach(Point("the answer"))
                done = to_delete([message_id], answer)
                if done:
                    self._take()
                    self.snapshot = self.snapshot.acknowledged(message_id)
                said = answer if role.relays else f"{'acknowledges' if done else 'keeps'} {message_id}"
                self.timeline.add(name, Kind.ANSWER, str(said))
            finally:
                CURRENT.reset(token)

        return Worker(process, play)

    def _take(self) -> None:
        self.snapshot = self.outside.taken(self.snapshot, self.clock.now_ms())

    def _settle(self) -> None:
        self._deliver(MOST_ROUNDS)
        if self.play.relayed and not self.snapshot.letters:
            self._pass(self.play.leap, "the relay comes")
            self._start(f"later-{RELAY}", RELAY).finish()
            self._take()
            self.snapshot, most = posted(self.snapshot, self.clock.now_ms())
            self._deliver(MOST_ROUNDS * most)

    def _deliver(self, most: int) -> None:
        for number in range(1, most + 1):
            if not self.snapshot.letters:
                return
            letter = min(self.snapshot.letters, key=lambda one: (one.visible_at, one.message_id))
            if (ahead := letter.visible_at - self.clock.now_ms()) > 0:
                self._pass(ahead / 1000, f"{letter.message_id} is visible again")
            self._start(f"later{number}", letter.message_id).finish()
            self._take()

    def _pass(self, seconds: float, told: str) -> None:
        self.clock.advance(seconds)
        self.timeline.add(WORLD, Kind.TIME, f"{seconds:g} s pass: {told}")


class Live(OneThread):
    """A worker's process, which renews when it is due, and hears nothing where there is silence.

    Attributes:
        is_due: Whether a renewal is due at the next point that it passes.
        is_silent: Whether the next request is not answered, however often it is sent again.
    """

    is_due = is_silent = False
    _silent: Call | None = None

    def call(self, call: Call, forward: Callable[[], Any]) -> Any:
        """Send a request, unless it would not be answered."""
        if call == self._silent:
            raise self._lost(call)
        return super().call(call, forward)

    def effect(self, name: str, act: Callable[[], Any], fail: Callable[[], Exception]) -> Any:
        """Let an effect happen, and stand behind it."""
        try:
            return super().effect(name, act, fail)
        finally:
            if self.may_renew and not self.dead:
                self.reach(BACK)

    def run_in(self, worker: Worker) -> None:
        """Be directed by a worker, and renew in between."""
        super().run_in(worker)

        def direct(point: Point) -> Move:
            move = worker.reach(point)
            while self.is_due:
                self.is_due = False
                self.renew()
                move = worker.reach(point)
            if self.is_silent:
                self.is_silent, self._silent = False, point.call
            return move

        self.director = direct


class Post:
    """Stands before the services, and can hold a request back."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.holds = False
        self._held: Callable[[], Any] | None = None

    def before(self, **clients: Any) -> dict[str, Any]:
        """Return the clients, behind it."""
        return {service: _Behind(self, client) for service, client in clients.items()}

    def send(self, forward: Callable[[], Any]) -> Any:
        """Let a request arrive, or hold it."""
        if not self.holds:
            return forward()
        self.holds, self._held = False, forward
        raise ConnectTimeoutError(endpoint_url="a request that is delayed")

    def deliver(self) -> None:
        """Let the held request arrive."""
        assert self._held is not None
        with suppress(ClientError):
            self._held()


class _Behind:
    def __init__(self, post: Post, client: Any) -> None:
        self._post, self._client = post, client

    def __getattr__(self, method: str) -> Any:
        forward = getattr(self._client, method)
        if not callable(forward):
            return forward
        return lambda **request: self._post.send(lambda: forward(**request))


def _read_on(worker: Worker, readings: int = -1) -> None:
    """Let a worker pass so many points where nothing happens, or all until it stands at something else."""
    while readings and worker.point in (CLOCK, BACK):
        worker.go()
        readings -= 1
