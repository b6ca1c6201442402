"""What user code raises stays with its own record."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, Reject, Snooze, job
from onceq.errors import ConditionFailed, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from kit.world import World
    from onceq import App
    from onceq.clock import Deadline
    from onceq.telemetry import Event


class OddError(Exception):
    """Cannot be written down."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class ExitingError(Exception):
    """Ends the process when it is written down."""

    def __str__(self) -> str:
        raise SystemExit


class OwnSignal(BaseException):
    """Not an Exception."""


RAISED = [
    ValueError("no"),
    SystemExit(1),
    SystemExit(),
    GeneratorExit(),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    StopIteration(),
    OwnSignal(),
    OddError(),
    ExitingError(),
    ExceptionGroup("two", [ValueError("a"), ValueError("b")]),
    RecursionError(),
    MemoryError(),
    StoreError("the job's own use of it"),
    StoreUnavailable("the job's own use of it"),
    ConditionFailed(None),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\ud800"),
    Exception("\ud800\x00\uffff" * 2_000),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_what_a_job_raises_is_that_records_failure(
    world: World, error: BaseException, concurrency: int, *, is_async: bool
) -> None:
    """G5: SystemExit and the like end an attempt, are recorded, and hurt no neighbour before or behind."""
    runs: list[str] = []

    def act(ctx: Context) -> None:
        if ctx.key == "bad":
            raise error
        runs.append(ctx.key)

    @job("act")
    def act_sync(payload: dict[str, Any], ctx: Context) -> None:
        act(ctx)

    @job("act")
    async def act_async(payload: dict[str, Any], ctx: Context) -> None:
        act(ctx)

    app = _app(world, act_async if is_async else act_sync, concurrency=concurrency)
    records = [world.message("act", key=key) for key in ("one", "bad", "two", "three")]

    answer = app.consumer(event_of(*records), FakeLambdaContext())

    assert kept(answer) == [records[1]["messageId"]]
    assert sorted(runs) == ["one", "three", "two"]
    record = world.record("act", "bad")
    assert record is not None
    assert (record.status, record.attempts) == ("failed", 1)


@pytest.mark.parametrize("error", [ValueError(), SystemExit(), OwnSignal(), OddError()], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("option", ["key", "fingerprint"])
def test_a_key_function_that_raises_hurts_only_its_record(world: World, error: BaseException, option: str) -> None:
    """G5: the user's own key and fingerprint functions may raise anything."""
    runs: list[str] = []

    def select(payload: dict[str, Any]) -> str:
        if payload["name"] == "bad":
            raise error
        return str(payload["name"])

    @job("act", **{"key": select, option: select})  # type: ignore[arg-type]  # one of both options
    def act(payload: dict[str, Any]) -> None:
        runs.append(payload["name"])

    app = _app(world, act)
    records = [world.message("act", {"name": name}, key=None) for name in ("one", "bad", "two")]

    answer = kept(app.consumer(event_of(*records), FakeLambdaContext()))

    assert runs == ["one", "two"]
    dead = [message["Body"] for message in world.dead_letters()]
    assert answer == [records[1]["messageId"]] or dead == [records[1]["body"]]


@dataclass(frozen=True)
class Picky:
    """A payload whose own check may raise anything."""

    name: str

    def __post_init__(self) -> None:
        errors = {"exits": SystemExit, "odd": OddError, "missing": KeyError}
        if self.name in errors:
            raise errors[self.name]


@pytest.mark.parametrize("name", ["exits", "odd", "missing"])
def test_a_payload_that_raises_hurts_only_its_record(world: World, name: str) -> None:
    """G5: a payload's own ``__post_init__`` may raise anything."""
    runs: list[str] = []

    @job("act")
    def act(payload: Picky) -> None:
        runs.append(payload.name)

    records = [world.message("act", {"name": key}, key=key) for key in ("one", name, "two")]

    answer = kept(_app(world, act).consumer(event_of(*records), FakeLambdaContext()))

    assert runs == ["one", "two"]
    dead = [message["Body"] for message in world.dead_letters()]
    assert answer == [records[1]["messageId"]] or dead == [records[1]["body"]]


class _BadHook:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, event: Event) -> None:
        raise self.error

    def flush(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [ValueError(), SystemExit(), OddError()], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_hook_that_raises_is_reported_and_changes_no_answer(
    world: World, caplog: pytest.LogCaptureFixture, error: BaseException, concurrency: int
) -> None:
    """G5: telemetry that fails on every event changes neither an outcome nor what another hook sees."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        if payload.get("fail"):
            raise ConnectionError

    app = _app(world, act, concurrency=concurrency, hooks=[_BadHook(error), world.events.append])
    records = [world.message("act", key="good"), world.message("act", {"fail": True}, key="bad"), world.raw("x")]

    answer = app.consumer(event_of(*records), FakeLambdaContext())

    assert kept(answer) == [records[1]["messageId"]]
    assert {"job.completed", "job.released", "message.refused", "batch.answered"} <= set(world.names())
    assert any("hook.failed" in line.message for line in caplog.records)


class _FaultyRuntime(SpiedRuntime):
    """The table fails for one key."""

    def store(self, deadline: Deadline) -> Any:
        inner = super().store(deadline)

        class Faulty(type(inner)):  # type: ignore[misc]  # a store whose class is read at run time
            def claim(self, new: Any, now_ms: int) -> Any:
                if new.idempotency_key == "bad":
                    raise ZeroDivisionError
                if new.idempotency_key == "down":
                    raise StoreUnavailable
                return super().claim(new, now_ms)

        return Faulty(inner.dynamodb, inner.table, deadline)


def test_a_fault_of_the_framework_is_a_kept_record_with_a_trace(world: World) -> None:
    """G4, G5: a fault of our own, or of the table, counts as a failed record: its effect is not run, it is kept."""
    runs: list[str] = []

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.key)

    sqs = FakeSqs()
    app = world.app(act, runtime=_FaultyRuntime(world.runtime, sqs))
    records = [world.message("act", key=key) for key in ("one", "bad", "down", "two")]

    answer = app.consumer(event_of(*records), FakeLambdaContext())

    assert kept(answer) == [records[1]["messageId"], records[2]["messageId"]]
    assert sorted(runs) == ["one", "two"]
    faults = [event.fields() for event in world.events if event.name == "message.faulted"]
    assert [fault["message_id"] for fault in sorted(faults, key=str)]
    assert any("ZeroDivisionError" in fault.get("trace", "") for fault in faults)
    assert sqs.requests == []


class _ForgetfulRuntime(SpiedRuntime):
    """The table takes claims, and no end of an attempt."""

    def store(self, deadline: Deadline) -> Any:
        inner = super().store(deadline)

        class Forgetful(type(inner)):  # type: ignore[misc]  # a store whose class is read at run time
            def complete(self, held: Any, **_: Any) -> Any:
                raise StoreUnavailable

            release = reject = hold = complete

        return Forgetful(inner.dynamodb, inner.table, deadline)


@pytest.mark.parametrize("error", [None, ConnectionError(), Reject("no"), Snooze(5)], ids=lambda e: type(e).__name__)
def test_an_end_that_cannot_be_recorded_keeps_the_message_and_leaves_the_claim(
    world: World, error: Exception | None
) -> None:
    """G4, G12: never acknowledged as done: the claim stays leased, and an effect that is not recorded is said."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        if error is not None:
            raise error

    sqs = FakeSqs()
    message = world.message("act")
    app = world.app(act, runtime=_ForgetfulRuntime(world.runtime, sqs))

    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    record = world.record("act", "k-1")
    assert record is not None
    assert (record.status, record.version) == ("processing", 1)
    assert sqs.requests == []
    assert ("effect.not_recorded" in world.names()) == (error is None)


@pytest.mark.parametrize("concurrency", [1, 3, 10])
def test_never_more_jobs_at_once_than_allowed_and_none_when_the_answer_is_given(world: World, concurrency: int) -> None:
    """Concurrency is bounded, really used, and over when the consumer returns."""
    together = threading.Barrier(concurrency)
    lock = threading.Lock()
    running, most, finished = 0, 0, 0

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        nonlocal running, most, finished
        with lock:
            running += 1
            most = max(most, running)
        together.wait(20)
        with lock:
            running -= 1
            finished += 1

    app = _app(world, act, concurrency=concurrency)
    count = concurrency * 3

    answer = app.consumer(event_of(*[world.message("act", key=str(number)) for number in range(count)]))

    assert kept(answer) == []
    assert (running, most, finished) == (0, concurrency, count)


def _app(world: World, *job_types: Any, concurrency: int = 1, **options: Any) -> App:
    world.runtime._given = replace(world.settings, concurrency=concurrency)
    return world.app(*job_types, **options)
