"""What stands in moto's tables, buckets and queues in this process, read without a request; SQS's checksums."""

from __future__ import annotations

import copy
import hashlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceq.outbox import OutboxEntry
from onceq.record import RESERVED, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ACCOUNT = "123456789012"
REGION = "us-east-1"
SENDER = "AIDAEXAMPLE"
# How SQS's checksum marks a value.
_STRING, _BINARY = b"\x01", b"\x02"


@dataclass(frozen=True, slots=True)
class Place:
    """A queue.

    Args:
        name: Its name.
        url: Its URL.
        arn: Its ARN.
        visibility: Its visibility timeout in seconds.
        dlq_arn: ARN of its dead-letter queue, or ``""``.
        most_receives: ``maxReceiveCount`` of its redrive policy; 0 without one.
        alias: Its name in ``ONCEQ_QUEUES``, or ``""``.
        timeout: Seconds that an invocation of its consumer may take; ``None`` where nobody consumes it.
        dedupes_by_group: Whether a deduplication id counts inside its message group alone.
    """

    name: str
    url: str
    arn: str
    visibility: int = 30
    dlq_arn: str = ""
    most_receives: int = 100
    alias: str = ""
    timeout: float | None = None
    dedupes_by_group: bool = False

    @property
    def is_consumed(self) -> bool:
        """Whether a function consumes it."""
        return self.timeout is not None

    @property
    def is_fifo(self) -> bool:
        """Whether it keeps the order of its groups."""
        return self.name.endswith(".fifo")


class Contents:
    """What stands in moto's tables and buckets, to be read and to be put back: through a client it takes a second."""

    def __init__(self) -> None:
        self._tables = {at: copy.deepcopy(table.items) for at, table in _tables()}
        self._buckets = {at: _objects(bucket) for at, bucket in _buckets()}

    def restore(self) -> None:
        """Put it back; what was made since is empty."""
        # By its name: a transaction that fails puts copies in the place of all tables.
        for at, table in _tables():
            table.items.clear()
            table.items.update(copy.deepcopy(self._tables.get(at, {})))
        for at, bucket in _buckets():
            for name in [*bucket.keys]:
                bucket.keys.pop(name)  # which closes its file
            for name, versions in self._buckets.get(at, []):
                bucket.keys.setlist(name, [_object(kind, state) for kind, state in versions])


def items_of(table: str) -> list[dict[str, Any]]:
    """Return every item that stands in a table now, in DynamoDB's shape; nothing if there is no such table."""
    found = [one for (*_, name), one in _tables() if name == table]
    return [item.to_json()["Attributes"] for one in found for item in one.all_items()]


def tables() -> list[str]:
    """Return the names of the tables that there are now."""
    return sorted(name for (*_, name), _ in _tables())


def key_names_of(table: str) -> tuple[str, ...]:
    """Return the names of a table's key attributes; nothing if there is no such table."""
    if "moto.dynamodb.models" not in sys.modules:
        return ()
    found = [one for (*_, name), one in _tables() if name == table]
    return tuple(attribute["AttributeName"] for attribute in found[0].schema) if found else ()


def records_of(table: str) -> list[Record]:
    """Return the records of a claims table."""
    # A consumer of another make may keep other items there.
    items = [item for item in items_of(table) if "claimant" in item and "fencing_token" in item]
    return [Record.from_item(item) for item in items if not item["pk"]["S"].startswith(RESERVED)]


def entries_of(table: str) -> list[OutboxEntry]:
    """Return the entries of an outbox table, those that are due first at the beginning."""
    return sorted(map(OutboxEntry.from_item, items_of(table)), key=lambda entry: (entry.due_at, entry.pk))


def _tables() -> list[tuple[tuple[str, ...], Any]]:
    from moto.dynamodb.models import dynamodb_backends  # noqa: PLC0415 - only local runs load moto

    return _within(dynamodb_backends, "tables")


