"""Messages that other services put on a queue: each source, each wrapping, through the consumer."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.utilities.data_classes import EventBridgeEvent

from kit import foreign
from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import ConfigurationError, Context, job, source
from onceq.message import seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq.source import Source

ORDER = {"order": "o-1", "amount": 5}
RECORD, OTHER = foreign.s3_record(), foreign.s3_record("other.jpg", sequencer="0055AED7")
OBJECT = source.S3Object(
    "photos",
    "a cat+1.jpg",
    "ObjectCreated:Put",
    "2026-11-30T12:00:00.123Z",
    "0055AED6",
    1024,
    "d41d8cd9",
    "v1",
    "C3D13FE58DE4C810",
)
TAGGED = foreign.s3_record() | {"eventName": "s3:ObjectTagging:Put"}
del TAGGED["s3"]["object"]["sequencer"]


class Desk:
    """An app with one job type that takes a source and notes what it gets.

    Args:
        got: Payload and key of each run.
        app: The app.
    """

    def __init__(self, world: World, taken: Source | None, *, fails: tuple[str, ...] = (), **options: Any) -> None:
        """Make the job type; a job whose key is in `fails` raises."""
        self.world = world
        self.got: list[tuple[Any, str]] = []

        def take(payload: Any, ctx: Context) -> None:
            self.got.append((payload, ctx.key))
            if ctx.key in fails:
                raise RuntimeError

        self.job = job("take", source=taken, **options)(take)
        self.events: list[Any] = []
        self.app = world.app(self.job, hooks=[self.events.append])

    def consume(self, *bodies: Any) -> list[str]:
        """Consume a message for each body, and return the ids that are kept."""
        texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
        return kept(self.app.consumer(event_of(*map(self.world.raw, texts)), FakeLambdaContext()))

    def told(self, name: str) -> list[Any]:
        """Return the events of a name."""
        return [event for event in self.events if event.name == name]


FOUND: dict[str, tuple[Source, Any, Any, str]] = {
    "plain JSON": (source.plain(key="body.order"), ORDER, ORDER, "o-1"),
    "SNS": (source.sns(), foreign.notification(ORDER), ORDER, "sns-1"),
    "SNS, a text": (source.sns(), foreign.notification("charge order 3"), "charge order 3", "sns-1"),
    "SNS, an event as its message": (source.sns(), foreign.notification(foreign.event(1)), foreign.event(1), "sns-1"),
    "SNS, key from an attribute": (
        source.sns(key="sns.MessageAttributes.order.Value"),
        foreign.notification(ORDER),
        ORDER,
        "o-1",
    ),
    "SNS raw": (source.sns(raw=True, key="message.order"), ORDER, ORDER, "o-1"),
    "SNS raw, a text": (source.sns(raw=True, key="message"), "charge order 3", "charge order 3", "charge order 3"),
    "SNS raw, but wrapped": (source.sns(raw=True, key="sns.MessageId"), foreign.notification(ORDER), ORDER, "sns-1"),
    "SNS of a FIFO topic": (
        source.sns(),
        foreign.notification(ORDER, UnsubscribeURL=..., Signature=..., SigningCertURL=..., SequenceNumber="1"),
        ORDER,
        "sns-1",
    ),
    "EventBridge": (source.eventbridge(), foreign.event(ORDER), ORDER, "event-1"),
    "EventBridge, whole": (source.eventbridge(payload="event"), foreign.event(ORDER), foreign.event(ORDER), "event-1"),
    "EventBridge, of a type": (
        source.eventbridge(detail_type="Order Placed", source="shop.orders"),
        foreign.event(ORDER),
        ORDER,
        "event-1",
    ),
    "EventBridge inside SNS": (source.eventbridge(), foreign.notification(foreign.event(ORDER)), ORDER, "event-1"),
    "EventBridge inside SNS, key of SNS": (
        source.eventbridge(key="sns.MessageId"),
        foreign.notification(foreign.event(ORDER)),
        ORDER,
        "sns-1",
    ),
    "EventBridge, key of several layers": (
        source.eventbridge(key="[event.source, event.detail.order]"),
        foreign.event(ORDER),
        ORDER,
        "shop.orders:o-1",
    ),
    "S3": (source.s3(), {"Records": [RECORD]}, asdict(OBJECT), "photos:a cat+1.jpg:0055AED6"),
    "S3 through SNS": (
        source.s3(),
        foreign.notification({"Records": [RECORD]}),
        asdict(OBJECT),
        "photos:a cat+1.jpg:0055AED6",
    ),
    "S3 through EventBridge": (
        source.s3(),
        foreign.s3_event(),
        asdict(OBJECT) | {"time": "2026-11-30T12:00:00Z"},
        "photos:a cat+1.jpg:0055AED6",
    ),
    "S3 through EventBridge and SNS": (
        source.s3(),
        foreign.notification(foreign.s3_event()),
        asdict(OBJECT) | {"time": "2026-11-30T12:00:00Z"},
        "photos:a cat+1.jpg:0055AED6",
    ),
    "S3, key of the entity": (
        source.s3(key="record.s3.object.eTag"),
        {"Records": [RECORD]},
        asdict(OBJECT),
        "d41d8cd9",
    ),
    "Scheduler": (
        source.scheduler(),
        foreign.scheduled(),
        {},
        "arn%3Aaws%3Ascheduler%3Aeu-west-1%3A123456789012%3Aschedule/default/nightly:2026-11-30T12%3A00%3A00Z",
    ),
    "a rule's schedule": (
        source.scheduler(),
        foreign.scheduled({}, source="aws.events", resources=[foreign.RULE]),
        {},
        "arn%3Aaws%3Aevents%3Aeu-west-1%3A123456789012%3Arule/nightly:2026-11-30T12%3A00%3A00Z",
    ),
    "a record of Pipes": (source.records(), foreign.stream_record(), foreign.stream_record(), "event-1"),
    "a list of Pipes": (source.records(), [foreign.stream_record()], foreign.stream_record(), "event-1"),
    "a list of Pipes, key of the item": (
        source.records(key="record.dynamodb.Keys.pk.S", payload="record.dynamodb.NewImage"),
        [foreign.stream_record()],
        {"pk": {"S": "o-1"}},
        "o-1",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_source_gives_payload_and_key(world: World, name: str) -> None:
    """G3: each service's message becomes a job with the right payload and key, and its duplicate a replay."""
    taken, body, payload, key = FOUND[name]
    desk = Desk(world, taken)

    assert desk.consume(body, body) == []
    assert desk.consume(body) == []
    assert desk.got == [(payload, key)]
    assert len(desk.told("job.replayed")) == 2


