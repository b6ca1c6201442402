"""The steps of an attempt, without tables: what is written when, what is answered, and what ends the attempt."""

from __future__ import annotations

import asyncio
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceq import ClaimLost, Context, Reject, Retry, Semantics, Snooze
from onceq.codec import MOST_LEVELS, decode, encode
from onceq.effects import Effects
from onceq.errors import Signal, StepNotRecorded, StepRefused, StepUncertain, StoreError, StoreUnavailable
from onceq.steps import MOST_BYTES, ROOM, State, Steps, open_steps, read_steps, with_step

if TYPE_CHECKING:
    from collections.abc import Callable

ONCE = Semantics.AT_MOST_ONCE
NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True)
STATES = (
    st.fixed_dictionaries({"result": st.none() | st.integers(0, 9) | st.text(max_size=3)})
    | st.fixed_dictionaries({"not_stored": st.text(max_size=3)})
    | st.fixed_dictionaries({"started": st.integers(0, 2**50)})
)


class Attempt:
    """A context whose step writes are kept in memory, in their order, beside the effects."""

    def __init__(self, text: str | None = None, **options: Any) -> None:
        """Begin an attempt after what earlier ones recorded."""
        self.log: list[Any] = []
        self.fault: BaseException | None = None
        self.replayed: list[str] = []
        options = {"now_ms": lambda: 7, "replayed": self.replayed.append} | options
        self.steps = Steps(write=self._write, text=text, **options)
        self.ctx = Context("pay", "k-1", effects=Effects(steps=self.steps))

    def _write(self, name: str, state: State | None) -> None:
        if self.fault is not None:
            raise self.fault
        self.log.append((name, state))

    def effect(self, value: Any = None) -> Callable[[], Any]:
        """Return an effect that is logged and returns a value, or raises it."""

        def have() -> Any:
            self.log.append("effect")
            if isinstance(value, BaseException):
                raise value
            return value

        return have

    def again(self) -> Attempt:
        """Begin the next attempt."""
        return Attempt(self.steps.text)


@given(st.lists(st.tuples(NAMES, STATES | st.none()), max_size=12))
def test_the_text_is_the_last_state_of_every_step(writes: list[tuple[str, State | None]]) -> None:
    """Section 6: one JSON text stands for all steps; a state replaces the earlier one, nothing takes it out."""
    expected: dict[str, State] = {}
    text: str | None = None
    for name, state in writes:
        text = with_step(text, name, state)
        expected.pop(name, None)
        if state is not None:
            expected[name] = state

    assert read_steps(text) == expected
    assert (text is None) is (expected == {})
    assert sorted(open_steps(text)) == sorted(name for name, state in expected.items() if "started" in state)


def test_a_context_of_a_unit_test_just_runs_its_steps() -> None:
    """A user's test needs no framework: the step runs, and its value is what production would give."""
    ctx = Context()

    got: Any = ctx.step("charge", lambda cents, *, currency: (cents, currency), 500, currency="EUR")
    assert got == [500, "EUR"]
    assert ctx.step("call", lambda: "done", semantics=ONCE) == "done"
    with pytest.raises(StepRefused, match="charge"):
        ctx.step("charge", lambda: 1)


def test_a_step_hands_over_every_argument_of_its_function() -> None:
    """What a function calls its own parameters is its own business: `name=` and `function=` reach it too."""
    step: Any = Context().step

    assert step("mail", dict, name="Ada", function="greet") == {"name": "Ada", "function": "greet"}


@pytest.mark.parametrize("name", ["", " ", "a b", "é", "a" * 101, "a\n", "a/b", None, 5], ids=repr)
def test_a_step_name_that_is_no_name_is_refused_and_nothing_runs(name: Any) -> None:
    """The name goes into the record and into downstream keys."""
    attempt = Attempt()

    with pytest.raises(ValueError, match="the effect's name"):
        attempt.ctx.step(name, attempt.effect())

    assert attempt.log == []


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "a" * 100])
def test_a_step_name_may_be_this(name: str) -> None:
    """Letters, digits and three signs, up to 100."""
    attempt = Attempt()

    attempt.ctx.step(name, attempt.effect(1))

    assert attempt.log == ["effect", (name, {"result": 1})]


