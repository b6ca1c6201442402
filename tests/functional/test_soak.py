"""The soak, small: real processes, faults of every kind, and every promise kept; and it leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kit.soak_log import read_log
from soak.run import SIGNALS, end_at_a_signal
from soak.stand import Process, Stand, Times

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).resolve().parents[1]
SECONDS = 240  # a bound for a machine that is busy; it takes a few seconds otherwise
SMALL = ("--backend", "moto", "--workers", "3", "--relays", "1", "--lease", "1")
pytestmark = pytest.mark.timeout(SECONDS + 30)


def command_of(*arguments: str) -> dict[str, Any]:
    """Return what starts a soak, as its verb in the Makefile does."""
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    return {"args": [sys.executable, "-m", "soak.run", *SMALL, *arguments], "env": environment}


def test_a_small_soak_keeps_every_promise_and_says_what_it_compared(tmp_path: Path) -> None:
    """G1 to G11: killed, stopped and cut off, the processes leave every record, queue and book as promised."""
    old = tmp_path / "moto" / "log.jsonl"
    old.parent.mkdir()
    old.write_text('{"at": 1, "pid": 1, "name": "attempt.began", "job": "charge#k-1", "token": 1}\n')  # another run's
    done = subprocess.run(
        **command_of("--duration", "2", "--messages", "24", "--json", "--folder", str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)

    assert (report["ok"], report["problems"], report["timeline"]) == (True, [], [])
    figures = report["figures"]
    assert figures["messages"] == 24
    assert figures["attempts"] >= figures["jobs"] >= 20
    assert figures["killed from outside"] >= 1
    assert figures["processes stopped"] >= 1
    assert figures["outages"] == 1
    assert figures["processes killed"] >= 1
    counts = {one["promise"]: one["counts"] for one in report["promises"]}
    assert set(counts) == {*(f"G{number}" for number in range(1, 12)), "FIFO"}
    assert sum(counts["G4"][where] for where in ("completed", "dead letters", "in the queue")) == 24
    assert counts["G4"]["in the queue"] == 1  # nobody serves its job type
    assert counts["G8"]["applied"] == counts["G8"]["messages"] >= 2
    assert counts["G10"]["not stored"] + counts["G10"]["false ones"] >= 1


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[psutil.Process]]]:
    """Run a soak with every process of its own under way, and one of them stopped."""
    command = command_of("--duration", "100", "--folder", str(folder), "--workers", "2")
    with subprocess.Popen(**command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            pids: list[int] = []
            until = time.monotonic() + SECONDS / 2
            while len(pids) < 3 and time.monotonic() < until:
                time.sleep(0.05)
                log = read_log(folder / "moto" / "log.jsonl")
                pids = [line["pid"] for line in log if line["name"] == "process.started"]
            children = psutil.Process(process.pid).children(recursive=True)
            assert len(children) >= 6  # moto, the provider, what forks, and the three
            os.kill(pids[0], signal.SIGSTOP)
            yield process, children
        finally:
            process.kill()


def test_a_signal_leaves_nothing_running(tmp_path: Path) -> None:
    """However it ends, its processes end, also one that is stopped; who is impatient changes nothing."""
    ends = {
        "Ctrl-C": ((signal.SIGINT, signal.SIGINT), 130),
        "asked": ((signal.SIGTERM, signal.SIGINT), 130),
        "killed": ((signal.SIGKILL,), -signal.SIGKILL),
    }
    with ExitStack() as stack, ThreadPoolExecutor(len(ends)) as pool:
        # All start at once: most of the time they wait for each other's processes.
        opened = pool.map(lambda name: stack.enter_context(running(tmp_path / name)), ends)
        for (numbers, code), (process, children) in zip(ends.values(), opened, strict=True):
            for number in numbers:
                process.send_signal(number)

            assert process.wait(SECONDS / 4) == code
            assert psutil.wait_procs(children, timeout=SECONDS / 8)[1] == []


@pytest.fixture
def heard() -> Iterator[None]:
    """Let signals be heard afterwards as before."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("first", SIGNALS)
def test_the_first_signal_ends_it_and_no_other_interrupts_its_end(first: signal.Signals) -> None:
    """Wherever it is, also while it starts: what is interrupted at its end would wait for what it has not ended."""
    end_at_a_signal()
    ends = 0
    for number in (first, *SIGNALS):
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            ends += 1

    assert ends == 1


def test_what_has_not_started_is_not_waited_for(tmp_path: Path) -> None:
    """A signal that comes while the processes start ends the soak at once."""
    waited: list[int] = []
    nursery: Any = SimpleNamespace(codes={}, wait=lambda pid, _seconds: waited.append(pid))
    proxy: Any = None
    processes = [Process("worker 1", ("work", "default"))]

    Stand("", proxy, lambda _seconds: None, "", tmp_path, {}, nursery, processes, 1, Times()).kill()

    assert waited == []
