"""What a proof is about: a job of onceq's, or one of another consumer; how its messages are made and told apart."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onceq.codec import decode, encode
from onceq.errors import EnvelopeError
from onceq.message import Envelope, open_envelope
from onceq.record import Semantics
from onceq.settings import require
from onceq.testing.clock import A_DAY, A_MINUTE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from onceq.job_type import JobType
    from onceq.record import Record
    from onceq.testing.mailbox import Letter
    from onceq.testing.stamps import Stamps
    from onceq.testing.world import Environment

KEY, OTHER_KEY = "proof-1", "proof-2"
GROUP = "proof"
# A consumer of another make is given up after so many crashes; its queue's redrive policy decides, not a record.
FOREIGN_ATTEMPTS = 3
# Fields of a payload that are changed, each in its turn, to make a second job.
MOST_OTHERS = 4
FALSY: tuple[Any, ...] = (0, "", None, [], {}, False)
NO_SECOND = "its key is derived, and no change of one field gives another: give other="


@dataclass
class OnTrial:
    """A job of onceq's."""

    job_type: JobType[..., Any]
    payload: Any
    key: str | int | None
    other: Any
    group: str | None

    def __post_init__(self) -> None:
        """Raise: ConfigurationError, if the second job is the first one."""
        if self.other is None or not self._derives:
            return
        own, second = (self.job_type.key_of(data, self.job_type.load(data)) for data in self._payloads)
        require(
            own != second,
            f"other= has the key of the job itself, {own!r}: give the payload of another job, or none for the kit to "
            "make one",
        )

    def send(self, world: Environment, *, other: int = 0) -> Letter:
        """Put its message into the queue; ``other`` is the number of a second job."""
        payload, key = self._second(other) if other else (self.payload, self._key(KEY))
        options: dict[str, Any] = {"key": key}
        if world.settings.queue(self.job_type.queue).is_fifo:
            options["group"] = self.group or GROUP
        return world.enqueue(self.job_type, payload, **options)

    def is_mine(self, letter: Letter) -> bool:
        """Return whether a message is for it."""
        try:
            opened = open_envelope(letter.body)
        except EnvelopeError:
            return True
        names = (self.job_type.name, *self.job_type.formerly)
        return not isinstance(opened, Envelope) or opened.job_type in names

    def may_be_dead(self, letter: Letter) -> bool:
        """Return whether the framework put it there, whose records say why; what the queue moved was never ended."""
        return letter.source is None

    def remembers(self, _items: Sequence[str]) -> None:
        """Return nothing: its records say what is done."""

    def returning(self, _result: Any) -> AbstractContextManager[object]:
        """Return a block in which it returns what it returns."""
        return nullcontext()

    def items(self, _world: Environment) -> list[str]:
        """Return what it left in a table of its own."""
        return []

    def records(self, world: Environment) -> list[Record]:
        """Return its records in the claims table."""
        # Others may stand there from before the proof.
        mine = [record for record in world.records() if record.job_type == self.job_type.storage_name]
        return [record for record in mine if record.created_at >= world.timeline.began_ms]

    @property
    def starts_once(self) -> bool:
        """Whether the job as a whole may start at most once."""
        return self.job_type.semantics is Semantics.AT_MOST_ONCE

    @property
    def most_attempts(self) -> int:
        """After how many crashes to give up on it."""
        return self.job_type.max_attempts

    @property
    def keys_last(self) -> float | None:
        """Seconds for which the services remember the keys that it gives them; ``None`` for ever."""
        return self.job_type.downstream_key_lifetime

    @property
    def sent_again_after(self) -> float:
        """Seconds after which a second send is still the same job."""
        return min(A_DAY, 0.9 * self.job_type.retention.total_seconds())

    @property
    def stamped(self) -> Collection[str]:
        """None: what the producer stamps stands in the envelope, and is no part of the payload."""
        return ()

    @property
    def results(self) -> Sequence[Any]:
        """None: the framework stores what the job returns, whatever it is."""
        return ()

    @cached_property
    def others(self) -> int:
        """How many second jobs there are to put beside it."""
        return 1 if self.other is not None or not self._derives else len(self._varied)

    @property
    def _derives(self) -> bool:
        return self.key is None and self.job_type.key is not None

    def _key(self, made: str) -> str | int | None:
        return None if self._derives else self.key if self.key is not None else made

    def _second(self, number: int) -> tuple[Any, str | int | None]:
        if not self._derives:
            return (self.payload if self.other is None else self.other), OTHER_KEY + "-2" * (self.key == OTHER_KEY)
        return (self._varied[number - 1] if self.other is None else self.other), None

    @property
    def _payloads(self) -> list[Any]:
        return [decode(encode(one)) for one in (self.payload, self.other)]

    @cached_property
    def _varied(self) -> list[Any]:
        """The payload with another value in one field, for each field that gives it another key."""
        data = decode(encode(self.payload))
        own = self.job_type.key_of(data, self.job_type.load(data))
        found = []
        for changed in _changed(data):
            with suppress(Exception):  # whatever a key function says of a payload that nobody has
                if self.job_type.key_of(changed, self.job_type.load(changed)) != own:
                    found.append(changed)
        return found[:MOST_OTHERS]


@dataclass
class ForeignOnTrial:
    """A job of another consumer.

    Args:
        body: Its message's body.
        identity: The field that says which job it is.
        table: The table that its consumer works with.
        stamps: The fields that a producer fills anew with each send.
        result: What the job returns instead of its own, in a list; empty for its own.
    """

    body: dict[str, Any]
    identity: str
    table: str
    stamps: Stamps
    result: list[Any] = field(default_factory=list)
    starts_once: bool = False
    most_attempts: int = FOREIGN_ATTEMPTS
    others: int = 1
    keys_last: float | None = None
    sent_again_after: float = A_MINUTE
    results: Sequence[Any] = FALSY

    def send(self, world: Environment, *, other: int = 0) -> Letter:
        """Put its message into the queue, as its producer sends it now; ``other`` is the number of a second job."""
        second = {self.identity: f"{self.body.get(self.identity)}-other"} if other else {}
        body = self.stamps.at(self.body | second, round(world.timeline.elapsed * 1000))
        return world.mailbox.put(world.mailbox.place_of(world.settings.queue("default").arn), encode(body))

    def is_mine(self, _letter: Letter) -> bool:
        """Return whether a message is for it."""
        return True

    def may_be_dead(self, _letter: Letter) -> bool:
        """Return that it may not: it has no records that say why."""
        return False

    def remembers(self, items: Sequence[str]) -> bool:
        """Return whether anything stands in its own table when it is done."""
        return bool(items)

    @contextmanager
    def returning(self, result: Any) -> Iterator[None]:
        """Let its job return this inside the block."""
        self.result.append(result)
        try:
            yield
        finally:
            self.result.clear()

    @property
    def stamped(self) -> Collection[str]:
        """The fields of its message that a second send has other values in."""
        return sorted(self.stamps.names)

    def job_of(self, message: Any) -> str:
        """Name the job that the work was given."""
        return repr(self.stamps.without(message))

    def items(self, world: Environment) -> list[str]:
        """Return what it left in a table of its own."""
        return [encode(item) for item in world.stock(self.table)]

    def records(self, _world: Environment) -> list[Record]:
        """Return its records in the claims table."""
        return []


def _changed(value: Any) -> Iterator[Any]:
    """Yield the value with one of its scalars changed, each in its turn."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from ({**value, name: changed} for changed in _changed(inner))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from ([*value[:position], changed, *value[position + 1 :]] for changed in _changed(inner))
    elif isinstance(value, str):
        yield f"{value}-2"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value + 1
