"""The seed corpus: records as SQS delivers them, of everything that is put on a queue."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.strict_reading import POINTERS
from kit.world import REGION, arn_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
EVENTS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "events").glob("*.json"))}
# The records of events/*.json; the schema and the schedule's event have none.
FROM_FILES: list[dict[str, Any]] = [record for event in EVENTS.values() for record in event.get("Records", [])]


@dataclass
class Seeds:
    """Makes records. Ids and keys are new with each, unless a mutation makes them equal."""

    rng: random.Random
    _count: int = field(default=0)

    def any(self) -> dict[str, Any]:
        """Return a record of any kind."""
        make: Callable[[], dict[str, Any]] = self.rng.choice(KINDS).__get__(self)
        return make()

    def next(self) -> int:
        """Return a number that no record of this case has."""
        self._count += 1
        return self._count

    def record(
        self,
        body: Any,
        *,
        queue: str = "JobsQueue",
        group: str | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return a record with every attribute that SQS gives."""
        number = self.next()
        system = {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1795953600000",
            "SenderId": "AIDAEXAMPLE",
            "ApproximateFirstReceiveTimestamp": "1795953600001",
        }
        if group is not None:
            system |= {
                "MessageGroupId": group,
                "SequenceNumber": f"{number:020}",
                "MessageDeduplicationId": f"d-{number}",
            }
        return {
            "messageId": f"{number:08x}-3c98-4eb5-a4e9-ee97a12ebda7",
            "receiptHandle": f"receipt-{number}",
            "body": body if isinstance(body, str) else json.dumps(body),
            "attributes": system,
            "messageAttributes": attributes or {},
            "md5OfBody": "1959349f464c7952f31344b9fb59a688",
            "eventSource": "aws:sqs",
            "eventSourceARN": arn_of(queue),
            "awsRegion": REGION,
        }

    def healthy(self) -> dict[str, Any]:
        """Return a record of a good job, alone in its lane."""
        number = self.next()
        body = envelope("process_payment", f"healthy-{number}", {"order_id": f"h-{number}", "do": "return"})
        if self.rng.random() < 0.3:
            return self.record(body, queue="JobsQueue.fifo", group=f"healthy-{number}")
        return self.record(body)

    def enveloped(self) -> dict[str, Any]:
        """Return an envelope with every field."""
        rng, number = self.rng, self.next()
        name = rng.choice(["process_payment", "sends", "async", "once", "locked", "retitled", "old_title", "derived"])
        payload: dict[str, Any] = {"order_id": f"o-{number}", "customer_id": "cus_1", "amount_cents": 500}
        if rng.random() < 0.5:
            payload["do"] = rng.choice(DOES)
        return self.record(envelope(name, f"k-{number}", payload, hops=rng.choice([0, 1, 1000])))

    def typed(self) -> dict[str, Any]:
        """Return an envelope of a job type whose payload is a dataclass."""
        number = self.next()
        payload = {"order_id": f"o-{number}", "amount": 5, "do": self.rng.choice(["return", "raise"])}
        return self.record(envelope("typed", f"k-{number}", payload))

    def from_file(self) -> dict[str, Any]:
        """Return a record of events/*.json."""
        found: dict[str, Any] = self.rng.choice(FROM_FILES)
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]

    def plain(self) -> dict[str, Any]:
        """Return plain JSON."""
        return self.record(
            {"order_id": f"o-{self.next()}", "amount_cents": 700}, queue=self.rng.choice(["JobsQueue", "Bare"])
        )

    def fifo(self) -> dict[str, Any]:
        """Return a record of a FIFO queue, of one of few groups."""
        rng, number = self.rng, self.next()
        payload = {"order_id": f"o-{number}", "do": rng.choice(DOES)}
        body = envelope("process_payment", f"k-{number}", payload)
        return self.record(body, queue="JobsQueue.fifo", group=rng.choice(["a", "b"]))

    def tenant(self) -> dict[str, Any]:
        """Return a record of a standard queue that names a tenant as its group."""
        number = self.next()
        return self.record(envelope("process_payment", f"k-{number}", {"do": self.rng.choice(DOES)}), group="tenant-1")

    def with_attributes(self) -> dict[str, Any]:
        """Return a refused record with attributes, which its copy keeps."""
        many = {f"name-{number}": attribute("String", "v") for number in range(self.rng.choice([1, 9, 10, 11]))}
        many["blob"] = {"dataType": "Binary", "binaryValue": base64.b64encode(b"\x00\xff").decode()}
        return self.record("charge order 3, please", attributes=many)

    def redriven(self) -> dict[str, Any]:
        """Return a record that carries our dead-letter note."""
        number = self.next()
        note = {"reason": "rejected", "job_type": "process_payment", "key": f"k-{number}", "version": 2}
        body = envelope("process_payment", f"k-{number}", {"order_id": f"o-{number}"})
        return self.record(body, attributes={"onceq": attribute("String", json.dumps(note))})

    def sns(self) -> dict[str, Any]:
        """Return what SNS puts on a queue: plain JSON, an envelope, S3's notification or an event of EventBridge."""
        inner = self.rng.choice([{"order_id": "o-1"}, self._own(), self._s3(), self._event(), "text"])
        message = inner if isinstance(inner, str) else json.dumps(inner)
        return self.record(
            {
                "Type": "Notification",
                "MessageId": f"22b80b92-fdea-4c2c-8f9d-{self.next():012}",
                "TopicArn": "arn:aws:sns:us-east-1:123456789012:MyTopic",
                "Message": message,
                "Timestamp": "2026-11-29T12:00:00.000Z",
                "SignatureVersion": "1",
                "Signature": "EXAMPLE",
                "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
            },
            queue=self._foreign(),
        )

    def eventbridge(self) -> dict[str, Any]:
        """Return an event of EventBridge, as a rule sends it."""
        return self.record(self._event(), queue=self._foreign())

    def s3(self) -> dict[str, Any]:
        """Return a notification of S3."""
        return self.record(self._s3(), queue=self._foreign())

    def s3_test(self) -> dict[str, Any]:
        """Return the test event that S3 sends first, directly or through SNS."""
        told = {
            "Service": "Amazon S3",
            "Event": "s3:TestEvent",
            "Time": "2026-11-29T12:00:00.000Z",
            "Bucket": "uploads",
            "RequestId": "5582815E1AEA5ADF",
            "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR+YstdA6Knx4Ip8EXAMPLE",
        }
        return self.record(told, queue=self._foreign())

    def scheduler(self) -> dict[str, Any]:
        """Return what a schedule without an input sends."""
        number = self.next()
        return self.record(
            {
                "version": "0",
                "id": f"27f4cd2a-1c3c-4d4c-8c6a-{number:012}",
                "detail-type": "Scheduled Event",
                "source": "aws.scheduler",
                "account": "123456789012",
                "time": "2026-11-29T12:00:00Z",
                "region": REGION,
                "resources": [f"arn:aws:scheduler:us-east-1:123456789012:schedule/default/s-{number}"],
                "detail": "{}",
            },
            queue=self._foreign(),
        )

    def pipes(self) -> dict[str, Any]:
        """Return the bare list of a stream's records that EventBridge Pipes sends."""
        listed = [
            {
                "eventID": f"e-{self.next()}",
                "eventName": "INSERT",
                "eventSource": "aws:dynamodb",
                "awsRegion": REGION,
                "dynamodb": {"Keys": {"pk": {"S": "o-1"}}, "NewImage": {"pk": {"S": "o-1"}}, "SequenceNumber": "1"},
            }
            for _ in range(self.rng.choice([0, 1, 2]))
        ]
        return self.record(listed, queue=self._foreign())

    def pointer(self) -> dict[str, Any]:
        """Return the pointer of the Extended Client to an object that is there, or was never stored."""
        name, size = self.rng.choice([(POINTERS[0], "ExtendedPayloadSize"), (POINTERS[1], "SQSLargePayloadSize")])
        where = {
            "s3BucketName": self.rng.choice(["payloads", "payloads", "another"]),
            "s3Key": self.rng.choice(OBJECTS),
        }
        stamps = {size: attribute("Number", "2000000")}
        if self.rng.random() < 0.5:
            stamps["onceq.job_type"] = attribute("String", "process_payment")
            stamps["onceq.key"] = attribute("String", self.rng.choice(["stored", "%ff", "a%20b", "", "%00"]))
        return self.record([name, where], attributes=stamps)

    def compressed(self) -> dict[str, Any]:
        """Return a compressed body, as producers that know of no bucket send it."""
        packed = gzip.compress(json.dumps(self._own()).encode(), mtime=0)
        body = base64.b64encode(self.rng.choice([packed, packed, packed[:-3], packed * 2, b""])).decode()
        encoding = self.rng.choice(["gzip", "gzip", "GZIP ", "zstd", "br", "", "identity"])
        return self.record(body, attributes={"Content-Encoding": attribute("String", encoding)})

    def _foreign(self) -> str:
        return self.rng.choice(["Foreign", "Foreign", "JobsQueue", "Bare"])

    def _own(self) -> dict[str, Any]:
        number = self.next()
        return envelope("process_payment", f"k-{number}", {"order_id": f"o-{number}"})

    def _event(self) -> dict[str, Any]:
        number = self.next()
        return {
            "version": "0",
            "id": f"17793124-05d4-b198-2fde-{number:012}",
            "detail-type": "Order Placed",
            "source": "shop.orders",
            "account": "123456789012",
            "time": "2026-11-29T12:00:00Z",
            "region": REGION,
            "resources": [],
            "detail": {"order_id": f"o-{number}", "do": self.rng.choice(DOES)},
        }

    def _s3(self) -> dict[str, Any]:
        return {"Records": [self._s3_record() for _ in range(self.rng.choice([1, 1, 2, 3]))]}

    def _s3_record(self) -> dict[str, Any]:
        number = self.next()
        return {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": REGION,
            "eventTime": "2026-11-29T12:00:00.000Z",
            "eventName": "ObjectCreated:Put",
            "userIdentity": {"principalId": "EXAMPLE"},
            "responseElements": {"x-amz-request-id": "EXAMPLE123456789"},
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": "uploads",
                "bucket": {"name": "uploads", "arn": "arn:aws:s3:::uploads"},
                "object": {
                    "key": self.rng.choice(["a+b%C3%A4.txt", "plain.txt"]),
                    "size": 1024,
                    "eTag": "0123456789abcdef0123456789abcdef",
                    "sequencer": f"{number:018X}",
                },
            },
        }


