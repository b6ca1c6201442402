"""Step writes whose response is lost, which land late, or which never reach the table; renewals beside them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import Bench, put
from kit.claims import Worker, pass_lease, stored
from kit.faults import FaultyClient, faulty_dynamodb
from kit.racing import eager_switching
from kit.world import TABLE
from onceq import Context, Retry, Semantics
from onceq.client import ATTEMPTS
from onceq.decision import Ended
from onceq.errors import ClaimLost, StepNotRecorded, StoreUnavailable
from onceq.record import Status
from onceq.steps import open_steps, read_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq.claim import Claim
    from onceq.record import Record

ONCE = Semantics.AT_MOST_ONCE
LOSE, DROP = FaultyClient.lose_response, FaultyClient.drop
unheard = pytest.mark.parametrize("fault", [LOSE, DROP], ids=["applied, then lost", "never applied"])
DONE = {"result": "done"}
STARTED = {"started": 1}


@pytest.fixture
def worker(world: World) -> Worker:
    """One process."""
    return Worker.of(world)


@pytest.fixture
def bench(world: World) -> Bench:
    """A job with one effect, at least once; the faults of its claims table are in `client`."""
    bench = Bench(world)
    bench.body = lambda ctx: ctx.step("charge", bench.effect("charge", "ch_1"), ctx.idempotency_key_for("charge"))
    return bench


@pytest.fixture
def client(world: World, bench: Bench) -> FaultyClient:
    """The faults under the claims table."""
    return faulty_dynamodb(world.runtime)


def once(bench: Bench, value: Any = "yes") -> None:
    """Let the effect be one that starts at most once."""
    bench.body = lambda ctx: ctx.step("call", bench.effect("call", value), semantics=ONCE)


@unheard
def test_a_step_whose_response_is_lost_is_ours(bench: Bench, client: FaultyClient, fault: Any) -> None:
    """G11: the record of a step is recognised; the effect is had once, and the job completes."""
    fault(client, "step")

    assert not bench.deliver()
    assert bench.effects == ["charge"]
    assert client.names() == ["claim", "step", "step", "complete"]
    assert (bench.record.status, bench.record.version, bench.record.result) == (Status.COMPLETED, 3, '"ch_1"')


@unheard
@pytest.mark.parametrize("number", [1, 2], ids=["its start", "its end"])
def test_an_at_most_once_step_whose_response_is_lost_is_ours(
    bench: Bench, client: FaultyClient, fault: Any, number: int
) -> None:
    """G9, G11: neither its start nor its end is taken for somebody else's: it is started once and finishes."""
    once(bench)
    client.plan("step", client.forward, times=number - 1)
    fault(client, "step")

    assert not bench.deliver()
    assert bench.effects == ["call"]
    assert client.names() == ["claim", "step", "step", "step", "complete"]
    assert bench.record.version == 4


@unheard
def test_a_mark_that_is_taken_away_again_is_ours(bench: Bench, client: FaultyClient, fault: Any) -> None:
    """G9, G11: a Retry out of an at-most-once step removes its mark; the lost response of that is recognised."""
    once(bench, Retry(1))
    client.plan("step", client.forward)
    fault(client, "step")

    assert bench.deliver()
    assert (bench.record.status, bench.record.steps, bench.record.version) == (Status.FAILED, None, 4)


def test_a_step_that_landed_without_any_answer_is_replayed_by_the_next_attempt(
    bench: Bench, client: FaultyClient
) -> None:
    """Section 6: nobody knows whether it is recorded: the message is kept, the claim left leased; then it is found."""
    LOSE(client, "step", times=ATTEMPTS)

    assert bench.deliver()
    record = bench.record
    assert (record.status, record.version, read_steps(record.steps)) == (
        Status.PROCESSING,
        2,
        {"charge": {"result": "ch_1"}},
    )
    (told,) = bench.events("effect.not_recorded")
    assert "UpdateItem was not answered" in told["error"]
    assert bench.events("message.faulted")[0]["reason"].startswith(
        "StepNotRecorded: the step 'charge' could not be recorded"
    )
    assert bench.deliver(), "its lease still runs"
    bench.later()
    assert not bench.deliver()
    assert bench.effects == ["charge"]


