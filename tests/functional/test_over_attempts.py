"""A context that outlives its attempt: kept in a global, in a thread, or given to somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import Bench
from kit.claims import record_of
from kit.post import Post
from kit.shop import STOCK, open_shop
from onceq import ClaimLost, Context
from onceq.errors import StepUncertain, TransactionRefused
from onceq.record import Status

if TYPE_CHECKING:
    from kit.world import World

WRITE: dict[str, Any] = {"Put": {"TableName": STOCK, "Item": {"sku": {"S": "late"}}}}


@pytest.fixture
def post(world: World) -> Post:
    """An app whose job sends."""
    open_shop(world)
    return Post(world)


def test_what_comes_after_the_end_is_refused_and_not_lost_without_a_word(post: Post) -> None:
    """G8: a message or a write staged into an attempt that is over would never be sent: its caller is told."""
    kept: list[Context] = []
    post.send = kept.append

    assert post.deliver() == []

    with pytest.raises(TransactionRefused, match="over"):
        kept[0].send("ship", {}, key="late")
    with pytest.raises(TransactionRefused, match="over"):
        kept[0].transaction.write(WRITE)
    assert (kept[0].sent, kept[0].transaction.writes, post.entries()) == ([], [], [])


@pytest.mark.parametrize(
    "signal",
    [StepUncertain("of another one"), ClaimLost(record_of(Status.COMPLETED), record_of())],
    ids=["uncertain", "lost"],
)
def test_a_signal_of_another_attempt_is_an_error_of_this_one(world: World, signal: BaseException) -> None:
    """G4: a job that raises what some other attempt ended with failed; it is neither held nor acknowledged for that."""

    def body(_ctx: Context) -> None:
        raise signal

    bench = Bench(world, body)

    assert bench.deliver()
    assert bench.record.status is Status.FAILED
    assert "claim.lost" not in world.names()


def test_a_jobs_transaction_is_not_committed_twice(post: Post) -> None:
    """G7: it goes with the completion; given to `enqueue_with` as well, its writes would happen twice."""
    refused: list[TransactionRefused] = []

    def send(ctx: Context) -> None:
        ctx.transaction.write(WRITE)
        with pytest.raises(TransactionRefused, match=r"fill an app\.transaction\(\)") as caught:
            post.app.enqueue_with(ctx.transaction, "ship", {}, key="k-9")
        refused.append(caught.value)

    post.send = send

    assert post.deliver() == []
    assert len(refused) == 1
    assert (post.entries(), post.dynamodb.names().count("commit")) == ([], 1)


def test_what_is_changed_after_it_was_staged_is_committed_as_it_was_staged(post: Post) -> None:
    """G7: one dictionary, used again for the next write, must not change the one before."""

    def send(ctx: Context) -> None:
        item = {"sku": {"S": "a"}, "pieces": {"N": "1"}}
        for sku in ("a", "b"):
            item["sku"]["S"] = sku
            ctx.transaction.write({"Put": {"TableName": STOCK, "Item": item}})
        item["pieces"]["N"] = "99"

    post.send = send

    assert post.deliver() == []
    items = post.world.dynamodb.scan(TableName=STOCK)["Items"]
    assert sorted((item["sku"]["S"], item["pieces"]["N"]) for item in items if item["sku"]["S"] in "ab") == [
        ("a", "1"),
        ("b", "1"),
    ]
