"""Scenes about messages that others put on the queue: S3, SNS, EventBridge, the Extended Client, a redrive."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kit import foreign
from kit.bench import Bench
from kit.memory import MemoryS3
from kit.memory_tables import refusal
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import App, Context, Entry, JobType, source
from onceq.bucket import Bucket
from onceq.offload import CLASS, LEGACY_CLASS, LEGACY_SIZE, SIZE
from public_bugs.ground import Ground, Pay, raising

if TYPE_CHECKING:
    from kit.world import World
    from onceq.clock import Deadline
    from onceq.source import Source

PAYLOADS = "payloads"


class Desk:
    """An app with one job type that takes a source; `got` has payload and key of every run."""

    def __init__(self, world: World, taken: Source, **options: Any) -> None:
        """Compose it."""
        self.world = world
        self.got: list[tuple[Any, str]] = []
        self.sqs = FakeSqs()

        def take(payload: Any, ctx: Context) -> None:
            self.got.append((payload, ctx.key))

        job_type = JobType(take, "take", source=taken, **options)
        self.app = world.app(job_type, runtime=SpiedRuntime(world.runtime, self.sqs))

    def consume(self, *bodies: Any) -> list[str]:
        """Consume a message for each body; return the ids that are kept."""
        texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
        return kept(self.app.consumer(event_of(*map(self.world.raw, texts)), None))


def a_test_event_of_s3_is_acknowledged_and_counted(ground: Ground) -> None:
    """Plain, and wrapped by SNS: nothing runs, nothing is copied, and it is told each time."""
    desk = Desk(ground.world, source.s3())
    test = foreign.s3_test_event()
    raw = json.dumps(test)

    assert desk.consume(test, foreign.notification(test), foreign.notification(raw, UnsubscribeURL=...)) == []

    assert (desk.got, desk.sqs.requests) == ([], [])
    told = [event for event in ground.world.events if event.name == "message.without_work"]
    assert len(told) == 3
    assert all(event.metric for event in told)


def what_only_resembles_it_is_not_acknowledged(ground: Ground) -> None:
    """The kind of it: what is not that very event is copied where a person sees it, and its neighbours run."""
    desk = Desk(ground.world, source.s3())
    almost = foreign.s3_test_event() | {"Event": "s3:Other"}
    assert desk.consume(almost, {"Records": []}, {"Records": [foreign.s3_record()]}) == []
    assert len(desk.got) == 1
    assert ground.world.names().count("message.dead_lettered") == 2


def a_notification_that_lacks_fields_is_unwrapped(ground: Ground) -> None:
    """Each field that SNS leaves out, and all of them: type and message are enough, if the key is in the message."""
    order = {"order": "o-1"}
    optional = ["UnsubscribeURL", "Signature", "SigningCertURL", "Timestamp", "MessageAttributes", "SignatureVersion"]
    for number, missing in enumerate([*([name] for name in optional), optional, []]):
        desk = Desk(ground.world, source.sns(key="message.order"))
        left_out: dict[str, Any] = dict.fromkeys(missing, ...)
        body = foreign.notification({"order": f"o-{number}"}, **left_out)
        assert desk.consume(body, body) == [], missing
        assert desk.got == [({"order": f"o-{number}"}, f"o-{number}")], missing
    raw = Desk(ground.world, source.sns(raw=True, key="message.order"))
    assert raw.consume(order | {"order": "raw"}, foreign.notification({"order": "raw"})) == []
    assert [key for _, key in raw.got] == ["raw"], "with raw delivery and without, one job"


def one_handler_takes_s3_in_every_wrapping(ground: Ground) -> None:
    """Direct, through SNS, raw, through EventBridge, and that inside SNS: the same object, key and payload; once."""
    desk = Desk(ground.world, source.s3())
    direct = {"Records": [foreign.s3_record()]}
    bodies = [direct, foreign.notification(direct), foreign.s3_event(), foreign.notification(foreign.s3_event())]

    for body in bodies * 2:
        assert desk.consume(body) == []

    [(payload, key)] = desk.got
    assert payload["key"] == "a cat+1.jpg"
    assert "photos" in key
    assert ground.world.names().count("job.replayed") == 7


def a_message_without_attributes_is_served(ground: Ground) -> None:
    """SNS drops attributes beyond ten with raw delivery: key and job type are read from the body alone."""
    pay = Pay(ground.world)
    many = {f"a{number}": {"dataType": "String", "stringValue": "x"} for number in range(10)}
    for attributes in ({}, many):
        assert pay.consume(ground.world.message("pay", attributes=attributes)) == []
    assert pay.runs == ["k-1"]
    refused = Pay(ground.world, raising(ValueError()), max_attempts=1)
    assert refused.consume(ground.world.message("pay", key="k-2", attributes=many)) == []
    [copy] = refused.sqs.entries("send")
    assert set(copy["MessageAttributes"]) == set(many), "at most ten: the copy goes without its note"


def a_redriven_message_is_the_same_job(ground: Ground) -> None:
    """A new message id, and of a FIFO copy a new deduplication id: the key in the body is the job's."""
    pay = Pay(ground.world)
    for message_id in ("m-1", "m-2", "m-3"):
        record = ground.world.message("pay", message_id=message_id, queue="Ordered.fifo", group="g")
        assert pay.consume(record) == []
    assert pay.runs == ["k-1"]
    bench = Bench(ground.world, max_attempts=1)
    bench.body = raising(ConnectionError())
    assert not bench.deliver(key="k-1", message_id="m-9"), "completed already"
    assert bench.starts == []


