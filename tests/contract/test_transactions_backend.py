"""What a transaction and the outbox's index rest on, asked of each backend itself, with nothing of ours in between.

Where a backend is known to lie, its lie is asserted: the test fails when it is mended, and a promise may rest on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from kit.racing import all_at_once, eager_switching

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.conftest import Backend

THREADS = 16


def sold(backend: Backend, sku: str, least: int = 1) -> dict[str, Any]:
    """Return a write that takes one piece of what is in stock, if there are as many."""
    return {
        "Update": {
            "TableName": backend.user_table,
            "Key": {"sku": {"S": sku}},
            "UpdateExpression": "SET stock = stock - :one",
            "ConditionExpression": "stock >= :least",
            "ExpressionAttributeValues": {":one": {"N": "1"}, ":least": {"N": str(least)}},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def made(backend: Backend, sku: str, **attributes: Any) -> dict[str, Any]:
    """Return a write that makes an item, if there is none."""
    return {
        "Put": {
            "TableName": backend.user_table,
            "Item": {"sku": {"S": sku}, **attributes},
            "ConditionExpression": "attribute_not_exists(sku)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def in_stock(backend: Backend, pieces: int) -> str:
    """Let an item of so many pieces stand in the user's table."""
    sku = backend.name()
    backend.dynamodb.put_item(TableName=backend.user_table, Item={"sku": {"S": sku}, "stock": {"N": str(pieces)}})
    return sku


def item_of(backend: Backend, sku: str) -> dict[str, Any] | None:
    """Return what stands in the user's table."""
    key = {"sku": {"S": sku}}
    answer = backend.dynamodb.get_item(TableName=backend.user_table, Key=key, ConsistentRead=True)
    item: dict[str, Any] | None = answer.get("Item")
    return item


def stock_of(backend: Backend, sku: str) -> int:
    """Return how many pieces are left."""
    item = item_of(backend, sku)
    assert item is not None
    return int(item["stock"]["N"])


def committed(backend: Backend, writes: list[dict[str, Any]]) -> bool:
    """Commit a transaction, again while it meets another one; return whether its conditions held."""
    for _ in range(100):
        try:
            backend.dynamodb.transact_write_items(TransactItems=writes)
        except ClientError as error:
            codes = {reason["Code"] for reason in error.response["CancellationReasons"]}
            if codes <= {"None", "TransactionConflict"}:
                continue
            assert codes == {"None", "ConditionalCheckFailed"}
            return False
        return True
    message = "no end of conflicts"
    raise AssertionError(message)


def test_a_transaction_sent_twice_with_its_token_is_applied_once(backend: Backend) -> None:
    """G11 rests on it: for ten minutes a client token and its request again succeed and change nothing.

    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
    """
    sku = in_stock(backend, 5)
    request = {"TransactItems": [sold(backend, sku)], "ClientRequestToken": f"token-{sku}"}

    backend.dynamodb.transact_write_items(**request)
    backend.dynamodb.transact_write_items(**request)

    assert stock_of(backend, sku) == (3 if backend.is_moto else 4)  # moto 5.2.5 passes the token over


def test_a_token_is_answered_as_before_also_where_the_condition_would_fail_now(backend: Backend) -> None:
    """The second answer tells of the first arrival: a completion whose response was lost is not refused by itself."""
    sku = backend.name()
    request = {"TransactItems": [made(backend, sku)], "ClientRequestToken": f"token-{sku}"}
    backend.dynamodb.transact_write_items(**request)

    if backend.is_moto:  # moto 5.2.5 passes the token over
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            backend.dynamodb.transact_write_items(**request)
    else:
        backend.dynamodb.transact_write_items(**request)


def test_a_token_with_another_request_is_refused(backend: Backend) -> None:
    """A token stands for one request: with another one it is a mistake that is told, and nothing is written."""
    sku, token = in_stock(backend, 5), f"token-{backend.name()}"
    backend.dynamodb.transact_write_items(TransactItems=[sold(backend, sku)], ClientRequestToken=token)

    other = {"TransactItems": [sold(backend, sku, least=2)], "ClientRequestToken": token}
    if backend.is_moto:  # moto 5.2.5 passes the token over
        backend.dynamodb.transact_write_items(**other)
        assert stock_of(backend, sku) == 3
        return
    with pytest.raises(ClientError) as caught:
        backend.dynamodb.transact_write_items(**other)
    assert caught.value.response["Error"]["Code"] == "IdempotentParameterMismatchException"
    assert stock_of(backend, sku) == 4


