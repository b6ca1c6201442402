"""What the clock starts: the nightly report's message as EventBridge Scheduler would send it, and the two sweeps."""

from __future__ import annotations

import json

import pytest

from app import app
from onceq.errors import IdempotencyKeyError
from onceq.keys import PLACEHOLDER, check_key
from onceq.message import Envelope, Message, open_envelope
from template.reading import ROOT, Stack

SCHEDULED = "2026-11-30T02:00:00Z"


def _rendered(stack: Stack, scheduled: str = SCHEDULED) -> str:
    """Return the schedule's input as EventBridge Scheduler sends it."""
    text = stack.properties("NightlyReportSchedule")["Target"]["Input"]
    assert isinstance(text, str)
    return text.replace("<aws.scheduler.scheduled-time>", scheduled)


def _envelope(body: str | None) -> Envelope:
    envelope = open_envelope(body)
    assert isinstance(envelope, Envelope)
    return envelope


def test_the_schedule_sends_an_envelope(stack: Stack) -> None:
    """The input, its placeholder replaced, is a message that the consumer reads, with a key made of the time."""
    record = {
        "messageId": "b4cb9a06-3c8e-4b3d-8f46-0d1d2f1b7a58",
        "body": _rendered(stack),
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:JobsQueue",
        "attributes": {"ApproximateReceiveCount": "1"},
    }
    envelope = _envelope(Message.from_record(record).body)

    assert envelope == Envelope("nightly_report", {"scheduled_at": SCHEDULED}, f"nightly_report:{SCHEDULED}")
    assert check_key(envelope.idempotency_key) == f"nightly_report:{SCHEDULED}"
    assert json.loads(_rendered(stack))["created_at"] == SCHEDULED


def test_the_schedule_starts_a_job_that_is_served(stack: Stack) -> None:
    """A job type that the application does not know would be kept, night after night, and raise an alarm."""
    pytest.importorskip("jobs.reports", reason="the example job is gone: deploy ReportEnabled=false")
    assert _envelope(_rendered(stack)).job_type in {job_type.name for job_type in app.job_types}


def test_a_doubled_trigger_is_a_duplicate_and_another_night_is_not(stack: Stack) -> None:
    """One key for each time that was scheduled, however often it is delivered (G3)."""
    keys = [_envelope(_rendered(stack, at)).idempotency_key for at in (SCHEDULED, SCHEDULED, "2026-12-01T02:00:00Z")]
    assert keys[0] == keys[1] != keys[2]


def test_a_placeholder_that_was_not_replaced_is_refused(stack: Stack) -> None:
    """Sent by hand as it stands in the template it would be one job for ever: it is refused, with the reason."""
    raw = _envelope(_rendered(stack, "<aws.scheduler.scheduled-time>"))
    assert PLACEHOLDER in raw.idempotency_key
    with pytest.raises(IdempotencyKeyError, match="only EventBridge Scheduler replaces"):
        check_key(raw.idempotency_key)


def test_every_placeholder_is_one_that_scheduler_replaces(stack: Stack) -> None:
    """A mistyped one would stand in the message as it is."""
    assert "<" not in _rendered(stack)


def test_the_sample_event_is_what_the_schedule_sends(stack: Stack) -> None:
    """`make invoke EVENT=events/nightly-report.json` runs what a night would."""
    path = ROOT / "events" / "nightly-report.json"
    if not path.exists():
        pytest.skip("the sample event is gone")
    [record] = json.loads(path.read_text())["Records"]
    assert record["body"] == _rendered(stack)


def test_the_schedule_sends_to_the_jobs_queue_on_time(stack: Stack) -> None:
    """Once a night and not within a window, for a day if it must, and then to the dead-letter queue (G4)."""
    schedule = stack.properties("NightlyReportSchedule")
    assert schedule["Target"]["Arn"] == {"Fn::GetAtt": ["JobsQueue", "Arn"]}
    assert schedule["Target"]["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}}
    assert schedule["Target"]["RetryPolicy"] == {"MaximumEventAgeInSeconds": 24 * 3600, "MaximumRetryAttempts": 185}
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["ScheduleExpression"] == stack.parameters["ReportSchedule"] == "cron(0 2 * * ? *)"


@pytest.mark.parametrize(("given", "state"), [("true", "ENABLED"), ("false", "DISABLED")])
def test_the_nightly_report_can_be_switched_off(given: str, state: str) -> None:
    """ReportEnabled switches the schedule, and keeps it."""
    assert Stack(given={"ReportEnabled": given}).properties("NightlyReportSchedule")["State"] == state


@pytest.mark.parametrize(("given", "state"), [("true", "ENABLED"), ("false", "DISABLED")])
def test_recovery_can_be_switched_off(given: str, state: str) -> None:
    """RecoveryEnabled switches its schedule; the function stays, to be invoked by hand."""
    [event] = Stack(given={"RecoveryEnabled": given}).properties("RecoveryFunction")["Events"].values()
    assert (event["Type"], event["Properties"]["State"]) == ("Schedule", state)


def test_recovery_runs_daily_unless_told_otherwise(stack: Stack) -> None:
    """By default it is on, once a day; a parameter takes another rate."""
    [event] = stack.properties("RecoveryFunction")["Events"].values()
    [other] = Stack(given={"RecoverySchedule": "rate(1 hour)"}).properties("RecoveryFunction")["Events"].values()
    assert event["Properties"] == {"Schedule": "rate(1 day)", "State": "ENABLED"}
    assert other["Properties"]["Schedule"] == "rate(1 hour)"
