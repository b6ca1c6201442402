"""Bodies that SQS or the outbox does not take: stored in S3 first, then sent as pointers, or nothing is sent."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kit.buckets import BUCKET, configure, objects, open_buckets, refusing
from kit.clock import FakeLambdaContext
from kit.delivery import Poller
from kit.faults import faulty_dynamodb, faulty_sqs
from kit.seams import SimulatedCrash
from kit.world import event_of, kept
from onceq import App, Context, EnqueueFailed, EnqueueRefused, Entry, JobType, job
from onceq.client import ATTEMPTS
from onceq.errors import BucketError, BucketUnavailable, ObjectNotThere
from onceq.offload import JOB_TYPE, KEY, SIZE
from onceq.outbox import MAX_BODY_BYTES, Delivery
from onceq.queue import MAX_BYTES
from onceq.sealing import LONGEST_OFFLOADED_DELAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kit.faults import Call, FaultyClient
    from kit.world import World

STAGED = 2 * MAX_BODY_BYTES


@pytest.fixture
def s3(world: World) -> Iterator[FaultyClient]:
    """The world's buckets, and the client that faults are planned on."""
    with open_buckets(world) as client:
        yield client


@pytest.fixture
def ran() -> list[tuple[str, int]]:
    """The jobs that ran: key, and length of what they were given."""
    return []


@pytest.fixture
def act(ran: list[tuple[str, int]]) -> JobType[..., Any]:
    """A job type that writes down what it gets."""

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        ran.append((ctx.key, len(payload["data"])))

    return act


def payload_of(app: App, size: int, key: str = "k-1") -> dict[str, str]:
    """Return a payload whose envelope has exactly that many bytes."""
    sealed = app._producer.sealer.seal(Entry("act", {"data": ""}, key))
    return {"data": "x" * (size - len(sealed.request["MessageBody"]))}


def requests(client: FaultyClient, method: str) -> list[dict[str, Any]]:
    """Return the parameters of what was asked of a client."""
    return [call.request for call in client.calls if call.method == method]


def die(_call: Call) -> Any:
    """The process ends here."""
    raise SimulatedCrash


def in_one_list(*clients: FaultyClient) -> list[Call]:
    """Let clients write down their calls together, in order."""
    calls: list[Call] = []
    for client in clients:
        client.calls = calls
    return calls


def outbox(world: World) -> list[dict[str, Any]]:
    """Return the items of the outbox table."""
    return list(world.dynamodb.scan(TableName=world.settings.outbox_table)["Items"])


@pytest.mark.parametrize("more", [0, 1])
def test_a_body_of_one_mib_is_sent_and_one_byte_more_is_stored(
    world: World, s3: FaultyClient, act: JobType[..., Any], more: int
) -> None:
    """The limit is SQS's own; what is stored is the envelope as it would have been sent."""
    app, sqs = world.app(act), faulty_sqs(world.runtime)
    payload = payload_of(app, MAX_BYTES + more)
    sqs.plan("send_message", lambda _call: {"MessageId": "m-1"})

    assert app.enqueue(act, payload, key="k-1") == ("k-1", "m-1")

    (sent,) = requests(sqs, "send_message")
    if not more:
        assert len(sent["MessageBody"]) == MAX_BYTES
        assert (objects(), "MessageAttributes" in sent) == ({}, False)
        return
    ((key, body),) = objects().items()
    assert json.loads(sent["MessageBody"]) == [
        "software.amazon.payloadoffloading.PayloadS3Pointer",
        {"s3BucketName": BUCKET, "s3Key": key},
    ]
    assert len(body) == MAX_BYTES + 1
    assert json.loads(body)["payload"] == payload
    assert {name: one["StringValue"] for name, one in sent["MessageAttributes"].items()} == {
        SIZE: str(MAX_BYTES + 1),
        JOB_TYPE: "act",
        KEY: "k-1",
    }


