"""The thread that renews a lease, run by its worker itself when the schedule says so.

Outside Lambda an attempt renews its lease from a thread of its own (`onceq.attempt.renewing`). Here the function of
that thread is kept when it is started, and called when its wait is to be over; it runs until it waits again, and each
of its requests and readings of the clock is a point like any other. Meanwhile the job stands before an effect, or
behind it. That is every order there is: a claim's writes follow one another under its lock, and an effect touches
nothing that a renewal touches, so a renewal that is under way while the job goes on is one before or after that.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

from onceq import attempt
from onceq.testing.process import CURRENT, Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Strand:
    """Stands for a thread: its function is run by the one thread that its process has."""

    def __init__(self, *, target: Callable[[], None], daemon: bool) -> None:
        """Keep what it runs."""
        assert daemon, "a process must not wait for it"
        self._target = target
        self._done: threading.Event | None = None
        self._is_due = self._waits = False

    def start(self) -> None:
        """Run as far as the first wait."""
        process = CURRENT.get()
        assert isinstance(process, OneThread)
        process.strand = self
        self._run()

    def renew(self) -> None:
        """Let the wait be over, and run as far as the next."""
        self._is_due = True
        self._run()

    def wait(self, done: threading.Event) -> bool:
        """Return whether the wait ends the function: it is called anew when the wait is to be over."""
        due, self._is_due = self._is_due, False
        self._done, self._waits = done, not due
        return not due

    @property
    def may_renew(self) -> bool:
        """Whether it waits: the job still runs, and no renewal has found that the claim is lost."""
        return self._waits and self._done is not None and not self._done.is_set()

    def _run(self) -> None:
        self._waits = False
        self._target()


class OneThread(Process):
    """A process that runs its job's renewing thread itself, if it has one."""

    strand: Strand | None = None

    @property
    def may_renew(self) -> bool:
        """Whether a renewal may be due now."""
        return self.strand is not None and self.strand.may_renew

    def renew(self) -> None:
        """Let a renewal be due."""
        assert self.strand is not None
        self.strand.renew()


def waited(done: threading.Event) -> bool:
    """Wait as the renewing thread of the process that runs here."""
    process = CURRENT.get()
    assert isinstance(process, OneThread)
    assert process.strand is not None
    return process.strand.wait(done)


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Let attempts start strands instead of threads."""
    with mock.patch.object(attempt, "threading", SimpleNamespace(Thread=Strand, Event=threading.Event)):
        yield
