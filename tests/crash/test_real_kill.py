"""A process that is really killed: SIGKILL, no finally, no exit handler, over a server that outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import boto3

from kit.clock import FrozenClock
from kit.world import REGION, TABLE, arn_of
from onceq.local import MotoServer

TESTS = Path(__file__).parents[1]
# A lease of 60 s and its margin, and the clock skew.
STALE_MS = 72_000


def test_a_job_that_kills_its_process_ends_rejected_and_its_neighbours_complete() -> None:
    """G5: batched each time with three good ones, a job that sends itself SIGKILL ends rejected by itself."""
    with MotoServer() as server:
        clients = {name: boto3.client(name, endpoint_url=server.endpoint) for name in ("sqs", "dynamodb")}
        clients["dynamodb"].create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        dlq_url, url = (clients["sqs"].create_queue(QueueName=name)["QueueUrl"] for name in ("Dead", "JobsQueue"))
        environment = os.environ | {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "ONCEQ_CLAIMS_TABLE": TABLE,
            "ONCEQ_QUEUES": json.dumps({"default": {"url": url, "arn": arn_of("JobsQueue"), "dlq_url": dlq_url}}),
            "ONCEQ_CONCURRENCY": "1",
            "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
        }
        codes, answer = [], ""
        for number in range(3):
            now_ms = FrozenClock().now_ms() + number * STALE_MS
            command = [sys.executable, "-m", "kit.dying_worker", str(now_ms), str(number)]
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
            codes.append(ended.returncode)
            answer = ended.stdout
        items = clients["dynamodb"].scan(TableName=TABLE)["Items"]
        dead = clients["sqs"].receive_message(QueueUrl=dlq_url, MessageAttributeNames=["All"])["Messages"]

    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert json.loads(answer) == {"batchItemFailures": []}
    status = {item["idempotency_key"]["S"]: item["status"]["S"] for item in items}
    # In the first round, one thread, the killer was new and came first: its neighbours were never started.
    good = {f"good-{number}-{other}": "completed" for number in (1, 2) for other in range(3)}
    assert status == good | {"killer": "rejected"}
    assert [json.loads(message["MessageAttributes"]["onceq"]["StringValue"])["attempts"] for message in dead] == [2]
