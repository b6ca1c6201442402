"""Locks in trouble: zombies, renewals that are refused, a table that does not answer, responses that never come."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import Bench
from kit.clock import FakeLambdaContext
from kit.faults import FaultyClient
from kit.locking import ACQUIRE, EXTEND, faulty_locks, holding, stored_lock, taken_by
from kit.seams import OneRenewalClock, Seams
from kit.world import event_of, kept
from onceq import Context, job
from onceq.client import ATTEMPTS
from onceq.record import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.faults import Call
    from kit.locking import LockClient
    from kit.seams import When
    from kit.world import World
    from onceq.locks import LockItem

LOSE, DROP = FaultyClient.lose_response, FaultyClient.drop
unheard = pytest.mark.parametrize("fault", [LOSE, DROP], ids=["applied, then lost", "never applied"])
SKEW_SECONDS = 10


def lock(world: World, name: str = "till") -> LockItem:
    """Return a lock, which must be there."""
    item = stored_lock(world, name)
    assert item is not None
    return item


@pytest.mark.parametrize("holder", ["pay#k-2", "pay#k-1"], ids=["another job", "its own next attempt"])
def test_a_zombies_release_does_not_touch_the_next_holders_lock(world: World, holder: str) -> None:
    """It names its own acquisition: also where the next holder is the same job's next attempt. It is told as lost."""
    theirs: list[LockItem] = []

    def body(_ctx: Context) -> None:
        bench.later(3_600)
        theirs.append(taken_by(world, holder, "till", 60))

    bench = Bench(world, body, lock="till")

    assert not bench.deliver()
    assert [lock(world)] == theirs
    assert bench.record.status is Status.COMPLETED
    (lost,) = bench.events("lock.lost")
    assert lost == {"lock": "till", "reason": "its time was over, and somebody else took it"}


@pytest.mark.parametrize("seconds", [0.001, 60, 86_400])
def test_a_zombies_renewal_does_not_touch_the_next_holders_lock(world: World, seconds: float) -> None:
    """Nor does a renewal; the zombie is told that it holds the lock no longer."""
    said: list[str] = []
    mine = holding(world, taken_by(world, "pay#k-1", "till", 60), said.append)
    world.clock.advance(60 + SKEW_SECONDS)
    theirs = taken_by(world, "pay#k-2", "till", 60)

    assert mine.renew(seconds) is False
    assert lock(world) == theirs
    assert said == ["its time was over, and somebody else took it"]


def test_a_lock_whose_time_is_over_is_still_its_holders_while_nobody_took_it(world: World) -> None:
    """A late renewal is better than none: nobody else is at work."""
    mine = holding(world, taken_by(world, "pay#k-1", "till", 60), pytest.fail)
    world.clock.advance(600)

    assert mine.renew(60) is True
    assert lock(world).lease_expires_at == world.clock.now_ms() + 60_000


class Renewing:
    """A job outside Lambda whose claim and lock are renewed once while it runs; it ends when that is over.

    Attributes:
        ends: The end of the claim's lease and of the lock, as the job finds them.
        before_extend: Called between the claim's renewal and the lock's.
    """

    def __init__(self, world: World) -> None:
        """Start a process."""
        self.world = world
        self.ends: list[tuple[int | None, int]] = []
        self._over = threading.Event()
        self.before_extend: Callable[[], object] = lambda: None

        @job("pay", lock="till", max_duration=20)
        def pay(payload: dict[str, Any], ctx: Context) -> None:
            assert self._over.wait(20)
            record = world.record("pay", "k-1")
            assert record is not None
            self.ends.append((record.lease_expires_at, lock(world).lease_expires_at))

        def watch(method: str, when: When) -> None:
            if (method, when) == ("acquire", "after"):
                world.clock.advance(5)
            if (method, when) == ("renew", "after"):
                self.before_extend()

        seams = Seams(watch=watch)
        clock = _SecondWait(world.clock, self._over.set)
        self.app = world.app(pay, runtime=seams.process(world.runtime, clock=clock))

    def deliver(self) -> bool:
        """Deliver the message; return whether it was kept."""
        return kept(self.app.consumer(event_of(self.world.message("pay")), None)) != []


class _SecondWait(OneRenewalClock):
    """Tells when the first renewal is over: the thread waits for the second one."""

    def __init__(self, clock: Any, told: Callable[[], object]) -> None:
        super().__init__(clock)
        self._told = told

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if self._waits == 1:
            self._told()
        return super().wait(event, seconds)


def test_a_lock_is_renewed_with_its_claim(world: World) -> None:
    """Outside Lambda both are short: five seconds later the renewal moves both ends by as much."""
    renewing = Renewing(world)

    assert not renewing.deliver()

    end = world.clock.now_ms() + 20_000
    assert renewing.ends == [(end, end)]
    assert lock(world).lease_expires_at == 0
    assert "lock.lost" not in world.names()


