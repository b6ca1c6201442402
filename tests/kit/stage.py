"""Where a scene plays: a queue of its own, the processes that work on it, effects that are counted, and the check."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from kit.clock import FakeLambdaContext
from kit.delivery import Poller, peek
from kit.seams import OneRenewalClock, Seams, SimulatedCrash
from kit.world import create_outbox_table, create_table, queue_settings
from onceq.clock import OpenDeadline
from onceq.record import pk_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from kit.world import World
    from onceq import App, Context
    from onceq.job_type import JobType
    from onceq.record import Record
    from onceq.settings import QueueSettings, Settings

# More than a lease of 60 s, its margin and the clock skew, so that a round later everything stale is stale; more than
# moto's visibility timeout of 30 s; and more than the minute after which the relay's schedule comes.
ROUND_SECONDS = 80
MOST_ROUNDS = 40
STOCK = "stock"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Expected:
    """How the jobs of a scene end, by key, and what else must lie somewhere.

    Args:
        jobs: The final status by key; a rejected or uncertain job must also lie in the dead-letter queue.
        charged: The key of every effect at the provider; each has one downstream key.
        dead: Texts that must be found in a body in the dead-letter queue, each with a note.
        waiting: How many messages stay in the queue.
        once: What may start at most once, by key: the job, or a step of it. Exactly where a death cut it between its
            start and its end the job ends uncertain, and else completed.
        counted: Keys whose transaction counts them: once if the job completed, and else not at all.
        left: How many pieces are left in stock.
        sent: The keys of the jobs that a job sends, by its key: if it completed each is one entry of the outbox, which
            is sent and whose job completes; and else there is none. What a caller sends with writes of its own stands
            under its own key.
        recorded_by: What records an effect. A death before one of these may repeat it.
    """

    jobs: dict[str, str] = field(default_factory=dict)
    charged: Collection[str] = ()
    dead: tuple[str, ...] = ()
    waiting: int = 0
    once: Mapping[str, Literal["job", "step"]] = field(default_factory=dict)
    counted: Collection[str] = ()
    left: int | None = None
    sent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recorded_by: Collection[str] = ("complete", "commit", "release", "reject", "hold")


class Scene:
    """A queue of its own in the world, the processes that work on it, and a provider that counts."""

    def __init__(self, world: World, crash: Any = None) -> None:
        """Make the queue and its dead-letter queue."""
        self.world = world
        self.number = next(_numbers)
        self.seams = Seams(crash)
        self.charges: Counter[str] = Counter()
        # How often what may start at most once was started, without the starts that said that nothing happened.
        self.starts: Counter[str] = Counter()
        self.overlaps: list[str] = []
        self.renewed = threading.Event()
        self.crashes = 0
        self.settings = self._settings("")
        self.process = self.seams.process(world.runtime, self.settings)
        self.app: App | None = None
        self.job_types: tuple[JobType[..., Any], ...] = ()
        # The job type of each key that is not of the first one.
        self.types: dict[str, JobType[..., Any]] = {}
        self.options: dict[str, Any] = {}
        self.most = 10
        self.context: object = "lambda"
        self._goods = ""

    def _settings(self, suffix: str) -> Settings:
        return replace(self.world.settings, queues={"default": self.queue("", suffix)}, concurrency=1)

    def queue(self, name: str, suffix: str = "") -> QueueSettings:
        """Make a queue and its dead-letter queue."""
        queue, dlq = f"Scene{self.number}{name}{suffix}", f"SceneDead{self.number}{name}{suffix}"
        return queue_settings(self.world.sqs, name or "default", queue=queue, dlq=dlq)

    def use_fifo(self) -> None:
        """Work on a FIFO queue."""
        self.settings = self._settings(".fifo")

    def use_own_tables(self) -> None:
        """Work on claims and an outbox of its own, and on goods: a count for each key, and a stock."""
        claims, outbox, self._goods = (f"{name}{self.number}" for name in ("Claims", "Outbox", "Goods"))
        for name in (claims, self._goods):
            create_table(self.world.dynamodb, name)
        create_outbox_table(self.world.dynamodb, outbox)
        self.settings = replace(self.settings, claims_table=claims, outbox_table=outbox)

    def serve(self, *job_types: JobType[..., Any], **options: Any) -> None:
        """Say what the processes serve, and start the first."""
        self.job_types, self.options = job_types, options
        self.start()

    def start(self) -> App:
        """Start a new process."""
        clock = OneRenewalClock(self.world.clock) if self.context is None else None
        self.process = self.seams.process(self.world.runtime, self.settings, clock)
        self.app = self.world.app(*self.job_types, runtime=self.process, **self.options)
        return self.app

    def key(self, name: str = "k") -> str:
        """Return a key that no other scene uses."""
        return f"{name}-{self.number}"

    def charge(self, ctx: Context, effect: str = "charge") -> str:
        """Have the effect: the provider charges once for one downstream key."""
        name = ctx.idempotency_key_for(effect)
        self.charges[f"{ctx.key}/{name}"] += 1
        return name

    def counting(self, key: str, *, first: bool = False) -> dict[str, Any]:
        """Return a write that counts a key, if asked for only the first time."""
        write: dict[str, Any] = {
            "TableName": self._goods,
            "Key": {"pk": {"S": key}},
            "UpdateExpression": "ADD times :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
        return {"Update": write | ({"ConditionExpression": "attribute_not_exists(pk)"} if first else {})}

    def taking(self) -> dict[str, Any]:
        """Return a write that takes a piece of what is in stock, if there is one."""
        write = {
            "TableName": self._goods,
            "Key": {"pk": {"S": STOCK}},
            "UpdateExpression": "ADD times :minus_one",
            "ConditionExpression": "times >= :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}, ":minus_one": {"N": "-1"}},
        }
        return {"Update": write}

    def stock_up(self, pieces: int) -> None:
        """Put so many pieces in stock."""
        self.world.dynamodb.put_item(TableName=self._goods, Item={"pk": {"S": STOCK}, "times": {"N": str(pieces)}})

    def count(self, key: str) -> int:
        """Return how often a key was counted; of the stock, what is left."""
        answer = self.world.dynamodb.get_item(TableName=self._goods, Key={"pk": {"S": key}}, ConsistentRead=True)
        return int(answer["Item"]["times"]["N"]) if "Item" in answer else 0

    def attempt(self, act: Callable[[App], object]) -> bool:
        """Act; return whether the process lived through it. After a death a new process is started."""
        assert self.app is not None
        try:
            act(self.app)
        except SimulatedCrash:
            self.crashes += 1
            self.start()
            return False
        return True

    def insist(self, act: Callable[[App], object]) -> None:
        """Act as a caller that tries again when its process died."""
        while not self.attempt(act):
            pass

    def poll(self, queue: str = "default") -> bool:
        """Deliver once; return whether something was received. A death on the way counts as something."""
        found = 0

        def act(app: App) -> None:
            nonlocal found
            found = Poller.of(app, queue).poll(most=self.most, context=self.context)

        return not self.attempt(act) or found > 0 or self.process.dead

    def poll_beside(self) -> None:
        """Deliver once to another process, while this one is at work."""
        beside = self.seams.process(self.world.runtime, self.settings)
        app = self.world.app(*self.job_types, runtime=beside, **self.options)
        try:
            Poller.of(app).poll(most=1)
        except SimulatedCrash:
            if not beside.dead:
                raise
            self.crashes += 1

    def until_quiet(self, rounds: int = MOST_ROUNDS, queue: str = "default") -> None:
        """Deliver, and let time pass, until queue and outbox are empty or the rounds are over.

        The relay comes whenever time has passed, as its schedule does.
        """
        url = self.settings.queue(queue).url
        for _ in range(rounds):
            if not peek(url) and not self.pending():
                return
            if not self.poll(queue):
                self.world.clock.advance(ROUND_SECONDS)
                if self.pending():
                    self.attempt(lambda app: app.relay(None, FakeLambdaContext()))

    def entries(self) -> list[dict[str, Any]]:
        """Return what stands in the outbox, unwatched."""
        if not self._goods:
            return []
        items: list[dict[str, Any]] = self.world.dynamodb.scan(TableName=self.settings.outbox_table)["Items"]
        return items

    def pending(self) -> bool:
        """Return whether something waits in the outbox."""
        return any(entry["status"]["S"] != "sent" for entry in self.entries())

    def pk(self, key: str) -> str:
        """Return the partition key of a job's record."""
        return pk_of(self.types.get(key, self.job_types[0]).storage_name, key)

    def record(self, key: str) -> Record | None:
        """Read a record, unwatched."""
        store = self.world.runtime.store(OpenDeadline())
        return replace(store, table=self.settings.claims_table).get(self.pk(key))

    def check(self, expected: Expected) -> None:
        """Assert the promises: one completion, one effect, no message lost, what was recorded not repeated."""
        jobs = expected.jobs | {key: self._end_of(key, kind) for key, kind in expected.once.items()}
        jobs |= dict.fromkeys(itertools.chain.from_iterable(self._sent(expected).values()), "completed")
        for key, status in jobs.items():
            record = self.record(key)
            assert record is not None, f"{key} has no record"
            assert record.status == status, f"{key} ended {record.status}: {record.error}"
            completed = self.seams.completed[record.pk]
            assert completed == (status == "completed"), f"{key} was completed {completed} times"
        assert all(self.starts[key] <= 1 for key in expected.once), f"starts: {self.starts}"
        assert not self.overlaps, f"at once: {self.overlaps}"
        self._check_charges(expected, {key for key in expected.once if jobs[key] == "uncertain"})
        self._check_transactions(expected, jobs)
        self._check_messages(expected, jobs)

    def _end_of(self, key: str, kind: str) -> str:
        cut = self.seams.cut_jobs if kind == "job" else self.seams.cut_steps
        return "uncertain" if self.pk(key) in cut else "completed"

    def _check_charges(self, expected: Expected, unknown: Collection[str]) -> None:
        charged = Counter(name.split("/")[0] for name in self.charges)
        must = Counter(expected.charged)
        for key in unknown:
            # Whether it happened is what nobody knows.
            must[key] = charged[key]
        assert charged == +must, f"distinct effects by key: {charged}"
        assert all(charged[key] <= 1 for key in unknown)
        repeated = sum(self.charges.values()) - len(self.charges)
        may = 1 if self._is_between_effect_and_record(expected) else 0
        assert repeated <= may, f"raw calls: {self.charges}"

    def _is_between_effect_and_record(self, expected: Expected) -> bool:
        if self.seams.crash is None or not self.seams.crashed:
            return False
        point = self.seams.crash[0]
        # A renewal runs beside the job, which may have had its effect.
        beside = point.method == "renew" or (point.method == "extend" and self.context is None)
        return (point.method in expected.recorded_by and point.when == "before") or beside

    def _sent(self, expected: Expected) -> dict[str, Sequence[str]]:
        """Return the keys that must have been sent, by the key that they were sent for."""
        return {key: keys for key, keys in expected.sent.items() if self._is_committed(key)}

    def _is_committed(self, key: str) -> bool:
        record = self.record(key)
        return record is not None and record.status == "completed"

    def _check_transactions(self, expected: Expected, jobs: Mapping[str, str]) -> None:
        for key in expected.counted:
            assert self.count(key) == (jobs.get(key) == "completed"), f"{key} was counted {self.count(key)} times"
        if expected.left is not None:
            assert self.count(STOCK) == expected.left, f"{self.count(STOCK)} pieces are left"
        entries = self.entries()
        staged = Counter(entry["idempotency_key"]["S"] for entry in entries)
        assert staged == Counter(itertools.chain.from_iterable(self._sent(expected).values())), f"outbox: {staged}"
        assert not self.pending(), f"not sent: {entries}"

    def _check_messages(self, expected: Expected, jobs: Mapping[str, str]) -> None:
        queue = self.settings.queue("default")
        assert len(peek(queue.url)) == expected.waiting, "messages in the queue"
        dead = peek(queue.dlq_url)
        notes = [json.loads(message.message_attributes["onceq"]["StringValue"]) for message in dead]
        assert all(note["reason"] for note in notes)
        bodies = [message.body for message in dead]
        must = {key: status for key, status in jobs.items() if status in {"rejected", "uncertain"}}
        for text in (*must, *expected.dead):
            assert any(text in body for body in bodies), f"{text} is not in the dead-letter queue: {bodies}"
        for key, status in must.items():
            reasons = {note["reason"] for note in notes if note["key"] == key}
            assert status in reasons, f"{key} is dead for {reasons}"
        if not must and not expected.dead:
            assert not bodies, f"nothing was to be dead: {bodies}"


def once() -> Iterator[int]:
    """Say yes the first time, and no from then on."""
    return itertools.chain([1], itertools.repeat(0))
