"""A transaction while it is staged: what each method writes, and everything that is refused by name before it is sent.

The limits are DynamoDB's own:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.shop import LINES, ORDERS, STOCK, Line, Order, Stock, address_of
from onceq import Context
from onceq.errors import ConditionNotMet, TransactionFailed, TransactionRefused
from onceq.keys import key_made_from
from onceq.transaction import MOST_BYTES, MOST_ITEM_BYTES, MOST_ITEMS, Transaction, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

ALL_OLD = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
KB = 1_024


def put(key: str = "c-1", table: str = "Carts", **attributes: Any) -> dict[str, Any]:
    """Return a plain put; its partition key is ``id``."""
    return {"Put": {"TableName": table, "Item": {"id": {"S": key}, **attributes}}}


def update(key: str = "c-1", table: str = "Carts", **more: Any) -> dict[str, Any]:
    """Return a plain update."""
    return {"Update": {"TableName": table, "Key": {"id": {"S": key}}, "UpdateExpression": "SET a = :a", **more}}


def delete(key: str = "c-1", table: str = "Carts") -> dict[str, Any]:
    """Return a plain deletion."""
    return {"Delete": {"TableName": table, "Key": {"id": {"S": key}}}}


def check(key: str = "c-1", table: str = "Carts") -> dict[str, Any]:
    """Return a plain check."""
    condition = {"ConditionExpression": "attribute_exists(id)"}
    return {"ConditionCheck": {"TableName": table, "Key": {"id": {"S": key}}, **condition}}


def staged(transaction: Transaction) -> list[dict[str, Any]]:
    """Return what was staged as DynamoDB gets it."""
    return [write.to_item() for write in transaction.writes]


def test_a_model_is_saved_whole_and_its_condition_asks_for_the_old_item() -> None:
    """`save`: the item with its nested attributes, the given condition, and the old item if that does not hold."""
    transaction = Transaction()
    address = address_of("Kings Road", "a", 1, None)

    transaction.save(Order("o-1", address=address), Order.order_id.does_not_exist())

    [item] = staged(transaction)
    nested = {"street": {"S": "Kings Road"}, "lines": {"L": [{"S": "a"}, {"N": "1"}, {"NULL": True}]}}
    assert item == {
        "Put": {
            "TableName": ORDERS,
            "Item": {
                "order_id": {"S": "o-1"},
                "state": {"S": "new"},
                "address": {"M": nested},
                "version": {"N": "1"},
            },
            "ConditionExpression": "(attribute_not_exists (#0) AND attribute_not_exists (#1))",
            "ExpressionAttributeNames": {"#0": "order_id", "#1": "version"},
            **ALL_OLD,
        }
    }


def test_a_model_without_a_condition_is_saved_without_one() -> None:
    """DynamoDB refuses to be asked for the old item of a write that has no condition to fail."""
    transaction = Transaction()

    transaction.save(Stock("s-1", pieces=3))

    item = {"sku": {"S": "s-1"}, "pieces": {"N": "3"}, "reserved": {"N": "0"}}
    assert staged(transaction) == [{"Put": {"TableName": STOCK, "Item": item}}]


def test_a_model_is_updated_by_its_key_and_both_conditions() -> None:
    """`update`: hash and range key, the actions, the given condition, and the version attribute's own."""
    transaction = Transaction()

    transaction.update(Line("o-1", 2), [Line.sku.set("s-1")], Line.sku.does_not_exist())
    transaction.update(Order("o-1", version=4), [Order.state.set("paid")], Order.state == "new")

    line, order = staged(transaction)
    assert line["Update"]["Key"] == {"order_id": {"S": "o-1"}, "number": {"N": "2"}}
    assert line["Update"]["UpdateExpression"] == "SET #0 = :0"
    assert order["Update"]["Key"] == {"order_id": {"S": "o-1"}}
    assert order["Update"]["ConditionExpression"] == "(#0 = :0 AND #1 = :1)"
    assert set(order["Update"]["ExpressionAttributeNames"].values()) == {"state", "version"}
    assert sorted(order["Update"]["ExpressionAttributeValues"].values(), key=str) == [
        {"N": "1"},
        {"N": "4"},
        {"S": "new"},
        {"S": "paid"},
    ]
    assert all(write["Update"].items() >= ALL_OLD.items() for write in (line, order))


