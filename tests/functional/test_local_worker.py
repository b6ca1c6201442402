"""Worker processes: what a signal, a grace that ends and a SIGKILL leave behind."""

from __future__ import annotations

import re
import signal
import urllib.request
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kit.project import Project, wait_until
from onceq.local import AWS_VARIABLES, MotoServer
from onceq.worker import CUT_OFF

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    """One locked moto for the module."""
    with MotoServer() as started:
        yield started


@pytest.fixture
def folder(server: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project without resources; the server, which this process reaches too, is empty."""
    reset = urllib.request.Request(f"{server.endpoint}/moto-api/reset", method="POST")  # noqa: S310 - http, as it says
    urllib.request.urlopen(reset).close()  # noqa: S310 - as above
    for name, value in (AWS_VARIABLES | {"AWS_ENDPOINT_URL": server.endpoint}).items():
        monkeypatch.setenv(name, value)
    return Project.at(tmp_path)


@pytest.fixture
def project(server: MotoServer, folder: Project) -> Project:
    """A project whose resources are on the server, with visibility and skew short enough to wait for."""
    folder.create(server.endpoint, {"VisibilityTimeout": 2, "ClockSkew": 0.2, "Concurrency": 1})
    return folder


@pytest.fixture
def relaying(server: MotoServer, folder: Project) -> Project:
    """The same with the environment of the relay's function, which knows neither the claims nor an ARN."""
    folder.create(server.endpoint, {}, function="RelayFunction")
    return folder


@pytest.fixture
def workers(folder: Project) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Where a test puts the workers that it starts; none outlives it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for worker in started:
        if worker.poll() is None:
            worker.kill()
        worker.wait()
        if worker.stdin:
            worker.stdin.close()


def test_sigterm_gives_back_what_has_not_started_and_lets_the_running_job_finish(
    project: Project, workers: list[subprocess.Popen[bytes]]
) -> None:
    """G4: nothing is lost, nothing runs twice, and the unstarted messages do not wait for the running job."""
    app = project.app()
    for number in range(3):
        app.enqueue("mark", {"key": f"k-{number}", "wait": True})
    worker = project.start("work", "--grace", "30")
    workers.append(worker)
    wait_until(lambda: project.lines("started"), "the first job starts")

    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: project.counts()[0] == 2, "the unstarted messages are visible")
    assert worker.poll() is None
    (project.folder / "go").touch()
    assert worker.wait(30) == 0

    started = project.lines("started")
    assert project.lines("effects") == started
    assert len(started) == 1
    status = project.status(started[0])
    assert status is not None
    assert status.status == "completed"
    assert sum(project.counts()) == 2

    workers.append(project.start("work"))
    wait_until(lambda: sum(project.counts()) == 0, "the others are done")
    assert sorted(project.lines("effects")) == ["k-0", "k-1", "k-2"]


def test_after_the_grace_the_claim_is_left_to_go_stale(
    project: Project, workers: list[subprocess.Popen[bytes]]
) -> None:
    """G1: a claim whose job may still run is never released; another worker takes it over when it is stale."""
    project.app().enqueue("mark", {"key": "k-1", "wait": True})
    worker = project.start("work", "--grace", "0.2")
    workers.append(worker)
    wait_until(lambda: project.lines("started"), "the job starts")

    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == CUT_OFF
    status = project.status("k-1")
    assert status is not None
    assert (status.status, status.attempts) == ("processing", 1)

    (project.folder / "go").touch()
    workers.append(project.start("work"))
    wait_until(lambda: sum(project.counts()) == 0, "the job is taken over and done")
    status = project.status("k-1")
    assert status is not None
    assert (status.status, status.attempts) == ("completed", 2)


def test_sigkill_in_the_middle_of_a_job_is_recovered_by_another_worker(
    project: Project, workers: list[subprocess.Popen[bytes]]
) -> None:
    """G6: the next delivery after the lease takes over; there is one completion and no lost message."""
    for number in range(4):
        project.app().enqueue("mark", {"key": f"k-{number}", "wait": number == 0})
    worker = project.start("work")
    workers.append(worker)
    wait_until(lambda: "k-0" in project.lines("started"), "the job starts")

    worker.kill()
    worker.wait()
    (project.folder / "go").touch()
    workers += [project.start("work"), project.start("work")]
    wait_until(lambda: sum(project.counts()) == 0, "every message is done")

    assert sorted(project.lines("effects")) == ["k-0", "k-1", "k-2", "k-3"]
    status = project.status("k-0")
    assert status is not None
    assert (status.status, status.attempts, status.result) == ("completed", 2, 2)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "stdin"])
def test_an_idle_worker_ends_cleanly(project: Project, workers: list[subprocess.Popen[bytes]], how: str) -> None:
    """Ctrl-C, SIGTERM and a parent that is gone end a worker with exit code 0."""
    project.app().enqueue("mark", {"key": "k-1"})
    worker = project.start("work", "--follow-stdin")
    workers.append(worker)
    wait_until(lambda: project.lines("effects"), "the worker is up")
    if how == "stdin":
        assert worker.stdin is not None
        worker.stdin.close()
    else:
        worker.send_signal(signal.Signals[how])
    assert worker.wait(30) == 0


def is_sent(project: Project, key: str) -> bool:
    """Return whether a relay of the project told that it sent this message."""
    return f"mark {key}" in "\n".join(project.lines("stdout"))


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "stdin"])
def test_a_relay_sends_what_was_left_and_ends_cleanly(
    relaying: Project, workers: list[subprocess.Popen[bytes]], how: str
) -> None:
    """G8: what a crash left between commit and sending leaves; each that was sent is a line, an idle run is none."""
    relay = relaying.start("relay", "--every", "0.1", "--follow-stdin", "--name", "r1")
    workers.append(relay)
    for number, key in enumerate(("k-1", "k-2"), 1):
        relaying.stage(key)
        wait_until(partial(is_sent, relaying, key), f"{key} is sent")
        assert relaying.counts() == (number, 0)
    if how == "stdin":
        assert relay.stdin is not None
        relay.stdin.close()
    else:
        relay.send_signal(signal.Signals[how])

    assert relay.wait(30) == 0
    lines = [re.sub(r"^\d\d:\d\d:\d\d r1  (\S+).*", r"\1", line) for line in relaying.lines("stdout")]
    assert lines == ["outbox.sent", "relay.ended"] * 2


def test_a_relay_without_a_claims_table_needs_none(relaying: Project) -> None:
    """As on Lambda, where its role reaches the outbox and the queue alone."""
    assert "ONCEQ_CLAIMS_TABLE" not in relaying.environment
    relaying.stage("k-1")

    done = relaying.run("relay", "--once")
    assert (done.returncode, done.stdout) == (0, '{"sent": 1, "failed": 0, "left": 0, "overdue": 0}\n')
    assert re.search(r"outbox\.sent +mark k-1 +\d+\.\d\d s past due$", done.stderr, re.MULTILINE)


def test_a_queue_without_arn_is_not_consumed(project: Project) -> None:
    """A producer's settings are enough to enqueue and not to consume: that is said before anything is received."""
    project.environment["ONCEQ_QUEUES"] = '{"default": {"url": "http://127.0.0.1:9/q"}}'
    done = project.run("work")
    assert done.returncode == 2
    assert "has no arn" in done.stderr
    assert "Traceback" not in done.stderr
