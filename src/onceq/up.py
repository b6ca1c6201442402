"""Local services without workers, and the words by which ``sam local invoke`` runs a function against them.

SAM resolves a reference to a resource without one being there: a queue's URL becomes its logical id, its ARN that of a
Lambda function (SAM CLI 1.170, ``samcli/lib/intrinsic_resolver``). So a file gives it every variable. Addresses on this
machine are parameters instead: a container is on a bridge, where this machine has another name. That is so with
``--docker-network host`` too, which SAM passes over (``samcli/local/docker/container.py``).
"""

from __future__ import annotations

import json
import os
import shlex
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.dev import columns, services, shown_command
from onceq.errors import ConfigurationError
from onceq.local import AWS_VARIABLES, HOST, REGION
from onceq.resources import LOCAL_HOSTS
from onceq.statefile import STATE_FILE, state_file
from onceq.template import declared_environment, functions_of, parameter_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onceq.dev import Services
    from onceq.intrinsics import Template

SAM_FILE = STATE_FILE.with_name("sam.json")
# What Docker Desktop calls the host inside a container
# (https://docs.docker.com/desktop/features/networking/networking-how-tos/).
BRIDGE_HOST = "host.docker.internal"
EVENT = Path("events") / "one-payment.json"
SAM = Path(".venv-sam") / "bin" / "sam"
ENDPOINT = "AWS_ENDPOINT_URL"
# SAM asks STS who the shell's credentials are, and takes them into the container; its region too, by which moto keeps
# tables apart.
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass(frozen=True, slots=True)
class Wiring:
    """What SAM is told about the template's functions.

    Args:
        endpoint: Where the local services answer.
        variables: What stands in the file of ``--env-vars``: variables by function.
        parameters: What ``--parameter-overrides`` says.
    """

    endpoint: str
    variables: dict[str, dict[str, str]]
    parameters: dict[str, str]

    def command(self, function: str, event: str, *, bridge: str = "") -> list[list[str]]:
        """Return the words that invoke a function, as lines of a shell.

        Args:
            function: Its logical id.
            event: The event's file.
            bridge: This machine's address on the containers' bridge, where they do not know its name.
        """
        overrides = [f"{name}={_quoted(_seen_from_bridge(value))}" for name, value in self.parameters.items()]
        shell = {name: AWS_VARIABLES[name] for name in CREDENTIALS} | {"AWS_ENDPOINT_URL_STS": self.endpoint}
        return [
            *([f"{name}={value}"] for name, value in shell.items()),
            [_sam(), "local", "invoke", function],
            ["-e", event, "--region", REGION],
            [*(["--add-host", f"{BRIDGE_HOST}:{bridge}"] if bridge else []), "--env-vars", str(SAM_FILE)],
            *([each] for each in (["--parameter-overrides", *overrides] if overrides else [])),
        ]

    def forwards(self, bridge: str) -> list[list[str]]:
        """Return the words that let a container on the bridge reach what listens on 127.0.0.1 alone."""
        found = (value.rpartition(":")[2].rstrip("/") for value in self.parameters.values() if _is_local(value))
        return [
            ["socat", f"TCP-LISTEN:{port},bind={bridge},fork,reuseaddr", f"TCP:{HOST}:{port}"]
            for port in dict.fromkeys(found)
        ]


def wiring_of(
    endpoint: str, template: Template, environment_of: Callable[[str], Mapping[str, str]], given: Mapping[str, object]
) -> Wiring:
    """Return what SAM must be told, so that a function gets the environment that it has in a local session.

    Args:
        endpoint: Where the local services answer.
        template: The template.
        environment_of: Returns a function's environment in the session.
        given: The session's parameters: SAM reads the function's time-out, memory and runtime by them.

    Raises:
        ConfigurationError: If the template does not let SAM lead a function to the local services: it would call AWS.
    """
    variables: dict[str, dict[str, str]] = {}
    parameters = {name: str(value) for name, value in given.items()}
    for function in functions_of(template):
        declared = declared_environment(template, function)
        if ENDPOINT not in declared:
            message = (
                f"{function} does not declare {ENDPOINT}, and SAM passes on only what is declared, so it would call "
                f"AWS: give it {ENDPOINT}: !Ref EndpointUrl, a parameter that is empty by default"
            )
            raise ConfigurationError(message)
        environment, variables[function] = environment_of(function), {}
        for name, value in declared.items():
            parameter = parameter_of(template, value)
            if parameter and _is_local(environment[name]):
                parameters[parameter] = environment[name]
            else:
                variables[function][name] = environment[name]
    return Wiring(endpoint, variables, parameters)


