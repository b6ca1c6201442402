"""Where the downstream key of a call is: by name, by position, or wherever a function of the caller's finds it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock
from uuid import uuid4

import pytest

from onceq import App, ConfigurationError, Context, JobType, job
from onceq.testing import Diagnosis, EffectRecorder, NotEffectivelyOnce, prove_effectively_once

if TYPE_CHECKING:
    from onceq.testing import Environment


def last(customer: str, cents: int, idempotency_key: str | None = None) -> dict[str, Any]:
    """Take the key behind the others."""
    return {"charged": (customer, cents, idempotency_key)}


def first(idempotency_key: str, /, customer: str, cents: int) -> dict[str, Any]:
    """Take the key before the others, by its place alone."""
    return {"charged": (customer, cents, idempotency_key)}


async def awaited(customer: str, cents: int, idempotency_key: str) -> dict[str, Any]:
    """Take the key behind the others."""
    return {"charged": (customer, cents, idempotency_key)}


def many(*lines: Any, idempotency_key: str) -> dict[str, Any]:
    """Take any number before a key that has to be named."""
    return {"charged": (lines, idempotency_key)}


class Client:
    """A client, whose functions have their object in front."""

    def charge(self, customer: str, cents: int, idempotency_key: str) -> dict[str, Any]:
        """Take the key behind the others."""
        return {"charged": (self, customer, cents, idempotency_key)}


GATEWAY = SimpleNamespace(last=last, first=first, awaited=awaited, many=many, client=Client())


def seen(recorder: EffectRecorder) -> list[tuple[Any, ...]]:
    """Return what was written down."""
    return [(call.key, call.arguments, dict(call.named), call.repeated) for call in recorder.calls]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("last", ("cus_1", 500, "k-1")),
        ("first", ("k-1", "cus_1", 500)),
        ("awaited", ("cus_1", 500, "k-1")),
    ],
)
def test_a_key_that_is_given_by_position_is_the_key(name: str, arguments: tuple[Any, ...]) -> None:
    """By the original's parameters; the others are what the call is compared by, and what an answer is made of."""
    recorder = EffectRecorder(like=GATEWAY, answers={name: lambda customer, cents: (customer, cents)})

    for _ in range(2):
        answer = getattr(recorder, name)(*arguments)
        assert (asyncio.run(answer) if name == "awaited" else answer) == ("cus_1", 500)

    assert seen(recorder) == [("k-1", ("cus_1", 500), {}, False), ("k-1", ("cus_1", 500), {}, True)]


def test_a_key_is_the_same_by_position_and_by_name() -> None:
    """One effect, which did not come with other arguments."""
    recorder = EffectRecorder(like=GATEWAY)

    recorder.last("cus_1", 500, "k-1")
    recorder.last("cus_1", 500, idempotency_key="k-1")

    assert (recorder.count(), [call.differs for call in recorder.calls]) == (1, [False, False])


def test_without_a_key_by_position_there_is_none() -> None:
    """Left out, or given as nothing; what comes before a key that has to be named is no key."""
    recorder = EffectRecorder(like=GATEWAY)

    recorder.last("cus_1", 500)
    recorder.last("cus_1", 500, None)
    recorder.many("a", "b", "c", idempotency_key="k-1")

    assert seen(recorder) == [
        (None, ("cus_1", 500), {}, False),
        (None, ("cus_1", 500), {}, False),
        ("k-1", ("a", "b", "c"), {}, False),
    ]


def test_a_key_by_position_has_the_name_that_was_given() -> None:
    """Also inside of what is stood in for, and of a method, without its object."""
    recorder = EffectRecorder(key="cents", like=GATEWAY)

    recorder.client.charge("cus_1", 500, "k-1")

    assert seen(recorder) == [("500", ("cus_1", "k-1"), {}, False)]


def post(url: str, json: Any = None, **options: Any) -> Any:
    """Post, as plain HTTP clients do."""
    return url, json, options


HTTP = SimpleNamespace(post=post)


def from_headers(_url: str, *_rest: Any, headers: dict[str, Any] | None = None, **_: Any) -> Any:
    """Return the key of a request."""
    return (headers or {}).get("Idempotency-Key")


def test_a_function_finds_the_key_in_what_the_call_got() -> None:
    """In headers or a body; the call keeps all that it got, and each function has its own keys."""
    recorder = EffectRecorder(like=HTTP, key=from_headers)
    headers = {"Idempotency-Key": "k-1", "Accept": "text/html"}

    for cents in (5, 5, 6):
        recorder.post("https://charge", {"cents": cents}, headers=headers)
    recorder.post("https://charge", {"cents": 5}, headers={})
    recorder.post("https://charge", {"cents": 5})

    assert [(call.key, call.repeated, call.differs) for call in recorder.calls] == [
        ("k-1", False, False), ("k-1", True, False), ("k-1", True, True), (None, False, False), (None, False, False),
    ]  # fmt: skip
    assert recorder.calls[0].arguments == ("https://charge", {"cents": 5})
    assert recorder.calls[0].named == {"headers": headers}

    body = EffectRecorder(key=lambda _url, body: body["request"])
    body.post("https://charge", {"request": 7})
    assert [call.key for call in body.calls] == ["7"]


