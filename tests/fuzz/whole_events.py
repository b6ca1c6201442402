"""Whole events built from strategies: hypothesis decides every field of every record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import hypothesis
from hypothesis import strategies as st

from fuzz.application import EXAMPLES
from fuzz.cases import Case, planted
from fuzz.corpus import DOES, attribute
from fuzz.odd import COUNTS, ODD_LITERALS, ODD_TEXTS
from kit.strict_reading import Identity
from kit.world import arn_of

if TYPE_CHECKING:
    from fuzz.cases import Judge

# Few, so that records meet.
KEYS = st.sampled_from(["k-1", "k-2", "k-3", 4, "4", "é", "k" * 1_100]) | st.text(max_size=3) | st.integers()
TEXTS = st.text(st.characters(exclude_categories=()), max_size=6) | st.sampled_from(ODD_TEXTS)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
PAYLOADS = st.fixed_dictionaries(
    {"do": st.sampled_from(DOES)}, optional={"order_id": KEYS | LEAVES, "amount": st.integers() | LEAVES}
)
NAMES = st.sampled_from(
    [*EXAMPLES[:2], "sends", "async", "typed", "once", "locked", "retitled", "old_title", "derived"]
)
ENVELOPES = st.fixed_dictionaries(
    {"onceq": st.just(1), "job_type": NAMES, "payload": PAYLOADS, "idempotency_key": KEYS},
    optional={"hops": st.integers(0, 1_001), "created_at": TEXTS},
)
ODD_ENVELOPES = st.fixed_dictionaries(
    {"onceq": st.just(1) | LEAVES},
    optional={
        "job_type": NAMES | LEAVES,
        "payload": PAYLOADS | ANY_JSON,
        "idempotency_key": KEYS | ANY_JSON,
        "hops": st.integers() | LEAVES,
    },
)


def _published(message: Any) -> dict[str, Any]:
    return {"Type": "Notification", "MessageId": "m", "TopicArn": "t", "Message": message}


VALUES = ENVELOPES | ODD_ENVELOPES | PAYLOADS | ANY_JSON
BODIES = (
    ENVELOPES.map(json.dumps)
    | VALUES.map(json.dumps)
    | VALUES.map(json.dumps).map(_published).map(json.dumps)
    | st.builds(lambda value: json.dumps(value, ensure_ascii=False), VALUES)
    | st.sampled_from(ODD_LITERALS)
    | TEXTS
)
GROUPS = st.sampled_from(["a", "b"]) | TEXTS | LEAVES
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["onceq", "trace", "content-encoding"]) | TEXTS,
    st.builds(attribute, st.just("String"), TEXTS)
    | st.fixed_dictionaries({}, optional={"dataType": TEXTS, "stringValue": TEXTS, "binaryValue": TEXTS})
    | LEAVES,
    max_size=3,
)
ARNS = st.sampled_from([arn_of(name) for name in ("JobsQueue", "JobsQueue.fifo", "Bare", "Foreign")])
IDS = st.sampled_from(["m-1", "m-2", "m-3", "m-4", "m-5", "m-6"])
SYSTEM = st.fixed_dictionaries(
    {},
    optional={
        "ApproximateReceiveCount": st.just("1") | st.sampled_from(COUNTS),
        "SentTimestamp": st.just("1795953600000") | st.sampled_from(COUNTS),
        "MessageGroupId": GROUPS,
    },
)
RECORDS = st.fixed_dictionaries(
    {"messageId": IDS, "body": BODIES, "eventSourceARN": ARNS, "attributes": SYSTEM, "receiptHandle": st.just("r")},
    optional={"messageAttributes": ATTRIBUTES, "eventSource": st.sampled_from(["aws:sqs", None, ""])},
)
ODD_RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "messageId": IDS | LEAVES,
        "body": BODIES | ANY_JSON,
        "eventSourceARN": ARNS | LEAVES,
        "attributes": SYSTEM | ANY_JSON,
        "messageAttributes": ATTRIBUTES | ANY_JSON,
        "receiptHandle": LEAVES,
        "eventSource": st.sampled_from(["aws:sqs", "aws:s3"]) | LEAVES,
    },
)
EVENTS = (
    st.lists(RECORDS, max_size=4).map(lambda records: {"Records": records})
    | st.lists(RECORDS | ODD_RECORDS | ANY_JSON, max_size=4).map(lambda records: {"Records": records})
    | st.fixed_dictionaries({}, optional={"Records": ANY_JSON})
    | ANY_JSON
)
PLANTED = st.lists(
    st.builds(
        planted,
        st.builds(Identity, st.sampled_from([*EXAMPLES[:2], "once", "derived"]), st.sampled_from(["k-1", "k-2", "4"])),
        st.sampled_from(
            ["processing", "processing, stale", "failed", "failed, due", "completed", "rejected", "uncertain"]
        ),
        another=st.booleans(),
    ),
    max_size=2,
    unique_by=lambda item: item["pk"]["S"],
)
CASES = st.builds(
    Case,
    EVENTS,
    PLANTED.map(tuple),
    times=st.integers(1, 3),
    wait=st.sampled_from([1, 50_000]),
    concurrency=st.sampled_from([1, 1, 1, 4]),
    remaining_ms=st.sampled_from([60_000, 60_000, 60_000, 3_000]),
)


def run_whole_events(judge: Judge, examples: int, seed: int) -> int:
    """Judge cases that hypothesis makes, and return how many events were delivered.

    Raises:
        AssertionError: For the smallest case that is wrong; it is printed.
    """
    delivered = 0

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        # What is wrong is shrunk below, record by record: bytes of strategies as large as these take minutes.
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(CASES)
    def whole_events(case: Case) -> None:
        nonlocal delivered
        verdict = judge.judge(case)
        delivered += verdict.deliveries
        if verdict.wrong:
            case = judge.shrunk(case)
            raise AssertionError("\n".join([*judge.judge(case).wrong, case.shown()]))

    whole_events()
    return delivered
