"""What a proof says of a job: what it is compared with, what is told apart, and what is not judged."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import ClientError

from onceq import App, Context, JobType, Retry, Semantics, job
from onceq.catalogue import JobTypes
from onceq.testing import (
    Diagnosis,
    EffectRecorder,
    Letter,
    NotEffectivelyOnce,
    envelope,
    environment,
    prove_effectively_once,
    proving,
    queue_arn,
)
from onceq.testing.calls import Call
from onceq.testing.contents import Place
from onceq.testing.staged import refused_of
from onceq.testing.undisturbed import is_of

if TYPE_CHECKING:
    from onceq.testing import Environment, Report

gateway = EffectRecorder()
LOCK = threading.Lock()
TABLE = "SumsTable"
TEMPLATE = Path(__file__).parents[2] / "template.yaml"


def failed(job_type: JobType[..., Any], env: Environment, *others: JobType[..., Any], **options: Any) -> Report:
    """Return the report of a proof that fails."""
    app = App([job_type, *others])
    with pytest.raises(NotEffectivelyOnce) as found:
        prove_effectively_once(job_type, {"id": "o-1"}, app=app, env=env, **options)
    report: Report = found.value.report
    return report


def make_table() -> None:
    """Make a table of the jobs' own, with nothing in it."""
    boto3.client("dynamodb").create_table(
        TableName=TABLE,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )


@job("locked", key="id", max_duration=5)
def locked(_payload: dict[str, Any], ctx: Context) -> None:
    """Charge under a lock of the module."""
    with LOCK:
        gateway.charge(idempotency_key=ctx.idempotency_key_for("charge"))


def test_a_lock_of_the_module_is_told_and_not_judged(env: Environment) -> None:
    """In Lambda each process has its own: a worker of the proof that waits for another says nothing of the job."""
    env.patience = 1.5  # a busy machine lets a worker that is not held up stand for a while, too

    report = prove_effectively_once(locked, {"id": "o-1"}, effects=gateway, app=App([locked]), env=env)

    unplayed = [result for result in report.results if not result.played]
    assert {result.group for result in unplayed} == {"zombie", "two jobs"}
    told = f"Not played: {len(unplayed)} scenarios in which one worker waits for another that stands still"
    assert told in report.summary()
    assert f"  ? {'zombie':<8}  {unplayed[0].name}" in report.table()
    assert [one["played"] for one in report.to_json()["scenarios"]].count(False) == len(unplayed)
    assert env.patience == 1.5


