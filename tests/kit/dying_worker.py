"""A worker of its own process: consumes one batch of a job that kills it, and three good ones.

Run as ``python -m kit.dying_worker NOW_MS ROUND``; it prints the answer as JSON, if it lives to.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from kit.clock import FakeLambdaContext, FrozenClock
from kit.world import arn_of
from onceq import App, Context, job
from onceq.message import seal
from onceq.runtime import Runtime


@job("act", max_attempts=2)
def act(payload: dict[str, Any], ctx: Context) -> None:
    """Kill this process without a word, if the payload says so."""
    if payload["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)


def record(key: str, *, kill: bool, job_type: str = "act") -> dict[str, Any]:
    """Return a record of a Lambda event."""
    body = seal(job_type=job_type, idempotency_key=key, payload={"kill": kill}, created_at="2026-11-29T12:00:00Z")
    return {
        "messageId": key,
        "body": body,
        "attributes": {},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": arn_of("JobsQueue"),
    }


def main(now_ms: int, number: str) -> None:
    """Consume the batch of this round."""
    app = App([act], runtime=Runtime(clock=FrozenClock(now_ms)), hooks=[])
    batch = [record("killer", kill=True), *[record(f"good-{number}-{other}", kill=False) for other in range(3)]]
    answer = app.consumer({"Records": batch}, FakeLambdaContext())
    print(json.dumps(answer))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
