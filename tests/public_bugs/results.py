"""Scenes about results, keys and payloads."""

from __future__ import annotations

import hashlib
import json
import random
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import Worker, pass_lease, stored
from kit.sqs import FakeSqs
from onceq import Entry, IdempotencyKeyError, JobType, PayloadError, Reject, ResultNotStored, join_key
from onceq.clock import TokenFactory
from onceq.errors import EnqueueRefused
from onceq.record import pk_of
from public_bugs.ground import Ground, Pay, on_both, raising, returning

if TYPE_CHECKING:
    from collections.abc import Callable

# DynamoDB's limit of a partition key, in bytes.
LONGEST_PK = 2_048
BAD_KEYS: tuple[Any, ...] = ("", " ", "\t\n", None, [], {}, [None], False, True, 1.5, {"a": 1}, ["k"])


def a_warm_process_asks_the_record_every_time(ground: Ground) -> None:
    """Nothing is cached: what another process did in between counts, and so does the end of the retention."""
    pay = Pay(ground.world, retention=timedelta(seconds=1_000), fingerprint=None)
    other = Worker.of(ground.world).take(fingerprint=None)
    assert pay.deliver() == ["k-1"], "in progress elsewhere"
    other.complete(ground.world.clock.now_ms(), '"theirs"')
    for _ in range(2):
        assert pay.deliver() == []
    assert pay.runs == []
    ground.world.clock.advance(1_001)
    assert pay.deliver() == []
    assert pay.runs == ["k-1"], "past its retention"


def a_payload_is_checked_before_anything_is_claimed(ground: Ground) -> None:
    """One that does not fit leaves no record; the right one under the same key runs."""
    runs: list[int] = []

    def pay(payload: Payment) -> None:
        runs.append(payload.amount)

    spied = Pay(ground.world)
    job_type = JobType(pay, "pay", max_duration=20)
    spied.app = ground.world.app(job_type, runtime=spied.app.runtime)
    payloads: list[Any] = [{"amount": "five"}, {}, [], {"amount": None}]
    for wrong in payloads:
        assert spied.consume(ground.world.message("pay", wrong)) == []
    assert ground.world.record("pay", "k-1") is None
    assert spied.consume(ground.world.message("pay", {"amount": 5})) == []
    assert runs == [5]
    assert len(spied.notes()) == 4


def a_replay_is_not_given_to_another_payload(ground: Ground) -> None:
    """The key of a completed job with other content is key reuse: refused with the reason, the record untouched."""
    pay = Pay(ground.world)
    assert pay.consume(ground.world.message("pay", {"amount": 1})) == []
    before = stored(ground.world)
    assert pay.consume(ground.world.message("pay", {"amount": 2})) == []
    assert pay.notes()[0].startswith("key reuse")
    assert stored(ground.world) == before
    assert pay.runs == ["k-1"]


def nothing_is_a_result(ground: Ground) -> None:
    """`None`, 0, False, "", [] and {} are stored and replayed as themselves, and never run again."""
    values: list[Any] = [None, 0, False, "", [], {}, 0.0]
    for number, value in enumerate(values):
        pay, key = Pay(ground.world, returning(partial(deepcopy, value))), f"k-{number}"
        for _ in range(2):
            assert pay.deliver(key) == []
        status = pay.app.lookup(pay.job_type, key)
        assert status is not None
        assert (status.result, type(status.result), len(pay.runs)) == (value, type(value), 1)


@dataclass(frozen=True)
class Payment:
    """A payload with a type."""

    amount: int


class _Odd:
    """Something that no JSON has."""


