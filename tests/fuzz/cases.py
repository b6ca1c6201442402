"""A case: one event, what stands in the tables before it, how it is delivered; made of a seed, run, judged, shrunk."""

from __future__ import annotations

import copy
import logging
import random
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fuzz.application import Application, succeeds
from fuzz.corpus import STORED, Seeds
from fuzz.mutations import RECORD_MUTATIONS, among_records, of_event
from kit.clock import FakeLambdaContext
from kit.strict_answer import violations
from kit.strict_reading import Identity, read
from kit.strict_seen import ANOTHER, History, Seen
from kit.world import TABLE
from onceq.telemetry import LOGGER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kit.memory_tables import Item
    from kit.strict_reading import Serving

STATUSES = ("processing", "processing, stale", "failed", "failed, due", "completed", "rejected", "uncertain")
LONGEST_SHOWN = 4_000


@dataclass(frozen=True)
class Case:
    """What is delivered.

    Args:
        event: The event.
        planted: Items that stand in the claims table before.
        times: How often it is delivered.
        wait: Seconds between two deliveries.
        concurrency: Jobs that run at once.
        remaining_ms: Lambda's time left; ``None`` for no context.
    """

    event: Any
    planted: tuple[Item, ...] = ()
    times: int = 1
    wait: float = 50_000
    concurrency: int = 1
    remaining_ms: float | None = 60_000

    def shown(self) -> str:
        """Return the case as text, bounded."""
        return (
            "\n".join(f"{name}: {bounded(value)}" for name, value in vars(self).items() if name != "event")
            + f"\nevent: {bounded(self.event)}"
        )


def bounded(value: Any) -> str:
    """Return a value as text, its long texts cut."""
    text = repr(_cut(value))
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text)} characters)"


def _cut(value: Any, levels: int = 0) -> Any:
    if levels > 20:
        return "…deeper"
    if isinstance(value, str) and len(value) > 600:
        return f"{value[:500]}…({len(value)})"
    if isinstance(value, int) and abs(value) > 10**100:
        return "a huge int"
    if isinstance(value, dict):
        return {name: _cut(inner, levels + 1) for name, inner in value.items()}
    return [_cut(inner, levels + 1) for inner in value] if isinstance(value, list | tuple) else value


def case_of(seed: object, number: int, serving: Serving) -> Case:
    """Return the case of that number: the same whatever ran before it."""
    rng = random.Random(f"{seed}:{number}")
    seeds = Seeds(rng)
    # Now and then all of one FIFO queue, whose order is at stake.
    make = seeds.fifo if rng.random() < 0.12 else seeds.any
    records: list[Any] = [make() for _ in range(rng.choice([1, 1, 2, 3, 4, 7]))]
    for position in range(len(records)):
        for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
            records[position] = rng.choice(RECORD_MUTATIONS)(rng, records[position])
    while rng.random() < 0.25:
        among_records(rng, records)
    for _ in range(rng.choice([0, 1, 1, 2])):
        records.insert(rng.randrange(len(records) + 1), seeds.healthy())
    event: Any = {"Records": records}
    planted = tuple(_planted(rng, records, serving)) if rng.random() < 0.3 else ()
    if rng.random() < 0.1:
        event = of_event(rng, event)
    return Case(
        event,
        planted,
        times=rng.choice([1, 1, 2, 3]),
        wait=rng.choice([1, 50, 50_000]),
        concurrency=rng.choices([1, 4], [7, 1])[0],
        remaining_ms=rng.choices([60_000, None, 0, 3_000, -5], [40, 2, 1, 1, 1])[0],
    )


def _planted(rng: random.Random, records: Sequence[Any], serving: Serving) -> Iterator[Item]:
    for identity in dict.fromkeys(read(record, serving).identity for record in records):
        if identity is not None and rng.random() < 0.6 and "healthy" not in identity.key and len(identity.key) < 900:
            yield planted(identity, rng.choice(STATUSES), another=rng.random() < 0.2)


def planted(identity: Identity, status: str, *, another: bool = False, now_ms: int = 1_795_953_600_000) -> Item:
    """Return a record as an earlier claimant could have left it."""
    word, _, due = status.partition(", ")
    values: dict[str, Any] = {
        "pk": f"{identity.job_type}#{identity.key}",
        "job_type": identity.job_type,
        "idempotency_key": identity.key,
        "status": word,
        "claimant": "theirs",
        "version": 2,
        "fencing_token": now_ms - 5_000,
        "attempts": 1,
        "created_at": now_ms - 9_000,
        "expires_at": now_ms // 1000 + 5_000_000,
        "semantics": "at_most_once" if identity.job_type == "once" else "at_least_once",
        "message_id": "of another delivery",
    }
    by_word: dict[str, dict[str, Any]] = {
        "processing": {"lease_expires_at": now_ms + (-60_000 if due else 900_000)},
        "failed": {"not_before": now_ms + (0 if due else 900_000), "error": "ValueError"},
        "completed": {"result": "1", "completed_at": now_ms - 1_000},
        "rejected": {"error": "no"},
        "uncertain": {"error": "unknown"},
    }
    values |= by_word[word]
    if another:
        values["payload_fingerprint"] = ANOTHER
    if word == "uncertain":
        del values["expires_at"]
    return {name: {"N": str(value)} if isinstance(value, int) else {"S": value} for name, value in values.items()}


