"""What stands in for a gateway: it counts, answers as a provider does, and looks like what it stands for."""

from __future__ import annotations

import asyncio
import inspect
import threading
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import Mock
from uuid import UUID

import pytest

from onceq import App, ConfigurationError, Context, job
from onceq.testing import (
    Diagnosis,
    Effect,
    EffectRecorder,
    Environment,
    Move,
    NotEffectivelyOnce,
    Point,
    prove_effectively_once,
)

if TYPE_CHECKING:
    from collections.abc import Callable

like: Any = ModuleType("provider")


class Declined(Exception):
    """The card was declined."""


async def pay(amount: int) -> dict[str, Any]:
    """Pay."""
    return {"paid": amount}


def refund(amount: int) -> None:
    """Pay back."""


like.Declined, like.pay, like.refund, like.LIMIT, like._hidden = Declined, pay, refund, 500, refund


def test_a_call_without_a_key_happens_every_time() -> None:
    """Each has an answer of its own, and its arguments are kept."""
    gateway = EffectRecorder()

    assert [gateway.charge("cus_1", amount=5)["id"] for _ in range(2)] == ["charge-1", "charge-2"]

    assert gateway.count("charge") == gateway.count() == 2
    first = gateway.calls[0]
    assert (first.name, first.key, first.arguments, dict(first.named)) == ("charge", None, ("cus_1",), {"amount": 5})
    assert (first.number, first.repeated, first.worker, first.at) == (1, False, "", 0)


def test_a_key_that_comes_again_gets_the_same_answer_and_does_nothing() -> None:
    """By function: providers' keys are by endpoint."""
    gateway = EffectRecorder()

    answers = [gateway.charge(5, idempotency_key="k"), gateway.charge(5, idempotency_key="k")]
    gateway.refund(5, idempotency_key="k")

    assert answers[0] == answers[1]
    assert [call.repeated for call in gateway.calls] == [False, True, False]
    assert (gateway.count("charge"), gateway.count("refund"), len(gateway.calls)) == (1, 1, 3)
    assert [effect.key for effect in gateway.effects] == ["k", "k"]
    assert "idempotency_key" not in gateway.calls[0].named


@pytest.mark.parametrize("answer", [None, 0, "", [], {}, False], ids=repr)
def test_a_false_answer_is_an_answer(answer: Any) -> None:
    """It is given again for its key."""
    gateway = EffectRecorder(charge=answer)

    assert [gateway.charge(idempotency_key="k") for _ in range(2)] == [answer, answer]
    assert gateway.count() == 1


def test_an_answer_may_be_made_of_the_arguments_or_raise() -> None:
    """A callable gets them; what it raises is raised, and the effect did not happen."""
    gateway = EffectRecorder(charge=lambda amount, **_named: {"amount": amount}, decline=_decline)

    assert gateway.charge(7, currency="EUR") == {"amount": 7}
    with pytest.raises(Declined):
        gateway.decline(idempotency_key="k")

    assert gateway.count("decline") == 0
    assert [call.name for call in gateway.calls] == ["charge", "decline"]


def _decline(**_named: Any) -> None:
    raise Declined


def test_the_key_may_have_another_name() -> None:
    """As the provider's library calls it."""
    gateway = EffectRecorder(key="request_id")

    gateway.charge(request_id="k", idempotency_key="other")

    assert (gateway.calls[0].key, dict(gateway.calls[0].named)) == ("k", {"idempotency_key": "other"})


def test_it_looks_like_what_it_stands_for() -> None:
    """Exception classes and constants are the original's; what is a coroutine function there is one here."""
    gateway = EffectRecorder(like=like, pay={"paid": 1})

    assert gateway.Declined is Declined
    assert gateway.LIMIT == 500
    assert inspect.iscoroutinefunction(gateway.pay)
    assert not inspect.iscoroutinefunction(gateway.refund)
    assert asyncio.run(gateway.pay(3)) == {"paid": 1}
    assert gateway.refund(3) == {"id": "refund-2"}
    with pytest.raises(AttributeError, match=r"provider.*nothing_there"):
        gateway.nothing_there(1)


