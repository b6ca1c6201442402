"""A server that never answers: the invocation ends before its deadline, and nothing is lost."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit import wire_faults as wire
from kit.delivery import record_of
from kit.fault_operations import BY_NAME
from kit.fault_stand import SECONDS, WAIT_SECONDS, Stand, Wire, wired
from onceq import App, Context, job
from onceq.client import READ_TIMEOUT
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

ALWAYS = float("inf")


@pytest.fixture(scope="module")
def opened(ministack: str) -> Iterator[Wire]:
    """A world of ministack behind the proxy."""
    with wired(ministack) as found:
        yield found


@pytest.fixture
def stand(opened: Wire) -> Stand:
    """A queue of its own, and a proxy without plans."""
    return Stand(opened)


class RealContext:
    """A Lambda context in real time."""

    aws_request_id = "request-1"

    def __init__(self, seconds: float) -> None:
        """End so many seconds from now."""
        self.until = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> float:
        """Return what is left."""
        return (self.until - time.monotonic()) * 1000


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        ("claim", "kept"),
        ("commit", "kept"),
        ("copy to the dead-letter queue", "kept"),
        ("change visibility", "kept"),
        ("mark as sent", "acknowledged"),
    ],
)
def test_a_batch_ends_before_its_deadline_where_nothing_is_answered_any_more(
    opened: Wire, operation: str, answer: str
) -> None:
    """G4: by the injected clock, with production's number of attempts; later deliveries end the job."""
    played = BY_NAME[operation]
    stand = Stand(opened, own_tables=played.own_tables)
    act = played.play(stand)
    names = {"queue": stand.queue.url.rpartition("/")[2], "dlq": stand.queue.dlq_url.rpartition("/")[2]}
    stand.proxy.plan(played.request.format(**names), wire.DOWN)
    started = stand.clock.monotonic()

    assert act() == answer
    assert 2 * READ_TIMEOUT < stand.clock.monotonic() - started < SECONDS
    stand.until_quiet()
    assert set(stand.statuses().values()) == set(played.jobs)


@pytest.mark.parametrize("silent", ["claim", "complete", "ChangeMessageVisibilityBatch"])
def test_a_batch_ends_before_a_real_deadline(stand: Stand, silent: str) -> None:
    """In real time, as a share of the deadline: what is waited for in vain is a part of it."""
    settings = replace(stand.settings, reserve=WAIT_SECONDS)

    @job("pay", max_duration=WAIT_SECONDS)
    def pay(payload: dict[str, Any], ctx: Context) -> None:
        if silent.startswith("Change"):
            raise OSError

    app = App([pay], runtime=Runtime(settings), hooks=[])
    stand.post()
    (message,) = stand.sqs.receive_message(QueueUrl=stand.queue.url)["Messages"]
    stand.proxy.plan(silent, wire.DOWN)
    seconds = 40 * WAIT_SECONDS
    context = RealContext(seconds)

    answer = app.consumer({"Records": [record_of(message, stand.queue.arn)]}, context)
    assert [entry["itemIdentifier"] for entry in answer["batchItemFailures"]] == [message["MessageId"]]
    assert 0 < context.get_remaining_time_in_millis() / (seconds * 1000) < 1 - WAIT_SECONDS / seconds


def runs_until(stand: Stand, left: float) -> None:
    """Serve a job that runs until so many seconds are left, and post it."""

    @job("pay")
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        stand.charge(ctx)
        if ctx.attempt == 1:
            stand.clock.advance(ctx.remaining() - left)
        return "done"

    stand.serve(pay)
    stand.post()


@pytest.mark.parametrize("left", [2.5, 3.5, 4.5, 6.5, 8.5])
def test_a_write_is_not_sent_again_where_its_answer_could_not_be_waited_for(stand: Stand, left: float) -> None:
    """A request that is silent costs a whole read time-out: it is begun again only where so much is left."""
    runs_until(stand, left)
    stand.proxy.plan("complete", wire.SILENT, times=ALWAYS)

    assert stand.deliver() == "kept"
    assert "effect.not_recorded" in stand.names()
    stand.until_quiet()
    assert (len(stand.charges), sum(stand.charges.values())) == (1, 2)


def test_a_throttled_write_is_sent_again_to_the_last_moment(stand: Stand) -> None:
    """What was answered at once costs next to nothing: it is tried in the last second too."""
    runs_until(stand, 0.9)
    stand.proxy.plan("complete", wire.refused("ThrottlingException"), times=2)

    assert stand.deliver() == "acknowledged"
    assert stand.proxy.names().count("complete") == 3
    assert sum(stand.charges.values()) == 1


def test_a_body_that_trickles_is_read_to_its_end(stand: Stand) -> None:
    """The read time-out is for each piece: a body that comes slowly is late, and right."""
    pay = BY_NAME["claim"].play(stand)
    assert pay() == "acknowledged"
    stand.post()
    stand.proxy.plan("claim", wire.trickling(WAIT_SECONDS / 100))
    started = time.monotonic()

    assert stand.deliver() == "acknowledged"
    assert time.monotonic() - started > WAIT_SECONDS
    assert stand.proxy.names().count("claim") == 2
    assert "job.replayed" in stand.names()
    assert sum(stand.charges.values()) == 1
