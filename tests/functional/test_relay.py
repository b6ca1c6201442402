"""The relay: sends what is due in the outbox and was not sent, at least once, whatever one of the queues does."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ReadTimeoutError

from kit.claims import NOW
from kit.clock import FakeLambdaContext, RunningContext
from kit.faults import client_error
from kit.post import Post, die, entries_of, stand
from kit.racing import all_at_once, eager_switching
from kit.seams import SimulatedCrash
from kit.world import OUTBOX_TABLE
from onceq.client import ATTEMPTS
from onceq.errors import StoreError
from onceq.message import seal
from onceq.outbox import HEAD_START_MS, LONGEST_PAUSE_MS, SHARDS, OutboxEntry, shard_of
from onceq.relay import MOST_FAILURES
from onceq.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.faults import Call
    from kit.world import World
    from onceq import Context

GONE = QueueSettings("gone", "https://sqs.us-east-1.amazonaws.com/123456789012/GoneQueue")
DAY = 86_400


@pytest.fixture
def post(world: World) -> Post:
    """The app on moto, with a queue in its settings that is gone."""
    return Post(world, settings={"queues": {**world.settings.queues, "gone": GONE}})


@pytest.fixture
def both_posts(both_worlds: World) -> Post:
    """The app on moto and on ministack."""
    return Post(both_worlds)


def waiting(token: str = "w", number: int = 0, **changes: Any) -> OutboxEntry:
    """Return an entry that was committed a while ago and is due."""
    target = "track" if changes.get("queue") == "ordered" else "ship"
    key = f"{token}.{number}"
    body = seal(job_type=target, idempotency_key=key, payload={"number": number}, created_at="2026-11-29T12:00:00Z")
    entry = OutboxEntry(
        pk=f"{token}-{number:03}",
        job_type=target,
        idempotency_key=key,
        queue="default",
        body=body,
        created_at=NOW - 60_000,
        due_at=NOW - 60_000,
        shard=shard_of(token),
        next_at=NOW - HEAD_START_MS,
    )
    return replace(entry, **changes)


def in_shard(shard: int, name: str = "w") -> str:
    """Return a token whose transaction lies in that shard."""
    return next(token for number in range(10_000) if shard_of(token := f"{name}{number}") == str(shard))


def numbers(messages: list[dict[str, Any]], body: str = "Body") -> list[int]:
    """Return the numbers in the payloads of messages."""
    return [json.loads(message[body])["payload"]["number"] for message in messages]


def statuses(post: Post) -> Counter[str]:
    """Return how many entries are pending and sent."""
    return Counter(str(entry.status) for entry in post.entries())


def test_an_empty_outbox_costs_a_query_for_each_shard(post: Post) -> None:
    """Eight requests a minute and nothing else."""
    assert post.relay() == {"sent": 0, "failed": 0, "left": 0, "overdue": 0}

    assert post.dynamodb.names() == ["query"] * SHARDS
    assert post.sqs.calls == []
    assert post.told("relay.ended")[0].items() >= {"sent": 0, "failed": 0, "left": 0, "seconds": 0}.items()


def test_everything_that_is_due_is_sent_and_marked_whatever_its_shard(both_posts: Post) -> None:
    """G8: what a crash left behind is sent within one run; the next one finds nothing, since it has left the index."""
    post = both_posts
    tokens = [in_shard(shard) for shard in range(SHARDS)]
    stand(post.world, *(waiting(token, number) for token in tokens for number in range(3)))
    stand(post.world, waiting("later", due_at=NOW + 61_000, next_at=NOW + 1_000))

    assert post.relay() == {"sent": 24, "failed": 0, "left": 0, "overdue": 0}

    assert statuses(post) == {"sent": 24, "pending": 1}
    for entry in post.entries():
        if entry.status == "sent":
            assert (entry.attempts, entry.sent_at, entry.expires_at) == (1, NOW, NOW // 1000 + 7 * DAY)
            assert (entry.shard, entry.next_at, entry.error) == (None, None, None)
    assert {entry.message_id for entry in post.entries()} - {None} == {
        message["MessageId"] for message in post.receive()
    }
    assert post.relay()["sent"] == 0


def test_a_shard_of_more_than_a_page_is_sent_in_one_run(both_posts: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page after page, also where all entries have one time."""
    monkeypatch.setattr("onceq.relay.PAGE", 10)
    post = both_posts
    stand(post.world, *(waiting("w", number) for number in range(25)), waiting(in_shard(6)))

    assert post.relay()["sent"] == 26

    assert statuses(post) == {"sent": 26}
    assert sorted(numbers(post.sent(), "MessageBody")) == [0, *range(25)]
    assert post.dynamodb.names().count("query") == SHARDS + 2


