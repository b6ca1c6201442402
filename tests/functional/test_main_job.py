"""The main job from message to record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.world import event_of, kept
from onceq import Context, job

if TYPE_CHECKING:
    from kit.world import World


def test_a_job_runs_once_and_its_duplicate_is_answered_from_the_stored_result(world: World) -> None:
    """G3: a completed job is never run again; the duplicate is acknowledged."""
    runs: list[str] = []

    @job("greet")
    def greet(payload: dict[str, str], ctx: Context) -> str:
        runs.append(ctx.key)
        return f"Hello {payload['name']}"

    app = world.app(greet)

    first = app.consumer(event_of(world.message("greet", {"name": "Ada"})))
    second = app.consumer(event_of(world.message("greet", {"name": "Ada"})))

    assert (kept(first), kept(second), runs) == ([], [], ["k-1"])
    status = app.lookup(greet, "k-1")
    assert status is not None
    assert (status.status, status.result, status.attempts) == ("completed", "Hello Ada", 1)
    assert world.names().count("job.replayed") == 1
