"""`App.enqueue_with`: a job is sent if and only if the caller's own DynamoDB writes happen (guarantee G8)."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import NOW
from kit.post import Post, die
from kit.racing import all_at_once, eager_switching
from kit.seams import SimulatedCrash
from kit.shop import ORDERS, STOCK, Line, Order, Stock, everything, is_on_moto, items, open_shop, pieces_of, put
from onceq import ConfigurationError, Enqueued, EnqueueRefused
from onceq.client import ATTEMPTS, CONTENDED_ATTEMPTS
from onceq.errors import ConditionNotMet, StoreUnavailable, TransactionContended, TransactionFailed, TransactionRefused
from onceq.outbox import HEAD_START_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.faults import Call
    from kit.world import World
    from onceq.transaction import Transaction

HOUR = 3_600


@pytest.fixture
def post(world: World) -> Post:
    """The app on moto, with a user's tables and an article of five pieces."""
    return furnished(world)


@pytest.fixture
def both_posts(both_worlds: World) -> Post:
    """The same on moto and on ministack."""
    return furnished(both_worlds)


def furnished(world: World) -> Post:
    """Create the user's tables."""
    open_shop(world)
    put(world, Stock("s-1", pieces=5))
    return Post(world)


def order(post: Post, order_id: str = "o-1") -> Transaction:
    """Return the writes of an API handler that takes an order: the order, new, and a piece of what is in stock."""
    transaction = post.app.transaction()
    transaction.save(Order(order_id), Order.order_id.does_not_exist())
    taken = [Stock.pieces.set(Stock.pieces - 1), Stock.reserved.set(Stock.reserved + 1)]
    transaction.update(Stock("s-1"), taken, Stock.pieces >= 1)
    return transaction


def test_the_job_is_sent_with_the_callers_writes(both_posts: Post) -> None:
    """One transaction, one message at once, one mark; the key and SQS's id come back."""
    post = both_posts

    sent = post.app.enqueue_with(order(post), "ship", {"order": "o-1"}, key="o-1")

    assert post.dynamodb.names() == ["commit", "mark_sent"]
    entry = post.entry()
    assert sent == Enqueued("o-1", entry.message_id)
    assert (entry.status, entry.attempts, entry.created_at, entry.due_at) == ("sent", 1, NOW, NOW)
    assert [item["order_id"]["S"] for item in items(post.world, ORDERS)] == ["o-1"]
    assert pieces_of(post.world, "s-1") == (4, 1)
    [message] = post.receive()
    assert message["MessageId"] == sent.message_id
    assert json.loads(message["Body"]) == {
        "onceq": 1,
        "job_type": "ship",
        "idempotency_key": "o-1",
        "payload": {"order": "o-1"},
        "created_at": "2026-11-29T12:00:00.000Z",
    }


def test_nothing_is_written_or_sent_when_a_condition_of_the_callers_does_not_hold(both_posts: Post) -> None:
    """All or nothing; the caller learns which write, and the item that it met."""
    post = both_posts
    put(post.world, Stock("s-1", pieces=0, supplier="secret"))
    before = everything(post.world, claims=True)

    with pytest.raises(ConditionNotMet) as caught:
        post.app.enqueue_with(order(post), "ship", {}, key="o-1")

    assert everything(post.world, claims=True) == before
    assert post.sqs.calls == []
    assert caught.value.write == "Update of StockTable {'sku': 's-1'}"
    assert caught.value.item is not None
    assert caught.value.item["pieces"] == {"N": "0"}
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, TransactionFailed)


def test_a_plain_list_of_writes_is_taken(both_posts: Post) -> None:
    """As an API handler has them that knows no pynamodb."""
    post = both_posts
    writes = [
        {
            "Put": {
                "TableName": ORDERS,
                "Item": {"order_id": {"S": "o-1"}},
                "ConditionExpression": "attribute_not_exists(order_id)",
            }
        }
    ]

    post.app.enqueue_with(writes, "ship", {}, key="o-1")

    assert [item["order_id"]["S"] for item in items(post.world, ORDERS)] == ["o-1"]
    with pytest.raises(ConditionNotMet, match="Put of OrdersTable"):
        post.app.enqueue_with(writes, "ship", {}, key="o-2")
    assert [entry.idempotency_key for entry in post.entries()] == ["o-1"]


def test_without_any_write_it_is_a_message_that_cannot_be_lost(both_posts: Post) -> None:
    """An empty transaction: the entry alone, for a long delay or an SQS that is down."""
    sent = both_posts.app.enqueue_with([], "ship", {}, key="k", delay=30 * 24 * HOUR)

    assert sent == Enqueued("k", None)
    assert (both_posts.entry().status, both_posts.sent()) == ("pending", [])


