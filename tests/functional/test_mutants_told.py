"""What is told of each turn that a job takes, word by word: only mutants showed that much of it was untested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import Bench
from kit.locking import stored_lock
from kit.seams import Seams
from kit.world import event_of, kept
from onceq import Context, JobType, Reject, Retry
from onceq.errors import StoreUnavailable
from onceq.record import Semantics

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.seams import When
    from kit.world import World

TURNS = ("job.", "message.", "effect.", "claim.")


def told(bench: Bench) -> list[tuple[str, int | None]]:
    """Return what was told since the last time: the names, with the attempt that each is of."""
    found = [(each.name, each.fields().get("attempt")) for each in bench.world.events if each.name.startswith(TURNS)]
    bench.world.events.clear()
    return found


def raising(*errors: Exception | None) -> Callable[[Context], Any]:
    """Return a job whose attempts end so, one after the other."""

    def body(ctx: Context) -> str:
        error = errors[ctx.attempt - 1]
        if error is not None:
            raise error
        return "done"

    return body


def test_a_retry_a_completion_and_a_duplicate_are_told(world: World) -> None:
    """A job that failed is retried, and not taken over; its duplicate is a replay; each names attempt and claimant."""
    bench = Bench(world, raising(Retry(delay=5), None))

    assert bench.deliver()
    assert told(bench) == [("job.started", 1), ("job.released", 1)]
    assert bench.deliver()
    assert told(bench) == [("job.deferred", None)]
    bench.later()
    assert not bench.deliver()
    claimants = {event.fields().get("claimant") for event in bench.world.events if event.name.startswith("job.")}
    assert claimants == {bench.record.claimant}
    assert told(bench) == [("job.retried", 2), ("job.started", 2), ("job.completed", 2)]
    assert not bench.deliver()
    assert told(bench) == [("job.replayed", 2)]


def test_a_take_over_is_told_with_whom_it_was_taken_from(world: World) -> None:
    """A job whose claimant died is taken over, and not retried."""
    bench = Bench(world)
    bench.crash("complete", "before")
    dead = bench.record.claimant
    told(bench)
    bench.later()

    assert not bench.deliver()

    (taken,) = bench.events("job.taken_over")
    assert (taken["previous_claimant"], taken["previous_status"]) == (dead, "processing")
    assert told(bench) == [("job.taken_over", 2), ("job.started", 2), ("job.completed", 2)]


@pytest.mark.parametrize(
    ("options", "name"),
    [({}, "job.rejected"), ({"semantics": Semantics.AT_MOST_ONCE}, "job.held")],
    ids=["rejected", "held"],
)
def test_an_end_without_a_result_is_told_when_it_comes_and_again_as_one_of_before(
    world: World, options: dict[str, Any], name: str
) -> None:
    """Whoever counts what ended must not count its duplicates; the note says how often the job had started, and why."""
    error = Reject("no card") if name == "job.rejected" else ValueError("no card")
    bench = Bench(world, raising(error), **options)

    for before in (False, True):
        assert not bench.deliver()
        (end,) = bench.events(name)
        assert (end["before"], end["attempt"]) == (before, 1)
        assert "no card" in end["reason"]
        assert [turn for turn, _ in told(bench)] == [
            *([] if before else ["job.started"]),
            name,
            "message.dead_lettered",
        ]
    for note in bench.notes():
        assert (note["attempts"], note["version"]) == (1, bench.record.version)
        assert "no card" in note["error"]


@pytest.mark.parametrize(("seconds", "overran"), [(20, False), (20.001, True)], ids=["just in time", "a moment late"])
def test_a_job_overran_when_it_took_longer_than_it_declared(world: World, seconds: float, *, overran: bool) -> None:
    """To the moment; how long it took is told with its completion."""
    bench = Bench(world, lambda _ctx: world.clock.advance(seconds))

    bench.deliver()

    assert [event["seconds"] for event in bench.events("job.overran")] == ([seconds] if overran else [])
    assert [event["seconds"] for event in bench.events("job.completed")] == [seconds]


def test_what_is_not_started_and_why_is_told(world: World) -> None:
    """A key that another payload has, and a job type whose time no function has, are told by their messages."""
    bench = Bench(world)
    bench.deliver()
    told(bench)

    bench.deliver(payload={"another": "payload"})
    (refused,) = bench.events("message.refused")
    assert refused["reason"].startswith("key reuse: ")
    bench.world.events.clear()
    bench.release(max_duration=800)
    assert bench.deliver(key="k-2")

    (unserved,) = bench.events("message.unserved")
    assert unserved["reason"].startswith("pay needs ")
    assert told(bench) == [("message.unserved", None)]


def test_a_key_is_a_job_of_its_own(world: World) -> None:
    """G1: two keys of one job type are two jobs, and each has the attempts that the job type declares."""
    bench = Bench(world, raising(ValueError("one"), ValueError("two"), ValueError("three")), max_attempts=3)

    assert bench.finish() == 3
    assert bench.deliver(key="k-2")

    assert bench.starts == [1, 2, 3, 1]
    assert bench.notes()[0]["attempts"] == 3


def test_a_table_that_does_not_answer_is_told_as_that_and_as_no_fault_of_ours(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G4: nothing ran and the message is kept; a trace would send a person to look for a mistake that is none."""
    bench = Bench(world)

    def claim(*_: object, **__: object) -> None:
        message = "PutItem was not answered"
        raise StoreUnavailable(message)

    monkeypatch.setattr("onceq.claim.claim", claim)

    assert bench.deliver()
    (fault,) = bench.events("message.faulted")
    assert fault["reason"] == "PutItem was not answered"
    assert "trace" not in fault
    assert told(bench) == [("message.faulted", None)]


