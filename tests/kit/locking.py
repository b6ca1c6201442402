"""Locks as they stand in the table, locks that somebody else holds, and faults of their requests alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kit.faults import FaultyClient
from kit.world import TABLE
from onceq.clock import OpenDeadline
from onceq.locks import KIND, HeldLock, LockItem
from onceq.record import PARTITION_KEY, pk_of
from onceq.store import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.faults import Call
    from kit.world import World
    from onceq.runtime import Runtime

PREFIX = "~lock#"
# What takes a lock, and what moves its end.
ACQUIRE, EXTEND = "put_item", "update_item"


def stored_lock(world: World, name: str) -> LockItem | None:
    """Read a lock as it stands."""
    key = {PARTITION_KEY: {"S": pk_of(KIND, name)}}
    answer = world.dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True)
    return LockItem.from_item(answer["Item"]) if "Item" in answer else None


def taken_by(world: World, holder: str, name: str, seconds: float) -> LockItem:
    """Let somebody take a lock that is free, under a token of their own."""
    now_ms = world.clock.now_ms()
    answer = world.runtime.locks(OpenDeadline()).acquire(
        name,
        holder=holder,
        token=f"of {holder} at {now_ms}",
        lease_expires_at=now_ms + int(seconds * 1000),
        free_from=now_ms - int(world.settings.clock_skew * 1000),
    )
    assert not isinstance(answer, Refused), answer
    return answer


def holding(world: World, item: LockItem, lost: Callable[[str], object]) -> HeldLock:
    """Hold a lock that was taken."""
    return HeldLock(world.runtime.locks(OpenDeadline()), item, world.clock, lost)


class LockClient(FaultyClient):
    """Faults of the locks' requests alone: the records of jobs are in the same table."""

    def plan(self, name: str, meet: Callable[[Call], Any], *, times: int = 1) -> None:
        """Let ``meet`` answer the next requests of that name that are for a lock."""

        def meet_locks(call: Call) -> Any:
            request = call.request
            pk: str = (request.get("Item") or request["Key"])[PARTITION_KEY]["S"]
            if pk.startswith(PREFIX):
                return meet(call)
            fault.times += 1
            return self.forward(call)

        super().plan(name, meet_locks, times=times)
        fault = self._faults[-1]


def faulty_locks(runtime: Runtime) -> LockClient:
    """Put such a client under a runtime's tables and return it."""
    seam = runtime._dynamodb
    client = LockClient(seam._client)
    seam._client = client
    return client
