"""Two workers whose clocks differ: by no more than the clock skew, and by five minutes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.claims import LEASE_MS, SKEW_MS, request_of, stored
from kit.skew import Watch
from kit.two import Two
from onceq import ClaimLost
from onceq import claim as claims
from onceq.claim import Claim
from onceq.clock import OpenDeadline
from onceq.decision import Busy, Replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

FIVE_MINUTES = 300.0
SKEW = SKEW_MS / 1000
# What a lease of 60 s lasts with its margin: nobody else's until then, and the clock skew.
LEASE = 61.0
# The edges of a claim's life, as others see it, in milliseconds.
EDGES = [0, 1, SKEW_MS, LEASE_MS - SKEW_MS, LEASE_MS - 1, LEASE_MS, LEASE_MS + SKEW_MS - 1, LEASE_MS + SKEW_MS]
SEEDS = st.integers(0, 2**64 - 1)
WHATS = ["deliver"] * 4 + ["complete", "fail", "renew"]
PROPERTY = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def moves_of(seed: int) -> list[tuple[int, int, str]]:
    """Return a history: waits, who acts, and what it does.

    Drawn by a generator of its own, since Hypothesis would vary a few histories and leave most edges out.
    """
    draw = random.Random(seed)
    waits = [draw.choice(EDGES) if draw.random() < 0.7 else draw.randrange(LEASE_MS + SKEW_MS) for _ in range(12)]
    return [(wait, draw.randrange(2), draw.choice(WHATS)) for wait in waits[: draw.randrange(4, 12)]]


@dataclass
class Party:
    """One of the workers that serve a key, with a clock of its own."""

    watch: Watch
    claim: Claim | None = None

    def lives(self, true_ms: int) -> bool:
        """Return whether it holds a claim and is within its lease, by its own clock."""
        return self.claim is not None and true_ms < (self.claim.record.lease_expires_at or 0) - self.watch.off_ms


class Rivals:
    """Two parties on one key, what each move must leave true, and what happened."""

    def __init__(self, world: World, offs: tuple[float, float]) -> None:
        """Start with no record."""
        self.world = world
        self.key = world.tokens.token()
        self.parties = [Party(Watch(world.clock, off)) for off in offs]
        self.fencing = [0]
        self.completed: list[str] = []
        self.overlaps = 0
        self.starts_after_completion = 0

    def play(self, wait_ms: int, who: int, what: str) -> None:
        """Let time pass, and one party act."""
        self.world.clock.advance(wait_ms / 1000)
        party = self.parties[who]
        if what == "deliver" and party.lives(self.world.clock.now_ms()):
            party = self.parties[1 - who]
        if what == "deliver" and not party.lives(self.world.clock.now_ms()):
            self._deliver(party)
        elif what != "deliver" and party.claim is not None:
            self._write(party, party.claim, what)

    def _deliver(self, party: Party) -> None:
        true_ms = self.world.clock.now_ms()
        others = [other for other in self.parties if other is not party and other.lives(true_ms)]
        store = self.world.runtime.store(OpenDeadline())
        asked = request_of(self.key, alone=True, max_attempts=99, retention_s=60 * 86_400)
        answer = claims.claim(store, asked, party.watch, self.world.tokens)
        if isinstance(answer, Claim):
            self.overlaps += len(others)
            self.starts_after_completion += bool(self.completed)
            assert answer.record.fencing_token > self.fencing[-1], "the fencing token did not rise"
            self.fencing.append(answer.record.fencing_token)
            party.claim = answer
        elif isinstance(answer, Replay):
            assert answer.record.result == self.completed[0], "the result is not the one that was completed"
        else:
            assert isinstance(answer, Busy), answer
            differ = abs(self.parties[0].watch.off_ms - self.parties[1].watch.off_ms)
            waits = answer.until - party.watch.now_ms()
            assert 0 < waits <= LEASE_MS + SKEW_MS + differ, "it waits for longer than a lease and both skews"

    def _write(self, party: Party, claim: Claim, what: str) -> None:
        now_ms, before = party.watch.now_ms(), stored(self.world, self.key)
        writes: dict[str, Callable[[], object]] = {
            "complete": lambda: claim.complete(now_ms, f'"{claim.record.claimant}"'),
            "fail": lambda: claim.release(now_ms, not_before=now_ms, error="it failed", counted=True),
            "renew": lambda: claim.renew(now_ms + LEASE_MS),
        }
        is_holder = before.claimant == claim.record.claimant
        try:
            writes[what]()
        except ClaimLost:
            assert stored(self.world, self.key) == before, "a write that was refused changed the record"
            assert not is_holder
        else:
            assert is_holder, "somebody else's record was written"
            self.completed += [f'"{claim.record.claimant}"'] if what == "complete" else []
        if what != "renew" or not is_holder:
            party.claim = None


@PROPERTY
@given(difference=st.sampled_from([0, 0.001, SKEW / 2, SKEW - 0.001, SKEW]), ahead=st.integers(0, 1), seed=SEEDS)
def test_within_the_clock_skew_one_of_two_workers_holds_a_key(
    world: World, difference: float, ahead: int, seed: int
) -> None:
    """G1, G2, G3: claims, renewals, take-overs and ends at every edge of the lease; clocks apart by up to the skew."""
    rivals = Rivals(world, (difference, 0) if ahead == 0 else (0, difference))

    for move in moves_of(seed):
        rivals.play(*move)

    assert rivals.overlaps == 0
    assert rivals.starts_after_completion == 0
    assert len(rivals.completed) <= 1


@PROPERTY
@given(offs=st.tuples(*[st.sampled_from([-FIVE_MINUTES, -30, 0, 30, FIVE_MINUTES])] * 2), seed=SEEDS)
def test_five_minutes_apart_a_job_is_completed_once_and_a_zombie_writes_nothing(
    world: World, offs: tuple[float, float], seed: int
) -> None:
    """G2, G3: whatever the clocks say: one completion, its result for everybody, tokens that rise, refused zombies."""
    rivals = Rivals(world, offs)

    for move in moves_of(seed):
        rivals.play(*move)

    assert rivals.starts_after_completion == 0
    assert len(rivals.completed) <= 1


def test_the_rivals_notice_two_holders(world: World) -> None:
    """The check itself: five minutes apart, and so past the skew, a living claim is taken over, and it is counted."""
    rivals = Rivals(world, (0, FIVE_MINUTES))

    rivals.play(0, 0, "deliver")
    rivals.play(1, 1, "deliver")

    assert rivals.overlaps == 1


@pytest.mark.parametrize("after", [0, 0.001, 10, 59.998])
@pytest.mark.parametrize("offs", [(0, 0), (0, SKEW), (SKEW, 0), (0, SKEW - 0.001), (-SKEW / 2, SKEW / 2)], ids=str)
def test_within_the_skew_a_delivery_waits_while_the_claimant_lives(
    world: World, offs: tuple[float, float], after: float
) -> None:
    """G1, G4: it is kept for as long as the lease and both skews at the most, and replayed when the job is done."""
    two = Two(world, offs)
    two.meet_after(after)

    two.deliver()

    assert (two.starts, two.answers, two.kept) == (["first"], [True], False)
    [seconds] = two.sqs.visibility().values()
    assert LEASE - after - SKEW <= seconds <= LEASE - after + 2 * SKEW + 2
    two.finish()
    assert two.starts == ["first"]
    assert stored(world).result == '"first"'


@pytest.mark.parametrize("offs", [(0, 0), (0, SKEW), (SKEW, 0), (0, -FIVE_MINUTES), (FIVE_MINUTES, 0)], ids=str)
@pytest.mark.parametrize(("early", "starts"), [(0.001, ["first"]), (0, ["first", "second"])])
def test_a_dead_claimant_is_taken_over_to_the_millisecond(
    world: World, offs: tuple[float, float], early: float, starts: list[str]
) -> None:
    """G1, G6: from lease and skew on by the taker's own clock, and not before; so never while the first may live."""
    two = Two(world, offs)
    two.during = two.first.kill

    two.deliver()
    differ = offs[1] - offs[0]
    world.clock.advance(LEASE + SKEW - differ - early)
    two.deliver_to_second()

    assert two.starts == starts
    assert LEASE + SKEW - differ >= 60 or abs(differ) > SKEW
    two.finish()
    assert two.starts == ["first", "second"]
    assert len(two.keys) == 1
