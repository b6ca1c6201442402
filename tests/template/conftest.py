"""The template, with its defaults and with what samconfig.toml sets."""

from __future__ import annotations

import pytest

from template.reading import Stack, load_samconfig, overrides

ENVIRONMENTS = ["defaults", *(name for name in load_samconfig() if name != "version")]


@pytest.fixture(scope="session")
def stack() -> Stack:
    """The template with its defaults."""
    return Stack()


@pytest.fixture(scope="session", params=ENVIRONMENTS)
def deployment(request: pytest.FixtureRequest) -> Stack:
    """The template with its defaults, then with the parameters of each section of samconfig.toml."""
    return Stack(given={} if request.param == "defaults" else overrides(request.param))
