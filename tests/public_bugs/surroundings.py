"""Scenes about what a job runs in: clients, files, the template, retention, clocks."""

from __future__ import annotations

import ast
import builtins
import io
import os
from pathlib import Path
from typing import Any

import pytest

from kit.clock import FakeLambdaContext
from kit.racing import all_at_once, eager_switching
from kit.seams import Seams, SimulatedCrash
from kit.world import event_of
from onceq import Context, JobType
from onceq.client import make_client
from onceq.clock import OpenDeadline
from onceq.job_type import DEFAULT_RETENTION
from onceq.runtime import Runtime
from public_bugs.ground import Ground, Pay
from template.reading import Stack

SOURCES = sorted((Path(__file__).parents[2] / "src" / "onceq").glob("*.py"))
FOURTEEN_DAYS = 14 * 86_400
NAIVE = {"utcnow", "utcfromtimestamp", "localtime", "mktime", "tzlocal", "today"}


def clients_are_made_once_and_hold_every_worker(ground: Ground) -> None:
    """Sixteen threads ask at once: one client each for tables and queues, with a connection for every worker."""
    made: list[tuple[str, int]] = []

    def make(service: str, connections: int, **options: Any) -> Any:
        made.append((service, connections))
        return make_client(service, connections, **options)

    runtime = Runtime(ground.world.settings, clock=ground.world.clock)
    # Undone before the world is, which has put clients of its own in the same place.
    with ground.monkeypatch.context() as patch, eager_switching():
        patch.setattr("onceq.dynamodb.make_client", make)
        patch.setattr("onceq.queue.make_client", make)
        all_at_once([lambda: (runtime.store(OpenDeadline()), runtime.queue(OpenDeadline()))] * 16)
    assert sorted(service for service, _ in made) == ["dynamodb", "sqs"]
    assert all(connections >= ground.world.settings.concurrency for _, connections in made)


def the_template_leaves_room_for_the_window(ground: Ground) -> None:
    """Visibility is six time-outs and the window, and never less than both and the skew."""
    parameters = Stack().parameters
    least = 6 * parameters["FunctionTimeout"] + parameters["BatchingWindow"]
    assert parameters["VisibilityTimeout"] >= least
    least = parameters["FunctionTimeout"] + parameters["BatchingWindow"] + parameters["ClockSkew"]
    assert parameters["VisibilityTimeout"] >= least


def the_backstop_is_far_behind_our_attempts(ground: Ground) -> None:
    """100 receives: a message that is deferred through every lease it can meet is not moved."""
    queue = Stack().properties("JobsQueue")
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 100


def a_record_outlives_its_message_and_its_redrive(ground: Ground) -> None:
    """Retention is longer than both queues keep a message together: what comes back last is still a replay."""
    assert DEFAULT_RETENTION.total_seconds() > 2 * FOURTEEN_DAYS + 86_400
    for queue in ("JobsQueue", "DeadLetterQueue"):
        assert Stack().properties(queue)["MessageRetentionPeriod"] == FOURTEEN_DAYS
    pay = Pay(ground.world)
    assert pay.deliver() == []
    ground.world.clock.advance(2 * FOURTEEN_DAYS)
    assert pay.deliver() == []
    assert pay.runs == ["k-1"]


def no_file_is_opened(ground: Ground) -> None:
    """Processes that share a disk share nothing of ours: a batch opens no file, and no module names /tmp."""
    pay = Pay(ground.world)
    pay.deliver("warm")
    opened: list[object] = []

    def refused(name: object, *_: Any, **__: Any) -> Any:
        opened.append(name)
        raise PermissionError(str(name))

    with ground.monkeypatch.context() as patch:
        for owner, name in ((builtins, "open"), (os, "open"), (io, "open")):
            patch.setattr(owner, name, refused)
        kept = pay.deliver("k-1", "k-2")
        again = pay.deliver("k-1")
    assert (kept, again, opened) == ([], [], [])
    assert not [path.name for path in SOURCES if '"/tmp' in path.read_text()]


def no_local_time_is_read(ground: Ground) -> None:
    """No module asks for a naive or local time: every `datetime.now` and `fromtimestamp` names its zone."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            zoned = len(node.args) > (node.func.attr == "fromtimestamp") or bool(node.keywords)
            if node.func.attr in NAIVE or (node.func.attr in ("now", "fromtimestamp") and not zoned):
                found.append(f"{path.name}:{node.lineno}")
    assert SOURCES
    assert found == []


def a_take_over_is_visible(ground: Ground) -> None:
    """It is an event of its own with a metric, and says whose attempt it took over."""
    process = Seams().process(ground.world.runtime)

    def pay(payload: dict[str, Any], ctx: Context) -> None:
        if ctx.attempt == 1:
            process.kill()

    job_type = JobType(pay, "pay", max_duration=20)
    record = ground.world.message("pay")
    with pytest.raises(SimulatedCrash):
        ground.world.app(job_type, runtime=process).consumer(event_of(record), FakeLambdaContext())
    ground.world.clock.advance(72)
    ground.world.app(job_type).consumer(event_of(record), FakeLambdaContext())
    [taken] = [event for event in ground.world.events if event.name == "job.taken_over"]
    assert taken.metric
    assert taken.fields()["previous_claimant"]
