"""Bugs that people met in public with frameworks like this one, row by row: none of them is met here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kit.ministack import open_world_on
from kit.shared import open_world
from kit.tables import table
from public_bugs.ground import Ground, backends_of
from public_bugs.table import NOT_OURS, NUMBERS, ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kit.clock import FrozenClock

PAGE = Path(__file__).parents[2] / "docs" / "public-bugs.md"
SCENES = [
    pytest.param(backend, scene, id=f"{number}-{row.name}-{scene.__name__}-{backend}".replace(" ", "_"))
    for number, row in ROWS.items()
    for scene in row.scenes
    for backend in backends_of(scene)
]


@pytest.fixture
def ground(request: pytest.FixtureRequest, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """The world of a scene, on the backend that it plays on."""
    if request.param == "moto":
        opening = open_world(clock)
    else:
        opening = open_world_on(request.getfixturevalue("ministack"), clock)
    with opening as world:
        yield Ground(world, monkeypatch)


@pytest.mark.parametrize(("ground", "scene"), SCENES, indirect=["ground"])
def test_a_public_bug_is_not_met_here(ground: Ground, scene: Callable[[Ground], None]) -> None:
    """Each scene of each row asserts the right behaviour; what it shows stands in its own docstring."""
    scene(ground)


def test_every_row_is_tested_or_said_not_to_reach_us() -> None:
    """A row of the survey without a scene needs its reason; none has both."""
    assert len(NUMBERS) == len(set(NUMBERS)) == 51
    assert sorted([*ROWS, *NOT_OURS]) == sorted(NUMBERS)
    assert all(row.scenes and row.cites for row in ROWS.values())
    assert all(NOT_OURS.values())


def test_every_scene_says_what_it_shows() -> None:
    """A scene has a docstring, and stands in a row."""
    scenes = [scene for row in ROWS.values() for scene in row.scenes]
    assert all(scene.__doc__ for scene in scenes)
    modules = {scene.__module__ for scene in scenes}
    assert modules == {
        f"public_bugs.{name}" for name in ("batches", "claims", "effects", "results", "sources", "surroundings")
    }


def test_the_page_is_the_table() -> None:
    """docs/public-bugs.md has each row: where it was met, what people saw, what happens here, and its tests."""
    told = {
        str(number): {
            "What was met": row.symptom,
            "Where": ", ".join(row.cites),
            "Here": row.ours,
            "Scenes": ", ".join(f"`{scene.__name__}`" for scene in row.scenes),
        }
        for number, row in ROWS.items()
    }
    assert table("public bugs", PAGE) == told
