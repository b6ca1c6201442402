"""Results: the value of the first run is the value of every replay, and no result causes a second run."""

from __future__ import annotations

import datetime as dt
import enum
import math
import uuid
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.clock import FakeLambdaContext
from kit.faults import faulty_dynamodb
from kit.world import event_of
from onceq import Context, Settings, job
from onceq.codec import ResultNotStored
from onceq.consumer import Consumer
from onceq.errors import ConfigurationError
from onceq.outcome import Completed, Outcome, Replayed
from onceq.record import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq.catalogue import Job
    from onceq.message import Message

NEVER = object()


@dataclass(frozen=True)
class Receipt:
    """A result as users write them."""

    charge_id: str
    amount: Decimal
    at: dt.datetime


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


class Odd:
    """Nothing that JSON knows; it does not even print."""

    def __repr__(self) -> str:
        msg = "not even a repr"
        raise RuntimeError(msg)


def cyclic() -> list[Any]:
    """Return a list that holds itself."""
    loop: list[Any] = []
    loop.append(loop)
    return loop


AT = dt.datetime(2026, 11, 29, 12, 0, 0, 123_456, tzinfo=dt.UTC)
# What a job returns, and what everybody gets: its JSON, decoded.
STORED: dict[str, tuple[Any, Any]] = {
    "None": (None, None),
    "zero": (0, 0),
    "false": (False, False),
    "empty text": ("", ""),
    "empty list": ([], []),
    "empty dict": ({}, {}),
    "a list with None": ([None], [None]),
    "the word null": ("null", "null"),
    "datetime": (AT, "2026-11-29T12:00:00.123456Z"),
    "date": (dt.date(2026, 11, 29), "2026-11-29"),
    "Decimal": (Decimal("10.10"), "10.10"),
    "set": ({3, 1, 2}, [1, 2, 3]),
    "bytes": (b"\x00\xff", "AP8="),
    "tuple": ((1, "a"), [1, "a"]),
    "UUID": (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "enum": (Colour.RED, "red"),
    "dataclass": (
        Receipt("ch-1", Decimal("1.50"), AT),
        {"charge_id": "ch-1", "amount": "1.50", "at": "2026-11-29T12:00:00.123456Z"},
    ),
    "the largest int": (2**64 - 1, 2**64 - 1),
    "a larger int": (2**70 + 1, 2**70 + 1),
    "a negative int": (-(2**63), -(2**63)),
    "float": (0.1, 0.1),
    "odd text": ("\x00 \ud7ff 😀 \u2028", "\x00 \ud7ff 😀 \u2028"),
    "nested": ({"a": [{"b": None}, 1.5]}, {"a": [{"b": None}, 1.5]}),
}
NOT_STORED: dict[str, Callable[[], Any]] = {
    "NaN": lambda: math.nan,
    "NaN inside": lambda: {"a": [1, math.nan]},
    "infinity": lambda: math.inf,
    "NaN beside None": lambda: [None, -math.inf],
    "an object": Odd,
    "a class": lambda: Receipt,
    "half a character": lambda: "\ud800",
    "a cycle": cyclic,
    "too large": lambda: "x" * 32_767,
    "too large in bytes": lambda: "é" * 20_000,
}


class Results:
    """An app with one job that returns what it is told, and the outcomes of its deliveries."""

    def __init__(self, world: World, **changes: Any) -> None:
        """Compose the app."""
        self.world = world
        self.value: Callable[[], Any] = lambda: NEVER
        self.runs = 0
        if changes:
            world.runtime._given = replace(world.settings, **changes)

        @job("pay", max_duration=20)
        def pay(payload: dict[str, Any], ctx: Context) -> Any:
            self.runs += 1
            return self.value()

        self.app = world.app(pay)

    def deliver(self, key: str = "k-1") -> Outcome:
        """Deliver a message and return how it ended: the consumer answers SQS, the outcome has the value."""
        outcomes: list[Outcome] = []
        execute = Consumer._outcome

        def spy(consumer: Consumer, message: Message, ready: Job | Outcome, *, alone: bool) -> Any:
            outcome = execute(consumer, message, ready, alone=alone)
            outcomes.append(outcome)  # type: ignore[arg-type]  # nothing is stale here
            return outcome

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Consumer, "_outcome", spy)
            self.app.consumer(event_of(self.world.message("pay", key=key)), FakeLambdaContext())
        return outcomes[0]

    def looked_up(self) -> Any:
        """Return the result as a caller that waits for it reads it."""
        status = self.app.lookup("pay", "k-1")
        assert status is not None
        assert status.status == "completed"
        return status.result


