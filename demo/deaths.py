"""Processes that kill themselves between two writes, with SIGKILL: nothing is cleaned up, nobody is told.

Where to die is an order: an empty file that names a moment and a job. The process that comes to that moment removes the
file and kills itself, so each order is carried out once, by whoever works on the job.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.effect_events import OutboxSent
from onceq.telemetry import JobCompleted, JobStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from demo.events import EventFile
    from onceq import Context
    from onceq.telemetry import Event

DEATHS_FOLDER = "DEMO_DEATHS"


class Moment(StrEnum):
    """When a process dies, in the life of one job and of what it sends."""

    CLAIMED = "after the claim, before the call"
    CALLED = "after a call, before its answer"  # the provider kills the caller, as it does for ``cus_kill``
    RAN = "after the job ran, before the commit"
    COMMITTED = "after the commit, before the sending"
    SENT = "after the sending, before the mark"


@dataclass(frozen=True, slots=True)
class Death:
    """An order: who is at that moment of that job is to die."""

    moment: Moment
    job_type: str
    key: str

    def file_in(self, folder: Path) -> Path:
        """Return the file that stands for it."""
        return folder / f"{self.moment.name}#{self.job_type}#{self.key}"


def give_orders(folder: Path, deaths: Iterable[Death]) -> None:
    """Write orders to die."""
    for death in deaths:
        death.file_in(folder).touch()


class Deaths:
    """Carries the orders out, as a telemetry hook and a middleware."""

    def __init__(self, events: EventFile) -> None:
        """Tell each death to the event file first."""
        self._events = events
        self._folder = Path(os.environ.get(DEATHS_FOLDER, os.devnull))

    def hook(self, event: Event) -> None:
        """Die at an event: each of these follows its write at once."""
        match event:
            case JobStarted():
                self._die_at(Moment.CLAIMED, event.job_type, event.key)
            case JobCompleted():
                self._die_at(Moment.COMMITTED, event.job_type, event.key)
            case OutboxSent():
                self._die_at(Moment.SENT, event.job_type, event.key)

    def middleware(self, call_next: Callable[[], Any], ctx: Context, _payload: object) -> Any:
        """Die when the job's function has returned: its steps are recorded, its transaction is not committed."""
        value = call_next()
        self._die_at(Moment.RAN, ctx.job_type, ctx.key)
        return value

    def _die_at(self, moment: Moment, job_type: str, key: str) -> None:
        try:
            Death(moment, job_type, key).file_in(self._folder).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        self._events.write("process.killed", {"moment": moment, "job_type": job_type, "key": key})
        os.kill(os.getpid(), signal.SIGKILL)
