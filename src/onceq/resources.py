"""Queues, tables and buckets from the template: names, policies, times and keys of a local run are the template's."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onceq.bucket import Bucket
from onceq.clock import OpenDeadline, SystemClock, TokenFactory
from onceq.codec import encode
from onceq.dynamodb import DynamoDB
from onceq.errors import ConfigurationError
from onceq.intrinsics import NO_VALUE, Resolver, text_of
from onceq.queue import Queue
from onceq.template import parameter_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onceq.intrinsics import Template

QUEUE = "AWS::SQS::Queue"
TABLE = "AWS::DynamoDB::Table"
BUCKET = "AWS::S3::Bucket"
# Properties that are attributes of CreateQueue under the same name; the others are for CloudFormation itself.
QUEUE_ATTRIBUTES = (
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "DelaySeconds",
    "FifoQueue",
    "FifoThroughputLimit",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds",
    "RedrivePolicy",
    "SqsManagedSseEnabled",
    "VisibilityTimeout",
)
TABLE_PARAMETERS = (
    "AttributeDefinitions",
    "BillingMode",
    "GlobalSecondaryIndexes",
    "KeySchema",
    "LocalSecondaryIndexes",
    "ProvisionedThroughput",
)
LOCAL_HOSTS = ("http://127.0.0.1:", "http://localhost:", "http://[::1]:")


@dataclass
class Resources:
    """The template's queues, tables and buckets, created on first reference.

    Args:
        template: The template.
        parameters: Instead of its parameters' defaults.
        attributes: Attributes of what exists, by logical id; ``Ref`` is one of them.
    """

    template: Template
    parameters: Mapping[str, object]
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    _underway: list[str] = field(default_factory=list)
    _visibility: dict[str, tuple[int, str]] = field(default_factory=dict)

    @cached_property
    def resolver(self) -> Resolver:
        """Resolves intrinsic functions against these resources."""
        return Resolver(self.template, self.parameters, self.attribute)

    def attribute(self, logical_id: str, name: str) -> str | None:
        """Return an attribute of a queue, table or bucket, created if need be; ``None`` for anything else."""
        resource = self.template["Resources"].get(logical_id)
        if not isinstance(resource, dict) or resource.get("Type") not in (QUEUE, TABLE, BUCKET):
            return None
        if logical_id not in self.attributes:
            self._create(logical_id, resource)
        return self.attributes.get(logical_id, {}).get(name)

    def exists(self, logical_id: str) -> bool:
        """Say whether the template makes a resource with these parameters: it has no condition, or one that holds."""
        condition = self.template["Resources"][logical_id].get("Condition")
        return condition is None or self.resolver.condition(condition, f"Resources.{logical_id}")

    def queue_url(self, logical_id: str) -> str:
        """Return a queue's URL. Raises: ConfigurationError, if there is no such queue."""
        return self._needed(logical_id, "QueueUrl")

    def queue_arn(self, logical_id: str) -> str:
        """Return a queue's ARN. Raises: ConfigurationError, if there is no such queue."""
        return self._needed(logical_id, "Arn")

    def table_name(self, logical_id: str) -> str:
        """Return a table's name. Raises: ConfigurationError, if there is no such table."""
        return self._needed(logical_id, "Ref")

    def visibility(self, arn: str) -> tuple[int | None, str]:
        """Return a queue's visibility timeout as created and the parameter that sets it, if one does."""
        return self._visibility.get(arn, (None, ""))

    @property
    def queues(self) -> dict[str, str]:
        """Queue URLs by logical id."""
        return {name: values["QueueUrl"] for name, values in self.attributes.items() if "QueueUrl" in values}

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        return self._names(TABLE)

    @property
    def buckets(self) -> list[str]:
        """Names of the buckets."""
        return self._names(BUCKET)

    def _names(self, kind: str) -> list[str]:
        resources = self.template["Resources"]
        return [values["Ref"] for name, values in self.attributes.items() if values and resources[name]["Type"] == kind]

    def _needed(self, logical_id: str, name: str) -> str:
        value = self.attribute(logical_id, name)
        if value is None:
            message = f"the template has no {logical_id} with {name}"
            raise ConfigurationError(message)
        return value

    def _create(self, logical_id: str, resource: dict[str, Any]) -> None:
        path = f"Resources.{logical_id}"
        if logical_id in self._underway:
            message = f"{path}: the resources refer to each other in a circle: {' → '.join(self._underway)}"
            raise ConfigurationError(message)
        if not self.exists(logical_id):
            self.attributes[logical_id] = {}
            return
        self._underway.append(logical_id)
        try:
            if resource["Type"] == BUCKET:
                self.attributes[logical_id] = self._create_bucket(logical_id)
                return
            properties = self.resolver.resolve(resource.get("Properties") or {}, f"{path}.Properties")
            create = self._create_queue if resource["Type"] == QUEUE else self._create_table
            self.attributes[logical_id] = create(logical_id, {} if properties is NO_VALUE else properties)
        finally:
            self._underway.remove(logical_id)

    def _create_queue(self, logical_id: str, properties: dict[str, Any]) -> dict[str, str]:
        given = {name: properties[name] for name in QUEUE_ATTRIBUTES if name in properties}
        attributes = {n: encode(v) if isinstance(v, dict | list) else text_of(v) for n, v in given.items()}
        is_fifo = attributes.get("FifoQueue") == "true"
        if not is_fifo:
            attributes.pop("FifoQueue", None)  # SQS refuses "false"
        name = f"{logical_id}.fifo" if is_fifo else logical_id
        url = self._sqs.call("CreateQueue", {"QueueName": name, "Attributes": attributes})["QueueUrl"]
        answer = self._sqs.call(
            "GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["QueueArn", "VisibilityTimeout"]}
        )
        arn, seconds = answer["Attributes"]["QueueArn"], int(answer["Attributes"]["VisibilityTimeout"])
        declared = (self.template["Resources"][logical_id].get("Properties") or {}).get("VisibilityTimeout")
        self._visibility[arn] = seconds, parameter_of(self.template, declared)
        return {"Ref": url, "QueueUrl": url, "Arn": arn, "QueueName": name}

    def _create_table(self, logical_id: str, properties: dict[str, Any]) -> dict[str, str]:
        request = {name: properties[name] for name in TABLE_PARAMETERS if name in properties}
        stream = properties.get("StreamSpecification")
        if stream:
            request["StreamSpecification"] = {"StreamEnabled": True, **stream}
        call, deadline = self._dynamodb.call, OpenDeadline()
        table = call("CreateTable", {"TableName": logical_id, **request}, deadline)["TableDescription"]
        expiry = properties.get("TimeToLiveSpecification")
        if expiry:
            call("UpdateTimeToLive", {"TableName": logical_id, "TimeToLiveSpecification": expiry}, deadline)
        attributes = {"Ref": logical_id, "Arn": table["TableArn"]}
        return attributes | ({"StreamArn": table["LatestStreamArn"]} if stream else {})

    def _create_bucket(self, logical_id: str) -> dict[str, str]:
        # A bucket's name has no capitals. Nothing else of it shows in a run that ends before a lifecycle rule begins.
        name = logical_id.lower()
        self._s3.call("CreateBucket", {"Bucket": name})
        return {"Ref": name, "Arn": f"arn:aws:s3:::{name}"}

    @cached_property
    def _sqs(self) -> Queue:
        clock = SystemClock()
        return Queue(clock, TokenFactory(clock), OpenDeadline(), connections=1)

    @cached_property
    def _s3(self) -> Bucket:
        clock = SystemClock()
        return Bucket(clock, TokenFactory(clock), OpenDeadline(), connections=1)

    @cached_property
    def _dynamodb(self) -> DynamoDB:
        clock = SystemClock()
        return DynamoDB(clock, TokenFactory(clock), connections=1)


