"""What a proof is about: a job of onceq's, or one of another consumer; how its messages are made and told apart."""

from __future__ import annotations

import itertools
import re
import typing
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceq.codec import decode, encode
from onceq.errors import MessageError
from onceq.record import Semantics
from onceq.settings import require
from onceq.testing.clock import A_DAY, A_MINUTE
from onceq.testing.staged import envelope_of
from onceq.testing.stamps import Stamps
from onceq.testing.variants import members, variants

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from onceq.job_type import JobType
    from onceq.record import Record
    from onceq.testing.mailbox import Letter
    from onceq.testing.world import Environment

KEY, OTHER_KEY = "proof-1", "proof-2"
GROUP = "proof"
# A consumer of another make is given up by its queue's redrive policy. A hundred receives would make a proof slow.
MOST_FAILURES = 10
# Fields of a payload that are changed, each in its turn, to make a second job.
MOST_OTHERS = 4
FALSY: tuple[Any, ...] = (0, "", None, [], {}, False)


@dataclass
class OnTrial:
    """A job of onceq's."""

    job_type: JobType[..., Any]
    payload: Any
    key: str | int | None
    other: Any
    group: str | None
    given: Collection[str] | None = None
    sent: dict[str, str] = field(default_factory=dict)
    passed_on: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Raise: ConfigurationError, if there is no second job beside the first one."""
        self.stamps = Stamps(frozenset())
        if self._derives and not self._fits:
            return  # that it does not is said as it is sent
        self.stamps = self._stamps()
        if not self._derives:
            return
        if self.other is None:
            require(
                bool(self._varied),
                f"no second job of {self.job_type.name!r} can be made: its key is derived, and no change of one field "
                "of the payload gives another key. Give other= (from the shell: --other), the payload of a job with "
                "another key, or key= to prove it without the derived one",
            )
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
        elapsed_ms = round(world.timeline.elapsed * 1000)
        if self.stamps.names and elapsed_ms:
            payload = self.stamps.at(decode(encode(payload)), elapsed_ms)
        options: dict[str, Any] = {"key": key}
        if world.settings.queue(self.job_type.queue).is_fifo:
            options["group"] = self.group or GROUP
        letter = world.enqueue(self.job_type, payload, **options)
        self.sent[letter.body] = _key_of(letter)
        return letter

    def is_mine(self, letter: Letter) -> bool:
        """Return whether a message is its own: not what it sends to its own job type, whatever key that has."""
        return letter.body in self.sent or envelope_of(letter) is None

    def passes_on(self, keys: Collection[str]) -> None:
        """Be told the keys of the messages that it sends: none of these is a second job beside it."""
        self.passed_on |= {*keys}

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
        mine = [
            record
            for record in world.records()
            if record.job_type == self.job_type.storage_name and record.idempotency_key in self.sent.values()
        ]
        return [record for record in mine if record.created_at >= world.timeline.began_ms]

    def texts(self, number: int) -> frozenset[str]:
        """Return the texts in the payload of a job; where the kit made the second one, those that look like an id."""
        texts = frozenset(_texts(decode(encode(self._second(number)[0] if number else self.payload))))
        return texts if self.other is not None else frozenset(text for text in texts if re.search(r"\d", text))

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
        """The fields of its payload that a second send has other values in."""
        return sorted(self.stamps.names)

    @property
    def results(self) -> Sequence[Any]:
        """None: the framework stores what the job returns, whatever it is."""
        return ()

    @property
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
            return (self.payload if self.other is None else self.other), self._other_key
        return (self._varied[number - 1] if self.other is None else self.other), None

    @property
    def _other_key(self) -> str:
        taken = {str(self.key), *self.passed_on}
        return next(key for key in (f"{OTHER_KEY}{'-2' * n}" for n in itertools.count()) if key not in taken)

    @property
    def _payloads(self) -> list[Any]:
        return [decode(encode(one)) for one in (self.payload, self.other)]

    @property
    def _varied(self) -> list[Any]:
        """The payload with another value in one field, for each field that gives it another key."""
        return list(self._changed_keys.values())[:MOST_OTHERS]

    @property
    def _changed_keys(self) -> dict[tuple[str | int, ...], Any]:
        """The payloads with another key, each by the place in it that is changed."""
        data = decode(encode(self.payload))
        own = self.job_type.key_of(data, self.job_type.load(data))
        named, found = _named_by(self.job_type), dict[tuple[str | int, ...], Any]()
        for place, changed in _changed(data, named):
            if place in found:
                continue
            with suppress(Exception):  # whatever a key function says of a payload that nobody has
                key = self.job_type.key_of(changed, self.job_type.load(changed))
                if key != own and key not in self.passed_on:
                    found[place] = changed
        return found

    @property
    def _fits(self) -> bool:
        try:
            data = decode(encode(self.payload))
            self.job_type.key_of(data, self.job_type.load(data))
        except MessageError:
            return False
        return True

    def _stamps(self) -> Stamps:
        """Return what its producer fills anew: without the fields that its key names, or that alone make its key."""
        data = decode(encode(self.payload))
        stamps = Stamps.of(data, self.given, "") if isinstance(data, dict) or self.given else Stamps(frozenset())
        if self.given is not None or not stamps.names:
            return stamps
        if not self._derives:
            return Stamps(frozenset())  # one key with two payloads is a mistake of the producer's
        expression = self.job_type.key if isinstance(self.job_type.key, str) else ""
        makes = {name for place in self._changed_keys for name in place if isinstance(name, str)}
        names = stamps.names - {*re.findall(r"\w+", expression)}
        return Stamps(names if makes - names else frozenset())


@dataclass
class ForeignOnTrial:
    """A job of another consumer.

    Args:
        body: Its message's body.
        identity: The field that says which job it is.
        table: The table that its consumer works with.
        stamps: The fields that a producer fills anew with each send.
        result: What the job returns instead of its own, in a list; empty for its own.
        most_attempts: How often it fails, or dies, in one scenario.
    """

    body: dict[str, Any]
    identity: str
    table: str
    stamps: Stamps
    result: list[Any] = field(default_factory=list)
    most_attempts: int = MOST_FAILURES
    starts_once: bool = False
    others: int = 1
    keys_last: float | None = None
    sent_again_after: float = A_MINUTE
    results: Sequence[Any] = FALSY

    def send(self, world: Environment, *, other: int = 0) -> Letter:
        """Put its message into the queue, as its producer sends it now; ``other`` is the number of a second job."""
        second = {self.identity: self._other_identity} if other else {}
        body = self.stamps.at(self.body | second, round(world.timeline.elapsed * 1000))
        return world.mailbox.put(world.mailbox.place_of(world.settings.queue("default").arn), encode(body))

    @property
    def _other_identity(self) -> Any:
        value = self.body[self.identity]
        return next(iter(variants(value)), f"{value}-2")

    def is_mine(self, _letter: Letter) -> bool:
        """Return whether a message is for it."""
        return True

    def passes_on(self, _keys: Collection[str]) -> None:
        """Heed nothing: what it sends comes to nobody."""

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

    def texts(self, _number: int) -> frozenset[str]:
        """Return nothing: the handler of a fresh process remembers no other job."""
        return frozenset()

    def items(self, world: Environment) -> list[str]:
        """Return what it left in a table of its own."""
        return [encode(item) for item in world.stock(self.table)]

    def records(self, _world: Environment) -> list[Record]:
        """Return its records in the claims table."""
        return []


def _named_by(job_type: JobType[..., Any]) -> list[Any]:
    """Return the values that the annotations of its payload name one by one."""
    hints = typing.get_type_hints(job_type.function)
    payloads = [hint for name, hint in hints.items() if name != "return" and not hasattr(hint, "__onceq_context__")]
    return [value for hint in payloads for value in members(hint)]


def _key_of(letter: Letter) -> str:
    envelope = envelope_of(letter)
    return "" if envelope is None else str(envelope.idempotency_key)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _changed(value: Any, named: Sequence[Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the value with one of its scalars changed, each in its turn and in several ways, and where that stands."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from (((name, *place), {**value, name: changed}) for place, changed in _changed(inner, named))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            for place, changed in _changed(inner, named):
                yield (position, *place), [*value[:position], changed, *value[position + 1 :]]
    else:
        yield from (((), other) for other in variants(value))
        yield from (((), other) for other in named if value in named and other != value)
