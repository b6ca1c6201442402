"""Delivering by hand: what a test does in an environment, and what it can read afterwards."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from onceq import App, Backoff, ConfigurationError, Context, EnqueueRefused, Reject, Retry, job
from onceq.testing import (
    Crash,
    EffectRecorder,
    Move,
    NeverSettled,
    NotEffectivelyOnce,
    Point,
    envelope,
    environment,
    prove_consumer,
    prove_effectively_once,
    sqs_event,
)
from onceq.testing.plain import PLAIN
from onceq.testing.timeline import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from onceq import JobType
    from onceq.testing import Environment


@dataclass(frozen=True)
class Order:
    """A payload with a type."""

    order_id: str


def once(what: str, move: Move) -> Any:
    """Return a director that makes a move at the first point that is named so."""
    made: list[Point] = []

    def direct(point: Point) -> Move:
        if point.what == what and not made:
            made.append(point)
            return move
        return Move.PASS

    return direct


def test_a_job_is_enqueued_delivered_and_acknowledged(env: Environment, charge: JobType[..., Any]) -> None:
    """The record stands in the table, the message is gone, and the timeline says what happened."""
    letter = env.enqueue(charge, {"cents": 5}, key="k-1")
    assert env.letters() == [letter]

    delivered = env.deliver(letter)

    assert (delivered.answer, delivered.error, delivered.kept) == ({"batchItemFailures": []}, None, [])
    assert delivered.acknowledged == [letter]
    assert env.letters() == []
    record = env.record(charge, "k-1")
    assert record is not None
    assert (record.status, record.result) == ("completed", '{"id":"charge-1"}')
    assert env.record("charge_order", "k-1") == record
    assert env.records() == [record]
    told = [entry.what for entry in env.timeline.entries]
    assert told[:3] == ["receives m1", "claim", "starts attempt 1"]
    assert told[-1] == "acknowledges m1"


def test_several_messages_come_as_one_batch(env: Environment, charge: JobType[..., Any]) -> None:
    """One is kept, and only that one."""
    good, bad = env.enqueue(charge, {"cents": 5}, key="good"), env.enqueue(charge, {}, key="bad")

    delivered = env.deliver([good, bad])

    assert delivered.message_ids == [good.message_id, bad.message_id]
    assert delivered.kept == [bad.message_id]
    assert delivered.acknowledged == [good]
    assert env.letters() == [bad]


def test_an_event_is_delivered_as_it_is(env: Environment, charge: JobType[..., Any], gateway: EffectRecorder) -> None:
    """Also with bodies that no producer of ours made; what is kept is read from the answer."""
    delivered = env.deliver(sqs_event(envelope(charge, {"cents": 5}, key="k"), envelope("unknown", {}, key="k")))

    assert delivered.kept == ["00000000-0000-4000-8000-000000000002"]
    assert delivered.acknowledged == []
    assert gateway.count() == 1


@pytest.mark.parametrize(
    ("body", "queue"), [("no JSON", "default"), ({"onceq": 1}, "JobsQueue")], ids=["text", "envelope"]
)
def test_a_raw_body_lies_in_the_queue(env: Environment, body: Any, queue: str) -> None:
    """`put` lets a message come that no onceq producer made: this one is refused, with the reason on its copy."""
    letter = env.put(body, queue=queue, attributes={"tenant": "t-1", "raw": b"\0"}, group="g")

    assert env.deliver(letter).kept == []

    [dead] = env.dead_letters()
    assert dead.body == (body if isinstance(body, str) else json.dumps(body).replace(" ", ""))
    assert (dead.attributes["tenant"], dead.attributes["raw"]) == ("t-1", b"\0")
    assert json.loads(dead.attributes["onceq"])["reason"]


def test_what_cannot_be_delivered_is_said(env: Environment, charge: JobType[..., Any]) -> None:
    """Nothing at all, no message, messages of two queues, a queue that is not there."""
    here, there = env.enqueue(charge, {}, key="k"), env.put("x", queue="DeadLetterQueue")

    events: list[dict[str, Any]] = [{}, {"Records": []}, {"Records": None}, {"Records": ["m1"]}, {"records": [{}]}]
    for event in events:
        with pytest.raises(ConfigurationError, match=r"has a list of Records.*sqs_event"):
            env.deliver(event)
    for what in ([], ["m1"]):
        with pytest.raises(ConfigurationError, match=r"nothing to deliver: give a message .* or an event"):
            env.deliver(what)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ConfigurationError, match="one queue: JobsQueue, DeadLetterQueue"):
        env.deliver([here, there])
    with pytest.raises(ConfigurationError, match=r"no queue 'other' in this environment: .*JobsQueue, default"):
        env.put("x", queue="other")


def test_without_an_app_it_says_how_to_give_one(nowhere: Path) -> None:
    """An environment may be opened for its tables alone."""
    with environment() as env:
        assert [*env.app_given.job_types] == []
        with pytest.raises(ConfigurationError, match=r"environment\(app=App"):
            _ = env.app


def test_a_message_is_redelivered_visible_or_not_acknowledged_or_not(
    env: Environment, charge: JobType[..., Any], gateway: EffectRecorder
) -> None:
    """At least once means all of that; each time it is the same message, received once more."""
    letter = env.enqueue(charge, {"cents": 5}, key="k")
    crashed = env.deliver(letter, director=once("effect charge", Move.CRASH_AFTER))
    assert isinstance(crashed.error, Crash)
    assert crashed.kept == [letter.message_id]
    assert letter.visible_at > env.clock.now_ms()

    assert env.redeliver(letter).kept == [letter.message_id]  # its first claimant's lease is not over
    env.pass_time(100)
    assert env.redeliver(letter).acknowledged == [letter]
    assert env.redeliver(letter).acknowledged == [letter]

    assert letter.receives == 4
    assert (len(gateway.calls), gateway.count()) == (2, 1)
    assert env.records()[0].attempts == 2


def test_drain_waits_for_back_off_on_the_frozen_clock(nowhere: Path) -> None:
    """Nobody waits in real time for 100 s; the number of invocations is returned."""

    @job("flaky", max_duration=5, backoff=Backoff(base=100, cap=100))
    def flaky(_payload: dict[str, Any], ctx: Context) -> int:
        if ctx.attempt < 3:
            raise Retry(delay=100)
        return ctx.attempt

    with environment(App([flaky])) as env:
        env.enqueue(flaky, {}, key="k")

        assert env.drain() == 3

        assert env.records()[0].result == "3"
        assert 200_000 <= env.clock.now_ms() - env.timeline.began_ms < 210_000
        assert [entry.what for entry in env.timeline.entries if entry.kind is Kind.TIME]


def test_drain_without_waiting_leaves_what_is_not_visible(env: Environment, charge: JobType[..., Any]) -> None:
    """The clock does not move."""
    now = env.clock.now_ms()
    letter = env.enqueue(charge, {}, key="broken")

    assert env.drain(wait=False) == 1

    assert (env.letters(), env.clock.now_ms()) == ([letter], now)


def test_drain_delivers_only_what_it_is_told_to(env: Environment, charge: JobType[..., Any]) -> None:
    """The others stay where they are."""
    first, second = env.enqueue(charge, {"cents": 1}, key="a"), env.enqueue(charge, {"cents": 1}, key="b")

    env.drain(only=lambda letter: letter is second)

    assert env.letters() == [first]


def test_what_comes_back_for_ever_is_named_with_its_timeline(nowhere: Path) -> None:
    """A message that is always kept, on a queue whose redrive policy does not end it."""
    plain = copy.deepcopy(PLAIN)
    del plain["Resources"]["JobsQueue"]["Properties"]["RedrivePolicy"]
    (nowhere / "template.yaml").write_text(json.dumps(plain), encoding="utf-8")
    with environment(App([])) as env:
        env.put(envelope("unknown", {}, key="k"))

        with pytest.raises(NeverSettled, match="250 times so far") as never:
            env.drain()

    assert "keeps m1" in str(never.value)


@pytest.fixture
def chain() -> list[JobType[..., Any]]:
    """A job that sends another, now and in an hour."""

    @job("second", max_duration=5)
    def second(_payload: dict[str, Any]) -> None:
        pass

    @job("first", max_duration=5)
    def first(_payload: dict[str, Any], ctx: Context) -> None:
        ctx.send(second, {"n": 1}, key="now")
        ctx.send(second, {"n": 2}, key="later", delay=3600)

    return [first, second]


def test_drain_lets_the_relay_send_what_waits_in_the_outbox(nowhere: Path, chain: list[JobType[..., Any]]) -> None:
    """A message that could not be sent at once, and one that is due in an hour; each at its time."""
    first, second = chain
    with environment(App(chain)) as env:
        letter = env.enqueue(first, {}, key="k")
        env.deliver(letter, director=once("complete, with 2 other writes", Move.CRASH_AFTER))
        assert [entry.idempotency_key for entry in env.pending()] == ["now", "later"]

        env.drain(wait=False)
        assert env.record(second, "now") is None  # nothing is due for the relay yet, and the clock stands
        env.drain()

        assert env.pending() == []
        now, later = env.record(second, "now"), env.record(second, "later")
        assert now is not None
        assert later is not None
        assert (later.created_at - now.created_at) / 1000 > 3300


def test_a_relay_that_dies_is_followed_by_another(nowhere: Path, chain: list[JobType[..., Any]]) -> None:
    """What goes wrong in `drain` goes wrong in its relays, too."""
    first, _ = chain
    with environment(App(chain)) as env:
        env.deliver(env.enqueue(first, {}, key="k"), director=once("complete, with 2 other writes", Move.CRASH_AFTER))

        env.drain(director=once("send messages", Move.CRASH_AFTER))

        assert "dies after: send messages" in env.timeline.text()
        assert {record.idempotency_key for record in env.records()} == {"k", "now", "later"}


def test_a_dead_letter_is_redriven_with_our_note(env: Environment, charge: JobType[..., Any]) -> None:
    """It comes back under a new message id, and the note lets its job start afresh."""
    letter = env.enqueue(charge, {}, key="k")
    env.drain()
    [dead] = env.dead_letters()
    note = json.loads(dead.attributes["onceq"])
    assert (note["reason"], note["key"], note["attempts"]) == ("rejected", "k", 3)
    assert env.letters() == []

    again = env.redrive(dead)

    assert (again.place.name, again.body, again.attributes) == ("JobsQueue", letter.body, dead.attributes)
    assert again.message_id not in (dead.message_id, letter.message_id)
    assert env.dead_letters() == []
    env.deliver(again)
    assert env.records()[0].attempts == 1
    with pytest.raises(ConfigurationError, match="does not lie in a dead-letter queue"):
        env.redrive(again)


def test_the_app_is_on_the_environments_clock_and_queues(nowhere: Path) -> None:
    """`lookup`, `resolve` and the rest work on what stands there; middleware is the application's own."""
    seen = []

    def middleware(call_next: Any, _ctx: Context, payload: Any) -> Any:
        seen.append(payload)
        return call_next()

    @job("refuse", max_duration=5)
    def refuse(payload: dict[str, Any]) -> None:
        raise Reject(payload["why"])

    app = App([refuse], middleware=[middleware])
    with environment(app) as env:
        env.deliver(env.enqueue(refuse, {"why": "no"}, key="k"))

        status = env.app.lookup(refuse, "k")
        assert status is not None
        assert status.status == "rejected"
        assert env.app.resolve(refuse, "k", "done", result=7).result == 7
        assert len(seen) == 1
        assert (env.app.runtime.clock, env.app.runtime.settings) == (env.clock, env.settings)
        env.app.enqueue(refuse, {"why": "again"}, key="k-2")
        assert [letter.name for letter in env.letters()] == ["m3"]  # the copy in the dead-letter queue was m2
        assert env.seen.starts[0].key == "k"


