"""What the tests of the test kit share: a job with an effect, and an environment without a template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from onceq import App, Backoff, Context, JobType, job
from onceq.testing import EffectRecorder, Environment, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def gateway() -> EffectRecorder:
    """What the job calls."""
    return EffectRecorder()


@pytest.fixture
def charge(gateway: EffectRecorder) -> JobType[..., Any]:
    """A job that charges an order in a step."""

    @job("charge_order", max_attempts=3, max_duration=5, backoff=Backoff(base=100, cap=100))
    def charge_order(payload: dict[str, Any], ctx: Context) -> Any:
        key = ctx.idempotency_key_for("charge")
        return ctx.step("charge", gateway.charge, payload["cents"], idempotency_key=key)

    return charge_order


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with no template in it or above it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def env(nowhere: Path, charge: JobType[..., Any]) -> Iterator[Environment]:
    """The kit's own queue and tables, and an application of that one job."""
    with environment(App([charge])) as opened:
        yield opened
