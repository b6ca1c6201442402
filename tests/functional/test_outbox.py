"""The outbox: a message exists if and only if its job completed, and is delivered at least once under one key (G8)."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import NOW, stored
from kit.clock import FakeLambdaContext
from kit.post import Post, die
from kit.racing import all_at_once
from kit.seams import SimulatedCrash
from kit.world import create_table, event_of, kept
from onceq import ConfigurationError, Context, EnqueueRefused, Reject, Retry, Semantics, Snooze, job
from onceq.client import ATTEMPTS
from onceq.outbox import HEAD_START_MS, LOOK_AHEAD_MS, MAX_BODY_BYTES, Delivery, shard_of
from onceq.queue import MAX_BYTES
from onceq.record import Status
from onceq.sealing import LONGEST_OUTBOX_DELAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

PAST_LEASE = 72
HOUR, DAY = 3_600, 86_400


@pytest.fixture
def post(world: World) -> Post:
    """The app on moto."""
    return Post(world)


@pytest.fixture
def both_posts(both_worlds: World) -> Post:
    """The app on moto and on ministack."""
    return Post(both_worlds)


def one(ctx: Context) -> str:
    """Send one message that is due now."""
    return ctx.send("ship", {"order": ctx.key})


def test_a_message_is_staged_with_the_completion_sent_and_marked(both_posts: Post) -> None:
    """G8: one commit, one batch to SQS, one mark; the receiver runs under the key that the sender was told."""
    post, keys = both_posts, []

    def send(ctx: Context) -> str:
        keys.append(one(ctx))
        assert post.entries() == []
        return "paid"

    post.send = send

    assert post.deliver() == []

    assert post.dynamodb.names() == ["claim", "commit", "mark_sent"]
    assert [call.name for call in post.sqs.calls] == ["send_message_batch"]
    entry = post.entry()
    claimant = stored(post.world).claimant
    assert entry.pk == f"{claimant}-000"
    assert (entry.job_type, entry.idempotency_key, entry.queue, entry.group) == ("ship", keys[0], "default", None)
    assert (entry.created_at, entry.due_at) == (NOW, NOW)
    assert json.loads(entry.body) == {
        "onceq": 1,
        "job_type": "ship",
        "idempotency_key": keys[0],
        "payload": {"order": "k-1"},
        "created_at": "2026-11-29T12:00:00.000Z",
        "hops": 1,
    }
    assert (entry.status, entry.attempts, entry.sent_at, entry.error) == (Delivery.SENT, 1, NOW, None)
    assert (entry.shard, entry.next_at, entry.expires_at) == (None, None, NOW // 1000 + 7 * DAY)
    [message] = post.receive()
    assert (message["MessageId"], message["Body"]) == (entry.message_id, entry.body)
    [told] = post.told("outbox.sent")
    known = {"entry": entry.pk, "job_type": "ship", "key": keys[0], "message_id": entry.message_id, "seconds": 0.0}
    assert told.items() >= known.items()


def test_a_pending_entry_stands_in_the_index_of_its_transactions_shard(post: Post) -> None:
    """All that a job stages lies in one shard, in the order of sending; only what waits has the index's keys."""

    def send(ctx: Context) -> None:
        for number in range(3):
            ctx.send("ship", {"number": number}, delay=HOUR)

    post.send = send
    assert post.deliver() == []

    claimant = stored(post.world).claimant
    entries = post.entries()
    assert [entry.pk for entry in entries] == [f"{claimant}-000", f"{claimant}-001", f"{claimant}-002"]
    assert [json.loads(entry.body)["payload"]["number"] for entry in entries] == [0, 1, 2]
    assert {entry.shard for entry in entries} == {shard_of(claimant)}
    assert {entry.status for entry in entries} == {Delivery.PENDING}
    assert {entry.expires_at for entry in entries} == {None}


@dataclass
class End:
    """How a job ends after it has sent something, and whether its message exists then."""

    end: Callable[[Context, Post], object]
    exists: bool
    semantics: Semantics = Semantics.AT_LEAST_ONCE


def raising(error: BaseException) -> Callable[[Context, Post], object]:
    """Return an end that raises."""

    def end(ctx: Context, post: Post) -> object:
        raise error

    return end


def condition_fails(ctx: Context, post: Post) -> None:
    """Stage what cannot happen."""
    key = {"pk": {"S": "o-1"}}
    check = {"TableName": "Other", "Key": key, "ConditionExpression": "attribute_exists(pk)"}
    ctx.transaction.write({"ConditionCheck": check})