def test_a_model_has_its_new_version_after_the_commit_and_only_then(both_posts: Post) -> None:
    """As after ``model.save``: the same model can be written again."""
    post = both_posts
    model = Order("o-1")
    transaction = post.app.transaction()
    transaction.save(model)
    post.app.enqueue_with(transaction, "ship", {}, key="1")
    assert model.version == 1

    for expected in (2, 3):
        transaction = post.app.transaction()
        transaction.update(model, [Order.state.set(f"state {expected}")])
        post.app.enqueue_with(transaction, "ship", {}, key=str(expected))
        assert model.version == expected
    stale = Order("o-1", version=1)
    transaction = post.app.transaction()
    transaction.update(stale, [Order.state.set("stale")])
    with pytest.raises(ConditionNotMet, match=r"the item has \{'version': '3'\}"):
        post.app.enqueue_with(transaction, "ship", {}, key="4")

    assert stale.version == 1
    assert items(post.world, ORDERS)[0]["version"] == {"N": "3"}


def test_a_commit_whose_response_is_lost_is_recognised(both_posts: Post) -> None:
    """G11: by its token on AWS and ministack; on moto by its entry, though the caller's own condition now fails."""
    post = both_posts
    heard: list[str] = []
    post.dynamodb.lose_response("commit")

    def watch(call: Call) -> Any:
        try:
            answer = post.dynamodb.forward(call)
        except Exception as error:
            heard.append(type(error).__name__)
            raise
        heard.append("answered")
        return answer

    post.dynamodb.plan("commit", watch)

    sent = post.app.enqueue_with(order(post), "ship", {}, key="o-1")

    assert heard == ["TransactionCanceledException" if is_on_moto() else "answered"]
    assert sent.message_id is not None
    assert pieces_of(post.world, "s-1") == (4, 1)
    assert (post.entry().status, len(post.sent())) == ("sent", 1)


def test_a_commit_that_is_never_answered_may_have_happened_and_is_safe_to_repeat(both_posts: Post) -> None:
    """The caller is told; a condition of its own guards its writes, and one key makes the messages one job."""
    post = both_posts
    post.dynamodb.lose_response("commit", times=ATTEMPTS)

    with pytest.raises(StoreUnavailable):
        post.app.enqueue_with(order(post), "ship", {}, key="o-1")

    with pytest.raises(ConditionNotMet, match="Put of OrdersTable"):
        post.app.enqueue_with(order(post), "ship", {}, key="o-1")
    assert pieces_of(post.world, "s-1") == (4, 1)
    post.world.clock.advance(HEAD_START_MS / 1000)
    assert post.relay()["sent"] == 1
    post.consume()
    assert post.ran == ["o-1"]


def test_the_same_transaction_may_be_given_again_after_no_answer(post: Post) -> None:
    """What it holds is what was staged, however often it was tried: its own room is not used up by tries."""
    transaction = post.app.transaction()
    for number in range(98):
        transaction.save(Stock(f"x-{number}"))
    for _ in range(3):
        post.dynamodb.drop("commit", times=ATTEMPTS)
        with pytest.raises(StoreUnavailable):
            post.app.enqueue_with(transaction, "ship", {}, key="o-1")

    assert post.app.enqueue_with(transaction, "ship", {}, key="o-1").message_id is not None

    assert len(items(post.world, STOCK)) == 99


@pytest.mark.parametrize("number", [99, 100])
def test_ninety_nine_writes_fit_beside_the_message_and_a_hundred_do_not(both_posts: Post, number: int) -> None:
    """100 items with the entry: what DynamoDB takes is taken, and what it would not is refused by name."""
    post = both_posts
    writes = [{"Put": {"TableName": STOCK, "Item": {"sku": {"S": f"x-{each}"}}}} for each in range(number)]

    if number == 100:
        with pytest.raises(TransactionRefused, match="DynamoDB takes 100"):
            post.app.enqueue_with(writes, "ship", {}, key="o-1")
        assert (len(items(post.world, STOCK)), post.entries()) == (1, [])
        return
    post.app.enqueue_with(writes, "ship", {}, key="o-1")
    assert (len(items(post.world, STOCK)), len(post.entries())) == (100, 1)


