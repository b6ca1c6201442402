"""A slice of the schedules of `make explore`: real jobs, whole spaces, none of them bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from explore import agreement
from explore.explorer import Explorer
from explore.jobs import plays
from explore.rerun import Rerun
from explore.space import Used

if TYPE_CHECKING:
    from explore.space import Play

PLAYS = {play.name: play for play in plays()}
SLICE = [PLAYS[name] for name in ("plain", "transaction", "at-most-once job")]


@pytest.mark.parametrize("play", SLICE, ids=lambda play: play.name)
def test_no_schedule_breaks_a_promise(play: Play) -> None:
    """G1 to G4, G6, G7, G9, G11: with a crash, a lost response and a lease that passes, wherever they may come."""
    result = Explorer(play).explore()

    assert result.found == {}
    assert result.schedules > result.states > 5_000


@pytest.mark.parametrize("name", ["outbox", "at-most-once step"])
def test_a_schedule_run_by_real_workers_ends_as_the_explorer_says(name: str) -> None:
    """The explorer puts a schedule together from what each worker does alone; threads in step come to the same end."""
    play = PLAYS[name]
    result = Explorer(play, bound=0).explore(sample=29)

    assert len(result.samples) > 5
    for choices, outside in result.samples:
        rerun = Rerun(play)
        rerun.run(choices)
        assert rerun.snapshot.name() == outside.name(), rerun.timeline.lanes()


def test_a_bound_leaves_out_schedules() -> None:
    """A bound of preemptions is a bound: fewer schedules with a lower one, and all of them without."""
    play = replace(PLAYS["transaction"], used=Used(crashes=1))
    found = [Explorer(play, bound).explore().schedules for bound in (0, 1, 2, None)]

    assert found == sorted(set(found))


def test_the_model_and_the_code_change_a_record_in_the_same_ways() -> None:
    """For an at-most-once job, every change that either knows; `make explore` compares the others."""
    compared = agreement.compare("an at-most-once job", leases=1)

    assert compared.unexplained == []
    assert compared.shared == 6