def loses_its_claim(ctx: Context, post: Post) -> None:
    """Go stale, and let another delivery take the job over and die."""
    if ctx.attempt == 1:
        post.world.clock.advance(PAST_LEASE)
        with suppress(SimulatedCrash):
            post.deliver()
        return
    raise SimulatedCrash


ENDS: dict[str, End] = {
    "returns": End(lambda ctx, post: None, exists=True),
    "returns what cannot be stored": End(lambda ctx, post: object(), exists=True),
    "at most once, returns": End(lambda ctx, post: None, exists=True, semantics=Semantics.AT_MOST_ONCE),
    "raises": End(raising(ValueError("no")), exists=False),
    "asks for a retry": End(raising(Retry(1)), exists=False),
    "snoozes": End(raising(Snooze(1)), exists=False),
    "rejects": End(raising(Reject("no")), exists=False),
    "exits": End(raising(SystemExit(1)), exists=False),
    "at most once, raises": End(raising(ValueError("no")), exists=False, semantics=Semantics.AT_MOST_ONCE),
    "a condition fails": End(condition_fails, exists=False),
    "loses its claim": End(loses_its_claim, exists=False),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_message_exists_exactly_if_its_job_completed(both_worlds: World, end: End) -> None:
    """G8: no entry and nothing sent without the completion, and both with it."""
    create_table(both_worlds.dynamodb, "Other")
    post = Post(both_worlds, semantics=end.semantics)

    def send(ctx: Context) -> object:
        one(ctx)
        ctx.send("ship", {}, delay=HOUR)
        return end.end(ctx, post)

    post.send = send

    post.deliver()

    assert (stored(both_worlds).status is Status.COMPLETED) is end.exists
    assert [entry.status for entry in post.entries()] == ([Delivery.SENT, Delivery.PENDING] if end.exists else [])
    assert len(post.sent()) == (1 if end.exists else 0)
    assert post.relay()["sent"] == 0


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["commit", "send_message_batch", "mark_sent"])
def test_a_process_that_dies_around_a_write_costs_a_minute_and_no_message(
    both_posts: Post, name: str, when: str
) -> None:
    """G6, G8: before the commit there is no message; from it on the relay sends it, twice at the worst, as one job."""
    post = both_posts
    post.send = one
    die(post.sqs if name == "send_message_batch" else post.dynamodb, name, when)
    with pytest.raises(SimulatedCrash):
        post.deliver()

    assert len(post.entries()) == (0 if (name, when) == ("commit", "before") else 1)
    post.world.clock.advance(PAST_LEASE)
    assert post.deliver() == []
    post.relay()

    assert post.entry().status == "sent"
    twice = (name, when) in [("send_message_batch", "after"), ("mark_sent", "before")]
    assert post.consume() == (2 if twice else 1)
    assert post.ran == [post.entry().idempotency_key]


def test_a_commit_whose_response_is_lost_sends_its_messages_once(both_posts: Post) -> None:
    """G11, G8: recognised by token or record, the job is completed, its entry is there once, and it is sent at once."""
    post = both_posts
    post.send = one
    post.dynamodb.lose_response("commit")

    assert post.deliver() == []

    assert post.dynamodb.names() == ["claim", "commit", "commit", "mark_sent"]
    assert (post.entry().status, len(post.sent())) == (Delivery.SENT, 1)


def test_a_commit_that_was_never_answered_leaves_its_messages_to_the_relay(both_posts: Post) -> None:
    """G8: it had landed: the next delivery replays and sends nothing, since the entry is the relay's."""
    post = both_posts
    post.send = one
    post.dynamodb.lose_response("commit", times=ATTEMPTS)
    assert post.deliver() == ["k-1"]
    assert post.deliver() == []
    assert (post.entry().status, post.sent()) == (Delivery.PENDING, [])
    post.world.clock.advance(HEAD_START_MS / 1000)

    assert post.relay() == {"sent": 1, "failed": 0, "left": 0, "overdue": 0}
    assert post.consume() == 1
    assert post.ran == [post.entry().idempotency_key]


def test_a_commit_that_lands_after_a_take_over_leaves_no_message(both_posts: Post) -> None:
    """G2, G8: of two attempts' messages only those of the one that completed exist."""
    post = both_posts
    post.send = one
    post.dynamodb.hold_back("commit", times=ATTEMPTS)
    assert post.deliver() == ["k-1"]
    post.world.clock.advance(PAST_LEASE)
    assert post.deliver() == []

    assert post.dynamodb.land() == [False] * ATTEMPTS
    assert post.entry().pk == f"{stored(post.world).claimant}-000"
    assert len(post.sent()) == 1