def test_a_job_goes_on_without_its_lock_where_the_renewal_is_refused(world: World) -> None:
    """A lock proves nothing: its loss is told, the claim is renewed and completed, and theirs stays as it is."""
    renewing = Renewing(world)
    theirs: list[LockItem] = []

    def taken() -> None:
        world.dynamodb.delete_item(TableName=world.settings.claims_table, Key={"pk": {"S": "~lock#till"}})
        theirs.append(taken_by(world, "pay#k-2", "till", 60))

    renewing.before_extend = taken

    assert not renewing.deliver()
    assert [lock(world)] == theirs
    record = world.record("pay", "k-1")
    assert record is not None
    assert (record.status, record.version) == (Status.COMPLETED, 3)
    lost = {event.fields()["reason"] for event in world.events if event.name == "lock.lost"}
    assert lost == {"its time was over, and somebody else took it"}


@unheard
def test_a_job_goes_on_where_the_renewal_of_its_lock_is_not_answered(world: World, fault: Callable[..., None]) -> None:
    """The claim is what counts, and is renewed; the loss is told with its cause, and the release is tried still."""
    client = faulty_locks(world.runtime)
    fault(client, EXTEND, times=ATTEMPTS)
    renewing = Renewing(world)

    assert not renewing.deliver()
    record = world.record("pay", "k-1")
    assert record is not None
    assert record.status is Status.COMPLETED
    lost = [event.fields()["reason"] for event in world.events if event.name == "lock.lost"]
    assert len(lost) == 1
    assert "UpdateItem was not answered" in lost[0]
    assert lock(world).lease_expires_at == 0


def test_on_lambda_a_lock_lasts_as_long_as_its_claim_and_is_not_renewed(world: World) -> None:
    """The process is killed when the time is over: nothing is to be renewed."""
    client = faulty_locks(world.runtime)
    bench = Bench(world, lock="till")
    bench.deliver()

    writes = [call for call in client.calls if call.method == EXTEND]
    assert [call.request["Key"]["pk"]["S"] for call in writes] == ["pay#k-1", "~lock#till"]
    assert lock(world).lease_expires_at == 0


def answered_late(client: LockClient, act: Callable[[], object]) -> None:
    """Let the next acquisition land at once, and something happen until it is answered."""

    def meet(call: Call) -> Any:
        answer = client.forward(call)
        act()
        return answer

    client.plan(ACQUIRE, meet)


@pytest.mark.parametrize(("seconds", "left"), [(6, 14_000), (7, 20_000), (19, 20_000)])
def test_a_lock_that_was_slow_to_get_leaves_the_job_a_lease(world: World, seconds: int, left: int) -> None:
    """Outside Lambda the first renewal comes after a third of a lease: both hold until then, and end together."""
    ends: list[tuple[int | None, int]] = []

    def body(_ctx: Context) -> None:
        ends.append((bench.record.lease_expires_at, lock(world).lease_expires_at))

    client = faulty_locks(world.runtime)
    bench = Bench(world, body, lock="till")
    answered_late(client, lambda: world.clock.advance(seconds))

    assert kept(bench.app.consumer(event_of(world.message("pay")), None)) == []
    assert ends == [(world.clock.now_ms() + left,) * 2]


def test_a_job_without_time_behind_its_lock_is_given_back_and_so_is_the_lock(world: World) -> None:
    """On Lambda the time may run short while the lock is asked for: nothing starts, no attempt is used."""
    client, context = faulty_locks(world.runtime), FakeLambdaContext()
    bench = Bench(world, lock="till")
    answered_late(client, lambda: setattr(context, "remaining_ms", 1_000))

    assert kept(bench.app.consumer(event_of(world.message("pay")), context)) != []
    assert bench.starts == []
    assert (bench.record.status, bench.record.attempts) == (Status.FAILED, 0)
    assert lock(world).lease_expires_at == 0
    assert "job.not_started" in world.names()


def test_a_job_whose_lock_cannot_be_asked_for_is_given_back(world: World) -> None:
    """The table does not answer: nothing starts, the message is kept, no attempt is used."""
    client = faulty_locks(world.runtime)
    client.drop(ACQUIRE, times=ATTEMPTS)
    bench = Bench(world, lock="till")

    assert bench.deliver()
    assert bench.starts == []
    record = bench.record
    assert (record.status, record.attempts) == (Status.FAILED, 0)
    (faulted,) = bench.events("message.faulted")
    assert "PutItem was not answered" in faulted["reason"]
    assert "lock.busy" not in world.names()

    assert not bench.deliver()
    assert bench.starts == [1]


def test_a_job_whose_lock_is_refused_by_the_service_is_given_back(world: World) -> None:
    """A missing permission is not a busy lock: it is told as a fault, and nothing is lost."""
    client = faulty_locks(world.runtime)
    client.refuse(ACQUIRE, "AccessDeniedException")
    bench = Bench(world, lock="till")

    assert bench.deliver()
    assert (bench.record.status, bench.record.attempts) == (Status.FAILED, 0)
    assert "AccessDeniedException" in bench.events("message.faulted")[0]["reason"]


