"""Points, where something may go wrong, and moves: what happens there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from onceq.testing.given import check_function

if TYPE_CHECKING:
    from onceq.testing.calls import Call

# The last point: the handler has returned, and nobody has heard of it.
ANSWER = "the answer"


class Move(Enum):
    """What happens at a point."""

    PASS = auto()
    CRASH = auto()  # the process dies before it
    CRASH_AFTER = auto()  # it happens, and the process dies
    LOSE = auto()  # a request is applied, or an effect happens, and its response is lost
    FAIL = auto()  # an effect, or a request of the job's own, does not happen: what does it raises


@dataclass(frozen=True, slots=True)
class Point:
    """Where something may go wrong.

    Args:
        what: What is about to happen, in words.
        call: The request, if it is one.
        effect: The effect's name, if it is one, for example ``charge``; ``""`` for a request, and for the answer.
    """

    what: str
    call: Call | None = None
    effect: str = ""

    @property
    def is_effect(self) -> bool:
        """Whether it is an effect."""
        return self.effect != ""

    @property
    def shape(self) -> str:
        """What it is in every run: an effect's name, or a request without what it is about."""
        return self.what if self.call is None else f"{self.call.operation} {self.call.table}"

    @property
    def may_lose(self) -> bool:
        """Whether a response can be lost here after something landed."""
        return self.call is not None and self.call.is_write

    @property
    def may_fail(self) -> bool:
        """Whether it can fail without having happened: an effect, or a request of the job's own."""
        return self.is_effect or (self.call is not None and self.call.own)

    def admits(self, move: Move) -> bool:
        """Return whether a move can be made here: not everything can fail, and the answer has no response."""
        if move is Move.FAIL:
            return self.may_fail
        return move is not Move.LOSE or self.is_effect or self.call is not None


# Where moves can be made that cannot be made everywhere.
ADMITTED = {
    Move.FAIL: "only an effect fails, where point.effect is its name, or a request that the job makes by itself",
    Move.LOSE: "only a request or an effect has a response",
}


class Director(Protocol):
    """Decides what happens at each point that a process comes by: any function of a point that returns a move."""

    def __call__(self, point: Point, /) -> Move:
        """Return what happens there."""


def check_director(given: object) -> None:
    """Raise: ConfigurationError, if nothing can be asked there: a move alone does not say at which points."""
    example = "`lambda point: Move.CRASH if point.effect else Move.PASS`"
    check_function("director", given, f"is asked at every Point and answers with a Move, for example {example}")


def pass_all(_point: Point) -> Move:
    """Direct a process in which nothing goes wrong."""
    return Move.PASS
