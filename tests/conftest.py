"""Fixtures for every test. The kit stands beside the tests and is imported as ``kit``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kit.clock import CountingTokens, FrozenClock
from kit.world import REGION, TABLE, World, queue_settings
from onceq.runtime import Runtime
from onceq.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

for _name in [name for name in os.environ if name.startswith(("ONCEQ_", "AWS_", "POWERTOOLS_"))]:
    del os.environ[_name]
os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION=REGION)


@pytest.fixture
def clock() -> FrozenClock:
    """A clock that stands still."""
    return FrozenClock()


@pytest.fixture
def world(clock: FrozenClock) -> Iterator[World]:
    """Tables and queues on locked moto, in this process."""
    import boto3
    from moto import mock_aws

    from onceq.local import serialise_moto

    serialise_moto()
    with mock_aws():
        dynamodb, sqs = boto3.client("dynamodb"), boto3.client("sqs")
        dynamodb.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        queues = {
            "default": queue_settings(sqs, "default", queue="JobsQueue", dlq="DeadLetterQueue"),
            "ordered": queue_settings(sqs, "ordered", queue="Ordered.fifo", dlq="OrderedDead.fifo"),
        }
        settings = Settings(queues=queues, claims_table=TABLE)
        tokens = CountingTokens(clock)
        runtime = Runtime(settings, clock=clock, tokens=tokens)
        yield World(settings, clock, tokens, runtime, sqs, dynamodb)
