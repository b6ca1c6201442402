"""What stands behind a job that does not complete: the report says which answer, which table, which App it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest

from onceq import App, Context, JobType, Reject, Retry, Snooze, job
from onceq.testing import (
    Diagnosis,
    EffectRecorder,
    NotEffectivelyOnce,
    Report,
    environment,
    prove_consumer,
    prove_effectively_once,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHORT: dict[str, Any] = {"max_duration": 5, "max_attempts": 2}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on a message that comes back without using an attempt."""
    monkeypatch.setattr("onceq.testing.world.MOST_ROUNDS", 15)


def failing(job_type: JobType[..., Any], **given: Any) -> tuple[Diagnosis | None, str]:
    """Return what the proof of a job says of its undisturbed run."""
    with pytest.raises(NotEffectivelyOnce) as found:
        prove_effectively_once(job_type, {"cents": 5}, **given)
    report: Report = found.value.report
    assert len(report.results) == 1
    return report.diagnosis, report.results[0].findings[0].evidence


def reads_a_field(answer: Any) -> Any:
    """Take an answer for a mapping."""
    return answer["status"]


def reads_an_attribute(answer: Any) -> Any:
    """Take it for an object."""
    return answer.status


def checks_it(answer: Any) -> None:
    """Take what is not there for a refusal."""
    if answer.get("status") != "paid":
        message = "not paid"
        raise ValueError(message)


OWN = "put the call into a function of your own and give that"


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (reads_a_field, "KeyError: 'status'", "--answer charge=JSON"),
        (
            reads_an_attribute,
            "AttributeError: 'dict' object has no attribute 'status'",
            f"JSON has no attributes, so {OWN}, --effects jobs.billing:charge",
        ),
        (checks_it, "ValueError: not paid", "--answer charge=JSON"),
    ],
)
@pytest.mark.parametrize("kind", ["effect", "read"])
def test_an_answer_that_the_recorder_made_up_is_named(
    use: Callable[[Any], Any], error: str, words: str, kind: str, nowhere: Path
) -> None:
    """With its function, what it was answered with, and how to give the provider's own."""
    gateway = EffectRecorder(reads=["charge"] if kind == "read" else [])

    @job("pay", **SHORT)
    def pay(payload: dict[str, Any], ctx: Context) -> Any:
        return use(gateway.charge(payload["cents"], idempotency_key=ctx.key))

    assert failing(pay, effects=gateway) == (
        Diagnosis.NOT_COMPLETED,
        (
            f"pay#proof-1 is rejected: attempts used up (2 of 2): {error}. charge was answered with "
            "{'id': 'charge-1'}, which the recorder made up: give what the provider answers, EffectRecorder(charge=…) "
            f"(from the shell: {words})"
        ),
    )


def test_a_function_inside_of_something_is_named_as_its_answer_is_given(nowhere: Path) -> None:
    """Nothing that is no name is a keyword."""
    gateway = EffectRecorder(like=type("Gateway", (), {"api": type("Api", (), {"charge": lambda _cents: {}})}))

    @job("pay", **SHORT)
    def pay(payload: dict[str, Any]) -> Any:
        return gateway.api.charge(payload["cents"])["status"]

    assert "EffectRecorder(answers={'api.charge': …}) (from" in failing(pay, effects=gateway)[1]


def test_of_several_recorders_the_option_has_the_functions_own_name(nowhere: Path) -> None:
    """The name before it tells one recorder from another."""
    gateway, mailer = EffectRecorder(charge={"status": "paid"}), EffectRecorder()

    @job("pay", **SHORT)
    def pay(payload: dict[str, Any]) -> Any:
        return gateway.charge(payload["cents"]), mailer.send(payload["cents"])["status"]

    told = failing(pay, effects=[gateway, mailer])[1]

    assert ".send was answered with {'id': 'send-1'}" in told
    assert "EffectRecorder(send=…) (from the shell: --answer send=JSON)" in told
    assert "charge" not in told


@pytest.mark.usefixtures("impatient")
def test_a_made_up_answer_is_not_blamed_for_what_the_framework_says(nowhere: Path) -> None:
    """Nor for a job that asks to run later: what it says is the cause."""
    gateway = EffectRecorder()

    @job("label", **SHORT)
    def label(_payload: dict[str, Any], ctx: Context) -> None:
        def print_and_send() -> None:
            gateway.label(1)
            ctx.send(label, {}, key=ctx.key)

        ctx.step("label", print_and_send)

    @job("later", **SHORT)
    def later(_payload: dict[str, Any]) -> None:
        gateway.charge(5)
        raise Retry(reason="down")

    @job("sleepy", **SHORT)
    def sleepy(_payload: dict[str, Any]) -> None:
        gateway.charge(5)
        raise Snooze(60)

    for one in (label, later, sleepy):
        assert "made up" not in failing(one, effects=gateway)[1]

    @job("refuses", **SHORT)
    def refuses(_payload: dict[str, Any]) -> None:
        if gateway.charge(5).get("status") != "paid":
            raise Reject(reason="not paid")

    assert "which the recorder made up" in failing(refuses, effects=gateway)[1]