def test_a_duplicate_sends_nothing(post: Post) -> None:
    """G3: a replay answers with the result; what the job had to send it has sent."""
    post.send = one
    post.deliver()

    assert post.deliver() == []

    assert (len(post.entries()), len(post.sent())) == (1, 1)


@job("derived", key="order")
def derived(payload: dict[str, Any]) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("target", "options", "key"),
    [
        ("ship", {"key": "given"}, "given"),
        ("ship", {"key": 0}, "0"),
        ("derived", {"key": "given"}, "given"),
        ("derived", {}, "o-1"),
        (derived, {}, "o-1"),
        ("ship", {}, None),
    ],
)
def test_a_key_is_given_or_selected_or_made_of_the_senders(
    post: Post, target: Any, options: dict[str, Any], key: str | None
) -> None:
    """In that order; the job is told which, and every copy of the message carries it."""
    post.app = post.world.app(post.pay, post.ship, derived, runtime=post.runtime)
    told: list[str] = []
    post.send = lambda ctx: told.append(ctx.send(target, {"order": "o-1"}, **options))

    assert post.deliver() == []

    assert [envelope["idempotency_key"] for envelope in post.envelopes()] == told
    assert post.entry().idempotency_key == told[0]
    if key is None:
        assert told[0].startswith("k-1.0-")
        assert len(told[0]) == len("k-1.0-") + 64
    else:
        assert told == [key]


def test_made_keys_are_the_same_on_every_attempt_and_differ_for_every_message(post: Post) -> None:
    """The order of sending names them: an attempt that is repeated sends the same jobs, and no two share a key."""
    told: dict[int, list[str]] = {}

    def send(ctx: Context) -> None:
        told[ctx.attempt] = [ctx.send("ship", {"number": number}) for number in range(3)]
        told[ctx.attempt].append(ctx.send("track", {}, group="g"))
        if ctx.attempt < 3:
            raise Retry(1)

    post.send = send
    for _ in range(3):
        post.deliver()
        post.world.clock.advance(2)

    assert told[1] == told[2] == told[3]
    assert len(set(told[1])) == 4
    assert sorted(entry.idempotency_key for entry in post.entries()) == sorted(told[3])


def test_a_message_with_a_key_of_its_own_counts_in_the_order_of_sending(post: Post) -> None:
    """A made key depends on how many messages came before it, and not on how their keys were found."""
    told: list[str] = []

    def send(ctx: Context) -> None:
        told.append(ctx.send("ship", {}, key="given"))
        told.append(ctx.send("ship", {}))

    post.send = send
    post.deliver()

    assert told[1].startswith("k-1.1-")


def test_different_jobs_make_different_keys(world: World) -> None:
    """Job type and key go into the digest: the same message sent by another job is another job."""
    keys: list[str] = []

    @job("refund")
    def refund(payload: dict[str, Any], ctx: Context) -> None:
        keys.append(one(ctx))

    post = Post(world)
    post.send = lambda ctx: keys.append(one(ctx))
    app = world.app(post.pay, refund, post.ship, runtime=post.runtime)
    long = "k" * 300
    for job_type, key in [("pay", "k-1"), ("pay", "k-2"), ("refund", "k-1"), ("pay", long), ("pay", f"{long}2")]:
        app.consumer(event_of(world.message(job_type, key=key)), FakeLambdaContext())

    assert len(set(keys)) == 5
    assert max(map(len, keys)) <= 200


def test_a_renamed_job_type_makes_the_same_keys(world: World) -> None:
    """The oldest name stands in the digest, so a deployment between two attempts does not send another job."""
    post, keys = Post(world, formerly=("settle",)), []
    post.send = lambda ctx: keys.append(one(ctx))
    post.deliver("k-1")

    @job("settle")
    def settle(payload: dict[str, Any], ctx: Context) -> None:
        keys.append(one(ctx))

    other = world.app(settle, post.ship, runtime=post.runtime)
    world.dynamodb.delete_item(TableName=world.settings.claims_table, Key={"pk": {"S": "settle#k-1"}})
    other.consumer(event_of(world.message("settle", key="k-1")), FakeLambdaContext())

    assert len(keys) == 2
    assert keys[0] == keys[1]


