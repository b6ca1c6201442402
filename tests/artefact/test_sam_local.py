"""The words that `make local-up` prints, typed as they stand: the SAM CLI reads them, the built function gets the rest.

Only the container is left out: what the SAM CLI would start it with goes to Lambda's Runtime Interface Emulator.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from kit.emulator import ROOT, emulating
from kit.up import Up, here
from onceq.local import child_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROVIDED = {"PaymentsUrl", "MailUrl", "WebhookUrl", "LegacyUrl"}
# A shell as somebody has it who deploys: SAM would take each of these into the container.
SHELL = {
    "AWS_ACCESS_KEY_ID": "AKIAREAL",
    "AWS_SECRET_ACCESS_KEY": "real",
    "AWS_REGION": "eu-west-1",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "ONCEQ_CLAIMS_TABLE": "prod-claims",
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """`make local-up` in a folder of its own, whose `sam` stops before the container."""
    folder: Path = tmp_path_factory.mktemp("project")
    for name in ("events", "template.yaml", "samconfig.toml", ".aws-sam"):
        (folder / name).symlink_to(ROOT / name)
    sam = folder / ".venv-sam" / "bin" / "sam"
    sam.parent.mkdir(parents=True)
    program = f'exec "{ROOT}/.venv-sam/bin/python" "{ROOT}/tests/kit/sam_invoke.py" "$@"'
    sam.write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    sam.chmod(0o755)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ONCEQ_"))}
    environment = child_environment(plain)
    environment["PYTHONPATH"] += os.pathsep + str(ROOT)
    words = [
        "-m",
        "demo.provider",
        "--run",
        "--",
        sys.executable,
        "-m",
        "onceq",
        "up",
        "--parameter",
        "ReportSchedule=cron(1 2 * * ? *)",
    ]
    with (folder / "stdout").open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, env=environment, stdout=stdout, stderr=subprocess.STDOUT
        )
    up = Up(folder, environment, process)
    try:
        up.wait()
        yield up
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not (folder / ".onceq" / "sam.json").exists()
        shutil.rmtree(folder / ".onceq")


def told_by_sam(up: Up, command: str, **shell: str) -> dict[str, Any]:
    """Type a command; return what SAM would start."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(up.folder), "SAM_CLI_TELEMETRY": "0", **shell}
    answer = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=up.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "No current session found" not in answer.stderr, "it asked AWS's STS who the caller is"
    told: dict[str, Any] = json.loads(answer.stdout)
    return told


def charges(up: Up) -> dict[str, Any]:
    """Return what the provider was asked for."""
    url = f"{up.parameters()['PaymentsUrl']}/stats"
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - ours
        orders: dict[str, Any] = json.load(answer)["charges"]["orders"]
    return orders


def test_the_printed_command_completes_the_job_in_the_local_services(up: Up, tmp_path: Path) -> None:
    """From the printed words alone: right tables, queues and provider, whatever the shell is set to."""
    told = told_by_sam(up, up.command(), **SHELL)
    assert (told["function"], told["handler"]) == ("ConsumerFunction", "app.consumer")

    with emulating(here(told["environment"]), timeout=told["timeout"], log=tmp_path / "log") as function:
        first = function.answer(told["event"])
        again = function.answer(told["event"])

    log = (tmp_path / "log").read_text()
    assert (first, again) == ({"batchItemFailures": []}, {"batchItemFailures": []}), log
    shown = json.loads(up.run("show", "process_payment", "o-1", "--json").stdout)
    assert (shown["status"], shown["attempts"]) == ("completed", 1), log
    assert charges(up)["o-1"]["done"] == 1
    assert log.count('"event":"job.replayed"') == 1