@pytest.mark.parametrize("code", [None, "AccessDeniedException"], ids=["no connection", "refused"])
def test_a_step_that_cannot_be_recorded_is_attempted_again_after_the_lease(
    bench: Bench, client: FaultyClient, code: str | None
) -> None:
    """G12: done and not recorded, so attempted again, with the same downstream key; nothing of it is written before."""
    if code is None:
        DROP(client, "step", times=ATTEMPTS)
    else:
        client.refuse("step", code)

    assert bench.deliver()
    assert client.names() == ["claim"] + ["step"] * (ATTEMPTS if code is None else 1)
    assert (bench.record.status, bench.record.version) == (Status.PROCESSING, 1)
    assert len(bench.events("effect.not_recorded")) == 1
    assert bench.notes() == []
    bench.later()
    assert not bench.deliver()
    assert bench.effects == ["charge", "charge"]
    assert len(bench.keys["charge"]) == 1


@unheard
def test_an_at_most_once_step_does_not_begin_while_its_start_is_not_known_to_be_recorded(
    bench: Bench, client: FaultyClient, fault: Any
) -> None:
    """G9: the effect waits for the record; if that landed after all, a person is asked, for nobody else can know."""
    once(bench)
    fault(client, "step", times=ATTEMPTS)

    assert bench.deliver()
    assert bench.effects == []
    assert bench.events("effect.not_recorded") == [], "there was no effect"
    bench.later()
    assert not bench.deliver()
    if fault is LOSE:
        assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, [])
    else:
        assert (bench.record.status, bench.effects) == (Status.COMPLETED, ["call"])


@unheard
def test_an_at_most_once_step_whose_end_is_not_known_to_be_recorded_is_not_run_again(
    bench: Bench, client: FaultyClient, fault: Any
) -> None:
    """G9: recorded after all, it is replayed; if not, a person is asked. It never runs twice."""
    once(bench)
    client.plan("step", client.forward)
    fault(client, "step", times=ATTEMPTS)

    assert bench.deliver()
    assert len(bench.events("effect.not_recorded")) == 1
    bench.later()
    assert not bench.deliver()
    assert bench.effects == ["call"]
    expected = (Status.COMPLETED, '"yes"') if fault is LOSE else (Status.UNCERTAIN, None)
    assert (bench.record.status, bench.record.result) == expected


@unheard
def test_a_mark_that_is_not_known_to_be_taken_away_is_safe(bench: Bench, client: FaultyClient, fault: Any) -> None:
    """G9: the Retry holds only if its mark is gone from the record; if it is still there, a person is asked."""
    once(bench, Retry(1))
    client.plan("step", client.forward)
    fault(client, "step", times=ATTEMPTS)

    assert bench.deliver()
    assert bench.record.status is Status.PROCESSING
    once(bench)
    bench.later()
    assert not bench.deliver()
    assert bench.effects == (["call", "call"] if fault is LOSE else ["call"])
    assert bench.record.status is (Status.COMPLETED if fault is LOSE else Status.UNCERTAIN)


def test_a_hold_that_cannot_be_written_leaves_the_mark_and_the_next_delivery_holds(
    bench: Bench, client: FaultyClient
) -> None:
    """G9: the step failed and the store with it: the message is kept, and the stale claim goes to a person."""
    once(bench, ValueError("no answer"))
    DROP(client, "hold", times=ATTEMPTS)

    assert bench.deliver()
    assert bench.record.status is Status.PROCESSING
    assert bench.notes() == []
    bench.later()
    assert not bench.deliver()
    assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, ["call"])
    assert len(bench.notes()) == 1