@pytest.mark.parametrize("name", FOUND)
def test_the_job_type_s_own_key_stands_before_what_the_source_knows(world: World, name: str) -> None:
    """key= over the payload wins over an identity; a key= of the source wins over both."""
    taken, body, _, key = FOUND[name]
    desk = Desk(world, taken, key=lambda _payload: "own")

    assert desk.consume(body) == []
    assert [found for _, found in desk.got] == [key if taken.key else "own"]


STRANGE: dict[str, tuple[Source, Any, str]] = {
    "SNS, no notification": (source.sns(), ORDER, "of no source"),
    "EventBridge, another type": (source.eventbridge(detail_type="Order Paid"), foreign.event(1), "of no source"),
    "EventBridge, another source": (source.eventbridge(source="shop"), foreign.event(1), "of no source"),
    "S3, an event of another service": (source.s3(), foreign.event(1), "of no source"),
    "S3, records of another service": (source.s3(), {"Records": [{"eventSource": "aws:ses"}]}, "of no source"),
    "S3, records that are no list": (source.s3(), {"Records": 5}, "of no source"),
    "S3, an event without object": (source.s3(), foreign.s3_event(object=5), "the S3 record has no detail.object"),
    "S3, a record without key": (
        source.s3(),
        {"Records": [foreign.s3_record("")]},
        "the S3 record has no s3.object.key",
    ),
    "S3, a key that is not UTF-8": (source.s3(), {"Records": [foreign.s3_record("%ff")]}, "is not UTF-8"),
    "S3, a size that is a text": (
        source.s3(),
        {"Records": [foreign.s3_record(size="1")]},
        "s3.object.size is a str, not a int",
    ),
    "S3, a size that is a boolean": (source.s3(), {"Records": [foreign.s3_record(size=True)]}, "size is a bool"),
    "Scheduler, an event of another service": (source.scheduler(), foreign.event(1), "of no source"),
    "Scheduler, without schedule": (source.scheduler(), foreign.scheduled(resources=[]), "no idempotency key"),
    "Scheduler, without time": (source.scheduler(), foreign.scheduled(time=None), "no idempotency key"),
    "Pipes, no record": (source.records(), ORDER, "of no source"),
    "Pipes, no objects": (source.records(), [5], "of no source"),
    "Pipes, an empty list": (source.records(), [], "of no source"),
    "Pipes, records without id": (source.records(), [{"eventSource": "aws:kafka"}], "no idempotency key"),
    "S3, no record": (source.s3(), {"Records": []}, "of no source"),
    "Scheduler, another event of AWS": (
        source.scheduler(),
        foreign.scheduled(source="aws.events", **{"detail-type": "Rule Changed"}),
        "of no source",
    ),
    "a payload that selects nothing": (
        source.eventbridge(payload="event.detail.ordr"),
        foreign.event(ORDER),
        "payload='event.detail.ordr' of source.eventbridge selects nothing",
    ),
    "SNS without id": (source.sns(), foreign.notification(ORDER, MessageId=...), "no idempotency key"),
    "SNS with a blank id": (source.sns(), foreign.notification(ORDER, MessageId=" "), "the idempotency key is blank"),
    "a key that selects nothing": (
        source.sns(key="sns.Nothing"),
        foreign.notification(1),
        "key='sns.Nothing' of source.sns selects nothing",
    ),
    "a key that selects an object": (source.sns(key="sns"), foreign.notification(1), "key is a dict"),
    "a key whose function fails": (source.sns(key="abs(sns.MessageId)"), foreign.notification(1), "key= of source.sns"),
    "a payload whose function fails": (
        source.sns(payload="abs(sns)"),
        foreign.notification(1),
        "payload= of source.sns",
    ),
    "no text for a source of JSON": (source.plain(key="body"), "text", "not JSON"),
    "an empty body": (source.sns(raw=True, key="body"), "", "not JSON"),
    "a broken envelope, where texts are taken": (
        source.sns(raw=True, key="body"),
        {"onceq": 1, "payload": {}},
        "the envelope has no job_type",
    ),
    "JSON too deep, where texts are taken": (
        source.sns(raw=True, key="body"),
        "[" * 300 + "]" * 300,
        "more than 200 levels",
    ),
    "a subscription to confirm": (
        source.sns(),
        {"Type": "SubscriptionConfirmation", "SubscribeURL": "https://sns.eu-west-1.amazonaws.com/", "Message": "m"},
        "open the SubscribeURL",
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_a_source_does_not_take_is_refused_with_the_reason(world: World, name: str) -> None:
    """G4, G5: copied to the dead-letter queue, whole, and its neighbour goes on; an empty body cannot be copied."""
    taken, body, says = STRANGE[name]
    desk = Desk(world, taken)
    neighbour = seal(job_type="take", idempotency_key="good", payload=1, created_at="")

    held = desk.consume(body, neighbour)

    assert desk.got == [(1, "good")]
    [refused] = desk.told("message.refused")
    assert says in refused.reason
    copies = world.dead_letters()
    copied = [] if body == "" else [body if isinstance(body, str) else json.dumps(body)]
    assert [copy["Body"] for copy in copies] == copied
    assert len(held) == 1 - len(copied)


def test_the_four_ways_of_an_s3_event_are_one_job(world: World) -> None:
    """G3: an event that comes by SNS and by EventBridge runs once: sequencer and fingerprint agree."""
    desk = Desk(world, source.s3())
    direct = {"Records": [RECORD]}

    held = [
        desk.consume(body)
        for body in (direct, foreign.notification(direct), foreign.s3_event(), foreign.notification(foreign.s3_event()))
    ]

    assert held == [[]] * 4
    assert len(desk.got) == 1
    assert world.dead_letters() == []


def test_a_removal_that_one_way_tells_more_of_is_one_job(world: World) -> None:
    """G3: EventBridge tells the entity tag of what was removed, the notification does not."""
    desk = Desk(world, source.s3())
    direct = foreign.s3_record() | {"eventName": "ObjectRemoved:Delete"}
    del direct["s3"]["object"]["eTag"], direct["s3"]["object"]["size"]
    told = foreign.s3_event(**{"deletion-type": "Permanently Deleted"}) | {"detail-type": "Object Deleted"}

    assert desk.consume({"Records": [direct]}, told) == []
    assert len(desk.got) == 1
    assert world.dead_letters() == []


def test_an_event_without_sequencer_is_named_by_its_request(world: World) -> None:
    """G4: two changes of one object's tags in one second are two jobs; one that is told in two ways is one."""
    desk = Desk(world, source.s3())
    told = foreign.s3_event() | {"detail-type": "Object Tags Added"}
    del told["detail"]["object"]["sequencer"]
    other = json.loads(json.dumps(told))
    other["detail"]["request-id"] = "another"

    assert desk.consume({"Records": [TAGGED]}, told, other) == []
    assert sorted(key for _, key in desk.got) == [
        "photos:a cat+1.jpg:C3D13FE58DE4C810",
        "photos:a cat+1.jpg:another",
    ]


@pytest.mark.parametrize("key", ["+", "%3Caws.scheduler.x%3E", "a%3Ab"])
def test_any_object_key_can_be_a_job_s(world: World, key: str) -> None:
    """S3 takes names that nobody would make a key of by hand."""
    desk = Desk(world, source.s3())

    assert desk.consume({"Records": [foreign.s3_record(key)]}) == []
    assert len(desk.got) == 1


def test_another_object_under_the_same_key_is_key_reuse(world: World) -> None:
    """Where the key names less than the change."""
    desk = Desk(world, source.s3(key="record.s3.bucket.name"))

    desk.consume({"Records": [RECORD]})
    desk.consume({"Records": [OTHER]})

    [copy] = world.dead_letters()
    assert "key reuse" in copy["note"]["reason"]


def test_a_selected_payload_is_compared_as_it_is(world: World) -> None:
    """Two objects under one key are key reuse, whatever of them the job gets."""
    payload = "{bucket: record.s3.bucket.name, key: 'any', object: record.s3.object}"
    desk = Desk(world, source.s3(payload=payload, key="record.s3.bucket.name"))

    desk.consume({"Records": [RECORD]})
    desk.consume({"Records": [OTHER]})

    [copy] = world.dead_letters()
    assert "key reuse" in copy["note"]["reason"]


def test_envelopes_for_a_job_that_takes_s3_are_compared_whole(world: World) -> None:
    """What a producer of ours sends to it need not be an object of S3."""
    desk = Desk(world, source.s3())

    for number in (1, 2):
        desk.consume(seal(job_type="take", idempotency_key="k", payload={"n": number}, created_at=""))

    [copy] = world.dead_letters()
    assert "key reuse" in copy["note"]["reason"]


@pytest.mark.parametrize("wrap", [json.dumps, foreign.notification], ids=["direct", "through SNS"])
@pytest.mark.parametrize("default", [False, True], ids=["no default", "default"])
def test_the_test_event_of_s3_is_acknowledged_and_counted(
    world: World, wrap: Callable[[Any], str], *, default: bool
) -> None:
    """It would come back until the dead-letter queue has it; it runs no job, whoever takes the queue's messages."""
    desk = Desk(world, None if default else source.s3(), key=lambda _: "k")
    if default:
        desk.app = world.app(desk.job, hooks=[desk.events.append], default=desk.job)

    assert desk.consume(wrap(foreign.s3_test_event())) == []
    assert (desk.got, world.dead_letters()) == ([], [])
    [told] = desk.told("message.without_work")
    assert (told.metric, told.message_id) == ("MessagesWithoutWork", "m-1")


def test_what_only_resembles_the_test_event_is_refused(world: World) -> None:
    """Acknowledging without an effect is for exactly that event."""
    desk = Desk(world, source.s3())

    desk.consume(foreign.s3_test_event() | {"Event": "s3:ObjectCreated:Put"}, {"Event": "s3:TestEvent"})

    assert len(world.dead_letters()) == 2


@pytest.mark.parametrize(
    ("taken", "annotation", "body", "shown"),
    [
        (source.s3(), source.S3Object, {"Records": [RECORD]}, OBJECT),
        (source.eventbridge(payload="event"), EventBridgeEvent, foreign.event(ORDER), foreign.event(ORDER)),
    ],
    ids=["S3Object", "a data class of Powertools"],
)
def test_the_payload_can_be_a_type(world: World, taken: Source, annotation: Any, body: Any, shown: Any) -> None:
    """Our own type, and Powertools' data classes, which wrap the event as it is."""
    got: list[Any] = []

    def take(payload: Any) -> None:
        got.append(payload)

    take.__annotations__["payload"] = annotation
    world.app(job("take", source=taken)(take)).consumer(event_of(world.raw(json.dumps(body))), FakeLambdaContext())

    [payload] = got
    assert isinstance(payload, annotation)
    assert (payload.raw_event if annotation is EventBridgeEvent else payload) == shown


def test_several_job_types_share_a_queue(world: World) -> None:
    """Each takes what its source recognises; the narrowest is asked first, whatever the App's order."""
    ran: list[str] = []

    def of(name: str, taken: Source) -> Any:
        @job(name, source=taken, key=lambda _: "k")
        def take(payload: Any) -> None:
            ran.append(name)

        return take

    app = world.app(
        of("rest", source.plain()),
        of("mail", source.sns()),
        of("events", source.eventbridge()),
        of("orders", source.eventbridge(source="shop.orders")),
        of("uploads", source.s3()),
    )
    events = [foreign.s3_event(), foreign.event(1), foreign.event(1, source="shop.returns")]
    bodies = [json.dumps(ORDER), *map(foreign.notification, events), foreign.notification(1)]

    for body in bodies:
        assert kept(app.consumer(event_of(world.raw(body)), FakeLambdaContext())) == []
    assert ran == ["rest", "uploads", "orders", "events", "mail"]


def test_a_default_is_asked_after_the_sources(world: World) -> None:
    """What no source takes goes to it whole, as ever."""
    ran: list[Any] = []

    @job("rest", key=lambda _: "k")
    def rest(payload: Any) -> None:
        ran.append(payload)

    @job("mail", source=source.sns())
    def mail(payload: Any) -> None:
        ran.append("mail")

    app = world.app(rest, mail, default=rest)
    for body in (foreign.notification(1), json.dumps(ORDER)):
        app.consumer(event_of(world.raw(body)), FakeLambdaContext())

    assert ran == ["mail", ORDER]


def test_a_source_takes_the_messages_of_its_own_queue_alone(world: World) -> None:
    """A job type of another queue is not asked."""
    desk = Desk(world, source.sns(), queue="other")

    desk.consume(foreign.notification(ORDER))

    assert desk.got == []
    [refused] = desk.told("message.refused")
    assert "queue 'default' has no default job type, and none with source=" in refused.reason


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (source.s3(), source.s3(key="record.s3.object.eTag")),
        (source.plain(key="body"), source.sns(raw=True, key="body")),
        (source.eventbridge(detail_type="a"), source.eventbridge(detail_type="a", key="event.id")),
    ],
    ids=["S3", "all", "one type"],
)
def test_two_job_types_that_take_the_same_are_refused(world: World, one: Source, other: Source) -> None:
    """One of them would never run."""
    first = job("job0", source=one)(lambda payload: None)
    second = job("job1", source=other)(lambda payload: None)

    with pytest.raises(ConfigurationError, match="job1 and job0 take the same messages of queue 'default'"):
        world.app(first, second)


