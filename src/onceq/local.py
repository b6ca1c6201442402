"""Local truth: moto behind a lock, resources from the template, and a poller that reads answers as AWS does."""

from __future__ import annotations

import functools
import threading
from typing import Any


def serialise_moto() -> None:
    """Let moto serve one DynamoDB request at a time, in this process, from now on.

    moto 5.2.5 evaluates a condition and writes in two steps without a lock, and a failing transaction puts back whole
    tables, so conditional writes race between threads. DynamoDB promises atomicity; one re-entrant lock around
    the handler gives it back. Calling this twice is harmless.
    """
    from moto.dynamodb.responses import DynamoHandler  # noqa: PLC0415 - only local runs load moto

    unlocked = DynamoHandler.call_action
    if getattr(unlocked, "is_serialised", False):
        return
    lock = threading.RLock()

    @functools.wraps(unlocked)
    def serialised(self: DynamoHandler) -> Any:
        with lock:
            return unlocked(self)

    serialised.is_serialised = True  # type: ignore[attr-defined]  # the mark looked for above
    DynamoHandler.call_action = serialised  # type: ignore[method-assign]
