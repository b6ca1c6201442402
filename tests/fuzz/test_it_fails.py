"""The fuzzers can fail: each of these faults, put into the consumer, is found within a few hundred events."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from fuzz.cases import Judge
from kit.strict_reading import id_of
from onceq import outcome as ends
from onceq.catalogue import JobTypes
from onceq.claim import Claim
from onceq.consumer import Consumer
from onceq.message import open_envelope
from onceq.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 11
MOST_CASES = 400


@cache
def judge() -> Judge:
    """Return the judge of this process."""
    return Judge()


def answering(
    change: Callable[[list[dict[str, str]], Any], list[dict[str, str]]],
) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a fault that changes the list of the answer where there is one, given the event too."""

    def put_in(monkeypatch: pytest.MonkeyPatch) -> None:
        right = Consumer.consume

        def consume(self: Consumer, event: object) -> Any:
            answer = right(self, event)
            kept = answer["batchItemFailures"]
            return {"batchItemFailures": change(kept, event) if kept else kept}

        monkeypatch.setattr(Consumer, "consume", consume)

    return put_in


def ids_of(event: Any) -> set[str]:
    """Return the ids of an event."""
    records = event if isinstance(event, list) else event["Records"]
    return {found for found in map(id_of, records) if found is not None}


def keeping(kind: type, *, keep: bool) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a fault that keeps, or acknowledges, what ends so."""

    def put_in(monkeypatch: pytest.MonkeyPatch) -> None:
        right = ends.answer_of

        def answer_of(outcome: Any, now_ms: int, jitter: float) -> ends.Answer:
            answer = right(outcome, now_ms, jitter)
            return replace(answer, keep=keep) if isinstance(outcome, kind) else answer

        monkeypatch.setattr("onceq.settling.answer_of", answer_of)
        monkeypatch.setattr("onceq.consumer.answer_of", answer_of)

    return put_in


def patched(target: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a fault that puts something else in the place of a name."""
    return lambda monkeypatch: monkeypatch.setattr(target, value)


def unsent(self: Queue, url: str, entries: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Say that messages were sent."""
    return {entry["Id"]: "never" for entry in entries}, {}


def run_twice(job: Any, *others: Any) -> Any:
    """Run the job, and once more."""
    from onceq.attempt import run

    run(job, *others)
    return run(job, *others)


def unwritten(self: Claim, *_: Any, **__: Any) -> Any:
    """Say that a job was given back."""
    return self.record


def lenient(body: str | None) -> Any:
    """Read a body past a byte order mark and white space of every kind."""
    return open_envelope(body.strip("\ufeff\u00a0\x00\x0b") if body else body)


def raising_for_whole_numbers(key: object, called: str = "") -> str:
    """Take no number as a key."""
    return key.strip()  # type: ignore[attr-defined,no-any-return]


def the_first(self: JobTypes, *given: Any, **named: Any) -> Any:
    """Read the first job of a message that holds several."""
    jobs = JOBS_OF(self, *given, **named)
    return jobs[:1] if isinstance(jobs, list) else jobs


JOBS_OF = JobTypes.jobs_of
FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a kept record is swallowed": answering(lambda kept, _: kept[:-1]),
    "an id is named twice": answering(lambda kept, _: [*kept, kept[0]]),
    "an id is of no record": answering(lambda kept, _: [*kept, {"itemIdentifier": "other"}]),
    "an id is empty": answering(lambda kept, _: [*kept, {"itemIdentifier": ""}]),
    "an item has another name": answering(lambda kept, _: [*kept, {"itemidentifier": "m"}]),
    "every record is kept": answering(lambda _, event: [{"itemIdentifier": one} for one in sorted(ids_of(event))]),
    "what failed is acknowledged": keeping(ends.Released, keep=False),
    "what is busy is acknowledged": keeping(ends.Deferred, keep=False),
    "what is not served is acknowledged": keeping(ends.Unserved, keep=False),
    "what was not started is acknowledged": keeping(ends.NotStarted, keep=False),
    "what has no work is kept": keeping(ends.NoWork, keep=True),
    "what is completed is kept": keeping(ends.Completed, keep=True),
    "a copy is not sent": lambda monkeypatch: monkeypatch.setattr(Queue, "send_batch", unsent),
    "a job runs twice": patched("onceq.executor.run", run_twice),
    "a claim is taken that is there": patched("onceq.store.FREE", "attribute_not_exists(nothing)"),
    "a release is not written": lambda monkeypatch: monkeypatch.setattr(Claim, "release", unwritten),
    "every record is a lane": patched(
        "onceq.consumer.lanes_of", lambda shared: [[place] for place in range(len(shared))]
    ),
    "a body is read past what stands round it": patched("onceq.catalogue.open_envelope", lenient),
    "the first of several jobs is read": lambda monkeypatch: monkeypatch.setattr(JobTypes, "jobs_of", the_first),
    "a key that is a number is a fault": patched("onceq.catalogue.check_key", raising_for_whole_numbers),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_consumer_is_found(
    fault: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    """A case that is right without the fault is wrong with it, early in the run."""
    delivered = 0
    for number in range(MOST_CASES):
        case = judge().case(SEED, number)
        with monkeypatch.context() as patch:
            FAULTS[fault](patch)
            verdict = judge().judge(case)
        delivered += verdict.deliveries
        if verdict.wrong and not judge().judge(case).wrong:
            record_property("events", delivered)
            print(f"{fault}: {delivered} events: {verdict.wrong[0][:120]!r}")
            return
    pytest.fail(f"not found in {delivered} events")
