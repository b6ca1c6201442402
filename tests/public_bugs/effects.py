"""Scenes about faults of DynamoDB and SQS, and about the outbox."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kit.bench import PAST_LEASE
from kit.claims import Worker, stored
from kit.clock import RunningContext
from kit.post import Post
from kit.world import TABLE
from public_bugs.ground import Ground, on_both

if TYPE_CHECKING:
    from kit.world import World
    from onceq import Context

THROTTLED = (
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TransactionConflictException",
    "LimitExceededException",
)
REFUSED = ("ResourceNotFoundException", "AccessDeniedException", "ExpiredTokenException")


def _paying(world: World, **options: Any) -> tuple[Post, list[str]]:
    post, runs = Post(world, **options), list[str]()
    post.send = lambda ctx: runs.append(ctx.key)
    return post, runs


def a_claim_that_cannot_be_made_runs_nothing(ground: Ground) -> None:
    """Throttled, 500, conflict, no table, no permission, no connection: kept, no effect; later it runs once."""
    for number, code in enumerate((*THROTTLED, *REFUSED, "InternalServerError", "drop")):
        post, runs = _paying(ground.world)
        key = f"k-{number}"
        if code == "drop":
            post.dynamodb.drop("claim", times=99)
        else:
            post.dynamodb.refuse("claim", code, status=500 if code.startswith("Internal") else 400, times=99)
        assert post.deliver(key, context=RunningContext(ground.world.clock, 60)) == [key], code
        assert runs == []
        assert ground.world.record("pay", key) is None
        post, runs = _paying(ground.world)
        assert post.deliver(key) == []
        assert runs == [key]


def a_fault_that_passes_is_not_seen(ground: Ground) -> None:
    """One throttling, conflict or 500 at the claim or at the completion is tried again within the time left."""
    faults = [(code, 400) for code in THROTTLED[:4]] + [("InternalServerError", 500), ("ServiceUnavailable", 503)]
    for number, (code, status) in enumerate(faults):
        for name in ("claim", "complete"):
            post, runs = _paying(ground.world)
            post.dynamodb.refuse(name, code, status=status)
            assert post.deliver(f"{name}-{number}") == [], (name, code)
            assert runs == [f"{name}-{number}"]


def _charge(keys: list[str], ctx: Context) -> None:
    keys.append(ctx.idempotency_key_for("charge"))


def an_effect_that_cannot_be_recorded_is_told_and_left_leased(ground: Ground) -> None:
    """500 after the effect, for as long as there is time: kept, `effect.not_recorded`, and taken over by its lease."""
    for number, code in enumerate(("InternalServerError", *REFUSED)):
        post, runs = _paying(ground.world)
        keys: list[str] = []
        post.send = partial(_charge, keys)
        key = f"k-{number}"
        post.dynamodb.refuse("complete", code, status=500 if number == 0 else 400, times=99)
        assert post.deliver(key, context=RunningContext(ground.world.clock, 60)) == [key]
        assert stored(ground.world, key).status == "processing"
        assert post.told("effect.not_recorded")[-1]["key"] == key
        ground.world.clock.advance(PAST_LEASE)
        again, _ = _paying(ground.world)
        again.send = post.send
        assert again.deliver(key) == []
        assert len(keys) == 2
        assert len(set(keys)) == 1, "the downstream is asked twice with one key"
        assert runs == []


def a_record_that_goes_in_between_is_claimed_anew(ground: Ground) -> None:
    """Deleted between the refused put and the decision, by TTL or a person: claimed again, and run once."""
    world = ground.world
    Worker.of(world).take(fingerprint=None)
    post, runs = _paying(world, fingerprint=None)
    pk = {"pk": {"S": "pay#k-1"}}

    def gone_behind(call: Any) -> Any:
        try:
            return post.dynamodb.forward(call)
        except Exception as error:
            error.response.pop("Item", None)  # type: ignore[attr-defined]  # as if it had been deleted by then
            world.dynamodb.delete_item(TableName=TABLE, Key=pk)
            raise

    post.dynamodb.plan("claim", gone_behind)
    assert post.deliver() == []
    assert runs == ["k-1"]


def a_record_that_goes_in_mid_run_is_not_made_up(ground: Ground) -> None:
    """Deleted while its job runs: the completion is refused, the message kept, and its next delivery starts anew."""
    world = ground.world
    post, runs = _paying(world)

    def lose(ctx: Any) -> None:
        runs.append(ctx.key)
        if len(runs) == 1:
            world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": "pay#k-1"}})

    post.send = lose
    assert post.deliver() == ["k-1"]
    assert world.record("pay", "k-1") is None
    assert "claim.lost" in world.names()
    assert post.deliver() == []
    assert len(runs) == 2


@on_both
def what_was_sent_and_not_marked_is_one_job(ground: Ground) -> None:
    """The mark behind the send fails: the relay sends it again under the same key, and its consumer runs it once."""
    world, post = ground.world, Post(ground.world)
    post.send = lambda ctx: ctx.send(post.ship, {})
    post.dynamodb.refuse("mark_sent", "InternalServerError", status=500, times=99)
    assert post.deliver(context=RunningContext(world.clock, 60)) == []
    assert post.entry().status == "pending"
    again = Post(world)
    world.clock.advance(120)
    assert again.relay()["sent"] == 1
    assert again.entry().status == "sent"
    assert len({envelope["idempotency_key"] for envelope in [*post.envelopes(), *again.envelopes()]}) == 1
    assert again.consume() == 2
    assert len(again.ran) == 1


def a_mark_does_not_follow_a_failure(ground: Ground) -> None:
    """SQS takes one of two messages: that one is marked, and the other one is sent later, once, with its own key."""
    post = Post(ground.world)

    def send(ctx: Any) -> None:
        ctx.send(post.ship, {"n": 1})
        ctx.send(post.ship, {"n": 2})

    def refuse_one(call: Any) -> Any:
        one, other = call.request["Entries"]
        answer = post.sqs._client.send_message_batch(QueueUrl=call.request["QueueUrl"], Entries=[one])
        failure = {"Id": other["Id"], "Code": "InternalError", "Message": "no", "SenderFault": True}
        return answer | {"Failed": [failure]}

    post.send = send
    post.sqs.plan("send_message_batch", refuse_one)
    assert post.deliver() == []
    assert sorted(entry.status for entry in post.entries()) == ["pending", "sent"]
    ground.world.clock.advance(1_000)
    assert post.relay()["sent"] == 1
    assert [entry.status for entry in post.entries()] == ["sent"] * 2
    assert post.consume() == 2
    assert len(set(post.ran)) == len(post.ran) == 2
