"""Mutations of events: of a record's structure, of its body as JSON and as text, of the whole event."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from fuzz.odd import ARNS, COUNTS, LARGE, NOTES, ODD_ATTRIBUTES, ODD_LITERALS, ODD_TEXTS, ODD_VALUES
from kit.world import arn_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def odd_value(rng: random.Random) -> Any:
    """Return any value that a field should not have."""
    roll = rng.random()
    if roll < 0.45:
        return copy.deepcopy(rng.choice(ODD_VALUES))
    if roll < 0.9:
        return rng.choice(ODD_TEXTS)
    if roll < 0.97:
        return nested(rng.choice([5, 150, 201, 400]), rng.random() < 0.5)
    return 10**4_000  # longer ones are not in an event: Python's json refuses them


def nested(levels: int, in_objects: bool) -> Any:  # noqa: FBT001 - one of two
    """Return a value of so many levels."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if in_objects else [value]
    return value


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of a value's inner values, not below ten levels."""
    found = []
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in entries:
        found.append((*path, name))
        if len(path) < 10:
            found += places(inner, (*path, name))
    return found


def changed(rng: random.Random, value: Any, odd: Callable[[random.Random], Any] = odd_value) -> Any:
    """Return a JSON value with one place of it changed: missing, null, of another type, extra, wrong-cased, moved."""
    found = places(value)
    if not found or rng.random() < 0.02:
        return odd(rng)
    path = rng.choice(found)
    holder = value
    for name in path[:-1]:
        holder = holder[name]
    last = path[-1]
    match rng.randrange(7):
        case 0:
            del holder[last]
        case 1:
            holder[last] = None
        case 2 | 3:
            holder[last] = odd(rng)
        case 4 if isinstance(holder, dict):
            holder[rng.choice(["extra", "Onceq", "onceq", "", "\x00", "e\u0301"])] = odd(rng)
        case 5 if isinstance(holder, dict) and isinstance(last, str):
            holder[rng.choice([last.upper(), last.title(), last.lower(), f" {last}", f"{last}\u200b"])] = holder.pop(
                last
            )
        case 6:
            other = rng.choice(found)
            inner = value
            for name in other:
                if isinstance(inner, str) or inner is None or isinstance(inner, int | float):
                    break
                inner = inner[name] if not isinstance(inner, dict) or name in inner else None
            holder[last] = copy.deepcopy(inner)
        case _:
            holder[last] = [holder[last]]
    return value


def structure(rng: random.Random, record: Any) -> Any:
    """Change a place of the record itself."""
    return changed(rng, record)


def body_as_json(rng: random.Random, record: Any) -> Any:
    """Change a place of the body, read as JSON; sometimes of what is text inside it, as SNS has it."""
    value = _body(record)
    if value is None:
        return record
    for name in ("Message", "detail"):
        if isinstance(value, dict) and isinstance(value.get(name), str) and rng.random() < 0.5:
            try:
                inner = json.loads(value[name])
            except (ValueError, RecursionError):
                continue
            value[name] = _dumped(rng, changed(rng, inner))
            record["body"] = _dumped(rng, value)
            return record
    record["body"] = _dumped(rng, changed(rng, value))
    return record


def body_literal(rng: random.Random, record: Any) -> Any:
    """Put a literal that no writer makes in a place of the body."""
    value = _body(record)
    if value is None:
        return record
    mark = "in the place of this"
    value = changed(rng, value, lambda _rng: mark)
    record["body"] = json.dumps(value).replace(f'"{mark}"', rng.choice(ODD_LITERALS))
    return record


def body_doubled(rng: random.Random, record: Any) -> Any:
    """Let a name stand twice in an object of the body."""
    value = _body(record)
    names = [path[-1] for path in places(value) if isinstance(path[-1], str)] if value is not None else []
    if not names:
        return record
    name = json.dumps(rng.choice(names))
    twice = f"{name}: {rng.choice(ODD_LITERALS[-14:])}, {name}: "
    if rng.random() < 0.5:
        twice = f"{name}: {json.dumps(odd_text(rng))}, {name}: "
    record["body"] = json.dumps(value).replace(f"{name}: ", twice, 1)
    return record


def body_as_text(rng: random.Random, record: Any) -> Any:
    """Change the body's text: cut, with characters in it, with a mark before it, doubled, not at all JSON."""
    if not isinstance(record, dict) or not isinstance(record.get("body"), str):
        return record
    text = record["body"]
    place = rng.randrange(len(text) + 1)
    match rng.randrange(7):
        case 0:
            text = text[:place]
        case 1:
            text = text[:place] + odd_text(rng) + text[place:]
        case 2:
            text = rng.choice(["\ufeff", "\x00", " ", "\n", "\u00a0", "\ufffe"]) + text
        case 3:
            text += rng.choice(["\x00", " ", "x", "\ufeff", ",", "}", text[:50]])
        case 4:
            text = rng.choice([*ODD_TEXTS, *ODD_LITERALS])
        case 5:
            text = json.dumps(text)
        case _:
            text = text[:place] + text[place + 1 :]
    record["body"] = text
    return record


