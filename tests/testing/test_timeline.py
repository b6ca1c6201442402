"""What happened, as text and as a picture that fits a terminal."""

from __future__ import annotations

import pytest

from onceq.testing import FrozenClock
from onceq.testing.timeline import WIDEST, WORLD, Kind, Timeline, words

KEY = "charge-97319ce8172a4b5c6d7e8f9012345678"


@pytest.fixture
def timeline() -> Timeline:
    """A run of two workers, the second of which takes over."""
    told = Timeline(FrozenClock())
    told.add("w1", Kind.CALL, "claim")
    told.add("w1", Kind.EFFECT, f"charge, as {KEY}")
    told.clock.advance(26 * 3600)
    told.add(WORLD, Kind.TIME, "a day passes")
    told.add("w2", Kind.CALL, "take over")
    told.add("w1", Kind.FAULT, f"effect {KEY}: fails")
    told.add("w2", Kind.RETURN, "true")
    told.add("w2", Kind.ANSWER, "acknowledges m1")
    return told


def test_a_line_for_each_entry(timeline: Timeline) -> None:
    """With its number, its time, its worker, and whole keys."""
    assert timeline.text().splitlines()[:4] == [
        "  1      +0.000 s  w1  claim",
        f"  2      +0.000 s  w1  effect: charge, as {KEY}",
        "  3  +93600.000 s  --  a day passes",
        "  4  +93600.000 s  w2  take over",
    ]
    assert timeline.workers == ["w1", "w2"]


def test_a_lane_for_each_worker(timeline: Timeline) -> None:
    """Time goes down; a worker that is under way has a line; keys are cut; what is nobody's goes across."""
    assert timeline.lanes().splitlines() == [
        "                            w1                               w2",
        "              ──────────────────────────────   ──────────────────────────────",
        "    +0.000 s  claim",
        "    +0.000 s  effect: charge, as",
        "              charge-97319ce8172…",
        "+93600.000 s  ························· a day passes ························",
        "+93600.000 s  │                                take over",
        "+93600.000 s  ✗ effect charge-97319ce8172…:    │",
        "              fails                            │",
        "+93600.000 s                                   returns true",
        "+93600.000 s                                   → acknowledges m1",
    ]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_lanes_fit_a_terminal(workers: int) -> None:
    """Up to five workers stand side by side in 120 columns, whatever long words there are."""
    told = Timeline(FrozenClock())
    for number in range(workers):
        told.add(f"w{number}", Kind.EFFECT, f"charge, as {KEY}{KEY}, arn:aws:sqs:us-east-1:123456789012:JobsQueue")
    told.add(WORLD, Kind.TIME, "1 s pass")

    lines = told.lanes().splitlines()

    assert max(map(len, lines)) <= WIDEST
    assert len([line for line in lines if "charge-97319ce8" in line]) == workers
    assert not any(KEY in line for line in lines)


def test_an_empty_timeline_is_empty() -> None:
    """It has no lanes."""
    told = Timeline(FrozenClock())

    assert (told.text(), told.lanes().strip(), told.workers) == ("", "", [])


def test_each_kind_has_its_words(timeline: Timeline) -> None:
    """Effects, faults, ends and answers are told apart."""
    assert [words(entry)[:9] for entry in timeline.entries] == [
        "claim", "effect: c", "a day pas", "take over", "✗ effect ", "returns t", "→ acknowl",
    ]  # fmt: skip
