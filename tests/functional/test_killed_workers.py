"""Real processes, killed by SIGKILL between a charge and its completion."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from onceq.local import AWS_VARIABLES, MotoServer

pytest.importorskip("demo", reason="the demo is gone")
pytest.importorskip("jobs.payments", reason="the example job is gone")

from demo.plan import Kind, Plan
from demo.provider import Provider
from demo.run import World
from jobs.payments import Payment

if TYPE_CHECKING:
    from pathlib import Path

    from demo.workers import Workers

LIMIT_SECONDS = 60.0
MESSAGES = (
    Payment("o-1", "cus_plain", 100),
    Payment("o-2", "cus_kill", 200),
    Payment("o-3", "cus_slow", 300),
    Payment("o-4", "cus_plain", 400),
)


def test_a_worker_killed_between_charge_and_completion_charges_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6: the next delivery takes the job over, its key finds the charge, and its neighbours are charged once too."""
    started: list[Workers] = []

    def pids() -> list[int]:
        return [pid for workers in started for pid in workers.pids]

    with MotoServer() as server, Provider(workers=pids) as provider:
        for name, value in (AWS_VARIABLES | {"AWS_ENDPOINT_URL": server.endpoint}).items():
            monkeypatch.setenv(name, value)
        world = World.make(provider, server.endpoint, tmp_path)
        plan = Plan(dict.fromkeys((payment.order_id for payment in MESSAGES), Kind.PLAIN), MESSAGES)
        with world.workers(1, careless=False) as workers:
            started.append(workers)
            until = time.monotonic() + LIMIT_SECONDS
            sent = world.process(plan, workers, until=until, show=lambda _progress: None)
        report, stats = world.report(plan, sent, workers.exits, 0.0), provider.stats()

    orders = stats["charges"]["orders"]
    assert [kill["order_id"] for kill in stats["kills"]] == ["o-2"]
    assert {order_id: order["done"] for order_id, order in orders.items()} == {"o-1": 1, "o-2": 1, "o-3": 1, "o-4": 1}
    assert orders["o-2"]["calls"] == 2
    assert report.completed == 4
    assert report.takeovers >= 1
    assert report.attempts >= 5
    assert (report.lost, report.left_in_queue, report.dead_lettered) == (0, 0, 0)
