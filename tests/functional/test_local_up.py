"""`onceq up`: local services without workers, and what the SAM CLI is told about them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kit.project import TEMPLATE, Project
from kit.up import Up
from onceq.errors import ConfigurationError
from onceq.intrinsics import PSEUDO_PARAMETERS
from onceq.template import load_template
from onceq.up import Wiring, build_words, wiring_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = TEMPLATE.parent / "docs" / "local.md"
HANDLER = "import json, sys, app; print(json.dumps(app.app.consumer(json.load(sys.stdin))))"
POISON = "no envelope"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Local services in a project of their own."""
    project = Project.at(tmp_path)
    words = ("up", "--parameter", "ClockSkew=1", "--env-vars", "mine.json")
    (tmp_path / "mine.json").write_text('{"Parameters": {"PAYMENTS_URL": "https://pay.example.com/s3cret"}}')
    project.environment["MAIL_URL"] = "http://127.0.0.1:9"
    started = Up(tmp_path, project.environment, project.start(*words))
    with started.process:
        try:
            started.wait()
            yield started
        finally:
            started.process.kill()


def servers(up: Up) -> list[psutil.Process]:
    """Return the processes of the services."""
    return psutil.Process(up.process.pid).children(recursive=True)


def listening(processes: list[psutil.Process]) -> list[str]:
    """Return the addresses that they listen on."""
    connections = [each for process in processes for each in process.net_connections()]
    return [f"{each.laddr.ip}:{each.laddr.port}" for each in connections if each.status == psutil.CONN_LISTEN]


def record(number: int, body: object) -> dict[str, Any]:
    """Return a record of the queue in the template."""
    arn = f"arn:aws:sqs:{PSEUDO_PARAMETERS['AWS::Region']}:{PSEUDO_PARAMETERS['AWS::AccountId']}:JobsQueue"
    attributes = {"ApproximateReceiveCount": "1"}
    return {
        "messageId": f"m-{number}",
        "receiptHandle": f"r-{number}",
        "body": body if isinstance(body, str) else json.dumps(body),
        "attributes": attributes,
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": "us-east-1",
    }


def test_a_function_that_is_told_what_sam_is_told_works_on_the_local_services(up: Up) -> None:
    """The job completes, the poison lies in the dead-letter queue; and other commands find both."""
    envelope = {"onceq": 1, "job_type": "mark", "idempotency_key": "k-1", "payload": {}}
    event = {"Records": [record(1, envelope), record(2, POISON)]}
    told = up.sam_environment("ConsumerFunction")
    words = shlex.split(up.command().replace("\\\n", " "))
    shell = dict(word.split("=", 1) for word in words[: words.index("local") - 1])
    region = words[words.index("--region") + 1]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": up.environment["PYTHONPATH"],
        "AWS_DEFAULT_REGION": region,
        **shell,
        **told,
    }
    answer = subprocess.run(
        [sys.executable, "-c", HANDLER],
        cwd=up.folder / "src",
        env=environment,
        input=json.dumps(event),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1]) == {"batchItemFailures": []}
    assert json.loads(up.run("show", "mark", "k-1", "--json").stdout)["status"] == "completed"
    [letter] = json.loads(up.run("dlq", "--json").stdout)
    assert letter["body"] == POISON
    assert told["ONCEQ_CLOCK_SKEW"] == "1", "a parameter of ours is one of SAM's"


