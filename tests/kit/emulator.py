"""The Lambda Runtime Interface Emulator that ships inside the SAM CLI, without a container.

It serves one request at a time (a second one makes it panic), kills the function with SIGKILL at its time-out, and
listens on every address unless told otherwise.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = ROOT / ".aws-sam" / "build" / "ConsumerFunction"
START_SECONDS = 20.0


class Emulator:
    """One execution environment of the built function."""

    def __init__(self, port: int) -> None:
        """Keep the port it answers on."""
        self._port = port

    def invoke(self, event: object, *, seconds: float = 60) -> tuple[int, str]:
        """Invoke the function once; return HTTP's status and the answer's text."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        try:
            connection.request("POST", "/2015-03-31/functions/function/invocations", json.dumps(event))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def answer(self, event: object) -> Any:
        """Invoke the function once and return what it answered."""
        status, text = self.invoke(event)
        assert status == 200, text
        return json.loads(text)


@contextmanager
def emulating(environment: Mapping[str, str], *, timeout: int, log: Path) -> Iterator[Emulator]:
    """Run the built function under the emulator.

    Args:
        environment: Its environment variables.
        timeout: Seconds after which the emulator kills it.
        log: Where its output goes.
    """
    architecture = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
    [binary] = (ROOT / ".venv-sam").glob(f"lib/python*/site-packages/samcli/local/rapid/aws-lambda-rie-{architecture}")
    python = ROOT / ".venv-lambda" / "bin" / "python"
    port, runtime_port = _free_port(), _free_port()
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "LAMBDA_TASK_ROOT": str(FUNCTION),
        "PYTHONPATH": str(FUNCTION),
        "_HANDLER": "app.consumer",
        "AWS_LAMBDA_FUNCTION_NAME": "ConsumerFunction",
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(timeout),
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_LAMBDA_LOG_FORMAT": "JSON",
        **environment,
    }
    command = [
        str(binary),
        "--runtime-interface-emulator-address",
        f"127.0.0.1:{port}",
        "--runtime-api-address",
        f"127.0.0.1:{runtime_port}",
        "--log-level",
        "warn",
        str(python),
        "-m",
        "awslambdaric",
        "app.consumer",
    ]
    binary.chmod(binary.stat().st_mode | 0o100)
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, cwd=FUNCTION, env=variables, stdout=output, stderr=output, start_new_session=True
        ) as process,
    ):
        try:
            _wait_for(port, process, log)
            yield Emulator(port)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    message = f"the emulator did not answer: {log.read_text()}"
    raise AssertionError(message)