def test_a_name_that_begins_with_an_underscore_is_nothing_of_it() -> None:
    """Copying, pickling and mocking ask for such names; one that the original has is an effect like the others."""
    assert not hasattr(EffectRecorder(), "_private")
    assert not hasattr(EffectRecorder(like=like), "__deepcopy__")
    gateway = EffectRecorder(like=like)
    gateway._hidden(1)
    assert gateway.count("_hidden") == 1


def test_it_is_a_function_itself() -> None:
    """For a job that takes one."""
    send = EffectRecorder()

    send("a@example.com", idempotency_key="k")

    assert [(effect.name, effect.arguments) for effect in send.effects] == [("effect", ("a@example.com",))]


def test_clear_forgets_calls_and_keys() -> None:
    """As if no call had come."""
    gateway = EffectRecorder()
    gateway.charge(idempotency_key="k")

    gateway.clear()

    assert (gateway.calls, gateway.count()) == ([], 0)
    assert gateway.charge(idempotency_key="k") == {"id": "charge-1"}
    assert gateway.count() == 1


def test_of_many_threads_with_one_key_one_has_the_effect() -> None:
    """All get its answer."""
    gateway, answers = EffectRecorder(), list[Any]()
    meet = threading.Barrier(8)

    def call() -> None:
        meet.wait()
        for number in range(20):
            answers.append(gateway.charge(idempotency_key=f"k-{number}")["id"])

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (gateway.count(), len(gateway.calls), len({*answers})) == (20, 160, 20)
    assert sorted(call.number for call in gateway.calls) == [*range(1, 161)]


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    """Return what calls that run at once returned, or raised, in the order in which they were given."""
    found: dict[int, Any] = {}

    def play(number: int, call: Callable[[], Any]) -> None:
        try:
            found[number] = call()
        except Exception as error:  # noqa: BLE001 - returned
            found[number] = error

    threads = [threading.Thread(target=play, args=[number, call]) for number, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(calls))]


def test_a_key_that_comes_while_it_is_answered_has_come_before() -> None:
    """However long an answer takes: one effect, and one answer for both."""
    both = threading.Barrier(2)

    def answer() -> dict[str, int]:
        return {"id": both.wait(10)}

    gateway = EffectRecorder(charge=answer)
    one, other = in_threads(*[lambda: gateway.charge(idempotency_key="k")] * 2)

    assert one == other
    assert [call.repeated for call in gateway.calls] == [False, True]
    assert gateway.count() == 1


@pytest.mark.parametrize("first_ends", ["before", "after"])
def test_where_the_first_call_is_refused_the_next_one_has_its_key(first_ends: str) -> None:
    """Whether it was answered by then, or not yet."""
    asked, ended = threading.Event(), threading.Event()

    def answer(who: str) -> str:
        if who == "first":
            asked.set()
            assert first_ends == "before" or ended.wait(10)
            raise Declined
        assert first_ends == "after" or ended.wait(10)
        return who

    gateway = EffectRecorder(charge=answer)

    def first() -> None:
        try:
            gateway.charge("first", idempotency_key="k")
        finally:
            if first_ends == "before":
                ended.set()

    def second() -> Any:
        assert asked.wait(10)
        try:
            return gateway.charge("second", idempotency_key="k")
        finally:
            ended.set()

    refused, answered = in_threads(first, second)

    assert (type(refused), answered) == (Declined, "second")
    assert [(call.refused, call.happened) for call in gateway.calls] == [(True, False), (False, True)]
    assert gateway.charge("third", idempotency_key="k") == "second"
    assert gateway.count() == 1