def test_the_actions_that_were_given_stay_as_they_are() -> None:
    """pynamodb appends the version's action to the list it gets: a list used for two models must not collect them."""
    actions = [Order.state.set("paid")]

    for number in range(2):
        Transaction().update(Order(f"o-{number}", version=1), actions)

    assert len(actions) == 1


def test_a_model_is_deleted_by_its_key_and_its_version() -> None:
    """`delete`: a model with a version attribute goes only as it was read."""
    transaction = Transaction()

    transaction.delete(Order("o-1", version=4), Order.state == "void")

    [item] = staged(transaction)
    assert item["Delete"]["Key"] == {"order_id": {"S": "o-1"}}
    assert item["Delete"]["ConditionExpression"] == "(#0 = :0 AND #1 = :1)"


def test_a_check_says_only_its_own_condition() -> None:
    """`check` writes nothing, so a version attribute has no part in it."""
    transaction = Transaction()

    transaction.check(Order("o-1", version=4), Order.state == "paid")

    [item] = staged(transaction)
    assert item == {
        "ConditionCheck": {
            "TableName": ORDERS,
            "Key": {"order_id": {"S": "o-1"}},
            "ConditionExpression": "#0 = :0",
            "ExpressionAttributeNames": {"#0": "state"},
            "ExpressionAttributeValues": {":0": {"S": "paid"}},
            **ALL_OLD,
        }
    }


def test_a_plain_request_is_passed_on_and_its_own_wish_for_the_old_item_stands() -> None:
    """`write`: whatever DynamoDB takes beside what it needs; ``NONE`` for the old item is the user's to say."""
    transaction = Transaction()
    silent = {"ReturnValuesOnConditionCheckFailure": "NONE"}

    transaction.write(update(ConditionExpression="a > :b", ExpressionAttributeValues={":a": {"N": "1"}}, **silent))
    transaction.write(put("c-2"))
    transaction.write(delete("c-3"))
    transaction.write(check("c-4"))

    [first, *others] = staged(transaction)
    assert first["Update"].items() >= silent.items()
    assert others == [put("c-2"), delete("c-3"), {"ConditionCheck": {**check("c-4")["ConditionCheck"], **ALL_OLD}}]
    assert [str(write) for write in transaction.writes][2:] == [
        "Delete of Carts {'id': 'c-3'}",
        "ConditionCheck of Carts {'id': 'c-4'}",
    ]


def test_models_know_of_their_new_version_only_after_the_commit() -> None:
    """As by ``model.save``: a model that is written again must have the version that stands in the table."""
    transaction = Transaction()
    saved, updated, deleted, checked = Order("o-1"), Order("o-2", version=4), Order("o-3", version=7), Order("o-4")
    transaction.save(saved)
    transaction.update(updated, [Order.state.set("paid")])
    transaction.delete(deleted)
    transaction.check(checked, Order.state == "paid")
    assert [order.version for order in (saved, updated, deleted, checked)] == [None, 4, 7, None]

    transaction.committed()

    assert [order.version for order in (saved, updated, deleted, checked)] == [1, 5, 7, None]


def test_ninety_nine_writes_fit_beside_the_framework_s_own_and_a_hundred_do_not() -> None:
    """100 items, and one is the job's record: the write that is too many is named, and those before it stand."""
    transaction = Transaction()
    for number in range(MOST_ITEMS - 1):
        transaction.write(put(f"c-{number}"))

    with pytest.raises(
        TransactionRefused, match=r"^Delete of Carts \{'id': 'c-99'\}: it would be item 101 .* takes 100"
    ):
        transaction.write(delete("c-99"))

    assert len(transaction.writes) == 99


def test_messages_take_room_like_writes() -> None:
    """100 items together: with 60 messages 39 writes fit, and then no message either."""
    ctx = Context()
    keys = [ctx.send("send_receipt", {"order_id": "o-1"}) for _ in range(60)]
    for number in range(39):
        ctx.transaction.write(put(f"c-{number}"))

    with pytest.raises(TransactionRefused, match=r"^Put of Carts.*it would be item 101"):
        ctx.transaction.write(put("c-39"))
    with pytest.raises(TransactionRefused, match=r"^the message to 'send_receipt': it would be item 101"):
        ctx.send("send_receipt", {"order_id": "o-1"})

    assert (len(ctx.sent), len(ctx.transaction.writes)) == (60, 39)
    assert len(set(keys)) == 60