def test_a_call_in_which_no_key_can_be_looked_for_is_an_error() -> None:
    """It names the function and what was raised: silently without a key it would be diagnosed as the job's mistake."""
    recorder = EffectRecorder(key=lambda _url, *, headers, **_: headers["Idempotency-Key"])

    with pytest.raises(ConfigurationError) as missing:
        recorder.post("https://charge", headers={})
    with pytest.raises(ConfigurationError) as unfit:
        recorder.charge("cus_1", 500)

    advice = (
        "Let it take whatever the recorder's functions are called with, and return None where a call has no key "
        "(headers.get(…)); a function that only looks something up belongs into reads="
    )
    assert (
        str(missing.value) == f"EffectRecorder(key=…) raised KeyError: 'Idempotency-Key' for a call of post. {advice}"
    )
    assert str(unfit.value).startswith("EffectRecorder(key=…) raised TypeError: ")
    assert str(unfit.value).endswith(f" for a call of charge. {advice}")
    assert recorder.calls == []


def test_what_only_reads_has_no_key() -> None:
    """No function is asked for it, and an argument of that name is what is looked up by: its answer gets it."""
    by_function = EffectRecorder(key=lambda **_: 1 / 0, reads=["get"])
    by_name = EffectRecorder(reads=["find"], find=lambda *, idempotency_key: {"of": idempotency_key})

    assert by_function.get("https://rates") == {"id": "get-1"}
    assert by_name.find(idempotency_key="k-1") == {"of": "k-1"}
    assert seen(by_name) == [(None, (), {"idempotency_key": "k-1"}, False)]


@pytest.mark.parametrize("key", [7, "", None])
def test_a_key_that_is_neither_a_name_nor_a_function_is_refused(key: Any) -> None:
    """In words that say what to give."""
    told = rf"key= is the name of the parameter .*, or a function .*, not {key!r}: key='request_id', or key=lambda"
    with pytest.raises(ConfigurationError, match=told):
        EffectRecorder(key=key)


def paying(recorder: EffectRecorder, **headers: Any) -> JobType[..., Any]:
    """Return a job that posts with these headers, each made of its context."""

    @job("pay_by_http", max_duration=5)
    def pay_by_http(payload: dict[str, Any], ctx: Context) -> Any:
        made = {name.replace("_", "-"): value(ctx) for name, value in headers.items()}
        return ctx.step("post", recorder.post, "https://charge", json=payload, headers=made)

    return pay_by_http


def test_a_job_whose_key_is_in_the_headers_takes_effect_once(env: Environment) -> None:
    """As one with a parameter for it."""
    recorder = EffectRecorder(like=HTTP, key=from_headers)
    pay = paying(recorder, Idempotency_Key=lambda ctx: ctx.idempotency_key_for("charge"))

    assert prove_effectively_once(pay, {"cents": 5}, effects=recorder, app=App([pay]), env=env).effects == {"post": 1}


@pytest.mark.parametrize(
    ("headers", "diagnosis"),
    [
        ({"Idempotency_Key": lambda ctx: f"{ctx.key}-{ctx.attempt}"}, Diagnosis.KEY_FROM_ATTEMPT),
        ({"Idempotency_Key": lambda ctx: ctx.message.message_id}, Diagnosis.KEY_FROM_MESSAGE_ID),
        ({"Idempotency_Key": lambda _ctx: "2029"}, Diagnosis.KEY_SHARED),
        ({"Accept": lambda _ctx: "*/*"}, Diagnosis.NO_DOWNSTREAM_KEY),
    ],
    ids=lambda value: value.name if isinstance(value, Diagnosis) else "",
)
def test_a_wrong_key_in_the_headers_is_found_out(headers: Any, diagnosis: Diagnosis, env: Environment) -> None:
    """With the diagnosis that it has by name."""
    recorder = EffectRecorder(like=HTTP, key=from_headers)
    pay = paying(recorder, **headers)

    with pytest.raises(NotEffectivelyOnce) as found:
        prove_effectively_once(pay, {"cents": 5}, effects=recorder, app=App([pay]), env=env)
    assert found.value.report.diagnosis is diagnosis


