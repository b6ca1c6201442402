"""What a producer is given may be odd too: it is refused before anything is sent, or it arrives as what it was."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.application import URL
from fuzz.mutations import nested
from fuzz.odd import ODD_TEXTS
from fuzz.whole_events import ANY_JSON, LEAVES, TEXTS
from kit.clock import CountingTokens, FakeLambdaContext, FrozenClock
from kit.memory import MemoryRuntime, MemorySqs
from kit.strict_reading import canonical, strictly
from kit.world import OUTBOX_TABLE, TABLE, arn_of
from onceq import App, ConfigurationError, Context, EnqueueRefused, Entry, JobType
from onceq.settings import QueueSettings, Settings

ODD_PAYLOADS = st.sampled_from(
    [
        *(b"\x00\xff", {1, 2}, (1, 2), 1j, object(), range(3), Exception("x"), {1: "a"}, {None: 1}, {(1, 2): 3}),
        *(
            10**400,
            float("nan"),
            {"a": [float("inf")]},
            "\ud800",
            {"\ud800": 1},
            ["\udfff"],
            nested(150, in_objects=True),
        ),
        *(
            nested(201, in_objects=False),
            nested(5_000, in_objects=True),
            "x" * 1_048_000,
            "\x00" * 200_000,
            "\uffff\ufffe",
        ),
        *("é" * 600_000, {"a": "\u2028\x7f\x85"}, [None] * 1_000, -0.0, 1e308, 5e-324),
    ]
)
KEYS = st.none() | TEXTS | LEAVES | st.sampled_from([[], {}, "x" * 8_192, "x" * 8_193, 10**100, 10**99, b"k", ("a",)])
GROUPS = st.none() | TEXTS | st.sampled_from(["a", "a" * 128, "a" * 129, "a b", 5, "é"])
QUEUES = st.sampled_from([None, "default", "ordered", "gone"])
DELAYS = st.sampled_from([0, 0, 0, 1, 900, 901, -1, float("nan"), float("inf"), True, 0.5, 10**400])


class Echo:
    """A producer and a consumer of one job type, which takes anything."""

    def __init__(self) -> None:
        """Compose them."""
        self.ran: list[tuple[str, Any]] = []
        queues = {
            "default": QueueSettings("default", URL + "Jobs", arn_of("Jobs"), URL + "Dead"),
            "ordered": QueueSettings("ordered", URL + "Jobs.fifo", arn_of("Jobs.fifo"), URL + "Dead.fifo"),
        }
        clock = FrozenClock()
        given = Settings(queues=queues, claims_table=TABLE, outbox_table=OUTBOX_TABLE)
        self.runtime = MemoryRuntime(given, clock, CountingTokens(clock))

        def echo(payload: Any, ctx: Context) -> None:
            self.ran.append((ctx.key, payload))

        self.job_type = JobType(echo, "echo")
        self.told: list[str] = []
        self.app = App([self.job_type], runtime=self.runtime, hooks=[lambda event: self.told.append(event.name)])

    @property
    def sqs(self) -> MemorySqs:
        """The queues."""
        return self.runtime.sqs

    def reset(self) -> None:
        """Forget what was sent and done."""
        self.ran.clear()
        self.told.clear()
        self.runtime.plant(TABLE, [])

    def deliver(self) -> None:
        """Deliver what was sent, as Lambda does: through JSON."""
        records = []
        for number, (url, entry) in enumerate(self.sqs.sent):
            group = {"MessageGroupId": entry["MessageGroupId"]} if "MessageGroupId" in entry else {}
            record = {
                "messageId": f"m-{number}",
                "receiptHandle": f"r-{number}",
                "body": entry["MessageBody"],
                "attributes": group,
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": arn_of(url.rsplit("/", 1)[-1]),
            }
            records.append(record)
        event = json.loads(json.dumps({"Records": records}))

        assert self.app.consumer(event, FakeLambdaContext()) == {"batchItemFailures": []}


@cache
def echo() -> Echo:
    """Return the one of this process."""
    return Echo()


def as_json(payload: Any) -> str | None:
    """Return a payload as canonical JSON; ``None`` where the standard library has another idea of it, or none."""
    try:
        return canonical(strictly(json.dumps(payload, ensure_ascii=False)))
    except (TypeError, ValueError, RecursionError):
        return None


def test_what_is_enqueued_is_refused_or_arrives_as_it_was() -> None:
    """What SQS would refuse is never sent; what is sent becomes a job of that key, with an equal payload."""
    bench, ends = echo(), Counter[str]()

    @settings(max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(payload=ANY_JSON | ODD_PAYLOADS, key=KEYS, group=GROUPS, queue=QUEUES, delay=DELAYS)
    def enqueued(payload: Any, key: Any, group: Any, queue: Any, delay: Any) -> None:
        bench.reset()
        try:
            sent = bench.app.enqueue(bench.job_type, payload, key=key, group=group, queue=queue, delay=delay)
        except (EnqueueRefused, ConfigurationError) as refusal:
            assert (bench.sqs.sent, bench.sqs.refused) == ([], [])
            ends[type(refusal).__name__] += 1
            return

        bench.deliver()

        assert [ran for ran, _ in bench.ran] == [sent.key]
        assert key is None or sent.key == str(key)
        arrived = canonical(bench.ran[0][1])
        assert arrived == (as_json(payload) or arrived)
        assert "message.faulted" not in bench.told
        ends["arrived"] += 1

    enqueued()

    assert min(ends["arrived"], ends["EnqueueRefused"], ends["ConfigurationError"]) > 10, ends


@settings(max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(ANY_JSON | ODD_PAYLOADS, KEYS, GROUPS), max_size=12))
def test_of_many_all_are_sent_or_none(given_entries: list[tuple[Any, Any, Any]]) -> None:
    """All are checked before the first is sent, and each arrives under its own key."""
    bench = echo()
    bench.reset()
    entries = [Entry("echo", payload, key=key, group=group) for payload, key, group in given_entries]
    try:
        sent = bench.app.enqueue_many(entries)
    except (EnqueueRefused, ConfigurationError):
        assert not bench.sqs.sent
        return

    assert len(bench.sqs.sent) == len(sent) == len(entries)


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_an_odd_text_arrives_as_it_was(text: str) -> None:
    """As a payload, as a name in one and as a key: each is refused, or is the same on the other side."""
    bench = echo()
    for payload, key in ((text, "k"), ({text: text}, "k"), ({}, text)):
        bench.reset()
        try:
            sent = bench.app.enqueue("echo", payload, key=key)
        except EnqueueRefused:
            continue

        bench.deliver()

        assert bench.ran == [(sent.key, payload)]
