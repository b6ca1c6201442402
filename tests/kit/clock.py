"""Time and randomness that tests hold still."""

from __future__ import annotations

import threading

from onceq.clock import TokenFactory


class FrozenClock:
    """Stands still until it is told to move; sleeping moves it."""

    def __init__(self, now_ms: int = 1_795_953_600_000) -> None:
        """Start at a fixed time (2026-11-29 12:00 UTC)."""
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self.slept: list[float] = []

    def now_ms(self) -> int:
        """Return the time it was set to."""
        return self._now_ms

    def monotonic(self) -> float:
        """Return the same in seconds."""
        return self._now_ms / 1000

    def advance(self, seconds: float) -> None:
        """Move on."""
        with self._lock:
            self._now_ms += round(seconds * 1000)

    def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self.slept.append(seconds)
        self.advance(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for the event in real time, since another thread sets it; time itself stands still."""
        return event.wait(30)


class CountingTokens(TokenFactory):
    """Tokens that can be read: t1, t2, ...; jitter that is always the upper limit."""

    def __init__(self, clock: FrozenClock) -> None:
        """Start at one."""
        super().__init__(clock)
        self._count = 0
        self._lock = threading.Lock()

    def token(self) -> str:
        """Return the next token."""
        with self._lock:
            self._count += 1
            return f"t{self._count}"

    def uniform(self, low: float, high: float) -> float:
        """Return the upper limit."""
        return high


class FakeLambdaContext:
    """A Lambda context whose time left is what the test says."""

    def __init__(self, remaining_ms: float = 60_000) -> None:
        """Keep the time left."""
        self.remaining_ms = remaining_ms
        self.aws_request_id = "request-1"

    def get_remaining_time_in_millis(self) -> float:
        """Return it."""
        return self.remaining_ms


class RunningContext(FakeLambdaContext):
    """A Lambda context whose time passes with the clock."""

    def __init__(self, clock: FrozenClock, seconds: float = 60) -> None:
        """End so many seconds from now."""
        super().__init__()
        self._clock = clock
        self._until = clock.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> float:
        """Return what is left."""
        return (self._until - self._clock.monotonic()) * 1000
