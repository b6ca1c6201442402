"""The ways in which two jobs, with a key each, come after or beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.testing.directors import at_effects, go_in_step
from onceq.testing.points import Move
from onceq.testing.trial import Scenario, Trial

if TYPE_CHECKING:
    from collections.abc import Collection

    from onceq.testing.mailbox import Letter

TWO_JOBS = "two jobs"


def two_jobs(number: int, *, turned: bool = False) -> Scenario:
    """Return the scenario of a job and its second one, by number, one after the other; ``turned``, that one first."""

    def play(trial: Trial) -> None:
        first, second = (number, 0) if turned else (0, number)
        trial.deliver(trial.send(other=first))
        _then(trial, trial.send(other=second))

    told = "two different jobs" if number == 1 else f"two different jobs, in another field ({number})"
    return Scenario(TWO_JOBS, told, play, jobs=2)


def two_jobs_at_once() -> Scenario:
    """Return the scenario of two jobs that start together."""

    def play(trial: Trial) -> None:
        workers = [trial.environment.start(trial.send())[0]]
        second = trial.send(other=1)
        if _may_come(trial, second):
            workers.append(trial.environment.start(second)[0])
        go_in_step(workers)

    return Scenario(TWO_JOBS, "two different jobs at once, in step", play, jobs=2)


def with_one_that_is_done() -> Scenario:
    """Return the scenario of a job in one batch with a duplicate, before it, of one that is done."""

    def play(trial: Trial) -> None:
        done = trial.send()
        trial.deliver(done)
        _then(trial, trial.environment.mailbox.duplicate(done), trial.send(other=1))

    return Scenario(TWO_JOBS, "in one batch behind the duplicate of another job, which is done", play, jobs=2)


def with_one_under_way(number: int) -> Scenario:
    """Return the scenario of a job in one batch with a duplicate, before it, of one whose worker stands at a point."""

    def play(trial: Trial) -> None:
        letter = trial.send()
        first = trial.stand(letter, number)
        _then(trial, trial.environment.mailbox.duplicate(letter), trial.send(other=1))
        first.finish()

    return Scenario(TWO_JOBS, "in one batch behind the duplicate of another job, which is under way", play, jobs=2)


def first_of_two_fails() -> Scenario:
    """Return the scenario of a job whose effects fail, and a second one behind it."""

    def play(trial: Trial) -> None:
        # Not in one batch, whose jobs run at once: which of them comes first is not chosen there.
        trial.environment.deliver(trial.send(), director=at_effects(trial, Move.FAIL))
        _then(trial, trial.send(other=1))

    name = "two different jobs, one after the other, where the first one's effects fail"
    return Scenario(TWO_JOBS, name, play, jobs=2, troubled=True)


def two_jobs_fail(which: Collection[int], told: str) -> Scenario:
    """Return the scenario of two jobs in one batch, where the effects of these numbers fail; all, if none are given."""

    def play(trial: Trial) -> None:
        letters = [trial.send(), trial.send(other=1)]
        trial.environment.deliver(letters, director=at_effects(trial, Move.FAIL, which=which))

    return Scenario(TWO_JOBS, f"two different jobs in one batch, where {told}", play, jobs=2, troubled=True)


def _then(trial: Trial, *letters: Letter) -> None:
    """Deliver in one batch what may come now; the rest comes in its order, when the run is settled."""
    if _may_come(trial, *letters):
        trial.deliver(*letters)


def _may_come(trial: Trial, *letters: Letter) -> bool:
    """Return whether a queue gives these out now: of a FIFO group nothing behind what is hidden."""
    due = trial.environment.mailbox.due()
    return all(letter.group is None or letter in due for letter in letters)
