"""Mistakes of an application that show at its first use, and not message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import ConfigurationError, JobType

if TYPE_CHECKING:
    from kit.world import World


def _act(payload: Any) -> None:
    """Do nothing."""


def test_a_default_for_an_unknown_queue_fails_the_first_batch(world: World) -> None:
    """G4: a typing error there would refuse every plain message of the queue; as an error it keeps the batch."""
    act = JobType(_act, "act")
    sqs = FakeSqs()
    app = world.app(act, default={"defualt": act, "ordered": act}, runtime=SpiedRuntime(world.runtime, sqs))

    with pytest.raises(ConfigurationError, match=r"queues that are not in ONCEQ_QUEUES: defualt$"):
        app.consumer(event_of(world.raw('{"n": "o-1"}')), FakeLambdaContext())

    assert sqs.requests == []
    assert "message.refused" not in world.names()


@pytest.mark.parametrize("name", ["default", "ordered"])
def test_a_default_for_a_known_queue_serves_it(world: World, name: str) -> None:
    """A queue without one still refuses plain messages."""
    act = JobType(_act, "act", key="n")
    app = world.app(act, default={name: act})

    kept_ids = kept(app.consumer(event_of(world.raw('{"n": "o-1"}')), FakeLambdaContext()))

    assert kept_ids == []
    assert ("job.completed" in world.names()) == (name == "default")
    assert ("message.refused" in world.names()) == (name != "default")


def test_a_default_for_every_queue_names_none(world: World) -> None:
    """It serves whatever queues there are."""
    act = JobType(_act, "act", key="[0]")

    assert kept(world.app(act, default=act).consumer(event_of(world.raw('["o-1"]')), FakeLambdaContext())) == []
    assert "job.completed" in world.names()


def test_a_job_type_that_is_not_served_cannot_be_looked_up(world: World) -> None:
    """Its records would be another application's: ``None`` would read as "never enqueued"."""
    app = world.app(JobType(_act, "act"))

    for unserved in (JobType(_act, "acts"), "acts"):
        with pytest.raises(ConfigurationError, match="did you mean 'act'"):
            app.lookup(unserved, "k-1")


def test_a_job_type_is_looked_up_under_its_stored_name(world: World) -> None:
    """Whichever of its names is asked for."""
    renamed = JobType(_act, "act", formerly=("older", "oldest"))
    app = world.app(renamed)
    app.consumer(event_of(world.message("older")), FakeLambdaContext())

    found = [app.lookup(asked, "k-1") for asked in (renamed, "act", "older", "oldest")]

    assert [status and (status.job_type, status.status) for status in found] == [("oldest", "completed")] * 4
