"""What an environment stands on: locked moto, the template's resources, a machine whose wall clock stands still."""

from __future__ import annotations

import copy
import functools
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from onceq.client import make_client
from onceq.dev import merged_queues, shell_environment
from onceq.errors import ConfigurationError
from onceq.local import embedded_moto, replaced_environment
from onceq.mappings import function_of, sources_of
from onceq.resources import create_resources
from onceq.settings import PREFIX, Settings
from onceq.template import function_environment, load_template
from onceq.testing.calls import Call
from onceq.testing.clock import START_MS
from onceq.testing.contents import Place, answered
from onceq.testing.errors import Crash
from onceq.testing.plain import PLAIN
from onceq.testing.process import CURRENT
from onceq.testing.world import Environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from onceq.application import App
    from onceq.intrinsics import Template
    from onceq.resources import Resources
    from onceq.testing.mailbox import Mailbox

TEMPLATE = "template.yaml"
STALE = {"Code": "ReceiptHandleIsInvalid", "SenderFault": True, "Message": "it was received again, or is gone"}
# Marks what was guarded by an earlier environment; what wraps that with `functools.wraps` has the mark, too.
GUARDS = "onceq_guards_the_dead"
# moto, the clock and botocore are this process's, so there is one environment at a time. Here are the variables that
# the process had before it was opened.
_OPEN: list[dict[str, str]] = []


@contextmanager
def environment(
    app: App | None = None,
    *,
    template: str | Path | None = None,
    parameters: Mapping[str, object] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Environment]:
    """Open a world: locked moto in this process, with the template's tables, queues and buckets.

    The process has the consumer function's environment inside the block, so that jobs find their own tables.

    Args:
        app: The application.
        template: The template; without it the ``template.yaml`` of this folder or of one above, and where there is
            none, a queue, its dead-letter queue, the claims table and the outbox table.
        parameters: Instead of the template's parameters' defaults.
        variables: Environment variables, instead of the template's or beside them.

    Yields:
        The environment.

    Raises:
        ConfigurationError: If the template cannot be used, or an environment is open already.
    """
    if _OPEN:
        message = "an environment is open in this process already: use that one, for example with env=onceq_env"
        raise ConfigurationError(message)
    read = _template(template)
    given = {name: str(value) for name, value in (variables or {}).items()}
    shell = shell_environment({**_without(os.environ, PREFIX), **given})
    with ExitStack() as stack:
        _OPEN.append(dict(os.environ))
        stack.callback(_OPEN.pop)
        stack.enter_context(embedded_moto())
        resources = create_resources(read, parameters=parameters, embedded=True)
        sources = sources_of(read, resources)
        with _advised():
            environments = [_variables(read, resources, source.function, shell) for source in sources]
            named = [function_of(read, handler) for handler in ("relay", "recovery")]
            others = [_variables(read, resources, function, shell) for function in named if function is not None]
        consumed = [(source, Settings.from_env(each)) for source, each in zip(sources, environments, strict=True)]
        queues = merged_queues(consumed, [Settings.from_env(each) for each in others])
        # Of several consumers the first one's: its variables, its tables.
        values = {name: value for each in reversed(environments) for name, value in each.items()} | given
        values["ONCEQ_QUEUES"] = json.dumps(queues)
        # An empty one is read as an endpoint by what is no botocore.
        plain = {name: value for name, value in values.items() if name != "AWS_ENDPOINT_URL"}
        stack.enter_context(replaced_environment({**_without(os.environ, PREFIX), **plain}))
        machine = stack.enter_context(_standing_still())
        places = _places(resources.queues.values(), queues, {source.arn: source.timeout for source in sources})
        parts: dict[str, Any] = {"machine": machine, "variables": values, "switches": _switches(read, resources)}
        opened = Environment(Settings.from_env(values), places, app=app, **parts)
        _guard_what_outlives()
        stack.enter_context(_watched_botocore(opened))
        stack.enter_context(_inherited())
        # Before the patches end: a worker that stands somewhere dies now, and its job's ``finally`` still runs.
        stack.callback(opened.close)
        yield opened


