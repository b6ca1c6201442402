"""What a job receives beside its payload, and what is stored of what it returns."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import record_of
from kit.clock import FakeLambdaContext
from kit.world import TABLE, event_of, kept
from onceq import ClaimLost, Context, ResultNotStored, job
from onceq.record import Status

if TYPE_CHECKING:
    from kit.world import World
    from onceq.job_type import JobType


def _looking(seen: list[Context], *, failures: int = 0) -> JobType[..., Any]:
    @job("act", formerly=("performed", "oldest"), max_duration=20)
    def act(payload: dict[str, Any], ctx: Context) -> None:
        seen.append(ctx)
        if len(seen) <= failures:
            raise ConnectionError

    return act


def _deliver(world: World, app: Any, **message: Any) -> list[str]:
    return kept(app.consumer(event_of(world.message("act", **message)), FakeLambdaContext()))


def test_attempt_and_fencing_token_rise_and_downstream_keys_stay(world: World) -> None:
    """Every attempt has its number and a higher fencing token; the key for one effect is the same in all of them."""
    seen: list[Context] = []
    app = world.app(_looking(seen, failures=3))
    for _ in range(4):
        _deliver(world, app)
        world.clock.advance(30)

    assert [ctx.attempt for ctx in seen] == [1, 2, 3, 4]
    tokens = [ctx.fencing_token for ctx in seen]
    assert tokens == sorted(set(tokens))
    assert len({ctx.idempotency_key_for("charge") for ctx in seen}) == 1
    assert len({ctx.idempotency_key_for(name) for ctx in seen for name in ("charge", "mail", "charge.2")}) == 3


def test_the_fencing_token_rises_over_a_clock_that_steps_back_and_over_the_records_expiry(world: World) -> None:
    """``max(previous + 1, now)``: later attempts have higher tokens whatever the clock of the worker says."""
    seen: list[Context] = []
    act = _looking(seen, failures=1)
    app = world.app(act)
    _deliver(world, app)
    record = world.record(act, "k-1")
    assert record is not None
    assert record.not_before is not None
    world.clock.advance(1)
    # The next worker's clock is where the back-off just ended; the record's token is ahead of it.
    world.dynamodb.update_item(
        TableName="ClaimsTable",
        Key={"pk": {"S": record.pk}},
        UpdateExpression="SET fencing_token = :ahead",
        ExpressionAttributeValues={":ahead": {"N": str(world.clock.now_ms() + 5_000)}},
    )
    _deliver(world, app)
    assert seen[1].fencing_token == world.clock.now_ms() + 5_001

    # The retention counts from the token, which is ahead of the clock.
    world.clock.advance(act.retention.total_seconds() + 7)
    _deliver(world, app)
    assert len(seen) == 3
    assert seen[2].fencing_token > seen[1].fencing_token
    assert seen[2].attempt == 1


def test_downstream_keys_use_the_oldest_name(world: World) -> None:
    """A rename never charges again: messages under any name have the record and the downstream keys of the oldest."""
    seen: list[Context] = []
    act = _looking(seen)
    app = world.app(act)

    app.consumer(event_of(world.message("oldest", key="a")), FakeLambdaContext())
    app.consumer(event_of(world.message("act", key="a")), FakeLambdaContext())
    app.consumer(event_of(world.message("performed", key="a")), FakeLambdaContext())
    app.consumer(event_of(world.message("act", key="b")), FakeLambdaContext())

    assert [ctx.job_type for ctx in seen] == ["oldest", "oldest"]
    assert world.record("oldest", "a") is not None
    assert seen[0].idempotency_key_for("x") != seen[1].idempotency_key_for("x")


@pytest.mark.parametrize("name", ["", "ä", "a b", "a/b", "x" * 101, None, 7])
def test_the_name_of_an_effect_is_checked(world: World, name: Any) -> None:
    """A downstream key is ASCII and bounded, so its name must be."""
    seen: list[Context] = []
    _deliver(world, world.app(_looking(seen)))

    with pytest.raises(ValueError, match="give 1 to 100 letters"):
        seen[0].idempotency_key_for(name)
    assert len(seen[0].idempotency_key_for("x" * 100)) <= 255


def test_remaining_tells_the_smaller_of_both_limits(world: World) -> None:
    """What an attempt may still take: until its max_duration, or until Lambda stops us."""
    told: list[float] = []
    context = FakeLambdaContext(60_000)

    @job("act", max_duration=20)
    def act(payload: dict[str, Any], ctx: Context) -> None:
        told.append(ctx.remaining())
        world.clock.advance(8)
        told.append(ctx.remaining())
        context.remaining_ms = 3_000
        told.append(ctx.remaining())
        world.clock.advance(60)
        told.append(ctx.remaining())

    assert kept(world.app(act).consumer(event_of(world.message("act")), context)) == []
    assert told == [20, 12, 3, 0]


def test_remaining_without_any_limit_is_infinite(world: World) -> None:
    """Outside Lambda a job without max_duration has no limit."""
    told: list[float] = []

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        told.append(ctx.remaining())

    world.app(act).consumer(event_of(world.message("act")))

    assert told == [float("inf")]


def test_the_log_carries_the_job_and_keeps_the_calls_own_fields(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Every line of ``ctx.log`` names job type, key and attempt, beside what the call adds."""

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        ctx.log.info("charged", extra={"charge_id": "c-1"})

    with caplog.at_level(logging.INFO, "onceq.job"):
        _deliver(world, world.app(act))

    (line,) = [record for record in caplog.records if record.name == "onceq.job"]
    fields = {name: line.__dict__[name] for name in ("job_type", "idempotency_key", "attempt", "charge_id")}
    assert fields == {"job_type": "act", "idempotency_key": "k-1", "attempt": 1, "charge_id": "c-1"}