def test_the_longest_waiting_are_sent_first(post: Post) -> None:
    """By the time they were due, then in the order they were staged."""
    late, later, last = waiting("w", 2, due_at=NOW - 90_000), waiting("w", 1), waiting("w", 3)
    stand(post.world, last, later, late)

    post.relay()

    assert numbers(post.sent(), "MessageBody") == [2, 1, 3]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["send_message_batch", "mark_sent"])
def test_a_relay_that_dies_sends_again_and_the_receiver_runs_once(both_posts: Post, name: str, when: str) -> None:
    """G8: at least once, under one key: the second message is a replay."""
    post = both_posts
    stand(post.world, waiting())
    die(post.sqs if name == "send_message_batch" else post.dynamodb, name, when)
    with pytest.raises(SimulatedCrash):
        post.relay()

    again = post.relay()["sent"]

    assert again == (0 if (name, when) == ("mark_sent", "after") else 1)
    assert post.entry().status == "sent"
    assert post.consume() == (2 if (name, when) in [("send_message_batch", "after"), ("mark_sent", "before")] else 1)
    assert post.ran == ["w.0"]


def test_a_message_that_is_sent_twice_to_a_fifo_queue_is_one_message(both_posts: Post) -> None:
    """The deduplication id is the entry's own, so SQS itself swallows the second one."""
    post = both_posts
    stand(post.world, waiting(queue="ordered", group="g"))
    die(post.sqs, "send_message_batch", "after")
    with pytest.raises(SimulatedCrash):
        post.relay()

    assert post.relay()["sent"] == 1

    assert [message["MessageDeduplicationId"] for message in post.sent()] == ["w-000"] * 2
    assert len(post.receive("ordered")) == 1


@pytest.mark.parametrize("fault", ["lost", "never applied"])
def test_a_mark_that_is_not_answered_once_is_written_once(post: Post, fault: str) -> None:
    """G11: it goes again and is recognised."""
    stand(post.world, waiting())
    {"lost": post.dynamodb.lose_response, "never applied": post.dynamodb.drop}[fault]("mark_sent")

    assert post.relay()["sent"] == 1

    assert (post.entry().status, post.entry().attempts) == ("sent", 1)
    assert post.relay()["sent"] == 0


def test_a_mark_that_arrives_late_changes_nothing(post: Post) -> None:
    """What the next run sent and marked stays as it marked it."""
    stand(post.world, waiting())
    post.dynamodb.hold_back("mark_sent", times=ATTEMPTS)
    assert post.relay()["sent"] == 1
    assert post.told("outbox.not_marked")[0]["entry"] == "w-000"
    post.world.clock.advance(60)
    assert post.relay()["sent"] == 1
    marked = post.entry()

    assert post.dynamodb.land() == [False] * ATTEMPTS
    assert post.entry() == marked
    assert marked.sent_at is not None
    assert marked.sent_at >= NOW + 60_000


def test_a_failure_that_is_written_late_does_not_bring_a_sent_entry_back(post: Post) -> None:
    """PENDING: the late mark of a run that failed is refused once another one has sent it."""
    stand(post.world, waiting())
    post.sqs.refuse("send_message_batch", "AccessDenied")
    post.dynamodb.hold_back("mark_failed", times=ATTEMPTS)
    assert post.relay()["failed"] == 1
    assert post.relay()["sent"] == 1
    sent = post.entry()

    assert post.dynamodb.land() == [False] * ATTEMPTS
    assert post.entry() == sent
    assert post.relay()["sent"] == 0


