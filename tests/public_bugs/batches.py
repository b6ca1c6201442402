"""Scenes about batches, what SQS is told, and what came in that is no SQS event."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.delivery import hold_sqs_time, kept_as_aws_reads, peek
from kit.sqs import FakeSqs
from onceq import Context, EnqueueFailed, Entry, JobType, Reject, Retry
from onceq.clock import OpenDeadline
from onceq.errors import NotAnSqsEvent, UnnameableRecord
from onceq.poller import Poller, to_delete
from onceq.queue import Queue
from public_bugs.ground import Ground, Pay, raising

if TYPE_CHECKING:
    from collections.abc import Callable

GOOD: dict[str, Any] = {"Code": "InternalError", "Message": "try again", "SenderFault": False}
BAD: dict[str, Any] = {"Code": "InvalidMessageContents", "Message": "never", "SenderFault": True}


def a_warm_process_forgets_the_batch_before(ground: Ground) -> None:
    """A group that failed, and a batch that failed as a whole, are not skipped or failed the next time."""
    pay = Pay(ground.world, raising(ConnectionError()), settings=replace(ground.world.settings, concurrency=1))
    records = [ground.world.message("pay", key=key, queue="Ordered.fifo", group="g") for key in "abc"]
    for _ in range(2):
        assert pay.consume(*records) == [record["messageId"] for record in records]
    pay.body = lambda _: None
    ground.world.clock.advance(60)
    assert pay.consume(*records) == []
    assert pay.runs == ["a", "a", "b", "c"]


def every_failure_is_named(ground: Ground) -> None:
    """Of seven, five fail: all five are kept, and only they."""
    pay = Pay(ground.world)

    def body(ctx: Context) -> None:
        if ctx.key not in "27":
            raise ConnectionError

    pay.body = body
    assert pay.deliver(*"1234567") == ["1", "3", "4", "5", "6"]
    pay.body = raising(ConnectionError())
    assert pay.deliver(*"abc") == ["a", "b", "c"], "all of them, and nothing is raised"


def an_event_of_nothing_is_a_success_and_another_service_is_an_error(ground: Ground) -> None:
    """Records absent, null or empty are answered; what is not SQS's is refused; odd records hurt only themselves."""
    pay = Pay(ground.world)
    empty: list[Any] = [{}, {"Records": None}, {"Records": []}, {"Records": [], "extra": 1}]
    foreign: list[Any] = [[1], "x", 7, {"Records": {}}, {"Records": [{"eventSource": "aws:kinesis"}]}]
    for event in empty:
        assert pay.app.consumer(event, None) == {"batchItemFailures": []}
    for event in foreign:
        with pytest.raises((NotAnSqsEvent, UnnameableRecord)):
            pay.app.consumer(event, None)
    good = ground.world.message("pay") | {"extra": {"deep": [None]}}
    records: list[Any] = [None, "a string", 7, [], {}]
    for odd in records:
        with pytest.raises(UnnameableRecord):
            pay.app.consumer({"Records": [odd, good]}, None)
    assert pay.runs == ["k-1"], "its neighbour ran, once"


def the_answer_is_valid_however_strictly_it_is_read(ground: Ground) -> None:
    """One key, ids of this event only, none twice: read as AWS does, exactly the failures are kept."""

    def body(ctx: Context) -> None:
        if ctx.key.startswith("bad"):
            raise ConnectionError

    pay = Pay(ground.world, body)
    keys = ["bad-1", "good-1", "bad-2", "good-2"]
    records = [ground.world.message("pay", key=key) for key in keys]
    records.append(ground.world.message("pay", key="bad-3", message_id=records[0]["messageId"]))
    answer = pay.app.consumer({"Records": records}, None)
    ids = [record["messageId"] for record in records]
    assert set(answer) == {"batchItemFailures"}
    assert all(set(entry) == {"itemIdentifier"} for entry in answer["batchItemFailures"])
    assert kept_as_aws_reads(answer, ids) == {ids[0], ids[2]}
    assert to_delete(ids, answer) == {ids[1], ids[3]}


