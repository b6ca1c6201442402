"""A process that is really killed: SIGKILL, no finally, no exit handler, over a server that outlives it."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from kit import nursery
from kit.clock import FrozenClock
from kit.world import OUTBOX_TABLE, REGION, TABLE, arn_of, create_outbox_table, create_table
from onceq.local import MotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]
# A lease of 60 s and its margin, and the clock skew.
STALE_SECONDS = 72
# The relay leaves an entry alone for half a minute, not to send it beside whoever committed it.
RELAY_SECONDS = 60


@dataclass(frozen=True)
class Served:
    """Tables and queues on a server of their own, and the environment of a worker that works on them."""

    dynamodb: Any
    sqs: Any
    url: str
    dlq_url: str
    environment: dict[str, str]

    def run(self, worker: str, seconds: int, *arguments: str) -> tuple[int, Any]:
        """Run a worker so many seconds later; return how it ended, and its answer if it lived."""
        now_ms = FrozenClock().now_ms() + seconds * 1000
        ended = nursery.run(f"kit.{worker}", str(now_ms), *arguments, environment=self.environment)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        return ended.returncode, json.loads(ended.stdout) if ended.returncode == 0 else None

    def items(self, table: str, *names: str) -> list[dict[str, str]]:
        """Return what stands in a table: these attributes as text."""
        items = self.dynamodb.scan(TableName=table)["Items"]
        return [{name: next(iter(item[name].values())) for name in names if name in item} for item in items]

    def notes(self) -> list[dict[str, Any]]:
        """Return the notes of what lies in the dead-letter queue."""
        found = self.sqs.receive_message(QueueUrl=self.dlq_url, MessageAttributeNames=["All"])
        return [json.loads(one["MessageAttributes"]["onceq"]["StringValue"]) for one in found.get("Messages", [])]


@pytest.fixture
def served() -> Iterator[Served]:
    """A server that outlives every worker."""
    with MotoServer() as server:
        dynamodb, sqs = (boto3.client(name, endpoint_url=server.endpoint) for name in ("dynamodb", "sqs"))
        create_table(dynamodb, TABLE)
        create_outbox_table(dynamodb, OUTBOX_TABLE)
        dlq_url, url = (sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("Dead", "JobsQueue"))
        environment = os.environ | {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "ONCEQ_CLAIMS_TABLE": TABLE,
            "ONCEQ_OUTBOX_TABLE": OUTBOX_TABLE,
            "ONCEQ_QUEUES": json.dumps({"default": {"url": url, "arn": arn_of("JobsQueue"), "dlq_url": dlq_url}}),
            "ONCEQ_CONCURRENCY": "1",
            "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
        }
        yield Served(dynamodb, sqs, url, dlq_url, environment)


def test_a_job_that_kills_its_process_ends_rejected_and_its_neighbours_complete(served: Served) -> None:
    """G5: batched each time with three good ones, a job that sends itself SIGKILL ends rejected by itself."""
    ends = [served.run("dying_worker", number * STALE_SECONDS, str(number)) for number in range(3)]

    assert ends == [(-signal.SIGKILL, None), (-signal.SIGKILL, None), (0, {"batchItemFailures": []})]
    status = {item["idempotency_key"]: item["status"] for item in served.items(TABLE, "idempotency_key", "status")}
    # In the first round, one thread, the killer was new and came first: its neighbours were never started.
    good = {f"good-{number}-{other}": "completed" for number in (1, 2) for other in range(3)}
    assert status == good | {"killer": "rejected"}
    assert [note["attempts"] for note in served.notes()] == [2]


def test_a_message_of_a_worker_that_is_killed_before_it_is_sent_is_sent_by_the_relay(
    served: Served, tmp_path: Path
) -> None:
    """G8: the commit is all that counts: killed right behind it, the message waits, is sent once, and its job runs."""
    effects = tmp_path / "effects"

    killed, _ = served.run("effects_worker", 0, "order", str(effects))
    left = [item["status"] for item in served.items(OUTBOX_TABLE, "status")]
    too_early = served.run("effects_worker", 1, "poll", str(effects))
    relayed = [served.run("effects_worker", RELAY_SECONDS * number, "relay", str(effects))[1] for number in (1, 2)]
    polled = [served.run("effects_worker", RELAY_SECONDS * 2, "poll", str(effects))[1] for _ in range(2)]

    assert (killed, left, too_early) == (-signal.SIGKILL, ["pending"], (0, 0))
    assert [answer["sent"] for answer in relayed] == [1, 0]
    assert [item["status"] for item in served.items(OUTBOX_TABLE, "status")] == ["sent"]
    assert polled == [1, 0]
    assert effects.read_text().split() == ["mail"]
    statuses = {item["job_type"]: item["status"] for item in served.items(TABLE, "job_type", "status")}
    assert statuses == {"order": "completed", "mail": "completed"}


def test_a_worker_that_is_killed_inside_an_at_most_once_step_leaves_the_job_to_a_person(
    served: Served, tmp_path: Path
) -> None:
    """G9: the step is never started again: the next delivery ends the job uncertain, and copies it with the reason."""
    effects = tmp_path / "effects"

    ends = [served.run("effects_worker", STALE_SECONDS * number, "call", str(effects)) for number in range(3)]

    assert ends == [(-signal.SIGKILL, None), (0, {"batchItemFailures": []}), (0, {"batchItemFailures": []})]
    assert effects.read_text().split() == ["call"]
    assert [item["status"] for item in served.items(TABLE, "status")] == ["uncertain"]
    notes = served.notes()
    assert {note["reason"] for note in notes} == {"uncertain"}
    assert all("call" in note["error"] for note in notes)


def test_a_worker_that_is_killed_between_two_steps_does_not_repeat_the_first(served: Served, tmp_path: Path) -> None:
    """G6: the first step answers from its record, the second one runs, and the job completes."""
    effects = tmp_path / "effects"

    ends = [served.run("effects_worker", STALE_SECONDS * number, "pay", str(effects)) for number in range(2)]

    assert ends == [(-signal.SIGKILL, None), (0, {"batchItemFailures": []})]
    assert effects.read_text().split() == ["charge", "receipt"]
    assert served.items(TABLE, "status", "attempts") == [{"status": "completed", "attempts": "2"}]
    assert served.notes() == []
