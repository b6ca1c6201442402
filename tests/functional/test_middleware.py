"""What stands around a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import Context, Reject, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq.job_type import JobType

CallNext = Any


def _act(order: list[str]) -> JobType[..., Any]:
    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> str:
        order.append("job")
        if payload.get("fail"):
            raise ConnectionError
        return "result"

    return act


def _layer(name: str, order: list[str]) -> Callable[[CallNext, Context, Any], Any]:
    def layer(call_next: CallNext, ctx: Context, payload: Any) -> Any:
        order.append(f"{name} in")
        try:
            return call_next()
        finally:
            order.append(f"{name} out")

    return layer


def test_the_first_middleware_is_the_outermost(world: World) -> None:
    """Layers are entered in the order of the list and left in the opposite one, also when the job fails."""
    order: list[str] = []
    app = world.app(_act(order), middleware=[_layer("a", order), _layer("b", order)])

    assert kept(app.consumer(event_of(world.message("act")), FakeLambdaContext())) == []
    assert order == ["a in", "b in", "job", "b out", "a out"]
    order.clear()
    assert len(kept(app.consumer(event_of(world.message("act", {"fail": True}, key="f")), FakeLambdaContext()))) == 1
    assert order == ["a in", "b in", "job", "b out", "a out"]


def test_a_middleware_sees_the_context_and_the_typed_payload(world: World) -> None:
    """``(call_next, ctx, payload)``: what the job will get."""
    seen: list[tuple[str, int, Any]] = []

    def look(call_next: CallNext, ctx: Context, payload: Any) -> Any:
        seen.append((ctx.key, ctx.attempt, payload))
        return call_next()

    app = world.app(_act([]), middleware=[look])
    app.consumer(event_of(world.message("act", {"a": 1})), FakeLambdaContext())

    assert seen == [("k-1", 1, {"a": 1})]


def test_a_middleware_may_answer_in_the_jobs_place(world: World) -> None:
    """A layer that does not call on: its value is the job's result, completed and replayed as such."""
    order: list[str] = []

    def short(call_next: CallNext, ctx: Context, payload: Any) -> Any:
        return {"from": "middleware"}

    act = _act(order)
    app = world.app(act, middleware=[short])

    assert kept(app.consumer(event_of(world.message("act")), FakeLambdaContext())) == []
    status = app.lookup(act, "k-1")
    assert status is not None
    assert (order, status.status, status.result) == ([], "completed", {"from": "middleware"})


def test_a_middleware_may_change_the_result(world: World) -> None:
    """What the outermost layer returns is what is stored."""
    act = _act([])

    def shout(call_next: CallNext, ctx: Context, payload: Any) -> Any:
        return call_next().upper()

    app = world.app(act, middleware=[shout])
    app.consumer(event_of(world.message("act")), FakeLambdaContext())

    status = app.lookup(act, "k-1")
    assert status is not None
    assert status.result == "RESULT"


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("x"), "failed"), (SystemExit(), "failed"), (Reject("no"), "rejected")]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_middleware_that_raises_ends_the_attempt_as_the_job_would(
    world: World, error: BaseException, status: str, when: str
) -> None:
    """G5: a layer is part of the attempt: what it raises is recorded, and no neighbour is hurt."""

    def broken(call_next: CallNext, ctx: Context, payload: Any) -> Any:
        if ctx.key != "bad":
            return call_next()
        if when == "after":
            call_next()
        raise error

    order: list[str] = []
    app = world.app(_act(order), middleware=[broken])
    batch = [world.message("act", key=key) for key in ("one", "bad", "two")]

    answer = kept(app.consumer(event_of(*batch), FakeLambdaContext()))

    assert answer == ([batch[1]["messageId"]] if status == "failed" else [])
    record = world.record("act", "bad")
    assert record is not None
    assert record.status == status
    assert order.count("job") == (3 if when == "after" else 2)


def test_a_middleware_may_turn_a_failure_into_a_rejection(world: World) -> None:
    """A layer sees what the job raised, and may raise another in its place."""

    def translate(call_next: CallNext, ctx: Context, payload: Any) -> Any:
        try:
            return call_next()
        except ConnectionError as error:
            reason = "gone for good"
            raise Reject(reason) from error

    app = world.app(_act([]), middleware=[translate])

    assert kept(app.consumer(event_of(world.message("act", {"fail": True})), FakeLambdaContext())) == []
    assert world.dead_letters()[0]["note"]["error"] == "gone for good"


def test_middleware_stands_around_async_jobs_too(world: World) -> None:
    """A layer's ``call_next`` returns what the coroutine returned."""
    values: list[Any] = []

    @job("act")
    async def act(payload: dict[str, Any]) -> str:
        return "awaited"

    def look(call_next: CallNext, ctx: Context, payload: Any) -> Any:
        values.append(call_next())
        return values[-1]

    assert kept(world.app(act, middleware=[look]).consumer(event_of(world.message("act")), FakeLambdaContext())) == []
    assert values == ["awaited"]


def test_middleware_is_not_called_for_what_does_not_run(world: World) -> None:
    """A replay, a refusal and a deferral pass no layer."""
    order: list[str] = []
    app = world.app(_act(order), middleware=[_layer("a", order)])
    app.consumer(event_of(world.message("act")), FakeLambdaContext())
    order.clear()

    batch = [world.message("act"), world.raw("x"), world.message("act", {"other": 1})]
    app.consumer(event_of(*batch), FakeLambdaContext())

    assert order == []