def an_answer_that_aws_cannot_place_keeps_everything_in_the_local_poller(ground: Ground) -> None:
    """Wrong-cased keys, and null, empty or unknown ids: local runs read as strictly as AWS."""
    ids = [ground.world.message("pay")["messageId"] for _ in range(3)]
    for name in ("", None, "unknown", 7):
        assert to_delete(ids, {"batchItemFailures": [{"itemIdentifier": name}]}) == set()
    wrong: list[Any] = [{"BatchItemFailures": []}, {"batchItemFailures": [{"ItemIdentifier": ids[0]}]}, "x", []]
    empty: list[Any] = [None, {}, {"batchItemFailures": []}, {"batchItemFailures": None}]
    assert all(to_delete(ids, answer) == set() for answer in wrong)
    assert all(to_delete(ids, answer) == set(ids) for answer in empty)


def what_is_raised_around_a_job_is_its_records_failure(ground: Ground) -> None:
    """By middleware, a hook, a key function, or SystemExit: that record fails, is counted, and ends in the end."""
    wrong: list[tuple[BaseException, str]] = [
        (ValueError("before the job"), "a"),
        (SystemExit(1), "b"),
        (KeyboardInterrupt(), "c"),
    ]
    for error, key in wrong:

        def broken(call_next: Callable[[], Any], ctx: Context, payload: Any, error: Any = error, key: str = key) -> Any:
            if ctx.key == key:
                raise error
            return call_next()

        pay = Pay(ground.world, middleware=[broken], max_attempts=2)
        assert pay.deliver(key, f"good-{key}") == [key]
        assert pay.runs == [f"good-{key}"]
        ground.world.clock.advance(1_000)
        assert pay.deliver(key) == [], "its attempts are used up: copied with the reason, and no endless loop"
        assert pay.notes() == ["rejected"]


def batches_hold_ten_entries_and_one_mib(ground: Ground) -> None:
    """109 records that end in the dead-letter queue, some of them large: no request breaks a limit."""
    pay = Pay(ground.world, raising(Reject("no")))
    records = [
        ground.world.message("pay", {"a": "x" * (300_000 if number % 10 == 0 else 10)}, key=str(number))
        for number in range(109)
    ]
    assert pay.consume(*records) == []
    requests = [request["Entries"] for name, request in pay.sqs.requests if name == "send"]
    assert sum(map(len, requests)) == 109
    assert all(len(entries) <= 10 for entries in requests)
    assert all(sum(len(entry["MessageBody"]) for entry in entries) < 1_048_576 for entries in requests)
    kept = Pay(ground.world, raising(Retry(delay=7)))
    kept.deliver(*[f"r-{number}" for number in range(109)])
    assert [len(request["Entries"]) for _, request in kept.sqs.requests] == [10] * 10 + [9]


def what_sqs_does_not_take_is_sent_again_or_named(ground: Ground) -> None:
    """A passing fault is sent again alone, a sender's fault is not, and what stays behind raises with its keys."""
    tries: Counter[str] = Counter()

    def fail(operation: str, entry: dict[str, Any]) -> dict[str, Any] | None:
        tries[entry["Id"]] += 1
        if entry["Id"] == "1":
            return GOOD if tries["1"] == 1 else None
        return BAD if entry["Id"] == "2" else None

    pay = Pay(ground.world, sqs=FakeSqs(fail))
    with pytest.raises(EnqueueFailed) as raised:
        pay.app.enqueue_many([Entry(pay.job_type, {}, key=f"k-{number}") for number in range(4)])
    assert [entry.key for entry, _ in raised.value.failed] == ["k-2"]
    assert [entry.key for entry, _ in raised.value.sent] == ["k-0", "k-1", "k-3"]
    assert tries == Counter({"0": 1, "1": 2, "2": 1, "3": 1})


def an_answer_that_names_an_entry_twice_is_read_once(ground: Ground) -> None:
    """Doubled, unknown and missing entries of an answer change nothing for the others."""

    class _Doubling(FakeSqs):
        def send_message_batch(self, **request: Any) -> dict[str, Any]:
            answer = super().send_message_batch(**request)
            return answer | {"Failed": answer["Failed"] * 2 + [{"Id": "99", **BAD}]}

    sqs = _Doubling(lambda _, entry: BAD if entry["Id"] == "0" else None)
    queue = Queue(ground.world.clock, ground.world.tokens, OpenDeadline(), client=sqs)
    sent, failed = queue.send_batch("url", [{"Id": str(number), "MessageBody": "x"} for number in range(3)])
    assert sorted(sent) == ["1", "2"]
    assert "0" in failed
    assert len(sqs.entries("send")) == 3


