"""The shared world."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kit.shared import open_world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.clock import FrozenClock
    from kit.world import World


@pytest.fixture
def world(clock: FrozenClock) -> Iterator[World]:
    """Tables and queues on locked moto, in this process."""
    with open_world(clock) as opened:
        yield opened
