"""Large messages as they are consumed: fetched before the claim, never deleted, and never at a neighbour's cost."""

from __future__ import annotations

import json
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from kit.buckets import (
    BUCKET,
    DIALECTS,
    FOREIGN,
    answering,
    attribute,
    configure,
    objects,
    open_buckets,
    pointer,
    put,
    refusing,
    stamped,
)
from kit.clock import FakeLambdaContext, RunningContext
from kit.delivery import record_of
from kit.faults import faulty_dynamodb, faulty_sqs
from kit.seams import SimulatedCrash
from kit.world import arn_of, event_of, kept
from onceq import Context, Reject, job, source
from onceq.client import ATTEMPTS
from onceq.fetching import MOST_HELD
from onceq.message import seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kit.faults import Call, FaultyClient
    from kit.world import World
    from onceq import App


@pytest.fixture
def s3(world: World) -> Iterator[FaultyClient]:
    """The world's buckets, and the client that faults are planned on."""
    with open_buckets(world, fetch_from=(FOREIGN,)) as client:
        yield client


@pytest.fixture
def ran() -> list[str]:
    """The keys of the jobs that ran."""
    return []


@pytest.fixture
def app(world: World, s3: FaultyClient, ran: list[str]) -> App:
    """An application whose one job type serves everything."""

    @job("act", key="id")
    def act(payload: dict[str, Any], ctx: Context) -> str:
        ran.append(ctx.key)
        if payload.get("bad"):
            message = "it is bad"
            raise Reject(message)
        return "done"

    return world.app(act, default=act)


def envelope(key: str = "k-1", **payload: Any) -> str:
    """Return the body of a message of ours."""
    payload.setdefault("id", key)
    return seal(job_type="act", idempotency_key=key, payload=payload, created_at="2026-11-29T12:00:00Z")


def large(world: World, key: str = "k-1", body: str | None = None, **options: Any) -> dict[str, Any]:
    """Return a record that points at a body, which stands there."""
    put(f"default/{key}", envelope(key) if body is None else body)
    return world.raw(pointer(f"default/{key}"), attributes=stamped("act", key), **options)


def consume(app: App, *records: dict[str, Any]) -> list[str]:
    """Deliver a batch and return the ids that are kept."""
    return kept(app.consumer(event_of(*records), FakeLambdaContext()))


def die(_call: Call) -> Any:
    """The process ends here."""
    raise SimulatedCrash


@pytest.mark.parametrize("bucket", [BUCKET, FOREIGN])
@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
def test_a_pointer_of_the_extended_client_is_served(
    world: World, app: App, ran: list[str], dialect: tuple[str, str | None], bucket: str
) -> None:
    """Either class name, either attribute or none, in any bucket that is listed; its body is plain JSON."""
    named, size = dialect
    put("0f1e", '{"id": "f-1"}', bucket=bucket)
    attributes = {size: attribute("13", "Number")} if size else {}

    assert consume(app, world.raw(pointer("0f1e", bucket=bucket, named=named), attributes=attributes)) == []
    assert ran == ["f-1"]


def test_a_pointer_inside_a_notification_of_sns_is_served(world: World, s3: FaultyClient, ran: list[str]) -> None:
    """The Extended Client for SNS writes the same pointer; the notification stays around what is fetched."""

    @job("notified", source=source.sns())
    def notified(payload: dict[str, Any], ctx: Context) -> None:
        ran.append(ctx.key + payload["text"])

    put("0f1e", '{"text": "!"}')
    put("ours", envelope("k-7"))

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        ran.append(payload["id"])

    app = world.app(notified, act, wrapped_envelopes=True)
    wrapped = {"Type": "Notification", "MessageId": "n-1", "TopicArn": "arn:aws:sns:us-east-1:123456789012:t"}
    records = [world.raw(json.dumps(wrapped | {"Message": pointer(key)})) for key in ("0f1e", "ours")]

    assert consume(app, *records) == []
    assert sorted(ran) == ["k-7", "n-1!"]


