"""The second job beside the one on trial, a second send of it, and what it sends to its own job type."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID  # noqa: TC003 - the payload's type is read at run time

import pytest

from onceq import App, ConfigurationError, Context, JobType, job
from onceq.testing import Diagnosis, EffectRecorder, NotEffectivelyOnce, prove_consumer, prove_effectively_once
from onceq.testing.variants import members, variants

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.testing import Environment, Handler, Parts, Report

gateway = EffectRecorder()
ID = "7f3c1b52-0000-4000-8000-00000000000a"


class Region(StrEnum):
    """Where."""

    NORTH = "north"
    SOUTH = "south"


@dataclass(frozen=True)
class Order:
    """Fields that not every text fits."""

    order_id: UUID
    customer: str = "cus_1"


@dataclass(frozen=True)
class Place:
    """Fields that only some texts fit."""

    region: Region
    mode: Literal["fast", "slow"]


def failed(job_type: JobType[..., Any], payload: Any, env: Environment, **options: Any) -> Report:
    """Return the report of a proof that fails."""
    with pytest.raises(NotEffectivelyOnce) as found:
        prove_effectively_once(job_type, payload, effects=gateway, app=App([job_type]), env=env, **options)
    report: Report = found.value.report
    return report


@pytest.mark.parametrize(
    ("value", "first"),
    [
        (ID, "7f3c1b52-0000-4000-8000-000000000001"),
        (ID.upper(), "7F3C1B52-0000-4000-8000-000000000001"),
        ("2026-12-31", "2027-01-01"),
        ("2026-12-31T23:59:00.5+01:00", "2027-01-01T23:59:00.5+01:00"),
        ("9999-12-31", "9999-12-31-2"),
        ("2026-13-31", "2026-13-31-2"),
        ("0099", "0100"),
        ("o-1", "o-1-2"),
        (7, 8),
        (7.5, 8.5),
    ],
)
def test_another_value_has_the_same_form(value: Any, first: Any) -> None:
    """What is read as a UUID, a date or a number is one again."""
    assert variants(value)[0] == first


@pytest.mark.parametrize("value", [True, None])
def test_what_says_yes_or_nothing_has_no_other_value(value: Any) -> None:
    """Nobody's key is made of that."""
    assert variants(value) == []


def test_a_text_of_a_fixed_length_has_another_one_of_that_length() -> None:
    """Numbers are counted on, letters are changed."""
    assert variants("AB-099")[1] == "AB-100"
    assert [variants("abc")[1], variants("aba")[1]] == ["aba", "abb"]


def test_annotations_name_values() -> None:
    """Wherever in a type they stand, also in one that refers to itself, or cannot be read."""

    class Unread:
        """Of what is not there."""

        other: Nowhere  # type: ignore[name-defined]  # noqa: F821 - on purpose

    assert members(list[Place] | None) == ["north", "south", "fast", "slow"]
    assert members(Unread) == []


@job("shared_by_uuid", key="order_id", max_duration=5)
def shared_by_uuid(order: Order, ctx: Context) -> Any:
    """Make the downstream key of the customer."""
    return ctx.step("charge", gateway.charge, 5, idempotency_key=f"{order.customer}-5")


@job("shared_by_place", key="region", max_duration=5)
def shared_by_place(place: Place, ctx: Context) -> Any:
    """Make the downstream key of nothing that tells one from another."""
    return ctx.step("charge", gateway.charge, place.mode, idempotency_key="k")


@pytest.mark.parametrize(
    ("job_type", "payload"),
    [(shared_by_uuid, {"order_id": ID}), (shared_by_place, {"region": "north", "mode": "slow"})],
    ids=["UUID", "enumeration"],
)
def test_a_second_job_is_made_of_whatever_form_the_key_has(
    job_type: JobType[..., Any], payload: Any, env: Environment
) -> None:
    """Without one, a key that two jobs share would never show."""
    assert failed(job_type, payload, env).diagnosis is Diagnosis.KEY_SHARED


def test_where_there_is_no_second_job_the_proof_asks_for_one(env: Environment) -> None:
    """And is not passed without the scenarios that need it."""

    @job("strict", key=lambda order: {"o-1": "k-1", "p-7": "k-7"}[order["order_id"]], max_duration=5)
    def strict(order: dict[str, Any], ctx: Context) -> Any:
        return gateway.charge(order["order_id"], idempotency_key=ctx.idempotency_key_for("charge"))

    proof: dict[str, Any] = {"effects": gateway, "app": App([strict]), "env": env}

    with pytest.raises(ConfigurationError, match=r"no second job of .strict. can be made.*Give other= "):
        prove_effectively_once(strict, {"order_id": "o-1"}, **proof)
    assert prove_effectively_once(strict, {"order_id": "o-1"}, other={"order_id": "p-7"}, **proof).ok


@pytest.mark.parametrize(("identity", "other"), [(7, "8"), ("o-1", "o-1-2")])
def test_the_second_order_of_a_consumer_has_an_identity_of_the_same_form(identity: Any, other: str) -> None:
    """A number is another number."""
    keys = set()

    def by_the_key(parts: Any) -> Any:
        def handler(event: dict[str, Any], _context: Any) -> None:
            for record in event["Records"]:
                order = json.loads(record["body"])
                assert type(order["order_id"]) is type(identity)
                keys.add(str(order["order_id"]))
                parts.work(order, idempotency_key=str(order["order_id"]))

        return handler

    assert prove_consumer(by_the_key, {"order_id": identity}).ok
    assert keys == {str(identity), other}