def test_reset_brings_back_what_was_kept(env: Environment, charge: JobType[..., Any]) -> None:
    """Tables are as they were at `keep`, queues are empty, the clock and the numbers are back."""
    dynamodb = boto3.client("dynamodb")
    dynamodb.put_item(TableName="ClaimsTable", Item={"pk": {"S": "mine#1"}, "n": {"N": "1"}})
    env.keep()
    began = env.clock.now_ms()
    for _ in range(2):
        dynamodb.update_item(
            TableName="ClaimsTable",
            Key={"pk": {"S": "mine#1"}},
            UpdateExpression="ADD n :one",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )
        env.deliver(env.enqueue(charge, {"cents": 5}, key="k"))
        env.enqueue(charge, {"cents": 5}, key="left")
        env.pass_time(10)

        env.reset()

        assert env.stock("ClaimsTable") == [{"pk": {"S": "mine#1"}, "n": {"N": "1"}}]
        assert (env.letters(), env.timeline.entries, env.seen.starts) == ([], [], [])
        assert env.clock.now_ms() == began
        assert env.enqueue(charge, {}, key="k").name == "m1"


def test_after_a_reset_a_process_from_before_does_nothing(env: Environment, charge: JobType[..., Any]) -> None:
    """A worker that still stands somewhere is dead, and cannot disturb the next run."""
    worker, _ = env.start(env.enqueue(charge, {"cents": 5}, key="k"))
    assert str(worker.point and worker.point.what) == "claim"

    env.reset()
    worker.go()

    assert worker.is_over
    assert env.records() == []


