"""A schedule of the explorer, run again as it says: real processes in threads, of which one moves at a time.

The explorer has put it together from what each worker does when it is told what it is told. Here nothing is told:
the workers share the doubles. So this shows the schedule as a picture, and tests compare where both of them end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ReadTimeoutError

from explore.behaviour import Asking, Lambda, Role
from explore.outside import Gateway, Outside
from explore.space import LEAP_MS, SECONDS, SETTINGS, Play
from explore.stage import MOST_ROUNDS
from onceq.poller import to_delete
from onceq.testing.clock import CountingTokens, FrozenClock
from onceq.testing.process import CURRENT, Move, Point, Process, Worker
from onceq.testing.subject import Seen
from onceq.testing.timeline import WORLD, Kind, Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from explore.explorer import Choice

CLOCK = Point("the clock")
MOVES = {"go": Move.PASS, "crash": Move.CRASH, "lose": Move.LOSE, "fail": Move.FAIL, "delay": Move.PASS}


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
        self.dynamodb = _Post(self.outside.dynamodb)
        self.snapshot = play.begins()
        self.subject = play.subject(self.outside.gateway)
        self.workers: dict[int, Worker] = {}
        self._processes: list[Process] = []
        for number, message_id in enumerate(play.before, 1):
            worker = self._start(f"before{number}", message_id)
            while not worker.is_over:
                is_effect = worker.point is not None and worker.point.what.startswith("effect")
                worker.go(Move.FAIL if is_effect else Move.PASS)
            self._take()

    def run(self, choices: Sequence[Choice], *, ends: bool = True) -> None:
        """Run these moves and, if they are a whole schedule, deliver what is left; everything is over then."""
        try:
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

    def _move(self, choice: Choice) -> None:
        index = choice.worker
        if choice.verb == "time":
            self.clock.advance(LEAP_MS / 1000)
            self.timeline.add(WORLD, Kind.TIME, f"{LEAP_MS // 1000} s pass: every lease is over")
            for late, name in enumerate(self.play.workers):
                if late not in self.workers:
                    self.workers[late] = self._start(name, self.play.messages[late])
                    self._take()
                _read_on(self.workers[late])
        elif choice.verb == "lands":
            self.dynamodb.deliver()
            self.timeline.add(WORLD, Kind.TIME, "the delayed request arrives")
        elif choice.verb == "begin":
            if choice.readings >= 0:
                self.workers[index] = self._start(self.play.workers[index], self.play.messages[index])
                _read_on(self.workers[index], choice.readings)
        else:
            self.dynamodb.holds = choice.verb == "delay"
            self.workers[index].go(MOVES[choice.verb])
            _read_on(self.workers[index], choice.readings)

    def _start(self, name: str, message_id: str) -> Worker:
        event = self.play.event(message_id, name, self.snapshot)
        now = self.clock.now_ms()
        role = Role(name, message_id, event, now, now + SECONDS * 1000)
        self.snapshot = self.snapshot.received(message_id, now)

        def ask() -> int:
            process.reach(CLOCK)
            return self.clock.now_ms()

        clock = Asking(ask)
        process = Process(
            name,
            SETTINGS,
            clock=clock,
            tokens=CountingTokens(clock, f"{name}-t"),
            clients={"dynamodb": self.dynamodb, "sqs": self.outside.sqs},
            timeline=self.timeline,
        )
        self._processes.append(process)
        handler = self.subject.handler(process, Seen())

        def play() -> Any:
            token = CURRENT.set(process)
            try:
                self.timeline.add(name, Kind.DELIVERY, f"receives {message_id}")
                try:
                    answer = handler(event, Lambda(role, clock))
                except Exception as error:
                    self.timeline.add(name, Kind.ANSWER, f"{type(error).__name__}: keeps {message_id}")
                    raise
                process.reach(Point("the answer"))
                done = to_delete([message_id], answer)
                if done:
                    self._take()
                    self.snapshot = self.snapshot.acknowledged(message_id)
                self.timeline.add(name, Kind.ANSWER, f"{'acknowledges' if done else 'keeps'} {message_id}")
            finally:
                CURRENT.reset(token)

        return Worker(process, play)

    def _take(self) -> None:
        self.snapshot = self.outside.taken(self.snapshot, self.clock.now_ms())

    def _settle(self) -> None:
        for number in range(1, MOST_ROUNDS + 1):
            if not self.snapshot.letters:
                return
            letter = min(self.snapshot.letters, key=lambda one: (one.visible_at, one.message_id))
            ahead = max(0, letter.visible_at - self.clock.now_ms())
            if ahead:
                self.clock.advance(ahead / 1000)
                self.timeline.add(WORLD, Kind.TIME, f"{ahead / 1000:g} s pass: {letter.message_id} is visible again")
            self._start(f"later{number}", letter.message_id).finish()
            self._take()


class _Post:
    """Stands before the tables, and can hold a request back."""

    def __init__(self, dynamodb: Any) -> None:
        self._dynamodb = dynamodb
        self._held: tuple[str, dict[str, Any]] = ("", {})
        self.holds = False

    def __getattr__(self, method: str) -> Any:
        forward = getattr(self._dynamodb, method)
        if not callable(forward):
            return forward

        def send(**request: Any) -> Any:
            if not self.holds:
                return forward(**request)
            self.holds, self._held = False, (method, request)
            raise ReadTimeoutError(endpoint_url="a request that is delayed")

        return send

    def deliver(self) -> None:
        """Let the held request arrive."""
        method, request = self._held
        try:
            getattr(self._dynamodb, method)(**request)
        except ClientError:
            return


def _read_on(worker: Worker, readings: int = -1) -> None:
    """Let a worker read the clock so often, or until it stands at something else."""
    while readings and worker.point is CLOCK:
        worker.go()
        readings -= 1
