"""The world of the tests: clients that are made once a run, and tables and queues that are asked for once a run.

Making a client takes longer than most tests; so did asking moto for the same two tables and four queues each time.
"""

from __future__ import annotations

import copy
import functools
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kit.world import ACCOUNT, REGION, furniture, world_of
from onceq.client import make_client
from onceq.local import quicken_moto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kit.clock import FrozenClock
    from kit.world import World
    from onceq.settings import Settings


@functools.cache
def _boto3_client(service: str) -> Any:
    import boto3

    return boto3.client(service)


@functools.cache
def _botocore_client(service: str) -> Any:
    return make_client(service, 50)


def _shared(service: str, connections: int, *, read_timeout: float = 0) -> Any:
    return _botocore_client(service)


@dataclass(frozen=True)
class _Made:
    """What moto was told to make while it was furnished by requests, and the settings that name it."""

    settings: Settings
    calls: tuple[tuple[str, str, tuple[Any, ...], dict[str, Any]], ...]

    def again(self) -> Settings:
        """Make the same in a moto that is empty, without the requests."""
        for service, method, arguments, options in copy.deepcopy(self.calls):
            getattr(_backend(service), method)(*arguments, **options)
        return self.settings


def _backend(service: str) -> Any:
    from moto.backends import get_backend

    return get_backend(service)[ACCOUNT][REGION]  # type: ignore[call-overload]


@functools.cache
def _furnished() -> _Made:
    calls: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = []

    def noted(service: str, method: str) -> Callable[..., Any]:
        make = getattr(_backend(service), method)

        def note(*arguments: Any, **options: Any) -> Any:
            calls.append((service, method, *copy.deepcopy((arguments, options))))
            return make(*arguments, **options)

        return note

    with ExitStack() as stack:
        for service, method in (("dynamodb", "create_table"), ("sqs", "create_queue")):
            stack.enter_context(patch.object(_backend(service), method, noted(service, method)))
        settings = furniture(_boto3_client("dynamodb"), _boto3_client("sqs"))
    for name in ("dynamodb", "sqs"):
        _backend(name).reset()
    return _Made(settings, tuple(calls))


@contextmanager
def open_world(clock: FrozenClock) -> Iterator[World]:
    """Open a world of empty tables and queues on locked moto, in this process."""
    # moto first: it answers the clients that are made after its import.
    from moto import mock_aws

    from onceq.local import serialise_moto

    serialise_moto()
    quicken_moto()
    with (
        # botocore alone is answered: for `requests`, which nothing here uses, moto makes 1,300 rules at every start.
        patch("moto.core.models.RESPONSES_METHODS", ()),
        mock_aws(),
        patch("onceq.dynamodb.make_client", _shared),
        patch("onceq.queue.make_client", _shared),
    ):
        yield world_of(_furnished().again(), _boto3_client("dynamodb"), _boto3_client("sqs"), clock)