@pytest.mark.parametrize(("value", "expected"), STORED.values(), ids=STORED)
def test_the_first_value_is_the_replayed_value(world: World, value: Any, expected: Any) -> None:
    """G10: what JSON makes of a result is what the first run, every replay and every look-up get."""
    results = Results(world)
    results.value = lambda: value

    first, second = results.deliver(), results.deliver()

    assert isinstance(first, Completed)
    assert isinstance(second, Replayed)
    assert first.result == second.result == results.looked_up() == expected
    assert type(first.result) is type(second.result) is type(expected)
    assert results.runs == 1


@pytest.mark.parametrize("make", NOT_STORED.values(), ids=NOT_STORED)
def test_a_result_that_cannot_be_stored_never_causes_a_second_run(world: World, make: Callable[[], Any]) -> None:
    """G10: the job completes; the first run and every replay get the same ResultNotStored, with the reason."""
    results = Results(world)
    results.value = make

    first, second = results.deliver(), results.deliver()

    assert isinstance(first, Completed)
    assert isinstance(second, Replayed)
    assert isinstance(first.result, ResultNotStored)
    assert first.result.reason
    assert first.result == second.result == results.looked_up()
    assert results.runs == 1
    assert world.names().count("result.not_stored") == 1
    record = world.record("pay", "k-1")
    assert record is not None
    assert (record.status, record.result) == (Status.COMPLETED, None)


@pytest.mark.parametrize(("size", "is_stored"), [(98, True), (99, False)])
def test_the_limit_counts_the_json_in_bytes(world: World, size: int, *, is_stored: bool) -> None:
    """ONCEQ_RESULT_LIMIT is in bytes of JSON, quotes and all: at the limit it is stored, above it is not."""
    results = Results(world, result_limit=100)
    results.value = lambda: "x" * size

    outcome = results.deliver()

    assert isinstance(outcome, Completed)
    assert (outcome.result == "x" * size) is is_stored
    assert isinstance(outcome.result, ResultNotStored) is not is_stored


def test_a_limit_of_nothing_stores_no_result_at_all(world: World) -> None:
    """ONCEQ_RESULT_LIMIT=0 keeps every result out of the table, `None` too: nobody depends on a value."""
    results = Results(world, result_limit=0)
    results.value = lambda: None

    assert isinstance(results.deliver().result, ResultNotStored)  # type: ignore[union-attr]  # it completes


def test_the_largest_result_that_may_be_allowed_fits_an_item(world: World) -> None:
    """G10: at the highest ONCEQ_RESULT_LIMIT the item still holds it, beside a long key and an earlier error."""
    results = Results(world, result_limit=350_000)
    results.value = lambda: "x" * 349_998
    key = "k" * 8_000

    first, second = results.deliver(key), results.deliver(key)

    assert isinstance(first, Completed)
    assert isinstance(second, Replayed)
    assert first.result == second.result == "x" * 349_998
    assert results.runs == 1


@pytest.mark.parametrize("limit", [350_001, 10**9, -1])
def test_a_limit_that_no_item_could_hold_is_refused(limit: int) -> None:
    """G10: DynamoDB takes 400 KB; a higher limit would leave an effect unrecorded, and the job would run again."""
    with pytest.raises(ConfigurationError, match="RESULT_LIMIT"):
        Settings(result_limit=limit)
    with pytest.raises(ConfigurationError, match="ONCEQ_RESULT_LIMIT"):
        Settings.from_env({"ONCEQ_RESULT_LIMIT": str(limit)})


def test_a_completion_that_the_table_refuses_is_reported_as_not_recorded(world: World) -> None:
    """Section 6: a refusal that no retry mends leaves the claim leased: "effect done, not recorded"."""
    results = Results(world)
    results.value = lambda: "done"
    faulty_dynamodb(world.runtime).refuse("complete", "AccessDeniedException")

    results.deliver()

    record = world.record("pay", "k-1")
    assert record is not None
    assert record.status is Status.PROCESSING
    assert "effect.not_recorded" in world.names()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(
    max_examples=30,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=JSON)
def test_any_json_value_comes_back_as_it_was(world: World, value: Any) -> None:
    """G10: for every value that JSON has, the first run's, the replay's and the job's own are equal."""
    results = Results(world)
    results.value = lambda: value
    key = world.tokens.token()

    first, second = results.deliver(key), results.deliver(key)

    assert isinstance(first, Completed)
    assert isinstance(second, Replayed)
    assert first.result == second.result == value
    assert results.runs == 1
