"""A local session: locked moto, the template's resources, and processes that consume and relay."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.clock import SystemClock
from onceq.errors import ConfigurationError
from onceq.local import AWS_VARIABLES, MotoServer, child_environment, replaced_environment
from onceq.resources import Resources, create_resources
from onceq.settings import PREFIX, Settings, require
from onceq.mappings import function_of, scheduled, sources_of
from onceq.statefile import PLACES, STATE_FILE, running_state, state_file
from onceq.supervisor import Child, Supervisor
from onceq.template import function_environment, load_template
from onceq.worker import EVERY_SECONDS, GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onceq.intrinsics import Template
    from onceq.mappings import Source

# The shell's own values of these would send a local run somewhere else.
_FOREIGN = ("AWS_", *PLACES)


def shell_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what may override the template from the shell: nothing that leads to AWS or to other queues.

    Raises:
        ConfigurationError: If a variable with our prefix is unknown; the template would not pass it, in silence.
    """
    # An empty value is not read, so this looks at the names alone.
    Settings.from_env(dict.fromkeys(environ, ""))
    return {name: value for name, value in environ.items() if not name.startswith(_FOREIGN)}


def endpoint_parameters(template: Template, parameters: Mapping[str, object], endpoint: str) -> dict[str, object]:
    """Return the parameters with the emulator's endpoint, where the template has one for it."""
    declared = "EndpointUrl" in (template.get("Parameters") or {})
    return dict(parameters) | ({"EndpointUrl": endpoint} if declared else {})


@dataclass(frozen=True, slots=True)
class Session:
    """What `onceq dev` runs.

    Args:
        endpoint: Where moto answers.
        resources: The template's queues and tables there.
        children: The workers, and the relay where the template has one.
        consumed: Which function consumes which queue, with its settings.
        schedules: What runs by a schedule on AWS, and the words that do it by hand.
        say: Told what a person should know.
        grace: Seconds that jobs under way may take at the end.
        relay_every: Seconds from one run of the relay to the next.
    """

    endpoint: str
    resources: Resources
    children: list[Child]
    consumed: list[tuple[Source, Settings]]
    schedules: list[tuple[str, str]]
    say: Callable[[str], object]
    grace: float = GRACE_SECONDS
    relay_every: float = EVERY_SECONDS

    def run(self) -> None:
        """Keep the processes running until Ctrl-C or SIGTERM, then stop them."""
        Supervisor(self.children, self.say, self.grace).run()

    def banner(self, version: str) -> str:
        """Return what a person needs to know at the start."""
        python, here = Path(sys.executable), Path.cwd()
        shown = f"{python.relative_to(here) if python.is_relative_to(here) else 'python'} -m onceq"
        names = {kind: ", ".join(child.name for child in self.children if child.kind == kind) for kind in KINDS}
        rows = [("endpoint", f"{self.endpoint}  (locked moto; all of it is gone when this ends)")]
        rows += [(f"queue {name}", url) for name, url in self.resources.queues.items()]
        rows += [("workers", names[WORKER])]
        rows += [("relay", f"{names[RELAY]}  (every {self.relay_every:g} s)")] if names[RELAY] else []
        rows += [("environment", f"{STATE_FILE}  (endpoint and variables, for other tools)")]
        lines = [f"onceq {version}", *_columns(rows), "", "From another terminal in this folder:"]
        lines += [f"  {shown} enqueue JOB_TYPE --payload '{{...}}' --key KEY", f"  {shown} show JOB_TYPE KEY"]
        lines += [f"  {shown} records", *([f"  {shown} outbox"] if names[RELAY] else []), f"  {shown} dlq", ""]
        if self.schedules:
            lines += ["Schedules do not run here. By hand:"]
            lines += _columns([(name, f"{shown} {words}" if words else "-") for name, words in self.schedules])
            lines += [""]
        lines += ["Restart after changing code. Ctrl-C stops.", ""]
        return "\n".join(lines)


WORKER, RELAY = KINDS = ("worker", "relay")


