"""Both queues with moto: every message is delivered twice, and has one effect."""

import io
import json
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import main
import pytest
from moto import mock_aws
from work import Video, render

SECRET = "s3cr3t-of-the-farm"
ACCOUNT, REGION = "123456789012", "us-east-1"


@dataclass
class LambdaContext:
    function_name: str = "RenderFunction"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:RenderFunction"
    aws_request_id: str = "r-1"
    left: int = 900

    def get_remaining_time_in_millis(self):
        return self.left * 1000


@pytest.fixture
def farm():
    """A render farm: it counts the calls by their key, and remembers who called."""

    class Farm(BaseHTTPRequestHandler):
        calls, callers = Counter(), set()

        def do_POST(self):
            self.calls[self.headers["Idempotency-Key"]] += 1
            self.callers.add(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"location": f"farm:/{self.path}"}).encode())

        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Farm) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        Farm.url = f"http://127.0.0.1:{server.server_port}"
        yield Farm
        server.shutdown()


@pytest.fixture
def lines(monkeypatch):
    """What the functions log, each line as JSON."""
    stream = io.StringIO()
    monkeypatch.setattr(main.logger.registered_handler, "stream", stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def aws(monkeypatch, farm):
    """Queues, tables and the secret, and the environment that the template gives the functions."""
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": REGION}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with mock_aws():
        sqs, dynamodb = boto3.client("sqs"), boto3.client("dynamodb")
        queues = {}
        for name, ending in (("renders", ""), ("billing", ".fifo")):
            attributes = {"FifoQueue": "true"} if ending else {}
            letters = sqs.create_queue(QueueName=f"{name}-letters{ending}", Attributes=attributes)["QueueUrl"]
            url = sqs.create_queue(QueueName=f"{name}{ending}", Attributes=attributes)["QueueUrl"]
            queues[name] = {"url": url, "arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}{ending}", "dlq_url": letters}
        for table, key in (("claims", "pk"), ("outbox", "pk"), ("accounts", "account")):
            dynamodb.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        arn = boto3.client("secretsmanager").create_secret(Name="farm", SecretString=SECRET)["ARN"]
        monkeypatch.setenv("ONCEQ_QUEUES", json.dumps(queues))
        monkeypatch.setenv("ONCEQ_CLAIMS_TABLE", "claims")
        monkeypatch.setenv("ONCEQ_OUTBOX_TABLE", "outbox")
        monkeypatch.setenv("ACCOUNTS", "accounts")
        monkeypatch.setenv("FARM_SECRET", arn)
        monkeypatch.setenv("FARM_URL", farm.url)
        yield sqs, dynamodb, queues


def deliver_twice(sqs, queue):
    """Take what waits in a queue and hand it to the function two times, as SQS may."""
    messages = sqs.receive_message(QueueUrl=queue["url"], AttributeNames=["All"], MaxNumberOfMessages=10)["Messages"]
    for number in (1, 2):
        records = [
            {
                "messageId": f"{message['MessageId']}-{number}",
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": queue["arn"],
                "awsRegion": REGION,
            }
            for message in messages
        ]
        assert main.consumer({"Records": records}, LambdaContext()) == {"batchItemFailures": []}
    for message in messages:
        sqs.delete_message(QueueUrl=queue["url"], ReceiptHandle=message["ReceiptHandle"])
    return messages


def test_a_video_that_is_delivered_twice_is_rendered_once_and_billed_once(aws, farm, lines):
    """From one queue through the outbox to the other; the secret reaches the farm and nothing else."""
    sqs, dynamodb, queues = aws
    main.app.enqueue(render, Video("v-1", "a-1", 3))

    deliver_twice(sqs, queues["renders"])
    [bill] = deliver_twice(sqs, queues["billing"])

    account = dynamodb.get_item(TableName="accounts", Key={"account": {"S": "a-1"}})["Item"]
    assert account["minutes"] == {"N": "3"}
    assert list(farm.calls.values()) == [1]
    assert farm.callers == {f"Bearer {SECRET}"}
    assert bill["Attributes"]["MessageGroupId"] == "a-1"
    assert main.app.lookup(render, "v-1").result == "farm://v-1"
    logged = lines()
    assert [line["message"] for line in logged if line["message"] in ("rendered", "job.completed", "job.replayed")] == [
        "rendered", "job.completed", "job.replayed", "job.completed", "job.replayed",
    ]  # fmt: skip
    assert {line["function_name"] for line in logged} == {"RenderFunction"}
    kept = [dynamodb.scan(TableName=table)["Items"] for table in ("claims", "outbox")]
    assert SECRET not in json.dumps([logged, kept, bill])