def test_an_entry_that_was_deleted_meanwhile_stays_deleted(post: Post) -> None:
    """Its mark is refused: half an entry would come back in every run."""
    stand(post.world, waiting())
    gone = {"TableName": OUTBOX_TABLE, "Key": {"pk": {"S": "w-000"}}}
    post.dynamodb.before("mark_sent", lambda: post.world.dynamodb.delete_item(**gone))

    assert post.relay()["sent"] == 1

    assert post.entries() == []


def test_a_consumer_and_the_relay_that_meet_send_one_job(both_posts: Post) -> None:
    """A consumer that was slow for 30 s sends beside the relay: one mark stands, and the receiver runs once."""
    post = both_posts
    relay = Post(post.world)

    def in_between() -> None:
        post.world.clock.advance(HEAD_START_MS / 1000)
        assert relay.relay()["sent"] == 1

    post.sqs.before("send_message_batch", in_between)
    post.send = lambda ctx: ctx.send("ship", {"number": 1})

    assert post.deliver() == []

    entry = post.entry()
    messages = {message["MessageId"]: message for message in post.receive()}
    assert len(messages) == 2
    assert (entry.status, entry.attempts, entry.message_id in messages) == ("sent", 1, True)
    assert {json.loads(message["Body"])["idempotency_key"] for message in messages.values()} == {entry.idempotency_key}
    for message in messages.values():
        post.app.enqueue("ship", json.loads(message["Body"])["payload"], key=entry.idempotency_key)
    post.consume()
    assert post.ran == [entry.idempotency_key]


def test_relays_that_race_send_everything_and_each_job_runs_once(both_posts: Post) -> None:
    """G8: four runs at once over the same entries: each entry is marked once, and no message is lost."""
    post, entries = both_posts, [waiting(in_shard(shard), number) for shard in range(SHARDS) for number in range(5)]
    stand(post.world, *entries)
    relays = [Post(post.world) for _ in range(4)]

    with eager_switching():
        sent = all_at_once([lambda relay=relay: relay.relay()["sent"] for relay in relays])  # type: ignore[misc]

    assert sum(sent) >= len(entries)
    assert statuses(post) == {"sent": len(entries)}
    assert {entry.attempts for entry in post.entries()} == {1}
    assert post.consume() == sum(sent)
    assert sorted(post.ran) == sorted(entry.idempotency_key for entry in entries)


def test_consumers_and_relays_that_race_send_everything(both_posts: Post) -> None:
    """G8 under load: eight consumers commit and send while two relays run; every receiver runs once."""
    keys = [f"k-{number}" for number in range(24)]
    posts = [Post(both_posts.world) for _ in range(10)]
    done = threading.Event()

    def consume(number: int) -> None:
        post = posts[number]

        def send(ctx: Context) -> None:
            ctx.send("ship", {"number": int(ctx.key[2:])})
            # So that the head start is over by the time that it is sent, as far as the relays can tell.
            post.world.clock.advance(31)

        post.send = send
        for each in range(3):
            assert post.deliver(keys[number * 3 + each]) == []

    def relay(number: int) -> None:
        while not done.is_set():
            posts[number].relay()

    def consume_all() -> None:
        try:
            all_at_once([lambda number=number: consume(number) for number in range(8)])  # type: ignore[misc]
        finally:
            done.set()

    with eager_switching():
        all_at_once([consume_all, lambda: relay(8), lambda: relay(9)])
    posts[8].world.clock.advance(60)
    posts[8].relay()

    assert statuses(both_posts) == {"sent": 24}
    both_posts.consume()
    assert len(both_posts.ran) == len(set(both_posts.ran)) == 24


def test_a_run_that_finds_no_time_sends_nothing(post: Post) -> None:
    """What it could not mark it had better not send: the entries stay as they are for the next run."""
    stand(post.world, waiting())

    assert post.relay(FakeLambdaContext(2_900))["sent"] == 0

    assert (post.sqs.calls, post.entry()) == ([], waiting())
    assert post.relay()["sent"] == 1


