"""One deployment for all tests here; `make deploy-local` makes what it needs.

Each test takes keys of its own, so none sees what another left behind.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from kit.deployment import end_as_ctrl_c_does, serving_cloud
from kit.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from demo.provider import Provider

BEGAN = time.monotonic()
took: dict[str, float] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Let every way of ending the run end what it started."""
    end_as_ctrl_c_does()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long each part took."""
    if took:
        took["tests"] = time.monotonic() - BEGAN - sum(took.values())
        terminalreporter.write_line("; ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items()))


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    """The services that the example jobs call."""
    demo = pytest.importorskip("demo.provider", reason="the example jobs call its provider, and the user deleted it")
    with demo.Provider() as served:
        yield served


def parameters(provider: Provider) -> dict[str, str]:
    """Return what is given beside samconfig.toml: the providers, and a clock skew that a take-over waits for."""
    return {**dict.fromkeys(("PaymentsUrl", "MailUrl", "WebhookUrl", "LegacyUrl"), provider.url), "ClockSkew": "1"}


@pytest.fixture(scope="session")
def stack(provider: Provider) -> Iterator[Stack]:
    """The stack, deployed. The relay's schedule rests but for the test of it, so that a test knows who sends."""
    with serving_cloud() as cloud:
        try:
            cloud.build()
            stack = Stack(cloud, cloud.deploy(**parameters(provider)))
            stack.client("events").disable_rule(Name=stack.physical["RelayFunctionEveryMinute"])
            yield stack
        finally:
            took.update(cloud.seconds)


@pytest.fixture(scope="session")
def wider_stack(stack: Stack, provider: Provider) -> Stack:
    """The same stack, deployed again with its second queue."""
    try:
        stack.cloud.deploy(**parameters(provider), LedgerQueue="true")
    finally:
        took.update(stack.cloud.seconds)
    stack.read()
    return stack