def test_an_answer_that_was_given_is_not_blamed(nowhere: Path) -> None:
    """What the job then does with it is its own affair; so is what fails before anything was called."""
    gateway = EffectRecorder(charge={"status": "paid"})

    @job("pay", **SHORT)
    def pay(payload: dict[str, Any]) -> Any:
        return gateway.charge(payload["cents"])["paid_at"]

    @job("look", **SHORT)
    def look(payload: dict[str, Any]) -> Any:
        return gateway.refund(payload["amount"])

    @job("send", **SHORT)
    def send(payload: dict[str, Any], ctx: Context) -> None:
        gateway.refund(payload["cents"])
        ctx.send(look, {}, key=ctx.key)

    assert failing(send, effects=gateway)[1].endswith("the job on trial alone")
    assert failing(pay, effects=gateway)[1].endswith("KeyError: 'paid_at'")
    assert failing(look, effects=gateway)[1].endswith("KeyError: 'amount'")


def puts() -> None:
    """Write a row with a client of one's own."""
    boto3.client("dynamodb").put_item(TableName="Stock", Item={"pk": {"S": "1"}})


def looks_up() -> None:
    """Read one with a resource."""
    boto3.resource("dynamodb").Table("Stock").get_item(Key={"pk": "1"})


def gets_many() -> None:
    """Read from the table among others."""
    boto3.client("dynamodb").batch_get_item(RequestItems={"Stock": {"Keys": [{"pk": {"S": "1"}}]}})


def sends() -> None:
    """Send to a queue."""
    boto3.client("sqs").send_message(
        QueueUrl="https://sqs.us-east-1.amazonaws.com/123456789012/Parcels", MessageBody="x"
    )


def uploads() -> None:
    """Write to a bucket."""
    boto3.client("s3").put_object(Bucket="labels", Key="1", Body=b"x")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (puts, "There is no table Stock here"),
        (looks_up, "There is no table Stock here"),
        (gets_many, "There is no table Stock here"),
        (sends, "There is no queue Parcels here"),
        (uploads, "There is no bucket labels here"),
    ],
)
def test_what_is_not_there_is_named(call: Callable[[], None], told: str, nowhere: Path) -> None:
    """With where it has to stand; AWS' own error does not say which one it was."""

    @job("take", **SHORT)
    def take(_payload: dict[str, Any]) -> None:
        call()

    diagnosis, evidence = failing(take)

    assert diagnosis is Diagnosis.NOT_COMPLETED
    assert evidence.endswith(f". {told}: let it stand in template.yaml, and its name among the function's variables")


@pytest.mark.usefixtures("impatient")
def test_a_table_of_a_transaction_is_named(nowhere: Path) -> None:
    """One that onceq writes to for the job."""

    @job("reserve", **SHORT)
    def reserve(_payload: dict[str, Any], ctx: Context) -> None:
        ctx.transaction.write({"Put": {"TableName": "Stock", "Item": {"pk": {"S": "1"}}}})

    assert "There is no table Stock here: let it stand in template.yaml" in failing(reserve)[1]


def creates(name: str) -> None:
    """Create a table."""
    boto3.client("dynamodb").create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )


@pytest.mark.usefixtures("impatient")
def test_of_several_tables_that_one_is_named_which_is_not_there() -> None:
    """Though nothing landed in the others either."""

    @job("reserve", **SHORT)
    def reserve(_payload: dict[str, Any], ctx: Context) -> None:
        for name in ("Stock", "Nowhere"):
            ctx.transaction.write({"Put": {"TableName": name, "Item": {"pk": {"S": "1"}}}})

    @job("look", **SHORT)
    def look(_payload: dict[str, Any]) -> None:
        keys = {"Keys": [{"pk": {"S": "1"}}]}
        boto3.client("dynamodb").batch_get_item(RequestItems={"Stock": keys, "Nowhere": keys})

    for job_type in (reserve, look):
        with environment(App([job_type])) as env:
            creates("Stock")
            assert "There is no table Nowhere here: " in failing(job_type, env=env)[1]


def test_a_consumers_own_table_is_named(nowhere: Path) -> None:
    """Its message comes back again and again."""

    def make(parts: Any) -> Any:
        return lambda _event, _context: parts.dynamodb.get_item(TableName="Mine", Key={"pk": {"S": "1"}})

    with pytest.raises(NotEffectivelyOnce, match=r"\. There is no table Mine\s+here: let it stand"):
        prove_consumer(make, {"order_id": "o-1"})


def test_a_job_type_that_is_sent_to_and_not_there_is_told_with_what_is_there(nowhere: Path) -> None:
    """Without ``app=`` a job is proved alone."""

    @job("second", **SHORT)
    def second(_payload: dict[str, Any]) -> None:
        """Do nothing."""

    @job("first", **SHORT)
    def first(_payload: dict[str, Any], ctx: Context) -> None:
        ctx.send(second, {}, key=ctx.key)

    @job("third", **SHORT)
    def third(_payload: dict[str, Any], ctx: Context) -> None:
        ctx.send("second", {}, key="k")

    told = (
        "job type 'second' is not in the App's list: nobody would serve it. The App has first: add it in src/app.py. "
        "A test or a proof takes another App with app=, and a proof without it has the job on trial alone"
    )
    assert failing(first)[1].endswith(told)
    assert failing(first, app=App([first]))[1].endswith(told)
    assert "no job type is named 'second': known are third; add yours to App([…])" in failing(third)[1]
    assert prove_effectively_once(first, {}, app=App([first, second])).ok
