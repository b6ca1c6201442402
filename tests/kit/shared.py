"""The world of the tests, on clients that are made once a run: making them takes longer than most tests."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kit.world import furnished
from onceq.client import make_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.clock import FrozenClock
    from kit.world import World


@functools.cache
def _boto3_client(service: str) -> Any:
    import boto3

    return boto3.client(service)


@functools.cache
def _botocore_client(service: str) -> Any:
    return make_client(service, 50)


def _shared(service: str, connections: int, *, read_timeout: float = 0) -> Any:
    return _botocore_client(service)


@contextmanager
def open_world(clock: FrozenClock) -> Iterator[World]:
    """Open a world of empty tables and queues on locked moto, in this process."""
    # moto first: it answers the clients that are made after its import.
    from moto import mock_aws

    from onceq.local import serialise_moto

    serialise_moto()
    with mock_aws(), patch("onceq.dynamodb.make_client", _shared), patch("onceq.queue.make_client", _shared):
        yield furnished(_boto3_client("dynamodb"), _boto3_client("sqs"), clock)
