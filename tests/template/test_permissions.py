"""The role's permissions, held against the calls that the code makes."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest

from template.reading import ROOT, Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

# What the event source mapping does with the role:
# https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
EVENT_SOURCE = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}

# https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-permissions
NETWORK_INTERFACES = {
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
}


def _actions_of(module: str, service: str) -> set[str]:
    """Return the actions behind every operation of a service that a module names in a string."""
    operations = set(botocore.session.get_session().get_service_model(service).operation_names)
    tree = ast.parse((ROOT / "src" / "onceq" / f"{module}.py").read_text())
    named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    # IAM knows no batch variants: https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsqs.html
    return {f"{service}:{operation.removesuffix('Batch')}" for operation in operations & named}


def _statements(stack: Stack) -> Iterator[dict[str, Any]]:
    role = stack.properties("ConsumerRole")
    for policy in role["Policies"]:
        yield from policy["PolicyDocument"]["Statement"]
    for logical_id, properties in stack.of_type("AWS::IAM::ManagedPolicy").items():
        assert logical_id in {"JobsPolicy", "ProducerPolicy", "LookupPolicy"}
        yield from properties["PolicyDocument"]["Statement"]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _allowed(stack: Stack) -> dict[str, list[Any]]:
    """Return the resources of every action that the inline policies of the role allow."""
    allowed: dict[str, list[Any]] = {}
    for policy in stack.properties("ConsumerRole")["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            for action in _listed(statement["Action"]):
                allowed.setdefault(action, []).extend(_listed(statement["Resource"]))
    return allowed


@pytest.mark.parametrize(
    ("module", "service", "besides"), [("store", "dynamodb", set()), ("queue", "sqs", EVENT_SOURCE)]
)
def test_the_role_allows_what_the_code_calls_and_no_more(
    stack: Stack, module: str, service: str, besides: set[str]
) -> None:
    """Every call of the code is allowed, and nothing that it does not call."""
    called = _actions_of(module, service)
    assert called, f"no operation found in {module}.py: has the seam changed?"
    allowed = {action for action in _allowed(stack) if action.startswith(f"{service}:")}
    assert allowed == called | besides


def test_actions_are_allowed_on_their_own_resources(stack: Stack) -> None:
    """Claims are written in the claims table only; the DLQ is only sent to."""
    jobs, dead, claims = ({"Fn::GetAtt": [name, "Arn"]} for name in ("JobsQueue", "DeadLetterQueue", "ClaimsTable"))
    for action, resources in _allowed(stack).items():
        if action.startswith("dynamodb:"):
            assert resources == [claims], action
        elif action == "sqs:SendMessage":
            assert resources == [jobs, dead]
        elif action.startswith("sqs:"):
            assert resources == [jobs], action
        else:
            assert action in {"logs:CreateLogStream", "logs:PutLogEvents"}
            assert resources == [{"Fn::GetAtt": ["ConsumerLogGroup", "Arn"]}]


def test_no_statement_is_about_everything(stack: Stack) -> None:
    """No statement of ours has `*` for a resource, or for what it allows."""
    statements = list(_statements(stack))
    for policy in stack.of_type("AWS::SQS::QueuePolicy").values():
        statements += policy["PolicyDocument"]["Statement"]
    assert statements
    for statement in statements:
        assert "*" not in json.dumps(statement["Resource"]), statement
        assert statement["Effect"] == "Deny" or "*" not in json.dumps(statement["Action"]), statement


def test_only_the_network_interfaces_of_a_vpc_are_everywhere() -> None:
    """Inside a VPC one more statement names `*`, as EC2 demands: six actions on network interfaces, and no logs."""
    inside = Stack(given={"VpcSubnetIds": "subnet-1", "VpcSecurityGroupIds": "sg-1"})
    outside = list(_statements(Stack()))
    [added] = [statement for statement in _statements(inside) if statement not in outside]
    assert (added["Effect"], added["Resource"]) == ("Allow", "*")
    assert set(added["Action"]) == NETWORK_INTERFACES
    assert inside.properties("ConsumerRole")["ManagedPolicyArns"] == [{"Ref": "JobsPolicy"}]


def test_the_framework_policies_are_inline(stack: Stack) -> None:
    """A separate policy may come after the event source mapping, which is refused without it."""
    assert stack.properties("ConsumerFunction")["Role"] == {"Fn::GetAtt": ["ConsumerRole", "Arn"]}
    assert "Policies" not in stack.properties("ConsumerFunction")
    assert not stack.of_type("AWS::IAM::Policy")


def test_a_caller_may_only_look_up(stack: Stack) -> None:
    """The policy of who calls app.lookup reads items of the claims table, and nothing else."""
    [statement] = stack.properties("LookupPolicy")["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "dynamodb:GetItem")
    assert statement["Resource"] == {"Fn::GetAtt": ["ClaimsTable", "Arn"]}


def test_a_producer_may_only_send(stack: Stack) -> None:
    """The producers' policy sends to the queue, and nothing else."""
    [statement] = stack.properties("ProducerPolicy")["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "sqs:SendMessage")
    assert statement["Resource"] == {"Fn::GetAtt": ["JobsQueue", "Arn"]}