def test_what_is_slow_alone_is_waited_for_after_a_worker_that_waited(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one that another worker may hold up is waited for for a shorter time from then on."""

    @job("slow", key="id", max_duration=5)
    def slow(_payload: dict[str, Any], ctx: Context) -> None:
        with LOCK:
            gateway.charge(idempotency_key=ctx.idempotency_key_for("charge"))
        never.wait(0.06)

    never = threading.Event()
    env.patience = 2.0
    monkeypatch.setattr(proving, "IMPATIENT", 0.03)

    report = prove_effectively_once(slow, {"id": "o-1"}, effects=gateway, app=App([slow]), env=env)

    assert [result.name for result in report.results if not result.played]


def test_a_job_that_waits_for_itself_never_settles(env: Environment) -> None:
    """Nobody holds what it waits for: that is the one finding, and it says what is likely."""

    @job("waits", key="id", max_duration=5)
    def waits(_payload: dict[str, Any]) -> None:
        done.wait()

    done = threading.Event()
    env.patience = 0.2
    try:
        report = failed(waits, env, effects=gateway)
    finally:
        done.set()

    [first] = report.results
    assert first.findings[0].diagnosis is Diagnosis.NEVER_SETTLED
    assert "w1 waits for something that never comes" in first.findings[0].evidence


def proved(job_type: JobType[..., Any], env: Environment, *others: JobType[..., Any], **options: Any) -> Report:
    """Return the report of a proof that passes."""
    return prove_effectively_once(job_type, {"id": "o-1"}, app=App([job_type, *others]), env=env, **options)


@pytest.mark.parametrize(("fingerprint", "passes"), [(None, True), ("id", True), ("[id, to]", False)])
def test_a_receiver_says_what_of_two_messages_is_compared(
    fingerprint: str | None, *, passes: bool, env: Environment
) -> None:
    """It refuses what differs there alone."""

    @job("compares", key="id", max_duration=5, fingerprint=fingerprint)
    def compares(_payload: dict[str, Any]) -> None:
        """Do nothing."""

    @job("sends_two", key="id", max_duration=5)
    def sends_two(payload: dict[str, Any], ctx: Context) -> None:
        for reader in ("customer", "shop"):
            ctx.send(compares, {"id": payload["id"], "to": reader})

    if passes:
        assert proved(sends_two, env, compares).effects == {"the message to compares": 1}
    else:
        report = failed(sends_two, env, compares)
        assert report.results[0].findings[0].evidence == "the message to compares, as o-1"
        assert report.diagnosis is Diagnosis.KEY_WITH_OTHER_ARGUMENTS


@dataclass(frozen=True)
class Ticket:
    """What a receiver may not be able to read."""

    number: int


@job("reads_tickets", max_duration=5)
def reads_tickets(_ticket: Ticket) -> None:
    """Do nothing."""


@pytest.mark.parametrize(("name", "refused"), [("somebody", ["the message to somebody, as k"]), ("reads_tickets", [])])
def test_of_a_receiver_elsewhere_all_is_compared(name: str, refused: list[str]) -> None:
    """And nothing of a payload that a receiver cannot read: that is another matter."""
    place = Place("q", "https://q", queue_arn("q"))
    bodies = [envelope(name, {"number": text}, key="k") for text in ("one", "two")]
    letters = [Letter(place, {"Body": body}, 0, "m", place.arn) for body in [*bodies, "no envelope"]]

    assert refused_of(letters, [], JobTypes([reads_tickets])) == refused


def test_a_key_that_comes_again_after_a_failure_is_used_once(env: Environment) -> None:
    """That is what it is for."""

    @job("asks_twice", key="id", max_duration=5)
    def asks_twice(_payload: dict[str, Any], ctx: Context) -> None:
        key = ctx.idempotency_key_for("charge")
        try:
            gateway.charge(idempotency_key=key)
        except ConnectionError:
            gateway.charge(idempotency_key=key)

    assert proved(asks_twice, env, effects=gateway).effects == {"charge": 1}


@job("note", max_duration=5)
def note(_payload: dict[str, Any]) -> None:
    """Do nothing."""


def test_a_failure_is_told_with_the_completion(env: Environment) -> None:
    """What is staged is committed once, whatever set it off."""

    @job("tells", key="id", max_duration=5)
    def tells(_payload: dict[str, Any], ctx: Context) -> None:
        try:
            gateway.score(idempotency_key=ctx.idempotency_key_for("score"))
        except ConnectionError:
            ctx.send(note, {"score": "unknown"}, key=ctx.idempotency_key_for("note"))
            gateway.score(idempotency_key=ctx.idempotency_key_for("score"))

    assert proved(tells, env, note, effects=gateway).effects == {"score": 1}


def test_what_a_read_that_failed_sets_off_stands_beside_nothing(env: Environment) -> None:
    """A read that fails has changed nothing: what the job does then is told from no lost answer."""

    @job("degrades", key="id", max_duration=5)
    def degrades(_payload: dict[str, Any], ctx: Context) -> None:
        try:
            boto3.client("dynamodb").list_tables()
        except ClientError:
            gateway.alert(idempotency_key=ctx.idempotency_key_for("alert"))
        gateway.charge(idempotency_key=ctx.idempotency_key_for("charge"))

    assert proved(degrades, env, effects=gateway).effects == {"charge": 1}


def test_another_provider_by_the_same_client_is_another_path(env: Environment) -> None:
    """The one function is asked for something else, under another key, since its first answer was lost."""

    @job("turns_elsewhere", key="id", max_duration=5)
    def turns_elsewhere(payload: dict[str, Any], ctx: Context) -> None:
        try:
            gateway.post("https://one", payload["id"], idempotency_key=ctx.idempotency_key_for("one"))
        except ConnectionError:
            gateway.post("https://two", payload["id"], idempotency_key=ctx.idempotency_key_for("two"))

    assert failed(turns_elsewhere, env, effects=gateway).diagnosis is Diagnosis.ERROR_PATH


def test_the_same_call_under_another_key_is_no_other_path(env: Environment) -> None:
    """Its key is what is wrong."""

    @job("counts_calls", key="id", max_duration=5)
    def counts_calls(payload: dict[str, Any], ctx: Context) -> None:
        for number in range(2):
            key = ctx.idempotency_key_for(f"charge-{number}")
            try:
                sent.post(payload["id"], headers={"key": key})
            except ConnectionError:
                continue
            return

    sent = EffectRecorder(key=lambda _id, *, headers: headers["key"])
    assert failed(counts_calls, env, effects=sent).diagnosis is Diagnosis.KEY_FROM_ATTEMPT


def test_two_steps_that_start_once_each_are_started_once(env: Environment) -> None:
    """Another attempt between the two starts neither again, though both call the same."""

    @job("ships", key="id", max_duration=5)
    def ships(_payload: dict[str, Any], ctx: Context) -> None:
        ctx.step("first", gateway.print_label, 1, semantics=Semantics.AT_MOST_ONCE)
        if ctx.attempt == 1:
            raise Retry(reason="not packed yet")
        ctx.step("second", gateway.print_label, 2, semantics=Semantics.AT_MOST_ONCE)

    assert proved(ships, env, effects=gateway).effects == {"print_label": 2}


def test_what_is_done_in_time_alone_is_no_matter_of_memory(env: Environment) -> None:
    """A run a day later has no effect, which neither a warm process nor a key is to blame for."""

    @job("drops_what_is_old", key="id", max_duration=5)
    def drops_what_is_old(_payload: dict[str, Any], ctx: Context) -> None:
        if time.time() * 1000 - (ctx.message.sent_at or 0) < 3_600_000:
            gateway.charge(idempotency_key=ctx.idempotency_key_for("charge"))

    assert failed(drops_what_is_old, env, effects=gateway).diagnosis is Diagnosis.NO_EFFECT


def test_a_write_on_the_condition_of_what_was_read_loses_nothing(env: Environment) -> None:
    """Of two jobs at once the second is refused, and attempted again; the condition itself is no effect."""

    @job("counts_on_a_condition", key="id", max_duration=5)
    def counts_on_a_condition(payload: dict[str, Any], ctx: Context) -> None:
        own: dict[str, Any] = {"TableName": TABLE, "Key": {"pk": {"S": "sum"}}}
        found = boto3.client("dynamodb").get_item(**own, ConsistentRead=True).get("Item", {"n": {"N": "0"}})
        item = {**own["Key"], "n": {"N": str(int(found["n"]["N"]) + 1)}}
        asking: dict[str, Any] = {
            "ConditionExpression": "attribute_not_exists(pk) OR n = :n",
            "ExpressionAttributeValues": {":n": found["n"]},
        }
        ctx.transaction.write({"Put": {"TableName": TABLE, "Item": item, **asking}})
        row = {"TableName": TABLE, "Key": {"pk": {"S": f"blocked-{payload['id']}"}}}
        ctx.transaction.write({"ConditionCheck": {**row, "ConditionExpression": "attribute_not_exists(pk)"}})

    make_table()
    assert proved(counts_on_a_condition, env).effects == {f"the transaction: Put of {TABLE}": 1}


def test_two_jobs_of_one_fifo_group_are_never_at_once(nowhere: Path) -> None:
    """SQS gives out nothing of a group behind a message that is hidden, so what one reads nobody changes meanwhile."""

    @job("adds_up", queue="ledger", key="id", max_duration=5)
    def adds_up(_payload: dict[str, Any], ctx: Context) -> None:
        own: dict[str, Any] = {"TableName": TABLE, "Key": {"pk": {"S": "sum"}}}
        found = boto3.client("dynamodb").get_item(**own, ConsistentRead=True).get("Item", {"n": {"N": "0"}})
        item = {**own["Key"], "n": {"N": str(int(found["n"]["N"]) + 1)}}
        ctx.transaction.write({"Put": {"TableName": TABLE, "Item": item}})

    with environment(App([adds_up]), template=TEMPLATE, parameters={"LedgerQueue": "true"}) as opened:
        make_table()
        assert proved(adds_up, opened).effects == {f"the transaction: Put of {TABLE}": 1}


def selling(condition: dict[str, Any]) -> JobType[..., Any]:
    """Return a job that sells the last seat to the one who comes first, if a condition is asked."""

    @job("sells", key="id", max_duration=5)
    def sells(payload: dict[str, Any], ctx: Context) -> str:
        seat: dict[str, Any] = {"TableName": TABLE, "Key": {"pk": {"S": "seat"}}}
        if "Item" in boto3.client("dynamodb").get_item(**seat, ConsistentRead=True):
            return "sold out"
        ctx.send(note, {"id": payload["id"]}, key=payload["id"])
        ctx.transaction.write({"Put": {"TableName": TABLE, "Item": seat["Key"], **condition}})
        return "sold"

    return sells


def test_what_two_jobs_stage_at_once_is_no_more_than_one_after_the_other(env: Environment) -> None:
    """Who looks first and writes without a condition sells one seat twice."""
    make_table()

    report = failed(selling({}), env, note)

    assert report.diagnosis is Diagnosis.OVERWRITES
    told = "times, and 1 where one job comes after the other"
    [at_once] = [result for result in report.results if result.name == "two different jobs at once, in step"]
    evidence = {finding.evidence for finding in at_once.findings}
    assert evidence == {f"the message to note: 2 {told}", f"the transaction: Put of {TABLE}: 2 {told}"}


def test_a_seat_that_is_sold_on_a_condition_is_sold_once(env: Environment) -> None:
    """The second of two at once is refused, attempted again, and finds it sold."""
    make_table()

    report = proved(selling({"ConditionExpression": "attribute_not_exists(pk)"}), env, note)

    assert report.effects["the message to note"] == 1


@pytest.mark.parametrize("told", ["message", "chance", "time", "answer"])
def test_what_differs_from_run_to_run_does_not_follow_what_was_read(told: str, env: Environment) -> None:
    """The last of two jobs may stand there, whichever that is."""

    @job("looks_and_notes", key="id", max_duration=5)
    def looks_and_notes(_payload: dict[str, Any], ctx: Context) -> None:
        own: dict[str, Any] = {"TableName": TABLE, "Key": {"pk": {"S": "sum"}}}
        boto3.client("dynamodb").get_item(**own, ConsistentRead=True)
        answer = gateway.charge(idempotency_key=ctx.idempotency_key_for("charge"))["id"]
        notes = {"message": ctx.message.message_id, "chance": uuid4(), "time": time.time(), "answer": answer}
        values = {":last": {"S": str(notes[told])}}
        noted = {"UpdateExpression": "SET last_one = :last", "ExpressionAttributeValues": values}
        ctx.transaction.write({"Update": {**own, **noted}})

    make_table()
    assert proved(looks_and_notes, env, effects=gateway).effects["charge"] == 1


def test_a_number_that_was_read_is_found_beside_what_differs(env: Environment) -> None:
    """One value that is another in each run hides nothing of the item."""

    @job("counts_and_notes", key="id", max_duration=5)
    def counts_and_notes(_payload: dict[str, Any], ctx: Context) -> None:
        own: dict[str, Any] = {"TableName": TABLE, "Key": {"pk": {"S": "sum"}}}
        found = boto3.client("dynamodb").get_item(**own, ConsistentRead=True).get("Item", {"n": {"N": "0"}})
        item = {**own["Key"], "n": {"N": str(int(found["n"]["N"]) + 1)}, "last": {"S": str(uuid4())}}
        ctx.transaction.write({"Put": {"TableName": TABLE, "Item": item}})

    make_table()
    assert failed(counts_and_notes, env).diagnosis is Diagnosis.OVERWRITES


@pytest.mark.parametrize(
    ("condition", "names", "asks"),
    [
        ("attribute_not_exists(pk)", {}, True),
        ("attribute_not_exists( #pk )", {"#pk": "pk"}, True),
        ("attribute_not_exists(id)", {}, False),
        ("attribute_not_exists(#id)", {"#id": "id"}, False),
        ("attribute_not_exists(id) OR pk = :pk", {}, True),
        ("attribute_exists(id)", {}, True),
    ],
)
def test_a_condition_that_always_holds_asks_nothing(condition: str, names: dict[str, str], *, asks: bool) -> None:
    """The item that it lets in meets it again."""
    request = {
        "TableName": TABLE,
        "Item": {"pk": {"S": "o-1"}},
        "ConditionExpression": condition,
        "ExpressionAttributeNames": names,
    }

    call = Call("dynamodb", "PutItem", request)

    assert call.is_conditional is asks
    assert [write.asks for write in call.writes] == [asks]
    assert str(call).endswith(" if …")


@pytest.mark.parametrize(
    ("value", "is_theirs"),
    [
        ("o-1", True),
        ("booking#o-1", True),
        ("booking#o-1-2", False),
        ("o-1-2", False),
        ("go-1", False),
        ("v-7", False),
        ("7", True),
        (7, False),
        ([], False),
    ],
)
def test_a_value_of_another_job_is_known_by_its_texts(value: Any, *, is_theirs: bool) -> None:
    """Whole, or as a word of its own; one of two letters only whole, since it stands in many others by chance."""
    assert is_of(value, {"o-1", "7"}, {"o-1-2", "8"}) is is_theirs