def a_result_that_does_not_fit_never_causes_a_second_run(ground: Ground) -> None:
    """500 KB, 32 KB and a byte, an object, a lone surrogate, a circle: completed with a marker, and told."""
    circle: list[Any] = []
    circle.append(circle)
    odd: list[Callable[[], Any]] = [
        lambda: "x" * 500_000,
        lambda: "x" * 32_767,
        _Odd,
        lambda: "\ud800",
        lambda: circle,
        lambda: {1: object()},
    ]
    for number, make in enumerate(odd):
        pay, key = Pay(ground.world, returning(make)), f"k-{number}"
        for _ in range(3):
            assert pay.deliver(key) == []
        assert pay.runs == [key]
        status = pay.app.lookup(pay.job_type, key)
        assert status is not None
        assert status.status == "completed"
        assert isinstance(status.result, ResultNotStored)
    assert ground.world.names().count("result.not_stored") == len(odd)


def a_key_that_names_nothing_is_refused(ground: Ground) -> None:
    """Copied with the reason, never an unprotected run; the producer refuses it before it sends."""
    pay = Pay(ground.world)
    for key in BAD_KEYS:
        assert pay.deliver(key) == []
        if key is not None:
            with pytest.raises((EnqueueRefused, IdempotencyKeyError)):
                pay.app.enqueue(pay.job_type, {}, key=key)
    assert pay.runs == []
    assert len(pay.notes()) == len(BAD_KEYS)
    assert all("key" in reason for reason in pay.notes())
    assert pay.deliver("0") == []
    assert pay.runs == ["0"]


def a_key_that_selects_nothing_is_refused(ground: Ground) -> None:
    """The same where a job type derives its key: an absent or empty field is no key."""
    pay = Pay(ground.world, key="order.id")
    orders: list[Any] = [{}, {"id": None}, {"id": ""}, {"id": []}, None]
    for payload in [{"order": order} for order in orders]:
        body = json.dumps({"onceq": 1, "job_type": "pay", "payload": payload})
        assert pay.consume(ground.world.raw(body)) == []
    assert (pay.runs, len(pay.notes())) == ([], 5)


@on_both
def a_long_key_is_hashed_and_stays_itself(ground: Ground) -> None:
    """2,049 bytes, or 700 four-byte characters: one job each, though they differ in their last character only."""
    keys = [start + end for start in ("x" * 2_048, "🙂" * 700, "é" * 1_500) for end in "ab"]
    pay = Pay(ground.world)
    for _ in range(2):
        assert pay.deliver(*keys) == []
    assert sorted(pay.runs) == sorted(keys)
    assert all(len(pk_of("pay", key).encode()) <= LONGEST_PK for key in keys)


def parts_never_meet(ground: Ground) -> None:
    """Parts that contain the separator, its escape, or nothing but it, make different keys."""
    parts = [
        ("charge", "b:c"),
        ("charge", "b", "c"),
        ("charge:b", "c"),
        ("charge%3Ab", "c"),
        ("charge:b:c",),
        (":", ":"),
    ]
    pay = Pay(ground.world)
    keys = [join_key(*each) for each in parts]

    assert pay.deliver(*keys) == []

    assert len(set(keys)) == len(set(pay.runs)) == len(parts)
    with pytest.raises(IdempotencyKeyError):
        join_key("charge", "")


def a_whole_number_is_a_key(ground: Ground) -> None:
    """42 and "42" name one job; 0 is a key like any other, where somebody wrote it."""
    pay = Pay(ground.world)
    for key in (42, "42", 0, "0", -1):
        assert pay.deliver(key) == []
    assert pay.runs == ["42", "0", "-1"]
    [sent] = pay.app.enqueue_many([Entry(pay.job_type, {}, key=42)])
    assert sent.key == "42"


def no_weak_digest_is_asked_for(ground: Ground) -> None:
    """With md5 and sha1 forbidden: long keys, fingerprints, downstream keys, copies for a FIFO queue."""

    def forbidden(*_: Any, **__: Any) -> None:
        message = "disabled for FIPS"
        raise ValueError(message)

    pay = Pay(ground.world, lambda ctx: ctx.idempotency_key_for("charge"))
    rejecting = Pay(ground.world, raising(Reject("no")), sqs=FakeSqs())
    with ground.monkeypatch.context() as patch:
        for name in ("md5", "sha1"):
            patch.setattr(hashlib, name, forbidden)
        kept = [pay.deliver("x" * 3_000, "k-1")]
        record = ground.world.message("pay", key="k-2", queue="Ordered.fifo", group="g")
        kept.append(rejecting.consume(record))
    assert kept == [[], []]
    [copy] = rejecting.sqs.entries("send")
    assert copy["MessageDeduplicationId"]


