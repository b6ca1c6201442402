"""Rules of the outbox that only a mutant showed to be untested."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import NOW
from onceq.clock import OpenDeadline
from onceq.outbox import LONGEST_PAUSE_MS, SHARDS, Delivery, Outbox, OutboxEntry, shard_of
from onceq.transaction import Transaction

if TYPE_CHECKING:
    from kit.world import World

ENTRY = OutboxEntry("e-000", "ship", "k-1", "default", "{}", NOW, NOW, shard="0", next_at=NOW)


class Seam:
    """Stands for DynamoDB, and keeps what it is asked."""

    def __init__(self) -> None:
        """Nothing was asked."""
        self.requests: list[dict[str, Any]] = []

    def call(self, operation: str, request: dict[str, Any], deadline: object) -> dict[str, Any]:
        """Answer as an empty table does."""
        self.requests.append(request)
        return {}


def test_an_entry_of_a_caller_is_committed_under_the_token_of_its_call() -> None:
    """G8: two calls with one token would be one to DynamoDB for ten minutes, and the second message lost."""
    seam = Seam()
    outbox = Outbox(seam, "Outbox", OpenDeadline())  # type: ignore[arg-type]  # as much of the seam as is asked here

    outbox.commit(Transaction(reserved=[]), ENTRY, "of this call")

    assert [request["ClientRequestToken"] for request in seam.requests] == ["of this call"]


def test_a_page_is_of_a_hundred_entries_unless_more_are_asked_for() -> None:
    """The relay's run is bounded by its pages."""
    seam = Seam()
    outbox = Outbox(seam, "Outbox", OpenDeadline())  # type: ignore[arg-type]  # as above

    outbox.pending("0", now_ms=NOW)

    assert [(request["Limit"], request["IndexName"]) for request in seam.requests] == [(100, "pending")]


def test_a_sent_entry_has_no_error_whoever_wrote_it_down(world: World) -> None:
    """The copy that was sent may be older than the error in the table; what is looked at later must not mislead."""
    outbox = world.runtime.outbox(OpenDeadline())
    name = outbox.table
    world.dynamodb.put_item(TableName=name, Item=replace(ENTRY, attempts=1, error="of another relay").to_item())

    outbox.mark_sent(ENTRY, "m-1", NOW)

    item = world.dynamodb.get_item(TableName=name, Key={"pk": {"S": ENTRY.pk}})["Item"]
    assert OutboxEntry.from_item(item) == ENTRY.sent("m-1", NOW)


@pytest.mark.parametrize(
    ("attempts", "pause_ms"),
    [(0, 1_000), (1, 2_000), (8, 256_000), (9, LONGEST_PAUSE_MS), (10**6, LONGEST_PAUSE_MS)],
    ids=["the first", "the second", "the ninth", "the tenth", "any later one"],
)
def test_a_failed_entry_pauses_twice_as_long_each_time_up_to_five_minutes(attempts: int, pause_ms: int) -> None:
    """What cannot be sent stays cheap, and is tried soon after it can."""
    assert replace(ENTRY, attempts=attempts).next_try(NOW) == NOW + pause_ms
    assert LONGEST_PAUSE_MS == 300_000


def test_entries_of_many_transactions_are_in_every_shard_that_the_relay_asks() -> None:
    """A shard that nobody asks would hold its messages for ever."""
    assert {shard_of(f"token-{number}") for number in range(1_000)} == {str(number) for number in range(SHARDS)}


def test_an_entry_waits_its_head_start_or_until_it_is_due_in_the_order_of_its_number() -> None:
    """G8: whichever is later, and the number at the end of its id beside it, which keeps the order of equals."""
    soon = replace(ENTRY, pk="e-007", next_at=None).committed(NOW)
    late = replace(ENTRY, pk="e-007", next_at=NOW + 90_000).committed(NOW)

    assert (soon.next_at, late.next_at) == (NOW + 30_007, NOW + 90_007)
    assert soon.status == Delivery.PENDING


def test_a_sent_entry_is_kept_for_a_week() -> None:
    """It may be looked at for so long, and then goes by itself."""
    assert ENTRY.sent("m-1", NOW).expires_at == NOW // 1000 + 604_800
