"""Wrong consumers, each with one mistake, as teams write them without a framework; nothing of onceq is in them.

The job is `Parts.work`: one effect outside, whose provider takes a key if it is given one. Where a consumer gives a
good key, a second run of the work does no harm; so the mistakes that only show where the work runs twice give none, as
the many do whose provider takes none.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from gallery.batches import (
    ABSENT,
    LEASE_MS,
    InProgress,
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

LOG = logging.getLogger("gallery")
DAY_MS = 86_400_000


def charge_then_claim(parts: Parts) -> Handler:
    """Charge, and claim the order afterwards: a duplicate has charged by the time that it is refused."""
    db = parts.dynamodb

    def handle(body: dict[str, Any]) -> None:
        result = parts.work(body)
        item = {"pk": text(body["order_id"]), "result": json_of(result)}
        try:
            db.put_item(TableName=parts.table, Item=item, ConditionExpression=ABSENT)
        except db.exceptions.ConditionalCheckFailedException:
            LOG.info("order %s was processed before", body["order_id"])

    return each_body(handle)


def check_then_act(parts: Parts) -> Handler:
    """Look whether the order is there, and charge if not: two that look at once both charge."""

    def handle(body: dict[str, Any]) -> None:
        if item_of(parts, body["order_id"]) is not None:
            return
        result = parts.work(body)
        item = {"pk": text(body["order_id"]), "result": json_of(result)}
        parts.dynamodb.put_item(TableName=parts.table, Item=item)

    return each_body(handle)


def lock_only(parts: Parts) -> Handler:
    """Hold a lock while charging, and let go of it: nothing remembers that it was done."""
    db = parts.dynamodb

    def handle(body: dict[str, Any]) -> None:
        now, key = parts.clock.now_ms(), text(f"lock#{body['order_id']}")
        try:
            db.put_item(
                TableName=parts.table,
                Item={"pk": key, "owner": text(parts.worker), "lease_until": number(now + LEASE_MS)},
                ConditionExpression="attribute_not_exists(pk) OR lease_until < :now",
                ExpressionAttributeValues={":now": number(now)},
            )
        except db.exceptions.ConditionalCheckFailedException as error:
            raise InProgress from error
        try:
            parts.work(body)
        finally:
            db.delete_item(
                TableName=parts.table,
                Key={"pk": key},
                ConditionExpression="#owner = :me",
                ExpressionAttributeNames={"#owner": "owner"},
                ExpressionAttributeValues={":me": text(parts.worker)},
            )

    return each_body(handle)


def delete_on_failure_without_owner(parts: Parts) -> Handler:
    """Delete the record when the work fails, whosever it is: a slow worker's failure deletes another's completion."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if not claimed(parts, key):
            return
        try:
            result = parts.work(body)
        except Exception:
            parts.dynamodb.delete_item(TableName=parts.table, Key={"pk": text(key)})
            raise
        ended(parts, key, "completed", result)

    return each_body(handle)


def complete_without_owner(parts: Parts) -> Handler:
    """Write "completed" over whatever stands there: a worker that was replaced overwrites its successor's record."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if not claimed(parts, key):
            return
        ended(parts, key, "completed", parts.work(body), owned=False)

    return each_body(handle)


def key_from_the_message_id(parts: Parts) -> Handler:
    """Name the job by SQS's message id: a second send, and a redrive, have another one."""

    def handle(record: dict[str, Any]) -> None:
        key = record["messageId"]
        if not claimed(parts, key):
            return
        result = parts.work(json.loads(record["body"]), idempotency_key=key)
        ended(parts, key, "completed", result)

    return each_record(handle)


def key_from_a_timestamp(parts: Parts) -> Handler:
    """Name the job by order and time, so that it is "unique": so is every duplicate."""

    def handle(body: dict[str, Any]) -> None:
        key = f"{body['order_id']}-{parts.clock.now_ms()}"
        if not claimed(parts, key):
            return
        result = parts.work(body, idempotency_key=key)
        ended(parts, key, "completed", result)

    return each_body(handle)


def customer_amount_day(parts: Parts) -> Handler:
    """Give the provider customer, amount and day as the key: a second order of that day is never charged."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if not claimed(parts, key):
            return
        day = parts.clock.now_ms() // DAY_MS
        result = parts.work(body, idempotency_key=f"{body['customer_id']}-{body['amount_cents']}-{day}")
        ended(parts, key, "completed", result)

    return each_body(handle)


def result_truthiness(parts: Parts) -> Handler:
    """Take a stored result that is 0, "" or [] for none: such a job runs again whenever its message comes."""

    def handle(body: dict[str, Any]) -> Any:
        key = body["order_id"]
        if claimed(parts, key):
            result = parts.work(body)
            ended(parts, key, "completed", result)
            return result
        item = item_of(parts, key) or {}
        return json.loads(item["result"]["S"]) or parts.work(body)

    return each_body(handle)


def effect_after_completion(parts: Parts) -> Handler:
    """Record the completion first, "to be safe", and have the effect then: a crash in between loses it."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if not claimed(parts, key):
            return
        ended(parts, key, "completed", None)
        parts.work(body, idempotency_key=key)

    return each_body(handle)


def acknowledges_without_effect(parts: Parts) -> Handler:
    """Log what went wrong, and acknowledge: the provider was down for a minute, and the order is gone."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        if not claimed(parts, key):
            return
        try:
            result = parts.work(body, idempotency_key=key)
        except Exception:
            LOG.exception("order %s failed", key)
            result = None
        ended(parts, key, "completed", result)

    return each_body(handle)


def acknowledges_what_is_in_progress(parts: Parts) -> Handler:
    """Drop a duplicate while another worker is at it: that one dies, and nobody is left to do it."""

    def handle(body: dict[str, Any]) -> None:
        key = body["order_id"]
        try:
            if not claimed(parts, key):
                return
        except InProgress:
            LOG.info("order %s is being processed", key)
            return
        result = parts.work(body, idempotency_key=key)
        ended(parts, key, "completed", result)

    return each_body(handle)
