"""How scenarios are played: what fails for how long, and what comes between two deliveries."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from gallery.batches import claimed, each_body, ended, item_of
from onceq import App, Context, Producer, Retry, job
from onceq.testing import (
    Diagnosis,
    EffectRecorder,
    NotEffectivelyOnce,
    environment,
    prove_consumer,
    prove_effectively_once,
)
from onceq.testing.on_trial import MOST_FAILURES
from onceq.testing.plain import PLAIN
from onceq.testing.timeline import RECEIVES, Kind, words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceq.testing import Environment, Handler, Parts, Report
    from onceq.testing.trial import Run

ORDER = {"order_id": "o-1"}
ONE = ", in one warm process"


def run_of(report: Report, name: str) -> Run:
    """Return the run of the one scenario of this name."""
    [result] = [one for one in report.results if one.name == name]
    return result.run


def told(run: Run, *kinds: Kind) -> list[str]:
    """Return what a timeline tells of these kinds."""
    return [entry.what for entry in run.timeline.entries if entry.kind in kinds]


def dynamodb() -> Any:
    """Return a client of the job's own."""
    import boto3

    return boto3.client("dynamodb")


def row(name: str) -> dict[str, Any]:
    """Return a row of the job's own."""
    return {"TableName": os.environ["ONCEQ_CLAIMS_TABLE"], "Item": {"pk": {"S": f"~{name}"}}}


def consumer(parts: Parts) -> Handler:
    """Look whether an order is blocked, claim it, and give the provider its number as the key."""

    def handle(order: dict[str, Any]) -> None:
        key = order["order_id"]
        if item_of(parts, f"blocked#{key}") is None and claimed(parts, key):
            ended(parts, key, "completed", parts.work(order, idempotency_key=key))

    return each_body(handle)


@pytest.fixture
def allowing(tmp_path: Path) -> Callable[[int], Any]:
    """Opens an environment whose queue allows so many receives."""

    def opened(receives: int) -> Any:
        made = json.loads(json.dumps(PLAIN))
        policy = made["Resources"]["JobsQueue"]["Properties"]["RedrivePolicy"]
        policy["maxReceiveCount"] = receives
        template = tmp_path / "template.yaml"
        template.write_text(json.dumps(made), encoding="utf-8")
        return environment(template=template)

    return opened


def test_each_request_of_a_consumers_own_fails() -> None:
    """A write fails for a fresh process and a warm one, a read once."""
    report = prove_consumer(consumer, ORDER)

    fails = [result.name for result in report.results if "fails the first time" in result.name]
    assert fails == [
        "GetItem ClaimsTable blocked#o-1 fails the first time",
        "PutItem ClaimsTable o-1 if … fails the first time",
        f"PutItem ClaimsTable o-1 if … fails the first time{ONE}",
        "effect work fails the first time",
        f"effect work fails the first time{ONE}",
        "UpdateItem ClaimsTable o-1 if … fails the first time",
        f"UpdateItem ClaimsTable o-1 if … fails the first time{ONE}",
    ]
    faults = told(run_of(report, fails[0]), Kind.FAULT)
    assert faults == ["refused: GetItem ClaimsTable blocked#o-1"]


def test_what_a_consumer_writes_into_its_own_table_is_not_told_as_uncounted() -> None:
    """It is its memory, and no effect."""
    assert prove_consumer(consumer, ORDER).uncounted == []


def test_a_request_fails_for_the_rest_of_its_delivery() -> None:
    """Whoever asks again hears the same, and the job of it; the next delivery is answered."""

    @job("receipt", key="order_id")
    def receipt(_order: dict[str, Any]) -> None:
        return None

    @job("asks_again", key="order_id", max_duration=5)
    def asks_again(order: dict[str, Any]) -> None:
        Producer().enqueue("receipt", order, key=order["order_id"])

    report = prove_effectively_once(asks_again, ORDER, app=App([asks_again, receipt]))

    run = run_of(report, "send a message fails the first time")
    refused = told(run, Kind.FAULT)
    assert {*refused} == {"refused: send a message"}
    assert len(refused) > 1
    [raised] = [entry for entry in run.timeline.entries if entry.kind is Kind.ERROR]
    assert words(raised).startswith("raises EnqueueFailed: ")
    assert told(run, Kind.RETURN) == ["None"]