def create_resources(
    template: Template, *, parameters: Mapping[str, object] | None = None, embedded: bool = False
) -> Resources:
    """Create the template's queues, tables and buckets on the emulator at ``AWS_ENDPOINT_URL``.

    Each is named by its logical id. Everything else, from visibility timeout to TTL attribute, is the template's, with
    the defaults of its parameters.

    Args:
        template: What `onceq.template.load_template` returned.
        parameters: Instead of the parameters' defaults, for example ``{"VisibilityTimeout": 2}``.
        embedded: Whether this process runs inside `onceq.local.embedded_moto`, which has no endpoint.

    Returns:
        The resources: ``queue_url("JobsQueue")``, ``queue_arn(...)``, ``table_name("ClaimsTable")``.

    Raises:
        ConfigurationError: If the endpoint is not on this machine, or the template cannot be resolved.
        QueueError: If SQS refused a queue.
        StoreError: If DynamoDB refused a table.
        BucketError: If S3 refused a bucket.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if not embedded and not endpoint.startswith(LOCAL_HOSTS):
        message = f"AWS_ENDPOINT_URL={endpoint!r}: resources are only created on an emulator on this machine"
        raise ConfigurationError(message)
    resources = Resources(template, dict(parameters or {}))
    for logical_id in _creatable(template):
        resources.attribute(logical_id, "Ref")
    return resources


def _creatable(template: Template) -> Iterator[str]:
    for logical_id, resource in template["Resources"].items():
        if isinstance(resource, dict) and resource.get("Type") in (QUEUE, TABLE, BUCKET):
            yield logical_id
