"""What tests run on where there is no template: the framework's own queues and tables, by the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceq.intrinsics import Template

PLAIN: Template = {
    "Resources": {
        "JobsQueue": {
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "VisibilityTimeout": 90,
                "RedrivePolicy": {
                    "deadLetterTargetArn": {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]},
                    "maxReceiveCount": 100,
                },
            },
        },
        "DeadLetterQueue": {"Type": "AWS::SQS::Queue", "Properties": {"MessageRetentionPeriod": 1_209_600}},
        "ClaimsTable": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            },
        },
        "OutboxTable": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [
                    {"AttributeName": "pk", "AttributeType": "S"},
                    {"AttributeName": "shard", "AttributeType": "S"},
                    {"AttributeName": "next_at", "AttributeType": "N"},
                ],
                "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                "GlobalSecondaryIndexes": [
                    {
                        "IndexName": "pending",
                        "KeySchema": [
                            {"AttributeName": "shard", "KeyType": "HASH"},
                            {"AttributeName": "next_at", "KeyType": "RANGE"},
                        ],
                        "Projection": {"ProjectionType": "ALL"},
                    }
                ],
            },
        },
        "ConsumerFunction": {
            "Type": "AWS::Serverless::Function",
            "Properties": {
                "Handler": "app.consumer",
                "Timeout": 60,
                "Environment": {
                    "Variables": {
                        "ONCEQ_CLAIMS_TABLE": {"Ref": "ClaimsTable"},
                        "ONCEQ_OUTBOX_TABLE": {"Ref": "OutboxTable"},
                        "ONCEQ_QUEUES": {
                            "Fn::Sub": '{"default": {"url": "${JobsQueue}", "arn": "${JobsQueue.Arn}", '
                            '"dlq_url": "${DeadLetterQueue}"}}'
                        },
                    }
                },
                "Events": {"Jobs": {"Type": "SQS", "Properties": {"Queue": {"Fn::GetAtt": ["JobsQueue", "Arn"]}}}},
            },
        },
    }
}