def hops_of(post: Post) -> list[int]:
    """Return the hops in every envelope that SQS was given, however it was sent."""
    bodies = [
        entry["MessageBody"]
        for call in post.sqs.calls
        for entry in call.request.get("Entries", [call.request])
        if call.name in ("send_message", "send_message_batch")
    ]
    return [json.loads(body).get("hops", 0) for body in bodies]


def with_hops(post: Post, job_type: str, hops: int) -> dict[str, Any]:
    """Return a message that was sent on so often."""
    envelope = json.loads(post.world.message(job_type)["body"]) | {"hops": hops}
    return post.world.raw(json.dumps(envelope))


def test_what_a_job_sends_is_one_hop_further_however_it_is_sent(post: Post) -> None:
    """`send`, `enqueue` and `enqueue_with`, in the job's own thread and in threads that it starts by asyncio."""

    @job("sync")
    def sync(payload: dict[str, Any], ctx: Context) -> None:
        ctx.send("ship", {})
        app.enqueue("ship", {})
        app.enqueue_with([], "ship", {})

    @job("later")
    async def later(payload: dict[str, Any], ctx: Context) -> None:
        ctx.send("ship", {})
        app.enqueue("ship", {})
        await asyncio.to_thread(ctx.send, "ship", {})
        await asyncio.to_thread(app.enqueue, "ship", {})
        await asyncio.gather(asyncio.to_thread(app.enqueue, "ship", {}), asyncio.sleep(0))

    app = post.world.app(sync, later, post.ship, runtime=post.runtime)
    for name, count in (("sync", 3), ("later", 5)):
        post.sqs.calls.clear()
        assert kept(app.consumer(event_of(with_hops(post, name, 7)), FakeLambdaContext())) == []
        assert hops_of(post) == [8] * count


def test_what_a_job_sends_from_a_thread_of_its_own_is_one_hop_further_too(post: Post) -> None:
    """A pool knows nothing of the job that uses it; the context does, or a chain through a pool would never end."""

    def send(ctx: Context) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(ctx.send, "ship", {}).result()

    post.send = send
    post.app.consumer(event_of(with_hops(post, "pay", 7)), FakeLambdaContext())

    assert hops_of(post) == [8]


def test_what_is_sent_outside_a_job_starts_a_chain(post: Post) -> None:
    """Before any job, between two, and after them in the very threads that ran them: no hop."""
    app = post.app
    app.enqueue("ship", {})
    app.enqueue_with([], "ship", {})
    post.deliver()
    app.consumer(event_of(with_hops(post, "pay", 7)), FakeLambdaContext())
    app.enqueue("ship", {})
    app.enqueue_with([], "ship", {})

    assert hops_of(post) == [0] * 4
    assert all("hops" not in envelope for envelope in post.envelopes())


def test_the_jobs_of_one_batch_count_their_own_hops(post: Post) -> None:
    """Several run at once in the threads of one pool, a sync and an async one among them."""

    @job("later")
    async def later(payload: dict[str, Any], ctx: Context) -> None:
        await asyncio.sleep(0)
        ctx.send("ship", {"of": ctx.key})

    @job("sync")
    def sync(payload: dict[str, Any], ctx: Context) -> None:
        ctx.send("ship", {"of": ctx.key})

    app = post.world.app(later, sync, post.ship, runtime=post.runtime)
    messages = []
    for number in range(10):
        name = "later" if number % 2 else "sync"
        envelope = json.loads(post.world.message(name, key=f"k-{number}")["body"])
        messages.append(post.world.raw(json.dumps(envelope | {"hops": number})))

    assert kept(app.consumer(event_of(*messages), FakeLambdaContext())) == []

    found = {envelope["payload"]["of"]: envelope["hops"] for envelope in post.envelopes()}
    assert found == {f"k-{number}": number + 1 for number in range(10)}


def test_a_runaway_chain_ends_with_the_reason_in_the_dead_letter_queue(world: World) -> None:
    """A loop ends at ``ONCEQ_MAX_HOPS``: what is beyond it is refused, and its keys have stayed short until then."""
    post, keys = Post(world, settings={"max_hops": 30}), []
    post.send = lambda ctx: keys.append(ctx.send("pay", {}))
    post.app.enqueue("pay", {}, key="k-1")

    while post.consume():
        pass

    assert len(keys) == len(set(keys)) == 31
    assert max(map(len, keys)) <= 200
    [letter] = world.dead_letters()
    assert json.loads(letter["Body"])["hops"] == 31
    assert "sent on 31 times, and at most 30 are allowed" in letter["note"]["reason"]
    assert [entry.status for entry in post.entries()] == ["sent"] * 31


