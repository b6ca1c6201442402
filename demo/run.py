"""One run of the demo: everything started, everything enqueued, consumed until the queue is empty, then measured."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.plan import Plan, make_plan
from demo.provider import Provider
from demo.report import DeadLetter, Report, Seen, Sent
from demo.worker import CARELESS, EVENTS_FILE
from demo.workers import Workers
from jobs.payments import Payment, process_payment
from onceq import App, Entry, Settings
from onceq.clock import OpenDeadline, SystemClock, TokenFactory
from onceq.local import AWS_VARIABLES, MotoServer, child_environment
from onceq.message import ATTRIBUTE
from onceq.models import claims_table, records
from onceq.queue import Queue
from onceq.resources import create_resources
from onceq.template import function_environment, load_template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onceq.resources import Resources

ROOT = Path(__file__).resolve().parent.parent
# Longer than lease and clock skew together, so that what a killed worker held comes back stale and not busy.
VISIBILITY_SECONDS = 3
CLOCK_SKEW_SECONDS = 0.2
CONCURRENCY = 5
LOOK_SECONDS = 0.2
# The producer keeps so many messages ahead: moto looks through the whole queue for each message.
AHEAD = 40
PART = 20
LOOKS_WHEN_EMPTY = 2
COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
LAST_LINES = 8


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    payments: int = 240
    workers: int = 4
    seed: int = 1
    limit: float = 55.0
    careless: bool = False


@dataclass(slots=True)
class Progress:
    """How a run stands; `story` holds the last lines of what is worth telling."""

    messages: int
    sent: int = 0
    left: int = 0
    workers: int = 0
    kills: int = 0
    names: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.story = [*self.story, line][-LAST_LINES:]


@dataclass(slots=True)
class EventLog:
    """The workers' events, read from their file as they come."""

    path: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the events that are new."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # the last line may still be under way
        self._offset += len(whole)
        new = [json.loads(line) for line in whole.splitlines()]
        self.events += new
        return new


