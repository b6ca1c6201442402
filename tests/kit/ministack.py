"""The second implementation: ministack, a server of its own environment, and the world of the tests on it.

moto's transactions are only isolated behind our lock, and it ignores client tokens; ministack handles one request at a
time and knows tokens. A promise that rests on either is tested on both.
"""

from __future__ import annotations

import functools
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kit.world import REGION, furnished

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import IO

    from kit.clock import FrozenClock
    from kit.world import World

ROOT = Path(__file__).resolve().parents[2]
SERVE = Path(__file__).with_name("serve_ministack.py")
START_SECONDS = 30.0
VARIABLES = {
    "SERVICES": "dynamodb,sqs,s3",
    "LOG_LEVEL": "ERROR",
    # Each of these would listen on a port of its own, the first on every address.
    "IOT_MTLS_ENABLED": "0",
    "SFTP_ENABLED": "0",
    # It removes containers that an earlier ministack left, and the user's own may be among them.
    "DOCKER_HOST": "unix:///nonexistent",
}


def python_of_ministack() -> Path:
    """Return the Python of ministack's environment.

    Raises:
        FileNotFoundError: If there is none. A test is never skipped for it, and installs nothing by itself.
    """
    # The mutants run in copies of the project, with the environment of the original.
    for folder in (ROOT, Path(sys.prefix).parent):
        environment = folder / ".venv-ministack"
        if (environment / ".ready").exists():
            return environment / "bin" / "python"
    message = "the tests need ministack in an environment of its own: run `make .venv-ministack/.ready`"
    raise FileNotFoundError(message)


@contextmanager
def ministack_server(python: Path | None = None, variables: Mapping[str, str] | None = None) -> Iterator[str]:
    """Serve an empty ministack on 127.0.0.1 and a free port, and yield its endpoint.

    It ends with the block, or when this process dies: it holds the other end of a pipe.

    Args:
        python: The Python that runs it; without one that of the tests' environment.
        variables: Environment variables, beside `VARIABLES` or instead of them.
    """
    with (
        tempfile.TemporaryFile() as log,
        # -I: of this folder and of PYTHONPATH it sees nothing. A session of its own, so that Ctrl-C reaches us alone.
        subprocess.Popen(
            [python or python_of_ministack(), "-I", SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], **VARIABLES, **(variables or {})},
        ) as process,
    ):
        try:
            yield _endpoint_of(process, log, (variables or {}).get("MINISTACK_SSL_CERT"))
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the functions that it runs, too


def _endpoint_of(process: subprocess.Popen[bytes], log: IO[bytes], certificate: str | None) -> str:
    assert process.stdout is not None
    endpoint = process.stdout.readline().decode().strip()
    try:
        # Its socket is there already, so this waits in line until ministack is loaded.
        url, trusted = f"{endpoint}/_ministack/health", ssl.create_default_context(cafile=certificate)
        urllib.request.urlopen(url, timeout=START_SECONDS, context=trusted).close()  # noqa: S310 - ours
    except (OSError, ValueError) as error:
        log.seek(0)
        message = f"ministack did not start ({error}): {log.read().decode(errors='replace')}"
        raise AssertionError(message) from error
    return endpoint


@functools.cache
def _session() -> Any:
    # One for all worlds: a session reads the descriptions of the services once.
    import botocore.session

    return botocore.session.get_session()


@contextmanager
def open_world_on(endpoint: str, clock: FrozenClock) -> Iterator[World]:
    """Open a world of empty tables and queues on a ministack that is shared.

    Each world is an AWS account of its own, for which ministack takes an access key of twelve digits: the names are
    those of every other world, and what a test leaves behind is seen by none.
    """
    account = f"{uuid.uuid4().int % 10**12:012}"

    def session() -> Any:
        shared = _session()
        shared.set_credentials(account, "test")
        return shared

    variables = {
        "AWS_ACCESS_KEY_ID": account,
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
    }
    with patch.dict(os.environ, variables), patch("onceq.client._session", session):
        yield furnished(session().create_client("dynamodb"), session().create_client("sqs"), clock)
