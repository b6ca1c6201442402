"""Job types: what can be declared, what is refused where it is written, and how a message becomes a job."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import textwrap
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pydantic
import pytest

from onceq import Backoff, ConfigurationError, Context, IdempotencyKeyError, JobType, PayloadError, job
from onceq.catalogue import Job, JobTypes, UnknownJob
from onceq.keys import join_key
from onceq.message import Message, seal
from onceq.record import pk_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from onceq.errors import MessageError


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: int = 1


class OrderDict(TypedDict):
    order_id: str
    amount: int


class OrderStruct(msgspec.Struct, frozen=True):
    order_id: str
    amount: int = 1


class OrderModel(pydantic.BaseModel):
    order_id: str
    amount: int = 1


CONTEXT = Context("pay", "k", 1, 1, Message(None, None), lambda: 9.0)


def plain(payload: dict[str, Any]) -> Any:
    """Return what it got."""
    return payload


def typed(payload: Order) -> Any:
    """Return what it got."""
    return payload


def typed_dict(payload: OrderDict) -> Any:
    """Return what it got."""
    return payload


def struct(payload: OrderStruct, ctx: Context) -> Any:
    """Return what it got."""
    assert ctx is CONTEXT
    return payload


def model(payload: OrderModel, *, ctx: Context) -> Any:
    """Return what it got."""
    raise AssertionError


def model_with_context(payload: OrderModel, anything: Context) -> Any:
    """Return what it got; the context is known by its annotation."""
    assert anything is CONTEXT
    return payload


def unannotated(payload, ctx) -> Any:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the point
    """Return what it got; the context is known by its name."""
    assert ctx is CONTEXT
    return payload


def spelt_out(payload: dict[str, Any], context: Any) -> Any:
    """Return what it got; the context is known by its other name."""
    assert context is CONTEXT
    return payload


async def coroutine(payload: Order) -> Any:
    """Return what it got."""
    await asyncio.sleep(0)
    return payload


RAW = {"order_id": "o-1", "amount": 5}
FORMS: dict[str, tuple[Any, Any]] = {
    "dict": (plain, RAW),
    "dataclass": (typed, Order("o-1", 5)),
    "TypedDict": (typed_dict, RAW),
    "Struct and context": (struct, OrderStruct("o-1", 5)),
    "pydantic and context": (model_with_context, OrderModel(order_id="o-1", amount=5)),
    "unannotated": (unannotated, RAW),
    "context by name": (spelt_out, RAW),
}


@pytest.mark.parametrize(("function", "expected"), FORMS.values(), ids=list(FORMS))
def test_a_payload_arrives_as_its_annotation_says(function: Any, expected: object) -> None:
    """Dict, dataclass, TypedDict, Struct, pydantic model, or no annotation; with the context or without."""
    job_type = JobType(function, "pay")

    assert job_type.invoke(job_type.load(RAW), CONTEXT) == expected
    assert type(job_type.load(RAW)) is type(expected)


def test_a_coroutine_function_is_a_job_too() -> None:
    """Calling it gives the coroutine, as the plain function does."""
    job_type = job("pay")(coroutine)

    assert asyncio.run(job_type.invoke(job_type.load(RAW), CONTEXT)) == Order("o-1", 5)


def test_a_job_may_take_no_payload() -> None:
    """A job without parameters, or with the context alone, is given just that."""
    assert JobType(lambda: "ran", "tick").invoke(None, CONTEXT) == "ran"

    @job("tock")
    def tock(ctx: Context) -> str:
        return ctx.key

    assert tock.invoke({"ignored": 1}, CONTEXT) == "k"


def test_a_decorated_job_is_called_as_the_plain_function() -> None:
    """A unit test of a job needs no framework."""

    @job("pay", max_attempts=3)
    def pay(payload: Order, ctx: Context | None = None) -> int:
        return payload.amount

    assert pay(Order("o-1", 7)) == pay(payload=Order("o-1", 7)) == 7


@pytest.mark.parametrize(
    "function",
    [
        lambda ctx, payload: None,
        lambda payload, other: None,
        lambda payload, *, other: None,
        model,
    ],
    ids=["context first", "two payloads", "keyword-only payload", "keyword-only context"],
)
def test_other_signatures_are_refused_where_they_are_written(function: Any) -> None:
    """A job takes a payload and then, if it wants it, the context: anything else fails at import."""
    with pytest.raises(ConfigurationError, match=r"a job takes a payload and then, if it wants it, `ctx: Context`"):
        JobType(function, "pay")


@pytest.mark.parametrize(
    "function", [functools.partial(plain, {}), object(), 5, "pay"], ids=["partial", "object", "5", "text"]
)
def test_what_is_no_function_is_refused(function: Any) -> None:
    """The error names the job type."""
    with pytest.raises(ConfigurationError, match="pay"):
        JobType(function, "pay")


def test_an_annotation_that_only_a_type_checker_sees_is_a_clear_error(tmp_path: Path) -> None:
    """ruff moves imports under TYPE_CHECKING; a job's annotations are read when it is decorated."""
    source = textwrap.dedent(
        '''
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from onceq import job
        if TYPE_CHECKING:
            from decimal import Decimal
        @job("pay")
        def pay(amount: Decimal) -> None:
            """Pay."""
        '''
    )

    with pytest.raises(ConfigurationError) as refused:
        exec(compile(source, "jobs/pay.py", "exec"), {"__name__": "pay"})  # noqa: S102 - our own text

    assert "pay: the annotations of its function cannot be read" in str(refused.value)
    assert "'Decimal' is not defined" in str(refused.value)
    assert "import what they name outside `if TYPE_CHECKING:`" in str(refused.value)


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "job type name ''"),
    ({"name": "Pay"}, "job type name 'Pay'"),
    ({"name": "1pay"}, "job type name '1pay'"),
    ({"name": "pay it"}, "job type name 'pay it'"),
    ({"name": "pay#1"}, "job type name 'pay#1'"),
    ({"name": "~locks"}, "job type name '~locks'"),
    ({"name": "p" * 101}, "job type name 'ppp"),
    ({"name": "pay\n"}, "job type name 'pay"),
    ({"name": None}, "job type name None"),
    ({"formerly": ("Old",)}, "job type name 'Old'"),
    ({"formerly": "old"}, "formerly='old'"),
    ({"max_attempts": 0}, "max_attempts=0"),
    ({"max_attempts": -1}, "max_attempts=-1"),
    ({"max_attempts": 2.5}, "max_attempts=2.5"),
    ({"max_attempts": "5"}, "max_attempts='5'"),
    ({"max_attempts": True}, "max_attempts=True"),
    ({"max_duration": 0}, "max_duration=0"),
    ({"max_duration": -1}, "max_duration=-1"),
    ({"max_duration": float("nan")}, "max_duration=nan"),
    ({"max_duration": float("inf")}, "max_duration=inf"),
    ({"max_duration": "20"}, "max_duration='20'"),
    ({"max_duration": 43_201}, "max_duration=43201"),
    ({"retention": 60}, "retention=60"),
    ({"retention": timedelta(0)}, "retention=datetime.timedelta(0)"),
    ({"retention": timedelta(seconds=-1)}, "retention="),
    ({"backoff": 5}, "backoff=5"),
    ({"backoff": None}, "backoff=None"),
    ({"queue": ""}, "queue=''"),
    ({"queue": None}, "queue=None"),
    ({"reject": ValueError}, "reject=<class 'ValueError'>"),
    ({"reject": (ValueError("x"),)}, "reject=(ValueError"),
    ({"reject": (KeyboardInterrupt,)}, "reject=(<class 'KeyboardInterrupt'>"),
    ({"reject": ("ValueError",)}, "reject=('ValueError'"),
    ({"key": 5}, "key=5"),
    ({"key": "order["}, "key='order[' is not a JMESPath expression"),
    ({"fingerprint": 5}, "fingerprint=5"),
    ({"fingerprint": "["}, "fingerprint='[' is not a JMESPath expression"),
]