@dataclass(frozen=True, slots=True)
class LocalServices:
    """What `onceq up` keeps there.

    Args:
        services: The local services.
        wiring: What SAM is told.
        function: The function that the printed words invoke.
        bridge: This machine's address on the bridge of Linux' containers.
    """

    services: Services
    wiring: Wiring
    function: str
    bridge: str

    def banner(self, version: str) -> str:
        """Return what a person needs to know at the start: above all, what to type."""
        shown = shown_command()
        event = str(EVENT) if EVENT.exists() else "EVENT.json"
        rows = [*self.services.places(), ("variables", f"{SAM_FILE}  (for SAM)")]
        rows += [("environment", f"{STATE_FILE}  (for other tools)")]
        lines = [f"onceq {version}", *columns(rows), ""]
        lines += ["Nothing consumes here. From another terminal in this folder:", ""]
        lines += ["1. Build, and again after changing code:", "", f"  {build_words()}", ""]
        lines += ["2. Invoke a function. With Docker Desktop:", ""]
        lines += [*_shell_lines(self.wiring.command(self.function, event)), ""]
        lines += [f"   On Linux, where {self.bridge} is this machine on the containers' bridge"]
        lines += ["   (--bridge says otherwise):", ""]
        lines += [f"  {shlex.join(words)} &" for words in self.wiring.forwards(self.bridge)]
        lines += [*_shell_lines(self.wiring.command(self.function, event, bridge=self.bridge)), ""]
        lines += ["3. See what became of it, since sam ends with 0 even if the function failed:", ""]
        lines += [f"  {shown} {words}" for words in ("records", "show JOB_TYPE KEY", "outbox", "dlq")]
        return "\n".join([*lines, "", "Ctrl-C stops.", ""])


@contextmanager
def local_services(
    template_path: Path,
    *,
    bridge: str,
    parameters: Mapping[str, object] | None = None,
    env_json: Mapping[str, Any] | None = None,
) -> Iterator[LocalServices]:
    """Start what ``sam local invoke`` needs, and write down what SAM is told.

    Args:
        template_path: The template.
        bridge: This machine's address on the bridge of Linux' containers, for the printed words alone.
        parameters: Instead of the template's parameters' defaults.
        env_json: What stands in SAM's ``env.json``.

    Yields:
        The services; ``.onceq/dev.json`` and ``.onceq/sam.json`` tell of them meanwhile.

    Raises:
        ConfigurationError: If the template, ``env.json`` and the settings do not fit.
    """
    with services(template_path, parameters=parameters, env_json=env_json) as running:
        made = {name: one for name, one in running.template["Resources"].items() if running.resources.exists(name)}
        template = {**running.template, "Resources": made}
        wiring = wiring_of(running.endpoint, template, running.environment_of, parameters or {})
        with state_file(running.state()), _sam_file(wiring.variables):
            yield LocalServices(running, wiring, running.consumed[0][0].function, bridge)


def end_by_signal() -> None:
    """Let SIGTERM and the terminal's end do what Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def wait_for_signal() -> None:
    """Wait until Ctrl-C."""
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        return


@contextmanager
def _sam_file(variables: Mapping[str, object]) -> Iterator[None]:
    """Let SAM read the variables while the block runs. Secrets of env.json stand there too; the folder is private."""
    SAM_FILE.unlink(missing_ok=True)
    with os.fdopen(os.open(SAM_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(variables, indent=2) + "\n")
    try:
        yield
    finally:
        SAM_FILE.unlink(missing_ok=True)


def build_words() -> str:
    """Return how the functions are built in this folder."""
    return "make build" if "\nbuild:" in _makefile() else f"{_sam()} build"


def _sam() -> str:
    # `make build` makes it, so it need not be there yet.
    return str(SAM) if SAM.exists() or str(SAM) in _makefile() else "sam"


def _makefile() -> str:
    path = Path("Makefile")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _shell_lines(command: list[list[str]]) -> list[str]:
    return " \\\n".join(f"  {shlex.join(words)}" for words in command).splitlines()


def _is_local(value: str) -> bool:
    return value.startswith(LOCAL_HOSTS)


def _seen_from_bridge(value: str) -> str:
    for prefix in LOCAL_HOSTS:
        if value.startswith(prefix):
            return f"http://{BRIDGE_HOST}:{value.removeprefix(prefix)}"
    return value


def _quoted(value: str) -> str:
    # SAM joins the words with blanks before it reads them.
    return f'"{value}"' if " " in value else value
