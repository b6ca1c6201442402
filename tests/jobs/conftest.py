"""What the tests of your jobs share: the world (queue and claims table in this process) and a provider that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kit.provider import serving_provider
from kit.shared import open_world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.clock import FrozenClock
    from kit.provider import Provider
    from kit.world import World


@pytest.fixture
def world(clock: FrozenClock) -> Iterator[World]:
    """Queue and claims table, empty, on a local stand-in for AWS."""
    with open_world(clock) as opened:
        yield opened


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """The service that the example jobs call; it counts calls and effects."""
    with serving_provider() as served:
        monkeypatch.setenv("PAYMENTS_URL", served.url)
        monkeypatch.setenv("MAIL_URL", served.url)
        yield served
