"""What is sent to a FIFO queue after something of the same group failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.faults import client_error
from kit.sqs import FakeSqs, SpiedRuntime
from onceq import EnqueueFailed, Entry, JobType
from onceq.clock import OpenDeadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq.queue import Queue

FIFO = "http://sqs.test/Ordered.fifo"
STANDARD = "http://sqs.test/JobsQueue"
PASSING = {"SenderFault": False, "Code": "InternalError", "Message": "try again"}
OURS = {"SenderFault": True, "Code": "InvalidMessageContents", "Message": "no"}
BEHIND = "an earlier message of its group failed"


def _queue(world: World, sqs: FakeSqs) -> Queue:
    return SpiedRuntime(world.runtime, sqs).queue(OpenDeadline())


def _entries(number: int, group_of: Callable[[int], str | None]) -> list[dict[str, Any]]:
    groups = [group_of(each) for each in range(number)]
    return [
        {"Id": str(each), "MessageBody": f"b{each}"} | ({"MessageGroupId": group} if group else {})
        for each, group in enumerate(groups)
    ]


def _bodies(sqs: FakeSqs) -> list[str]:
    return [entry["MessageBody"] for entry in sqs.entries("send")]


@pytest.mark.parametrize("failure", [PASSING, OURS], ids=["passing", "ours"])
def test_nothing_of_a_group_is_sent_after_what_failed_of_it(world: World, failure: dict[str, Any]) -> None:
    """A group's order holds: what comes in later batches waits for its sender, and other groups go on."""
    sqs = FakeSqs(lambda _, entry: failure if entry["MessageBody"] == "b8" else None)
    entries = _entries(24, lambda each: "even" if each % 2 == 0 else "odd")

    sent, failed = _queue(world, sqs).send_batch(FIFO, entries)

    assert set(failed) == {"8", *(str(each) for each in range(10, 24, 2))}
    assert {failed[str(each)] for each in range(10, 24, 2)} == {BEHIND}
    assert failed["8"] == f"{failure['Code']}: {failure['Message']}"
    assert sorted(map(int, sent)) == [*range(8), *range(9, 24, 2)]
    assert _bodies(sqs) == [*(f"b{each}" for each in range(10)), *(f"b{each}" for each in range(11, 24, 2))]


def test_a_failed_entry_is_not_sent_a_second_time_on_a_fifo_queue(world: World) -> None:
    """It would arrive behind what has been sent since: its sender decides."""
    sqs = FakeSqs(lambda _, entry: PASSING if entry["MessageBody"] == "b0" else None)

    sent, failed = _queue(world, sqs).send_batch(FIFO, _entries(2, lambda _: "g"))

    assert (_bodies(sqs), list(sent), list(failed)) == (["b0", "b1"], ["1"], ["0"])
    assert world.clock.slept == []


@pytest.mark.parametrize(("url", "group"), [(STANDARD, None), (STANDARD, "tenant")])
def test_on_a_standard_queue_a_passing_failure_is_tried_again_and_stops_nothing(
    world: World, url: str, group: str | None
) -> None:
    """There a group names a tenant and is no order."""
    sqs = FakeSqs(lambda _, entry: PASSING if entry["MessageBody"] == "b0" else None)

    sent, failed = _queue(world, sqs).send_batch(url, _entries(12, lambda _: group))

    assert _bodies(sqs).count("b0") == 3
    assert (len(sent), list(failed)) == (11, ["0"])


def test_visibility_changes_are_tried_again_on_a_fifo_queue(world: World) -> None:
    """Only sending has an order."""
    failures = iter([PASSING, None])
    sqs = FakeSqs(lambda *_: next(failures))
    entry = {"Id": "0", "ReceiptHandle": "r-0", "VisibilityTimeout": 0}

    assert _queue(world, sqs).change_visibility_batch(FIFO, [entry]) == {}


def test_a_batch_that_is_refused_whole_is_sent_one_by_one_in_order(world: World) -> None:
    """G5: the entry that SQS refuses the batch for fails, and on a FIFO queue what stands behind it in its group."""

    class Refusing(FakeSqs):
        def send_message_batch(self, **request: Any) -> dict[str, Any]:
            if any(entry["MessageBody"] == "b1" for entry in request["Entries"]):
                raise client_error("InvalidMessageContents", method="SendMessageBatch")
            return super().send_message_batch(**request)

    sqs = Refusing()

    sent, failed = _queue(world, sqs).send_batch(FIFO, _entries(12, lambda each: "a" if each < 3 else "b"))

    assert set(failed) == {"1", "2"}
    assert failed["2"] == BEHIND
    assert sorted(map(int, sent)) == [0, *range(3, 12)]
    assert _bodies(sqs) == ["b0", *(f"b{each}" for each in range(3, 12))]


def test_a_producer_names_what_was_not_sent_of_a_group(world: World) -> None:
    """Sending ``failed`` again keeps the group's order, each with the key that it had."""
    sqs = FakeSqs(lambda _, entry: PASSING if '"n":1}' in entry["MessageBody"] else None)
    act = JobType(lambda payload: None, "act", queue="ordered")
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))
    # The first batch fails at its second entry, so the eleventh of the same group is not sent.
    entries = [Entry(act, {"n": each}, group="a" if each in (1, 10) else f"g{each}") for each in range(11)]

    with pytest.raises(EnqueueFailed) as caught:
        app.enqueue_many(entries)

    assert [(entry.payload["n"], bool(entry.key)) for entry, _ in caught.value.failed] == [(1, True), (10, True)]
    assert caught.value.failed[1][1] == BEHIND
    assert len(caught.value.sent) == 9
