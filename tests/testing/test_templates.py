"""Where an environment gets its tables and queues from, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from onceq import App, ConfigurationError
from onceq.testing import environment, prove_effectively_once

if TYPE_CHECKING:
    from onceq import JobType
    from onceq.testing import Environment

ROOT = Path(__file__).resolve().parents[2]
SMALL = """
Parameters:
  Seconds: {Type: Number, Default: 45}
Resources:
  Work: {Type: AWS::SQS::Queue, Properties: {VisibilityTimeout: !Ref Seconds}}
  Letters: {Type: AWS::SQS::Queue}
  Claims:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}]
  Secret: {Type: AWS::SecretsManager::Secret}
  Consumer:
    Type: AWS::Serverless::Function
    Properties:
      Handler: main.consumer
      Timeout: 20
      Environment:
        Variables:
          ONCEQ_CLAIMS_TABLE: !Ref Claims
          ONCEQ_QUEUES: !Sub '{"work": {"url": "${Work}", "arn": "${Work.Arn}", "dlq_url": "${Letters}"}}'
          RATE: "3"
      Events: {Work: {Type: SQS, Properties: {Queue: !GetAtt Work.Arn}}}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A template of a user's own."""
    path = tmp_path / "own.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def queues_of(env: Environment) -> set[str]:
    """Return the names of an environment's queues."""
    return {place.name for place in env.mailbox.places}


@pytest.mark.parametrize("folder", [".", "src/jobs"])
def test_the_template_is_found_upward(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """The nearest ``template.yaml``, from the working folder up, gives tables, queues and times."""
    monkeypatch.chdir(ROOT / folder)

    with environment() as env:
        assert queues_of(env) == {"JobsQueue", "DeadLetterQueue"}
        assert env.mailbox.place_of("default").visibility == 180
        assert env.settings.claims_table == "ClaimsTable"
        assert env.settings.outbox_table == "OutboxTable"
        assert {*boto3.client("dynamodb").list_tables()["TableNames"]} >= {"ClaimsTable", "OutboxTable", "StockTable"}


def test_a_template_of_ones_own(small: Path) -> None:
    """Queues and tables have the names of its resources, and the queue the name of ``ONCEQ_QUEUES``."""
    with environment(template=small) as env:
        assert queues_of(env) == {"Work", "Letters"}
        assert (env.mailbox.place_of("work").visibility, env.mailbox.place_of("work").timeout) == (45, 20)
        assert [place.name for place in env.mailbox.dead] == ["Letters"]
        assert os.environ["RATE"] == "3"


def test_parameters_are_given_instead_of_their_defaults(small: Path) -> None:
    """As at a deployment; one that the template does not declare is an error with a suggestion."""
    with environment(template=small, parameters={"Seconds": 60}) as env:
        assert env.mailbox.place_of("work").visibility == 60

    with (
        pytest.raises(ConfigurationError, match=r"no parameter 'Second'.*Seconds"),
        environment(template=small, parameters={"Second": 60}),
    ):
        pass


def test_a_parameter_switches_a_second_queue_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queues of all functions are there, each consumed within its own function's time-out."""
    monkeypatch.chdir(ROOT)

    with environment(parameters={"LedgerQueue": "true"}) as env:
        ledger = env.mailbox.place_of("ledger")

        assert (ledger.name, ledger.is_fifo, ledger.dedupes_by_group) == ("LedgerJobsQueue.fifo", True, True)
        assert (ledger.timeout, env.mailbox.place_of("default").timeout) == (60, 30)
        assert "ledger" in env.settings.queues


def test_variables_are_given_instead_of_the_templates(small: Path) -> None:
    """They reach the jobs, and the framework's own settings where they are meant for it."""
    with environment(template=small, variables={"RATE": "9", "OTHER": "x", "ONCEQ_CONCURRENCY": "2"}) as env:
        assert (os.environ["RATE"], os.environ["OTHER"]) == ("9", "x")
        assert env.settings.concurrency == 2
        assert env.variables["OTHER"] == "x"


def test_a_value_that_cannot_be_known_is_asked_for(small: Path) -> None:
    """The error says how a test gives it."""
    small.write_text(SMALL.replace('RATE: "3"', "RATE: !Ref Secret"), encoding="utf-8")

    with (
        pytest.raises(ConfigurationError, match=r"give RATE with variables= .*onceq_variables"),
        environment(template=small),
    ):
        pass
    with environment(template=small, variables={"RATE": "9"}):
        assert os.environ["RATE"] == "9"


def test_without_a_template_there_are_a_queue_and_its_tables(env: Environment) -> None:
    """By the names of the repository's template, so that a job alone can be proved anywhere."""
    assert queues_of(env) == {"JobsQueue", "DeadLetterQueue"}
    assert (env.settings.claims_table, env.settings.outbox_table) == ("ClaimsTable", "OutboxTable")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("missing.yaml", None, "there is no template .*missing.yaml: give another one"),
        ("broken.yaml", "Resources: [", "broken.yaml cannot be read"),
        ("empty.yaml", "x: 1", "is not a template: it has no Resources"),
        ("queueless.yaml", "Resources: {}", "no function of the template has an event of type SQS"),
    ],
    ids=["missing", "broken", "empty", "queueless"],
)
def test_a_template_that_cannot_be_used_says_why(tmp_path: Path, name: str, content: str | None, told: str) -> None:
    """It is a ConfigurationError, and nothing stays behind of the attempt."""
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    before = dict(os.environ)

    with pytest.raises(ConfigurationError, match=told), environment(template=tmp_path / name):
        pass

    assert dict(os.environ) == before
    with environment(template=ROOT / "template.yaml"):
        pass


