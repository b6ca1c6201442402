"""Which records of a batch wait for each other."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, Reject, job

if TYPE_CHECKING:
    from kit.world import World
    from onceq import App
    from onceq.job_type import JobType


class Noted:
    """What ran, in order, and a job type that fails or rejects where its payload says so."""

    def __init__(self) -> None:
        """Start with nothing run."""
        self.runs: list[str] = []
        self._lock = threading.Lock()

    def job_type(self) -> JobType[..., Any]:
        """Return it."""

        @job("act")
        def act(payload: dict[str, Any], ctx: Context) -> None:
            with self._lock:
                self.runs.append(ctx.key)
            if payload.get("do") == "fail":
                raise ConnectionError
            if payload.get("do") == "reject":
                raise Reject("no")

        return act


def _app(world: World, noted: Noted, sqs: FakeSqs, concurrency: int) -> App:
    world.runtime._given = replace(world.settings, concurrency=concurrency)
    return world.app(noted.job_type(), runtime=SpiedRuntime(world.runtime, sqs))


def _fifo(world: World, key: str, group: str, do: str = "work") -> dict[str, Any]:
    return world.message("act", {"do": do}, key=key, queue="Ordered.fifo", group=group)


@pytest.mark.parametrize("concurrency", [1, 10])
def test_a_failed_head_stops_its_own_group_and_no_other(world: World, concurrency: int) -> None:
    """FIFO groups keep their order: behind a kept head nothing starts, and all of it is visible at once."""
    noted, sqs = Noted(), FakeSqs()
    batch = [
        _fifo(world, "a1", "a"),
        _fifo(world, "b1", "b", "fail"),
        _fifo(world, "a2", "a"),
        _fifo(world, "b2", "b"),
        _fifo(world, "c1", "c"),
        _fifo(world, "b3", "b"),
        _fifo(world, "a3", "a"),
    ]

    answer = _app(world, noted, sqs, concurrency).consumer(event_of(*batch), FakeLambdaContext())

    assert kept(answer) == [batch[number]["messageId"] for number in (1, 3, 5)]
    assert sorted(noted.runs) == ["a1", "a2", "a3", "b1", "c1"]
    assert [key for key in noted.runs if key[0] == "a"] == ["a1", "a2", "a3"]
    handles = [batch[number]["receiptHandle"] for number in (1, 3, 5)]
    assert sqs.visibility() == dict(zip(handles, [1, 0, 0], strict=True))
    assert world.record("act", "b2") is None


@pytest.mark.parametrize("concurrency", [1, 10])
def test_mixed_groups_at_once_keep_each_groups_order(world: World, concurrency: int) -> None:
    """Ten groups of ten in one batch, interleaved: each runs in order, whatever runs beside it."""
    noted = Noted()
    batch = [_fifo(world, f"{group}{number}", group) for number in range(10) for group in "abcdefghij"]

    answer = _app(world, noted, FakeSqs(), concurrency).consumer(event_of(*batch), FakeLambdaContext())

    assert kept(answer) == []
    for group in "abcdefghij":
        assert [key for key in noted.runs if key[0] == group] == [f"{group}{number}" for number in range(10)]


def test_a_rejection_does_not_stop_a_lane(world: World) -> None:
    """A rejected job is over: what stands behind it in its group runs."""
    noted, sqs = Noted(), FakeSqs()
    batch = [_fifo(world, "a1", "a", "reject"), _fifo(world, "a2", "a")]

    answer = _app(world, noted, sqs, 1).consumer(event_of(*batch), FakeLambdaContext())

    assert (kept(answer), noted.runs) == ([], ["a1", "a2"])
    assert [entry["MessageBody"] for entry in sqs.entries("send")] == [batch[0]["body"]]


def test_a_message_that_is_refused_does_not_stop_a_lane(world: World) -> None:
    """A body that is no job goes to the dead-letter queue, and its group goes on."""
    noted, sqs = Noted(), FakeSqs()
    batch = [world.raw("not json", queue="Ordered.fifo", group="a"), _fifo(world, "a2", "a")]

    answer = _app(world, noted, sqs, 1).consumer(event_of(*batch), FakeLambdaContext())

    assert (kept(answer), noted.runs) == ([], ["a2"])


def test_a_message_of_another_release_stops_its_lane(world: World) -> None:
    """An unknown job type is kept, so what stands behind it in its group must wait for it."""
    noted, sqs = Noted(), FakeSqs()
    unknown = world.message("of_tomorrow", key="u", queue="Ordered.fifo", group="a")
    batch = [unknown, _fifo(world, "a2", "a"), _fifo(world, "b1", "b")]

    answer = _app(world, noted, sqs, 10).consumer(event_of(*batch), FakeLambdaContext())

    assert kept(answer) == [batch[0]["messageId"], batch[1]["messageId"]]
    assert noted.runs == ["b1"]


def test_a_group_on_a_standard_queue_is_a_tenant_and_no_order(world: World) -> None:
    """MessageGroupId on a standard queue does not make a lane: a failed neighbour stops nothing."""
    noted, sqs = Noted(), FakeSqs()
    batch = [
        world.message("act", {"do": "fail"}, key="a1", group="tenant"),
        world.message("act", key="a2", group="tenant"),
    ]

    answer = _app(world, noted, sqs, 1).consumer(event_of(*batch), FakeLambdaContext())

    assert kept(answer) == [batch[0]["messageId"]]
    assert noted.runs == ["a1", "a2"]


def test_the_same_group_name_on_two_queues_is_two_lanes(world: World) -> None:
    """A group belongs to its queue; two messages that share only the group's name do not wait for each other."""
    noted, sqs = Noted(), FakeSqs()
    default = world.settings.queue("ordered")
    second = replace(default, name="second", arn=default.arn.replace("Ordered", "Second"))
    settings = replace(world.settings, queues={**world.settings.queues, "second": second}, concurrency=1)
    world.runtime._given = settings
    app = world.app(noted.job_type(), runtime=SpiedRuntime(world.runtime, sqs))
    failing = _fifo(world, "a1", "a", "fail")
    other = world.message("act", key="a2", queue="Second.fifo", group="a")

    assert kept(app.consumer(event_of(failing, other), FakeLambdaContext())) == [failing["messageId"]]
    assert noted.runs == ["a1", "a2"]


