"""Reading the state at the end of a soak, past the proxy."""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from kit.soak_jobs import ACCOUNTS as ACCOUNTS_TABLE
from kit.soak_jobs import LINES, STOCK
from kit.soak_log import read_log
from kit.soak_provider import call
from kit.world import OUTBOX_TABLE, TABLE
from onceq.outbox import INDEX
from soak.person import note_of
from soak.plan import ACCOUNTS, SHELF
from soak.seen import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from soak.plan import Message
    from soak.stand import Stand

COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
# What is in flight at the end is read when it comes back.
PAUSE_SECONDS = 0.2


def queues_of(stand: Stand) -> dict[str, dict[str, str]]:
    """Return the queues of the soak, by name."""
    queues: dict[str, dict[str, str]] = json.loads(stand.environment["ONCEQ_QUEUES"])
    return queues


def waiting(stand: Stand, sqs: Any) -> int:
    """Return how many messages lie in the queues, visible or not."""
    total = 0
    for queue in queues_of(stand).values():
        found = sqs.get_queue_attributes(QueueUrl=queue["url"], AttributeNames=list(COUNTS))["Attributes"]
        total += sum(int(found[name]) for name in COUNTS)
    return total


def unsettled(stand: Stand, dynamodb: Any) -> int:
    """Return how many entries of the outbox wait, how many claims are held, and how many requests are to land yet.

    The journal knows the claims: reading the whole table again and again would take moto's time from the processes.
    """
    held: dict[str, tuple[int, bool]] = {}
    for write in list(stand.proxy.journal):
        if write["http"] == HTTPStatus.OK and write["version"] > held.get(write["job"], (0,))[0]:
            held[write["job"]] = write["version"], write["status"] in (None, "processing")
    pending = dynamodb.scan(TableName=OUTBOX_TABLE, IndexName=INDEX, Select="COUNT")["Count"]
    return int(pending) + sum(is_held for _, is_held in held.values()) + stand.proxy.held


def read_state(stand: Stand, sent: list[Message], *, zombies: list[dict[str, Any]], settle: float) -> Seen:
    """Read everything; messages that are in flight are waited for, a bounded time."""
    dynamodb, sqs = stand.client("dynamodb"), stand.client("sqs")
    records = {item["pk"]["S"]: _plain(item) for item in _items(dynamodb, TABLE) if "claimant" in item}
    outbox = [_plain(item) for item in _items(dynamodb, OUTBOX_TABLE)]
    letters = [
        {"job": "", "note": note_of(letter), "body": letter["Body"]}
        for queue in queues_of(stand).values()
        for letter in _drained(sqs, queue["dlq_url"])
    ]
    left: list[str] = []
    until = time.monotonic() + settle
    while waiting(stand, sqs) and time.monotonic() < until:
        left += [letter["Body"] for queue in queues_of(stand).values() for letter in _drained(sqs, queue["url"])]
        time.sleep(PAUSE_SECONDS)
    return Seen(
        sent=sent,
        journal=stand.proxy.journal,
        log=read_log(stand.log),
        records=records,
        outbox=[
            {"job": f"{one['job_type']}#{one['idempotency_key']}", "status": one["status"], "pk": one["pk"]}
            for one in outbox
        ],
        shelf=SHELF,
        stock={item["pk"]["S"]: int(item["pieces"]["N"]) for item in _items(dynamodb, STOCK)},
        lines={item["pk"]["S"]: (item["sku"]["S"], int(item["pieces"]["N"])) for item in _items(dynamodb, LINES)},
        accounts=ACCOUNTS,
        balances={item["pk"]["S"]: int(item["cents"]["N"]) for item in _items(dynamodb, ACCOUNTS_TABLE)},
        letters=letters,
        left=left,
        books=call(stand.provider, "/books")[1],
        exits=stand.exits,
        zombies=zombies,
        skew_ms=int(stand.times.skew * 1000),
    )


def _items(dynamodb: Any, table: str) -> Iterator[dict[str, Any]]:
    for page in dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
        yield from page["Items"]


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, attribute in item.items():
        ((kind, value),) = attribute.items()
        plain[name] = int(value) if kind == "N" else value
    return plain


def _drained(sqs: Any, url: str) -> Iterator[dict[str, Any]]:
    asked = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"], "VisibilityTimeout": 300}
    while letters := sqs.receive_message(QueueUrl=url, **asked).get("Messages", []):
        for letter in letters:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=letter["ReceiptHandle"])
            yield letter