def _buckets() -> list[tuple[tuple[str, ...], Any]]:
    from moto.s3.models import s3_backends  # noqa: PLC0415 - as above

    return _within(s3_backends, "buckets")


def _objects(bucket: Any) -> list[tuple[str, list[tuple[type, dict[str, Any]]]]]:
    """Return what a bucket holds. Not as moto's objects: each has a file open until it is deleted."""
    return [
        (name, [(type(version), version.__getstate__()) for version in bucket.keys.getlist(name)])
        for name in bucket.keys
    ]


def _object(kind: type, state: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    made.__setstate__(state)
    return made


def _within(backends: Any, kind: str) -> list[tuple[tuple[str, ...], Any]]:
    return [
        ((account, region, name), one)
        for account, regions in backends.items()
        for region, backend in regions.items()
        for name, one in getattr(backend, kind).items()
    ]


def answered(client: Any) -> Any:
    """Let moto answer a client that was made before moto was loaded; it answers only those made after by itself."""
    from moto.core.models import patch_client  # noqa: PLC0415 - as above

    patch_client(client)
    return client


def sent_to(url: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Take what was sent to a queue out of it, in the order of sending.

    Not by receiving: moto gives a FIFO group out of order, hides what is delayed, and each takes two requests.

    Args:
        url: The queue's URL.

    Yields:
        A message as ReceiveMessage gives it, without a receipt, and when it becomes visible, epoch ms.
    """
    from moto.sqs.models import sqs_backends  # noqa: PLC0415 - as above

    *_, account, name = url.split("/")
    queues = [backend.queues[name] for backend in sqs_backends[account].values() if name in backend.queues]
    for queue in queues:
        while queue._messages:  # noqa: SLF001 - its public view leaves out what is delayed
            message: Any = queue._messages.pop(0)  # noqa: SLF001
            yield _received(message), max(message.sent_timestamp, round(message.delayed_until))


def _received(message: Any) -> dict[str, Any]:
    system = {
        "SenderId": message.sender_id,
        "SentTimestamp": str(message.sent_timestamp),
        "MessageGroupId": message.group_id,
        "MessageDeduplicationId": message.deduplication_id,
        "SequenceNumber": message.sequence_number,
        "AWSTraceHeader": (message.system_attributes.get("AWSTraceHeader") or {}).get("StringValue"),
    }
    received = {
        "MessageId": message.id,
        "MD5OfBody": message.body_md5,
        "Body": message.body,
        "Attributes": {name: value for name, value in system.items() if value is not None},
    }
    if not message.message_attributes:
        return received
    return received | {
        "MessageAttributes": message.message_attributes,
        "MD5OfMessageAttributes": message.attribute_md5,
    }


def message_id_of(number: int) -> str:
    """Return a message id that is the same in every run."""
    return f"00000000-0000-4000-8000-{number:012d}"


def deduplication_id(number: int, body: str) -> str:
    """Return a FIFO message's deduplication id of its own."""
    return hashlib.sha256(f"{number}#{body}".encode()).hexdigest()


def checksums(message: Mapping[str, Any]) -> dict[str, str]:
    """Return what SQS adds to a message in ReceiveMessage's shape: checksums of the transport, no protection.

    That over the attributes is described at
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html.
    """
    sums = {"MD5OfBody": _md5(message["Body"].encode())}
    if message.get("MessageAttributes"):
        sums["MD5OfMessageAttributes"] = _md5(b"".join(_signed(message["MessageAttributes"])))
    return sums


def _signed(attributes: Mapping[str, Mapping[str, Any]]) -> Iterator[bytes]:
    for name in sorted(attributes):
        attribute = attributes[name]
        is_binary = "BinaryValue" in attribute
        value = attribute["BinaryValue"] if is_binary else attribute["StringValue"].encode()
        yield _measured(name.encode()) + _measured(attribute["DataType"].encode())
        yield (_BINARY if is_binary else _STRING) + _measured(value)


def _measured(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
