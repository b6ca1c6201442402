"""The bodies of a batch as they were before they were off-loaded or compressed.

They are fetched before anything is claimed. A body that cannot be had is no reason to lose its message: it comes back,
later each time, and then goes to the dead-letter queue with the reason. If what is stamped beside the pointer says that
its job is completed, it is a duplicate like any other.
"""

from __future__ import annotations

import base64
import binascii
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceq import telemetry as events
from onceq.clock import ShorterDeadline
from onceq.codec import printable
from onceq.compression import check_encoding, decompressed
from onceq.errors import (
    BucketError,
    EncodingUnknown,
    EnvelopeError,
    IdempotencyKeyError,
    MessageError,
    ObjectNotThere,
    StoreError,
)
from onceq.job_type import NAME
from onceq.keys import check_key
from onceq.message import DeadLetterNote
from onceq.offload import ENCODING, pointer_in, stamped, with_message
from onceq.outcome import (
    Deferred,
    Faulted,
    NotStarted,
    Outcome,
    RefusedMessage,
    Replayed,
    Unserved,
    describe,
    trace_of,
)
from onceq.record import Status, pk_of
from onceq.store import is_free

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.catalogue import JobTypes
    from onceq.clock import Deadline
    from onceq.message import Message
    from onceq.offload import Pointer
    from onceq.runtime import Runtime
    from onceq.telemetry import Telemetry

