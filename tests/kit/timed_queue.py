"""Receipt handles as SQS knows them: each receive gives a new one, and an older one names nothing any more.

moto deletes by any handle that it ever gave. AWS says of DeleteMessage that a message that was received again is not
deleted by an older handle, and that the call succeeds all the same
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html); of a visibility
change by an older one it says nothing, so both answers are tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.queue import Queue
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from onceq.clock import Deadline
    from onceq.store import Store

Answer = dict[str, Any]


class StrictHandles:
    """Stands before an SQS client and knows the newest receipt handle of every message.

    Args:
        client: The client.
        refuses: Whether a visibility change by an older handle is an error; otherwise it is answered and does nothing.

    Attributes:
        stale: Operations that came with an older handle.
    """

    def __init__(self, client: Any, *, refuses: bool) -> None:
        """Start with nothing received."""
        self._client = client
        self._refuses = refuses
        self._newest: dict[str, str] = {}
        self._message_of: dict[str, str] = {}
        self.stale: list[str] = []

    def __getattr__(self, method: str) -> Any:
        """Return what the client has."""
        return getattr(self._client, method)

    def receive_message(self, **request: Any) -> Answer:
        """Receive, and note the handles."""
        answer: Answer = self._client.receive_message(**request)
        for message in answer.get("Messages", []):
            self._newest[message["MessageId"]] = message["ReceiptHandle"]
            self._message_of[message["ReceiptHandle"]] = message["MessageId"]
        return answer

    def delete_message_batch(self, **request: Any) -> Answer:
        """Delete what a newest handle names; say yes to everything."""
        return self._split("delete", request, refuses=False)

    def change_message_visibility_batch(self, **request: Any) -> Answer:
        """Change the visibility of what a newest handle names."""
        return self._split("visibility", request, refuses=self._refuses)

    def _split(self, name: str, request: dict[str, Any], *, refuses: bool) -> Answer:
        entries = request["Entries"]
        stale = [entry for entry in entries if not self._is_newest(entry["ReceiptHandle"])]
        fresh = [entry for entry in entries if entry not in stale]
        self.stale += [name] * len(stale)
        answer: Answer = {"Successful": [], "Failed": []}
        if fresh:
            operation = "delete_message_batch" if name == "delete" else "change_message_visibility_batch"
            answer |= getattr(self._client, operation)(QueueUrl=request["QueueUrl"], Entries=fresh)
        failed = {"Code": "ReceiptHandleIsInvalid", "Message": "it was received again", "SenderFault": True}
        if refuses:
            answer["Failed"] = [*answer.get("Failed", []), *({"Id": entry["Id"], **failed} for entry in stale)]
        else:
            answer["Successful"] = [*answer.get("Successful", []), *({"Id": entry["Id"]} for entry in stale)]
        return answer

    def _is_newest(self, handle: str) -> bool:
        message_id = self._message_of.get(handle)
        return message_id is not None and self._newest[message_id] == handle


class StrictRuntime(Runtime):
    """A runtime whose SQS has strict handles."""

    def __init__(self, base: Runtime, sqs: StrictHandles) -> None:
        """Share everything else with ``base``."""
        super().__init__(base.settings, clock=base.clock, tokens=base.tokens)
        self._base = base
        self._sqs = sqs

    def store(self, deadline: Deadline) -> Store:
        """Return the base's claims table."""
        return self._base.store(deadline)

    def queue(self, deadline: Deadline) -> Queue:
        """Return the seam over the strict client."""
        return Queue(self.clock, self.tokens, deadline, client=self._sqs)
