"""One process of a run: its clients are watched, it may be told to die at any point, and it may stand still at one.

A point is where something may go wrong: before a request, or before an effect. What happens there is decided by the
process's director, a callable that is shown the point and answers with a `Move`. A director may also wait: `Worker` is
one that stands still at each point until it is told to go on, so that several processes meet in a chosen order.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from onceq.runtime import Runtime
from onceq.settings import require
from onceq.testing.errors import Crash, NeverSettled, StandsStill
from onceq.testing.points import ADMITTED, Move, Point, pass_all
from onceq.testing.timeline import Kind
from onceq.testing.watched import Watched, told_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onceq.clock import TokenFactory
    from onceq.settings import Settings
    from onceq.testing.calls import Call
    from onceq.testing.clock import FrozenClock
    from onceq.testing.points import Director
    from onceq.testing.timeline import Timeline

# Real seconds that a worker may take from one point to the next: longer, and it waits for something that never comes.
PATIENCE = 30.0
# Points of one process after which it is said to go round in circles.
MOST_POINTS = 5_000
# Real seconds that a worker may take to die.
A_MOMENT = 1.0
# What the timeline says of a request that was made to fail, before the request itself.
REFUSED = "refused: "
# The process whose job runs here: what the job calls on its own is its doing.
CURRENT: ContextVar[Process | None] = ContextVar("onceq_testing_process", default=None)


class Process(Runtime):
    """One execution environment: a runtime of its own over shared clients.

    Once it is dead, nothing that any of its threads does reaches the outside.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        *,
        clock: FrozenClock,
        tokens: TokenFactory,
        clients: Mapping[str, Any],
        timeline: Timeline,
        director: Director = pass_all,
    ) -> None:
        """Watch the clients, given by service."""
        self.watched = {service: Watched(client, service, self) for service, client in clients.items()}
        # For a consumer of another make, all of whose requests are its own.
        self.owned = {service: Watched(client, service, self, own=True) for service, client in clients.items()}
        super().__init__(settings, clock=clock, tokens=tokens, clients=self.watched)
        self.name = name
        # Writes to it are told in the framework's words; those of another consumer are not.
        self.claims_table = settings.claims_table
        self.timeline = timeline
        self.director = director
        self.dead = False
        # How much was made to go wrong here, and how often it was invoked.
        self.faults = self.invocations = 0
        # One thread of a process at a time passes a point, so that one director can direct them all.
        self._turn = threading.RLock()
        self._inside = threading.local()
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None

    def call(self, call: Call, forward: Callable[[], Any]) -> Any:
        """Send a request, as far as the director lets it."""
        if getattr(self._inside, "call", False):
            return forward()
        with self._passing(Point(str(call), call)) as move:
            if move is Move.FAIL:
                raise self._refused(call)
            try:
                answer = self._forward(forward)
            except Exception as error:
                self.timeline.add(self.name, Kind.CALL, f"{call}: {told_of(error)}", call=call, landed=False)
                if move is Move.LOSE:
                    raise self._lost(call) from error
                raise
            self.timeline.add(self.name, Kind.CALL, str(call), call=call)
            if move is Move.LOSE:
                raise self._lost(call)
            return answer

    def effect(self, name: str, act: Callable[[], Any], fail: Callable[[], Exception]) -> Any:
        """Let an effect happen, as far as the director lets it."""
        with self._passing(Point(f"effect {name}", effect=name)) as move:
            if move is Move.FAIL:
                self._fault(f"effect {name} fails")
                raise fail()
            answer = act()
            if move is Move.LOSE:
                self._fault(f"the answer is lost: {name}")
                raise fail()
            return answer

    def read(self, name: str, act: Callable[[], Any]) -> Any:
        """Let something be looked up outside: no point, since nothing changes by it."""
        with self._turn:
            if self.dead:
                raise Crash
            self.timeline.add(self.name, Kind.READ, name)
            return act()

    def reach(self, point: Point) -> None:
        """Pass a point where nothing happens but that the process may die."""
        with self._passing(point):
            pass

    def die(self, where: str) -> None:
        """Die here: the caller, and every later call of this process, gets `Crash`."""
        self.dead = True
        self.faults += 1
        self.timeline.add(self.name, Kind.DEATH, f"dies {where}")
        raise Crash

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return an event loop of this process alone: one that stands still must not hold the others up."""
        with self._turn:
            if self._own_loop is None:
                self._own_loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=[self._own_loop], name=f"{self.name}-loop", daemon=True).start()
            return self._own_loop

    def close(self) -> None:
        """Let nothing of this process happen any more."""
        self.dead = True
        if self._worker is not None:
            self._worker.let_go()
        if self._own_loop is not None:
            self._own_loop.call_soon_threadsafe(self._own_loop.stop)

    def run_in(self, worker: Worker) -> None:
        """Be directed by a worker from now on."""
        self._worker, self.director = worker, worker.reach

    def _forward(self, forward: Callable[[], Any]) -> Any:
        self._inside.call = True
        try:
            return forward()
        finally:
            self._inside.call = False

    def _lost(self, call: Call) -> Exception:
        from botocore.exceptions import ReadTimeoutError  # noqa: PLC0415 - as everywhere in the framework

        self._fault(f"the response is lost: {call}")
        error: Exception = ReadTimeoutError(endpoint_url="a response that was lost")
        return error

    def _refused(self, call: Call) -> Exception:
        from botocore.exceptions import ClientError  # noqa: PLC0415 - as everywhere in the framework

        self._fault(f"{REFUSED}{call}")
        error = {"Code": "ThrottlingException", "Message": "the service is overloaded, as the scenario says"}
        refused: Exception = ClientError({"Error": error}, call.operation)
        return refused

    def _fault(self, what: str) -> None:
        self.faults += 1
        self.timeline.add(self.name, Kind.FAULT, what)

    @contextmanager
    def _passing(self, point: Point) -> Iterator[Move]:
        with self._turn:
            if self.dead:
                raise Crash
            move = self.director(point)
            if self.dead:  # it stood there, and its run has ended meanwhile
                raise Crash
            if move is Move.CRASH:
                self.die(f"before: {point.what}")
            try:
                yield move
            except Exception:
                if move is Move.CRASH_AFTER:
                    self.die(f"after: {point.what}")
                raise
            if move is Move.CRASH_AFTER:
                self.die(f"after: {point.what}")


class Sender(Process):
    """The process of a test's own application: it says what is wrong, where a job's just ends."""

    def call(self, call: Call, forward: Callable[[], Any]) -> Any:
        """Send a request. Raises: ConfigurationError, if its time is over."""
        told = "this App is one of the time before reset(), or of an environment that is closed: take env.app anew"
        require(not self.dead, told)
        return super().call(call, forward)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(_end_tasks())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _end_tasks() -> None:
    """Cancel what a job left behind, as it ends with its process."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Worker:
    """A process that runs in a thread, one point after the other, each when it is told to.

    Between two calls of `go` it stands still, so of several workers only one moves at a time and the order is chosen.

    Attributes:
        point: Where it stands; ``None`` when it is over.
        answer: What its play returned.
        error: What its play raised.
    """

    def __init__(self, process: Process, play: Callable[[], Any], *, patience: float = PATIENCE) -> None:
        """Start, and go as far as the first point; ``patience`` is real seconds from one point to the next."""
        self.process = process
        self.point: Point | None = None
        self.answer: Any = None
        self.error: BaseException | None = None
        self._play = play
        self._patience = patience
        self._is_over = False
        self._move = Move.PASS
        self._arrived = threading.Semaphore(0)
        self._may_go = threading.Semaphore(0)
        process.run_in(self)
        self._thread = threading.Thread(target=self._run, name=process.name, daemon=True)
        self._thread.start()
        self._wait()

    @property
    def is_over(self) -> bool:
        """Whether the play has ended, or its process has died."""
        return self._is_over

    def go(self, move: Move = Move.PASS) -> None:
        """Let it pass the point where it stands; return when it stands at the next, or is over.

        Args:
            move: What happens at the point.

        Raises:
            ConfigurationError: If this is no `Move` (a director that forgot its ``return`` answers with ``None``), or
                one that does nothing at this point.
            NeverSettled: If it does not arrive anywhere.
        """
        __tracebackhide__ = True
        if self._is_over:
            return
        where = "" if self.point is None else f" at {self.point.what!r}"
        require(isinstance(move, Move), f"a director answers with a Move{where}, not {move!r}: return Move.PASS there")
        admitted = self.point is None or self.point.admits(move)
        require(admitted, f"{move} does nothing{where}: {ADMITTED.get(move, '')}")
        self._move = move
        self._may_go.release()
        self._wait()

    def finish(self) -> None:
        """Let it pass every point until it is over."""
        __tracebackhide__ = True
        self.follow(pass_all)

    def abandon(self) -> None:
        """Let it die where it stands."""
        self.follow(lambda _point: Move.CRASH)

    def follow(self, director: Director) -> None:
        """Let it pass each point as a director says, until it is over.

        Args:
            director: Gets each `Point` and answers with the `Move` to make there.

        Raises:
            NeverSettled: If there is no end of points.
            ConfigurationError: If the director answers with something else than a `Move` that can be made there.
        """
        __tracebackhide__ = True
        for _ in range(MOST_POINTS):
            if self.point is None or self._is_over:
                return
            self.go(director(self.point))
        self.never_settles(f"came by {MOST_POINTS} points: is it polling?")

    def let_go(self) -> None:
        """Let a worker that stands somewhere die there, and do not wait for it longer than a moment."""
        if not self._is_over:
            self._move = Move.CRASH
            self._may_go.release()
            self._thread.join(A_MOMENT)

    def reach(self, point: Point) -> Move:
        """Stand still at a point until told what happens there: the process's director."""
        if self._is_over:  # a thread of the job that outlived it
            raise Crash
        self.point = point
        self._arrived.release()
        self._may_go.acquire()
        return self._move

    def _wait(self) -> None:
        __tracebackhide__ = True
        if not self._arrived.acquire(timeout=self._patience):
            never = "waits for something that never comes, since only one worker moves at a time"
            self.never_settles(f"{never}: a lock of the job's own that another worker holds?", StandsStill)

    def never_settles(self, told: str, error_type: type[NeverSettled] = NeverSettled) -> NoReturn:
        """Raise: NeverSettled, with what is told of this worker, and what happened."""
        __tracebackhide__ = True
        raise error_type(f"{self.process.name} {told}\n{self.process.timeline.text()[-6_000:]}")

    def _run(self) -> None:
        try:
            self.answer = self._play()
        except BaseException as error:  # noqa: BLE001 - kept for whoever asks
            self.error = error
        finally:
            self._is_over = True
            self.point = None
            self._arrived.release()
