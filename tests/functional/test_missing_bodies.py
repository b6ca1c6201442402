"""A large message whose body is not there: a replay if its job is done, else waited for, then refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.buckets import attribute, open_buckets, pointer, put, refusing, stamped
from kit.claims import NOW
from kit.clock import FakeLambdaContext
from kit.delivery import record_of
from kit.faults import faulty_dynamodb, faulty_sqs
from kit.world import arn_of, event_of, kept
from onceq import Reject, Retry, job
from onceq.client import ATTEMPTS
from onceq.fetching import FIRST_WAIT_MS, LONGEST_WAIT_MS, MOST_RECEIVES
from onceq.message import LONGEST_RETENTION_MS, seal
from onceq.offload import JOB_TYPE, KEY, stamps
from onceq.record import Semantics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.faults import FaultyClient
    from kit.world import World
    from onceq import App

LONG_KEY = "ü%\x01" * 2_048


@pytest.fixture
def s3(world: World) -> Iterator[FaultyClient]:
    """The world's buckets, and the client that faults are planned on."""
    with open_buckets(world) as client:
        yield client


@pytest.fixture(params=["NoSuchKey", "AccessDenied"])
def gone(request: pytest.FixtureRequest, s3: FaultyClient) -> str:
    """Why the body is not there: it is missing, or may not be read."""
    if request.param == "AccessDenied":
        s3.plan("get_object", refusing("AccessDenied", 403), times=10)
    return str(request.param)


@pytest.fixture
def ran() -> list[str]:
    """What ran."""
    return []


@pytest.fixture
def app(world: World, s3: FaultyClient, ran: list[str]) -> App:
    """An application whose job ends as its payload says, under a name that it had before."""

    @job("act", formerly=("acted",), semantics=Semantics.AT_LEAST_ONCE)
    def act(payload: dict[str, Any]) -> str:
        ran.append(payload.get("end", ""))
        if payload.get("end") == "rejected":
            message = "no"
            raise Reject(message)
        if payload.get("end") == "failed":
            raise Retry
        return "done"

    @job("once", semantics=Semantics.AT_MOST_ONCE)
    def once(payload: dict[str, Any]) -> None:
        message = "nobody knows"
        raise OSError(message)

    return world.app(act, once)


def missing(world: World, name: str = "act", key: str = "k-1", **options: Any) -> dict[str, Any]:
    """Return a record that points at nothing."""
    attributes = {found: attribute(one["StringValue"], one["DataType"]) for found, one in stamps(name, key, 1).items()}
    record = world.raw(pointer("default/gone"), attributes=attributes, **options)
    record["attributes"]["SentTimestamp"] = str(world.clock.now_ms())
    return record


def consume(app: App, *records: dict[str, Any]) -> list[str]:
    """Deliver a batch and return the ids that are kept."""
    return kept(app.consumer(event_of(*records), FakeLambdaContext()))


@pytest.mark.parametrize("receive_count", [1, MOST_RECEIVES, 99])
def test_a_message_of_a_completed_job_is_a_replay_without_its_body(
    world: World, app: App, ran: list[str], gone: str, receive_count: int
) -> None:
    """G3: the lifecycle rule was first; the stamps say whose duplicate it is, and it is acknowledged."""
    consume(app, world.message("act"))

    assert consume(app, missing(world, receive_count=receive_count)) == []
    assert ran == [""]
    assert world.dead_letters() == []
    (event,) = (event for event in world.events if event.name == "job.replayed")
    assert (event.fields()["job_type"], event.fields()["key"]) == ("act", "k-1")
    assert gone not in str(event.fields())


@pytest.mark.parametrize("sent_as", ["act", "acted"])
@pytest.mark.parametrize("stamped_as", ["act", "acted"])
def test_a_renamed_job_is_found_under_any_of_its_names(
    world: World, app: App, ran: list[str], sent_as: str, stamped_as: str
) -> None:
    """The record stands under the oldest name, whatever a release stamped."""
    consume(app, world.message(sent_as))

    assert consume(app, missing(world, stamped_as)) == []
    assert ran == [""]


