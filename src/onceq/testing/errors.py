"""What the test kit raises.

::

    Signal
    └── Crash                  the process died here: thrown through a job and the framework
    AssertionError
    ├── NotEffectivelyOnce     a proof found what breaks the job
    └── NeverSettled           messages came back again and again, or a worker waits for ever
        └── StandsStill        a worker waits for ever
    ConnectionError
    └── EffectFailed           what stands in for a provider was told to be down

What the kit cannot run at all is a `onceq.ConfigurationError`.
"""

from __future__ import annotations

from typing import Any

from onceq.errors import Signal
from onceq.testing.wording import terminal_columns

# Of each line that pytest shows of an error: its mark, and as far in as the code of a test.
MARGIN = 8


class Crash(Signal):
    """The process died here. A `Signal`, so nothing that the framework or a job catches holds it up."""


class NotEffectivelyOnce(AssertionError):
    """A job, or a consumer, does not take effect once.

    Attributes:
        report: Everything that was run and found, an `onceq.testing.Report`.
    """

    def __init__(self, report: Any) -> None:
        """Keep the report; its text, as wide as the terminal, is the message."""
        self.report = report
        super().__init__(report.text(columns=terminal_columns(MARGIN)))


class NeverSettled(AssertionError):
    """Messages came back again and again, or a worker waits for ever: the timeline so far is in the message."""


class StandsStill(NeverSettled):
    """A worker waits for ever: nothing comes of it by real time, and it stands at no point."""


class EffectFailed(ConnectionError):
    """The effect did not happen: what stands in for the provider was told to be down."""
