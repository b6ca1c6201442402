"""A batch: lanes on a bounded pool, then the stale jobs alone, then one exact answer to SQS.

The answer is a partial batch response: the ids to keep, all of this event. AWS reads an id that is empty, null or
unknown as "keep everything"
(https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html), so a record that must be kept and has
no id fails the invocation; its neighbours are protected by their claims.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceq import telemetry as events
from onceq.catalogue import Job, UnknownJob
from onceq.codec import printable
from onceq.errors import MessageError, NotAnSqsEvent, Signal, UnnameableRecord
from onceq.lanes import lanes_of
from onceq.message import DeadLetterNote, Message
from onceq.outcome import (
    Completed,
    Deferred,
    Faulted,
    GoneStale,
    NotStarted,
    NoWork,
    Outcome,
    RefusedMessage,
    Unserved,
    answer_of,
    describe,
    trace_of,
)
from onceq.settling import Delivery, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.catalogue import JobTypes
    from onceq.executor import Executor
    from onceq.fetching import Fetcher
    from onceq.queue import Queue
    from onceq.relay import Relay
    from onceq.settings import QueueSettings, Settings

PartialBatchResponse = dict[str, list[dict[str, str]]]
Readied = Job | Outcome
# A stale job that found no time left behind its neighbours comes back within so long.
APART_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Consumer:
    """Consumes one batch."""

    job_types: JobTypes
    settings: Settings
    executor: Executor
    queue: Queue
    relay: Relay
    fetcher: Fetcher

    def consume(self, event: object) -> PartialBatchResponse:
        """Run the jobs of an SQS event.

        Args:
            event: The event that Lambda passes.

        Returns:
            The partial batch response.

        Raises:
            NotAnSqsEvent: If the records are not SQS's, so that their own source keeps them.
            UnnameableRecord: If a record must be kept and has no message id.
        """
        telemetry = self.executor.telemetry
        records = _records_of(event)
        if not records:
            telemetry.emit(events.EventWithoutRecords())
            return {"batchItemFailures": []}
        deliveries, readied = self._ready(records)
        outcomes = self._run(deliveries, readied)
        kept = settle(
            deliveries,
            outcomes,
            queue=self.queue,
            clock=self.executor.clock,
            tokens=self.executor.tokens,
            telemetry=telemetry,
        )
        # Last, since the relay sends what there is no time for.
        entries = [entry for outcome in outcomes if isinstance(outcome, Completed) for entry in outcome.entries]
        if entries:
            self.relay.send(entries)
        telemetry.emit(events.BatchAnswered(records=len(records), kept=len(kept)))
        ids = [delivery.message.message_id for delivery in deliveries if delivery.record in kept]
        if None in ids:
            message = "a record that must be kept has no messageId: the whole batch is kept"
            raise UnnameableRecord(message)
        return {"batchItemFailures": [{"itemIdentifier": str(message_id)} for message_id in dict.fromkeys(ids)]}

    def _ready(self, records: Sequence[object]) -> tuple[list[Delivery], list[Readied]]:
        """Read the jobs of a batch, with the outcomes of messages that are none. Its only I/O fetches large bodies."""
        messages = [Message.from_record(record) for record in records]
        deliveries: list[Delivery] = []
        readied: list[Readied] = []
        for number, (message, body) in enumerate(zip(messages, self.fetcher.bodies(messages), strict=True)):
            queue = self.settings.queue_of(message.source_arn)
            jobs = self._jobs(message, body, queue)
            for ready in jobs:
                one_of_several = ready if isinstance(ready, Job) and len(jobs) > 1 else None
                deliveries.append(Delivery(number, message, queue, one_of_several))
            readied += jobs
        return deliveries, readied

    def _jobs(self, message: Message, body: str | Outcome | None, queue: QueueSettings | None) -> list[Readied]:
        """Return what a message stands for: jobs, and how it ends as far as it is none."""
        if queue is None:
            return [Unserved(printable(f"queue {message.source_arn!r} is not in ONCEQ_QUEUES"))]
        if not (body is None or isinstance(body, str)):
            return [body]
        try:
            jobs = self.job_types.jobs_of(message, body, queue=queue.name, max_hops=self.settings.max_hops)
            if isinstance(jobs, UnknownJob):
                return [Unserved(jobs.reason)]
            if not jobs:
                return [NoWork("S3 says that its notifications are set up")]
            readied = [job for job in jobs if isinstance(job, Job)]
            # What is broken cannot be copied by itself, and goes once, with the whole message.
            broken = [job for job in jobs if not isinstance(job, Job)]
            return [*readied, _refused(broken, len(jobs))] if broken else [*readied]
        except MessageError as error:
            return [_refused([error], 1)]
        except Signal:
            raise
        except BaseException as error:  # noqa: BLE001 - a fault here, or a SystemExit of a key function, is that record's
            return [self._faulted(message, error)]

    def _run(self, deliveries: Sequence[Delivery], readied: Sequence[Readied]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        batch = [(delivery.message, ready) for delivery, ready in zip(deliveries, readied, strict=True)]
        lanes = lanes_of([_shared(delivery, ready) for delivery, ready in zip(deliveries, readied, strict=True)])
        workers = min(self.settings.concurrency, len(lanes))
        if len(lanes) == 1:
            self._walk(lanes[0], batch, outcomes, alone=True)
            halts = []
        elif workers == 1:
            halts = [self._walk(lane, batch, outcomes, alone=False) for lane in lanes]
        else:
            # Leaving the block waits for every lane: nothing runs on when the answer is given.
            with ThreadPoolExecutor(workers, thread_name_prefix="onceq") as pool:
                halts = list(pool.map(lambda lane: self._walk(lane, batch, outcomes, alone=False), lanes))
        # Fewest attempts first: of several that died together the innocent ones get away before the killer runs.
        for _, lane in sorted((halt for halt in halts if halt is not None), key=lambda halt: halt[0]):
            self._walk(lane, batch, outcomes, alone=True)
            if isinstance(outcomes[lane[0]], NotStarted):
                # Apart from its neighbours, who are visible at once, and so with the time of an invocation of its own.
                apart_ms = self.executor.tokens.uniform(0, APART_SECONDS) * 1000
                outcomes[lane[0]] = Deferred(self.executor.clock.now_ms() + int(apart_ms))
        return [outcomes[position] for position in range(len(readied))]

    def _walk(
        self,
        lane: Sequence[int],
        batch: Sequence[tuple[Message, Readied]],
        outcomes: dict[int, Outcome],
        *,
        alone: bool,
    ) -> tuple[int, Sequence[int]] | None:
        """Run a lane in order; return attempts and rest where it stands before a stale job that must run alone."""
        stopped = False
        for number, position in enumerate(lane):
            message, ready = batch[position]
            if stopped:
                outcomes[position] = self._stopped(message, ready)
                continue
            outcome = self._outcome(message, ready, alone=alone)
            if isinstance(outcome, GoneStale):
                return outcome.attempts, lane[number:]
            outcomes[position] = outcome
            stopped = answer_of(outcome, 0, 0).keep
        return None

    def _outcome(self, message: Message, ready: Readied, *, alone: bool) -> Outcome | GoneStale:
        if isinstance(ready, Job):
            try:
                return self.executor.execute(ready, alone=alone)
            except Signal:
                raise
            except BaseException as error:  # noqa: BLE001 - as above
                return self._faulted(message, error)
        # Told only now: a message whose lane has stopped is neither refused nor unserved yet.
        if isinstance(ready, NoWork):
            self._emit(events.MessageWithoutWork(message_id=message.message_id, reason=ready.reason))
        elif isinstance(ready, RefusedMessage):
            self._emit(events.MessageRefused(message_id=message.message_id, reason=ready.note.reason))
        elif isinstance(ready, Unserved):
            self._emit(events.MessageUnserved(message_id=message.message_id, reason=ready.reason))
        return ready

    def _stopped(self, message: Message, ready: Readied) -> Outcome:
        reason = "an earlier message of its lane is kept"
        if isinstance(ready, Job):
            name, key = ready.job_type.name, ready.key
            self._emit(events.JobNotStarted(job_type=name, key=key, message_id=message.message_id, reason=reason))
        return NotStarted(reason)

    def _emit(self, event: events.Event) -> None:
        self.executor.telemetry.emit(event)

    def _faulted(self, message: Message, error: BaseException) -> Outcome:
        reason = f"a fault of the framework: {describe(error)}"
        self._emit(events.MessageFaulted(message_id=message.message_id, reason=reason, trace=trace_of(error)))
        return Faulted(reason)


def _refused(errors: Sequence[MessageError], records: int) -> RefusedMessage:
    reason = (
        str(errors[0]) if records == 1 else f"{len(errors)} of {records} records are broken, the first: {errors[0]}"
    )
    return RefusedMessage(DeadLetterNote(reason))


def _shared(delivery: Delivery, ready: Readied) -> list[tuple[str, str]]:
    shared = [("job", ready.pk)] if isinstance(ready, Job) else []
    if delivery.queue and delivery.queue.is_fifo and delivery.message.group:
        shared.append((delivery.message.source_arn, delivery.message.group))
    return shared


def _records_of(event: object) -> list[object]:
    if not isinstance(event, dict | list):
        message = f"an SQS event is an object with Records, not a {type(event).__name__}"
        raise NotAnSqsEvent(message)
    # EventBridge Pipes passes the records bare
    # (https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-pipes-batching-concurrency.html).
    records = event if isinstance(event, list) else event.get("Records")
    if records is None:
        return []
    if not isinstance(records, list):
        message = f"Records is a list, not a {type(records).__name__}"
        raise NotAnSqsEvent(message)
    for record in records:
        source = (record.get("eventSource") or record.get("EventSource")) if isinstance(record, dict) else None
        if source not in (None, "aws:sqs"):
            message = f"the records are from {printable(source, 100)}, not from aws:sqs"
            raise NotAnSqsEvent(message)
    return records