def test_another_request_to_the_same_table_does_not_fail_with_it() -> None:
    """Else a job that swallows the failure of one row is saved by that of the next."""

    @job("swallows_the_first", key="order_id", max_duration=5)
    def swallows_the_first(order: dict[str, Any]) -> None:
        with suppress(Exception):
            dynamodb().put_item(**row(f"first#{order['order_id']}"))
        dynamodb().put_item(**row(f"second#{order['order_id']}"))

    def rows() -> int:
        items = dynamodb().scan(TableName=os.environ["ONCEQ_CLAIMS_TABLE"])["Items"]
        return sum(item["pk"]["S"].startswith("~first") for item in items)

    with pytest.raises(NotEffectivelyOnce) as found:
        prove_effectively_once(swallows_the_first, ORDER, effects=rows)

    run = run_of(found.value.report, "PutItem ClaimsTable ~first#o-1, no condition fails the first time")
    assert told(run, Kind.FAULT) == ["refused: PutItem ClaimsTable ~first#o-1, no condition"]
    assert found.value.report.diagnosis is Diagnosis.NO_EFFECT


@pytest.mark.parametrize(("receives", "failures"), [(6, 5), (100, MOST_FAILURES)])
def test_a_consumers_effect_fails_as_often_as_its_queue_allows(
    receives: int, failures: int, allowing: Callable[[int], Any]
) -> None:
    """All but the last receive, as far as a proof has time for it."""
    with allowing(receives) as env:
        report = prove_consumer(consumer, ORDER, env=env)

    run = run_of(report, "effect work fails at every attempt")
    assert len(told(run, Kind.FAULT)) == failures
    assert len(run.effects) == 1


def test_a_second_message_comes_when_the_first_one_has_died() -> None:
    """Also where it dies in its third delivery: what comes between is what its scenario says, and nothing else."""
    gateway = EffectRecorder()

    @job("asks_twice", key="order_id", max_duration=5)
    def asks_twice(_order: dict[str, Any], ctx: Context) -> Any:
        charged = gateway.charge(idempotency_key=ctx.idempotency_key_for("charge"))
        if ctx.attempt < 3:
            raise Retry(delay=5)
        return charged

    report = prove_effectively_once(asks_twice, ORDER, effects=gateway)

    runs = [one.run for one in report.results if one.name == "crashed after effect charge, then sent a second time"]
    assert [_until_death(run) for run in runs if run is not None] == [["m1"], ["m1"] * 2, ["m1"] * 3]


def _until_death(run: Run) -> list[str]:
    """Return what was received until a worker died."""
    received: list[str] = []
    for entry in run.timeline.entries:
        if entry.kind is Kind.DEATH:
            return received
        if entry.what.startswith(RECEIVES):
            received.append(entry.what.removeprefix(RECEIVES).partition(",")[0])
    return []


def test_a_job_of_one_attempt_is_given_up_by_whatever_goes_wrong() -> None:
    """That is what was asked for; its dead letter is redriven, and then it is done."""
    gateway = EffectRecorder()

    @job("one_attempt", key="order_id", max_duration=5, max_attempts=1)
    def one_attempt(_order: dict[str, Any], ctx: Context) -> Any:
        return gateway.charge(idempotency_key=ctx.idempotency_key_for("charge"))

    report = prove_effectively_once(one_attempt, ORDER, effects=gateway)

    fails = run_of(report, "effect charge fails the first time")
    assert [record.status for record in fails.records] == ["rejected"]
    redriven = run_of(report, "crashed after effect charge, then a new message id")
    assert [record.status for record in redriven.records] == ["completed"]


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("in one batch behind the duplicate of another job, which is done", []),
        ("in one batch behind the duplicate of another job, which is under way", ["keeps m2"]),
    ],
)
def test_a_new_job_comes_in_one_batch_behind_a_duplicate(name: str, held: list[str]) -> None:
    """Of a job that is done, or that another worker is at: the new one is done in any case."""
    gateway = EffectRecorder()

    @job("charge", key="order_id", max_duration=5)
    def charge(_order: dict[str, Any], ctx: Context) -> Any:
        return gateway.charge(idempotency_key=ctx.idempotency_key_for("charge"))

    run = run_of(prove_effectively_once(charge, ORDER, effects=gateway), name)

    assert [what for what in told(run, Kind.DELIVERY) if what.startswith(RECEIVES)][1] == f"{RECEIVES}m2, m3"
    assert [what.removeprefix("→ ") for what in told(run, Kind.KEPT)] == held
    assert len(run.effects) == 2
    assert run.jobs == 2


def test_what_a_handler_does_to_its_event_lambda_does_not_hear_of(env: Environment) -> None:
    """What is acknowledged is what was delivered."""

    class Emptied:
        def handler(self, _process: Any, _seen: Any) -> Any:
            return lambda event, _context: event["Records"].clear()

        def relay(self, _process: Any, _seen: Any) -> None:
            return None

    env.use(Emptied())
    letter = env.put({"order_id": "o-1"})

    assert env.deliver(letter).acknowledged == [letter]
