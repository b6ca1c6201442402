"""Where a soak runs: a server, the proxy before it, the provider, tables and queues, and the processes."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from kit.ministack import ministack_server
from kit.soak_jobs import ACCOUNTS as ACCOUNTS_TABLE
from kit.soak_jobs import LINES, PROVIDER, STOCK
from kit.soak_log import LOG, now_ms
from kit.soak_nursery import Nursery, open_nursery
from kit.soak_provider import serving_provider
from kit.soak_proxy import SoakProxy, soak_proxy
from kit.world import OUTBOX_TABLE, REGION, TABLE, create_outbox_table, create_table
from onceq.local import MotoServer, child_environment
from soak.plan import ACCOUNTS, SHELF, wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TESTS = Path(__file__).resolve().parents[1]
BUCKET = "soak-payloads"
# As the template's redrive policy: the backstop, which nothing here should reach.
MOST_RECEIVES = 100
# A bound for a machine that is busy: who is asked to finish does so within a second.
STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Times:
    """The times of a soak, in seconds: short, so that what is taken over is taken over soon.

    Args:
        lease: How long a claim holds before it is renewed.
        skew: By how much clocks may differ.
        visibility: When an unanswered message comes back.
    """

    lease: float = 2.0
    skew: float = 0.3
    visibility: int = 3

    @classmethod
    def of(cls, lease: float) -> Times:
        """Return the times that go with a lease: a message comes back when its claim is stale."""
        return cls(lease, round(lease * 0.15, 3), math.ceil(lease * 1.5))

    @property
    def stale(self) -> float:
        """When a claim is stale that is not renewed."""
        return self.lease + self.skew


@dataclass
class Process:
    """One process of the soak, started again when it has died.

    Args:
        name: Its name.
        arguments: What `kit.soak_worker` is to do.
    """

    name: str
    arguments: tuple[str, ...]
    pid: int = 0
    is_stopped: bool = False


@dataclass
class Stand:
    """Everything that runs, and how to reach it.

    Args:
        endpoint: The server's, past the proxy.
        proxy: The proxy.
        be_down: Refuses connections for so many seconds.
        provider: URL of the provider.
        folder: Where the log and the processes' output are.
        environment: Of the processes.
        nursery: Starts the processes.
        processes: The consumers first, then the relays.
        consumers: How many are consumers.
    """

    endpoint: str
    proxy: SoakProxy
    be_down: Callable[[float], None]
    provider: str
    folder: Path
    environment: Mapping[str, str]
    nursery: Nursery
    processes: list[Process]
    consumers: int
    times: Times
    exits: list[dict[str, Any]] = field(default_factory=list)
    _clients: dict[str, Any] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def client(self, service: str) -> Any:
        """Return a client that reaches the server past the proxy; all threads share one for each service."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = boto3.client(service, endpoint_url=self.endpoint, region_name=REGION)
            return self._clients[service]

    @property
    def log(self) -> Path:
        """The processes' log."""
        return self.folder / "log.jsonl"

    def start(self) -> None:
        """Start every process."""
        with self._lock:
            for process in self.processes:
                process.pid = self.nursery.start(process.arguments)

    def tend(self) -> None:
        """Start another process for each that has ended, and note how it ended."""
        with self._lock:
            for process in self.processes:
                code = self.nursery.codes.get(process.pid)
                if code is not None:
                    self.exits.append({"at": now_ms(), "pid": process.pid, "name": process.name, "code": code})
                    process.is_stopped = False
                    process.pid = self.nursery.start(process.arguments)

    def send(self, who: int, number: signal.Signals) -> int | None:
        """Send a signal to a process; return its id, or nothing if it has just ended."""
        with self._lock:
            process = self.processes[who]
            if not self._signal(process, number):
                return None
            process.is_stopped = number is signal.SIGSTOP or (process.is_stopped and number is not signal.SIGCONT)
            return process.pid

    def who(self, pid: int) -> int | None:
        """Return the number of a process that runs; nothing if there is none of that id."""
        with self._lock:
            return next((who for who, process in enumerate(self.processes) if process.pid == pid), None)

    def end(self) -> list[int | None]:
        """Ask all to finish, and return their exit codes; who does not is killed, and has none."""
        with self._lock:
            for process in self.processes:
                self._signal(process, signal.SIGCONT)
                self._signal(process, signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        return [self.nursery.wait(process.pid, max(0.1, until - time.monotonic())) for process in self.processes]

    def kill(self) -> None:
        """Leave nothing running, whatever state it is in: SIGKILL ends a stopped process, too."""
        with self._lock:
            killed = [process for process in self.processes if self._signal(process, signal.SIGKILL)]
            for process in killed:
                self.nursery.wait(process.pid, STOP_SECONDS)

    def _signal(self, process: Process, number: signal.Signals) -> bool:
        if not process.pid or process.pid in self.nursery.codes:
            return False
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
            return True
        return False


@contextmanager
def server_of(backend: str) -> Iterator[str]:
    """Serve a backend, and yield its endpoint."""
    if backend == "moto":
        with MotoServer() as server:
            yield server.endpoint
    else:
        with ministack_server() as endpoint:
            yield endpoint


@contextmanager
def open_stand(backend: str, seed: int, folder: Path, times: Times, *, workers: int, relays: int) -> Iterator[Stand]:
    """Start everything but the processes; whatever happens, nothing runs on behind the block."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(server_of(backend))
        # The queues' own client of this process goes through the proxy, as every other process's.
        os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION=REGION)
        queues = _furnish(endpoint, times)
        proxy = SoakProxy(
            endpoint,
            claims=TABLE,
            choose=wire(seed),
            late_seconds=times.stale + 1.0,
            # Somebody takes over meanwhile, when the claim is stale and the message is back.
            hold_seconds=times.stale + times.visibility + 1.0,
        )
        be_down = stack.enter_context(soak_proxy(proxy))
        os.environ.update(AWS_ENDPOINT_URL=proxy.endpoint, AWS_ENDPOINT_URL_S3=endpoint)
        ours = {
            "ONCEQ_CLAIMS_TABLE": TABLE,
            "ONCEQ_OUTBOX_TABLE": OUTBOX_TABLE,
            "ONCEQ_QUEUES": json.dumps(queues),
            "ONCEQ_CONCURRENCY": "5",
            "ONCEQ_CLOCK_SKEW": str(times.skew),
            "ONCEQ_PAYLOAD_BUCKET": BUCKET,
        }
        paths = {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
        named = {LOG: str(folder / "log.jsonl"), "SOAK_LEASE": str(times.lease)}
        environment = child_environment(dict(os.environ) | paths | ours | named)
        provider = stack.enter_context(serving_provider(environment))
        environment[PROVIDER] = provider
        # Of twelve four take the FIFO queue: what one of them had is taken over by another.
        ordered = workers // 3
        queue_of = ["default"] * (workers - ordered) + ["ordered"] * ordered
        nursery = stack.enter_context(open_nursery(environment, folder / "output.txt"))
        names: list[tuple[str, tuple[str, ...]]]
        names = [(f"worker {number}", ("work", queue)) for number, queue in enumerate(queue_of, start=1)]
        names += [(f"relay {number}", ("relay",)) for number in range(1, relays + 1)]
        processes = [Process(name, arguments) for name, arguments in names]
        stand = Stand(endpoint, proxy, be_down, provider, folder, environment, nursery, processes, workers, times)
        stack.callback(stand.kill)
        yield stand


def _furnish(endpoint: str, times: Times) -> dict[str, dict[str, str]]:
    dynamodb, sqs, s3 = (
        boto3.client(name, endpoint_url=endpoint, region_name=REGION) for name in ("dynamodb", "sqs", "s3")
    )
    for name in (TABLE, STOCK, LINES, ACCOUNTS_TABLE):
        create_table(dynamodb, name)
    create_outbox_table(dynamodb, OUTBOX_TABLE)
    s3.create_bucket(Bucket=BUCKET)
    for table, attribute, items in ((STOCK, "pieces", SHELF), (ACCOUNTS_TABLE, "cents", ACCOUNTS)):
        for key, number in items.items():
            dynamodb.put_item(TableName=table, Item={"pk": {"S": key}, attribute: {"N": str(number)}})
    queues = {}
    for name, queue, dead in (("default", "JobsQueue", "Dead"), ("ordered", "Ordered.fifo", "OrderedDead.fifo")):
        fifo = {"FifoQueue": "true"} if queue.endswith(".fifo") else {}
        dlq_url = sqs.create_queue(QueueName=dead, Attributes=fifo)["QueueUrl"]
        policy = {"deadLetterTargetArn": _arn(sqs, dlq_url), "maxReceiveCount": MOST_RECEIVES}
        attributes = {**fifo, "VisibilityTimeout": str(times.visibility), "RedrivePolicy": json.dumps(policy)}
        url = sqs.create_queue(QueueName=queue, Attributes=attributes)["QueueUrl"]
        arn = _arn(sqs, url)
        queues[name] = {"url": url, "arn": arn, "dlq_url": dlq_url}
    return queues


def _arn(sqs: Any, url: str) -> str:
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])
