"""One request to AWS as the kit sees it, and what it means in the framework's words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onceq.record import Semantics, Status
from onceq.steps import open_steps, read_steps
from onceq.testing.contents import key_names_of
from onceq.testing.wording import numbered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

WRITES = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems")
# How the names of operations begin that only look something up; any other one may have changed something.
ONLY_READ = (
    "BatchGet",
    "Decrypt",
    "Describe",
    "Filter",
    "Get",
    "Head",
    "List",
    "Lookup",
    "Query",
    "Receive",
    "Scan",
    "Search",
    "Select",
    "TransactGet",
    "Verify",
)
_ABSENT = re.compile(r"\s*attribute_not_exists\s*\(\s*(#?[\w-]+)\s*\)\s*")
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


@dataclass(frozen=True, slots=True)
class Write:
    """One item that a request writes.

    Args:
        item: Its table and key.
        deletes: Whether it deletes the item.
        asks: Whether a condition of its own stands at it.
        adds: Whether it only adds to numbers or sets: whoever else wrote there loses nothing by it.
        guarded: Whether a condition stands at another item of the same transaction, and none here.
        part: What of the request is about it.
    """

    item: str
    deletes: bool = False
    asks: bool = False
    adds: bool = False
    guarded: bool = False
    part: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def table(self) -> str:
        """Its table."""
        return self.item.partition(" ")[0]


@dataclass(frozen=True)
class Call:
    """One request.

    Args:
        service: ``dynamodb``, ``sqs``, ``s3``, or another one of botocore's names.
        operation: The API's name of it, for example ``PutItem``.
        request: Its parameters.
        claims_table: Name of the claims table, if the framework is watched.
        own: Whether the job made it, with a client of its own.
    """

    service: str
    operation: str
    request: Mapping[str, Any]
    claims_table: str = ""
    own: bool = False

    @property
    def is_write(self) -> bool:
        """Whether it changes something: the response of a write may be lost after it landed."""
        return not self.operation.startswith(ONLY_READ)

    @property
    def table(self) -> str:
        """The table of a single request, or ``""``."""
        return str(self.request.get("TableName", ""))

    @property
    def is_conditional(self) -> bool:
        """Whether a write asks for anything: one that does not overwrites whatever stands there."""
        return any(_asks(part) for part in self._parts)

    @property
    def key(self) -> str:
        """The item's key as text, or ``""``."""
        return _key_of(self.request)

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
        """Table and key of the item that a single request reads or writes, or ``""``."""
        return _item_of(self.request)

    @property
    def writes(self) -> list[Write]:
        """The items that it writes, one by one."""
        return [*self._writes()] if self.is_write else []

    @property
    def looks(self) -> list[str]:
        """Table and key of the items that it reads, or that a write of was refused."""
        asked = [one.get("Get", one) for one in self.request.get("TransactItems", [])]
        if self.operation == "BatchGetItem":
            tables = self.request.get("RequestItems", {}).items()
            asked = [{"TableName": table, "Key": key} for table, one in tables for key in one.get("Keys", [])]
        return [write.item for write in self.writes] or [_item_of(one) for one in asked or [self.request]]

    def keeps_to(self, table: str) -> bool:
        """Return whether it writes to this table alone."""
        writes = self.writes
        return bool(writes) and all(write.item.startswith(f"{table} ") for write in writes)

    def _writes(self) -> Iterator[Write]:
        if self.operation == "BatchWriteItem":
            for table, writes in self.request.get("RequestItems", {}).items():
                for write in writes:
                    ((kind, part),) = write.items()
                    whole = {"TableName": table, **part}
                    yield Write(_item_of(whole), deletes=kind == "DeleteRequest", part=whole)
        elif self.operation == "TransactWriteItems":
            parts = [next(iter(write.items())) for write in self.request.get("TransactItems", [])]
            fenced = any(_asks(part) for _, part in parts)
            for kind, part in parts:
                if kind != "ConditionCheck":
                    guarded = fenced and not _asks(part)
                    yield Write(_item_of(part), kind == "Delete", _asks(part), _adds(part), guarded, part)
        elif self.item:
            deletes = self.operation == "DeleteItem"
            yield Write(self.item, deletes, self.is_conditional, _adds(self.request), part=self.request)

    def asks_of(self, tables: Collection[str]) -> bool:
        """Return whether it has a condition on an item of other tables than these."""
        return any(_asks(part) for part in self._parts if part.get("TableName", "") not in ("", *tables))

    @property
    def _transacted(self) -> list[Mapping[str, Any]]:
        return [next(iter(write.values())) for write in self.request.get("TransactItems", [])]

    @property
    def _parts(self) -> list[Mapping[str, Any]]:
        return [self.request, *self._transacted]

    @property
    def others(self) -> list[Mapping[str, Any]]:
        """The writes of a transaction beside the record's."""
        return [write for write in self._transacted if write.get("TableName") != self.claims_table]

    def __str__(self) -> str:
        """Name it in the framework's words where it is one of the framework's writes."""
        if self.update is not None:
            return self._of_a_record()
        if self.operation in _NAMES:
            return _NAMES[self.operation]
        items = ", ".join(write.item for write in self.writes)
        where = items if not self.table else " ".join(word for word in (self.table, self.key) if word)
        condition = ""
        if self.operation in WRITES:
            condition = " if …" if any(_has_condition(part) for part in self._parts) else ", no condition"
        return f"{self.operation} {where}".strip() + condition

    def _of_a_record(self) -> str:
        if self.operation == "PutItem":
            return "claim"
        if self.operation == "GetItem":
            return "look up the record"
        if self.operation == "TransactWriteItems":
            return f"complete, with {numbered(len(self.others), 'other write')}"
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


def _item_of(part: Mapping[str, Any]) -> str:
    table, key = str(part.get("TableName", "")), _key_of(part)
    return f"{table} {key}" if table and key else ""


def _key_of(part: Mapping[str, Any]) -> str:
    """Return an item's key as text, all parts of it: those that the table's schema names, of a whole item."""
    item = part.get("Key")
    if not isinstance(item, dict):
        whole = part.get("Item")
        if not isinstance(whole, dict) or not whole:
            return ""
        # Of a table that nobody knows the framework's own name, or what stands first.
        names = key_names_of(str(part.get("TableName", ""))) or (("pk",) if "pk" in whole else tuple(whole)[:1])
        item = {name: whole[name] for name in names if name in whole}
    return ", ".join(str(value_of(item[name])) for name in sorted(item))


def _has_condition(part: Mapping[str, Any]) -> bool:
    return bool(part.get("ConditionExpression") or part.get("Expected"))


def _asks(part: Mapping[str, Any]) -> bool:
    """Return whether a condition stands there that refuses anything: not one that the item meets which it lets in."""
    absent = _ABSENT.fullmatch(str(part.get("ConditionExpression", "")))
    if absent is None or "Item" not in part:
        return _has_condition(part)
    names = part.get("ExpressionAttributeNames") or {}
    return names.get(absent[1], absent[1]) in part["Item"]


def _adds(part: Mapping[str, Any]) -> bool:
    words = str(part.get("UpdateExpression", "")).upper().split()
    return words[:1] == ["ADD"] and not {"SET", "REMOVE", "DELETE"} & {*words}


def value_of(attribute: Any) -> Any:
    """Return the plain value of an attribute in DynamoDB's shape, or what it is without one."""
    if isinstance(attribute, dict) and len(attribute) == 1:
        ((kind, value),) = attribute.items()
        if kind in ("S", "N", "BOOL"):
            return value
    return attribute
