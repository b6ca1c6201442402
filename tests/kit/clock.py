"""Time and randomness that tests hold still: the kit's public ones, and contexts that a test sets by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.testing.clock import CountingTokens, FrozenClock, LambdaContext

if TYPE_CHECKING:
    from onceq.clock import Clock

__all__ = ["CountingTokens", "FakeLambdaContext", "FrozenClock", "LambdaContext", "RunningContext"]


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

    def __init__(self, clock: Clock, seconds: float = 60) -> None:
        """End so many seconds from now."""
        super().__init__()
        self._clock = clock
        self._until = clock.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> float:
        """Return what is left."""
        return (self._until - self._clock.monotonic()) * 1000
