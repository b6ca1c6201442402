"""The page about adopting: what it says of Powertools, of roll-outs and of other tools is so."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.utilities import batch, idempotency
from aws_lambda_powertools.utilities.idempotency import exceptions
from aws_lambda_powertools.utilities.idempotency.idempotency import _IdempotentDecorator

import onceq
from kit.clock import FakeLambdaContext
from kit.shared import open_world
from kit.world import OUTBOX_TABLE, TABLE, create_table, event_of, kept
from template.reading import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.clock import FrozenClock
    from kit.world import World

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adopting.md"
TEXT = PAGE.read_text(encoding="utf-8")
ORDER = {"order_id": "o-1"}


def table_below(heading: str) -> list[list[str]]:
    """Return the cells of the table whose first heading this is."""
    rows = TEXT.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def fenced(language: str) -> str:
    """Return the one block of a language."""
    [block] = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return str(block)


@pytest.fixture
def world(clock: FrozenClock) -> Iterator[World]:
    """Tables and queues on locked moto, and the table that Powertools had."""
    with open_world(clock) as opened:
        create_table(opened.dynamodb, "idempotency", key="id")
        yield opened


class LambdaContext(FakeLambdaContext):
    """What Powertools reads of a Lambda context."""

    function_name = "ConsumerFunction"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:ConsumerFunction"


def made_by(blocks: list[str]) -> Any:
    """Return a module of these blocks of the page, one after the other."""
    module: Any = types.ModuleType("page")
    sys.modules["page"] = module
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), vars(module))  # noqa: S102 - our own page
    return module


@pytest.fixture
def blocks(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The page's blocks of Python, and the environment that they need."""
    queue = world.settings.queue("default")
    queues = {"default": {"url": queue.url, "arn": queue.arn, "dlq_url": queue.dlq_url}}
    monkeypatch.setenv("ONCEQ_QUEUES", json.dumps(queues))
    monkeypatch.setenv("ONCEQ_CLAIMS_TABLE", TABLE)
    monkeypatch.setenv("ONCEQ_OUTBOX_TABLE", OUTBOX_TABLE)
    monkeypatch.setitem(sys.modules, "page", types.ModuleType("page"))
    return re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def page(blocks: list[str]) -> Any:
    """What the page's Python makes, block after block."""
    return made_by(blocks)


@pytest.mark.parametrize(
    "made",
    [
        batch.BatchProcessor,
        batch.SqsFifoPartialProcessor,
        batch.process_partial_response,
        idempotency.idempotent_function,
        idempotency.IdempotencyConfig,
        idempotency.DynamoDBPersistenceLayer,
    ],
    ids=lambda made: made.__name__,
)
def test_every_parameter_of_powertools_has_its_row(made: Any) -> None:
    """In the order in which the installed Powertools has them, and each with what it becomes."""
    rows = table_below(f"Parameter of `{made.__name__}`")

    assert [row[0].strip("`") for row in rows] == list(inspect.signature(made).parameters)
    assert all(row[1] for row in rows)


def test_what_shares_its_parameters_is_said_to() -> None:
    """Two more have no table of their own, since they take what is in one already."""
    same = inspect.signature(batch.AsyncBatchProcessor).parameters.keys()
    own = inspect.signature(_IdempotentDecorator.__call__).parameters.keys() - {"self"}

    assert same == inspect.signature(batch.BatchProcessor).parameters.keys()
    assert own == {"persistence_store", "config", "key_prefix"}
    assert own <= inspect.signature(idempotency.idempotent_function).parameters.keys()


def test_what_powertools_raised_is_on_the_page() -> None:
    """Each exception that the page names is one of the installed Powertools."""
    named = [row[0].strip("`") for row in table_below("Powertools raised")]

    assert len(named) == 6
    assert all(hasattr(exceptions, name) or hasattr(batch.exceptions, name) for name in named)


def test_a_message_of_before_is_a_job_of_after(world: World, page: Any) -> None:
    """The body stays as it was, and the key is the value whose hash Powertools stored."""
    message = world.raw(json.dumps(ORDER))

    assert page.consumer(event_of(message, message | {"messageId": "again"}), LambdaContext()) == {
        "batchItemFailures": []
    }

    status = page.app.lookup("pay", "o-1")
    assert (status.status, status.result, status.attempts) == ("completed", "ch_o-1", 1)


