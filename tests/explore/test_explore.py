"""A slice of the schedules of `make explore`: real jobs, whole spaces; bounded alone where one worker more is there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from explore import agreement
from explore.explorer import Explorer
from explore.jobs import plays
from explore.outside import RELAY
from explore.rerun import Rerun
from explore.space import Used

if TYPE_CHECKING:
    from explore.space import Play

PLAYS = {play.name: play for play in plays()}
SLICE = [
    replace(PLAYS["plain"], used=Used(losses=1, expiries=1)),
    *(replace(PLAYS[name], used=Used(crashes=1, expiries=1)) for name in ("transaction", "at-most-once job")),
    replace(PLAYS["one step"], name="late writes", used=Used(crashes=1, late=1)),
    replace(PLAYS["renewals"], used=Used(crashes=1, late=1, renewals=1)),
    replace(PLAYS["relay"], messages=("m1", RELAY), used=Used(crashes=1, expiries=1)),
    replace(PLAYS["async step"], used=Used(crashes=1, losses=1, late=1)),
]


@pytest.mark.parametrize("play", SLICE, ids=lambda play: play.name)
def test_no_schedule_breaks_a_promise(play: Play) -> None:
    """G1 to G4, G6 to G9, G11: whatever the world does once, wherever that may come."""
    result = Explorer(play).explore()

    assert result.found == {}
    assert result.schedules > result.states > 500


SAMPLED = [
    (replace(PLAYS["at-most-once step"], used=Used(crashes=1, expiries=1)), 17),
    (replace(PLAYS["plain"], used=Used(crashes=1, failures=1, late=1)), 11),
    (replace(PLAYS["renewals"], used=Used(losses=1, renewals=1)), 1),
    (replace(PLAYS["relay"], messages=("m1", RELAY), used=Used(crashes=1, expiries=1)), 7),
    (replace(PLAYS["async step"], used=Used(losses=1)), 1),
    (replace(PLAYS["renewals"].with_one_more(), used=Used(expiries=1, renewals=1)), 13),
    (replace(PLAYS["relay"], messages=("m1", RELAY, RELAY), used=Used(expiries=1)), 4),
]


@pytest.mark.parametrize(("play", "sample"), SAMPLED, ids=lambda one: getattr(one, "name", None))
def test_a_schedule_run_by_real_workers_ends_as_the_explorer_says(play: Play, sample: int) -> None:
    """The explorer puts a schedule together from what each worker does alone; threads in step come to the same end."""
    result = Explorer(play, bound=0).explore(sample=sample)

    assert result.found == {}
    assert len(result.samples) >= 3
    for choices, outside in result.samples:
        rerun = Rerun(play)
        rerun.run(choices)
        assert rerun.snapshot.name() == outside.name(), rerun.timeline.lanes()


def test_a_bound_leaves_out_schedules() -> None:
    """A bound of preemptions is a bound: fewer schedules with a lower one, and all of them without."""
    play = replace(PLAYS["transaction"], used=Used(crashes=1))
    found = [Explorer(play, bound).explore().schedules for bound in (0, 1, 2, None)]

    assert found == sorted(set(found))


@pytest.mark.parametrize(
    ("name", "messages", "used", "bound"),
    [
        ("plain", ("m1", "m1"), Used(expiries=1), None),
        ("plain", ("m1", "m1"), Used(crashes=1), 1),
        ("plain", ("m1", "m1", "m1"), Used(crashes=1), 2),
        ("plain", ("m1", "m2", "m2"), Used(), None),
        ("renewals", ("m1", "m1", "m1"), Used(renewals=1), 1),
        ("relay", ("m1", RELAY, RELAY), Used(), 1),
    ],
)
def test_of_schedules_that_exchange_names_one_is_walked_and_all_are_counted(
    name: str, messages: tuple[str, ...], used: Used, bound: int | None
) -> None:
    """Workers of one message differ by their names alone: what is left out is counted, and is as many."""
    play = replace(PLAYS[name], messages=messages, used=used)
    one, each = (Explorer(play, bound, symmetry=symmetry).explore() for symmetry in (True, False))

    assert one.schedules == each.schedules
    assert one.states < each.states


def test_the_model_and_the_code_change_a_record_in_the_same_ways() -> None:
    """For an at-most-once job, every change that either knows; `make explore` compares the others."""
    compared = agreement.compare("an at-most-once job", leases=1)

    assert compared.unexplained == []
    assert compared.shared == 6
