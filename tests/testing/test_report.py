"""What a proof prints: as much as a person reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceq.testing import Diagnosis, Finding, Report
from onceq.testing.report import Result
from onceq.testing.timeline import TIMES

RUN: Any = SimpleNamespace(timeline=SimpleNamespace(entries=[], lanes=lambda *_a, **_n: ""), effects=[], records=[])
HASH = "0123456789abcdef" * 4


@pytest.fixture
def report() -> Report:
    """Two groups, one of which has a failure."""
    found = [Finding(Diagnosis.TWICE, f"charge: 2 times instead of 1, with the keys {HASH} and k-2")]
    return Report(
        "charge_order",
        [
            Result("once", "delivered once", [], RUN),
            Result("crash", "crashed before: claim", [], RUN),
            Result("crash", f"crashed after: effect {HASH}", found, RUN),
            Result("crash", "crashed after: claim", [], RUN),
        ],
        {"charge": 1},
    )


def test_what_is_well_is_a_count_in_each_group(report: Report) -> None:
    """What is not stands there as it is; hashes are shortened."""
    assert report.table() == [
        "  ✓ once      delivered once",
        f"  ✓ crash     {TIMES}2",
        "  ✗ crash     crashed after: effect 0123456789ab…",
        f"              {Diagnosis.TWICE} (charge: 2 times instead of 1, with the keys 0123456789ab… and k-2)",
    ]


def test_verbose_has_a_line_for_each_scenario_in_order(report: Report) -> None:
    """As they were played."""
    marks = [line[:12].split() for line in report.table(verbose=True)]

    assert [mark for mark in marks if mark] == [
        ["✓", "once"], ["✓", "crash"], ["✗", "crash"], ["✓", "crash"],
    ]  # fmt: skip
    assert "crashed after: claim" in report.text(verbose=True)
    assert "crashed after: claim" not in report.text()
