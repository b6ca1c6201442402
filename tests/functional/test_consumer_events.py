"""What the consumer makes of events, whole ones and broken ones."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, OnceqError, Reject, job
from onceq.errors import NotAnSqsEvent, UnnameableRecord

if TYPE_CHECKING:
    from kit.world import World
    from onceq.job_type import JobType


def _noting(runs: list[str]) -> JobType[..., Any]:
    @job("note", max_attempts=3)
    def note(payload: dict[str, Any], ctx: Context) -> None:
        if payload.get("fail"):
            raise ConnectionError
        if payload.get("reject"):
            raise Reject("no")
        runs.append(ctx.key)

    return note


@pytest.mark.parametrize("event", [{}, {"Records": []}, {"Records": None}, {"other": 1}], ids=str)
def test_an_event_without_records_is_a_clear_answer(world: World, event: dict[str, Any]) -> None:
    """G4: Records missing, null or empty keeps nothing, loses nothing, and is said."""
    app = world.app(_noting([]))

    assert app.consumer(event) == {"batchItemFailures": []}
    assert world.names() == ["event.without_records"]


@pytest.mark.parametrize(
    "event",
    [
        None,
        [{"eventSource": "aws:kinesis"}],
        "text",
        7,
        {"Records": {}},
        {"Records": "text"},
        {"Records": [{"eventSource": "aws:s3"}]},
        {"Records": [{"EventSource": "aws:sns"}]},
        {"Records": [{"eventSource": {"odd": 1}}]},
    ],
    ids=str,
)
def test_an_event_that_is_not_from_sqs_is_an_error(world: World, event: object) -> None:
    """G4: records of another source are never taken for done: the invocation fails, so their source keeps them."""
    app = world.app(_noting([]))

    with pytest.raises(NotAnSqsEvent):
        app.consumer(event)
    assert issubclass(NotAnSqsEvent, OnceqError)


@pytest.mark.parametrize("record", [None, 7, "text", [], {}, {"body": "x"}], ids=str)
def test_a_record_that_is_no_record_and_cannot_be_named_keeps_the_whole_batch(world: World, record: object) -> None:
    """G4: a record that must be kept and has no id fails the invocation; its neighbours are protected by claims."""
    runs: list[str] = []
    app = world.app(_noting(runs))
    good = world.message("note", key="good")

    with pytest.raises(UnnameableRecord):
        app.consumer(event_of(record, good))
    assert runs == ["good"]
    assert kept(app.consumer(event_of(good))) == []
    assert runs == ["good"]


@pytest.mark.parametrize("missing", ["", None, 5, {}])
def test_a_record_without_an_id_that_is_done_needs_no_name(world: World, missing: object) -> None:
    """G5: only a record that must be kept has to be named."""
    runs: list[str] = []
    record = world.message("note") | {"messageId": missing}

    assert kept(world.app(_noting(runs)).consumer(event_of(record))) == []
    assert runs == ["k-1"]


def test_a_message_id_that_comes_twice_is_answered_once(world: World) -> None:
    """G5: AWS keeps a whole batch for a doubled id, so the answer names an id once, and keeps it if either failed."""
    app = world.app(_noting([]))
    twin = world.message("note", {"fail": True}, key="bad", message_id="twin")

    answer = app.consumer(event_of(twin, world.message("note", key="good", message_id="twin"), twin))

    assert kept(answer) == ["twin"]


def test_the_answer_names_exactly_what_must_be_kept_in_the_order_of_the_batch(world: World) -> None:
    """G5: the answer is the exact partial batch response, and only ids of this event are in it."""
    runs: list[str] = []
    app = world.app(_noting(runs))
    records = [
        world.message("note", {"fail": True}, key="f1"),
        world.message("note", key="good"),
        world.message("note", {"reject": True}, key="r1"),
        world.raw("not json"),
        world.message("of_tomorrow", key="u1"),
        world.message("note", key="good"),
        world.message("note", {"fail": True}, key="f2"),
        world.message("note", key="q", queue="Unknown"),
    ]

    answer = app.consumer(event_of(*records), FakeLambdaContext())

    assert kept(answer) == [records[number]["messageId"] for number in (0, 4, 6, 7)]
    assert runs == ["good"]
    assert len(world.dead_letters()) == 2


@pytest.mark.parametrize(
    "odd",
    [
        {"body": None},
        {"body": 7},
        {"body": ""},
        {"body": "\x00"},
        {"body": "[" * 5_000},
        {"body": '{"onceq": 1}'},
        {"body": '{"onceq": "1", "job_type": "note"}'},
        {"body": '{"onceq": 0, "job_type": "note"}'},
        {"body": '{"onceq": 1, "job_type": "note", "payload": {}}'},
        {"body": '{"onceq": 1, "job_type": "note", "idempotency_key": "  ", "payload": {}}'},
        {"body": '{"onceq": 1, "job_type": "note", "idempotency_key": true, "payload": {}}'},
        {"body": '{"onceq": 1, "job_type": "note", "idempotency_key": "k", "payload": []}'},
        {"body": '{"onceq": 1, "job_type": "note", "idempotency_key": "k", "payload": {}, "hops": 1001}'},
        {"body": '{"onceq": 1, "job_type": "note", "idempotency_key": "k", "payload": {}, "hops": -1}'},
        {"body": '{"onceq": 2, "job_type": "note", "idempotency_key": "k", "payload": {}}'},
        {"body": '{"onceq": 1, "job_type": "nothing", "idempotency_key": "k", "payload": {}}'},
        {"attributes": None},
        {"attributes": []},
        {"messageAttributes": "text"},
        {"messageAttributes": {"a": 1, "onceq": {"stringValue": "{"}}},
        {"eventSourceARN": 7},
        {"eventSourceARN": None},
        {"receiptHandle": None},
    ],
    ids=str,
)
def test_a_bad_record_never_hurts_its_neighbours(world: World, odd: dict[str, Any]) -> None:
    """G4, G5: whatever a record holds, the others end as they should, and the bad one is kept, copied or done."""
    runs: list[str] = []
    app = world.app(_noting(runs))
    bad = world.message("note", key="odd") | odd
    good, failing = world.message("note", key="good"), world.message("note", {"fail": True}, key="failing")

    answer = kept(app.consumer(event_of(good, bad, failing), FakeLambdaContext()))

    assert "good" in runs
    assert good["messageId"] not in answer
    assert failing["messageId"] in answer
    copied = [message["Body"] for message in world.dead_letters()]
    assert bad["messageId"] in answer or "odd" in runs or copied == [bad["body"]]


def test_a_thousand_records_take_the_time_of_a_thousand(world: World) -> None:
    """A batch is read in linear time: ten times the records take about ten times the time, not a hundred times."""
    world.runtime._given = replace(world.settings, concurrency=1)
    app = world.app(_noting([]))

    def seconds(count: int) -> float:
        # Unserved ones need no request, so what is measured is the consumer itself.
        event = event_of(*[world.message("of_tomorrow", key=str(number)) for number in range(count)])
        started = time.process_time()
        assert len(kept(app.consumer(event))) == count
        return time.process_time() - started

    seconds(50)
    few = min(seconds(100) for _ in range(3))
    assert min(seconds(1_000) for _ in range(2)) < 50 * few


def test_a_thousand_messages_of_one_group_are_one_lane(world: World) -> None:
    """A head that is kept leaves all its followers unstarted and visible at once; the table is not asked."""
    sqs = FakeSqs()
    app = world.app(_noting([]), runtime=SpiedRuntime(world.runtime, sqs))
    records = [
        world.message("note", {"fail": number == 0}, key=f"k{number}", queue="Ordered.fifo", group="g")
        for number in range(1_000)
    ]

    answer = kept(app.consumer(event_of(*records), FakeLambdaContext()))

    assert answer == [record["messageId"] for record in records]
    assert list(sqs.visibility().values()) == [1, *[0] * 999]
    assert all(len(request["Entries"]) == 10 for _, request in sqs.requests)
