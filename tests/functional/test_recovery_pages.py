"""The sweep over a table of several pages: its place, its time, its rate, and a table that fails in the middle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import RunningContext
from kit.sweeps import Pages, answer_of, events, leave_stale, place
from onceq import StoreError
from onceq.client import ATTEMPTS
from onceq.recovery import RESERVE_SECONDS

if TYPE_CHECKING:
    from kit.world import World


@pytest.fixture
def pages(world: World, monkeypatch: pytest.MonkeyPatch) -> Pages:
    """Seven stale claims in pages of two."""
    return Pages(world, monkeypatch)


def test_a_sweep_reads_the_table_page_by_page_to_its_end(pages: Pages) -> None:
    """Each page begins where the last one ended; at the end the place is the front again."""
    answer = pages.run()

    assert (answer["failed"], answer["finished"]) == (7, True)
    starts = pages.starts()
    assert starts[0] is None
    assert len(starts) in (4, 5)  # the place itself is an item, which may be met
    assert len({json.dumps(start) for start in starts}) == len(starts)
    assert pages.versions() == [5] * 7
    assert place(pages.world) is None


def test_a_sweep_that_is_out_of_time_goes_on_at_its_next_run(pages: Pages) -> None:
    """Stopped between two pages it says so; nothing is read twice, and the run after the last begins at the front."""
    pages.on_scan(2, lambda: setattr(pages.context, "remaining_ms", 5_000))

    first = pages.run()

    assert (first["scanned"], first["failed"], first["finished"]) == (4, 4, False)
    assert events(pages.world, "recovery.ended") == [first]
    kept_place = place(pages.world)
    assert kept_place is not None
    assert pages.versions().count(5) == 4

    pages.context.remaining_ms = 60_000
    second = pages.run()

    assert pages.starts()[0] == kept_place
    assert (second["failed"], second["finished"]) == (3, True)
    assert pages.versions() == [5] * 7
    leave_stale(pages.world, "k-new")
    third = pages.run()
    assert pages.starts()[0] is None
    assert (third["failed"], third["finished"]) == (1, True)


def test_a_sweep_without_any_time_reads_nothing_and_keeps_the_place(pages: Pages) -> None:
    """A function with too short a time-out never gets on, and its answer says so."""
    pages.on_scan(1, lambda: setattr(pages.context, "remaining_ms", RESERVE_SECONDS * 1000))
    pages.run()
    before = place(pages.world)

    assert before is not None
    assert pages.run() == answer_of(scanned=0, finished=False)
    assert pages.starts() == []
    assert place(pages.world) == before


@pytest.mark.parametrize("fault", ["refused", "not answered"])
def test_a_table_that_fails_in_the_middle_keeps_the_place(pages: Pages, fault: str) -> None:
    """The run fails, so that its function's error shows; the next one goes on behind the last whole page."""
    pages.on_scan(1, lambda: None)  # the first page is read
    if fault == "refused":
        pages.client.refuse("scan", "AccessDeniedException")
    else:
        pages.client.drop("scan", times=ATTEMPTS)
    with pytest.raises(StoreError, match=f"Scan was {fault}"):
        pages.run()

    assert pages.versions().count(5) == 2
    kept_place = place(pages.world)
    assert kept_place is not None
    answer = pages.run()
    assert pages.starts()[0] == kept_place
    assert (answer["failed"], answer["finished"]) == (5, True)
    assert pages.versions() == [5] * 7


@pytest.mark.parametrize("name", ["mark_stale", "put_item"], ids=["a mark", "the place"])
def test_a_write_that_fails_leaves_the_page_to_the_next_run(pages: Pages, name: str) -> None:
    """A page is behind the sweep when all of it is; read again, what is marked is marked no second time."""
    pages.client.before(name, lambda: None)
    pages.client.drop(name, times=ATTEMPTS)

    with pytest.raises(StoreError):
        pages.run()

    marked = pages.versions().count(5)
    assert 0 < marked < 7
    answer = pages.run()
    assert (answer["failed"], answer["finished"]) == (7 - marked, True)
    assert pages.versions() == [5] * 7


