"""What a message carries when it leaves: its key, its envelope, and where it goes.

What SQS or DynamoDB would refuse is refused here, before anything is sent or staged. The limits are SQS's own
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from onceq.clock import OpenDeadline
from onceq.codec import decode, encode
from onceq.errors import LONGEST_DELAY, ConfigurationError, EnqueueRefused, MessageError, seconds_of
from onceq.job_type import NAME, JobType
from onceq.keys import check_key, key_made_from
from onceq.message import current_hops, seal, timestamp
from onceq.offload import Pointer, stamps
from onceq.outbox import LOOK_AHEAD_MS, MAX_BODY_BYTES, OutboxEntry, shard_of
from onceq.queue import MAX_BYTES, MAX_DELAY, size_of

if TYPE_CHECKING:
    from datetime import timedelta

    from onceq.catalogue import JobTypes
    from onceq.clock import Deadline
    from onceq.runtime import Runtime
    from onceq.settings import QueueSettings

_GROUP = re.compile(r"[!-~]{1,128}")
# The outbox waits as long as anybody means it; ten years are a mistake.
LONGEST_OUTBOX_DELAY = 3_660 * 86_400
# The bucket keeps a body for 58 days at least (template.yaml), and its message lives for 28 once it is sent.
LONGEST_OFFLOADED_DELAY = 30 * 86_400


class Limits(NamedTuple):
    """What a message may be: seconds of its delay, bytes of its body, and who takes no more."""

    delay: int
    size: int
    taker: str


DIRECT = Limits(LONGEST_DELAY, MAX_BYTES, "SQS")
STAGED = Limits(LONGEST_OUTBOX_DELAY, MAX_BODY_BYTES, "the outbox")


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
class Sealed:
    """A message that SQS takes.

    Args:
        entry: What was asked for, with the key that was stamped.
        job_type: Name of the job type.
        queue: Where it goes.
        key: The idempotency key.
        delay: Seconds until it is delivered.
        request: Parameters of SendMessage without the URL.
        pointer: Where the body has to stand before it is sent, if that is not the message.
        data: The body that has to stand there.
    """

    entry: Entry
    job_type: str
    queue: QueueSettings
    key: str
    delay: float
    request: dict[str, Any] = field(repr=False)
    pointer: Pointer | None = None
    data: bytes = field(default=b"", repr=False)

    @property
    def url(self) -> str:
        """The queue's URL."""
        return self.queue.url


@dataclass(frozen=True, slots=True)
class Sender:
    """The job that sends a message, from which its key is made."""

    job_type: str
    key: str