def test_semantics_may_be_given_by_its_word_and_nothing_else_is_taken() -> None:
    """G9: a word that is none must not quietly mean at-least-once."""
    attempt = Attempt()
    word: Any = "at_most_once"

    attempt.ctx.step("call", attempt.effect(1), semantics=word)
    with pytest.raises(ValueError, match="at_most_twice"):
        attempt.ctx.step("other", attempt.effect(1), semantics="at_most_twice")  # type: ignore[arg-type]  # a mistake

    assert attempt.log == [("call", {"started": 7}), "effect", ("call", {"result": 1})]


def test_a_step_writes_once_and_an_at_most_once_step_says_first_that_it_begins() -> None:
    """G9: "started" stands in the record before the effect; an at-least-once step costs one write."""
    attempt = Attempt()

    attempt.ctx.step("charge", attempt.effect("c-1"))
    attempt.ctx.step("call", attempt.effect(), semantics=ONCE)

    assert attempt.log == [
        "effect",
        ("charge", {"result": "c-1"}),
        ("call", {"started": 7}),
        "effect",
        ("call", {"result": None}),
    ]


@pytest.mark.parametrize("semantics", Semantics)
def test_a_finished_step_is_answered_from_its_record(semantics: Semantics) -> None:
    """G6: nothing runs, nothing is written, and the step is reported as replayed; whatever its semantics are now."""
    first = Attempt()
    first.ctx.step("charge", first.effect({"id": (1, 2)}))
    second = first.again()

    assert second.ctx.step("charge", second.effect(), semantics=semantics) == {"id": [1, 2]}
    assert (second.log, second.replayed, first.replayed) == ([], ["charge"], [])
    assert second.steps.is_done("charge")


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        # Surrogates are no text.
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4)
        ),
        max_leaves=8,
    )
)
def test_any_json_value_is_what_the_first_attempt_and_every_later_one_get(value: Any) -> None:
    """G10: the value of the first run is the one that is replayed."""
    first = Attempt()
    got = first.ctx.step("charge", lambda: value)
    second = first.again()

    assert got == value == second.ctx.step("charge", second.effect("never"))
    assert second.log == []


@pytest.mark.parametrize("levels", [1, MOST_LEVELS - 2, MOST_LEVELS - 1, MOST_LEVELS, MOST_LEVELS + 1, 5_000])
def test_a_deep_result_is_replayed_or_known_not_to_be_stored(levels: int) -> None:
    """G10: what can be written can be read again, inside the steps' own text too; else it is recorded without it."""
    value: Any = 0
    for _ in range(levels):
        value = [value]
    first = Attempt()
    try:
        got = first.ctx.step("deep", first.effect(value))
    except StepUncertain:
        got = None
    second = first.again()

    assert second.steps.is_done("deep")
    if got is None:
        assert levels > MOST_LEVELS - 4
        with pytest.raises(StepUncertain, match="not stored"):
            second.ctx.step("deep", second.effect())
    else:
        assert got == value == second.ctx.step("deep", second.effect())
        assert second.ctx.step("next", second.effect(1)) == 1
    assert first.log.count("effect") == 1


@pytest.mark.parametrize(("size", "is_stored"), [(98, True), (99, False)])
def test_the_limit_of_a_result_counts_its_json_in_bytes(size: int, *, is_stored: bool) -> None:
    """ONCEQ_RESULT_LIMIT holds for each step: at the limit it is stored, above it is recorded without it."""
    attempt = Attempt(limit=100)

    if is_stored:
        assert attempt.ctx.step("charge", attempt.effect("x" * size)) == "x" * size
    else:
        with pytest.raises(StepUncertain, match="'charge' is done, and its result is not stored: too large: 101 bytes"):
            attempt.ctx.step("charge", attempt.effect("x" * size))
        assert attempt.log[-1] == ("charge", {"not_stored": "too large: 101 bytes, and at most 100 are stored"})
    assert attempt.steps.is_done("charge")


class Odd:
    """Nothing that JSON knows; even its representation exits."""

    def __repr__(self) -> str:
        """Exit."""
        raise SystemExit


@pytest.mark.parametrize("value", [math.nan, object(), Odd(), {1, math.inf}, "\ud800", "x" * 40_000], ids=type)
def test_a_result_that_cannot_be_stored_is_recorded_as_done_before_the_job_ends(value: Any) -> None:
    """G10: the record comes first, so the effect is never repeated; every later attempt ends the same way."""
    first = Attempt()
    with pytest.raises(StepUncertain, match="the step 'charge' is done, and its result is not stored") as caught:
        first.ctx.step("charge", first.effect(value))
    second = first.again()

    assert [entry if entry == "effect" else list(entry[1]) for entry in first.log] == ["effect", ["not_stored"]]
    with pytest.raises(StepUncertain) as again:
        second.ctx.step("charge", second.effect())
    assert str(again.value) == str(caught.value)
    assert second.log == []


