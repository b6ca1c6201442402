"""A job type passes for its function where Python asks who it is."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from onceq import ConfigurationError, JobType, job


@job("pay")
def pay(payload: dict[str, Any]) -> str:
    """Pay once."""
    return str(payload["order_id"])


@job("greet")
async def greet(payload: dict[str, Any]) -> None:
    """Greet."""


def test_a_job_type_has_its_functions_identity() -> None:
    """Documentation tools and tracebacks show the function, not the class that wraps it."""
    shown: Any = pay

    assert (shown.__name__, shown.__qualname__) == ("pay", "pay")
    assert (shown.__doc__, shown.__module__) == ("Pay once.", __name__)
    assert inspect.getdoc(greet) == "Greet."
    assert isinstance(pay, JobType)
    assert pay({"order_id": "o-1"}) == "o-1"


def test_a_function_without_a_docstring_makes_a_job_type_without_one() -> None:
    """The class's own text is not taken for the job's."""
    assert JobType(lambda payload: payload, "act").__doc__ is None


def test_the_identity_changes_neither_equality_nor_options() -> None:
    """Two job types are what their options say."""
    assert JobType(pay.function, "pay") == pay
    assert JobType(pay.function, "other") != pay
    assert JobType.__name__ == "JobType"


@pytest.mark.parametrize("attempts", [1, 90])
def test_attempts_up_to_ninety_are_taken(attempts: int) -> None:
    """SQS ends a message at 100 receives, and deferrals are receives too."""
    assert JobType(pay.function, "pay", max_attempts=attempts).max_attempts == attempts


@pytest.mark.parametrize("attempts", [0, -1, 91, 100, 10**9, 1.0, True, "5"])
def test_other_numbers_of_attempts_are_refused(attempts: Any) -> None:
    """G4: more would let SQS move the message away without the reason; the text says what is taken."""
    with pytest.raises(ConfigurationError, match="give a whole number from 1 to 90"):
        JobType(pay.function, "pay", max_attempts=attempts)
