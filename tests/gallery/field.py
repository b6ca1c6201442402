"""Further wrong consumers, whose mistakes were met in public (docs/public-bugs.md); each has one."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from gallery.batches import (
    ABSENT,
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

if TYPE_CHECKING:
    from onceq.testing.subject import Handler, Parts

LOG = logging.getLogger("gallery")
# Far below what the function may run.
SHORT_LEASE_MS = 1_000


def takes_its_own_claim_for_anothers(parts: Parts) -> Handler:
    """Ask again when the claim's answer is lost, be refused by the own item, and leave it to "the other worker"."""
    db = parts.dynamodb

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        item = {"pk": text(key), "status": text("in_progress")}
        try:
            asked_twice(lambda: db.put_item(TableName=parts.table, Item=item, ConditionExpression=ABSENT))
        except db.exceptions.ConditionalCheckFailedException as error:
            found = item_of(parts, key)
            if found is not None and found["status"]["S"] == "completed":
                return
            raise InProgress from error
        try:
            result = parts.work(body, idempotency_key=key)
        except Exception:
            db.delete_item(TableName=parts.table, Key={"pk": text(key)})
            raise
        complete = {"pk": text(key), "status": text("completed"), "result": text(json.dumps(result))}
        asked_twice(lambda: db.put_item(TableName=parts.table, Item=complete))

    return each_body(handle)


def never_takes_over(parts: Parts) -> Handler:
    """Claim without a lease: the claim of a worker that died stands for ever, and the order is never charged."""
    db = parts.dynamodb

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        item = {"pk": text(key), "status": text("in_progress"), "owner": text(parts.worker)}
        try:
            db.put_item(TableName=parts.table, Item=item, ConditionExpression=ABSENT)
        except db.exceptions.ConditionalCheckFailedException as error:
            found = item_of(parts, key)
            if found is not None and found["status"]["S"] == "completed":
                return
            raise InProgress from error
        try:
            result = parts.work(body, idempotency_key=key)
        except Exception:
            ended(parts, key, "failed", None)
            db.delete_item(TableName=parts.table, Key={"pk": text(key)}, **_if_failed(parts))
            raise
        ended(parts, key, "completed", result)

    return each_body(handle)


def _if_failed(parts: Parts) -> dict[str, Any]:
    return {
        "ConditionExpression": "#owner = :me AND #status = :failed",
        "ExpressionAttributeNames": {"#owner": "owner", "#status": "status"},
        "ExpressionAttributeValues": {":me": text(parts.worker), ":failed": text("failed")},
    }


def takes_over_at_once(parts: Parts) -> Handler:
    """Take over whatever is in progress, since "it must have crashed": two workers are at it at once."""
    db = parts.dynamodb

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        item = {"pk": text(key), "status": text("in_progress"), "owner": text(parts.worker)}
        try:
            db.put_item(
                TableName=parts.table,
                Item=item,
                ConditionExpression=f"{ABSENT} OR #status = :in_progress",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues={":in_progress": text("in_progress")},
            )
        except db.exceptions.ConditionalCheckFailedException:
            return
        ended(parts, key, "completed", parts.work(body, idempotency_key=key))

    return each_body(handle)


def takes_over_too_early(parts: Parts) -> Handler:
    """Take over after a second, far below what the work may take: two workers are at it at once."""
    db = parts.dynamodb

    def handle(body: dict[str, Any]) -> None:
        key, now = body["order_id"], parts.clock.now_ms()
        item = {
            "pk": text(key),
            "status": text("in_progress"),
            "owner": text(parts.worker),
            "lease_until": number(now + SHORT_LEASE_MS),
        }
        try:
            db.put_item(
                TableName=parts.table,
                Item=item,
                ConditionExpression=f"{ABSENT} OR (#status = :in_progress AND lease_until < :now)",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues={":in_progress": text("in_progress"), ":now": number(now)},
            )
        except db.exceptions.ConditionalCheckFailedException as error:
            found = item_of(parts, key)
            if found is not None and found["status"]["S"] == "completed":
                return
            raise InProgress from error
        ended(parts, key, "completed", parts.work(body, idempotency_key=key))

    return each_body(handle)