@pytest.mark.parametrize("taken", ["s3", source.s3, 5, True])
def test_what_is_no_source_is_refused_at_import(taken: Any) -> None:
    """With what to give instead."""
    with pytest.raises(ConfigurationError, match=r"give one of onceq.source, for example source.s3\(\)"):
        job("take", source=taken)(print)


@pytest.mark.parametrize("taken", [source.plain(), source.sns(raw=True)], ids=lambda taken: taken.kind)
def test_a_source_that_knows_no_key_needs_one_at_import(taken: Source) -> None:
    """Every message would be refused; any other source knows what names its messages."""
    with pytest.raises(ConfigurationError, match=r"take: source\.plain\(\) .* know no key: declare key="):
        job("take", source=taken)(print)
    job("take", source=taken, key="order")(lambda payload: None)
    job("take", source=replace(taken, key="body.order"))(lambda payload: None)
    job("take", source=source.sns())(lambda payload: None)


@pytest.mark.parametrize("expression", ["[", 5, ""])
def test_an_expression_that_is_none_is_refused_at_import(expression: Any) -> None:
    """For the key and for the payload."""
    with pytest.raises(ConfigurationError, match=r"source\.sns: key="):
        source.sns(key=expression)
    with pytest.raises(ConfigurationError, match=r"source\.s3: payload="):
        source.s3(payload=expression)


