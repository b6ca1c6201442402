"""What a job says of its attempt stands before what its type says of errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import JobType, OnceqError, Reject, Retry, Snooze
from onceq.errors import JobControl, JobTimedOut
from onceq.outcome import RejectFor, Release, end_of

if TYPE_CHECKING:
    from kit.world import World

REJECT: list[tuple[type[Exception], ...]] = [(), (Exception,), (JobControl,), (Retry, Snooze), (ValueError, Exception)]


def _end(error: Exception, reject: tuple[type[Exception], ...], attempt: int = 1) -> object:
    def act(payload: Any) -> None:
        """Do nothing."""

    return end_of(error, JobType(act, "act", reject=reject), attempt, 0, lambda low, high: high)


@pytest.mark.parametrize("reject", REJECT)
def test_a_job_that_asks_to_run_again_is_not_rejected_by_its_type(reject: tuple[type[Exception], ...]) -> None:
    """``reject=(Exception,)`` says of unforeseen errors that they are permanent, and not of ``Retry``."""
    assert _end(Retry(delay=5), reject) == Release(5_000, "Retry: the job asked for another attempt", counted=True)
    assert _end(Snooze(5), reject) == Release(5_000, "the job asked to run later", counted=False)
    assert _end(Reject("no"), reject) == RejectFor("no")


def test_other_errors_are_rejected_by_their_type() -> None:
    """Subclasses too."""
    assert _end(KeyError("k"), (LookupError,)) == RejectFor("KeyError: 'k'")
    assert isinstance(_end(KeyError("k"), (ValueError,)), Release)


def test_attempts_run_out_for_a_retry_too() -> None:
    """Asking does not make more of them."""
    assert isinstance(_end(Retry(delay=5), (Exception,), attempt=5), RejectFor)


@pytest.mark.parametrize("reject", [(TimeoutError,), (asyncio.TimeoutError, OSError)], ids=["timeout", "os"])
def test_a_job_that_was_cancelled_at_its_max_duration_is_retried(
    world: World, reject: tuple[type[Exception], ...]
) -> None:
    """``reject=(TimeoutError,)`` is said of the job's own calls, and not of the framework's limit."""

    async def act(payload: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    job_type = JobType(act, "act", max_duration=0.01, reject=reject)
    message = world.message("act")

    answer = kept(world.app(job_type).consumer(event_of(message), FakeLambdaContext()))

    assert answer == [message["messageId"]]
    record = world.record(job_type, "k-1")
    assert record is not None
    assert record.status == "failed"
    assert record.error == "JobTimedOut: cancelled after max_duration, 0.01 s"
    assert not issubclass(JobTimedOut, TimeoutError)
    assert issubclass(JobTimedOut, OnceqError)


def test_a_jobs_own_timeout_is_rejected_where_its_type_says_so(world: World) -> None:
    """It comes from the job, well within its limit."""

    async def act(payload: dict[str, Any]) -> None:
        raise TimeoutError

    job_type = JobType(act, "act", max_duration=20, reject=(TimeoutError,))

    assert kept(world.app(job_type).consumer(event_of(world.message("act")), FakeLambdaContext())) == []
    record = world.record(job_type, "k-1")
    assert record is not None
    assert record.status == "rejected"
