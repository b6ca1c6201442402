"""DynamoDB in this process's memory: the requests that consumers make, with their conditions, as strict as AWS's."""

from __future__ import annotations

import functools
import operator
import re
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

Item = dict[str, dict[str, Any]]
Names = Mapping[str, str]
Values = Mapping[str, Any]
Test = Callable[[Item, Names, Values], bool]
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
MOST_KEY_BYTES = 2_048
MOST_ITEM_BYTES = 409_600
MOST_DIGITS = 38
_TOKENS = re.compile(r"\s*(<=|>=|<>|[=<>(),]|[#:]?[A-Za-z_0-9]+)")
# The index of the outbox, and what it is sorted by.
_SORTED_BY = {"pending": "next_at"}
_CLAUSES = re.compile(r"(?:^|\s)(SET|REMOVE|ADD) ")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


class ConditionalCheckFailedException(ClientError):  # type: ignore[misc]  # botocore has no types
    """As a client of botocore's makes it."""


class TransactionCanceledException(ClientError):  # type: ignore[misc]  # as above
    """As a client of botocore's makes it."""


_NAMED = {kind.__name__: kind for kind in (ConditionalCheckFailedException, TransactionCanceledException)}
_KINDS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheck"}


def refusal(operation: str, code: str, message: str = "", **fields: Any) -> ClientError:
    """Return what botocore raises when a service refuses a request."""
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": 400}, **fields}
    return _NAMED.get(code, ClientError)(answer, operation)


def meta_of(*operations: str) -> SimpleNamespace:
    """Return of a botocore client's ``meta`` what says which method sends which request."""
    return SimpleNamespace(method_to_api_mapping={xform_name(one): one for one in operations})