# Receives for which a body that is not there is waited for, 1, 2, 4, 8 and 15 minutes: a permission that a deployment
# forgot is mended by then, and a replicated object has arrived.
MOST_RECEIVES = 6
FIRST_WAIT_MS = 60_000
LONGEST_WAIT_MS = 900_000
# What the bodies of one batch take at once, in payload limits: what is beyond comes back at once. Read as JSON, a body
# of many small values takes up to 27 times its bytes.
MOST_HELD = 2
# Of the time that is left, and at most: a bucket that does not answer leaves the rest to the jobs.
PART = 0.5
LONGEST_SECONDS = 10.0
# Less than a body takes to fetch.
LEAST_SECONDS = 2.0
# Neither changes a body: the second is how a client sent it, and S3-like stores keep the name.
_PLAIN = ("", "identity", "aws-chunked")


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches and decompresses bodies."""

    runtime: Runtime
    job_types: JobTypes
    deadline: Deadline
    telemetry: Telemetry

    def bodies(self, messages: Sequence[Message]) -> list[str | Outcome | None]:
        """Return the bodies of a batch.

        Args:
            messages: The messages.

        Returns:
            For each its body, or how it ends without one.
        """
        found: list[str | Outcome | None] = [message.body for message in messages]
        todo = [position for position, message in enumerate(messages) if _needs_work(message)]
        if todo:
            room = _Room(self.runtime.settings.payload_limit)
            seconds = min(self.deadline.remaining() * PART, LONGEST_SECONDS)
            deadline = ShorterDeadline(self.deadline, seconds, self.runtime.clock)
            workers = min(self.runtime.settings.concurrency, len(todo))
            with ThreadPoolExecutor(workers, thread_name_prefix="onceq-fetch") as pool:
                fetched = pool.map(lambda position: self._body(messages[position], room, deadline), todo)
                for position, body in zip(todo, fetched, strict=True):
                    found[position] = body
        return found

    def _body(self, message: Message, room: _Room, deadline: Deadline) -> str | Outcome:
        if self.deadline.total * PART < LEAST_SECONDS:
            need = LEAST_SECONDS / PART
            return Unserved(f"fetching its body needs a function of {need:g} s: raise FunctionTimeout")
        if not room.enter():
            return self._not_started(message)
        size = 0
        try:
            if deadline.remaining() < LEAST_SECONDS:
                return self._not_started(message)
            body = self._opened(message, deadline)
            size = sys.getsizeof(body) if isinstance(body, str) else 0
            return body
        finally:
            room.leave(size)

    def _opened(self, message: Message, deadline: Deadline) -> str | Outcome:
        settings, body, encoding = self.runtime.settings, message.body or "", _encoding_of(message)
        try:
            pointer = pointer_in(body)
            if pointer is None and encoding and not _is_open(body):
                body, encoding = _from_base64(body, encoding, settings.payload_limit), ""
                pointer = pointer_in(body)
            if pointer is None:
                return body
            if pointer.bucket not in (settings.payload_bucket, *settings.fetch_from):
                reason = f"bucket {pointer.bucket!r} is in neither ONCEQ_PAYLOAD_BUCKET nor ONCEQ_FETCH_FROM"
                return Unserved(printable(reason))
            return with_message(body, self._fetched(pointer, encoding, deadline))
        except EncodingUnknown as error:
            return Unserved(str(error))
        except MessageError as error:
            return RefusedMessage(DeadLetterNote(str(error)))
        except ObjectNotThere as error:
            return self._missing(message, str(error))
        except BucketError as error:
            return self._faulted(message, str(error))
        except Exception as error:  # noqa: BLE001 - a fault here is that message's
            return self._faulted(message, f"a fault of the framework: {describe(error)}", trace_of(error))

    def _fetched(self, pointer: Pointer, told: str, deadline: Deadline) -> str:
        """Return what a pointer stands for; ``told`` is the encoding that the message tells, of the body it was."""
        limit, bucket = self.runtime.settings.payload_limit, self.runtime.bucket(deadline)
        data, stored = bucket.get(pointer, limit)
        encoding = _named(stored)
        if encoding and data.lstrip()[:1] not in (b"{", b"["):
            return _text(decompressed(data, encoding, limit))
        text = _text(data)
        return _from_base64(text, told, limit) if told and not _is_open(text) else text

    def _missing(self, message: Message, reason: str) -> Outcome:
        """Say how a message ends whose body is not there."""
        name, key = stamped(message) or ("", "")
        try:
            if name and self._is_completed(name, key):
                self.telemetry.emit(events.JobReplayed(job_type=name, key=key, message_id=message.message_id))
                return Replayed(None)
        except StoreError as error:
            return self._faulted(message, str(error))
        wait_ms = min(LONGEST_WAIT_MS, FIRST_WAIT_MS << min(max(0, message.receive_count - 1), MOST_RECEIVES))
        until = self.runtime.clock.now_ms() + wait_ms
        # A wait that would outlive the message loses it, since SQS deletes it in silence (G4).
        if message.receive_count >= MOST_RECEIVES or until > message.kept_until:
            told = f"{reason}; received {message.receive_count} times"
            return RefusedMessage(DeadLetterNote(told, job_type=name, idempotency_key=key))
        self.telemetry.emit(events.BodyNotFetched(message_id=message.message_id, reason=reason, until=until))
        return Deferred(until)

    def _is_completed(self, name: str, key: str) -> bool:
        job_type = self.job_types.get(name)
        if job_type is None and not NAME.fullmatch(name):
            return False
        try:
            pk = pk_of(job_type.storage_name if job_type else name, check_key(key))
        except IdempotencyKeyError:
            return False
        store, clock = self.runtime.store(self.deadline), self.runtime.clock
        record = store.get(pk)
        return record is not None and record.status is Status.COMPLETED and not is_free(record, clock.now_ms())

    def _faulted(self, message: Message, reason: str, trace: str | None = None) -> Outcome:
        self.telemetry.emit(events.MessageFaulted(message_id=message.message_id, reason=reason, trace=trace))
        return Faulted(reason)

    def _not_started(self, message: Message) -> Outcome:
        reason = "there is no room or no time in this invocation to fetch its body"
        name, key = stamped(message) or ("", "")
        told = events.JobNotStarted(job_type=name, key=key, message_id=message.message_id, reason=reason)
        self.telemetry.emit(told)
        return NotStarted(reason)


class _Room:
    """Bounds what the bodies of one batch take at once, over its threads."""

    def __init__(self, limit: int) -> None:
        self._limit, self._left, self._inside = limit, limit * MOST_HELD, 0
        self._changed = threading.Condition()

    def enter(self) -> bool:
        """Take the room of the largest body; wait for it while those under way may turn out smaller."""
        with self._changed:
            self._changed.wait_for(lambda: self._left >= self._limit or not self._inside)
            if self._left < self._limit:
                return False
            self._left -= self._limit
            self._inside += 1
            return True

    def leave(self, size: int) -> None:
        """Keep only the room that a body turned out to need."""
        with self._changed:
            self._left += self._limit - size
            self._inside -= 1
            self._changed.notify_all()


def _needs_work(message: Message) -> bool:
    return message.body is not None and (_encoding_of(message) != "" or pointer_in(message.body) is not None)


def _encoding_of(message: Message) -> str:
    for name, attribute in message.attributes.items():
        if isinstance(name, str) and name.lower() == ENCODING and isinstance(attribute, dict):
            return _named(attribute.get("stringValue"))
    return ""


def _is_open(text: str) -> bool:
    """Return whether a body is JSON as it stands, whatever an attribute says: Base64 never begins so."""
    return text.lstrip()[:1] in ("{", "[")


def _named(value: object) -> str:
    """Return a content encoding as it is known, empty where a body is as it was."""
    names = [name.strip().lower() for name in value.split(",")] if isinstance(value, str) else []
    return ", ".join(name for name in names if name not in _PLAIN)


def _from_base64(body: str, encoding: str, limit: int) -> str:
    # First: how a body of an unknown encoding stands in its message is not known either.
    check_encoding(encoding)
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        reason = f"the body is not the Base64 that its {ENCODING} {printable(encoding, 40)} asks for"
        raise EnvelopeError(reason) from error
    return _text(decompressed(data, encoding, limit))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        message = "the body is not UTF-8"
        raise EnvelopeError(message) from error
