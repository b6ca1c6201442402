"""`sam build` and `sam deploy` of the real template, against a ministack that enforces IAM and speaks TLS.

Nothing of it outlives the block, nor this process: see `kit.ministack`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kit.certificate import write_certificate
from kit.ministack import ROOT, ministack_server
from kit.world import REGION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

# The environment of samconfig.toml that is deployed.
CONFIGURATION = "dev"
ENVIRONMENT = ROOT / ".venv-deploy"
SERVICES = "cloudformation,dynamodb,events,iam,lambda,logs,monitoring,s3,scheduler,sqs,sts"


@dataclass
class Cloud:
    """A ministack, and what may be deployed to it.

    Args:
        endpoint: Where it answers.
        certificate: What its clients are to trust.
        home: An empty home: the SAM CLI writes there, and finds nobody's credentials.
        seconds: How long what was done took, by its name.
    """

    endpoint: str
    certificate: Path
    home: Path
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """What finds it, and is root there, in an environment."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_CA_BUNDLE": str(self.certificate),
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def build(self) -> None:
        """Build the artefact for the Python that the functions run under here, as `make build` does."""
        # A make that runs this one has passed its own options on; they are not meant for another.
        ours = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        self._run("sam build", ["make", "build", f"LAMBDA_PYTHON={python_version()}"], ours)

    def deploy(self, **parameters: str) -> str:
        """Deploy what was built, with samconfig.toml's parameters and these; return the stack's name."""
        configured = tomllib.loads((ROOT / "samconfig.toml").read_text())[CONFIGURATION]["deploy"]["parameters"]
        # On the command line they replace those of the file.
        given = dict(pair.split("=", 1) for pair in configured["parameter_overrides"])
        given |= {"Runtime": f"python{python_version()}", "EndpointUrl": self.endpoint} | parameters
        pairs = [f"{name}={value}" for name, value in given.items()]
        name = "sam deploy" if "sam deploy" not in self.seconds else "sam deploy again"
        sam = str(ROOT / ".venv-sam" / "bin" / "sam")
        command = [sam, "deploy", "--config-env", CONFIGURATION, "--no-progressbar", "--parameter-overrides", *pairs]
        bare = {"PATH": os.environ["PATH"], "HOME": str(self.home), "SAM_CLI_TELEMETRY": "0"}
        self._run(name, command, bare | self.variables)
        return str(configured["stack_name"])

    def _run(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        began = time.monotonic()
        with (
            tempfile.TemporaryFile() as output,
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            ) as process,
        ):
            try:
                code = process.wait()
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
            output.seek(0)
            assert code == 0, f"{name} ended with {code}:\n{output.read().decode(errors='replace')}"
        self.seconds[name] = time.monotonic() - began


def end_as_ctrl_c_does() -> None:
    """Let SIGTERM and SIGHUP raise what Ctrl-C does, so that every block ends what it started."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def python_version() -> str:
    """Return the version of the Python that ministack runs, and so the functions."""
    stamps = list(ENVIRONMENT.glob(".ready-*"))
    if len(stamps) != 1:
        message = "the deployment needs ministack under the function's Python: run `make deploy-local`"
        raise FileNotFoundError(message)
    return stamps[0].name.removeprefix(".ready-")


@contextmanager
def serving_cloud() -> Iterator[Cloud]:
    """Serve a ministack that enforces IAM."""
    version = python_version()
    with tempfile.TemporaryDirectory(prefix="onceq-deploy-") as name:
        folder = Path(name)
        certificate, key = write_certificate(folder)
        for part in ("home", "tmp"):
            (folder / part).mkdir()
        variables = {
            "SERVICES": SERVICES,
            "AUTH": "true",
            "USE_SSL": "1",
            "MINISTACK_SSL_CERT": str(certificate),
            "MINISTACK_SSL_KEY": str(key),
            # The functions inherit these three; Powertools takes the first for its own.
            "LOG_LEVEL": "INFO",
            "AWS_CA_BUNDLE": str(certificate),
            "HOME": str(folder / "home"),
            # It unpacks the functions there, and leaves them behind.
            "TMPDIR": str(folder / "tmp"),
        }
        python = ENVIRONMENT / "bin" / f"python{version}"
        with ministack_server(python, variables) as endpoint:
            yield Cloud(endpoint, certificate, folder / "home")
