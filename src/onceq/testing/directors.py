"""What several scenarios have: directors, which say what goes wrong at which points, and workers that go in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.testing.points import Move
from onceq.testing.process import MOST_POINTS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from onceq.testing.points import Director, Point
    from onceq.testing.process import Worker
    from onceq.testing.trial import Trial


def dying_in_the_job(trial: Trial) -> Director:
    """Return a director that lets a process die at the first point behind the start of a job."""
    began = len(trial.environment.seen.starts)

    def direct(point: Point) -> Move:
        trial.points.append(point)
        return Move.CRASH if len(trial.environment.seen.starts) > began else Move.PASS

    return direct


def at_effects(trial: Trial, move: Move, *, which: Collection[int] = (), shape: str = "") -> Director:
    """Return a director that makes a move at the effects of these numbers, from 1; at all, if none are given."""
    met = 0

    def direct(point: Point) -> Move:
        nonlocal met
        trial.points.append(point)
        met += point.is_effect and shape in ("", point.shape)
        is_one = point.is_effect and shape in ("", point.shape) and (not which or met in which)
        return move if is_one else Move.PASS

    return direct


def go_in_step(workers: Sequence[Worker]) -> None:
    """Let workers pass one point each in turn, until all are over.

    Raises:
        NeverSettled: If there is no end of points.
    """
    __tracebackhide__ = True
    # As many points together as one worker may come by alone.
    for _ in range(MOST_POINTS // len(workers)):
        for worker in workers:
            worker.go()
        if all(worker.is_over for worker in workers):
            return
    standing = next(worker for worker in workers if not worker.is_over)
    standing.never_settles(f"came by {MOST_POINTS} points together with the others: is it polling?")
