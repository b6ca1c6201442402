"""What workers share: tables, what was sent, the messages and the effects, as values that can be put back.

A `Snapshot` is all of it at one moment. `Outside` has doubles of botocore's clients (`kit.memory`), loads a snapshot
into them, lets one request happen, and takes the next snapshot; so a request means exactly what it means there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import ClientError

from kit.memory import MemorySqs
from kit.memory_tables import Item, MemoryDynamoDB
from onceq.testing.keyed import Asked
from onceq.testing.recorder import EffectRecorder, plain

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from onceq.testing.calls import Call
    from onceq.testing.memory import Effect

# As PLAIN of `onceq.testing.world` has it: longer than a function with a timeout of a minute may run.
VISIBILITY_SECONDS = 90
# The message of a worker that receives none: it runs the relay.
RELAY = "relay"


class Letter(NamedTuple):
    """A message in the queue that was not acknowledged yet."""

    message_id: str
    visible_at: int
    receives: int = 0


class Wanted(NamedTuple):
    """An effect that is about to happen."""

    name: str
    key: str | None
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]


class Told(NamedTuple):
    """What a worker is told at a point: an answer, a refusal, that nothing came back, or the time.

    ``name`` tells it apart from everything else that could be told there.
    """

    name: Hashable
    value: Any = None
    refusal: tuple[type[ClientError], Mapping[str, Any], str] | None = None

    @property
    def is_answer(self) -> bool:
        """Whether it is the answer to what was done."""
        return self.refusal is None and not (self is LOST or self is SILENCE)

    def given(self) -> Any:
        """Return the answer, or raise the refusal, anew."""
        if self.refusal is not None:
            kind, response, operation = self.refusal
            raise kind(response, operation)
        return self.value


LOST = Told("the response is lost")
SILENCE = Told("no response comes, however often the request is sent again")
FAILED = Told("the effect fails")
RENEWS = Told("the lease is renewed")
GO_ON = Told("nothing")


def frozen(value: Any) -> Hashable:
    """Return a value that can be compared and hashed in the place of one made of dicts and lists."""
    if isinstance(value, dict):
        return tuple(sorted((name, frozen(one)) for name, one in value.items()))
    if isinstance(value, list | tuple):
        return tuple(frozen(one) for one in value)
    return value  # type: ignore[no-any-return]  # text, numbers, None


_KNOWN: dict[int, tuple[Any, Hashable]] = {}


def kept(value: Any) -> Hashable:
    """Return the same as `frozen` of an item or an entry, which is never changed in place, from memory."""
    known = _KNOWN.get(id(value))
    if known is None:
        known = _KNOWN[id(value)] = (value, frozen(value))  # kept alive, so that no other one gets its id
    return known[1]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything outside of the workers at one moment.

    Args:
        tables: Items by table and key; never changed in place.
        sent: What SQS took: the queue's URL and the entry.
        letters: The messages that are not acknowledged.
        effects: Every call that reached the provider.
    """

    tables: Mapping[str, Mapping[str, Item]]
    sent: tuple[tuple[str, Any], ...] = ()
    letters: tuple[Letter, ...] = ()
    effects: tuple[Effect, ...] = ()

    def name(self) -> Hashable:
        """Return what tells it apart."""
        tables = tuple(
            (table, pk, kept(item))
            for table, items in sorted(self.tables.items())
            for pk, item in sorted(items.items())
        )
        effects = tuple((one.name, one.key, one.repeated) for one in self.effects)
        return tables, tuple((url, kept(entry)) for url, entry in self.sent), self.letters, effects

    def item(self, table: str, pk: str) -> Item | None:
        """Return an item, or ``None``."""
        return self.tables.get(table, {}).get(pk)

    def happened(self, name: str | None = None) -> list[Effect]:
        """Return the effects of that name, or all; a call that repeats a key is none."""
        return [one for one in self.effects if not one.repeated and name in (None, one.name)]

    def received(self, message_id: str, now_ms: int) -> Snapshot:
        """Return the snapshot after a message was received: it is hidden for the queue's visibility timeout."""
        visible_at = now_ms + VISIBILITY_SECONDS * 1000
        return self._with(
            message_id, lambda letter: letter._replace(visible_at=visible_at, receives=letter.receives + 1)
        )

    def hidden(self, message_id: str, until: int) -> Snapshot:
        """Return the snapshot after the visibility of a message was changed."""
        return self._with(message_id, lambda letter: letter._replace(visible_at=until))

    def acknowledged(self, message_id: str) -> Snapshot:
        """Return the snapshot without a message."""
        return replace(self, letters=tuple(one for one in self.letters if one.message_id != message_id))

    def _with(self, message_id: str, change: Any) -> Snapshot:
        letters = tuple(change(letter) if letter.message_id == message_id else letter for letter in self.letters)
        return replace(self, letters=letters)


