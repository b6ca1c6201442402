"""A user's project in a folder of its own, with jobs that tell a test what they do, and its processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

# A botocore session that was made before it, for a server, would never be answered by moto in this process: by the next
# test, that is.
import moto.core  # noqa: F401

from kit import nursery
from onceq import App, job
from onceq.local import AWS_VARIABLES, child_environment
from onceq.message import seal
from onceq.outbox import OutboxEntry
from onceq.resources import Resources, create_resources
from onceq.runtime import Runtime
from onceq.settings import Settings
from onceq.template import function_environment, load_template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceq.status import JobStatus

TEMPLATE = Path(__file__).parents[2] / "template.yaml"
SECONDS = 40.0
RUN_SECONDS = 60.0

APP = '''
from __future__ import annotations

import time
from pathlib import Path

from onceq import App, Context, Reject, job

FOLDER = Path({folder!r})


def note(name: str, line: str) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(line + "\\n")


@job("mark", max_attempts=3, max_duration=1, key="key")
def mark(payload: dict, ctx: Context) -> int:
    """Tell that it started, wait for the test's word if it is to, send others, tell that it had its effect."""
    note("started", ctx.key)
    for number, delay in enumerate(payload.get("send", ())):
        ctx.send("mark", {{}}, key=f"{{ctx.key}}-{{number}}", delay=delay)
    if payload.get("reject"):
        raise Reject("as asked")
    while payload.get("wait") and not (FOLDER / "go").exists():
        time.sleep(0.01)
    ctx.log.info("marked")
    note("effects", ctx.key)
    return ctx.attempt


app = App([mark])
'''


@job("mark", max_duration=1, key="key")
def mark(payload: dict[str, Any]) -> None:
    """Stands for the project's job type here, where it is only enqueued and looked up."""


@dataclass
class Project:
    """A project folder and what runs in it."""

    folder: Path
    environment: dict[str, str]
    resources: Resources | None = None

    @classmethod
    def at(cls, folder: Path) -> Project:
        """Write a project: the real template, and an application of one job type."""
        (folder / "src").mkdir()
        (folder / "src" / "app.py").write_text(APP.format(folder=str(folder)), encoding="utf-8")
        shutil.copy(TEMPLATE, folder / "template.yaml")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ONCEQ_"))}
        return cls(folder, child_environment(plain | AWS_VARIABLES))

    def create(self, endpoint: str, parameters: Mapping[str, object], *, function: str = "ConsumerFunction") -> None:
        """Create the template's resources on a server; `AWS_ENDPOINT_URL` must lead there.

        What runs in the folder gets the environment of that function.
        """
        template = load_template(TEMPLATE)
        self.resources = create_resources(template, parameters={**parameters, "EndpointUrl": endpoint})
        self.environment |= function_environment(template, self.resources, function=function, shell={})

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start ``python -m onceq`` in the folder."""
        with (self.folder / "stdout").open("ab") as stdout:
            return subprocess.Popen(
                [sys.executable, "-m", "onceq", *words],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=subprocess.STDOUT,
            )

    def run(self, *words: str, text: str = "", fresh: bool = False) -> subprocess.CompletedProcess[str]:
        """Run ``python -m onceq`` in the folder to its end: in a new Python, or in a fork of one that is warm."""
        if not fresh:
            return nursery.run(
                "onceq", *words, folder=self.folder, environment=self.environment, text=text, seconds=RUN_SECONDS
            )
        return subprocess.run(
            [sys.executable, "-m", "onceq", *words],
            cwd=self.folder,
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )

    def app(self) -> App:
        """Return an application to enqueue and look up with, from the test's own process."""
        return App([mark], runtime=Runtime(Settings.from_env(self.environment)), hooks=[])

    def stage(self, key: str) -> None:
        """Put a message into the outbox that was not sent although it is due, as a crash leaves it."""
        body = seal(job_type="mark", idempotency_key=key, payload={}, created_at="2026-11-29T12:00:00Z")
        entry = OutboxEntry(f"e-{key}", "mark", key, "default", body, 1, 1, shard="0", next_at=1)
        boto3.client("dynamodb").put_item(TableName="OutboxTable", Item=entry.to_item())

    def status(self, key: str) -> JobStatus | None:
        """Look a job up."""
        return self.app().lookup(mark, key)

    def lines(self, name: str) -> list[str]:
        """Return what the jobs noted so far."""
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def counts(self) -> tuple[int, int]:
        """Return how many messages are visible and how many are in flight."""
        assert self.resources is not None
        url = self.resources.queue_url("JobsQueue")
        attributes = boto3.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return int(attributes["ApproximateNumberOfMessages"]), int(attributes["ApproximateNumberOfMessagesNotVisible"])


def wait_until(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Wait for another process, a bounded time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)
