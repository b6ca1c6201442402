"""G9, steps: an at-most-once step says first that it begins; found started and not finished, it is never run again."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import PAST_LEASE, Bench
from kit.claims import NOW, record_of
from kit.clock import FakeLambdaContext
from kit.faults import faulty_dynamodb
from kit.world import TABLE
from onceq import ClaimLost, Context, Reject, Retry, Semantics, Snooze
from onceq.record import Status
from onceq.steps import open_steps, read_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.seams import When
    from kit.world import World

ONCE = Semantics.AT_MOST_ONCE
DIED = "the attempt never ended, and may start at most once: call. The effect may have happened"


def calling(bench: Bench, effect: Callable[[], Any]) -> None:
    """Let the job charge, then call what takes no key, then mail."""

    def body(ctx: Context) -> Any:
        charge = ctx.step("charge", bench.effect("charge", 1))
        called = ctx.step("call", effect, semantics=ONCE)
        return [charge, called, ctx.step("mail", bench.effect("mail", 3))]

    bench.body = body


def dying_call(bench: Bench) -> Callable[[], None]:
    """Return an effect after which the process dies."""

    def call() -> None:
        bench.effects.append("call")
        bench.die()

    return call


def test_the_start_is_recorded_before_the_effect_and_the_end_after_it(world: World) -> None:
    """G9: the order of the requests is the promise."""
    bench = Bench(world)
    client = faulty_dynamodb(world.runtime)
    seen: list[Any] = []

    def call() -> str:
        seen.append((client.names(), read_steps(bench.record.steps)))
        return "yes"

    bench.body = lambda ctx: ctx.step("call", call, semantics=ONCE)

    assert not bench.deliver()
    assert seen == [(["claim", "step"], {"call": {"started": world.clock.now_ms()}})]
    assert [name for name in client.names() if name != "get_item"] == ["claim", "step", "step", "complete"]
    finished = client.calls[-2].request["ExpressionAttributeValues"][":new_steps"]["S"]
    assert read_steps(finished) == {"call": {"result": "yes"}}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2], ids=["its start", "its end"])
def test_a_death_at_a_write_of_the_step(world: World, number: int, when: When) -> None:
    """G9: not started, it runs; started and not finished, a person is asked; finished, it is replayed."""
    bench = Bench(world, lambda ctx: ctx.step("call", bench.effect("call", "yes"), semantics=ONCE))

    assert bench.crash("step", when, number)
    bench.later()
    assert not bench.deliver()

    started = (number, when) in {(1, "after"), (2, "before")}
    assert bench.record.status is (Status.UNCERTAIN if started else Status.COMPLETED)
    assert bench.effects == ([] if (number, when) == (1, "after") else ["call"])


def test_a_step_found_started_is_held_by_the_taker_before_the_job_runs(world: World) -> None:
    """G9: the record tells, so nothing of the job is started, and what was recorded before stays for the person."""
    bench = Bench(world)
    calling(bench, dying_call(bench))
    bench.deliver_dying()
    calling(bench, bench.effect("call again"))
    bench.later()

    assert not bench.deliver()
    record = bench.record
    assert (bench.starts, bench.effects) == ([1], ["charge", "call"])
    assert (record.status, record.error, record.expires_at) == (Status.UNCERTAIN, DIED, None)
    assert read_steps(record.steps)["charge"] == {"result": 1}
    (note,) = bench.notes()
    assert (note["reason"], note["error"], note["version"]) == ("uncertain", DIED, record.version)
    (held,) = bench.events("job.held")
    assert (held["reason"], held["before"]) == (DIED, False)


@pytest.mark.parametrize("end", [ConnectionError(), Retry(1), Snooze(1), SystemExit(1), None], ids=repr)
def test_a_step_that_still_runs_when_the_job_ends_holds_it(world: World, end: BaseException | None) -> None:
    """G9: begun in a thread and not ended: whatever the job says of itself, its effect is in doubt."""
    begun, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def call() -> None:
        bench.effects.append("call")
        begun.set()
        assert go_on.wait(20)

    def body(ctx: Context) -> str:
        def run() -> None:
            with pytest.raises(ClaimLost):
                ctx.step("call", call, semantics=ONCE)

        threads.append(threading.Thread(target=run))
        threads[0].start()
        assert begun.wait(20)
        if end is not None:
            raise end
        return "done"

    bench = Bench(world, body)

    assert not bench.deliver()
    go_on.set()
    threads[0].join(20)
    record = bench.record
    assert (record.status, open_steps(record.steps), record.expires_at) == (Status.UNCERTAIN, ["call"], None)
    assert str(record.error).startswith("an at-most-once step was started and is not known to have ended: call; ")
    assert not bench.redrive()
    assert (bench.record, bench.starts, bench.effects) == (record, [1], ["call"])


@pytest.mark.parametrize("status", [Status.FAILED, Status.PROCESSING])
def test_whatever_left_a_step_open_a_taker_holds_the_job_unstarted(world: World, status: Status) -> None:
    """G9: a failed record with an open step, as another release could have left it, is held like a stale one."""
    left = record_of(status, steps='{"call":{"started":1}}', lease_expires_at=NOW, not_before=NOW, attempts=1)
    world.dynamodb.put_item(TableName=TABLE, Item=replace(left, payload_fingerprint=None).to_item())
    bench = Bench(world)
    calling(bench, bench.effect("call"))
    bench.later()

    assert not bench.deliver()
    assert (bench.starts, bench.record.status, bench.record.error) == ([], Status.UNCERTAIN, DIED)


@pytest.mark.parametrize(
    "error", [ValueError("no answer"), TimeoutError(), SystemExit(2), KeyboardInterrupt()], ids=repr
)
def test_an_exception_out_of_the_step_is_uncertain_at_once_and_tells_its_cause(
    world: World, error: BaseException
) -> None:
    """G9: not retried; the reason, the trace and the note tell what was raised."""
    bench = Bench(world)
    calling(bench, bench.effect("call", error))

    assert not bench.deliver()
    said = f"the at-most-once step 'call' failed: {type(error).__name__}: {error}"
    assert (bench.record.status, bench.record.error) == (Status.UNCERTAIN, said)
    (held,) = bench.events("job.held")
    assert type(error).__name__ in held["trace"]
    assert bench.notes()[0]["error"].strip() == said.strip()
    for _ in range(2):
        bench.later()
        assert not bench.deliver()
        assert not bench.redrive()
    assert (bench.starts, bench.effects) == ([1], ["charge", "call"])


@pytest.mark.parametrize("error", [Retry(1), Snooze(1)], ids=["retry", "snooze"])
def test_a_step_that_says_that_nothing_happened_runs_again(world: World, error: Exception) -> None:
    """G9: the mark goes before the attempt ends; the finished steps before it stay finished."""
    bench = Bench(world)
    calling(bench, bench.effect("call", error))

    assert bench.deliver()
    assert (bench.record.status, read_steps(bench.record.steps)) == (Status.FAILED, {"charge": {"result": 1}})
    calling(bench, bench.effect("call", "yes"))
    bench.later()
    assert not bench.deliver()
    assert bench.effects == ["charge", "call", "call", "mail"]
    assert bench.record.result == '[1,"yes",3]'


def test_a_retry_that_the_job_handles_leaves_no_mark(world: World) -> None:
    """The job may do something else instead; the mark is gone, so nothing is uncertain."""

    def body(ctx: Context) -> str:
        try:
            ctx.step("call", bench.effect("call", Retry(1)), semantics=ONCE)
        except Retry:
            return "another way"
        return "called"

    bench = Bench(world, body)

    assert not bench.deliver()
    assert bench.record.result == '"another way"'


def test_a_reject_out_of_the_step_rejects_and_a_redrive_starts_nothing(world: World) -> None:
    """G9: Reject says how the job ends, not that nothing happened: its mark stays, and only a person opens it again."""
    bench = Bench(world)
    calling(bench, bench.effect("call", Reject("the number is not in use")))

    assert not bench.deliver()
    record = bench.record
    assert (record.status, open_steps(record.steps)) == (Status.REJECTED, ["call"])
    for _ in range(2):
        assert not bench.redrive()
    assert (bench.record, bench.starts, bench.effects) == (record, [1], ["charge", "call"])
    bench.app.resolve("pay", "k-1", "retry")
    calling(bench, bench.effect("call", "yes"))
    assert not bench.deliver()
    assert bench.effects == ["charge", "call", "call", "mail"]


def test_a_reject_that_the_job_swallows_is_uncertain(world: World) -> None:
    """G9: the step did not end, and the job does not say that it did: a person is asked, and nothing runs again."""

    def body(ctx: Context) -> str:
        try:
            ctx.step("call", bench.effect("call", Reject("no")), semantics=ONCE)
        except Reject:
            return "rejected"
        return "called"

    bench = Bench(world, body)

    assert [bench.deliver(), bench.deliver()] == [False, False]
    assert bench.record.error == (
        "an at-most-once step was started and is not known to have ended: call; the job returned"
    )
    assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, ["call"])


def test_a_record_with_an_open_step_does_not_expire_before_the_job_ends(world: World) -> None:
    """G9: TTL deletes whatever the status is; a record that is forgotten would let the step start again."""
    seen: list[int | None] = []

    def body(ctx: Context) -> Any:
        first = ctx.step("charge", bench.effect("charge"))
        seen.append(bench.record.expires_at)
        ctx.step("call", lambda: seen.append(bench.record.expires_at), semantics=ONCE)
        seen.append(bench.record.expires_at)
        if ctx.attempt == 1:
            raise ConnectionError
        return first

    bench = Bench(world, body)

    assert bench.deliver()
    seen.append(bench.record.expires_at)
    bench.later()
    assert not bench.deliver()
    assert seen == [NOW // 1000 + 60 * 86_400, None, None, None, None, None]
    assert bench.record.expires_at == world.clock.now_ms() // 1000 + 60 * 86_400


def test_the_sweep_holds_a_job_whose_step_was_started(world: World) -> None:
    """G9: recovery reads the mark as a taker does; a job without one is marked as failed."""
    bench = Bench(world)
    calling(bench, dying_call(bench))
    bench.deliver_dying(key="k-1")
    bench.body = lambda _ctx: bench.die()
    bench.deliver_dying(key="k-2")
    bench.later()

    done = bench.app.recovery(None, FakeLambdaContext())

    assert (done["uncertain"], done["failed"]) == (1, 1)
    assert bench.record.status is Status.UNCERTAIN
    assert open_steps(bench.record.steps) == ["call"]


def test_a_finished_step_does_not_hold_the_job(world: World) -> None:
    """Only what is open is uncertain: a job that dies after its step has ended is simply taken over."""
    bench = Bench(world)
    calling(bench, bench.effect("call", 2))
    body = bench.body

    def dying(ctx: Context) -> Any:
        got = body(ctx)
        if ctx.attempt == 1:
            bench.die()
        return got

    bench.body = dying
    bench.deliver_dying()
    bench.later()

    assert not bench.deliver()
    assert (bench.record.result, bench.effects) == ("[1,2,3]", ["charge", "call", "mail"])


def test_a_release_without_the_step_is_still_held_by_its_mark(world: World) -> None:
    """G9: the record tells what was started, whatever the new code calls."""
    bench = Bench(world)
    calling(bench, dying_call(bench))
    bench.deliver_dying()
    bench.release()
    bench.body = lambda ctx: "nothing to do any more"
    bench.later(PAST_LEASE)

    assert not bench.deliver()
    assert (bench.record.status, bench.record.error, bench.starts) == (Status.UNCERTAIN, DIED, [1])


def test_attempts_that_are_used_up_do_not_hide_that_a_step_was_started(world: World) -> None:
    """G9: a job that died on its last attempt, in the step, is uncertain and not rejected."""
    bench = Bench(world, max_attempts=1)
    calling(bench, dying_call(bench))
    bench.deliver_dying()
    bench.later()

    assert not bench.deliver()
    assert bench.record.status is Status.UNCERTAIN


def test_every_open_step_is_named(world: World) -> None:
    """The person reads which effects are in doubt."""

    def body(ctx: Context) -> None:
        def outer() -> None:
            ctx.step("fax", dying_call(bench), semantics=ONCE)

        ctx.step("call", outer, semantics=ONCE)

    bench = Bench(world, body)
    bench.deliver_dying()
    bench.later()

    assert not bench.deliver()
    assert "may start at most once: call, fax." in str(bench.record.error)