def test_a_refused_message_lies_in_the_local_dead_letter_queue(up: Up, tmp_path: Path) -> None:
    """The event's ARN is the queue's, so the function knows where its copies go: `onceq dlq` shows the poison."""
    told = told_by_sam(up, up.command().replace("one-payment.json", "batch-with-poison.json"))

    with emulating(here(told["environment"]), timeout=told["timeout"], log=tmp_path / "log") as function:
        assert function.answer(told["event"]) == {"batchItemFailures": []}

    letters = json.loads(up.run("dlq", "--json").stdout)
    assert ["not JSON" in letter["reason"] for letter in letters] == [True], (tmp_path / "log").read_text()


def test_without_the_file_sam_makes_up_names(up: Up) -> None:
    """Why there is one: a queue's URL becomes its logical id, and its ARN that of a Lambda function."""
    command = up.command().replace("--env-vars .onceq/sam.json", "")

    queues = json.loads(told_by_sam(up, command)["environment"]["ONCEQ_QUEUES"])

    assert queues["default"] == {
        "url": "JobsQueue",
        "arn": "arn:aws:lambda:us-east-1:123456789012:function:JobsQueue",
        "dlq_url": "DeadLetterQueue",
    }


def test_on_linux_a_container_is_told_where_this_machine_is(up: Up) -> None:
    """Docker Desktop knows the name; elsewhere it goes into the container's hosts, and the ports are forwarded."""
    desktop, linux = (told_by_sam(up, up.command(linux=linux)) for linux in (False, True))

    assert (desktop["hosts"], linux["hosts"]) == ({}, {"host.docker.internal": "172.17.0.1"})
    assert desktop["environment"] == linux["environment"]
    ports = {url.rpartition(":")[2] for name, url in up.parameters().items() if name in {"EndpointUrl", *PROVIDED}}
    words = "socat TCP-LISTEN:{0},bind=172.17.0.1,fork,reuseaddr TCP:127.0.0.1:{0} &"
    forwards = {line.strip() for line in up.output().splitlines() if "socat" in line}
    assert forwards == {words.format(port) for port in ports}
    assert len(ports) == 2


NETWORK = """
from unittest.mock import MagicMock
from samcli.local.docker.container import Container, ContainerContext
client = MagicMock()
container = Container("image", [], "/", None, docker_client=client)
container.network_id = "host"
container.create(ContainerContext.INVOKE)
given = client.containers.create.call_args.kwargs
print(client.networks.get.called, [name for name in given if "network" in name])
"""


def test_sam_has_no_host_network() -> None:
    """Why the words go by a bridge: `--docker-network host` is passed over, and the container is on the default one."""
    answer = subprocess.run(
        [ROOT / ".venv-sam" / "bin" / "python", "-c", NETWORK], capture_output=True, text=True, timeout=60, check=True
    )

    assert answer.stdout == "False []\n"


@pytest.mark.parametrize(
    ("function", "event"), [("RelayFunction", "every-minute.json"), ("RecoveryFunction", "every-minute.json")]
)
def test_the_other_functions_find_their_tables_by_the_same_words(up: Up, function: str, event: str) -> None:
    """The file has a section for each function of the template."""
    command = up.command().replace("ConsumerFunction", function).replace("one-payment.json", event)

    environment = told_by_sam(up, command)["environment"]

    own = json.loads((up.folder / ".onceq" / "dev.json").read_text())["environments"][
        {"RelayFunction": "relay", "RecoveryFunction": "recovery"}[function]
    ]
    credentials = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"}
    assert credentials < set(own)
    assert own == here({name: environment[name] for name in own})


def test_a_variable_of_the_shell_goes_before_a_parameter_and_not_before_the_file(up: Up) -> None:
    """As the page warns: SAM takes a declared variable from the shell where the file does not name it."""
    told = told_by_sam(
        up, up.command(), AWS_ENDPOINT_URL="http://127.0.0.1:9", ONCEQ_CLAIMS_TABLE="prod-claims", UNDECLARED="1"
    )

    environment = told["environment"]
    assert environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9"
    assert environment["ONCEQ_CLAIMS_TABLE"] == "ClaimsTable"
    assert "UNDECLARED" not in environment
