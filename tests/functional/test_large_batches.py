"""A batch has up to 10,000 records on a standard queue: time and memory grow with it as a line, not as a square.

On doubles of DynamoDB and SQS in memory, so that what is measured is ours. Ratios within one run, of processor time,
so that neither a slow machine nor a busy one fails it.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import pytest

from kit.clock import CountingTokens, FakeLambdaContext, FrozenClock
from kit.memory import MemoryRuntime
from kit.world import ACCOUNT, OUTBOX_TABLE, TABLE, World, arn_of, event_of, kept
from onceq import App, Context, Reject, Retry, job
from onceq.settings import QueueSettings, Settings

LARGEST = 10_000
SMALL, LARGE = 600, 2_400
GROWTH = LARGE / SMALL
# A line has 1 times GROWTH, a square 4 times. Noise of the machine, which the processor's time has too, is below it.
MOST_TIMES = 2
# The shortest of some runs is the one that least came between: noise only adds.
REPEATS = 3


@job("act")
def act(payload: dict[str, Any], ctx: Context) -> None:
    """Do what the payload says."""
    if payload["do"] == "fail":
        raise Retry(delay=30)
    if payload["do"] == "reject":
        raise Reject("no")


@dataclass
class Batch:
    """An event, and what must come of it.

    Args:
        records: Its records.
        kept: Ids of those that must be kept, in order.
        copies: How many must lie in the dead-letter queue.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    copies: int = 0

    def add(self, record: dict[str, Any], *, keep: bool = False) -> None:
        """Add a record."""
        self.records.append(record)
        self.kept += [record["messageId"]] if keep else []


def mixed(world: World, size: int) -> Batch:
    """Every kind: done, done twice, failed, failed twice, rejected, unreadable, of another release, of a tenant."""
    batch = Batch()
    for number in range(0, size, 8):
        batch.add(world.message("act", {"do": "work"}, key=f"done-{number}"))
        batch.add(world.message("act", {"do": "work"}, key=f"done-{number}"))
        batch.add(world.message("act", {"do": "fail"}, key=f"failed-{number}"), keep=True)
        batch.add(world.message("act", {"do": "fail"}, key=f"failed-{number}"), keep=True)
        batch.add(world.message("act", {"do": "reject"}, key=f"rejected-{number}"))
        batch.add(world.raw("not json"))
        batch.add(world.message("of_tomorrow", key=f"unknown-{number}"), keep=True)
        batch.add(world.message("act", {"do": "work"}, key=f"tenant-{number}", group="tenant"))
        batch.copies += 2
    assert len(batch.records) > size - 8
    return batch


def one_job(world: World, size: int) -> Batch:
    """One failed job and its duplicates: a single lane, of which one record runs."""
    batch = Batch()
    for _ in range(size):
        batch.add(world.message("act", {"do": "fail"}, key="k"), keep=True)
    return batch


Shape = Callable[[World, int], Batch]
SHAPES: list[Shape] = [mixed, one_job]


def world_in_memory() -> World:
    """Return a world on the doubles."""
    url = f"http://sqs.test/{ACCOUNT}"
    queue = QueueSettings("default", f"{url}/JobsQueue", arn_of("JobsQueue"), f"{url}/DeadLetterQueue")
    settings = Settings(queues={"default": queue}, claims_table=TABLE, outbox_table=OUTBOX_TABLE)
    clock = FrozenClock()
    tokens = CountingTokens(clock)
    return World(settings, clock, tokens, MemoryRuntime(settings, clock, tokens), None, None)


Answer = dict[str, Any]


def seconds_of(run: Callable[[], Answer]) -> tuple[Answer, float]:
    """Run it, and return its answer and the processor time that it took."""
    before = process_time()
    answer = run()
    return answer, process_time() - before


def bytes_of(run: Callable[[], Answer]) -> tuple[Answer, float]:
    """Run it, and return its answer and the most bytes that it had allocated at a time."""
    tracemalloc.start()
    try:
        answer = run()
        return answer, float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def consume(shape: Shape, size: int, measure: Callable[[Callable[[], Answer]], tuple[Answer, float]]) -> float:
    """Consume a batch, check the answer, and return what it took."""
    world = world_in_memory()
    batch = shape(world, size)
    app, event, context = App([act], hooks=[], runtime=world.runtime), event_of(*batch.records), FakeLambdaContext()
    gc.collect()

    answer, taken = measure(lambda: app.consumer(event, context))

    assert kept(answer) == batch.kept
    sqs = world.runtime.sqs  # type: ignore[attr-defined]  # the doubles'
    assert len(sqs.sent) == batch.copies
    return taken


@pytest.mark.parametrize("shape", SHAPES)
def test_the_time_of_a_batch_is_linear(shape: Shape) -> None:
    """Four times the records take about four times as long; the answer names exactly the ones to keep (G5)."""
    consume(shape, 100, seconds_of)  # what is made once
    # By turns, so that a machine that changes its speed changes it for both.
    taken = [(consume(shape, SMALL, seconds_of), consume(shape, LARGE, seconds_of)) for _ in range(REPEATS)]
    small, large = (min(each) for each in zip(*taken, strict=True))

    assert large / small < MOST_TIMES * GROWTH, f"{SMALL} records took {small:.2f} s, {LARGE} took {large:.2f} s"


def test_the_largest_batch_is_answered() -> None:
    """As many records as a standard queue gives at a time, of every kind."""
    assert consume(mixed, LARGEST, seconds_of) > 0


def test_the_memory_of_a_batch_is_linear() -> None:
    """Four times the records need about four times as much beside the event itself."""
    consume(mixed, 100, seconds_of)

    # Half as many: each allocation is noted, which takes its time.
    few, many = SMALL // 2, LARGE // 2
    small, large = consume(mixed, few, bytes_of), consume(mixed, many, bytes_of)

    assert large / small < MOST_TIMES * GROWTH, f"{few} records needed {small:.0f} bytes, {many} needed {large:.0f}"
