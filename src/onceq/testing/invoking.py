"""How a consumer is invoked: with an event, by a process that may be warm; and how its answer is taken."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceq.poller import to_delete
from onceq.settings import require
from onceq.testing.clock import LambdaContext
from onceq.testing.given import shown
from onceq.testing.mailbox import Letter
from onceq.testing.points import ANSWER, Point
from onceq.testing.process import CURRENT
from onceq.testing.timeline import RECEIVES, Kind
from onceq.testing.wording import numbered

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.testing.mailbox import Mailbox
    from onceq.testing.process import Process
    from onceq.testing.subject import Handler, Seen, Subject
    from onceq.testing.timeline import Timeline


@dataclass
class Delivered:
    """One invocation.

    Args:
        worker: Name of the worker.
        message_ids: The ids of its messages.
        answer: The partial batch response; ``None`` if it died or raised.
        error: What it raised, or `Crash`.
        acknowledged: What of the mailbox was acknowledged by it.
    """

    worker: str
    message_ids: list[str] = field(default_factory=list)
    answer: Any = None
    error: BaseException | None = None
    acknowledged: list[Letter] = field(default_factory=list)

    @property
    def kept(self) -> list[str]:
        """The ids of the messages that are kept, by the answer as strictly read as AWS does."""
        done = to_delete(self.message_ids, self.answer) if self.error is None else set()
        return [message_id for message_id in self.message_ids if message_id not in done]


@dataclass(frozen=True)
class Received:
    """What an invocation gets.

    Args:
        event: The event.
        letters: The messages of the mailbox in it.
    """

    event: dict[str, Any]
    letters: Sequence[Letter] = ()


class Invoker:
    """Invokes the handlers of a run's processes.

    Args:
        mailbox: The queues.
        timeline: What happened so far.
        seen: What was seen of the jobs.
    """

    def __init__(self, mailbox: Mailbox, timeline: Timeline, seen: Seen) -> None:
        """Begin without processes."""
        self._mailbox = mailbox
        self._timeline = timeline
        self._seen = seen
        self._handlers: dict[Process, Handler] = {}

    def receive(self, what: Letter | Iterable[Letter] | Mapping[str, Any]) -> Received:
        """Receive a message or several of one queue, or take an event. Raises: ConfigurationError, if it is neither."""
        if isinstance(what, Mapping):
            records = what.get("Records")
            is_event = isinstance(records, list) and records and all(isinstance(one, Mapping) for one in records)
            require(bool(is_event), "an event has a list of Records, at least one: make it with sqs_event(…)")
            return Received(dict(what))
        several = [*what] if isinstance(what, Iterable) else [what]
        told = "give a message that `enqueue` or `put` returned, several of one queue, or an event (sqs_event(…))"
        are_letters = several and all(isinstance(letter, Letter) for letter in several)
        require(bool(are_letters), f"{shown(what)} is nothing to deliver: {told}")
        return Received(self._mailbox.receive(several), several)

    def play(self, process: Process, received: Received, subject: Subject) -> tuple[Callable[[], Any], Delivered]:
        """Return what invokes a process with what was received, and what it will come to.

        Args:
            process: The process; one that was invoked before has its handler still, and what that remembers.
            received: What it gets.
            subject: What is delivered to.
        """
        event, letters = received.event, received.letters
        records = event["Records"]
        delivered = Delivered(process.name, [str(record.get("messageId")) for record in records])
        if process not in self._handlers:
            self._handlers[process] = subject.handler(process, self._seen)
        handler, faults = self._handlers[process], process.faults
        numbers = [letter.receives for letter in letters]
        told = ", ".join(_named(letter) for letter in letters) or numbered(len(records), "record")
        context = self._context(process, records[0].get("eventSourceARN", ""))

        def play() -> Any:
            token = CURRENT.set(process)
            try:
                self._timeline.add(process.name, Kind.DELIVERY, f"{RECEIVES}{told}")
                # Its own: what a handler changes of it, Lambda does not hear of.
                answer = handler(deepcopy(event), context())
                process.reach(Point(ANSWER))
            except Exception as error:
                self._timeline.add(process.name, Kind.RAISE, f"{type(error).__name__}: {error}")
                raise
            finally:
                CURRENT.reset(token)
                if process.faults > faults:
                    for letter, number in zip(letters, numbers, strict=True):
                        letter.troubled.add(number)
            delivered.answer = answer
            delivered.acknowledged = self._mailbox.settle(event, answer)
            self._tell(delivered, letters)
            return answer

        return play, delivered

    def _context(self, process: Process, queue: str) -> Callable[[], LambdaContext]:
        seconds = self._mailbox.timeout_of(queue)
        process.invocations += 1
        request_id = process.name if process.invocations == 1 else f"{process.name}-{process.invocations}"
        return lambda: LambdaContext(self._mailbox.clock, seconds, request_id)

    def _tell(self, delivered: Delivered, letters: Sequence[Letter]) -> None:
        kept = [letter for letter in letters if letter not in delivered.acknowledged]
        if delivered.acknowledged:
            told = f"acknowledges {_names(delivered.acknowledged)}"
            self._timeline.add(delivered.worker, Kind.ACKNOWLEDGED, told)
        if kept:
            self._timeline.add(delivered.worker, Kind.KEPT, f"keeps {_names(kept)}")
        if not kept and not delivered.acknowledged:
            self._timeline.add(delivered.worker, Kind.ANSWER, json.dumps(delivered.answer, default=repr))


def _named(letter: Letter) -> str:
    times = "" if letter.receives == 1 else f", receive {letter.receives}"
    return f"{letter.name}{times}"


def _names(letters: Iterable[Letter]) -> str:
    return ", ".join(letter.name for letter in letters)
