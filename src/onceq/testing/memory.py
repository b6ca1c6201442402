"""What a provider remembers: its calls, which of them has a key, with what it came, and what it was answered with."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onceq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A provider's keys are by function.
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect as the outside saw it.

    Args:
        name: What was done, for example ``charge``.
        key: The downstream idempotency key that came with it; ``None`` if there was none.
        arguments: What it was called with, in order, without the key.
        named: What it was called with by name, without the key. One that a function found (``key=``) is still there.
        worker: Which worker did it; ``""`` outside of a run.
        number: Its place among all calls, from 1; a call that repeats a key has a number, too.
        repeated: Whether the key had come before: a provider answers such a call again and does nothing.
        at: The entry of the timeline, from 1; 0 outside of a run.
        in_step: Whether it was called inside a step.
        refused: Whether the answer raised: then nothing happened.
        differs: Whether its key had come with other arguments: a provider refuses such a call.
        read: Whether it only looked something up (``reads=``): then nothing happens, and nothing is counted.
        job: The key of the job that did it; ``""`` outside of a run, and where a thread of the job's own called.
        function: The function's own name; of several recorders a report's ``name`` has the recorder's before it.
        made_up: What it was answered with where no answer is given; ``None`` where one is.
    """

    name: str
    key: str | None
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    worker: str = ""
    number: int = 0
    repeated: bool = False
    at: int = 0
    in_step: bool = False
    refused: bool = False
    differs: bool = False
    read: bool = False
    job: str = ""
    function: str = ""
    made_up: Mapping[str, str] | None = None

    @property
    def happened(self) -> bool:
        """Whether anything happened: its key had not come before, and it was neither refused nor only read."""
        return not (self.repeated or self.refused or self.read)


@dataclass(slots=True)
class Memory:
    """What came from one beginning to the next. A call that began before is none of it, whenever it is answered.

    Args:
        calls: What was called, each at its number.
        owners: The number of the call that has a key: from its beginning on, as long as it is not refused.
        first: What a key came with first.
        answers: What a key is answered with.
        mistakes: What the recorder itself was given wrongly, as far as a call showed it: a job may swallow that.
        lock: Held to read and to write, and never while an answer is made: that may stand still.
    """

    calls: list[Effect] = field(default_factory=list)
    owners: dict[Place, int] = field(default_factory=dict)
    first: dict[Place, Any] = field(default_factory=dict)
    answers: dict[Place, Any] = field(default_factory=dict)
    mistakes: list[ConfigurationError] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, call: Effect) -> None:
        """Remember a call; it has its key from now on, if none has."""
        self.calls.append(call)
        if call.key is not None:
            self.owners.setdefault((call.name, call.key), call.number)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep the mistake that the block raises."""
        try:
            yield
        except ConfigurationError as mistake:
            self.mistakes.append(mistake)
            raise

    def answer(self, call: Effect, answer: Any) -> Any:
        """Return what a call is answered with: of one key always the same."""
        with self.lock:
            return answer if call.key is None else self.answers.setdefault((call.name, call.key), answer)

    def refuse(self, call: Effect) -> None:
        """Remember that a call did nothing: its key goes to the next that came with it."""
        with self.lock:
            self.calls[call.number - 1] = replace(self.calls[call.number - 1], refused=True)
            if call.key is None or self.owners.get((call.name, call.key)) != call.number:
                return
            del self.owners[call.name, call.key]
            same = [one for one in self.calls if (one.name, one.key) == (call.name, call.key) and not one.refused]
            for heir in same[:1]:
                self.calls[heir.number - 1] = replace(heir, repeated=False)
                self.owners[call.name, call.key] = heir.number
