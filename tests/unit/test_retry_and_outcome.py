"""Back-off, delays, and what an exception says; the tables are asserted in test_lifecycle.py."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceq.codec import printable
from onceq.errors import LONGEST_DELAY, ConfigurationError, Reject, Retry, Snooze, seconds_of
from onceq.job_type import JobType
from onceq.outcome import LONGEST_VISIBILITY, Deferred, RejectFor, Release, Released, answer_of, describe, end_of
from onceq.retry import Backoff

NOW = 1_795_953_600_000


def pay(payload: dict[str, Any]) -> None:
    """Do nothing."""


def test_the_limit_doubles_with_every_attempt_up_to_the_cap() -> None:
    """Exponential back-off: 1, 2, 4 ... seconds, and never above the cap."""
    backoff = Backoff(base=1, cap=60)

    assert [backoff.limit(attempt) for attempt in (1, 2, 3, 6, 7, 8)] == [1, 2, 4, 32, 60, 60]


@pytest.mark.parametrize("attempt", [62, 63, 64, 1_023, 1_024, 10_000, 10**9])
@pytest.mark.parametrize("backoff", [Backoff(), Backoff(0.001, LONGEST_DELAY), Backoff(0, 5)], ids=str)
def test_the_limit_does_not_overflow(backoff: Backoff, attempt: int) -> None:
    """A float's range ends at 2**1023; attempt 10,000 is an honest number all the same."""
    assert 0 <= backoff.limit(attempt) <= backoff.cap
    assert backoff.limit(attempt) == (backoff.cap if backoff.base else 0)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_the_delay_is_drawn_from_zero_to_the_limit(attempt: int, share: float) -> None:
    """Full jitter spreads the retries of jobs that failed together over the whole range."""
    backoff = Backoff(base=2, cap=900)

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * share

    delay = backoff.delay(attempt, uniform)

    assert delay == pytest.approx(backoff.limit(attempt) * share)


@pytest.mark.parametrize(
    "options",
    [
        {"base": -1},
        {"base": 10, "cap": 5},
        {"cap": float("inf")},
        {"base": float("nan")},
        {"cap": float("nan")},
        {"base": "1"},
        {"cap": None},
        {"cap": LONGEST_DELAY + 1},
    ],
    ids=str,
)
def test_a_back_off_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    """It would show only when a job fails; so it is refused where it is written."""
    with pytest.raises(ConfigurationError, match="Backoff"):
        Backoff(**options)


@pytest.mark.parametrize(("delay", "seconds"), [(0, 0), (1.5, 1.5), (timedelta(minutes=1), 60), (LONGEST_DELAY,) * 2])
def test_a_delay_is_seconds_or_a_timedelta(delay: Any, seconds: float) -> None:
    """The same for Retry, Snooze and enqueue."""
    assert seconds_of(delay) == Retry(delay).delay == Snooze(delay).delay == seconds


@pytest.mark.parametrize(
    "delay", [-1, float("nan"), float("inf"), True, "5", timedelta(seconds=-1), LONGEST_DELAY + 1, [], 1e308], ids=repr
)
def test_a_delay_that_cannot_be_kept_is_refused(delay: Any) -> None:
    """SQS keeps a message for 14 days: a job that waits longer would lose it, so G4 forbids to ask for it."""
    for make in (Retry, Snooze, seconds_of):
        with pytest.raises(ValueError, match="a delay is a number of seconds"):
            make(delay)


def test_the_longest_delay_can_be_written_and_waited_for() -> None:
    """A wait of days is enforced by the record; SQS hides the message for up to twelve hours at a time."""
    end = end_of(Retry(LONGEST_DELAY), JobType(pay, "pay"), 1, NOW, max)

    assert isinstance(end, Release)
    assert end.not_before == NOW + LONGEST_DELAY * 1000
    for outcome in (Released(end.not_before), Deferred(end.not_before)):
        assert answer_of(outcome, NOW, 1.0).visible_in == LONGEST_VISIBILITY < 43_200


def test_a_reason_is_never_empty() -> None:
    """What stands in the record and in the log says something, also where the job said nothing."""
    assert str(Retry())
    assert str(Snooze(1))
    assert str(Retry(reason="rate limit")) == "rate limit"
    assert describe(ValueError()) == "ValueError"
    assert describe(KeyError("a")) == "KeyError: 'a'"


class Unreadable(Exception):
    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError("no")


@pytest.mark.parametrize("error", [Unreadable(), ValueError("x" * 10_000), ValueError("\x00\ud800\n")], ids=repr)
def test_an_exception_is_one_bounded_printable_line(error: Exception) -> None:
    """DynamoDB, SQS and the log take it, and an exception that cannot be read is described all the same."""
    said = describe(error)

    assert said == printable(said)
    assert said.startswith(type(error).__name__)


def test_a_subclass_of_a_permanent_error_is_permanent_and_reject_wins_over_the_last_attempt() -> None:
    """``reject=`` is isinstance; a Reject's own reason is what people read, not "attempts used up"."""
    job_type = JobType(pay, "pay", max_attempts=1, reject=(LookupError,))

    assert end_of(KeyError("a"), job_type, 1, NOW, max) == RejectFor("KeyError: 'a'")
    assert end_of(Reject("why"), job_type, 1, NOW, max) == RejectFor("why")
    assert end_of(ValueError("a"), job_type, 9, NOW, max) == RejectFor("attempts used up (9 of 1): ValueError: a")