def test_a_token_whose_transaction_was_cancelled_may_be_used_again(backend: Backend) -> None:
    """Only a transaction that committed is remembered: the same request succeeds once its condition holds."""
    sku = in_stock(backend, 0)
    request = {"TransactItems": [sold(backend, sku)], "ClientRequestToken": f"token-{sku}"}
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        backend.dynamodb.transact_write_items(**request)
    backend.dynamodb.put_item(TableName=backend.user_table, Item={"sku": {"S": sku}, "stock": {"N": "1"}})

    backend.dynamodb.transact_write_items(**request)

    assert stock_of(backend, sku) == 0


def test_a_cancelled_transaction_writes_nothing_and_shows_each_old_item(backend: Backend) -> None:
    """G7: all or nothing; a reason for each write in its order, with the item that stands where a condition failed."""
    enough, few, absent, new = in_stock(backend, 5), in_stock(backend, 1), backend.name(), backend.name()
    gone = {
        "ConditionCheck": {
            "TableName": backend.user_table,
            "Key": {"sku": {"S": absent}},
            "ConditionExpression": "attribute_exists(sku)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }

    with pytest.raises(ClientError) as caught:
        backend.dynamodb.transact_write_items(
            TransactItems=[sold(backend, enough), sold(backend, few, least=2), gone, made(backend, new)]
        )

    assert caught.value.response["Error"]["Code"] == "TransactionCanceledException"
    reasons = caught.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == [
        "None",
        "ConditionalCheckFailed",
        "ConditionalCheckFailed",
        "None",
    ]
    assert [reason.get("Item") for reason in reasons] == [None, {"sku": {"S": few}, "stock": {"N": "1"}}, None, None]
    assert (stock_of(backend, enough), stock_of(backend, few), item_of(backend, new)) == (5, 1, None)


def test_an_old_item_is_shown_only_where_it_was_asked_for(backend: Backend) -> None:
    """Without ALL_OLD a reason has no item: each write has to ask for its own."""
    sku = in_stock(backend, 0)
    write = sold(backend, sku)
    del write["Update"]["ReturnValuesOnConditionCheckFailure"]

    with pytest.raises(ClientError) as caught:
        backend.dynamodb.transact_write_items(TransactItems=[write])

    assert [reason.get("Item") for reason in caught.value.response["CancellationReasons"]] == [None]


def test_racing_transactions_never_take_more_than_there_is(backend: Backend) -> None:
    """G7: of sixteen that take from a stock of five, five commit, each with its receipt, and nothing is below zero."""
    sku, buyers = in_stock(backend, 5), [backend.name() for _ in range(THREADS)]

    def buying(buyer: str) -> Callable[[], bool]:
        return lambda: committed(backend, [sold(backend, sku), made(backend, buyer)])

    with eager_switching():
        bought = all_at_once([buying(buyer) for buyer in buyers])

    assert (bought.count(True), stock_of(backend, sku)) == (5, 0)
    assert [item_of(backend, buyer) is not None for buyer in buyers] == bought


def test_a_cancelled_transaction_does_not_undo_what_others_wrote_meanwhile(backend: Backend) -> None:
    """Isolation the other way round: sixteen items are written while as many transactions fail, and all are there."""
    empty, others = in_stock(backend, 0), [backend.name() for _ in range(THREADS)]

    def failing() -> bool:
        return committed(backend, [made(backend, backend.name()), sold(backend, empty)])

    def writing(other: str) -> Callable[[], bool]:
        return lambda: committed(backend, [made(backend, other)])

    with eager_switching():
        answers = all_at_once([failing if number % 2 else writing(others[number]) for number in range(THREADS)])

    assert answers == [number % 2 == 0 for number in range(THREADS)]
    assert all(item_of(backend, other) for other in others[::2])


@pytest.mark.parametrize("kind", ["101 writes", "two writes to one item"])
def test_a_transaction_beyond_the_limits_is_refused(backend: Backend, kind: str) -> None:
    """A hundred writes, one for each item: the limits at which staging refuses, by name."""
    sku = in_stock(backend, 5)
    writes = [made(backend, backend.name()) for _ in range(101)]
    if kind == "two writes to one item":
        writes = [sold(backend, sku), sold(backend, sku)]

    with pytest.raises(ClientError) as caught:
        backend.dynamodb.transact_write_items(TransactItems=writes)

    assert caught.value.response["Error"]["Code"] == "ValidationException"
    backend.dynamodb.transact_write_items(TransactItems=[made(backend, backend.name()) for _ in range(100)])
    assert stock_of(backend, sku) == 5


def pending(backend: Backend, shard: str, **more: Any) -> dict[str, Any]:
    """Query one shard of the outbox's index."""
    answer: dict[str, Any] = backend.dynamodb.query(
        TableName=backend.outbox_table,
        IndexName="pending",
        KeyConditionExpression="#shard = :shard AND next_at <= :now",
        ExpressionAttributeNames={"#shard": "shard"},
        ExpressionAttributeValues={":shard": {"S": shard}, ":now": {"N": str(more.pop("now", 99))}},
        **more,
    )
    return answer


def ids(page: dict[str, Any]) -> list[str]:
    """Return the ids of a page's entries, in its order."""
    return [item["pk"]["S"] for item in page["Items"]]


def test_the_index_holds_what_is_pending_in_the_order_of_its_time(backend: Backend) -> None:
    """The relay rests on it: an entry is in the index, whole, while it has both keys, and gone without them."""
    shard, (late, early, middle) = backend.name(), (backend.name() for _ in range(3))
    for pk, next_at in ((late, 30), (early, 10), (middle, 20)):
        keys = {"shard": {"S": shard}, "next_at": {"N": str(next_at)}}
        backend.dynamodb.put_item(TableName=backend.outbox_table, Item={"pk": {"S": pk}, "body": {"S": pk}, **keys})

    assert ids(pending(backend, shard, now=9)) == []
    assert ids(pending(backend, shard, now=10)) == [early]
    assert ids(pending(backend, shard, now=30)) == [early, middle, late]
    assert pending(backend, shard, now=10)["Items"][0]["body"] == {"S": early}

    backend.dynamodb.update_item(
        TableName=backend.outbox_table,
        Key={"pk": {"S": early}},
        UpdateExpression="SET message_id = :id REMOVE #shard, next_at",
        ExpressionAttributeNames={"#shard": "shard"},
        ExpressionAttributeValues={":id": {"S": "m-1"}},
    )

    assert ids(pending(backend, shard)) == [middle, late]


def test_a_page_of_the_index_goes_on_where_the_last_one_ended(backend: Backend) -> None:
    """Entries of one time are told apart by their ids: reading in pages of two yields each of five once."""
    shard, entries = backend.name(), sorted(backend.name() for _ in range(5))
    for pk in entries:
        item = {"pk": {"S": pk}, "shard": {"S": shard}, "next_at": {"N": "1"}}
        backend.dynamodb.put_item(TableName=backend.outbox_table, Item=item)

    pages = [pending(backend, shard, Limit=2)]
    while len(pages) < 5 and "LastEvaluatedKey" in pages[-1]:
        pages.append(pending(backend, shard, Limit=2, ExclusiveStartKey=pages[-1]["LastEvaluatedKey"]))

    assert [len(ids(page)) for page in pages] == [2, 2, 1]
    assert sorted(pk for page in pages for pk in ids(page)) == entries


def test_a_reserved_word_in_a_key_condition_is_refused(backend: Backend) -> None:
    """``shard`` is one: a query that names it plainly works on moto alone.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ReservedWords.html
    """
    item = {"pk": {"S": backend.name()}, "shard": {"S": backend.name()}, "next_at": {"N": "1"}}
    backend.dynamodb.put_item(TableName=backend.outbox_table, Item=item)  # ministack looks at an item's turn only
    request = {
        "TableName": backend.outbox_table,
        "IndexName": "pending",
        "KeyConditionExpression": "shard = :shard",
        "ExpressionAttributeValues": {":shard": item["shard"]},
    }

    if backend.is_moto:  # moto 5.2.5 looks for reserved words in every other expression
        assert backend.dynamodb.query(**request)["Items"] == [item]
        return
    with pytest.raises(ClientError, match="reserved keyword"):
        backend.dynamodb.query(**request)