def test_old_records_are_not_read_and_the_key_of_before_is_what_helps(world: World, blocks: list[str]) -> None:
    """What Powertools completed runs again here, as the page warns, under the key that the provider knows."""
    calls: list[str] = []

    def charge(order: dict[str, Any], *, idempotency_key: str) -> str:
        calls.append(idempotency_key)
        return "ch"

    old, new = made_by(blocks[:1]), made_by(blocks)
    old.charge = new.charge = charge
    event = event_of(world.raw(json.dumps(ORDER)))

    assert [old.handler(event, LambdaContext()), old.handler(event, LambdaContext())] == [{"batchItemFailures": []}] * 2
    assert calls == ["o-1"]
    assert new.consumer(event, LambdaContext()) == {"batchItemFailures": []}

    [record] = world.dynamodb.scan(TableName="idempotency")["Items"]
    assert record["status"] == {"S": "COMPLETED"}
    assert "o-1" not in record["id"]["S"]
    assert calls == ["o-1", "o-1"]


def test_a_rename_is_one_job_under_both_names_in_either_order(world: World, page: Any) -> None:
    """While two versions are live: whoever gets which message, one runs it and the other answers from its record."""
    url = world.settings.queue("default").url
    messages = world.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    records = [world.raw(message["Body"]) for message in messages]
    names = [json.loads(record["body"])["job_type"] for record in records]

    assert sorted(names) == ["capture_payment", "pay"]
    old, new = (records[names.index(name)] for name in ("pay", "capture_payment"))
    # The old version keeps what it does not know, and completes what it does.
    assert kept(page.app.consumer(event_of(new, old), LambdaContext())) == [new["messageId"]]
    assert kept(page.next_release.consumer(event_of(new, old), LambdaContext())) == []

    status = page.next_release.lookup(page.capture_payment, "o-1")
    assert (status.status, status.attempts) == ("completed", 1)


def test_the_other_tools_get_what_the_template_has() -> None:
    """Keys, index, TTL attribute, times and the partial batch response of the snippets are the template's."""
    stack = Stack()
    outbox, jobs = stack.properties("OutboxTable"), stack.properties("JobsQueue")
    [event] = stack.properties("ConsumerFunction")["Events"].values()
    [index] = outbox["GlobalSecondaryIndexes"]
    [of_hash, of_range] = [part["AttributeName"] for part in index["KeySchema"]]
    hcl, cdk = " ".join(fenced("hcl").split()), " ".join(fenced("py").split())

    for said in (
        f'name = "{index["IndexName"]}" hash_key = "{of_hash}" range_key = "{of_range}" projection_type = "ALL"',
        f'attribute_name = "{outbox["TimeToLiveSpecification"]["AttributeName"]}"',
        f"maxReceiveCount = {jobs['RedrivePolicy']['maxReceiveCount']}",
        f"visibility_timeout_seconds = {jobs['VisibilityTimeout']}",
        f"message_retention_seconds = {jobs['MessageRetentionPeriod']}",
        f"function_response_types = {json.dumps(event['Properties']['FunctionResponseTypes'])}",
        f"maximum_concurrency = {event['Properties']['ScalingConfig']['MaximumConcurrency']}",
    ):
        assert said in hcl
    for said in (
        f'index_name="{index["IndexName"]}"',
        f'partition_key=dynamodb.Attribute(name="{of_hash}", type=dynamodb.AttributeType.STRING)',
        f'sort_key=dynamodb.Attribute(name="{of_range}", type=dynamodb.AttributeType.NUMBER)',
        f'time_to_live_attribute="{outbox["TimeToLiveSpecification"]["AttributeName"]}"',
        f"max_receive_count={jobs['RedrivePolicy']['maxReceiveCount']}",
        f"visibility_timeout=Duration.seconds({jobs['VisibilityTimeout']})",
        "report_batch_item_failures=True",
    ):
        assert said in cdk
    assert [type(node) for node in ast.parse(fenced("py")).body] == [ast.ImportFrom, ast.ImportFrom, ast.ClassDef]
    assert {hcl.count(one) - hcl.count(other) for one, other in ("{}", "[]", "()")} == {0}


def test_the_wheel_of_the_page_is_the_one_that_is_built() -> None:
    """Whoever copies the line gets this version's file."""
    assert set(re.findall(r"onceq-([\d.]+)-py3-none-any\.whl", TEXT)) == {onceq.__version__}


def test_every_link_into_a_page_leads_to_a_heading() -> None:
    """Of this page and of those that it links to."""
    for target, anchor in re.findall(r"\]\(([\w.]*)#([^)]+)\)", TEXT):
        text = (PAGE.parent / target).read_text(encoding="utf-8") if target else TEXT
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)

        assert anchor in {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings}
