"""The stack that was deployed, as the tests use it: its queues, tables, functions and permissions."""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

import boto3
import botocore.session

from kit.world import REGION
from onceq import App
from onceq.locks import KIND, LockItem
from onceq.outbox import OutboxEntry
from onceq.record import Record, pk_of
from onceq.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kit.deployment import Cloud

T = TypeVar("T")
# A cold start on a busy machine takes seconds, and a message that was kept waits for its visibility timeout first.
PATIENCE_SECONDS = 90.0
ROOT_KEY = ("test", "test")


def eventually(probe: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
    """Ask until the answer is true, and return it."""
    end = time.monotonic() + seconds
    while not (answer := probe()):
        assert time.monotonic() < end, f"after {seconds:g} s it is still {answer!r}"
        time.sleep(0.1)
    return answer


@dataclass
class Stack:
    """A stack.

    Args:
        cloud: Where it is deployed.
        name: Its name.
        letters: What came out of its dead-letter queues so far.
    """

    cloud: Cloud
    name: str
    letters: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the clients, and let the mapping deliver."""
        clients = [self.client(name) for name in ("sqs", "dynamodb", "lambda", "iam", "logs", "cloudformation")]
        self.sqs, self.dynamodb, self.functions, self.iam, self.logs, self.formation = clients
        self.read()

    def read(self) -> None:
        """Read what the stack consists of, after each deployment."""
        described = self.formation.describe_stacks(StackName=self.name)["Stacks"][0]
        self.outputs = {each["OutputKey"]: each["OutputValue"] for each in described["Outputs"]}
        summaries = self.formation.list_stack_resources(StackName=self.name)["StackResourceSummaries"]
        self.physical = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in summaries}
        # ministack keeps a number of the template as text, compares it with a number, and polls nothing.
        for mapping in self.functions.list_event_source_mappings()["EventSourceMappings"]:
            most = int(mapping["ScalingConfig"]["MaximumConcurrency"])
            self.functions.update_event_source_mapping(UUID=mapping["UUID"], ScalingConfig={"MaximumConcurrency": most})
        variables = self.functions.get_function_configuration(FunctionName=self.physical["ConsumerFunction"])
        environment = variables["Environment"]["Variables"]
        self.settings = Settings.from_env({k: v for k, v in environment.items() if k.startswith("ONCEQ_")})

    def client(self, service: str, key: tuple[str, str] = ROOT_KEY) -> Any:
        """Return a client; of root, or of whoever has the access key."""
        return boto3.client(
            service,
            endpoint_url=self.cloud.endpoint,
            region_name=REGION,
            verify=str(self.cloud.certificate),
            aws_access_key_id=key[0],
            aws_secret_access_key=key[1],
        )

    def plain_client(self, service: str) -> Any:
        """Return a client of root whose requests came over plain HTTP to what ends TLS in front of the service."""
        client = self.client(service)
        client.meta.events.register(
            f"before-sign.{service}", lambda request, **_: request.headers.add_header("X-Forwarded-Proto", "http")
        )
        return client

    def user(self, policy: str) -> tuple[str, str]:
        """Make a user who has one policy of the stack, and return an access key."""
        name = f"{policy}-{uuid.uuid4().hex}"
        self.iam.create_user(UserName=name)
        self.iam.attach_user_policy(UserName=name, PolicyArn=self.physical[policy])
        made = self.iam.create_access_key(UserName=name)["AccessKey"]
        return made["AccessKeyId"], made["SecretAccessKey"]

    @contextmanager
    def app(self, policy: str) -> Iterator[App]:
        """Compose the application as it runs outside of Lambda, for a user who has one policy of the stack."""
        import app as composed

        session = botocore.session.get_session()
        session.set_credentials(*self.user(policy))
        ours = {name: self.cloud.variables[name] for name in ("AWS_ENDPOINT_URL", "AWS_CA_BUNDLE")}
        with patch.dict(os.environ, ours), patch("onceq.client._session", lambda: session):
            yield App(composed.app.job_types, settings=self.settings, hooks=[])

    def statements(self) -> set[tuple[str, str]]:
        """Return every statement that is deployed, as the resource of the template and its Sid."""
        return {(name, each["Sid"]) for name in self.physical for each in self._policy(name)[0].get("Statement", ())}

    @contextmanager
    def without(self, resource: str, sid: str) -> Iterator[None]:
        """Take one statement away while the block runs."""
        document, write = self._policy(resource)
        kept = [each for each in document["Statement"] if each["Sid"] != sid]
        assert len(kept) == len(document["Statement"]) - 1, f"{resource} has no statement {sid}"
        # A policy without a statement is none; this one allows what nobody asks for.
        nothing = {"Sid": "Nothing", "Effect": "Allow", "Action": "sqs:CreateQueue", "Resource": "*"}
        if not resource.startswith("OnlyEncrypted"):
            kept.append(nothing)
        write(document | {"Statement": kept})
        try:
            yield
        finally:
            write(document)

    def _policy(self, resource: str) -> tuple[dict[str, Any], Callable[[dict[str, Any]], None]]:
        """Return the document of a resource that holds one, and what writes another in its place."""
        if resource.endswith("Role"):
            role = self.physical[resource]
            [name] = self.iam.list_role_policies(RoleName=role)["PolicyNames"]
            return self.iam.get_role_policy(RoleName=role, PolicyName=name)[
                "PolicyDocument"
            ], lambda document: self.iam.put_role_policy(
                RoleName=role, PolicyName=name, PolicyDocument=json.dumps(document)
            )
        if resource in QUEUE_POLICIES:
            url = self.physical[QUEUE_POLICIES[resource]]
            text = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
            return json.loads(text), lambda document: self.sqs.set_queue_attributes(
                QueueUrl=url, Attributes={"Policy": json.dumps(document) if document["Statement"] else ""}
            )
        if resource.endswith("Policy"):
            arn = self.physical[resource]
            version = self.iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
            found = self.iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
            return found, lambda document: self._write_policy(arn, document)
        return {}, lambda _: None

    def _write_policy(self, arn: str, document: dict[str, Any]) -> None:
        self.iam.create_policy_version(PolicyArn=arn, PolicyDocument=json.dumps(document), SetAsDefault=True)
        for each in self.iam.list_policy_versions(PolicyArn=arn)["Versions"]:
            if not each["IsDefaultVersion"]:
                self.iam.delete_policy_version(PolicyArn=arn, VersionId=each["VersionId"])

    def send(self, job_type: str, payload: dict[str, Any], *, key: str | None = None, **options: Any) -> str:
        """Send an envelope that was made by hand, as a producer without onceq does; return the message id."""
        answer: dict[str, Any] = self.sqs.send_message(
            QueueUrl=self.outputs["JobsQueueUrl"], MessageBody=envelope(job_type, payload, key), **options
        )
        return str(answer["MessageId"])

    def record(self, job_type: str, key: str) -> Record | None:
        """Read a job's record."""
        item = self._item("ClaimsTable", pk_of(job_type, key))
        return Record.from_item(item) if item else None

    def has_ended(self, job_type: str, key: str, status: str = "completed") -> Callable[[], Record | None]:
        """Return a question for `eventually`: the record, once it has this status."""

        def probe() -> Record | None:
            record = self.record(job_type, key)
            return record if record and record.status == status else None

        return probe

    def entry(self, pk: str) -> OutboxEntry:
        """Read an entry of the outbox."""
        return OutboxEntry.from_item(self._item("OutboxTable", pk))

    def entries_for(self, key: str) -> list[OutboxEntry]:
        """Return the entries of the outbox for the job of that key."""
        items = self.dynamodb.scan(TableName=self.physical["OutboxTable"], ConsistentRead=True)["Items"]
        return [each for each in map(OutboxEntry.from_item, items) if each.idempotency_key == key]

    def put(self, table: str, item: dict[str, Any]) -> None:
        """Let an item stand in a table."""
        self.dynamodb.put_item(TableName=self.physical[table], Item=item)

    def account(self, name: str) -> tuple[int, str] | None:
        """Return the balance of an account of the ledger, and its last entry."""
        found = self.dynamodb.get_item(TableName=self.physical["LedgerTable"], Key={"account": {"S": name}})
        item = found.get("Item")
        return (int(item["balance_cents"]["N"]), item["last_entry"]["S"]) if item else None

    def stock(self, sku: str) -> int:
        """Return how much of something there is."""
        found = self.dynamodb.get_item(TableName=self.physical["StockTable"], Key={"sku": {"S": sku}})
        return int(found["Item"]["available"]["N"])

    def lock(self, name: str) -> LockItem:
        """Read a lock."""
        return LockItem.from_item(self._item("ClaimsTable", pk_of(KIND, name)))

    def _item(self, table: str, pk: str) -> dict[str, Any]:
        key = {"pk": {"S": pk}}
        found = self.dynamodb.get_item(TableName=self.physical[table], Key=key, ConsistentRead=True)
        item: dict[str, Any] = found.get("Item", {})
        return item

    def messages(self, queue: str = "JobsQueue") -> int:
        """Count the messages of a queue, those in flight and delayed included."""
        names = [f"ApproximateNumberOfMessages{which}" for which in ("", "NotVisible", "Delayed")]
        found = self.sqs.get_queue_attributes(QueueUrl=self.physical[queue], AttributeNames=names)["Attributes"]
        return sum(map(int, found.values()))

    def letter(self, text: str, queue: str = "DeadLetterQueue") -> Callable[[], dict[str, Any] | None]:
        """Return a question for `eventually`: the dead letter whose body contains a text, with its ``note``."""

        def probe() -> dict[str, Any] | None:
            url = self.physical[queue]
            asked = {"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["All"]}
            for message in self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **asked).get("Messages", ()):
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                note = message.get("MessageAttributes", {}).get("onceq")
                self.letters.append(message | {"note": json.loads(note["StringValue"]) if note else None})
            return next((each for each in self.letters if text in each["Body"]), None)

        return probe

    @contextmanager
    def attributes(self, queue: str = "JobsQueue", **changed: str) -> Iterator[None]:
        """Change attributes of a queue while the block runs."""
        url = self.physical[queue]
        before = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(changed))["Attributes"]
        self.sqs.set_queue_attributes(QueueUrl=url, Attributes=changed)
        try:
            yield
        finally:
            self.sqs.set_queue_attributes(QueueUrl=url, Attributes=before)

    def invoke(self, function: str) -> tuple[str | None, Any]:
        """Invoke a function; return the kind of its error, if any, and its answer."""
        answer = self.functions.invoke(FunctionName=self.physical[function], Payload=b"{}")
        return answer.get("FunctionError"), json.loads(answer["Payload"].read())

    def events(self, name: str, text: str = "", function: str = "Consumer") -> list[dict[str, Any]]:
        """Return the events of that name in a function's log whose lines contain a text."""
        return [event for event in self.lines(text, function) if event.get("event") == name]

    def lines(self, text: str, function: str = "Consumer") -> list[dict[str, Any]]:
        """Return the lines of a function's log that contain a text, read."""
        group = self.outputs[f"{function}LogGroupName"]
        pages = self.logs.get_paginator("filter_log_events").paginate(logGroupName=group)
        lines = [event["message"] for page in pages for event in page["events"]]
        return [json.loads(line) for line in lines if line.startswith("{") and text in line]

    def was_told(self, name: str, text: str = "", function: str = "Consumer") -> Callable[[], list[dict[str, Any]]]:
        """Return a question for `eventually`: those events."""
        return lambda: self.events(name, text, function)


QUEUE_POLICIES = {
    "OnlyEncryptedConnections": "JobsQueue",
    "OnlyEncryptedConnectionsToDeadLetters": "DeadLetterQueue",
}


def envelope(job_type: str, payload: dict[str, Any], key: str | None = None) -> str:
    """Return a message's body as the schema in ``events/`` describes it; without a key the job type derives it."""
    stamped = {"idempotency_key": key} if key is not None else {}
    fixed = {"onceq": 1, "job_type": job_type, "payload": payload, "created_at": "2026-11-29T12:00:00Z"}
    return json.dumps(fixed | stamped)