@pytest.mark.parametrize("swallows", [False, True])
def test_a_proof_shows_that_no_key_can_be_looked_for(swallows: bool, env: Environment) -> None:  # noqa: FBT001 - pytest
    """By the error's own words, whatever the job makes of it; the next scenario has no such error left."""
    recorder = EffectRecorder(key=lambda _url, *, headers, **_: headers["Idempotency-Key"])

    @job("pay_by_http", max_duration=5)
    def pay_by_http(_payload: dict[str, Any]) -> None:
        try:
            recorder.post("https://charge", headers={})
        except Exception:
            if not swallows:
                raise

    for effects in (recorder, [EffectRecorder(), recorder]):
        with pytest.raises(
            ConfigurationError, match=r"^EffectRecorder\(key=…\) raised KeyError: 'Idempotency-Key' for"
        ):
            prove_effectively_once(pay_by_http, {"cents": 5}, effects=effects, app=App([pay_by_http]), env=env)

    recorder.clear()
    pay = paying(recorder, Idempotency_Key=lambda ctx: ctx.idempotency_key_for("charge"))
    assert prove_effectively_once(pay, {"cents": 5}, effects=recorder, app=App([pay]), env=env).ok


def test_a_proof_shows_that_an_answer_forgot_its_return_though_the_job_swallows_it(env: Environment) -> None:
    """As any mistake in what the recorder was given."""
    recorder = EffectRecorder(like=GATEWAY, last=lambda _customer, _cents: None)

    @job("pay", max_duration=5)
    def pay(payload: dict[str, Any], ctx: Context) -> None:
        with suppress(Exception):
            recorder.last("cus_1", payload["cents"], ctx.idempotency_key_for("charge"))

    with pytest.raises(ConfigurationError, match=r"^the answer of last is None"):
        prove_effectively_once(pay, {"cents": 5}, effects=recorder, app=App([pay]), env=env)


def test_a_key_without_a_text_is_none() -> None:
    """As many a function returns it where there is no header; a provider knows nothing again by it."""
    recorder = EffectRecorder(key=lambda _url, *, headers: headers.get("Idempotency-Key", ""))

    for _ in range(2):
        recorder.post("https://charge", headers={})

    assert [(call.key, call.repeated) for call in recorder.calls] == [(None, False), (None, False)]


@pytest.mark.parametrize("key", [{"id": "k-1"}, ["k-1"], True, object], ids=repr)
def test_what_is_neither_a_text_nor_a_number_is_no_key(key: Any) -> None:
    """Its text may be the same for all jobs, or another one each time."""
    by_name, by_function = EffectRecorder(), EffectRecorder(key=lambda *_: key)
    told = r"^the key of a call of charge is .*, neither a text nor a number: "
    with pytest.raises(ConfigurationError, match=told):
        by_name.charge(5, idempotency_key=key)
    with pytest.raises(ConfigurationError, match=told):
        by_function.charge(5)
    assert by_name.calls == by_function.calls == []


def test_a_key_may_be_of_bytes() -> None:
    """As the headers of some clients are: it is the same key as its text."""
    recorder = EffectRecorder(key=from_headers)

    for key in (b"k-1", "k-1"):
        recorder.post("https://charge", headers={"Idempotency-Key": key})

    assert [(call.key, call.repeated, call.differs) for call in recorder.calls] == [
        ("k-1", False, False), ("k-1", True, False),
    ]  # fmt: skip


def test_a_function_that_is_awaited_finds_no_key() -> None:
    """It would return a coroutine."""

    async def look(**_: Any) -> str:
        return "k-1"

    with pytest.raises(ConfigurationError, match=r"key= is a coroutine function: give one that is not `async def`"):
        EffectRecorder(key=look)


def test_a_header_is_no_name_of_a_parameter() -> None:
    """The message shows the function that finds it."""
    told = (
        r"key='Idempotency-Key' is no name of a parameter: .* key=lambda url, \*, headers, \*\*_: headers.get\('Idemp"
    )
    with pytest.raises(ConfigurationError, match=told):
        EffectRecorder(key="Idempotency-Key")


class Anything:
    """Has whatever it is asked for."""

    def charge(self, cents: int) -> int:
        """Take no key."""
        return cents

    def __getattr__(self, name: str) -> Any:
        """Return a function."""
        return self.charge


class Made:
    """Is called itself."""

    def __init__(self, request_id: str) -> None:
        """Take a key."""
        self.request_id = request_id


class Called:
    """Is a function."""

    def __call__(self, cents: int, *, request_id: str) -> Any:
        """Take a key."""
        return cents, request_id


def with_request_id(cents: int, *, request_id: str = "") -> Any:
    """Take a key of another name."""
    return cents, request_id


def module(name: str, **attributes: Any) -> ModuleType:
    """Return a module."""
    made = ModuleType(name)
    made.__dict__.update(attributes)
    return made


