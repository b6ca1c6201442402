"""Ten jobs in one batch; Lambda's time-out ends it in the middle of one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kit.clock import RunningContext
from kit.seams import Seams
from kit.world import event_of, kept
from onceq import Context, job

if TYPE_CHECKING:
    from kit.world import World


class TenInABatch:
    """Ten jobs in one batch, one at a time; the sixth hangs until Lambda kills the process."""

    def __init__(self, world: World, hanging: str = "k-6") -> None:
        """Start the process that will be killed."""
        self.world = world
        self.hanging: str | None = hanging
        self.starts: list[str] = []
        self.charges: Counter[str] = Counter()
        self.seams = Seams()
        self.batch = [f"k-{number}" for number in range(1, 11)]
        self.settings = replace(world.settings, concurrency=1)
        self.process = self.seams.process(world.runtime, self.settings)

    def deliver(self, *, context: RunningContext | None = None) -> list[str]:
        """Deliver the batch; return the keys whose messages are kept. Raises: SimulatedCrash, if it is killed."""

        @job("pay", max_duration=20)
        def pay(payload: dict[str, Any], ctx: Context) -> str:
            self.starts.append(ctx.key)
            self.charges[ctx.idempotency_key_for("charge")] += 1
            if ctx.key == self.hanging:
                self.hanging = None
                self.world.clock.advance(ctx.remaining() + 60)
                self.process.kill()
            return ctx.key

        messages = [self.world.message("pay", key=key, message_id=f"m-{key}") for key in self.batch]
        app = self.world.app(pay, runtime=self.process)
        ids = kept(app.consumer(event_of(*messages), context or RunningContext(self.world.clock, 60)))
        return [message_id.removeprefix("m-") for message_id in ids]

    def restart(self) -> None:
        """Start another process, as Lambda does after a time-out."""
        self.process = self.seams.process(self.world.runtime, self.settings)

    def status(self, key: str) -> str | None:
        """Return where a job stands."""
        record = self.world.record("pay", key)
        return str(record.status) if record is not None else None
