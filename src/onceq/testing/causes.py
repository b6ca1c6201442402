"""What stands behind the error of a job, as far as its run shows it: pure functions from the facts to words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.errors import ConfigurationError
from onceq.testing.timeline import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.testing.calls import Call
    from onceq.testing.trial import Run

# What a service calls something that is not there, what it is, and where a request names it.
MISSING = {
    "ResourceNotFoundException": ("table", ("TableName",)),
    "AWS.SimpleQueueService.NonExistentQueue": ("queue", ("QueueUrl", "QueueName")),
    "NoSuchBucket": ("bucket", ("Bucket",)),
}


def missing(run: Run) -> list[str]:
    """Say which tables, queues and buckets the run asked for that are not there."""
    entries = [entry for entry in run.timeline.entries if entry.kind is Kind.CALL and entry.call is not None]
    found: dict[str, list[str]] = {}
    for entry in entries:
        what, options = MISSING.get(entry.what.rpartition(": ")[2], ("", ()))
        if what and entry.call is not None and not entry.landed:
            there = {name for one in entries if one.call and one.landed for name in _names(one.call, options)}
            found.setdefault(what, []).extend(name for name in _names(entry.call, options) if name not in there)
    return [
        f"There is no {what} {' or '.join(dict.fromkeys(names))} here: let it stand in template.yaml, and its name "
        "among the function's variables"
        for what, names in found.items()
        if names
    ]


def made_up(run: Run) -> list[str]:
    """Say what the recorder made up, where nothing else is to blame: the provider may answer in another shape."""
    is_wiring = any(isinstance(one.error, ConfigurationError) for one in run.seen.returns)
    if run.troubled or is_wiring or not run.made_up:
        return []
    answers = ", ".join(f"{name} was answered with {answer!r}" for name, answer in run.made_up.items())
    # By its own name, as the id has it: of several recorders the report puts that of the recorder before it.
    functions = [answer["id"].rpartition("-")[0] for answer in run.made_up.values()]
    options = ", ".join(
        f"EffectRecorder({name}=…)" if name.isidentifier() else f"EffectRecorder(answers={{{name!r}: …}})"
        for name in functions
    )
    words = " ".join(f"--answer {name}=JSON" for name in functions)
    told = f"which the recorder made up: give what the provider answers, {options} (from the shell: {words})"
    return [f"{answers}, {told}"]


def _names(call: Call, options: tuple[str, ...]) -> list[str]:
    """Return what a request is about, wherever in it that stands: the last part of a URL."""
    named = [value for name, value in _leaves(call.request) if name in options and isinstance(value, str)]
    found = [value.rpartition("/")[2] for value in named]
    # A batch has its tables as names.
    return [*found, *(call.request.get("RequestItems", ()) if "TableName" in options else ())]


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
