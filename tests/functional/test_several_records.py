"""One message with several records: each is a job of its own, and the message ends when all of them have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ReadTimeoutError

from kit import foreign
from kit.bench import put
from kit.clock import FakeLambdaContext
from kit.faults import ENDPOINT, faulty_dynamodb, faulty_sqs
from kit.world import event_of, kept
from onceq import Backoff, Context, Reject, Snooze, job, source
from onceq.record import Status
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from kit.faults import Call, FaultyClient
    from kit.world import World

KEYS = ("a.jpg", "b.jpg", "c.jpg")


class Gallery:
    """An app whose job takes the records of S3, and does with each object what a test says.

    Args:
        ran: Object keys of the starts, in order.
        ends: What a start of an object raises, by key; taken out when it is raised.
    """

    def __init__(self, world: World, runtime: Runtime | None = None, **options: Any) -> None:
        """Make the app."""
        self.world = world
        self.ran: list[str] = []
        self.ends: dict[str, list[Exception]] = {}

        def thumbnail(stored: source.S3Object, ctx: Context) -> str:
            self.ran.append(stored.key)
            if self.ends.get(stored.key):
                raise self.ends[stored.key].pop(0)
            return f"thumbnail of {stored.key}"

        known: dict[str, Any] = {"source": source.s3(), "backoff": Backoff(base=60, cap=60)}
        self.job = job("thumbnail", **(known | options))(thumbnail)
        self.events: list[Any] = []
        self.app = world.app(self.job, hooks=[self.events.append], runtime=runtime)

    def message(self, *keys: str, **extra: Any) -> dict[str, Any]:
        """Return a message with a record for each key."""
        return self.world.raw(json.dumps({"Records": [foreign.s3_record(key) for key in keys]}), **extra)

    def consume(self, *records: Any) -> list[str]:
        """Consume messages, and return the ids that are kept."""
        return kept(self.app.consumer(event_of(*records), FakeLambdaContext()))

    def status(self, key: str) -> Status | None:
        """Return how the job of an object stands."""
        found = self.app.lookup(self.job, f"photos:{key}:0055AED6")
        return found.status if found else None


def test_each_record_is_a_job_of_its_own(world: World) -> None:
    """Three records, three claims, three results; the duplicate of the message is three replays (G3)."""
    gallery = Gallery(world)
    message = gallery.message(*KEYS)

    assert gallery.consume(message) == []
    assert gallery.consume(message) == []
    assert sorted(gallery.ran) == sorted(KEYS)
    assert [gallery.status(key) for key in KEYS] == [Status.COMPLETED] * 3


def test_a_record_that_fails_keeps_the_message_and_the_others_are_replays(world: World) -> None:
    """G4, G5: the message comes back for it alone, at the end of its back-off."""
    gallery = Gallery(world)
    gallery.ends = {"b.jpg": [RuntimeError("boom")]}
    message = gallery.message(*KEYS)

    assert gallery.consume(message) == [message["messageId"]]
    assert [gallery.status(key) for key in KEYS] == [Status.COMPLETED, Status.FAILED, Status.COMPLETED]
    world.clock.advance(61)
    assert gallery.consume(message) == []
    assert sorted(gallery.ran) == ["a.jpg", "b.jpg", "b.jpg", "c.jpg"]


def test_a_rejected_record_is_copied_alone_and_its_redrive_runs_nothing_else(world: World) -> None:
    """The copy is an envelope of that record: redriven, it starts again, and its neighbours are not delivered."""
    gallery = Gallery(world)
    gallery.ends = {"b.jpg": [Reject("no such format")]}

    assert gallery.consume(gallery.message(*KEYS)) == []
    [copy] = world.dead_letters()
    assert json.loads(copy["Body"])["idempotency_key"] == "photos:b.jpg:0055AED6"
    assert (copy["note"]["error"], copy["note"]["job_type"]) == ("no such format", "thumbnail")
    note = {"stringValue": copy["MessageAttributes"]["onceq"]["StringValue"], "dataType": "String"}
    redriven = world.raw(copy["Body"], attributes={"onceq": note})
    assert gallery.consume(redriven) == []
    assert gallery.ran[3:] == ["b.jpg"]
    assert gallery.status("b.jpg") is Status.COMPLETED


def test_a_rejected_record_is_copied_once_when_the_message_ends(world: World) -> None:
    """While another record keeps the message, a copy would be made again at every delivery."""
    gallery = Gallery(world)
    gallery.ends = {"a.jpg": [Reject("bad")], "b.jpg": [RuntimeError("boom"), RuntimeError("boom")]}
    message = gallery.message(*KEYS)

    for _ in range(2):
        assert gallery.consume(message) == [message["messageId"]]
        assert world.dead_letters() == []
        world.clock.advance(61)
    assert gallery.consume(message) == []

    assert [copy["note"]["error"] for copy in world.dead_letters()] == ["bad"]
    assert gallery.ran.count("a.jpg") == 1


ENDS: dict[str, tuple[dict[str, list[Exception]], int | None]] = {
    "the last of two": ({"a.jpg": [Snooze(300)], "b.jpg": [Snooze(30)]}, 300),
    "a rejected one beside it": ({"a.jpg": [Reject("bad")], "b.jpg": [Snooze(30)]}, 30),
}


def visibility(gallery: Gallery, sqs: FaultyClient, message: dict[str, Any]) -> list[int]:
    """Consume a message, and return what its visibility is changed to."""
    gallery.consume(message)
    calls = [call for call in sqs.calls if call.method == "change_message_visibility_batch"]
    return [entry["VisibilityTimeout"] for call in calls for entry in call.request["Entries"]]


@pytest.mark.parametrize("name", ENDS)
def test_the_message_is_visible_when_the_last_of_its_records_is(world: World, name: str) -> None:
    """G4: back for each of them, it would use up the receives that SQS grants a message."""
    runtime = Runtime(world.settings, clock=world.clock, tokens=world.tokens)
    sqs = faulty_sqs(runtime)
    gallery = Gallery(world, runtime)
    gallery.ends, expected = dict(ENDS[name][0]), ENDS[name][1]

    assert visibility(gallery, sqs, gallery.message(*KEYS)) == [expected]


@pytest.mark.parametrize("queue", ["JobsQueue", "Ordered.fifo"])
def test_a_record_behind_a_failed_one_of_its_message_does_not_bring_it_back_at_once(world: World, queue: str) -> None:
    """G4: its lane has stopped, and without the back-off of what stopped it the message would be received 100 times."""
    runtime = Runtime(world.settings, clock=world.clock, tokens=world.tokens)
    sqs = faulty_sqs(runtime)
    gallery = Gallery(world, runtime, queue="ordered" if queue.endswith(".fifo") else "default")
    gallery.ends = {"a.jpg": [Snooze(60)]}
    keys = ("a.jpg", "b.jpg") if queue.endswith(".fifo") else ("a.jpg", "a.jpg")

    assert visibility(gallery, sqs, gallery.message(*keys, queue=queue, group="g")) == [60]


def test_a_fault_leaves_the_queue_s_own_visibility(world: World) -> None:
    """Whatever the neighbours of the same message ask for."""
    runtime = Runtime(world.settings, clock=world.clock, tokens=world.tokens)
    sqs = faulty_sqs(runtime)
    dynamodb = faulty_dynamodb(runtime)
    gallery = Gallery(world, runtime)
    gallery.ends = {"a.jpg": [Snooze(30)]}

    def meet(call: Call) -> Any:
        if "b.jpg" in call.request["Item"]["pk"]["S"]:
            raise ReadTimeoutError(endpoint_url=ENDPOINT)
        return dynamodb.forward(call)

    dynamodb.plan("claim", meet, times=100)
    assert visibility(gallery, sqs, gallery.message("a.jpg", "b.jpg")) == []
    assert gallery.ran == ["a.jpg"]


def test_many_failing_records_end_within_the_receives_of_a_message(world: World) -> None:
    """G4: each runs its attempts, and the message comes back about as often as one of them."""
    gallery = Gallery(world, max_attempts=5)
    keys = [f"{number}.jpg" for number in range(50)]
    gallery.ends = {key: [RuntimeError("boom") for _ in range(5)] for key in keys}
    message, receives = gallery.message(*keys), 0

    while gallery.consume(message):
        receives += 1
        world.clock.advance(61)
    assert receives < 10
    assert len(gallery.ran) == 250
    assert len(world.dead_letters()) == 50


def test_two_records_of_one_key_and_other_payloads_are_not_one_job(world: World) -> None:
    """G4: the second would be taken for a replay of the first, and nobody would see it."""
    ran: list[Any] = []

    @job("index", source=source.records(key="record.id", payload="record"))
    def index(payload: dict[str, Any]) -> None:
        ran.append(payload["n"])

    app = world.app(index)
    body = json.dumps([{"eventSource": "aws:x", "id": "o-1", "n": number} for number in (1, 1, 2)])

    assert kept(app.consumer(event_of(world.raw(body)), FakeLambdaContext())) == []
    assert ran == [1]
    [copy] = world.dead_letters()
    assert "two records of the message have the key 'o-1'" in copy["note"]["reason"]


def test_a_key_function_that_exits_is_that_record_s_fault(world: World) -> None:
    """G5: the others of its message run."""
    ran: list[str] = []

    def key_of(stored: source.S3Object) -> str:
        if stored.key == "b.jpg":
            raise SystemExit
        return stored.key

    @job("thumbnail", source=source.s3(), key=key_of)
    def thumbnail(stored: source.S3Object) -> None:
        ran.append(stored.key)

    body = json.dumps({"Records": [foreign.s3_record(key) for key in KEYS]})
    assert kept(world.app(thumbnail).consumer(event_of(world.raw(body)), FakeLambdaContext())) == []
    assert sorted(ran) == ["a.jpg", "c.jpg"]
    [copy] = world.dead_letters()
    assert "reading the record raised SystemExit" in copy["note"]["reason"]


def test_a_broken_record_is_refused_and_the_others_go_on(world: World) -> None:
    """G5: it cannot be named, so its copy is the whole message; redriven, the others are replays."""
    gallery = Gallery(world)
    body = json.dumps({"Records": [foreign.s3_record("a.jpg"), {"s3": {}}, 5, foreign.s3_record("b.jpg")]})

    assert gallery.consume(world.raw(body)) == []
    assert sorted(gallery.ran) == ["a.jpg", "b.jpg"]
    [copy] = world.dead_letters()
    assert copy["Body"] == body
    assert copy["note"]["reason"] == "2 of 4 records are broken, the first: the S3 record has no s3.bucket"
    assert gallery.consume(world.raw(body)) == []
    assert len(gallery.ran) == 2


def test_one_record_twice_in_a_message_runs_once(world: World) -> None:
    """Both are one job, and so one lane: the second is a replay, and waits for nobody."""
    gallery = Gallery(world)

    assert gallery.consume(gallery.message("a.jpg", "a.jpg")) == []
    assert gallery.ran == ["a.jpg"]
    assert sum(event.name == "job.replayed" for event in gallery.events) == 1


def test_a_copy_that_fails_keeps_the_message(world: World) -> None:
    """G4: acknowledged only when every copy has arrived."""
    runtime = Runtime(world.settings, clock=world.clock, tokens=world.tokens)
    gallery = Gallery(world, runtime)
    gallery.ends = {"a.jpg": [Reject("bad")]}
    faulty_sqs(runtime).plan("send_message_batch", refused)
    message = gallery.message(*KEYS)

    assert gallery.consume(message) == [message["messageId"]]
    assert world.dead_letters() == []
    assert gallery.consume(message) == []
    assert len(world.dead_letters()) == 1


def test_the_records_of_a_fifo_message_run_in_order_and_stop_its_group(world: World) -> None:
    """In their order, and the rest of the group after them; what comes behind a failed one is not started."""
    gallery = Gallery(world, queue="ordered")
    gallery.ends = {"b.jpg": [RuntimeError("boom")]}
    first = gallery.message(*KEYS, queue="Ordered.fifo", group="g")
    second, other = (gallery.message(f"{group}.jpg", queue="Ordered.fifo", group=group) for group in ("g", "h"))

    assert gallery.consume(first, second, other) == [first["messageId"], second["messageId"]]
    assert [key for key in gallery.ran if key != "h.jpg"] == ["a.jpg", "b.jpg"]
    assert "h.jpg" in gallery.ran


def test_a_record_whose_worker_died_runs_alone(world: World) -> None:
    """G5: the one under way goes stale, its neighbours of the same message run before it."""
    gallery = Gallery(world)
    gallery.ends = {"a.jpg": [RuntimeError("boom")]}
    message = gallery.message("a.jpg")
    gallery.consume(message)
    failed = world.record("thumbnail", "photos:a.jpg:0055AED6")
    assert failed is not None
    put(world, replace(failed, status=Status.PROCESSING, lease_expires_at=1, not_before=None))

    assert gallery.consume(gallery.message(*KEYS)) == []
    assert gallery.ran[-1] == "a.jpg"
    assert sorted(gallery.ran[1:]) == sorted(KEYS)


def test_without_time_nothing_of_a_message_is_lost(world: World) -> None:
    """G4: what was not started keeps the message, visible at once."""
    gallery = Gallery(world)
    message = gallery.message(*KEYS)

    assert kept(gallery.app.consumer(event_of(message), FakeLambdaContext(0))) == [message["messageId"]]
    assert gallery.consume(message) == []
    assert sorted(gallery.ran) == sorted(KEYS)


@pytest.mark.parametrize("records", [1, 250])
def test_many_records_are_many_jobs(world: World, records: int) -> None:
    """As many as a message holds."""
    gallery = Gallery(world)
    keys = [f"{number}.jpg" for number in range(records)]

    assert gallery.consume(gallery.message(*keys)) == []
    assert sorted(gallery.ran) == sorted(keys)


def refused(call: Call) -> dict[str, Any]:
    """Return SQS's answer to a batch of which it takes nothing."""
    return {"Failed": [{"Id": entry["Id"], "SenderFault": True, "Code": "no"} for entry in call.request["Entries"]]}


def test_one_of_two_records_is_copied_alone(world: World) -> None:
    """Two are several: the copy of the one that is rejected holds nothing of the other."""
    gallery = Gallery(world)
    gallery.ends = {"b.jpg": [Reject("no such format")]}

    assert gallery.consume(gallery.message("a.jpg", "b.jpg")) == []

    [copy] = world.dead_letters()
    assert json.loads(copy["Body"])["idempotency_key"] == "photos:b.jpg:0055AED6"
    assert "a.jpg" not in copy["Body"]