@pytest.mark.parametrize("key", ["100 %", "a#b", "%2525", LONG_KEY])
def test_a_completed_job_is_found_by_a_key_of_any_characters(world: World, app: App, key: str) -> None:
    """And only by its own."""
    consume(app, world.message("act", key=key))

    assert consume(app, missing(world, key=key)) == []
    other = missing(world, key=key + "2")
    assert consume(app, other) == [other["messageId"]]


def test_a_job_that_no_release_here_serves_may_be_completed_all_the_same(world: World, app: App, s3: Any) -> None:
    """A release without the job type, beside one that has run it."""
    consume(app, world.message("act"))

    @job("other")
    def other() -> None:
        """Do nothing."""

    assert consume(world.app(other), missing(world, "acted")) == []


def stand(world: World, app: App, state: str) -> None:
    """Let the job's record be in a state."""
    match state:
        case "none":
            return
        case "expired":
            consume(app, world.message("act"))
            world.clock.advance(61 * 86_400)
        case "processing":
            dynamodb = faulty_dynamodb(world.runtime)
            dynamodb.drop("complete", times=ATTEMPTS)
            consume(app, world.message("act"))
        case "uncertain":
            consume(app, world.message("once"))
        case _:
            consume(app, world.message("act", {"end": state}))


@pytest.mark.parametrize("state", ["none", "expired", "rejected", "failed", "processing", "uncertain"])
def test_no_other_state_makes_a_replay_of_a_missing_body(world: World, app: App, ran: list[str], state: str) -> None:
    """G4: the job is not done, so its message is kept, and nothing is written."""
    stand(world, app, state)
    name = "once" if state == "uncertain" else "act"
    before = world.record("acted" if name == "act" else name, "k-1")
    assert before is None or before.status == {"expired": "completed"}.get(state, state)
    record, runs = missing(world, name), len(ran)

    assert consume(app, record) == [record["messageId"]]
    assert world.record("acted" if name == "act" else name, "k-1") == before
    assert len(ran) == runs
    assert "body.not_fetched" in world.names()


WAITS = [(1, 1), (2, 2), (3, 4), (4, 8), (5, 15)]


@pytest.mark.parametrize(("receive_count", "minutes"), WAITS)
def test_a_missing_body_is_waited_for_longer_each_time(
    world: World, app: App, receive_count: int, minutes: int, gone: str
) -> None:
    """Half an hour in all: a permission that was forgotten, or an object that is being replicated."""
    sqs = faulty_sqs(world.runtime)
    record = missing(world, receive_count=receive_count)

    assert consume(app, record) == [record["messageId"]]

    (event,) = (event for event in world.events if event.name == "body.not_fetched")
    assert event.fields()["until"] == NOW + minutes * 60_000
    assert gone in event.fields()["reason"]
    (changed,) = (call.request["Entries"] for call in sqs.calls if call.method.startswith("change"))
    assert minutes * 60 <= changed[0]["VisibilityTimeout"] <= minutes * 60 + 2
    assert world.dead_letters() == []


def test_the_waits_and_the_receives_are_one_rule() -> None:
    """As many waits as there are receives before the last."""
    assert [receive for receive, _ in WAITS] == list(range(1, MOST_RECEIVES))
    assert (FIRST_WAIT_MS, LONGEST_WAIT_MS) == (60_000, 15 * 60_000)


