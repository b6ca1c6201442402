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

pytest.importorskip("demo.run", reason="the demo is gone, or an example job")

from demo.__main__ import main

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 120  # the demo gives up by itself before that
pytestmark = pytest.mark.timeout(SECONDS + 30)


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo as a user does."""
    command = [sys.executable, "-m", "demo", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)


MUST_BE_0 = (
    "lost",
    "left_in_queue",
    "jobs_charged_twice",
    "outbox_pending",
    "receipts_missing",
    "receipts_twice",
    "webhooks_missing",
    "webhooks_twice",
    "stock_reserved_twice",
    "stock_below_zero",
    "legacy_called_twice",
)


def test_a_small_run_keeps_every_promise_and_prints_one_json_object() -> None:
    """G3, G4, G6 to G9: every effect once, nothing lost, with killed processes, duplicates, failures and bad input."""
    done = run_demo("--json", "--payments", "10", "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert (figures["ok"], figures["problems"]) == (True, [])
    assert {name: figures[name] for name in MUST_BE_0} == dict.fromkeys(MUST_BE_0, 0)
    assert (figures["charges"], figures["jobs_charged_once"], figures["jobs_not_charged"]) == (8, 8, 2)
    # Two payments, and two orders for three pieces of one article; a body that is not JSON, and a key used again.
    assert (figures["rejected"], len(figures["refused_by_reason"])) == (4, 2)
    assert figures["uncertain"] >= 2
    assert figures["completed"] + figures["rejected"] + figures["uncertain"] == figures["jobs"]
    assert figures["legacy_called"] <= figures["stock_reserved"] == 13
    assert figures["outbox_sent"] == figures["receipts"] + figures["stock_reserved"]
    assert figures["outbox_sent_by_relay"] >= 1
    assert (figures["webhooks"], figures["nightly_triggers"], figures["nightly_runs"]) == (3, 2, 1)
    assert all(figures["kills_by_moment"].values())
    assert figures["kills"] == sum(figures["kills_by_moment"].values()) >= 7
    assert figures["takeovers"] >= 1
    assert figures["steps_replayed"] >= 1
    assert figures["replays"] >= 1
    assert figures["deliveries"] > figures["messages"] + figures["outbox_sent"] > figures["jobs"]
    assert figures["attempts"] > figures["jobs"]


def test_broken_promises_are_found_out() -> None:
    """G7, G8, G12: no key for the provider, stock beside the transaction, no relay for what was not sent at once."""
    done = run_demo("--json", "--careless", "--no-relay", "--payments", "10", "--workers", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["ok"] is False
    assert min(figures[name] for name in ("jobs_charged_twice", "stock_reserved_twice", "outbox_pending")) >= 1
    found = {problem.partition(": ")[0] for problem in figures["problems"]}
    assert {"charged more than once", "stock taken and not reserved", "pending in the outbox"} <= found
    assert "not shown: the relay sent nothing" in figures["problems"]


def test_a_run_that_ends_too_soon_fails_and_counts_what_is_left_as_not_lost() -> None:
    """A time limit leaves messages in the queue: the demo fails, and tells them from lost ones."""
    done = run_demo("--json", "--payments", "30", "--workers", "1", "--limit", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["lost"] == 0
    assert any("--limit" in problem for problem in figures["problems"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_it_and_leaves_no_process_behind(number: signal.Signals, code: int) -> None:
    """Ctrl-C and SIGTERM end the workers, the relay and moto too."""
    command = [sys.executable, "-m", "demo", "--payments", "30", "--workers", "2"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = _children(process.pid, least=4)
        os.kill(process.pid, number)
        assert process.wait(SECONDS) == code
        assert psutil.wait_procs(children, timeout=10)[1] == []


def _children(pid: int, *, least: int) -> list[psutil.Process]:
    """Wait until moto, the workers and the relay run."""
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
