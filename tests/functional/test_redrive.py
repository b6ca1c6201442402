"""A rejected job stays rejected, until a person redrives our copy of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.delivery import record_of
from kit.world import arn_of, event_of, kept
from onceq import Context, Reject, job
from onceq.job_type import JobType
from onceq.record import Semantics

if TYPE_CHECKING:
    from kit.world import World


class Account:
    """What is wrong outside, and what ran."""

    def __init__(self) -> None:
        """Start closed."""
        self.closed = True
        self.runs: list[int] = []

    def job_type(self, **options: Any) -> JobType[..., Any]:
        """Return a job type that needs the account open."""

        @job("act", **options)
        def act(payload: dict[str, Any], ctx: Context) -> str:
            self.runs.append(ctx.attempt)
            if self.closed:
                raise Reject("the account is closed")
            return "paid"

        return act


def _take_copy(world: World) -> dict[str, Any]:
    """Take the copy from the DLQ as a redrive does: body and attributes stay, the message id is another."""
    (copy,) = world.dead_letters()
    url = world.settings.queue("default").dlq_url
    world.sqs.delete_message(QueueUrl=url, ReceiptHandle=copy["ReceiptHandle"])
    return record_of(copy, arn_of("JobsQueue"))


def test_a_duplicate_of_a_rejected_job_ends_the_same_way_and_runs_nothing(world: World) -> None:
    """A rejected job is not run again by a duplicate: that is copied too, with the same reason, and acknowledged."""
    account = Account()
    app = world.app(account.job_type())
    for _ in range(3):
        assert kept(app.consumer(event_of(world.message("act")), FakeLambdaContext())) == []

    assert account.runs == [1]
    notes = [copy["note"] for copy in world.dead_letters()]
    assert len(notes) == 3
    assert notes[0] == notes[1] == notes[2]
    before = [event.fields()["before"] for event in world.events if event.name == "job.rejected"]
    assert before == [False, True, True]


def test_a_redrive_of_our_copy_runs_the_job_again_with_attempts_from_zero(world: World) -> None:
    """A person who redrives our copy gets a whole new set of attempts, on the same record and downstream keys."""
    account = Account()
    act = account.job_type(max_attempts=1)
    app = world.app(act)
    app.consumer(event_of(world.message("act")), FakeLambdaContext())
    first = world.record(act, "k-1")
    account.closed = False

    assert kept(app.consumer(event_of(_take_copy(world)), FakeLambdaContext())) == []

    record = world.record(act, "k-1")
    assert first is not None
    assert record is not None
    assert account.runs == [1, 1]
    assert (record.status, record.attempts, record.created_at) == ("completed", 1, first.created_at)
    assert record.fencing_token > first.fencing_token


def test_a_copy_of_an_earlier_rejection_does_not_run_the_job_again(world: World) -> None:
    """Only the copy that carries the record's present version is a redrive: an older one is a duplicate."""
    account = Account()
    app = world.app(account.job_type())
    app.consumer(event_of(world.message("act")), FakeLambdaContext())
    older = _take_copy(world)
    app.consumer(event_of(older), FakeLambdaContext())
    newer = _take_copy(world)
    account.closed = False

    assert kept(app.consumer(event_of(older), FakeLambdaContext())) == []
    assert account.runs == [1, 1]
    _take_copy(world)

    assert kept(app.consumer(event_of(newer), FakeLambdaContext())) == []
    assert account.runs == [1, 1, 1]


def test_one_redrive_delivered_twice_runs_the_job_once(world: World) -> None:
    """G3: the redriven message too is delivered at least once; its duplicate is replayed."""
    account = Account()
    app = world.app(account.job_type())
    app.consumer(event_of(world.message("act")), FakeLambdaContext())
    copy = _take_copy(world)
    account.closed = False

    for _ in range(2):
        assert kept(app.consumer(event_of(copy), FakeLambdaContext())) == []

    assert account.runs == [1, 1]
    assert world.names().count("job.replayed") == 1


def test_a_redriven_job_that_is_rejected_again_is_copied_with_its_new_version(world: World) -> None:
    """The copy of a copy carries one note: the latest."""
    account = Account()
    app = world.app(account.job_type())
    app.consumer(event_of(world.message("act")), FakeLambdaContext())
    app.consumer(event_of(_take_copy(world)), FakeLambdaContext())

    (copy,) = world.dead_letters()
    record = world.record("act", "k-1")
    assert record is not None
    assert (copy["note"]["version"], record.version) == (4, 4)


def test_a_redriven_job_that_failed_once_goes_on_by_itself(world: World) -> None:
    """After a redrive that failed the record is ``failed``; the note, now old, changes nothing any more."""
    world_attempts: list[int] = []

    @job("act", max_attempts=2)
    def act(payload: dict[str, Any], ctx: Context) -> None:
        world_attempts.append(ctx.attempt)
        raise ConnectionError

    app = world.app(act)
    for _ in range(2):
        app.consumer(event_of(world.message("act")), FakeLambdaContext())
        world.clock.advance(30)
    copy = _take_copy(world)
    for _ in range(3):
        app.consumer(event_of(copy), FakeLambdaContext())
        world.clock.advance(30)

    assert world_attempts == [1, 2, 1, 2]
    record = world.record("act", "k-1")
    assert record is not None
    assert record.status == "rejected"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": "2"}', '{"version": true}', '{"version": 99}', '{"version": 0}', "null"]
)
def test_a_note_that_is_not_the_records_is_a_duplicate(world: World, text: str) -> None:
    """Whatever stands in the attribute, only the exact version redrives."""
    account = Account()
    app = world.app(account.job_type())
    app.consumer(event_of(world.message("act")), FakeLambdaContext())
    forged = world.message("act", attributes={"onceq": {"dataType": "String", "stringValue": text}})

    assert kept(app.consumer(event_of(forged), FakeLambdaContext())) == []
    assert account.runs == [1]


@pytest.mark.parametrize("error", [ConnectionError(), Reject("no")], ids=["uncertain", "rejected"])
def test_a_redrive_does_not_start_an_at_most_once_job_again(world: World, error: Exception) -> None:
    """G9: an AT_MOST_ONCE job is started again by nobody but a person who resolved it."""
    runs: list[int] = []

    def run(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(ctx.attempt)
        raise error

    app = world.app(JobType(run, "act", semantics=Semantics.AT_MOST_ONCE))
    app.consumer(event_of(world.message("act")), FakeLambdaContext())

    assert kept(app.consumer(event_of(_take_copy(world)), FakeLambdaContext())) == []
    assert runs == [1]


def test_a_refused_message_that_is_redriven_is_read_again(world: World) -> None:
    """A message that could not become a job has no record: after a deployment that serves it, a redrive runs it."""
    account = Account()
    account.closed = False
    act = account.job_type(key="order_id")
    body = '{"order_id": "o-1"}'
    assert kept(world.app(act).consumer(event_of(world.raw(body)), FakeLambdaContext())) == []
    copy = _take_copy(world)

    assert kept(world.app(act, default=act).consumer(event_of(copy), FakeLambdaContext())) == []
    assert account.runs == [1]
