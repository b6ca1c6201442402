"""The ways in which one job's messages may come, and in which its workers may fail. One function makes each.

Where something can go wrong is read from an undisturbed run: every request that it made, every effect that it had, and
the moment before its answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceq.testing.clock import A_DAY
from onceq.testing.directors import at_effects, dying_in_the_job, go_in_step
from onceq.testing.points import ANSWER, Move
from onceq.testing.trial import Scenario, Trial
from onceq.testing.two_jobs import (
    first_of_two_fails,
    two_jobs,
    two_jobs_at_once,
    two_jobs_fail,
    with_one_that_is_done,
    with_one_under_way,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from onceq.testing.points import Point

AT_ONCE = 5
TWICE = "twice"
DEATHS = 3
# Attempts that are all played: a job may have as many as ninety.
MOST_ATTEMPTS = 10
# Longer than any lease and clock skew of a run: a Lambda function ends after 15 minutes at most. A visibility timeout
# may be longer; what is delivered here does not wait for it.
PAST_EVERY_LEASE = 1_000.0
AN_HOUR = 3600.0
IN_ONE = ", in one warm process"


def once(wait: float = 0, *, other: int = 0) -> Scenario:
    """Return the undisturbed run of a job, by its number, ``wait`` seconds after the message was sent."""

    def play(trial: Trial) -> None:
        letter = trial.send(other=other)
        if wait:
            trial.environment.pass_time(wait)
        trial.deliver(letter)

    return Scenario("once", "delivered once", play)


def scenarios_of(
    points: Sequence[Point], *, first: int, keys_last: float | None, most_attempts: int, others: int
) -> Iterator[Scenario]:
    """Return the scenarios of a job whose undisturbed run came by these points.

    Args:
        points: The points.
        first: How many of them its first delivery came by.
        keys_last: Seconds for which the services remember downstream keys; ``None`` for ever.
        most_attempts: After how many crashes the job is given up.
        others: How many second jobs there are.
    """
    yield from _delivered_again()
    for number, point in enumerate(points):
        yield _crash(number, point, Move.CRASH)
        if point.what != ANSWER:
            yield _crash(number, point, Move.CRASH_AFTER)
        if point.may_lose:
            yield _lost(number, point)
    for number, point in enumerate(points[:first]):
        yield _overtaken(number, point, past_lease=False)
        if number:
            yield _overtaken(number, point, past_lease=True)
    for number, point in enumerate(points):
        if point.may_fail:
            yield from _fails(number, point)
        if point.is_effect:
            yield _answer_is_lost(number, point)
            if number < first:
                yield _zombie_fails(number, point)
            yield _retried_as_new_message(number, point)
            yield _sent_again_after_death(number, point)
            yield _retried_a_day_later(number, point, keys_last)
            if most_attempts > DEATHS:
                yield _dies_again(point)
            yield _always_fails(point, most_attempts)
            if 1 < most_attempts <= MOST_ATTEMPTS:
                yield _succeeds_at_last(point, most_attempts)
    yield _at_once()
    # Where it is not known where the effect is, behind the first request, which mostly claims.
    at_work = min(next((n for n, point in enumerate(points[:first]) if point.is_effect), 1), first - 1)
    yield _slow(at_work)
    yield _come_back_early(points)
    yield _redriven()
    yield two_jobs_at_once()
    first_two, *further = [two_jobs(number) for number in range(1, others + 1)]
    yield from (first_two, *further)
    yield replace(first_two, name=f"{first_two.name}{IN_ONE}", warm=True, cold=first_two)
    yield with_one_that_is_done()
    yield with_one_under_way(at_work)
    yield first_of_two_fails()
    yield two_jobs_fail((), "every effect fails")
    yield two_jobs_fail((1,), "the first effect fails")
    yield two_jobs_fail((2,), "the second effect fails")


def _delivered_again() -> Iterator[Scenario]:
    def twice(trial: Trial) -> None:
        letter = trial.send()
        trial.deliver(letter)
        trial.redeliver(letter)

    def as_new_message(trial: Trial) -> None:
        letter = trial.send()
        trial.deliver(letter)
        trial.deliver(trial.environment.mailbox.duplicate(letter))

    def in_one_batch(trial: Trial) -> None:
        letter = trial.send()
        trial.deliver(letter, trial.environment.mailbox.duplicate(letter))

    cold = Scenario(TWICE, "delivered twice, one after the other", twice)
    yield cold
    yield replace(cold, name=f"{cold.name}{IN_ONE}", warm=True, cold=cold)
    yield Scenario(TWICE, "delivered again under a new message id", as_new_message)
    yield Scenario("batch", "in a batch with its duplicate", in_one_batch)


def sent_again(seconds: float, stamped: Collection[str] = ()) -> Scenario:
    """Return the scenario of a producer that sends its job a second time, and fills these fields anew."""

    def play(trial: Trial) -> None:
        trial.deliver(trial.send())
        trial.environment.pass_time(seconds)
        trial.deliver(trial.send())

    others = f", with another {' and '.join(stamped)}" if stamped else ""
    return Scenario(TWICE, f"sent a second time, {_told(seconds)} later{others}", play)


def _told(seconds: float) -> str:
    return f"{seconds / 3600:.0f} hours" if seconds >= AN_HOUR else f"{seconds:.0f} s"


def _crash(number: int, point: Point, move: Move) -> Scenario:
    when = "before" if move is Move.CRASH else "after"

    def play(trial: Trial) -> None:
        trial.deliver(trial.send(), moves=trial.plan(number, point, move))

    return Scenario("crash", f"crashed {when}: {point.what}", play, troubled=True)


def _lost(number: int, point: Point) -> Scenario:
    def play(trial: Trial) -> None:
        trial.deliver(trial.send(), moves=trial.plan(number, point, Move.LOSE))

    return Scenario("lost", f"the response is lost: {point.what}", play, troubled=True)


def _overtaken(number: int, point: Point, *, past_lease: bool) -> Scenario:
    def play(trial: Trial) -> None:
        letter = trial.send()
        first = trial.stand(letter, number)
        if past_lease:
            trial.environment.pass_time(PAST_EVERY_LEASE)
        trial.redeliver(letter)
        first.finish()

    if past_lease:
        name = f"taken over while the first stands before: {point.what}"
        return Scenario("zombie", name, play, troubled=True)
    return Scenario("at once", f"delivered while the first stands before: {point.what}", play)


def _fails(number: int, point: Point) -> Iterator[Scenario]:
    def play(trial: Trial) -> None:
        trial.deliver(trial.send(), moves=trial.plan(number, point, Move.FAIL))

    cold = Scenario("failure", f"{point.what} fails the first time", play, troubled=True)
    yield cold
    # Where a handler raised or kept a message, Lambda keeps its process: so mostly the retry comes to a warm one.
    if point.is_effect or point.may_lose:
        yield replace(cold, name=f"{cold.name}{IN_ONE}", warm=True, cold=cold)


def _answer_is_lost(number: int, point: Point) -> Scenario:
    def play(trial: Trial) -> None:
        trial.deliver(trial.send(), moves=trial.plan(number, point, Move.LOSE))

    return Scenario("failure", f"{point.what} happens, its answer is lost", play, troubled=True)


def _zombie_fails(number: int, point: Point) -> Scenario:
    def play(trial: Trial) -> None:
        letter = trial.send()
        zombie = trial.stand(letter, number)
        trial.environment.pass_time(PAST_EVERY_LEASE)
        trial.redeliver(letter)
        trial.plan(number, point, Move.FAIL)
        if zombie.point is not None and zombie.point.shape == point.shape:
            trial.made.add(number)
            zombie.go(Move.FAIL)
        zombie.finish()

    return Scenario("zombie", f"taken over, then the first one's {point.what} fails", play, troubled=True)


def _retried_as_new_message(number: int, point: Point) -> Scenario:
    def play(trial: Trial) -> None:
        letter = trial.send()
        trial.deliver(letter, moves=trial.plan(number, point, Move.CRASH_AFTER))
        trial.drain_until_made()
        trial.environment.pass_time(PAST_EVERY_LEASE)
        trial.deliver(trial.environment.mailbox.replace(letter))
        trial.settle()
        # Of a job with one attempt, which is given up by now.
        _redrive(trial)

    return Scenario("crash", f"crashed after {point.what}, then a new message id", play, troubled=True)


def _sent_again_after_death(number: int, point: Point) -> Scenario:
    def play(trial: Trial) -> None:
        trial.deliver(trial.send(), moves=trial.plan(number, point, Move.CRASH_AFTER))
        trial.drain_until_made()
        trial.environment.pass_time(PAST_EVERY_LEASE)
        trial.deliver(trial.send())

    return Scenario("crash", f"crashed after {point.what}, then sent a second time", play, troubled=True)


def _retried_a_day_later(number: int, point: Point, keys_last: float | None) -> Scenario:
    seconds = A_DAY if keys_last is None else min(A_DAY, max(PAST_EVERY_LEASE, keys_last - 600))

    def play(trial: Trial) -> None:
        trial.deliver(trial.send(), moves=trial.plan(number, point, Move.CRASH_AFTER))
        trial.drain_until_made()
        trial.environment.pass_time(seconds)

    name = f"crashed after {point.what}, and retried {seconds / 3600:.0f} hours later"
    return Scenario("crash", name, play, troubled=True)


def _at_once() -> Scenario:
    def play(trial: Trial) -> None:
        letter = trial.send()
        letters = [letter, *(trial.environment.mailbox.duplicate(letter) for _ in range(AT_ONCE - 1))]
        workers = [trial.environment.start(one)[0] for one in letters]
        go_in_step(workers)

    return Scenario("at once", f"{AT_ONCE} workers at once, in step", play)


def _slow(number: int) -> Scenario:
    """Let the message come again while the first worker takes most of the time that it has."""

    def play(trial: Trial) -> None:
        letter = trial.send()
        first = trial.stand(letter, number)
        trial.environment.pass_time(0.9 * trial.environment.mailbox.timeout_of(trial.home))
        trial.redeliver(letter)
        first.finish()

    return Scenario("at once", "delivered while the first is slow, but within its time", play)


def _come_back_early(points: Sequence[Point]) -> Scenario:
    number = min(1, len(points) - 1)

    def play(trial: Trial) -> None:
        letter = trial.send()
        trial.deliver(letter, moves=trial.plan(number, points[number], Move.CRASH))
        # The queue gives it back before the lease is over: it has to wait, not to run and not to be lost.
        trial.redeliver(letter)

    return Scenario("stale", "crashed, and redelivered before its lease is over", play, troubled=True)


def _redriven() -> Scenario:
    def play(trial: Trial) -> None:
        environment = trial.environment
        letter = trial.send()
        for _ in range(trial.tried.most_attempts + 1):
            if letter not in environment.mailbox.letters:
                break
            environment.deliver(letter, director=dying_in_the_job(trial))
            environment.pass_time(PAST_EVERY_LEASE)
        if letter in environment.mailbox.letters:
            # As the queue's own redrive policy does with what nobody ends.
            letter.place = environment.mailbox.place_of(letter.place.dlq_arn)
        _redrive(trial)

    return Scenario("redrive", "crashed at every attempt, and redriven from the dead-letter queue", play, troubled=True)


def _redrive(trial: Trial) -> None:
    mailbox = trial.environment.mailbox
    home = mailbox.place_of(trial.home)
    for dead in trial.environment.dead_letters():
        mailbox.redrive(dead.place, home)


def _dies_again(point: Point) -> Scenario:
    def play(trial: Trial) -> None:
        letter = trial.send()
        for _ in range(DEATHS):
            if letter in trial.environment.mailbox.letters:
                director = at_effects(trial, Move.CRASH_AFTER, which=(1,), shape=point.shape)
                trial.environment.deliver(letter, director=director)
                trial.environment.pass_time(PAST_EVERY_LEASE)

    return Scenario("crash", f"crashed after {point.what}, {DEATHS} times", play, troubled=True)


def _always_fails(point: Point, most_attempts: int) -> Scenario:
    """Let the effect fail at each attempt, or at many: given up is the job then, and never completed."""

    def play(trial: Trial) -> None:
        _fails_so_often(trial, point, min(most_attempts, MOST_ATTEMPTS))

    name = f"{point.what} fails at every attempt"
    return Scenario("failure", name, play, troubled=True, hopeless=most_attempts <= MOST_ATTEMPTS)


def _succeeds_at_last(point: Point, most_attempts: int) -> Scenario:
    """Let the effect fail at each attempt but the last."""

    def play(trial: Trial) -> None:
        _fails_so_often(trial, point, most_attempts - 1)

    return Scenario("failure", f"{point.what} fails at every attempt but the last", play, troubled=True)


def _fails_so_often(trial: Trial, point: Point, times: int) -> None:
    letter = trial.send()
    for _ in range(times):
        if letter in trial.environment.mailbox.letters:
            director = at_effects(trial, Move.FAIL, shape=point.shape)
            trial.environment.deliver(letter, director=director)
            trial.environment.pass_time(PAST_EVERY_LEASE)
