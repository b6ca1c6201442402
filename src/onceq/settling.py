"""What SQS is told about a batch: dead-letter copies, visibility changes, and the messages to keep."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from onceq import telemetry as events
from onceq.message import ATTRIBUTE
from onceq.outcome import Answer, Deferred, Faulted, Outcome, answer_of, describe
from onceq.queue import MAX_ATTRIBUTES, MAX_BYTES, size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.clock import Clock, TokenFactory
    from onceq.message import DeadLetterNote, Message
    from onceq.queue import Queue
    from onceq.settings import QueueSettings
    from onceq.telemetry import Telemetry

# Duplicates that wait for one job come back a little apart.
JITTER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One record of a batch and where it came from; ``queue`` is ``None`` where the ARN is not in the settings."""

    message: Message
    queue: QueueSettings | None


def settle(
    deliveries: Sequence[Delivery],
    outcomes: Sequence[Outcome],
    *,
    queue: Queue,
    clock: Clock,
    tokens: TokenFactory,
    telemetry: Telemetry,
) -> list[bool]:
    """Carry out what the outcomes mean to SQS.

    Copies come first: a message is acknowledged only when its copy has arrived. A visibility change that fails only
    means the queue's own visibility timeout.

    Args:
        deliveries: The records of the batch.
        outcomes: How each ended.
        queue: The seam to SQS.
        clock: The time.
        tokens: Draws the jitter.
        telemetry: Told about copies and what failed.

    Returns:
        For each record whether it is kept.
    """
    now_ms = clock.now_ms()
    answers = []
    for outcome in outcomes:
        jitter = tokens.uniform(0, JITTER_SECONDS) if isinstance(outcome, Deferred) else 0.0
        answers.append(answer_of(outcome, now_ms, jitter))
    for position in _failed_copies(deliveries, answers, queue, telemetry):
        answers[position] = answer_of(Faulted("the copy failed"), now_ms, 0)
    _change_visibility(deliveries, answers, queue, telemetry)
    return [answer.keep for answer in answers]


def _failed_copies(
    deliveries: Sequence[Delivery], answers: Sequence[Answer], queue: Queue, telemetry: Telemetry
) -> list[int]:
    by_url: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    failed: dict[int, str] = {}
    for position, (delivery, answer) in enumerate(zip(deliveries, answers, strict=True)):
        if answer.copy is None:
            continue
        if delivery.queue is None or not delivery.queue.dlq_url or not delivery.message.body:
            failed[position] = "there is nothing to copy, or no dead-letter queue to copy it to"
            continue
        try:
            by_url[delivery.queue.dlq_url][position] = _copy(delivery.message, delivery.queue, answer.copy)
        except ValueError as error:
            failed[position] = describe(error)  # a lone surrogate, which SQS would not deliver and does not take
    for url, copies in by_url.items():
        _, reasons = queue.send_batch(url, [{"Id": str(position), **entry} for position, entry in copies.items()])
        failed |= {int(entry_id): reason for entry_id, reason in reasons.items()}
        for position, entry in copies.items():
            if position not in failed:
                with_note = ATTRIBUTE in entry.get("MessageAttributes", {})
                telemetry.emit(
                    events.MessageCopied(
                        message_id=deliveries[position].message.message_id,
                        reason=answers[position].copy.reason,  # type: ignore[union-attr]  # it was copied for it
                        with_note=with_note,
                    )
                )
    for position, reason in failed.items():
        telemetry.emit(events.CopyFailed(message_id=deliveries[position].message.message_id, reason=reason))
    return list(failed)


def _copy(message: Message, queue: QueueSettings, note: DeadLetterNote) -> dict[str, Any]:
    attributes = message.sendable_attributes()
    entry: dict[str, Any] = {"MessageBody": message.body}
    if attributes:
        entry["MessageAttributes"] = attributes
    if queue.dlq_is_fifo:
        # Of its own, from message and version: one made of the job's key would be swallowed within five minutes.
        own = hashlib.sha256(f"{message.message_id}#{note.version}#{message.body}".encode()).hexdigest()
        entry |= {"MessageGroupId": message.group or own, "MessageDeduplicationId": own}
    text = replace(note, source_queue=queue.name).to_text()
    noted = entry | {"MessageAttributes": attributes | {ATTRIBUTE: {"DataType": "String", "StringValue": text}}}
    fits = len(attributes) < MAX_ATTRIBUTES and size_of(noted) <= MAX_BYTES
    return noted if fits else entry


def _change_visibility(
    deliveries: Sequence[Delivery], answers: Sequence[Answer], queue: Queue, telemetry: Telemetry
) -> None:
    by_url: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for position, (delivery, answer) in enumerate(zip(deliveries, answers, strict=True)):
        if answer.visible_in is not None and delivery.queue and delivery.message.receipt_handle:
            by_url[delivery.queue.url].append(
                {
                    "Id": str(position),
                    "ReceiptHandle": delivery.message.receipt_handle,
                    "VisibilityTimeout": answer.visible_in,
                }
            )
    for url, entries in by_url.items():
        for entry_id, reason in queue.change_visibility_batch(url, entries).items():
            message_id = deliveries[int(entry_id)].message.message_id
            telemetry.emit(events.VisibilityNotChanged(message_id=message_id, reason=reason))
