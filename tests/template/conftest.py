"""The template, with its defaults and with what samconfig.toml sets."""

from __future__ import annotations

import pytest

from template.reading import Stack, load_samconfig, overrides

# What the template makes only where it is asked for, alone and together.
OPTIONS = {
    "defaults": {},
    "ledger": {"LedgerQueue": "true"},
    "payloads": {"PayloadBucketEnabled": "true"},
    "everything": {"LedgerQueue": "true", "PayloadBucketEnabled": "true"},
}
ENVIRONMENTS = [name for name in load_samconfig() if name != "version"]


@pytest.fixture(scope="session", params=OPTIONS)
def stack(request: pytest.FixtureRequest) -> Stack:
    """The template with its defaults, then with what it makes by condition."""
    return Stack(given=OPTIONS[request.param])


@pytest.fixture(scope="session", params=["defaults", "everything", *ENVIRONMENTS])
def deployment(request: pytest.FixtureRequest) -> Stack:
    """The template with its defaults, with all it can make, then with the parameters of samconfig.toml's sections."""
    return Stack(given=OPTIONS[request.param] if request.param in OPTIONS else overrides(request.param))
