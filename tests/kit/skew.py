"""Clocks that are wrong, and a Lambda context that believes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.clock import FakeLambdaContext
from onceq.runtime import Runtime

if TYPE_CHECKING:
    import threading

    from kit.clock import FrozenClock
    from kit.seams import Process, Seams
    from kit.world import World


class Watch:
    """The clock of one worker: its wall clock is off by so many seconds and may be stepped; its monotonic one is not.

    What it tells is what `onceq.clock.SystemClock` would where NTP has not corrected the machine yet.
    """

    def __init__(self, true: FrozenClock, off: float = 0) -> None:
        """Keep the true time, and by how much this clock is ahead of it."""
        self._true = true
        self.off_ms = round(off * 1000)

    def step(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        self.off_ms += round(seconds * 1000)

    def now_ms(self) -> int:
        """Return the wrong time."""
        return self._true.now_ms() + self.off_ms

    def monotonic(self) -> float:
        """Return seconds that no step touches."""
        return self._true.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let true time pass."""
        self._true.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait as the true clock does."""
        return self._true.wait(event, seconds)


class WallContext(FakeLambdaContext):
    """A Lambda context as `awslambdaric` makes it: the service's deadline, less this machine's wall clock, not below 0.

    So a step of the wall clock changes what it tells; when the process is killed stays when it is.
    """

    def __init__(self, true: FrozenClock, watch: Watch, seconds: float = 60) -> None:
        """End so many true seconds from now."""
        super().__init__()
        self._watch = watch
        self._deadline_ms = true.now_ms() + round(seconds * 1000)

    def get_remaining_time_in_millis(self) -> float:
        """Return what the wall clock believes to be left."""
        return max(0, self._deadline_ms - self._watch.now_ms())


class Falling(FakeLambdaContext):
    """A Lambda context that tells one time left after the other, and then the last one for ever."""

    def __init__(self, *milliseconds: float) -> None:
        """Tell these."""
        super().__init__()
        self._milliseconds = list(milliseconds)

    def get_remaining_time_in_millis(self) -> float:
        """Return the next one."""
        return self._milliseconds.pop(0) if len(self._milliseconds) > 1 else self._milliseconds[0]


def runtime_with(world: World, watch: Watch) -> Runtime:
    """Return the runtime of a worker that reads this watch; it shares the network clients."""
    return Runtime(world.settings, clock=watch, tokens=world.tokens)


def process_with(world: World, watch: Watch, seams: Seams) -> Process:
    """Start a process that reads this watch, and can be killed."""
    return seams.process(world.runtime, clock=watch)
