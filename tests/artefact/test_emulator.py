"""The built function under Lambda's own runtime, against locked moto. `make artefact` builds it first."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from kit.emulator import ROOT, emulating
from kit.provider import serving_provider
from kit.world import REGION, TABLE, arn_of
from onceq.local import serialise_moto

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kit.provider import Provider

# process_payment declares 20 s for the worst case; the rest is for the reserve and a cold start on a busy machine.
TIMEOUT = 28
SKEW_MS = 10_000
BATCH = "batch-with-poison.json"


class Services:
    """DynamoDB and SQS on locked moto over HTTP, and what the function needs to find them."""

    def __init__(self, endpoint: str) -> None:
        """Create table and queues."""
        self.endpoint = endpoint
        self.dynamodb = boto3.client("dynamodb", endpoint_url=endpoint, region_name=REGION)
        self.sqs = boto3.client("sqs", endpoint_url=endpoint, region_name=REGION)
        self.dynamodb.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        self.dlq = self.sqs.create_queue(QueueName="DeadLetterQueue")["QueueUrl"]
        self.queue = self.sqs.create_queue(QueueName="JobsQueue")["QueueUrl"]

    def environment(self, provider: Provider) -> dict[str, str]:
        """Return the function's environment variables."""
        queues = {"default": {"url": self.queue, "arn": arn_of("JobsQueue"), "dlq_url": self.dlq}}
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "ONCEQ_CLAIMS_TABLE": TABLE,
            "ONCEQ_QUEUES": json.dumps(queues),
            "POWERTOOLS_SERVICE_NAME": "consumer",
            "POWERTOOLS_METRICS_NAMESPACE": "test",
            "PAYMENTS_URL": provider.url,
            "MAIL_URL": provider.url,
        }

    def record(self, key: str) -> dict[str, Any]:
        """Read a payment's record as plain values."""
        key_of = {"pk": {"S": f"process_payment#{key}"}}
        item = self.dynamodb.get_item(TableName=TABLE, Key=key_of, ConsistentRead=True)["Item"]
        return {name: next(iter(value.values())) for name, value in item.items()}


@pytest.fixture
def services() -> Iterator[Services]:
    """Locked moto on a free port of this machine."""
    serialise_moto()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    urllib.request.urlopen(f"http://{host}:{port}/moto-api/reset", data=b"").close()  # an earlier test's tables
    try:
        yield Services(f"http://{host}:{port}")
    finally:
        server.stop()


@pytest.fixture
def provider() -> Iterator[Provider]:
    """The payment provider."""
    with serving_provider() as served:
        yield served


def _event(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((ROOT / "events" / name).read_text())
    return event


def test_a_batch_with_a_poison_message_is_answered_exactly(
    services: Services, provider: Provider, tmp_path: Path
) -> None:
    """G5: the built function answers the real event; the poison goes to the dead-letter queue, the rest completes."""
    with emulating(services.environment(provider), timeout=TIMEOUT, log=tmp_path / "log") as function:
        first = function.answer(_event(BATCH))
        second = function.answer(_event(BATCH))

    log = (tmp_path / "log").read_text()
    assert first == {"batchItemFailures": []}, log
    assert second == {"batchItemFailures": []}, log
    assert len(provider.effects) == sum(provider.calls.values()) > 0
    dead = services.sqs.receive_message(QueueUrl=services.dlq, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
    assert all("onceq" in message["MessageAttributes"] for message in dead["Messages"])
    assert '"event":"job.completed"' in log
    assert '"CloudWatchMetrics"' in log


def test_a_worker_killed_by_the_time_out_between_charge_and_completion_is_recovered(
    services: Services, provider: Provider, tmp_path: Path
) -> None:
    """G6: Lambda's SIGKILL leaves a claim that goes stale; the next delivery takes it over and charges nothing anew."""
    provider.hanging = threading.Event()
    with emulating(services.environment(provider), timeout=TIMEOUT, log=tmp_path / "log") as function:
        status, text = function.invoke(_event("one-payment.json"))
        left = services.record("o-1")
        provider.hanging.set()
        early = function.answer(_event("one-payment.json"))
        _wait_until(int(left["lease_expires_at"]) + SKEW_MS)
        recovered = function.answer(_event("one-payment.json"))
        replayed = function.answer(_event("one-payment.json"))

    log = (tmp_path / "log").read_text()
    assert (status, text) == (200, f"Task timed out after {TIMEOUT}.00 seconds"), log
    assert (left["status"], left["attempts"]) == ("processing", "1")
    message_id = _event("one-payment.json")["Records"][0]["messageId"]
    assert early == {"batchItemFailures": [{"itemIdentifier": message_id}]}, log
    assert recovered == {"batchItemFailures": []}, log
    assert replayed == {"batchItemFailures": []}, log
    record = services.record("o-1")
    assert (record["status"], record["attempts"]) == ("completed", "2")
    assert (len(provider.effects), sum(provider.calls.values())) == (1, 2)
    assert '"event":"job.taken_over"' in log


def _wait_until(epoch_ms: int) -> None:
    # The lease is real time, since the function under the emulator reads the machine's clock.
    time.sleep(max(0.0, epoch_ms / 1000 - time.time()))
