"""What is delivered to: an application of onceq's, or any other SQS consumer that is a function of an event."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from onceq.application import App
from onceq.errors import ConfigurationError
from onceq.settings import require
from onceq.testing.errors import Crash
from onceq.testing.given import shown
from onceq.testing.process import CURRENT
from onceq.testing.timeline import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onceq.context import Context
    from onceq.job_type import JobType
    from onceq.runtime import Runtime
    from onceq.settings import Settings
    from onceq.telemetry import Event
    from onceq.testing.clock import FrozenClock
    from onceq.testing.process import Process

# The key of the job that runs here; "" where none does, and in threads that a job started.
JOB: ContextVar[str] = ContextVar("onceq_testing_job", default="")
# What makes a consumer of another make.
MAKES = "gets the Parts and returns the handler, handler(event, context)"
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


class Handler(Protocol):
    """A Lambda handler: any function of an event and a context."""

    def __call__(self, event: dict[str, Any], context: Any, /) -> Any:
        """Take an event, and return the answer."""


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

    def start_of(self, worker: str, job: str, at: int) -> Start | None:
        """Return the start of a job, by its key, that a worker was in at an entry; ``None`` if there is none."""
        mine = [one for one in self.starts if (one.worker, one.key) == (worker, job) and one.at < at]
        return mine[-1] if mine else None


@runtime_checkable
class Subject(Protocol):
    """What is delivered to."""

    def handler(self, process: Process, seen: Seen) -> Handler:
        """Return the Lambda handler of a process."""

    def relay(self, process: Process, seen: Seen) -> Callable[[], Any] | None:
        """Return what sends waiting messages from a process, if there is such a thing."""


def app_on(runtime: Runtime, app: App, *, middleware: Sequence[Any] = (), hooks: Sequence[Any] = ()) -> App:
    """Return an application on a runtime of the kit's, with middleware before its own, and with these hooks alone."""
    return App(
        app.job_types,
        default=app.job_types.default,
        middleware=[*middleware, *app.middleware],
        hooks=hooks,
        wrapped_envelopes=app.job_types.wrapped,
        runtime=runtime,
    )


@dataclass(frozen=True)
class AppSubject:
    """An application.

    Args:
        app: The application; its hooks are left out, its middleware is not.
    """

    app: App

    def on(self, process: Process, seen: Seen) -> App:
        """Return the application in a process, watched."""
        return app_on(process, self.app, middleware=[_watch(process, seen)], hooks=[_note(process, seen)])

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
        job_of: Names the job by what the work was given first.
    """

    make: Callable[[Parts], Handler]
    table: str
    work: Callable[..., Any]
    job_of: Callable[[Any], str] = repr

    def handler(self, process: Process, seen: Seen) -> Handler:
        """Return the handler."""
        process.claims_table = ""

        def work(*arguments: Any, **named: Any) -> Any:
            key = self.job_of(arguments[0] if arguments else None)
            return _run(process, seen, "starts the job", lambda: self.work(*arguments, **named), key=key)

        clients = process.owned
        clock: Any = process.clock
        return self._made(Parts(clients["dynamodb"], clients["sqs"], clock, self.table, work, process.name))

    def _made(self, parts: Parts) -> Handler:
        """Return the handler. Raises: ConfigurationError, if it is not made: most often make= is the handler itself."""
        name = getattr(self.make, "__name__", "make=")
        try:
            handler = self.make(parts)
        except Exception as error:
            told = f"{name} fails with the Parts, {type(error).__name__}: {error}: give a function that {MAKES}"
            raise ConfigurationError(told) from error
        require(callable(handler), f"{name} returned {shown(handler)}: give a function that {MAKES}")
        return handler

    def relay(self, process: Process, seen: Seen) -> None:
        """Return nothing: another consumer has no relay of ours."""


def check_served(job_type: JobType[..., Any], app: App, settings: Settings, switches: Sequence[str]) -> None:
    """Raise if a job type cannot be run in an environment.

    Args:
        job_type: The job type.
        app: The application there.
        settings: The settings there.
        switches: Parameters of the template on which queues depend that are not there.

    Raises:
        ConfigurationError: If the application does not have it, or the template not its queue; it says what to do.
    """
    require(
        job_type in app.job_types,
        f"job type {job_type.name!r} is not in the App's list: add it to the one in src/app.py, or give an App that "
        "has it, with app= (in pytest: the fixture onceq_app)",
    )
    known, switch = ", ".join(sorted(settings.queues)), " or ".join(switches) or "of its condition"
    require(
        job_type.queue in settings.queues,
        f"queue {job_type.queue!r} of {job_type.name!r} is not in ONCEQ_QUEUES (known: {known}): name it there, in the "
        f"template. If it has a condition, set the parameter {switch}: with parameters= (in pytest: the fixture "
        "onceq_parameters; from the shell: --parameter)",
    )


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
    token = JOB.set(started.key)
    try:
        value = call()
    except Crash:
        raise
    except BaseException as error:
        said = timeline.add(name, Kind.ERROR, f"{type(error).__name__}: {error}")
        seen.returns.append(Return(started, None, error, said.number))
        raise
    finally:
        JOB.reset(token)
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