def test_a_run_whose_time_ends_leaves_the_rest(post: Post) -> None:
    """Entries of the other shards stay pending, unmarked and unspoilt, and the next run sends them."""
    stand(post.world, waiting(in_shard(0)), waiting(in_shard(7)))
    context = FakeLambdaContext()

    def meet(call: Call) -> Any:
        context.remaining_ms = 2_000
        return post.sqs.forward(call)

    post.sqs.plan("send_message_batch", meet)

    assert post.relay(context)["sent"] == 1
    assert statuses(post) == {"sent": 1, "pending": 1}
    [left] = [entry for entry in post.entries() if entry.status == "pending"]
    assert (left.attempts, left.error) == (0, None)
    assert post.relay() == {"sent": 1, "failed": 0, "left": 0, "overdue": 0}


def test_what_was_sent_in_the_last_second_is_not_marked_and_sent_again(post: Post) -> None:
    """No time for the mark: it is told, and the next run sends the same job once more."""
    stand(post.world, waiting())
    context = FakeLambdaContext()

    def meet(call: Call) -> Any:
        context.remaining_ms = 900
        return post.sqs.forward(call)

    post.sqs.plan("send_message_batch", meet)

    assert post.relay(context)["sent"] == 1
    assert post.told("outbox.not_marked")[0]["reason"] == "no time is left in this invocation"
    assert post.entry().status == "pending"
    assert post.relay()["sent"] == 1
    assert post.consume() == 2
    assert post.ran == ["w.0"]


def fail_url(post: Post, url: str, *, seconds: float = 0, code: str = "") -> None:
    """Let every request to a queue fail, after so many seconds: with a code, or with silence."""

    def meet(call: Call) -> Any:
        if call.request["QueueUrl"] != url:
            return post.sqs.forward(call)
        post.world.clock.advance(seconds)
        if code:
            raise client_error(code, method=call.method)
        raise ReadTimeoutError(endpoint_url=url)

    post.sqs.plan("send_message_batch", meet, times=1_000_000)


def test_an_entry_whose_queue_is_gone_stays_visible_and_holds_nobody_up(post: Post) -> None:
    """Pending, with the number of tries and the last error; entries beside it, before and behind, are sent."""
    stand(post.world, waiting("w", 0), waiting("w", 1, queue="gone"), waiting("w", 2))

    assert post.relay() == {"sent": 2, "failed": 1, "left": 0, "overdue": 0}

    sent, dead, other = post.entries()
    assert (sent.status, other.status) == ("sent", "sent")
    assert (dead.status, dead.attempts, dead.message_id, dead.expires_at) == ("pending", 1, None, None)
    assert "NonExistentQueue" in (dead.error or "")
    [told] = post.told("outbox.failed")
    assert (told["entry"], told["attempts"], told["error"]) == ("w-001", 1, dead.error)


def test_an_entry_whose_queue_is_not_in_the_settings_says_so(post: Post) -> None:
    """A queue that a deployment took out: the entry waits for one that brings it back."""
    stand(post.world, waiting("w", 0, queue="reports"), waiting("w", 1))

    assert post.relay() == {"sent": 1, "failed": 1, "left": 0, "overdue": 0}
    dead = post.entries()[0]
    assert (dead.status, dead.attempts, dead.error) == ("pending", 1, "queue 'reports' is not in ONCEQ_QUEUES")

    url = post.world.settings.queue("default").url
    known = {**post.world.settings.queues, "reports": QueueSettings("reports", url)}
    post.world.clock.advance(60)
    assert Post(post.world, settings={"queues": known}).relay()["sent"] == 1
    assert statuses(post) == {"sent": 2}