def test_the_report_shows_records_and_timeline(env: Environment, charge: JobType[..., Any]) -> None:
    """It is what a failing test prints."""
    assert "none" in env.report()
    env.deliver(env.enqueue(charge, {}, key="k"))

    report = env.report()

    assert "charge_order#k  failed  attempt 1  KeyError" in report
    assert "w1  receives m1" in report
    assert report.index("records:") < report.index("timeline:")


def test_an_answer_is_read_as_strictly_as_aws_does(env: Environment, charge: JobType[..., Any]) -> None:
    """An unknown id in it keeps the whole batch."""
    letter = env.enqueue(charge, {}, key="k")

    class Careless:
        def handler(self, _process: Any, _seen: Any) -> Any:
            return lambda _event, _context: {"batchItemFailures": [{"itemIdentifier": "nobody"}]}

        def relay(self, _process: Any, _seen: Any) -> None:
            return None

    delivered = env.use(Careless()).deliver(letter)

    assert (delivered.kept, delivered.acknowledged, env.letters()) == ([letter.message_id], [], [letter])


def test_what_a_handler_raises_keeps_everything(env: Environment) -> None:
    """As in Lambda: the invocation failed."""
    delivered = env.deliver({"Records": [{"eventSource": "aws:s3"}]})

    assert type(delivered.error).__name__ == "NotAnSqsEvent"
    assert (delivered.answer, delivered.kept) == (None, ["None"])
    [said] = [entry for entry in env.timeline.entries if entry.kind is Kind.RAISE]
    assert said.what.startswith("NotAnSqsEvent: ")


