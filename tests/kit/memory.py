"""DynamoDB, SQS and S3 in this process's memory, for tests of many thousand events.

Doubles of botocore's clients. They know the requests that a consumer makes and nothing else, and are as strict as
AWS is about what they take: `tests/fuzz/test_memory.py` holds them against moto. Everything else runs on moto.
"""

from __future__ import annotations

import io
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from kit.memory_tables import MemoryDynamoDB, meta_of, refusal
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kit.memory_tables import Item
    from onceq.clock import Clock, TokenFactory
    from onceq.settings import Settings

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
MOST_MESSAGE_BYTES = 1_048_576
TAKEN = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")
_ATTRIBUTE_NAME = re.compile(r"(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_ATTRIBUTE_TYPE = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
_GROUP = re.compile(r"[!-~]{1,128}")


@dataclass
class MemorySqs:
    """Queues that are only sent to.

    Args:
        sent: What was taken: the queue's URL and the entry, in order.
        refused: What was not: the same, and why.
        visibility: The time-outs that were set: receipt handle and seconds.
    """

    meta: ClassVar = meta_of("SendMessage", "SendMessageBatch", "ChangeMessageVisibilityBatch")

    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    refused: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)
    visibility: list[tuple[str, int]] = field(default_factory=list)
    _ids: dict[tuple[str, str], str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def clear(self) -> None:
        """Forget everything."""
        self.sent.clear()
        self.refused.clear()
        self.visibility.clear()
        self._ids.clear()

    def send_message(self, **request: Any) -> dict[str, Any]:
        """Take one message."""
        with self._lock:
            entry = {name: value for name, value in request.items() if name != "QueueUrl"}
            if reason := why_refused(request["QueueUrl"], entry):
                self.refused.append((request["QueueUrl"], entry, reason))
                raise refusal("SendMessage", "InvalidParameterValue", reason)
            return {"MessageId": self._taken(request["QueueUrl"], entry)}

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        """Take messages; what breaks a rule for characters fails alone, what breaks another one fails the request."""
        with self._lock:
            url, entries = request["QueueUrl"], request["Entries"]
            self._check("SendMessageBatch", entries)
            reasons = {entry["Id"]: why_refused(url, entry) for entry in entries}
            whole = [reason for reason in reasons.values() if reason and reason != CHARACTERS]
            self.refused += [(url, entry, reasons[entry["Id"]]) for entry in entries if reasons[entry["Id"]]]
            if whole:
                raise refusal("SendMessageBatch", "InvalidParameterValue", whole[0])
            if sum(bytes_of(entry) for entry in entries if not reasons[entry["Id"]]) > MOST_MESSAGE_BYTES:
                raise refusal("SendMessageBatch", "AWS.SimpleQueueService.BatchRequestTooLong")
            answer: dict[str, Any] = {"Successful": [], "Failed": []}
            for entry in entries:
                if reason := reasons[entry["Id"]]:
                    failed = {"Id": entry["Id"], "SenderFault": True, "Code": "InvalidMessageContents"}
                    answer["Failed"].append(failed | {"Message": reason})
                else:
                    answer["Successful"].append({"Id": entry["Id"], "MessageId": self._taken(url, entry)})
            return answer

    def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
        """Take visibility time-outs, of any receipt handle that is text."""
        with self._lock:
            entries = request["Entries"]
            self._check("ChangeMessageVisibilityBatch", entries)
            answer: dict[str, Any] = {"Successful": [], "Failed": []}
            for entry in entries:
                handle, seconds = entry["ReceiptHandle"], entry["VisibilityTimeout"]
                if not handle or not TAKEN.fullmatch(handle):
                    failed = {"Id": entry["Id"], "SenderFault": True, "Code": "ReceiptHandleIsInvalid"}
                    answer["Failed"].append(failed)
                    continue
                if not (type(seconds) is int and 0 <= seconds <= 43_200):
                    raise refusal("ChangeMessageVisibilityBatch", "InvalidParameterValue", f"{seconds!r} seconds")
                self.visibility.append((handle, seconds))
                answer["Successful"].append({"Id": entry["Id"]})
            return answer

    def _taken(self, url: str, entry: dict[str, Any]) -> str:
        # A FIFO queue takes the same deduplication id again, and adds nothing.
        dedup = (url, entry.get("MessageDeduplicationId") or f"of its own: {len(self.sent)}")
        if dedup not in self._ids:
            self._ids[dedup] = f"sent-{len(self._ids)}"
            self.sent.append((url, entry))
        return self._ids[dedup]

    @staticmethod
    def _check(operation: str, entries: list[dict[str, Any]]) -> None:
        ids = [entry["Id"] for entry in entries]
        if not 1 <= len(ids) <= 10 or len(set(ids)) != len(ids):
            raise refusal(operation, "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", f"ids {ids}")


CHARACTERS = "characters that SQS does not take"


def bytes_of(entry: Mapping[str, Any]) -> int:
    """Return what SQS counts of a message."""
    attributes = entry.get("MessageAttributes") or {}
    return len(entry["MessageBody"].encode()) + sum(
        len(name.encode())
        + len(one["DataType"].encode())
        + len(one["StringValue"].encode() if "StringValue" in one else one["BinaryValue"])
        for name, one in attributes.items()
    )


def why_refused(url: str, entry: Mapping[str, Any]) -> str:
    """Return why SQS does not take a message, or ``""``."""
    body, attributes = entry["MessageBody"], entry.get("MessageAttributes") or {}
    texts = [body, *(one["StringValue"] for one in attributes.values() if "StringValue" in one)]
    if not all(TAKEN.fullmatch(text) for text in texts):
        return CHARACTERS
    if not body:
        return "the body is empty"
    if len(attributes) > 10:
        return "more than 10 attributes"
    for name, one in attributes.items():
        if reason := _why_attribute_refused(name, one):
            return f"attribute {name!r}: {reason}"
    if bytes_of(entry) > MOST_MESSAGE_BYTES:
        return "too long"
    if url.endswith(".fifo"):
        ids = (entry.get("MessageGroupId"), entry.get("MessageDeduplicationId"))
        if not all(isinstance(one, str) and _GROUP.fullmatch(one) for one in ids):
            return f"group and deduplication id {ids}"
    return ""


def _why_attribute_refused(name: str, one: Mapping[str, Any]) -> str:
    if not _ATTRIBUTE_NAME.fullmatch(name) or name.lower().startswith(("aws.", "amazon.")):
        return "its name"
    if not _ATTRIBUTE_TYPE.fullmatch(one["DataType"]):
        return "its type"
    is_binary = one["DataType"].startswith("Binary")
    if is_binary != ("BinaryValue" in one):
        return "a value of another type"
    return "" if one["BinaryValue" if is_binary else "StringValue"] else "an empty value"


class MemoryS3:
    """A bucket's objects by name, and their encodings."""

    def __init__(self) -> None:
        """Start empty."""
        self.objects: dict[str, tuple[bytes, str]] = {}

    def get_object(self, **request: Any) -> dict[str, Any]:
        """Read an object."""
        if request["Key"] not in self.objects:
            raise refusal("GetObject", "NoSuchKey", "The specified key does not exist.")
        data, encoding = self.objects[request["Key"]]
        named = {"ContentEncoding": encoding} if encoding else {}
        return {"Body": io.BytesIO(data), "ContentLength": len(data), **named}

    def put_object(self, **request: Any) -> dict[str, Any]:
        """Write an object."""
        self.objects[request["Key"]] = (request["Body"], "")
        return {}


class MemoryRuntime(Runtime):
    """A runtime on these doubles."""

    def __init__(self, settings: Settings, clock: Clock, tokens: TokenFactory) -> None:
        """Start with empty tables and queues."""
        self.dynamodb, self.sqs, self.s3 = MemoryDynamoDB(), MemorySqs(), MemoryS3()
        clients = {"dynamodb": self.dynamodb, "sqs": self.sqs, "s3": self.s3}
        super().__init__(settings, clock=clock, tokens=tokens, clients=clients)

    def plant(self, table: str, items: Iterable[Item]) -> None:
        """Empty everything, and let these items stand in a table."""
        self.sqs.clear()
        self.dynamodb.tables = {table: {item["pk"]["S"]: dict(item) for item in items}}
