"""What the template starts by itself: which function consumes which queue, and what runs by a schedule."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from onceq.errors import ConfigurationError
from onceq.keys import PLACEHOLDER
from onceq.template import function_property, functions_of, parameter_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceq.intrinsics import Template
    from onceq.job_type import JobType
    from onceq.resources import Resources
    from onceq.settings import Settings

SCHEDULE = "AWS::Scheduler::Schedule"
SCHEDULED = ("Schedule", "ScheduleV2")
# The attribute that a schedule's envelope makes its key of.
SCHEDULED_TIME = f"{PLACEHOLDER}scheduled-time>"
DEFAULT_BATCH_SIZE = 10
DEFAULT_TIMEOUT = 3


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
    for function, own in functions_of(template).items():
        if not resources.exists(function):
            continue
        timeout = function_property(template, function, "Timeout", DEFAULT_TIMEOUT)
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


def function_of(template: Template, handler: str) -> str | None:
    """Return the logical id of the function whose handler is that part of the App, for example ``relay``."""
    for function in functions_of(template):
        name = function_property(template, function, "Handler")
        if isinstance(name, str) and name.rpartition(".")[2] == handler:
            return function
    return None


def scheduled(template: Template, resources: Resources, now_ms: int) -> list[tuple[str, str]]:
    """Return what the template runs by a schedule, which nothing does in a local run; the relay is not among it.

    Args:
        template: The template.
        resources: What `onceq.resources.create_resources` returned.
        now_ms: The time to put in for the scheduled one, epoch ms.

    Returns:
        Logical ids, and the words after ``python -m onceq`` that do the same by hand; no words where there are none.
    """
    own = {function_of(template, "recovery"): "recovery"}
    relay = function_of(template, "relay")
    found = [
        (function, own.get(function, ""))
        for function, properties in functions_of(template).items()
        if function != relay
        and any(event.get("Type") in SCHEDULED for event in (properties.get("Events") or {}).values())
    ]
    schedules = [
        (name, resource.get("Properties") or {})
        for name, resource in template["Resources"].items()
        if isinstance(resource, dict) and resource.get("Type") == SCHEDULE
    ]
    return found + [(name, _enqueued(name, properties, resources, now_ms)) for name, properties in schedules]


def _enqueued(schedule: str, properties: dict[str, Any], resources: Resources, now_ms: int) -> str:
    """Return the words that enqueue what a schedule would send, or nothing if that is not an envelope."""
    path = f"Resources.{schedule}.Properties.Target.Input"
    time = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        text = resources.resolver.resolve((properties.get("Target") or {}).get("Input", ""), path)
        envelope = json.loads(str(text).replace(SCHEDULED_TIME, time))
        words = [envelope["job_type"], "--key", envelope["idempotency_key"]]
        words += ["--payload", json.dumps(envelope["payload"])]
    except (ConfigurationError, ValueError, KeyError, TypeError):
        return ""
    return f"enqueue {shlex.join(map(str, words))}"
