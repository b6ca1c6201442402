"""What a proof asks of what is on trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from contextlib import AbstractContextManager

    from onceq.record import Record
    from onceq.testing.mailbox import Letter
    from onceq.testing.world import Environment


class Tried(Protocol):
    """What is on trial: how its message is sent, and what of the world is its doing."""

    def send(self, environment: Environment, *, other: int = 0) -> Letter:
        """Put its message into the queue; ``other`` is the number of a second job."""

    def is_mine(self, letter: Letter) -> bool:
        """Return whether a message is for it."""

    def passes_on(self, keys: Collection[str]) -> None:
        """Be told the keys of the messages that it sends on."""

    def may_be_dead(self, letter: Letter) -> bool:
        """Return whether its records say why this lies in the dead-letter queue."""

    def remembers(self, items: Sequence[str]) -> bool | None:
        """Return whether anything stands in its own table when it is done; ``None`` if its records say that."""

    def returning(self, result: Any) -> AbstractContextManager[object]:
        """Let its job return this inside the block."""

    def items(self, environment: Environment) -> list[str]:
        """Return the keys of the items that it left in its own table."""

    def records(self, environment: Environment) -> list[Record]:
        """Return its records in the claims table."""

    def texts(self, number: int) -> frozenset[str]:
        """Return the texts in the payload of a job, by its number, that effects are compared with; nothing for none."""

    @property
    def starts_once(self) -> bool:
        """Whether the job as a whole may start at most once."""

    @property
    def most_attempts(self) -> int:
        """After how many crashes to give up on it."""

    @property
    def others(self) -> int:
        """How many second jobs there are to put beside it."""

    @property
    def keys_last(self) -> float | None:
        """Seconds for which the services remember the keys that it gives them; ``None`` for ever."""

    @property
    def sent_again_after(self) -> float:
        """Seconds after which a second send is still the same job."""

    @property
    def stamped(self) -> Collection[str]:
        """The fields of its message that a second send has other values in."""

    @property
    def results(self) -> Sequence[Any]:
        """Results with which to deliver it twice: where the framework stores them, there is nothing to see."""