def test_four_megabytes_are_the_end() -> None:
    """4 MB together with what the job's record may have: the write that is too many is named."""
    transaction = Transaction()
    number = 0
    while (number + 2) * 400_000 < MOST_BYTES - MOST_ITEM_BYTES:
        transaction.write(put(f"c-{number}", a={"S": "x" * 400_000}))
        number += 1
    assert number == 8

    transaction.write(put("c-8", a={"S": "x" * 400_000}))
    with pytest.raises(
        TransactionRefused, match=rf"^Put of Carts.*would have \d+ bytes, and DynamoDB takes {MOST_BYTES}"
    ):
        transaction.write(put("c-9", a={"S": "x" * 200_000}))
    transaction.write(put("c-9", a={"S": "x" * 100_000}))


@pytest.mark.parametrize(
    "large",
    [
        put(a={"S": "x" * 409_600}),
        put(a={"S": "é" * 204_800}),
        put(a={"B": b"x" * 409_600}),
        put(a={"M": {"b": {"L": [{"S": "x" * 409_600}]}}}),
        put(a={"SS": ["x" * 204_800, "y" * 204_800]}),
        update(ExpressionAttributeValues={":a": {"S": "x" * 409_600}}),
    ],
    ids=["text", "characters of two bytes", "binary", "nested", "a set", "an update's values"],
)
def test_an_item_of_more_than_400_kb_is_refused(large: dict[str, Any]) -> None:
    """DynamoDB counts names and values in bytes."""
    transaction = Transaction()

    with pytest.raises(
        TransactionRefused, match=rf"of Carts.*409\d\d\d bytes, and an item has at most {MOST_ITEM_BYTES}"
    ):
        transaction.write(large)

    assert transaction.writes == []
    transaction.write(put(a={"S": "x" * (409_600 - len("id") - len("c-1") - len("a"))}))