def answers_nothing(parts: Parts) -> Handler:
    """Return nothing from the handler, though failures are to be reported: what failed is acknowledged."""
    good = each_body(lambda body: _right(parts, body))

    def handler(event: dict[str, Any], context: Any) -> None:
        answer = good(event, context)
        LOG.info("failed: %s", answer["batchItemFailures"])

    return handler


def answers_under_another_name(parts: Parts) -> Handler:
    """Report failures under a name that Lambda does not read: what failed is acknowledged."""
    good = each_body(lambda body: _right(parts, body))

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        return {"failures": good(event, context)["batchItemFailures"]}

    return handler


def swallows_everything_in_the_batch(parts: Parts) -> Handler:
    """Catch whatever a batch raises so that "one bad record does not block the queue": it deletes them instead."""

    def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
        try:
            for record in event["Records"]:
                _right(parts, json.loads(record["body"]))
        except Exception:
            LOG.exception("the batch failed")
        return {"batchItemFailures": []}

    return handler


def reports_the_last_failure_alone(parts: Parts) -> Handler:
    """Overwrite the list of failures in the loop: of several that failed only the last one is kept."""

    def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
        failures: list[dict[str, str]] = []
        for record in event["Records"]:
            try:
                _right(parts, json.loads(record["body"]))
            except Exception:  # noqa: BLE001 - the message is kept, whatever it was
                failures = [{"itemIdentifier": record["messageId"]}]
        return {"batchItemFailures": failures}

    return handler


def reports_the_record_before(parts: Parts) -> Handler:
    """Report the record before the one that failed: the failed one is acknowledged."""

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        failures, records = [], event["Records"]
        for position, record in enumerate(records):
            try:
                _right(parts, json.loads(record["body"]))
            except Exception:  # noqa: BLE001 - as people write it
                failures.append({"itemIdentifier": records[position - 1]["messageId"]})
        return {"batchItemFailures": failures}

    return handler


def forgets_after_five_minutes(parts: Parts) -> Handler:
    """Let a completion lapse after five minutes, "as FIFO queues do": a later duplicate charges again."""

    def handle(body: dict[str, Any]) -> None:
        minutes = parts.clock.now_ms() // 300_000
        key = f"{body['order_id']}#{minutes}"
        if not claimed(parts, key):
            return
        ended(parts, key, "completed", parts.work(body, idempotency_key=key))

    return each_body(handle)


def _right(parts: Parts, body: dict[str, Any]) -> None:
    key = body["order_id"]
    if claimed(parts, key):
        ended(parts, key, "completed", parts.work(body, idempotency_key=key))


def claims_by_a_condition_that_always_holds(parts: Parts) -> Handler:
    """Ask that an attribute is absent which no claim has: every claim lands."""

    def handle(body: dict[str, Any]) -> None:
        item = {"pk": text(body["order_id"]), "status": text("in_progress"), "owner": text(parts.worker)}
        try:
            parts.dynamodb.put_item(
                TableName=parts.table, Item=item, ConditionExpression="attribute_not_exists(order_id)"
            )
        except parts.dynamodb.exceptions.ConditionalCheckFailedException:
            return
        ended(parts, body["order_id"], "completed", parts.work(body, idempotency_key=body["order_id"]))

    return each_body(handle)


def looks_beside_an_audit_row(parts: Parts) -> Handler:
    """Look, then act, and write a row for each delivery, whose key nobody ever asks for."""

    def handle(record: dict[str, Any]) -> None:
        body = json.loads(record["body"])
        audit = f"log#{parts.clock.now_ms()}#{record['messageId']}"
        parts.dynamodb.put_item(TableName=parts.table, Item={"pk": text(audit)})
        if item_of(parts, body["order_id"]) is None:
            parts.work(body)
            parts.dynamodb.put_item(TableName=parts.table, Item={"pk": text(body["order_id"])})

    return each_record(handle)