@pytest.mark.parametrize("receive_count", [MOST_RECEIVES, MOST_RECEIVES + 1, 10**14])
def test_at_the_sixth_receive_it_is_refused_with_whose_job_it_was(
    world: World, app: App, ran: list[str], receive_count: int, gone: str
) -> None:
    """G4: it goes to the dead-letter queue with pointer, attributes, reason, job type and key, and is acknowledged."""
    record = missing(world, key="o%1", receive_count=receive_count)

    assert consume(app, record) == []
    (copy,) = world.dead_letters()
    assert (copy["Body"], ran) == (record["body"], [])
    assert copy["note"]["reason"].startswith("GetObject of s3://payloads/default/gone was refused: ")
    assert gone in copy["note"]["reason"]
    assert copy["note"]["reason"].endswith(f"; received {receive_count} times")
    assert (copy["note"]["job_type"], copy["note"]["key"]) == ("act", "o%1")
    assert copy["MessageAttributes"][KEY]["StringValue"] == "o%251"


def test_a_wait_that_would_outlive_the_message_is_none(world: World, app: App) -> None:
    """G4: SQS deletes a message in silence at the end of its retention; so it is refused while it can be copied."""
    record = missing(world)
    record["attributes"]["SentTimestamp"] = str(NOW - LONGEST_RETENTION_MS + 3_600_000 + 59_999)

    assert consume(app, record) == []
    assert len(world.dead_letters()) == 1

    record["attributes"]["SentTimestamp"] = str(NOW - LONGEST_RETENTION_MS + 3_600_000 + 60_000)
    assert consume(app, record) == [record["messageId"]]


def test_a_refused_message_can_be_redriven_when_its_body_is_back(world: World, app: App, ran: list[str]) -> None:
    """The copy is the pointer: a restored object, or a mended permission, and the job runs."""
    consume(app, missing(world, receive_count=MOST_RECEIVES))
    (copy,) = world.dead_letters()
    body = seal(job_type="act", idempotency_key="k-1", payload={}, created_at="2026-11-29T12:00:00Z")
    put("default/gone", body)

    assert consume(app, record_of(copy, arn_of("JobsQueue"))) == []
    assert ran == [""]


def test_a_body_that_arrives_late_is_served(world: World, app: App, ran: list[str]) -> None:
    """What the waits are for."""
    record = missing(world)
    assert consume(app, record) == [record["messageId"]]
    body = seal(job_type="act", idempotency_key="k-1", payload={}, created_at="2026-11-29T12:00:00Z")
    put("default/gone", body)

    assert consume(app, record) == []
    assert ran == [""]


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {JOB_TYPE: attribute("act")},
        stamped("act", " "),
        stamped("act", "<aws.scheduler.scheduled-time>"),
        stamped("act", "k" * 8_193),
        stamped("act#k-1", "k-1"),
        stamped("~lock", "k-1"),
        stamped("no such job", "k-1"),
        stamped("\ud800", "k-1"),
        stamped("act", "\udfff"),
    ],
    ids=[
        "none",
        "no-key",
        "blank",
        "placeholder",
        "too-long",
        "hash",
        "tilde",
        "no-name",
        "surrogate",
        "key-surrogate",
    ],
)
def test_odd_stamps_are_as_good_as_none(world: World, app: App, ran: list[str], attributes: dict[str, Any]) -> None:
    """G5: a foreign producer may write anything there; the message waits, and its neighbour runs."""
    consume(app, world.message("act"))
    record = world.raw(pointer("default/gone"), attributes=attributes)

    assert consume(app, record, world.message("act", key="k-2")) == [record["messageId"]]
    assert len(ran) == 2
    assert world.names().count("job.replayed") == 0
    assert "body.not_fetched" in world.names()


def test_a_claims_table_that_does_not_answer_keeps_the_message(world: World, app: App) -> None:
    """G4: whether it is a duplicate is not known, so it is neither acknowledged nor refused."""
    consume(app, world.message("act"))
    dynamodb = faulty_dynamodb(world.runtime)
    dynamodb.drop("get_item", times=ATTEMPTS)
    record = missing(world, receive_count=MOST_RECEIVES)

    assert consume(app, record) == [record["messageId"]]
    assert world.dead_letters() == []
    assert "message.faulted" in world.names()
    assert consume(app, record) == []
    assert world.dead_letters() == []
