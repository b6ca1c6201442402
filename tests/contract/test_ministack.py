"""The second implementation as a server: where it listens, when it ends, what is told when it cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from kit import ministack as serving
from kit.claims import record_of
from kit.ministack import ministack_server, open_world_on
from kit.world import TABLE
from onceq.local import child_environment

if TYPE_CHECKING:
    from contract.conftest import Backend
    from kit.clock import FrozenClock

TESTS = Path(__file__).resolve().parents[1]


def servers_of(process: psutil.Process) -> list[psutil.Process]:
    """Return the ministacks that a process started."""
    return [child for child in process.children() if str(serving.SERVE) in child.cmdline()]


def is_running(pid: int) -> bool:
    """Say whether a process is there and no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_contract_is_held_by_the_server_that_its_name_says(backend: Backend) -> None:
    """Neither of the two stands in for the other: ministack's queues have its own address, moto's have none."""
    url = backend.new_queue()

    assert url.startswith(f"{backend.endpoint}/") is not backend.is_moto
    assert (backend.endpoint is None) is backend.is_moto


def test_a_server_listens_on_127_0_0_1_alone_and_ends_with_its_block() -> None:
    """By default ministack listens on every address, on three ports; ours on one port of one address."""
    before = {child.pid for child in servers_of(psutil.Process())}
    with ministack_server() as endpoint:
        [server] = [child for child in servers_of(psutil.Process()) if child.pid not in before]
        listening = [each.laddr for each in server.net_connections() if each.status == psutil.CONN_LISTEN]
        assert [f"http://{address.ip}:{address.port}" for address in listening] == [endpoint]
        assert endpoint.startswith("http://127.0.0.1:")
        assert server.children() == []

    assert not is_running(server.pid)


def test_a_server_ends_when_its_parent_is_killed() -> None:
    """No orphan: a test run that is killed takes its server with it."""
    program = (
        "import os, signal, psutil\n"
        "from kit.ministack import ministack_server\n"
        "block = ministack_server()\n"
        "block.__enter__()\n"
        "[server] = psutil.Process().children()\n"
        "print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = child_environment(dict(os.environ))
    environment["PYTHONPATH"] += os.pathsep + str(TESTS)
    parent = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=False, timeout=60
    )

    server = int(parent.stdout)
    end = time.monotonic() + 20
    while is_running(server):
        assert time.monotonic() < end, "the server outlived its parent"
        time.sleep(0.05)


def test_worlds_on_one_server_do_not_see_each_other(ministack: str, clock: FrozenClock) -> None:
    """A world is an account of its own: the same names, and nothing of another world in them."""
    record = record_of(key="k-1")
    with open_world_on(ministack, clock) as one:
        one.dynamodb.put_item(TableName=TABLE, Item=record.to_item())
        one.sqs.send_message(QueueUrl=one.settings.queue("default").dlq_url, MessageBody="dead")
        with open_world_on(ministack, clock) as other:
            assert other.record("pay", "k-1") is None
            assert other.dynamodb.scan(TableName=TABLE)["Items"] == []
            assert other.dead_letters() == []
        assert [letter["Body"] for letter in one.dead_letters()] == ["dead"]
        assert one.dynamodb.scan(TableName=TABLE)["Count"] == 1
        # A runtime makes its client at its first use, here after another world was opened and closed.
        assert one.record("pay", "k-1") == record


def test_without_its_environment_the_command_that_makes_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that needs ministack is never skipped: it fails, and says what to run."""
    monkeypatch.setattr(serving, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))

    with pytest.raises(FileNotFoundError, match=r"run `make \.venv-ministack/\.ready`"), ministack_server():
        pass


def test_a_server_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own words are in the error, whether it ends before it listens or while it loads."""
    program = tmp_path / "serve.py"
    monkeypatch.setattr(serving, "SERVE", program)

    program.write_text("raise SystemExit('no such thing')", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"did not start.*no such thing"), ministack_server():
        pass

    text = (TESTS / "kit" / "serve_ministack.py").read_text(encoding="utf-8")
    program.write_text(text.replace("from ministack.app", "from no_such_stack.app"), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"(?s)did not start.*no_such_stack"), ministack_server():
        pass