class MemoryDynamoDB:
    """Tables with the partition key ``pk``. Each request happens at once or not at all.

    Attributes:
        tables: Items by table and key.
        exceptions: What a client of botocore's has under that name.
    """

    meta = meta_of("PutItem", "UpdateItem", "DeleteItem", "GetItem", "Query", "TransactWriteItems")

    def __init__(self) -> None:
        """Start with empty tables."""
        self.tables: dict[str, dict[str, Item]] = {}
        self.exceptions = SimpleNamespace(**_NAMED)
        self._lock = threading.RLock()

    def put_item(self, **request: Any) -> dict[str, Any]:
        """Put an item, if its condition holds."""
        with self._lock:
            self._write("PutItem", request)
        return {}

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Update an item, if its condition holds."""
        with self._lock:
            self._write("UpdateItem", request)
        return {}

    def delete_item(self, **request: Any) -> dict[str, Any]:
        """Delete an item, if its condition holds; there need not be one."""
        with self._lock:
            self._write("DeleteItem", request)
        return {}

    def get_item(self, **request: Any) -> dict[str, Any]:
        """Read an item."""
        with self._lock:
            item = self.tables.get(request["TableName"], {}).get(request["Key"]["pk"]["S"])
        return {} if item is None else {"Item": dict(item)}

    def query(self, **request: Any) -> dict[str, Any]:
        """Read an index, as far as one page goes: items without its keys are not in it."""
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        with self._lock:
            items = list(self.tables.get(request["TableName"], {}).values())
        found = [item for item in items if holds(request["KeyConditionExpression"], item, names, values)]
        assert len(found) <= request["Limit"], "this double has one page"
        found.sort(key=lambda item: int(item[_SORTED_BY[request["IndexName"]]]["N"]))
        return {"Items": [dict(item) for item in found], "Count": len(found)}

    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        """Write all items, or none."""
        with self._lock:
            before = {name: dict(items) for name, items in self.tables.items()}
            reasons = []
            for write in request["TransactItems"]:
                ((kind, one),) = write.items()
                try:
                    self._write(_KINDS[kind], one)
                    reasons.append({"Code": "None"})
                except ClientError as error:
                    if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                        self.tables = before
                        raise
                    reasons.append({"Code": "ConditionalCheckFailed", "Item": error.response.get("Item")})
            if any(reason["Code"] != "None" for reason in reasons):
                self.tables = before
                raise refusal(
                    "TransactWriteItems", "TransactionCanceledException", "cancelled", CancellationReasons=reasons
                )
        return {}

    def _write(self, operation: str, request: Mapping[str, Any]) -> None:
        table = self.tables.setdefault(request["TableName"], {})
        key = (request.get("Item") or request["Key"])["pk"]["S"]
        _check_key(operation, key)
        old = table.get(key)
        names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})
        condition = request.get("ConditionExpression")
        if condition is not None and not holds(condition, old or {}, names, values):
            shown = {"Item": dict(old)} if old is not None else {}
            raise refusal(operation, "ConditionalCheckFailedException", "The conditional request failed", **shown)
        if operation == "ConditionCheck":
            return
        if operation == "DeleteItem":
            table.pop(key, None)
            return
        if operation == "PutItem":
            new = dict(request["Item"])
        else:
            new = _updated(old or {"pk": {"S": key}}, request["UpdateExpression"], names, values)
        _check_item(operation, new)
        table[key] = new


def _check_key(operation: str, key: str) -> None:
    if not key or len(_utf8(operation, key)) > MOST_KEY_BYTES:
        raise refusal(operation, "ValidationException", "One or more parameter values were invalid: the key's size")


def _check_item(operation: str, item: Item) -> None:
    size = 0
    for name, attribute in item.items():
        ((kind, value),) = attribute.items()
        if kind not in ("S", "N") or not isinstance(value, str):
            raise refusal(operation, "ValidationException", f"{name}: this double takes text and numbers")
        # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
        if kind == "N" and len(str(int(value)).lstrip("-")) > MOST_DIGITS:
            raise refusal(operation, "ValidationException", "Attempting to store more than 38 significant digits")
        size += len(name) + len(_utf8(operation, value))
    if size > MOST_ITEM_BYTES:
        raise refusal(operation, "ValidationException", "Item size has exceeded the maximum allowed size")


def _utf8(operation: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise refusal(operation, "SerializationException", "a lone surrogate is no text") from None


def _updated(old: Item, expression: str, names: Names, values: Values) -> Item:
    new = dict(old)
    _, *clauses = _CLAUSES.split(expression)
    for verb, changes in zip(clauses[::2], clauses[1::2], strict=True):
        for change in changes.strip().split(", "):
            path, *rest = change.split(" = " if verb == "SET" else " ")
            name = names.get(path, path)
            if verb == "SET":
                new[name] = values[rest[0]]
            elif verb == "ADD":
                new[name] = {"N": str(int(new.get(name, {"N": "0"})["N"]) + int(values[rest[0]]["N"]))}
            else:
                new.pop(name, None)
    return new


def holds(condition: str, item: Item, names: Names, values: Values) -> bool:
    """Return whether a condition holds for an item; ``{}`` is none.

    Example:
        >>> holds("attribute_not_exists(pk) OR n <= :n", {"pk": {"S": "a"}, "n": {"N": "9"}}, {}, {":n": {"N": "10"}})
        True
    """
    return _compiled(condition)(item, names, values)


@functools.cache
def _compiled(condition: str) -> Test:
    tokens = _TOKENS.findall(condition)
    test = _any_of(tokens)
    assert not tokens, f"not understood: {tokens} of {condition}"
    return test


def _any_of(tokens: list[str]) -> Test:
    tests = [_all_of(tokens)]
    while tokens[:1] == ["OR"]:
        tokens.pop(0)
        tests.append(_all_of(tokens))
    return lambda *given: any(test(*given) for test in tests)


def _all_of(tokens: list[str]) -> Test:
    tests = [_one(tokens)]
    while tokens[:1] == ["AND"]:
        tokens.pop(0)
        tests.append(_one(tokens))
    return lambda *given: all(test(*given) for test in tests)


def _one(tokens: list[str]) -> Test:
    first = tokens.pop(0)
    if first == "(":
        inner = _any_of(tokens)
        _expect(tokens, ")")
        return inner
    if first == "attribute_not_exists":
        _expect(tokens, "(")
        path = tokens.pop(0)
        _expect(tokens, ")")
        return lambda item, names, _values: names.get(path, path) not in item
    sign = tokens.pop(0)
    if sign == "IN":
        _expect(tokens, "(")
        others = [tokens.pop(0)]
        while tokens[0] == ",":
            tokens.pop(0)
            others.append(tokens.pop(0))
        _expect(tokens, ")")
        tests = [_comparing(operator.eq, first, other) for other in others]
        return lambda *given: any(test(*given) for test in tests)
    return _comparing(_COMPARISONS[sign], first, tokens.pop(0))


def _comparing(compare: Callable[[Any, Any], bool], left: str, right: str) -> Test:
    def test(item: Item, names: Names, values: Values) -> bool:
        found = [values.get(one) if one.startswith(":") else item.get(names.get(one, one)) for one in (left, right)]
        kinds, texts = zip(*(next(iter((one or {"none": None}).items())) for one in found), strict=True)
        if "none" in kinds or kinds[0] != kinds[1]:
            return False
        return compare(*(map(int, texts) if kinds[0] == "N" else texts))

    return test


def _expect(tokens: list[str], token: str) -> None:
    assert tokens.pop(0) == token, f"{token} expected"
