"""Lambda's time-out in the middle of a batch of ten, for real: SIGKILL from outside, over a server that outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3

from kit import nursery
from kit.batch_worker import KEYS
from kit.clock import FrozenClock
from kit.world import OUTBOX_TABLE, REGION, TABLE, arn_of, create_outbox_table, create_table
from onceq.local import MotoServer

TESTS = Path(__file__).parents[1]
# A lease of 60 s and its margin, and the clock skew.
STALE_SECONDS = 72
NOBODY = "-"


def _environment(endpoint: str, sqs: Any) -> dict[str, str]:
    dlq_url, url = (sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("Dead", "JobsQueue"))
    return os.environ | {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": REGION,
        "ONCEQ_CLAIMS_TABLE": TABLE,
        "ONCEQ_OUTBOX_TABLE": OUTBOX_TABLE,
        "ONCEQ_QUEUES": json.dumps({"default": {"url": url, "arn": arn_of("JobsQueue"), "dlq_url": dlq_url}}),
        "ONCEQ_CONCURRENCY": "1",
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
    }


def _words(seconds: int, effects: Path, hanging: str) -> list[str]:
    now_ms = FrozenClock().now_ms() + seconds * 1000
    return ["kit.batch_worker", str(now_ms), str(effects), hanging]


def test_a_killed_batch_of_ten_is_replayed_taken_over_and_run(tmp_path: Path) -> None:
    """G3, G5, G6: those before are replays, the one in flight waits for its lease and is taken over, the rest run."""
    effects, hanging = tmp_path / "effects", "k-6"
    with MotoServer() as server:
        dynamodb, sqs = (boto3.client(name, endpoint_url=server.endpoint) for name in ("dynamodb", "sqs"))
        create_table(dynamodb, TABLE)
        create_outbox_table(dynamodb, OUTBOX_TABLE)
        environment = _environment(server.endpoint, sqs)
        command = [sys.executable, "-m", *_words(0, effects, hanging)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "hanging\n"
            worker.send_signal(signal.SIGKILL)
            killed = worker.wait(60)
        answers = [
            json.loads(nursery.run(*_words(seconds, effects, NOBODY), environment=environment).stdout)
            for seconds in (1, STALE_SECONDS, STALE_SECONDS)
        ]
        items = dynamodb.scan(TableName=TABLE)["Items"]

    assert killed == -signal.SIGKILL
    assert answers == [{"batchItemFailures": [{"itemIdentifier": hanging}]}, *[{"batchItemFailures": []}] * 2]
    assert {item["idempotency_key"]["S"]: item["status"]["S"] for item in items} == dict.fromkeys(KEYS, "completed")
    attempts = {item["idempotency_key"]["S"]: int(item["attempts"]["N"]) for item in items}
    assert attempts == dict.fromkeys(KEYS, 1) | {hanging: 2}
    charged = [line.split() for line in effects.read_text().splitlines()]
    assert sorted(key for key, _ in charged) == sorted([*KEYS, hanging]), "raw calls"
    assert len({downstream for _, downstream in charged}) == len(KEYS), "one downstream key for both calls"
