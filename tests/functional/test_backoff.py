"""When a job that failed runs again, and what SQS is told about it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from kit.clock import FakeLambdaContext
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Backoff, Context, Retry, Snooze, job
from onceq.outcome import LONGEST_VISIBILITY

if TYPE_CHECKING:
    from kit.world import World
    from onceq.record import Record


def _record(world: World, key: str = "k-1") -> Record:
    record = world.record("act", key)
    assert record is not None
    return record


def test_the_delay_doubles_with_the_records_attempts_and_is_drawn_with_full_jitter(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exponential back-off with full jitter, by the attempts in our record and not by SQS's receive count."""
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return high / 2

    monkeypatch.setattr(world.tokens, "uniform", uniform)

    @job("act", max_attempts=6, backoff=Backoff(base=3, cap=20))
    def act(payload: dict[str, Any]) -> None:
        raise ConnectionError

    sqs = FakeSqs()
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))
    delays = []
    for _ in range(5):
        app.consumer(event_of(world.message("act", receive_count=77)), FakeLambdaContext())
        not_before = _record(world).not_before
        assert not_before is not None
        delays.append((not_before - world.clock.now_ms()) / 1000)
        world.clock.advance(delays[-1])

    assert drawn == [(0, 3), (0, 6), (0, 12), (0, 20), (0, 20)]
    assert delays == [1.5, 3, 6, 10, 10]
    assert list(sqs.visibility().values()) == [2, 3, 6, 10, 10]


def test_a_duplicate_does_not_skip_the_back_off(world: World) -> None:
    """``not_before`` is in the record: another message of the job waits for it to the millisecond."""
    runs: list[int] = []

    @job("act", backoff=Backoff(base=60, cap=60))
    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError

    sqs = FakeSqs()
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))
    app.consumer(event_of(world.message("act")), FakeLambdaContext())
    duplicate = world.message("act")
    for advance in (0.0, 30.0, 29.999):
        world.clock.advance(advance)
        assert kept(app.consumer(event_of(duplicate), FakeLambdaContext())) == [duplicate["messageId"]]
        # One second of jitter, rounded up.
        assert sqs.visibility()[duplicate["receiptHandle"]] == {0.0: 61, 30.0: 31, 29.999: 2}[advance]
    assert (runs, _record(world).attempts) == ([1], 1)

    world.clock.advance(0.001)
    assert kept(app.consumer(event_of(duplicate), FakeLambdaContext())) == []
    assert runs == [1, 2]


@pytest.mark.parametrize(("delay", "seconds"), [(7, 7), (0, 0), (0.25, 1), (timedelta(minutes=2), 120)])
def test_retry_with_a_delay_uses_that_delay_and_an_attempt(world: World, delay: Any, seconds: int) -> None:
    """``Retry(delay=)`` says when; the attempt counts."""

    @job("act", max_attempts=2)
    def act(payload: dict[str, Any]) -> None:
        raise Retry(delay=delay, reason="the provider asks for patience")

    sqs = FakeSqs()
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))
    message = world.message("act")

    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    assert sqs.visibility() == {message["receiptHandle"]: seconds}
    assert (_record(world).attempts, _record(world).error) == (1, "Retry: the provider asks for patience")

    world.clock.advance(seconds)
    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == []
    assert _record(world).status == "rejected"


def test_retry_without_a_delay_backs_off_as_an_exception_does(world: World) -> None:
    """``Retry()`` uses the job type's back-off."""

    @job("act", backoff=Backoff(base=9, cap=9))
    def act(payload: dict[str, Any]) -> None:
        raise Retry

    world.app(act).consumer(event_of(world.message("act")), FakeLambdaContext())

    assert _record(world).not_before == world.clock.now_ms() + 9_000


def test_snooze_uses_no_attempt(world: World) -> None:
    """A job with one attempt may snooze as often as it likes, and then still has its attempt."""
    runs: list[int] = []

    @job("act", max_attempts=1)
    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.attempt)
        if len(runs) <= 3:
            raise Snooze(600)

    sqs = FakeSqs()
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))
    for _ in range(3):
        message = world.message("act")
        assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
        assert (_record(world).status, _record(world).attempts) == ("failed", 0)
        assert sqs.visibility()[message["receiptHandle"]] == 600
        world.clock.advance(600)

    assert kept(app.consumer(event_of(world.message("act")), FakeLambdaContext())) == []
    assert runs == [1, 1, 1, 1]