def test_a_key_that_is_sent_again_is_one_job(both_posts: Post) -> None:
    """Two calls, two entries, two messages: the receiver runs once."""
    post = both_posts
    for _ in range(2):
        post.app.enqueue_with([], "ship", {"order": "o-1"}, key="o-1")

    assert post.consume() == 2
    assert (len(post.entries()), post.ran) == (2, ["o-1"])


def test_without_a_key_every_call_is_another_job(post: Post) -> None:
    """A new one is made, as by `enqueue`; it comes back and is in the entry."""
    keys = [post.app.enqueue_with([], "ship", {}).key for _ in range(3)]

    assert len(set(keys)) == 3
    assert {uuid.UUID(key).version for key in keys} == {7}
    assert {entry.idempotency_key for entry in post.entries()} == set(keys)


def test_a_queue_that_fails_is_the_relays(post: Post) -> None:
    """The writes have happened, so nothing is raised: the message waits, visibly, and comes a moment later."""
    post.sqs.refuse("send_message_batch", "AWS.SimpleQueueService.NonExistentQueue")

    assert post.app.enqueue_with(order(post), "ship", {}, key="o-1") == Enqueued("o-1", None)

    entry = post.entry()
    assert (entry.status, entry.attempts) == ("pending", 1)
    assert "NonExistentQueue" in (entry.error or "")
    post.world.clock.advance(1)
    assert post.relay()["sent"] == 1
    assert post.consume() == 1


def test_a_fault_after_the_commit_is_not_told_as_a_failure(post: Post) -> None:
    """The caller must not think that nothing happened: its order stands, and the relay sends the job."""

    def break_down(call: Call) -> Any:
        raise RuntimeError("a fault nobody thought of")

    post.sqs.plan("send_message_batch", break_down, times=10)

    assert post.app.enqueue_with(order(post), "ship", {}, key="o-1") == Enqueued("o-1", None)

    assert post.entry().status == "pending"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["commit", "send_message_batch", "mark_sent"])
def test_a_caller_that_dies_leaves_all_or_nothing(both_posts: Post, name: str, when: str) -> None:
    """G8: before the commit no order and no job; after it both, and the relay sends what was not marked as sent."""
    post = both_posts
    die(post.sqs if name == "send_message_batch" else post.dynamodb, name, when)
    with pytest.raises(SimulatedCrash):
        post.app.enqueue_with(order(post), "ship", {}, key="o-1")
    post.world.clock.advance(HEAD_START_MS / 1000)
    post.relay()

    happened = (name, when) != ("commit", "before")
    assert len(items(post.world, ORDERS)) == len(post.entries()) == (1 if happened else 0)
    assert pieces_of(post.world, "s-1") == ((4, 1) if happened else (5, 0))
    post.consume()
    assert post.ran == (["o-1"] if happened else [])


def test_a_conflict_is_tried_again_and_told_when_it_does_not_pass(post: Post) -> None:
    """Nothing was written: the caller may simply call again."""
    post.dynamodb.cancel("commit", "None", "TransactionConflict", "None", times=3)
    assert post.app.enqueue_with(order(post), "ship", {}, key="o-1").message_id is not None
    before = everything(post.world)
    post.dynamodb.cancel("commit", "None", "TransactionConflict", "None", times=CONTENDED_ATTEMPTS)

    with pytest.raises(TransactionContended):
        post.app.enqueue_with(order(post, "o-2"), "ship", {}, key="o-2")

    assert everything(post.world) == before


@pytest.mark.parametrize("code", ["ValidationException", "AccessDeniedException", "ResourceNotFoundException"])
def test_a_transaction_that_dynamodb_refuses_is_told_in_its_word(post: Post, code: str) -> None:
    """One request, nothing written, nothing sent."""
    post.dynamodb.refuse("commit", code)

    with pytest.raises(TransactionRefused, match=code):
        post.app.enqueue_with(order(post), "ship", {}, key="o-1")

    assert post.dynamodb.names() == ["commit"]
    assert (post.entries(), post.sqs.calls) == ([], [])


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "NaN": ({"payload": {"a": float("nan")}}, EnqueueRefused, "not JSON"),
    "too large": ({"payload": {"a": "x" * 400_000}}, EnqueueRefused, "the outbox takes 380000"),
    "a blank key": ({"key": ""}, EnqueueRefused, "is blank"),
    "an unknown queue": ({"queue": "reports"}, ConfigurationError, "not in ONCEQ_QUEUES"),
    "no group on a FIFO queue": ({"queue": "ordered"}, EnqueueRefused, "is FIFO"),
    "a delay below zero": ({"delay": -1}, EnqueueRefused, "a delay is a number"),
}