@pytest.mark.parametrize("error", [Retry(1), Snooze(1)])
def test_a_retry_out_of_an_at_most_once_step_takes_its_mark_away(error: Exception) -> None:
    """G9: the function says itself that nothing happened, so it may be started again."""
    first = Attempt()
    with pytest.raises(type(error)):
        first.ctx.step("call", first.effect(error), semantics=ONCE)
    second = first.again()

    assert first.log == [("call", {"started": 7}), "effect", ("call", None)]
    assert second.ctx.step("call", second.effect("done"), semantics=ONCE) == "done"


def test_a_reject_out_of_an_at_most_once_step_leaves_its_mark() -> None:
    """G9: it says how the job ends, and not that nothing happened."""
    first = Attempt()
    with pytest.raises(Reject):
        first.ctx.step("call", first.effect(Reject("no")), semantics=ONCE)

    assert first.log == [("call", {"started": 7}), "effect"]
    assert first.steps.interrupted is None
    assert open_steps(first.steps.text) == ["call"]


@pytest.mark.parametrize(
    "error", [ValueError("no answer"), TimeoutError(), SystemExit(1), KeyboardInterrupt(), GeneratorExit()], ids=repr
)
def test_anything_else_out_of_an_at_most_once_step_is_uncertain(error: BaseException) -> None:
    """G9: nobody knows whether the effect happened; the signal says what was raised, and from where."""
    attempt = Attempt()

    with pytest.raises(StepUncertain, match=f"the at-most-once step 'call' failed: {type(error).__name__}") as caught:
        attempt.ctx.step("call", attempt.effect(error), semantics=ONCE)

    assert caught.value.__cause__ is error
    assert attempt.steps.interrupted is caught.value
    assert open_steps(attempt.steps.text) == ["call"]


@pytest.mark.parametrize("semantics", Semantics)
def test_a_step_that_was_started_and_not_finished_is_never_run(semantics: Semantics) -> None:
    """G9: not by the next attempt, and not by a release that has made it at-least-once meanwhile."""
    attempt = Attempt(encode({"call": {"started": 1}}))

    with pytest.raises(StepUncertain, match="the step 'call' was started, and is not known to have ended"):
        attempt.ctx.step("call", attempt.effect(), semantics=semantics)

    assert attempt.log == []
    assert not attempt.steps.is_done("call")


def test_an_at_least_once_step_that_fails_leaves_nothing_and_the_job_goes_on() -> None:
    """Its error is the job's to handle; the next attempt runs it again."""
    first = Attempt()
    with pytest.raises(ValueError, match="no"):
        first.ctx.step("charge", first.effect(ValueError("no")))

    assert first.ctx.step("other", first.effect(1)) == 1
    assert (first.steps.interrupted, first.steps.unfinished, read_steps(first.steps.text)) == (
        None,
        [],
        {"other": {"result": 1}},
    )
    assert first.again().ctx.step("charge", lambda: 2) == 2


@pytest.mark.parametrize("semantics", Semantics)
def test_a_name_is_given_once_in_an_attempt_however_the_first_ended(semantics: Semantics) -> None:
    """A name that means two effects would replay the wrong one."""
    attempt = Attempt()
    attempt.ctx.step("charge", attempt.effect(1))
    with pytest.raises(ValueError, match="no"):
        attempt.ctx.step("failed", attempt.effect(ValueError("no")))
    before = list(attempt.log)

    for name in ("charge", "failed"):
        with pytest.raises(StepRefused, match=f"the step '{name}' was begun before in this attempt"):
            attempt.ctx.step(name, attempt.effect(), semantics=semantics)

    assert (attempt.log, attempt.steps.interrupted) == (before, None)


def test_a_step_inside_a_step_is_a_step() -> None:
    """Each is recorded when it ends: the inner one first, so it is not repeated if the outer one fails."""
    attempt = Attempt()

    got = attempt.ctx.step("outer", lambda: [attempt.ctx.step("inner", attempt.effect(1)), 2])

    assert got == [1, 2]
    assert attempt.log == ["effect", ("inner", {"result": 1}), ("outer", {"result": [1, 2]})]


FAULTS: dict[str, tuple[BaseException, type[Signal]]] = {
    "the claim is lost": (ClaimLost(), ClaimLost),
    "no answer": (StoreUnavailable("no answer"), StepNotRecorded),
    "refused": (StoreError("too large"), StepNotRecorded),
}
every_fault = pytest.mark.parametrize(("fault", "signal"), FAULTS.values(), ids=FAULTS)