def test_an_answer_that_comes_after_clear_is_of_no_call_that_is_there() -> None:
    """It neither marks another one as refused, nor is it remembered."""
    asked, cleared = threading.Event(), threading.Event()

    def answer(*, decline: bool) -> str:
        asked.set()
        assert cleared.wait(10)
        if decline:
            raise Declined
        return "old"

    for decline, ended in ((True, Declined), (False, str)):
        gateway = EffectRecorder(charge=answer)

        def clear(gateway: EffectRecorder = gateway) -> None:
            assert asked.wait(10)
            gateway.clear()
            gateway.refund(5)
            cleared.set()

        [old, _] = in_threads(lambda: gateway.charge(decline=decline, idempotency_key="k"), clear)  # noqa: B023 - ended

        assert isinstance(old, ended)
        assert [(call.name, call.refused) for call in gateway.calls] == [("refund", False)]
        gateway.charge(decline=False, idempotency_key="k")
        assert gateway.count("charge") == 1
        asked.clear()
        cleared.clear()


def test_a_key_that_comes_again_was_answered_with_what_the_first_one_was() -> None:
    """What was made up has the number of the call that happened."""
    gateway = EffectRecorder()
    answers = [gateway.charge(5, idempotency_key="k") for _ in range(2)]

    assert [call.made_up for call in gateway.calls] == answers


def test_what_a_step_calls_in_another_thread_is_in_the_step(env: Environment) -> None:
    """As `asyncio.to_thread` does it."""
    gateway = EffectRecorder()

    @job("pay", max_duration=5)
    async def pay_in_a_thread(payload: dict[str, Any], ctx: Context) -> None:
        async def charge() -> str:
            return str(await asyncio.to_thread(gateway.charge, payload["cents"]))

        await ctx.step("charge", charge)
        await asyncio.to_thread(gateway.refund, payload["cents"])

    env.use(App([pay_in_a_thread]))
    env.deliver(env.enqueue(pay_in_a_thread, {"cents": 5}, key="k"))

    assert [(call.name, call.in_step) for call in gateway.calls] == [("charge", True), ("refund", False)]


def test_an_effect_is_a_value() -> None:
    """Compared by what it says."""
    assert Effect("charge", "k") == Effect("charge", "k")


@pytest.mark.parametrize("key", [7, UUID(int=7)], ids=["number", "UUID"])
def test_a_key_that_is_no_text_is_the_same_key_again(key: Any) -> None:
    """A provider's client writes it out, too."""
    gateway = EffectRecorder()

    assert gateway.charge(5, idempotency_key=key) == gateway.charge(5, idempotency_key=key)
    assert gateway.count() == 1
    assert gateway.calls[0].key == str(key)


def test_a_key_that_comes_with_other_arguments_is_noted() -> None:
    """A provider refuses such a call; an object that is another one in every attempt is no other argument."""
    gateway = EffectRecorder()

    gateway.charge(5, object(), idempotency_key="k")
    gateway.charge(5, object(), idempotency_key="k")
    gateway.charge(6, object(), idempotency_key="k")

    assert [call.differs for call in gateway.calls] == [False, False, True]


def test_what_is_called_by_way_of_an_object_is_an_effect_of_the_whole() -> None:
    """Nothing that stands inside of what is stood in for is really called."""
    gateway = EffectRecorder(like=SimpleNamespace(api=SimpleNamespace(charge=lambda _cents, **_named: 1 / 0), limit=3))

    assert gateway.api.charge(5, idempotency_key="k") == {"id": "api.charge-1"}
    assert [call.name for call in gateway.calls] == ["api.charge"]
    assert gateway.limit == 3


def test_a_failure_is_what_the_client_raises(env: Environment) -> None:
    """`fails` is the exception that a job which catches it alone is put on trial with."""
    gateway = EffectRecorder(fails=TimeoutError)

    @job("swallow")
    def swallow(payload: dict[str, Any], ctx: Context) -> str:
        try:
            gateway.charge(payload["cents"], idempotency_key=ctx.idempotency_key_for("charge"))
        except TimeoutError:
            return "ok"
        return "charged"

    with pytest.raises(NotEffectivelyOnce) as found:
        prove_effectively_once(swallow, {"cents": 5}, effects=gateway, app=App([swallow]), env=env)
    assert found.value.report.diagnosis is Diagnosis.NO_EFFECT


