"""The sweep: claims whose claimants are gone, tables of several pages, and what is told of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kit.claims import record_of, stored
from kit.clock import FakeLambdaContext
from kit.faults import faulty_dynamodb
from kit.world import TABLE
from onceq import recovery
from onceq.record import Status
from onceq.recovery import CURSOR

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from kit.world import World
    from onceq.record import Record


def answer_of(**counts: Any) -> dict[str, Any]:
    """Return what the handler answers: zero where nothing is said, and that it came to the end."""
    return {"scanned": 1, "failed": 0, "uncertain": 0, "lost": 0, "finished": True} | counts


def leave_stale(world: World, *keys: str, **changes: Any) -> list[Record]:
    """Let claims stand whose claimants are gone."""
    now_ms = world.clock.now_ms()
    left = [record_of(Status.PROCESSING, key, **({"lease_expires_at": now_ms - 60_000} | changes)) for key in keys]
    for record in left:
        world.dynamodb.put_item(TableName=TABLE, Item=record.to_item())
    return left


def events(world: World, name: str) -> list[dict[str, Any]]:
    """Return what the events of that name say."""
    return [event.fields() for event in world.events if event.name == name]


def place(world: World) -> Any:
    """Return where the next run begins; ``None`` is the front."""
    item = world.dynamodb.get_item(TableName=TABLE, Key={"pk": {"S": CURSOR}}, ConsistentRead=True).get("Item")
    return json.loads(item["next"]["S"]) if item and item["next"]["S"] else None


class Pages:
    """A table of several pages, and the requests of the sweeps over it."""

    def __init__(
        self, world: World, monkeypatch: pytest.MonkeyPatch, stale: int = 7, page: int = 2, rate: int = 50
    ) -> None:
        """Let so many claims be stale, and read so many items at a time, and so many units a second."""
        monkeypatch.setattr(recovery, "PAGE", page)
        self.world = world
        world.runtime._given = replace(world.settings, recovery_rate=rate)
        self.left = leave_stale(world, *(f"k-{number}" for number in range(stale)))
        self.client = faulty_dynamodb(world.runtime)
        self.context = FakeLambdaContext()

    def run(self) -> dict[str, Any]:
        """Run the sweep, and forget its requests of before."""
        self.client.calls.clear()
        return self.world.app().recovery(None, self.context)

    def starts(self) -> list[Any]:
        """Return where the pages of the last run began."""
        return [call.request.get("ExclusiveStartKey") for call in self.client.calls if call.method == "scan"]

    def versions(self) -> list[int]:
        """Return the versions of the records that were stale: 4, and one more for every mark."""
        return [stored(self.world, record.idempotency_key).version for record in self.left]

    def on_scan(self, number: int, act: Callable[[], object]) -> None:
        """Act before that page is read, from 1 on."""
        count = 0

        def meet(call: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                act()
            return self.client.forward(call)

        self.client.plan("scan", meet, times=number)