def test_one_environment_at_a_time(env: Environment, charge: JobType[..., Any]) -> None:
    """moto and the clock are the process's: the error says what to do, and the one that is open goes on."""
    with pytest.raises(ConfigurationError, match=r"open in this process already: .*env=onceq_env"), environment():
        pass
    with pytest.raises(ConfigurationError, match=r"env=onceq_env"):
        prove_effectively_once(charge, {"cents": 1})

    assert env.deliver(env.enqueue(charge, {"cents": 1}, key="k")).kept == []


def test_environments_after_each_other_share_nothing(nowhere: Path, charge: JobType[..., Any]) -> None:
    """Tables are empty, queues are empty, the clock is back."""
    seen = []
    for _ in range(2):
        with environment(App([charge])) as env:
            seen.append((env.records(), env.letters(), env.clock.now_ms()))
            env.deliver(env.enqueue(charge, {"cents": 1}, key="k"))
            env.enqueue(charge, {"cents": 2}, key="left")
            env.pass_time(5)

    assert seen[0] == seen[1]


def test_the_variables_are_those_of_before_at_the_end(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside there is nothing that leads to AWS; afterwards everything is as it was, the shell's own settings too."""
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("ONCEQ_CONCURRENCY", "3")
    before = dict(os.environ)

    with environment() as env:
        assert not {"AWS_PROFILE", "AWS_ENDPOINT_URL", "ONCEQ_CONCURRENCY"} & {*os.environ}
        assert os.environ["ONCEQ_CLAIMS_TABLE"] == "ClaimsTable"
        assert env.settings.concurrency != 3
        os.environ["MINE"] = "x"

    assert dict(os.environ) == before


def test_a_setting_of_ours_that_nobody_knows_is_an_error(nowhere: Path) -> None:
    """As everywhere: a typing mistake is not passed over."""
    with pytest.raises(ConfigurationError, match="ONCEQ_CONCURENCY"), environment(variables={"ONCEQ_CONCURENCY": "1"}):
        pass


EARLY = """
import os
os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
import sys, boto3
from onceq.client import make_client
from pynamodb.connection import Connection
made = [make_client("dynamodb", 1), boto3.client("dynamodb"), Connection(region="us-east-1").client]
assert not any(name.partition(".")[0] == "moto" for name in sys.modules)
from onceq.testing import environment
for _ in range(2):
    with environment() as env:
        for client in made:
            client.put_item(TableName="ClaimsTable", Item={"pk": {"S": f"{id(client)}"}})
        print(len(env.stock("ClaimsTable")))
"""


def test_clients_that_were_made_before_moto_was_loaded_are_answered_too(nowhere: Path) -> None:
    """A module that makes its client at import, before any environment: no request of it leaves the machine."""
    ended = subprocess.run(
        [sys.executable, "-c", EARLY], cwd=nowhere, capture_output=True, text=True, check=False, timeout=100
    )

    assert (ended.stdout.split(), ended.returncode) == (["3", "3"], 0), ended.stderr