def test_the_size_of_an_item_is_counted_as_dynamodb_does() -> None:
    """Names and values; 3 bytes for a list or map and one for each of its values.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    item = {
        "é": {"S": "é"},
        "n": {"NULL": True},
        "b": {"BOOL": False},
        "l": {"L": [{"S": "ab"}, {"L": []}]},
        "m": {"M": {"k": {"S": "v"}}},
        "s": {"NS": ["1", "22"]},
        "y": {"B": b"123"},
    }

    # Text in UTF-8; of null and bool only an upper bound is kept.
    assert size_of({"é": item["é"]}) == 4
    assert size_of({"l": item["l"]}) == 1 + 3 + (1 + 2) + (1 + 3)
    assert size_of({"m": item["m"]}) == 1 + 3 + 1 + (1 + 1)
    assert size_of({"s": item["s"]}) == 1 + 3
    assert size_of({"y": item["y"]}) == 1 + 3
    assert 2 <= size_of({"n": item["n"]}) <= 6
    assert 2 <= size_of({"b": item["b"]}) <= 6
    assert size_of(item) == sum(size_of({name: value}) for name, value in item.items())


def write_all(transaction: Transaction, *requests: dict[str, Any]) -> None:
    """Stage several plain writes."""
    for request in requests:
        transaction.write(request)


TWICE: dict[str, tuple[Callable[[Transaction], None], Callable[[Transaction], None]]] = {
    "Put and Update": (lambda to: to.write(put(a={"N": "1"})), lambda to: to.write(update())),
    "Update and Put": (lambda to: to.write(update()), lambda to: to.write(put(a={"N": "1"}))),
    "Update and Check": (lambda to: to.write(update()), lambda to: to.write(check())),
    "Update twice": (lambda to: to.write(update()), lambda to: to.write(update())),
    "Delete and Update": (lambda to: to.write(delete()), lambda to: to.write(update())),
    "Put twice, the same": (lambda to: to.write(put()), lambda to: to.write(put())),
    "models: save twice": (lambda to: to.save(Stock("s-1", pieces=1)), lambda to: to.save(Stock("s-1", pieces=2))),
    "models: save twice, two keys": (
        lambda to: to.save(Line("o", 1, sku="a")),
        lambda to: to.save(Line("o", 1, sku="b")),
    ),
    "models: save and update": (
        lambda to: to.save(Stock("s-1")),
        lambda to: to.update(Stock("s-1"), [Stock.pieces.set(1)]),
    ),
    "models: update and check": (
        lambda to: to.update(Line("o", 1), [Line.sku.set("a")]),
        lambda to: to.check(Line("o", 1), Line.sku.exists()),
    ),
    "models: delete and save": (lambda to: to.delete(Line("o", 1)), lambda to: to.save(Line("o", 1))),
    "a model and a plain Put": (
        lambda to: to.save(Stock("s-1", pieces=1)),
        lambda to: to.write({"Put": {"TableName": STOCK, "Item": {"sku": {"S": "s-1"}, "pieces": {"N": "9"}}}}),
    ),
    "a plain Put and a model": (
        lambda to: to.write({"Put": {"TableName": STOCK, "Item": {"sku": {"S": "s-1"}, "pieces": {"N": "9"}}}}),
        lambda to: to.save(Stock("s-1", pieces=1)),
    ),
    "Put twice, the key told by a third write": (
        lambda to: write_all(to, update("c-2"), put(a={"N": "1"})),
        lambda to: to.write(put(a={"N": "2"})),
    ),
}


@pytest.mark.parametrize(("first", "second"), TWICE.values(), ids=TWICE)
def test_two_writes_to_one_item_are_refused(
    first: Callable[[Transaction], None], second: Callable[[Transaction], None]
) -> None:
    """DynamoDB takes one write to an item: the second is refused and names the first."""
    transaction = Transaction()
    first(transaction)
    before = list(transaction.writes)

    with pytest.raises(TransactionRefused, match="is in the transaction already") as caught:
        second(transaction)

    assert str(caught.value).count(str(before[-1].table)) == 2
    assert transaction.writes == before


def test_items_that_only_look_alike_are_several() -> None:
    """Another table, another sort key, another type of key; two puts whose key nobody has told: DynamoDB judges."""
    transaction = Transaction()

    transaction.write(put())
    transaction.write(put(table="Baskets"))
    transaction.write(put("c-2"))
    transaction.write(put(a={"N": "1"}))  # the table's key may be ``a``
    transaction.save(Line("o-1", 1, sku="s-1"))
    transaction.save(Line("o-1", 2, sku="s-1"))
    transaction.update(Line("o-2", 1), [Line.sku.set("s-1")])
    transaction.write({"Put": {"TableName": LINES, "Item": {"order_id": {"N": "1"}, "number": {"N": "1"}}}})

    assert len(transaction.writes) == 8


WRONG: dict[str, tuple[Any, str]] = {
    "nothing": (None, "is one of Put, Update, Delete, ConditionCheck"),
    "empty": ({}, "is one of Put, Update, Delete, ConditionCheck"),
    "an unknown kind": ({"Get": {"TableName": "Carts"}}, "is one of Put, Update, Delete, ConditionCheck.*Get"),
    "a kind in lower case": ({"put": put()["Put"]}, "is one of Put, Update"),
    "two kinds": ({**put(), **delete("c-2")}, "is one of Put, Update"),
    "without its kind": (put()["Put"], "is one of Put, Update"),
    "no parameters": ({"Put": None}, "a Put of a transaction needs TableName, Item: TableName, Item is missing"),
    "no table": ({"Put": {"Item": {"id": {"S": "c"}}}}, "needs TableName, Item: TableName is missing"),
    "an empty item": ({"Put": {"TableName": "Carts", "Item": {}}}, "Item is missing"),
    "an empty key": ({"Delete": {"TableName": "Carts", "Key": {}}}, "a Delete of a transaction needs .*Key is missing"),
    "no expression": ({"Update": {"TableName": "Carts", "Key": {"id": {"S": "c"}}}}, "UpdateExpression is missing"),
    "no condition": (
        {"ConditionCheck": {"TableName": "Carts", "Key": {"id": {"S": "c"}}}},
        "a ConditionCheck of a transaction needs .*ConditionExpression is missing",
    ),
    "plain values": ({"Put": {"TableName": "Carts", "Item": {"id": "c"}}}, "in DynamoDB's own shape"),
    "a plain key": ({"Delete": {"TableName": "Carts", "Key": {"id": 1}}}, "the Key of a Delete is in DynamoDB's own"),
    "an item that is a list": ({"Put": {"TableName": "Carts", "Item": [1]}}, "in DynamoDB's own shape"),
    "a plain value inside a map": (put(a={"M": {"b": 1}}), "in DynamoDB's own shape"),
    "a plain value inside a list": (put(a={"L": [1]}), "in DynamoDB's own shape"),
    "no list at all": (put(a={"L": 5}), "in DynamoDB's own shape"),
    "plain values of an expression": (update(ExpressionAttributeValues={":a": 1}), "in DynamoDB's own shape"),
    "a list of values": (update(ExpressionAttributeValues=[1]), "in DynamoDB's own shape"),
}


@pytest.mark.parametrize(("request_", "said"), WRONG.values(), ids=WRONG)
def test_a_write_of_a_wrong_shape_is_refused(request_: Any, said: str) -> None:
    """What botocore would refuse at the end of the job is refused where it is written, and says what is needed."""
    transaction = Transaction()

    with pytest.raises(TransactionRefused, match=said):
        transaction.write(request_)

    assert transaction.writes == []


@pytest.mark.parametrize("on_conflict", ["Retry", "ignore", "", None, True])
def test_an_unknown_meaning_of_a_conflict_is_refused(on_conflict: Any) -> None:
    """A typo must not quietly retry what was to be rejected."""
    transaction = Transaction()

    with pytest.raises(TransactionRefused, match='give "retry" or "reject"'):
        transaction.write(put(), on_conflict=on_conflict)
    with pytest.raises(TransactionRefused, match='give "retry" or "reject"'):
        transaction.save(Stock("s-1"), on_conflict=on_conflict)


@pytest.mark.parametrize("table", ["ClaimsTable", "OutboxTable"])
def test_the_framework_s_own_tables_are_refused(table: str) -> None:
    """A job that wrote its own record, or an entry, would break the promises that rest on them."""
    transaction = Transaction(reserved=["ClaimsTable", "OutboxTable"])

    for write in (put(table=table), update(table=table), delete(table=table), check(table=table)):
        with pytest.raises(TransactionRefused, match=f"of {table}.*the framework's own tables"):
            transaction.write(write)
    # By its ARN too, which DynamoDB takes for a name.
    with pytest.raises(TransactionRefused, match="the framework's own tables"):
        transaction.write(put(table=f"arn:aws:dynamodb:us-east-1:123456789012:table/{table}"))
    transaction.write(put(table="Carts"))


def test_a_table_that_is_not_configured_reserves_nothing() -> None:
    """A producer has no outbox table: the empty name is nobody's."""
    transaction = Transaction(reserved=["ClaimsTable", ""])

    transaction.write(put(table="Carts"))

    assert len(transaction.writes) == 1


