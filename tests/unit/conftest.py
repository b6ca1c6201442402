"""How hypothesis runs here, and the shared world."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from kit.shared import open_world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.clock import FrozenClock
    from kit.world import World

# No time limit for an example, since the machine may be busy; nothing written beside the tests.
settings.register_profile("onceq", deadline=None, database=None)
settings.load_profile("onceq")


@pytest.fixture
def world(clock: FrozenClock) -> Iterator[World]:
    """Tables and queues on locked moto, in this process."""
    with open_world(clock) as opened:
        yield opened
