"""What was observed of a soak, wherever it stands: tables, queues, the provider's books, the journal, the log."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kit.soak_proxy import UNHEARD

if TYPE_CHECKING:
    from soak.plan import Message

Line = dict[str, Any]
TERMINAL = ("completed", "rejected", "uncertain")
# What stands in the log between the first and the last of a job is its timeline, as long as it is no longer than this.
MOST_LINES = 60
_UNTOLD = ("at", "pid", "name", "job", "message_id")


@dataclass(frozen=True)
class Attempt:
    """One run of a job's function.

    Args:
        job: The job.
        token: Its fencing token.
        pid: The process.
        began: When, epoch ms.
        ended: When; infinite while nobody saw an end of it or of its process.
        error: What it raised, or ``killed``; nothing if it returned.
        value: What it returned; absent where that cannot be stored.
    """

    job: str
    token: int
    pid: int
    began: int
    ended: float
    error: str | None
    value: tuple[Any, ...] = ()


@dataclass
class Seen:
    """What was observed.

    Args:
        sent: Every message that the queue took from the producer, with what the plan says of it.
        journal: Every write to a job's record, as the proxy saw it.
        log: What the processes told.
        records: The claims table at the end, by job.
        outbox: The outbox table at the end: job, status and id of each entry.
        shelf: Pieces at the start, by article; ``stock`` at the end.
        lines: Article and pieces of each line that was written, by the key of its job.
        accounts: Cents at the start, by account; ``balances`` at the end.
        letters: What lies in the dead-letter queues: job, note and body.
        left: Bodies that are still in a queue.
        books: What the provider saw.
        exits: Processes that ended before they were told to: process id and time.
        zombies: Processes that were stopped and continued: process id and both times.
        skew_ms: The clock skew.
        redriven: How often each job's copies were redriven.
        resent: Jobs whose message was sent again for want of an answer: where it stands in its group is not known.
        keeps_order: Whether the server keeps the order of a message group, as SQS does.
    """

    sent: list[Message] = field(default_factory=list)
    journal: list[Line] = field(default_factory=list)
    log: list[Line] = field(default_factory=list)
    records: dict[str, Line] = field(default_factory=dict)
    outbox: list[Line] = field(default_factory=list)
    shelf: dict[str, int] = field(default_factory=dict)
    stock: dict[str, int] = field(default_factory=dict)
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)
    accounts: dict[str, int] = field(default_factory=dict)
    balances: dict[str, int] = field(default_factory=dict)
    letters: list[Line] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    books: Line = field(default_factory=lambda: {"effects": {}, "legacy": []})
    exits: list[Line] = field(default_factory=list)
    zombies: list[Line] = field(default_factory=list)
    skew_ms: int = 0
    redriven: dict[str, int] = field(default_factory=dict)
    resent: set[str] = field(default_factory=set)
    keeps_order: bool = True

    @cached_property
    def landed(self) -> dict[str, list[Line]]:
        """The writes that landed, by job and in the order of their versions; one that a token repeats stands once."""
        found: dict[str, list[Line]] = defaultdict(list)
        known = set()
        for write in sorted(self.journal, key=lambda write: write["landed"] or 0):
            name = (write["job"], write["claimant"], write["version"], write["token"])
            if write["http"] == 200 and (write["token"] is None or name not in known):
                known.add(name)
                found[write["job"]].append(write)
        return {job: sorted(writes, key=lambda write: write["version"]) for job, writes in found.items()}

    @cached_property
    def refused(self) -> list[Line]:
        """The writes that the table refused."""
        return [write for write in self.journal if write["http"] == 400]

    @cached_property
    def claims(self) -> dict[tuple[str, int], Line]:
        """The claims and take-overs that landed, by job and fencing token."""
        return {
            (job, write["fencing"]): write
            for job, writes in self.landed.items()
            for write in writes
            if write["fencing"] is not None
        }

    @cached_property
    def completions(self) -> dict[str, Line]:
        """The first completion of each job that landed."""
        found: dict[str, Line] = {}
        for job, writes in self.landed.items():
            for write in writes:
                if write["status"] == "completed":
                    found.setdefault(job, write)
        return found

    @cached_property
    def attempts(self) -> dict[str, list[Attempt]]:
        """The attempts, by job and in the order of their fencing tokens."""
        ended = {_attempt(line): line for line in self.log if line["name"] == "attempt.ended"}
        died = {line["pid"]: line["at"] for line in self.exits}
        found: dict[str, list[Attempt]] = defaultdict(list)
        for line in self.log:
            if line["name"] == "attempt.began":
                end = ended.get(_attempt(line))
                at = end["at"] if end else died.get(line["pid"], math.inf)
                error = end.get("error") if end else "killed"
                value = (end["value"],) if end and "value" in end else ()
                found[line["job"]].append(
                    Attempt(line["job"], line["token"], line["pid"], line["at"], at, error, value)
                )
        return {job: sorted(runs, key=lambda run: (run.token, run.began)) for job, runs in found.items()}

    @cached_property
    def told(self) -> Counter[str]:
        """How often each event was told."""
        return Counter(line["name"] for line in self.log)

    def events(self, name: str) -> list[Line]:
        """Return the events of that name."""
        return [line for line in self.log if line["name"] == name]

    @cached_property
    def plans(self) -> dict[str, list[Message]]:
        """The messages that were sent, by job; those that are none under the empty name."""
        found: dict[str, list[Message]] = defaultdict(list)
        for message in self.sent:
            found[message.job].append(message)
        return found

    @cached_property
    def unheard(self) -> list[Line]:
        """The writes that landed and whose writer got no answer."""
        return [write for writes in self.landed.values() for write in writes if write["fault"] in UNHEARD]

    def status(self, job: str) -> str | None:
        """Return how a job stands."""
        record = self.records.get(job)
        return record["status"] if record else None

    def completed(self, job_type: str) -> list[str]:
        """Return the keys of the completed jobs of a type."""
        prefix = f"{job_type}#"
        return [
            job.removeprefix(prefix)
            for job, record in self.records.items()
            if job.startswith(prefix) and record["status"] == "completed"
        ]

    @cached_property
    def calls(self) -> Counter[str]:
        """How often the system that knows no keys was called, by job."""
        return Counter(one["job"] for one in self.books["legacy"])

    def timeline(self, job: str) -> list[str]:
        """Return what is known of a job, in the order of time: the journal and the log."""
        told = []
        for write in self.journal:
            if write["job"] == job:
                became = {200: "landed", 400: "refused", None: "not seen by the server"}.get(write["http"], "failed")
                what = {"status": write["status"], "lease": write["lease"], "fault": write["fault"]}
                words = " ".join(f"{name}={value}" for name, value in what.items() if value is not None)
                told.append(
                    (
                        write["landed"] or write["arrived"],
                        f"table    {write['write']} v{write['version']} by {write['claimant'][:6]}: {became} {words}",
                    )
                )
        for line in self.log:
            if line.get("job") == job:
                words = " ".join(
                    f"{name}={str(value)[:60]}" for name, value in line.items() if name not in _UNTOLD and value != ""
                )
                told.append((line["at"], f"{line['pid']:<8} {line['name']} {words}"))
        pids = {line["pid"] for line in self.log if line.get("job") == job}
        told += [(one["at"], f"{one['pid']:<8} ended") for one in self.exits if one["pid"] in pids]
        for one in self.zombies:
            if one["pid"] in pids:
                told += [(one["from"], f"{one['pid']:<8} SIGSTOP"), (one["to"], f"{one['pid']:<8} SIGCONT")]
        told.sort(key=lambda line: line[0])
        start = told[0][0] if told else 0
        return [f"{(at - start) / 1000:8.3f}  {text}" for at, text in told[:MOST_LINES]]


def job_in(body: str) -> str:
    """Return the job that a body names; empty where it names none."""
    try:
        envelope = json.loads(body)
        return f"{envelope['job_type']}#{envelope['idempotency_key']}"
    except (ValueError, TypeError, KeyError):
        return ""


def _attempt(line: Line) -> tuple[int, str, int]:
    return line["pid"], line["job"], line["token"]
