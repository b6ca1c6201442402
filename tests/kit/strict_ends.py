"""How each record of a delivery ended: evidence for what was acknowledged, reasons for what was kept.

An acknowledged record needs evidence: its job is completed in the claims table, or it lies in the dead-letter queue. A
kept record needs a reason: this release does not serve it, somebody holds its job, it is to run again, its lane
stopped, SQS does not take its copy.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from typing import TYPE_CHECKING, Any

from kit.memory import why_refused
from kit.strict_reading import UNKNOWN_TYPE, Fate, Reading, body_of, canonical, group_of, id_of, source_of
from kit.strict_seen import ANOTHER, Seen, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

# What is told of a message that is kept and whose job is not known from outside.
KEEPING = {
    *("job.deferred", "job.released", "job.not_started", "lock.busy"),
    *("message.unserved", "message.copy_failed", "body.not_fetched"),
}


def acknowledged(seen: Seen) -> Iterator[str]:
    """Say which acknowledged record has no evidence, or that the batch was kept for none that needs it."""
    copies = Counter((url, entry["MessageBody"]) for url, entry in seen.copies)
    in_fifo = {(url, entry["MessageBody"]) for url, entry in (*seen.earlier, *seen.copies) if url.endswith(".fifo")}
    unproved = []
    if seen.error is not None:
        # Which of several records of one body was copied does not show: first those that can be named.
        copies -= Counter(_place(seen, position) for position, record in enumerate(seen.records) if id_of(record))
    for position, (record, reading) in enumerate(zip(seen.records, seen.readings, strict=True)):
        if seen.error is not None and id_of(record) is not None:
            continue
        if not (seen.error is None and seen.is_kept(position)) and not _is_done(seen, record, reading):
            place = _place(seen, position)
            if copies[place] and place not in in_fifo:
                copies[place] -= 1
            elif place not in in_fifo:
                unproved.append((position, reading))
    if seen.error is not None:
        bodies = Counter(body_of(record) for record in seen.records)
        nameless = [place for place, record in enumerate(seen.records) if id_of(record) is None]
        # Of two records of one body it does not show which was copied; of an open one, whether it was; of one behind
        # another of its lane, whether that stopped it.
        told = all(
            seen.readings[one].fate is not Fate.OPEN
            and bodies[body_of(seen.records[one])] == 1
            and seen.lanes[one] not in seen.lanes[:one]
            for one in nameless
        )
        if not unproved and told and seen.in_time:
            yield f"no record is without id and must be kept, and yet: {seen.error}"
        return
    for position, reading in unproved:
        record = str(seen.records[position])[:300]
        yield f"record {position} was acknowledged, and is lost ({reading.fate.name}: {reading.why}): {record}"


def _place(seen: Seen, position: int) -> tuple[str, str]:
    """Return where a copy of a record is to be found, and by which body."""
    source = seen.sources[position]
    return source.dlq_url if source else "", body_of(seen.records[position]) or ""


def _is_done(seen: Seen, record: Any, reading: Reading) -> bool:
    if reading.fate is Fate.NO_WORK:
        return True
    if reading.fate is Fate.OPEN:
        ends = Counter(name for name, fields in seen.told if fields.get("message_id") == id_of(record))
        # Whole, in one copy, or each of its jobs by itself; the table and the queue are compared with what is told.
        return ends["job.completed"] + ends["job.replayed"] + ends["message.dead_lettered"] >= reading.parts
    if reading.identity is None:
        return False
    item = seen.by_identity.get(reading.identity, {})
    if item.get("status") != "completed":
        return False
    if item.get("payload_fingerprint") == ANOTHER and item.get("message_id") != id_of(record):
        return False
    if "payload_fingerprint" not in item:
        return True
    ran = {
        canonical(effect.payload)
        for effect in seen.history.effects
        if effect.done and effect.identity == reading.identity
    }
    # With another payload it reuses the key, and must be copied; one message is never compared with itself.
    return not ran or canonical(reading.shown) in ran or item.get("message_id") == id_of(record)


def kept(seen: Seen) -> Iterator[str]:
    """Say which kept record has no reason."""
    for message_id in seen.named:
        positions = [place for place, record in enumerate(seen.records) if id_of(record) == message_id]
        if not any(_has_reason(seen, place) for place in positions):
            place = positions[0]
            reading = seen.readings[place]
            told = [(name, str(fields)[:200]) for name, fields in seen.told if fields.get("message_id") == message_id]
            record = str(seen.records[place])[:300]
            yield f"record {place} is kept for no reason ({reading.fate.name}: {reading.why}): {told} {record}"


def _has_reason(seen: Seen, position: int) -> bool:
    reading, record = seen.readings[position], seen.records[position]
    if not seen.in_time or reading.fate is Fate.UNSERVED:
        return True
    if any(seen.lanes[earlier] == seen.lanes[position] and seen.is_kept(earlier) for earlier in range(position)):
        return True
    if reading.fate is Fate.OPEN:
        return any(name in KEEPING for name, fields in seen.told if fields.get("message_id") == id_of(record))
    if reading.identity is not None:
        status = seen.by_identity.get(reading.identity, {}).get("status")
        if status in ("processing", "failed"):
            return True
        if status is None:
            return False
        if status == "completed" and _is_done(seen, record, reading):
            return False
    return reading.fate is not Fate.NO_WORK and not _is_surely_copied(seen, record)


def _is_surely_copied(seen: Seen, record: Any) -> bool:
    """Return whether SQS takes a copy of a record, whatever becomes of its odd attributes."""
    queue = source_of(record, seen.serving)
    assert queue is not None
    attributes = record.get("messageAttributes")
    sent: dict[str, Any] = {}
    for name, one in attributes.items() if isinstance(attributes, dict) else ():
        if name == "onceq":
            continue
        try:
            value = (
                {"StringValue": one["stringValue"]}
                if isinstance(one.get("stringValue"), str)
                else {"BinaryValue": base64.b64decode(one["binaryValue"], validate=True)}
            )
            sent[name] = {"DataType": one["dataType"], **value}
            if why_refused("", {"MessageBody": "x", "MessageAttributes": {name: sent[name]}}):
                return False
        except (TypeError, KeyError, ValueError, AttributeError, binascii.Error):
            return False
    entry = {"MessageBody": body_of(record), "MessageAttributes": sent}
    if queue.fifo:
        entry |= {"MessageGroupId": group_of(record) or "own", "MessageDeduplicationId": "own"}
    try:
        (id_of(record) or "").encode()
    except UnicodeEncodeError:
        return False
    return not why_refused(queue.dlq_url, entry)


def lanes(seen: Seen) -> Iterator[str]:
    """Nothing of a lane is acknowledged behind what is kept of it and is still to run; a doubled id says nothing."""
    ids = Counter(id_of(record) for record in seen.records)
    stopped: dict[int, int] = {}
    for position, record in enumerate(seen.records):
        if ids[id_of(record)] > 1 or id_of(record) is None:
            continue
        lane = seen.lanes[position]
        if seen.is_kept(position):
            if _is_still_to_run(seen, record, seen.readings[position]):
                stopped.setdefault(lane, position)
        elif lane in stopped:
            yield f"record {position} went ahead of record {stopped[lane]} of its lane: {str(record)[:200]}"


def _is_still_to_run(seen: Seen, record: Any, reading: Reading) -> bool:
    """Return whether a kept record is no refused one, nor of a job that has ended, whose copy SQS did not take."""
    if reading.identity is None:
        return reading.why == UNKNOWN_TYPE
    item = seen.by_identity.get(reading.identity, {})
    if item.get("payload_fingerprint") == ANOTHER and item.get("message_id") != id_of(record):
        return False
    return item.get("status") in (None, "processing", "failed")


def healthy(seen: Seen) -> Iterator[str]:
    """G5: a job that is its message's own, is new and returns is completed, whatever stands beside it."""
    lanes = Counter(seen.lanes)
    before = plain(seen.before)
    for position, (record, reading) in enumerate(zip(seen.records, seen.readings, strict=True)):
        if reading.identity is None or lanes[seen.lanes[position]] > 1 or not seen.in_time:
            continue
        if reading.identity in before or reading.may_wait or not seen.succeeds(reading.payload):
            continue
        status = seen.by_identity.get(reading.identity, {}).get("status")
        if status != "completed":
            told = [
                (name, str(fields)[:200]) for name, fields in seen.told if fields.get("message_id") == id_of(record)
            ]
            yield f"record {position} is a good job, and it is {status}: {told} {str(record)[:300]}"