class Fussy(Exception):
    """A provider's error that is made of two things."""

    def __init__(self, code: int, told: str) -> None:
        """Keep both."""
        super().__init__(code, told)


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        ("requests.ConnectionError", r"^fails= is 'requests.ConnectionError', no exception: give a class of excep"),
        ((ValueError,), r"fails= is \(<class 'ValueError'>,\), no exception: give a class"),
        (KeyboardInterrupt, "fails= is <class 'KeyboardInterrupt'>, no exception"),
        (Fussy, r"^fails=: Fussy cannot be made of a text alone \(TypeError: .*\): give one that is made, Fussy\(…\)"),
    ],
)
def test_what_a_call_fails_with_is_an_exception(fails: Any, told: str) -> None:
    """Else the job would be put on trial with the recorder's own mistake."""
    with pytest.raises(ConfigurationError, match=told):
        EffectRecorder(fails=fails)
    assert EffectRecorder(fails=Fussy(1, "down")).charge(5) == {"id": "charge-1"}


def test_a_verdict_tells_that_nobody_said_what_a_call_fails_with(env: Environment) -> None:
    """A job that catches its own client's exception alone was put on trial with another."""

    @job("pay", max_duration=5)
    def pay(payload: dict[str, Any], ctx: Context) -> Any:
        return recorder.charge(payload["cents"], idempotency_key=ctx.idempotency_key_for("charge"))

    told = "  Calls failed with ConnectionError, the default: say with fails= (--fails) what your client raises."
    for recorder, expected in ((EffectRecorder(), [told]), (EffectRecorder(fails=TimeoutError), [])):
        report = prove_effectively_once(pay, {"cents": 5}, effects=recorder, app=App([pay]), env=env)
        assert report.verdict()[1:] == expected


def balance(customer: str) -> int:
    """Return what is there."""
    return len(customer)


like.balance = balance


def test_what_only_reads_is_answered_and_is_no_effect() -> None:
    """It stands among the calls, marked; a key that it happens to take is nobody's downstream key."""
    gateway = EffectRecorder(reads=["balance"], balance=len)

    assert [gateway.balance("ada"), gateway.balance("ada")] == [3, 3]
    gateway.charge(5)

    assert [(call.name, call.read, call.number) for call in gateway.calls] == [
        ("balance", True, 1), ("balance", True, 2), ("charge", False, 3),
    ]  # fmt: skip
    assert (gateway.count(), gateway.count("balance")) == (1, 0)
    assert [effect.name for effect in gateway.effects] == ["charge"]


def test_a_read_is_no_point_but_stands_in_the_timeline(env: Environment) -> None:
    """Nothing can go wrong there; a process that is dead reads nothing any more."""
    gateway = EffectRecorder(reads=["balance"])

    @job("look", max_duration=5)
    def look(_payload: dict[str, Any]) -> None:
        gateway.balance("ada")
        gateway.charge(5)

    env.use(App([look]))
    points: list[str] = []

    def direct(point: Point) -> Move:
        points.append(point.what)
        return Move.PASS

    env.deliver(env.enqueue(look, {}, key="k"), director=direct)

    assert points == ["claim", "effect charge", "complete", "the answer"]
    assert "reads balance" in env.timeline.text()


