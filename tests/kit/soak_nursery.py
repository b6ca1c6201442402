"""Processes forked from one that has loaded everything: a new Python for each takes a second of a small machine.

``python -m kit.soak_nursery`` reads lines, each a JSON list of arguments of `kit.soak_worker`, and forks a process for
each. On stdout it says ``["started", pid]`` and ``["ended", pid, code]``. It has no thread, so that a fork is safe, and
ends with stdin; what it forked ends with it, at the other end of a pipe.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kit.nursery import reap, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

LOOK_SECONDS = 0.05


@dataclass
class Nursery:
    """Starts processes, and knows how they ended.

    Args:
        process: The process that forks.
    """

    process: subprocess.Popen[bytes]
    codes: dict[int, int] = field(default_factory=dict)
    _born: list[int] = field(default_factory=list)
    _told: threading.Condition = field(default_factory=threading.Condition)

    def start(self, arguments: Sequence[str], seconds: float = 30) -> int:
        """Start a process; return its id."""
        assert self.process.stdin is not None
        with self._told:
            self.process.stdin.write(json.dumps(arguments).encode() + b"\n")
            self.process.stdin.flush()
            if not self._told.wait_for(lambda: self._born, timeout=seconds):
                message = "no process was started"
                raise TimeoutError(message)
            return self._born.pop()

    def wait(self, pid: int, seconds: float) -> int | None:
        """Return how a process ended; nothing if it has not within that time."""
        with self._told:
            self._told.wait_for(lambda: pid in self.codes, timeout=seconds)
            return self.codes.get(pid)

    def read(self) -> None:
        """Hear what the nursery says, until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            with self._told:
                if said[0] == "started":
                    self._born.append(said[1])
                else:
                    self.codes[said[1]] = said[2]
                self._told.notify_all()


@contextmanager
def open_nursery(environment: Mapping[str, str], output: Path) -> Iterator[Nursery]:
    """Start the process that forks; it ends with the block, and with it what it forked and does not hang."""
    with (
        output.open("ab") as file,
        subprocess.Popen(
            [sys.executable, "-m", "kit.soak_nursery"],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
        ) as process,
    ):
        nursery = Nursery(process)
        thread = threading.Thread(target=nursery.read, daemon=True)
        thread.start()
        try:
            yield nursery
        finally:
            process.kill()
            thread.join()


def main() -> None:
    """Fork what is asked for, until stdin ends."""
    from kit import soak_worker
    from onceq.client import make_client

    for service in ("dynamodb", "sqs", "s3"):
        make_client(service, 1).close()  # its descriptions are read once, for all
    ending, kept = os.pipe()  # the other end is held by this process alone
    waiting = b""
    living: set[int] = set()
    while True:
        ready = select.select([0], [], [], LOOK_SECONDS)[0]
        reap(living)
        if not ready:
            continue
        data = os.read(0, 65_536)
        if not data:
            # Whoever started this is gone. A process that is stopped sees no pipe end; this ends it, too.
            for pid in living:
                os.kill(pid, signal.SIGKILL)
            return
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                _live(soak_worker.main, json.loads(line), ending, kept)
            living.add(pid)
            say(["started", pid])


def _live(run: Any, arguments: list[str], ending: int, kept: int) -> None:
    """Be a process of one's own: a session, a stdin that ends with the nursery, and its output for the file alone."""
    code = 1
    try:
        os.setsid()
        os.close(kept)
        os.dup2(ending, 0)
        os.dup2(2, 1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        run(*arguments)
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it must not go on as the nursery
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