class Outside:
    """The doubles, and the snapshot that stands in them.

    Attributes:
        gateway: The provider, which remembers keys.
    """

    def __init__(self, gateway: Gateway) -> None:
        """Start empty."""
        self.dynamodb, self.sqs, self.gateway = MemoryDynamoDB(), MemorySqs(), gateway

    def load(self, snapshot: Snapshot) -> None:
        """Let a snapshot stand there."""
        self.dynamodb.tables = {name: dict(items) for name, items in snapshot.tables.items()}
        self.sqs.sent[:] = snapshot.sent
        self.sqs._ids = {("sent", str(number)): f"sent-{number}" for number in range(len(snapshot.sent))}
        self.gateway.restore(snapshot.effects)

    def taken(self, before: Snapshot, now_ms: int) -> Snapshot:
        """Return what stands there now; ``before`` has the messages, whose visibility may have been changed since."""
        after = replace(
            before,
            tables={name: dict(items) for name, items in self.dynamodb.tables.items()},
            sent=tuple(self.sqs.sent),
            effects=tuple(self.gateway.calls),
        )
        for handle, seconds in self.sqs.visibility:
            after = after.hidden(message_of(handle), now_ms + seconds * 1000)
        self.sqs.visibility.clear()
        return after

    def request(self, before: Snapshot, call: Call, now_ms: int) -> tuple[Snapshot, Told]:
        """Let a request happen; return what stands there then, and the answer."""
        self.load(before)
        client = {"dynamodb": self.dynamodb, "sqs": self.sqs}[call.service]
        told: Told
        try:
            answer = getattr(client, method_of(call.operation))(**call.request)
            told = Told(("answer", frozen(answer)), answer)
        except ClientError as error:
            refusal = (type(error), error.response, error.operation_name)
            told = Told(("refusal", frozen(error.response)), refusal=refusal)
        return self.taken(before, now_ms), told

    def effect(self, before: Snapshot, wanted: Wanted, worker: str, now_ms: int) -> tuple[Snapshot, Told]:
        """Let an effect happen."""
        self.load(before)
        answer = self.gateway.happen(wanted, worker)
        return self.taken(before, now_ms), Told(("answer", frozen(answer)), answer)


class Gateway(EffectRecorder):
    """The provider as a snapshot has it."""

    def restore(self, effects: tuple[Effect, ...]) -> None:
        """Have been called so."""
        self.clear()
        for one in effects:
            asked = Asked(one.name, one.arguments, one.named, key=one.key)
            self._memory.add(one)
            if one.key is not None and not one.repeated:
                self._memory.first[one.name, one.key] = plain(asked.compared)
                self._memory.answer(one, self._answer(asked, one.number))

    def happen(self, wanted: Wanted, worker: str) -> Any:
        """Let an effect happen."""
        return self._happen(Asked(wanted.name, wanted.arguments, dict(wanted.named), key=wanted.key), worker)


def method_of(operation: str) -> str:
    """Return the client's method of an operation.

    Example:
        >>> method_of("TransactWriteItems")
        'transact_write_items'
    """
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in operation).lstrip("_")


def handle_of(message_id: str, worker: str) -> str:
    """Return the receipt handle of a delivery."""
    return f"{message_id}/{worker}"


def message_of(handle: str) -> str:
    """Return the message of a receipt handle."""
    return handle.partition("/")[0]
