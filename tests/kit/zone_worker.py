"""A worker of its own process: a job that fails before a switch to or from summer time, and completes behind it.

Run as ``python -m kit.zone_worker NOW_MS`` under a ``TZ``; it prints as JSON what it wrote, answered and told.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from typing import Any

import moto.core  # noqa: F401 - first: it answers only the sessions of botocore that are made after its import

from kit.clock import FakeLambdaContext, FrozenClock
from kit.shared import open_world
from kit.world import REGION, event_of
from onceq import Context, JobType, Retry

# An hour is gained or lost within these.
HALF_AN_HOUR = 1_800


def main(now_ms: int) -> None:
    """Claim, fail and wait across the switch; then complete, replay and show it."""
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION=REGION)
    time.tzset()
    clock = FrozenClock(now_ms - HALF_AN_HOUR * 1000)
    told: list[Any] = []
    with open_world(clock) as world:

        def act(payload: dict[str, Any], ctx: Context) -> str:
            if ctx.attempt == 1:
                raise Retry(delay=2 * HALF_AN_HOUR)
            return "done"

        pay = JobType(act, "pay", max_duration=20)
        app = world.app(pay, hooks=[told.append])
        message = world.message("pay", message_id="m-1")
        message["attributes"]["SentTimestamp"] = str(clock.now_ms())

        def deliver() -> Any:
            return app.consumer(event_of(message), FakeLambdaContext())

        def record() -> Any:
            found = world.record("pay", "k-1")
            return found and asdict(found)

        answers, records = [deliver()], [record()]
        for seconds in (2 * HALF_AN_HOUR - 1, 1, 60):
            clock.advance(seconds)
            answers.append(deliver())
            records.append(record())
        app.enqueue(pay, {}, key="k-2")
        sent = world.sqs.receive_message(QueueUrl=world.settings.queue("default").url)["Messages"]
        status = app.lookup(pay, "k-1")
        print(
            json.dumps(
                {
                    "offsets": [time.localtime(now_ms / 1000 + around).tm_gmtoff for around in (-60, 60)],
                    "answers": answers,
                    "records": records,
                    "created_at": json.loads(sent[0]["Body"])["created_at"],
                    "lookup": str(status),
                    "told": [[event.name, event.fields()] for event in told],
                },
                default=str,
            )
        )


if __name__ == "__main__":
    main(int(sys.argv[1]))
