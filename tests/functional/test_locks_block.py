"""`App.lock`: a lock around a block of code, in a job or outside one."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import Bench
from kit.faults import FaultyClient
from kit.locking import ACQUIRE, EXTEND, faulty_locks, stored_lock, taken_by
from kit.racing import all_at_once, eager_switching
from kit.seams import Seams
from onceq import ConfigurationError, LockBusy, OnceqError, StoreError
from onceq.client import ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq import App
    from onceq.locks import LockItem

SKEW_MS = 10_000
THREADS = 16


def lock(world: World, name: str = "report") -> LockItem:
    """Return a lock, which must be there."""
    item = stored_lock(world, name)
    assert item is not None
    return item


def test_a_block_holds_the_lock_and_releases_it(both_worlds: World) -> None:
    """For a minute, if nothing is said; a second one of the same name waits, one of another name does not."""
    world, app = both_worlds, both_worlds.app()

    with app.lock("report") as held:
        assert held.name == "report"
        assert lock(world).lease_expires_at == world.clock.now_ms() + 60_000
        with pytest.raises(LockBusy), app.lock("report"):
            pytest.fail("two at once")
        with app.lock("other"):
            pass
    assert lock(world).lease_expires_at == 0
    with app.lock("report", seconds=0.5):
        assert lock(world).lease_expires_at == world.clock.now_ms() + 500


def test_a_busy_lock_says_until_when(world: World) -> None:
    """`LockBusy.until` is when it is free by every clock, if its holder never comes back: then it is."""
    app = world.app()
    theirs = taken_by(world, "pay#k-1", "report", 25)

    with pytest.raises(LockBusy, match="report") as busy, app.lock("report"):
        pytest.fail("two at once")

    assert busy.value.until == theirs.lease_expires_at + SKEW_MS
    world.clock.advance((busy.value.until - world.clock.now_ms() - 1) / 1000)
    with pytest.raises(LockBusy), app.lock("report"):
        pytest.fail("a millisecond too early")
    world.clock.advance(0.001)
    with app.lock("report"):
        assert lock(world).holder != theirs.holder


def test_a_renewal_moves_the_end(world: World) -> None:
    """From now on, and not from the old end; others wait for the new one."""
    app = world.app()

    with app.lock("report", seconds=30) as held:
        world.clock.advance(20)
        assert held.renew(30) is True
        assert lock(world).lease_expires_at == world.clock.now_ms() + 30_000
        with pytest.raises(LockBusy) as busy, app.lock("report"):
            pytest.fail("two at once")
        assert busy.value.until == world.clock.now_ms() + 30_000 + SKEW_MS
        assert held.renew(1) is True
        assert lock(world).lease_expires_at == world.clock.now_ms() + 1_000


def test_a_renewal_within_the_same_millisecond_keeps_the_lock(world: World) -> None:
    """There is nothing to move, and that is no loss."""
    with world.app().lock("report", seconds=30) as held:
        assert held.renew(30) is True
    assert "lock.lost" not in world.names()


def test_a_lock_that_was_released_early_is_not_told_as_lost(world: World) -> None:
    """A block may give its lock back before its end, which then has nothing to do."""
    with world.app().lock("report") as held:
        held.release()
        assert lock(world).lease_expires_at == 0
    assert "lock.lost" not in world.names()


def test_the_end_of_a_block_leaves_alone_what_somebody_took_after_an_early_release(world: World) -> None:
    """The lock is theirs from then on."""
    with world.app().lock("report") as held:
        held.release()
        theirs = taken_by(world, "pay#k-1", "report", 60)
    assert lock(world) == theirs


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), SystemExit(1)], ids=lambda one: type(one).__name__
)
def test_a_block_that_raises_releases_its_lock(world: World, error: BaseException) -> None:
    """The exception goes on to the caller."""
    with pytest.raises(type(error)), world.app().lock("report"):
        raise error
    assert lock(world).lease_expires_at == 0


def test_a_block_that_took_too_long_leaves_the_next_holders_lock_alone(world: World) -> None:
    """Its time was over, somebody else is at work: the end of the block is told as lost, and changes nothing."""
    with world.app().lock("report", seconds=30) as held:
        world.clock.advance(41)
        theirs = taken_by(world, "pay#k-1", "report", 60)
        assert held.renew(60) is False

    assert lock(world) == theirs
    lost = [event.fields() for event in world.events if event.name == "lock.lost"]
    assert lost == [{"lock": "report", "reason": "its time was over, and somebody else took it"}] * 2


def test_two_blocks_of_one_application_are_two_holders(world: World) -> None:
    """Not by process and not by application: each block takes the lock for itself, so one inside the other waits."""
    app = world.app()

    with app.lock("report"):
        holder = lock(world).holder
    with app.lock("report"):
        assert lock(world).holder != holder


def test_a_job_may_hold_a_lock_for_a_part_of_its_work(world: World) -> None:
    """The lock is the block's, and not the job's: a job that finds it busy fails, and is retried as any other."""

    def body(_ctx: Any) -> None:
        with bench.app.lock("report", seconds=5):
            held.append(lock(world))

    held: list[LockItem] = []
    bench = Bench(world, body)
    taken_by(world, "somebody", "report", 30)

    assert bench.deliver()
    assert bench.record.error == "LockBusy: somebody else holds the lock 'report'"
    bench.later(40)
    assert not bench.deliver()
    assert bench.starts == [1, 2]
    assert [item.holder == "pay#k-1" for item in held] == [False]
    assert lock(world).lease_expires_at == 0


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "60", None])
def test_a_lock_without_a_usable_end_is_refused(world: World, seconds: Any) -> None:
    """A lock that never ends by itself would be nobody's to free: nothing was asked of the table."""
    with pytest.raises(ConfigurationError, match="seconds"), world.app().lock("report", seconds=seconds):
        pytest.fail("no lock")
    assert stored_lock(world, "report") is None


