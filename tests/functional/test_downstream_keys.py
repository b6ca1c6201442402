"""Downstream keys: the same on every attempt, and none when the service may have forgotten it."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.bench import Bench
from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import Context, Reject, Retry, Semantics, Snooze, job
from onceq.errors import StepUncertain
from onceq.keys import READABLE, key_made_from
from onceq.record import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

LIFETIME = 3_600
FORGOTTEN = "the effect 'charge' may have happened, and its key is older than downstream_key_lifetime"
NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,100}", fullmatch=True) | st.integers(0, 99)
JOBS = st.tuples(st.from_regex(r"[a-z][a-z0-9_.-]{0,99}", fullmatch=True), st.text(min_size=1), NAMES)


def keyed(bench: Bench, first: Callable[[], object] = lambda: None) -> None:
    """Let the job charge with its key, and end its first start in another way after it."""

    def body(ctx: Context) -> None:
        bench.effect("charge")(ctx.idempotency_key_for("charge"))
        if len(bench.starts) == 1:
            first()

    bench.body = body


def raising(error: BaseException) -> Callable[[], object]:
    """Return an end that raises."""

    def end() -> object:
        raise error

    return end


@given(JOBS, JOBS)
def test_keys_that_are_made_of_a_jobs_key_never_meet(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """G8: another job type, key or name makes another key, a number and its digits too; short, and usable as a key."""
    made, others = key_made_from(*one), key_made_from(*other)

    assert (made == others) == (one == other)
    assert made != key_made_from(one[0], one[1], str(one[2]) if isinstance(one[2], int) else 0)
    assert made.startswith(f"{one[1][:READABLE]}.{one[2]}-")
    assert len(made) <= READABLE + 1 + 100 + 1 + 64


@given(st.text(min_size=1), st.integers(2, 30))
def test_a_chain_of_keys_does_not_grow_and_does_not_repeat(key: str, length: int) -> None:
    """G8: a key made of a key made of a key is as long as the first one, and another one every time."""
    chain = [key]
    for _ in range(length):
        chain.append(key_made_from("page", chain[-1], 0))

    assert len(set(chain)) == length + 1
    assert max(map(len, chain[1:])) <= READABLE + 2 + 1 + 64


@pytest.mark.parametrize(
    "end", [raising(ConnectionError()), raising(Retry(1)), raising(Snooze(1)), raising(SystemExit(1))]
)
def test_every_attempt_gets_the_same_key(world: World, end: Callable[[], object]) -> None:
    """G12: the service sees one key however often the effect is attempted."""
    bench = Bench(world)
    keyed(bench, end)

    assert bench.finish() == 2
    assert bench.effects == ["charge", "charge"]
    assert len(bench.keys["charge"]) == 1


def test_a_redrive_and_a_persons_retry_get_the_same_key(world: World) -> None:
    """G12: whoever runs the job again, it is the same effect."""
    bench = Bench(world)
    keyed(bench, raising(Reject("no")))
    assert not bench.deliver()
    bench.app.resolve("pay", "k-1", "retry")
    assert not bench.deliver()

    assert bench.effects == ["charge", "charge"]
    assert len(bench.keys["charge"]) == 1


def test_a_rename_between_two_attempts_keeps_the_key(world: World) -> None:
    """G12: downstream keys use the oldest name, so the release that renames a job does not charge again."""
    seen: list[str] = []

    @job("charge")
    def before(payload: dict[str, Any], ctx: Context) -> None:
        seen.append(ctx.idempotency_key_for("charge"))
        raise ConnectionError

    @job("pay", formerly=("charge",))
    def after(payload: dict[str, Any], ctx: Context) -> str:
        seen.append(ctx.idempotency_key_for("charge"))
        return "paid"

    message = world.message("charge")
    assert kept(world.app(before).consumer(event_of(message), FakeLambdaContext())) != []
    world.clock.advance(60)
    assert kept(world.app(after).consumer(event_of(message), FakeLambdaContext())) == []
    assert len(seen) == 2
    assert len(set(seen)) == 1


def test_two_effects_and_two_jobs_have_keys_of_their_own(world: World) -> None:
    """Two real charges of one customer are two charges."""
    seen: list[str] = []
    bench = Bench(world, lambda ctx: seen.extend(ctx.idempotency_key_for(name) for name in ("charge", "mail")))

    for key in ("o-1", "o-2", "o" * 8_000):
        assert not bench.deliver(key=key)

    assert len(set(seen)) == 6
    assert max(map(len, seen)) <= 255


@pytest.mark.parametrize("lifetime", [LIFETIME, float(LIFETIME), timedelta(hours=1)], ids=repr)
@pytest.mark.parametrize(("late_ms", "is_given"), [(0, True), (1, False)], ids=["at its end", "a millisecond later"])
def test_a_later_attempt_gets_the_key_while_the_service_remembers_it(
    world: World, lifetime: Any, late_ms: int, *, is_given: bool
) -> None:
    """`downstream_key_lifetime` counts from the first claim; after it, the job is uncertain and nothing is called."""
    bench = Bench(world, downstream_key_lifetime=lifetime)
    keyed(bench, raising(ConnectionError()))
    assert bench.deliver()
    bench.later(LIFETIME + late_ms / 1000)

    assert not bench.deliver()
    if is_given:
        assert (bench.record.status, bench.effects) == (Status.COMPLETED, ["charge", "charge"])
        return
    assert (bench.record.status, bench.record.error) == (Status.UNCERTAIN, FORGOTTEN)
    assert (bench.starts, bench.effects) == ([1, 2], ["charge"])
    assert bench.notes()[0]["error"] == FORGOTTEN
    assert not bench.redrive()
    assert bench.effects == ["charge"]


def test_without_a_lifetime_a_key_is_good_for_ever(world: World) -> None:
    """The default: services that never forget."""
    bench = Bench(world)
    keyed(bench, raising(Retry(86_400)))
    assert bench.deliver()
    bench.later(13 * 86_400)

    assert not bench.deliver()
    assert bench.effects == ["charge", "charge"]


def test_the_first_attempt_of_a_long_job_gets_its_key(world: World) -> None:
    """Nobody used the key before, however long the attempt has been running."""

    def body(ctx: Context) -> None:
        bench.later(2 * LIFETIME)
        bench.effect("charge")(ctx.idempotency_key_for("charge"))

    bench = Bench(world, body, downstream_key_lifetime=LIFETIME)

    assert not bench.deliver()
    assert (bench.record.status, bench.effects) == (Status.COMPLETED, ["charge"])


def test_the_time_of_asking_counts_and_not_the_start_of_the_attempt(world: World) -> None:
    """A second attempt that starts in time and comes to its effect too late does not have it."""

    def body(ctx: Context) -> None:
        if ctx.attempt == 2:
            bench.later(LIFETIME)
        bench.effect("charge")(ctx.idempotency_key_for("charge"))
        raise ConnectionError

    bench = Bench(world, body, downstream_key_lifetime=LIFETIME)
    assert bench.deliver()
    bench.later(10)

    assert not bench.deliver()
    assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, ["charge"])


def test_an_attempt_that_died_counts(world: World) -> None:
    """What a dead attempt did is what nobody knows: the taker after the window asks a person."""
    bench = Bench(world, downstream_key_lifetime=LIFETIME)
    keyed(bench, bench.die)
    bench.deliver_dying()
    bench.later(LIFETIME + 1)

    assert not bench.deliver()
    assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, ["charge"])


def test_a_redrive_after_the_window_is_uncertain(world: World) -> None:
    """Attempts begin anew with a redrive; what the service remembers does not."""
    bench = Bench(world, downstream_key_lifetime=LIFETIME)
    keyed(bench, raising(Reject("no")))
    assert not bench.deliver()
    bench.later(LIFETIME + 1)

    assert not bench.redrive()
    assert (bench.record.status, bench.starts, bench.effects) == (Status.UNCERTAIN, [1, 1], ["charge"])


def test_a_snoozed_attempt_counts(world: World) -> None:
    """A snooze uses no attempt, and may have used the key before it."""
    bench = Bench(world, downstream_key_lifetime=LIFETIME)
    keyed(bench, raising(Snooze(LIFETIME + 1)))
    assert bench.deliver()
    bench.later(LIFETIME + 1)

    assert not bench.deliver()
    assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, ["charge"])


def test_a_job_that_was_never_started_gets_its_key(world: World) -> None:
    """A claim that was given back, here since its lock was busy for hours, has used no key: nobody is bothered."""
    bench = Bench(world, downstream_key_lifetime=LIFETIME, lock="till")
    keyed(bench)
    with bench.app.lock("till", seconds=4 * LIFETIME):
        for _ in range(3):
            assert bench.deliver()
            bench.later(LIFETIME)
    assert bench.starts == []

    assert not bench.deliver()
    assert (bench.record.status, bench.starts, bench.effects) == (Status.COMPLETED, [1], ["charge"])


def test_an_attempt_before_the_job_was_given_back_counts(world: World) -> None:
    """Given back after an attempt that had failed: that one may have used the key."""
    bench = Bench(world, downstream_key_lifetime=LIFETIME, lock="till")
    keyed(bench, raising(Snooze(1)))
    assert bench.deliver()
    bench.later(10)
    with bench.app.lock("till", seconds=2 * LIFETIME):
        assert bench.deliver()
        bench.later(LIFETIME)

    assert not bench.deliver()
    assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, ["charge"])


def test_attempts_before_a_redrive_that_was_given_back_count(world: World) -> None:
    """A redrive counts attempts from 0; given back unstarted, the job is still one that may have used its key."""
    bench = Bench(world, downstream_key_lifetime=LIFETIME, lock="till")
    keyed(bench, raising(Reject("no")))
    assert not bench.deliver()
    with bench.app.lock("till", seconds=2 * LIFETIME):
        assert bench.redrive()
        bench.later(LIFETIME + 1)
    assert bench.record.attempts == 0

    assert not bench.deliver()
    assert (bench.record.status, bench.effects) == (Status.UNCERTAIN, ["charge"])


def test_an_effect_whose_step_is_done_may_be_asked_for_at_any_time(world: World) -> None:
    """The key is not used any more: the step answers from its record, and the next effect's own step decides."""

    def body(ctx: Context) -> Any:
        got = ctx.step("charge", bench.effect("charge", "ch_1"), ctx.idempotency_key_for("charge"))
        if ctx.attempt == 1:
            raise ConnectionError
        return got

    bench = Bench(world, body, downstream_key_lifetime=LIFETIME)
    assert bench.deliver()
    bench.later(LIFETIME + 1)

    assert not bench.deliver()
    assert (bench.record.result, bench.effects) == ('"ch_1"', ["charge"])
    assert len(bench.keys["charge"]) == 1


