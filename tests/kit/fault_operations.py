"""The operations of store and queue: data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit import fault_plays as plays
from onceq import Semantics

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.fault_plays import Act
    from kit.fault_stand import Stand


@dataclass(frozen=True)
class Operation:
    """One operation.

    Args:
        name: What the tables call it.
        methods: The methods of the seams that it is.
        request: How the proxy names its request; ``{queue}`` and ``{dlq}`` stand for the queues' names.
        play: Plays up to it.
        first: Which request of that name is spoiled first.
        normal: What comes of it without a fault.
        told: The event that tells that it failed.
        effects: How often the job's effect is attempted without a fault.
        jobs: How its jobs end.
        own_tables: Whether all of a table is read.
        is_copied: Whether a copy lies in the dead-letter queue, although the job is completed.
    """

    name: str
    methods: tuple[str, ...]
    request: str
    play: Callable[[Stand], Act]
    first: int = 1
    normal: str = "acknowledged"
    told: str | None = "message.faulted"
    effects: int = 1
    jobs: tuple[str, ...] = ("completed",)
    own_tables: bool = False
    is_copied: bool = False

    def __str__(self) -> str:
        """Name it for a test's id."""
        return self.name.replace(" ", "_").replace(",", "")


OPERATIONS = (
    Operation("claim", ("Store.claim",), "claim", plays.pays),
    Operation("take over", ("Store.take_over",), "take_over", plays.takes_over, effects=2),
    Operation("step, started", ("Store.step",), "step", lambda stand: plays.steps(stand, Semantics.AT_MOST_ONCE)),
    Operation(
        "step, finished",
        ("Store.step",),
        "step",
        lambda stand: plays.steps(stand, Semantics.AT_LEAST_ONCE),
        told="effect.not_recorded",
    ),
    Operation(
        "step, finished, at most once",
        ("Store.step",),
        "step",
        lambda stand: plays.steps(stand, Semantics.AT_MOST_ONCE),
        first=2,
        told="effect.not_recorded",
    ),
    Operation("complete", ("Store.complete",), "complete", plays.pays, told="effect.not_recorded"),
    Operation("commit", ("Store.commit", "Outbox.staged"), "commit", plays.commits, told="effect.not_recorded"),
    Operation("release", ("Store.release",), "release", plays.fails_first, normal="kept", effects=2),
    Operation("give back", ("Store.give_back",), "release", plays.gives_back, normal="kept"),
    Operation("reject", ("Store.reject",), "reject", plays.rejects, jobs=("rejected",)),
    Operation("reject, by a taker", ("Store.reject",), "reject", plays.rejects_stale, jobs=("rejected",)),
    Operation("hold", ("Store.hold",), "hold", plays.holds, jobs=("uncertain",)),
    Operation("hold, by a taker", ("Store.hold",), "hold", plays.holds_stale, jobs=("uncertain",)),
    Operation(
        "renew",
        ("Store.renew",),
        "renew",
        lambda stand: plays.renews(stand, "renew", "lease.not_renewed"),
        told="lease.not_renewed",
    ),
    Operation("get", ("Store.get",), "GetItem", plays.looks_up, normal="answered", told=None),
    Operation("resolve", ("Store.resolve",), "resolve", plays.resolves, normal="answered", told=None, is_copied=True),
    Operation(
        "mark stale",
        ("Store.mark_stale",),
        "mark_stale",
        plays.marks_stale,
        own_tables=True,
        normal="answered",
        told=None,
        jobs=("rejected",),
    ),
    Operation("acquire a lock", ("Locks.acquire",), "acquire", plays.locks),
    Operation(
        "extend a lock",
        ("Locks.extend",),
        "extend",
        lambda stand: plays.renews(stand, "extend", "lock.lost", lock=stand.lock),
        told="lock.lost",
    ),
    Operation("release a lock", ("Locks.extend",), "unlock", plays.locks, told="lock.lost"),
    Operation(
        "stage with a caller's writes",
        ("Outbox.commit",),
        "stage",
        plays.stages,
        own_tables=True,
        normal="answered",
        told=None,
    ),
    Operation(
        "mark as sent",
        ("Outbox.mark_sent",),
        "mark_sent",
        plays.sends,
        own_tables=True,
        told="outbox.not_marked",
        jobs=("completed", "completed"),
    ),
    Operation(
        "mark as failed",
        ("Outbox.mark_failed",),
        "mark_failed",
        plays.fails_to_send,
        own_tables=True,
        told="outbox.not_marked",
        jobs=("completed", "completed"),
    ),
    Operation(
        "read what is pending",
        ("Outbox.pending",),
        "Query",
        plays.relays,
        own_tables=True,
        normal="answered",
        told=None,
        jobs=("completed", "completed"),
    ),
    Operation(
        "send", ("Queue.send", "Queue.call"), "SendMessage {queue}", plays.enqueues, normal="answered", told=None
    ),
    Operation(
        "send many",
        ("Queue.send_batch",),
        "SendMessageBatch {queue}",
        plays.enqueues_many,
        normal="answered",
        told=None,
        effects=3,
        jobs=("completed",) * 3,
    ),
    Operation(
        "send what was staged",
        ("Queue.send_batch",),
        "SendMessageBatch {queue}",
        plays.relays,
        own_tables=True,
        normal="answered",
        told="outbox.failed",
        jobs=("completed", "completed"),
    ),
    Operation(
        "copy to the dead-letter queue",
        ("Queue.send_batch",),
        "SendMessageBatch {dlq}",
        plays.rejects,
        told="message.copy_failed",
        jobs=("rejected",),
    ),
    Operation(
        "change visibility",
        ("Queue.change_visibility_batch",),
        "ChangeMessageVisibilityBatch {queue}",
        plays.fails_first,
        normal="kept",
        told="visibility.not_changed",
        effects=2,
    ),
    Operation("receive", ("Queue.receive",), "ReceiveMessage {queue}", plays.polls, normal="answered", told=None),
    Operation(
        "delete", ("Queue.delete_batch",), "DeleteMessageBatch {queue}", plays.polls, normal="answered", told=None
    ),
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}
