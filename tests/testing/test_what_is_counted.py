"""What a proof counts: calls of the recorder that it was given, for each job apart, with what they were called with."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import boto3
import msgspec
import pydantic
import pytest

from onceq import App, Context, job
from onceq.testing import Diagnosis, EffectRecorder, Environment, NotEffectivelyOnce, prove_effectively_once
from onceq.testing.calls import Call, Write
from onceq.testing.recorder import plain, same

gateway = EffectRecorder()
KEY = {"pk": {"S": "o-1"}}
ABSENT = "attribute_not_exists(pk)"


@job("receive", max_duration=5)
def receive(_payload: dict[str, Any]) -> None:
    """Take what others send."""


def test_a_recorder_that_nothing_calls_is_told_whatever_else_was_counted(env: Environment) -> None:
    """It stands in another place than the one that the job calls: the real gateway was called."""
    charged = []

    @job("charge_elsewhere", max_duration=5)
    def charge_elsewhere(_payload: dict[str, Any], ctx: Context) -> None:
        charged.append(1)
        ctx.send(receive, {}, key=f"r-{ctx.key}")

    app = App([charge_elsewhere, receive])
    for effects in (gateway, lambda: 0):
        with pytest.raises(NotEffectivelyOnce) as found:
            prove_effectively_once(charge_elsewhere, {}, effects=effects, app=app, env=env)
        assert found.value.report.diagnosis is Diagnosis.NO_EFFECT
        assert len(found.value.report.results) == 1
    assert prove_effectively_once(charge_elsewhere, {}, app=app, env=env).effects == {"the message to receive": 1}


def test_what_a_job_writes_beside_what_is_counted_is_named(env: Environment) -> None:
    """It may be there twice, and the proof says that it did not look."""
    charged = EffectRecorder()

    @job("charge_and_note", max_duration=5)
    def charge_and_note(_payload: dict[str, Any], ctx: Context) -> None:
        sqs = boto3.client("sqs")
        sqs.get_queue_attributes(QueueUrl=env.settings.queue("default").dlq_url)
        sqs.tag_queue(QueueUrl=env.settings.queue("default").dlq_url, Tags={"last": "o-1"})
        charged.charge(idempotency_key=ctx.idempotency_key_for("charge"))

    report = prove_effectively_once(charge_and_note, {}, effects=charged, env=env)

    assert report.uncounted == ["TagQueue"]
    assert report.summary().endswith("scenarios, charge x1 in each. Not counted: TagQueue")
    assert report.to_json()["uncounted"] == ["TagQueue"]


class Colour(Enum):
    """A colour."""

    RED = 1
    BLUE = 2


class Client:
    """Another object in each attempt."""


@dataclass(eq=False)
class Line:
    """Compared by its fields, though it does not say so."""

    sku: str
    client: Client = field(default_factory=Client)


@dataclass
class Order:
    """Holds another object, which is another one in each attempt."""

    lines: list[Line]


class Struct(msgspec.Struct):
    """A Struct."""

    amount: Decimal
    client: Any = None


class Model(pydantic.BaseModel):
    """A model."""

    at: datetime


class Slow:
    """Cannot be compared."""

    def __init__(self, told: str) -> None:
        self.told = told

    def __eq__(self, _other: object) -> bool:
        raise ValueError

    __hash__ = None  # type: ignore[assignment]  # as of an array

    def __repr__(self) -> str:
        return self.told


@pytest.mark.parametrize(
    ("one", "again", "another"),
    [
        (Decimal(5), Decimal("5.0"), Decimal(10)),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
        (UUID(int=1), UUID(int=1), UUID(int=2)),
        (Colour.RED, Colour.RED, Colour.BLUE),
        ({1, 2}, {2, 1}, {1, 3}),
        (Line("a"), Line("a"), Line("b")),
        (Order([Line("a")]), Order([Line("a")]), Order([Line("a"), Line("a")])),
        (Struct(Decimal(1), Client()), Struct(Decimal(1), Client()), Struct(Decimal(2), Client())),
        (Model(at=datetime(2026, 1, 1, tzinfo=UTC)), Model(at=datetime(2026, 1, 1, tzinfo=UTC)),
         Model(at=datetime(2027, 1, 1, tzinfo=UTC))),
        ({"a": [Decimal(1)]}, {"a": (Decimal(1),)}, {"a": [Decimal(2)]}),
        (b"1", b"1", b"2"),
        (Slow("a"), Slow("a"), Slow("b")),
        (Client(), Client(), None),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_arguments_are_compared_by_what_they_say(one: Any, again: Any, another: Any) -> None:
    """Of whatever type, and down to its fields; what is an object of its own alone is compared by its type."""
    assert same(plain([one]), plain([again]))
    assert not same(plain([one]), plain([another]))

    recorder = EffectRecorder()
    for value in (one, again, another):
        recorder.charge(value, idempotency_key="k")
    assert [call.differs for call in recorder.calls] == [False, False, True]


def test_an_effect_knows_its_job(env: Environment) -> None:
    """By its key, in a batch too; a test's own call is nobody's."""
    recorder = EffectRecorder()

    @job("pay", max_duration=5)
    async def pay(payload: dict[str, Any], ctx: Context) -> None:
        recorder.charge(payload["id"], idempotency_key=ctx.key)

    env.use(App([pay]))
    env.deliver([env.enqueue(pay, {"id": f"o-{number}"}, key=f"o-{number}") for number in range(4)])
    recorder.charge("mine")

    assert {(effect.arguments[0], effect.job) for effect in recorder.effects} == {
        ("mine", ""), *((f"o-{number}", f"o-{number}") for number in range(4)),
    }  # fmt: skip


CUSTOMER: dict[str, str] = {}


@job("first_customer", key="order_id", max_duration=5)
def first_customer(order: dict[str, Any], ctx: Context) -> Any:
    """Look the customer up once in a process."""
    customer = CUSTOMER.setdefault("id", order["customer"])
    key = ctx.idempotency_key_for("charge")
    return gateway.charge({"customer": customer, "currency": "EUR"}, idempotency_key=key)


def test_what_is_another_jobs_is_found_in_an_effect(env: Environment) -> None:
    """As many effects as ever, each to the first customer's account."""
    CUSTOMER.clear()
    order = {"order_id": "o-1", "customer": "ada", "currency": "EUR"}

    with pytest.raises(NotEffectivelyOnce) as found:
        prove_effectively_once(
            first_customer, order, other={"order_id": "o-2", "customer": "bob", "currency": "EUR"},
            effects=gateway, app=App([first_customer]), env=env,
        )  # fmt: skip

    worst = found.value.report.worst
    assert worst is not None
    assert worst.findings[0].diagnosis is Diagnosis.MIXED_UP
    assert worst.findings[0].evidence == "charge of o-2 was given 'ada', which is that of o-1"


