"""What a process does until it is told to stop: a worker polls one queue, and a relay runs once a minute.

SIGTERM or SIGINT: it receives no more, gives back what it has not started, lets the jobs under way finish within a
grace, and ends. After the grace it ends all the same and leaves their claims to go stale: a claim whose job may still
run is never released.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onceq.clock import OpenDeadline, SystemClock
from onceq.errors import ConfigurationError, StoreError
from onceq.poller import Poller
from onceq.queue import Queue
from onceq.relay import RESERVE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onceq.application import App
    from onceq.clock import Clock
    from onceq.telemetry import Event

GRACE_SECONDS = 20.0
# As the template's schedule: the relay sends with SQS's own delay what is due before it comes again.
EVERY_SECONDS = 60.0
# The exit code that says: work was still under way after the grace.
CUT_OFF = 75
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def work(
    app: App,
    *,
    queue: str = "default",
    batch_size: int = 10,
    wait: int = 1,
    grace: float = GRACE_SECONDS,
    hooks: Iterable[Callable[[Event], object]] | None = None,
    report: Callable[[str], object] | None = None,
    follow_stdin: bool = False,
) -> None:
    """Consume a queue in this process until SIGTERM or SIGINT. Call it from the main thread.

    Args:
        app: The application; its settings name the queue.
        queue: Name of the queue in ``ONCEQ_QUEUES``.
        batch_size: Messages in one event at most.
        wait: Seconds that one receive waits for a message.
        grace: Seconds that jobs under way may take after the signal; then the process exits with `CUT_OFF`.
        hooks: Instead of the application's.
        report: Told what went wrong outside of jobs; without it stderr is.
        follow_stdin: Whether to stop also when stdin ends, since then the parent process is gone.

    Raises:
        ConfigurationError: If the queue is not known, or has no ARN to be consumed by.
    """
    settings = app.runtime.settings.queue(queue)
    if not settings.arn:
        message = f"queue {queue!r} has no arn in ONCEQ_QUEUES, so it is not consumed"
        raise ConfigurationError(message)
    report = report or _to_stderr

    def handler(event: dict[str, Any], context: object) -> object:
        return watched.consumer(event, context)

    poller = Poller(
        handler,
        Queue(app.runtime.clock, app.runtime.tokens, OpenDeadline(), longest_wait=wait),
        url=settings.url,
        arn=settings.arn,
        batch_size=batch_size,
        wait=wait,
        report=report,
    )
    watched = app.with_hooks([*(app.hooks if hooks is None else hooks), poller.see])
    with stopped_by_signals(poller.stop, grace=grace, report=report, follow_stdin=follow_stdin):
        poller.run()


def send_on(
    app: App,
    *,
    every: float = EVERY_SECONDS,
    grace: float = GRACE_SECONDS,
    hooks: Iterable[Callable[[Event], object]] | None = None,
    report: Callable[[str], object] | None = None,
    follow_stdin: bool = False,
) -> None:
    """Run the relay again and again in this process until SIGTERM or SIGINT. Call it from the main thread.

    Args:
        app: The application; its settings name the outbox table and the queues.
        every: Seconds from the start of one run to the start of the next.
        grace: Seconds that a run under way may take after the signal; then the process exits with `CUT_OFF`.
        hooks: Instead of the application's.
        report: Told what went wrong outside of single messages; without it stderr is.
        follow_stdin: Whether to stop also when stdin ends, since then the parent process is gone.

    Raises:
        ConfigurationError: If the settings cannot be used.
    """
    report = report or _to_stderr
    watched = app.with_hooks(app.hooks if hooks is None else hooks)
    stopping = threading.Event()
    left = "a run of the relay still goes on {grace:g} s after the signal; the process ends, and what was sent and not "
    left += "marked is sent again"
    with stopped_by_signals(stopping.set, grace=grace, report=report, follow_stdin=follow_stdin, left=left):
        relay_until(stopping, watched.relay, every=every, clock=app.runtime.clock, report=report)


def relay_until(
    stopping: threading.Event,
    run: Callable[[object, object], object],
    *,
    every: float,
    clock: Clock,
    report: Callable[[str], object],
) -> None:
    """Run the relay's handler once every so many seconds until the event is set; a run that fails is reported.

    Args:
        stopping: Set when it is to stop; a run under way begins no other page then.
        run: The handler.
        every: Seconds from start to start.
        clock: The time.
        report: Told why a run failed.

    Raises:
        ConfigurationError: If the settings cannot be used: that does not pass by itself.
    """
    context = _RelayContext(stopping)
    while not stopping.is_set():
        started = clock.monotonic()
        try:
            run({}, context)
        except ConfigurationError:
            raise
        except StoreError as error:
            report(f"the outbox cannot be read, trying again: {error}")
        except Exception:  # noqa: BLE001 - as on Lambda: the next run comes all the same
            report(f"the relay failed, trying again:\n{traceback.format_exc()}")
        clock.wait(stopping, max(0.0, every - (clock.monotonic() - started)))


class _RelayContext:
    """Stands for Lambda's context: there is time until it is stopped, and then enough to mark what was sent."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping

    def get_remaining_time_in_millis(self) -> float:
        """Return less than what the relay keeps for the end, once it is stopped."""
        return RESERVE_SECONDS * 500 if self._stopping.is_set() else float("inf")


LEFT = "jobs still run {grace:g} s after the signal; the process ends and leaves their claims to go stale"


@contextmanager
def stopped_by_signals(
    stop: Callable[[], object],
    *,
    grace: float,
    report: Callable[[str], object],
    follow_stdin: bool,
    left: str = LEFT,
) -> Iterator[None]:
    """Call ``stop`` at the first signal; end the process if the block then takes longer than ``grace``.

    The work is done by a thread that reads Python's wake-up descriptor: the interpreter writes to it the moment the
    signal arrives, also while the main thread is inside a job's C code, and no lock can be held by the code that was
    interrupted.

    Args:
        stop: Called once, by that thread.
        grace: Seconds.
        report: Told when the grace is over.
        follow_stdin: Whether the end of stdin counts as a signal.
        left: What is said then.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    done = threading.Event()
    clock = SystemClock()

    def watch() -> None:
        sources = [reader, sys.stdin.fileno()] if follow_stdin else [reader]
        told = False
        while not told:
            ready, _, _ = select.select(sources, [], [])
            # Every signal that has a handler in Python is written there, the job's own ones too.
            told = reader not in ready or any(number in SIGNALS for number in os.read(reader, 512))
            if done.is_set():
                return
        stop()
        if not clock.wait(done, grace):
            report(left.format(grace=grace))
            sys.stdout.flush()
            os._exit(CUT_OFF)

    # In this order: a signal between the two would meet a handler that does nothing, and be lost for good.
    previous_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    previous = {number: signal.signal(number, lambda _number, _frame: None) for number in SIGNALS}
    thread = threading.Thread(target=watch, name="onceq-stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        os.write(writer, b"\0")
        thread.join()
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_fd)
        os.close(reader)
        os.close(writer)


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"onceq: {line}\n")
    sys.stderr.flush()
