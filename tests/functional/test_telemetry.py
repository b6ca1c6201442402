"""Telemetry: names that operators alarm on, payloads that stay private, hooks that cannot hurt."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import Context, JobType, Reject, Retry, effect_events, telemetry
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from kit.world import World

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"
SECRET = "4111-1111-1111-1111"


def kinds() -> list[type[telemetry.Event]]:
    """Return every kind of event."""
    found = {**vars(telemetry), **vars(effect_events)}.values()
    return [kind for kind in found if inspect.isclass(kind) and issubclass(kind, telemetry.Event) and kind.name]


def test_names_levels_and_metrics_are_the_checked_in_list() -> None:
    """Operators alarm on them: a change is written down here, and in the changelog."""
    lines = {f"{kind.name} {logging.getLevelName(kind.level)} {kind.metric or '-'}" for kind in kinds()}

    assert sorted(lines) == (HERE / "telemetry_names.txt").read_text(encoding="utf-8").splitlines()


def test_a_name_and_a_metric_belong_to_one_kind() -> None:
    """Each event can be told from every other; an EMF line takes at most a hundred metrics."""
    names = [kind.name for kind in kinds()]
    metrics = [kind.metric for kind in kinds() if kind.metric]

    assert len(set(names)) == len(names)
    assert len(set(metrics)) == len(metrics) < 100
    assert all(kind.__doc__ for kind in kinds())


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
def test_an_event_is_frozen_and_shows_what_is_known(kind: type[telemetry.Event]) -> None:
    """A hook cannot change it for the next hook; what is not known is left out."""
    needed = {field.name: "x" for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING}
    event = kind(**needed)

    assert event.fields().keys() >= needed.keys()
    assert None not in event.fields().values()
    reserved = {*vars(logging.makeLogRecord({}))} | {"message", "asctime", "event", "level", "location", "timestamp"}
    assert not {field.name for field in dataclasses.fields(kind)} & reserved
    # Python 3.11 raises TypeError for a name that is no field of a frozen class with slots.
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        setattr(event, next(iter(needed), "anything"), "y")


def jobs() -> list[JobType[..., Any]]:
    """Return job types that end in every way."""

    def pay(payload: dict[str, Any], ctx: Context) -> Any:
        match payload.get("end"):
            case "retry":
                raise Retry(delay=1)
            case "reject":
                raise Reject("no")
            case "fail":
                raise RuntimeError("boom")
            case "large":
                return "x" * 40_000
        return payload

    def typed(payload: dict[str, int]) -> None:
        """Take numbers only."""

    return [JobType(pay, "pay"), JobType(typed, "typed", key="card")]


def every_kind_of_message(world: World) -> list[dict[str, Any]]:
    """Return messages that end in every way, each with the secret in its payload."""
    payloads = [{"card": SECRET, "end": end} for end in ("", "retry", "reject", "fail", "large")]
    messages = [world.message("pay", payload, key=f"k-{number}") for number, payload in enumerate(payloads)]
    return [
        *messages,
        world.message("pay", payloads[0], key="k-0"),
        world.message("pay", {"card": f"another {SECRET}"}, key="k-0"),
        world.message("typed", {"card": SECRET}),
        world.message("unknown", {"card": SECRET}),
        world.raw(json.dumps({"card": SECRET})),
        world.raw(f"not JSON {SECRET}"),
    ]


@pytest.mark.parametrize("asked_for", [False, True], ids=["default", "asked for"])
def test_payloads_are_in_no_event_unless_asked_for(world: World, *, asked_for: bool) -> None:
    """A log is read by many; ``ONCEQ_LOG_PAYLOADS`` puts the payload into one event, job.started."""
    settings = replace(world.settings, log_payloads=asked_for)
    app = world.app(*jobs(), runtime=Runtime(settings, clock=world.clock, tokens=world.tokens))

    app.consumer(event_of(*every_kind_of_message(world)), FakeLambdaContext())

    telling = {event.name for event in world.events if SECRET in repr(event)}
    assert telling == ({"job.started"} if asked_for else set())
    assert len({*world.names()}) >= 10


def test_a_batch_is_told_from_start_to_end(world: World) -> None:
    """What happened to each message can be read, and duplicates are visible although they hurt nobody."""
    app = world.app(*jobs())

    app.consumer(event_of(*every_kind_of_message(world)), FakeLambdaContext())

    names = world.names()
    expected = {
        "job.started": 5,
        "job.completed": 2,
        "job.replayed": 1,
        "job.released": 2,
        "job.rejected": 1,
        "result.not_stored": 1,
        "message.refused": 4,
        "message.unserved": 1,
        "message.dead_lettered": 5,
        "batch.answered": 1,
    }
    assert {name: names.count(name) for name in expected} == expected
    assert names[-1] == "batch.answered"


class Raising:
    """A hook that always fails."""

    def __call__(self, event: telemetry.Event) -> None:
        """Fail."""
        raise RuntimeError("the hook is broken")

    def flush(self) -> None:
        """Fail."""
        raise RuntimeError("the hook is broken")


class Noting:
    """A hook that notes events, and in which thread it was flushed."""

    def __init__(self) -> None:
        self.events: list[telemetry.Event] = []
        self.threads: set[int] = set()
        self.flushed: list[tuple[int, int]] = []

    def __call__(self, event: telemetry.Event) -> None:
        """Note it."""
        self.events.append(event)
        self.threads.add(threading.get_ident())

    def flush(self) -> None:
        """Note the thread, and how much had happened."""
        self.flushed.append((threading.get_ident(), len(self.events)))


def test_a_hook_that_raises_hurts_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """G4, G5: the messages end as ever, the next hook is told everything, and the failure is logged."""
    noting = Noting()
    app = world.app(*jobs(), hooks=[Raising(), noting])
    good = world.message("pay", {"n": 1})

    with caplog.at_level(logging.ERROR, logger="onceq"):
        assert kept(app.consumer(event_of(good), FakeLambdaContext())) == []

    assert [event.name for event in noting.events] == ["job.started", "job.completed", "batch.answered"]
    status = app.lookup("pay", "k-1")
    assert status is not None
    assert status.status == "completed"
    assert [line.getMessage() for line in caplog.records] == ["hook.failed"] * 4


def test_hooks_are_flushed_once_a_batch_by_the_invoking_thread(world: World) -> None:
    """Powertools' Metrics is not made for threads: events come from workers, the flush from the handler's thread."""
    noting = Noting()
    app = world.app(*jobs(), hooks=[noting])

    app.consumer(event_of(*(world.message("pay", {}, key=f"k-{number}") for number in range(8))), FakeLambdaContext())
    app.consumer({"Records": []})

    here = threading.get_ident()
    assert [thread for thread, _ in noting.flushed] == [here, here]
    assert [count for _, count in noting.flushed] == [17, 18]
    assert noting.threads - {here}


def test_hooks_are_flushed_when_the_batch_fails(world: World) -> None:
    """What was counted before the failure is not lost."""
    noting = Noting()
    app = world.app(*jobs(), hooks=[noting])

    with pytest.raises(Exception, match="not from aws:sqs"):
        app.consumer({"Records": [{"eventSource": "aws:s3"}]})

    assert len(noting.flushed) == 1


MANY_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
sys.setswitchinterval(1e-6)
from onceq import PowertoolsHook
from onceq.telemetry import JobCompleted, JobReplayed, MessageRefused, JobStarted
hook = PowertoolsHook()
def work(number):
    hook(JobStarted(job_type="pay", key=str(number), payload="seen only at DEBUG"))
    hook(JobCompleted(job_type="pay", key=str(number), message_id="m", attempt=1, claimant="t", seconds=0.5))
    hook(JobReplayed(job_type="mail", key=str(number)))
    hook(MessageRefused(message_id="m", reason="not JSON"))
with ThreadPoolExecutor(16) as pool:
    list(pool.map(work, range(200)))
hook.flush()
hook.flush()
hook(JobReplayed(job_type="mail", key="later"))
hook.flush()
"""


