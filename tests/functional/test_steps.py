"""Steps through the whole of a job: what is recorded is not run again, and what cannot be goes on to a person."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import Bench
from onceq import ClaimLost, Context, Reject, Retry, Semantics, Snooze
from onceq.errors import StepNotRecorded, StepRefused, StepUncertain
from onceq.record import Status
from onceq.steps import open_steps, read_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

ONCE = Semantics.AT_MOST_ONCE


@dataclass(frozen=True)
class Charge:
    """A result as users write them."""

    id: str
    cents: tuple[int, int]


# What a step returns, and what everybody gets: its JSON, decoded.
VALUES: dict[str, tuple[Any, Any]] = {
    "zero": (0, 0),
    "empty text": ("", ""),
    "None": (None, None),
    "empty list": ([], []),
    "false": (False, False),
    "nested": ({"a": [{"b": None}, 1.5]}, {"a": [{"b": None}, 1.5]}),
    "tuple": ((1, "a"), [1, "a"]),
    "dataclass": (Charge("ch_1", (5, 7)), {"id": "ch_1", "cents": [5, 7]}),
    "set": ({2, 1}, [1, 2]),
    "a large int": (2**70 + 1, 2**70 + 1),
    "what a state looks like": ({"started": 1, "not_stored": "x"}, {"started": 1, "not_stored": "x"}),
}


@pytest.mark.parametrize(("value", "expected"), VALUES.values(), ids=VALUES)
def test_the_first_value_of_a_step_is_the_replayed_value(world: World, value: Any, expected: Any) -> None:
    """G10: a later attempt gets the stored result, which is what the first attempt got, and the effect is not run."""
    got: list[Any] = []

    def body(ctx: Context) -> None:
        got.append(ctx.step("charge", bench.effect("charge", value)))
        if ctx.attempt == 1:
            raise ConnectionError

    bench = Bench(world, body)

    assert bench.finish() == 2
    assert got == [expected, expected]
    assert type(got[0]) is type(got[1]) is type(expected)
    assert bench.effects == ["charge"]
    assert [(told["step"], told["attempt"]) for told in bench.events("step.replayed")] == [("charge", 2)]


def test_a_step_is_one_write_and_its_record_goes_with_the_completion(world: World) -> None:
    """Section 6: a write for each step; the completed record keeps the result and not the steps."""
    seen: list[str | None] = []

    def body(ctx: Context) -> Any:
        first = ctx.step("charge", bench.effect("charge", {"id": 1}))
        seen.append(bench.record.steps)
        second = ctx.step("mail", bench.effect("mail"))
        seen.append(bench.record.steps)
        return [first, second]

    bench = Bench(world, body)

    assert not bench.deliver()
    assert [read_steps(text) for text in seen] == [
        {"charge": {"result": {"id": 1}}},
        {"charge": {"result": {"id": 1}}, "mail": {"result": None}},
    ]
    record = bench.record
    assert (record.status, record.result, record.steps, record.version) == (
        Status.COMPLETED,
        '[{"id":1},null]',
        None,
        4,
    )


@pytest.mark.parametrize(
    "end",
    [ConnectionError(), Retry(1), Snooze(1), SystemExit(1)],
    ids=["an exception", "a retry", "a snooze", "an exit"],
)
def test_steps_are_carried_over_however_the_attempt_ended(world: World, end: BaseException) -> None:
    """G6: only what was not recorded is run by the next attempt."""

    def body(ctx: Context) -> Any:
        number = len(bench.starts)
        got = [ctx.step("one", bench.effect("one", 1))]
        if number == 1:
            raise end
        got.append(ctx.step("two", bench.effect("two", 2)))
        if number == 2:
            raise end
        return got

    bench = Bench(world, body)

    assert bench.finish() == 3
    assert bench.effects == ["one", "two"]
    assert bench.record.result == "[1,2]"


def test_a_redriven_job_does_not_repeat_its_finished_steps(world: World) -> None:
    """G6: a rejected job keeps its steps; the redrive begins with attempt 1 and with what is recorded."""

    def body(ctx: Context) -> None:
        ctx.step("charge", bench.effect("charge"))
        if len(bench.starts) == 1:
            raise Reject("the address is wrong")
        ctx.step("ship", bench.effect("ship"))

    bench = Bench(world, body)
    assert not bench.deliver()
    assert bench.record.status is Status.REJECTED

    assert not bench.redrive()
    assert (bench.starts, bench.effects) == ([1, 1], ["charge", "ship"])


def test_a_step_of_another_job_is_another_step(world: World) -> None:
    """Names are the job's own."""
    bench = Bench(world, lambda ctx: ctx.step("charge", bench.effect("charge", ctx.key)))

    assert not bench.deliver(key="k-1")
    assert not bench.deliver(key="k-2")
    assert bench.effects == ["charge", "charge"]


