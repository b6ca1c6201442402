"""A worker process of the demo: the example's payments, consumed by the local poller, its events written to a file.

The job function is the one in `jobs.payments`, unchanged. Only ``max_duration`` is shorter: outside Lambda it is the
lease, so a killed worker's jobs go stale after two seconds and not after twenty.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from demo.careless import careless_payment
from jobs.payments import process_payment
from onceq import App
from onceq.worker import work

if TYPE_CHECKING:
    from onceq import JobType
    from onceq.consumer import PartialBatchResponse
    from onceq.telemetry import Event

EVENTS_FILE = "DEMO_EVENTS"
CARELESS = "--careless"
MAX_DURATION = 2


class EventFile:
    """Appends events to the file that the environment names, one JSON object a line.

    Each line is one write to a file opened for appending, so several processes may share it and a killed one leaves
    whole lines.
    """

    def __call__(self, event: Event) -> None:
        """Append a telemetry event."""
        self.write(event.name, event.fields())

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Append an event."""
        os.write(self._file, json.dumps({"name": name, "pid": os.getpid(), **values}).encode() + b"\n")

    @cached_property
    def _file(self) -> int:
        return os.open(os.environ[EVENTS_FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class CountedApp(App):
    """Notes every delivery before it is worked on: what a worker is killed with was delivered too."""

    def consumer(self, event: Any, context: object = None) -> PartialBatchResponse:
        """Consume a batch."""
        EVENTS.write("batch.delivered", {"records": len(event["Records"])})
        return super().consumer(event, context)


def main() -> None:
    """Work until SIGTERM, or until the demo is gone."""
    job_type: JobType[..., Any] = careless_payment if sys.argv[1:] == [CARELESS] else process_payment
    # Outside Lambda max_duration is the lease.
    app = CountedApp([replace(job_type, max_duration=MAX_DURATION)], hooks=[EVENTS])
    work(app, follow_stdin=True)


EVENTS = EventFile()

if __name__ == "__main__":
    main()
