"""The double of the outbox's index does what moto's does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.clock import FrozenClock
from kit.memory_tables import MemoryDynamoDB
from kit.world import OUTBOX_TABLE
from onceq.clock import OpenDeadline, TokenFactory
from onceq.dynamodb import DynamoDB
from onceq.outbox import Delivery, Outbox, OutboxEntry

if TYPE_CHECKING:
    from kit.world import World


def test_a_query_finds_what_it_finds_on_moto(world: World) -> None:
    """What waits in a shard and is due, those first that are tried first; what was sent is not in the index."""
    double, answers = MemoryDynamoDB(), []
    for number, (shard, next_at) in enumerate([("1", 30), ("1", 10), ("1", 31), ("2", 5), ("1", 20), (None, None)]):
        status = Delivery.SENT if shard is None else Delivery.PENDING
        entry = OutboxEntry(f"e-{number}", "mail", "o-1", "default", "{}", 1, 1, status, shard=shard, next_at=next_at)
        for client in (double, world.dynamodb):
            client.put_item(TableName=OUTBOX_TABLE, Item=entry.to_item())
    for client in (double, world.dynamodb):
        clock = FrozenClock()
        outbox = Outbox(DynamoDB(clock, TokenFactory(clock), client=client), OUTBOX_TABLE, OpenDeadline())
        answers.append([outbox.pending(shard, now_ms=30) for shard in ("1", "2", "3")])

    assert answers[0] == answers[1]
    assert [[entry.next_at for entry in page.entries] for page in answers[0]] == [[10, 20, 30], [5], []]