@pytest.mark.parametrize("hops", [999, 1_000, 1_001])
def test_a_chain_may_be_a_thousand_hops_long(post: Post, hops: int) -> None:
    """The default: long enough for pages of anything, and an end."""
    post.send = one

    assert kept(post.app.consumer(event_of(with_hops(post, "pay", hops)), FakeLambdaContext())) == []

    assert hops_of(post)[:1] == ([hops + 1] if hops <= 1_000 else [hops])  # the copy is as it came
    assert len(post.world.dead_letters()) == (0 if hops <= 1_000 else 1)
    assert len(post.entries()) == (1 if hops <= 1_000 else 0)


def test_a_payload_is_sent_as_it_was_when_it_was_sent(post: Post) -> None:
    """It is sealed where it is sent: what the job makes of its dict afterwards is not in the message."""
    payload = {"state": "new"}

    def send(ctx: Context) -> None:
        ctx.send("ship", payload)
        payload["state"] = "changed"

    post.send = send
    post.deliver()

    assert [envelope["payload"] for envelope in post.envelopes()] == [{"state": "new"}]


def test_what_a_batch_staged_is_sent_when_its_messages_are_settled(post: Post) -> None:
    """Copies and visibility changes first, since without the answer everything comes back; then one batch for all."""

    def send(ctx: Context) -> None:
        if ctx.key == "bad":
            raise Reject("no")
        if ctx.key == "slow":
            raise Retry(60)
        one(ctx)

    post.send = send

    assert post.deliver("k-1", "bad", "slow", "k-2", "k-3") == ["slow"]

    assert [call.name for call in post.sqs.calls] == [
        "send_message_batch",
        "change_message_visibility_batch",
        "send_message_batch",
    ]
    copies = post.sqs.calls[0].request["Entries"]
    [messages] = post.requests()
    assert [json.loads(message["MessageBody"])["idempotency_key"] for message in copies] == ["bad"]
    assert [json.loads(message["MessageBody"])["payload"]["order"] for message in messages] == ["k-1", "k-2", "k-3"]


def test_messages_go_in_batches_of_ten_and_of_one_mebibyte(post: Post) -> None:
    """SQS takes ten entries and 1 MiB in one request; every entry is sent once and marked."""

    def send(ctx: Context) -> None:
        size = 300_000 if ctx.key == "large" else 10
        for number in range(9 if ctx.key == "large" else 12):
            ctx.send("ship", {"text": "x" * size, "number": number})

    post.send = send

    assert post.deliver("large", "small") == []

    sizes = [sum(len(message["MessageBody"].encode()) for message in request) for request in post.requests()]
    assert max(sizes) <= MAX_BYTES
    assert [len(request) for request in post.requests()] == [3, 3, 10, 5]
    assert {entry.status for entry in post.entries()} == {Delivery.SENT}
    assert len({message["Id"] for message in post.sent()}) == 21


def test_nothing_is_sent_when_the_time_is_short(post: Post) -> None:
    """The answer is worth more: the entry waits for the relay, and no attempt at sending it is counted."""
    context = FakeLambdaContext()

    def send(ctx: Context) -> None:
        one(ctx)
        context.remaining_ms = 2_900

    post.send = send

    assert post.deliver(context=context) == []

    assert (post.sent(), post.entry().status, post.entry().attempts) == ([], Delivery.PENDING, 0)
    post.world.clock.advance(HEAD_START_MS / 1000)
    assert post.relay()["sent"] == 1


def test_a_queue_that_fails_costs_the_job_nothing(post: Post) -> None:
    """The job is completed and its message acknowledged; the entry says why it waits, and the relay sends it."""
    post.send = one
    post.sqs.refuse("send_message_batch", "AWS.SimpleQueueService.NonExistentQueue")

    assert post.deliver() == []

    entry = post.entry()
    assert (entry.status, entry.attempts) == (Delivery.PENDING, 1)
    assert "NonExistentQueue" in (entry.error or "")
    assert entry.next_at == NOW + 1_000
    [told] = post.told("outbox.failed")
    assert (told["entry"], told["attempts"], told["error"]) == (entry.pk, 1, entry.error)
    post.world.clock.advance(1)
    assert post.relay()["sent"] == 1
    assert (post.entry().status, post.entry().attempts, post.entry().error) == (Delivery.SENT, 2, None)


