"""Jobs, middleware, hooks and results that break out where they can: what they cost is their own attempt."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import ClaimLost, ConfigurationError, Context, ResultNotStored, Retry, job
from onceq.clock import LambdaDeadline
from onceq.codec import MOST_LEVELS, encode_result, fingerprint, printable
from onceq.errors import PayloadError
from onceq.keys import check_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq import App


def _deliver(world: World, app: App, *messages: dict[str, Any]) -> list[str]:
    return kept(app.consumer(event_of(*messages), FakeLambdaContext()))


def test_an_async_middleware_is_refused() -> None:
    """G4: its coroutine would never run, and with it no job; a plain function wraps async jobs too."""

    async def layer(call_next: Callable[[], Any], ctx: Context, payload: Any) -> Any:
        return call_next()

    from onceq import App

    with pytest.raises(ConfigurationError, match="async def"):
        App([], middleware=[layer])


def test_what_nobody_runs_is_no_completion(world: World) -> None:
    """G4: a coroutine or generator that comes out of the last middleware has not run, so the attempt failed."""

    async def never() -> None:
        """Never awaited."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        """Is not reached."""

    for value in (never(), (number for number in range(3))):
        app = world.app(act, middleware=[lambda call_next, ctx, payload, value=value: value])
        message = world.message("act", key=type(value).__name__)
        assert _deliver(world, app, message) == [message["messageId"]]
        record = world.record(act, type(value).__name__)
        assert record is not None
        assert (record.status, "nobody runs" in str(record.error)) == ("failed", True)
        value.close()


def test_a_generator_is_no_job() -> None:
    """G4: calling it runs nothing."""
    with pytest.raises(ConfigurationError, match="generator"):

        @job("act")
        def act(payload: dict[str, Any]) -> Any:
            yield payload


def test_an_exit_in_a_task_of_a_job_leaves_the_loop_to_the_others(world: World) -> None:
    """G5: asyncio lets a SystemExit out of its loop; the loop goes on, and every later job with it."""

    @job("act", max_duration=5)
    async def act(payload: dict[str, Any], ctx: Context) -> str:
        async def child() -> None:
            raise SystemExit(3)

        if ctx.key == "bad":
            await asyncio.gather(asyncio.create_task(child()), return_exceptions=True)
        return "done"

    app = world.app(act)

    _deliver(world, app, world.message("act", key="bad"))
    assert _deliver(world, app, world.message("act", key="good")) == []
    record = world.record(act, "good")
    assert record is not None
    assert record.status == "completed"


def test_an_enum_key_is_its_value() -> None:
    """G3: one job has one key, whether its producer or its consumer reads it from the payload."""

    class Text(str, enum.Enum):  # noqa: UP042 - the form that is met most
        ONE = "a-1"

    class Number(int, enum.Enum):
        ONE = 5

    assert (check_key(Text.ONE), type(check_key(Text.ONE)), check_key(Number.ONE)) == ("a-1", str, "5")


def test_a_hook_that_is_cancelled_hurts_nothing(world: World) -> None:
    """G5: whatever a hook raises, also at the end of a batch, the answer is the same."""

    def hook(event: Any) -> None:
        raise asyncio.CancelledError

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        """Do nothing."""

    unknown = world.message("unknown")
    assert _deliver(world, world.app(act, hooks=[hook]), world.message("act"), unknown) == [unknown["messageId"]]


def test_a_result_whose_error_cannot_speak_is_not_stored() -> None:
    """G10: not even the words of its exception may keep the effect from being recorded."""

    class Mute(ValueError):
        def __str__(self) -> str:
            raise RuntimeError

    @dataclass
    class Evil:
        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # as evil as it gets
            raise Mute

        def __getattribute__(self, name: str) -> Any:
            raise Mute

    assert isinstance(encode_result(Evil(), 1_000), ResultNotStored)


def test_a_result_is_stored_only_if_every_reader_can_read_it() -> None:
    """G3, G10: deeper than the limit it depends on the reader's stack, so it is not stored at all."""

    def nested(levels: int) -> Any:
        value: Any = 1.0
        for _ in range(levels):
            value = [value]
        return value

    assert isinstance(encode_result(nested(MOST_LEVELS), 10_000), str)
    assert isinstance(encode_result(nested(MOST_LEVELS + 1), 10_000), ResultNotStored)
    with pytest.raises(PayloadError):
        fingerprint(nested(MOST_LEVELS + 1))


