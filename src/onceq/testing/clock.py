"""Time and randomness that tests hold still."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from onceq.clock import TokenFactory
from onceq.settings import require
from onceq.testing.given import shown

if TYPE_CHECKING:
    from collections.abc import Callable

# 2026-11-29 12:00 UTC.
START_MS = 1_795_953_600_000
# Of a Sunday at the end of a year, so that a day later it is another week, month, quarter and year.
PROOF_MS = 1_861_876_800_000
# Longer than a day, and over midnight wherever it begins.
A_DAY = 26 * 3600.0
A_MINUTE = 60.0
# A thread that waits for another one waits in real time; a hang must show.
LONGEST_WAIT = 30.0
# A century: no calendar ends within it.
LONGEST = 100 * 366 * 86_400


class FrozenClock:
    """A clock that stands still until it is told to move; sleeping moves it.

    Example:
        >>> clock = FrozenClock()
        >>> clock.sleep(1.5)
        >>> clock.now_ms() - START_MS
        1500
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        """Start at a fixed time, epoch ms."""
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self.slept: list[float] = []

    def now_ms(self) -> int:
        """Return the time it was set to, epoch ms."""
        return self._now_ms

    def monotonic(self) -> float:
        """Return the same in seconds."""
        return self._now_ms / 1000

    def advance(self, seconds: float) -> None:
        """Move on that many seconds. Raises: ConfigurationError, if no clock can."""
        may_pass = isinstance(seconds, int | float) and 0 <= seconds <= LONGEST
        told = "give a number of seconds, 0 or more, at most a century (of a timedelta its total_seconds())"
        require(may_pass, f"{shown(seconds)} is no time that can pass: {told}")
        with self._lock:
            self._now_ms += round(seconds * 1000)

    def sleep(self, seconds: float) -> None:
        """Move on at once, and note it in `slept`."""
        self.slept.append(seconds)
        self.advance(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:  # noqa: ARG002 - the time stands still
        """Wait for the event in real time, since another thread sets it; time itself stands still."""
        return event.wait(LONGEST_WAIT)


class WorldClock(FrozenClock):
    """A frozen clock that a job's own ``datetime.now()`` and ``time.time()`` follow."""

    def __init__(self, machine: Callable[[float], object], now_ms: int = START_MS) -> None:
        """Set the machine's clock, too."""
        super().__init__(now_ms)
        self._machine = machine
        machine(now_ms / 1000)

    def advance(self, seconds: float) -> None:
        """Move both on."""
        super().advance(seconds)
        self._machine(self.now_ms() / 1000)


class CountingTokens(TokenFactory):
    """Tokens that can be read, ``t1``, ``t2``, and so on; jitter that is always the upper limit."""

    def __init__(self, clock: FrozenClock, prefix: str = "t") -> None:
        """Start at one."""
        super().__init__(clock)
        self._prefix = prefix
        self._count = 0
        self._lock = threading.Lock()

    def token(self) -> str:
        """Return the next token."""
        with self._lock:
            self._count += 1
            return f"{self._prefix}{self._count}"

    def uniform(self, low: float, high: float) -> float:  # noqa: ARG002 - the upper limit
        """Return the upper limit."""
        return high


class LambdaContext:
    """A Lambda context whose time passes with a clock, with what Lambda's own has beside it.

    The fields are those of https://docs.aws.amazon.com/lambda/latest/dg/python-context.html.

    Example:
        >>> clock = FrozenClock()
        >>> context = LambdaContext(clock, seconds=60)
        >>> clock.advance(20)
        >>> context.get_remaining_time_in_millis(), context.function_name
        (40000, 'onceq-testing')
    """

    function_version = "$LATEST"
    memory_limit_in_mb = "512"  # text, as in Lambda
    identity = None
    client_context = None

    def __init__(
        self, clock: FrozenClock, seconds: float = 60, name: str = "request-1", *, function: str = "onceq-testing"
    ) -> None:
        """End so many seconds from now.

        Args:
            clock: The time.
            seconds: What an invocation may take.
            name: The request id.
            function: The function's name.
        """
        self.aws_request_id = name
        self.function_name = function
        self.invoked_function_arn = f"arn:aws:lambda:us-east-1:123456789012:function:{function}"
        self.log_group_name = f"/aws/lambda/{function}"
        self.log_stream_name = f"2026/11/29/[$LATEST]{name}"
        self._clock = clock
        self._until_ms = clock.now_ms() + round(seconds * 1000)

    def get_remaining_time_in_millis(self) -> int:
        """Return what is left; a process that is past its time has none."""
        return max(0, self._until_ms - self._clock.now_ms())
