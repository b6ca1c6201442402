"""The application: job types composed into the Lambda handlers and the producer's side."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from onceq.catalogue import JobTypes
from onceq.clock import OpenDeadline, deadline_of
from onceq.codec import decode_result
from onceq.consumer import Consumer
from onceq.errors import ConfigurationError
from onceq.executor import Executor
from onceq.message import check_key
from onceq.powertools import PowertoolsHook
from onceq.producer import Producer
from onceq.record import Record, Status, pk_of
from onceq.runtime import Runtime
from onceq.store import is_free
from onceq.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta

    from onceq.attempt import Middleware
    from onceq.consumer import PartialBatchResponse
    from onceq.job_type import JobType
    from onceq.producer import Enqueued, Entry
    from onceq.settings import Settings
    from onceq.telemetry import Event


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How a job stands, for a caller that waits for its outcome.

    Args:
        job_type: Name of the job type, the oldest one.
        key: The idempotency key.
        status: ``processing``, ``completed``, ``failed`` (to be run again), ``rejected`` or ``uncertain``.
        result: What the job returned, once completed; `onceq.ResultNotStored` where that could not be stored.
        error: Why the last attempt failed, or the job was rejected.
        attempts: Starts of the job.
        created_at: When it was first claimed.
        completed_at: When it was completed.
        not_before: When a failed job runs again at the earliest.

    Example:
        >>> at = datetime(2026, 1, 1, tzinfo=UTC)
        >>> status = JobStatus("greet", "k-1", Status.COMPLETED, "Hello Ada", None, 1, at, at, None)
        >>> status.status == "completed", status.result
        (True, 'Hello Ada')
    """

    job_type: str
    key: str
    status: Status
    result: Any
    error: str | None
    attempts: int
    created_at: datetime
    completed_at: datetime | None
    not_before: datetime | None

    @classmethod
    def of(cls, record: Record) -> JobStatus:
        """Read a record."""
        return cls(
            job_type=record.job_type,
            key=record.idempotency_key,
            status=record.status,
            result=decode_result(record.result, record.result_not_stored)
            if record.status is Status.COMPLETED
            else None,
            error=record.error,
            attempts=record.attempts,
            created_at=_time(record.created_at),
            completed_at=_time(record.completed_at) if record.completed_at is not None else None,
            not_before=_time(record.not_before) if record.not_before is not None else None,
        )


class App:
    """Composes job types into an application.

    Nothing is read or connected here: the environment and the clients come at the first use.

    Example:
        >>> from onceq import job
        >>> @job("greet")
        ... def greet(payload: dict) -> str:
        ...     return "Hello " + payload["name"]
        >>> app = App([greet])
        >>> [job_type.name for job_type in app.job_types]
        ['greet']
    """

    def __init__(
        self,
        job_types: Iterable[JobType[..., Any]],
        *,
        default: JobType[..., Any] | Mapping[str, JobType[..., Any]] | None = None,
        middleware: Iterable[Middleware] = (),
        hooks: Iterable[Callable[[Event], object]] | None = None,
        settings: Settings | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        """Compose an application.

        Args:
            job_types: The job types to serve.
            default: Serves messages that are not onceq envelopes: one job type, or one by queue name.
            middleware: Callables ``(call_next, context, payload)`` around every job, the first one outermost.
            hooks: Given every telemetry event; without them Powertools logs and counts.
            settings: Instead of the environment's.
            runtime: Instead of one of its own, for tests and tools that share clients or hold a clock.

        Raises:
            ConfigurationError: If two job types share a name, the default is not among them, or a middleware is async.
        """
        self.job_types = JobTypes(job_types, default)
        self.runtime = runtime or Runtime(settings)
        self.hooks: tuple[Callable[[Event], object], ...] = (PowertoolsHook(),) if hooks is None else tuple(hooks)
        self._middleware = tuple(middleware)
        for layer in self._middleware:
            if inspect.iscoroutinefunction(layer) or inspect.iscoroutinefunction(getattr(layer, "__call__", None)):  # noqa: B004 - its kind is asked, not whether there is one
                message = f"middleware {layer!r} is `async def`: write a plain function, which wraps async jobs too"
                raise ConfigurationError(message)
        self._telemetry = Telemetry(self.hooks)
        self._producer = Producer(job_types=self.job_types, runtime=self.runtime)

    def with_hooks(self, hooks: Iterable[Callable[[Event], object]]) -> App:
        """Return the same application, clients and settings shared, with these hooks instead of its own.

        Args:
            hooks: Given every telemetry event; put `hooks` of this application among them to keep its own.

        Returns:
            Another application; this one stays as it is.

        Example:
            >>> app = App([], hooks=[])
            >>> app.with_hooks([*app.hooks, print]).hooks == (print,)
            True
        """
        other = copy.copy(self)
        other.hooks = tuple(hooks)
        other._telemetry = Telemetry(other.hooks)  # noqa: SLF001 - its own class
        return other

    def consumer(self, event: object, context: object = None) -> PartialBatchResponse:
        """Consume one SQS event: the Lambda handler.

        Args:
            event: The event.
            context: Lambda's context, which tells the time left; without one the lease is short and renewed.

        Returns:
            The partial batch response: the messages to keep.

        Raises:
            NotAnSqsEvent: If the event is not from SQS.
            UnnameableRecord: If a record must be kept and has no message id.
            ConfigurationError: If the settings cannot be used; every message is kept.
        """
        self.job_types.check_queues(self.runtime.settings.queues)
        deadline = deadline_of(context)
        executor = Executor(
            store=self.runtime.store(deadline),
            settings=self.runtime.settings,
            deadline=deadline,
            clock=self.runtime.clock,
            tokens=self.runtime.tokens,
            telemetry=self._telemetry,
            middleware=self._middleware,
            loop=self.runtime.loop,
        )
        self._telemetry.begin(context)
        consumer = Consumer(self.job_types, self.runtime.settings, executor, self.runtime.queue(deadline))
        try:
            return consumer.consume(event)
        finally:
            self._telemetry.flush()

    def enqueue(
        self,
        job_type: JobType[..., Any] | str,
        payload: Any,
        *,
        key: str | int | None = None,
        delay: float | timedelta = 0,
        group: str | None = None,
        queue: str | None = None,
    ) -> Enqueued:
        """Send one job to its queue; see `Producer.enqueue`."""
        return self._producer.enqueue(job_type, payload, key=key, delay=delay, group=group, queue=queue)

    def enqueue_many(self, entries: Iterable[Entry]) -> list[Enqueued]:
        """Send many jobs in batches; see `Producer.enqueue_many`."""
        return self._producer.enqueue_many(entries)

    def lookup(self, job_type: JobType[..., Any] | str, key: str | int) -> JobStatus | None:
        """Read how a job stands, consistently.

        Args:
            job_type: The job type, or one of its names.
            key: The idempotency key.

        Returns:
            Its status, or ``None`` if it was never claimed or its retention is over.

        Raises:
            ConfigurationError: If the job type is not known.
            StoreError: If the claims table did not answer.
        """
        named = self.job_types.named(job_type if isinstance(job_type, str) else job_type.name)
        record = self.runtime.store(OpenDeadline()).get(pk_of(named.storage_name, check_key(key)))
        if record is None or is_free(record, self.runtime.clock.now_ms()):
            return None
        return JobStatus.of(record)


def _time(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
