"""When a failed job runs again: exponential back-off with full jitter.

Full jitter spreads the retries of many jobs that failed together
(https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceq.errors import LONGEST_DELAY, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_DOUBLINGS = 62


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter.

    Args:
        base: Upper limit of the first delay, in seconds; it doubles with every attempt.
        cap: The highest upper limit, in seconds.

    Raises:
        ConfigurationError: If a number is negative, ``cap`` is below ``base``, or longer than SQS keeps a message.

    Example:
        >>> Backoff(base=2, cap=60).limit(4)
        16.0
    """

    base: float = 1.0
    cap: float = 900.0

    def __post_init__(self) -> None:
        """Check both numbers."""
        numbers = all(isinstance(value, int | float) for value in (self.base, self.cap))
        if not numbers or not 0 <= self.base <= self.cap <= LONGEST_DELAY:
            message = (
                f"Backoff(base={self.base!r}, cap={self.cap!r}): "
                f"give 0 <= base <= cap <= {LONGEST_DELAY} (14 days), in seconds"
            )
            raise ConfigurationError(message)

    def limit(self, attempt: int) -> float:
        """Return the longest delay after that attempt (from 1), in seconds."""
        return float(min(self.cap, self.base * 2 ** min(attempt - 1, _MOST_DOUBLINGS)))

    def delay(self, attempt: int, uniform: Callable[..., float]) -> float:
        """Draw the delay after that attempt, in seconds."""
        return uniform(0, self.limit(attempt))
