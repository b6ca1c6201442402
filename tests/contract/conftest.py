"""What the contract suites run on: locked moto in this process, then ministack; or what ``CONTRACT_ENDPOINT`` names."""

from __future__ import annotations

import itertools
import os
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws  # before any client is made: it meets only those of a session made after its import

from kit.backends import asked
from kit.clock import CountingTokens, FrozenClock
from kit.world import REGION, create_outbox_table, create_table
from onceq.client import make_client
from onceq.clock import OpenDeadline
from onceq.dynamodb import DynamoDB
from onceq.local import quicken_moto, serialise_moto
from onceq.queue import Queue
from onceq.record import EXPIRES_AT, PARTITION_KEY, Record
from onceq.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Backend:
    """DynamoDB and SQS, whoever serves them. Every test takes keys and queues of its own, so none sees another's.

    Args:
        served_by: ``moto``, ``ministack`` or ``endpoint``.
        endpoint: Where they answer; ``None`` for moto, which meets every request of this process.
        dynamodb: A client, for what the seam does not do.
        sqs: The same.
        table: Name of the claims table.
        outbox_table: Name of the outbox table.
        user_table: Name of a table as a user has it; its partition key is ``sku``.
        seam: The seam to DynamoDB.
        clock: Its clock.
        tokens: Its tokens.
        names: Numbers that no test has used.
        urls: The queues that were made, to be deleted.
    """

    served_by: str
    endpoint: str | None
    dynamodb: Any
    sqs: Any
    table: str
    outbox_table: str
    user_table: str
    seam: DynamoDB
    clock: FrozenClock
    tokens: CountingTokens
    names: Any = field(default_factory=lambda: itertools.count(1))
    urls: list[str] = field(default_factory=list)

    @property
    def is_moto(self) -> bool:
        """Whether moto serves it, whose lies the tests name."""
        return self.served_by == "moto"

    @property
    def is_ministack(self) -> bool:
        """Whether ministack serves it, whose lies the tests name."""
        return self.served_by == "ministack"

    @property
    def store(self) -> Store:
        """The store under test."""
        return Store(self.seam, self.table, OpenDeadline())

    def queue(self, client: Any = None) -> Queue:
        """The queue seam under test, on another client if one is given."""
        return Queue(self.clock, self.tokens, OpenDeadline(), client=client or self.sqs)

    def name(self) -> str:
        """Return a key or name that no other test uses."""
        return f"n{next(self.names)}"

    def put(self, record: Record, **unknown: Any) -> Record:
        """Let a record stand in the table, with attributes that this release does not know."""
        self.dynamodb.put_item(TableName=self.table, Item=record.to_item() | unknown)
        return record

    def item(self, pk: str) -> dict[str, Any] | None:
        """Return what stands in the table, as it stands."""
        answer = self.dynamodb.get_item(TableName=self.table, Key={PARTITION_KEY: {"S": pk}}, ConsistentRead=True)
        item: dict[str, Any] | None = answer.get("Item")
        return item

    def new_queue(self, *, fifo: bool = False, **attributes: str) -> str:
        """Create a queue and return its URL."""
        name = f"onceq-{uuid.uuid4().hex}{'.fifo' if fifo else ''}"
        given = attributes | ({"FifoQueue": "true"} if fifo else {})
        url = str(self.sqs.create_queue(QueueName=name, Attributes=given)["QueueUrl"])
        self.urls.append(url)
        return url


@pytest.fixture(scope="module", params=asked())
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend with empty tables."""
    served_by: str = request.param
    endpoint = os.environ.get("CONTRACT_ENDPOINT")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_DEFAULT_REGION", REGION)
        if served_by == "moto":
            serialise_moto()
            quicken_moto()
            stack.enter_context(mock_aws())
        else:
            endpoint = endpoint or str(request.getfixturevalue("ministack"))
            environment.setenv("AWS_ENDPOINT_URL", endpoint)
        clock = FrozenClock()
        tokens = CountingTokens(clock)
        dynamodb, sqs = make_client("dynamodb", 4), make_client("sqs", 4, read_timeout=25.0)
        claims, outbox, user = (f"onceq-{uuid.uuid4().hex}" for _ in range(3))
        create_table(dynamodb, claims)
        create_outbox_table(dynamodb, outbox)
        create_table(dynamodb, user, key="sku")
        for table in (claims, outbox, user):
            dynamodb.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        if served_by != "ministack":
            # ministack deletes what is past its time within a minute, and the clock of the tests stands in the past;
            # AWS takes days (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/TTL.html).
            for table in (claims, outbox):
                ttl = {"Enabled": True, "AttributeName": EXPIRES_AT}
                dynamodb.update_time_to_live(TableName=table, TimeToLiveSpecification=ttl)
        seam = DynamoDB(clock, tokens, 4)
        backend = Backend(served_by, endpoint, dynamodb, sqs, claims, outbox, user, seam, clock, tokens)
        yield backend
        for table in (claims, outbox, user):
            dynamodb.delete_table(TableName=table)
        for url in backend.urls:
            sqs.delete_queue(QueueUrl=url)
