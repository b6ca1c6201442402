"""Enqueueing: the key is stamped once, here, and every copy of the message carries it.

What SQS or DynamoDB would refuse is refused before anything is sent. The limits are SQS's own
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from onceq.clock import OpenDeadline
from onceq.codec import decode, encode
from onceq.errors import ConfigurationError, EnqueueFailed, EnqueueRefused, MessageError, QueueError, seconds_of
from onceq.job_type import NAME, JobType
from onceq.message import check_key, seal
from onceq.queue import MAX_BYTES, MAX_DELAY, size_of
from onceq.runtime import Runtime
from onceq.settings import QueueSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onceq.catalogue import JobTypes

_GROUP = re.compile(r"[!-~]{1,128}")


class Enqueued(NamedTuple):
    """What was sent: the job's idempotency key and SQS's message id.

    Example:
        >>> key, message_id = Enqueued("o-1", "0a1b")
        >>> key
        'o-1'
    """

    key: str
    message_id: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One message to enqueue; the fields are the arguments of `Producer.enqueue`.

    Example:
        >>> Entry("process_payment", {"order_id": "o-1"}, key="o-1").key
        'o-1'
    """

    job_type: JobType[..., Any] | str
    payload: Any
    key: str | int | None = None
    delay: float | timedelta = 0
    group: str | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class _Sealed:
    entry: Entry
    url: str
    key: str
    request: dict[str, Any] = field(repr=False)


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
        job_types: JobTypes | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        """Make a producer.

        Args:
            queues: Queue URLs by name; without them ``ONCEQ_QUEUES`` is read at the first enqueue.
            job_types: The job types that are known; without them any name is sent, to the queue ``default``.
            runtime: Shared clients and clock; without it they are made at the first enqueue.
        """
        given = {name: QueueSettings(name, url) for name, url in (queues or {}).items()}
        self._runtime = runtime or Runtime(Settings(queues=given) if queues is not None else None)
        self._job_types = job_types

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
        sealed = self._seal(Entry(job_type, payload, key, delay, group, queue))
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
        by_url: dict[str, dict[str, _Sealed]] = defaultdict(dict)
        all_sealed = [self._seal(entry) for entry in entries]
        for position, sealed in enumerate(all_sealed):
            by_url[sealed.url][str(position)] = sealed
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

    def _seal(self, entry: Entry) -> _Sealed:
        try:
            return self._sealed(entry)
        except (MessageError, ValueError) as error:
            raise EnqueueRefused(str(error)) from error

    def _sealed(self, entry: Entry) -> _Sealed:
        job_type = self._job_type(entry.job_type)
        name = job_type.name if job_type else str(entry.job_type)
        payload = decode(encode(entry.payload))
        key = self._key(job_type, entry.key, payload)
        queue = self._runtime.settings.queue(entry.queue or (job_type.queue if job_type else "default"))
        created_at = datetime.fromtimestamp(self._runtime.clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        body = seal(job_type=name, idempotency_key=key, payload=payload, created_at=created_at.replace("+00:00", "Z"))
        request = {"MessageBody": body} | self._placing(queue, entry)
        size = size_of(request)
        if size > MAX_BYTES:
            message = f"the message has {size} bytes, and SQS takes {MAX_BYTES}: store the data and send where it is"
            raise EnqueueRefused(message)
        stamped = Entry(entry.job_type, entry.payload, key, entry.delay, entry.group, entry.queue)
        return _Sealed(stamped, queue.url, key, request)

    def _job_type(self, job_type: JobType[..., Any] | str) -> JobType[..., Any] | None:
        if isinstance(job_type, JobType):
            if self._job_types is not None and job_type not in self._job_types:
                message = f"job type {job_type.name!r} is not in the App's list: nobody would serve it"
                raise ConfigurationError(message)
            return job_type
        if not isinstance(job_type, str) or not NAME.fullmatch(job_type):
            message = f"{job_type!r} is not a job type, nor a job type's name"
            raise EnqueueRefused(message)
        if self._job_types is not None:
            return self._job_types.named(job_type)
        return None

    def _key(self, job_type: JobType[..., Any] | None, key: object, payload: Any) -> str:
        loaded = job_type.load(payload) if job_type else payload
        if key is not None:
            return check_key(key)
        if job_type and job_type.key is not None:
            return job_type.key_of(payload, loaded)
        return self._runtime.tokens.key()

    def _placing(self, queue: QueueSettings, entry: Entry) -> dict[str, Any]:
        delay = math.ceil(seconds_of(entry.delay))
        if delay > MAX_DELAY:
            message = f"delay={entry.delay!r}: SQS delays a message by at most {MAX_DELAY} s"
            raise EnqueueRefused(message)
        if entry.group is not None and not (isinstance(entry.group, str) and _GROUP.fullmatch(entry.group)):
            message = f"group={entry.group!r}: give 1 to 128 printable ASCII characters without spaces"
            raise EnqueueRefused(message)
        if not queue.is_fifo:
            return ({"DelaySeconds": delay} if delay else {}) | ({"MessageGroupId": entry.group} if entry.group else {})
        if entry.group is None:
            message = f"queue {queue.name!r} is FIFO: give group=, whose messages are kept in order"
            raise EnqueueRefused(message)
        if delay:
            message = f"queue {queue.name!r} is FIFO: SQS takes no delay for a single message there"
            raise EnqueueRefused(message)
        # Fresh for every call: claims do the deduplication, and SQS's own would swallow a wanted re-send.
        return {"MessageGroupId": entry.group, "MessageDeduplicationId": self._runtime.tokens.token()}
