"""Fixtures for every test. The kit stands beside the tests and is imported as ``kit``."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import moto.core  # noqa: F401 - first: it answers only the sessions of botocore that are made after its import
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kit.backends import ENDPOINT, MINISTACK, MOTO, asked, is_integration, of_contract, runs_on
from kit.clock import FrozenClock
from kit.ministack import ministack_server, open_world_on
from kit.shared import open_world
from kit.world import REGION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from kit.world import World

for _name in [name for name in os.environ if name.startswith(("ONCEQ_", "AWS_", "POWERTOOLS_"))]:
    del os.environ[_name]
os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION=REGION)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark of what `make contract` runs known."""
    config.addinivalue_line("markers", "contract: the contract suites, and what runs on more than one backend")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not for the backend that was asked for."""
    dropped = []
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if of_contract(item.path, fixtures):
            item.add_marker("contract")
        if not runs_on(item.path, fixtures, asked()):
            dropped.append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in {*dropped}]


@pytest.hookimpl(optionalhook=True)  # mutants are run without xdist
def pytest_xdist_auto_num_workers() -> int:
    """Run one worker more than there are cores: tests that wait for processes of their own leave a core idle."""
    return int(os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or (os.cpu_count() or 1) + 1)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what lasts as long as the run: moto, botocore, and thousands of tests.

    And look seldom at what is young: a request to moto makes thousands of objects that end by themselves.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def clock() -> FrozenClock:
    """A clock that stands still."""
    return FrozenClock()


def opened(served_by: str, request: pytest.FixtureRequest, clock: FrozenClock) -> AbstractContextManager[World]:
    """Open a world of that backend."""
    return open_world(clock) if served_by == MOTO else open_world_on(request.getfixturevalue("ministack"), clock)


@pytest.fixture
def world(request: pytest.FixtureRequest, clock: FrozenClock) -> Iterator[World]:
    """Tables and queues: on locked moto in this process; for integration tests on the backend that was asked for."""
    is_asked = asked() == (MINISTACK,) and is_integration(request.path)
    with opened(MINISTACK if is_asked else MOTO, request, clock) as one:
        yield one


@pytest.fixture(scope="session")
def ministack() -> Iterator[str]:
    """The endpoint of a ministack of this process, started by the first test that asks for it."""
    with ministack_server() as endpoint:
        yield endpoint


@pytest.fixture(params=[name for name in asked() if name != ENDPOINT])
def both_worlds(request: pytest.FixtureRequest, clock: FrozenClock) -> Iterator[World]:
    """A world on locked moto and one on ministack: for promises that rest on what moto does not do."""
    with opened(request.param, request, clock) as one:
        yield one