@pytest.mark.parametrize(("changes", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_what_nobody_would_take_is_refused_before_anything_is_written(
    post: Post, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    """The order must not be saved without its job."""
    asked = {"payload": {}, "key": "o-1"} | changes
    transaction = order(post)

    with pytest.raises(error, match=said):
        post.app.enqueue_with(transaction, "ship", asked.pop("payload"), **asked)

    assert post.dynamodb.calls == []
    assert items(post.world, ORDERS) == []


def test_an_unknown_job_type_is_refused_before_anything_is_written(post: Post) -> None:
    """With a suggestion."""
    with pytest.raises(ConfigurationError, match="did you mean 'ship'"):
        post.app.enqueue_with(order(post), "shop", {}, key="o-1")

    assert post.dynamodb.calls == []


@pytest.mark.parametrize("table", ["claims_table", "outbox_table"])
def test_the_framework_s_own_tables_are_not_the_callers(post: Post, table: str) -> None:
    """By a filled transaction or a plain list."""
    write = {"Delete": {"TableName": getattr(post.world.settings, table), "Key": {"pk": {"S": "pay#k-1"}}}}

    with pytest.raises(TransactionRefused, match="the framework's own tables"):
        post.app.transaction().write(write)
    with pytest.raises(TransactionRefused, match="the framework's own tables"):
        post.app.enqueue_with([write], "ship", {})


def test_delays_and_groups_go_their_way(post: Post) -> None:
    """Soon: at once, with SQS's own delay. Later, or on a FIFO queue: from the outbox."""
    soon = post.app.enqueue_with([], "ship", {}, delay=59, group="tenant")
    later = post.app.enqueue_with([], "ship", {}, delay=61)
    ordered = post.app.enqueue_with([], "track", {}, delay=5, group="g")
    at_once = post.app.enqueue_with([], "track", {}, group="g")

    assert [sent.message_id is None for sent in (soon, later, ordered, at_once)] == [False, True, True, False]
    assert [message.get("DelaySeconds") for message in post.sent()] == [59, None]
    assert [message["MessageGroupId"] for message in post.sent()] == ["tenant", "g"]
    post.world.clock.advance(60)
    assert post.relay()["sent"] == 2


def test_many_callers_at_once_take_what_there_is_and_no_more(both_posts: Post) -> None:
    """G8: of sixteen orders for five pieces five stand, each with its job, and none of the others left anything."""
    post = both_posts

    def take(number: int) -> Callable[[], str | None]:
        def call() -> str | None:
            key = f"o-{number:02}"
            try:
                return post.app.enqueue_with(order(post, key), "ship", {}, key=key).key
            except ConditionNotMet:
                return None

        return call

    with eager_switching():
        taken = all_at_once([take(number) for number in range(16)])

    keys = sorted(key for key in taken if key is not None)
    assert len(keys) == 5
    assert pieces_of(post.world, "s-1") == (0, 5)
    assert [item["order_id"]["S"] for item in items(post.world, ORDERS)] == keys
    assert sorted(entry.idempotency_key for entry in post.entries()) == keys
    post.consume()
    assert sorted(post.ran) == keys


def test_it_may_be_called_inside_a_job_and_does_not_end_that_jobs_batch(post: Post) -> None:
    """There it is an effect of its own, at once and whatever becomes of the job; `Context.send` is what to use."""
    told: list[str] = []

    class Hook:
        def begin(self, context: object) -> None:
            told.append("begin")

        def flush(self) -> None:
            told.append("flush")

        def __call__(self, event: object) -> None:
            """Hear it."""

    post.app = post.app.with_hooks([Hook()])

    def send(ctx: Any) -> None:
        post.app.enqueue_with([], "ship", {}, key="of a job that failed")
        raise ValueError

    post.send = send

    assert post.deliver() == ["k-1"]

    assert post.consume() == 1
    assert post.ran == ["of a job that failed"]
    assert told[0] == "begin"
    assert told[-1] == "flush"


def test_a_transaction_with_two_keys_and_nested_attributes_is_written(both_posts: Post) -> None:
    """Hash and range keys, through the whole way."""
    transaction = both_posts.app.transaction()
    transaction.save(Line("o-1", 1, sku="s-1"), Line.order_id.does_not_exist())
    transaction.save(Line("o-1", 2, sku="s-2"), Line.order_id.does_not_exist())
    transaction.check(Stock("s-1"), Stock.pieces >= 1)

    both_posts.app.enqueue_with(transaction, "ship", {}, key="o-1")

    assert len(items(both_posts.world, "LinesTable")) == 2
