"""What the contract suites run on: locked moto in this process, or the endpoint that ``CONTRACT_ENDPOINT`` names."""

from __future__ import annotations

import itertools
import os
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import CountingTokens, FrozenClock
from kit.world import REGION
from onceq.clock import OpenDeadline
from onceq.dynamodb import DynamoDB
from onceq.queue import Queue
from onceq.record import EXPIRES_AT, PARTITION_KEY, Record
from onceq.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Backend:
    """DynamoDB and SQS, whoever serves them. Every test takes keys and queues of its own, so none sees another's."""

    dynamodb: Any
    sqs: Any
    table: str
    seam: DynamoDB
    clock: FrozenClock
    tokens: CountingTokens
    is_moto: bool
    names: Any = field(default_factory=lambda: itertools.count(1))
    urls: list[str] = field(default_factory=list)

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


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """A backend with an empty claims table."""
    endpoint = os.environ.get("CONTRACT_ENDPOINT")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_DEFAULT_REGION", REGION)
        if endpoint:
            environment.setenv("AWS_ENDPOINT_URL", endpoint)
        else:
            from moto import mock_aws

            from onceq.local import serialise_moto

            serialise_moto()
            stack.enter_context(mock_aws())
        clock = FrozenClock()
        tokens = CountingTokens(clock)
        from onceq.client import make_client

        dynamodb, sqs = make_client("dynamodb", 4), make_client("sqs", 4, read_timeout=25.0)
        table = f"onceq-{uuid.uuid4().hex}"
        dynamodb.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": PARTITION_KEY, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": PARTITION_KEY, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        dynamodb.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        ttl = {"Enabled": True, "AttributeName": EXPIRES_AT}
        dynamodb.update_time_to_live(TableName=table, TimeToLiveSpecification=ttl)
        backend = Backend(dynamodb, sqs, table, DynamoDB(clock, tokens, 4), clock, tokens, not endpoint)
        yield backend
        dynamodb.delete_table(TableName=table)
        for url in backend.urls:
            sqs.delete_queue(QueueUrl=url)
