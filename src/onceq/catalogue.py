"""The job types that an application serves, and the rules by which a message becomes a job of one of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceq.codec import printable
from onceq.errors import ConfigurationError, EnvelopeError, MessageError, Signal
from onceq.job_type import JobType
from onceq.keys import check_key, key_of_identity
from onceq.layers import Layers, is_text
from onceq.message import Envelope, Message, NewerEnvelope, open_envelope
from onceq.record import pk_of
from onceq.settings import require
from onceq.source import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onceq.source import Part, Source


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
        data: The payload as JSON.
    """

    job_type: JobType[..., Any]
    key: str
    payload: Any
    fingerprint: str | None
    pk: str
    message: Message
    hops: int = 0
    lock: str | None = None
    data: Any = None


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
        *,
        wrapped: bool = False,
    ) -> None:
        """Collect the job types.

        Args:
            job_types: The job types.
            default: Serves messages that are not envelopes: one for every queue, or one by queue name.
            wrapped: Whether envelopes inside SNS and EventBridge are opened.

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
        self.default = default
        self.wrapped = wrapped
        self._check_sources()
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
        defaults = self.default if isinstance(self.default, Mapping) else {}
        unknown = sorted(set(defaults) - set(known))
        require(not unknown, f"default= names queues that are not in ONCEQ_QUEUES: {', '.join(unknown)}")

    def _check_sources(self) -> None:
        seen: dict[object, str] = {}
        for job_type in self:
            if job_type.source is None:
                continue
            known = (job_type.queue, job_type.source.selects)
            require(
                known not in seen,
                f"{job_type.name} and {seen.get(known)} take the same messages of queue {job_type.queue!r}: "
                "narrow one source=, or give one of them another queue",
            )
            seen[known] = job_type.name
            beside = self.default.get(job_type.queue) if isinstance(self.default, Mapping) else None
            require(
                not job_type.source.takes_all or beside in (None, job_type),
                f"{job_type.name} takes every message of queue {job_type.queue!r}: its default would never run",
            )

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

    def get(self, name: str) -> JobType[..., Any] | None:
        """Return the job type of that name, if it is served."""
        return self._by_name.get(name)

    def jobs_of(
        self, message: Message, body: str | None, *, queue: str, max_hops: int
    ) -> Sequence[Job | MessageError] | UnknownJob:
        """Read the jobs that a message stands for: one, or several where a service put several records in it. No I/O.

        Args:
            message: The message.
            body: Its body, fetched and decompressed.
            queue: Name of the queue it came from.
            max_hops: How often it may have been sent on.

        Returns:
            The jobs, and why a record can become none; nothing for a message without work; or that this release does
            not serve it.

        Raises:
            MessageError: If it can never become a job; the text is the reason for the person who reads the DLQ.
        """
        try:
            opened = open_envelope(body, wrapped=self.wrapped)
        except EnvelopeError:
            taking = [one for one in self._of(queue) if one.source is not None and one.source.takes_text]
            if not (taking and body and is_text(body)):
                raise
            opened = Layers(body, message=body, inner=body)
        if isinstance(opened, Layers):
            return self._unwrapped(opened, message, queue)
        if isinstance(opened, NewerEnvelope):
            return UnknownJob(f"the envelope is of version {opened.version}: a newer release made it")
        job_type = self.get(opened.job_type)
        if job_type is None:
            return UnknownJob(f"no job type is named {printable(opened.job_type, 100)!r}")
        if opened.hops > max_hops:
            reason = f"sent on {opened.hops} times, and at most {max_hops} are allowed: is it a loop?"
            raise MessageError(reason)
        return [self._enveloped(job_type, opened, message)]

    def _of(self, queue: str) -> list[JobType[..., Any]]:
        """Return who takes foreign messages of a queue, in the order in which they are asked."""
        default = self.default if isinstance(self.default, JobType) else (self.default or {}).get(queue)
        sourced = [one for one in self if one.source is not None and one.queue == queue and one is not default]
        sourced.sort(key=lambda one: one.source.rank if one.source else (0, 0))
        return sourced if default is None else [*sourced, default]

    def _unwrapped(self, layers: Layers, message: Message, queue: str) -> Sequence[Job | MessageError]:
        if layers.is_test_event:
            return []
        asked = self._of(queue)
        for job_type in asked:
            source = job_type.source or plain()
            parts = source.parts_of(layers)
            if parts is not None:
                return _told_apart([_part(job_type, source, layers, part, message) for part in parts])
        raise EnvelopeError(_foreign(layers, queue, asked))

    @staticmethod
    def _enveloped(job_type: JobType[..., Any], envelope: Envelope, message: Message) -> Job:
        loaded = job_type.load(envelope.payload)
        stamped = envelope.idempotency_key
        key = check_key(stamped) if stamped is not None else job_type.key_of(envelope.payload, loaded)
        return _job(job_type, key, envelope.payload, loaded, message, hops=envelope.hops)


def _told_apart(jobs: Sequence[Job | MessageError]) -> list[Job | MessageError]:
    """Refuse a record that has the key of an earlier one of its message and another payload."""
    first: dict[str, str | None] = {}
    told: list[Job | MessageError] = []
    for job in jobs:
        if isinstance(job, Job) and first.setdefault(job.pk, job.fingerprint) != job.fingerprint:
            told.append(MessageError(f"two records of the message have the key {printable(job.key, 100)!r}: name more"))
        else:
            told.append(job)
    return told


def _part(
    job_type: JobType[..., Any], source: Source, layers: Layers, part: Part, message: Message
) -> Job | MessageError:
    try:
        payload = source.payload_of(layers, part)
        loaded = job_type.load(payload)
        key = source.key_of(layers, part)
        if key is None and job_type.key is None and part.identity is not None:
            key = key_of_identity(*part.identity)
        return _job(job_type, key or job_type.key_of(payload, loaded), payload, loaded, message)
    except MessageError as error:
        return error
    except Signal:
        raise
    except BaseException as error:  # noqa: BLE001 - a SystemExit of a key function is that record's
        return MessageError(f"reading the record raised {type(error).__name__}")


def _job(job_type: JobType[..., Any], key: str, payload: Any, loaded: Any, message: Message, *, hops: int = 0) -> Job:
    return Job(
        job_type=job_type,
        key=key,
        payload=loaded,
        fingerprint=job_type.fingerprint_of(payload, loaded),
        pk=pk_of(job_type.storage_name, key),
        message=message,
        hops=hops,
        lock=job_type.lock_of(loaded),
        data=payload,
    )


def _foreign(layers: Layers, queue: str, asked: Sequence[JobType[..., Any]]) -> str:
    if layers.is_confirmation:
        return "SNS asks to confirm a subscription: open the SubscribeURL in the body, if you made it"
    if not asked:
        return f"the body is not an onceq envelope, and queue {queue!r} has no default job type, and none with source="
    known = ", ".join(f"{one.name} takes {one.source.kind if one.source else 'plain'}" for one in asked)
    return f"the body is not an onceq envelope, and of no source that queue {queue!r} serves ({printable(known, 200)})"
