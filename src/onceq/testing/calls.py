"""One request to AWS as the kit sees it, and what it means in the framework's words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onceq.record import Semantics, Status
from onceq.steps import open_steps, read_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

WRITES = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems")
_ENDS = {
    Status.COMPLETED: "complete",
    Status.FAILED: "release",
    Status.REJECTED: "reject",
    Status.UNCERTAIN: "hold",
}
_NAMES = {
    "SendMessage": "send a message",
    "SendMessageBatch": "send messages",
    "ReceiveMessage": "receive messages",
    "ChangeMessageVisibilityBatch": "set the visibility",
    "ChangeMessageVisibility": "set the visibility",
    "DeleteMessageBatch": "delete messages",
    "DeleteMessage": "delete a message",
}


@dataclass(frozen=True)
class Call:
    """One request.

    Args:
        service: ``dynamodb``, ``sqs``, ``s3``, or another one of botocore's names.
        operation: The API's name of it, for example ``PutItem``.
        request: Its parameters.
        claims_table: Name of the claims table, if the framework is watched.
    """

    service: str
    operation: str
    request: Mapping[str, Any]
    claims_table: str = ""

    @property
    def is_write(self) -> bool:
        """Whether it changes something: the response of a write may be lost after it landed."""
        return self.operation in WRITES or self.operation.startswith(("Send", "Delete", "Change", "Batch", "Put"))

    @property
    def table(self) -> str:
        """The table of a single request, or ``""``."""
        return str(self.request.get("TableName", ""))

    @property
    def is_conditional(self) -> bool:
        """Whether a write asks for anything: one that does not overwrites whatever stands there."""
        return bool(self.request.get("ConditionExpression") or self.request.get("Expected"))

    @property
    def key(self) -> str:
        """The item's key as text, or ``""``."""
        item = self.request.get("Key") or self.request.get("Item") or {}
        if self.operation == "PutItem" and "pk" in item:
            item = {"pk": item["pk"]}
        values = [value_of(value) for value in item.values()] if isinstance(item, dict) else []
        return ", ".join(str(value) for value in values[:1])

    @cached_property
    def update(self) -> Mapping[str, Any] | None:
        """What is written to a record of the claims table, or ``None``."""
        if self.operation == "TransactWriteItems":
            items = [write["Update"] for write in self.request["TransactItems"] if "Update" in write]
            return next((item for item in items if self.claims_table and item["TableName"] == self.claims_table), None)
        if not self.claims_table or self.table != self.claims_table or self.key.startswith("~"):
            return None
        return self.request

    @property
    def status(self) -> str:
        """The status that a record gets by it, or ``""``."""
        if self.update is None:
            return ""
        if self.operation == "PutItem":
            return str(value_of(self.request["Item"].get("status", {"S": ""})))
        values = self.update.get("ExpressionAttributeValues") or {}
        return str(value_of(values.get(":new_status", {"S": ""})))

    @property
    def steps(self) -> str | None:
        """The steps that a record gets by it, as JSON; ``None`` if it does not write them."""
        values = (self.update or {}).get("ExpressionAttributeValues") or {}
        return str(value_of(values[":new_steps"])) if ":new_steps" in values else None

    @property
    def begins_once(self) -> bool:
        """Whether it says that what may start at most once was started: the job, or a step of it."""
        if self.operation == "PutItem" and self.update is not None:
            return bool(value_of(self.request["Item"].get("semantics", {"S": ""})) == Semantics.AT_MOST_ONCE)
        return bool(self.steps and open_steps(self.steps))

    @property
    def record_key(self) -> str:
        """The key of the record of the claims table that it writes, or ``""``."""
        if self.update is None:
            return ""
        return str(value_of((self.update.get("Key") or self.update.get("Item") or {}).get("pk", "")))

    @property
    def item(self) -> str:
        """Table and key of the item that it reads or writes, or ``""``."""
        return f"{self.table} {self.key}" if self.table and self.key else ""

    @property
    def others(self) -> list[Mapping[str, Any]]:
        """The writes of a transaction beside the record's."""
        writes = [next(iter(write.values())) for write in self.request.get("TransactItems", [])]
        return [write for write in writes if write.get("TableName") != self.claims_table]

    def __str__(self) -> str:
        """Name it in the framework's words where it is one of the framework's writes."""
        if self.update is not None:
            return self._of_a_record()
        if self.operation in _NAMES:
            return _NAMES[self.operation]
        where = " ".join(word for word in (self.table, self.key) if word)
        condition = ""
        if self.operation in WRITES and self.operation != "TransactWriteItems":
            condition = " if …" if self.is_conditional else ", no condition"
        return f"{self.operation} {where}".strip() + condition

    def _of_a_record(self) -> str:
        if self.operation == "PutItem":
            return "claim"
        if self.operation == "GetItem":
            return "look up the record"
        if self.operation == "TransactWriteItems":
            return f"complete, with {len(self.others)} other write{'s' * (len(self.others) != 1)}"
        values = (self.update or {}).get("ExpressionAttributeValues") or {}
        if ":new_fencing_token" in values:
            return "take over"
        if self.status in _ENDS:
            return _ENDS[Status(self.status)]
        if ":new_lease_expires_at" in values:
            return "renew the lease"
        if self.steps is not None:
            return "record that a step began" if open_steps(self.steps) else f"record step {self._step}"
        return "record the steps" if self.operation == "UpdateItem" else self.operation

    @property
    def _step(self) -> str:
        *_, last = read_steps(self.steps) or [""]
        return last


def value_of(attribute: Any) -> Any:
    """Return the plain value of an attribute in DynamoDB's shape, or what it is without one."""
    if isinstance(attribute, dict) and len(attribute) == 1:
        ((kind, value),) = attribute.items()
        if kind in ("S", "N", "BOOL"):
            return value
    return attribute