def test_only_the_open_effects_are_uncertain(world: World) -> None:
    """One step is done, the next one's key is forgotten: the person reads which."""

    def body(ctx: Context) -> None:
        ctx.step("charge", bench.effect("charge"), ctx.idempotency_key_for("charge"))
        ctx.step("mail", bench.effect("mail", ConnectionError()), ctx.idempotency_key_for("mail"))

    bench = Bench(world, body, downstream_key_lifetime=LIFETIME)
    assert bench.deliver()
    bench.later(LIFETIME + 1)

    assert not bench.deliver()
    assert bench.effects == ["charge", "mail"]
    assert bench.record.error == FORGOTTEN.replace("charge", "mail")


def test_a_step_without_a_key_may_run_after_the_window(world: World) -> None:
    """Only who asks for a key is told that it is forgotten."""

    def body(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ConnectionError
        return str(ctx.step("look", bench.effect("look", "fine")))

    bench = Bench(world, body, downstream_key_lifetime=LIFETIME)
    assert bench.deliver()
    bench.later(LIFETIME + 1)

    assert not bench.deliver()
    assert bench.record.result == '"fine"'


def test_a_job_that_swallows_that_its_key_is_forgotten_is_uncertain(world: World) -> None:
    """G9: the signal ends the attempt, and every further step of it."""

    def body(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ConnectionError
        for act in (lambda: ctx.idempotency_key_for("charge"), lambda: ctx.step("next", bench.effect("next"))):
            try:
                act()
            except BaseException as error:  # noqa: BLE001 - that is the point
                bench.effects.append(type(error).__name__)
        return "done"

    bench = Bench(world, body, downstream_key_lifetime=LIFETIME)
    assert bench.deliver()
    bench.later(LIFETIME + 1)

    assert not bench.deliver()
    assert bench.effects == [StepUncertain.__name__] * 2
    assert (bench.record.status, bench.record.error) == (Status.UNCERTAIN, FORGOTTEN)


@pytest.mark.parametrize(("waited", "status"), [(LIFETIME, Status.COMPLETED), (LIFETIME + 1, Status.UNCERTAIN)])
def test_a_persons_retry_opens_the_window_anew(world: World, waited: int, status: Status) -> None:
    """The person has made sure that the key may be used again; from then on it counts as before."""
    bench = Bench(world, downstream_key_lifetime=LIFETIME)
    keyed(bench, raising(ConnectionError()))
    assert bench.deliver()
    bench.later(2 * LIFETIME)
    assert not bench.deliver()
    assert bench.record.status == "uncertain"

    bench.app.resolve("pay", "k-1", "retry", reason="the provider has no such charge")
    bench.later(waited)
    assert not bench.deliver()
    assert bench.record.status is status
    assert bench.effects == ["charge"] * (1 + (status is Status.COMPLETED))


def test_a_persons_retry_with_the_step_done_needs_no_key(world: World) -> None:
    """The person found the charge at the provider, and gives its result instead."""

    def body(ctx: Context) -> Any:
        got = ctx.step("charge", bench.effect("charge", ConnectionError()), ctx.idempotency_key_for("charge"))
        return [got, ctx.step("mail", bench.effect("mail"), ctx.idempotency_key_for("mail"))]

    bench = Bench(world, body, downstream_key_lifetime=LIFETIME)
    assert bench.deliver()
    bench.later(2 * LIFETIME)
    assert not bench.deliver()

    bench.app.resolve("pay", "k-1", "retry", steps={"charge": {"id": "ch_1"}})
    assert not bench.deliver()
    assert (bench.record.result, bench.effects) == ('[{"id":"ch_1"},null]', ["charge", "mail"])


def test_a_new_claim_after_the_retention_is_a_first_attempt(world: World) -> None:
    """What was forgotten of the job counts no more: its record is new, and so is its window."""
    bench = Bench(world, downstream_key_lifetime=LIFETIME, retention=timedelta(days=1))
    keyed(bench)
    assert not bench.deliver()
    bench.later(2 * 86_400)

    assert not bench.deliver()
    assert (bench.starts, bench.effects) == ([1, 1], ["charge", "charge"])


def test_an_at_most_once_job_has_keys_too(world: World) -> None:
    """Its own Retry lets it run again; past the window the key is refused to it as to any other job."""
    bench = Bench(world, semantics=Semantics.AT_MOST_ONCE, downstream_key_lifetime=LIFETIME)
    keyed(bench, raising(Retry(LIFETIME + 1)))
    assert bench.deliver()
    bench.later(LIFETIME + 1)

    assert not bench.deliver()
    assert (bench.record.status, bench.record.error) == (Status.UNCERTAIN, FORGOTTEN)


class Effect(StrEnum):
    """The effects of a job, named once."""

    CHARGE = "charge"


class Plain(str, Enum):  # noqa: UP042 - what older code has, and it prints otherwise
    """The same, as it was written before Python 3.11."""

    CHARGE = "charge"


@pytest.mark.parametrize("name", [Effect.CHARGE, Plain.CHARGE], ids=["StrEnum", "str and Enum"])
def test_an_enum_of_strings_is_its_value(name: str) -> None:
    """A refactoring between two attempts must not change the key: that would be a second charge."""
    assert Context("pay", "k-1").idempotency_key_for(name) == Context("pay", "k-1").idempotency_key_for("charge")