def test_the_place_is_kept_behind_the_marks_of_its_page(pages: Pages) -> None:
    """Kept before them, a crash would leave claims unmarked until the next whole sweep."""
    pages.run()

    writes = [call.method for call in pages.client.calls if call.method in {"update_item", "put_item"}]
    assert writes[:6] == ["update_item", "update_item", "put_item", "update_item", "update_item", "put_item"]


def test_a_response_that_is_lost_is_no_record_that_is_lost(pages: Pages) -> None:
    """G11: the mark landed, and is ours."""
    pages.client.lose_response("mark_stale")

    answer = pages.run()

    assert (answer["failed"], answer["lost"]) == (7, 0)
    assert pages.versions() == [5] * 7


def consuming(pages: Pages, units: list[float], seconds: float = 0) -> None:
    """Let each page cost so many read capacity units, and take so long; moto counts one unit for whatever is read."""
    costs = iter(units)

    def meet(call: Any) -> Any:
        pages.world.clock.advance(seconds)
        answer = pages.client.forward(call)
        return answer | {"ConsumedCapacity": {"CapacityUnits": next(costs)}}

    pages.client.plan("scan", meet, times=len(units))


def test_a_sweep_reads_no_faster_than_it_may(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what DynamoDB says that a page cost: 50 units a second, if nothing is said; none is waited for at the end."""
    pages = Pages(world, monkeypatch, stale=6, page=3)
    consuming(pages, [100.0, 25.0, 400.0])

    assert pages.run()["finished"]
    assert world.clock.slept[:2] == [2.0, 0.5]
    assert len(world.clock.slept) == len(pages.starts()) - 1
    asked = [call.request["ReturnConsumedCapacity"] for call in pages.client.calls if call.method == "scan"]
    assert set(asked) == {"TOTAL"}


@pytest.mark.parametrize(("seconds", "slept"), [(0.5, 1.5), (2.0, 0.0), (3.0, 0.0)])
def test_the_time_that_a_page_took_is_not_waited_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: float, slept: float
) -> None:
    """Reading and marking is time that has passed."""
    pages = Pages(world, monkeypatch, stale=4, page=3)
    consuming(pages, [100.0], seconds)

    assert pages.run()["finished"]
    assert world.clock.slept[0] == pytest.approx(slept)


def test_the_rate_is_a_setting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONCEQ_RECOVERY_RATE: a table of few units is swept slowly."""
    pages = Pages(world, monkeypatch, stale=4, page=3, rate=10)
    consuming(pages, [100.0])

    assert pages.run()["finished"]
    assert world.clock.slept[0] == 10.0


def test_a_sweep_does_not_wait_beyond_its_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that the time does not allow is not begun: the run ends with its answer, instead of being killed."""
    pages = Pages(world, monkeypatch, stale=4, page=2, rate=1)
    consuming(pages, [128.0] * 3)
    pages.context = RunningContext(world.clock, 60)

    answer = pages.run()

    assert (answer["failed"], answer["finished"]) == (2, False)
    assert pages.context.get_remaining_time_in_millis() > 0
    assert place(world) is not None
    assert events(world, "recovery.ended") == [answer]


def test_a_page_that_is_not_marked_in_time_is_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an incident a page may hold hundreds: the run ends with its answer, and the next one misses none."""
    pages = Pages(world, monkeypatch, stale=4, page=4)
    pages.context = RunningContext(world.clock, 8)
    client = pages.client
    for _ in range(4):
        client.before("update_item", lambda: world.clock.advance(2))

    first = pages.run()

    assert (first["failed"], first["finished"]) == (2, False)
    assert place(world) is None
    pages.context = RunningContext(world.clock, 60)
    assert pages.run()["failed"] == 2