def test_a_lock_is_held_as_long_as_the_claim_that_a_slow_table_shortened(world: World) -> None:
    """The first renewal comes after a third of a lease: until then both must hold, the lock as well as the claim."""
    ends: list[int] = []

    def act(payload: dict[str, Any]) -> None:
        lock, record = stored_lock(world, "night"), world.record("act", "k-1")
        assert lock is not None
        assert record is not None
        ends.extend([lock.lease_expires_at, record.lease_expires_at or 0])

    def watch(method: str, when: When) -> None:
        if (method, when) == ("claim", "after"):
            world.clock.advance(15)

    process = Seams(watch=watch).process(world.runtime)
    app = world.app(JobType(act, "act", max_duration=20, lock="night"), runtime=process)

    assert kept(app.consumer(event_of(world.message("act")))) == []
    assert ends == [world.clock.now_ms() + 20_000] * 2


def test_an_effect_whose_record_is_not_known_is_told_by_what_the_job_did(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6: whoever reads the log learns that the job returned, and why that may not be recorded."""
    bench = Bench(world)

    def complete(*_: object, **__: object) -> None:
        message = "UpdateItem was not answered"
        raise StoreUnavailable(message)

    monkeypatch.setattr("onceq.claim.Claim.complete", complete)

    assert bench.deliver()
    assert [event["error"] for event in bench.events("effect.not_recorded")] == ["UpdateItem was not answered"]
    assert [event["reason"] for event in bench.events("message.faulted")] == [
        "the job returned, and it is not known to be recorded: UpdateItem was not answered"
    ]


def test_a_job_whose_claimants_die_has_the_attempts_that_it_declares(world: World) -> None:
    """G6: who takes it over counts the starts that never ended, and rejects it when none is left."""
    bench = Bench(world, max_attempts=2)
    for _ in range(2):
        bench.crash("complete", "before")
        bench.later()

    assert not bench.deliver()
    assert bench.starts == [1, 2]
    assert [note["attempts"] for note in bench.notes()] == [2]