def test_writes_may_be_given_at_the_start() -> None:
    """`onceq.App.enqueue_with` takes a plain list; it goes the same way."""
    assert len(Transaction([put(), put("c-2")]).writes) == 2
    with pytest.raises(TransactionRefused, match="is in the transaction already"):
        Transaction([update(), check()])


SECRET = "4111-1111"
OLD = {
    "id": {"S": "c-1"},
    "pieces": {"N": "0"},
    "card": {"S": SECRET},
    "size": {"S": SECRET},
    "address": {"M": {"street": {"S": "Kings Road"}, "card": {"S": SECRET}}},
}
FAILED = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", "Item": OLD}
NONE = {"Code": "None"}


def conditional(expression: str, **names: str) -> dict[str, Any]:
    """Return an update on that condition."""
    more: dict[str, Any] = {"ExpressionAttributeNames": names} if names else {}
    return update(ConditionExpression=expression, ExpressionAttributeValues={":a": {"N": "1"}}, **more)


def failure_of(request: dict[str, Any], reason: dict[str, Any]) -> TransactionFailed:
    """Return what that reason means to a transaction of two writes, of which it is the second's."""
    transaction = Transaction([put("c-0"), request])
    return transaction.failure([NONE, reason])


@pytest.mark.parametrize(
    ("expression", "names", "said"),
    [
        ("pieces >= :a", {}, "the item has {'pieces': '0'}"),
        ("#p >= :a", {"#p": "pieces"}, "the item has {'pieces': '0'}"),
        ("attribute_not_exists(id) AND NOT (pieces=:a)", {}, "the item has {'id': 'c-1', 'pieces': '0'}"),
        ("attribute_exists(cancelled)", {}, "there was an item"),
        ("size(notes) < :a", {}, "there was an item"),
        ("#x.#y = :a", {"#x": "nowhere", "#y": "card"}, "there was an item"),
        ("#x.#y = :a OR pieces = :card", {"#x": "address", "#y": "lines"}, "the item has {'pieces': '0'}"),
    ],
)
def test_a_condition_that_did_not_hold_shows_what_it_speaks_about_and_no_more(
    expression: str, names: dict[str, str], said: str
) -> None:
    """Which write, and those attributes of the old item that decide; the rest of it is nobody's business in a log."""
    failure = failure_of(conditional(expression, **names), FAILED)

    assert isinstance(failure, ConditionNotMet)
    assert str(failure) == f"Update of Carts {{'id': 'c-1'}}: its condition did not hold: {said}"
    assert (failure.write, failure.item, failure.rejects) == ("Update of Carts {'id': 'c-1'}", OLD, False)
    assert SECRET not in f"{failure} {failure!r} {failure.args}"