@pytest.mark.parametrize(("options", "reason"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
def test_a_bad_option_is_refused_where_it_is_written(options: dict[str, Any], reason: str) -> None:
    """A mistake shows at import and names the option, not at the first message that meets it."""
    with pytest.raises(ConfigurationError) as refused:
        job(**({"name": "pay"} | options))(plain)

    assert reason in str(refused.value)


def test_a_job_type_is_a_frozen_value() -> None:
    """No per-job state, and nothing registered by making one."""
    job_type = job("pay", queue="q", formerly=["charge"], backoff=Backoff(2, 9), reject=[ValueError])(plain)

    assert (job_type.formerly, job_type.reject, job_type.max_attempts) == (("charge",), (ValueError,), 5)
    assert job_type.retention == timedelta(days=60)
    with pytest.raises(dataclasses.FrozenInstanceError):
        job_type.queue = "other"  # type: ignore[misc]  # the point
    assert hash(job_type) == hash(job_type)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("order_id", "o-1"),
        ("amount", "5"),
        ("[order_id, amount]", "o-1:5"),
        (lambda order: order.order_id, "o-1"),
        (lambda order: (order.order_id, order.amount), join_key("o-1", 5)),
        (lambda order: [f"{order.order_id}:x"], "o-1%3Ax"),
    ],
    ids=["name", "int", "list", "callable", "tuple", "separator"],
)
def test_a_key_is_selected_from_the_payload(selector: Any, expected: str) -> None:
    """A JMESPath expression reads the JSON, a callable the typed payload; parts are joined without collisions."""
    job_type = JobType(typed, "pay", key=selector)

    assert job_type.key_of(RAW, job_type.load(RAW)) == expected


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        (None, "no idempotency key: stamp one"),
        ("missing", "key='missing' of 'pay' selects nothing in the payload"),
        ("amount > `3`", "is a bool"),
        ("@", "is a dict"),
        ("[missing, order_id]", "' of 'pay' selects not all of its parts"),
        ("[]", "selects nothing in the payload"),
        (lambda order: None, "key= of 'pay' selects nothing in the payload"),
        (lambda order: order.nothing, "key= of 'pay' raised AttributeError"),
        (lambda order: "  ", "is blank"),
        (lambda order: (), "has no parts"),
        ("length(amount)", "key= of 'pay' raised JMESPathTypeError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_key_that_cannot_be_selected_is_refused(selector: Any, reason: str) -> None:
    """A job never runs under no key, or under half of one."""
    job_type = JobType(typed, "pay", key=selector)

    with pytest.raises(IdempotencyKeyError, match=reason.replace("(", r"\(")):
        job_type.key_of(RAW, job_type.load(RAW))


def test_a_fingerprint_covers_what_is_selected() -> None:
    """A field that duplicates may disagree in is left out; ``None`` compares nothing."""
    changed = RAW | {"amount": 6}

    def prints(**options: Any) -> list[str | None]:
        job_type = JobType(typed, "pay", **options)
        return [job_type.fingerprint_of(payload, job_type.load(payload)) for payload in (RAW, changed)]

    whole, selected, called, off = (
        prints(),
        prints(fingerprint="order_id"),
        prints(fingerprint=lambda order: order.order_id),
        prints(fingerprint=None),
    )
    assert whole[0] != whole[1]
    assert selected[0] == selected[1] == called[0] == called[1]
    assert off == [None, None]


@pytest.mark.parametrize("selector", [lambda order: order.nothing, lambda order: object()], ids=["raises", "object"])
def test_a_fingerprint_that_cannot_be_made_refuses_the_message(selector: Any) -> None:
    """Without the comparison a reused key would be answered with another job's result."""
    job_type = JobType(typed, "pay", fingerprint=selector)

    with pytest.raises(PayloadError):
        job_type.fingerprint_of(RAW, job_type.load(RAW))


def read(job_types: JobTypes, name: str, key: object = "k-1") -> Job:
    """Read the job of an envelope."""
    body = seal(job_type=name, idempotency_key=key, payload=RAW, created_at="")  # type: ignore[arg-type]
    return only(job_types.jobs_of(Message("m", body), body, queue="default", max_hops=10))


def only(jobs: Sequence[Job | MessageError] | UnknownJob) -> Job:
    """Return the one job that a message stands for."""
    assert not isinstance(jobs, UnknownJob)
    [job] = jobs
    assert isinstance(job, Job)
    return job


def test_a_chain_of_renames_keeps_the_record_and_the_downstream_keys() -> None:
    """A rename never runs a job again: every name ever used leads to the oldest one's record and keys."""
    generations = [
        JobType(typed, "charge"),
        JobType(typed, "take_payment", formerly=("charge",)),
        JobType(typed, "pay", formerly=("take_payment", "charge")),
    ]

    jobs = [read(JobTypes([generation]), name) for generation in generations for name in names_of(generation)]

    assert len(jobs) == 6
    assert {one.pk for one in jobs} == {pk_of("charge", "k-1")}
    assert {one.job_type.storage_name for one in jobs} == {"charge"}
    contexts = [Context(one.job_type.storage_name, one.key, 1, 1, one.message, lambda: 1.0) for one in jobs]
    assert len({context.idempotency_key_for("charge") for context in contexts}) == 1


def names_of(job_type: JobType[..., Any]) -> list[str]:
    """Return every name that a job type is served under."""
    return [job_type.name, *job_type.formerly]


def test_names_are_served_by_one_job_type_only() -> None:
    """Two job types that claim one name, old or new, are a mistake in app.py."""
    for second in (JobType(typed, "pay"), JobType(typed, "other", formerly=("pay",))):
        with pytest.raises(ConfigurationError, match="two job types serve the name 'pay'"):
            JobTypes([JobType(plain, "pay"), second])
    with pytest.raises(ConfigurationError, match="two job types serve the name 'pay'"):
        JobTypes([JobType(typed, "pay", formerly=("pay",))])


def test_only_job_types_are_composed_and_a_default_is_one_of_them() -> None:
    """A plain function in the list, or a default that nobody serves, is a mistake in app.py."""
    pay, other = JobType(plain, "pay"), JobType(plain, "other")

    with pytest.raises(ConfigurationError, match="is not a job type: write @job"):
        JobTypes([plain])  # type: ignore[list-item]  # the point
    for default in (other, {"default": other}):
        with pytest.raises(ConfigurationError, match="the default job type 'other' is not in the App's list"):
            JobTypes([pay], default)
    assert list(JobTypes([pay, other], {"default": other})) == [pay, other]


def test_an_unknown_name_is_an_error_with_a_suggestion() -> None:
    """For a caller of enqueue or lookup; a message of an unknown type is kept instead."""
    job_types = JobTypes([JobType(plain, "process_payment"), JobType(plain, "other")])

    with pytest.raises(ConfigurationError, match="no job type is named 'proces_payment': did you mean 'process_pay"):
        job_types.named("proces_payment")
    with pytest.raises(ConfigurationError, match="no job type is named 'zzz': known are other, process_payment"):
        job_types.named("zzz")
    body = seal(job_type="zzz", idempotency_key="k", payload={}, created_at="")
    assert isinstance(job_types.jobs_of(Message("m", body), body, queue="default", max_hops=1), UnknownJob)


def test_a_message_without_envelope_goes_to_the_default_of_its_queue() -> None:
    """One default for all queues, or one by queue name; the body is whole the payload."""
    pay, other = JobType(typed, "pay", key="order_id"), JobType(typed, "other", key="amount")
    message = Message("m", '{"order_id": "o-1", "amount": 5}')

    everywhere = only(JobTypes([pay], pay).jobs_of(message, message.body, queue="any", max_hops=1))
    by_queue = only(
        JobTypes([pay, other], {"a": pay, "b": other}).jobs_of(message, message.body, queue="b", max_hops=1)
    )

    assert (everywhere.pk, by_queue.pk) == ("pay#o-1", "other#5")
