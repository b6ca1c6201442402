"""Looking a job up: how it stands, for a caller that waits for its outcome."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import TABLE, event_of
from onceq import ConfigurationError, Context, IdempotencyKeyError, JobStatus, Reject, ResultNotStored, Retry, job
from onceq.record import Status
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from kit.world import World

START = datetime(2026, 11, 29, 12, tzinfo=UTC)


@job("pay", max_attempts=3, retention=timedelta(hours=1))
def pay(payload: dict[str, Any], ctx: Context) -> Any:
    """End as the payload says."""
    if "retry" in payload and ctx.attempt <= payload["retry"]:
        raise Retry(delay=30)
    if "reject" in payload:
        raise Reject(payload["reject"])
    return payload.get("result")


def test_a_job_that_was_never_claimed_is_none(world: World) -> None:
    """A message that lies in the queue has no record yet."""
    app = world.app(pay)
    app.enqueue(pay, {}, key="k-1")

    assert app.lookup(pay, "k-1") is None


@pytest.mark.parametrize("result", [None, 0, False, "", [], {}, "paid", {"a": [1, None]}], ids=repr)
def test_a_completed_job_shows_its_result_whatever_it_is(world: World, result: object) -> None:
    """G10: None is a result; the status tells it from a job that is not completed."""
    app = world.app(pay)
    app.consumer(event_of(world.message("pay", {"result": result})), FakeLambdaContext())

    assert app.lookup("pay", "k-1") == JobStatus(
        job_type="pay",
        key="k-1",
        status=Status.COMPLETED,
        result=result,
        error=None,
        attempts=1,
        created_at=START,
        completed_at=START,
        not_before=None,
        version=2,
    )


def test_a_job_is_followed_through_its_states(world: World) -> None:
    """Failed with the time of the next attempt, then completed, attempts and times counted through."""
    app, message = world.app(pay), world.message("pay", {"retry": 1, "result": None})
    app.consumer(event_of(message), FakeLambdaContext())

    failed = app.lookup(pay, "k-1")
    assert failed is not None
    assert (failed.status, failed.attempts, failed.completed_at, failed.result) == ("failed", 1, None, None)
    assert failed.not_before == START + timedelta(seconds=30)
    assert failed.error == "Retry: the job asked for another attempt"
    assert failed.version == 2, "claimed and released"

    world.clock.advance(30)
    app.consumer(event_of(message), FakeLambdaContext())

    completed = app.lookup(pay, "k-1")
    assert completed is not None
    assert (completed.status, completed.attempts, completed.result) == ("completed", 2, None)
    assert (completed.created_at, completed.completed_at) == (START, START + timedelta(seconds=30))
    assert (completed.not_before, completed.error) == (None, None)
    assert completed.version == 4, "taken over and completed"


def test_a_job_that_runs_is_processing(world: World) -> None:
    """Seen from inside the job itself, by a consistent read."""
    seen: list[JobStatus | None] = []

    @job("look")
    def look(payload: dict[str, Any], ctx: Context) -> None:
        seen.append(app.lookup("look", ctx.key))

    app = world.app(look)
    app.consumer(event_of(world.message("look")), FakeLambdaContext())

    (status,) = seen
    assert status is not None
    assert (status.status, status.attempts, status.result, status.completed_at) == ("processing", 1, None, None)
    assert status.version == 1


def test_a_rejected_job_shows_the_reason(world: World) -> None:
    """The caller sees why, without the dead-letter queue."""
    app = world.app(pay)
    app.consumer(event_of(world.message("pay", {"reject": "amount must be positive"})), FakeLambdaContext())

    status = app.lookup(pay, "k-1")
    assert status is not None
    assert (status.status, status.error, status.result) == ("rejected", "amount must be positive", None)


def test_a_result_that_was_not_stored_says_so(world: World) -> None:
    """G10: the first run, every replay and every lookup get the same ResultNotStored."""
    app = world.app(pay)
    app.consumer(event_of(world.message("pay", {"result": "x" * 40_000})), FakeLambdaContext())

    status = app.lookup(pay, "k-1")
    assert status is not None
    assert status.result == ResultNotStored("too large: 40002 bytes, and at most 32768 are stored")


@pytest.mark.parametrize("payload", [{}, {"reject": "no"}], ids=["completed", "rejected"])
def test_an_ended_job_is_known_until_its_retention_is_over(world: World, payload: dict[str, Any]) -> None:
    """TTL deletes late, so the lookup reads the attribute: what a delivery would run anew is not there."""
    app, message = world.app(pay), world.message("pay", payload)
    app.consumer(event_of(message), FakeLambdaContext())

    world.clock.advance(3_599)
    assert app.lookup(pay, "k-1") is not None
    world.clock.advance(1)
    assert app.lookup(pay, "k-1") is None
    assert world.record(pay, "k-1") is not None

    app.consumer(event_of(message), FakeLambdaContext())
    status = app.lookup(pay, "k-1")
    assert status is not None
    assert status.created_at == START + timedelta(hours=1)


@pytest.mark.parametrize("status", [Status.PROCESSING, Status.FAILED, Status.UNCERTAIN])
def test_a_job_that_has_not_ended_never_ages_out(world: World, status: Status) -> None:
    """Age alone hides no job that somebody may still have to look at."""
    app = world.app(pay)
    app.consumer(event_of(world.message("pay")), FakeLambdaContext())
    record = world.record(pay, "k-1")
    assert record is not None
    old = replace(record, status=status, expires_at=1)
    world.dynamodb.put_item(TableName=TABLE, Item=old.to_item())

    found = app.lookup(pay, "k-1")
    assert found is not None
    assert found.status is status


def test_a_lookup_of_nothing_that_can_be_is_an_error(world: World) -> None:
    """An unknown job type, a blank key and a missing table are told apart from a job that is not there."""
    app = world.app(pay)

    with pytest.raises(ConfigurationError, match="no job type is named 'pey': did you mean 'pay'"):
        app.lookup("pey", "k-1")
    with pytest.raises(IdempotencyKeyError, match="is blank"):
        app.lookup(pay, " ")
    assert app.lookup(pay, 5) is None
    tableless = replace(world.settings, claims_table="")
    with pytest.raises(ConfigurationError, match="ONCEQ_CLAIMS_TABLE is not set"):
        world.app(pay, runtime=Runtime(tableless, clock=world.clock)).lookup(pay, "k-1")
