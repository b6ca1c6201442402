"""Odd records: whatever comes in, the answer is valid and names exactly the records that must be kept (G4, G5).

A slice of both fuzzers; `make fuzz` is the longer run.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from fuzz.cases import Case, Judge, case_of
from fuzz.corpus import EVENTS
from fuzz.whole_events import run_whole_events

if TYPE_CHECKING:
    from typing import Any

SEED = 4
SLICE = 70


@cache
def judge() -> Judge:
    """Return the judge of this process."""
    return Judge()


@pytest.mark.parametrize("first", range(0, 8 * SLICE, SLICE))
def test_a_mutated_event_is_answered_rightly(first: int) -> None:
    """G4, G5: records lost, kept for nothing, run twice, run ahead of their lane, faulted: none."""
    for number in range(first, first + SLICE):
        case = judge().case(SEED, number)
        wrong = judge().judge(case).wrong

        assert not wrong, "\n".join([f"make fuzz SEED={SEED} ARGS='--only {number}'", *wrong, case.shown()])


def test_an_event_of_strategies_is_answered_rightly() -> None:
    """G4, G5: the same of events that are built and not mutated."""
    assert run_whole_events(judge(), 150, SEED) >= 150


@pytest.mark.parametrize("name", [name for name, event in EVENTS.items() if "Records" in event])
def test_a_real_event_is_answered_rightly(name: str) -> None:
    """Nothing is wrong with the events that are not mutated, delivered three times."""
    verdict = judge().judge(Case(EVENTS[name], times=3))

    assert verdict.wrong == []
    assert verdict.deliveries == 3


def test_a_case_is_the_same_whatever_ran_before_it() -> None:
    """A failing case can be run alone: seed and number make it, and nothing is left of the cases before."""
    alone = judge().judge(judge().case(SEED, 7)).ends
    for number in range(20):
        judge().judge(judge().case(SEED, number))

    assert judge().judge(judge().case(SEED, 7)).ends == alone
    assert repr(case_of(SEED, 7, judge().serving)) == repr(case_of(SEED, 7, judge().serving))
    assert repr(case_of(SEED, 7, judge().serving)) != repr(case_of(SEED, 8, judge().serving))


def test_the_slice_meets_every_end() -> None:
    """The cases are not all refused: each way in which a message can end comes up, and each exception."""
    ends: list[str] = []
    for number in range(400):
        ends += judge().judge(judge().case(SEED, number)).ends
    met: set[Any] = set(ends)

    assert met >= {
        *("job.completed", "job.replayed", "job.released", "job.retried", "job.rejected", "job.held", "job.deferred"),
        *("job.taken_over", "job.not_started", "message.refused", "message.unserved", "message.dead_lettered"),
        *("message.copy_failed", "message.without_work", "event.without_records", "NotAnSqsEvent", "UnnameableRecord"),
    }
