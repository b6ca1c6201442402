"""Two workers of one job, each with a clock of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kit.clock import RunningContext
from kit.seams import Seams, SimulatedCrash
from kit.skew import Watch, process_with, runtime_with
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq import App, JobType


class Two:
    """Two workers of one job type, ``pay``, on one key: the first delivers, and while its job runs the second does.

    Attributes:
        starts: Whose job started, in order.
        keys: The downstream keys that the provider was given.
        answers: What the second worker's deliveries kept.
        kept: Whether the first one's message was kept.
    """

    def __init__(self, world: World, offs: tuple[float, float], **options: Any) -> None:
        """Give each a process with a clock of its own."""
        self.world = world
        self.watches = [Watch(world.clock, off) for off in offs]
        self.starts: list[str] = []
        self.keys: set[str] = set()
        self.answers: list[bool] = []
        self.kept = True
        self.sqs = FakeSqs()
        self.during: Callable[[], object] = lambda: None
        self.seams = Seams()
        self._options = {"max_duration": 20} | options
        first = process_with(world, self.watches[0], self.seams)
        self.first = first
        self._apps = [self._app("first", first), self._app("second", None)]

    def job_type(self, who: str) -> JobType[..., Any]:
        """Return the job type as that worker runs it."""

        @job("pay", **self._options)
        def pay(payload: dict[str, Any], ctx: Context) -> str:
            self.starts.append(who)
            self.keys.add(ctx.idempotency_key_for("charge"))
            if who == "first" and self.starts.count("first") == 1:
                self.during()
            return who

        return pay

    def _app(self, who: str, process: Any) -> App:
        runtime = process or SpiedRuntime(runtime_with(self.world, self.watches[1]), self.sqs)
        return self.world.app(self.job_type(who), runtime=runtime)

    def deliver(self) -> None:
        """Deliver to the first; it may die."""
        context = RunningContext(self.world.clock, 60)
        try:
            answer = self._apps[0].consumer(event_of(self.world.message("pay", message_id="m-1")), context)
        except SimulatedCrash:
            return
        self.kept = kept(answer) != []

    def deliver_to_second(self) -> bool:
        """Deliver the message to the second; return whether it was kept."""
        context = RunningContext(self.world.clock, 60)
        record = self.world.message("pay", message_id="m-1")
        self.answers.append(kept(self._apps[1].consumer(event_of(record), context)) != [])
        return self.answers[-1]

    def meet_after(self, seconds: float) -> None:
        """Let so much time pass while the first one's job runs, and deliver to the second."""

        def meet() -> None:
            self.world.clock.advance(seconds)
            self.deliver_to_second()

        self.during = meet

    def finish(self) -> None:
        """Deliver to the second until the message is acknowledged."""
        for _ in range(20):
            if not self.deliver_to_second():
                return
            self.world.clock.advance(60)
        message = f"still kept: {self.world.record('pay', 'k-1')}"
        raise AssertionError(message)
