"""What the consumers of the gallery share: the loop over a batch, and a claim with an owner as it is often written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ConnectionError as NotReached
from botocore.exceptions import HTTPClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.testing.subject import Handler, Parts

# As long as Lambda lets a function run that has a timeout of a minute.
LEASE_MS = 60_000
ABSENT = "attribute_not_exists(pk)"


class InProgress(Exception):
    """Somebody else is at it: keep the message."""


def each_record(handle: Callable[[dict[str, Any]], Any]) -> Handler:
    """Handle one record after the other, and keep those that raise: the partial batch response."""

    def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
        failures = []
        for record in event["Records"]:
            try:
                handle(record)
            except Exception:  # noqa: BLE001 - the message is kept, whatever it was
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}

    return handler


def each_body(handle: Callable[[dict[str, Any]], Any]) -> Handler:
    """Handle one body after the other, read."""
    return each_record(lambda record: handle(json.loads(record["body"])))


def text(value: str) -> dict[str, str]:
    """Return a string attribute."""
    return {"S": value}


def json_of(value: Any) -> dict[str, str]:
    """Return a result as a string attribute."""
    return {"S": json.dumps(value)}


def number(value: int) -> dict[str, str]:
    """Return a number attribute."""
    return {"N": str(value)}


def item_of(parts: Parts, key: str) -> dict[str, Any] | None:
    """Return what stands in the table under a key, or ``None``."""
    answer = parts.dynamodb.get_item(TableName=parts.table, Key={"pk": {"S": key}}, ConsistentRead=True)
    item: dict[str, Any] | None = answer.get("Item")
    return item


def claimed(parts: Parts, key: str) -> bool:
    """Claim a key, or take it over from one whose lease has passed; return ``False`` if it is completed.

    Raises:
        InProgress: If somebody holds it.
    """
    db, now = parts.dynamodb, parts.clock.now_ms()
    try:
        db.put_item(
            TableName=parts.table,
            Item={
                "pk": text(key),
                "status": text("in_progress"),
                "owner": text(parts.worker),
                "lease_until": number(now + LEASE_MS),
            },
            ConditionExpression=f"{ABSENT} OR (#status = :in_progress AND lease_until < :now)",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":in_progress": text("in_progress"), ":now": number(now)},
        )
    except db.exceptions.ConditionalCheckFailedException as error:
        item = item_of(parts, key)
        if item is not None and item["status"]["S"] == "completed":
            return False
        raise InProgress from error
    return True


def ended(parts: Parts, key: str, status: str, result: Any, *, owned: bool = True) -> None:
    """Write how the work ended: as long as the claim is this worker's, or without asking."""
    names, values = {"#status": "status", "#result": "result"}, {":status": text(status), ":result": json_of(result)}
    asking: dict[str, Any] = {}
    if owned:
        names["#owner"] = "owner"
        values |= {":me": text(parts.worker), ":in_progress": text("in_progress")}
        asking = {"ConditionExpression": "#owner = :me AND #status = :in_progress"}
    parts.dynamodb.update_item(
        TableName=parts.table,
        Key={"pk": text(key)},
        UpdateExpression="SET #status = :status, #result = :result",
        ExpressionAttributeNames=names,
        ExpressionAttributeValues=values,
        **asking,
    )


def asked_twice(send: Callable[[], Any]) -> Any:
    """Send a request, and once more if there was no answer: botocore's retries, as every client has them."""
    try:
        return send()
    except (NotReached, HTTPClientError):
        return send()
