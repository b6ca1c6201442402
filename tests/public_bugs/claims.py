"""Scenes about claims: who may write, who takes over, and what a lost response means."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kit.bench import PAST_LEASE, Bench
from kit.claims import LEASE_MS, SKEW_MS, Worker, pass_lease, stored
from kit.clock import FakeLambdaContext
from kit.post import Post
from kit.racing import all_at_once, eager_switching
from kit.seams import SimulatedCrash
from kit.skew import Falling, Watch, runtime_with
from kit.ten import TenInABatch
from kit.world import event_of, kept
from onceq import ClaimLost, Context, Retry
from onceq.claim import Claim
from public_bugs.ground import Ground, Pay, on_both, raising

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.seams import When
    from kit.world import World

WRITES: dict[str, Callable[[Claim, int], object]] = {
    "complete": lambda claim, now: claim.complete(now, '"zombie"'),
    "fail": lambda claim, now: claim.release(now, not_before=now, error="zombie", counted=True),
    "give back": lambda claim, now: claim.give_back(now),
    "reject": lambda claim, now: claim.reject(now, error="zombie"),
    "hold": lambda claim, now: claim.hold(error="zombie"),
    "extend": lambda claim, now: claim.renew(now + LEASE_MS),
    "step": lambda claim, now: claim.step("charge", {"result": 1}),
}


def ten_jobs_die_with_their_batch(ground: Ground) -> None:
    """Killed at the sixth: five replays, one take-over, four first runs; ten effects."""
    ten = TenInABatch(ground.world)
    with pytest.raises(SimulatedCrash):
        ten.deliver()
    ten.restart()
    ground.world.clock.advance(PAST_LEASE)

    assert ten.deliver() == []

    names = ground.world.names()
    assert (names.count("job.replayed"), names.count("job.taken_over")) == (5, 1)
    assert len(ten.starts) == 11
    assert len(ten.charges) == 10
    assert {ten.status(key) for key in ten.batch} == {"completed"}


def _zombies(world: World, then: Callable[[Claim, int], object]) -> None:
    for number, (name, write) in enumerate(WRITES.items()):
        key = f"k-{number}"
        zombie = Worker.of(world).take(key)
        pass_lease(world)
        then(Worker.of(world).take(key), world.clock.now_ms())
        before = stored(world, key)
        with pytest.raises(ClaimLost):
            write(zombie, world.clock.now_ms())
        assert stored(world, key) == before, f"{name} changed the record"


def a_late_end_does_not_overwrite_a_success(ground: Ground) -> None:
    """Whatever the late one writes, the completed record is as it was."""
    _zombies(ground.world, lambda claim, now: claim.complete(now, '"ours"'))


def a_late_end_does_not_overwrite_a_failure_either(ground: Ground) -> None:
    """Nor one that was rejected, or failed and waits."""
    _zombies(ground.world, lambda claim, now: claim.reject(now, error="no"))


def a_duplicate_writes_nothing(ground: Ground) -> None:
    """Five duplicates meet a running job: its record is the same after each of them, and it completes."""
    pay = Pay(ground.world)
    seen: list[Any] = []

    def meet(_: Any) -> str:
        for _ in range(5):
            before = stored(ground.world)
            assert pay.deliver() == ["k-1"]
            seen.append(stored(ground.world) == before)
        return "done"

    pay.body = meet

    assert pay.deliver() == []
    assert (pay.runs, seen) == (["k-1"], [True] * 5)
    assert stored(ground.world).status == "completed"


def whoever_was_replaced_settles_nothing(ground: Ground) -> None:
    """While its taker still runs, each write of the one it replaced is refused; then the taker completes."""
    world = ground.world
    takers: list[Claim] = []
    _zombies(world, lambda claim, _: takers.append(claim))
    for taker in takers:
        assert taker.complete(world.clock.now_ms(), "1").status == "completed"


def _counted(starts: list[str], body: Callable[[Context], Any] | None, ctx: Context) -> Any:
    starts.append(ctx.key)
    return body and body(ctx)


def a_response_that_is_lost_is_recognised(ground: Ground) -> None:
    """The claim, the take-over, each end: sent again, the refusal shows our own write; one start, one end."""
    bodies = {
        "claim": (None, "completed"),
        "complete": (None, "completed"),
        "release": (raising(Retry(delay=5)), "failed"),
        "reject": (raising(ValueError("no")), "rejected"),
    }
    for number, (name, (body, status)) in enumerate(bodies.items()):
        post, key = Post(ground.world, reject=(ValueError,)), f"k-{number}"
        starts: list[str] = []
        post.send = partial(_counted, starts, body)
        post.dynamodb.lose_response(name)
        assert post.deliver(key) == ([key] if status == "failed" else [])
        assert (starts, stored(ground.world, key).status) == ([key], status), name
        assert post.dynamodb.names().count(name) == 2, f"{name} was not sent again"


def a_take_over_whose_response_is_lost_is_recognised(ground: Ground) -> None:
    """The same for a stale job."""
    bench = Bench(ground.world)
    bench.crash("claim", "after")
    bench.later()
    post = Post(ground.world)
    starts: list[int] = []
    post.send = lambda ctx: starts.append(ctx.attempt)
    post.dynamodb.lose_response("take_over")

    assert post.deliver() == []
    assert starts == [2]


@on_both
def a_transaction_whose_response_is_lost_is_recognised(ground: Ground) -> None:
    """Completion and outbox in one request: its token says that it was ours, or the records."""
    post = Post(ground.world)
    post.send = lambda ctx: ctx.send(post.ship, {})
    post.dynamodb.lose_response("commit")

    assert post.deliver() == []

    assert post.dynamodb.names().count("commit") == 2
    assert stored(ground.world).status == "completed"
    assert post.entry().status == "sent"
    assert post.consume() == 1
    assert len(post.ran) == 1


def nothing_starts_with_no_time_left(ground: Ground) -> None:
    """0 ms is 0 and not unknown: no record is made, and the message is kept."""
    pay = Pay(ground.world)
    for left in (0, -1, 1):
        message = ground.world.message("pay")
        assert pay.consume(message, context=FakeLambdaContext(left)) == [message["messageId"]]
        assert pay.consume(message, context=Falling(60_000, left)) == [message["messageId"]]
    assert pay.runs == []
    assert ground.world.record("pay", "k-1") is None


def two_messages_of_one_key_are_one_lane(ground: Ground) -> None:
    """In one batch, whatever the concurrency: the second is replayed behind the first, and waits for nothing."""
    for concurrency in (1, 10):
        pay = Pay(ground.world, settings=replace(ground.world.settings, concurrency=concurrency))
        key = f"k-{concurrency}"
        assert pay.deliver(key, key, key) == []
        assert pay.runs == [key]
    assert "job.deferred" not in ground.world.names()


def a_fifo_message_that_comes_again_and_again_runs_once(ground: Ground) -> None:
    """Eight at once, then eight more: FIFO's deduplication is for senders, the claim is for deliveries."""
    pay = Pay(ground.world)
    record = ground.world.message("pay", queue="Ordered.fifo", group="g-1")
    with eager_switching():
        all_at_once([lambda: pay.consume(record)] * 8)
    for _ in range(8):
        assert pay.consume(record) == []
    assert pay.runs == ["k-1"]