def test_a_name_used_twice_fails_the_job_until_its_attempts_are_used_up(world: World) -> None:
    """Bad input: the second use is an error that names the step; the effect is not repeated meanwhile."""

    def body(ctx: Context) -> None:
        ctx.step("charge", bench.effect("charge", 1))
        ctx.step("charge", bench.effect("charge again", 2))

    bench = Bench(world, body, max_attempts=3)

    assert bench.finish() == 3
    assert (bench.starts, bench.effects) == ([1, 2, 3], ["charge"])
    (note,) = bench.notes()
    assert note["reason"] == "rejected"
    assert "StepRefused: the step 'charge' was begun before in this attempt" in note["error"]


def test_a_name_that_is_none_fails_the_job_with_the_rule(world: World) -> None:
    """Bad input: the reason says what a name is, and nothing was run under it."""
    bench = Bench(world, lambda ctx: ctx.step("no name", bench.effect("charge")), max_attempts=1)

    assert not bench.deliver()
    assert bench.effects == []
    (note,) = bench.notes()
    assert "ValueError: the effect's name 'no name': give 1 to 100 letters" in note["error"]


@pytest.mark.parametrize("value", [object(), "x" * 40_000], ids=["not JSON", "too large"])
@pytest.mark.parametrize("semantics", Semantics)
def test_a_result_that_cannot_be_stored_ends_the_job_uncertain_and_is_never_run_again(
    world: World, value: Any, semantics: Semantics
) -> None:
    """G10: recorded as done, then a person: not by a duplicate, not by a redrive, not by a retry of the person's."""

    def body(ctx: Context) -> None:
        ctx.step("charge", bench.effect("charge", value), semantics=semantics)
        bench.effects.append("after")

    bench = Bench(world, body)

    assert not bench.deliver()
    record = bench.record
    assert (record.status, record.attempts, record.expires_at) == (Status.UNCERTAIN, 1, None)
    assert list(read_steps(record.steps)["charge"]) == ["not_stored"]
    (note,) = bench.notes()
    assert note["reason"] == "uncertain"
    assert "the step 'charge' is done, and its result is not stored" in note["error"]
    assert (note["key"], note["version"]) == ("k-1", record.version)
    (held,) = bench.events("job.held")
    assert (held["reason"], held["before"]) == (record.error, False)

    assert not bench.deliver()
    assert not bench.redrive()
    assert bench.record == record
    bench.app.resolve("pay", "k-1", "retry")
    assert not bench.deliver()
    assert bench.record.status is Status.UNCERTAIN
    assert bench.effects == ["charge"]


def test_the_limit_of_the_settings_holds_for_steps(world: World) -> None:
    """ONCEQ_RESULT_LIMIT: what a completion would not store, a step does not either."""
    world.runtime._given = replace(world.settings, result_limit=50)
    bench = Bench(world, lambda ctx: ctx.step("charge", bench.effect("charge", "x" * 49)))

    assert not bench.deliver()
    assert bench.record.error == (
        "the step 'charge' is done, and its result is not stored: too large: 51 bytes, and at most 50 are stored"
    )


def test_two_steps_in_threads_are_both_recorded(world: World) -> None:
    """A job's own writes are serialised: whichever ends first, none overwrites the other."""
    meet = threading.Barrier(2)

    def body(ctx: Context) -> Any:
        def run(name: str) -> Any:
            def effect() -> str:
                meet.wait(20)
                bench.effects.append(name)
                return name

            return ctx.step(name, effect)

        if ctx.attempt == 2:
            return [ctx.step(name, bench.effect("again")) for name in ("one", "two")]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, ("one", "two")))
        raise ConnectionError

    bench = Bench(world, body)

    assert bench.finish() == 2
    assert sorted(bench.effects) == ["one", "two"]
    assert bench.record.result == '["one","two"]'


def test_eight_steps_in_threads_are_all_recorded(world: World) -> None:
    """The same for many, at-most-once ones among them."""

    def body(ctx: Context) -> None:
        def run(number: int) -> Any:
            semantics = ONCE if number % 2 else Semantics.AT_LEAST_ONCE
            return ctx.step(f"s{number}", bench.effect(f"s{number}", number), semantics=semantics)

        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(run, range(8)))
        assert got == list(range(8))
        if ctx.attempt == 1:
            raise ConnectionError

    bench = Bench(world, body)

    assert bench.finish() == 2
    assert sorted(bench.effects) == [f"s{number}" for number in range(8)]


def test_a_job_that_returns_before_its_step_has_ended_is_not_completed(world: World) -> None:
    """G6: a completion would forget a step that still runs in a thread; the attempt fails and says which one."""
    go_on, threads = threading.Event(), []

    def body(ctx: Context) -> str:
        begun = threading.Event()

        def slow() -> None:
            begun.set()
            bench.effects.append("slow")
            assert go_on.wait(20)

        def run() -> None:
            with pytest.raises(ClaimLost):
                ctx.step("slow", slow)

        if ctx.attempt == 1:
            threads.append(threading.Thread(target=run))
            threads[0].start()
            assert begun.wait(20)
        return "done"

    bench = Bench(world, body)

    assert bench.deliver()
    go_on.set()
    threads[0].join(20)
    record = bench.record
    assert (record.status, record.steps) == (Status.FAILED, None)
    assert record.error == "StepRefused: the job returned before its steps had ended: slow; await them"
    bench.later()
    assert not bench.deliver()
    assert bench.effects == ["slow"]