def test_a_dead_process_reads_nothing(env: Environment) -> None:
    """As it does nothing else."""
    gateway = EffectRecorder(reads=["balance"])

    @job("look", max_duration=5)
    def look(_payload: dict[str, Any]) -> None:
        try:
            gateway.charge(5)
        finally:
            gateway.balance("ada")

    env.use(App([look]))
    crash_there = lambda point: Move.CRASH if point.what == "effect charge" else Move.PASS  # noqa: E731 - said once

    env.deliver(env.enqueue(look, {}, key="k"), director=crash_there)

    assert gateway.calls == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"pai": 1}, r"EffectRecorder\(pai=…\): provider has no 'pai'. Did you mean 'pay'\?"),
        ({"reads": ["balanse"]}, r"EffectRecorder\(reads=\['balanse'\]\): provider has no 'balanse'. Did you mean 'ba"),
        ({"LIMIT": 1}, r"'LIMIT' of provider is no function"),
        ({"pay": None}, r"the answer of pay is None, and provider's returns dict\[str, typing.Any\]"),
        ({"reads": "balance"}, r"reads= is a list of names: reads=\['balance'\]"),
        ({"effect": 1}, "provider has no 'effect'"),
    ],
)
def test_what_the_original_does_not_have_is_refused(given: dict[str, Any], told: str) -> None:
    """A typo in a name would leave the default answer in the place of the one that was given."""
    with pytest.raises(ConfigurationError, match=told):
        EffectRecorder(like=like, **given)


def test_answers_of_what_stands_inside_are_named_with_a_dot() -> None:
    """And looked for there; something that is called itself is named ``effect``."""
    inside = SimpleNamespace(api=SimpleNamespace(charge=refund), send=Sending())

    answers: dict[str, Any] = {"api.charge": 7, "send.effect": 8}
    typo: dict[str, Any] = {"api.chrage": 7}

    gateway = EffectRecorder(like=inside, **answers)

    assert (gateway.api.charge(5), gateway.send("a")) == (7, 8)
    with pytest.raises(ConfigurationError, match=r"no 'api.chrage'. Did you mean 'charge'"):
        EffectRecorder(like=inside, **typo)


class Sending:
    """Something that is called itself."""

    def __call__(self, address: str) -> None:
        """Send."""


def test_an_answer_that_forgot_its_return_is_an_error() -> None:
    """Where the original's annotation says that there is something; not where it returns nothing."""
    gateway = EffectRecorder(like=like, pay=lambda _amount: None, refund=lambda _amount: None)

    with pytest.raises(ConfigurationError, match="the answer of pay is None"):
        asyncio.run(gateway.pay(5))
    assert gateway.refund(5) is None
    assert gateway.count("pay") == 0


@pytest.mark.parametrize("hint", ["int | None", "Any", "None", "object", "no.such", "T"])
def test_an_answer_may_be_none_where_the_annotation_lets_it(hint: str) -> None:
    """Also where it cannot be read, or says nothing."""
    space: dict[str, Any] = {"Any": Any, "T": TypeVar("T")}
    exec(f"from __future__ import annotations\ndef find(name) -> {hint}: ...", space)  # noqa: S102 - annotations as text

    assert EffectRecorder(like=SimpleNamespace(find=space["find"]), find=None).find("ada") is None


def test_a_call_that_the_original_does_not_take_is_a_type_error_and_no_effect() -> None:
    """As there: a key that a provider's function has no parameter for protects nothing."""
    gateway = EffectRecorder(like=like)

    with pytest.raises(
        TypeError, match=r"refund\(\)\(amount: 'int'\) -> 'None' cannot be called so: .*idempotency_key"
    ):
        gateway.refund(5, idempotency_key="k")

    assert gateway.calls == []
    assert EffectRecorder(like=Sending).__call__ is not None
    assert EffectRecorder(like=SimpleNamespace(max=max)).max(1, 2, 3, 4) == {"id": "max-1"}  # no signature to be had


@pytest.mark.parametrize("name", ["call", "calls", "clear", "count", "effects"])
def test_what_it_stands_in_for_may_not_have_the_recorders_own_names(name: str) -> None:
    """Silently the job would call the recorder's; the message says the way round, and that way works."""
    client = SimpleNamespace(**{name: refund}, charge=refund)

    with pytest.raises(ConfigurationError, match=rf"has {name}, and so has the recorder itself.*put its \.gateway"):
        EffectRecorder(like=client)

    recorder = EffectRecorder(like=SimpleNamespace(gateway=client))
    getattr(recorder.gateway, name)(5)
    assert [effect.name for effect in recorder.effects] == [f"gateway.{name}"]