def test_a_second_job_may_have_other_effects(env: Environment) -> None:
    """Each is counted against its own undisturbed run."""

    @job("pay_lines", key="order_id", max_duration=5)
    def pay_lines(order: dict[str, Any], ctx: Context) -> None:
        for line in order["lines"]:
            gateway.charge(line, idempotency_key=ctx.idempotency_key_for(line))

    report = prove_effectively_once(
        pay_lines, {"order_id": "o-1", "lines": ["a"]}, other={"order_id": "o-2", "lines": ["a", "b"]},
        effects=gateway, app=App([pay_lines]), env=env,
    )  # fmt: skip
    assert report.effects == {"charge": 1}


@pytest.mark.parametrize(
    ("operation", "request_", "writes"),
    [
        ("PutItem", {"TableName": "t", "Item": {"at": {"N": "1"}, **KEY}}, [Write("t o-1")]),
        ("PutItem", {"TableName": "t", "Item": {"at": {"N": "1"}}}, [Write("t 1")]),
        ("PutItem", {"TableName": "t", "Item": {}}, []),
        ("UpdateItem", {"TableName": "t", "Key": KEY, "UpdateExpression": "ADD n :o"}, [Write("t o-1", adds=True)]),
        (
            "UpdateItem",
            {"TableName": "t", "Key": {"pk": {"S": "a"}, "sk": {"S": "b"}}, "UpdateExpression": "ADD n :o SET m = :o"},
            [Write("t a, b")],
        ),
        (
            "DeleteItem",
            {"TableName": "t", "Key": KEY, "ConditionExpression": ABSENT},
            [Write("t o-1", deletes=True, asks=True)],
        ),
        (
            "BatchWriteItem",
            {"RequestItems": {"t": [{"PutRequest": {"Item": KEY}}, {"DeleteRequest": {"Key": KEY}}]}},
            [Write("t o-1"), Write("t o-1", deletes=True)],
        ),
        (
            "TransactWriteItems",
            {
                "TransactItems": [
                    {"ConditionCheck": {"TableName": "t", "Key": KEY, "ConditionExpression": ABSENT}},
                    {"Put": {"TableName": "t", "Item": KEY, "ConditionExpression": ABSENT}},
                    {"Delete": {"TableName": "u", "Key": KEY}},
                ]
            },
            [Write("t o-1", asks=True), Write("u o-1", deletes=True, guarded=True)],
        ),
        ("GetItem", {"TableName": "t", "Key": KEY}, []),
    ],
)
def test_a_request_says_which_items_it_writes(operation: str, request_: dict[str, Any], writes: list[Write]) -> None:
    """One by one, each with its own condition; none of a table's own schema is known here."""
    assert Call("dynamodb", operation, request_).writes == writes


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("GetItem", {"TableName": "t", "Key": KEY}),
        ("BatchGetItem", {"RequestItems": {"t": {"Keys": [KEY]}}}),
        ("TransactGetItems", {"TransactItems": [{"Get": {"TableName": "t", "Key": KEY}}]}),
        ("PutItem", {"TableName": "t", "Item": KEY}),
    ],
)
def test_a_request_says_which_items_it_sees(operation: str, request_: dict[str, Any]) -> None:
    """What it reads; and what a write that was refused has learned of."""
    assert Call("dynamodb", operation, request_).looks == ["t o-1"]
