"""What SQS is told about a batch: dead-letter copies, visibility changes, and the messages to keep."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from onceq import telemetry as events
from onceq.message import ATTRIBUTE, seal, timestamp
from onceq.offload import tells_of_the_body
from onceq.outcome import Answer, Deferred, Faulted, Outcome, answer_of, describe
from onceq.queue import MAX_ATTRIBUTES, MAX_BYTES, size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.catalogue import Job
    from onceq.clock import Clock, TokenFactory
    from onceq.message import DeadLetterNote, Message
    from onceq.queue import Queue
    from onceq.settings import QueueSettings
    from onceq.telemetry import Telemetry

# Duplicates that wait for one job come back a little apart.
JITTER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One job's worth of a batch.

    Args:
        record: Position of the record in its event; several deliveries may be of one record.
        message: The message.
        queue: Where it came from; ``None`` where its ARN is not in the settings.
        job: The job, where the message holds others beside it.
    """

    record: int
    message: Message
    queue: QueueSettings | None
    job: Job | None = None


def settle(
    deliveries: Sequence[Delivery],
    outcomes: Sequence[Outcome],
    *,
    queue: Queue,
    clock: Clock,
    tokens: TokenFactory,
    telemetry: Telemetry,
) -> set[int]:
    """Carry out what the outcomes mean to SQS.

    Copies come first: a message is acknowledged only when its copy has arrived. One that is kept for another of its
    jobs is not copied yet, since it would be again at its next delivery. A visibility change that fails only means the
    queue's own visibility timeout.

    Args:
        deliveries: The jobs of the batch.
        outcomes: How each ended.
        queue: The seam to SQS.
        clock: The time.
        tokens: Draws the jitter.
        telemetry: Told about copies and what failed.

    Returns:
        The positions of the records to keep.
    """
    now_ms = clock.now_ms()
    answers = []
    for outcome in outcomes:
        jitter = tokens.uniform(0, JITTER_SECONDS) if isinstance(outcome, Deferred) else 0.0
        answers.append(answer_of(outcome, now_ms, jitter))
    kept = _kept(deliveries, answers)
    answers = [
        Answer(keep=True, visible_in=0) if answer.copy is not None and delivery.record in kept else answer
        for delivery, answer in zip(deliveries, answers, strict=True)
    ]
    for position in _failed_copies(deliveries, answers, queue, telemetry):
        answers[position] = answer_of(Faulted("the copy failed"), now_ms, 0)
    _change_visibility(deliveries, answers, queue, telemetry)
    return _kept(deliveries, answers)


def _kept(deliveries: Sequence[Delivery], answers: Sequence[Answer]) -> set[int]:
    return {delivery.record for delivery, answer in zip(deliveries, answers, strict=True) if answer.keep}


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
            by_url[delivery.queue.dlq_url][position] = _copy(delivery, delivery.queue, answer.copy)
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


def _copy(delivery: Delivery, queue: QueueSettings, note: DeadLetterNote) -> dict[str, Any]:
    message, attributes = delivery.message, delivery.message.sendable_attributes()
    copy = _noted(delivery, queue, note, message.body, attributes)
    if delivery.job is None:
        return copy
    job, sent_at = delivery.job, timestamp(message.sent_at)
    # One of several goes alone, as an envelope: redriven, it runs nothing else.
    body = seal(
        job_type=job.job_type.name, idempotency_key=job.key, payload=job.data, created_at=sent_at, hops=job.hops
    )
    attributes = {name: value for name, value in attributes.items() if not tells_of_the_body(name)}
    alone = _noted(delivery, queue, note, body, attributes)
    return alone if size_of(alone) <= MAX_BYTES else copy


def _noted(
    delivery: Delivery,
    queue: QueueSettings,
    note: DeadLetterNote,
    body: str | None,
    attributes: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    message = delivery.message
    entry: dict[str, Any] = {"MessageBody": body}
    if attributes:
        entry["MessageAttributes"] = attributes
    if queue.dlq_is_fifo:
        # Of its own, from message and version: one made of the job's key would be swallowed within five minutes.
        own = hashlib.sha256(f"{message.message_id}#{note.version}#{note.idempotency_key}#{body}".encode()).hexdigest()
        entry |= {"MessageGroupId": message.group or own, "MessageDeduplicationId": own}
    elif message.group:
        entry["MessageGroupId"] = message.group
    text = replace(note, source_queue=queue.name).to_text()
    noted = entry | {"MessageAttributes": attributes | {ATTRIBUTE: {"DataType": "String", "StringValue": text}}}
    fits = size_of(noted) <= MAX_BYTES and len(attributes) < MAX_ATTRIBUTES
    return noted if fits else entry


def _change_visibility(
    deliveries: Sequence[Delivery], answers: Sequence[Answer], queue: Queue, telemetry: Telemetry
) -> None:
    # The last of its jobs: a message that came back for each of them would use up the receives that SQS grants it.
    latest: dict[int, int] = {}
    unchanged = set()
    for delivery, answer in zip(deliveries, answers, strict=True):
        if answer.visible_in is not None:
            latest[delivery.record] = max(answer.visible_in, latest.get(delivery.record, 0))
        elif answer.keep:
            unchanged.add(delivery.record)
    by_url: dict[str, list[dict[str, Any]]] = defaultdict(list)
    message_ids = {}
    for delivery in deliveries:
        visible_in = None if delivery.record in unchanged else latest.pop(delivery.record, None)
        if visible_in is not None and delivery.queue and delivery.message.receipt_handle:
            message_ids[delivery.record] = delivery.message.message_id
            by_url[delivery.queue.url].append(
                {
                    "Id": str(delivery.record),
                    "ReceiptHandle": delivery.message.receipt_handle,
                    "VisibilityTimeout": visible_in,
                }
            )
    for url, entries in by_url.items():
        for entry_id, reason in queue.change_visibility_batch(url, entries).items():
            told = events.VisibilityNotChanged(message_id=message_ids[int(entry_id)], reason=reason)
            telemetry.emit(told)