@pytest.mark.parametrize("error", [Snooze(timedelta(days=3)), Retry(delay=timedelta(days=13))], ids=["snooze", "retry"])
def test_a_wait_longer_than_sqs_allows_is_cut_and_the_record_still_holds_it(world: World, error: Exception) -> None:
    """SQS hides a message for 12 hours at the most, so it comes back sooner, finds the job waiting and waits again."""
    runs: list[int] = []

    @job("act", retention=timedelta(seconds=1))
    def act(payload: dict[str, Any]) -> None:
        runs.append(1)
        raise error

    sqs = FakeSqs()
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))
    for _ in range(3):
        message = world.message("act")
        assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
        assert sqs.visibility()[message["receiptHandle"]] == LONGEST_VISIBILITY < 43_200
        world.clock.advance(LONGEST_VISIBILITY)
    assert len(runs) == 1


def test_attempts_used_up_reject_the_job(world: World) -> None:
    """The last attempt ends the job for good, with the error of that attempt, and the message goes to the DLQ."""

    @job("act", max_attempts=3)
    def act(payload: dict[str, Any], ctx: Context) -> None:
        message = f"no answer, attempt {ctx.attempt}"
        raise ConnectionError(message)

    app = world.app(act)
    for attempt in (1, 2, 3):
        message = world.message("act")
        expected = [] if attempt == 3 else [message["messageId"]]
        assert kept(app.consumer(event_of(message), FakeLambdaContext())) == expected
        world.clock.advance(10)

    record = _record(world)
    assert (record.status, record.attempts) == ("rejected", 3)
    assert record.error == "attempts used up (3 of 3): ConnectionError: no answer, attempt 3"
    (copy,) = world.dead_letters()
    assert (copy["note"]["reason"], copy["note"]["attempts"]) == ("rejected", 3)
    assert copy["note"]["error"] == record.error


def test_visibility_changes_go_out_in_batches_of_ten(world: World) -> None:
    """25 kept messages are three requests, and one that lacks a receipt handle needs none."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        raise ConnectionError

    sqs = FakeSqs()
    batch = [world.message("act", key=str(number)) for number in range(25)]
    batch.append(world.message("act", key="x") | {"receiptHandle": None})

    answer = world.app(act, runtime=SpiedRuntime(world.runtime, sqs)).consumer(event_of(*batch), FakeLambdaContext())

    assert kept(answer) == [record["messageId"] for record in batch]
    assert [len(request["Entries"]) for _, request in sqs.requests] == [10, 10, 5]
    assert sorted(sqs.visibility()) == sorted(record["receiptHandle"] for record in batch[:25])
    assert {request["QueueUrl"] for _, request in sqs.requests} == {world.settings.queue("default").url}


def test_failed_visibility_changes_are_tried_again_and_reported_each(world: World) -> None:
    """SQS answers 200 although entries failed: each is looked at; what stays failed is only reported, and kept."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        raise ConnectionError

    batch = [world.message("act", key=str(number)) for number in range(4)]
    passing, gone, dead = (record["receiptHandle"] for record in batch[:3])
    tries: list[str] = []

    def fail(operation: str, entry: dict[str, Any]) -> dict[str, Any] | None:
        handle = entry["ReceiptHandle"]
        tries.append(handle)
        if handle == gone:
            return {"Code": "ReceiptHandleIsInvalid", "SenderFault": True}
        if handle == dead or (handle == passing and tries.count(passing) == 1):
            return {"Code": "InternalError", "SenderFault": False}
        return None

    app = world.app(act, runtime=SpiedRuntime(world.runtime, FakeSqs(fail)))

    assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == [record["messageId"] for record in batch]
    assert (tries.count(passing), tries.count(gone), tries.count(dead)) == (2, 1, 3)
    reported = [event.fields() for event in world.events if event.name == "visibility.not_changed"]
    assert {event["message_id"] for event in reported} == {batch[1]["messageId"], batch[2]["messageId"]}


@pytest.mark.parametrize("code", ["AccessDenied", "ServiceUnavailable"])
def test_a_queue_that_refuses_every_visibility_change_only_means_its_own_time_out(world: World, code: str) -> None:
    """G5: a failed visibility change changes no answer."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        if payload.get("fail"):
            raise ConnectionError

    def fail(operation: str, entry: dict[str, Any]) -> None:
        raise ClientError({"Error": {"Code": code}}, operation)

    app = world.app(act, runtime=SpiedRuntime(world.runtime, FakeSqs(fail)))
    batch = [world.message("act", {"fail": True}, key="f1"), world.message("act"), world.message("act", key="g")]

    assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == [batch[0]["messageId"]]
    assert world.names().count("visibility.not_changed") == 1
