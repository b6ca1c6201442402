"""Rules of a batch, and of how a job's end is told apart from another's, that only a mutant showed to be untested."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import Bench, put
from kit.claims import NOW
from kit.clock import FakeLambdaContext
from kit.seams import Seams, SimulatedCrash
from kit.world import TABLE, arn_of, create_table, event_of, kept
from onceq import Context, JobType, job
from onceq.errors import NotAnSqsEvent
from onceq.record import Status
from onceq.relay import Relay

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kit.world import World
    from onceq.record import Record


@pytest.mark.parametrize(
    ("left", "is_kept", "turns"),
    [
        ({"status": Status.COMPLETED, "result": '"done"'}, False, ["job.started", "job.replayed"]),
        ({"status": Status.FAILED, "not_before": NOW}, True, ["job.started", "claim.lost"]),
        ({"status": Status.COMPLETED, "claimant": "another"}, False, ["job.started", "claim.lost"]),
    ],
    ids=["its own completion", "its own release", "another's completion"],
)
def test_a_claim_whose_end_stands_already_ends_by_what_stands(
    world: World, left: dict[str, Any], turns: list[str], *, is_kept: bool
) -> None:
    """G2, G11: a completion of ours that landed unheard is ours; whatever else stands there was not this end."""

    def end_unheard(_: Context) -> str:
        ended: Record = replace(bench.record, version=bench.record.version + 1, lease_expires_at=None, **left)
        put(world, ended)
        return "done"

    bench = Bench(world, end_unheard)

    assert bench.deliver() == is_kept
    assert [name for name in world.names() if name.startswith(("job.", "claim."))] == turns


def test_a_retention_is_kept_to_its_last_moment(world: World) -> None:
    """G3: a retention that is no whole number of seconds is rounded up."""
    bench = Bench(world, retention=timedelta(hours=1, milliseconds=1))

    bench.deliver()

    assert bench.record.expires_at == NOW // 1000 + 3_601


def test_the_record_of_a_renamed_job_has_its_oldest_name(world: World) -> None:
    """What reads the table by name finds the job, whatever it is called by now."""

    @job("charge", formerly=["pay"])
    def charge(payload: dict[str, Any]) -> None: ...

    world.app(charge).consumer(event_of(world.message("charge")), FakeLambdaContext())

    record = world.record("pay", "k-1")
    assert record is not None
    assert record.job_type == "pay"


def test_a_signal_out_of_a_key_function_passes(world: World) -> None:
    """A test's crash is no fault of the record that it comes from, wherever it is raised."""

    def key(payload: Any) -> str:
        raise SimulatedCrash

    def pay(payload: Any) -> None: ...

    job_type = JobType(pay, "pay", key=key)

    with pytest.raises(SimulatedCrash):
        world.app(job_type, default=job_type).consumer(event_of(world.raw("{}")), FakeLambdaContext())


def test_copies_are_made_before_messages_are_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: what can wait for the relay comes last, so that it takes no time from what cannot."""
    order: list[str] = []

    def settle(*_: object, **__: object) -> set[int]:
        order.append("settle")
        return set()

    def relay(_: Relay, entries: list[object]) -> None:
        order.append(f"send {len(entries)}")

    monkeypatch.setattr("onceq.consumer.settle", settle)
    monkeypatch.setattr(Relay, "send", relay)

    def send(ctx: Context) -> None:
        ctx.send("pay", {}, key="one")
        ctx.send("pay", {}, key="two")

    Bench(world, send).deliver()

    assert order == ["settle", "send 2"]


def test_a_batch_that_sends_nothing_asks_no_relay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application without an outbox has none to ask."""
    sent: list[object] = []

    def relay(_: Relay, entries: list[object]) -> None:
        sent.append(entries)

    monkeypatch.setattr(Relay, "send", relay)

    assert not Bench(world).deliver()
    assert sent == []


def test_what_ran_before_a_stale_job_of_its_lane_does_not_run_again(world: World) -> None:
    """G5: a lane goes on at its stale job; what is done is neither asked for again nor told as a replay."""
    process = Seams().process(world.runtime)
    runs: list[str] = []

    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.key)
        if ctx.key == "stale" and ctx.attempt == 1:
            process.kill()

    with pytest.raises(SimulatedCrash):
        world.app(JobType(act, "act"), runtime=process).consumer(
            event_of(world.message("act", key="stale")), FakeLambdaContext()
        )
    world.clock.advance(72)
    lane = [world.message("act", key=key, queue="Ordered.fifo", group="a") for key in ("first", "stale", "last")]
    other = world.message("act", key="other")

    assert kept(world.app(JobType(act, "act")).consumer(event_of(*lane, other), FakeLambdaContext())) == []
    assert sorted(runs) == ["first", "last", "other", "stale", "stale"]
    assert "job.replayed" not in world.names()


