"""Right consumers: the kit must pass them, however unlike the framework they are written."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from gallery.batches import (
    ABSENT,
    LEASE_MS,
    InProgress,
    asked_twice,
    claimed,
    each_body,
    each_record,
    ended,
    item_of,
    number,
    text,
)
from gallery.outside import booking_of, order_of

if TYPE_CHECKING:
    from onceq.testing.subject import Handler, Parts


def right_in_short(parts: Parts) -> Handler:
    """Claim with an owner and a lease, give the provider the order's key, complete only what is still owned.

    The wrong consumers of the gallery are this one with one mistake.
    """

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if claimed(parts, key):
            ended(parts, key, "completed", parts.work(body, idempotency_key=key))

    return each_body(handle)


def right_by_the_providers_key(parts: Parts) -> Handler:
    """Claim nothing: the provider's memory of the order's key is all the protection there is, and enough for it."""

    def handle(body: dict[str, Any]) -> None:
        parts.work(body, idempotency_key=f"charge-{body['order_id']}")

    return each_body(handle)


def right_with_a_memory(parts: Parts) -> Handler:
    """Remember what the table says is completed, which saves a request in a warm process; a fresh one asks it."""
    completed: set[str] = set()

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if key in completed:
            return
        if claimed(parts, key):
            ended(parts, key, "completed", parts.work(body, idempotency_key=key))
        completed.add(key)

    return each_body(handle)


def right_by_a_hash(parts: Parts) -> Handler:
    """Name the job by a hash of what was ordered, without when it was sent."""

    def handle(body: dict[str, Any]) -> None:
        ordered = {name: value for name, value in body.items() if name != "sent_at"}
        key = hashlib.sha256(json.dumps(ordered, sort_keys=True).encode()).hexdigest()
        if claimed(parts, key):
            ended(parts, key, "completed", parts.work(body, idempotency_key=key))

    return each_body(handle)


class _Claims:
    """A claim with a token of its own and a version that every write raises."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._refused = parts.dynamodb.exceptions.ConditionalCheckFailedException
        self._numbers = itertools.count(1)

    def claim(self, key: str) -> tuple[dict[str, Any], bool]:
        """Return the item, and whether it is ours to work on. Raises: InProgress."""
        found = item_of(self._parts, key)
        now = self._parts.clock.now_ms()
        if found is not None and found["status"]["S"] == "completed":
            return found, False
        if found is not None and found["status"]["S"] == "in_progress" and int(found["lease_until"]["N"]) >= now:
            raise InProgress
        item = {
            "pk": text(key),
            "status": text("in_progress"),
            "owner": text(f"{self._parts.worker}-{next(self._numbers)}"),
            "version": number(int(found["version"]["N"]) + 1 if found else 1),
            "lease_until": number(now + LEASE_MS),
        }
        self._put(item, found)
        return item, True

    def end(self, item: dict[str, Any], status: str, result: Any) -> None:
        """Write how the work on a claim of ours ended. Raises: InProgress, if it is somebody else's by now."""
        version = number(int(item["version"]["N"]) + 1)
        self._put({**item, "status": text(status), "version": version, "result": text(json.dumps(result))}, item)

    def _put(self, item: dict[str, Any], before: dict[str, Any] | None) -> None:
        """Put an item in the place of the one that was seen; one that stands there already was put by us."""
        request: dict[str, Any] = {"TableName": self._parts.table, "Item": item, "ConditionExpression": ABSENT}
        if before is not None:
            request |= {
                "ConditionExpression": "#owner = :owner AND #version = :version",
                "ExpressionAttributeNames": {"#owner": "owner", "#version": "version"},
                "ExpressionAttributeValues": {":owner": before["owner"], ":version": before["version"]},
            }
        try:
            asked_twice(lambda: self._parts.dynamodb.put_item(**request))
        except self._refused as error:
            if item_of(self._parts, item["pk"]["S"]) != item:
                raise InProgress from error


def right_with_downstream_key(parts: Parts) -> Handler:
    """Name each claim by a token, raise a version with every write, know the own write, take over what went stale."""
    claims = _Claims(parts)

    def handle(body: dict[str, Any]) -> Any:
        item, is_ours = claims.claim(body["order_id"])
        if not is_ours:
            return json.loads(item["result"]["S"])
        try:
            result = parts.work(body, idempotency_key=f"charge-{body['order_id']}")
        except Exception:
            claims.end(item, "failed", None)
            raise
        claims.end(item, "completed", result)
        return result

    return each_body(handle)


def right_with_a_transaction(parts: Parts) -> Handler:
    """Commit the effect, which is a write of the same database, together with the mark that it was done."""
    db = parts.dynamodb

    def handle(body: dict[str, Any]) -> None:
        done = {"pk": text(body["order_id"]), "status": text("completed")}
        writes = [
            {"Put": {"TableName": parts.table, "Item": done, "ConditionExpression": ABSENT}},
            {"Update": booking_of(order_of(body))},
        ]
        try:
            asked_twice(lambda: db.transact_write_items(TransactItems=writes))
        except db.exceptions.TransactionCanceledException:
            if item_of(parts, body["order_id"]) is None:
                raise

    return each_body(handle)