def test_bytes_are_counted_and_not_characters(world: World, s3: FaultyClient, act: JobType[..., Any]) -> None:
    """Half a million umlauts are more than one MiB."""
    app = world.app(act)

    app.enqueue(act, {"data": "ü" * (MAX_BYTES // 2)}, key="k-1")

    assert len(objects()) == 1


def test_the_body_is_stored_before_the_message_is_sent(world: World, s3: FaultyClient, act: JobType[..., Any]) -> None:
    """A message that points at nothing would be worse than a body that nobody points at."""
    app, calls = world.app(act), in_one_list(s3, faulty_sqs(world.runtime))

    app.enqueue(act, {"data": "x" * MAX_BYTES}, key="k-1")
    app.enqueue_many([Entry(act, {"data": size * "x"}, f"k-{size}") for size in (MAX_BYTES, 1, MAX_BYTES + 1)])

    assert [call.method for call in calls] == [
        "put_object",
        "send_message",
        "put_object",
        "put_object",
        "send_message_batch",
    ]


def test_small_and_large_messages_are_sent_together_and_answered_in_order(
    world: World, s3: FaultyClient, act: JobType[..., Any], ran: list[tuple[str, int]]
) -> None:
    """`enqueue_many` off-loads those that need it; each arrives as what it was."""
    app = world.app(act)
    sizes = [1, MAX_BYTES, 2, MAX_BYTES + 5, *range(3, 15)]

    enqueued = app.enqueue_many([Entry(act, {"data": size * "x"}, f"k-{size}") for size in sizes])

    assert [one.key for one in enqueued] == [f"k-{size}" for size in sizes]
    assert len(objects()) == 2
    poller = Poller.of(app)
    while poller.poll():
        pass
    assert sorted(ran) == sorted((f"k-{size}", size) for size in sizes)


def test_two_messages_of_one_key_never_meet_in_the_bucket(
    world: World, s3: FaultyClient, act: JobType[..., Any], ran: list[tuple[str, int]]
) -> None:
    """Each has a body of its own, named at random under its queue's name; the claim makes one job of both."""
    app = world.app(act)
    for _ in range(2):
        app.enqueue(act, {"data": "x" * MAX_BYTES}, key="k-1")

    assert len(objects()) == 2
    assert all(key.startswith("default/") for key in objects())
    Poller.of(app).poll()
    assert ran == [("k-1", MAX_BYTES)]


@pytest.mark.parametrize("key", ["100 %", "a\x00\x1fb", "ü😀\u2028", "\ufffe", "%41", "k" * 8_192, "\x01" * 8_000])
def test_a_key_of_any_characters_arrives(
    world: World, s3: FaultyClient, act: JobType[..., Any], ran: list[tuple[str, int]], key: str
) -> None:
    """SQS takes the stamps, and the body's key is the job's."""
    app = world.app(act)

    app.enqueue(act, {"data": "x" * MAX_BYTES}, key=key)
    Poller.of(app).poll()

    assert ran == [(key, MAX_BYTES)]


def test_an_off_loaded_message_of_a_fifo_queue_keeps_its_group(
    world: World, s3: FaultyClient, act: JobType[..., Any]
) -> None:
    """Group and deduplication id are the message's, and not the body's."""
    app, sqs = world.app(act), faulty_sqs(world.runtime)

    app.enqueue(act, {"data": "x" * MAX_BYTES}, key="k-1", queue="ordered", group="g-1")

    (sent,) = requests(sqs, "send_message")
    assert sent["MessageGroupId"] == "g-1"
    assert sent["MessageDeduplicationId"]
    assert next(iter(objects())).startswith("ordered/")


def test_without_a_bucket_a_large_message_is_refused_with_the_setting_to_make(
    world: World, s3: FaultyClient, act: JobType[..., Any]
) -> None:
    """Nothing is sent, nothing is stored, and the message is named by its size."""
    configure(world, payload_bucket="")
    app, sqs = world.app(act), faulty_sqs(world.runtime)
    payload = payload_of(app, MAX_BYTES + 1)

    with pytest.raises(
        EnqueueRefused,
        match=r"^the message has 1048577 bytes, and SQS takes 1048576: name a bucket in ONCEQ_PAYLOAD_",
    ):
        app.enqueue(act, payload, key="k-1")
    with pytest.raises(EnqueueRefused, match="ONCEQ_PAYLOAD_BUCKET"):
        app.enqueue_many([Entry(act, {"data": ""}, "k-2"), Entry(act, payload, "k-1")])
    with pytest.raises(EnqueueRefused, match=r"and the outbox takes 380000: name a bucket in ONCEQ_PAYLOAD_B"):
        app.enqueue_with([], act, payload, key="k-1")
    assert (sqs.calls, s3.calls, outbox(world)) == ([], [], [])


def test_a_body_that_nobody_would_fetch_is_refused(world: World, s3: FaultyClient, act: JobType[..., Any]) -> None:
    """Larger than ONCEQ_PAYLOAD_LIMIT by one byte: the consumer would refuse it."""
    configure(world, payload_limit=MAX_BYTES + 10)
    app = world.app(act)

    app.enqueue(act, payload_of(app, MAX_BYTES + 10), key="k-1")
    with pytest.raises(EnqueueRefused, match=r"and 1048586 are fetched \(ONCEQ_PAYLOAD_LIMIT\)"):
        app.enqueue(act, payload_of(app, MAX_BYTES + 11), key="k-1")
    assert len(objects()) == 1


def test_a_delay_that_is_too_long_is_refused_before_anything_is_stored(
    world: World, s3: FaultyClient, act: JobType[..., Any]
) -> None:
    """Of SQS fifteen minutes; of the outbox thirty days, since the bucket's lifecycle rule would be first."""
    app, large = world.app(act), {"data": "x" * MAX_BYTES}

    with pytest.raises(EnqueueRefused, match="at most 900 s"):
        app.enqueue(act, large, key="k-1", delay=901)
    with pytest.raises(EnqueueRefused, match="a body that is stored in S3 waits for at most 2592000 s"):
        app.enqueue_with([], act, large, key="k-1", delay=LONGEST_OFFLOADED_DELAY + 1)
    assert s3.calls == []
    assert outbox(world) == []

    app.enqueue_with([], act, large, key="k-1", delay=timedelta(days=30))
    app.enqueue_with([], act, {"data": ""}, key="k-2", delay=timedelta(days=31))
    assert (len(objects()), len(outbox(world))) == (1, 2)


@pytest.mark.parametrize(
    ("plan", "cause"),
    [
        (lambda s3: s3.plan("put_object", refusing("AccessDenied", 403)), ObjectNotThere),
        (lambda s3: s3.plan("put_object", refusing("ExpiredToken", 400)), BucketError),
        (lambda s3: s3.drop("put_object", times=ATTEMPTS), BucketUnavailable),
    ],
    ids=["forbidden", "refused", "silent"],
)
def test_a_body_that_is_not_stored_is_not_sent(
    world: World, s3: FaultyClient, act: JobType[..., Any], plan: Callable[[FaultyClient], None], cause: Any
) -> None:
    """The caller is told, with the key that was stamped, so that sending it again is the same job."""
    app, sqs = world.app(act), faulty_sqs(world.runtime)
    plan(s3)

    with pytest.raises(EnqueueFailed) as caught:
        app.enqueue(act, {"data": "x" * MAX_BYTES})

    ((entry, reason),) = caught.value.failed
    assert entry.key
    assert reason.startswith("PutObject of s3://payloads/default/")
    assert type(caught.value.__cause__) is cause
    assert (sqs.calls, len(caught.value.sent)) == ([], 0)
    app.enqueue(entry.job_type, entry.payload, key=entry.key)
    assert len(requests(sqs, "send_message")) == 1


def test_of_many_none_is_sent_when_one_body_is_not_stored(
    world: World, s3: FaultyClient, act: JobType[..., Any]
) -> None:
    """All entries are told as failed, the small ones too, each with its key."""
    app, sqs = world.app(act), faulty_sqs(world.runtime)
    s3.plan("put_object", refusing("AccessDenied", 403))

    with pytest.raises(EnqueueFailed) as caught:
        app.enqueue_many([Entry(act, {"data": "x" * size}) for size in (1, MAX_BYTES, MAX_BYTES, 2)])

    assert sqs.calls == []
    assert len({entry.key for entry, _ in caught.value.failed} - {None}) == 4


@pytest.mark.parametrize("more", [0, 1])
def test_an_entry_of_the_outbox_is_off_loaded_from_its_own_limit_on(
    world: World, s3: FaultyClient, act: JobType[..., Any], ran: list[tuple[str, int]], more: int
) -> None:
    """An item holds less than a message: 380,000 bytes exactly stand in it, one more in S3."""
    app, sqs = world.app(act), faulty_sqs(world.runtime)

    sent = app.enqueue_with([], act, payload_of(app, MAX_BODY_BYTES + more), key="k-1")

    assert sent.message_id
    (entry,) = outbox(world)
    assert ("offloaded" in entry, len(objects())) == (bool(more), more)
    ((message,),) = (one["Entries"] for one in requests(sqs, "send_message_batch"))
    assert len(message.get("MessageAttributes", {})) == 3 * more
    if more:
        assert message["MessageAttributes"][SIZE]["StringValue"] == entry["offloaded"]["N"] == str(MAX_BODY_BYTES + 1)
    Poller.of(app).poll()
    assert [key for key, _ in ran] == ["k-1"]


def test_the_body_is_stored_before_the_transaction_is_committed(
    world: World, s3: FaultyClient, act: JobType[..., Any]
) -> None:
    """And the message is sent after it."""
    app = world.app(act)
    calls = in_one_list(s3, faulty_dynamodb(world.runtime), faulty_sqs(world.runtime))

    app.enqueue_with([], act, {"data": "x" * STAGED}, key="k-1")

    assert [call.method for call in calls][:3] == ["put_object", "transact_write_items", "send_message_batch"]


def test_a_transaction_whose_body_is_not_stored_does_not_happen(
    world: World, s3: FaultyClient, act: JobType[..., Any]
) -> None:
    """G8: neither the caller's writes nor the message."""
    app, dynamodb = world.app(act), faulty_dynamodb(world.runtime)
    s3.plan("put_object", refusing("AccessDenied", 403))

    with pytest.raises(ObjectNotThere):
        app.enqueue_with([], act, {"data": "x" * STAGED}, key="k-1")
    assert dynamodb.calls == []


def test_the_relay_sends_what_a_crash_left_with_its_stamps(
    world: World, s3: FaultyClient, act: JobType[..., Any], ran: list[tuple[str, int]]
) -> None:
    """G8: dying between commit and send leaves pointer and size in the entry, and the message is whole."""
    app, sqs = world.app(act), faulty_sqs(world.runtime)
    sqs.plan("send_message_batch", die)
    with pytest.raises(SimulatedCrash):
        app.enqueue_with([], act, {"data": "x" * STAGED}, key="k%1")
    world.clock.advance(3_600)

    assert app.relay()["sent"] == 1

    ((message,),) = (one["Entries"] for one in requests(sqs, "send_message_batch")[1:])
    assert message["MessageAttributes"][KEY]["StringValue"] == "k%251"
    Poller.of(app).poll()
    assert ran == [("k%1", STAGED)]


class Chain:
    """A job that sends a large message on, and what ran of both."""

    def __init__(self) -> None:
        """Nothing ran."""
        self.ran: list[str] = []

    def job_types(self, size: int = STAGED) -> list[JobType[..., Any]]:
        """Return the one that sends and the one that is sent to."""

        @job("receive")
        def receive(payload: dict[str, Any]) -> None:
            self.ran.append(f"receive {len(payload['data'])}")

        @job("begin")
        def begin(payload: dict[str, Any], ctx: Context) -> None:
            self.ran.append("begin")
            ctx.send(receive, {"data": "x" * size})

        return [begin, receive]


@pytest.mark.parametrize(("size", "stored"), [(MAX_BODY_BYTES // 2, 0), (STAGED, 1), (2 * MAX_BYTES, 1)])
def test_a_job_sends_a_large_message_on_with_its_completion(
    world: World, s3: FaultyClient, size: int, stored: int
) -> None:
    """G8: stored while the job runs, committed with its completion, sent once."""
    chain = Chain()
    app = world.app(*chain.job_types(size))
    calls = in_one_list(s3, faulty_dynamodb(world.runtime))

    assert kept(app.consumer(event_of(world.message("begin")), FakeLambdaContext())) == []
    names = [call.name for call in calls]
    while Poller.of(app).poll():
        pass

    assert chain.ran == ["begin", f"receive {size}"]
    assert len(objects()) == stored
    assert names == ["claim", *["put_object"] * stored, "commit", "mark_sent"]


def test_a_job_whose_body_is_not_stored_is_retried(world: World, s3: FaultyClient) -> None:
    """Nothing was staged, so nothing is sent for the attempt that failed."""
    chain = Chain()
    begin, receive = chain.job_types()
    app = world.app(begin, receive)
    s3.plan("put_object", refusing("AccessDenied", 403))
    message = world.message("begin")

    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    assert outbox(world) == []
    record = world.record(begin, "k-1")
    assert record is not None
    assert (record.status, "AccessDenied" in (record.error or "")) == ("failed", True)

    world.clock.advance(3_600)
    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == []
    assert [one["status"]["S"] for one in outbox(world)] == [Delivery.SENT]


@pytest.mark.parametrize(
    ("of", "name", "left"),
    [("s3", "put_object", 0), ("dynamodb", "commit", 1), ("sqs", "send_message_batch", 1)],
    ids=["before-put", "between-put-and-commit", "between-commit-and-send"],
)
def test_a_job_that_dies_on_the_way_leaves_an_orphan_at_most(
    world: World, s3: FaultyClient, of: str, name: str, left: int
) -> None:
    """G6, G8: the next delivery, or the relay, brings the message; a body that nobody points at is all that is left."""
    chain = Chain()
    app = world.app(*chain.job_types())
    clients = {"s3": s3, "dynamodb": faulty_dynamodb(world.runtime), "sqs": faulty_sqs(world.runtime)}
    clients[of].plan(name, die)
    message = world.message("begin")

    with pytest.raises(SimulatedCrash):
        app.consumer(event_of(message), FakeLambdaContext())
    assert len(objects()) == left

    world.clock.advance(3_600)
    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == []
    app.relay()
    while Poller.of(app).poll():
        pass
    assert chain.ran.count(f"receive {STAGED}") == 1
    pointed = {json.loads(one["body"]["S"])[1]["s3Key"] for one in outbox(world)}
    assert len(pointed) == 1
    assert pointed <= set(objects())
    assert len(set(objects()) - pointed) == (1 if name == "commit" else 0)


def test_a_producer_that_dies_before_sending_leaves_an_orphan_only(
    world: World, s3: FaultyClient, act: JobType[..., Any], ran: list[tuple[str, int]]
) -> None:
    """Sent again with the same key it is one job, with the second body."""
    app, sqs = world.app(act), faulty_sqs(world.runtime)
    sqs.plan("send_message", die)
    with pytest.raises(SimulatedCrash):
        app.enqueue(act, {"data": "x" * MAX_BYTES}, key="k-1")
    assert (Poller.of(app).poll(), len(objects())) == (0, 1)

    app.enqueue(act, {"data": "x" * MAX_BYTES}, key="k-1")
    Poller.of(app).poll()

    assert ran == [("k-1", MAX_BYTES)]
    assert len(objects()) == 2