def test_a_broken_message_says_its_error_and_counts_no_records(world: World) -> None:
    """A message of one job is refused with its own reason."""
    bench = Bench(world)

    bench.app.consumer(event_of(world.raw('{"onceq": 1}')), FakeLambdaContext())

    (refused,) = bench.events("message.refused")
    assert "records are broken" not in refused["reason"]


def test_a_record_of_another_source_is_found_wherever_it_stands(world: World) -> None:
    """G4: its own source is to keep it, so the whole event is refused."""
    bench = Bench(world)
    other = {"eventSource": "aws:kinesis", "eventSourceARN": arn_of("JobsQueue")}

    with pytest.raises(NotAnSqsEvent, match="aws:kinesis"):
        bench.app.consumer(event_of(world.message("pay"), other), FakeLambdaContext())
    assert bench.starts == []


def test_a_default_serves_the_queue_that_it_is_named_for(world: World) -> None:
    """A message that is no envelope is a job of its own queue's default, and of no other's."""
    runs: list[Any] = []
    act = JobType(runs.append, "act", key=lambda payload: "k-1")
    app = world.app(act, default={"ordered": act})

    assert kept(app.consumer(event_of(world.raw("[1]", queue="Ordered.fifo", group="g")), FakeLambdaContext())) == []
    app.consumer(event_of(world.raw("[2]")), FakeLambdaContext())

    assert runs == [[1]]


def test_a_fault_of_the_framework_keeps_the_message_and_is_told_with_its_trace(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G4: what no table and no job did is a mistake of ours: a copy in the dead-letter queue would hide it."""

    def claim(*_: object, **__: object) -> None:
        message = "a mistake"
        raise ZeroDivisionError(message)

    bench = Bench(world)
    monkeypatch.setattr("onceq.claim.claim", claim)

    assert bench.deliver()
    (fault,) = bench.events("message.faulted")
    assert "ZeroDivisionError: a mistake" in fault["reason"]
    assert "ZeroDivisionError: a mistake" in fault["trace"]
    assert bench.notes() == []


def test_a_condition_that_fails_is_told_for_its_own_write_beside_a_message(world: World) -> None:
    """G7: the reasons come in the order of the writes, so the messages stand behind the job's own."""
    create_table(world.dynamodb, "Other")

    def body(ctx: Context) -> None:
        check = {"TableName": "Other", "Key": {"pk": {"S": "o-1"}}, "ConditionExpression": "attribute_exists(pk)"}
        ctx.send("pay", {}, key="beside")
        ctx.transaction.write({"ConditionCheck": check})

    bench = Bench(world, body)

    assert bench.deliver()
    assert "ConditionCheck of Other" in (bench.record.error or "")


def test_a_claim_whose_record_is_gone_is_lost_to_nobody(world: World) -> None:
    """G2: a person deleted it while the job ran: the message is kept, and it is told as lost and as no fault."""
    bench = Bench(world, lambda _: world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": "pay#k-1"}}))

    assert bench.deliver()
    assert [name for name in world.names() if name.startswith(("job.", "claim.", "message."))] == [
        "job.started",
        "claim.lost",
    ]


def test_a_lease_is_renewed_where_nothing_kills_the_process_and_only_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Lambda the lease covers the whole invocation: a thread that renews it would only cost requests."""
    renewed: list[str] = []

    def renewing(*_: object, **__: object) -> AbstractContextManager[None]:
        renewed.append("renewed")
        return nullcontext()

    monkeypatch.setattr("onceq.executor.renewing", renewing)
    bench = Bench(world)

    bench.deliver()
    assert renewed == []
    bench.app.consumer(event_of(world.message("pay", key="k-2")))
    assert renewed == ["renewed"]


def test_a_write_that_cannot_be_sent_is_told_without_its_value(world: World) -> None:
    """What is in a payload is not logged: botocore quotes what it cannot send, and the record must not."""
    create_table(world.dynamodb, "Other")
    item = {"pk": {"S": "o-1"}, "card": {"S": 41111111}}
    bench = Bench(world, lambda ctx: ctx.transaction.write({"Put": {"TableName": "Other", "Item": item}}))

    assert bench.deliver()
    assert "card" in (bench.record.error or "")
    assert "4111" not in (bench.record.error or "")