def test_a_condition_on_a_nested_attribute_does_not_show_its_neighbours() -> None:
    """A condition on ``address.street`` speaks about the street, not about everything in the address."""
    failure = failure_of(conditional("#a.#s = :a", **{"#a": "address", "#s": "street"}), FAILED)

    assert isinstance(failure, ConditionNotMet)
    assert "Kings Road" in str(failure)
    assert SECRET not in f"{failure} {failure!r}"


def test_a_put_that_fails_does_not_show_what_it_was_to_write() -> None:
    """A write is named by its key: what a model was to save is nobody's business in a log either."""
    transaction = Transaction()
    transaction.save(Order("o-1", card=SECRET), Order.order_id.does_not_exist())
    item = {"order_id": {"S": "o-1"}, "version": {"N": "3"}, "card": {"S": SECRET}}

    failure = transaction.failure([{"Code": "ConditionalCheckFailed", "Item": item}])

    assert isinstance(failure, ConditionNotMet)
    assert failure.write == "Put of OrdersTable {'order_id': 'o-1'}"
    assert "the item has {'order_id': 'o-1', 'version': '3'}" in str(failure)
    assert SECRET not in f"{failure} {failure!r}"


def test_a_plain_put_that_fails_does_not_show_what_it_was_to_write() -> None:
    """Nobody says what its key is; its condition speaks of it, as ``attribute_not_exists(id)`` does."""
    request = put("c-1", card={"S": SECRET})
    request["Put"]["ConditionExpression"] = "attribute_not_exists(id)"

    failure = failure_of(request, FAILED)

    assert isinstance(failure, ConditionNotMet)
    assert failure.write.startswith("Put of Carts")
    assert "c-1" in failure.write
    assert SECRET not in f"{failure} {failure!r}"


def test_a_write_that_is_refused_at_staging_does_not_show_what_it_was_to_write() -> None:
    """The refusal is raised in the job, and so stands in the record and the log."""
    transaction = Transaction(reserved=["ClaimsTable"])
    transaction.write(put(card={"S": SECRET}))

    for refused in (put(card={"S": SECRET}), put(table="ClaimsTable", card={"S": SECRET})):
        with pytest.raises(TransactionRefused) as caught:
            transaction.write(refused)
        assert SECRET not in str(caught.value)


def test_a_condition_that_met_no_item_says_so() -> None:
    """DynamoDB shows no item where there was none."""
    reason = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
    failure = failure_of(conditional("pieces >= :a"), reason)

    assert isinstance(failure, ConditionNotMet)
    assert str(failure) == "Update of Carts {'id': 'c-1'}: its condition did not hold: there was no item"
    assert failure.item is None