def test_a_fault_while_sending_does_not_cost_the_batch_its_answer(post: Post) -> None:
    """G5: what was committed is the relay's; without the answer every message of the batch would come back."""
    post.send = one

    def break_down(call: Any) -> Any:
        raise RuntimeError("a fault nobody thought of")

    post.sqs.plan("send_message_batch", break_down, times=10)

    assert post.deliver("k-1", "k-2") == []

    assert [entry.status for entry in post.entries()] == [Delivery.PENDING] * 2


@pytest.mark.parametrize("fault", ["lost", "never applied"])
def test_a_mark_that_is_not_answered_once_is_written_once(post: Post, fault: str) -> None:
    """G11: the mark goes again and is recognised: the entry is sent once."""
    post.send = one
    {"lost": post.dynamodb.lose_response, "never applied": post.dynamodb.drop}[fault]("mark_sent")

    assert post.deliver() == []

    assert (post.entry().status, post.entry().attempts, len(post.sent())) == (Delivery.SENT, 1, 1)


def test_a_mark_that_cannot_be_written_means_a_second_message_of_the_same_job(post: Post) -> None:
    """Sending twice is harmless: the relay sends it under the same key, and the receiver runs once."""
    post.send = one
    post.dynamodb.drop("mark_sent", times=ATTEMPTS)
    assert post.deliver() == []
    assert post.told("outbox.not_marked")[0]["entry"] == post.entry().pk
    post.world.clock.advance(HEAD_START_MS / 1000)

    assert post.relay()["sent"] == 1

    assert post.consume() == 2
    assert post.ran == [post.entry().idempotency_key]


def test_a_job_sends_to_a_fifo_queue_in_order_under_ids_that_stay(both_posts: Post) -> None:
    """Group and deduplication id go along: the entry's own id, so that sending it again is one message to SQS."""
    post = both_posts
    post.send = lambda ctx: [ctx.send("track", {"number": number}, group="g") for number in range(12)] and None

    assert post.deliver() == []

    assert [message["MessageDeduplicationId"] for message in post.sent()] == [entry.pk for entry in post.entries()]
    assert {message["MessageGroupId"] for message in post.sent()} == {"g"}
    assert all("DelaySeconds" not in message for message in post.sent())
    received = post.receive("ordered")
    assert [json.loads(message["Body"])["payload"]["number"] for message in received] == list(range(12))


def test_a_message_may_go_to_another_queue_than_its_job_types(post: Post) -> None:
    """``queue=`` places it; the entry keeps the queue's name, so a URL that changes before it is sent does no harm."""
    post.send = lambda ctx: ctx.send("ship", {}, queue="ordered", group="g", delay=60)
    assert post.deliver() == []
    assert post.entry().queue == "ordered"
    post.world.clock.advance(60)

    assert post.relay()["sent"] == 1

    assert [len(post.receive(name)) for name in ("default", "ordered")] == [0, 1]


def test_a_group_on_a_standard_queue_is_passed_on(post: Post) -> None:
    """There it marks a tenant, and a message may be delayed."""
    post.send = lambda ctx: ctx.send("ship", {}, group="tenant-1", delay=5)

    assert post.deliver() == []

    [message] = post.sent()
    assert (message["MessageGroupId"], message["DelaySeconds"]) == ("tenant-1", 5)
    assert "MessageDeduplicationId" not in message


@dataclass(frozen=True)
class Slow:
    number: int

    def __post_init__(self) -> None:
        """Take a moment to be read, so that threads that seal at once meet."""
        time.sleep(0.005)


@job("slow")
def slow(payload: Slow) -> None:
    """Do nothing."""


def test_threads_that_send_at_once_send_different_messages(post: Post) -> None:
    """A job may send from several threads: each message is there once, under an id and a key of its own."""
    post.app = post.world.app(post.pay, slow, runtime=post.runtime)

    def send(ctx: Context) -> None:
        all_at_once([lambda number=number: ctx.send("slow", {"number": number}) for number in range(16)])  # type: ignore[misc]

    post.send = send

    assert post.deliver() == []

    assert {json.loads(entry.body)["payload"]["number"] for entry in post.entries()} == set(range(16))
    assert len({entry.idempotency_key for entry in post.entries()}) == 16


@job("unlisted")
def unlisted(payload: dict[str, Any]) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Parcel:
    weight: int


