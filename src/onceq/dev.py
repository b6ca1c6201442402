"""A local session: locked moto, the template's resources, and worker processes that are restarted when they die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.clock import SystemClock
from onceq.errors import ConfigurationError
from onceq.local import AWS_VARIABLES, MotoServer, child_environment, replaced_environment
from onceq.resources import Resources, create_resources
from onceq.settings import PREFIX, Settings
from onceq.template import FUNCTION_TYPES, function_environment, load_template, parameter_of
from onceq.worker import CUT_OFF, GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from onceq.job_type import JobType
    from onceq.template import Template

STATE_FILE = Path(".onceq") / "dev.json"
# A worker that dies within this of its start, for example of a mistake in a job's module, is restarted this much later,
# and twice as late every time.
RESTART_SECONDS = 2.0
LONGEST_RESTART_SECONDS = 30.0
LOOK_SECONDS = 0.1
DEFAULT_BATCH_SIZE = 10
DEFAULT_TIMEOUT = 3
# The shell's own values of these would send a local run somewhere else.
_FOREIGN = ("AWS_", "ONCEQ_QUEUES", "ONCEQ_CLAIMS_TABLE")


@dataclass(frozen=True, slots=True)
class Source:
    """One event source mapping of the template.

    Args:
        function: Logical id of the function.
        arn: ARN of the queue.
        batch_size: Messages in one event at most.
        timeout: Seconds that an invocation may take.
        timeout_name: What sets them: a parameter of the template, or the function's Timeout.
    """

    function: str
    arn: str
    batch_size: int
    timeout: float
    timeout_name: str


def sources_of(template: Template, resources: Resources) -> list[Source]:
    """Return which function consumes which queue, by the template's SQS events.

    Raises:
        ConfigurationError: If none does.
    """
    sources = []
    shared = (template.get("Globals") or {}).get("Function") or {}
    for function, resource in template["Resources"].items():
        if not isinstance(resource, dict) or resource.get("Type") not in FUNCTION_TYPES:
            continue
        own = resource.get("Properties") or {}
        timeout = own.get("Timeout", shared.get("Timeout", DEFAULT_TIMEOUT))
        for name, event in (own.get("Events") or {}).items():
            if event.get("Type") == "SQS":
                path = f"Resources.{function}.Properties.Events.{name}.Properties"
                properties = resources.resolver.resolve(event.get("Properties") or {}, path)
                batch_size = int(properties.get("BatchSize", DEFAULT_BATCH_SIZE))
                seconds = float(resources.resolver.resolve(timeout, f"Resources.{function}.Properties.Timeout"))
                limit = parameter_of(template, timeout) or f"{function}'s Timeout"
                sources.append(Source(function, str(properties.get("Queue", "")), batch_size, seconds, limit))
    if not sources:
        message = "no function of the template has an event of type SQS, so there is nothing to consume"
        raise ConfigurationError(message)
    return sources


def unfitting(job_types: Iterable[JobType[..., Any]], source: Source, settings: Settings) -> list[str]:
    """Return a warning for each job type that could never start on Lambda, where an invocation ends.

    Args:
        job_types: The application's.
        source: Which function consumes which queue.
        settings: What the function's environment says.
    """
    queue = settings.queue_of(source.arn)
    return [
        f"{job_type.name}: max_duration={job_type.max_duration:g} and Reserve {settings.reserve:g} do not fit into "
        f"{source.timeout_name} {source.timeout:g}: lower max_duration or raise {source.timeout_name}; "
        "on Lambda its messages would be kept"
        for job_type in job_types
        if queue is not None and job_type.queue == queue.name and job_type.max_duration is not None
        # Equal does not fit either: a few ms are gone when the function begins.
        if job_type.max_duration + settings.reserve >= source.timeout
    ]


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


@dataclass
class Worker:
    """One worker process and how to start it again; ``after`` says when what it had received comes back."""

    name: str
    command: list[str]
    environment: dict[str, str]
    after: str = ""
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restart_at: float | None = None
    quick_deaths: int = 0

    def start(self, now: float) -> None:
        """Start it, with a session of its own, so that Ctrl-C reaches it through us, and a pipe that ends with us."""
        self.process = subprocess.Popen(  # noqa: S603 - our own module, with our own options
            self.command, env=self.environment, stdin=subprocess.PIPE, start_new_session=True
        )
        self.started, self.restart_at = now, None


@dataclass
class Session:
    """What `onceq dev` runs."""

    endpoint: str
    resources: Resources
    environment: dict[str, str]
    workers: list[Worker]
    consumed: list[tuple[Source, Settings]]
    say: Callable[[str], object]
    grace: float = GRACE_SECONDS
    _clock: SystemClock = field(default_factory=SystemClock)

    def run(self) -> None:
        """Keep the workers running until Ctrl-C or SIGTERM, then stop them."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for worker in self.workers:
                worker.start(self._clock.monotonic())
            while True:
                self._look_after()
                self._clock.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            self.say("stopping: jobs under way may finish (Ctrl-C again to kill them)")
        try:
            self._stop()
        except KeyboardInterrupt:
            self.say("killed: jobs under way were cut off; this session's queues and claims are gone with it")
        finally:
            for worker in self.workers:
                if worker.process is not None and worker.process.poll() is None:
                    worker.process.kill()
                    worker.process.wait()

    def banner(self, version: str) -> str:
        """Return what a person needs to know at the start."""
        python, here = Path(sys.executable), Path.cwd()
        shown = f"{python.relative_to(here) if python.is_relative_to(here) else 'python'} -m onceq"
        rows = [("endpoint", f"{self.endpoint}  (locked moto; all of it is gone when this ends)")]
        rows += [(f"queue {name}", url) for name, url in self.resources.queues.items()]
        rows += [("workers", ", ".join(worker.name for worker in self.workers))]
        rows += [("environment", f"{STATE_FILE}  (endpoint and variables, for other tools)")]
        width = max(len(name) for name, _ in rows)
        lines = [f"onceq {version}", *(f"  {name:<{width}}  {value}" for name, value in rows)]
        lines += ["", "From another terminal in this folder:"]
        lines += [f"  {shown} enqueue JOB_TYPE --payload '{{...}}' --key KEY", f"  {shown} show JOB_TYPE KEY"]
        lines += [f"  {shown} records", f"  {shown} dlq", "", "Restart after changing code. Ctrl-C stops.", ""]
        return "\n".join(lines)

    def _look_after(self) -> None:
        now = self._clock.monotonic()
        for worker in self.workers:
            if worker.restart_at is not None:
                if now >= worker.restart_at:
                    worker.start(now)
                continue
            code = worker.process.poll() if worker.process else None
            if code is not None:
                worker.quick_deaths = worker.quick_deaths + 1 if now - worker.started < RESTART_SECONDS else 0
                pause = min(LONGEST_RESTART_SECONDS, RESTART_SECONDS * 2 ** (worker.quick_deaths - 1))
                pause = pause if worker.quick_deaths else 0.0
                worker.restart_at = now + pause
                again = f"it is restarted{f' in {pause:g} s' if pause else ''}"
                self.say("; ".join(filter(None, (f"worker {worker.name} {_ended(code)}", again, worker.after))))

    def _stop(self) -> None:
        running = [worker.process for worker in self.workers if worker.process and worker.process.poll() is None]
        for process in running:
            process.terminate()
        end = self._clock.monotonic() + self.grace + RESTART_SECONDS
        while any(process.poll() is None for process in running) and self._clock.monotonic() < end:
            self._clock.sleep(LOOK_SECONDS)
        cut_off = sum(process.poll() == CUT_OFF for process in running)
        if cut_off:
            self.say(f"{cut_off} worker(s) still had jobs running, which were cut off")


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
) -> Iterator[Session]:
    """Make everything that a local session needs; nothing consumes yet.

    Args:
        template_path: The template.
        app: ``module:name`` of the application.
        workers: Worker processes for each queue.
        say: Told what a person should know.
        parameters: Instead of the template's parameters' defaults.
        env_json: What stands in SAM's ``env.json``.
        options: Passed on to ``onceq work``.
        grace: Seconds that jobs under way may take at the end.

    Yields:
        The session; ``.onceq/dev.json`` tells other commands about it meanwhile.

    Raises:
        ConfigurationError: If the template, ``env.json`` and the settings do not fit.
    """
    other = _running_state()
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
        started: list[Worker] = []
        environments: list[dict[str, str]] = []
        consumed: list[tuple[Source, Settings]] = []
        for source in sources_of(template, resources):
            function = function_environment(
                template, resources, function=source.function, env_json=env_json, shell=shell
            )
            environments.append(function | local)
            settings = Settings.from_env(function)
            consumed.append((source, settings))
            queue = settings.queue_of(source.arn)
            if queue is None:
                message = f"{source.function} consumes {source.arn}, which its ONCEQ_QUEUES does not have"
                raise ConfigurationError(message)
            command = [sys.executable, "-m", "onceq", "work", "--app", app, "--queue", queue.name]
            command += ["--template", str(template_path), "--batch-size", str(source.batch_size)]
            command += ["--grace", f"{grace:g}", "--follow-stdin", *options]
            for _ in range(workers):
                name = f"w{len(started) + 1}"
                environment = child_environment(_base(shell) | function | local)
                after = _after(resources, source.arn)
                started.append(Worker(name, [*command, "--name", name], environment, after))
        state = {"pid": os.getpid(), "endpoint": server.endpoint, "environment": environments[0]}
        stack.enter_context(_state_file(state))
        yield Session(server.endpoint, resources, environments[0], started, consumed, say, grace)


