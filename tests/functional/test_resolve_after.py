"""What follows a person's decision: duplicates, redrives, the next attempt and its steps, zombies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import Bench, left, put
from kit.claims import NOW, Worker, pass_lease, stored
from kit.clock import FakeLambdaContext
from kit.world import event_of
from onceq import Context, Reject, Semantics, job
from onceq.codec import MOST_LEVELS
from onceq.errors import ClaimLost, ResolveRefused
from onceq.record import Status
from onceq.resolving import RESOLVABLE, Decision
from onceq.steps import open_steps, read_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

ONCE = Semantics.AT_MOST_ONCE
resolvable = pytest.mark.parametrize("status", RESOLVABLE)


@pytest.fixture
def bench(world: World) -> Bench:
    """A job that pays once."""
    bench = Bench(world)
    bench.body = lambda _ctx: bench.effect("pay", "paid")()
    return bench


@pytest.mark.parametrize(
    ("result", "expected"), [(None, None), (0, 0), ("", ""), ((1, "a"), [1, "a"]), ({"id": 1}, {"id": 1})], ids=repr
)
def test_duplicates_of_a_job_that_is_done_get_the_persons_result(
    world: World, bench: Bench, result: Any, expected: Any
) -> None:
    """G3, G10: from now on it is a completed job like any other; nothing is started, nothing is copied."""
    put(world, left(Status.UNCERTAIN))

    got = bench.app.resolve("pay", "k-1", "done", result=result)

    assert (got.result, type(got.result)) == (expected, type(expected))
    assert [bench.deliver() for _ in range(3)] == [False] * 3
    assert (bench.starts, bench.notes(), len(bench.events("job.replayed"))) == ([], [], 3)
    with pytest.raises(ResolveRefused, match="is completed"):
        bench.app.resolve("pay", "k-1", "retry")


@pytest.mark.parametrize("result", [object(), float("nan"), "x" * 32_767], ids=["an object", "NaN", "too large"])
def test_a_result_that_cannot_be_stored_is_refused(world: World, bench: Bench, result: Any) -> None:
    """The person can give another one: nothing has happened yet, unlike where a job returned it."""
    seen = put(world, left(Status.UNCERTAIN))

    with pytest.raises(ResolveRefused, match="the result cannot be stored"):
        bench.app.resolve("pay", "k-1", "done", result=result)

    assert stored(world) == seen


@resolvable
def test_a_job_to_be_tried_again_is_started_by_the_next_message_as_its_first_attempt(
    world: World, bench: Bench, status: Status
) -> None:
    """Attempts from 0, at once whatever back-off there was; the record is the old one."""
    seen = put(world, left(status, not_before=NOW + 86_400_000, attempts=3, steps=None))
    bench.app.resolve("pay", "k-1", "retry")

    assert not bench.deliver()
    record = bench.record
    assert (bench.starts, record.status, record.created_at) == ([1], Status.COMPLETED, seen.created_at)
    assert record.fencing_token > seen.fencing_token


def test_a_retry_keeps_what_is_done_and_clears_what_is_open(world: World, bench: Bench) -> None:
    """G9: the person says that the open step did not happen: it is started once more; the finished one is not."""
    put(world, left(Status.UNCERTAIN))

    def body(ctx: Context) -> Any:
        charge = ctx.step("charge", bench.effect("charge"))
        return [charge, ctx.step("call", bench.effect("call", "yes"), semantics=ONCE)]

    bench.body = body
    bench.app.resolve("pay", "k-1", "retry", reason="the carrier has nothing")

    assert not bench.deliver()
    assert (bench.effects, bench.record.result) == (["call"], '["ch_1","yes"]')


def test_a_retry_takes_results_of_steps_that_are_known_to_be_done(world: World, bench: Bench) -> None:
    """The person found out what the step did: the next attempt gets that, and does not run it."""
    text = '{"call":{"started":1},"charge":{"not_stored":"too large"}}'
    put(world, left(Status.UNCERTAIN, steps=text))
    got: list[Any] = []

    def body(ctx: Context) -> None:
        got.append(ctx.step("charge", bench.effect("charge")))
        got.append(ctx.step("call", bench.effect("call"), semantics=ONCE))
        got.append(ctx.step("mail", bench.effect("mail", "sent")))

    bench.body = body
    bench.app.resolve("pay", "k-1", "retry", steps={"charge": {"id": "ch_1"}, "call": ("yes", None)})

    assert read_steps(stored(world).steps) == {
        "charge": {"result": {"id": "ch_1"}},
        "call": {"result": ["yes", None]},
    }
    assert not bench.deliver()
    assert (got, bench.effects) == ([{"id": "ch_1"}, ["yes", None], "sent"], ["mail"])


def test_a_retry_without_the_result_that_was_not_stored_is_uncertain_again(world: World, bench: Bench) -> None:
    """G10: the effect is done, so it is not run for its result; the person has to say what it was."""
    put(world, left(Status.UNCERTAIN, steps='{"charge":{"not_stored":"too large"}}'))
    bench.body = lambda ctx: ctx.step("charge", bench.effect("charge"))
    bench.app.resolve("pay", "k-1", "retry")

    assert not bench.deliver()
    assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, [])


def nested(levels: int) -> Any:
    """Return a list in a list in a list."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD_STEPS: dict[str, dict[Any, Any]] = {
    "not JSON": {"charge": object()},
    "too large": {"charge": "x" * 32_767},
    "too large together": {f"s{number}": "x" * 32_000 for number in range(9)},
    "no name": {"char ge": 1},
    "too deep to be read again": {"charge": nested(MOST_LEVELS)},
    "too deep, and another": {"charge": nested(MOST_LEVELS), "mail": 1},
}