def test_an_off_loaded_message_of_several_records_becomes_several_jobs(
    world: World, s3: FaultyClient, ran: list[str]
) -> None:
    """A notification of S3 that was itself too large: the wrapping is opened after the fetching."""

    @job("uploaded", source=source.s3())
    def uploaded(payload: source.S3Object) -> None:
        ran.append(payload.key)

    records = [
        {
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "eventTime": "2026-11-29T12:00:00.000Z",
            "awsRegion": "us-east-1",
            "s3": {"bucket": {"name": "uploads"}, "object": {"key": f"u-{number}", "sequencer": f"0{number}"}},
        }
        for number in range(3)
    ]
    put("0f1e", json.dumps({"Records": records}))

    assert consume(world.app(uploaded), world.raw(pointer("0f1e"))) == []
    assert sorted(ran) == ["u-0", "u-1", "u-2"]


@pytest.mark.parametrize(
    "body",
    [
        '["software.amazon.payloadoffloading.PayloadS3Pointer"]',
        '["software.amazon.payloadoffloading.PayloadS3Pointer", {"s3BucketName": "", "s3Key": "k"}]',
        '["software.amazon.payloadoffloading.PayloadS3Pointer", {"s3BucketName": 7, "s3Key": ["k"]}]',
        '["com.amazon.sqs.javamessaging.MessageS3Pointer", {"s3BucketName": "payloads", "s3Key": "k"}, 1]',
        '["com.amazon.sqs.javamessaging.MessageS3Pointer"',
    ],
)
def test_a_broken_pointer_is_a_foreign_body_like_any_other(
    world: World, app: App, s3: FaultyClient, ran: list[str], body: str
) -> None:
    """G5: it fits no job type, so it is refused with a reason; its neighbour runs and nothing is fetched."""
    assert consume(app, world.raw(body), world.message("act", {"id": "k-2"}, key="k-2")) == []

    (copy,) = world.dead_letters()
    assert (copy["Body"], bool(copy["note"]["reason"])) == (body, True)
    assert (ran, s3.calls) == (["k-2"], [])


def test_a_body_is_fetched_before_its_job_is_claimed(world: World, app: App, s3: FaultyClient) -> None:
    """A body that takes its time takes none of a lease."""
    s3.calls = faulty_dynamodb(world.runtime).calls
    record = large(world)

    consume(app, record)

    assert [call.name for call in s3.calls] == ["get_object", "claim", "complete"]


def test_a_body_is_never_deleted_so_a_late_duplicate_is_a_replay(
    world: World, app: App, s3: FaultyClient, ran: list[str]
) -> None:
    """G3: SQS delivers again after the completion, and the body is still there."""
    record = large(world)
    for number in range(3):
        assert consume(app, record | {"messageId": f"m-{number}"}) == []

    assert ran == ["k-1"]
    assert world.names().count("job.replayed") == 2
    assert list(objects()) == ["default/k-1"]
    assert {call.method for call in s3.calls} == {"get_object"}


def test_a_small_message_asks_nothing_of_s3(world: World, app: App, s3: FaultyClient, ran: list[str]) -> None:
    """Also one that speaks of pointers."""
    body = envelope("k-1", text=pointer("default/k-1"))

    assert consume(app, world.raw(body)) == []
    assert (ran, s3.calls) == (["k-1"], [])


@pytest.mark.parametrize(
    "point",
    [
        ("get_object", "before", 1),
        ("get_object", "after", 1),
        ("claim", "before", 1),
        ("claim", "after", 1),
        ("complete", "before", 2),
        ("complete", "after", 1),
    ],
)
def test_a_consumer_that_dies_is_recovered_by_the_next_delivery(
    world: World, app: App, s3: FaultyClient, ran: list[str], point: tuple[str, str, int]
) -> None:
    """G6: at every point around the fetch; what was not recorded is run again, and what was is not."""
    name, when, runs = point
    client = s3 if name == "get_object" else faulty_dynamodb(world.runtime)
    record, neighbour = large(world), world.message("act", {"id": "k-2"}, key="k-2")

    def forward_and_die(call: Call) -> Any:
        client.forward(call)
        raise SimulatedCrash

    client.plan(name, die if when == "before" else forward_and_die)
    with pytest.raises(SimulatedCrash):
        consume(app, record)
    for _ in range(3):
        world.clock.advance(3_600)
        assert consume(app, record, neighbour) == []

    assert sorted(ran) == ["k-1"] * runs + ["k-2"]
    assert list(objects()) == ["default/k-1"]


