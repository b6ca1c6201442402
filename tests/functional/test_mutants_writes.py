"""Rules of what a claim writes that only a mutant showed to be untested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import put
from kit.claims import LEASE_MS, NOW, RETENTION_S, Worker, record_of
from kit.world import TABLE
from onceq.decision import UNENDED_RETENTION_S, Busy, Ended
from onceq.errors import ClaimLost
from onceq.record import Semantics, Status
from onceq.store import Store

if TYPE_CHECKING:
    from kit.world import World
    from onceq.record import Record
    from onceq.store import Refused


@pytest.fixture
def worker(world: World) -> Worker:
    """One process."""
    return Worker.of(world)


def test_what_is_known_of_an_attempt_outlives_a_start_that_did_not_happen(worker: Worker) -> None:
    """A job that failed, was claimed again and given back still says why it failed; one that never ran says nothing."""
    worker.take("one").release(NOW, not_before=NOW, error="no answer", counted=True)
    worker.take("two").release(NOW, not_before=NOW, error=None, counted=True)

    assert worker.take("one").give_back(NOW).error == "no answer"
    assert worker.take("two").give_back(NOW).error == "given back before it was started again"
    assert worker.take("three").give_back(NOW).error is None
    assert worker.take("three").give_back(NOW).error is None


def test_a_decision_is_made_at_its_own_time(world: World, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that took longer than the lease that it shows is followed by a take-over, with a lease from then."""
    claim = Store.claim
    worker.take()

    def slowly(store: Store, new: Record, now_ms: int) -> Record | Refused[Record]:
        answer = claim(store, new, now_ms)
        world.clock.advance(60)
        return answer

    monkeypatch.setattr(Store, "claim", slowly)

    assert worker.take().record.lease_expires_at == NOW + 60_000 + LEASE_MS


OPEN = '{"call":{"started":1}}'
ONCE = Semantics.AT_MOST_ONCE
NEVER_ENDED = "the attempt never ended, and may start at most once: {}. The effect may have happened"
USED_UP: dict[str, Any] = {"attempts": 3, "not_before": None}