def test_a_step_that_finds_the_claim_lost_is_the_last_request_of_the_attempt(
    world: World, bench: Bench, client: FaultyClient
) -> None:
    """G2: the record is not ours any more, so not even an end is tried, whatever the job says; the message is kept."""

    def body(ctx: Context) -> None:
        with suppress(ClaimLost):
            ctx.step("charge", bench.effect("charge"))

    bench.body = body
    client.before("step", lambda: put(world, replace(bench.record, claimant="another", version=9)))

    assert bench.deliver()
    assert [name for name in client.names() if name != "get_item"] == ["claim", "step"]
    assert [told["winner"] for told in bench.events("claim.lost")] == ["another"]
    assert (bench.record.claimant, bench.record.version) == ("another", 9)


def late(worker: Worker, claim: Claim, name: str, state: dict[str, Any] | None) -> None:
    """Send a step's write that nobody answers and that has not arrived yet."""
    worker.client.hold_back("step", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        claim.step(name, state)


def late_renewal(worker: Worker, claim: Claim) -> None:
    """Send a renewal that nobody answers and that has not arrived yet."""
    worker.client.hold_back("renew", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        claim.renew(worker.world.clock.now_ms() + 99_000)


@pytest.mark.parametrize("state", [DONE, {"started": 2}, None], ids=["done", "started", "taken away"])
def test_a_step_that_arrives_again_after_its_own_retry_changes_nothing(
    world: World, worker: Worker, state: dict[str, Any] | None
) -> None:
    """G2: the retry landed; the first request, on its way all the time, finds another version."""
    claim = worker.take()
    claim.step("call", STARTED)
    worker.client.hold_back("step")

    written = claim.step("call", state)

    assert stored(world) == written
    assert worker.client.land() == [False]
    assert stored(world) == written
    assert read_steps(written.steps) == ({} if state is None else {"call": state})


def test_a_start_that_arrives_after_the_end_of_its_step_changes_nothing(world: World, worker: Worker) -> None:
    """Section 6: "started" after "finished" would make a person doubt what is known."""
    claim = worker.take()
    worker.client.hold_back("step")
    claim.step("call", STARTED)
    finished = claim.step("call", DONE)

    assert worker.client.land() == [False]
    assert stored(world) == finished


def test_a_step_that_arrives_after_a_take_over_changes_nothing(world: World, worker: Worker) -> None:
    """G2: the taker's token stands in the record; the step that the zombie recorded too late is not known."""
    taker = Worker.of(world)
    late(worker, worker.take(), "charge", DONE)
    pass_lease(world)
    taken = taker.take()

    assert worker.client.land() == [False] * ATTEMPTS
    assert stored(world) == taken.record
    assert taken.record.steps is None


def test_a_step_that_arrives_after_the_taker_ended_changes_nothing(world: World, worker: Worker) -> None:
    """G3: a completed job stays completed."""
    taker = Worker.of(world)
    late(worker, worker.take(), "charge", DONE)
    pass_lease(world)
    completed = taker.take().complete(world.clock.now_ms(), "1")

    assert worker.client.land() == [False] * ATTEMPTS
    assert stored(world) == completed


def test_a_step_that_arrives_between_a_takers_look_and_its_take_over_is_carried_over(
    world: World, worker: Worker
) -> None:
    """G6: the take-over was decided on a record without it: it is refused, and follows what stands there."""
    taker = Worker.of(world)
    late(worker, worker.take(), "charge", DONE)
    pass_lease(world)
    taker.client.before("take_over", worker.client.land)

    taken = taker.take()

    assert taker.client.names() == ["claim", "take_over", "take_over"]
    assert (read_steps(taken.record.steps), taken.record.version) == ({"charge": DONE}, 3)
    assert stored(world) == taken.record


def test_a_start_that_arrives_between_a_takers_look_and_its_take_over_is_held(world: World, worker: Worker) -> None:
    """G9: the taker saw no mark, and its take-over is refused; looking again it sees one, and runs nothing."""
    taker = Worker.of(world)
    late(worker, worker.take(), "call", STARTED)
    pass_lease(world)
    taker.client.before("take_over", worker.client.land)

    answer = taker.ask()

    assert isinstance(answer, Ended)
    assert (answer.record.status, open_steps(answer.record.steps)) == (Status.UNCERTAIN, ["call"])
    assert stored(world) == answer.record


def test_an_end_that_arrives_between_a_takers_look_and_its_hold_is_believed(world: World, worker: Worker) -> None:
    """G9: what is known to have finished is not uncertain: the hold is refused, and the job is taken over."""
    taker = Worker.of(world)
    claim = worker.take()
    claim.step("call", STARTED)
    late(worker, claim, "call", DONE)
    pass_lease(world)
    taker.client.before("hold", worker.client.land)

    taken = taker.take()

    assert taker.client.names() == ["claim", "hold", "take_over"]
    assert read_steps(taken.record.steps) == {"call": DONE}


def test_a_zombies_step_is_refused_and_shows_the_winner(world: World, worker: Worker) -> None:
    """G2: ClaimLost with the record as it stands, after one request."""
    claim = worker.take()
    pass_lease(world)
    taken = Worker.of(world).take()
    before = len(worker.client.calls)

    with pytest.raises(ClaimLost) as caught:
        claim.step("charge", DONE)

    assert caught.value.seen == taken.record == stored(world)
    assert len(worker.client.calls) == before + 1


def test_a_step_on_a_record_that_is_gone_makes_none(world: World, worker: Worker) -> None:
    """G2: what TTL or a person deleted is not brought back by who held it."""
    claim = worker.take()
    world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": "pay#k-1"}})

    with pytest.raises(ClaimLost) as caught:
        claim.step("charge", DONE)

    assert caught.value.seen is None
    assert world.record("pay", "k-1") is None


def test_no_step_is_written_after_the_end(world: World, worker: Worker) -> None:
    """G3: a step that a stray thread ends after the job sends no request at all."""
    claim = worker.take()
    completed = claim.complete(world.clock.now_ms(), "1")
    calls = len(worker.client.calls)

    with pytest.raises(ClaimLost):
        claim.step("charge", DONE)

    assert len(worker.client.calls) == calls
    assert stored(world) == completed


def test_a_step_follows_a_renewal_of_unknown_outcome(world: World, worker: Worker) -> None:
    """Rule 5: refused, it finds our own renewal, and is recorded with the next version."""
    claim = worker.take()
    lease = world.clock.now_ms() + 99_000
    late_renewal(worker, claim)
    assert worker.client.land() == [True, False, False, False, False]

    recorded = claim.step("charge", DONE)

    assert (recorded.version, recorded.lease_expires_at) == (3, lease)
    assert stored(world) == recorded


def test_a_renewal_that_arrives_just_before_a_step_is_followed(world: World, worker: Worker) -> None:
    """Rule 5: it lands between our last look and the step's request."""
    claim = worker.take()
    late_renewal(worker, claim)
    worker.client.before("step", worker.client.land)

    recorded = claim.step("charge", DONE)

    assert (recorded.version, read_steps(recorded.steps)) == (3, {"charge": DONE})
    assert stored(world) == recorded


def test_a_renewal_that_arrives_after_a_step_changes_nothing(world: World, worker: Worker) -> None:
    """G2: the record has moved on; the step stays in it."""
    claim = worker.take()
    late_renewal(worker, claim)
    recorded = claim.step("charge", DONE)

    assert worker.client.land() == [False] * ATTEMPTS
    assert stored(world) == recorded


def test_a_renewal_is_never_taken_for_the_step_that_was_lost(world: World, worker: Worker) -> None:
    """G11: the step times out, an earlier renewal lands: same claimant, same version, and not the step.

    Taken for it, the effect would be believed recorded and be repeated after a crash.
    """
    claim = worker.take()
    late_renewal(worker, claim)
    renewals = worker.client.held_back
    worker.client.held_back = []
    worker.client.hold_back("step")
    worker.client.before("step", lambda: worker.client.forward(renewals[0]))

    recorded = claim.step("charge", DONE)

    assert (recorded.version, read_steps(recorded.steps)) == (3, {"charge": DONE})
    assert stored(world) == recorded
    assert worker.client.land() == [False]
    assert stored(world) == recorded


@pytest.mark.parametrize("landed", [True, False], ids=["it landed", "it did not"])
def test_a_write_that_follows_a_step_of_unknown_outcome_keeps_it_if_it_landed(
    world: World, worker: Worker, *, landed: bool
) -> None:
    """Rule 5: the next write of the same claimant, a renewal or another step, never takes a recorded step back."""
    writes: list[Callable[[Claim], Record]] = [
        lambda claim: claim.renew(world.clock.now_ms() + 99_000),
        lambda claim: claim.step("mail", DONE),
    ]
    for number, write in enumerate(writes):
        key = f"k-{number}"
        claim = worker.take(key)
        late(worker, claim, "charge", DONE)
        if landed:
            assert worker.client.land()[0]

        written = write(claim)

        assert ("charge" in read_steps(written.steps)) is landed
        assert worker.client.land() == [False] * (0 if landed else ATTEMPTS)
        assert stored(world, key) == written


def test_renewals_and_steps_of_many_threads_all_land(world: World, worker: Worker) -> None:
    """Section 6: a job's own writes are serialised, so none is refused by another one of ours."""
    claim = worker.take()

    def write(number: int) -> None:
        if number % 2:
            claim.renew(world.clock.now_ms() + 30_000 + number)
        else:
            claim.step(f"s{number}", {"result": number})

    with eager_switching(), ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(24)))

    assert claim.record == stored(world)
    assert claim.record.version == 25
    assert sorted(read_steps(claim.record.steps)) == sorted(f"s{number}" for number in range(0, 24, 2))
    assert worker.client.names().count("step") == 12


