"""The roles' permissions, held against the calls that the code makes."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest

from onceq.locks import KIND
from onceq.record import pk_of
from onceq.recovery import CURSOR
from template.reading import ROOT, Stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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

# A transaction has no action of its own, its writes have theirs:
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html
WRITES = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}

LAMBDA_ROLES = {
    "ConsumerRole": "Consumer",
    "LedgerRole": "Ledger",
    "RelayRole": "Relay",
    "RecoveryRole": "Recovery",
}
JOBS, DEAD, CLAIMS, OUTBOX, STOCK = (
    {"Fn::GetAtt": [name, "Arn"]}
    for name in ("JobsQueue", "DeadLetterQueue", "ClaimsTable", "OutboxTable", "StockTable")
)
LEDGER_JOBS, LEDGER_DEAD, LEDGER, BUCKET = (
    {"Fn::GetAtt": [name, "Arn"]}
    for name in ("LedgerJobsQueue", "LedgerDeadLetterQueue", "LedgerTable", "PayloadBucket")
)
PAYLOADS = {"Fn::Sub": "${PayloadBucket.Arn}/*"}
PENDING = {"Fn::Sub": "${OutboxTable.Arn}/index/pending"}
# What the jobs themselves may do: the user adds statements and tables.
JOBS_POLICIES = "JobsPolicy", "LedgerPolicy"
OURS = {"JobsNeverDestroy", "JobsReadAndWriteTheirTables", "PostEntries"}


@functools.cache
def _functions(module: str) -> dict[str, list[ast.AST]]:
    """Return everything inside the functions and methods of a module of ours, by their names."""
    tree = ast.parse((ROOT / "src" / "onceq" / f"{module}.py").read_text())
    functions: dict[str, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions[node.name] += ast.walk(node)
    return functions


def _called_on(module: str, receiver: str) -> set[str]:
    """Return the methods that a module calls on what is called `receiver`: a name, or an attribute of that name."""
    return {
        node.func.attr
        for nodes in _functions(module).values()
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and receiver in (getattr(node.func.value, "id", None), getattr(node.func.value, "attr", None))
    }


def _actions(service: str, module: str, entries: Iterable[str] | None = None) -> set[str]:
    """Return the actions behind what functions of a module ask of a service, through each other and through `Table`.

    Args:
        service: ``dynamodb`` or ``sqs``.
        module: The module.
        entries: Names of functions; all of the module without it.
    """
    operations = set(botocore.session.get_session().get_service_model(service).operation_names)
    known = _functions("store") | _functions(module)
    todo = set(_functions(module) if entries is None else entries)
    assert todo <= set(known), f"{module}.py has no {todo - set(known)}: has the seam changed?"
    done: set[str] = set()
    actions: set[str] = set()
    while todo:
        name = todo.pop()
        done.add(name)
        for node in known[name]:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                action = WRITES.get(node.value, node.value)
                if action in operations or action in WRITES.values():
                    actions.add(action)
            todo |= {_callee(node)} & (set(known) - done)
    # IAM knows no batch variants: https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsqs.html
    return {f"{service}:{action.removesuffix('Batch')}" for action in actions - {"TransactWriteItems"}}


def _callee(node: ast.AST) -> str:
    """Return the name that a node gives to something of its own module or class, or nothing."""
    if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "self":
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _if_made(stack: Stack, *resources: Any) -> list[Any]:
    """Return those of the resources that the stack's parameters make."""
    made = []
    for resource in resources:
        [name] = set(re.findall(r"[A-Z]\w+(?=[.'])", str(resource))) & set(stack.template["Resources"])
        made += [resource] if stack.makes(name) else []
    return made


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _inline(stack: Stack, role: str) -> list[dict[str, Any]]:
    return [
        statement
        for policy in stack.properties(role)["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def _statements(stack: Stack) -> Iterator[dict[str, Any]]:
    """Yield the statements of every role and of every policy that may be attached to one, but not the user's own."""
    for role in stack.of_type("AWS::IAM::Role"):
        yield from _inline(stack, role)
    for name, policy in stack.of_type("AWS::IAM::ManagedPolicy").items():
        for statement in policy["PolicyDocument"]["Statement"]:
            if name not in JOBS_POLICIES or statement.get("Sid") in OURS:
                yield statement


def _by_sid(stack: Stack, policy: str) -> dict[str | None, dict[str, Any]]:
    """Return the statements of a policy by their names."""
    return {one.get("Sid"): one for one in stack.properties(policy)["PolicyDocument"]["Statement"]}


def _table_arns(stack: Stack) -> dict[str, Any]:
    """Return the ARN of each table that the user has added."""
    return {name: {"Fn::GetAtt": [name, "Arn"]} for name in stack.added("AWS::DynamoDB::Table")}


def _allowed(statements: Iterable[dict[str, Any]], resource: Any = None) -> set[str]:
    """Return the actions that the statements allow, on one resource or on any."""
    allowed: set[str] = set()
    for statement in statements:
        assert statement["Effect"] == "Allow"
        if resource is None or resource in _listed(statement["Resource"]):
            allowed |= set(_listed(statement["Action"]))
    return allowed


def _on(statements: Iterable[dict[str, Any]], service: str) -> list[Any]:
    """Return the resources on which the statements allow anything of a service, each once."""
    resources: list[Any] = []
    for statement in statements:
        if any(action.startswith(f"{service}:") for action in _listed(statement["Action"])):
            resources += [one for one in _listed(statement["Resource"]) if one not in resources]
    return resources


def test_the_derivation_finds_the_calls() -> None:
    """What the tests below compare with is read from the code: a change of the seam must not leave it empty."""
    assert _actions("dynamodb", "store") == {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:GetItem"}
    assert _actions("dynamodb", "outbox", ["staged"]) == {"dynamodb:PutItem"}
    assert _actions("dynamodb", "outbox", ["mark_failed"]) == {"dynamodb:UpdateItem"}
    assert _called_on("relay", "outbox") == {"pending", "mark_sent", "mark_failed"}
    assert _actions("dynamodb", "locks", ["acquire"]) == {"dynamodb:PutItem"}
    assert _actions("dynamodb", "locks", ["extend"]) == {"dynamodb:UpdateItem"}
    assert _called_on("resolving", "store") == {"get", "resolve"}
    assert _actions("s3", "bucket") == {"s3:GetObject", "s3:PutObject"}


def test_the_consumer_may_do_what_its_code_does_and_no_more(stack: Stack) -> None:
    """Claims and locks in one table, entries staged and marked in the other; it receives, defers, sends and copies.

    To a second queue it only sends.
    """
    allowed = _inline(stack, "ConsumerRole")
    marked = _called_on("relay", "outbox") - {"pending"}

    assert _allowed(allowed, CLAIMS) == _actions("dynamodb", "store") | _actions("dynamodb", "locks")
    assert _allowed(allowed, OUTBOX) == _actions("dynamodb", "outbox", {"staged", *marked})
    assert _allowed(allowed, JOBS) == _actions("sqs", "queue") | EVENT_SOURCE
    assert _allowed(allowed, DEAD) == {"sqs:SendMessage"}
    assert _on(allowed, "dynamodb") == [CLAIMS, OUTBOX]
    assert _on(allowed, "sqs") == [JOBS, DEAD, *_if_made(stack, LEDGER_JOBS)]
    assert all(_allowed(allowed, queue) == {"sqs:SendMessage"} for queue in _if_made(stack, LEDGER_JOBS))


def test_the_ordered_function_may_do_the_same_to_its_own_queue_and_to_no_other(stack: Stack) -> None:
    """The same code: the same calls on claims and outbox, and on its own queue and dead letters."""
    allowed, others = _inline(stack, "LedgerRole"), _inline(stack, "ConsumerRole")

    for own, other in ((LEDGER_JOBS, JOBS), (LEDGER_DEAD, DEAD), (CLAIMS, CLAIMS), (OUTBOX, OUTBOX)):
        assert _allowed(allowed, own) == _allowed(others, other) != set()
    assert _on(allowed, "dynamodb") == [CLAIMS, OUTBOX]
    assert _on(allowed, "sqs") == [LEDGER_JOBS, LEDGER_DEAD]


@pytest.mark.parametrize("role", ["ConsumerRole", "LedgerRole"])
def test_a_consumer_fetches_and_offloads_and_deletes_nothing(stack: Stack, role: str) -> None:
    """With a bucket it may do with its objects what the code does; without one there is no such statement."""
    allowed = _inline(stack, role)

    assert _on(allowed, "s3") == _if_made(stack, PAYLOADS)
    assert all(_allowed(allowed, objects) == _actions("s3", "bucket") for objects in _if_made(stack, PAYLOADS))


@pytest.mark.parametrize("policy", ["ProducerPolicy", "OutboxProducerPolicy"])
def test_a_producer_offloads_and_reads_nothing(stack: Stack, policy: str) -> None:
    """Whoever enqueues puts the body of a large message into the bucket; it is the consumer that fetches it."""
    allowed = stack.properties(policy)["PolicyDocument"]["Statement"]

    assert _on(allowed, "s3") == _if_made(stack, PAYLOADS)
    assert all(_allowed(allowed, objects) == {"s3:PutObject"} for objects in _if_made(stack, PAYLOADS))


def test_the_relay_may_do_what_its_code_does_and_no_more(stack: Stack) -> None:
    """It reads the index, marks entries and sends: no claim, no other queue, and no entry that it makes or deletes."""
    allowed = _inline(stack, "RelayRole")
    marked = _called_on("relay", "outbox") - {"pending"}

    assert _allowed(allowed, PENDING) == _actions("dynamodb", "outbox", {"pending"}) == {"dynamodb:Query"}
    assert _allowed(allowed, OUTBOX) == _actions("dynamodb", "outbox", marked)
    assert _allowed(allowed, JOBS) == _actions("sqs", "queue", {"send_batch"})
    assert _on(allowed, "dynamodb") == [PENDING, OUTBOX]
    assert _on(allowed, "sqs") == [JOBS, *_if_made(stack, LEDGER_JOBS)]
    assert all(_allowed(allowed, queue) == _allowed(allowed, JOBS) for queue in _on(allowed, "sqs"))


def test_recovery_may_do_what_its_code_does_and_no_more(stack: Stack) -> None:
    """It scans and marks the claims table and keeps its place there: it can reach no queue, so it can run no job."""
    allowed = _inline(stack, "RecoveryRole")
    marks = _called_on("recovery", "store") - {"dynamodb", "table", "deadline"}

    assert marks
    assert _allowed(allowed, CLAIMS) == _actions("dynamodb", "recovery") | _actions("dynamodb", "store", marks)
    assert _on(allowed, "dynamodb") == [CLAIMS]
    assert _on(allowed, "sqs") == []


def test_each_function_writes_its_own_log(stack: Stack) -> None:
    """Beside its calls a function may only write lines, into the log group that it logs to."""
    for role, name in LAMBDA_ROLES.items():
        group = {"Fn::GetAtt": [f"{name}LogGroup", "Arn"]}
        allowed = _inline(stack, role)
        assert _on(allowed, "logs") == [group]
        assert _allowed(allowed, group) == {"logs:CreateLogStream", "logs:PutLogEvents"}
        services = {action.split(":")[0] for action in _allowed(allowed)}
        assert services <= {"dynamodb", "sqs", "logs"} | ({"s3"} if stack.makes("PayloadBucket") else set())


def test_the_schedule_may_only_send(stack: Stack) -> None:
    """The nightly schedule's role sends to the jobs queue, and what it could not deliver to the dead-letter queue."""
    [statement] = _inline(stack, "NightlyReportRole")
    schedule = stack.properties("NightlyReportSchedule")["Target"]

    assert (statement["Effect"], statement["Action"]) == ("Allow", "sqs:SendMessage")
    assert statement["Resource"] == [schedule["Arn"], schedule["DeadLetterConfig"]["Arn"]] == [JOBS, DEAD]
    assert schedule["RoleArn"] == {"Fn::GetAtt": ["NightlyReportRole", "Arn"]}


def test_a_role_is_only_for_its_service(stack: Stack) -> None:
    """Lambda assumes the functions' roles, and EventBridge Scheduler, for this account alone, the schedule's."""
    made = {role for role in LAMBDA_ROLES if stack.makes(role)}
    assert set(stack.of_type("AWS::IAM::Role")) == {*made, "NightlyReportRole"}
    assert ("LedgerRole" in made) == (stack.parameters["LedgerQueue"] == "true")
    for name, role in stack.of_type("AWS::IAM::Role").items():
        [trust] = role["AssumeRolePolicyDocument"]["Statement"]
        service = "scheduler" if name == "NightlyReportRole" else "lambda"
        assert trust["Principal"] == {"Service": f"{service}.amazonaws.com"}
        assert (trust["Effect"], trust["Action"]) == ("Allow", "sts:AssumeRole")
    [trust] = stack.properties("NightlyReportRole")["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_a_job_may_transact_on_its_own_tables(stack: Stack) -> None:
    """A transaction needs the action of each write in it, on the user's tables, in the user's own policy (G7)."""
    statements = _by_sid(stack, "JobsPolicy")
    never, tables = statements["JobsNeverDestroy"], statements["JobsReadAndWriteTheirTables"]

    assert tables["Effect"] == "Allow"
    assert set(tables["Action"]) >= {f"dynamodb:{action}" for action in WRITES.values()} | {"dynamodb:GetItem"}
    assert all(stock in _listed(tables["Resource"]) for stock in ([STOCK] if stack.has("StockTable") else []))
    assert never["Effect"] == "Deny"
    assert not set(never["Action"]) & set(tables["Action"])


def test_a_table_of_the_user_is_one_that_jobs_may_use(stack: Stack) -> None:
    """Locally nothing checks a statement: a table that no policy of the jobs names shows only on AWS."""
    for name, table in _table_arns(stack).items():
        allowing = [
            policy
            for policy in JOBS_POLICIES
            if stack.makes(policy) and _allows(_by_sid(stack, policy).values(), name, table)
        ]
        assert allowing, f"{name}: add it to a statement of JobsPolicy that allows what your jobs do with it"


def _allows(statements: Iterable[dict[str, Any]], name: str, table: Any) -> bool:
    """Return whether one of the statements allows anything on a table, or on an index of it."""
    wanted = (json.dumps(table), f"${{{name}.Arn}}")
    return any(
        one["Effect"] == "Allow" and any(text in json.dumps(_listed(one["Resource"])) for text in wanted)
        for one in statements
    )


def test_a_queue_of_its_own_has_permissions_of_its_own(stack: Stack) -> None:
    """What the ledger's jobs may do no other job may, and the other way round."""
    entries = _by_sid(stack, "LedgerPolicy")["PostEntries"]
    own, others = (stack.properties(role)["ManagedPolicyArns"] for role in ("LedgerRole", "ConsumerRole"))
    ledger, jobs = ({"Ref": policy} for policy in ("LedgerPolicy", "JobsPolicy"))

    assert (entries["Effect"], entries["Action"], entries["Resource"]) == ("Allow", "dynamodb:UpdateItem", LEDGER)
    assert (ledger in own, jobs in own, jobs in others, ledger in others) == (True, False, True, False)


def test_a_job_destroys_nothing_of_the_stack(stack: Stack) -> None:
    """Whatever statements the user adds, no job deletes one of the stack's tables or queues, or empties one."""
    kinds = "AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::DynamoDB::Table"
    kept = [{"Fn::GetAtt": [name, "Arn"]} for kind in kinds for name in stack.of_type(kind)]
    # A large message may come again, so its body stays.
    destroying = {"sqs:PurgeQueue", "sqs:DeleteQueue", "dynamodb:DeleteTable", "s3:DeleteBucket", "s3:DeleteObject"}

    for policy in (one for one in JOBS_POLICIES if stack.makes(one)):
        statements = _by_sid(stack, policy)
        assert "JobsNeverDestroy" in statements, f"{policy}: the statement that denies is gone"
        never = statements["JobsNeverDestroy"]
        own = [table for name, table in _table_arns(stack).items() if _allows(statements.values(), name, table)]
        missing = [one for one in [*kept, *own] if one not in never["Resource"]]
        assert not missing, f"add to JobsNeverDestroy of {policy}: {missing}"
        assert (PAYLOADS in never["Resource"]) == (BUCKET in never["Resource"]) == stack.makes("PayloadBucket")
        assert never["Effect"] == "Deny"
        assert set(never["Action"]) >= destroying


def test_no_statement_is_about_everything(stack: Stack) -> None:
    """No statement of ours has `*` for a resource, other than every object of our bucket, or for what it allows."""
    statements = list(_statements(stack))
    for kind in ("AWS::SQS::QueuePolicy", "AWS::S3::BucketPolicy"):
        for policy in stack.of_type(kind).values():
            statements += policy["PolicyDocument"]["Statement"]
    assert statements
    for statement in statements:
        named = [resource for resource in _listed(statement["Resource"]) if resource != PAYLOADS]
        assert "*" not in json.dumps(named), statement
        assert statement["Effect"] == "Deny" or "*" not in json.dumps(statement["Action"]), statement


def test_only_the_network_interfaces_of_a_vpc_are_everywhere() -> None:
    """Inside a VPC one more statement names `*`, as EC2 demands: six actions on network interfaces, and no logs."""
    inside = Stack(given={"VpcSubnetIds": "subnet-1", "VpcSecurityGroupIds": "sg-1"})
    outside = list(_statements(Stack()))
    [added] = [statement for statement in _statements(inside) if statement not in outside]
    assert (added["Effect"], added["Resource"]) == ("Allow", "*")
    assert set(added["Action"]) == NETWORK_INTERFACES


@pytest.mark.parametrize("role", LAMBDA_ROLES)
def test_every_function_may_enter_the_vpc(role: str) -> None:
    """The policy is attached by the role itself, so it is there before the function that needs it, and only inside."""
    inside = Stack(given={"VpcSubnetIds": "subnet-1", "VpcSecurityGroupIds": "sg-1"})
    assert {"Ref": "VpcPolicy"} in inside.properties(role)["ManagedPolicyArns"]
    assert {"Ref": "VpcPolicy"} not in Stack().properties(role).get("ManagedPolicyArns", [])


@pytest.mark.parametrize(("role", "name"), LAMBDA_ROLES.items())
def test_the_framework_policies_are_inline(stack: Stack, role: str, name: str) -> None:
    """A separate policy may come after the event source mapping, which is refused without it."""
    assert stack.properties(f"{name}Function")["Role"] == {"Fn::GetAtt": [role, "Arn"]}
    assert "Policies" not in stack.properties(f"{name}Function")
    assert not stack.of_type("AWS::IAM::Policy")


def test_a_caller_may_only_look_up(stack: Stack) -> None:
    """The policy of who calls app.lookup reads items of the claims table, and nothing else."""
    [statement] = stack.properties("LookupPolicy")["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "dynamodb:GetItem")
    assert statement["Resource"] == CLAIMS


def test_whoever_locks_may_only_write_locks(stack: Stack) -> None:
    """The policy of who calls app.lock allows what that does, on keys that no job can have: never a claim (G2)."""
    [statement] = stack.properties("LockPolicy")["PolicyDocument"]["Statement"]
    assert statement["Effect"] == "Allow"
    assert set(statement["Action"]) == _actions("dynamodb", "locks")
    assert statement["Resource"] == CLAIMS
    [pattern] = statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
    assert all(fnmatchcase(pk_of(KIND, name), pattern) for name in ("nightly_report", "n" * 2_000))
    others = CURSOR, pk_of("process_payment", pk_of(KIND, "nightly_report"))
    assert not any(fnmatchcase(key, pattern) for key in others)


def test_whoever_resolves_may_only_read_and_decide(stack: Stack) -> None:
    """The policy of who calls app.resolve allows what that does to the claims table, and nothing else."""
    [statement] = stack.properties("ResolvePolicy")["PolicyDocument"]["Statement"]
    assert statement["Effect"] == "Allow"
    assert set(statement["Action"]) == _actions("dynamodb", "store", _called_on("resolving", "store"))
    assert statement["Resource"] == CLAIMS


def test_a_producer_may_only_send(stack: Stack) -> None:
    """The producers' policy sends to the queues that there are, and nothing else to any."""
    allowed = stack.properties("ProducerPolicy")["PolicyDocument"]["Statement"]
    assert _on(allowed, "sqs") == [JOBS, *_if_made(stack, LEDGER_JOBS)]
    assert _allowed(one for one in allowed if one["Sid"] != "Offload") == {"sqs:SendMessage"}


def test_a_producer_with_the_outbox_may_only_stage_and_send(stack: Stack) -> None:
    """The policy of who calls app.enqueue_with stages entries, marks them and sends; it reads nothing (G8)."""
    allowed = stack.properties("OutboxProducerPolicy")["PolicyDocument"]["Statement"]
    marked = _called_on("relay", "outbox") - {"pending"}

    assert _allowed(allowed, OUTBOX) == _actions("dynamodb", "outbox", {"commit", *marked})
    assert all(_allowed(allowed, queue) == {"sqs:SendMessage"} for queue in _on(allowed, "sqs"))
    assert (_on(allowed, "dynamodb"), _on(allowed, "sqs")) == ([OUTBOX], [JOBS, *_if_made(stack, LEDGER_JOBS)])
