"""A job cannot wait for longer than SQS keeps its message."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import Backoff, JobType, Retry, Snooze
from onceq.message import Message
from onceq.outcome import RejectFor, Release, end_of

if TYPE_CHECKING:
    from kit.world import World

SENT = 1_795_953_600_000
DAY = 86_400
# Fourteen days, an hour early.
LAST_SECOND = 14 * DAY - 3_600


def _sent(timestamp: object) -> Message:
    return Message.from_record({"messageId": "m-1", "body": "{}", "attributes": {"SentTimestamp": timestamp}})


@pytest.mark.parametrize(
    ("timestamp", "sent_at", "kept_until"),
    [
        (str(SENT), SENT, SENT + LAST_SECOND * 1000),
        ("0", 0, math.inf),
        ("", 0, math.inf),
        (None, 0, math.inf),
        ("soon", 0, math.inf),
        ("-1", 0, math.inf),
        ("9" * 16, 0, math.inf),
        ([], 0, math.inf),
    ],
)
def test_a_message_knows_until_when_it_is_kept(timestamp: object, sent_at: int, kept_until: float) -> None:
    """Fourteen days from when it was sent; one that does not tell is kept for ever as far as we know."""
    message = _sent(timestamp)

    assert (message.sent_at, message.kept_until) == (sent_at, kept_until)


@pytest.mark.parametrize(
    ("error", "delay"),
    [
        (Retry(delay=timedelta(days=13)), 13 * DAY),
        (Snooze(timedelta(days=13)), 13 * DAY),
        (ValueError("no"), 13 * DAY),
    ],
    ids=["retry", "snooze", "back-off"],
)
@pytest.mark.parametrize(("beyond_ms", "ends"), [(-1, False), (0, True), (1, True)])
def test_a_wait_that_ends_after_the_message_is_a_rejection(
    error: Exception, delay: int, beyond_ms: int, *, ends: bool
) -> None:
    """G4: nothing would be left to run the job, so it ends in the dead-letter queue with the reason."""
    job_type = JobType(lambda payload: None, "act", backoff=Backoff(base=delay, cap=delay), max_attempts=9)
    kept_until = SENT + delay * 1000 - beyond_ms

    end = end_of(error, job_type, 1, SENT, lambda low, high: high, kept_until=kept_until)

    if ends:
        assert isinstance(end, RejectFor)
        assert "only after SQS has deleted its message (14 days)" in end.reason
        assert str(error) in end.reason
    else:
        assert isinstance(end, Release)
        assert end.not_before == SENT + delay * 1000


@pytest.mark.parametrize("error", [Retry(delay=60), Snooze(60)], ids=["retry", "snooze"])
def test_a_message_about_to_be_deleted_is_copied_with_the_reason(world: World, error: Exception) -> None:
    """G4: on its last day a message that asks to wait for longer ends in the dead-letter queue."""
    world.clock.advance(LAST_SECOND - 60)

    def act(payload: dict[str, Any]) -> None:
        raise error

    job_type = JobType(act, "act")

    assert kept(world.app(job_type).consumer(event_of(world.message("act")), FakeLambdaContext())) == []
    record = world.record(job_type, "k-1")
    assert record is not None
    assert record.status == "rejected"
    (dead,) = world.dead_letters()
    assert dead["note"]["reason"] == "rejected"
    assert "deleted its message (14 days)" in dead["note"]["error"]


def test_a_wait_that_ends_just_before_is_a_wait(world: World) -> None:
    """A message that has another minute and a second waits for its minute."""
    world.clock.advance(LAST_SECOND - 61)

    def act(payload: dict[str, Any]) -> None:
        raise Snooze(60)

    job_type = JobType(act, "act")
    message = world.message("act")

    assert kept(world.app(job_type).consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    record = world.record(job_type, "k-1")
    assert record is not None
    assert record.status == "failed"