@pytest.mark.parametrize("bucket", ["somebody-elses", "payloads-2", "", "PAYLOADS"])
def test_a_bucket_that_is_not_listed_is_never_read(
    world: World, app: App, s3: FaultyClient, ran: list[str], bucket: str
) -> None:
    """Who may send to the queue must not choose what our role reads; kept, since a setting may be what is missing."""
    configure(world, payload_bucket="payloads", fetch_from=())
    told = app_of(world, ran)
    put("k", envelope(), bucket=BUCKET)
    record = world.raw(pointer("k", bucket=bucket or FOREIGN), attributes=stamped("act", "k-1"))

    assert consume(told, record) == [record["messageId"]]
    assert (ran, s3.calls, world.names()[0]) == ([], [], "message.unserved")
    (event,) = (event for event in world.events if event.name == "message.unserved")
    assert event.fields()["reason"] == (
        f"bucket {bucket or FOREIGN!r} is in neither ONCEQ_PAYLOAD_BUCKET nor ONCEQ_FETCH_FROM"
    )


def app_of(world: World, ran: list[str]) -> App:
    """Return an application on the world's present settings."""

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        ran.append(payload["id"])

    return world.app(act)


def test_a_listed_bucket_needs_no_bucket_of_our_own(world: World, s3: FaultyClient, ran: list[str]) -> None:
    """A consumer that never sends large messages names only whom it reads from."""
    configure(world, payload_bucket="", fetch_from=("other", FOREIGN))
    put("k", envelope(), bucket=FOREIGN)

    assert consume(app_of(world, ran), world.raw(pointer("k", bucket=FOREIGN))) == []
    assert ran == ["k-1"]


@pytest.mark.parametrize("length", [None, 0], ids=["told", "not-told"])
def test_a_body_above_the_limit_is_refused_with_its_pointer(
    world: World, app: App, s3: FaultyClient, ran: list[str], length: int | None
) -> None:
    """By the length that S3 tells, or by what comes: it is never held."""
    limit = world.settings.payload_limit
    s3.plan("get_object", answering(b"x" * (limit + 1), length=length))
    record = world.raw(pointer("default/k-1"), attributes=stamped("act", "k-1", limit + 1))

    assert consume(app, record) == []
    (copy,) = world.dead_letters()
    assert copy["Body"] == record["body"]
    assert set(copy["MessageAttributes"]) == {*record["messageAttributes"], "onceq"}
    assert f"more than {limit} (" in copy["note"]["reason"] or f"more than {limit} bytes (" in copy["note"]["reason"]
    assert ran == []


@pytest.mark.parametrize("body", [b"\xff\xfe{\x00", b"", b"{", b"[1]"])
def test_a_stored_body_that_is_no_message_is_refused(world: World, app: App, ran: list[str], body: bytes) -> None:
    """As it would be if it stood in the message."""
    put("k", body)
    assert consume(app, world.raw(pointer("k"))) == []

    (copy,) = world.dead_letters()
    assert (json.loads(copy["Body"])[1]["s3Key"], ran) == ("k", [])