def test_the_context_has_the_message(world: World) -> None:
    """``ctx.message`` is the delivery: its id, receive count and attributes."""
    seen: list[Context] = []
    _deliver(
        world,
        world.app(_looking(seen)),
        message_id="m-x",
        receive_count=3,
        attributes={"tenant": {"dataType": "String", "stringValue": "t"}},
    )

    message = seen[0].message
    assert (message.message_id, message.receive_count) == ("m-x", 3)
    assert message.attributes["tenant"]["stringValue"] == "t"


def test_a_claim_lost_inside_a_job_passes_its_except_exception(world: World) -> None:
    """G2: a job that catches Exception around its effects must still stop when its claim is lost."""
    went_on: list[bool] = []

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        record = world.record("act", ctx.key)
        assert record is not None
        theirs = replace(record, claimant="theirs", version=record.version + 1)
        world.dynamodb.put_item(TableName=TABLE, Item=theirs.to_item())
        try:
            ctx.step("effect", lambda: None)
        except Exception:  # noqa: BLE001 - what a job may do
            went_on.append(True)

    message = world.message("act")
    app = world.app(act)

    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    assert went_on == []
    assert "claim.lost" in world.names()


def test_a_lost_claim_of_another_job_is_no_loss_of_this_ones(world: World) -> None:
    """G4: a job that raises what some other attempt ended with has failed; its message is not acknowledged for it."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        raise ClaimLost(record_of(Status.COMPLETED), record_of())

    message = world.message("act")

    assert kept(world.app(act).consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    record = world.record("act", "k-1")
    assert record is not None
    assert record.status is Status.FAILED
    assert "claim.lost" not in world.names()


class Unwritable:
    """Has no JSON form."""


@pytest.mark.parametrize(
    "value",
    [Unwritable(), "x" * 40_000, float("nan"), {"a": float("inf")}],
    ids=["object", "large", "nan", "inf"],
)
def test_a_result_that_cannot_be_stored_completes_the_job_all_the_same(world: World, value: Any) -> None:
    """G10: the effect happened, so the job is completed, and everybody is told that its result was not stored."""
    runs: list[int] = []

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> Any:
        runs.append(ctx.attempt)
        return value

    app = world.app(act)
    for _ in range(2):
        assert _deliver(world, app) == []

    status = app.lookup(act, "k-1")
    assert status is not None
    assert isinstance(status.result, ResultNotStored)
    assert (runs, world.names().count("result.not_stored")) == ([1], 1)