def test_a_message_without_an_id_has_a_copy_of_its_own(world: World) -> None:
    """G4: on a FIFO dead-letter queue two copies with one deduplication id would be one."""
    first, second = world.raw("bad one", queue="Ordered.fifo", group="a"), world.raw("bad two", queue="Ordered.fifo")
    for record in (first, second):
        del record["messageId"]

    assert kept(world.app().consumer(event_of(first, second))) == []
    assert sorted(letter["Body"] for letter in world.dead_letters("OrderedDead.fifo")) == ["bad one", "bad two"]


def test_a_copy_that_cannot_be_made_keeps_its_message_and_hurts_no_neighbour(world: World) -> None:
    """G5: a lone surrogate, which SQS would not take, fails one copy and not the batch."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        """Do nothing."""

    bad = world.raw("\ud800")
    assert _deliver(world, world.app(act), bad, world.message("act")) == [bad["messageId"]]


def test_a_deployment_that_compares_something_else_does_not_refuse_what_is_in_flight(world: World) -> None:
    """G3: one message has one payload; its retry is no key reuse because fingerprint= has changed meanwhile."""
    runs: list[int] = []

    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.attempt)
        if ctx.attempt == 1:
            raise Retry(delay=0)

    message = world.message("act", {"a": 1, "b": 2})
    assert _deliver(world, world.app(job("act", fingerprint="a")(act)), message) == [message["messageId"]]
    assert _deliver(world, world.app(job("act", fingerprint="b")(act)), message) == []
    assert runs == [1, 2]


def test_a_retry_of_the_users_own_class_without_a_delay_ends_as_any_error(world: World) -> None:
    """G6: the attempt ends and is recorded; the claim is not left to go stale."""

    class Later(Retry):
        def __init__(self) -> None:
            """Forget the delay."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        raise Later

    message = world.message("act")
    assert _deliver(world, world.app(act), message) == [message["messageId"]]
    record = world.record(act, "k-1")
    assert record is not None
    assert record.status == "failed"


def test_a_claim_lost_that_the_job_made_up_is_an_error_of_the_job(world: World) -> None:
    """G4: only a refused write of ours tells that a claim is lost; anything else would acknowledge what did not end."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        raise ClaimLost(None)

    message = world.message("act")
    assert _deliver(world, world.app(act), message) == [message["messageId"]]
    record = world.record(act, "k-1")
    assert record is not None
    assert record.status == "failed"


def test_settling_stops_when_no_time_is_left(world: World) -> None:
    """G5: the answer is worth more than the rest of the batches: what is left keeps its own visibility timeout."""
    url = world.settings.queue("default").url
    queue = world.runtime.queue(LambdaDeadline(lambda: 400))

    failed = queue.change_visibility_batch(url, [{"Id": "0", "ReceiptHandle": "r", "VisibilityTimeout": 0}])

    assert failed == {"0": "no time is left in this invocation"}


def test_a_monstrous_text_is_cut_before_it_is_cleaned() -> None:
    """G5: only what is shown is looked at, so an exception of thirty megabytes costs nothing."""

    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return self

        def __getitem__(self, part: Any) -> str:
            looked.append(part)
            return str.__getitem__(self, part)

    looked: list[slice] = []
    assert printable(Text("x" * 50_000), 10) == "x" * 9 + "…"
    assert looked == [slice(None, 11)]
