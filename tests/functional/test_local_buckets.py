"""The template's bucket in a local run: a large message goes through it as it does on AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest

from kit.clock import FakeLambdaContext
from kit.delivery import Poller
from onceq import App, Context, job
from onceq.local import embedded_moto
from onceq.queue import MAX_BYTES
from onceq.resources import create_resources
from onceq.runtime import Runtime
from onceq.settings import Settings
from onceq.template import function_environment, load_template

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.resources import Resources

TEMPLATE = """
Parameters:
  PayloadBucketEnabled: {Type: String, Default: "false"}
Conditions:
  HasPayloadBucket: !Equals [!Ref PayloadBucketEnabled, "true"]
Resources:
  JobsQueue: {Type: AWS::SQS::Queue}
  DeadLetterQueue: {Type: AWS::SQS::Queue}
  ClaimsTable:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}]
  PayloadBucket:
    Type: AWS::S3::Bucket
    Condition: HasPayloadBucket
    Properties:
      LifecycleConfiguration: {Rules: [{Status: Enabled, ExpirationInDays: !GetAtt Nothing.OfThisReaches}]}
  F:
    Type: AWS::Serverless::Function
    Properties:
      Environment:
        Variables:
          ONCEQ_CLAIMS_TABLE: !Ref ClaimsTable
          ONCEQ_PAYLOAD_BUCKET: !If [HasPayloadBucket, !Ref PayloadBucket, ""]
          ONCEQ_QUEUES: !Sub >-
            {"default": {"url": "${JobsQueue}", "arn": "${JobsQueue.Arn}", "dlq_url": "${DeadLetterQueue}"}}
"""


def created(tmp_path: Path, enabled: str) -> tuple[Resources, Settings]:
    """Create the resources, and read the function's settings."""
    path = tmp_path / "template.yaml"
    path.write_text(TEMPLATE, encoding="utf-8")
    template = load_template(path)
    resources = create_resources(template, parameters={"PayloadBucketEnabled": enabled}, embedded=True)
    return resources, Settings.from_env(function_environment(template, resources, function="F", shell={}))


def test_a_large_message_works_in_a_local_run(tmp_path: Path) -> None:
    """Enqueued, off-loaded into the template's bucket, fetched, done."""
    ran: list[tuple[str, int]] = []

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        ran.append((ctx.key, len(payload["data"])))

    with embedded_moto():
        resources, settings = created(tmp_path, "true")
        app = App([act], runtime=Runtime(settings), hooks=[])
        app.enqueue(act, {"data": "x" * MAX_BYTES}, key="k-1")
        assert Poller.of(app).poll(context=FakeLambdaContext()) == 1
        held = boto3.client("s3").list_objects_v2(Bucket=resources.attribute("PayloadBucket", "Ref"))["KeyCount"]

    assert ran == [("k-1", MAX_BYTES)]
    assert (resources.buckets, settings.payload_bucket, held) == (["payloadbucket"], "payloadbucket", 1)
    assert resources.attribute("PayloadBucket", "Arn") == "arn:aws:s3:::payloadbucket"
    assert resources.tables == ["ClaimsTable"]


@pytest.mark.parametrize("enabled", ["false", ""])
def test_without_its_condition_there_is_no_bucket(tmp_path: Path, enabled: str) -> None:
    """It costs nothing until somebody switches it on."""
    with embedded_moto():
        resources, settings = created(tmp_path, enabled)
        assert boto3.client("s3").list_buckets()["Buckets"] == []

    assert (resources.buckets, settings.payload_bucket) == ([], "")
