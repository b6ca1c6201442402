"""Fixtures for every test. The kit stands beside the tests and is imported as ``kit``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import moto.core  # noqa: F401 - first: it answers only the sessions of botocore that are made after its import
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kit.clock import FrozenClock
from kit.ministack import ministack_server, open_world_on
from kit.shared import open_world
from kit.world import REGION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.world import World

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
    with open_world(clock) as opened:
        yield opened


@pytest.fixture(scope="session")
def ministack() -> Iterator[str]:
    """The endpoint of a ministack of this process, started by the first test that asks for it."""
    with ministack_server() as endpoint:
        yield endpoint


@pytest.fixture(params=["moto", "ministack"])
def both_worlds(request: pytest.FixtureRequest, clock: FrozenClock) -> Iterator[World]:
    """A world on locked moto and one on ministack: for promises that rest on what moto does not do."""
    if request.param == "moto":
        opening = open_world(clock)
    else:
        opening = open_world_on(request.getfixturevalue("ministack"), clock)
    with opening as opened:
        yield opened