@pytest.mark.parametrize("function", [refund, pay, max])
def test_one_function_is_stood_in_for_by_what_holds_it(function: Any) -> None:
    """It has no functions of its own; the message says the way, and that way works."""
    name = function.__name__
    told = rf"^EffectRecorder\(like=…\): {name} is a function: .*Namespace\({name}={name}\)\), and put its \.{name}"
    with pytest.raises(ConfigurationError, match=told):
        EffectRecorder(like=function)

    assert callable(getattr(EffectRecorder(like=SimpleNamespace(**{name: function})), name))


def test_what_is_counted_has_a_name_that_is_there() -> None:
    """A typo would count nothing, and a test that says "none" would pass."""
    gateway = EffectRecorder(like=SimpleNamespace(charge=refund, api=SimpleNamespace(send=Sending())))

    assert (gateway.count("charge"), gateway.count("api.send.effect")) == (0, 0)
    with pytest.raises(
        ConfigurationError, match=r"^count\('chrge'\): SimpleNamespace has no 'chrge'. Did you mean 'ch"
    ):
        gateway.count("chrge")
    gateway.call("written_down")
    assert gateway.count("written_down") == 1
    assert EffectRecorder().count("anything") == 0


def test_a_mock_is_stood_in_for_whatever_it_says_that_it_has() -> None:
    """It has every name that it is asked for."""
    assert EffectRecorder(like=Mock()).charge(5) == {"id": "charge.effect-1"}


def test_answers_may_be_given_by_any_name() -> None:
    """Those of the recorder's own options, and those with a dot, too; a typo is told in these words."""
    client = SimpleNamespace(key=refund, fails=refund, api=SimpleNamespace(charge=refund))

    gateway = EffectRecorder(like=client, answers={"key": 1, "fails": 2, "api.charge": 3})

    assert (gateway.key(5), gateway.fails(5), gateway.api.charge(5)) == (1, 2, 3)
    with pytest.raises(ConfigurationError, match=r"EffectRecorder\(answers=\{'kez': …\}\): .* no 'kez'"):
        EffectRecorder(like=client, answers={"kez": 1})


def test_an_answer_is_given_once() -> None:
    """Two answers of one function contradict each other."""
    with pytest.raises(ConfigurationError, match="'charge' has two answers: give it in answers= or by its name"):
        EffectRecorder(charge=1, answers={"charge": 2})
    with pytest.raises(ConfigurationError, match=r"answers= is a mapping .*, no list: answers=\{'charge'"):
        EffectRecorder(answers=["charge"])  # type: ignore[arg-type]


def test_an_answer_is_each_callers_own() -> None:
    """A job may take apart what it got: neither the next call nor a replay misses anything."""
    lock = threading.Lock()
    gateway = EffectRecorder(charge={"id": "c-1", "lines": [1]}, balance={"cents": 5}, hold=lock, reads=["balance"])

    for key in (None, None, "k-1", "k-1"):
        answer = gateway.charge(idempotency_key=key) if key else gateway.charge()
        assert (answer.pop("id"), answer["lines"].pop()) == ("c-1", 1)
    assert [gateway.balance().pop("cents") for _ in range(2)] == [5, 5]
    assert gateway.hold() is lock, "what cannot be copied"


def test_an_answer_that_is_an_exception_is_raised() -> None:
    """As a provider's client does; then nothing happened."""
    gateway = EffectRecorder(charge=Declined("no"), refund=lambda: Declined("neither"))

    for function in (gateway.charge, gateway.refund):
        with pytest.raises(Declined, match=r"no|neither"):
            function()
    assert (len(gateway.calls), gateway.count()) == (2, 0)