def output_of(script: str, **environment: str) -> list[dict[str, Any]]:
    """Run a script and return the JSON lines that it printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("POWERTOOLS")} | environment
    command = [sys.executable, "-W", "error", "-c", script]
    found = subprocess.run(command, cwd=SRC, env=environ, capture_output=True, text=True, check=True)
    assert found.stderr == ""
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_the_default_hook_logs_at_once_and_counts_once_a_batch() -> None:
    """One JSON line an event, one EMF line a job type and batch, from sixteen threads, none twice and none lost."""
    lines = output_of(MANY_THREADS, POWERTOOLS_SERVICE_NAME="shop", POWERTOOLS_METRICS_NAMESPACE="Shop")

    logs = [line for line in lines if "_aws" not in line]
    metrics = [line for line in lines if "_aws" in line]
    assert len(logs) == 801
    assert {line["event"] for line in logs} == {"job.started", "job.completed", "job.replayed", "message.refused"}
    completed = next(line for line in logs if line["event"] == "job.completed")
    shown = {"level": "INFO", "service": "shop", "job_type": "pay", "attempt": 1, "claimant": "t", "seconds": 0.5}
    assert shown.items() <= completed.items()
    assert next(line for line in logs if line["event"] == "message.refused")["level"] == "ERROR"
    counted = [{name: value for name, value in line.items() if name not in {"_aws", "service"}} for line in metrics]
    assert counted == [
        {"MessagesRefused": [200.0]},
        {"job_type": "mail", "JobsReplayed": [200.0]},
        {"job_type": "pay", "JobsCompleted": [200.0]},
        {"job_type": "mail", "JobsReplayed": [1.0]},
    ]
    assert {line["_aws"]["CloudWatchMetrics"][0]["Namespace"] for line in metrics} == {"Shop"}
    assert {line["service"] for line in metrics} == {"shop"}


def test_the_default_hook_has_a_namespace_of_its_own() -> None:
    """Without POWERTOOLS_METRICS_NAMESPACE metrics are in ``onceq``: a missing variable fails no message."""
    lines = output_of(MANY_THREADS)

    assert {line["_aws"]["CloudWatchMetrics"][0]["Namespace"] for line in lines if "_aws" in line} == {"onceq"}


def test_the_default_hook_loads_powertools_on_first_use() -> None:
    """An application with hooks of its own never pays for it."""
    script = (
        "import sys, json, onceq; onceq.PowertoolsHook().flush(); onceq.App([]);"
        "print(json.dumps({'loaded': 'aws_lambda_powertools' in sys.modules}))"
    )

    assert output_of(script) == [{"loaded": False}]
