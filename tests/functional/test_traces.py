"""Where a job failed, and which invocation it was: what a person needs who reads the log."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of
from onceq import ClaimLost, Context, JobType, PowertoolsHook, Reject, Retry, Snooze
from onceq.outcome import LONGEST_TRACE, trace_of
from onceq.record import Semantics
from onceq.telemetry import JobStarted, Telemetry

if TYPE_CHECKING:
    from kit.world import World


def _deep() -> None:
    message = "at the bottom"
    raise ValueError(message)


def _nothing(payload: Any) -> None:
    """Do nothing."""


def _ping(levels: int) -> None:
    if levels:
        _pong(levels - 1)
    message = "at the bottom"
    raise ValueError(message)


def _pong(levels: int) -> None:
    _ping(levels - 1)


def _deep_job(payload: dict[str, Any]) -> None:
    _deep()


def _told(world: World, name: str) -> dict[str, Any]:
    (event,) = [event for event in world.events if event.name == name]
    return event.fields()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "job.released"),
        ({"max_attempts": 1}, "job.rejected"),
        ({"reject": (ValueError,)}, "job.rejected"),
        ({"semantics": Semantics.AT_MOST_ONCE}, "job.held"),
    ],
    ids=["released", "used up", "rejected", "held"],
)
def test_a_failure_is_told_with_where_it_happened(world: World, options: dict[str, Any], name: str) -> None:
    """The innermost frames name file, function and line, so that nobody has to guess."""
    world.app(JobType(_deep_job, "act", **options)).consumer(event_of(world.message("act")), FakeLambdaContext())

    trace = _told(world, name)["trace"]
    assert "in _deep\n" in trace
    assert __file__ in trace
    assert trace.rstrip().endswith("ValueError: at the bottom")


@pytest.mark.parametrize(
    ("error", "name"),
    [(Retry(delay=1), "job.released"), (Snooze(1), "job.released"), (Reject("no"), "job.rejected")],
    ids=["retry", "snooze", "reject"],
)
def test_what_a_job_says_on_purpose_has_no_trace(world: World, error: Exception, name: str) -> None:
    """It is no failure."""

    def act(payload: dict[str, Any]) -> None:
        raise error

    world.app(JobType(act, "act")).consumer(event_of(world.message("act")), FakeLambdaContext())

    assert "trace" not in _told(world, name)


def test_a_job_that_ended_before_has_no_trace(world: World) -> None:
    """A duplicate of a rejected job failed nowhere."""
    app = world.app(JobType(_deep_job, "act", max_attempts=1))
    app.consumer(event_of(world.message("act")), FakeLambdaContext())
    world.events.clear()

    app.consumer(event_of(world.message("act")), FakeLambdaContext())

    told = _told(world, "job.rejected")
    assert told["before"] is True
    assert "trace" not in told


def _raised(call: Any, *arguments: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it raises
        call(*arguments)
    return caught.value


def test_a_trace_is_bounded_and_keeps_its_innermost_end() -> None:
    """A log line has room for a few frames and the error, not for a whole recursion or a long message."""
    deep = trace_of(_raised(_ping, 200)) or ""
    long = trace_of(ValueError("x" * 100_000 + "the end")) or ""

    # Two that call each other, since Python folds the lines of one that calls itself.
    assert deep.count("in _ping\n") == deep.count("in _pong\n") == 4
    assert deep.rstrip().endswith("ValueError: at the bottom")
    assert (len(long), long[0], long.rstrip().endswith("the end")) == (LONGEST_TRACE + 1, "…", True)
    assert trace_of(None) is None


def test_an_error_that_cannot_be_shown_still_shows_its_frames() -> None:
    """G4: a fault in an error's own text does not hide where it was raised, and is no fault of the batch."""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise SystemExit

    def fail() -> None:
        raise Unprintable

    assert "in fail\n" in (trace_of(_raised(fail)) or "")


