"""The parts of one invocation, wired: they share its deadline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceq.consumer import Consumer
from onceq.executor import Executor
from onceq.fetching import Fetcher
from onceq.record import Semantics
from onceq.recovery import Recovery
from onceq.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.attempt import Middleware
    from onceq.catalogue import JobTypes
    from onceq.clock import Deadline
    from onceq.runtime import Runtime
    from onceq.sealing import Sealer
    from onceq.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation of a handler, until its deadline."""

    runtime: Runtime
    deadline: Deadline
    telemetry: Telemetry

    def consumer(self, job_types: JobTypes, sealer: Sealer, middleware: Sequence[Middleware]) -> Consumer:
        """Return what consumes a batch."""
        runtime, deadline = self.runtime, self.deadline
        executor = Executor(
            store=runtime.store(deadline),
            locks=runtime.locks(deadline),
            outbox=runtime.outbox(deadline),
            sealer=sealer,
            settings=runtime.settings,
            deadline=deadline,
            clock=runtime.clock,
            tokens=runtime.tokens,
            telemetry=self.telemetry,
            middleware=middleware,
            loop=runtime.loop,
        )
        fetcher = Fetcher(runtime, job_types, deadline, self.telemetry)
        return Consumer(job_types, runtime.settings, executor, runtime.queue(deadline), self.relay(), fetcher)

    def relay(self) -> Relay:
        """Return what sends the messages of the outbox."""
        runtime, deadline = self.runtime, self.deadline
        outbox, queue = runtime.outbox(deadline), runtime.queue(deadline)
        return Relay(outbox, queue, runtime.settings, deadline, runtime.clock, self.telemetry)

    def recovery(self, job_types: JobTypes) -> Recovery:
        """Return what marks stale claims."""
        runtime, deadline = self.runtime, self.deadline
        store = runtime.store(deadline)
        once = frozenset(one.storage_name for one in job_types if one.semantics is Semantics.AT_MOST_ONCE)
        return Recovery(store, runtime.settings, deadline, runtime.clock, runtime.tokens, self.telemetry, once)
