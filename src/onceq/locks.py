"""A lock saves work and proves nothing: its time may pass while its holder still works, and then two work at once.

What must happen once is protected by its key. A lock is for what would only be a waste: two reports of the same night,
say, whose second would be answered from the first. So the report is a job with a key for each night, and the lock only
keeps another job of the same kind from running beside it.

Locks are items of the claims table, under ``~lock#``, which no job type's name can begin with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onceq.errors import LockBusy, StoreError
from onceq.keys import check_key
from onceq.record import RESERVED, Item, pk_of
from onceq.settings import require
from onceq.store import HELD, UNLOCKED, Refused, Table

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from onceq.clock import Clock

KIND = f"{RESERVED}lock"
# How long an item outlives its lock, for people to look at.
KEPT_S = 86_400
LONGEST_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class LockItem(Item):
    """A lock as it stands in the table.

    Args:
        pk: ``~lock#`` and the name.
        holder: Who holds it: a job's partition key, or a token.
        token: Names one acquisition.
        lease_expires_at: Until when, epoch ms; 0 once it is released.
        expires_at: When the item may go, epoch seconds.
    """

    pk: str
    holder: str
    token: str
    lease_expires_at: int
    expires_at: int

    @property
    def name(self) -> str:
        """The lock's name."""
        return self.pk.removeprefix(f"{KIND}#")

    def until(self, lease_expires_at: int) -> LockItem:
        """Return the lock with another end."""
        # TTL passes over times of more than five years ago, so a released lock keeps the one that it had.
        kept_until = max(self.expires_at, _kept_until(lease_expires_at))
        return replace(self, lease_expires_at=lease_expires_at, expires_at=kept_until)


@dataclass(frozen=True, slots=True)
class Locks(Table):
    """The locks in the claims table."""

    def acquire(
        self, name: str, *, holder: str, token: str, lease_expires_at: int, free_from: int
    ) -> LockItem | Refused[LockItem]:
        """Take a lock.

        Precondition: ``UNLOCKED``. A refusal means that somebody else holds it.

        Args:
            name: Its name.
            holder: Who takes it; the same holder gets it again.
            token: Names this acquisition.
            lease_expires_at: Until when, epoch ms.
            free_from: A lock that ended by then is free: now, less the clock skew, epoch ms.
        """
        lock = LockItem(pk_of(KIND, name), holder, token, lease_expires_at, _kept_until(lease_expires_at))
        return self._put(lock, UNLOCKED, {"holder": holder, "free_from": free_from})

    def extend(self, lock: LockItem, *, lease_expires_at: int) -> LockItem | Refused[LockItem]:
        """Move a lock's end; to 0 releases it.

        Precondition: ``HELD``. A refusal means that it was released, or its time was over and somebody else took it.
        """
        if lease_expires_at == lock.lease_expires_at:
            return lock
        values = {"token": lock.token, "released": 0}
        return self._update(lock, lock.until(lease_expires_at), HELD, values, token="token")


def _kept_until(lease_expires_at: int) -> int:
    return lease_expires_at // 1000 + KEPT_S


def check_seconds(name: object, seconds: object) -> None:
    """Refuse a time that a lock cannot have. Raises: ConfigurationError."""
    good = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= LONGEST_SECONDS
    require(good, f"lock {name!r}: seconds={seconds!r}: give a number above 0, up to {LONGEST_SECONDS}")


class HeldLock:
    """A lock that is held: by a job while it runs, or by the block of `onceq.App.lock`."""

    def __init__(self, locks: Locks, lock: LockItem, clock: Clock, lost: Callable[[str], object]) -> None:
        """Keep the acquisition; ``lost`` is told why a renewal or the release did not happen."""
        self._locks = locks
        self._lock = lock
        self._clock = clock
        self._lost = lost

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._lock.name

    def renew(self, seconds: float) -> bool:
        """Move the lock's end to so many seconds from now; return whether that is written.

        Raises: ConfigurationError, if the number is not above 0 and up to a day.
        """
        check_seconds(self.name, seconds)
        return self.extend(self._clock.now_ms() + int(seconds * 1000))

    def extend(self, lease_expires_at: int) -> bool:
        """Move the lock's end to that time, epoch ms; return whether that is written."""
        try:
            answer = self._locks.extend(self._lock, lease_expires_at=lease_expires_at)
        except StoreError as error:
            self._lost(str(error))
            return False
        if isinstance(answer, Refused):
            taken = answer.seen is not None and answer.seen.token != self._lock.token
            self._lost("its time was over, and somebody else took it" if taken else "it was released, or is gone")
            return False
        self._lock = answer
        return True

    def release(self) -> None:
        """Let others have it at once; a lock that cannot be released ends by itself."""
        self.extend(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def take(
    locks: Locks,
    name: str,
    *,
    holder: str,
    token: str,
    until: int,
    clock: Clock,
    skew_ms: int,
    lost: Callable[[str], object],
) -> HeldLock:
    """Take a lock, or say until when it is taken.

    Args:
        locks: The locks.
        name: The lock's name.
        holder: Who takes it; the same holder gets it again.
        token: Names this acquisition.
        until: When it ends by itself, epoch ms.
        clock: The time.
        skew_ms: By how much the clocks of two holders may differ.
        lost: Told when a renewal or the release did not happen.

    Returns:
        The lock, held.

    Raises:
        LockBusy: If somebody else holds it.
        IdempotencyKeyError: If the name is blank or no text.
        StoreError: If the table did not answer.
    """
    free_from = clock.now_ms() - skew_ms
    answer = locks.acquire(
        check_key(name, "the lock's name"), holder=holder, token=token, lease_expires_at=until, free_from=free_from
    )
    if isinstance(answer, Refused):
        ends = answer.seen.lease_expires_at if answer.seen else clock.now_ms()
        raise LockBusy(name, until=ends + skew_ms)
    return HeldLock(locks, answer, clock, lost)
