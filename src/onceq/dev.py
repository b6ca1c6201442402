"""A local session: locked moto, the template's resources, and processes that consume and relay."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.clock import SystemClock
from onceq.errors import ConfigurationError
from onceq.local import AWS_VARIABLES, MotoServer, child_environment, replaced_environment
from onceq.mappings import function_of, scheduled, sources_of
from onceq.resources import Resources, create_resources
from onceq.settings import PREFIX, QueueSettings, Settings, require
from onceq.statefile import PLACES, STATE_FILE, running_state, state_file
from onceq.supervisor import Child, Supervisor
from onceq.template import function_environment, load_template
from onceq.worker import EVERY_SECONDS, GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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
class Services:
    """Locked moto with the template's resources, and what each function's environment is there.

    Args:
        endpoint: Where moto answers.
        template: The template.
        resources: Its queues and tables there.
        shell: What of the shell's environment may reach a function.
        local: What leads a function there.
        env_json: What stands in SAM's ``env.json``.
        consumed: Which function consumes which queue, with its settings.
    """

    endpoint: str
    template: Template
    resources: Resources
    shell: Mapping[str, str]
    local: Mapping[str, str]
    env_json: Mapping[str, Any] | None
    consumed: list[tuple[Source, Settings]] = field(default_factory=list)

    def environment_of(self, function: str) -> dict[str, str]:
        """Return a function's environment."""
        template, resources = self.template, self.resources
        declared = function_environment(
            template, resources, function=function, env_json=self.env_json, shell=self.shell
        )
        return {**declared, **self.local}

    def environments(self) -> dict[str, dict[str, str]]:
        """Return the environments of the relay and of recovery, where the template has them."""
        found = {handler: function_of(self.template, handler) for handler in ("relay", "recovery")}
        return {handler: self.environment_of(function) for handler, function in found.items() if function is not None}

    def state(self) -> dict[str, Any]:
        """Return what other commands are told: a person reaches the queues of all functions."""
        first = self.environment_of(self.consumed[0][0].function)
        environments = self.environments()
        senders = [Settings.from_env(environment) for environment in environments.values()]
        return {
            "pid": os.getpid(),
            "endpoint": self.endpoint,
            "environment": {**first, "ONCEQ_QUEUES": json.dumps(merged_queues(self.consumed, senders))},
            "environments": environments,
        }

    def places(self) -> list[tuple[str, str]]:
        """Return what there is and where, as rows of a name and a value."""
        resources = self.resources
        rows = [("endpoint", f"{self.endpoint}  (locked moto; gone at the end)")]
        rows += [(f"queue {name}", url) for name, url in resources.queues.items()]
        named = (("tables", resources.tables), ("buckets", resources.buckets))
        return rows + [(kind, ", ".join(names)) for kind, names in named if names]


def merged_queues(consumed: Iterable[tuple[Source, Settings]], others: Iterable[Settings]) -> dict[str, dict[str, str]]:
    """Return the queues of several functions as ONCEQ_QUEUES holds them, each as its own consumer names it.

    Args:
        consumed: Which function consumes which queue; one whose name is taken has its function's in front.
        others: Settings of functions that only send.
    """
    consumed, merged = list(consumed), dict[str, QueueSettings]()
    for source, settings in consumed:
        queue = settings.queue_of(source.arn)
        if queue is not None and queue.url not in _urls(merged):
            merged[f"{source.function}.{queue.name}" if queue.name in merged else queue.name] = queue
    for settings in (*(settings for _, settings in consumed), *others):
        for name, queue in settings.queues.items():
            if name not in merged and queue.url not in _urls(merged):
                merged[name] = queue
    fields = ("url", "arn", "dlq_url")
    return {
        name: {field: value for field in fields if (value := getattr(queue, field))} for name, queue in merged.items()
    }


def _urls(queues: Mapping[str, QueueSettings]) -> set[str]:
    return {queue.url for queue in queues.values()}


@contextmanager
def services(
    template_path: Path, *, parameters: Mapping[str, object] | None = None, env_json: Mapping[str, Any] | None = None
) -> Iterator[Services]:
    """Start locked moto and create the template's resources there, for this process's clients too.

    Args:
        template_path: The template.
        parameters: Instead of the template's parameters' defaults.
        env_json: What stands in SAM's ``env.json``.

    Raises:
        ConfigurationError: If a session runs in this folder, or template, ``env.json`` and settings do not fit.
    """
    other = running_state()
    if other is not None:
        message = f"a session runs in this folder already (pid {other['pid']}, {STATE_FILE}): stop it first"
        raise ConfigurationError(message)
    template = load_template(template_path)
    shell = shell_environment(os.environ)
    with MotoServer() as server:
        local = AWS_VARIABLES | {"AWS_ENDPOINT_URL": server.endpoint}
        with replaced_environment(_base(shell) | local):
            given = endpoint_parameters(template, parameters or {}, server.endpoint)
            resources = create_resources(template, parameters=given)
            running = Services(server.endpoint, template, resources, shell, local, env_json)
            for source in sources_of(template, resources):
                settings = Settings.from_env(running.environment_of(source.function))
                if settings.queue_of(source.arn) is None:
                    message = f"{source.function} consumes {source.arn}, which its ONCEQ_QUEUES does not have"
                    raise ConfigurationError(message)
                running.consumed.append((source, settings))
            yield running


