"""What people do during a soak: redrive dead letters, see to what was declined, and resolve what is uncertain."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from kit.soak_log import now_ms, read_log
from kit.soak_provider import call
from kit.world import TABLE
from onceq.errors import OnceqError

if TYPE_CHECKING:
    from onceq import App
    from soak.stand import Stand

MOST_REDRIVEN = 30
# What was rejected for its own sake; a killer would only kill again.
REDRIVEN = ("refuse", "charge", "reserve")
# An attempt that is over has told so within this, and what it called has arrived.
SURE_MS = 2_000


@dataclass
class Person:
    """Does by hand what is a person's. Decisions are drawn from the seed; whom they meet is a matter of time.

    Args:
        stand: Where.
        app: The application, as a person uses it: through the proxy.
        seed: The seed.
    """

    stand: Stand
    app: App
    seed: int
    redriven: Counter[str] = field(default_factory=Counter)
    resolved: list[dict[str, Any]] = field(default_factory=list)
    last_continued: int = 0
    retried: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Make the clients."""
        self._chance = random.Random(f"person {self.seed}")
        self._sqs, self._dynamodb = self.stand.client("sqs"), self.stand.client("dynamodb")
        self._queue = json.loads(self.stand.environment["ONCEQ_QUEUES"])["default"]

    def redrive(self) -> None:
        """Move dead letters back as the console does, with their attributes; see to half of what was declined."""
        for letter in self._letters(lambda job: job.startswith(tuple(f"{one}#" for one in REDRIVEN))):
            job = _job_of(letter)
            if job.startswith("charge#") and self._chance.random() < 0.5:
                call(self.stand.provider, "/fix", {"job": job})
            self._move_back(letter, job)

    def resolve(self) -> None:
        """Decide about what is uncertain and surely over: it happened, it did not, or it is not to happen."""
        over = self._surely_over()
        called = Counter(one["job"] for one in call(self.stand.provider, "/books")[1]["legacy"])
        for job in self._uncertain():
            if job not in over:
                continue
            name, _, key = job.partition("#")
            decision = "done" if called[job] else "retry" if self._chance.random() < 0.7 else "reject"
            # A job whose step was called goes on behind that step; one that was called itself is done.
            steps = {"visit": None} if called[job] and name == "visit" else None
            decision = "retry" if steps is not None else decision
            # Also where the answer is lost: a copy that is redriven too early only ends the same way again.
            self.retried |= {job} if decision == "retry" else set()
            try:
                self.app.resolve(name, key, decision, reason="looked up", steps=steps)  # type: ignore[arg-type]  # drawn
            except OnceqError:
                continue  # it was not answered, or somebody was faster: the next look decides
            self.resolved.append({"at": now_ms(), "job": job, "decision": decision, "called": called[job]})
        self.bring_back()

    def bring_back(self) -> int:
        """Redrive what is to be tried once more and has not ended; return how many copies that were.

        A copy comes after the record: on a busy machine so much later that whoever decided has looked for it already.
        """
        last = {write["job"]: write for write in list(self.stand.proxy.journal) if write["http"] == HTTPStatus.OK}
        waiting = {job for job in self.retried if last[job]["status"] == "failed"}
        letters = self._letters(lambda job: job in waiting) if waiting else []
        for letter in letters:
            self._move_back(letter, _job_of(letter))
        return len(letters)

    def recover(self) -> None:
        """Start the sweep, as its schedule does; one that gets no answer goes on at its next run."""
        with suppress(OnceqError):
            self.app.recovery()

    def _surely_over(self) -> set[str]:
        """Return the jobs none of whose attempts may still be under way, in a process that lives or is stopped.

        A claim whose attempt nobody has seen begin may be held by a process that is stopped right behind it.
        """
        calm = not any(process.is_stopped for process in self.stand.processes)
        calm = calm and now_ms() - self.last_continued > SURE_MS
        living = {process.pid for process in self.stand.processes}
        claimed: dict[str, set[int]] = defaultdict(set)
        for write in list(self.stand.proxy.journal):
            if write["fencing"] is not None and write["http"] == HTTPStatus.OK:
                claimed[write["job"]].add(write["fencing"])
        under_way: dict[tuple[str, int], int] = {}
        last: dict[str, int] = {}
        for line in read_log(self.stand.log):
            if line["name"] in ("attempt.began", "attempt.ended"):
                job, token = line["job"], line["token"]
                last[job] = line["at"]
                if line["name"] == "attempt.began":
                    under_way[job, token] = line["pid"]
                    claimed[job].discard(token)
                else:
                    under_way.pop((job, token), None)
        busy = {job for (job, _), pid in under_way.items() if pid in living}
        busy |= set() if calm else {job for job, tokens in claimed.items() if tokens}
        return {job for job, at in last.items() if job not in busy and now_ms() - at > SURE_MS}

    def _uncertain(self) -> list[str]:
        pages = self._dynamodb.get_paginator("scan").paginate(
            TableName=TABLE,
            FilterExpression="#status = :uncertain",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":uncertain": {"S": "uncertain"}},
        )
        return sorted(item["pk"]["S"] for page in pages for item in page["Items"])

    def _letters(self, wanted: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        seen: set[str] = set()
        asked = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"], "VisibilityTimeout": 10}
        others: list[dict[str, Any]] = []
        while len(found) < MOST_REDRIVEN:
            letters = self._sqs.receive_message(QueueUrl=self._queue["dlq_url"], **asked).get("Messages", [])
            if not letters or any(letter["MessageId"] in seen for letter in letters):
                break
            seen |= {letter["MessageId"] for letter in letters}
            for letter in letters:
                (found if wanted(_job_of(letter)) else others).append(letter)
        for letter in others:
            self._sqs.change_message_visibility(
                QueueUrl=self._queue["dlq_url"], ReceiptHandle=letter["ReceiptHandle"], VisibilityTimeout=0
            )
        return found

    def _move_back(self, letter: dict[str, Any], job: str) -> None:
        attributes = letter.get("MessageAttributes", {})
        plain = {
            name: {part: value for part, value in one.items() if part in ("DataType", "StringValue", "BinaryValue")}
            for name, one in attributes.items()
        }
        self._sqs.send_message(QueueUrl=self._queue["url"], MessageBody=letter["Body"], MessageAttributes=plain)
        self._sqs.delete_message(QueueUrl=self._queue["dlq_url"], ReceiptHandle=letter["ReceiptHandle"])
        self.redriven[job] += 1


def note_of(letter: dict[str, Any]) -> dict[str, Any]:
    """Return the note on a dead letter; empty where there is none."""
    attribute = letter.get("MessageAttributes", {}).get("onceq")
    note: dict[str, Any] = json.loads(attribute["StringValue"]) if attribute else {}
    return note


def _job_of(letter: dict[str, Any]) -> str:
    note = note_of(letter)
    return f"{note.get('job_type', '')}#{note.get('key', '')}"