@pytest.mark.parametrize("steps", BAD_STEPS.values(), ids=BAD_STEPS)
def test_results_of_steps_that_no_step_could_have_are_refused(
    world: World, bench: Bench, steps: dict[Any, Any]
) -> None:
    """Bad input: a clear error of this call, and the record stands."""
    seen = put(world, left(Status.UNCERTAIN))

    with pytest.raises(ResolveRefused, match="pay#k-1"):
        bench.app.resolve("pay", "k-1", "retry", steps=steps)

    assert stored(world) == seen


@pytest.mark.parametrize("decision", ["done", "reject"])
def test_results_of_steps_mean_nothing_to_another_decision(world: World, bench: Bench, decision: Decision) -> None:
    """Bad input: they would be lost without a word, and the person believes that they are recorded."""
    seen = put(world, left(Status.UNCERTAIN))

    with pytest.raises(ResolveRefused, match="steps"):
        bench.app.resolve("pay", "k-1", decision, steps={"charge": 1})

    assert stored(world) == seen


def test_an_at_most_once_job_is_started_once_more_and_then_held_again(world: World) -> None:
    """G9: a person's word is good for one start."""
    bench = Bench(world, semantics=ONCE)
    bench.body = lambda _ctx: bench.die()
    bench.deliver_dying()
    bench.later()
    assert not bench.deliver()
    assert bench.starts == [1]

    status = bench.app.resolve("pay", "k-1", "retry")
    assert stored(world).expires_at is None, "it is not forgotten while it waits"
    bench.deliver_dying()
    bench.later()
    assert not bench.deliver()
    assert (bench.starts, bench.record.status) == ([1, 1], Status.UNCERTAIN)
    assert not bench.redrive()
    assert bench.starts == [1, 1]
    assert bench.record.version > status.version
    bench.body = lambda _ctx: "done"
    bench.app.resolve("pay", "k-1", "retry")
    assert not bench.deliver()
    assert (bench.starts, bench.record.status) == ([1, 1, 1], Status.COMPLETED)


def test_a_zombie_of_a_resolved_job_changes_nothing(world: World) -> None:
    """G2: it wakes after the person decided; its completion, its step and its hold are refused."""
    zombie, taker = Worker.of(world), Worker.of(world)
    claim = zombie.take(semantics=ONCE)
    pass_lease(world)
    taker.ask(semantics=ONCE)
    bench = Bench(world, semantics=ONCE)
    bench.app.resolve("pay", "k-1", "retry")
    record = stored(world)

    writes: list[Callable[[], object]] = [
        lambda: claim.complete(world.clock.now_ms(), '"zombie"'),
        lambda: claim.step("call", {"result": 1}),
        lambda: claim.hold(error="zombie"),
    ]
    for write in writes:
        with pytest.raises(ClaimLost):
            write()
    assert stored(world) == record


def test_a_job_that_is_rejected_by_a_person_stays_so(world: World) -> None:
    """Duplicates end the same way with the person's words; a redrive of the older copy starts nothing."""
    bench = Bench(world, semantics=ONCE)
    bench.body = lambda _ctx: bench.effect("pay", OSError("no answer"))()
    assert not bench.deliver()
    bench.app.resolve("pay", "k-1", "reject", reason="cancelled by phone")

    assert not bench.redrive()
    assert not bench.deliver()
    assert (bench.starts, bench.record.status, bench.record.error) == ([1], Status.REJECTED, "cancelled by phone")
    assert {note["error"] for note in bench.notes()} == {"cancelled by phone"}


def test_the_copy_of_a_job_that_is_to_be_tried_again_may_be_redriven(world: World) -> None:
    """The usual way on: the message lies in the dead-letter queue, and its redrive is the next message."""
    bench = Bench(world, semantics=ONCE)
    bench.body = lambda _ctx: bench.effect("pay", OSError() if len(bench.starts) == 1 else "paid")()
    assert not bench.deliver()
    bench.app.resolve("pay", "k-1", "retry")

    assert not bench.redrive()
    assert (bench.starts, bench.record.result) == ([1, 1], '"paid"')


def test_a_job_is_found_under_its_earlier_names(world: World) -> None:
    """After a rename the person may use either name; the record keeps the oldest."""

    @job("pay_order", formerly=("charge", "pay"))
    def pay_order(payload: dict[str, Any]) -> None:
        raise Reject("no")

    app = world.app(pay_order)
    names: list[Any] = [pay_order, "pay_order", "charge", "pay"]
    for number, name in enumerate(names):
        app.consumer(event_of(world.message("pay", key=f"k-{number}")), FakeLambdaContext())
        assert app.resolve(name, f"k-{number}", "done").job_type == "pay"


@pytest.mark.parametrize(
    ("reason", "said"),
    [("", "a person decided so"), ("a\nb\x00c", "a b c"), ("x" * 2_000, "x" * 999 + "…")],
    ids=["none", "odd", "long"],
)
def test_the_reason_stands_in_the_record_as_text_that_everybody_takes(
    world: World, bench: Bench, reason: str, said: str
) -> None:
    """It is shown in the console, logged, and copied to the dead-letter queue."""
    put(world, left(Status.UNCERTAIN))

    assert bench.app.resolve("pay", "k-1", "reject", reason=reason).error == said
    assert not bench.deliver()
    assert bench.notes()[0]["error"] == said


def test_what_a_person_opened_again_shows_no_open_step(world: World, bench: Bench) -> None:
    """G9: the sweep and a taker go by the marks, so those that the person cleared must be gone."""
    put(world, left(Status.UNCERTAIN))
    bench.app.resolve("pay", "k-1", "retry")

    assert open_steps(stored(world).steps) == []
