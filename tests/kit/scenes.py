"""Short histories of a job, each with what must be true at its end however often a process died on the way."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kit.clock import FakeLambdaContext
from kit.delivery import Poller, peek
from kit.seams import OneRenewalClock, Seams, SimulatedCrash
from kit.world import queue_settings
from onceq import Context, Entry, Reject, Snooze, job
from onceq.clock import OpenDeadline
from onceq.job_type import JobType
from onceq.record import Semantics, pk_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kit.seams import When
    from kit.world import World
    from onceq import App
    from onceq.record import Record
    from onceq.settings import Settings

# More than a lease of 60 s, its margin and the clock skew, so that a round later everything stale is stale; and more
# than moto's visibility timeout of 30 s.
ROUND_SECONDS = 80
MOST_ROUNDS = 40
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Expected:
    """How the jobs of a scene end, by key, and what else must lie somewhere.

    Args:
        jobs: The final status by key; a rejected or uncertain job must also lie in the dead-letter queue.
        charged: The keys whose effect happens; each exactly one downstream key.
        dead: Texts that must be found in a body in the dead-letter queue, each with a note.
        waiting: How many messages stay in the queue.
    """

    jobs: dict[str, str]
    charged: set[str]
    dead: tuple[str, ...] = ()
    waiting: int = 0


class Scene:
    """A queue of its own in the world, the processes that work on it, and a provider that counts."""

    def __init__(self, world: World, crash: Any = None) -> None:
        """Make the queue and its dead-letter queue."""
        self.world = world
        self.number = next(_numbers)
        self.seams = Seams(crash)
        self.charges: Counter[str] = Counter()
        self.renewed = threading.Event()
        self.crashes = 0
        self.settings = self._settings("")
        self.process = self.seams.process(world.runtime, self.settings)
        self.app: App | None = None
        self.job_types: tuple[JobType[..., Any], ...] = ()
        self.options: dict[str, Any] = {}
        self.most = 10
        self.context: object = "lambda"

    def _settings(self, suffix: str) -> Settings:
        made = queue_settings(
            self.world.sqs, "default", queue=f"Scene{self.number}{suffix}", dlq=f"SceneDead{self.number}{suffix}"
        )
        return replace(self.world.settings, queues={"default": made}, concurrency=1)

    def use_fifo(self) -> None:
        """Work on a FIFO queue."""
        self.settings = self._settings(".fifo")

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

    def charge(self, ctx: Context) -> str:
        """Have the effect: the provider charges once for one downstream key."""
        name = ctx.idempotency_key_for("charge")
        self.charges[f"{ctx.key}/{name}"] += 1
        return name

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

    def poll(self) -> bool:
        """Deliver once; return whether something was received. A death on the way counts as something."""
        found = 0

        def act(app: App) -> None:
            nonlocal found
            found = Poller.of(app).poll(most=self.most, context=self.context)

        return not self.attempt(act) or found > 0 or self.process.dead

    def until_quiet(self, rounds: int = MOST_ROUNDS) -> None:
        """Deliver, and let time pass, until the queue is empty or the rounds are over."""
        url = self.settings.queue("default").url
        for _ in range(rounds):
            if not peek(url):
                return
            if not self.poll():
                self.world.clock.advance(ROUND_SECONDS)

    def record(self, key: str, job_type: str | None = None) -> Record | None:
        """Read a record, unwatched."""
        name = job_type or self.job_types[0].storage_name
        return self.world.runtime.store(OpenDeadline()).get(pk_of(name, key))

    def check(self, expected: Expected) -> None:
        """Assert the promises: one completion, one effect, no message lost, what was recorded not repeated."""
        for key, status in expected.jobs.items():
            record = self.record(key)
            assert record is not None, f"{key} has no record"
            assert record.status == status, f"{key} ended {record.status}: {record.error}"
            landed = self.seams.landed[record.pk, "complete"]
            assert landed == (status == "completed"), f"{key} was completed {landed} times"
        charged = Counter(name.split("/")[0] for name in self.charges)
        assert charged == Counter(expected.charged), f"distinct effects by key: {charged}"
        repeated = sum(self.charges.values()) - len(self.charges)
        assert repeated <= (1 if self._is_between_effect_and_record() else 0), f"raw calls: {self.charges}"
        self._check_messages(expected)

    def _is_between_effect_and_record(self) -> bool:
        # A renewal runs beside the job, which may have had its effect; the other three end an attempt.
        if self.seams.crash is None or not self.seams.crashed:
            return False
        point = self.seams.crash[0]
        ends = point.method in {"complete", "release", "reject"} and point.when == "before"
        return ends or point.method == "renew"

    def _check_messages(self, expected: Expected) -> None:
        queue = self.settings.queue("default")
        assert len(peek(queue.url)) == expected.waiting, "messages in the queue"
        dead = peek(queue.dlq_url)
        notes = [json.loads(message.message_attributes["onceq"]["StringValue"]) for message in dead]
        assert all(note["reason"] for note in notes)
        bodies = [message.body for message in dead]
        must = [key for key, status in expected.jobs.items() if status in {"rejected", "uncertain"}]
        for text in (*must, *expected.dead):
            assert any(text in body for body in bodies), f"{text} is not in the dead-letter queue: {bodies}"
        if not must and not expected.dead:
            assert not bodies, f"nothing was to be dead: {bodies}"


def _once() -> Iterator[int]:
    """Say yes the first time, and no from then on."""
    return itertools.chain([1], itertools.repeat(0))


def charging(scene: Scene, **options: Any) -> JobType[..., Any]:
    """Return a job type that charges and returns the charge."""

    @job("charge", **options)
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        return scene.charge(ctx)

    return charge


def new_job(scene: Scene) -> Expected:
    """One job, and its caller asks for the outcome."""
    charge, key = charging(scene), scene.key()
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {"a": 1}, key=key))
    scene.until_quiet()
    scene.insist(lambda app: app.lookup(charge, key))
    return Expected({key: "completed"}, {key})


def many_jobs(scene: Scene) -> Expected:
    """A batch sent at once and delivered at once."""
    charge, keys = charging(scene), [scene.key(name) for name in "abc"]
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue_many([Entry(charge, {"key": key}, key=key) for key in keys]))
    scene.until_quiet()
    return Expected(dict.fromkeys(keys, "completed"), set(keys))


def duplicate(scene: Scene) -> Expected:
    """One job sent twice, delivered one message at a time."""
    charge, key = charging(scene), scene.key()
    scene.serve(charge)
    scene.most = 1
    for _ in range(2):
        scene.insist(lambda app: app.enqueue(charge, {"a": 1}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def retried(scene: Scene) -> Expected:
    """A job whose provider fails once before it charges."""
    failures, key = _once(), scene.key()

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if next(failures):
            raise ConnectionError
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def snoozed(scene: Scene) -> Expected:
    """A job with a single attempt that asks once to run later."""
    early, key = _once(), scene.key()

    @job("charge", max_attempts=3)
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if next(early):
            raise Snooze(30)
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def rejected(scene: Scene) -> Expected:
    """A job that the function rejects, and a duplicate of it."""
    key = scene.key()

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> None:
        raise Reject("amount must be positive")

    scene.serve(charge)
    scene.most = 1
    for _ in range(2):
        scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "rejected"}, set())


def used_up(scene: Scene) -> Expected:
    """A job that fails in each of its attempts."""
    key = scene.key()

    @job("charge", max_attempts=2)
    def charge(payload: dict[str, Any], ctx: Context) -> None:
        raise ConnectionError

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "rejected"}, set())


def key_reuse(scene: Scene) -> Expected:
    """A second job under the key of the first, with another payload."""
    charge, key = charging(scene), scene.key()
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {"amount": 1}, key=key))
    scene.until_quiet()
    scene.insist(lambda app: app.enqueue(charge, {"amount": 9_999}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key}, dead=("9999",))


def stale(scene: Scene) -> Expected:
    """A job whose first claimant dies before its effect, beside one that does not."""
    deaths, keys = _once(), [scene.key("dies"), scene.key("good")]

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if ctx.key == keys[0] and next(deaths):
            scene.process.kill()
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue_many([Entry(charge, {}, key=key) for key in keys]))
    scene.until_quiet()
    return Expected(dict.fromkeys(keys, "completed"), set(keys))


def killer(scene: Scene) -> Expected:
    """A job that kills its process every time: a taker that finds no attempt left ends it."""
    key = scene.key()

    @job("charge", max_attempts=2)
    def charge(payload: dict[str, Any], ctx: Context) -> None:
        scene.process.kill()

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "rejected"}, set())


def held(scene: Scene) -> Expected:
    """An at-most-once job that fails after it began: it waits for a person."""
    key = scene.key()

    def run(payload: dict[str, Any], ctx: Context) -> None:
        raise ConnectionError

    charge = JobType(run, "charge", semantics=Semantics.AT_MOST_ONCE)
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "uncertain"}, set())


def held_by_a_taker(scene: Scene) -> Expected:
    """An at-most-once job whose claimant dies: the next delivery leaves it to a person."""
    key = scene.key()

    def run(payload: dict[str, Any], ctx: Context) -> None:
        scene.process.kill()

    charge = JobType(run, "charge", semantics=Semantics.AT_MOST_ONCE)
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "uncertain"}, set())


def not_json(scene: Scene) -> Expected:
    """A body that is not JSON."""
    scene.serve(charging(scene))
    scene.world.sqs.send_message(QueueUrl=scene.settings.queue("default").url, MessageBody="<order/>")
    scene.until_quiet()
    return Expected({}, set(), dead=("<order/>",))


def renewed(scene: Scene) -> Expected:
    """A job outside Lambda, whose lease is renewed once while it runs."""
    key = scene.key()

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        # An attempt whose renewal died with its process waits for nothing: the event is set by any renewal.
        assert scene.renewed.wait(30)
        return scene.charge(ctx)

    def watch(method: str, when: When) -> None:
        renewal = scene.seams.crash is not None and scene.seams.crash[0].method == "renew"
        if method == "renew" and (when == "after" or renewal):
            scene.renewed.set()

    scene.seams.watch = watch
    scene.context = None
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def given_back(scene: Scene) -> Expected:
    """A job whose time runs short while it is claimed: it is given back as never started."""
    charge, key, short, context = charging(scene, max_attempts=3), scene.key(), _once(), FakeLambdaContext()

    def watch(method: str, when: When) -> None:
        if method == "receive":
            context.remaining_ms = 60_000
        if (method, when) == ("claim", "after") and next(short):
            context.remaining_ms = 0

    scene.seams.watch = watch
    scene.context = context
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def ordered(scene: Scene) -> Expected:
    """A FIFO group whose head fails once.

    The order is asserted elsewhere: moto 5.2 delivers the rest of a group while its head is invisible.
    """
    failures, keys = _once(), [scene.key("1st"), scene.key("2nd")]

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if ctx.key == keys[0] and next(failures):
            raise ConnectionError
        return scene.charge(ctx)

    scene.use_fifo()
    scene.serve(charge)
    for key in keys:
        scene.insist(lambda app, key=key: app.enqueue(charge, {}, key=key, group="g"))  # type: ignore[misc]
    scene.until_quiet()
    return Expected(dict.fromkeys(keys, "completed"), set(keys))


def redriven(scene: Scene) -> Expected:
    """A job that was rejected, and a person redrives our copy of it after the cause is gone."""
    key, url = scene.key(), scene.settings.queue("default").url
    broken = [True]

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if broken:
            raise Reject("the account is closed")
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    broken.clear()
    scene.world.clock.advance(ROUND_SECONDS)
    dlq = scene.settings.queue("default").dlq_url
    copies = scene.world.dead_letters(dlq.rsplit("/", 1)[-1])
    for copy in copies:
        scene.world.sqs.delete_message(QueueUrl=dlq, ReceiptHandle=copy["ReceiptHandle"])
        attributes = copy["MessageAttributes"]
        scene.world.sqs.send_message(QueueUrl=url, MessageBody=copy["Body"], MessageAttributes=attributes)
    assert copies
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def unknown(scene: Scene) -> Expected:
    """A job type that this release does not serve: the message waits for one that does."""
    scene.serve(charging(scene))
    body = json.dumps({"onceq": 1, "job_type": "of_tomorrow", "idempotency_key": "k", "payload": {}})
    scene.world.sqs.send_message(QueueUrl=scene.settings.queue("default").url, MessageBody=body)
    scene.until_quiet(rounds=4)
    return Expected({}, set(), waiting=1)


def mixed(scene: Scene) -> Expected:
    """A batch of a good job, a rejected one, one that fails once, one that is not JSON, and a duplicate."""
    failures = _once()
    good, bad, slow = scene.key("good"), scene.key("bad"), scene.key("slow")

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if ctx.key == bad:
            raise Reject("no")
        if ctx.key == slow and next(failures):
            raise ConnectionError
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(
        lambda app: app.enqueue_many([Entry(charge, {"key": key}, key=key) for key in (good, bad, slow, good)])
    )
    scene.world.sqs.send_message(QueueUrl=scene.settings.queue("default").url, MessageBody="<order/>")
    scene.until_quiet()
    return Expected({good: "completed", bad: "rejected", slow: "completed"}, {good, slow}, dead=("<order/>",))


@dataclass(frozen=True)
class Scenes:
    """Every scene of this module, by name."""

    by_name: dict[str, Callable[[Scene], Expected]] = field(
        default_factory=lambda: {
            name: function
            for name, function in globals().items()
            if callable(function) and getattr(function, "__annotations__", {}).get("return") == "Expected"
        }
    )
