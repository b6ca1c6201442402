"""What the demo plans, and how a process dies on orders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from onceq import Context

pytest.importorskip("demo.run", reason="the demo is gone, or an example job")

from demo.deaths import Death, Deaths, Moment, give_orders
from demo.events import EventFile, EventLog
from demo.plan import LEAST_PAYMENTS, NOT_JSON, PLENTY, SCARCE, Kind, Plan, make_plan
from jobs.payments import Payment

ROOT = Path(__file__).resolve().parents[2]
NIGHT = '{"onceq": 1}'


@pytest.fixture(params=[LEAST_PAYMENTS, 30, 240])
def plan(request: pytest.FixtureRequest) -> Plan:
    """A plan, from the smallest to the usual one."""
    return make_plan(request.param, 1, NIGHT)


def test_a_plan_has_every_kind_and_is_made_again_by_its_seed(plan: Plan) -> None:
    """The smallest one shows all, and another seed mixes it differently."""
    assert set(plan.kinds.values()) == set(Kind)
    assert make_plan(len(plan.kinds), 1, NIGHT) == plan
    assert make_plan(len(plan.kinds), 2, NIGHT).messages != plan.messages


def test_every_kind_of_job_comes_twice(plan: Plan) -> None:
    """Webhooks, reservations and the night's trigger; and the key of one payment comes with another amount."""
    numbers = Counter(message for message in plan.messages if not isinstance(message, Payment))
    assert numbers.pop(NOT_JSON) == 1
    assert len(numbers) == len(plan.webhooks) + len(plan.orders) + 1
    assert set(numbers.values()) == {2}
    payments = {message for message in plan.messages if isinstance(message, Payment)}
    assert len(payments) == len(plan.kinds) + 1


def test_there_is_not_enough_for_all(plan: Plan) -> None:
    """Of one article fewer pieces than orders, of the other one enough."""
    asked = Counter(order.sku for order in plan.orders.values())
    assert 0 < plan.shelf[SCARCE] < asked[SCARCE]
    assert plan.shelf[PLENTY] > asked[PLENTY]


def test_every_moment_is_the_death_of_something_that_comes_to_it(plan: Plan) -> None:
    """An order to die belongs to a job that runs, sends or calls."""
    deaths = Counter(death.moment for death in plan.deaths)
    assert set(deaths) == set(Moment) - {Moment.CALLED}
    receipts = set(plan.kinds) - plan.without_receipt
    for death in plan.deaths:
        keys = plan.orders if death.job_type in ("reserve_stock", "book_order") else receipts
        assert death.key in keys, death
    called = [order for order in plan.orders.values() if order.customer_id.startswith("cus_kill")]
    assert {order.sku for order in called} == {PLENTY}


def test_the_messages_of_the_outbox_are_counted(plan: Plan) -> None:
    """Receipts of who is charged and has an address, and bookings of who gets a piece."""
    receipts = [order for order, kind in plan.kinds.items() if kind.is_charged and order not in plan.without_receipt]
    bookings = plan.shelf[SCARCE] + sum(order.sku == PLENTY for order in plan.orders.values())
    assert plan.sendings == len(receipts) + bookings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an event file and orders, as the demo gives it to its processes."""
    monkeypatch.setenv("DEMO_EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("DEMO_DEATHS", str(tmp_path))
    return tmp_path


DYING = """
import sys
from demo.deaths import Deaths
from demo.events import EventFile
from onceq import Context
from onceq.effect_events import OutboxSent
from onceq.telemetry import JobCompleted, JobStarted

deaths = Deaths(EventFile("worker"))
job = {"job_type": "act", "key": "k-1"}
try:
    if sys.argv[1] == "RAN":
        assert deaths.middleware(lambda: 7, Context(**job), {}) == 7
    else:
        deaths.hook({
            "CLAIMED": JobStarted(**job),
            "COMMITTED": JobCompleted(**job, seconds=0),
            "SENT": OutboxSent(**job, entry="e", message_id="m", seconds=0),
        }[sys.argv[1]])
finally:
    print("alive")
"""


@pytest.mark.parametrize("moment", [Moment.CLAIMED, Moment.RAN, Moment.COMMITTED, Moment.SENT])
def test_an_order_kills_once_and_leaves_nothing_running(folder: Path, moment: Moment) -> None:
    """By SIGKILL, with no clean-up; the next process that comes to the same moment of that job lives."""
    give_orders(folder, [Death(moment, "act", "k-1"), Death(moment, "act", "k-2")])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-c", DYING, moment.name]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        for _ in range(2)
    )
    assert (first.returncode, first.stdout) == (-signal.SIGKILL, "")
    assert (second.returncode, second.stdout) == (0, "alive\n"), second.stderr
    [event] = EventLog(folder / "events").read()
    assert (event["name"], event["who"], event["moment"], event["key"]) == ("process.killed", "worker", moment, "k-1")


def test_a_process_without_orders_lives(folder: Path) -> None:
    """Nothing is removed, nothing is told."""
    assert Deaths(EventFile("worker")).middleware(lambda: 7, Context("act", "k-1"), {}) == 7
    assert list(folder.iterdir()) == []


def test_half_a_line_is_read_when_it_is_whole(folder: Path) -> None:
    """Who reads while another process writes sees whole events."""
    EventFile("relay").write("relay.ended", {"sent": 1})
    log = EventLog(folder / "events")
    with log.path.open("a") as file:
        file.write('{"name": "half')
    assert [event["name"] for event in log.read()] == ["relay.ended"]
    with log.path.open("a") as file:
        file.write('"}\n')
    assert [event["name"] for event in log.read()] == ["half"]
