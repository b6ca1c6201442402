"""One run of the demo: everything started, everything enqueued, consumed until nothing is left, then measured."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.deaths import DEATHS_FOLDER, give_orders
from demo.events import EVENTS_FILE, EventLog
from demo.plan import Message, Plan, make_plan
from demo.progress import Progress
from demo.provider import Provider
from demo.report import Report
from demo.seen import DeadLetter, Seen, Sent
from demo.worker import CARELESSLY
from demo.workers import Workers
from jobs.payments import Payment, process_payment
from jobs.stock import Reservation, reserve_stock
from jobs.webhooks import Webhook, deliver_webhook
from onceq import App, Entry, Settings
from onceq.clock import OpenDeadline, SystemClock, TokenFactory
from onceq.dynamodb import DynamoDB
from onceq.local import AWS_VARIABLES, MotoServer, child_environment
from onceq.message import ATTRIBUTE
from onceq.models import claims_table, records
from onceq.outbox import INDEX, OutboxEntry
from onceq.queue import Queue
from onceq.resources import create_resources
from onceq.template import function_environment, load_template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
# Where nothing but the outbox is left, and it stays as it is for so long, no relay is at work.
LONGEST_WAIT_SECONDS = 12.0
# Without a relay nobody sends what a worker, which holds its message meanwhile, has not sent.
WAIT_WITHOUT_RELAY_SECONDS = 1.0
SCHEDULED_AT = "2026-11-30T02:00:00Z"
SCHEDULED_TIME = "<aws.scheduler.scheduled-time>"
COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    payments: int = 240
    workers: int = 4
    seed: int = 1
    limit: float = 90.0
    careless: bool = False
    relay: bool = True


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
        killable: list[Workers] = []
        provider = stack.enter_context(Provider(workers=lambda: [pid for each in killable for pid in each.pids]))
        world = World.make(provider, server.endpoint, folder)
        plan = make_plan(options.payments, options.seed, world.nightly)
        processes = [stack.enter_context(world.workers(options.workers, careless=options.careless))]
        killable.append(processes[0])
        if options.relay:
            processes.append(stack.enter_context(world.relay()))
        sent = world.process(plan, *processes, until=started + options.limit, show=show)
        for each in processes:
            each.stop()
        exits = [code for each in processes for code in each.exits]
        return world.report(plan, sent, exits, time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class World:
    """The queue, the tables and the provider of one run."""

    provider: Provider
    resources: Resources
    environments: dict[str, dict[str, str]]
    endpoint: str
    queue: Queue
    dynamodb: DynamoDB
    log: EventLog
    folder: Path
    nightly: str

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
            "WebhookUrl": provider.url,
            "LegacyUrl": provider.url,
        }
        resources = create_resources(template, parameters=parameters)
        environments = {
            name: function_environment(template, resources, function=f"{name}Function", shell={})
            for name in ("Consumer", "Relay")
        }
        events = folder / "events.jsonl"
        events.touch()
        (folder / "deaths").mkdir()
        clock = SystemClock()
        tokens = TokenFactory(clock)
        return cls(
            provider=provider,
            resources=resources,
            environments=environments,
            endpoint=endpoint,
            queue=Queue(clock, tokens, OpenDeadline(), connections=2),
            dynamodb=DynamoDB(clock, tokens, connections=2),
            log=EventLog(events),
            folder=folder,
            nightly=_nightly(template),
        )

    def workers(self, count: int, *, careless: bool) -> Workers:
        """Return that many worker processes."""
        return self._processes("Consumer", "demo.worker", *([CARELESSLY] if careless else []), count=count)

    def relay(self) -> Workers:
        """Return the relay's process."""
        return self._processes("Relay", "demo.relay", count=1)

    def _processes(self, function: str, module: str, *arguments: str, count: int) -> Workers:
        own = {EVENTS_FILE: str(self.log.path), DEATHS_FOLDER: str(self.folder / "deaths")}
        inherited = {**os.environ, **self.environments[function], **own}
        inherited["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", module, *arguments]
        log = self.folder / f"{module}.log"
        return Workers(command, count=count, environment=child_environment(inherited), log=log)

    def prepare(self, plan: Plan) -> None:
        """Fill the shelf, and give the workers their orders to die."""
        for sku, pieces in plan.shelf.items():
            item = {"sku": {"S": sku}, "available": {"N": str(pieces)}}
            request = {"TableName": self.resources.table_name("StockTable"), "Item": item}
            self.dynamodb.call("PutItem", request, OpenDeadline())
        give_orders(self.folder / "deaths", plan.deaths)

    def enqueue(self, app: App, messages: Sequence[Message]) -> list[Sent]:
        """Send jobs through the producer, and as they are the bodies that it would refuse or does not make."""
        entries = [_entry(message) for message in messages if not isinstance(message, str)]
        enqueued = app.enqueue_many(entries)
        sent = [
            Sent.job(entry.job_type.name, key, asdict(entry.payload))  # type: ignore[union-attr]  # not given by name
            for entry, (key, _) in zip(entries, enqueued, strict=True)
        ]
        for body in messages:
            if isinstance(body, str):
                self.queue.send(self.resources.queue_url("JobsQueue"), {"MessageBody": body})
                sent.append(Sent.body(body))
        return sent

    def process(self, plan: Plan, *processes: Workers, until: float, show: Callable[[Progress], object]) -> list[Sent]:
        """Enqueue what is planned, bit by bit, and keep the processes alive until queue and outbox are empty.

        Args:
            plan: What to enqueue.
            processes: The workers first, and the relay.
            until: When to give up, by the monotonic clock.
            show: Told how it stands.

        Returns:
            What was sent: all of it, if there was time.
        """
        self.prepare(plan)
        app = App(
            [process_payment, deliver_webhook, reserve_stock], settings=Settings.from_env(self.environments["Consumer"])
        )
        progress = Progress(messages=len(plan.messages) + plan.sendings)
        sent: list[Sent] = []
        looks_when_empty, waiting_since, pending = 0, 0.0, 0
        has_relay = len(processes) > 1
        longest = LONGEST_WAIT_SECONDS if has_relay else WAIT_WITHOUT_RELAY_SECONDS
        while looks_when_empty < LOOKS_WHEN_EMPTY and time.monotonic() < until:
            for each in processes:
                each.tend()
            left = self._left()
            if left <= AHEAD and len(sent) < len(plan.messages):
                sent += self.enqueue(app, plan.messages[len(sent) : len(sent) + PART])
                left = self._left()
            before, pending = pending, 0 if left else self._pending()
            if left or pending != before:
                waiting_since = time.monotonic()
            if pending and time.monotonic() - waiting_since > longest:
                break
            looks_when_empty = 0 if left or pending else looks_when_empty + 1
            self._tell(progress)
            progress.workers, progress.left = len(processes[0].pids), left
            progress.sent = len(sent) + len(progress.entries)
            show(progress)
            time.sleep(LOOK_SECONDS)
        return sent

    def report(self, plan: Plan, sent: list[Sent], exits: list[int], seconds: float) -> Report:
        """Measure what is there at the end."""
        self.log.read()
        table = claims_table(self.resources.table_name("ClaimsTable"), host=self.endpoint)
        stock = {item["sku"]["S"]: int(item["available"]["N"]) for item in self._items("StockTable")}
        seen = Seen(
            plan=plan,
            sent=sent,
            records=list(records(table)),
            outbox=[OutboxEntry.from_item(item) for item in self._items("OutboxTable")],
            stock=stock,
            dead_letters=list(self._dead_letters()),
            left=self._left(),
            stats=self.provider.stats(),
            events=self.log.events,
            exits=exits,
            seconds=seconds,
        )
        return Report.of(seen)

    def _tell(self, progress: Progress) -> None:
        kills = self.provider.stats()["kills"]
        for kill in kills[progress.provider_kills :]:
            progress.kills += 1
            progress.tell(f"worker {kill['pid']} killed in a call: {kill['order_id']} is done, and not recorded")
        progress.provider_kills = len(kills)
        for event in self.log.read():
            progress.note(event)

    def _left(self) -> int:
        url = self.resources.queue_url("JobsQueue")
        answer = self.queue.call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": list(COUNTS)})
        return sum(int(answer["Attributes"][name]) for name in COUNTS)

    def _pending(self) -> int:
        request = {"TableName": self.resources.table_name("OutboxTable"), "IndexName": INDEX, "Select": "COUNT"}
        return int(self.dynamodb.call("Scan", request, OpenDeadline())["Count"])

    def _items(self, table: str) -> Iterator[dict[str, Any]]:
        request: dict[str, Any] = {"TableName": self.resources.table_name(table), "ConsistentRead": True}
        while True:
            answer = self.dynamodb.call("Scan", request, OpenDeadline())
            yield from answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _dead_letters(self) -> Iterator[DeadLetter]:
        url = self.resources.queue_url("DeadLetterQueue")
        while messages := self.queue.receive(url):
            for message in messages:
                note = message.get("MessageAttributes", {}).get(ATTRIBUTE)
                why = json.loads(note["StringValue"]) if note else {}
                yield DeadLetter(Sent.body(message["Body"]), why.get("error") or why.get("reason") or "no reason given")


def _entry(message: Payment | Webhook | Reservation) -> Entry:
    match message:
        case Payment():
            return Entry(process_payment, message, key=message.order_id)
        case Webhook():
            return Entry(deliver_webhook, message, key=message.event_id)
        case Reservation():
            return Entry(reserve_stock, message, key=message.order_id)


def _nightly(template: Mapping[str, Any]) -> str:
    """Return what the template's schedule sends, as EventBridge Scheduler fills it in."""
    body: str = template["Resources"]["NightlyReportSchedule"]["Properties"]["Target"]["Input"]
    return body.replace(SCHEDULED_TIME, SCHEDULED_AT)
