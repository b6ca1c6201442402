"""A local session as the template has it, and the file by which other commands find it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kit.project import TEMPLATE
from onceq.dev import merged_queues, session, shell_environment
from onceq.errors import ConfigurationError
from onceq.mappings import Source
from onceq.settings import QueueSettings, Settings
from onceq.statefile import PLACES, STATE_FILE, connect, running_state, state_file

if TYPE_CHECKING:
    from onceq.dev import Session

ALIVE = os.getpid()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state_of(pid: int, **more: Any) -> dict[str, Any]:
    """Return what a session writes down."""
    return {"pid": pid, "endpoint": "http://127.0.0.1:9", "environment": {"ONCEQ_CLAIMS_TABLE": "of-consumer"}, **more}


def environment_after(monkeypatch: pytest.MonkeyPatch, handler: str = "consumer") -> dict[str, str]:
    """Connect in an environment that is put back, and return what then stands there of ours."""
    for name in PLACES:
        monkeypatch.setenv(name, "")
    connect(handler)
    return {name: os.environ[name] for name in PLACES if os.environ.get(name)}


def test_a_command_takes_the_environment_of_the_function_that_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay and recovery run with what their functions would have; the others with the consumer's."""
    relay = {"ONCEQ_OUTBOX_TABLE": "of-relay", "ONCEQ_QUEUES": "{}"}
    with state_file(state_of(ALIVE, environments={"relay": relay})):
        assert environment_after(monkeypatch, "relay") == relay
        assert environment_after(monkeypatch) == {"ONCEQ_CLAIMS_TABLE": "of-consumer"}
        assert environment_after(monkeypatch, "recovery") == {"ONCEQ_CLAIMS_TABLE": "of-consumer"}, "there is none"