FAULTS = {
    "internal": refusing("InternalError", 500),
    "throttled": refusing("SlowDown", 503),
    "cut-off": answering(b"[1]", length=9),
    "credentials": refusing("ExpiredToken", 400),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_of_s3_keeps_the_message_and_passes(
    world: World, app: App, s3: FaultyClient, ran: list[str], fault: Any
) -> None:
    """G4: no claim is made and nothing is copied; the next delivery does the job."""
    record = large(world, receive_count=50)
    s3.plan("get_object", fault, times=ATTEMPTS if fault is not FAULTS["credentials"] else 1)

    assert consume(app, record) == [record["messageId"]]
    assert (ran, world.dead_letters(), world.record("act", "k-1")) == ([], [], None)
    assert "message.faulted" in world.names()

    assert consume(app, record) == []
    assert ran == ["k-1"]


def test_a_bad_body_never_hurts_its_neighbours(world: World, app: App, s3: FaultyClient, ran: list[str]) -> None:
    """G5: every kind of bad body in one batch; exactly those that must be kept are, and all good ones run."""
    bad = {
        "missing": world.raw(pointer("default/missing")),
        "unlisted": world.raw(pointer("k", bucket="somebody-elses")),
        "unknown": large(world, "unknown", body="CwKA") | {"messageAttributes": {"Content-Encoding": attribute("br")}},
        "faulted": large(world, "faulted"),
        "broken": large(world, "broken"),
    }
    refused = [
        large(world, "no-json", body="{"),
        world.raw("no Base64", attributes={"content-encoding": attribute("gzip")}),
        large(world, "rejected", body=envelope("rejected", bad=True)),
    ]

    def meet(call: Call) -> Any:
        if call.request["Key"] == "default/faulted":
            return refusing("InternalError", 500)(call)
        if call.request["Key"] == "default/broken":
            message = "nobody thought of this"
            raise RuntimeError(message)
        return s3.forward(call)

    s3.plan("get_object", meet, times=100)
    good = [large(world, f"g-{number}") for number in range(4)] + [world.message("act", {"id": "g-4"}, key="g-4")]
    records = [record for pair in zip([*bad.values(), *refused], good * 2, strict=False) for record in pair]
    unique = list({record["messageId"]: record for record in records}.values())

    assert sorted(consume(app, *unique)) == sorted(record["messageId"] for record in bad.values())
    assert sorted(ran) == ["g-0", "g-1", "g-2", "g-3", "g-4", "rejected"]
    assert len(world.dead_letters()) == 3


def test_a_bucket_that_does_not_answer_leaves_time_to_its_neighbours(
    world: World, app: App, s3: FaultyClient, ran: list[str]
) -> None:
    """G5: fetching takes half of the time at the most, however many bodies do not come."""

    def silent(call: Call) -> Any:
        world.clock.advance(2)
        return refusing("InternalError", 500)(call)

    s3.plan("get_object", silent, times=1_000)
    slow = [world.raw(pointer(f"default/s-{number}"), attributes=stamped("act", f"s-{number}")) for number in range(20)]
    good = [world.message("act", {"id": f"g-{number}"}, key=f"g-{number}") for number in range(3)]

    answer = app.consumer(event_of(*slow, *good), RunningContext(world.clock, 60))

    assert sorted(kept(answer)) == sorted(record["messageId"] for record in slow)
    assert sorted(ran) == ["g-0", "g-1", "g-2"]


@pytest.mark.parametrize(("seconds", "most"), [(8, 4), (20, 10), (900, 10)])
def test_fetching_takes_at_most_half_of_the_time_and_ten_seconds(
    world: World, s3: FaultyClient, ran: list[str], seconds: float, most: float
) -> None:
    """G5: a long time-out is meant for the jobs, not for a bucket that does not answer."""
    configure(world, concurrency=1)
    began, least = world.clock.monotonic(), 1.0

    def silent(call: Call) -> Any:
        world.clock.advance(least)
        return refusing("InternalError", 500)(call)

    s3.plan("get_object", silent, times=1_000)
    slow = [world.raw(pointer(f"default/s-{number}")) for number in range(40)]

    app_of(world, ran).consumer(event_of(*slow), RunningContext(world.clock, seconds))

    assert most / 2 - least <= world.clock.monotonic() - began <= most + least


def test_without_time_to_fetch_a_message_is_visible_at_once(world: World, s3: FaultyClient, ran: list[str]) -> None:
    """It is not begun, which costs nothing but a delivery: the one before it took the time."""
    configure(world, concurrency=1)
    told, sqs = app_of(world, ran), faulty_sqs(world.runtime)
    first, second = large(world), large(world, "k-2")

    def slow(call: Call) -> Any:
        world.clock.advance(3)
        return s3.forward(call)

    s3.plan("get_object", slow)
    keeping = kept(told.consumer(event_of(first, second), RunningContext(world.clock, 9)))
    assert keeping == [second["messageId"]]
    assert (len(s3.calls), ran) == (1, ["k-1"])
    assert visibilities(sqs) == {"1": 0}
    assert "job.not_started" in world.names()

    assert consume(told, second) == []
    assert ran == ["k-1", "k-2"]


@pytest.mark.parametrize(("seconds", "fetched"), [(3.9, 0), (4, 1)])
def test_a_function_too_short_to_fetch_keeps_the_message_and_says_so(
    world: World, s3: FaultyClient, ran: list[str], seconds: float, fetched: int
) -> None:
    """G4: back at once, it would be received for nothing until SQS gives up; its neighbour that is small runs."""

    @job("act", max_duration=1)
    def act(payload: dict[str, Any]) -> None:
        ran.append(payload["id"])

    app, sqs = world.app(act), faulty_sqs(world.runtime)
    record, small = large(world), world.message("act", {"id": "k-2"}, key="k-2")

    answer = app.consumer(event_of(record, small), RunningContext(world.clock, seconds))

    assert kept(answer) == [record["messageId"]] * (1 - fetched)
    assert sorted(ran) == ["k-1"] * fetched + ["k-2"]
    assert (len(s3.calls), visibilities(sqs), world.dead_letters()) == (fetched, {}, [])
    reasons = [event.fields()["reason"] for event in world.events if event.name == "message.unserved"]
    told = "fetching its body needs a function of 4 s: raise FunctionTimeout"
    assert reasons == [told] * (1 - fetched)


def visibilities(sqs: FaultyClient) -> dict[str, int]:
    """Return the visibility timeouts that were asked for, by the record's position."""
    asked = [call.request["Entries"] for call in sqs.calls if call.method == "change_message_visibility_batch"]
    return {entry["Id"]: entry["VisibilityTimeout"] for entries in asked for entry in entries}


class Counting:
    """Counts the bodies that are being read at once, and holds each until no more come."""

    def __init__(self, s3: FaultyClient) -> None:
        """Stand before the client."""
        self.most = 0
        self._s3, self._now, self._lock = s3, 0, threading.Lock()
        s3.plan("get_object", self._meet, times=1_000)

    def _meet(self, call: Call) -> Any:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        threading.Event().wait(0.02)
        answer = self._s3.forward(call)
        with self._lock:
            self._now -= 1
        return answer


def test_a_batch_holds_a_few_large_bodies_and_no_more(world: World, s3: FaultyClient, ran: list[str]) -> None:
    """Memory: of ten bodies near the limit two are held, begun or whole; the others come back at once."""
    configure(world, payload_limit=2_000)
    app, sqs, counting = app_of(world, ran), faulty_sqs(world.runtime), Counting(s3)
    records = [large(world, f"k-{number}", envelope(f"k-{number}", text="x" * 1_700)) for number in range(10)]

    keeping = consume(app, *records)

    assert (len(ran), len(keeping), len(s3.calls)) == (MOST_HELD, 10 - MOST_HELD, MOST_HELD)
    assert counting.most <= MOST_HELD
    positions = {str(number) for number, record in enumerate(records) if record["messageId"] in keeping}
    assert visibilities(sqs) == dict.fromkeys(positions, 0)
    while keeping:
        keeping = consume(app, *[record for record in records if record["messageId"] in keeping])
    assert sorted(ran) == sorted(f"k-{number}" for number in range(10))


def test_bodies_that_turn_out_small_leave_room_to_the_others(world: World, s3: FaultyClient, ran: list[str]) -> None:
    """A body counts as the largest only while it is fetched; never more are under way than there is room for."""
    configure(world, payload_limit=8_000)
    app, counting = app_of(world, ran), Counting(s3)

    assert consume(app, *[large(world, f"k-{number}") for number in range(25)]) == []
    assert len(ran) == 25
    assert counting.most <= MOST_HELD


@pytest.mark.parametrize(("filler", "held"), [("x", 3), ("\U0001f600", 1)], ids=["ascii", "emoji"])
def test_the_room_counts_a_text_as_it_is_held(
    world: World, s3: FaultyClient, ran: list[str], filler: str, held: int
) -> None:
    """Memory: one emoji, and every character of its text takes four bytes."""
    configure(world, payload_limit=8_000, concurrency=1)
    bodies = [envelope(f"k-{number}", text="x" * 3_000 + filler) for number in range(4)]

    assert (
        len(consume(app_of(world, ran), *[large(world, f"k-{n}", body) for n, body in enumerate(bodies)])) == 4 - held
    )
    assert len(ran) == held


def test_the_room_is_given_back_by_bodies_that_do_not_come(world: World, s3: FaultyClient, ran: list[str]) -> None:
    """Twenty that are missing take none from the one behind them."""
    configure(world, payload_limit=2_000)
    missing = [world.raw(pointer(f"default/no-{number}")) for number in range(20)]

    assert len(consume(app_of(world, ran), *missing, large(world))) == 20
    assert ran == ["k-1"]


def test_order_is_kept_when_the_head_of_a_group_has_no_body(
    world: World, app: App, s3: FaultyClient, ran: list[str]
) -> None:
    """FIFO: what follows it in its group waits, whether fetched or small; other groups go on."""
    options: dict[str, Any] = {"queue": "Ordered.fifo", "group": "a"}
    head = world.raw(pointer("default/late"), attributes=stamped("act", "late"), **options)
    behind = [large(world, "k-2", **options), world.message("act", {"id": "k-3"}, key="k-3", **options)]
    other = world.message("act", {"id": "k-4"}, key="k-4", queue="Ordered.fifo", group="b")

    assert consume(app, head, *behind, other) == [record["messageId"] for record in (head, *behind)]
    assert ran == ["k-4"]

    put("default/late", envelope("late"))
    assert consume(app, head, *behind) == []
    assert ran == ["k-4", "late", "k-2", "k-3"]


def test_a_dead_letter_copy_is_the_pointer_and_can_be_redriven(world: World, app: App, ran: list[str]) -> None:
    """Body and attributes as delivered: the copy is small, and a redrive finds the same body in S3."""
    put("default/k-1", envelope("k-1", bad=True))
    record = world.raw(pointer("default/k-1"), attributes=stamped("act", "k-1", 7))

    assert consume(app, record) == []
    (copy,) = world.dead_letters()
    assert copy["Body"] == record["body"]
    assert {name: one["StringValue"] for name, one in copy["MessageAttributes"].items() if name != "onceq"} == {
        "ExtendedPayloadSize": "7",
        "onceq.job_type": "act",
        "onceq.key": "k-1",
    }
    assert "it is bad" in copy["note"]["error"]

    assert consume(app, record_of(copy, arn_of("JobsQueue"))) == []
    assert ran == ["k-1", "k-1"]
    assert len(world.dead_letters()) == 1


def articles(size: int, price: float) -> list[dict[str, Any]]:
    """Return objects with some text in them, of about so many bytes together."""
    words = "a description of some length, as in a catalogue"
    return [
        {"sku": f"a-{number}", "title": f"{words} {number}", "prices": [price, 2.5]} for number in range(size // 95)
    ]


# What docs/large-messages.md says that a body takes, in times of its bytes.
SHAPES: dict[str, tuple[Callable[[int], Any], int]] = {
    "one long text": (lambda size: "x" * size, 4),
    "objects": (lambda size: articles(size, 1.5), 7),
    "objects with such a number": (lambda size: articles(size, 1.0), 10),
    "small values": (lambda size: [{"a": []}] * (size // 9), 30),
    "small values with such a number": (lambda size: [*[{"a": []}] * (size // 9), 1.0], 57),
}


@pytest.mark.parametrize("name", SHAPES)
def test_two_bodies_take_no_more_memory_than_the_page_says(
    world: World, s3: FaultyClient, ran: list[str], name: str
) -> None:
    """Two near the limit, from the bucket to the end of their jobs."""
    make, factor = SHAPES[name]
    bodies = [envelope(f"k-{number}", data=make(200_000)).encode() for number in range(2)]
    size = len(bodies[0])
    configure(world, payload_limit=size + 1_000)
    app = app_of(world, ran)
    consume(app, large(world, "warm"))
    records = [large(world, f"k-{number}", body.decode()) for number, body in enumerate(bodies)]
    for body in bodies:
        s3.plan("get_object", answering(body))

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert consume(app, *records) == []
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()

    assert sorted(ran) == ["k-0", "k-1", "warm"]
    assert peak / (2 * size) < factor * 1.1