@pytest.mark.parametrize(
    ("left", "asked", "ended"),
    [
        (
            record_of(attempts=3, lease_expires_at=NOW - 20_000),
            {},
            {
                "status": "rejected",
                "went_stale": 1,
                "expires_at": NOW // 1000 + RETENTION_S,
                "error": "attempts used up: the last attempt never ended",
            },
        ),
        (
            record_of(Status.FAILED, **USED_UP),
            {},
            {"status": "rejected", "went_stale": None, "error": "attempts used up: ValueError"},
        ),
        (
            record_of(Status.FAILED, error=None, **USED_UP),
            {},
            {"status": "rejected", "error": "attempts used up: the last one failed"},
        ),
        (record_of(Status.FAILED, went_stale=1, **USED_UP), {}, {"status": "rejected", "went_stale": 1}),
        (
            record_of(Status.FAILED, expires_at=None, semantics=ONCE, **USED_UP),
            {"semantics": ONCE},
            {"status": "rejected", "expires_at": NOW // 1000 + UNENDED_RETENTION_S},
        ),
        (
            record_of(Status.FAILED, fencing_token=NOW + 5_000, **USED_UP),
            {},
            {"status": "rejected", "expires_at": NOW // 1000 + 5 + RETENTION_S},
        ),
        (
            record_of(steps=OPEN, lease_expires_at=NOW - 20_000),
            {},
            {"status": "uncertain", "went_stale": 1, "error": NEVER_ENDED.format("call")},
        ),
        (
            record_of(semantics=ONCE, lease_expires_at=NOW - 20_000),
            {},
            {"status": "uncertain", "error": NEVER_ENDED.format("the job")},
        ),
        (record_of(Status.FAILED, steps=OPEN, not_before=None), {}, {"status": "uncertain", "went_stale": None}),
        (record_of(Status.FAILED, steps=OPEN, **USED_UP), {}, {"status": "uncertain"}),
        (
            record_of(Status.FAILED, attempts=1, not_before=None, went_stale=1),
            {"semantics": ONCE},
            {"status": "uncertain", "went_stale": 1},
        ),
    ],
    ids=[
        "rejected, stale",
        "rejected, failed",
        "rejected, failed without a word",
        "rejected, failed and stale before",
        "rejected, at most once",
        "rejected, by a clock that was stepped back",
        "held, stale with an open step",
        "held, stale",
        "held, failed with an open step",
        "held, without an attempt left",
        "held, swept before it started at most once",
    ],
)
def test_a_taker_that_ends_a_job_writes_what_follows_from_it(
    world: World, worker: Worker, left: Record, asked: dict[str, Any], ended: dict[str, Any]
) -> None:
    """G2, G5, G9: a token of its own, why, whether its claimant died, and for how long a message may come back."""
    put(world, left)

    answer = worker.ask(**asked)

    assert isinstance(answer, Ended)
    assert not answer.before
    assert {name: getattr(answer.record, name) for name in ended} == ended
    assert answer.record.claimant not in (left.claimant, left.pk, left.message_id, left.idempotency_key)


@pytest.mark.parametrize("left", [record_of(attempts=3), record_of(semantics=ONCE)], ids=["rejected", "held"])
def test_takers_that_end_jobs_have_tokens_of_their_own(world: World, worker: Worker, left: Record) -> None:
    """G2: what names a taker is drawn for this write: the same job ended again has another one."""
    tokens = set()
    for _ in range(2):
        put(world, left)
        world.clock.advance(60)
        answer = worker.ask()
        assert isinstance(answer, Ended)
        tokens.add(answer.record.claimant)

    assert len(tokens) == 2


@pytest.mark.parametrize(
    ("left", "asked"),
    [
        (record_of(Status.FAILED, attempts=1, not_before=None, went_stale=None), {"semantics": ONCE}),
        (record_of(Status.FAILED, attempts=0, not_before=None, went_stale=1), {"semantics": ONCE}),
        (record_of(Status.FAILED, attempts=1, not_before=None, went_stale=1), {}),
        (record_of(Status.FAILED, attempts=1, not_before=None, went_stale=1, semantics=ONCE), {"semantics": ONCE}),
    ],
    ids=["it ended by itself", "it never ran", "it may start again", "it said so itself"],
)
def test_a_failed_job_that_is_known_not_to_have_died_under_this_rule_goes_on(
    world: World, worker: Worker, left: Record, asked: dict[str, Any]
) -> None:
    """G6: only a death before the release that says it may start once holds a failed job; nothing else does."""
    put(world, left)

    assert worker.take(**asked).record.attempts == left.attempts + 1


@pytest.mark.parametrize("attempt", [None, 3, 5], ids=["no note", "an earlier rejection", "a later rejection"])
def test_a_rejected_job_is_run_by_the_redrive_of_its_own_rejection(
    world: World, worker: Worker, attempt: int | None
) -> None:
    """G3: a note names the version that it is of; one of another version runs nothing."""
    left = put(world, record_of(Status.REJECTED))

    assert worker.ask(redriven_version=attempt) == Ended(left, before=True)
    assert worker.take(redriven_version=4).record.attempts == 1


def test_a_rejected_job_with_an_open_step_is_not_redriven(world: World, worker: Worker) -> None:
    """G9: the step may have happened, whatever the job type says by now."""
    left = put(world, record_of(Status.REJECTED, steps=OPEN))

    assert worker.ask(redriven_version=4) == Ended(left, before=True)


def test_a_back_off_lasts_to_the_millisecond(world: World, worker: Worker) -> None:
    """A failed job is due at its time and not a moment before; without a time it is due now."""
    put(world, record_of(Status.FAILED, "one", not_before=NOW + 1))
    put(world, record_of(Status.FAILED, "two", not_before=NOW))
    put(world, record_of(Status.FAILED, "three", not_before=None))

    assert worker.ask("one") == Busy(NOW + 1)
    assert worker.take("two").record.attempts == 3
    assert worker.take("three").record.attempts == 3


def test_what_never_expires_is_released_without_an_end(world: World, worker: Worker) -> None:
    """G9: a record with an open step stays until it ends, also when its attempt was given back for another."""
    claim = worker.take()
    claim.step("call", {"started": 1})

    assert claim.release(NOW, not_before=NOW, error=None, counted=True).expires_at is None


def test_a_record_whose_steps_have_ended_expires(worker: Worker) -> None:
    """Only an open step keeps a record for ever; the record of one step keeps the others."""
    claim = worker.take()

    assert claim.step("one", {"result": 1}).expires_at == NOW // 1000 + UNENDED_RETENTION_S
    assert claim.step("two", {"result": 2}).steps == '{"one":{"result":1},"two":{"result":2}}'


def test_an_ended_job_is_kept_from_its_fencing_token_on(world: World, worker: Worker) -> None:
    """G3: where the clock was stepped back the next first claim must have a higher token, so the record stays."""
    put(world, record_of(Status.FAILED, "one", not_before=None, fencing_token=NOW + 5_000))
    put(world, record_of(Status.FAILED, "two", not_before=None, fencing_token=NOW + 5_000))
    kept_until = (NOW + 5_001 + 999) // 1000 + RETENTION_S

    assert worker.take("one").complete(NOW, "1").expires_at == kept_until
    assert worker.take("two").reject(NOW, error="no").expires_at == kept_until


def test_a_job_that_failed_runs_beside_others(world: World, worker: Worker) -> None:
    """G5: an attempt that ended by itself killed nothing, so the next one waits for nobody."""
    put(world, record_of(Status.FAILED, not_before=None))

    assert worker.take(alone=False).record.attempts == 3


def test_a_claimant_s_own_end_is_its_own(worker: Worker) -> None:
    """G2, G9: a claimant ends its job under its token; what may start once is kept as long as a message of it lives."""
    rejecting, holding = worker.take("one", semantics=ONCE), worker.take("two", semantics=ONCE)
    tokens = rejecting.record.claimant, holding.record.claimant

    rejected, held = rejecting.reject(NOW, error="no"), holding.hold(error="unknown")
    long = worker.take("three", semantics=ONCE, retention_s=UNENDED_RETENTION_S + 5).reject(NOW, error="no")

    assert (rejected.claimant, held.claimant) == tokens
    assert (rejected.expires_at, held.expires_at) == (NOW // 1000 + UNENDED_RETENTION_S, None)
    assert long.expires_at == NOW // 1000 + UNENDED_RETENTION_S + 5


def test_a_claim_that_has_ended_writes_nothing(worker: Worker) -> None:
    """G2: its end is the last write of a claim; another one is refused here, and sends no request."""
    claim = worker.take()
    ended = claim.complete(NOW, "1")
    requests = len(worker.client.calls)

    with pytest.raises(ClaimLost) as lost:
        claim.renew(NOW + LEASE_MS)

    assert (lost.value.seen, lost.value.own) == (ended, ended)
    assert len(worker.client.calls) == requests


def test_a_take_over_is_remembered_from_its_own_time_on(world: World, worker: Worker) -> None:
    """G6, G9: a job that goes on is kept as long as its message may come; what never expires stays until it ends."""
    put(world, record_of(Status.FAILED, "one", not_before=None))
    put(world, record_of(Status.FAILED, "two", not_before=None, expires_at=None))
    world.clock.advance(500)

    assert worker.take("one").record.expires_at == NOW // 1000 + 500 + UNENDED_RETENTION_S
    assert worker.take("two").record.expires_at is None


def test_a_job_that_has_not_ended_outlives_its_message() -> None:
    """G6: SQS keeps a message for 14 days at most, and a dead-letter queue for 14 more."""
    longest = 14 * 86_400

    assert 2 * longest <= UNENDED_RETENTION_S


def test_a_job_that_is_claimed_anew_commits_under_another_token(world: World, worker: Worker) -> None:
    """G7: within ten minutes DynamoDB takes a request with the same token for the same one, and writes nothing."""
    beside = {"Put": {"TableName": TABLE, "Item": {"pk": {"S": "beside"}}}}
    tokens = []
    for _ in range(2):
        committed = worker.take().complete(NOW, "1", [beside])
        tokens.append(worker.client.calls[-1].request["ClientRequestToken"])
        world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": committed.pk}})

    assert len(set(tokens)) == 2
