"""The application: job types composed into the Lambda handlers and the producer's side."""

from __future__ import annotations

import copy
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onceq.attempt import checked
from onceq.catalogue import JobTypes
from onceq.clock import OpenDeadline, ShorterDeadline, deadline_of
from onceq.effect_events import JobResolved, LockWasLost
from onceq.invocation import Invocation
from onceq.keys import check_key
from onceq.locks import check_seconds, take
from onceq.powertools import PowertoolsHook
from onceq.producer import Enqueued, Producer
from onceq.record import pk_of
from onceq.resolving import Resolution, resolve
from onceq.runtime import Runtime
from onceq.status import JobStatus
from onceq.store import is_free
from onceq.telemetry import Telemetry
from onceq.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import timedelta

    from onceq.attempt import Middleware
    from onceq.consumer import PartialBatchResponse
    from onceq.job_type import JobType
    from onceq.locks import HeldLock
    from onceq.resolving import Decision
    from onceq.sealing import Entry
    from onceq.settings import Settings
    from onceq.telemetry import Event

SOON_SECONDS = 8.0  # that a caller of `enqueue_with` waits for SQS, less the relay's reserve


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
        wrapped_envelopes: bool = False,
        settings: Settings | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        """Compose an application.

        Args:
            job_types: The job types to serve.
            default: Serves messages that are not onceq envelopes: one job type, or one by queue name.
            middleware: Callables ``(call_next, context, payload)`` around every job, the first one outermost.
            hooks: Given every telemetry event; without them Powertools logs and counts.
            wrapped_envelopes: Open envelopes inside SNS and EventBridge: who publishes there may start any job type.
            settings: Instead of the environment's.
            runtime: Instead of one of its own, for tests and tools that share clients or hold a clock.

        Raises:
            ConfigurationError: If two job types share a name, the default is not among them, or a middleware is async.
        """
        self.job_types = JobTypes(job_types, default, wrapped=wrapped_envelopes)
        self.runtime = runtime or Runtime(settings)
        self.hooks: tuple[Callable[[Event], object], ...] = (PowertoolsHook(),) if hooks is None else tuple(hooks)
        self.middleware = checked(middleware)
        self._telemetry = Telemetry(self.hooks)
        self._producer = Producer(job_types=self.job_types, runtime=self.runtime)

    def with_hooks(self, hooks: Iterable[Callable[[Event], object]]) -> App:
        """Return the same application, clients and settings shared, with these hooks instead of its own.

        Args:
            hooks: Given every telemetry event; put `hooks` of this application among them to keep its own.

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
        with self._invoked(context) as invocation:
            return invocation.consumer(self.job_types, self._producer.sealer, self.middleware).consume(event)

    def relay(self, event: object = None, context: object = None) -> dict[str, int]:  # noqa: ARG002 - Lambda's signature
        """Send what is due in the outbox and was not sent: the Lambda handler behind a schedule of one minute.

        Args:
            event: The schedule's.
            context: Lambda's.

        Returns:
            How many messages were ``sent``, ``failed``, ``left`` for the next run, and are ``overdue``.

        Raises:
            ConfigurationError: If the settings cannot be used.
            StoreError: If the outbox table could not be read.
        """
        self.runtime.settings.named_outbox()
        with self._invoked(context) as invocation:
            return invocation.relay().run_once().to_json()

    def recovery(self, event: object = None, context: object = None) -> dict[str, Any]:  # noqa: ARG002 - as above
        """Mark claims that went stale and that nobody took over, so that they show: the handler of a daily schedule.

        Args:
            event: Whatever the schedule says.
            context: Lambda's context.

        Returns:
            How many were ``scanned``, marked ``failed`` or ``uncertain``, ``lost`` to others, and if it ``finished``.

        Raises:
            ConfigurationError: If the settings cannot be used.
            StoreError: If the claims table did not answer.
        """
        with self._invoked(context) as invocation:
            return invocation.recovery(self.job_types).run_once().to_json()

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

    def transaction(self, writes: Iterable[Mapping[str, Any]] = ()) -> Transaction:
        """Return a transaction to fill, for `enqueue_with`.

        Example:
            >>> App([]).transaction().writes
            []
        """
        return Transaction(writes, reserved=[self.runtime.settings.claims_table, self.runtime.settings.outbox_table])

    def enqueue_with(
        self,
        transact_writes: Transaction | Iterable[Mapping[str, Any]],
        job_type: JobType[..., Any] | str,
        payload: Any,
        *,
        key: str | int | None = None,
        delay: float | timedelta = 0,
        group: str | None = None,
        queue: str | None = None,
    ) -> Enqueued:
        """Send a job if and only if your own DynamoDB writes happen, for example an order and its payment.

        The message is written to the outbox in the same transaction and sent at once; if that fails, by the relay.

        Args:
            transact_writes: A `transaction` that you filled, or writes as ``{"Put": {…}}`` in DynamoDB's own shape.
            job_type: The job type, or its name.
            payload: What the job gets.
            key: The idempotency key, as for `enqueue`.
            delay: Seconds (or a ``timedelta``) until it is delivered; any length, on a FIFO queue too.
            group: The message group.
            queue: Its name.

        Returns:
            The key and the message id, which is ``None`` while the message waits in the outbox.

        Raises:
            TransactionFailed: If a condition of yours did not hold (`ConditionNotMet`), or otherwise: nothing happened.
            EnqueueRefused: If SQS, DynamoDB or the job type would refuse the message.
            StoreUnavailable: If it may have happened. Sent again with the same key it is the same job; your own writes
                need a condition to be safe to repeat.
            ConfigurationError: If the job type, the queue or the outbox table is not known.
            BucketError: If the payload is too large for the outbox, and S3 did not take it.
        """
        token, staged = self.runtime.tokens.token(), transact_writes
        known: dict[str, Any] = {"key": key, "delay": delay, "group": group, "queue": queue, "token": token}
        entry = self._producer.sealer.stage(job_type, payload, **known).committed(self.runtime.clock.now_ms())
        transaction = staged if isinstance(staged, Transaction) else self.transaction(staged)
        self.runtime.outbox(OpenDeadline()).commit(transaction, entry, token)
        soon = ShorterDeadline(OpenDeadline(), SOON_SECONDS, self.runtime.clock)
        message_id = Invocation(self.runtime, soon, self._telemetry).relay().send([entry]).get(entry.pk)
        self._telemetry.flush()
        return Enqueued(entry.idempotency_key, message_id)

    @contextmanager
    def lock(self, name: str, *, seconds: float = 60) -> Iterator[HeldLock]:
        """Hold a lock while the block runs. A lock saves work and proves nothing: its time may pass while you work.

        The nightly report is a job with a key for each night; a lock only keeps two from running side by side.

        Args:
            name: The lock's name.
            seconds: When it ends by itself; `HeldLock.renew` moves that.

        Yields:
            The lock.

        Raises:
            LockBusy: If somebody else holds it.
            StoreError: If the table did not answer.

        Example:
            >>> with App([]).lock("nightly_report", seconds=0):
            ...     pass
            Traceback (most recent call last):
            onceq.errors.ConfigurationError: lock 'nightly_report': seconds=0: give a number above 0, up to 86400
        """
        check_seconds(name, seconds)
        runtime = self.runtime
        token = runtime.tokens.token()
        with take(
            runtime.locks(OpenDeadline()),
            name,
            holder=token,
            token=token,
            until=runtime.clock.now_ms() + int(seconds * 1000),
            clock=runtime.clock,
            skew_ms=int(runtime.settings.clock_skew * 1000),
            lost=lambda reason: self._telemetry.emit(LockWasLost(lock=name, reason=reason)),
        ) as held:
            yield held

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
        record = self.runtime.store(OpenDeadline()).get(self._pk(job_type, key)[0])
        if record is None or is_free(record, self.runtime.clock.now_ms()):
            return None
        return JobStatus.of(record)

    def resolve(
        self,
        job_type: JobType[..., Any] | str,
        key: str | int,
        decision: Decision,
        *,
        result: Any = None,
        reason: str = "",
        steps: Mapping[str, Any] | None = None,
        version: int | None = None,
    ) -> JobStatus:
        """Decide about a job that is uncertain, rejected or failed, once you know what it did and that it is over.

        Args:
            job_type: The job type, or one of its names.
            key: The idempotency key.
            decision: ``"done"``: it happened; duplicates get the result. ``"retry"``: it did not; the next message runs
                it, so redrive its copy or enqueue it again. ``"reject"``: it is not to happen any more.
            result: What a job that is done returned.
            reason: Why; it is logged, and stands in the record of a job that is not done.
            steps: For ``"retry"``: results of steps that you know are done, by name.
            version: `JobStatus.version` as you saw it, so that nothing that changed since is overwritten.

        Returns:
            How the job stands now.

        Raises:
            ResolveRefused: If the job is in another state, or changed meanwhile.
            ConfigurationError: If the job type is not known.
            StoreError: If the claims table did not answer.
        """
        pk, named = self._pk(job_type, key)
        record = resolve(
            self.runtime.store(OpenDeadline()),
            pk,
            Resolution(decision, result, reason, steps or {}, version),
            token=self.runtime.tokens.token(),
            now_ms=self.runtime.clock.now_ms(),
            retention_s=math.ceil(named.retention.total_seconds()),
            result_limit=self.runtime.settings.result_limit,
        )
        key = record.idempotency_key
        self._telemetry.emit(JobResolved(job_type=named.name, key=key, decision=decision, reason=reason))
        self._telemetry.flush()
        return JobStatus.of(record)

    def _pk(self, job_type: JobType[..., Any] | str, key: str | int) -> tuple[str, JobType[..., Any]]:
        named = self.job_types.named(job_type if isinstance(job_type, str) else job_type.name)
        return pk_of(named.storage_name, check_key(key)), named

    @contextmanager
    def _invoked(self, context: object) -> Iterator[Invocation]:
        self._telemetry.begin(context)
        try:
            yield Invocation(self.runtime, deadline_of(context), self._telemetry)
        finally:
            self._telemetry.flush()