@pytest.mark.parametrize(
    "like",
    [
        SimpleNamespace(charge=with_request_id, limit=5),
        SimpleNamespace(api=SimpleNamespace(charge=with_request_id)),
        SimpleNamespace(gateway=module("jobs.gateway", charge=with_request_id)),
        module("jobs.gateway", api=module("jobs.gateway.api", charge=with_request_id)),
        SimpleNamespace(charge=lambda _cents, **_: None),
        SimpleNamespace(Made=Made),
        SimpleNamespace(charge=Called()),
        Called(),
        SimpleNamespace(limit=5),
        SimpleNamespace(max=max),
        Anything(),
        Mock(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_name_that_may_be_a_parameters_is_taken(like: Any) -> None:
    """Of a function anywhere inside, or of one that takes any."""
    assert EffectRecorder(like=like, key="request_id").calls == []


@pytest.mark.parametrize(
    "like",
    [
        SimpleNamespace(charge=with_request_id, Declined=ValueError, limit=5),
        SimpleNamespace(api=SimpleNamespace(charge=with_request_id)),
        module("jobs.gateway", charge=with_request_id, Any=Any, json=module("json", dumps=lambda **_: None)),
        type("Gateway", (), {"charge": with_request_id}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_name_that_no_function_has_is_refused(like: Any) -> None:
    """With one that is near: silently no call would have a key."""
    told = r"^EffectRecorder\(key='requestid'\): no function of \w.* takes 'requestid'\. Did you mean 'request_id'\?"
    with pytest.raises(ConfigurationError, match=told):
        EffectRecorder(like=like, key="requestid")
    assert EffectRecorder(like=like).calls == [], "who says nothing may have none"


def test_a_key_by_position_is_found_for_a_class_as_for_its_object() -> None:
    """Of a method without the object, which the caller does not give; of the others as it stands there."""

    class Api:
        def charge(self, idempotency_key: str, cents: int) -> Any:
            return idempotency_key, cents

        @staticmethod
        def static(idempotency_key: str, cents: int) -> Any:
            return idempotency_key, cents

        @classmethod
        def of_class(cls, idempotency_key: str, cents: int) -> Any:
            return idempotency_key, cents

    for like in (Api, Api()):
        recorder = EffectRecorder(like=like)
        for name in ("charge", "static", "of_class"):
            getattr(recorder, name)("k-1", 5)
        assert [(call.key, call.arguments) for call in recorder.calls] == [("k-1", (5,))] * 3
        with pytest.raises(
            TypeError, match=r"charge\(\)\(idempotency_key: 'str', cents: 'int'\) -> 'Any' cannot be calle"
        ):
            recorder.charge("k-1")


def test_headers_with_the_key_are_not_compared(env: Environment) -> None:
    """A client puts an id of the request, or a time, beside it; what else came with the key is."""
    recorder = EffectRecorder(like=HTTP, key=from_headers)
    pay = paying(
        recorder,
        Idempotency_Key=lambda ctx: ctx.idempotency_key_for("charge"),
        X_Request_Id=lambda _ctx: str(uuid4()),
    )

    assert prove_effectively_once(pay, {"cents": 5}, effects=recorder, app=App([pay]), env=env).ok

    by_place = EffectRecorder(key=lambda _url, headers, _body: headers["Idempotency-Key"])
    for request, cents in ((b"1", 5), (b"2", 5), (b"2", 6)):
        by_place.post("https://charge", {"Idempotency-Key": "k-1", "X-Request-Id": request}, {"cents": cents})
    in_body = EffectRecorder(key=lambda _url, body: body["request"])
    for cents in (5, 6):
        in_body.post("https://charge", {"request": "k-1", "cents": cents})

    assert [call.differs for call in by_place.calls] == [False, False, True]
    assert [call.differs for call in in_body.calls] == [False, True], "a body is no headers"


def test_a_job_that_gives_its_key_by_position_takes_effect_once(env: Environment) -> None:
    """And one that gives another in each attempt does not."""
    recorder = EffectRecorder(like=GATEWAY)

    @job("pay_by_position", max_duration=5)
    def pay_by_position(payload: dict[str, Any], ctx: Context) -> Any:
        return ctx.step("charge", recorder.last, "cus_1", payload["cents"], ctx.idempotency_key_for("charge"))

    @job("pay_by_attempt", max_duration=5)
    def pay_by_attempt(payload: dict[str, Any], ctx: Context) -> Any:
        return ctx.step("charge", recorder.last, "cus_1", payload["cents"], f"{ctx.key}-{ctx.attempt}")

    app = App([pay_by_position, pay_by_attempt])
    report = prove_effectively_once(pay_by_position, {"cents": 5}, effects=recorder, app=app, env=env)
    assert report.effects == {"last": 1}
    with pytest.raises(NotEffectivelyOnce) as found:
        prove_effectively_once(pay_by_attempt, {"cents": 5}, effects=recorder, app=app, env=env)
    assert found.value.report.diagnosis is Diagnosis.KEY_FROM_ATTEMPT
