"""The contract of `onceq.locks.Locks`, whatever backend serves it: each clause of each condition alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import NOW, SKEW_MS
from kit.racing import all_at_once, eager_switching
from onceq.clock import OpenDeadline
from onceq.errors import StoreError
from onceq.locks import KEPT_S, LockItem, Locks
from onceq.record import PARTITION_KEY
from onceq.store import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.conftest import Backend

END = NOW + 30_000
LATER = {"trace": {"S": "of a later release"}}
THREADS = 16


@pytest.fixture
def locks(backend: Backend) -> Locks:
    """The locks under test."""
    return Locks(backend.seam, backend.table, OpenDeadline())


def lock_of(name: str, **changes: Any) -> LockItem:
    """Return a lock as somebody holds it."""
    lock = LockItem(f"~lock#{name}", "pay#k-1", "theirs", END, END // 1000 + KEPT_S)
    return replace(lock, **changes)


def stands(backend: Backend, lock: LockItem, **unknown: Any) -> LockItem:
    """Let a lock stand in the table, with attributes that this release does not know."""
    backend.dynamodb.put_item(TableName=backend.table, Item=lock.to_item() | unknown)
    return lock


def acquire(locks: Locks, name: str, **changes: Any) -> LockItem | Refused[LockItem]:
    """Take a lock as another job, now."""
    asked: dict[str, Any] = {
        "holder": "pay#k-2",
        "token": "ours",
        "lease_expires_at": END + 5_000,
        "free_from": NOW - SKEW_MS,
    }
    return locks.acquire(name, **(asked | changes))


def test_a_free_lock_is_written_with_who_holds_it_and_until_when(backend: Backend, locks: Locks) -> None:
    """UNLOCKED, first clause: there is none. The item names one acquisition, and outlives it by a day."""
    name = backend.name()

    lock = acquire(locks, name)

    assert lock == LockItem(f"~lock#{name}", "pay#k-2", "ours", END + 5_000, (END + 5_000) // 1000 + KEPT_S)
    assert backend.item(f"~lock#{name}") == {
        "pk": {"S": f"~lock#{name}"},
        "holder": {"S": "pay#k-2"},
        "token": {"S": "ours"},
        "lease_expires_at": {"N": str(END + 5_000)},
        "expires_at": {"N": str((END + 5_000) // 1000 + KEPT_S)},
    }


def test_its_holder_takes_a_lock_again_under_another_token(backend: Backend, locks: Locks) -> None:
    """UNLOCKED, second clause: a job gets its lock back after a crash, long before its time is over."""
    name = backend.name()
    stands(backend, lock_of(name), **LATER)

    lock = acquire(locks, name, holder="pay#k-1")

    assert isinstance(lock, LockItem)
    assert (lock.holder, lock.token) == ("pay#k-1", "ours")
    assert backend.item(lock.pk) == lock.to_item()


@pytest.mark.parametrize("before", [0, 1, 86_400_000])
def test_a_lock_whose_time_is_over_is_taken(backend: Backend, locks: Locks, before: int) -> None:
    """UNLOCKED, third clause: from its end and the clock skew on it is anybody's."""
    name = backend.name()
    stands(backend, lock_of(name, lease_expires_at=NOW - SKEW_MS - before))

    lock = acquire(locks, name)

    assert isinstance(lock, LockItem)
    assert backend.item(lock.pk) == lock.to_item()


