"""What the tests of your jobs share beside the world (queue and claims table): a provider that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kit.provider import serving_provider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.provider import Provider


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """The service that the example jobs call; it counts calls and effects."""
    with serving_provider() as served:
        monkeypatch.setenv("PAYMENTS_URL", served.url)
        monkeypatch.setenv("MAIL_URL", served.url)
        yield served
