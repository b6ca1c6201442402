"""Whether an answer is right: valid by AWS's strict reading, and naming exactly the records that must be kept.

What the records stand for is read by `kit.strict_reading`, how each of them ended by `kit.strict_ends`; nothing here
asks the framework.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from kit.strict_ends import acknowledged, healthy, kept, lanes
from kit.strict_reading import Fate, Identity, body_of, canonical, id_of
from kit.strict_seen import Seen, plain

if TYPE_CHECKING:
    from collections.abc import Iterator


def violations(seen: Seen) -> list[str]:
    """Return what is wrong with a delivery; nothing, if it is right."""
    return list(_violations(seen))


def _violations(seen: Seen) -> Iterator[str]:
    if _is_foreign_event(seen.event):
        if type(seen.error).__name__ != "NotAnSqsEvent":
            yield f"an event that is not SQS's must be refused as a whole: {seen.error!r}, {str(seen.answer)[:200]}"
        if seen.effects or seen.copies or seen.before != seen.after:
            yield "an event that is not SQS's did something"
        return
    if seen.error is not None and type(seen.error).__name__ != "UnnameableRecord":
        yield f"raised {type(seen.error).__name__}: {str(seen.error)[:300]}"
        return
    if seen.error is None:
        wrong = list(_shape(seen))
        if wrong:
            yield from wrong
            return
    yield from _telemetry(seen)
    yield from _table(seen)
    yield from _effects(seen)
    yield from _copies(seen)
    yield from acknowledged(seen)
    if seen.error is None:
        yield from kept(seen)
        yield from lanes(seen)
    yield from healthy(seen)


def _is_foreign_event(event: Any) -> bool:
    if not isinstance(event, dict | list):
        return True
    records = event if isinstance(event, list) else event.get("Records")
    if records is None:
        return False
    if not isinstance(records, list):
        return True
    for record in records:
        told = (record.get("eventSource") or record.get("EventSource")) if isinstance(record, dict) else None
        if told is not None and told != "aws:sqs":
            return True
    return False


def _shape(seen: Seen) -> Iterator[str]:
    """https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html."""
    answer = seen.answer
    if (
        type(answer) is not dict
        or set(answer) != {"batchItemFailures"}
        or type(answer["batchItemFailures"]) is not list
    ):
        yield f"no partial batch response: {str(answer)[:200]}"
        return
    ids = {id_of(record) for record in seen.records}
    named = []
    for entry in answer["batchItemFailures"]:
        if type(entry) is not dict or set(entry) != {"itemIdentifier"}:
            yield f"no item: {str(entry)[:200]}"
        elif type(entry["itemIdentifier"]) is not str or not entry["itemIdentifier"]:
            yield f"no id: {str(entry)[:200]}"
        elif entry["itemIdentifier"] not in ids:
            yield f"an id that is not of this event: {str(entry)[:200]}"
        else:
            named.append(entry["itemIdentifier"])
    if len(set(named)) != len(named):
        yield f"an id that is named twice: {str(named)[:200]}"


def _telemetry(seen: Seen) -> Iterator[str]:
    for name, fields in seen.told:
        if name == "message.faulted":
            yield f"a fault of the framework while every service is healthy: {str(fields.get('reason'))[:300]}"
        texts = "".join(value for value in fields.values() if isinstance(value, str))
        if texts.encode("utf-8", "replace").decode() != texts:
            yield f"told in characters that no log line takes: {name} {str(fields)[:300]}"
        if name == "job.completed":
            served = seen.serving.job_types.get(fields["job_type"])
            identity = Identity(served.name if served else fields["job_type"], fields["key"])
            if seen.by_identity.get(identity, {}).get("status") != "completed":
                yield f"told as completed, and it is not: {str(fields)[:300]}"
        if name in ("hook.failed", "effect.not_recorded", "claim.lost"):
            yield f"{name} while every service is healthy: {str(fields)[:300]}"


def _table(seen: Seen) -> Iterator[str]:
    for pk, item in seen.after.items():
        if item.get("status", {}).get("S") == "processing" and seen.before.get(pk) != item:
            yield f"a claim was left behind: {pk[:100]!r}"
    for identity, was in plain(seen.before).items():
        now = seen.by_identity.get(identity)
        if was["status"] == "completed" and (now is None or now.get("result") != was.get("result")):
            yield f"a completed record changed: {str(identity)[:100]}"


def _effects(seen: Seen) -> Iterator[str]:
    before = plain(seen.before)
    read_as: dict[Identity, set[str]] = defaultdict(set)
    for reading in seen.readings:
        if reading.identity is not None:
            read_as[reading.identity].add(canonical(reading.shown))
    is_open = any(reading.fate is Fate.OPEN for reading in seen.readings)
    for effect in seen.effects:
        if canonical(effect.payload) not in read_as[effect.identity] and not is_open:
            yield f"a job ran that no record stands for: {str(effect)[:300]}"
        status: str | None = before.get(effect.identity, {}).get("status")
        if status in ("completed", "uncertain") or (status == "rejected" and effect.identity not in _redriven(seen)):
            yield f"a job that had ended ran again: {str(effect)[:300]}"
    done, starts = seen.history.done(), seen.history.starts()
    for identity in {effect.identity for effect in seen.effects}:
        if done[identity] > 1:
            yield f"{done[identity]} effects of one job: {str(identity)[:100]}"
        status = seen.by_identity.get(identity, {}).get("status")
        if done[identity] and status != "completed":
            yield f"an effect, and its job is {status}: {str(identity)[:100]}"
        served = seen.serving.job_types.get(identity.job_type)
        if served is not None and served.once and starts[identity] > 1:
            yield f"{starts[identity]} starts of a job that is at most once: {str(identity)[:100]}"


def _redriven(seen: Seen) -> set[Identity | None]:
    """Return the jobs of which a message carries our dead-letter note: rejected ones may run again."""
    noted = [_noted(record) for record in seen.records]
    return {reading.identity for reading, note in zip(seen.readings, noted, strict=True) if note}


def _noted(record: Any) -> bool:
    attributes = record.get("messageAttributes") if isinstance(record, dict) else None
    return isinstance(attributes, dict) and "onceq" in attributes


def _copies(seen: Seen) -> Iterator[str]:
    bodies = Counter(body_of(record) for record in seen.records)
    several = any(reading.parts > 1 for reading in seen.readings)
    for (url, body), count in Counter((url, entry["MessageBody"]) for url, entry in seen.copies).items():
        if body not in bodies and several and '"onceq":1' in body:
            continue
        if count > bodies[body]:
            yield f"{count} copies in {url}, and {bodies[body]} records of this body: {body[:200]!r}"
    told = sum(name == "message.dead_lettered" for name, _ in seen.told)
    swallowed = any(source is not None and source.fifo for source in seen.sources)
    if told < len(seen.copies) or (told > len(seen.copies) and not swallowed):
        yield f"{told} copies were told, and {len(seen.copies)} were made"
