"""G9, jobs: an AT_MOST_ONCE job is started once, whoever comes after it; what is not known goes to a person."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import PAST_LEASE, Bench
from kit.claims import Worker, pass_lease, stored
from kit.clock import FakeLambdaContext
from kit.faults import faulty_dynamodb
from kit.racing import all_at_once
from kit.seams import Seams, SimulatedCrash
from kit.world import event_of, kept
from onceq import Context, Reject, Retry, Semantics, Snooze
from onceq.client import ATTEMPTS
from onceq.decision import Ended
from onceq.errors import ClaimLost, StoreUnavailable
from onceq.record import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

ONCE, LEAST = Semantics.AT_MOST_ONCE, Semantics.AT_LEAST_ONCE
YEAR = 366 * 86_400


def raising(error: BaseException) -> Callable[[Bench], object]:
    """Return an end that raises."""

    def end(_bench: Bench) -> object:
        raise error

    return end


async def _for_ever() -> None:
    await asyncio.Event().wait()


@dataclass(frozen=True)
class End:
    """How the first start ends.

    Args:
        act: What the job does.
        status: What the record says after the message was delivered until it is not kept.
        again: Whether the job itself has said that it may start again.
        reason: What the record says of it.
    """

    act: Callable[[Bench], object]
    status: Status
    again: bool = False
    reason: str = ""


DIED = "the attempt never ended, and may start at most once: the job. The effect may have happened"
ENDS: dict[str, End] = {
    "dies": End(lambda bench: bench.die(), Status.UNCERTAIN, reason=DIED),
    "raises": End(
        raising(ValueError("no answer")),
        Status.UNCERTAIN,
        reason="an at-most-once job failed: ValueError: no answer",
    ),
    "exits": End(raising(SystemExit(3)), Status.UNCERTAIN, reason="an at-most-once job failed: SystemExit: 3"),
    "is cancelled at max_duration": End(
        lambda _bench: _for_ever(),
        Status.UNCERTAIN,
        reason="an at-most-once job failed: JobTimedOut: cancelled after max_duration, 0.05 s",
    ),
    "raises a permanent error": End(raising(LookupError("gone")), Status.REJECTED, reason="LookupError: gone"),
    "rejects": End(raising(Reject("no")), Status.REJECTED, reason="no"),
    "asks for a retry": End(raising(Retry(1)), Status.COMPLETED, again=True),
    "snoozes": End(raising(Snooze(1)), Status.COMPLETED, again=True),
    "returns": End(lambda _bench: "done", Status.COMPLETED),
}
every_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


def at_most_once(world: World, end: End, **options: Any) -> Bench:
    """Return a job whose first start ends so; every later one returns."""
    bench = Bench(world, semantics=ONCE, max_duration=0.05, reject=(LookupError,), **options)

    def body(_ctx: Context) -> object:
        bench.effects.append("pay")
        return end.act(bench) if len(bench.starts) == 1 else "done"

    bench.body = body
    return bench


def deliver_until_it_ends(bench: Bench) -> None:
    """Deliver, with new processes for those that die, until the message is not kept."""
    for _ in range(6):
        try:
            kept_still = bench.deliver()
        except SimulatedCrash:
            kept_still = True
            bench.start()
        if not kept_still:
            return
        bench.later()
    pytest.fail(f"still kept: {bench.record}")


@every_end
def test_an_at_most_once_job_is_started_once_unless_it_says_itself_that_it_may_be_again(world: World, end: End) -> None:
    """G9: count the starts over duplicates, redrives, recovery and a year; the person reads why."""
    bench = at_most_once(world, end)
    deliver_until_it_ends(bench)
    record = bench.record
    starts = 2 if end.again else 1

    assert (record.status, record.semantics, len(bench.starts)) == (end.status, ONCE, starts)
    assert record.error == (end.reason or None)
    ended = end.status is not Status.COMPLETED
    notes = bench.notes()
    assert [note["error"] for note in notes] == [end.reason] * ended
    assert [note["reason"] for note in notes] == [str(end.status)] * ended

    for seconds in (0, PAST_LEASE, 10 * 86_400):
        bench.later(seconds)
        assert not bench.deliver()
        if ended:
            assert not bench.redrive()
        bench.app.recovery(None, FakeLambdaContext())
        bench.release(semantics=ONCE)
    if end.status is Status.UNCERTAIN:
        bench.later(YEAR)
        assert not bench.deliver()
    assert len(bench.starts) == len(bench.effects) == starts
    assert bench.record == record


@every_end
def test_many_duplicates_of_an_ended_job_at_once_start_nothing(world: World, end: End) -> None:
    """G9: fifteen duplicates at once, and the sweep beside them: what has ended stays as it ended."""
    bench = at_most_once(world, end)
    deliver_until_it_ends(bench)
    starts, record = list(bench.starts), bench.record
    app = world.app(bench.job_type)

    answers = all_at_once(
        [lambda: kept(app.consumer(event_of(world.message("pay")), FakeLambdaContext())) for _ in range(15)]
        + [lambda: [] if app.recovery(None, FakeLambdaContext())["scanned"] else ["nothing"]]
    )

    assert answers == [[]] * 16
    assert (bench.starts, bench.record) == (starts, record)


def test_many_takers_of_a_job_that_died_hold_it_once(world: World) -> None:
    """G9: sixteen deliveries find the same stale claim: one writes the hold, the others end the same way."""
    bench = at_most_once(world, ENDS["dies"])
    bench.deliver_dying()
    bench.later()
    apps = [world.app(bench.job_type, runtime=Seams().process(world.runtime)) for _ in range(16)]

    answers = all_at_once(
        [
            lambda app=app: kept(app.consumer(event_of(world.message("pay")), FakeLambdaContext()))  # type: ignore[misc]
            for app in apps
        ]
    )

    assert answers == [[]] * 16
    assert (bench.starts, bench.record.status, bench.record.version) == ([1], Status.UNCERTAIN, 2)
    before = [told["before"] for told in bench.events("job.held")]
    assert sorted(before) == [False] + [True] * 15


def test_many_deliveries_of_a_new_job_start_it_once(world: World) -> None:
    """G1, G9: sixteen that meet before the claim."""
    meet = threading.Barrier(16)
    bench = at_most_once(world, ENDS["returns"])

    def watch(method: str, when: str) -> None:
        if (method, when) == ("claim", "before"):
            meet.wait(30)

    apps = [world.app(bench.job_type, runtime=Seams(watch=watch).process(world.runtime)) for _ in range(16)]
    all_at_once(
        [
            lambda app=app: kept(app.consumer(event_of(world.message("pay")), FakeLambdaContext()))  # type: ignore[misc]
            for app in apps
        ]
    )

    assert bench.starts == [1]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["claim", "complete"])
def test_a_death_at_a_write_of_an_at_most_once_job_starts_it_at_most_once(world: World, method: str, when: Any) -> None:
    """G6, G9: before the claim nothing ran, so it runs; after the completion it is replayed; between, it is held."""
    bench = at_most_once(world, ENDS["returns"])

    assert bench.crash(method, when)
    bench.later()
    assert not bench.deliver()

    ran_first = method == "complete"
    completed = (method, when) in {("claim", "before"), ("complete", "after")}
    assert bench.record.status is (Status.COMPLETED if completed else Status.UNCERTAIN)
    assert bench.starts == ([1] if ran_first or completed else [])


def test_a_claim_that_nobody_answered_is_held_although_nothing_ran(world: World) -> None:
    """G9: the claim stands there and nobody can tell whether its owner started: a person is asked."""
    bench = at_most_once(world, ENDS["returns"])
    client = faulty_dynamodb(world.runtime)
    client.lose_response("claim", times=ATTEMPTS)

    assert bench.deliver()
    bench.later()
    assert not bench.deliver()
    assert (bench.starts, bench.record.status) == ([], Status.UNCERTAIN)


@pytest.mark.parametrize("lost", [True, False], ids=["applied, then lost", "never applied"])
def test_a_completion_that_is_not_known_to_be_recorded_starts_nothing_again(world: World, *, lost: bool) -> None:
    """G9: recorded after all, it is replayed; if not, effect done and not recorded, a person is asked."""
    bench = at_most_once(world, ENDS["returns"])
    client = faulty_dynamodb(world.runtime)
    (client.lose_response if lost else client.drop)("complete", times=ATTEMPTS)

    assert bench.deliver()
    assert len(bench.events("effect.not_recorded")) == 1
    bench.later()
    assert not bench.deliver()
    assert bench.record.status is (Status.COMPLETED if lost else Status.UNCERTAIN)
    assert bench.starts == [1]


@pytest.mark.parametrize("name", ["hold", "reject", "release"])
def test_an_end_that_cannot_be_written_starts_nothing_again(world: World, name: str) -> None:
    """G9: the claim is left leased and goes stale; also where the job asked for a retry that nobody could record."""
    ends = {"hold": ENDS["raises"], "reject": ENDS["rejects"], "release": ENDS["asks for a retry"]}
    bench = at_most_once(world, ends[name])
    faulty_dynamodb(world.runtime).drop(name, times=ATTEMPTS)

    assert bench.deliver()
    bench.later()
    assert not bench.deliver()
    assert (bench.starts, bench.record.status, bench.record.error) == ([1], Status.UNCERTAIN, DIED)


def test_a_job_that_was_claimed_and_never_started_is_started(world: World) -> None:
    """A claim that is given back says that nothing ran: it costs no start, and nobody is bothered."""
    context = FakeLambdaContext()

    def watch(method: str, when: str) -> None:
        if (method, when) == ("claim", "after"):
            context.remaining_ms = 0

    bench = at_most_once(world, ENDS["returns"])
    app = world.app(bench.job_type, runtime=Seams(watch=watch).process(world.runtime))

    assert kept(app.consumer(event_of(world.message("pay")), context)) != []
    assert (bench.starts, bench.record.status, bench.record.attempts) == ([], Status.FAILED, 0)
    assert not bench.deliver()
    assert (bench.starts, bench.record.status) == ([1], Status.COMPLETED)


def test_a_retry_counts_and_ends_when_attempts_are_used_up(world: World) -> None:
    """A job that always asks for another attempt is rejected, as any other one, and never started by a redrive."""
    bench = Bench(world, raising_body(Retry(1)), semantics=ONCE, max_attempts=2)

    assert bench.finish() == 2
    assert (bench.starts, bench.record.status) == ([1, 2], Status.REJECTED)
    assert not bench.redrive()
    assert bench.starts == [1, 2]


def raising_body(error: BaseException) -> Callable[[Context], object]:
    """Return a body that raises."""

    def body(_ctx: Context) -> object:
        raise error

    return body


def test_a_job_waiting_for_its_retry_is_never_forgotten(world: World) -> None:
    """G9: TTL may delete an ended record; one that waits would be started as new."""
    bench = Bench(world, raising_body(Retry(86_400)), semantics=ONCE)

    assert bench.deliver()
    assert (bench.record.status, bench.record.expires_at) == (Status.FAILED, None)


def test_the_sweep_holds_a_job_that_died(world: World) -> None:
    """G9: recovery obeys what the claim says: uncertain, and the next delivery goes to a person."""
    bench = at_most_once(world, ENDS["dies"])
    bench.deliver_dying()
    bench.later()

    done = bench.app.recovery(None, FakeLambdaContext())

    assert (done["uncertain"], done["failed"]) == (1, 0)
    assert bench.record.status is Status.UNCERTAIN
    assert not bench.deliver()
    assert (bench.starts, len(bench.notes())) == ([1], 1)


# A roll-out: what the job type says when its first start ends, what it says afterwards, and how often it may start.
ROLL_OUTS: list[tuple[Semantics, Semantics, str, Status, int]] = [
    (ONCE, LEAST, "dies", Status.UNCERTAIN, 1),
    (ONCE, LEAST, "raises", Status.UNCERTAIN, 1),
    (ONCE, LEAST, "rejects", Status.REJECTED, 1),
    (ONCE, LEAST, "asks for a retry", Status.COMPLETED, 2),
    (LEAST, ONCE, "dies", Status.UNCERTAIN, 1),
    (LEAST, ONCE, "rejects", Status.REJECTED, 1),
    (LEAST, ONCE, "asks for a retry", Status.COMPLETED, 2),
]


@pytest.mark.parametrize("sweep", ["never", "before", "after"])
@pytest.mark.parametrize(("before", "after", "name", "status", "starts"), ROLL_OUTS)
def test_a_roll_out_between_attempts_starts_no_at_most_once_job_twice(
    world: World, *, before: Semantics, after: Semantics, name: str, status: Status, starts: int, sweep: str
) -> None:
    """G9: the claim stores what its job type said, and the delivery knows what it says now: either of them holds.

    The sweep adds nothing to correctness: with it the job ends as without it.
    """
    bench = at_most_once(world, ENDS[name])
    bench.release(semantics=before)
    if name == "dies":
        bench.deliver_dying()
    else:
        bench.deliver()
    bench.later()
    if sweep == "before":
        bench.app.recovery(None, FakeLambdaContext())
    bench.release(semantics=after)
    if sweep == "after":
        bench.app.recovery(None, FakeLambdaContext())

    assert not bench.deliver()
    assert (bench.record.status, len(bench.starts)) == (status, starts)
    if status is Status.REJECTED:
        assert not bench.redrive()
        assert len(bench.starts) == starts


def test_an_older_release_does_not_open_what_may_start_once(world: World) -> None:
    """G9: a worker of the release before takes a retry over and dies: no release starts the job again."""
    bench = at_most_once(world, ENDS["asks for a retry"])
    assert bench.deliver()
    bench.later()
    bench.release(semantics=LEAST)
    bench.body = lambda _ctx: bench.die()
    bench.deliver_dying()
    bench.later()

    assert bench.record.semantics is ONCE
    assert not bench.deliver()
    assert (bench.record.status, bench.starts) == (Status.UNCERTAIN, [1, 2])


def test_a_job_that_has_become_at_most_once_is_held_from_its_next_attempt_on(world: World) -> None:
    """An attempt that failed under at-least-once was released for another one; that one is the last to be started."""
    bench = Bench(world, raising_body(ConnectionError()))
    assert bench.deliver()
    bench.later()
    bench.release(semantics=ONCE)

    assert not bench.deliver()
    assert (bench.starts, bench.record.status, bench.record.semantics) == ([1, 2], Status.UNCERTAIN, ONCE)
    assert not bench.deliver()
    assert bench.starts == [1, 2]


def test_a_hold_of_unknown_outcome_that_lands_late_changes_no_completion(world: World) -> None:
    """G2, G9: a taker gave the job to a person; the zombie completed it meanwhile, and that stands."""
    first, second = Worker.of(world), Worker.of(world)
    claim = first.take(semantics=ONCE)
    pass_lease(world)
    second.client.hold_back("hold", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        second.ask(semantics=ONCE)
    completed = claim.complete(world.clock.now_ms(), '"done"')

    assert second.client.land() == [False] * ATTEMPTS
    assert stored(world) == completed


def test_a_zombie_of_a_held_job_cannot_complete_it(world: World) -> None:
    """G2: once a person has been asked, the person decides; the zombie's completion is refused."""
    first, second = Worker.of(world), Worker.of(world)
    claim = first.take(semantics=ONCE)
    pass_lease(world)
    held = second.ask(semantics=ONCE)
    assert isinstance(held, Ended)

    with pytest.raises(ClaimLost):
        claim.complete(world.clock.now_ms(), '"done"')

    assert stored(world) == held.record
    assert held.record.status is Status.UNCERTAIN


def test_a_rejected_job_is_remembered_as_long_as_a_message_of_it_may_come(world: World) -> None:
    """G9: a short retention must not let a redrive of its copy, days later, start the job again."""
    bench = at_most_once(world, ENDS["rejects"])
    bench.release(semantics=ONCE, retention=timedelta(days=1))
    assert not bench.deliver()
    bench.later(2 * 86_400)

    assert not bench.redrive()
    assert (bench.record.status, bench.starts) == (Status.REJECTED, [1])