@dataclass(frozen=True, slots=True)
class Sealer:
    """Seals messages: checks them, stamps their key, writes their envelope.

    Args:
        runtime: Settings, clock and tokens.
        job_types: The job types that are known; without them any name is sealed, for the queue ``default``.
    """

    runtime: Runtime
    job_types: JobTypes | None = None

    def seal(self, entry: Entry) -> Sealed:
        """Seal a message that is sent now.

        Raises:
            EnqueueRefused: If SQS, DynamoDB or the job type would refuse it.
            ConfigurationError: If the job type or queue is not known.
        """
        sealed = self._checked(entry, DIRECT)
        delay = math.ceil(sealed.delay)
        if delay > MAX_DELAY:
            message = (
                f"delay={entry.delay!r}: SQS delays a message by at most {MAX_DELAY} s; the outbox takes longer ones"
            )
            raise EnqueueRefused(message)
        if not sealed.queue.is_fifo:
            request = {**sealed.request, "DelaySeconds": delay} if delay else sealed.request
            return replace(sealed, request=request)
        if delay:
            message = f"queue {sealed.queue.name!r} is FIFO: SQS takes no delay for a single message there"
            raise EnqueueRefused(message)
        # Fresh for every call: claims do the deduplication, and SQS's own would swallow a wanted re-send.
        return replace(sealed, request={**sealed.request, "MessageDeduplicationId": self.runtime.tokens.token()})

    def stage(
        self,
        job_type: JobType[..., Any] | str,
        payload: Any,
        *,
        key: str | int | None = None,
        delay: float | timedelta = 0,
        group: str | None = None,
        queue: str | None = None,
        number: int = 0,
        token: str,
        sender: Sender | None = None,
        hops: int | None = None,
        deadline: Deadline | None = None,
    ) -> OutboxEntry:
        """Seal a message for the outbox.

        Args:
            job_type: The job type, or its name.
            payload: What the job gets.
            key: The idempotency key; see `onceq.Context.send` for what stands for it.
            delay: Seconds (or a ``timedelta``) until it is delivered.
            group: The message group.
            queue: Name of the queue.
            number: Which message of its transaction this is.
            token: Names the transaction.
            sender: The job that sends it.
            hops: How often it was sent on from job to job; ``None`` where that is the thread's to know.
            deadline: Until when S3 is asked to take a body that the outbox does not.

        Returns:
            Its entry, as it is staged.

        Raises:
            EnqueueRefused: If SQS, DynamoDB or the job type would refuse it.
            ConfigurationError: If the job type, the queue or the outbox table is not known.
            BucketError: If its body is too large for the outbox, and S3 did not take it.
        """
        self.runtime.settings.named_outbox()
        entry = Entry(job_type, payload, key, delay, group, queue)
        sealed = self._checked(entry, STAGED, sender, number, hops)
        if sealed.pointer is not None:
            if sealed.delay > LONGEST_OFFLOADED_DELAY:
                message = f"delay={delay!r}: a body that is stored in S3 waits for at most {LONGEST_OFFLOADED_DELAY} s"
                raise EnqueueRefused(message)
            # Before the commit: a message that points at nothing is worse than a body that nobody points at.
            self.runtime.bucket(deadline or OpenDeadline()).put(sealed.pointer, sealed.data)
        body = sealed.request["MessageBody"]
        now_ms = self.runtime.clock.now_ms()
        due_at = now_ms + math.ceil(sealed.delay * 1000)
        return OutboxEntry(
            # Their order of sending is the order of their ids.
            pk=f"{token}-{number:03}",
            job_type=sealed.job_type,
            idempotency_key=sealed.key,
            queue=sealed.queue.name,
            body=body,
            created_at=now_ms,
            due_at=due_at,
            group=None if group is None else str.__str__(group),
            offloaded=len(sealed.data) if sealed.pointer else None,
            shard=shard_of(token),
            # A FIFO queue takes no delay for a single message, so there the relay comes no sooner.
            next_at=due_at if sealed.queue.is_fifo else due_at - LOOK_AHEAD_MS,
        )

    def _checked(
        self, entry: Entry, limits: Limits, sender: Sender | None = None, number: int = 0, hops: int | None = None
    ) -> Sealed:
        try:
            return self._sealed(entry, limits, sender, number, hops)
        except (MessageError, ValueError) as error:
            raise EnqueueRefused(str(error)) from error

    def _sealed(self, entry: Entry, limits: Limits, sender: Sender | None, number: int, hops: int | None) -> Sealed:
        job_type = self._job_type(entry.job_type)
        name = job_type.name if isinstance(job_type, JobType) else str.__str__(entry.job_type)
        payload = decode(encode(entry.payload))
        key = self._key(job_type, entry.key, payload, sender, number)
        queue = self.runtime.settings.queue(entry.queue or (job_type.queue if job_type else "default"))
        body = seal(
            job_type=name,
            idempotency_key=key,
            payload=payload,
            created_at=timestamp(self.runtime.clock.now_ms()),
            hops=current_hops.get() + 1 if hops is None else hops,
        )
        sealed = Sealed(
            replace(entry, key=key),
            name,
            queue,
            key,
            seconds_of(entry.delay, limits.delay),
            {"MessageBody": body} | _grouping(queue, entry.group),
        )
        size = size_of(sealed.request)
        return sealed if size <= limits.size else self._offloaded(sealed, size, limits)

    def _offloaded(self, sealed: Sealed, size: int, limits: Limits) -> Sealed:
        settings, data = self.runtime.settings, sealed.request["MessageBody"].encode()
        if not settings.payload_bucket:
            message = (
                f"the message has {size} bytes, and {limits.taker} takes {limits.size}: name a bucket in "
                "ONCEQ_PAYLOAD_BUCKET, or store the data and send where it is"
            )
            raise EnqueueRefused(message)
        if len(data) > settings.payload_limit:
            message = f"the message has {size} bytes, and {settings.payload_limit} are fetched (ONCEQ_PAYLOAD_LIMIT)"
            raise EnqueueRefused(message)
        # Named at random: two messages of one key, or two attempts at one, never meet.
        pointer = Pointer(settings.payload_bucket, f"{sealed.queue.name}/{self.runtime.tokens.token()}")
        attributes = stamps(sealed.job_type, sealed.key, len(data))
        request = sealed.request | {"MessageBody": pointer.to_text(), "MessageAttributes": attributes}
        return replace(sealed, request=request, pointer=pointer, data=data)

    def _job_type(self, job_type: JobType[..., Any] | str) -> JobType[..., Any] | None:
        if isinstance(job_type, JobType):
            if self.job_types is not None and job_type not in self.job_types:
                known = ", ".join(sorted(one.name for one in self.job_types)) or "none"
                message = (
                    f"job type {job_type.name!r} is not in the App's list: nobody would serve it. The App has {known}: "
                    "add it in src/app.py. A test or a proof takes another App with app=, and a proof without it has "
                    "the job on trial alone"
                )
                raise ConfigurationError(message)
            return job_type
        if not isinstance(job_type, str) or not NAME.fullmatch(job_type):
            message = f"{job_type!r} is not a job type, nor a job type's name"
            raise EnqueueRefused(message)
        if self.job_types is not None:
            return self.job_types.named(job_type)
        return None

    def _key(
        self, job_type: JobType[..., Any] | None, key: object, payload: Any, sender: Sender | None, number: int
    ) -> str:
        loaded = job_type.load(payload) if job_type else payload
        if key is not None:
            return check_key(key)
        if job_type and job_type.key is not None:
            return job_type.key_of(payload, loaded)
        if sender is not None:
            return key_made_from(sender.job_type, sender.key, number)
        return self.runtime.tokens.key()


def _grouping(queue: QueueSettings, group: str | None) -> dict[str, Any]:
    if group is not None and not (isinstance(group, str) and _GROUP.fullmatch(group)):
        message = f"group={group!r}: give 1 to 128 printable ASCII characters without spaces"
        raise EnqueueRefused(message)
    if queue.is_fifo and group is None:
        message = f"queue {queue.name!r} is FIFO: give group=, whose messages are kept in order"
        raise EnqueueRefused(message)
    return {"MessageGroupId": str.__str__(group)} if group is not None else {}