@dataclass
class Verdict:
    """What is wrong with a case, and how its records ended.

    Args:
        wrong: What is wrong.
        ends: How often what happened: a fate, an exception, a telemetry event.
        deliveries: How often the event was delivered.
    """

    wrong: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    deliveries: int = 0


class _HookFailures(logging.Handler):
    """Tells of hooks that failed, which the framework only logs."""

    def __init__(self, told: list[tuple[str, dict[str, Any]]]) -> None:
        super().__init__()
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told.append((str(record.msg), {"exception": str(record.exc_info)}))


class Judge:
    """Runs cases and judges them."""

    def __init__(self) -> None:
        """Compose an application for each concurrency."""
        self.applications = {concurrency: Application(concurrency) for concurrency in (1, 4)}
        self.serving = self.applications[1].serving

    def case(self, seed: object, number: int) -> Case:
        """Return the case of that number."""
        return case_of(seed, number, self.serving)

    def judge(self, case: Case) -> Verdict:
        """Deliver a case, as often as it says, and return what is wrong."""
        application = self.applications[case.concurrency]
        application.reset()
        application.runtime.plant(TABLE, case.planted)
        application.runtime.s3.objects = dict(STORED)
        verdict, history = Verdict(), History()
        for _ in range(case.times):
            seen = self._delivered(application, case, history)
            verdict.wrong += violations(seen)
            verdict.ends += _ends(seen)
            verdict.deliveries += 1
            if verdict.wrong or seen.error is not None:
                break
            application.clock.advance(case.wait)
        return verdict

    def _delivered(self, application: Application, case: Case, history: History) -> Seen:
        runtime = application.runtime
        before = dict(runtime.dynamodb.tables.get(TABLE, {}))
        sent, told, effects = len(runtime.sqs.sent), len(application.told), len(application.effects)
        context = None if case.remaining_ms is None else FakeLambdaContext(case.remaining_ms)
        answer, error = None, None
        handler = _HookFailures(application.told)
        logger = logging.getLogger(LOGGER)
        logger.addHandler(handler)
        logger.propagate = False
        # As the runtime does, which reads it anew for every invocation.
        event = copy.deepcopy(case.event)
        try:
            answer = application.app.consumer(event, context)
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it is judged
            error = raised
        finally:
            logger.removeHandler(handler)
            logger.propagate = True
        history.effects = application.effects
        return Seen(
            serving=self.serving,
            event=case.event,
            answer=answer,
            error=error,
            before=before,
            after=dict(runtime.dynamodb.tables.get(TABLE, {})),
            copies=[entry for entry in runtime.sqs.sent[sent:] if "Dead" in entry[0]],
            earlier=[entry for entry in runtime.sqs.sent[:sent] if "Dead" in entry[0]],
            told=application.told[told:],
            effects=application.effects[effects:],
            history=history,
            in_time=case.remaining_ms is None or case.remaining_ms >= 60_000,
            succeeds=succeeds,
        )

    def shrunk(self, case: Case) -> Case:
        """Return a smaller case that is wrong in the same way: fewer records, fields, items, deliveries."""
        kinds = _kinds(self.judge(case))
        smaller = True
        while smaller:
            smaller = False
            for less in _smaller(case):
                if kinds & _kinds(self.judge(less)):
                    case, smaller = less, True
                    break
        return case


def _kinds(verdict: Verdict) -> set[str]:
    return {re.sub(r"\d+", "", wrong)[:30] for wrong in verdict.wrong}


def _ends(seen: Seen) -> list[str]:
    if seen.error is not None:
        return [type(seen.error).__name__]
    counted = [name for name, _ in seen.told if name.startswith(("job.", "message.", "event."))]
    kept = [f"kept ({reading.fate.name})" for place, reading in enumerate(seen.readings) if seen.is_kept(place)]
    return [*counted, *kept, *(["acknowledged"] * (len(seen.records) - len(kept)))]


def _smaller(case: Case) -> Iterator[Case]:
    if case.times > 1:
        yield replace(case, times=case.times - 1)
    if case.concurrency > 1:
        yield replace(case, concurrency=1)
    for position in range(len(case.planted)):
        yield replace(case, planted=case.planted[:position] + case.planted[position + 1 :])
    records = case.event.get("Records") if isinstance(case.event, dict) else None
    if not isinstance(records, list):
        return
    for position, record in enumerate(records):
        others = records[:position], records[position + 1 :]
        yield replace(case, event=case.event | {"Records": [*others[0], *others[1]]})
        for name in record if isinstance(record, dict) else ():
            less = {key: value for key, value in record.items() if key != name}
            yield replace(case, event=case.event | {"Records": [*others[0], less, *others[1]]})