def test_the_write_that_failed_is_named_and_decides_what_it_means() -> None:
    """The first condition that did not hold is the error; `on_conflict` is that write's own."""
    transaction = Transaction()
    transaction.write(check("c-1"))
    transaction.write(check("c-2"), on_conflict="reject")
    transaction.write(check("c-3"))

    second, third = transaction.failure([NONE, FAILED, FAILED]), transaction.failure([NONE, NONE, FAILED])

    assert isinstance(second, ConditionNotMet)
    assert isinstance(third, ConditionNotMet)
    assert (second.write, second.rejects) == ("ConditionCheck of Carts {'id': 'c-2'}", True)
    assert (third.write, third.rejects) == ("ConditionCheck of Carts {'id': 'c-3'}", False)


def test_another_reason_names_its_write() -> None:
    """A write that DynamoDB would never take, for example with an item that grew too large, is named with its text."""
    reason = {"Code": "ValidationError", "Message": "Item size to update has exceeded the maximum allowed size"}
    failure = failure_of(update(), reason)

    assert isinstance(failure, TransactionRefused)
    assert str(failure) == (
        "Update of Carts {'id': 'c-1'}: ValidationError: Item size to update has exceeded the maximum allowed size"
    )


def test_a_condition_stands_before_another_reason() -> None:
    """It is the user's own answer; what else was in the way is met again, or not."""
    transaction = Transaction([update("c-1"), check("c-2")])

    failure = transaction.failure([{"Code": "ValidationError", "Message": "no"}, FAILED])

    assert isinstance(failure, ConditionNotMet)


def test_a_refusal_of_an_entry_alone_shows_nothing_of_it() -> None:
    """A reason beyond the job's own writes is an entry's: its body is a payload, and none is logged."""
    transaction = Transaction([update()])
    entry = {"Code": "ConditionalCheckFailed", "Item": {"pk": {"S": "t1-000"}, "body": {"S": SECRET}}}

    failure = transaction.failure([NONE, entry])

    assert type(failure) is TransactionRefused
    assert SECRET not in str(failure)


def test_a_transaction_fills_itself_in_a_unit_test() -> None:
    """No framework, no AWS: a job's function is called with a Context, and what it staged can be looked at."""

    def reserve(payload: dict[str, Any], ctx: Context) -> None:
        ctx.transaction.update(Stock(payload["sku"]), [Stock.pieces.set(Stock.pieces - 1)], Stock.pieces >= 1)
        ctx.send("ship", {"sku": payload["sku"]}, delay=60, group="g", queue="ordered")

    ctx = Context(key="o-1")
    reserve({"sku": "s-1"}, ctx)

    assert [str(write) for write in ctx.transaction.writes] == [f"Update of {STOCK} {{'sku': 's-1'}}"]
    [sent] = ctx.sent
    assert (sent.job_type, sent.payload, sent.delay, sent.group, sent.queue, sent.entry) == (
        "ship",
        {"sku": "s-1"},
        60,
        "g",
        "ordered",
        None,
    )


def test_a_key_that_is_made_from_another_stays_short_over_a_thousand_hops() -> None:
    """A chain makes each key from the one before: none is longer than the first, and no two are the same."""
    keys = ["o-1"]
    for _ in range(1_000):
        keys.append(key_made_from("page", keys[-1], 0))

    assert len(set(keys)) == 1_001
    assert max(map(len, keys)) <= 200
    assert max(len(key_made_from("page", "é" * 8_000, number)) for number in (0, 99)) <= 200


def test_made_keys_differ_by_job_type_key_and_number() -> None:
    """A digest over all three: no two of them meet, also where their readable beginnings do."""
    long = "k" * 200
    made = {
        key_made_from(job_type, key, number)
        for job_type in ("pay", "ship")
        for key in ("o-1", "o-1.1", long, f"{long}1", f"{long}2")
        for number in (0, 1, 11)
    }

    assert len(made) == 30


def test_a_table_that_is_configured_by_its_arn_is_the_framework_s_too() -> None:
    """DynamoDB takes either: whichever the settings and the job use, it is one table."""
    transaction = Transaction(reserved=["arn:aws:dynamodb:us-east-1:123456789012:table/ClaimsTable"])

    with pytest.raises(TransactionRefused, match="the framework's own tables"):
        transaction.write(put(table="ClaimsTable"))
