"""A worker process: one poller, and what it does when it is told to stop.

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
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onceq.clock import OpenDeadline, SystemClock
from onceq.errors import ConfigurationError
from onceq.poller import Poller
from onceq.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onceq.application import App
    from onceq.telemetry import Event

GRACE_SECONDS = 20.0
# The exit code that says: jobs were still running after the grace.
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


@contextmanager
def stopped_by_signals(
    stop: Callable[[], object], *, grace: float, report: Callable[[str], object], follow_stdin: bool
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
            report(f"jobs still run {grace:g} s after the signal; the process ends and leaves their claims to go stale")
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