def a_completed_job_is_acknowledged_every_time(ground: Ground) -> None:
    """The acknowledgement failed: each later copy is acknowledged too, also with another message id."""
    pay = Pay(ground.world)
    for message_id in ("m-1", "m-1", "m-1", "m-2", "m-3"):
        assert pay.consume(ground.world.message("pay", message_id=message_id)) == []
    assert pay.runs == ["k-1"]


def a_redriven_copy_of_a_completed_job_is_acknowledged(ground: Ground) -> None:
    """A copy with our own note from the dead-letter queue, too: what completed since then stays so."""
    bench = Bench(ground.world, max_attempts=1)
    bench.body = raising(ConnectionError())
    assert not bench.deliver()
    bench.body = lambda _: "done"
    assert not bench.redrive()
    assert bench.record.status == "completed"
    assert not bench.deliver()
    assert len(bench.starts) == 2


def a_duplicate_waits_once_for_the_whole_lease(ground: Ground) -> None:
    """It costs one receive and not many, and no attempt; the message is hidden until the claim can be stale."""
    pay = Pay(ground.world)

    def meet(_: Any) -> None:
        assert pay.deliver() == ["k-1"]

    pay.body = meet
    assert pay.deliver() == []
    [seconds] = pay.sqs.visibility().values()
    assert 61 + SKEW_MS / 1000 <= seconds <= 61 + SKEW_MS / 1000 + 2
    assert stored(ground.world).attempts == 1


