"""One delivery, seen from outside: what came in, what was answered, and what stands in tables and queues after it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kit.strict_reading import Identity, Reading, Serving, Source, group_of, id_of, read, source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kit.memory_tables import Item

# The fingerprint of a planted record whose job had another payload than any message of the event.
ANOTHER = "another payload's"


@dataclass(frozen=True)
class Effect:
    """One start of a job.

    Args:
        identity: The job's.
        payload: What it was given.
        done: Whether it had its effect.
        again: Whether it asked itself to be started again.
    """

    identity: Identity
    payload: Any
    done: bool
    again: bool = False


@dataclass
class History:
    """What the jobs did in all deliveries so far."""

    effects: list[Effect] = field(default_factory=list)

    def done(self) -> Counter[Identity]:
        """Return how often each job had its effect."""
        return Counter(effect.identity for effect in self.effects if effect.done)

    def starts(self) -> Counter[Identity]:
        """Return how often each job was started, without the starts that asked for another one."""
        return Counter(effect.identity for effect in self.effects if not effect.again)


@dataclass
class Seen:
    """One delivery, from outside.

    Args:
        serving: What the application serves.
        event: The event.
        answer: What the handler returned.
        error: What it raised.
        before: The claims table before.
        after: The claims table after.
        copies: What was sent to the dead-letter queues: URL and entry.
        earlier: What earlier deliveries sent there: a FIFO queue takes the copy of a message once.
        told: The telemetry events: names and fields.
        effects: The starts in this delivery.
        history: All starts, this delivery's too.
        in_time: Whether there was time for every job.
        succeeds: Whether a job returns, told by its payload.
    """

    serving: Serving
    event: Any
    answer: Any
    error: BaseException | None
    before: Mapping[str, Item]
    after: Mapping[str, Item]
    copies: list[tuple[str, dict[str, Any]]]
    earlier: list[tuple[str, dict[str, Any]]]
    told: list[tuple[str, dict[str, Any]]]
    effects: list[Effect]
    history: History
    in_time: bool
    succeeds: Callable[[Any], bool]

    @cached_property
    def records(self) -> list[Any]:
        """The event's records."""
        found = self.event if isinstance(self.event, list) else self.event.get("Records")
        return found or []

    @cached_property
    def readings(self) -> list[Reading]:
        """What each record stands for."""
        return [read(record, self.serving) for record in self.records]

    @cached_property
    def sources(self) -> list[Source | None]:
        """The queue of each record."""
        return [source_of(record, self.serving) for record in self.records]

    @cached_property
    def lanes(self) -> list[int]:
        """The lane of each record: records that share a job, or a group of a FIFO queue, share it."""
        lanes = list(range(len(self.records)))
        first: dict[object, int] = {}
        for position, (record, reading) in enumerate(zip(self.records, self.readings, strict=True)):
            shared: list[object] = [reading.identity] if reading.identity else []
            queue = source_of(record, self.serving)
            if queue is not None and queue.fifo and group_of(record):
                shared.append((record["eventSourceARN"], group_of(record)))
            for thing in shared:
                mine, theirs = lanes[position], lanes[first.setdefault(thing, position)]
                lanes = [min(mine, theirs) if lane in (mine, theirs) else lane for lane in lanes]
        return lanes

    @cached_property
    def named(self) -> set[str]:
        """The ids that the answer keeps; whether its shape is right is another question."""
        failures = self.answer.get("batchItemFailures") if isinstance(self.answer, dict) else None
        entries = failures if isinstance(failures, list) else []
        return {str(entry.get("itemIdentifier")) for entry in entries if isinstance(entry, dict)}

    @cached_property
    def by_identity(self) -> dict[Identity, dict[str, Any]]:
        """The records of the claims table after the delivery, as plain values."""
        return plain(self.after)

    def is_kept(self, position: int) -> bool:
        """Return whether a record stays in the queue."""
        message_id = id_of(self.records[position])
        return self.error is not None or message_id in self.named


def plain(items: Mapping[str, Item]) -> dict[Identity, dict[str, Any]]:
    """Return the jobs' records of a claims table, as plain values."""
    found = {}
    for item in items.values():
        if "job_type" not in item:
            continue
        plain = {name: next(iter(value.values())) for name, value in item.items()}
        found[Identity(plain["job_type"], plain["idempotency_key"])] = plain
    return found
