"""SQS as a list of requests, for tests of what it is told."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from onceq.queue import Queue
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.clock import Deadline
    from onceq.store import Store

Answer = dict[str, Any]


class FakeSqs:
    """Stands for a botocore client: writes requests down, and fails the entries that a test names.

    Args:
        fail: Given operation and entry; returns the ``Failed`` fields, or ``None`` for success. It may raise.
    """

    def __init__(self, fail: Callable[[str, dict[str, Any]], dict[str, Any] | None] = lambda *_: None) -> None:
        """Start with no request."""
        self.fail = fail
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._lock = threading.Lock()

    def send_message_batch(self, **request: Any) -> Answer:
        """Take messages."""
        return self._answer("send", request)

    def change_message_visibility_batch(self, **request: Any) -> Answer:
        """Take visibility time-outs."""
        return self._answer("visibility", request)

    def _answer(self, operation: str, request: dict[str, Any]) -> Answer:
        with self._lock:
            self.requests.append((operation, request))
        answer: Answer = {"Successful": [], "Failed": []}
        for entry in request["Entries"]:
            failure = self.fail(operation, entry)
            if failure is None:
                answer["Successful"].append({"Id": entry["Id"], "MessageId": f"copy-{entry['Id']}"})
            else:
                answer["Failed"].append({"Id": entry["Id"], **failure})
        return answer

    def entries(self, operation: str) -> list[dict[str, Any]]:
        """Return every entry of an operation, in order."""
        return [entry for name, request in self.requests for entry in request["Entries"] if name == operation]

    def visibility(self) -> dict[str, int]:
        """Return the time-outs by receipt handle."""
        return {entry["ReceiptHandle"]: entry["VisibilityTimeout"] for entry in self.entries("visibility")}


class SpiedRuntime(Runtime):
    """A runtime whose SQS is a `FakeSqs`."""

    def __init__(self, base: Runtime, sqs: FakeSqs) -> None:
        """Share everything else with ``base``."""
        super().__init__(base.settings, clock=base.clock, tokens=base.tokens)
        self._base = base
        self._sqs = sqs

    def store(self, deadline: Deadline) -> Store:
        """Return the base's claims table."""
        return self._base.store(deadline)

    def queue(self, deadline: Deadline) -> Queue:
        """Return the seam over the fake."""
        return Queue(self.clock, self.tokens, deadline, client=self._sqs)

    def loop(self) -> Any:
        """Return the base's event loop."""
        return self._base.loop()