WRAPPINGS: dict[str, Callable[[str], str]] = {
    "SNS": foreign.notification,
    "EventBridge": lambda body: json.dumps(foreign.event(json.loads(body))),
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize(
    "taken",
    [None, source.sns(), source.eventbridge(), source.plain()],
    ids=lambda taken: taken.kind if taken else "none",
)
def test_an_envelope_inside_a_wrapping_is_opened_where_the_app_says_so(
    world: World, wrapping: str, taken: Source | None
) -> None:
    """A producer of ours that publishes to a topic or a bus keeps its job type and its key."""
    desk = Desk(world, taken, key=lambda _: "never")
    desk.app = world.app(desk.job, hooks=[desk.events.append], wrapped_envelopes=True)
    body = seal(job_type="take", idempotency_key="k-1", payload=ORDER, created_at="")

    assert desk.consume(WRAPPINGS[wrapping](body), body) == []
    assert desk.got == [(ORDER, "k-1")]


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_whoever_may_publish_starts_no_job_type_by_name(world: World, wrapping: str) -> None:
    """Unless the App says so, an envelope inside a wrapping is somebody's payload."""
    desk = Desk(world, None)
    refund = seal(job_type="take", idempotency_key="k-1", payload=ORDER, created_at="")

    desk.consume(WRAPPINGS[wrapping](refund))

    assert desk.got == []
    assert len(world.dead_letters()) == 1


@pytest.mark.parametrize("fields", [{"onceq": "0.3"}, {"onceq": True}, {"onceq": 1}, {"onceq": 2, "job_type": 5}])
def test_a_payload_with_a_field_of_that_name_is_no_envelope(world: World, fields: dict[str, Any]) -> None:
    """Inside a wrapping only what is an envelope counts as one."""
    desk = Desk(world, source.eventbridge())
    desk.app = world.app(desk.job, hooks=[desk.events.append], wrapped_envelopes=True)

    assert desk.consume(foreign.event(fields)) == []
    assert desk.got == [(fields, "event-1")]


def test_a_foreign_body_that_only_mentions_sns_stays_whole(world: World) -> None:
    """A payload with fields of those names is the user's own, where its job type says that it takes it plain."""
    body = {"Type": "Notification", "Message": json.dumps(foreign.s3_test_event())}
    desk = Desk(world, source.plain(key="body.Type"))

    assert desk.consume(body) == []
    assert desk.got == [(body, "Notification")]


def test_a_default_that_would_never_run_is_refused(world: World) -> None:
    """Beside a job type that takes every message of its queue."""
    every = job("every", source=source.plain(), key=lambda _: "k")(lambda payload: None)
    rest = job("rest", key=lambda _: "k")(lambda payload: None)

    with pytest.raises(ConfigurationError, match="every takes every message of queue 'default': its default would"):
        world.app(every, rest, default={"default": rest})


def test_pipes_passes_the_records_bare(world: World) -> None:
    """The target of a pipe gets a list, and answers as an event source mapping does."""
    desk = Desk(world, source.plain(key="body.order"), fails=("o-2",))
    records = [world.raw(json.dumps({"order": order})) for order in ("o-1", "o-2")]

    answer = desk.app.consumer(records, FakeLambdaContext())

    assert kept(answer) == [records[1]["messageId"]]
    assert sorted(key for _, key in desk.got) == ["o-1", "o-2"]
    assert kept(desk.app.consumer([], FakeLambdaContext())) == []