@pytest.mark.parametrize("name", PLACES)
def test_what_the_shell_names_goes_before_a_session(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whoever names a queue or a table means that one: nothing of the session is mixed in."""
    for place in PLACES:
        monkeypatch.setenv(place, "mine" if place == name else "")
    with state_file(state_of(ALIVE)):
        connect()

    assert {place: os.environ[place] for place in PLACES if os.environ[place]} == {name: "mine"}


@pytest.mark.parametrize("left", [None, "{", "{}", '{"pid": 4194305, "environment": {}}', '{"pid": "x"}', "[]"])
def test_a_file_that_was_left_behind_is_no_session(monkeypatch: pytest.MonkeyPatch, left: str | None) -> None:
    """Its process is gone, or it was cut off: the command says what to start."""
    if left is not None:
        STATE_FILE.parent.mkdir()
        STATE_FILE.write_text(left, encoding="utf-8")

    assert running_state() is None
    with pytest.raises(ConfigurationError, match="no session runs in this folder"):
        environment_after(monkeypatch)


def test_the_shells_places_never_reach_a_local_run() -> None:
    """A table that the shell names for AWS would be asked for on the emulator, or worse."""
    shell = dict.fromkeys(PLACES, "prod") | {"AWS_PROFILE": "prod", "ONCEQ_CONCURRENCY": "2", "HOME": "/home/ada"}

    assert shell_environment(shell) == {"ONCEQ_CONCURRENCY": "2", "HOME": "/home/ada"}


def opened(text: str) -> tuple[Session, dict[str, Any]]:
    """Open a session on that template, start nothing, and close it again; return it and what it wrote down."""
    Path("template.yaml").write_text(text, encoding="utf-8")
    with session(Path("template.yaml"), app="app:app", workers=2, say=print, relay_every=5, grace=7) as opened:
        state = running_state()
        assert state is not None
    assert not STATE_FILE.exists()
    return opened, state


def test_a_relay_stands_beside_the_workers(folder: Path) -> None:
    """One for all queues, with its function's own environment; each is told when to stop."""
    found, state = opened(TEMPLATE.read_text(encoding="utf-8"))

    assert [(child.kind, child.name) for child in found.children] == [
        *(("worker", "w1"), ("worker", "w2")),
        ("relay", "r1"),
    ]
    worker, _, relay = found.children
    assert relay.command[2:] == [
        *("onceq", "relay", "--every", "5", "--app", "app:app", "--template", "template.yaml"),
        *("--grace", "7", "--follow-stdin", "--name", "r1"),
    ]
    assert worker.command[3:6] == ["work", "--queue", "default"]
    assert (worker.environment["ONCEQ_CLAIMS_TABLE"], "ONCEQ_CLAIMS_TABLE" in relay.environment) == (
        "ClaimsTable",
        False,
    )
    assert relay.environment["ONCEQ_OUTBOX_TABLE"] == "OutboxTable"
    assert relay.environment["AWS_ENDPOINT_URL"] == state["endpoint"]
    assert set(state["environments"]) == {"relay", "recovery"}
    assert state["environments"]["recovery"]["ONCEQ_RECOVERY_RATE"] == "50"
    assert json.loads(relay.environment["ONCEQ_QUEUES"]) == {
        "default": {"url": f"{state['endpoint']}/123456789012/JobsQueue"}
    }


WITHOUT = """
Resources:
  Jobs: {Type: AWS::SQS::Queue}
  Dead: {Type: AWS::SQS::Queue}
  Claims:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}]
  Consumer:
    Type: AWS::Serverless::Function
    Properties:
      Handler: app.consumer
      Environment:
        Variables:
          ONCEQ_CLAIMS_TABLE: !Ref Claims
          ONCEQ_QUEUES: !Sub '{"default": {"url": "${Jobs}", "arn": "${Jobs.Arn}", "dlq_url": "${Dead}"}}'
      Events: {Jobs: {Type: SQS, Properties: {Queue: !GetAtt Jobs.Arn}}}
"""


def test_a_template_without_relay_and_schedules_is_run_without_them() -> None:
    """An older one, or one whose jobs send nothing: no process, and no word of it."""
    found, state = opened(WITHOUT)

    assert [child.kind for child in found.children] == ["worker", "worker"]
    assert state["environments"] == {}
    banner = found.banner("0")
    assert "relay" not in banner
    assert "outbox" not in banner
    assert "Schedules" not in banner
    assert "Restart after changing code." in banner


def test_a_session_knows_the_queues_of_all_its_functions() -> None:
    """A dead letter of the second queue is seen, and a job sent there; the banner says who serves what."""
    Path("template.yaml").write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    given = {"LedgerQueue": "true", "PayloadBucketEnabled": "true"}
    with session(Path("template.yaml"), app="app:app", workers=2, say=print, parameters=given) as found:
        state = running_state()
    assert state is not None

    at = f"{state['endpoint']}/123456789012"
    assert json.loads(state["environment"]["ONCEQ_QUEUES"]) == {
        name: {"url": f"{at}/{queue}", "arn": f"arn:aws:sqs:us-east-1:123456789012:{queue}", "dlq_url": f"{at}/{dead}"}
        for name, queue, dead in (
            ("default", "JobsQueue", "DeadLetterQueue"),
            ("ledger", "LedgerJobsQueue.fifo", "LedgerDeadLetterQueue.fifo"),
        )
    }
    lines = [line.split(maxsplit=1) for line in found.banner("0").splitlines() if line.startswith("  ")]
    assert [value for name, value in lines if name == "workers"] == [
        "w1, w2  (queue default: JobsQueue)",
        "w3, w4  (queue ledger: LedgerJobsQueue)",
    ]
    assert [child.command[5] for child in found.children[:4]] == ["default", "default", "ledger", "ledger"]
    assert ["tables", "ClaimsTable, OutboxTable, StockTable, LedgerTable"] in lines
    assert ["buckets", "payloadbucket"] in lines


def mapped(function: str, **queues: tuple[str, str]) -> tuple[Source, Settings]:
    """Return a function that consumes the first of its queues; each has a URL and, if it is consumed, an ARN."""
    made = {name: QueueSettings(name, url, arn, f"{url}-dead" if arn else "") for name, (url, arn) in queues.items()}
    first = next(iter(made.values()))
    return Source(function, first.arn, 10, 30, "Timeout"), Settings(queues=made)


def test_queues_are_merged_as_their_own_consumers_name_them() -> None:
    """What another function only sends to is consumed all the same; one queue has one name, and one name one queue."""
    pays = mapped("Pays", default=("u1", "a1"), ledger=("u2", ""))
    books = mapped("Books", default=("u2", "a2"), payments=("u1", ""), mail=("u3", ""))

    assert merged_queues([pays, books], [Settings(queues={"report": QueueSettings("report", "u4")})]) == {
        "default": {"url": "u1", "arn": "a1", "dlq_url": "u1-dead"},
        "Books.default": {"url": "u2", "arn": "a2", "dlq_url": "u2-dead"},
        "mail": {"url": "u3"},
        "report": {"url": "u4"},
    }


def test_a_relay_without_an_outbox_table_is_said_before_anything_starts() -> None:
    """On Lambda it would fail every minute."""
    relay = "  Sends: {Type: AWS::Serverless::Function, Properties: {Handler: app.relay}}\n"
    with pytest.raises(ConfigurationError, match="Sends has no ONCEQ_OUTBOX_TABLE"):
        opened(WITHOUT + relay)
    assert not STATE_FILE.exists()