def run(options: Options, show: Callable[[Progress], object] = lambda _progress: None) -> Report:
    """Run the demo.

    The environment of this process is changed: what belongs to AWS in it is replaced, so that nothing real is reached.

    Args:
        options: What to run.
        show: Told how it stands, several times a second.

    Returns:
        What was measured.
    """
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onceq-demo-")))
        for name in [name for name in os.environ if name.startswith(("AWS_", "ONCEQ_", "POWERTOOLS_"))]:
            del os.environ[name]
        server = stack.enter_context(MotoServer())
        os.environ.update(AWS_VARIABLES, AWS_ENDPOINT_URL=server.endpoint)
        workers: list[Workers] = []
        provider = stack.enter_context(Provider(workers=lambda: [pid for each in workers for pid in each.pids]))
        world = World.make(provider, server.endpoint, folder)
        workers.append(stack.enter_context(world.workers(options.workers, careless=options.careless)))
        plan = make_plan(options.payments, options.seed)
        sent = world.process(plan, workers[0], until=started + options.limit, show=show)
        workers[0].stop()
        return world.report(plan, sent, workers[0].exits, time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class World:
    """The queue, the claims table and the provider of one run."""

    provider: Provider
    resources: Resources
    environment: dict[str, str]
    endpoint: str
    queue: Queue
    log: EventLog
    folder: Path

    @classmethod
    def make(cls, provider: Provider, endpoint: str, folder: Path) -> World:
        """Create the resources that the template declares, with shorter times."""
        template = load_template(ROOT / "template.yaml")
        parameters = {
            "VisibilityTimeout": VISIBILITY_SECONDS,
            "ClockSkew": CLOCK_SKEW_SECONDS,
            "Concurrency": CONCURRENCY,
            "EndpointUrl": endpoint,
            "PaymentsUrl": provider.url,
            "MailUrl": provider.url,
        }
        resources = create_resources(template, parameters=parameters)
        environment = function_environment(template, resources, shell={})
        clock = SystemClock()
        events = folder / "events.jsonl"
        events.touch()
        queue = Queue(clock, TokenFactory(clock), OpenDeadline(), connections=2)
        return cls(provider, resources, environment, endpoint, queue, EventLog(events), folder)

    def workers(self, count: int, *, careless: bool) -> Workers:
        """Return that many worker processes."""
        inherited = {**os.environ, **self.environment, EVENTS_FILE: str(self.log.path)}
        inherited["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "demo.worker", *([CARELESS] if careless else [])]
        log = self.folder / "workers.log"
        return Workers(command, count=count, environment=child_environment(inherited), log=log)

    def enqueue(self, app: App, messages: Sequence[Payment | str]) -> list[Sent]:
        """Send payments through the producer, and as they are the bodies that it would refuse."""
        payments = [message for message in messages if isinstance(message, Payment)]
        enqueued = app.enqueue_many(Entry(process_payment, payment, key=payment.order_id) for payment in payments)
        sent = [Sent.payment(key, asdict(payment)) for payment, (key, _) in zip(payments, enqueued, strict=True)]
        for body in messages:
            if isinstance(body, str):
                self.queue.send(self.resources.queue_url("JobsQueue"), {"MessageBody": body})
                sent.append(Sent(None, body))
        return sent

    def process(self, plan: Plan, workers: Workers, *, until: float, show: Callable[[Progress], object]) -> list[Sent]:
        """Enqueue what is planned, bit by bit, and keep the workers alive until the queue is empty.

        Args:
            plan: What to enqueue.
            workers: The workers.
            until: When to give up, by the monotonic clock.
            show: Told how it stands.

        Returns:
            What was sent: all of it, if there was time.
        """
        app = App([process_payment], settings=Settings.from_env(self.environment))
        progress = Progress(messages=len(plan.messages))
        sent: list[Sent] = []
        looks_when_empty = 0
        while looks_when_empty < LOOKS_WHEN_EMPTY and time.monotonic() < until:
            workers.tend()
            left = self._left()
            if left <= AHEAD and len(sent) < len(plan.messages):
                sent += self.enqueue(app, plan.messages[len(sent) : len(sent) + PART])
                left = self._left()
            looks_when_empty = 0 if left else looks_when_empty + 1
            self._tell(progress)
            progress.workers, progress.sent, progress.left = len(workers.pids), len(sent), left
            show(progress)
            time.sleep(LOOK_SECONDS)
        return sent

    def report(self, plan: Plan, sent: list[Sent], exits: list[int], seconds: float) -> Report:
        """Measure what is there at the end."""
        self.log.read()
        table = claims_table(self.resources.table_name("ClaimsTable"), host=self.endpoint)
        stats = self.provider.stats()
        seen = Seen(
            sent=sent,
            to_charge={order_id: kind.is_charged for order_id, kind in plan.kinds.items()},
            records=list(records(table)),
            dead_letters=list(self._dead_letters()),
            unsent=len(plan.messages) - len(sent),
            left=self._left(),
            charges=stats["charges"] | {"kills": stats["kills"]},
            events=self.log.events,
            exits=exits,
            seconds=seconds,
        )
        return Report.of(seen)

    def _tell(self, progress: Progress) -> None:
        kills = self.provider.stats()["kills"]
        for kill in kills[progress.kills :]:
            progress.tell(f"worker {kill['pid']} killed: {kill['order_id']} is charged, and not recorded")
        progress.kills = len(kills)
        for event in self.log.read():
            progress.names[event["name"]] += 1
            if event["name"] == "job.taken_over":
                progress.tell(f"worker {event['pid']} takes {event['key']} over, attempt {event['attempt']}")
            elif event["name"] == "claim.lost":
                progress.tell(f"worker {event['pid']} has lost its claim of {event['key']}")

    def _left(self) -> int:
        url = self.resources.queue_url("JobsQueue")
        answer = self.queue.call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": list(COUNTS)})
        return sum(int(answer["Attributes"][name]) for name in COUNTS)

    def _dead_letters(self) -> Iterator[DeadLetter]:
        url = self.resources.queue_url("DeadLetterQueue")
        while messages := self.queue.receive(url):
            for message in messages:
                note = message.get("MessageAttributes", {}).get(ATTRIBUTE)
                why = json.loads(note["StringValue"]) if note else {}
                yield DeadLetter(_sent_as(message["Body"]), why.get("error") or why.get("reason") or "no reason given")


def _sent_as(body: str) -> Sent:
    """Name a dead letter as it was sent."""
    try:
        envelope = json.loads(body)
        return Sent.payment(envelope["idempotency_key"], envelope["payload"])
    except (ValueError, KeyError, TypeError):
        return Sent(None, body)