def a_copy_that_fails_keeps_its_message(ground: Ground) -> None:
    """The dead-letter queue takes some of a batch: those are acknowledged, the others come again."""
    sqs = FakeSqs(lambda operation, entry: BAD if operation == "send" and entry["Id"] == "1" else None)
    pay = Pay(ground.world, raising(Reject("no")), sqs=sqs)
    assert pay.deliver("a", "b", "c") == ["b"]
    names = Counter(ground.world.names())
    assert (names["message.dead_lettered"], names["message.copy_failed"]) == (2, 1)


def a_visibility_that_is_not_changed_is_told(ground: Ground) -> None:
    """Some entries fail: told and counted, the others changed, and the answer to SQS is the same."""
    sqs = FakeSqs(lambda operation, entry: BAD if entry["Id"] == "1" else None)
    pay = Pay(ground.world, raising(Retry(delay=7)), sqs=sqs)
    assert pay.deliver("a", "b", "c") == ["a", "b", "c"]
    assert ground.world.names().count("visibility.not_changed") == 1
    assert set(sqs.visibility().values()) == {7}


def the_native_redrive_comes_in_the_local_poller(ground: Ground) -> None:
    """A message whose visibility is changed each time, and that fails each time, is moved after maxReceiveCount."""
    world = ground.world
    hold_sqs_time(ground.monkeypatch, world.clock)
    dlq = world.settings.queue("default").dlq_url
    target = world.sqs.get_queue_attributes(QueueUrl=dlq, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = {"RedrivePolicy": f'{{"deadLetterTargetArn": "{target}", "maxReceiveCount": "3"}}'}
    url, arn = world.settings.queue("default").url, world.settings.queue("default").arn
    world.sqs.set_queue_attributes(QueueUrl=url, Attributes=policy)
    runs: list[str] = []

    def pay(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.key)
        raise Retry(delay=1)

    job_type = JobType(pay, "pay", max_attempts=90)
    app = world.app(job_type)
    app.enqueue(job_type, {}, key="k-1")
    poller = Poller(app.consumer, app.runtime.queue(OpenDeadline()), url=url, arn=arn, wait=0)
    for _ in range(6):
        poller.poll()
        world.clock.advance(2)
    assert runs == ["k-1"] * 3
    assert (len(peek(url)), len(peek(dlq))) == (0, 1)


def a_poller_that_is_stopped_gives_back_what_it_holds(ground: Ground) -> None:
    """SIGTERM: no new copies, nothing hidden for its whole visibility: what is not under way is visible at once."""
    world, url = ground.world, ground.world.settings.queue("default").url
    job_type = JobType(lambda payload: None, "pay")
    pollers: list[Poller] = []

    def handler(event: dict[str, Any], context: object) -> object:
        pollers[0].stop()
        return {"batchItemFailures": [{"itemIdentifier": one["messageId"]} for one in event["Records"]]}

    app = world.app(job_type)
    for number in range(3):
        app.enqueue(job_type, {}, key=f"k-{number}")
    pollers.append(Poller(handler, app.runtime.queue(OpenDeadline()), url=url, arn="a:b:c:d:e:f", wait=0))
    assert pollers[0].poll() == 3
    assert pollers[0].poll() == 0
    again = world.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert len(again) == 3


def duplicates_are_visible(ground: Ground) -> None:
    """A replay, a deferral, a take-over and a lost claim are events of their own, each with a metric."""
    pay = Pay(ground.world)

    def meet(_: Any) -> None:
        pay.deliver()

    pay.body = meet
    pay.deliver()
    pay.deliver()
    told = {event.name: event.metric for event in ground.world.events}
    assert {"job.replayed", "job.deferred"} <= set(told)
    assert all(told[name] for name in ("job.replayed", "job.deferred", "job.completed"))