def body_large(rng: random.Random, record: Any) -> Any:
    """Make the body ten megabytes long, or about as long as SQS takes: seldom, since it takes long."""
    if not isinstance(record, dict) or rng.random() < 0.8:
        return record
    value = _body(record)
    large = LARGE if rng.random() < 0.1 else "x" * rng.choice([1_048_000, 1_048_576, 1_050_000])
    if isinstance(value, dict) and rng.random() < 0.5:
        record["body"] = json.dumps(value | {rng.choice(["payload", "extra", "job_type", "onceq"]): large})
    else:
        record["body"] = rng.choice([large, json.dumps(large)])
    return record


def known_fields(rng: random.Random, record: Any) -> Any:
    """Give a field that the consumer reads a value that it should not have."""
    if not isinstance(record, dict):
        return record
    system = record.get("attributes")
    match rng.randrange(9):
        case 0:
            record["eventSourceARN"] = rng.choice(
                [*ARNS, arn_of("JobsQueue"), arn_of("JobsQueue.fifo"), arn_of("Bare")]
            )
        case 1 if isinstance(system, dict):
            system[rng.choice(["ApproximateReceiveCount", "SentTimestamp"])] = copy.deepcopy(rng.choice(COUNTS))
        case 2 if isinstance(system, dict):
            system["MessageGroupId"] = rng.choice([*ODD_TEXTS, *ODD_VALUES])
        case 3:
            record["messageId"] = rng.choice([*ODD_TEXTS, *ODD_VALUES, None, ""])
        case 4:
            record["receiptHandle"] = rng.choice([*ODD_TEXTS, *ODD_VALUES])
        case 5:
            attributes = record.get("messageAttributes")
            if isinstance(attributes, dict):
                attributes[rng.choice(["a", "onceq", "", " ", "AWS.x", "\ud800", "a" * 300, "ExtendedPayloadSize"])] = (
                    copy.deepcopy(rng.choice(ODD_ATTRIBUTES))
                )
        case 6:
            note = {"dataType": "String", "stringValue": rng.choice(NOTES)}
            record["messageAttributes"] = {"onceq": note}
        case 7:
            many = {
                f"n{number}": {"dataType": "String", "stringValue": "v"} for number in range(rng.choice([9, 10, 11]))
            }
            record["messageAttributes"] = many
        case _:
            name = rng.choice(["eventSource", "EventSource"])
            record[name] = rng.choice(["", None, "aws:s3", "aws:sqs", "AWS:SQS", [], {}, 0, "\ud800", ["aws:sqs"]])
    return record


def whole_record(rng: random.Random, record: Any) -> Any:
    """Put something else in the record's place."""
    return rng.choice([None, "charge order 3, please", [], 5, True, {}, [record], {"record": record}, 1.5, ""])


RECORD_MUTATIONS: list[Callable[[random.Random, Any], Any]] = [
    *[structure] * 3,
    *[body_as_json] * 6,
    *[body_literal] * 3,
    *[body_doubled] * 2,
    *[body_as_text] * 3,
    *[known_fields] * 5,
    body_large,
    whole_record,
]


def among_records(rng: random.Random, records: list[Any]) -> None:
    """Let records share what they should not: an id, a key, a body, a group; or stand there twice."""
    pairs = [record for record in records if isinstance(record, dict)]
    if len(pairs) < 2:
        return
    one, other = rng.sample(pairs, 2)
    match rng.randrange(5):
        case 0:
            one["messageId"] = other.get("messageId")
        case 1:
            one["body"] = other.get("body")
        case 2:
            records.append(copy.deepcopy(one))
        case 3:
            mine, theirs = _body(one), _body(other)
            if isinstance(mine, dict) and isinstance(theirs, dict):
                mine["idempotency_key"] = theirs.get("idempotency_key")
                mine["job_type"] = theirs.get("job_type")
                one["body"] = json.dumps(mine)
        case _:
            for name in ("eventSourceARN", "attributes"):
                one[name] = copy.deepcopy(other.get(name))


def of_event(rng: random.Random, event: Any) -> Any:
    """Change the event around the records."""
    records = event["Records"]
    match rng.randrange(8):
        case 0:
            return {rng.choice(["records", "RECORDS", "Record", " Records"]): records}
        case 1:
            return {"Records": rng.choice([None, {}, "text", 5, 0, False, True, "", {"0": records}, 1.5, [[]], [None]])}
        case 2:
            return rng.choice([None, "", "text", 5, True, [event], 0.0])
        case 3:
            return {"Records": [event, *records]}
        case 4:
            records.insert(rng.randrange(len(records) + 1), whole_record(rng, {}))
            return event
        case 5:
            return event | {rng.choice(["extra", "Records2", "", "detail", "eventSource"]): odd_value(rng)}
        case 6:
            return rng.choice([{}, {"Records": None}, {"Records": []}, {"requestContext": {}}, []])
        case _:
            return records


def odd_text(rng: random.Random) -> str:
    """Return a text that a field should not have."""
    return rng.choice(ODD_TEXTS)


def _body(record: Any) -> Any:
    body = record.get("body") if isinstance(record, dict) else None
    if not isinstance(body, str) or len(body) > 100_000:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _dumped(rng: random.Random, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=rng.random() < 0.7)
    except (ValueError, RecursionError):  # a whole number that Python does not write
        return "[" * 10_000