def test_a_job_that_can_neither_be_locked_nor_given_back_goes_stale_unstarted(world: World) -> None:
    """The whole table is gone for a while: the claim is left leased, and taken over later."""
    client = faulty_locks(world.runtime)
    client.drop(ACQUIRE, times=ATTEMPTS)
    FaultyClient.plan(client, "release", _unreachable, times=ATTEMPTS)
    bench = Bench(world, lock="till")

    assert bench.deliver()
    assert bench.starts == []
    assert bench.record.status is Status.PROCESSING
    bench.later()
    assert not bench.deliver()
    assert bench.starts == [2]


def _unreachable(_call: object) -> None:
    from botocore.exceptions import EndpointConnectionError

    raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


@unheard
@pytest.mark.parametrize("times", [1, ATTEMPTS - 1])
def test_a_response_of_the_acquisition_that_is_lost_is_no_lock_that_is_busy(
    world: World, fault: Callable[..., None], times: int
) -> None:
    """G11: sent again it is the same acquisition; the job runs under it, and it is released."""
    client = faulty_locks(world.runtime)
    fault(client, ACQUIRE, times=times)
    bench = Bench(world, lock="till")

    assert not bench.deliver()
    assert bench.starts == [1]
    assert lock(world).lease_expires_at == 0
    assert "lock.busy" not in world.names()


def test_a_lock_whose_acquisition_was_never_answered_is_got_by_the_jobs_own_retry(world: World) -> None:
    """It landed, and nobody heard: others wait for it until it ends, the job itself does not."""
    client = faulty_locks(world.runtime)
    client.lose_response(ACQUIRE, times=ATTEMPTS)
    bench = Bench(world, lock="till")

    assert bench.deliver()
    held = lock(world)
    assert held.holder == "pay#k-1"
    assert held.lease_expires_at > world.clock.now_ms()
    assert bench.deliver(key="k-2")
    assert not bench.deliver()
    assert bench.starts == [1]


def test_a_response_of_the_release_that_is_lost_is_no_lock_that_is_lost(world: World) -> None:
    """G11: sent again it changes nothing; nothing is told, and the lock is free."""
    client = faulty_locks(world.runtime)
    client.lose_response(EXTEND)
    bench = Bench(world, lock="till")

    assert not bench.deliver()
    assert lock(world).lease_expires_at == 0
    assert "lock.lost" not in world.names()


@unheard
def test_a_release_that_is_never_answered_costs_the_job_nothing(world: World, fault: Callable[..., None]) -> None:
    """The job is completed and acknowledged; where the lock was not released it ends by itself, and that is told."""
    client = faulty_locks(world.runtime)
    fault(client, EXTEND, times=ATTEMPTS)
    bench = Bench(world, lock="till")

    assert not bench.deliver()
    assert bench.record.status is Status.COMPLETED
    (lost,) = bench.events("lock.lost")
    assert lost["lock"] == "till"
    assert "UpdateItem was not answered" in lost["reason"]
    assert (lock(world).lease_expires_at == 0) is (fault is LOSE)
    bench.later()
    assert not bench.deliver(key="k-2")


def test_a_renewal_that_is_still_on_its_way_when_the_job_ends_does_not_take_the_lock_again(world: World) -> None:
    """A late write changes nothing: behind the release it finds a lock that is nobody's, and leaves it so."""
    client = faulty_locks(world.runtime)
    client.hold_back(EXTEND, times=ATTEMPTS)
    mine = holding(world, taken_by(world, "pay#k-1", "till", 60), lambda _reason: None)
    mine.renew(600)
    mine.release()

    assert client.land() == [False] * ATTEMPTS
    assert lock(world).lease_expires_at == 0
    taken_by(world, "pay#k-2", "till", 60)


def test_an_acquisition_that_lands_late_keeps_others_waiting_and_harms_no_job(world: World) -> None:
    """The request of a dead attempt arrives when its job is done: the lock is taken by nobody, and ends by itself."""
    client = faulty_locks(world.runtime)
    client.hold_back(ACQUIRE, times=ATTEMPTS)
    bench = Bench(world, lock="till")
    assert bench.deliver()
    assert not bench.deliver()

    client.land()

    end = lock(world).lease_expires_at
    assert bench.deliver(key="k-2")
    world.clock.advance((end - world.clock.now_ms()) / 1000 + SKEW_SECONDS)
    assert not bench.deliver(key="k-2")


def test_an_attempt_that_could_not_be_recorded_releases_its_lock(world: World) -> None:
    """The job is over, whatever its record says: its claim goes stale, its lock does not wait for that."""
    client = faulty_locks(world.runtime)
    FaultyClient.plan(client, "complete", _unreachable, times=ATTEMPTS)
    bench = Bench(world, lock="till")

    assert bench.deliver()
    assert bench.record.status is Status.PROCESSING
    assert lock(world).lease_expires_at == 0
