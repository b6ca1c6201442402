"""What a person sees in a terminal: events and jobs' own log lines, one line each."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from onceq.clock import SystemClock
from onceq.codec import printable
from onceq.context import JOB_LOGGER
from onceq.effect_events import OutboxEvent
from onceq.powertools import PowertoolsHook
from onceq.telemetry import JobEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onceq.application import App
    from onceq.clock import Clock
    from onceq.telemetry import Event

_RESET = "\x1b[0m"
_DIM = "\x1b[2m"
_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m"}
_GOOD = {"job.completed": "\x1b[32m"}
# On Lambda the line that names the job after a time-out; to a person its end says all of it.
_ONLY_VERBOSE = ("job.started",)
# Said in the line's own place, or of no use to a person.
_SAID = ("job_type", "key", "message_id", "claimant", "previous_claimant", "winner", "trace", "entry")
_TIMES = ("until", "not_before")
# The relay says so every minute: worth a line only where it did something.
_MAY_BE_IDLE = {"relay.ended": ("sent", "failed", "left")}
_HINTED = ("message.refused", "message.unserved")
# What a person can do about a reason that holds these words.
_ENVELOPE_HINT = {"is not an onceq envelope": "to serve such bodies: App([…], default=a_job_type)"}
INVOKE_HINTS = _ENVELOPE_HINT | {
    "is not in ONCEQ_QUEUES": "to take the records as from a queue of the template: --queue NAME; "
    "if its queue has a condition there: --parameter NAME=VALUE",
    "no job type is named": "is it in App([…])?",
}
WORK_HINTS = _ENVELOPE_HINT | {"no job type is named": "is it in App([…])? Restart after changing code"}
NAME_WIDTH = 21
JOB_WIDTH = 30


class ConsoleHook:
    """A telemetry hook that writes each event as one line for a person."""

    def __init__(
        self,
        label: str = "",
        *,
        stream: TextIO | None = None,
        verbose: bool = False,
        hidden: Iterable[str] = (),
        hints: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make a hook.

        Args:
            label: Stands in every line, for example the worker's name.
            stream: Where to write; stdout if not given.
            verbose: Whether to show starts and DEBUG events too.
            hidden: Names of events that are not shown.
            hints: What to add to a reason, by words that stand in it.
            clock: The time.
        """
        self._label = label
        self._stream = stream or sys.stdout
        self._level = logging.DEBUG if verbose else logging.INFO
        self._hidden = frozenset(hidden) if verbose else frozenset(hidden).union(_ONLY_VERBOSE)
        self._hints = dict(hints or {})
        self._clock = clock or SystemClock()
        self._coloured = is_coloured(self._stream)

    def __call__(self, event: Event) -> None:
        """Write one event."""
        if event.level < self._level or event.name in self._hidden:
            return
        values = event.fields()
        counts = _MAY_BE_IDLE.get(event.name)
        if counts and self._level > logging.DEBUG and not any(values[count] for count in counts):
            return
        if isinstance(event, JobEvent | OutboxEvent):
            named = f"{event.job_type} {event.key}"
        else:
            named = values.get("message_id", "")
        subject = printable(named, 200)  # a key may hold what a terminal obeys
        colour = _GOOD.get(event.name, _COLOURS.get(event.level, ""))
        self.line(event.name, subject, self._details(event.name, values) + self._hint(event.name, values), colour)
        if "trace" in values:
            self._stream.write(str(values["trace"]).rstrip() + "\n")

    def line(self, name: str, subject: str, details: str = "", colour: str = "") -> None:
        """Write one line: time, label, name, what it is about, details."""
        head = f"{self._time()} {self._label:<3}" if self._label else self._time()
        text = f"{name:<{NAME_WIDTH}} {subject:<{JOB_WIDTH}} {details}".rstrip()
        if self._coloured:
            head, text = f"{_DIM}{head}{_RESET}", f"{colour}{text}{_RESET}" if colour else text
        # One write a line, so that lines of several processes do not mix.
        self._stream.write(f"{head} {text}\n")
        self._stream.flush()

    def _time(self) -> str:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        return now.astimezone().strftime("%H:%M:%S")

    def _hint(self, name: str, values: Mapping[str, Any]) -> str:
        reason = str(values.get("reason")) if name in _HINTED else ""
        return "".join(f" ({hint})" for words, hint in self._hints.items() if words in reason)

    def _details(self, event: str, values: Mapping[str, Any]) -> str:
        said = []
        for name, value in values.items():
            if name in _TIMES:
                seconds = max(0.0, (value - self._clock.now_ms()) / 1000)
                said.append(f"again in {seconds:.1f} s")
            elif name == "seconds":
                said.append(_seconds(event, value))
            elif name in ("reason", "error"):
                said.append(str(value))
            elif name not in _SAID and not isinstance(value, bool):
                said.append(f"{name.replace('_', ' ')} {value}")
        return ", ".join(filter(None, said))


class JobLogHandler(logging.Handler):
    """Writes what jobs log through ``ctx.log``, and anything else that is logged, in the same shape."""

    def __init__(self, console: ConsoleHook) -> None:
        """Write through that hook."""
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Write one log record."""
        try:
            job_type = getattr(record, "job_type", None)
            named = f"{job_type} {getattr(record, 'idempotency_key', '')}" if job_type else record.name
            subject = printable(named, 200)
            name = "log" if record.name == JOB_LOGGER else record.levelname.lower()
            self._console.line(name, subject, self.format(record), _COLOURS.get(record.levelno, ""))
        except Exception:  # noqa: BLE001 - as every logging handler: a log line never breaks a job
            self.handleError(record)


def _seconds(event: str, value: float) -> str:
    if event in ("relay.ended", "outbox.overdue"):
        return f"the oldest {value:.0f} s past due" if value else ""
    return f"{value:.2f} s past due" if event == "outbox.sent" else f"{value:.2f} s"


def hooks_for(app: App, console: ConsoleHook, *, json_logs: bool = False) -> list[Callable[[Event], object]]:
    """Return an application's hooks with the console in the place of Powertools, whose lines are not for people.

    Args:
        app: The application.
        console: What takes the place.
        json_logs: Whether the application's own hooks are wanted after all.
    """
    if json_logs:
        return list(app.hooks)
    return [*(hook for hook in app.hooks if not isinstance(hook, PowertoolsHook)), console]


def is_coloured(stream: TextIO) -> bool:
    """Say whether a stream takes colours: a terminal, unless NO_COLOR says no (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