def test_a_record_without_an_id_is_delivered_as_it_is(env: Environment) -> None:
    """Whatever the handler makes of it; nothing of the mailbox is acknowledged."""
    assert env.deliver({"Records": [{"eventSource": "aws:sqs", "body": "x"}]}).acknowledged == []


@pytest.mark.parametrize("answer", [None, "PASS", True], ids=repr)
def test_a_director_that_answers_nothing_is_an_error(env: Environment, charge: JobType[..., Any], answer: Any) -> None:
    """It forgot its return: nothing would go wrong, and the test would show nothing."""
    letter = env.enqueue(charge, {"cents": 1}, key="k")

    with pytest.raises(ConfigurationError, match=r"answers with a Move at 'claim', not .*: return Move.PASS there"):
        env.deliver(letter, director=lambda _point: answer)


def test_what_is_not_in_the_app_says_how_to_put_it_there(env: Environment) -> None:
    """In the application's file, or by an option or a fixture."""

    @job("stranger")
    def stranger(_payload: dict[str, Any]) -> None:
        pass

    with pytest.raises(ConfigurationError, match=r"'stranger' is not in the App's list: add it .* src/app.py.*app="):
        env.enqueue(stranger, {}, key="k")


@pytest.mark.parametrize("is_proof", [True, False], ids=["proof", "enqueue"])
def test_a_queue_that_a_parameter_would_make_names_the_parameter(is_proof: bool, nowhere: Path) -> None:  # noqa: FBT001
    """By the conditions of the template's queues, the ones that conditions refer to, too."""

    @job("post", queue="ledger")
    def post(_payload: dict[str, Any]) -> None:
        pass

    template = copy.deepcopy(PLAIN) | {
        "Parameters": {
            "Ledger": {"Type": "String", "Default": "no"},
            "Stage": {"Type": "String", "Default": "dev"},
            "Other": {"Type": "String", "Default": "no"},
        },
        "Conditions": {
            "IsProd": {"Fn::Equals": [{"Ref": "Stage"}, "prod"]},
            "HasLedger": {"Fn::And": [{"Fn::Equals": [{"Ref": "Ledger"}, "yes"]}, {"Condition": "IsProd"}]},
        },
    }
    template["Resources"]["LedgerQueue"] = {"Type": "AWS::SQS::Queue", "Condition": "HasLedger", "Properties": {}}
    (nowhere / "template.yaml").write_text(json.dumps(template), encoding="utf-8")
    told = (
        r"queue 'ledger' of 'post' is not in ONCEQ_QUEUES \(known: default\).*parameter Ledger or Stage: .*onceq_para"
    )
    with environment(App([post])) as env, pytest.raises(ConfigurationError, match=told):
        _ = prove_effectively_once(post, {}, env=env) if is_proof else env.enqueue(post, {}, key="k")