@pytest.mark.parametrize("concurrency", [1, 10])
def test_two_messages_of_one_key_in_one_batch_use_one_attempt(world: World, concurrency: int) -> None:
    """A duplicate in the same batch waits for its twin: replayed if that completed, unstarted if it was kept."""
    noted, sqs = Noted(), FakeSqs()
    batch = [
        world.message("act", {"do": "fail"}, key="bad"),
        world.message("act", key="good"),
        world.message("act", {"do": "fail"}, key="bad"),
        world.message("act", key="good"),
    ]

    answer = _app(world, noted, sqs, concurrency).consumer(event_of(*batch), FakeLambdaContext())

    assert kept(answer) == [batch[0]["messageId"], batch[2]["messageId"]]
    assert sorted(noted.runs) == ["bad", "good"]
    record = world.record("act", "bad")
    assert record is not None
    assert record.attempts == 1
    assert world.names().count("job.replayed") == 1
    assert sqs.visibility() == {batch[0]["receiptHandle"]: 1, batch[2]["receiptHandle"]: 0}


@pytest.mark.parametrize("concurrency", [1, 10])
def test_lanes_that_share_a_job_become_one(world: World, concurrency: int) -> None:
    """Group a and group b share the key x: they are one lane in the batch's order, stopped by either's failure."""
    noted, sqs = Noted(), FakeSqs()
    batch = [
        _fifo(world, "a1", "a"),
        _fifo(world, "x", "a", "fail"),
        _fifo(world, "x", "b", "fail"),
        _fifo(world, "b2", "b"),
        _fifo(world, "c1", "c"),
    ]

    answer = _app(world, noted, sqs, concurrency).consumer(event_of(*batch), FakeLambdaContext())

    assert kept(answer) == [batch[number]["messageId"] for number in (1, 2, 3)]
    assert sorted(noted.runs) == ["a1", "c1", "x"]


def test_different_lanes_run_at_the_same_time(world: World) -> None:
    """Ten lanes on ten threads meet: none waits for another."""
    together = threading.Barrier(10)

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        together.wait(20)

    batch = [world.message("act", key=str(number)) for number in range(10)]

    assert kept(world.app(act).consumer(event_of(*batch))) == []
