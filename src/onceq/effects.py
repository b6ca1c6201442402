"""What one attempt records on its claim, and what it stages to be committed with its completion."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceq.codec import decode, encode
from onceq.errors import StepUncertain
from onceq.job_type import JobType
from onceq.keys import key_made_from
from onceq.steps import Steps
from onceq.transaction import Transaction, size_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from onceq.errors import TransactionCancelled, TransactionFailed
    from onceq.outbox import OutboxEntry


@dataclass(frozen=True, slots=True)
class Sending:
    """A message as a job staged it.

    Args:
        job_type: Name of the job type that it is for.
        payload: Its payload, as given.
        key: The idempotency key of its job.
        delay: Seconds (or a ``timedelta``) until it is delivered.
        group: The message group, if any.
        queue: Name of the queue; ``None`` is the job type's.
        entry: How it stands in the outbox; ``None`` in a unit test.
    """

    job_type: str
    payload: Any
    key: str
    delay: float | timedelta = 0
    group: str | None = None
    queue: str | None = None
    entry: OutboxEntry | None = None


# Checks and seals a message, with its number among what this job sends.
Stage = Callable[..., "OutboxEntry"]


@dataclass(slots=True)
class Effects:
    """The effects of one attempt. In a unit test they are only collected.

    Args:
        steps: The steps.
        transaction: The job's own writes.
        stage: Checks and seals a message; ``None`` in a unit test, where there is no queue to know its limits from.
        keys_are_pruned: Says whether the services that this job calls may have forgotten the keys of earlier attempts.
        sent: What was staged to be sent, in order.
    """

    steps: Steps = field(default_factory=Steps)
    transaction: Transaction = field(default_factory=Transaction)
    stage: Stage | None = None
    keys_are_pruned: Callable[[], bool] = lambda: False
    sent: list[Sending] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Let nothing be staged inside a step."""
        self.transaction.check_staging = self.steps.check_staging

    def send(self, job_type: Any, payload: Any, *, key: Any, **placing: Any) -> str:
        """Stage a message; see `onceq.Context.send`."""
        with self._lock:  # two threads of a job must not take one number
            self.transaction.check_open("a message")
            number = len(self.sent)
            if self.stage is None:
                made = _key_in_a_test(job_type, payload, number) if key is None else str(key)
                sending = Sending(getattr(job_type, "name", job_type), payload, made, **placing)
                size = 0
            else:
                entry = self.stage(job_type, payload, key=key, number=number, **placing)
                sending = Sending(entry.job_type, payload, entry.idempotency_key, **placing, entry=entry)
                size = size_of(entry.to_item())
            self.transaction.reserve(f"the message to {sending.job_type!r}", size)
            self.sent.append(sending)
        return sending.key

    def close(self) -> None:
        """Take nothing more: the attempt is over, whatever a thread of it still does."""
        with self._lock:
            self.steps.close()
            self.transaction.close()

    def use_key(self, name: str) -> None:
        """Refuse a downstream key that the service may have forgotten while its effect is not known to be done.

        Raises:
            StepUncertain: Then: the service would take it for a new request.
        """
        if self.keys_are_pruned() and not self.steps.is_done(name):
            message = f"the effect {name!r} may have happened, and its key is older than downstream_key_lifetime"
            self.steps.interrupt(StepUncertain(message))

    @property
    def entries(self) -> list[OutboxEntry]:
        """What is written to the outbox."""
        return [sending.entry for sending in self.sent if sending.entry is not None]

    def failure(self, cancelled: TransactionCancelled) -> TransactionFailed:
        """Return what a refused commit means; its first reason is the claim's."""
        reasons: Sequence[Mapping[str, Any]] = cancelled.reasons[1:]
        return self.transaction.failure(reasons)


def _key_in_a_test(job_type: Any, payload: Any, number: int) -> str:
    if isinstance(job_type, JobType) and job_type.key is not None:
        data = decode(encode(payload))
        return job_type.key_of(data, job_type.load(data))
    return key_made_from("job", "key", number)