def test_a_second_job_with_the_key_of_the_first_is_refused(env: Environment) -> None:
    """It would be the same job; one that is made has another key, also beside one that is given."""
    gateway = EffectRecorder()

    @job("charge", key="order_id", max_duration=5)
    def charge(order: dict[str, Any], ctx: Context) -> None:
        gateway.charge(order["cents"], idempotency_key=ctx.key)

    order, same = {"order_id": "o-1", "cents": 5}, {"order_id": "o-1", "cents": 6}

    with pytest.raises(
        ConfigurationError, match=r"other= has the key of the job itself, 'o-1': give the payload of an"
    ):
        prove_effectively_once(charge, order, effects=gateway, other=same, app=App([charge]), env=env)
    assert prove_effectively_once(charge, order, effects=gateway, key="proof-2", app=App([charge]), env=env).ok


def test_what_a_consumers_handler_raises_stands_in_the_findings(env: Environment) -> None:
    """Lambda sees it, and keeps the messages; whoever reads the report sees why they come again."""

    def make(_parts: Any) -> Any:
        def handler(event: dict[str, Any], _context: Any) -> None:
            raise KeyError(event["Records"][0]["body"][:9])

        return handler

    with pytest.raises(NotEffectivelyOnce) as found:
        prove_consumer(make, {"order_id": "o-1"}, env=env)

    assert any("KeyError: '{\"order_i'" in finding.evidence for finding in found.value.report.results[0].findings)
    assert "fails: KeyError" in found.value.report.text()


def test_an_app_of_the_time_before_a_reset_says_so(env: Environment, charge: JobType[..., Any]) -> None:
    """It has the clock and the queues of then; afterwards, and behind the block, another one is to be taken."""
    app = env.app
    env.reset()

    with pytest.raises(ConfigurationError, match=r"this App is one of the time before reset\(\).*take env.app anew"):
        app.enqueue(charge, {"cents": 1}, key="k")
    with pytest.raises(ConfigurationError, match=r"take env\.app anew"):
        app.lookup(charge, "k")
    env.app.enqueue(charge, {"cents": 1}, key="k")

    assert [letter.name for letter in env.letters()] == ["m1"]


@pytest.mark.parametrize("counted", [None, "1", 1.0], ids=repr)
def test_effects_that_are_no_number_are_refused(env: Environment, charge: JobType[..., Any], counted: Any) -> None:
    """A function that forgot its return counts nothing."""
    with pytest.raises(ConfigurationError, match=rf"effects= returned {counted!r}: .* a whole number"):
        prove_effectively_once(charge, {"cents": 1}, effects=lambda: counted, env=env)


def test_a_payload_that_does_not_fit_is_refused_as_by_enqueue(nowhere: Path) -> None:
    """Before anything is run, with what does not fit."""

    @job("typed", max_duration=5)
    def typed(_order: Order) -> None:
        """Do nothing."""

    with pytest.raises(EnqueueRefused, match="order_id"):
        prove_effectively_once(typed, {"order": 1}, effects=lambda: 0)
