"""The supervisor: several worker processes, and another one for each that is killed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

STOP_SECONDS = 8.0
# A worker that cannot start would be started for ever.
MOST_FAILURES = 8
LAST_LINES = 20


class WorkersFail(Exception):
    """Workers end by themselves again and again."""


class Workers:
    """Worker processes of one command; they end with the block."""

    def __init__(self, command: Sequence[str], *, count: int, environment: Mapping[str, str], log: Path) -> None:
        """Start nothing yet.

        Args:
            command: What a worker runs.
            count: How many run at once.
            environment: Their environment.
            log: The file that their output goes to.
        """
        self._command = command
        self._count = count
        self._environment = environment
        self._log = log
        self._processes: list[subprocess.Popen[bytes]] = []
        # Exit codes of those that ended before they were told to; -9 is SIGKILL.
        self.exits: list[int] = []

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self._processes]

    def tend(self) -> None:
        """Start another worker for each that has ended.

        Raises:
            WorkersFail: If many ended without being killed; the text is the end of their output.
        """
        for position, process in enumerate(self._processes):
            code = process.poll()
            if code is not None:
                self.exits.append(code)
                process.communicate()  # closes the pipe
                self._processes[position] = self._start()
        failures = [code for code in self.exits if code != -signal.SIGKILL]
        if len(failures) >= MOST_FAILURES:
            lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            message = "\n".join([f"workers end with exit code {failures[-1]}; their last words:", *lines])
            raise WorkersFail(message)

    def stop(self) -> None:
        """End them: asked by SIGTERM, which lets them finish, and by SIGKILL those that do not."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.send_signal(signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        try:
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, end - time.monotonic()))
        finally:  # also when Ctrl-C comes again meanwhile
            for process in processes:
                process.kill()
                process.communicate()

    def __enter__(self) -> Self:
        self._processes = [self._start() for _ in range(self._count)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            # A group of its own: a terminal sends Ctrl-C to the whole group, and only the supervisor ends workers.
            return subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,  # it ends with this process, however that dies, and the worker with it
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