def find_template(start: Path | None = None) -> Path | None:
    """Return the ``template.yaml`` of a folder, or of one above it."""
    here = (start or Path.cwd()).resolve()
    return next((folder / TEMPLATE for folder in (here, *here.parents) if (folder / TEMPLATE).is_file()), None)


def _template(given: str | Path | None) -> Template:
    path = find_template() if given is None else Path(given)
    if path is None:
        return copy.deepcopy(PLAIN)
    if not path.is_file():
        message = f"there is no template {path}: give another one, or none to use the nearest {TEMPLATE}"
        raise ConfigurationError(message)
    return copy.deepcopy(_loaded(path, path.stat().st_mtime_ns))


def hand_over(patcher: Any) -> None:
    """Let pytest's ``monkeypatch`` know what the variables were outside of the environment that is open.

    It may be undone later than the environment is closed, and would put the environment's own values back.
    """
    [before] = _OPEN
    inside = dict(os.environ)
    for name in {*before, *inside}:
        if before.get(name) == inside.get(name):
            continue
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]
        if name in inside:
            patcher.setenv(name, inside[name])
        else:
            patcher.delenv(name)


@functools.lru_cache(maxsize=4)
def _loaded(path: Path, _changed: int) -> Template:
    return load_template(path)


def _switches(read: Template, resources: Resources) -> list[str]:
    """Return the parameters of the template on which queues depend that are not there."""
    found: list[str] = []

    def follow(value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if name == "Ref" and inner in read.get("Parameters", {}):
                    found.append(inner)
                elif name == "Condition" and isinstance(inner, str):
                    follow(read.get("Conditions", {}).get(inner))
                else:
                    follow(inner)
        elif isinstance(value, list):
            for inner in value:
                follow(inner)

    for logical_id, resource in read["Resources"].items():
        if resource["Type"] == "AWS::SQS::Queue" and logical_id not in resources.queues:
            follow({"Condition": resource.get("Condition")})
    return list(dict.fromkeys(found))


def _variables(read: Template, resources: Resources, function: str, shell: Mapping[str, str]) -> dict[str, str]:
    return function_environment(read, resources, function=function, shell=shell)


@contextmanager
def _advised() -> Iterator[None]:
    """Say how a variable is given here, where the template's value cannot be known."""
    try:
        yield
    except ConfigurationError as error:
        told = str(error).replace("in env.json", "with variables= (in pytest: the fixture onceq_variables)")
        raise ConfigurationError(told) from error


def _without(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(prefix)}


def _places(urls: Iterable[str], queues: Mapping[str, Mapping[str, str]], timeouts: Mapping[str, float]) -> list[Place]:
    sqs = make_client("sqs", 1)
    found = {}
    for url in urls:
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        policy = json.loads(attributes.get("RedrivePolicy", "{}"))
        arn = attributes["QueueArn"]
        found[url] = Place(
            arn.split(":")[-1],
            url,
            arn,
            visibility=int(attributes["VisibilityTimeout"]),
            dlq_arn=policy.get("deadLetterTargetArn", ""),
            most_receives=int(policy.get("maxReceiveCount", 0)),
            timeout=timeouts.get(arn),
            dedupes_by_group=attributes.get("DeduplicationScope") == "messageGroup",
        )
    for alias, queue in queues.items():
        place, dlq = found.get(queue["url"]), found.get(queue.get("dlq_url", ""))
        if place is not None:
            # The framework's own copies go there, with a redrive policy or without one.
            known = place.dlq_arn or (dlq.arn if dlq else "")
            found[place.url] = replace(place, alias=alias, dlq_arn=known)
    return [*found.values()]


@contextmanager
def _standing_still() -> Iterator[Callable[[float], object]]:
    """Stop this process's wall clock, and yield what sets it; monotonic clocks, which time-outs use, go on."""
    import time_machine  # noqa: PLC0415 - only the kit needs it

    with time_machine.travel(START_MS / 1000, tick=False) as coordinates:
        yield coordinates.move_to


def _guard_what_outlives() -> None:
    """Let no thread of a process that is dead send, start or submit anything, for good.

    A worker that was given up may wake when its environment is closed: what it sends would reach the real AWS.
    """
    from botocore.client import BaseClient  # noqa: PLC0415 - as everywhere in the framework

    for owner, name in ((BaseClient, "_make_api_call"), (threading.Thread, "start"), (ThreadPoolExecutor, "submit")):
        original = getattr(owner, name)
        if getattr(original, GUARDS, None) is not True:
            setattr(owner, name, _guarded(original))


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        process = CURRENT.get()
        if process is not None and process.dead:
            raise Crash
        return original(*arguments, **named)

    setattr(call, GUARDS, True)
    return call


@contextmanager
def _watched_botocore(world: Environment) -> Iterator[None]:
    """Let requests that a job makes with clients of its own pass its process, too, and reach this world's queues."""
    from botocore.client import BaseClient  # noqa: PLC0415 - as everywhere in the framework

    original = BaseClient._make_api_call  # noqa: SLF001 - the one place that every client's requests go through

    @functools.wraps(original)
    def make_api_call(self: Any, operation_name: str, api_params: dict[str, Any]) -> Any:
        process, service = CURRENT.get(), self.meta.service_model.service_name

        def forward() -> Any:
            answer = _answer_of(world.mailbox, operation_name, api_params) if service == "sqs" else None
            return original(answered(self), operation_name, api_params) if answer is None else answer

        if process is None:
            return forward()
        return process.call(Call(service, operation_name, api_params, process.claims_table, own=True), forward)

    with patch.object(BaseClient, "_make_api_call", make_api_call):
        yield


@contextmanager
def _inherited() -> Iterator[None]:
    """Let threads that a job starts, and what it gives to a pool of threads, be the doing of its process, too."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def bound(call: Callable[..., Any]) -> Callable[..., Any]:
        process = CURRENT.get()

        @functools.wraps(call)
        def run(*arguments: Any, **named: Any) -> Any:
            # Set where there is none, too: a pool's thread may have been started by another process's job.
            token = CURRENT.set(process)
            try:
                return call(*arguments, **named)
            finally:
                CURRENT.reset(token)

        return run

    def start_bound(self: threading.Thread) -> None:
        run = bound(self.run)

        def run_until_death() -> None:
            with suppress(Crash):  # of a process that died nobody hears anything, its threads' tracebacks neither
                run()

        self.run = run_until_death  # type: ignore[method-assign]  # of this thread alone
        start(self)

    def submit_bound(self: Any, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        return submit(self, bound(fn), *arguments, **named)

    with patch.object(threading.Thread, "start", start_bound), patch.object(ThreadPoolExecutor, "submit", submit_bound):
        yield


def _answer_of(mailbox: Mailbox, operation: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Answer a request of anybody's about messages that lie in the mailbox; ``None`` for any other, which is moto's."""
    match operation:
        case _ if request.get("QueueUrl") not in {place.url for place in mailbox.places}:
            return None  # a queue that a test or a job made itself
        case "ReceiveMessage":
            place = mailbox.place_of(request["QueueUrl"])
            mailbox.lying_in([place])
            due = mailbox.due(place)[: request.get("MaxNumberOfMessages", 1)]
            return _answered({"Messages": mailbox.received(due, request.get("VisibilityTimeout"))} if due else {})
        case "DeleteMessage":
            mailbox.drop(request["ReceiptHandle"])
            return _answered({})
        case "ChangeMessageVisibility":
            # Of an older handle AWS says nothing; here the call succeeds and does nothing.
            mailbox.hide(request["ReceiptHandle"], request["VisibilityTimeout"])
            return _answered({})
        case "DeleteMessageBatch":
            # A message that was received again is not deleted, and the call succeeds all the same.
            for entry in request["Entries"]:
                mailbox.drop(entry["ReceiptHandle"])
            return _answered({"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]], "Failed": []})
        case "ChangeMessageVisibilityBatch":
            entries = request["Entries"]
            done = [one["Id"] for one in entries if mailbox.hide(one["ReceiptHandle"], one["VisibilityTimeout"])]
            failed = [{"Id": one["Id"], **STALE} for one in entries if one["Id"] not in done]
            return _answered({"Successful": [{"Id": name} for name in done], "Failed": failed})
    return None


def _answered(content: dict[str, Any]) -> dict[str, Any]:
    return content | {"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}}
