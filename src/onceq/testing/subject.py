"""What is delivered to: an application of onceq's, or any other SQS consumer that is a function of an event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from onceq.application import App
from onceq.testing.errors import Crash
from onceq.testing.process import CURRENT
from onceq.testing.timeline import Kind

if TYPE_CHECKING:
    from onceq.context import Context
    from onceq.telemetry import Event
    from onceq.testing.clock import FrozenClock
    from onceq.testing.process import Process

Handler = Callable[[dict[str, Any], Any], Any]
# Told in the timeline; the other events say again what a request shows.
TOLD = (
    "job.replayed",
    "job.deferred",
    "job.not_started",
    "claim.lost",
    "effect.not_recorded",
    "message.refused",
    "message.faulted",
    "message.unserved",
    "step.replayed",
    "result.not_stored",
)


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a job.

    Args:
        worker: Which worker.
        at: The entry of the timeline.
        key: The job's key, as far as the kit knows it.
        attempt: Which attempt.
        fencing_token: Its fencing token.
        message_id: The message that it came from.
    """

    worker: str
    at: int
    key: str = ""
    attempt: int = 0
    fencing_token: int = 0
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Return:
    """What one start of a job came to.

    Args:
        start: The start.
        value: What the job returned.
        error: What it raised, or ``None``.
        at: The entry of the timeline.
    """

    start: Start
    value: Any
    error: BaseException | None
    at: int


@dataclass
class Seen:
    """What was seen of the jobs of a run.

    Args:
        starts: Every start.
        returns: Every end that was no crash.
        events: Every telemetry event, with its worker.
    """

    starts: list[Start] = field(default_factory=list)
    returns: list[Return] = field(default_factory=list)
    events: list[tuple[str, Event]] = field(default_factory=list)


class Subject(Protocol):
    """What is delivered to."""

    def handler(self, process: Process, seen: Seen) -> Handler:
        """Return the Lambda handler of a process."""

    def relay(self, process: Process, seen: Seen) -> Callable[[], Any] | None:
        """Return what sends waiting messages from a process, if there is such a thing."""


@dataclass(frozen=True)
class AppSubject:
    """An application.

    Args:
        app: The application; its hooks are left out, its middleware is not.
    """

    app: App

    def on(self, process: Process, seen: Seen) -> App:
        """Return the application in a process, watched."""
        app = self.app
        return App(
            app.job_types,
            default=app.job_types.default,
            middleware=[_watch(process, seen), *app.middleware],
            hooks=[_note(process, seen)],
            wrapped_envelopes=app.job_types.wrapped,
            runtime=process,
        )

    def handler(self, process: Process, seen: Seen) -> Handler:
        """Return the consumer."""
        return self.on(process, seen).consumer

    def relay(self, process: Process, seen: Seen) -> Callable[[], Any]:
        """Return the relay."""
        return self.on(process, seen).relay


@dataclass(frozen=True, slots=True)
class Parts:
    """What a consumer of another make works with; every request through it is watched.

    Args:
        dynamodb: A botocore client of DynamoDB.
        sqs: One of SQS.
        clock: The time; a consumer that asks the machine's clock cannot be proved.
        table: A table with the partition key ``pk``.
        work: The job: call it with the message's body, read, and it has its effect and returns its result.
        worker: Name of the worker, different in every process.
    """

    dynamodb: Any
    sqs: Any
    clock: FrozenClock
    table: str
    work: Callable[..., Any]
    worker: str


@dataclass(frozen=True)
class ConsumerSubject:
    """A consumer of another make.

    Args:
        make: Makes its handler in a process.
        table: The table that it works with.
        work: The job.
    """

    make: Callable[[Parts], Handler]
    table: str
    work: Callable[..., Any]

    def handler(self, process: Process, seen: Seen) -> Handler:
        """Return the handler."""
        process.claims_table = ""

        def work(*arguments: Any, **named: Any) -> Any:
            # Which job it is: what it was given first.
            key = repr(arguments[:1])
            return _run(process, seen, "starts the job", lambda: self.work(*arguments, **named), key=key)

        clients = process.watched
        clock: Any = process.clock
        return self.make(Parts(clients["dynamodb"], clients["sqs"], clock, self.table, work, process.name))

    def relay(self, process: Process, seen: Seen) -> None:
        """Return nothing: another consumer has no relay of ours."""


def _watch(process: Process, seen: Seen) -> Callable[[Callable[[], Any], Context, Any], Any]:
    def watch(call_next: Callable[[], Any], ctx: Context, _payload: Any) -> Any:
        token = CURRENT.set(process)
        try:
            told = {"key": ctx.key, "fencing_token": ctx.fencing_token, "message_id": ctx.message.message_id}
            return _run(process, seen, f"starts attempt {ctx.attempt}", call_next, attempt=ctx.attempt, **told)
        finally:
            CURRENT.reset(token)

    return watch


def _run(process: Process, seen: Seen, told: str, call: Callable[[], Any], **start: Any) -> Any:
    """Run a job, and write down that it started and what it came to, unless its process dies meanwhile."""
    timeline, name = process.timeline, process.name
    started = Start(name, at=timeline.add(name, Kind.DELIVERY, told).number, **start)
    seen.starts.append(started)
    try:
        value = call()
    except Crash:
        raise
    except BaseException as error:
        said = timeline.add(name, Kind.RETURN, f"{type(error).__name__}: {error}")
        seen.returns.append(Return(started, None, error, said.number))
        raise
    said = timeline.add(name, Kind.RETURN, _short(value))
    seen.returns.append(Return(started, value, None, said.number))
    return value


def _note(process: Process, seen: Seen) -> Callable[[Event], None]:
    def note(event: Event) -> None:
        seen.events.append((process.name, event))
        if event.name in TOLD:
            process.timeline.add(process.name, Kind.DELIVERY, event.name)

    return note


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - what a lane has room for