def test_the_services_listen_on_127_0_0_1_and_their_files_are_for_one_user(up: Up) -> None:
    """What env.json holds stands in the file, a secret perhaps; an address that is not ours is no parameter."""
    addresses = listening(servers(up))
    assert [f"http://{address}" for address in addresses] == [up.parameters()["EndpointUrl"]]
    assert all(address.startswith("127.0.0.1:") for address in addresses)

    folder = up.folder / ".onceq"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, folder / "sam.json", folder / "dev.json")}
    assert modes == {".onceq": 0o700, "sam.json": 0o600, "dev.json": 0o600}

    file = json.loads((folder / "sam.json").read_text(encoding="utf-8"))
    assert set(file) == {"ConsumerFunction", "RelayFunction", "RecoveryFunction"}
    assert file["ConsumerFunction"]["PAYMENTS_URL"] == "https://pay.example.com/s3cret"
    assert "s3cret" not in up.output()
    assert set(up.parameters()) == {"ClockSkew", "EndpointUrl", "MailUrl"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_the_services_and_removes_their_files(up: Up, number: signal.Signals) -> None:
    """Ctrl-C, a service manager, a terminal that is closed: no process and no file stays behind."""
    [server] = servers(up)

    up.process.send_signal(number)

    assert up.process.wait(30) == 0
    assert not psutil.pid_exists(server.pid)
    assert sorted(path.name for path in (up.folder / ".onceq").iterdir()) == [".gitignore"]
    assert up.output().endswith("stopped: the local queues and tables are gone\n")


def test_one_session_a_folder_and_a_killed_one_stops_nobody(up: Up) -> None:
    """A second one would overwrite the first one's files; what a killed one left behind is overwritten."""
    second = up.run("up")
    assert second.returncode == 2
    assert f"a session runs in this folder already (pid {up.process.pid}" in second.stderr

    [server] = servers(up)
    up.process.kill()
    up.process.wait()
    end = time.monotonic() + 20
    while psutil.pid_exists(server.pid):
        assert time.monotonic() < end, "the server outlived its parent"
        time.sleep(0.05)
    assert (up.folder / ".onceq" / "sam.json").exists()
    (up.folder / "stdout").unlink()
    again = Project(up.folder, up.environment).start("up")
    with again:
        try:
            Up(up.folder, up.environment, again).wait()
        finally:
            again.send_signal(signal.SIGTERM)
            assert again.wait(30) == 0


# ---------------------------------------------------------------------------------------------------- what SAM is told

LEADS_TO_AWS = """
Parameters: {EndpointUrl: {Type: String, Default: ""}}
Resources:
  Good: {Type: AWS::Serverless::Function, Properties: {Environment: {Variables: {AWS_ENDPOINT_URL: !Ref EndpointUrl}}}}
  Bad: {Type: AWS::Serverless::Function, Properties: {Environment: {Variables: {OTHER: "1"}}}}
"""
ADDRESSES = """
Parameters:
  EndpointUrl: {Type: String, Default: ""}
  Mine: {Type: String, Default: ""}
Resources:
  One:
    Type: AWS::Serverless::Function
    Properties:
      Environment:
        Variables:
          AWS_ENDPOINT_URL: !Ref EndpointUrl
          MINE: !Ref Mine
          FIXED: http://127.0.0.1:7
          NAME: !Ref AWS::StackName
"""


def wiring(tmp_path: Path, text: str, environment: dict[str, str], **given: object) -> Wiring:
    """Return what SAM is told about a template whose functions all have that environment."""
    path = tmp_path / "template.yaml"
    path.write_text(text, encoding="utf-8")
    return wiring_of("http://127.0.0.1:5", load_template(path), lambda _function: environment, given)


def test_the_steps_are_numbered_and_name_what_there_is(up: Up) -> None:
    """A project without our Makefile builds with the sam on PATH; no line is longer than a terminal is wide."""
    lines = up.output().splitlines()

    assert [line[0] for line in lines if re.match(r"\d\. ", line)] == ["1", "2", "3"]
    assert "  sam build" in lines
    assert "  sam local invoke ConsumerFunction \\" in lines
    assert max(map(len, lines)) < 80


@pytest.mark.parametrize("made", [True, False])
def test_the_sam_of_make_build_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, made: bool) -> None:
    """Before `make build` has made it too: the words stand for what is there afterwards."""
    monkeypatch.chdir(tmp_path)
    if made:
        (tmp_path / ".venv-sam" / "bin").mkdir(parents=True)
        (tmp_path / ".venv-sam" / "bin" / "sam").touch()
    else:
        (tmp_path / "Makefile").write_text("SAM := .venv-sam/bin/sam\nbuild:\n\t$(SAM) build\n", encoding="utf-8")
    words = Wiring("http://127.0.0.1:5", {}, {}).command("One", "e.json")

    assert [".venv-sam/bin/sam", "local", "invoke", "One"] in words
    assert build_words() == (".venv-sam/bin/sam build" if made else "make build")


def test_a_function_that_sam_could_not_lead_here_is_refused(tmp_path: Path) -> None:
    """It would call AWS with whatever credentials the container got."""
    with pytest.raises(ConfigurationError, match=r"Bad does not declare AWS_ENDPOINT_URL.* would call AWS: give it"):
        wiring(tmp_path, LEADS_TO_AWS, {"AWS_ENDPOINT_URL": "http://127.0.0.1:5"})


@pytest.mark.parametrize(
    ("mine", "is_parameter"),
    [
        ("http://127.0.0.1:8", True),
        ("http://localhost:8", True),
        ("http://127.0.0.1.example.com", False),
        ("https://x.example", False),
        ("", False),
    ],
)
def test_an_address_on_this_machine_is_a_parameter_and_anything_else_stands_in_the_file(
    tmp_path: Path, mine: str, *, is_parameter: bool
) -> None:
    """A bridge needs another host in the first, and must not change the second."""
    environment = {"AWS_ENDPOINT_URL": "http://127.0.0.1:5", "MINE": mine, "FIXED": "http://127.0.0.1:7", "NAME": "n"}
    found = wiring(tmp_path, ADDRESSES, environment, Runtime="python3.12")

    addresses = {"EndpointUrl": "http://127.0.0.1:5"} | ({"Mine": mine} if is_parameter else {})
    assert found.parameters == {"Runtime": "python3.12"} | addresses
    assert found.variables == {
        "One": {"FIXED": "http://127.0.0.1:7", "NAME": "n"} | ({} if is_parameter else {"MINE": mine})
    }


def test_a_value_with_blanks_is_quoted_as_sam_reads_it() -> None:
    """SAM joins the words after `--parameter-overrides` with blanks before it takes them apart."""
    found = Wiring("http://127.0.0.1:5", {}, {"RecoverySchedule": "rate(2 days)", "Runtime": "python3.12"})

    *_, option, first, second = found.command("One", "e.json")
    assert option == ["--parameter-overrides"]
    assert (first, second) == (['RecoverySchedule="rate(2 days)"'], ["Runtime=python3.12"])
    assert found.forwards("172.17.0.1") == []
    assert Wiring("http://127.0.0.1:5", {}, {}).command("One", "e.json")[-1][-2:] == ["--env-vars", ".onceq/sam.json"]


def test_the_page_shows_the_commands_as_they_are_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the ports are the page's own."""
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    shown = [
        " ".join(block.replace("\\\n", " ").split()) for block in re.findall(r"```\n(AWS_.*?)```", text, re.DOTALL)
    ]
    parameters = {"EndpointUrl": "http://127.0.0.1:5000"}
    parameters |= dict.fromkeys(("PaymentsUrl", "MailUrl", "WebhookUrl", "LegacyUrl"), "http://127.0.0.1:5001")
    found = Wiring(parameters["EndpointUrl"], {}, parameters)

    commands = [
        found.command("ConsumerFunction", "events/one-payment.json", bridge=bridge) for bridge in ("", "172.17.0.1")
    ]
    assert shown == [" ".join(word for words in command for word in words) for command in commands]
    assert all(f"{shlex.join(words)} &\n" in text for words in found.forwards("172.17.0.1"))