def test_a_renewing_thread_beside_the_steps_of_a_job(world: World) -> None:
    """Outside Lambda the lease is renewed while the steps run: both write the record, and the job completes."""
    from kit.seams import OneRenewalClock
    from kit.world import event_of, kept
    from onceq import job
    from onceq.runtime import Runtime

    runtime = Runtime(world.settings, clock=OneRenewalClock(world.clock), tokens=world.tokens)
    client = faulty_dynamodb(runtime)
    LOSE(client, "renew", times=ATTEMPTS)
    told = threading.Event()
    world_hook = world.events.append

    def hook(event: Any) -> None:
        world_hook(event)
        if event.name == "lease.not_renewed":
            told.set()

    @job("pay")
    def pay(payload: dict[str, Any], ctx: Context) -> list[Any]:
        first = ctx.step("one", lambda: told.wait(30))
        return [first, ctx.step("two", lambda: 2)]

    app = world.app(pay, runtime=runtime, hooks=[hook])

    assert kept(app.consumer(event_of(world.message("pay")), None)) == []
    record = stored(world)
    assert (record.status, record.result, record.version) == (Status.COMPLETED, "[true,2]", 5)
    assert "claim.lost" not in world.names()


def test_the_signal_says_which_step_was_not_recorded_and_why() -> None:
    """What an error tracker shows of it."""
    fault = StoreUnavailable("UpdateItem was not answered: no connection")
    signal = StepNotRecorded("charge", fault, ran=True)

    assert (signal.fault, signal.ran) == (fault, True)
    assert str(signal) == "the step 'charge' could not be recorded: UpdateItem was not answered: no connection"