@on_both
def a_producer_refuses_what_sqs_would(ground: Ground) -> None:
    """Lone surrogates and bodies past 1 MiB are refused before sending; what JSON can escape is sent and read back."""
    world = ground.world
    seen: list[str] = []
    job_type = JobType(lambda payload: seen.append(payload["a"]), "read")
    app, url = world.app(job_type), world.settings.queue("default").url
    for wrong in ({"a": "\ud800"}, {"a": "x" * 1_048_576}, {"a": object()}):
        with pytest.raises((EnqueueRefused, PayloadError)):
            app.enqueue(job_type, wrong, key="k-1")
    texts = ["\0", "\x01\x1f", "\ufffe\uffff", "\ufeffbom", "\x7f\x85", ""]
    for number, text in enumerate(texts):
        app.enqueue(job_type, {"a": text}, key=f"k-{number}")
    bodies = []
    while found := world.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        bodies += [message["Body"] for message in found]
    for body in bodies:
        app.consumer({"Records": [world.raw(body)]}, None)
    assert sorted(seen) == sorted(texts)


def a_body_of_exactly_the_limit_is_sent(ground: Ground) -> None:
    """1,048,576 bytes are sent, one more is not: counted in bytes, the attributes too."""
    sizes = []

    def fits(length: int) -> bool:
        try:
            pay.app.enqueue(pay.job_type, {"a": "é" * length}, key="k-1")
        except EnqueueRefused:
            return False
        return True

    class _Sqs(FakeSqs):
        def send_message(self, **request: Any) -> dict[str, Any]:
            attributes = request.get("MessageAttributes", {})
            extra = sum(len(name) + len(one["DataType"]) + len(one["StringValue"]) for name, one in attributes.items())
            sizes.append(len(request["MessageBody"].encode()) + extra)
            return {"MessageId": "m-1"}

    pay = Pay(ground.world, sqs=_Sqs())
    low, high = 0, 1_048_576
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    assert 1_048_576 - 2 < max(sizes) <= 1_048_576


def a_body_that_is_no_text_hurts_nobody(ground: Ground) -> None:
    """Empty, control characters, a lone surrogate, a BOM, deep nesting, a huge number: copied or kept, and no crash."""
    pay = Pay(ground.world, key="id")
    for body in ("", "\0", "\ud800", '"\\ud800"', "\ufeff{}", "[" * 50_000, "9" * 5_000, "NaN", "{}" * 2, "null"):
        record = ground.world.raw(body)
        good = ground.world.message("pay", key=f"good-{record['messageId']}")
        assert set(pay.consume(record, good)) <= {record["messageId"]}
        assert pay.runs[-1] == f"good-{record['messageId']}"


def a_token_is_made_inside_the_invocation(ground: Ground) -> None:
    """Nothing random is drawn while an app is composed, and a restored seed does not repeat a token."""
    drawn: list[str] = []
    original = TokenFactory.token

    def counted(self: TokenFactory) -> str:
        drawn.append(original(self))
        return drawn[-1]

    ground.monkeypatch.setattr(TokenFactory, "token", counted)
    factory = TokenFactory(ground.world.clock)
    pay = Pay(ground.world)
    assert drawn == []
    for _ in range(2):
        random.seed(1)
        factory.token()
    assert len(set(drawn)) == 2
    claims = []
    for number in range(2):
        pass_lease(ground.world)
        pay.deliver(f"k-{number}")
        claims.append(stored(ground.world, f"k-{number}").claimant)
    assert len(set(claims)) == 2
