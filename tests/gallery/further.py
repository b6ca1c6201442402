"""Wrong consumers whose mistake shows in a warm process, at a second send, after faults, or in a batch of two jobs."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from gallery.batches import (
    InProgress,
    asked_twice,
    claimed,
    each_body,
    each_record,
    ended,
    item_of,
    json_of,
    number,
    text,
)

if TYPE_CHECKING:
    from onceq.testing.subject import Handler, Parts

# What a warm container remembers.
REMEMBERED: set[str] = set()
# After so many failures one of these gives up by itself.
FAILURES = 5


def remembers_in_its_module(parts: Parts) -> Handler:
    """Remember in the module what is done: another container does it again."""

    def handle(body: dict[str, Any]) -> None:
        if body["order_id"] in REMEMBERED:
            return
        parts.work(body)
        REMEMBERED.add(body["order_id"])

    return each_body(handle)


def remembers_in_its_handler(parts: Parts) -> Handler:
    """Remember in the handler's closure what is done: another container does it again."""
    done: set[str] = set()

    def handle(body: dict[str, Any]) -> None:
        if body["order_id"] in done:
            return
        parts.work(body)
        done.add(body["order_id"])

    return each_body(handle)


def remembers_what_it_began(parts: Parts) -> Handler:
    """Remember in the closure what was begun, to save a request: the retry in a warm container does nothing."""
    begun: set[str] = set()

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if key in begun:
            return
        begun.add(key)
        if claimed(parts, key):
            ended(parts, key, "completed", parts.work(body, idempotency_key=key))

    return each_body(handle)


def keeps_the_first_order(parts: Parts) -> Handler:
    """Make the key once, at the first invocation: a warm container gives every later customer the first one's."""
    made: dict[str, str] = {}

    def handler(event: dict[str, Any], context: Any) -> Any:
        first = json.loads(event["Records"][0]["body"])["order_id"]
        prefix = made.setdefault("prefix", first)

        def handle(record: dict[str, Any]) -> None:
            body, position = json.loads(record["body"]), event["Records"].index(record)
            if claimed(parts, body["order_id"]):
                result = parts.work(body, idempotency_key=f"{prefix}-{position}")
                ended(parts, body["order_id"], "completed", result)

        return each_record(handle)(event, context)

    return handler


def keeps_its_failures(parts: Parts) -> Handler:
    """Make the list of failures outside of the handler: after one failure every answer names messages of before."""
    failures: list[dict[str, str]] = []

    def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
        for record in event["Records"]:
            body = json.loads(record["body"])
            try:
                if claimed(parts, body["order_id"]):
                    result = parts.work(body, idempotency_key=body["order_id"])
                    ended(parts, body["order_id"], "completed", result)
            except Exception:  # noqa: BLE001 - the message is kept, whatever it was
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}

    return handler


def key_from_the_whole_body(parts: Parts) -> Handler:
    """Name the job by a hash of its body, in which the producer's time stands: a second send is another job."""

    def handle(record: dict[str, Any]) -> None:
        key = hashlib.sha256(record["body"].encode()).hexdigest()
        if claimed(parts, key):
            ended(parts, key, "completed", parts.work(json.loads(record["body"]), idempotency_key=key))

    return each_record(handle)


def key_from_when_it_was_sent(parts: Parts) -> Handler:
    """Name the job by order and SQS's time of sending: a second send is another job."""

    def handle(record: dict[str, Any]) -> None:
        body = json.loads(record["body"])
        key = f"{body['order_id']}-{record['attributes']['SentTimestamp']}"
        if claimed(parts, key):
            ended(parts, key, "completed", parts.work(body, idempotency_key=key))

    return each_record(handle)


def keeps_what_failed_once(parts: Parts) -> Handler:
    """Mark a failure for good, and keep such a message though its retry has charged: it ends among the dead letters."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        has_failed = item_of(parts, f"failed#{key}") is not None
        if claimed(parts, key):
            try:
                result = parts.work(body, idempotency_key=key)
            except Exception:
                mark = {"pk": text(f"failed#{key}"), "at": number(parts.clock.now_ms())}
                parts.dynamodb.put_item(TableName=parts.table, Item=mark)
                raise
            ended(parts, key, "completed", result)
        if has_failed:
            raise InProgress

    return each_body(handle)


def completes_by_transaction_without_owner(parts: Parts) -> Handler:
    """Write "completed" in a transaction, over whatever stands there: a zombie overwrites its successor's record."""

    def handle(body: dict[str, Any]) -> None:
        if claimed(parts, body["order_id"]):
            item = _completed(body["order_id"], parts.work(body, idempotency_key=body["order_id"]))
            writes = [{"Put": {"TableName": parts.table, "Item": item}}]
            asked_twice(lambda: parts.dynamodb.transact_write_items(TransactItems=writes))

    return each_body(handle)