def a_lease_covers_the_life_of_its_invocation(ground: Ground) -> None:
    """Whatever time is left, the claim ends after the process; a job outside Lambda renews it."""
    leases: list[float] = []
    pay = Pay(ground.world)
    pay.body = lambda ctx: leases.append(
        (stored(ground.world, ctx.key).lease_expires_at or 0) - ground.world.clock.now_ms()
    )
    times = [21_000, 60_000, 180_000, 900_000]
    for number, left in enumerate(times):
        assert pay.consume(ground.world.message("pay", key=f"k-{number}"), context=FakeLambdaContext(left)) == []
    assert all(lease >= left for lease, left in zip(leases, times, strict=True))


def a_crashed_claim_blocks_nobody_for_longer_than_its_lease(ground: Ground) -> None:
    """No cleaner comes by: the next delivery takes it over, and an expired end is as good as none."""
    bench = Bench(ground.world)
    assert bench.crash("claim", "after")
    assert bench.deliver(), "it waits for the lease"
    bench.later()
    assert not bench.deliver()
    assert bench.starts == [2]
    bench.later(61 * 86_400)
    assert not bench.deliver(), "the record is still there, past its retention"
    assert bench.starts == [2, 1]


def a_claim_is_of_an_attempt_and_not_of_a_worker(ground: Ground) -> None:
    """One process that loses a claim and takes the same job again has another token, and its first one is dead."""
    worker = Worker.of(ground.world)
    first = worker.take()
    pass_lease(ground.world)
    second = worker.take()
    assert first.record.claimant != second.record.claimant
    assert second.record.fencing_token > first.record.fencing_token
    with pytest.raises(ClaimLost):
        first.complete(ground.world.clock.now_ms(), '"first"')
    assert second.complete(ground.world.clock.now_ms(), '"second"').result == '"second"'


@on_both
def eight_at_once_have_one_winner(ground: Ground) -> None:
    """The backends are tested before anything is believed of them: moto behind our lock, and ministack."""
    worker = Worker.of(ground.world)
    with eager_switching():
        for number in range(5):
            answers = all_at_once([partial(worker.ask, f"k-{number}")] * 8)
            assert sum(isinstance(answer, Claim) for answer in answers) == 1


def a_clock_five_minutes_off_breaks_no_record(ground: Ground) -> None:
    """Ahead or behind: a dead claim is taken over by the taker's own clock, once, and then replayed."""
    world = ground.world
    for number, off in enumerate((-300.0, 300.0)):
        key = f"k-{number}"
        Worker.of(world).take(key, fingerprint=None)
        began = stored(world, key).fencing_token
        pay = Pay(world, fingerprint=None)
        watch = Watch(world.clock, off)
        app = world.app(pay.job_type, runtime=runtime_with(world, watch))
        world.clock.advance(LEASE_MS / 1000 + SKEW_MS / 1000 - off if off < 0 else 0)
        for _ in range(2):
            assert kept(app.consumer(event_of(world.message("pay", key=key)), FakeLambdaContext())) == []
        assert pay.runs == [key]
        assert stored(world, key).fencing_token > began


@on_both
def a_process_that_dies_at_every_write_is_recovered(ground: Ground) -> None:
    """Before and after the claim and the completion: one completion, and one downstream key."""
    whens: tuple[When, ...] = ("before", "after")
    for method in ("claim", "complete"):
        for when in whens:
            bench = Bench(ground.world)
            bench.body = partial(_charge, bench)
            assert bench.crash(method, when)
            bench.finish()
            assert bench.record.status == "completed"
            assert len(bench.keys["charge"]) == 1
            # Past its retention, so that the next one is new.
            bench.later(61 * 86_400)


def _charge(bench: Bench, ctx: Context) -> None:
    bench.effect("charge")(ctx.idempotency_key_for("charge"))
