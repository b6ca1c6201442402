"""`python -m demo`, small: it shows what it set out to show, and says so when a promise is broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("demo", reason="the demo is gone")
pytest.importorskip("jobs.payments", reason="the example job is gone")

from demo.__main__ import main

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 90
pytestmark = pytest.mark.timeout(SECONDS + 30)


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo as a user does."""
    command = [sys.executable, "-m", "demo", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_a_small_run_keeps_every_promise_and_prints_one_json_object() -> None:
    """G3, G4, G6: each job charged once, nothing lost, with a killed worker, duplicates, failures and bad input."""
    done = run_demo("--json", "--payments", "30", "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert (figures["ok"], figures["problems"], figures["lost"]) == (True, [], 0)
    assert (figures["jobs"], figures["completed"], figures["rejected"], figures["refused"]) == (30, 28, 2, 2)
    assert (figures["charges"], figures["jobs_charged_once"], figures["jobs_charged_twice"]) == (28, 28, 0)
    assert figures["kills"] == 1
    assert figures["takeovers"] >= 1
    assert figures["replays"] >= 1
    assert figures["dead_lettered"] >= 4
    assert figures["deliveries"] > figures["messages"] > figures["jobs"]
    assert figures["attempts"] > figures["jobs"]


def test_a_job_that_ignores_the_key_is_found_out() -> None:
    """G12: after a crash a foreign effect is attempted again; a job that passes no key on makes the demo fail."""
    done = run_demo("--json", "--careless", "--payments", "12", "--workers", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["jobs_charged_twice"] >= 1
    assert figures["ok"] is False
    assert any(problem.startswith("charged more than once: ") for problem in figures["problems"])


def test_a_run_that_ends_too_soon_fails_and_counts_what_is_left_as_not_lost() -> None:
    """A time limit leaves messages in the queue: the demo fails, and tells them from lost ones."""
    done = run_demo("--json", "--payments", "30", "--workers", "1", "--limit", "4")
    assert done.returncode == 1, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["lost"] == 0
    assert any("--limit" in problem for problem in figures["problems"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_it_and_leaves_no_process_behind(number: signal.Signals, code: int) -> None:
    """Ctrl-C and SIGTERM end the workers and moto too."""
    command = [sys.executable, "-m", "demo", "--payments", "30", "--workers", "2"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = _children(process.pid, least=3)
        os.kill(process.pid, number)
        assert process.wait(SECONDS) == code
        assert psutil.wait_procs(children, timeout=10)[1] == []


def _children(pid: int, *, least: int) -> list[psutil.Process]:
    """Wait until moto and the workers run."""
    parent = psutil.Process(pid)
    while True:
        children = parent.children(recursive=True)
        if len(children) >= least:
            return children
        try:
            parent.wait(0.1)
        except psutil.TimeoutExpired:
            continue
        return children


def test_too_few_payments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that cannot show everything is not started."""
    with pytest.raises(SystemExit, match="2"):
        main(["--payments", "9"])
    assert "--payments from 10 on" in capsys.readouterr().err