@job("parcel")
def parcel(payload: Parcel) -> None:
    """Do nothing."""


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "too large for SQS": (("ship", {"a": "x" * MAX_BYTES}), {}, EnqueueRefused, "the outbox takes 380000"),
    "too large for the outbox": (("ship", {"a": "x" * MAX_BODY_BYTES}), {}, EnqueueRefused, "the outbox takes 380000"),
    "too large in bytes": (("ship", {"a": "é" * 190_000}), {}, EnqueueRefused, "the outbox takes 380000"),
    "no group on a FIFO queue": (("track", {}), {}, EnqueueRefused, "is FIFO: give group="),
    "a group with a space": (("track", {}), {"group": "a b"}, EnqueueRefused, "printable ASCII"),
    "an empty group": (("ship", {}), {"group": ""}, EnqueueRefused, "printable ASCII"),
    "NaN": (("ship", {"a": float("nan")}), {}, EnqueueRefused, "NaN and the infinities are not JSON"),
    "no JSON": (("ship", {"a": object()}), {}, EnqueueRefused, "cannot be written as JSON"),
    "a blank key": (("ship", {}), {"key": " "}, EnqueueRefused, "the idempotency key is blank"),
    "a bool as key": (("ship", {}), {"key": True}, EnqueueRefused, "is a bool"),
    "a key that is too long": (("ship", {}), {"key": "k" * 8_193}, EnqueueRefused, "at most 8192"),
    "a placeholder": (("ship", {}), {"key": "n-<aws.scheduler.scheduled-time>"}, EnqueueRefused, "EventBridge"),
    "a payload that does not fit": (("parcel", {"weight": "x"}), {}, EnqueueRefused, "the payload does not fit"),
    "an unknown job type": (("shop", {}), {}, ConfigurationError, "did you mean 'ship'"),
    "a job type nobody serves": ((unlisted, {}), {}, ConfigurationError, "is not in the App's list"),
    "no job type": ((5, {}), {}, EnqueueRefused, "is not a job type"),
    "an unknown queue": (("ship", {}), {"queue": "reports"}, ConfigurationError, "'reports' is not in ONCEQ_QUEUES"),
    "a delay below zero": (("ship", {}), {"delay": -1}, EnqueueRefused, "a delay is a number of seconds"),
    "a delay of ten years": (("ship", {}), {"delay": LONGEST_OUTBOX_DELAY + 1}, EnqueueRefused, "a delay is a number"),
    "NaN as a delay": (("ship", {}), {"delay": float("nan")}, EnqueueRefused, "a delay is a number of seconds"),
    "a delay in words": (("ship", {}), {"delay": "soon"}, EnqueueRefused, "a delay is a number of seconds"),
}