@every_fault
def test_a_write_that_fails_ends_the_attempt_whatever_the_job_does(fault: BaseException, signal: type[Signal]) -> None:
    """G6: no further step begins, answers or gets a key; every try gets the first signal again."""
    attempt = Attempt(encode({"done": {"result": 1}}))
    attempt.fault = fault
    with pytest.raises(signal) as caught:
        attempt.ctx.step("charge", attempt.effect())
    attempt.fault = None

    for name in ("done", "next", "charge"):
        with pytest.raises(signal) as again:
            attempt.ctx.step(name, attempt.effect())
        assert again.value is caught.value
    assert attempt.log == ["effect"]
    assert attempt.steps.interrupted is caught.value
    assert not attempt.steps.is_done("charge")


@every_fault
def test_an_at_most_once_step_whose_start_is_not_recorded_does_not_start(
    fault: BaseException, signal: type[Signal]
) -> None:
    """G9: without "started" in the record nobody would know that it ran."""
    attempt = Attempt()
    attempt.fault = fault

    with pytest.raises(signal):
        attempt.ctx.step("call", attempt.effect(), semantics=ONCE)

    assert attempt.log == []


def test_the_first_signal_stays() -> None:
    """What ended the attempt is what is told of it, not what followed."""
    attempt = Attempt()
    attempt.fault = StoreUnavailable("no answer")
    with pytest.raises(StepNotRecorded) as first:
        attempt.ctx.step("charge", attempt.effect())
    with pytest.raises(StepUncertain):
        attempt.steps.interrupt(StepUncertain("later"))

    assert attempt.steps.interrupted is first.value
    assert str(first.value) == "the step 'charge' could not be recorded: no answer"


def _filled(size: int) -> str:
    """Return the text of steps that has that many bytes."""
    text = encode({"big": {"result": "x" * (size - len(encode({"big": {"result": ""}})))}})
    assert len(text.encode()) == size
    return text


@pytest.mark.parametrize(("size", "runs"), [(MOST_BYTES - ROOM, True), (MOST_BYTES - ROOM + 1, False)])
def test_a_step_without_room_for_its_record_is_refused_before_its_effect(size: int, *, runs: bool) -> None:
    """G10: an effect that cannot be recorded would be repeated; what is recorded already is still answered."""
    attempt = Attempt(_filled(size))

    if runs:
        assert attempt.ctx.step("next", attempt.effect(1)) == 1
    else:
        with pytest.raises(StepRefused, match="no room for the step 'next'"):
            attempt.ctx.step("next", attempt.effect(1), semantics=ONCE)
        assert attempt.log == []
        assert attempt.steps.unfinished == []
    assert len(attempt.ctx.step("big", attempt.effect())) > MOST_BYTES - 2 * ROOM


def test_steps_that_end_together_never_overfill_the_item() -> None:
    """G10: of four results, two of which fit, two are recorded as done without it: each sees what went before it."""
    attempt = Attempt(limit=MOST_BYTES)
    meet = threading.Barrier(4)
    write = attempt.steps.write

    def slowly(name: str, state: State | None) -> None:
        # Time enough for another one to ask for room, if nothing keeps it waiting.
        threading.Event().wait(0.05)
        write(name, state)

    attempt.steps.write = slowly

    def one(number: int) -> str:
        def large() -> str:
            meet.wait(20)
            return "x" * 100_000

        try:
            attempt.ctx.step(f"s{number}", large)
        except Signal as signal:
            return type(signal).__name__
        return "stored"

    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(one, range(4)))

    assert sorted(ends) == ["StepUncertain", "StepUncertain", "stored", "stored"]
    assert len(read_steps(attempt.steps.text)) == 4
    assert len((attempt.steps.text or "").encode()) <= MOST_BYTES


def test_one_name_begun_by_many_threads_at_once_runs_once() -> None:
    """The name is taken before anything else happens."""
    attempt = Attempt()
    meet = threading.Barrier(8)

    def one(_number: int) -> str:
        meet.wait(20)
        try:
            attempt.ctx.step("charge", attempt.effect(1))
        except StepRefused:
            return "refused"
        return "ran"

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(one, range(8)))

    assert sorted(ends) == ["ran"] + ["refused"] * 7
    assert attempt.log == ["effect", ("charge", {"result": 1})]


