"""A process of a soak: consumes a queue, or relays, until it is told to stop, and tells everything to the log.

Run as ``python -m kit.soak_worker work QUEUE`` or ``python -m kit.soak_worker relay``. The poller, the worker and the
relay are those of ``python -m onceq work`` and ``relay``; what is added is the log.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from kit.soak_jobs import JOB_TYPES
from kit.soak_log import tell
from kit.soak_proxy import SENDER_VARIABLE, sender_name
from onceq import App, Context, outbox
from onceq.settings import Settings
from onceq.worker import send_on, work

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.consumer import PartialBatchResponse
    from onceq.telemetry import Event

# The relay comes every three seconds here, and leaves a message to whoever committed it for less than half a minute.
HEAD_START_MS = 1_500
RELAY_SECONDS = 3.0
WAIT_SECONDS = 1
# As many as run at once: what waits in a batch comes back to another worker while it does.
BATCH_SIZE = 5
GRACE_SECONDS = 8.0
RESULT_LIMIT = Settings().result_limit


class ToldApp(App):
    """Tells of every batch before it is worked on: what a process dies with was delivered, too."""

    def consumer(self, event: Any, context: object = None) -> PartialBatchResponse:
        """Consume a batch."""
        tell("batch.delivered", jobs=[named(record["body"]) for record in event["Records"]])
        return super().consumer(event, context)


def named(body: str) -> str:
    """Return the name of the job in a body; empty where there is none."""
    try:
        envelope = json.loads(body)
        return f"{envelope['job_type']}#{envelope['idempotency_key']}"
    except (ValueError, TypeError, KeyError):
        return ""


def shown(value: object) -> dict[str, Any]:
    """Return a value as it should be stored, or that it cannot be."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        return {"unstorable": True}
    return {"unstorable": True} if len(text) > RESULT_LIMIT else {"value": json.loads(text)}


def attempt(call_next: Callable[[], Any], ctx: Context, payload: object) -> Any:
    """Tell when an attempt begins and how it ends."""
    known = {"job": f"{ctx.job_type}#{ctx.key}", "attempt": ctx.attempt, "token": ctx.fencing_token}
    tell("attempt.began", **known)
    try:
        value = call_next()
    except BaseException as error:
        tell("attempt.ended", **known, error=type(error).__name__)
        raise
    tell("attempt.ended", **known, **shown(value))
    return value


def hook(event: Event) -> None:
    """Tell a telemetry event."""
    fields = event.fields()
    if "job_type" in fields and "key" in fields:
        fields["job"] = f"{fields.pop('job_type')}#{fields.pop('key')}"
    tell(event.name, **{("event" if name == "name" else name): value for name, value in fields.items()})


def main(kind: str, queue: str = "default") -> None:
    """Work until SIGTERM, or until the parent is gone."""
    os.environ[SENDER_VARIABLE] = sender_name(os.getpid())
    outbox.HEAD_START_MS = HEAD_START_MS  # nothing else has to know that it is shorter here
    app = ToldApp(JOB_TYPES, middleware=[attempt], hooks=[hook])
    tell("process.started", kind=kind, queue=queue)
    if kind == "relay":
        send_on(app, every=RELAY_SECONDS, grace=GRACE_SECONDS, follow_stdin=True)
    else:
        work(app, queue=queue, batch_size=BATCH_SIZE, wait=WAIT_SECONDS, grace=GRACE_SECONDS, follow_stdin=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