Swallow = pytest.mark.parametrize("after", [lambda: "done", lambda: 1 / 0], ids=["returns", "raises another"])


def _swallowing(bench: Bench, first: Callable[[Context], object], after: Callable[[], object]) -> None:
    """Let the job catch everything out of its first step, try another one, and end in its own way."""

    def body(ctx: Context) -> object:
        for act in (first, lambda ctx: ctx.step("next", bench.effect("next"))):
            try:
                act(ctx)
            except BaseException as error:  # noqa: BLE001 - that is the point
                bench.effects.append(type(error).__name__)
        return after()

    bench.body = body


@Swallow
def test_a_job_that_swallows_that_it_is_uncertain_is_uncertain(world: World, after: Callable[[], object]) -> None:
    """G9: the signal ends the attempt whatever the job makes of it, and no further step runs."""
    bench = Bench(world)
    failing = bench.effect("call", ValueError("no answer"))
    _swallowing(bench, lambda ctx: ctx.step("call", failing, semantics=ONCE), after)

    assert not bench.deliver()
    assert bench.effects == ["call", StepUncertain.__name__, StepUncertain.__name__]
    assert bench.record.status is Status.UNCERTAIN
    assert bench.record.error == "the at-most-once step 'call' failed: ValueError: no answer"


@Swallow
def test_a_job_that_swallows_a_lost_claim_ends_lost(world: World, after: Callable[[], object]) -> None:
    """G2: another delivery took the job over while the step ran; what this attempt says afterwards counts nothing."""
    bench = Bench(world)

    def overtaken() -> None:
        bench.later()
        inner = Bench(world, lambda _ctx: "of the taker")
        assert not inner.deliver()

    _swallowing(bench, lambda ctx: ctx.step("call", overtaken), after)

    assert not bench.deliver()
    assert bench.effects == [ClaimLost.__name__, ClaimLost.__name__]
    assert (bench.record.status, bench.record.result) == (Status.COMPLETED, '"of the taker"')
    assert len(bench.events("claim.lost")) == 1


@Swallow
def test_a_job_that_swallows_that_its_step_is_not_recorded_keeps_its_message(
    world: World, after: Callable[[], object]
) -> None:
    """Section 6: effect done, not recorded: the claim is left leased, whatever the job returns."""
    from kit.faults import faulty_dynamodb
    from onceq.client import ATTEMPTS

    bench = Bench(world)
    faulty_dynamodb(world.runtime).drop("step", times=ATTEMPTS)
    _swallowing(bench, lambda ctx: ctx.step("charge", bench.effect("charge")), after)

    assert bench.deliver()
    assert bench.effects == ["charge", StepNotRecorded.__name__, StepNotRecorded.__name__]
    assert (bench.record.status, bench.record.version) == (Status.PROCESSING, 1)
    assert len(bench.events("effect.not_recorded")) == 1


def test_an_error_of_a_step_that_the_job_handles_is_no_error(world: World) -> None:
    """An at-least-once step may fail and the job go on: its name is used up, the attempt is not."""

    def body(ctx: Context) -> str:
        try:
            ctx.step("card", bench.effect("card", ConnectionError()))
        except ConnectionError:
            return str(ctx.step("invoice", bench.effect("invoice", "i-1")))
        return "card"

    bench = Bench(world, body)

    assert not bench.deliver()
    assert (bench.effects, bench.record.result) == (["card", "invoice"], '"i-1"')


def test_a_refused_name_that_the_job_handles_is_no_end(world: World) -> None:
    """StepRefused is an error and no signal: the job may go on without the second effect."""

    def body(ctx: Context) -> str:
        ctx.step("charge", bench.effect("charge"))
        try:
            ctx.step("charge", bench.effect("again"))
        except StepRefused:
            return "once"
        return "twice"

    bench = Bench(world, body)

    assert not bench.deliver()
    assert (bench.effects, bench.record.result) == (["charge"], '"once"')


def test_a_middleware_sees_the_signal_and_cannot_swallow_it(world: World) -> None:
    """G9: an error tracker around the job is told, and changes nothing."""
    told: list[str] = []

    def layer(call_next: Callable[[], Any], ctx: Context, payload: Any) -> Any:
        try:
            return call_next()
        except BaseException as error:  # noqa: BLE001 - that is the point
            told.append(type(error).__name__)
            return "all is well"

    bench = Bench(world, lambda ctx: ctx.step("call", bench.effect("call", OSError()), semantics=ONCE))
    app = world.app(bench.job_type, middleware=[layer])
    bench.app = app

    assert not bench.deliver()
    assert told == ["StepUncertain"]
    assert (bench.record.status, open_steps(bench.record.steps)) == (Status.UNCERTAIN, ["call"])