class _Begun:
    """A hook that is told of batches."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object, int]] = []

    def __call__(self, event: object) -> None:
        self.told.append(("event", None, 0))

    def begin(self, context: object) -> None:
        self.told.append(("begin", context, threading.get_ident()))

    def flush(self) -> None:
        self.told.append(("flush", None, threading.get_ident()))


@pytest.mark.parametrize("context", [FakeLambdaContext(), None], ids=["lambda", "outside"])
def test_a_hook_is_told_when_a_batch_begins_and_ends(world: World, context: object) -> None:
    """Once each, around every event, in the invoking thread."""
    hook = _Begun()
    batch = [world.message("act", key=str(number)) for number in range(3)]

    world.app(JobType(_nothing, "act"), hooks=[hook]).consumer(event_of(*batch), context)

    assert hook.told[0] == ("begin", context, threading.get_ident())
    assert hook.told[-1] == ("flush", None, threading.get_ident())
    assert [kind for kind, _, _ in hook.told].count("begin") == 1
    assert "event" in [kind for kind, _, _ in hook.told[1:-1]]


def test_a_hook_that_fails_at_the_beginning_hurts_nobody(world: World) -> None:
    """G5: what a hook raises is reported and goes no further."""
    runs: list[Any] = []

    def act(payload: Any) -> None:
        runs.append(payload)

    class Failing(_Begun):
        def begin(self, context: object) -> None:
            raise RuntimeError

    app = world.app(JobType(act, "act"), hooks=[Failing(), world.events.append])

    assert app.consumer(event_of(world.message("act")), FakeLambdaContext()) == {"batchItemFailures": []}
    assert len(runs) == 1
    assert "job.completed" in world.names()


def test_each_line_of_an_invocation_carries_its_request_id(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The id leads from a line of ours to the lines that Lambda writes about the same invocation."""
    # Powertools keeps one logger a service, on the stream of its first use.
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "traces-begin")
    telemetry = Telemetry([PowertoolsHook()])
    for context in (FakeLambdaContext(), None, object()):
        telemetry.begin(context)
        telemetry.emit(JobStarted(job_type="act", key="k-1", message_id="m-1"))
        telemetry.flush()
    captured = capfd.readouterr()
    lines = [json.loads(line) for line in (captured.out + captured.err).splitlines() if '"event"' in line]

    assert [line["event"] for line in lines] == ["job.started"] * 3
    assert [line.get("function_request_id") for line in lines] == ["request-1", None, None]


def test_a_start_is_logged_where_info_is(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """After a time-out nothing else names the job: its start must not need DEBUG."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "traces-started")
    PowertoolsHook()(JobStarted(job_type="act", key="k-1", message_id="m-1"))

    captured = capfd.readouterr()
    (line,) = [json.loads(line) for line in (captured.out + captured.err).splitlines()]
    assert (line["level"], line["event"], line["key"]) == ("INFO", "job.started", "k-1")


def test_a_lost_claim_is_told_with_the_attempt_that_lost_it(world: World) -> None:
    """G2: the line tells loser and winner apart."""

    def act(payload: dict[str, Any], ctx: Context) -> None:
        if ctx.attempt == 1:
            world.clock.advance(3_600)
            app.consumer(event_of(world.message("act")), FakeLambdaContext())

    app = world.app(JobType(act, "act"))

    app.consumer(event_of(world.message("act")), FakeLambdaContext())

    lost = _told(world, "claim.lost")
    started = [event.fields() for event in world.events if event.name == "job.started"]
    assert (lost["attempt"], lost["claimant"]) == (1, started[0]["claimant"])
    assert (lost["status"], lost["winner"]) == ("completed", started[1]["claimant"])
    assert lost["winner"] != lost["claimant"]


def test_a_lost_claim_that_nobody_told_more_about_has_no_attempt() -> None:
    """A job may raise ``ClaimLost`` itself."""
    assert (ClaimLost().seen, ClaimLost().own) == (None, None)
