"""Enqueueing: the key is stamped once, here, and every copy of the message carries it.

What SQS or DynamoDB would refuse is refused before anything is sent. The limits are SQS's own
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html).
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from onceq.clock import OpenDeadline
from onceq.errors import BucketError, EnqueueFailed, QueueError
from onceq.runtime import Runtime
from onceq.sealing import Entry, Sealed, Sealer
from onceq.settings import QueueSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    from onceq.catalogue import JobTypes
    from onceq.job_type import JobType


class Enqueued(NamedTuple):
    """What was sent: the job's idempotency key and SQS's message id; ``None`` while it waits in the outbox.

    Example:
        >>> key, message_id = Enqueued("o-1", "0a1b")
        >>> key
        'o-1'
    """

    key: str
    message_id: str | None


class Producer:
    """Enqueues jobs by name, without importing job modules or touching the claims table.

    An API function needs no more than this. `onceq.App` enqueues the same way, and checks payloads against its job
    types first.

    Example:
        >>> producer = Producer({"default": "https://sqs.eu-west-1.amazonaws.com/123456789012/JobsQueue"})
        >>> producer.enqueue("process_payment", {"amount": float("nan")}, key="o-1")
        Traceback (most recent call last):
        onceq.errors.EnqueueRefused: NaN and the infinities are not JSON: send None or a string instead
    """

    def __init__(
        self,
        queues: Mapping[str, str] | None = None,
        *,
        payload_bucket: str = "",
        job_types: JobTypes | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        """Make a producer.

        Args:
            queues: Queue URLs by name; without them ``ONCEQ_QUEUES`` is read at the first enqueue.
            payload_bucket: With ``queues``: the bucket that takes the bodies that SQS does not.
            job_types: The job types that are known; without them any name is sent, to the queue ``default``.
            runtime: Shared clients and clock; without it they are made at the first enqueue.
        """
        given = {name: QueueSettings(name, url) for name, url in (queues or {}).items()}
        settings = Settings(queues=given, payload_bucket=payload_bucket) if queues is not None else None
        self._runtime = runtime or Runtime(settings)
        self.sealer = Sealer(self._runtime, job_types)

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
        """Send one job to its queue.

        Args:
            job_type: The job type, or its name.
            payload: What the job gets: plain JSON values, a dataclass, a Struct, a pydantic model.
            key: The idempotency key. Without it the job type's ``key=`` derives one; failing that a new one is made,
                so every call is another job.
            delay: Seconds (or a ``timedelta``) until it is delivered, at most 900; a FIFO queue takes none.
            group: The message group: needed on a FIFO queue, where it is an order; on a standard one it marks a tenant.
            queue: Name of the queue; without it the job type's.

        Returns:
            The key and the message id.

        Raises:
            EnqueueRefused: If SQS, DynamoDB or the job type would refuse it; nothing was sent.
            ConfigurationError: If the job type or queue is not known.
            EnqueueFailed: If SQS did not take it, or did not answer; its one failed entry carries the key, so sending
                that again is the same job.
        """
        sealed = self.sealer.seal(Entry(job_type, payload, key, delay, group, queue))
        self._store([sealed])
        try:
            message_id = self._runtime.queue(OpenDeadline()).send(sealed.url, sealed.request)
        except QueueError as error:
            raise EnqueueFailed([], [(sealed.entry, str(error))]) from error
        return Enqueued(sealed.key, message_id)

    def enqueue_many(self, entries: Iterable[Entry]) -> list[Enqueued]:
        """Send many jobs in batches of ten and of one MiB.

        Args:
            entries: The jobs. All are checked before the first is sent.

        Returns:
            Keys and message ids, in the order of the entries.

        Raises:
            EnqueueRefused: If one of them would be refused; nothing was sent.
            ConfigurationError: If a job type or queue is not known.
            EnqueueFailed: If some could not be sent even when tried again; it holds both lists.
        """
        by_url: dict[str, dict[str, Sealed]] = defaultdict(dict)
        all_sealed = [self.sealer.seal(entry) for entry in entries]
        for position, sealed in enumerate(all_sealed):
            by_url[sealed.url][str(position)] = sealed
        self._store(all_sealed)
        queue = self._runtime.queue(OpenDeadline())
        sent: dict[int, Enqueued] = {}
        reasons: dict[int, str] = {}
        for url, batch in by_url.items():
            ids, failed = queue.send_batch(url, [{"Id": number, **one.request} for number, one in batch.items()])
            sent |= {int(number): Enqueued(batch[number].key, message_id) for number, message_id in ids.items()}
            reasons |= {int(number): reason for number, reason in failed.items()}
        if reasons:
            # With its key, so that sending a failed entry again is the same job.
            raise EnqueueFailed(
                [(all_sealed[number].entry, enqueued) for number, enqueued in sorted(sent.items())],
                [(all_sealed[number].entry, reason) for number, reason in sorted(reasons.items())],
            )
        return [sent[number] for number in range(len(all_sealed))]

    def _store(self, all_sealed: Sequence[Sealed]) -> None:
        """Store the bodies that SQS does not take; if one cannot be stored, nothing is sent at all."""
        large = [(sealed.pointer, sealed.data) for sealed in all_sealed if sealed.pointer is not None]
        if not large:
            return
        bucket = self._runtime.bucket(OpenDeadline())
        workers = min(self._runtime.settings.concurrency, len(large))
        try:
            with ThreadPoolExecutor(workers, thread_name_prefix="onceq-store") as pool:
                list(pool.map(lambda one: bucket.put(*one), large))
        except BucketError as error:
            raise EnqueueFailed([], [(sealed.entry, str(error)) for sealed in all_sealed]) from error
