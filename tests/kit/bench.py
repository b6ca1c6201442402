"""One job whose body a test gives, delivered by hand; its starts and its effects are counted."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kit import claims
from kit.clock import FakeLambdaContext
from kit.delivery import record_of
from kit.seams import Point, Seams, SimulatedCrash
from kit.world import TABLE, arn_of, event_of, kept
from onceq import Context, job
from onceq.codec import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.seams import Process, When
    from kit.world import World
    from onceq import App, JobType
    from onceq.record import Record, Status

# 60 s of lease, a second of margin, 10 s of skew; and longer than the first back-offs.
PAST_LEASE = 72


def put(world: World, record: Record) -> Record:
    """Let a record stand in the table."""
    world.dynamodb.put_item(TableName=TABLE, Item=record.to_item())
    return record


def left(status: Status, **changes: Any) -> Record:
    """Return a record of `Bench`'s message as it is left for a person: a step is done, another one is open."""
    steps = '{"call":{"started":1},"charge":{"result":"ch_1"}}'
    return claims.record_of(status, **({"steps": steps, "payload_fingerprint": fingerprint({})} | changes))


class Bench:
    """Processes that serve one job type, ``pay``.

    Attributes:
        body: What the job does; it may return a coroutine.
        starts: The attempt number of every start.
        effects: The names of the effects that happened, in order.
        keys: The downstream keys that they were given, by name.
    """

    def __init__(self, world: World, body: Callable[[Context], Any] | None = None, **options: Any) -> None:
        """Start a process.

        Args:
            world: Where.
            body: What the job does.
            options: Those of the job type.
        """
        self.world = world
        self.body = body or (lambda _ctx: None)
        self.starts: list[int] = []
        self.effects: list[str] = []
        self.keys: dict[str, set[str]] = {}
        self._letters: list[dict[str, Any]] = []
        self.job_type = self.job_type_with(**options)
        self.process: Process
        self.app: App
        self.start()

    def job_type_with(self, **options: Any) -> JobType[..., Any]:
        """Return the job type as a release declares it."""

        @job("pay", **({"max_duration": 20} | options))
        def pay(payload: dict[str, Any], ctx: Context) -> Any:
            self.starts.append(ctx.attempt)
            return self.body(ctx)

        return pay

    def release(self, **options: Any) -> None:
        """Deploy another release of the job type, and start it."""
        self.job_type = self.job_type_with(**options)
        self.start()

    def start(self, seams: Seams | None = None) -> None:
        """Start a new process."""
        self.process = (seams or Seams()).process(self.world.runtime)
        self.app = self.world.app(self.job_type, runtime=self.process)

    def die(self) -> None:
        """Kill the process: nothing that it still does reaches the network."""
        self.process.kill()

    def effect(self, name: str, value: Any = None) -> Callable[..., Any]:
        """Return a function that has an effect and returns a value, or raises it."""

        def have(key: str | None = None) -> Any:
            self.effects.append(name)
            if key is not None:
                self.keys.setdefault(name, set()).add(key)
            if isinstance(value, BaseException):
                raise value
            return value

        return have

    def deliver(self, **message: Any) -> bool:
        """Deliver the message; return whether it was kept."""
        return self._consume(self.world.message("pay", **message))

    def deliver_dying(self, **message: Any) -> None:
        """Deliver the message to a process that dies of it, and start a new one."""
        with suppress(SimulatedCrash):
            self.deliver(**message)
        assert self.process.dead, "it did not die"
        self.start()

    def crash(self, method: str, when: When, number: int = 1) -> bool:
        """Deliver to a process that dies at that call of the store; return whether it came so far."""
        seams = Seams((Point("Store", method, when), number))
        self.start(seams)
        with suppress(SimulatedCrash):
            self.deliver()
        self.start()
        return seams.crashed

    def later(self, seconds: float = PAST_LEASE) -> None:
        """Let time pass: longer than a lease, if nothing is said."""
        self.world.clock.advance(seconds)

    def finish(self, rounds: int = 10) -> int:
        """Deliver, and let time pass, until the message is not kept; return how often."""
        for number in range(1, rounds + 1):
            if not self.deliver():
                return number
            self.later(1_000)
        message = f"still kept: {claims.stored(self.world)}"
        raise AssertionError(message)

    def redrive(self) -> bool:
        """Deliver the copy from the dead-letter queue, as a redrive does; return whether it was kept."""
        self._letters += self.world.dead_letters()
        copy = self._letters.pop()
        url = self.world.settings.queue("default").dlq_url
        self.world.sqs.delete_message(QueueUrl=url, ReceiptHandle=copy["ReceiptHandle"])
        return self._consume(record_of(copy, arn_of("JobsQueue")))

    def notes(self) -> list[dict[str, Any]]:
        """Return the notes of what lies in the dead-letter queue."""
        self._letters += self.world.dead_letters()
        return [letter["note"] for letter in self._letters]

    @property
    def record(self) -> Record:
        """The job's record."""
        return claims.stored(self.world)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return what the events of that name say."""
        return [event.fields() for event in self.world.events if event.name == name]

    def _consume(self, record: dict[str, Any]) -> bool:
        return kept(self.app.consumer(event_of(record), FakeLambdaContext())) != []