def running_session() -> dict[str, str] | None:
    """Return the environment of the session that runs in this folder, or ``None``."""
    state = _running_state()
    environment: dict[str, str] | None = state["environment"] if state else None
    return environment


def _running_state() -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads(STATE_FILE.read_text(encoding="utf-8"))
        os.kill(state["pid"], 0)
    except (OSError, ValueError, KeyError):
        return None
    return state


def _after(resources: Resources, arn: str) -> str:
    seconds, parameter = resources.visibility(arn)
    if seconds is None:
        return ""
    shorter = f" (shorter: make dev ARGS='--parameter {parameter}=…')" if parameter else ""
    return f"its messages come back within {seconds} s{shorter}"


def _base(shell: Mapping[str, str]) -> dict[str, str]:
    # As in Lambda: a setting that the template does not declare is not there.
    return {name: value for name, value in shell.items() if not name.startswith(PREFIX)}


@contextmanager
def _state_file(state: Mapping[str, Any]) -> Iterator[None]:
    # For this user alone: the variables of env.json stand in it, secrets too.
    STATE_FILE.parent.mkdir(exist_ok=True)
    STATE_FILE.parent.chmod(0o700)
    # The folder ignores itself, whatever the repository's own .gitignore says.
    (STATE_FILE.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    # One that was left behind would keep its own mode.
    STATE_FILE.unlink(missing_ok=True)
    with os.fdopen(os.open(STATE_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(state, indent=2) + "\n")
    try:
        yield
    finally:
        STATE_FILE.unlink(missing_ok=True)


def _ended(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
