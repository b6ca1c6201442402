"""A task that a job made and did not wait for."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import JobType

if TYPE_CHECKING:
    from kit.world import World


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_stray_task_that_exits_does_not_end_everybodys_loop(
    world: World, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """G5: asyncio lets it out of the loop, which goes on for the job itself and for every later one."""
    stray: list[asyncio.Task[None]] = []

    async def leave() -> None:
        raise error

    async def act(payload: dict[str, Any]) -> None:
        if payload["leave"]:
            stray.append(asyncio.create_task(leave()))
        await asyncio.sleep(0)

    app = world.app(JobType(act, "act"))
    batch = [world.message("act", {"leave": each}, key=str(each)) for each in (True, False)]

    with caplog.at_level(logging.ERROR, "onceq"):
        answers = [kept(app.consumer(event_of(message), FakeLambdaContext())) for message in batch]

    assert answers == [[], []]
    assert "loop.interrupted" in caplog.messages
    assert [type(task.exception()) for task in stray] == [error]