@job("whole", key=lambda order: hashlib.sha256(json.dumps(order).encode()).hexdigest(), max_duration=5)
def whole(order: dict[str, Any], ctx: Context) -> Any:
    """Derive the key of all that the producer sends."""
    return gateway.charge(order["order_id"], idempotency_key=ctx.idempotency_key_for("charge"))


def test_a_key_of_what_the_producer_stamps_shows_at_a_second_send(env: Environment) -> None:
    """As of a consumer: it is the same job, sent later."""
    report = failed(whole, {"order_id": "o-1", "sent_at": "2026-11-29T12:00:00Z"}, env)

    assert report.diagnosis is Diagnosis.KEY_FROM_SEND
    assert any(one.name.endswith("with another sent_at") for one in report.results if not one.ok)


def test_stamps_may_be_named_or_denied(env: Environment) -> None:
    """A trace id holds no time; and a time may say which job it is."""
    payload = {"order_id": "o-1", "sent_at": "2026-11-29T12:00:00Z", "trace": "t-1"}
    proof: dict[str, Any] = {"effects": gateway, "app": App([whole]), "env": env}

    assert failed(whole, payload, env, stamps=["trace"]).diagnosis is Diagnosis.KEY_FROM_SEND
    assert prove_effectively_once(whole, payload, stamps=(), **proof).ok
    with pytest.raises(ConfigurationError, match="stamps='span': the body has no such field"):
        prove_effectively_once(whole, payload, stamps=["span"], **proof)


def _at(report: dict[str, Any]) -> str:
    return datetime.fromisoformat(report["at"]).strftime("%Y-%m-%d")


@pytest.mark.parametrize("key", ["at", "join('#', [at, region])", _at], ids=["name", "expression", "callable"])
def test_a_time_that_makes_the_key_is_no_stamp(key: Any, env: Environment) -> None:
    """Another time is another report."""

    @job("nightly", key=key, max_duration=5)
    def nightly(report: dict[str, Any], ctx: Context) -> Any:
        return gateway.send(report["at"], idempotency_key=ctx.idempotency_key_for("send"))

    payload = {"at": "2026-11-29T00:00:00Z", "region": "north"}
    assert prove_effectively_once(nightly, payload, effects=gateway, app=App([nightly]), env=env).ok


@job("paging", key="page", max_duration=5)
def paging(payload: dict[str, Any], ctx: Context) -> None:
    """Send itself the next page, up to the third."""
    if payload["page"] < 3:
        ctx.send(paging, {"page": payload["page"] + 1})
    gateway.fetch(payload["page"], idempotency_key=ctx.idempotency_key_for("fetch"))


@job("careless_paging", max_duration=5)
def careless_paging(payload: dict[str, Any], ctx: Context) -> None:
    """Send itself the next page, and do its own twice."""
    ctx.send(careless_paging, {"page": payload["page"] + 1}, key=f"{ctx.key}-next")
    gateway.fetch(payload["page"])


def test_a_job_that_sends_to_its_own_type_is_proved_page_by_page(env: Environment) -> None:
    """The next page is a message that it sends, and no second job beside it, though a second job is made likewise."""
    report = prove_effectively_once(paging, {"page": 1}, effects=gateway, app=App([paging]), env=env)

    assert report.effects == {"fetch": 1, "the message to paging": 1}
    assert failed(careless_paging, {"page": 1}, env).diagnosis is Diagnosis.OUTSIDE_STEP


def test_two_jobs_that_send_under_one_key_share_it(nowhere: Path) -> None:
    """The second message is the first one's duplicate for whoever receives it: its job does not run."""

    @job("ship", max_duration=5)
    def ship(_payload: dict[str, Any]) -> None:
        """Do nothing."""

    @job("order", max_duration=5)
    def order(_payload: dict[str, Any], ctx: Context) -> None:
        ctx.send(ship, {}, key="today")

    with pytest.raises(NotEffectivelyOnce) as found:
        prove_effectively_once(order, {}, app=App([order, ship]))

    assert found.value.report.diagnosis is Diagnosis.KEY_SHARED


def test_a_record_that_ends_before_the_next_send_remembers_as_little_as_a_lock(nowhere: Path) -> None:
    """Nothing died: that the effect has no key is another matter, and not why it came twice."""

    def make(parts: Parts) -> Handler:
        def claim(key: str) -> bool:
            now = parts.clock.now_ms()
            try:
                parts.dynamodb.put_item(
                    TableName=parts.table,
                    Item={"pk": {"S": key}, "until": {"N": str(now + 30_000)}},
                    ConditionExpression="attribute_not_exists(pk) OR #until < :now",
                    ExpressionAttributeNames={"#until": "until"},
                    ExpressionAttributeValues={":now": {"N": str(now)}},
                )
            except parts.dynamodb.exceptions.ConditionalCheckFailedException:
                return False
            return True

        def handler(event: dict[str, Any], _context: Any) -> None:
            for record in event["Records"]:
                order = json.loads(record["body"])
                if claim(order["order_id"]):
                    parts.work(order)
                    parts.dynamodb.update_item(
                        TableName=parts.table,
                        Key={"pk": {"S": order["order_id"]}},
                        UpdateExpression="SET done = :done",
                        ExpressionAttributeValues={":done": {"BOOL": True}},
                    )

        return handler

    with pytest.raises(NotEffectivelyOnce) as found:
        prove_consumer(make, {"order_id": "o-1"})

    [again] = [one for one in found.value.report.results if one.name == "sent a second time, 60 s later"]
    assert {one.diagnosis for one in again.findings} == {Diagnosis.LOCK_ONLY}
    assert found.value.report.diagnosis is Diagnosis.LOCK_ONLY