@pytest.mark.parametrize("left", [1, SKEW_MS, SKEW_MS + 1, 86_400_000])
@pytest.mark.parametrize("expires_at", [1, NOW // 1000 + 1])
def test_a_lock_that_somebody_else_holds_refuses_and_shows_it(
    backend: Backend, locks: Locks, left: int, expires_at: int
) -> None:
    """Not a millisecond before; and the time after which the item may go says nothing about the lock."""
    name = backend.name()
    theirs = stands(backend, lock_of(name, lease_expires_at=NOW - SKEW_MS + left, expires_at=expires_at), **LATER)
    before = backend.item(theirs.pk)

    assert acquire(locks, name) == Refused(theirs)
    # Their token is no key to it: it names an acquisition, and not who may take it.
    assert acquire(locks, name, token="theirs") == Refused(theirs)
    assert backend.item(theirs.pk) == before


def test_a_lock_is_taken_once_however_often_the_request_is_sent(backend: Backend, locks: Locks) -> None:
    """G11: the request of a response that was lost, sent again, is the same acquisition."""
    name = backend.name()

    first = acquire(locks, name)

    assert acquire(locks, name) == first
    assert isinstance(first, LockItem)
    assert backend.item(first.pk) == first.to_item()


def test_a_renewal_moves_the_end_and_nothing_else(backend: Backend, locks: Locks) -> None:
    """HELD met: what a later release wrote stays."""
    own = stands(backend, lock_of(backend.name()), **LATER)
    end = END + 7_000

    renewed = locks.extend(own, lease_expires_at=end)

    assert renewed == replace(own, lease_expires_at=end, expires_at=end // 1000 + KEPT_S)
    assert backend.item(own.pk) == renewed.to_item() | LATER
    assert acquire(locks, own.name, free_from=end - 1) == Refused(renewed)


def test_a_release_frees_the_lock_at_once_and_leaves_the_item(backend: Backend, locks: Locks) -> None:
    """The next one, whoever it is and whatever its clock says, takes it; until then the item may be looked at."""
    own = stands(backend, lock_of(backend.name()))

    released = locks.extend(own, lease_expires_at=0)

    assert isinstance(released, LockItem)
    assert released.lease_expires_at == 0
    # TTL passes over times of more than five years ago: an item that could not go would stay for ever.
    assert released.expires_at == own.expires_at
    assert backend.item(own.pk) == released.to_item()
    assert isinstance(acquire(locks, own.name, free_from=1), LockItem)


@pytest.mark.parametrize("end", [0, END + 7_000], ids=["release", "renewal"])
def test_a_lock_of_another_acquisition_is_not_touched(backend: Backend, locks: Locks, end: int) -> None:
    """HELD: a zombie names its own acquisition, so the next holder's lock is neither renewed nor released by it."""
    own = lock_of(backend.name())
    next_one = stands(backend, replace(own, token="next"), **LATER)  # even the same holder's
    before = backend.item(own.pk)

    assert locks.extend(own, lease_expires_at=end) == Refused(next_one)
    assert backend.item(own.pk) == before


@pytest.mark.parametrize("end", [0, END + 7_000], ids=["release", "renewal"])
def test_a_lock_that_is_gone_is_not_made_anew(backend: Backend, locks: Locks, end: int) -> None:
    """HELD: UpdateItem makes an item where there is none; the condition does not let it."""
    own = lock_of(backend.name())

    assert locks.extend(own, lease_expires_at=end) == Refused(None)
    assert backend.item(own.pk) is None


@pytest.mark.parametrize("end", [0, END + 7_000], ids=["release", "renewal"])
def test_a_renewal_or_release_sent_twice_is_our_own(backend: Backend, locks: Locks, end: int) -> None:
    """G11: a response that was lost is not a lock that was lost."""
    own = stands(backend, lock_of(backend.name()))

    first = locks.extend(own, lease_expires_at=end)

    assert isinstance(first, LockItem)
    assert locks.extend(own, lease_expires_at=end) == first
    assert backend.item(own.pk) == first.to_item()


def test_a_renewal_to_the_end_that_it_has_changes_nothing(backend: Backend, locks: Locks) -> None:
    """Twice within a millisecond is no mistake of the holder's."""
    own = stands(backend, lock_of(backend.name()))

    assert locks.extend(own, lease_expires_at=own.lease_expires_at) == own
    assert backend.item(own.pk) == own.to_item()


def test_a_renewal_that_lands_behind_the_release_does_not_take_the_lock_again(backend: Backend, locks: Locks) -> None:
    """A late write changes nothing: a thread that renews may be on its way while the job ends and releases."""
    own = stands(backend, lock_of(backend.name()))
    released = locks.extend(own, lease_expires_at=0)

    assert isinstance(released, LockItem)
    assert locks.extend(own, lease_expires_at=END + 7_000) == Refused(released)
    assert isinstance(acquire(locks, own.name), LockItem)


@pytest.mark.parametrize("name", ["a" * 3_000, "é" * 1_500, "a#b", "~lock#a", " a ", "\U0001f512"])
def test_any_name_is_a_lock_of_its_own(backend: Backend, locks: Locks, name: str) -> None:
    """A name too long for DynamoDB is written as its hash; names that differ only at their ends stay apart."""
    name += backend.name()
    mine = acquire(locks, name)
    other = acquire(locks, f"{name}.", holder="pay#k-3")

    assert isinstance(mine, LockItem)
    assert isinstance(other, LockItem)
    assert mine.pk != other.pk
    assert mine.pk.startswith("~lock#")
    assert backend.item(mine.pk) == mine.to_item()
    assert acquire(locks, name, holder="pay#k-3") == Refused(mine)


def test_one_of_many_racing_acquisitions_wins(backend: Backend, locks: Locks) -> None:
    """At most one holder at a time: sixteen ask at once, one gets it, and the others are shown whose it is."""
    name = backend.name()

    def taking(number: int) -> Callable[[], LockItem | Refused[LockItem]]:
        return lambda: acquire(locks, name, holder=f"pay#k-{number}", token=f"t-{number}")

    with eager_switching():
        answers = all_at_once([taking(number) for number in range(THREADS)])

    (winner,) = [answer for answer in answers if isinstance(answer, LockItem)]
    assert [answer for answer in answers if isinstance(answer, Refused)] == [Refused(winner)] * (THREADS - 1)
    assert backend.item(winner.pk) == winner.to_item()


def test_one_of_many_takes_a_lock_whose_time_is_over(backend: Backend, locks: Locks) -> None:
    """The same where a holder died: the first one moves the end, so the others come too late."""
    name = backend.name()
    stands(backend, lock_of(name, lease_expires_at=NOW - SKEW_MS))

    def taking(number: int) -> Callable[[], LockItem | Refused[LockItem]]:
        return lambda: acquire(locks, name, holder=f"pay#k-{number + 2}", token=f"t-{number}")

    with eager_switching():
        answers = all_at_once([taking(number) for number in range(THREADS)])

    assert len([answer for answer in answers if isinstance(answer, LockItem)]) == 1


def test_a_table_that_is_not_there_is_an_error(locks: Locks) -> None:
    """A mistake of the wiring is a StoreError that says so, and not a lock that is busy."""
    elsewhere = replace(locks, table="onceq-no-such-table")

    with pytest.raises(StoreError, match=r"PutItem was refused.*ResourceNotFound"):
        acquire(elsewhere, "a")
    with pytest.raises(StoreError, match=r"UpdateItem was refused.*ResourceNotFound"):
        elsewhere.extend(lock_of("a"), lease_expires_at=0)


def test_a_lock_is_no_record_of_a_job(backend: Backend, locks: Locks) -> None:
    """Locks stand among the records, under names that no job type can have."""
    lock = acquire(locks, backend.name())

    assert isinstance(lock, LockItem)
    assert PARTITION_KEY == "pk"
    assert lock.pk.startswith("~")
    assert "status" not in (backend.item(lock.pk) or {})
