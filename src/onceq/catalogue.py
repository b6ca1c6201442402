"""The job types that an application serves, and the rules by which a message becomes a job of one of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceq.codec import printable
from onceq.errors import ConfigurationError, EnvelopeError, MessageError
from onceq.job_type import JobType
from onceq.keys import check_key
from onceq.message import Envelope, Message, NewerEnvelope, open_envelope
from onceq.record import pk_of
from onceq.settings import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work, read from a message; key and fingerprint are fixed from here on.

    Args:
        job_type: Its job type.
        key: Its idempotency key.
        payload: The payload as the job type's type.
        fingerprint: The payload fingerprint, or ``None``.
        pk: Partition key of its record.
        message: The message it came from.
        hops: How often the message was sent on from job to job.
        lock: Name of the lock that it needs, if any.
    """

    job_type: JobType[..., Any]
    key: str
    payload: Any
    fingerprint: str | None
    pk: str
    message: Message
    hops: int = 0
    lock: str | None = None


@dataclass(frozen=True, slots=True)
class UnknownJob:
    """This release does not serve the message; another one may."""

    reason: str


class JobTypes:
    """The job types that an application serves, by all their names."""

    def __init__(
        self,
        job_types: Iterable[JobType[..., Any]],
        default: JobType[..., Any] | Mapping[str, JobType[..., Any]] | None = None,
    ) -> None:
        """Collect the job types.

        Args:
            job_types: The job types.
            default: Serves messages that are not envelopes: one for every queue, or one by queue name.

        Raises:
            ConfigurationError: If two of them share a name, or a default is not among them.
        """
        self._by_name: dict[str, JobType[..., Any]] = {}
        for job_type in job_types:
            if not isinstance(job_type, JobType):
                message = f'{job_type!r} is not a job type: write @job("a_stable_name") above the function'
                raise ConfigurationError(message)
            for name in (job_type.name, *job_type.formerly):
                require(name not in self._by_name, f"two job types serve the name {name!r}")
                self._by_name[name] = job_type
        self._default = default
        for job_type in [default] if isinstance(default, JobType) else (default or {}).values():
            require(job_type in self, f"the default job type {job_type.name!r} is not in the App's list")

    def __iter__(self) -> Iterator[JobType[..., Any]]:
        """Iterate over the job types, each once."""
        return iter(dict.fromkeys(self._by_name.values()))

    def __contains__(self, job_type: object) -> bool:
        """Whether this job type is served, if with other options."""
        return isinstance(job_type, JobType) and any(
            (own.name, own.function) == (job_type.name, job_type.function) for own in self._by_name.values()
        )

    def check_queues(self, known: Iterable[str]) -> None:
        """Refuse a default for a queue that is not known: its messages would be refused, one by one.

        Raises:
            ConfigurationError: Naming the queue.
        """
        defaults = self._default if isinstance(self._default, Mapping) else {}
        unknown = sorted(set(defaults) - set(known))
        require(not unknown, f"default= names queues that are not in ONCEQ_QUEUES: {', '.join(unknown)}")

    def named(self, name: str) -> JobType[..., Any]:
        """Return the job type of that name.

        Raises:
            ConfigurationError: If there is none, with a suggestion.
        """
        try:
            return self._by_name[name]
        except KeyError:
            near = difflib.get_close_matches(name, self._by_name, n=1)
            known = ", ".join(sorted(self._by_name)) or "none"
            hint = f"did you mean {near[0]!r}?" if near else f"known are {known}; add yours to App([…]) in src/app.py"
            message = f"no job type is named {name!r}: {hint}"
            raise ConfigurationError(message) from None

    def job_of(self, message: Message, *, queue: str, max_hops: int) -> Job | UnknownJob:
        """Read the job that a message stands for. No I/O.

        Args:
            message: The message.
            queue: Name of the queue it came from.
            max_hops: How often it may have been sent on.

        Returns:
            The job, or that this release does not serve it.

        Raises:
            MessageError: If it can never become a job; the text is the reason for the person who reads the DLQ.
        """
        envelope = open_envelope(message.body)
        if isinstance(envelope, NewerEnvelope):
            return UnknownJob(f"the envelope is of version {envelope.version}: a newer release made it")
        if envelope.job_type is None:
            default = self._default if isinstance(self._default, JobType) else (self._default or {}).get(queue)
            if default is None:
                reason = f"the body is not an onceq envelope, and queue {queue!r} has no default job type"
                raise EnvelopeError(reason)
            job_type = default
        elif envelope.job_type in self._by_name:
            job_type = self._by_name[envelope.job_type]
        else:
            return UnknownJob(f"no job type is named {printable(envelope.job_type, 100)!r}")
        if envelope.hops > max_hops:
            reason = f"sent on {envelope.hops} times, and at most {max_hops} are allowed: is it a loop?"
            raise MessageError(reason)
        return self._job(job_type, envelope, message)

    @staticmethod
    def _job(job_type: JobType[..., Any], envelope: Envelope, message: Message) -> Job:
        payload, stamped = envelope.payload, envelope.idempotency_key
        loaded = job_type.load(payload)
        key = check_key(stamped) if stamped is not None else job_type.key_of(payload, loaded)
        return Job(
            job_type=job_type,
            key=key,
            payload=loaded,
            fingerprint=job_type.fingerprint_of(payload, loaded),
            pk=pk_of(job_type.storage_name, key),
            message=message,
            hops=envelope.hops,
            lock=job_type.lock_of(loaded),
        )
