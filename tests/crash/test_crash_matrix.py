"""Every process may die before and after every call of a seam; the next delivery recovers.

``CRASHES=all``, which ``make crash`` sets, plays each point in every scene; without it, in a few of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kit import effect_scenes, scenes
from kit.delivery import hold_sqs_time
from kit.seams import SEAMS, Point, calls_of_interest, methods_of, points
from kit.stage import Scene
from onceq.locks import Locks
from onceq.outbox import Outbox
from onceq.queue import Queue
from onceq.store import Store

if TYPE_CHECKING:
    from collections import Counter

    from kit.world import World

SCENES = scenes.SCENES | effect_scenes.EFFECT_SCENES
# How many deaths at a point are played without ``CRASHES=all``: spread over the scenes, since neighbours are alike.
A_FEW = 3
# How often each scene calls each method when nobody dies; the same in every test, so it is counted once.
_calls: dict[str, Counter[tuple[str, str]]] = {}


def _play(world: World, name: str, crash: tuple[Point, int] | None = None) -> Scene:
    scene = Scene(world, crash)
    try:
        scene.check(SCENES[name](scene))
    except AssertionError as error:
        error.add_note(f"in scene {name!r}, death at {crash and str(crash[0])!r}, call {crash and crash[1]}")
        raise
    return scene


def _numbers(point: Point, calls: int) -> list[int]:
    """Return at which calls to die: at every write; of the queue, and of reading the outbox, at the first and the last.

    For time. ``call`` stands inside all of the queue's others, ``receive`` is in every round: the last is enough.
    """
    numbers = range(1, calls + 1)
    if point.seam != Queue.__name__ and point.method != "pending":
        return list(numbers)
    return sorted({*numbers[-1:], *([] if point.method in {"call", "receive"} else numbers[:1])})


def _deaths(world: World, point: Point) -> list[tuple[str, int]]:
    """Return the scenes, and the numbers of the calls in them, at which to die: all, or a few, evenly spread."""
    deaths = [
        (name, number)
        for name in SCENES
        for number in _numbers(point, _calls_of(world, name)[point.seam, point.method])
    ]
    if os.environ.get("CRASHES") == "all" or len(deaths) <= A_FEW:
        return deaths
    return [deaths[place * (len(deaths) - 1) // (A_FEW - 1)] for place in range(A_FEW)]


def _calls_of(world: World, name: str) -> Counter[tuple[str, str]]:
    if name not in _calls:
        _calls[name] = _play(world, name).seams.calls
    return _calls[name]


@pytest.fixture(autouse=True)
def _sqs_time(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    hold_sqs_time(monkeypatch, world.clock)


@pytest.mark.parametrize("name", sorted(SCENES))
def test_a_scene_ends_as_it_should_when_nobody_dies(world: World, name: str) -> None:
    """The yardstick of the matrix: without a death each scene ends as expected, and no effect is repeated."""
    scene = _play(world, name)

    assert sum(scene.charges.values()) == len(scene.charges)


@pytest.mark.parametrize("point", points(), ids=str)
# Some points are reached in every scene: ten seconds alone, and several times that where others use the machine too.
@pytest.mark.timeout(360)
# The renewal's thread dies with its process, and nobody is there to catch it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_death_at_any_call_of_a_seam_is_recovered_by_the_next_delivery(world: World, point: Point) -> None:
    """G4, G6: one completion, nothing recorded is repeated, no message is lost; a point that nobody reaches fails."""
    deaths = _deaths(world, point)
    assert deaths, f"no scene calls {point.seam}.{point.method}: add one"
    for name, number in deaths:
        scene = _play(world, name, (point, number))
        assert scene.seams.crashed, f"{name}: call {number} of {point.method} was not reached"


def test_the_points_are_read_from_the_seams() -> None:
    """A method that is added to a seam is a point of the matrix at once; what makes no request is named."""

    class WithMore(Store):
        def transact(self) -> None:
            """Stand for a transition to come."""

    assert methods_of(WithMore) == sorted([*methods_of(Store), "transact"])
    assert {"claim", "take_over", "step", "complete", "commit", "hold", "renew"} < set(methods_of(Store))
    assert methods_of(Locks) == ["acquire", "extend"]
    assert methods_of(Outbox) == ["commit", "mark_failed", "mark_sent", "pending"]
    assert {"send_batch", "change_visibility_batch", "receive", "delete_batch"} < set(methods_of(Queue))
    assert "within" not in methods_of(Queue)
    assert {point.seam for point in points()} == {seam.__name__ for seam in SEAMS} | {"DynamoDB"}


def test_every_request_of_a_scene_is_a_point(world: World) -> None:
    """What goes past the tables, straight to DynamoDB, is watched as well: a new kind of it is named here."""
    calls = {call for name in SCENES for call in _calls_of(world, name)}

    assert calls <= set(calls_of_interest())


def test_the_matrix_notices_a_repeated_effect(world: World) -> None:
    """The check itself fails where an effect is repeated without need."""
    scene = Scene(world)
    expected = SCENES["new_job"](scene)
    scene.charges.update(list(scene.charges))

    with pytest.raises(AssertionError, match="raw calls"):
        scene.check(expected)