@dataclass(frozen=True, slots=True)
class Session:
    """What `onceq dev` runs.

    Args:
        places: What there is and where, for people.
        children: The workers, and the relay where the template has one.
        workers: Names of the workers by what they serve.
        consumed: Which function consumes which queue, with its settings.
        schedules: What runs by a schedule on AWS, and the words that do it by hand.
        say: Told what a person should know.
        grace: Seconds that jobs under way may take at the end.
        relay_every: Seconds from one run of the relay to the next.
    """

    places: list[tuple[str, str]]
    children: list[Child]
    workers: dict[str, list[str]]
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
        shown = shown_command()
        relay = ", ".join(child.name for child in self.children if child.kind == RELAY)
        rows = [*self.places, *(("workers", f"{', '.join(names)}  ({what})") for what, names in self.workers.items())]
        rows += [("relay", f"{relay}  (every {self.relay_every:g} s)")] if relay else []
        rows += [("environment", f"{STATE_FILE}  (for other tools)")]
        lines = [f"onceq {version}", *columns(rows), "", "From another terminal in this folder:"]
        lines += [f"  {shown} enqueue JOB_TYPE --payload '{{...}}' --key KEY", f"  {shown} show JOB_TYPE KEY"]
        lines += [f"  {shown} records", *([f"  {shown} outbox"] if relay else []), f"  {shown} dlq", ""]
        if self.schedules:
            lines += ["Schedules do not run here. By hand:"]
            lines += columns([(name, f"{shown} {words}" if words else "-") for name, words in self.schedules])
            lines += [""]
        lines += ["Restart after changing code. Ctrl-C stops.", ""]
        return "\n".join(lines)


WORKER, RELAY = "worker", "relay"


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
    with services(template_path, parameters=parameters, env_json=env_json) as running:
        base, children, workers_of = _base(running.shell), list[Child](), dict[str, list[str]]()
        logical_ids = {url: logical_id for logical_id, url in running.resources.queues.items()}

        def child(name: str, kind: str, words: list[str], environment: Mapping[str, str], after: str = "") -> Child:
            command = [sys.executable, "-m", "onceq", *words, "--app", app, "--template", str(template_path)]
            command += ["--grace", f"{grace:g}", "--follow-stdin", *options, "--name", name]
            return Child(name, kind, command, child_environment({**base, **environment}), after)

        for source, settings in running.consumed:
            queue = settings.queue_of(source.arn)
            assert queue is not None  # noqa: S101 - looked up when the services were started
            words = ["work", "--queue", queue.name, "--batch-size", str(source.batch_size)]
            environment, after = running.environment_of(source.function), _after(running.resources, source.arn)
            made = [child(f"w{len(children) + n}", WORKER, words, environment, after) for n in range(1, workers + 1)]
            children += made
            workers_of[f"queue {queue.name}: {logical_ids[queue.url]}"] = [one.name for one in made]
        state = running.state()
        relay = state["environments"].get("relay")
        if relay is not None:
            named = Settings.from_env(relay).outbox_table != ""
            function = function_of(running.template, "relay")
            require(named, f"{function} has no ONCEQ_OUTBOX_TABLE, so it has nothing to send")
            children.append(child("r1", RELAY, ["relay", "--every", f"{relay_every:g}"], relay))
        schedules = scheduled(running.template, running.resources, SystemClock().now_ms())
        with state_file(state):
            yield Session(running.places(), children, workers_of, running.consumed, schedules, say, grace, relay_every)


def _after(resources: Resources, arn: str) -> str:
    seconds, parameter = resources.visibility(arn)
    if seconds is None:
        return ""
    shorter = f" (shorter: make dev ARGS='--parameter {parameter}=…')" if parameter else ""
    return f"its messages come back within {seconds} s{shorter}"


def _base(shell: Mapping[str, str]) -> dict[str, str]:
    # As in Lambda: a setting that the template does not declare is not there.
    return {name: value for name, value in shell.items() if not name.startswith(PREFIX)}


def shown_command() -> str:
    """Return how a person calls this command line from this folder."""
    python, here = Path(sys.executable), Path.cwd()
    return f"{python.relative_to(here) if python.is_relative_to(here) else 'python'} -m onceq"


def columns(rows: list[tuple[str, str]]) -> list[str]:
    """Return rows of a name and a value as lines."""
    width = max(len(name) for name, _ in rows)
    return [f"  {name:<{width}}  {value}" for name, value in rows]
