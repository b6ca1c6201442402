"""A person decides about a job: each decision from each state, and never about what was not seen."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import pytest

from kit.bench import Bench, left, put
from kit.claims import NOW, Worker, stored
from kit.clock import FakeLambdaContext
from kit.faults import FaultyClient, faulty_dynamodb
from kit.racing import all_at_once
from kit.seams import Seams
from kit.world import TABLE, event_of
from onceq import ConfigurationError, Retry, Semantics
from onceq.client import ATTEMPTS
from onceq.errors import ResolveRefused, StoreError, StoreUnavailable
from onceq.record import Status
from onceq.resolving import RESOLVABLE, Decision

if TYPE_CHECKING:
    from kit.world import World

ONCE = Semantics.AT_MOST_ONCE
DECISIONS: tuple[Decision, ...] = get_args(Decision)
RETENTION = timedelta(days=3)
RETENTION_S = 3 * 86_400
UNENDED_S = 28 * 86_400
every_decision = pytest.mark.parametrize("decision", DECISIONS)
resolvable = pytest.mark.parametrize("status", RESOLVABLE)


@pytest.fixture
def bench(world: World) -> Bench:
    """A job that pays once."""
    bench = Bench(world, retention=RETENTION)
    bench.body = lambda _ctx: bench.effect("pay", "paid")()
    return bench


# What a decision makes of a record; everything else stays.
AFTER: dict[Decision, dict[str, Any]] = {
    "done": {
        "status": Status.COMPLETED,
        "result": '{"id":1}',
        "completed_at": NOW,
        "expires_at": NOW // 1000 + RETENTION_S,
        "error": None,
        "steps": None,
        "not_before": None,
    },
    "retry": {
        "status": Status.FAILED,
        "attempts": 0,
        "not_before": NOW,
        "resolved_at": NOW,
        "expires_at": NOW // 1000 + UNENDED_S,
        "error": "seen at the provider",
        "steps": '{"charge":{"result":"ch_1"}}',
    },
    "reject": {
        "status": Status.REJECTED,
        "expires_at": NOW // 1000 + RETENTION_S,
        "error": "seen at the provider",
        "not_before": None,
    },
}


@resolvable
@every_decision
def test_a_decision_writes_exactly_what_it_says(world: World, bench: Bench, status: Status, decision: Decision) -> None:
    """The table of decisions: the record, its version and claimant, what the caller gets, and the event."""
    seen = put(world, left(status))

    got = bench.app.resolve(
        "pay", "k-1", decision, result={"id": 1} if decision == "done" else None, reason="seen at the provider"
    )

    record = stored(world)
    expected = replace(seen, **AFTER[decision])
    if decision == "retry" and status is Status.UNCERTAIN:
        expected = replace(expected, expires_at=None)  # it has begun what may start only once
    assert replace(record, claimant=seen.claimant, version=seen.version) == expected
    assert record.version == seen.version + 1 == got.version
    assert record.claimant not in {seen.claimant, ""}
    assert got == bench.app.lookup("pay", "k-1")
    assert got.status == AFTER[decision]["status"]
    assert bench.events("job.resolved") == [
        {"job_type": "pay", "key": "k-1", "decision": decision, "reason": "seen at the provider"}
    ]


@pytest.mark.parametrize("status", [status for status in Status if status not in RESOLVABLE])
@every_decision
def test_a_job_that_runs_or_is_completed_is_not_for_a_person_to_decide(
    world: World, bench: Bench, status: Status, decision: Decision
) -> None:
    """G3: nobody takes a completion back, and nobody decides about a job that still runs; the record stands."""
    seen = put(world, left(status))

    with pytest.raises(ResolveRefused, match=f"pay#k-1 is {status}: only a job that is uncertain, rejected or failed"):
        bench.app.resolve("pay", "k-1", decision)

    assert stored(world) == seen
    assert world.events == []


@every_decision
def test_a_job_that_was_never_claimed_cannot_be_resolved(world: World, bench: Bench, decision: Decision) -> None:
    """A key that is mistyped makes no record."""
    with pytest.raises(ResolveRefused, match="there is no job pay#k-1"):
        bench.app.resolve("pay", "k-1", decision)

    assert world.record("pay", "k-1") is None


def test_a_job_type_that_is_not_served_cannot_be_resolved(bench: Bench) -> None:
    """A name that is mistyped is told as such."""
    with pytest.raises(ConfigurationError, match="pya"):
        bench.app.resolve("pya", "k-1", "done")


def test_a_decision_that_is_none_is_refused_and_changes_nothing(world: World, bench: Bench) -> None:
    """The three words are told."""
    seen = put(world, left(Status.UNCERTAIN))
    word: Any = "yes"

    with pytest.raises(ResolveRefused, match="'yes': decide"):
        bench.app.resolve("pay", "k-1", word)

    assert stored(world) == seen


@resolvable
@every_decision
@pytest.mark.parametrize("off", [-1, 1])
def test_a_decision_about_another_version_is_refused(
    world: World, bench: Bench, status: Status, decision: Decision, off: int
) -> None:
    """What was decided about is what stands there, or nothing is written."""
    seen = put(world, left(status))

    with pytest.raises(ResolveRefused, match=f"of version 4, and {4 + off} was decided about: look again"):
        bench.app.resolve("pay", "k-1", decision, version=4 + off)

    assert stored(world) == seen
    assert bench.app.resolve("pay", "k-1", decision, version=4).version == 5


@resolvable
@every_decision
@pytest.mark.parametrize(
    "move",
    [{"version": 5}, {"claimant": "another"}, {"version": 5, "claimant": "another"}],
    ids="+".join,
)
def test_a_record_that_moves_on_between_the_look_and_the_write_is_not_overwritten(
    world: World, bench: Bench, status: Status, decision: Decision, move: dict[str, Any]
) -> None:
    """G2: the write is refused, and the person looks again."""
    seen = put(world, left(status))
    moved = replace(seen, **move)
    client = faulty_dynamodb(world.runtime)
    client.before("resolve", lambda: put(world, moved))

    with pytest.raises(ResolveRefused, match="moved on while it was decided about: look again"):
        bench.app.resolve("pay", "k-1", decision)

    assert stored(world) == moved
    assert bench.events("job.resolved") == []


def test_a_delivery_that_takes_the_job_over_meanwhile_wins(world: World, bench: Bench) -> None:
    """G1, G2: a failed job that somebody starts while a person decides is theirs, and completes."""
    bench.body = lambda ctx: bench.effect("pay", Retry(1) if ctx.attempt == 1 else "paid")()
    assert bench.deliver()
    bench.later()
    other = world.app(bench.job_type, runtime=Seams().process(Worker.of(world).runtime))
    faulty_dynamodb(world.runtime).before(
        "resolve", partial(other.consumer, event_of(world.message("pay")), FakeLambdaContext())
    )

    with pytest.raises(ResolveRefused):
        bench.app.resolve("pay", "k-1", "reject")

    assert (bench.record.status, bench.record.attempts, bench.starts) == (Status.COMPLETED, 2, [1, 2])


def test_a_record_that_goes_between_the_look_and_the_write_is_not_made_again(world: World, bench: Bench) -> None:
    """G2: what a person or TTL deleted stays deleted."""
    put(world, left(Status.REJECTED))
    faulty_dynamodb(world.runtime).before(
        "resolve", lambda: world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": "pay#k-1"}})
    )

    with pytest.raises(ResolveRefused, match="moved on"):
        bench.app.resolve("pay", "k-1", "done")

    assert world.record("pay", "k-1") is None


@resolvable
@every_decision
@pytest.mark.parametrize(
    "fault", [FaultyClient.lose_response, FaultyClient.drop], ids=["applied, then lost", "never applied"]
)
def test_a_decision_whose_response_is_lost_is_ours(
    world: World, bench: Bench, status: Status, decision: Decision, fault: Any
) -> None:
    """G11: sent again, it is recognised, and written once."""
    put(world, left(status))
    client = faulty_dynamodb(world.runtime)
    fault(client, "resolve")

    got = bench.app.resolve("pay", "k-1", decision)

    assert client.names() == ["get_item", "resolve", "resolve"]
    assert (stored(world).version, got.version) == (5, 5)


def test_a_decision_that_nobody_answered_raises_and_may_be_there(world: World, bench: Bench) -> None:
    """The person looks again: a decision that landed is there, and its event is not told twice."""
    put(world, left(Status.UNCERTAIN))
    client = faulty_dynamodb(world.runtime)
    client.lose_response("resolve", times=ATTEMPTS)

    with pytest.raises(StoreUnavailable):
        bench.app.resolve("pay", "k-1", "done", result=1, version=4)

    assert bench.events("job.resolved") == []
    assert (stored(world).status, stored(world).result) == (Status.COMPLETED, "1")
    with pytest.raises(ResolveRefused, match="is completed"):
        bench.app.resolve("pay", "k-1", "done", result=2, version=4)
    assert stored(world).result == "1"


@pytest.mark.parametrize("decision", ["retry", "reject"])
def test_a_decision_that_arrives_after_another_one_changes_nothing(
    world: World, bench: Bench, decision: Decision
) -> None:
    """G2: the first one was on its way when the person decided again."""
    put(world, left(Status.UNCERTAIN))
    client = faulty_dynamodb(world.runtime)
    client.hold_back("resolve", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        bench.app.resolve("pay", "k-1", decision)
    done = bench.app.resolve("pay", "k-1", "done")

    assert client.land() == [False] * ATTEMPTS
    assert bench.app.lookup("pay", "k-1") == done


def test_a_table_that_refuses_is_told_as_such(world: World, bench: Bench) -> None:
    """A role without the permission is a StoreError, and no decision."""
    seen = put(world, left(Status.UNCERTAIN))
    faulty_dynamodb(world.runtime).refuse("resolve", "AccessDeniedException")

    with pytest.raises(StoreError, match="AccessDenied"):
        bench.app.resolve("pay", "k-1", "done")

    assert stored(world) == seen


@pytest.mark.parametrize(("first", "second"), [("done", "retry"), ("retry", "reject"), ("reject", "done")])
def test_of_two_persons_who_saw_the_same_one_decides(
    world: World, bench: Bench, first: Decision, second: Decision
) -> None:
    """G2: both have read when either writes: one is told to look again, and nothing of its decision is written."""
    put(world, left(Status.UNCERTAIN))
    meet = threading.Barrier(2)

    def watch(method: str, when: str) -> None:
        if (method, when) == ("resolve", "before"):
            meet.wait(20)

    def decide(decision: Decision) -> str:
        app = world.app(bench.job_type, runtime=Seams(watch=watch).process(world.runtime))
        try:
            return str(app.resolve("pay", "k-1", decision, reason=decision).status)
        except ResolveRefused:
            return "refused"

    answers = all_at_once([partial(decide, first), partial(decide, second)])

    (won,) = (answer for answer in answers if answer != "refused")
    assert (str(stored(world).status), stored(world).version) == (won, 5)
    assert [told["decision"] for told in bench.events("job.resolved")] == [(first, second)[answers.index(won)]]


def test_of_sixteen_persons_who_name_the_version_one_decides(world: World, bench: Bench) -> None:
    """G2: whenever each of them reads: what they saw is what they decide about."""
    put(world, left(Status.UNCERTAIN))
    runtimes = [Seams().process(world.runtime) for _ in range(16)]

    def decide(number: int) -> str:
        app = world.app(bench.job_type, runtime=runtimes[number])
        try:
            return app.resolve("pay", "k-1", DECISIONS[number % 3], reason=f"by {number}", version=4).status
        except ResolveRefused:
            return "refused"

    answers = all_at_once([lambda number=number: decide(number) for number in range(16)])  # type: ignore[misc]

    assert answers.count("refused") == 15
    assert stored(world).version == 5


@every_decision
def test_a_person_and_a_delivery_at_once_do_not_both_win(world: World, bench: Bench, decision: Decision) -> None:
    """G1, G2: a failed job whose back-off has passed: it is started, or it is resolved, and not both."""
    put(world, left(Status.FAILED, not_before=NOW, steps=None))
    meet, first = threading.Barrier(2), {"resolve", "take_over"}

    def watch(method: str, when: str) -> None:
        if when == "before" and method in first:
            first.discard(method)  # the taker may come a second time, alone
            meet.wait(20)

    app = world.app(bench.job_type, runtime=Seams(watch=watch).process(world.runtime))
    message = world.message("pay")

    def resolve() -> str:
        try:
            return str(app.resolve("pay", "k-1", decision).status)
        except ResolveRefused:
            return "refused"

    def deliver() -> str:
        app.consumer(event_of(message), FakeLambdaContext())
        return "delivered"

    answer, _ = all_at_once([resolve, deliver])

    if answer == "refused":
        assert (bench.starts, stored(world).status) == ([3], Status.COMPLETED)
    else:
        # The taker looks again: what is to be tried again it starts after all, as a first attempt.
        assert bench.starts == ([1] if decision == "retry" else [])


def test_a_decision_tells_the_hooks_that_it_is_over(world: World, bench: Bench) -> None:
    """A Lambda behind an operator's button ends at once: what is counted must be out by then."""
    put(world, left(Status.UNCERTAIN))
    told: list[str] = []

    class Hook:
        def __call__(self, event: Any) -> None:
            told.append(event.name)

        def flush(self) -> None:
            told.append("flush")

    world.app(bench.job_type, hooks=[Hook()]).resolve("pay", "k-1", "retry")

    assert told == ["job.resolved", "flush"]