def right_with_a_look_between(parts: Parts) -> Handler:
    """Ask the table once more between claim and work: whoever was replaced there charges again, with the same key."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if claimed(parts, key):
            item_of(parts, f"customer#{body['customer_id']}")
            ended(parts, key, "completed", parts.work(body, idempotency_key=key))

    return each_body(handle)


def right_with_a_row_of_its_own(parts: Parts) -> Handler:
    """Keep a row for each worker of an order beside the claim, in a table whose key has two parts."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if not claimed(parts, key):
            return
        row = {"at": number(parts.clock.now_ms()), "sk": text(parts.worker), "pk": text(key)}
        parts.dynamodb.put_item(TableName=os.environ["AUDIT_TABLE"], Item=row)
        result = parts.work(body, idempotency_key=key)
        parts.dynamodb.put_item(TableName=os.environ["AUDIT_TABLE"], Item={"done": text("yes"), **row})
        ended(parts, key, "completed", result)

    return each_body(handle)


def right_with_a_sum(parts: Parts) -> Handler:
    """Claim and complete in transactions that also add to a sum, which every worker adds to."""
    db = parts.dynamodb

    def count(word: str) -> dict[str, Any]:
        return {
            "Update": {
                "TableName": os.environ["AUDIT_TABLE"],
                "Key": {"pk": text("sum"), "sk": text("sum")},
                "UpdateExpression": "SET #word = if_not_exists(#word, :none) + :one",
                "ExpressionAttributeNames": {"#word": word},
                "ExpressionAttributeValues": {":one": number(1), ":none": number(0)},
            }
        }

    def handle(body: dict[str, Any]) -> None:
        key, now = body["order_id"], parts.clock.now_ms()
        names = {"#status": "status"}
        item = {"pk": text(key), "status": text("in_progress"), "owner": text(parts.worker)}
        claim = {
            "TableName": parts.table,
            "Item": item | {"lease_until": number(now + LEASE_MS)},
            "ConditionExpression": f"{ABSENT} OR (#status = :in_progress AND lease_until < :now)",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {":in_progress": text("in_progress"), ":now": number(now)},
        }
        try:
            db.transact_write_items(TransactItems=[{"Put": claim}, count("begun")])
        except db.exceptions.TransactionCanceledException as error:
            found = item_of(parts, key)
            if found is not None and found["status"]["S"] == "completed":
                return
            raise InProgress from error
        result = parts.work(body, idempotency_key=key)
        done = {
            "TableName": parts.table,
            "Item": item | {"status": text("completed"), "result": text(json.dumps(result))},
            "ConditionExpression": "#owner = :me",
            "ExpressionAttributeNames": {"#owner": "owner"},
            "ExpressionAttributeValues": {":me": text(parts.worker)},
        }
        db.transact_write_items(TransactItems=[{"Put": done}, count("ended")])

    return each_body(handle)


def right_that_takes_the_records_out(parts: Parts) -> Handler:
    """Take one record after the other out of the event: what Lambda invoked with is Lambda's, and stays whole."""

    def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
        failures = []
        while event["Records"]:
            record = event["Records"].pop(0)
            message_id, body = record.pop("messageId"), json.loads(record["body"])
            try:
                if claimed(parts, body["order_id"]):
                    result = parts.work(body, idempotency_key=body["order_id"])
                    ended(parts, body["order_id"], "completed", result)
            except Exception:  # noqa: BLE001 - the message is kept, whatever it was
                failures.append({"itemIdentifier": message_id})
        return {"batchItemFailures": failures}

    return handler


def right_that_clears_the_event(parts: Parts) -> Handler:
    """Empty the event when all is done, to let go of the memory."""
    good = right_in_short(parts)

    def handler(event: dict[str, Any], context: Any) -> Any:
        try:
            return good(event, context)
        finally:
            event.clear()

    return handler


def right_that_asks_again(parts: Parts) -> Handler:
    """Ask again when the table is busy, twice, and leave the message to its next receive then."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        for number_of_the_try in range(3):
            try:
                if claimed(parts, key):
                    ended(parts, key, "completed", parts.work(body, idempotency_key=key))
            except ClientError:
                if number_of_the_try == 2:
                    raise
            else:
                return

    return each_body(handle)


def right_by_sending_again(parts: Parts) -> Handler:
    """Send the message again with a delay where the work fails, and acknowledge this one."""

    def handle(record: dict[str, Any]) -> None:
        body = json.loads(record["body"])
        key = body["order_id"]
        try:
            if claimed(parts, key):
                ended(parts, key, "completed", parts.work(body, idempotency_key=key))
        except Exception:  # noqa: BLE001 - whatever it was, it is tried again in a minute
            url = parts.sqs.get_queue_url(QueueName=record["eventSourceARN"].rpartition(":")[2])["QueueUrl"]
            parts.sqs.send_message(QueueUrl=url, MessageBody=record["body"], DelaySeconds=60)

    return each_record(handle)


def right_beside_an_audit_row(parts: Parts) -> Handler:
    """Write a row for each delivery, whose key is another one each time, beside what protects the work."""

    def handle(record: dict[str, Any]) -> None:
        audit = f"log#{parts.clock.now_ms()}#{record['messageId']}"
        parts.dynamodb.put_item(TableName=parts.table, Item={"pk": text(audit)})
        body = json.loads(record["body"])
        key = body["order_id"]
        if claimed(parts, key):
            ended(parts, key, "completed", parts.work(body, idempotency_key=key))

    return each_record(handle)