@contextmanager
def session(
    template_path: Path,
    *,
    app: str,
    workers: int,
    say: Callable[[str], object],
    parameters: Mapping[str, object] | None = None,
    env_json: Mapping[str, Any] | None = None,
    options: tuple[str, ...] = (),
    grace: float = GRACE_SECONDS,
    relay_every: float = EVERY_SECONDS,
) -> Iterator[Session]:
    """Make everything that a local session needs; nothing consumes yet.

    Args:
        template_path: The template.
        app: ``module:name`` of the application.
        workers: Worker processes for each queue.
        say: Told what a person should know.
        parameters: Instead of the template's parameters' defaults.
        env_json: What stands in SAM's ``env.json``.
        options: Passed on to ``onceq work`` and ``onceq relay``.
        grace: Seconds that jobs under way may take at the end.
        relay_every: Seconds from one run of the relay to the next.

    Yields:
        The session; ``.onceq/dev.json`` tells other commands about it meanwhile.

    Raises:
        ConfigurationError: If the template, ``env.json`` and the settings do not fit.
    """
    other = running_state()
    if other is not None:
        message = f"a session runs in this folder already (pid {other['pid']}, {STATE_FILE}): stop it first"
        raise ConfigurationError(message)
    template = load_template(template_path)
    shell = shell_environment(os.environ)
    with ExitStack() as stack:
        server = stack.enter_context(MotoServer())
        local = AWS_VARIABLES | {"AWS_ENDPOINT_URL": server.endpoint}
        stack.enter_context(replaced_environment(_base(shell) | local))
        resources = create_resources(
            template, parameters=endpoint_parameters(template, parameters or {}, server.endpoint)
        )

        def environment_of(function: str) -> dict[str, str]:
            return function_environment(template, resources, function=function, env_json=env_json, shell=shell) | local

        def child(name: str, kind: str, words: list[str], environment: Mapping[str, str], after: str = "") -> Child:
            command = [sys.executable, "-m", "onceq", *words, "--app", app, "--template", str(template_path)]
            command += ["--grace", f"{grace:g}", "--follow-stdin", *options, "--name", name]
            return Child(name, kind, command, child_environment({**_base(shell), **environment}), after)

        children: list[Child] = []
        consumed: list[tuple[Source, Settings]] = []
        for source in sources_of(template, resources):
            environment = environment_of(source.function)
            settings = Settings.from_env(environment)
            consumed.append((source, settings))
            queue = settings.queue_of(source.arn)
            if queue is None:
                message = f"{source.function} consumes {source.arn}, which its ONCEQ_QUEUES does not have"
                raise ConfigurationError(message)
            words = ["work", "--queue", queue.name, "--batch-size", str(source.batch_size)]
            after = _after(resources, source.arn)
            for _ in range(workers):
                children.append(child(f"w{len(children) + 1}", WORKER, words, environment, after))
        environments = {
            handler: environment_of(function)
            for handler in ("relay", "recovery")
            if (function := function_of(template, handler)) is not None
        }
        if "relay" in environments:
            named = Settings.from_env(environments["relay"]).outbox_table != ""
            require(named, f"{function_of(template, 'relay')} has no ONCEQ_OUTBOX_TABLE, so it has nothing to send")
            children.append(child("r1", RELAY, ["relay", "--every", f"{relay_every:g}"], environments["relay"]))
        first = environment_of(consumed[0][0].function)
        state = {"pid": os.getpid(), "endpoint": server.endpoint, "environment": first, "environments": environments}
        stack.enter_context(state_file(state))
        schedules = scheduled(template, resources, SystemClock().now_ms())
        yield Session(server.endpoint, resources, children, consumed, schedules, say, grace, relay_every)


def _after(resources: Resources, arn: str) -> str:
    seconds, parameter = resources.visibility(arn)
    if seconds is None:
        return ""
    shorter = f" (shorter: make dev ARGS='--parameter {parameter}=…')" if parameter else ""
    return f"its messages come back within {seconds} s{shorter}"


def _base(shell: Mapping[str, str]) -> dict[str, str]:
    # As in Lambda: a setting that the template does not declare is not there.
    return {name: value for name, value in shell.items() if not name.startswith(PREFIX)}


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name:<{width}}  {value}" for name, value in rows]
