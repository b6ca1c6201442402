"""A worker process of the demo: the application's own jobs, consumed by the local poller, its events written to a file.

The job functions are those in `jobs`, unchanged. Two times are shorter. Outside Lambda ``max_duration`` is the lease,
so a killed worker's jobs go stale after two seconds and not after twenty. And the relay leaves a message to the worker
that committed it for three seconds and not for thirty, since here it comes every second and not every minute.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from app import app
from demo.careless import CARELESS
from demo.deaths import Deaths
from demo.events import EventFile
from onceq import App, outbox
from onceq.worker import work

if TYPE_CHECKING:
    from onceq import JobType
    from onceq.consumer import PartialBatchResponse

CARELESSLY = "--careless"
MAX_DURATION = 2
HEAD_START_MS = 3_000


class CountedApp(App):
    """Notes every delivery before it is worked on: what a worker is killed with was delivered too."""

    def consumer(self, event: Any, context: object = None) -> PartialBatchResponse:
        """Consume a batch."""
        EVENTS.write("batch.delivered", {"records": len(event["Records"])})
        return super().consumer(event, context)


def job_types(*, careless: bool) -> list[JobType[..., Any]]:
    """Return what is served: the application's job types, or with two careless ones among them."""
    served = {job_type.name: job_type for job_type in app.job_types}
    if careless:
        served |= {job_type.name: job_type for job_type in CARELESS}
    for job_type in served.values():
        # In place, and not on a copy: jobs send to these very job types.
        object.__setattr__(job_type, "max_duration", MAX_DURATION)
    return list(served.values())


def main() -> None:
    """Work until SIGTERM, or until the demo is gone."""
    outbox.HEAD_START_MS = HEAD_START_MS  # nothing else has to know that it is shorter here
    deaths = Deaths(EVENTS)
    served = job_types(careless=sys.argv[1:] == [CARELESSLY])
    counted = CountedApp(served, middleware=[deaths.middleware], hooks=[EVENTS, deaths.hook])
    work(counted, follow_stdin=True)


EVENTS = EventFile("worker")

if __name__ == "__main__":
    main()
