"""The ranges of the settings hold wherever they come from."""

from __future__ import annotations

import dataclasses
import math

import pytest

from onceq import ConfigurationError, Settings

RANGES = [
    ("concurrency", "ONCEQ_CONCURRENCY", 1, 100),
    ("clock_skew", "ONCEQ_CLOCK_SKEW", 0, 3_600),
    ("reserve", "ONCEQ_RESERVE", 0, 600),
    ("result_limit", "ONCEQ_RESULT_LIMIT", 0, 350_000),
    ("max_hops", "ONCEQ_MAX_HOPS", 0, 1_000_000),
    ("outbox_overdue", "ONCEQ_OUTBOX_OVERDUE", 0, 1_209_600),
    ("recovery_rate", "ONCEQ_RECOVERY_RATE", 1, 1_000_000),
    ("payload_limit", "ONCEQ_PAYLOAD_LIMIT", 1_024, 1_073_741_824),
]


@pytest.mark.parametrize(("name", "variable", "low", "high"), RANGES, ids=[name for name, *_ in RANGES])
def test_a_number_within_its_range_is_taken_and_any_other_refused(
    name: str, variable: str, low: int, high: int
) -> None:
    """Given in code or in the environment: a wrong one shows at once, named as an operator sets it."""
    for value in (low, high):
        assert getattr(Settings(**{name: value}), name) == value  # type: ignore[arg-type]
        assert getattr(Settings.from_env({variable: str(value)}), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ConfigurationError, match=f"{variable}={value}: give a number from {low:g} to "):
            Settings(**{name: value})  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match=f"{variable}={value}"):
            Settings.from_env({variable: str(value)})


@pytest.mark.parametrize("name", ["clock_skew", "reserve"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_refused(name: str, value: float) -> None:
    """A comparison with NaN is never true, so it would pass for every limit or for none."""
    with pytest.raises(ConfigurationError, match="give a number from"):
        Settings(**{name: value})  # type: ignore[arg-type]


def test_a_copy_with_another_number_is_checked_too() -> None:
    """``dataclasses.replace`` makes a new one."""
    with pytest.raises(ConfigurationError):
        dataclasses.replace(Settings(), concurrency=0)


def test_every_number_of_the_settings_has_a_range() -> None:
    """One that is added later is checked as well."""
    values = {field.name: getattr(Settings(), field.name) for field in dataclasses.fields(Settings)}
    numbers = {name for name, value in values.items() if type(value) in (int, float)}

    assert numbers == {name for name, *_ in RANGES}