# What the bucket holds, and one that it does not.
STORED: dict[str, tuple[bytes, str]] = {}
OBJECTS = ("an envelope", "compressed", "a bomb", "too large", "no text", "empty", "plain", "missing")
DOES = [
    *["return"] * 6,
    *["raise", "raise many", "retry", "retry late", "snooze", "reject", "exit", "interrupt", "recurse"],
    *["nan", "set", "odd", "large", "surrogate", "huge", "none", "iterator"],
]
KINDS: list[Any] = [
    *[Seeds.enveloped] * 4,
    Seeds.typed,
    *[Seeds.from_file] * 2,
    Seeds.plain,
    *[Seeds.fifo] * 2,
    Seeds.tenant,
    Seeds.with_attributes,
    Seeds.redriven,
    *[Seeds.sns] * 2,
    Seeds.eventbridge,
    Seeds.s3,
    Seeds.s3_test,
    Seeds.scheduler,
    Seeds.pipes,
    Seeds.pointer,
    Seeds.compressed,
]


def envelope(job_type: str, key: Any, payload: Any, *, hops: int = 0) -> dict[str, Any]:
    """Return an envelope with every field."""
    return {
        "onceq": 1,
        "job_type": job_type,
        "idempotency_key": key,
        "payload": payload,
        "created_at": "2026-11-29T12:00:00Z",
        "hops": hops,
    }


def attribute(data_type: str, value: str) -> dict[str, Any]:
    """Return a message attribute in Lambda's shape."""
    return {"stringValue": value, "stringListValues": [], "binaryListValues": [], "dataType": data_type}


_STORED = json.dumps(envelope("process_payment", "stored", {"order_id": "stored"})).encode()
STORED |= {
    "an envelope": (_STORED, ""),
    "compressed": (gzip.compress(_STORED, mtime=0), "gzip"),
    "a bomb": (gzip.compress(b"0" * 3_000_000, mtime=0), "gzip"),
    "too large": (b"0" * 1_200_000, ""),
    "no text": (b"\xff\xfe\x00", ""),
    "empty": (b"", ""),
    "plain": (b'{"order_id": "stored"}', "identity"),
}
