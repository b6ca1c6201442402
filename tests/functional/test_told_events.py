"""What is told about a message, and when: once its lane has come to it, and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import JobType, Retry

if TYPE_CHECKING:
    from kit.world import World


def _nothing(payload: Any) -> None:
    """Do nothing."""


def _failing(payload: dict[str, Any]) -> None:
    raise Retry(delay=60)


def _lane(world: World, behind: str) -> list[dict[str, Any]]:
    """Return a group whose head is retried, with something behind it."""
    fifo: dict[str, Any] = {"queue": "Ordered.fifo", "group": "g"}
    second = {
        "job": lambda: world.message("act", key="second", **fifo),
        "refused": lambda: world.raw("not JSON", **fifo),
        "unserved": lambda: world.message("unknown", key="second", **fifo),
    }[behind]()
    return [world.message("act", key="head", **fifo), second]


@pytest.mark.parametrize("behind", ["job", "refused", "unserved"])
def test_a_message_whose_lane_stopped_is_not_told_as_what_it_would_become(world: World, behind: str) -> None:
    """It is kept and read anew next time: ``message.refused`` or ``message.unserved`` would alarm too early."""
    batch = _lane(world, behind)

    answer = kept(world.app(JobType(_failing, "act")).consumer(event_of(*batch), FakeLambdaContext()))

    assert answer == [record["messageId"] for record in batch]
    names = world.names()
    assert "message.refused" not in names
    assert "message.unserved" not in names
    assert world.dead_letters("OrderedDead.fifo") == []


def test_a_job_whose_lane_stopped_is_told_as_not_started(world: World) -> None:
    """Every job of a batch has a line: this one says which message, and why."""
    batch = _lane(world, "job")

    world.app(JobType(_failing, "act")).consumer(event_of(*batch), FakeLambdaContext())

    (told,) = [event.fields() for event in world.events if event.name == "job.not_started"]
    assert told["message_id"] == batch[1]["messageId"]
    assert (told["job_type"], told["key"]) == ("act", "second")
    assert told["reason"] == "an earlier message of its lane is kept"


@pytest.mark.parametrize("behind", ["refused", "unserved"])
def test_a_message_that_its_lane_comes_to_is_told_once(world: World, behind: str) -> None:
    """After a head that completed it is told, in the order of the lane."""
    batch = _lane(world, behind)

    world.app(JobType(_nothing, "act")).consumer(event_of(*batch), FakeLambdaContext())

    names = world.names()
    assert names.count(f"message.{behind}") == 1
    assert names.index("job.completed") < names.index(f"message.{behind}")
    (told,) = [event.fields() for event in world.events if event.name == f"message.{behind}"]
    assert told["message_id"] == batch[1]["messageId"]
    assert told["reason"]
