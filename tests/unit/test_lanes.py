"""Lanes, against an oracle that is slow and obvious."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onceq.lanes import lanes_of

SHARED = st.lists(st.lists(st.integers(0, 8), max_size=3), max_size=14)


def naive(shared: list[list[int]]) -> list[list[int]]:
    """Merge any two lanes that share something until no two do."""
    lanes = [({position}, set(things)) for position, things in enumerate(shared)]
    merged = True
    while merged:
        merged = False
        for one in range(len(lanes)):
            for other in range(one + 1, len(lanes)):
                if lanes[one][1] & lanes[other][1]:
                    lanes[one] = (lanes[one][0] | lanes[other][0], lanes[one][1] | lanes[other][1])
                    del lanes[other]
                    merged = True
                    break
            if merged:
                break
    return sorted(sorted(positions) for positions, _ in lanes)


@given(SHARED)
def test_lanes_are_what_the_oracle_says(shared: list[list[int]]) -> None:
    """G5: records that share a group or a job, directly or through others, run one after another; no others do."""
    assert lanes_of(shared) == naive(shared)


@given(SHARED)
def test_every_record_is_in_one_lane_in_its_order(shared: list[list[int]]) -> None:
    """A FIFO group keeps its order, and no record is lost or run twice."""
    lanes = lanes_of(shared)

    assert sorted(position for lane in lanes for position in lane) == list(range(len(shared)))
    assert all(lane == sorted(lane) for lane in lanes)
    assert [lane[0] for lane in lanes] == sorted(lane[0] for lane in lanes)


def test_ten_thousand_records_of_one_group_are_one_lane() -> None:
    """The largest batch that Lambda makes; a chain of pairs is the worst shape."""
    assert lanes_of([["g"]] * 10_000) == [list(range(10_000))]
    assert lanes_of([[n, n + 1] for n in range(10_000)]) == [list(range(10_000))]
