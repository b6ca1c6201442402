"""What a proof prints: as much as a person reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceq.testing import Diagnosis, Finding, NotEffectivelyOnce, Report
from onceq.testing.errors import MARGIN
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
        f"              {Diagnosis.TWICE.told} (charge: 2 times instead of 1, with the keys 0123456789ab… and k-2)",
    ]


def test_verbose_has_a_line_for_each_scenario_in_order(report: Report) -> None:
    """As they were played."""
    marks = [line[:12].split() for line in report.table(verbose=True)]

    assert [mark for mark in marks if mark] == [
        ["✓", "once"], ["✓", "crash"], ["✗", "crash"], ["✓", "crash"],
    ]  # fmt: skip
    assert "crashed after: claim" in report.text(verbose=True)
    assert "crashed after: claim" not in report.text()


def test_the_verdict_names_the_diagnosis_and_says_what_to_do(report: Report) -> None:
    """By the name that the page of testing has a row for; the summary alone is one line."""
    told = "charge_order does not take effect once: 1 of 4 scenarios fails. TWICE: an effect happened more than once"

    assert report.summary() == told
    assert report.verdict() == [told, f"  what to do: {Diagnosis.TWICE.advice}"]
    assert report.text().splitlines()[:2] == report.verdict()
    assert (report.to_json()["diagnosis"], report.to_json()["advice"]) == ("TWICE", Diagnosis.TWICE.advice)


def test_a_text_is_as_wide_as_it_is_told(report: Report) -> None:
    """What goes on stands below, further to the right; without a width lines are as long as they are."""
    told = report.text(columns=60)

    assert max(map(len, told.splitlines())) <= 60
    assert " ".join(told.split()) == " ".join(report.text().split())
    assert max(map(len, report.text().splitlines())) > 60


def test_what_a_proof_raises_fits_the_terminal(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what pytest writes before each line; the picture is asked for in that width."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(RUN.timeline, "lanes", lambda columns, **_named: f"{columns} columns")

    told = str(NotEffectivelyOnce(report))

    assert told == report.text(columns=80 - MARGIN)
    assert f"\n  {80 - MARGIN - 2} columns\n" in told


def test_what_was_not_played_is_told_whatever_the_others_came_to(report: Report) -> None:
    """Nothing is known of it."""
    unplayed = Result("zombie", "overtaken", [], RUN, played=False)

    well, wrong = (Report("charge_order", [unplayed, *rest], {"charge": 1}).summary() for rest in ([], report.results))

    assert well.startswith("charge_order takes effect once: 0 scenarios, charge x1 in each. Not played: 1 scenario in ")
    assert wrong.startswith("charge_order does not take effect once: 1 of 4 scenarios fails. TWICE: ")
    assert "more than once. Not played: 1 scenario in which one worker waits for another that stands still" in wrong


def test_where_all_is_well_there_is_nothing_to_do() -> None:
    """The verdict is the summary."""
    report = Report("charge_order", [Result("once", "delivered once", [], RUN)], {"charge": 1})

    assert report.verdict() == [report.summary()] == ["charge_order takes effect once: 1 scenario, charge x1 in each"]
    assert report.to_json()["advice"] is None