def test_an_entry_that_fails_is_tried_less_and_less_often(post: Post) -> None:
    """One that cannot be sent stays cheap: after 1, 2, 4, ... seconds, and every five minutes at last."""
    stand(post.world, waiting(queue="gone"))
    pauses = []
    for attempt in range(1, 13):
        now = post.world.clock.now_ms()
        assert post.relay()["failed"] == 1
        entry = post.entry()
        assert (entry.attempts, entry.status) == (attempt, "pending")
        assert entry.next_at is not None
        pauses.append((entry.next_at - now) // 1000)
        post.world.clock.advance((entry.next_at - now - 1) / 1000)
        assert post.relay()["failed"] == 0
        post.world.clock.advance(0.001)

    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert LONGEST_PAUSE_MS == 300_000


def test_a_group_on_a_standard_queue_does_not_keep_a_failed_entry_from_its_pause(post: Post) -> None:
    """There a group marks a tenant and is no order to be kept."""
    stand(post.world, waiting(queue="gone", group="tenant"))

    post.relay()

    assert post.entry().next_at == NOW + 1_000


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> int:
    """A page that is soon full."""
    monkeypatch.setattr("onceq.relay.PAGE", 25)
    return 25


def test_a_queue_that_fails_as_a_whole_is_left_alone_after_a_while(post: Post, page: int) -> None:
    """A hundred thousand entries of a dead queue must not eat up every run: the rest is left, untouched."""
    stand(post.world, *(waiting("w", number, queue="gone") for number in range(page + 20)))
    stand(post.world, *(waiting(in_shard(shard, "h")) for shard in range(SHARDS)))

    answer = post.relay()

    assert answer["sent"] == SHARDS
    assert MOST_FAILURES <= answer["failed"] <= page
    assert answer["left"] == page + 20 - answer["failed"]
    untouched = [entry for entry in post.entries() if entry.queue == "gone" and entry.attempts == 0]
    assert len(untouched) == answer["left"]


def test_queues_that_are_not_in_the_settings_are_left_alone_after_a_while_too(post: Post, page: int) -> None:
    """A mark costs a write: an unknown queue is told of, not written down for every entry in every run."""
    stand(post.world, *(waiting("w", number, queue="reports") for number in range(page + 20)))

    answer = post.relay()

    assert answer["failed"] <= page
    assert answer["left"] == page + 20 - answer["failed"]


def test_a_queue_that_does_not_answer_holds_nobody_up(post: Post) -> None:
    """Silence costs 2 s a request: with an entry of it in each shard the healthy ones behind are sent all the same."""
    fail_url(post, GONE.url, seconds=2)
    for shard in range(SHARDS):
        token = in_shard(shard)
        stand(post.world, waiting(token, 0, queue="gone", due_at=NOW - 90_000), waiting(token, 1))

    answer = post.relay(RunningContext(post.world.clock, 60))

    assert answer == {"sent": SHARDS, "failed": 1, "left": SHARDS - 1, "overdue": 0}
    healthy = [entry for entry in post.entries() if entry.queue == "default"]
    assert {entry.status for entry in healthy} == {"sent"}
    dead = [entry for entry in post.entries() if entry.queue == "gone"]
    assert {entry.status for entry in dead} == {"pending"}
    # One was tried; to the others nothing was done, so nothing is written down of them.
    assert sorted(entry.attempts for entry in dead) == [0] * (SHARDS - 1) + [1]


def test_a_queue_that_does_not_answer_has_a_share_of_the_time_and_no_more(post: Post) -> None:
    """Sixty of its entries in one page would take a minute of silence: after ten seconds the others have their turn."""
    fail_url(post, GONE.url, seconds=2)
    stand(post.world, *(waiting("w", each, queue="gone", due_at=NOW - 90_000) for each in range(60)))
    stand(post.world, waiting("w", 60), *(waiting(in_shard(shard, "h")) for shard in range(SHARDS)))
    started = post.world.clock.monotonic()

    assert post.relay(RunningContext(post.world.clock, 60))["sent"] == 1 + SHARDS

    assert post.world.clock.monotonic() - started < 15


def test_a_message_that_sqs_refuses_is_the_only_one_of_its_batch_that_waits(post: Post) -> None:
    """G5: SQS refuses a whole request for one entry: the others are sent one by one."""

    def meet(call: Call) -> Any:
        if any(entry["Id"] == "w-003" for entry in call.request["Entries"]):
            raise client_error("InvalidMessageContents", method=call.method)
        return post.sqs.forward(call)

    post.sqs.plan("send_message_batch", meet, times=100)
    stand(post.world, *(waiting("w", number) for number in range(10)))

    assert post.relay() == {"sent": 9, "failed": 1, "left": 0, "overdue": 0}

    [bad] = [entry for entry in post.entries() if entry.status == "pending"]
    assert (bad.pk, "InvalidMessageContents" in (bad.error or "")) == ("w-003", True)


def test_an_entry_that_sqs_answers_with_a_fault_waits_and_the_others_go(post: Post) -> None:
    """HTTP 200 with a failed entry: only that one is pending, with SQS's word."""

    def meet(call: Call) -> Any:
        bad = [entry for entry in call.request["Entries"] if entry["Id"] == "w-001"]
        good = [entry for entry in call.request["Entries"] if entry["Id"] != "w-001"]
        answer = post.sqs.forward(replace(call, request={**call.request, "Entries": good})) if good else {}
        failed = [{"Id": entry["Id"], "SenderFault": True, "Code": "Bad", "Message": "no"} for entry in bad]
        return {"Successful": answer.get("Successful", []), "Failed": failed}

    post.sqs.plan("send_message_batch", meet, times=10)
    stand(post.world, *(waiting("w", number) for number in range(3)))

    assert post.relay() == {"sent": 2, "failed": 1, "left": 0, "overdue": 0}

    assert [(entry.status, entry.error) for entry in post.entries()][1] == ("pending", "Bad: no")


def test_a_group_whose_head_is_refused_waits_as_a_whole(both_posts: Post) -> None:
    """The head keeps its place with its error, and the whole group goes in order when it is mended."""
    post = both_posts
    stand(post.world, *(waiting("g", number, queue="ordered", group="g") for number in reversed(range(25))))
    other = in_shard(int(shard_of("g")), "h")
    stand(post.world, waiting(other, 3, queue="ordered", group="h", due_at=NOW))
    broken = [True]

    def meet(call: Call) -> Any:
        if broken[0] and any(entry["Id"] == "g-000" for entry in call.request["Entries"]):
            raise client_error("InvalidMessageContents", method=call.method)
        return post.sqs.forward(call)

    post.sqs.plan("send_message_batch", meet, times=1_000)

    for attempt in (1, 2):
        answer = post.relay()
        assert answer["sent"] == (1 if attempt == 1 else 0)
        assert answer["failed"] + answer["left"] == 25
        head = next(entry for entry in post.entries() if entry.pk == "g-000")
        assert (head.status, head.attempts, head.next_at) == ("pending", attempt, NOW - HEAD_START_MS)
        assert "InvalidMessageContents" in (head.error or "")
        assert {entry.status for entry in post.entries() if entry.group == "g"} == {"pending"}
        post.world.clock.advance(60)
    broken[0] = False

    assert post.relay()["sent"] == 25

    received = post.receive("ordered")
    assert numbers([one for one in received if one["Attributes"]["MessageGroupId"] == "g"]) == list(range(25))


def test_a_group_whose_queue_did_not_answer_once_goes_in_order_later(both_posts: Post) -> None:
    """Nothing of the batch is known to have arrived: the whole group waits, and SQS knows again what it has."""
    post = both_posts
    stand(post.world, *(waiting("g", number, queue="ordered", group="g") for number in reversed(range(25))))
    post.sqs.lose_response("send_message_batch", times=ATTEMPTS)

    assert post.relay() == {"sent": 0, "failed": 25, "left": 0, "overdue": 0}
    assert post.relay()["sent"] == 25

    assert numbers(post.receive("ordered")) == list(range(25))


def in_the_worst_order(post: Post) -> Callable[[Call], Any]:
    """Return a query that orders entries of one time backwards by their ids: DynamoDB promises nothing for them."""

    def meet(call: Call) -> Any:
        values, start = call.request["ExpressionAttributeValues"], call.request.get("ExclusiveStartKey")
        shard, now, limit = values[":shard"]["S"], int(values[":now"]["N"]), call.request["Limit"]
        found = [
            (one.next_at, one.pk, one) for one in post.entries() if one.shard == shard and (one.next_at or 0) <= now
        ]
        found.sort(key=lambda one: one[1], reverse=True)
        found.sort(key=lambda one: one[0] or 0)
        if start is not None:
            at, pk = int(start["next_at"]["N"]), start["pk"]["S"]
            found = [one for one in found if (one[0] or 0) > at or (one[0] == at and one[1] < pk)]
        page = [one.to_item() for _, _, one in found[:limit]]
        return {"Items": page, **({"LastEvaluatedKey": page[-1]} if len(found) > limit else {})}

    return meet


def test_the_order_of_a_jobs_messages_is_kept_over_pages(post: Post, page: int) -> None:
    """More than a page in a shard: a transaction's messages go in the order of sending, however ties are kept."""
    tokens = ["a", in_shard(int(shard_of("a")), "b")]
    stage = post.app._producer.sealer.stage
    for token in tokens:
        for number in range(page - 5):
            staged = stage("track", {"number": number}, group="g", token=token, number=number)
            stand(post.world, staged.committed(post.world.clock.now_ms()))
    post.dynamodb.plan("query", in_the_worst_order(post), times=1_000)
    post.world.clock.advance(60)

    assert post.relay()["sent"] == 2 * (page - 5)

    ids = [message["MessageDeduplicationId"] for message in post.sent()]
    for token in tokens:
        mine = [one for one in ids if one.startswith(f"{token}-")]
        assert mine == sorted(mine)


def test_a_group_stopped_in_one_shard_is_stopped_in_the_others(post: Post) -> None:
    """Another transaction of the same group, read later in the run, does not pass the head that failed."""
    first, second = in_shard(0), in_shard(5)
    stand(post.world, waiting(first, queue="ordered", group="g"), waiting(second, queue="ordered", group="g"))
    post.sqs.refuse("send_message_batch", "InvalidMessageContents")

    answer = post.relay()

    assert answer == {"sent": 0, "failed": 1, "left": 1, "overdue": 0}
    assert [call.name for call in post.sqs.calls] == ["send_message_batch"]


@pytest.mark.parametrize(("late", "overdue"), [(299, 0), (300, 0), (301, 1), (86_400, 1)])
def test_what_is_past_due_for_too_long_is_reported(post: Post, late: int, overdue: int) -> None:
    """The alarm counts from the time a message was due, five minutes by default; what is sent late is not overdue."""
    stand(
        post.world, waiting("w", 0, queue="gone", due_at=NOW - late * 1000), waiting("w", 1, due_at=NOW - late * 1000)
    )

    answer = post.relay()

    assert (answer["sent"], answer["failed"], answer["overdue"]) == (1, 1, overdue)
    told = [(event["entries"], event["seconds"]) for event in post.told("outbox.overdue")]
    assert told == ([(1, late)] if overdue else [])
    assert post.told("relay.ended")[0]["seconds"] == late
    [sent] = post.told("outbox.sent")
    assert sent["seconds"] == late


def test_a_message_that_was_to_wait_for_a_month_is_not_overdue_when_it_is_due(post: Post) -> None:
    """From ``due_at``, and not from when it was staged."""
    stand(post.world, waiting(queue="gone", created_at=NOW - 30 * DAY * 1000, due_at=NOW))

    assert post.relay()["overdue"] == 0
    assert post.told("outbox.overdue") == []


def test_the_setting_says_how_late_is_too_late(world: World) -> None:
    """ONCEQ_OUTBOX_OVERDUE."""
    post = Post(world, settings={"outbox_overdue": 10})
    stand(world, waiting(queue="reports", due_at=NOW - 11_000))

    assert post.relay()["overdue"] == 1


def test_what_is_left_counts_as_overdue_too(post: Post, page: int) -> None:
    """A dead queue's entries that were not even tried are late all the same."""
    stand(post.world, *(waiting("w", each, queue="gone", due_at=NOW - 400_000) for each in range(page + 20)))

    answer = post.relay()

    assert answer["left"] > 0
    assert answer["overdue"] == page + 20


def test_a_table_that_takes_no_marks_loses_nothing(post: Post) -> None:
    """Everything is sent, told as not marked, and sent again when the table is back; each receiver runs once."""
    stand(post.world, *(waiting("w", number) for number in range(5)))
    post.dynamodb.drop("mark_sent", times=5 * ATTEMPTS)

    assert post.relay()["sent"] == 5

    assert len(post.told("outbox.not_marked")) == 5
    assert statuses(post) == {"pending": 5}
    assert post.relay()["sent"] == 5
    assert statuses(post) == {"sent": 5}
    assert post.consume() == 10
    assert sorted(post.ran) == [f"w.{number}" for number in range(5)]


def test_an_outbox_that_cannot_be_read_is_an_error_of_the_run(post: Post) -> None:
    """The function fails, which its alarm tells; nothing was touched."""
    stand(post.world, waiting())
    post.dynamodb.refuse("query", "AccessDeniedException")

    with pytest.raises(StoreError, match="Query was refused"):
        post.relay()

    assert post.entry() == waiting()


def test_a_query_that_is_not_answered_once_is_asked_again(post: Post) -> None:
    """A passing fault costs a moment."""
    stand(post.world, waiting())
    post.dynamodb.drop("query", times=3)

    assert post.relay()["sent"] == 1


def test_what_a_later_release_wrote_into_an_entry_stays(post: Post) -> None:
    """An attribute that this release does not know is passed over by both marks."""
    for number, queue in enumerate(("default", "gone")):
        entry = waiting("w", number, queue=queue)
        item = entry.to_item() | {"trace": {"S": "of a later release"}}
        post.world.dynamodb.put_item(TableName=OUTBOX_TABLE, Item=item)

    post.relay()

    items = post.world.dynamodb.scan(TableName=OUTBOX_TABLE)["Items"]
    assert [item["trace"] for item in items] == [{"S": "of a later release"}] * 2
    assert statuses(post) == {"sent": 1, "pending": 1}


def test_an_index_that_lags_behind_shows_a_sent_entry_and_it_stays_sent(post: Post) -> None:
    """The index follows the table by a moment: what it still shows is sent once more, and its mark stands."""
    stand(post.world, waiting())
    stale = {"Items": [waiting().to_item()]}
    shard = waiting().shard

    def lagging(call: Call) -> Any:
        if call.request["ExpressionAttributeValues"][":shard"]["S"] == shard:
            return stale
        return post.dynamodb.forward(call)

    assert post.relay()["sent"] == 1
    sent = post.entry()
    post.world.clock.advance(60)
    post.dynamodb.plan("query", lagging, times=SHARDS)

    assert post.relay()["sent"] == 1

    assert entries_of(post.world) == [sent]


def test_an_item_that_is_no_entry_is_told_as_overdue_and_the_others_go(post: Post) -> None:
    """G8: it waits, and nobody knows since when: a person must see it, and the good ones of all shards are sent."""
    good = [waiting(in_shard(shard), 1) for shard in range(SHARDS)]
    stand(post.world, *good)
    spoiled = {name: value for name, value in waiting(in_shard(0), 2).to_item().items() if name != "body"}
    post.world.dynamodb.put_item(TableName=OUTBOX_TABLE, Item=spoiled)

    assert post.relay() == {"sent": SHARDS, "failed": 0, "left": 0, "overdue": 1}
    [named] = post.told("item.unreadable")
    assert named["item"] == spoiled["pk"]["S"]
    assert [told["entries"] for told in post.told("outbox.overdue")] == [1]


def test_a_queue_that_does_not_answer_leaves_time_to_mark_and_to_answer(post: Post) -> None:
    """Lambda would stop a consumer behind its settling, and the whole batch would come again."""
    silent = replace(GONE, name="gone")
    fail_url(post, silent.url, seconds=2)
    stand(post.world, waiting(in_shard(0), 0, queue="gone"))
    context = RunningContext(post.world.clock, 9)

    assert post.relay(context)["failed"] == 1
    assert context.get_remaining_time_in_millis() >= 2_000
    assert post.entry().attempts == 1