async def charge(cents: int = 5) -> dict[str, int]:
    """Stand for an effect that is a coroutine."""
    await asyncio.sleep(0)
    return {"cents": cents}


class Gateway:
    """A user's client, in the shapes that a function can have."""

    def charge(self, cents: int = 5) -> dict[str, int]:
        """Charge."""
        return {"cents": cents}

    async def charge_later(self, cents: int = 5) -> dict[str, int]:
        """Charge in a coroutine."""
        return {"cents": cents}

    @staticmethod
    def put(cents: int = 5) -> dict[str, int]:
        """Charge without the client."""
        return {"cents": cents}

    def __call__(self, cents: int = 5) -> dict[str, int]:
        """Charge."""
        return {"cents": cents}


class LaterGateway:
    """An object that is called and awaited."""

    async def __call__(self, cents: int = 5) -> dict[str, int]:
        """Charge in a coroutine."""
        return {"cents": cents}


SYNC: dict[str, Callable[[], Any]] = {
    "lambda": lambda: {"cents": 5},
    "bound method": Gateway().charge,
    "static method": Gateway.put,
    "callable object": Gateway(),
    "partial": partial(Gateway().charge, 5),
    "partial of a partial": partial(partial(Gateway().charge), cents=5),
    "class": partial(dict, cents=5),
}
ASYNC: dict[str, Callable[[], Any]] = {
    "async def": charge,
    "bound method": Gateway().charge_later,
    "partial": partial(charge, 5),
    "partial of a partial": partial(partial(charge), cents=5),
    "callable object": LaterGateway(),
    "partial of a callable object": partial(LaterGateway(), 5),
    "lambda that returns a coroutine": lambda: charge(),  # noqa: PLW0108 - it is no `async def`
    "function that returns a task": lambda: asyncio.ensure_future(charge()),
    "AsyncMock": AsyncMock(return_value={"cents": 5}),
}


@pytest.mark.parametrize("function", SYNC.values(), ids=SYNC)
def test_a_plain_callable_is_a_step(function: Callable[[], Any]) -> None:
    """Whatever can be called is run, recorded and replayed."""
    first = Attempt()

    assert first.ctx.step("charge", function) == {"cents": 5} == first.again().ctx.step("charge", function)
    assert first.log == [("charge", {"result": {"cents": 5}})]


@pytest.mark.parametrize("function", ASYNC.values(), ids=ASYNC)
def test_what_is_awaited_on_the_first_attempt_is_awaited_on_every_later_one(function: Callable[[], Any]) -> None:
    """G6: the job's `await` stands there whether the step runs or is answered from its record."""

    async def job(attempt: Attempt) -> Any:
        return await attempt.ctx.step("charge", function)

    first = Attempt()
    got = asyncio.run(job(first))

    assert got == {"cents": 5} == asyncio.run(job(first.again()))
    assert [(name, state["result"]) for name, state in first.log] == [("charge", {"cents": 5})]


@pytest.mark.parametrize("semantics", Semantics)
def test_an_async_function_that_cannot_even_be_called_ends_its_step(semantics: Semantics) -> None:
    """G9: the error of the call is an error of the step, as it is for a plain function."""
    attempt = Attempt()
    function: Any = charge
    wrong = partial(function, 1, 2)

    with pytest.raises((TypeError, StepUncertain)) as caught:
        asyncio.run(attempt.ctx.step("charge", wrong, semantics=semantics))

    assert isinstance(caught.value, StepUncertain) is (semantics is ONCE)
    assert attempt.steps.unfinished == []
    assert open_steps(attempt.steps.text) == (["charge"] if semantics is ONCE else [])


def test_an_async_step_takes_its_name_when_it_is_called_and_not_when_it_is_awaited() -> None:
    """A step that is never awaited is known as begun; its name is not given again."""
    attempt = Attempt()

    coroutine: Any = attempt.ctx.step("charge", charge)
    with pytest.raises(StepRefused):
        asyncio.run(attempt.ctx.step("charge", charge))

    assert attempt.steps.unfinished == ["charge"]
    assert asyncio.run(coroutine) == {"cents": 5}
    assert attempt.steps.unfinished == []


def test_what_is_recorded_is_text_that_can_be_read_by_anybody() -> None:
    """The record holds plain JSON; a person reads it in the table."""
    attempt = Attempt()
    attempt.ctx.step("charge", attempt.effect({"id": "ch_é"}))
    attempt.ctx.step("mail", attempt.effect())

    assert decode(attempt.steps.text or "") == {"charge": {"result": {"id": "ch_é"}}, "mail": {"result": None}}
