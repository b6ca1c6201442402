"""Processes that are forked from a warm one are as new ones are, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from kit import nursery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import os, sys, time
print(os.getpid(), os.environ.get("WORD"), sys.argv[1:], sys.path[0], time.tzname[0], flush=True)
print(sys.stdin.read(), file=sys.stderr)
if sys.argv[1:] == ["wait"]:
    open("started", "w").write(str(os.getpid()))
    time.sleep(600)  # until it is killed, which is what is tested
sys.exit(len(sys.argv) - 1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    return tmp_path


@pytest.fixture
def waiting(folder: Path) -> Iterator[list[int]]:
    """The ids of processes that wait; none is left."""
    pids: list[int] = []
    yield pids
    assert pids
    assert psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=10)[1] == []
    assert _ran(folder) == 0, "the next one is not answered by it"


def _ran(folder: Path) -> int:
    return nursery.run("program", folder=folder, environment={}).returncode


def test_a_process_has_its_own_words_folder_environment_zone_and_files(folder: Path) -> None:
    """Nothing of the nursery's, nor of the process that asked."""
    environment = {"WORD": "here", "TZ": "XYZ-2"}

    ended = nursery.run("program", "one", "two", folder=folder, environment=environment, text="said")

    assert ended.returncode == 2
    assert ended.stdout.split(maxsplit=1)[1] == f"here ['one', 'two'] {folder} XYZ\n"
    assert ended.stderr == "said\n"
    assert nursery.run("program", folder=folder, environment={}).stdout.split()[1] == "None"


def test_a_process_that_takes_too_long_is_ended(folder: Path, waiting: list[int]) -> None:
    """It is killed, and what comes next is a process of its own."""
    with pytest.raises(subprocess.TimeoutExpired):
        nursery.run("program", "wait", folder=folder, environment={}, seconds=1)

    waiting.append(int((folder / "started").read_text()))


def test_a_signal_while_it_is_waited_for_ends_it(folder: Path, waiting: list[int]) -> None:
    """As a test's own time limit comes."""

    def interrupt() -> None:
        while not (folder / "started").exists():
            time.sleep(0.01)  # another process writes it
        os.kill(os.getpid(), signal.SIGUSR1)

    def raise_it(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, raise_it)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(TimeoutError):
            nursery.run("program", "wait", folder=folder, environment={})
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    waiting.append(int((folder / "started").read_text()))
