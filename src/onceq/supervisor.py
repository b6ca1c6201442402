"""Processes that are kept running: each is restarted when it dies, and all are stopped together."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.clock import SystemClock
from onceq.worker import CUT_OFF, GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A process that dies within this of its start, for example of a mistake in a job's module, is restarted this much
# later, and twice as late every time.
RESTART_SECONDS = 2.0
LONGEST_RESTART_SECONDS = 30.0
LOOK_SECONDS = 0.1


@dataclass
class Child:
    """One process and how to start it again.

    Args:
        name: Its own name, for example ``w1``.
        kind: What it is, for a person.
        command: What is run.
        environment: Its environment, whole.
        after: What else there is to say when it died.
    """

    name: str
    kind: str
    command: list[str]
    environment: dict[str, str]
    after: str = ""
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restart_at: float | None = None
    quick_deaths: int = 0

    def start(self, now: float) -> None:
        """Start it, with a session of its own, so that Ctrl-C reaches it through us, and a pipe that ends with us."""
        self.process = subprocess.Popen(  # noqa: S603 - our own module, with our own options
            self.command, env=self.environment, stdin=subprocess.PIPE, start_new_session=True
        )
        self.started, self.restart_at = now, None


@dataclass
class Supervisor:
    """Keeps processes running.

    Args:
        children: The processes.
        say: Told what a person should know.
        grace: Seconds that jobs under way may take at the end.
    """

    children: Sequence[Child]
    say: Callable[[str], object]
    grace: float = GRACE_SECONDS
    _clock: SystemClock = field(default_factory=SystemClock)

    def run(self) -> None:
        """Keep the processes running until Ctrl-C or SIGTERM, then stop them."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for child in self.children:
                child.start(self._clock.monotonic())
            while True:
                self._look_after()
                self._clock.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            self.say("stopping: jobs under way may finish (Ctrl-C again to kill them)")
        try:
            self._stop()
        except KeyboardInterrupt:
            self.say("killed: jobs under way were cut off; this session's queues and claims are gone with it")
        finally:
            for child in self.children:
                if child.process is not None and child.process.poll() is None:
                    child.process.kill()
                    child.process.wait()

    def _look_after(self) -> None:
        now = self._clock.monotonic()
        for child in self.children:
            if child.restart_at is not None:
                if now >= child.restart_at:
                    child.start(now)
                continue
            code = child.process.poll() if child.process else None
            if code is not None:
                child.quick_deaths = child.quick_deaths + 1 if now - child.started < RESTART_SECONDS else 0
                pause = min(LONGEST_RESTART_SECONDS, RESTART_SECONDS * 2 ** (child.quick_deaths - 1))
                pause = pause if child.quick_deaths else 0.0
                child.restart_at = now + pause
                again = f"it is restarted{f' in {pause:g} s' if pause else ''}"
                self.say("; ".join(filter(None, (f"{child.kind} {child.name} {_ended(code)}", again, child.after))))

    def _stop(self) -> None:
        running = [(child, child.process) for child in self.children if child.process and child.process.poll() is None]
        for _, process in running:
            process.terminate()
        end = self._clock.monotonic() + self.grace + RESTART_SECONDS
        while any(process.poll() is None for _, process in running) and self._clock.monotonic() < end:
            self._clock.sleep(LOOK_SECONDS)
        cut_off = [f"{child.kind} {child.name}" for child, process in running if process.poll() == CUT_OFF]
        if cut_off:
            self.say(f"had not finished within {self.grace:g} s, and was cut off: {', '.join(cut_off)}")


def _ended(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