def completes_by_batch_without_owner(parts: Parts) -> Handler:
    """Write "completed" with BatchWriteItem, which takes no condition at all."""

    def handle(body: dict[str, Any]) -> None:
        if claimed(parts, body["order_id"]):
            item = _completed(body["order_id"], parts.work(body, idempotency_key=body["order_id"]))
            writes = {parts.table: [{"PutRequest": {"Item": item}}]}
            asked_twice(lambda: parts.dynamodb.batch_write_item(RequestItems=writes))

    return each_body(handle)


def does_the_first_order_again(parts: Parts) -> Handler:
    """Keep the first order that a container gets, and do that one for every later message."""
    first: list[dict[str, Any]] = []

    def handle(body: dict[str, Any]) -> None:
        first.append(body)
        if claimed(parts, body["order_id"]):
            ended(parts, body["order_id"], "completed", parts.work(first[0], idempotency_key=body["order_id"]))

    return each_body(handle)


def leaves_the_batch_at_a_duplicate(parts: Parts) -> Handler:
    """Return at a duplicate where "continue" was meant: the records behind it are acknowledged unseen."""

    def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
        failures: list[dict[str, str]] = []
        for record in event["Records"]:
            body = json.loads(record["body"])
            try:
                if not claimed(parts, body["order_id"]):
                    return {"batchItemFailures": failures}
                ended(parts, body["order_id"], "completed", parts.work(body, idempotency_key=body["order_id"]))
            except Exception:  # noqa: BLE001 - the message is kept, whatever it was
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}

    return handler


def leaves_the_batch_at_what_is_in_progress(parts: Parts) -> Handler:
    """Keep what another worker is at, and leave the loop: the records behind it are acknowledged unseen."""

    def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
        failures = []
        for record in event["Records"]:
            try:
                _right(parts, json.loads(record["body"]))
            except InProgress:
                failures.append({"itemIdentifier": record["messageId"]})
                break
            except Exception:  # noqa: BLE001 - the message is kept, whatever it was
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}

    return handler


def drops_a_batch_with_a_completed_order(parts: Parts) -> Handler:
    """Take a batch for a duplicate if any of its orders is completed: the new ones beside it are dropped."""

    def handler(event: dict[str, Any], context: Any) -> Any:
        found = [item_of(parts, json.loads(record["body"])["order_id"]) for record in event["Records"]]
        if any(item is not None and item["status"]["S"] == "completed" for item in found):
            return {"batchItemFailures": []}
        return each_body(lambda body: _right(parts, body))(event, context)

    return handler


def claims_the_first_for_the_batch(parts: Parts) -> Handler:
    """Claim the first order for its whole batch: if that one is done, the others are dropped."""

    def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
        bodies = [json.loads(record["body"]) for record in event["Records"]]
        first = bodies[0]["order_id"]
        if claimed(parts, first):
            results = [parts.work(body, idempotency_key=body["order_id"]) for body in bodies]
            ended(parts, first, "completed", results)
        return {"batchItemFailures": []}

    return handler


def takes_any_refusal_for_done(parts: Parts) -> Handler:
    """Catch whatever the claim is refused for: a request that was throttled counts as "already there"."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        try:
            is_new = claimed(parts, key)
        except ClientError:
            is_new = False
        if is_new:
            ended(parts, key, "completed", parts.work(body, idempotency_key=key))

    return each_body(handle)


def takes_a_failed_look_for_blocked(parts: Parts) -> Handler:
    """Look whether the customer is blocked, and leave the order if that cannot be told."""

    def handle(body: dict[str, Any]) -> None:
        try:
            blocked = item_of(parts, f"blocked#{body['customer_id']}") is not None
        except ClientError:
            blocked = True
        if not blocked:
            _right(parts, body)

    return each_body(handle)


def gives_up_by_the_receive_count(parts: Parts) -> Handler:
    """Take a message that came five times for poison, and acknowledge it, though its queue has a redrive policy."""

    def handle(record: dict[str, Any]) -> None:
        if int(record["attributes"]["ApproximateReceiveCount"]) <= FAILURES:
            _right(parts, json.loads(record["body"]))

    return each_record(handle)


def gives_up_by_a_counter(parts: Parts) -> Handler:
    """Count the starts of an order in the table, and mark it failed at the fifth failure: nobody hears of it."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if not claimed(parts, key):
            return
        counted = parts.dynamodb.update_item(
            TableName=parts.table,
            Key={"pk": text(f"starts#{key}")},
            UpdateExpression="ADD starts :one",
            ExpressionAttributeValues={":one": number(1)},
            ReturnValues="ALL_NEW",
        )
        try:
            result = parts.work(body, idempotency_key=key)
        except Exception:
            if int(counted["Attributes"]["starts"]["N"]) < FAILURES:
                raise
            result = None
        ended(parts, key, "completed", result)

    return each_body(handle)


def _right(parts: Parts, body: dict[str, Any]) -> None:
    key = body["order_id"]
    if claimed(parts, key):
        ended(parts, key, "completed", parts.work(body, idempotency_key=key))


def _completed(key: str, result: Any) -> dict[str, Any]:
    return {"result": json_of(result), "status": text("completed"), "pk": text(key)}