@pytest.mark.parametrize(("arguments", "options", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_what_nobody_would_take_is_refused_where_it_is_sent(
    post: Post, arguments: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    """The error is raised in the job, which may go on: nothing of it is staged; the next message takes its number."""
    post.app = post.world.app(post.pay, post.ship, post.track, parcel, runtime=post.runtime)

    def send(ctx: Context) -> str:
        with pytest.raises(error, match=said):
            ctx.send(*arguments, **options)
        assert ctx.sent == []
        return one(ctx)

    post.send = send

    assert post.deliver() == []

    assert post.entry().pk.endswith("-000")
    assert len(post.sent()) == 1


def test_a_message_that_just_fits_the_outbox_is_taken(both_posts: Post) -> None:
    """The limit leaves room for the key and the rest of the entry: an item of 400 KB, and SQS takes it too."""
    post = both_posts
    overhead = len(post.world.message("ship", {"a": ""}, key="k" * 8_192)["body"]) + 40
    text = "x" * (MAX_BODY_BYTES - overhead)
    post.send = lambda ctx: ctx.send("ship", {"a": text}, key="k" * 8_192) and None

    assert post.deliver() == []

    assert post.entry().status == "sent"
    assert MAX_BODY_BYTES - 100 < len(post.entry().body) <= MAX_BODY_BYTES


def test_without_an_outbox_table_sending_from_a_job_is_a_clear_error(world: World) -> None:
    """ONCEQ_OUTBOX_TABLE is named; the job has not completed, and one that sends nothing does not need it."""
    post = Post(world, settings={"outbox_table": ""})
    post.send = one

    assert post.deliver() == ["k-1"]

    assert stored(world).error == (
        "ConfigurationError: ONCEQ_OUTBOX_TABLE is not set: name the outbox table (template.yaml does)"
    )
    post.send = lambda _: None
    assert post.deliver("k-2") == []
    with pytest.raises(ConfigurationError, match="ONCEQ_OUTBOX_TABLE is not set"):
        post.relay()
    with pytest.raises(ConfigurationError, match="ONCEQ_OUTBOX_TABLE is not set"):
        post.app.enqueue_with([], "ship", {})


@pytest.mark.parametrize(
    ("delay", "with_delay_seconds"),
    [
        (0, 0),
        (0.2, 1),
        (5, 5),
        (timedelta(seconds=5), 5),
        (59, 59),
        (60, 60),
        (60.5, None),
        (61, None),
        (900, None),
        (901, None),
        (timedelta(days=30), None),
        (timedelta(days=365), None),
    ],
)
def test_what_is_due_before_the_relay_comes_again_is_sent_at_once(
    post: Post, delay: Any, with_delay_seconds: int | None
) -> None:
    """Up to 60 s it is sent with SQS's own delay; what waits longer stays in the outbox until shortly before."""
    post.send = lambda ctx: ctx.send("ship", {}, delay=delay)

    assert post.deliver() == []

    entry, seconds = post.entry(), delay.total_seconds() if isinstance(delay, timedelta) else delay
    assert entry.due_at == NOW + seconds * 1000
    if with_delay_seconds is not None:
        assert [message.get("DelaySeconds", 0) for message in post.sent()] == [with_delay_seconds]
        assert entry.status == "sent"
        return
    assert (post.sent(), entry.status) == ([], "pending")
    assert entry.next_at == max(entry.due_at - LOOK_AHEAD_MS, NOW + HEAD_START_MS)
    post.world.clock.advance((entry.next_at - NOW - 1) / 1000)
    assert post.relay()["sent"] == 0
    post.world.clock.advance(0.001)
    assert post.relay()["sent"] == 1
    [message] = post.sent()
    # Never before its time, and not later than a second after it.
    visible_at = post.world.clock.now_ms() + 1000 * message["DelaySeconds"]
    assert 0 <= visible_at - entry.due_at < 1000


@pytest.mark.parametrize("delay", [5, 60, timedelta(days=30)])
def test_a_delay_on_a_fifo_queue_waits_in_the_outbox_to_its_end(post: Post, delay: Any) -> None:
    """SQS takes no delay for a single message there, so it is sent when it is due, and not a second before."""
    post.send = lambda ctx: ctx.send("track", {}, group="g", delay=delay)

    assert post.deliver() == []

    entry = post.entry()
    assert (post.sent(), entry.status) == ([], "pending")
    assert entry.next_at == max(entry.due_at, NOW + HEAD_START_MS)
    post.world.clock.advance((entry.next_at - NOW - 1) / 1000)
    assert post.relay()["sent"] == 0
    post.world.clock.advance(0.001)
    assert post.relay()["sent"] == 1
    assert "DelaySeconds" not in post.sent()[0]


def test_the_relay_leaves_what_was_just_committed_to_its_consumer(post: Post) -> None:
    """For 30 s: else both would send, which is harmless and not free."""
    context = FakeLambdaContext()

    def send(ctx: Context) -> None:
        one(ctx)
        context.remaining_ms = 2_000

    post.send = send
    post.deliver(context=context)

    post.world.clock.advance(HEAD_START_MS / 1000 - 0.001)
    assert (post.relay()["sent"], post.sent()) == (0, [])
    post.world.clock.advance(0.001)
    assert post.relay()["sent"] == 1


def test_an_async_job_sends_like_any_other(both_posts: Post) -> None:
    """Staged in a coroutine, and in a thread that it waits for, in the order of sending."""
    post = both_posts

    @job("later")
    async def later(payload: dict[str, Any], ctx: Context) -> list[str]:
        first = ctx.send("ship", {"number": 0})
        await asyncio.sleep(0)
        return [first, await asyncio.to_thread(ctx.send, "ship", {"number": 1})]

    app = post.world.app(later, post.ship, runtime=post.runtime)
    assert kept(app.consumer(event_of(post.world.message("later")), FakeLambdaContext())) == []

    status = app.lookup("later", "k-1")
    assert status is not None
    assert status.result == [envelope["idempotency_key"] for envelope in post.envelopes()]
    assert [envelope["payload"]["number"] for envelope in post.envelopes()] == [0, 1]