def a_rejected_job_that_is_redriven_runs_again(ground: Ground) -> None:
    """The copy carries our note, so a redrive is told from a duplicate although all its ids are new."""
    bench = Bench(ground.world, max_attempts=1)
    bench.body = raising(ConnectionError())
    assert not bench.deliver()
    assert not bench.deliver(), "a duplicate of the original ends the same way"
    bench.body = lambda _: None
    assert not bench.redrive()
    assert bench.record.status == "completed"
    assert bench.starts == [1, 1]


class _Large(SpiedRuntime):
    """A runtime with a bucket in memory."""

    def __init__(self, world: World, s3: Any) -> None:
        base = world.runtime
        base._given = replace(world.settings, payload_bucket=PAYLOADS)
        super().__init__(base, FakeSqs())
        self._s3 = s3

    def bucket(self, deadline: Deadline) -> Bucket:
        return Bucket(self.clock, self.tokens, deadline, client=self._s3)


def _large(ground: Ground, s3: Any) -> tuple[App, JobType[..., Any], list[str], FakeSqs]:
    runs: list[str] = []

    def pay(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.key)

    runtime, job_type = _Large(ground.world, s3), JobType(pay, "pay", max_duration=20)
    return ground.world.app(job_type, runtime=runtime), job_type, runs, runtime._sqs


def _pointer(name: str, key: str) -> str:
    return json.dumps([name, {"s3BucketName": PAYLOADS, "s3Key": key}])


def both_pointers_of_the_extended_client_are_followed(ground: Ground) -> None:
    """Either class name with either size attribute: fetched before the claim, run once, and nothing is deleted."""
    s3 = MemoryS3()
    app, _, runs, _ = _large(ground, s3)
    for number, (name, size) in enumerate(
        [(CLASS, SIZE), (LEGACY_CLASS, LEGACY_SIZE), (CLASS, ""), (LEGACY_CLASS, SIZE)]
    ):
        body = ground.world.message("pay", {"a": "x" * 10}, key=f"k-{number}")["body"]
        s3.objects[f"p-{number}"] = (body.encode(), "")
        attributes = {size: {"dataType": "Number", "stringValue": str(len(body))}} if size else {}
        record = ground.world.raw(_pointer(name, f"p-{number}"), attributes=attributes)
        for _ in range(2):
            assert kept(app.consumer(event_of(record), None)) == []
        assert runs[number:] == [f"k-{number}"]
    assert len(s3.objects) == 4


def an_object_that_is_missing_or_forbidden_is_retried_and_then_copied(ground: Ground) -> None:
    """Kept with a longer wait each time, without a claim; in the end it is copied to the dead-letter queue."""
    for code in ("NoSuchKey", "AccessDenied", "NoSuchBucket"):

        class _Refusing(MemoryS3):
            def get_object(self, code: str = code, **request: Any) -> dict[str, Any]:
                raise refusal("GetObject", code, "no")

        app, _, runs, sqs = _large(ground, _Refusing())
        waits = []
        for count in range(1, 7):
            record = ground.world.raw(_pointer(CLASS, "p-1"), receive_count=count)
            keeps = kept(app.consumer(event_of(record), None)) != []
            assert keeps is (count < 6), (code, count)
            waits += [sqs.visibility()[record["receiptHandle"]]] if keeps else []
        assert waits == sorted(waits)
        assert runs == []
        assert len(sqs.entries("send")) == 1


def an_object_that_is_gone_after_the_completion_is_a_replay(ground: Ground) -> None:
    """Job type and key are stamped beside the pointer: the duplicate is acknowledged without its body."""
    s3 = MemoryS3()
    app, job_type, runs, sqs = _large(ground, s3)
    app.enqueue_many([Entry(job_type, {"a": "x" * 1_100_000}, key="k-1")])
    [request] = sqs.entries("send")
    assert CLASS in request["MessageBody"]
    attributes = {
        name: {"dataType": one["DataType"], "stringValue": one["StringValue"]}
        for name, one in request["MessageAttributes"].items()
    }
    assert SIZE in attributes
    record = ground.world.raw(request["MessageBody"], attributes=attributes)
    assert kept(app.consumer(event_of(record), None)) == []
    s3.objects.clear()
    assert kept(app.consumer(event_of(record), None)) == []
    assert runs == ["k-1"]
