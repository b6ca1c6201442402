"""The nightly report: as a plain function, as the schedule sends it, two nights at once, with a worker that dies."""

from __future__ import annotations

import json
from pathlib import Path

from app import app
from jobs.reports import nightly_report
from kit.clock import FakeLambdaContext
from kit.world import World, event_of, kept
from onceq import Context
from onceq.template import load_template
from onceq.testing import Environment, prove_effectively_once

ROOT = Path(__file__).parents[2]
AT = "2026-11-30T02:00:00Z"
PLACEHOLDER = "<aws.scheduler.scheduled-time>"


def scheduled(at: str) -> str:
    """Return the message body that template.yaml's schedule sends at that time."""
    template = load_template(str(ROOT / "template.yaml"))
    envelope: str = template["Resources"]["NightlyReportSchedule"]["Properties"]["Target"]["Input"]
    return envelope.replace(PLACEHOLDER, at)


def test_a_report_covers_the_day_before_its_scheduled_time() -> None:
    """The night is what the schedule says, and not what the clock says when it runs."""
    report = nightly_report({"scheduled_at": AT}, Context())

    assert report == {"since": "2026-11-29T02:00:00+00:00", "until": "2026-11-30T02:00:00+00:00", "orders": 0}


def test_a_trigger_that_comes_twice_is_one_run_and_one_replay(world: World) -> None:
    """The schedule's envelope carries a key made of the scheduled time; the application of `src/app.py` serves it."""
    consumer = world.app(*app.job_types).consumer

    for _ in range(2):
        assert kept(consumer(event_of(world.raw(scheduled(AT))), FakeLambdaContext())) == []

    assert [name for name in world.names() if name in ("job.started", "job.completed", "job.replayed")] == [
        "job.started",
        "job.completed",
        "job.replayed",
    ]
    record = world.record(nightly_report, f"nightly_report:{AT}")
    assert record is not None
    assert (record.status, record.attempts) == ("completed", 1)


def test_another_night_is_another_run(world: World) -> None:
    """One key for each night."""
    consumer = world.app(nightly_report).consumer

    for at in (AT, "2026-12-01T02:00:00Z"):
        consumer(event_of(world.raw(scheduled(at))), FakeLambdaContext())

    assert world.names().count("job.completed") == 2


def test_a_placeholder_that_was_not_replaced_is_refused(world: World) -> None:
    """Sent by hand as it stands in the template it would be one job for all nights: it says so and is not run."""
    consumer = world.app(*app.job_types).consumer

    assert kept(consumer(event_of(world.raw(scheduled(PLACEHOLDER))), FakeLambdaContext())) == []

    [letter] = world.dead_letters()
    assert "only EventBridge Scheduler replaces" in letter["note"]["reason"]
    assert "job.started" not in world.names()


def test_two_nights_do_not_run_side_by_side(world: World) -> None:
    """The lock makes the later one wait; it comes back unstarted, and no attempt is used."""
    consumer = world.app(nightly_report).consumer
    message = event_of(world.raw(scheduled(AT)))

    with world.app().lock("nightly_report", seconds=60):
        assert len(kept(consumer(message, FakeLambdaContext()))) == 1
        assert "job.started" not in world.names()

    assert kept(consumer(message, FakeLambdaContext())) == []
    record = world.record(nightly_report, f"nightly_report:{AT}")
    assert record is not None
    assert (record.status, record.attempts) == ("completed", 1)


def test_two_workers_at_once_are_one_report(world: World, at_once) -> None:
    """One of them claims the night; the other one waits and is answered from its result."""
    key = f"nightly_report:{AT}"

    at_once(world, "nightly_report", {"scheduled_at": AT}, nightly_report, key=key, workers=2)

    record = world.record(nightly_report, key)
    assert record is not None
    assert (record.status, record.attempts) == ("completed", 1)
    assert world.names().count("job.completed") == 1


def test_a_worker_that_dies_at_any_call_leaves_one_report(world: World, deaths) -> None:
    """The next delivery of the same night takes over, and gets the lock back that the dead one held."""
    points = set()
    for key, point in deaths(nightly_report, lambda _key: {"scheduled_at": AT}):
        record = world.record(nightly_report, key)
        assert record is not None, point
        assert record.status == "completed", point
        points.add(point)
    assert "after-Locks.acquire" in points


def test_the_sample_event_is_served(world: World) -> None:
    """`make invoke EVENT=events/nightly-report.json` runs what a night would."""
    event = json.loads((ROOT / "events" / "nightly-report.json").read_text())

    assert kept(world.app(*app.job_types).consumer(event, FakeLambdaContext())) == []

    assert "job.completed" in world.names()


def test_whatever_happens_a_night_is_reported_once(onceq_env: Environment) -> None:
    """It does nothing outside: what counts is that its report stands there, once."""

    def reports() -> int:
        return sum(record.status == "completed" for record in onceq_env.records())

    prove_effectively_once(nightly_report, {"scheduled_at": AT}, effects=reports, env=onceq_env)