@pytest.mark.parametrize("name", ["", " ", None, 1.5])
def test_a_lock_without_a_usable_name_is_refused(world: World, name: Any) -> None:
    """A blank name would be everybody's lock."""
    with pytest.raises(OnceqError, match="lock"), world.app().lock(name):
        pytest.fail("no lock")


def test_a_table_that_does_not_answer_is_no_lock(world: World) -> None:
    """The block does not run: StoreError, and not LockBusy, since nobody is known to hold it."""
    client = faulty_locks(world.runtime)
    client.drop(ACQUIRE, times=ATTEMPTS)

    with pytest.raises(StoreError, match="PutItem was not answered"), world.app().lock("report"):
        pytest.fail("no lock")
    assert stored_lock(world, "report") is None


@pytest.mark.parametrize("fault", [FaultyClient.lose_response, FaultyClient.drop], ids=["lost", "dropped"])
def test_one_request_that_is_not_answered_changes_nothing(world: World, fault: Callable[..., None]) -> None:
    """G11: of taking, renewing and releasing the second try does it."""
    client = faulty_locks(world.runtime)
    fault(client, ACQUIRE)
    with world.app().lock("report", seconds=30) as held:
        world.clock.advance(1)
        fault(client, EXTEND)
        assert held.renew(60) is True
        fault(client, EXTEND)
    assert lock(world).lease_expires_at == 0
    assert "lock.lost" not in world.names()


def test_a_renewal_that_is_not_answered_says_so_and_does_not_raise(world: World) -> None:
    """Whoever asks decides what that means; the work goes on, and the release is tried all the same."""
    client = faulty_locks(world.runtime)
    with world.app().lock("report", seconds=30) as held:
        world.clock.advance(1)
        client.drop(EXTEND, times=ATTEMPTS)
        assert held.renew(60) is False
    assert lock(world).lease_expires_at == 0
    assert world.names().count("lock.lost") == 1


def test_of_many_that_ask_at_once_one_gets_the_lock(both_worlds: World) -> None:
    """At most one holder at a time: while it is held, the other fifteen are told how long."""
    world = both_worlds
    others_asked = threading.Barrier(THREADS)

    def ask(app: App) -> bool:
        try:
            with app.lock("report"):
                others_asked.wait(30)
                return True
        except LockBusy as busy:
            others_asked.wait(30)
            told.append(busy.until)
            return False

    told: list[int] = []
    apps = [world.app(runtime=Seams().process(world.runtime)) for _ in range(THREADS)]
    with eager_switching():
        got = all_at_once([lambda app=app: ask(app) for app in apps])  # type: ignore[misc]

    assert got.count(True) == 1
    assert told == [world.clock.now_ms() + 60_000 + SKEW_MS] * (THREADS - 1)
    assert lock(world).lease_expires_at == 0


def test_many_that_ask_again_and_again_are_never_two_at_work(both_worlds: World) -> None:
    """At most one holder at a time, over many acquisitions and releases."""
    world = both_worlds
    at_work: set[int] = set()
    overlaps: list[set[int]] = []
    done: list[int] = []

    def ask(number: int, app: App) -> None:
        for _ in range(6):
            with suppress(LockBusy), app.lock("report"):
                at_work.add(number)
                if len(at_work) > 1:
                    overlaps.append(set(at_work))
                time.sleep(0)  # another thread's turn
                at_work.discard(number)
                done.append(number)

    apps = [world.app(runtime=Seams().process(world.runtime)) for _ in range(THREADS)]
    with eager_switching():
        all_at_once([lambda number=number, app=app: ask(number, app) for number, app in enumerate(apps)])  # type: ignore[misc]

    assert overlaps == []
    assert done
    assert "lock.lost" not in world.names()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e300, 86_401, True])
def test_a_renewal_without_a_usable_end_is_refused(world: World, seconds: Any) -> None:
    """A number below zero would give the lock away, and a huge one keep it for ever."""
    with world.app().lock("report", seconds=30) as held:
        before = lock(world)
        with pytest.raises(ConfigurationError, match="seconds"):
            held.renew(seconds)
        assert lock(world) == before
