"""What stands behind the error of a job, as far as its run shows it: pure functions from the facts to words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.errors import OnceqError, Retry, Signal, Snooze
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
# What no answer is to blame for: the framework's own words, and a job that asks to run later.
SAYS_WHY = (OnceqError, Signal, Retry, Snooze)


def missing(run: Run) -> list[str]:
    """Say which tables, queues and buckets the run asked for that are not there."""
    entries = [entry for entry in run.timeline.entries if entry.kind is Kind.CALL and entry.call is not None]
    found: dict[str, list[str]] = {}
    for entry in entries:
        what, options = MISSING.get(entry.what.rpartition(": ")[2], ("", ()))
        if what and entry.call is not None and not entry.landed:
            landed = {name for one in entries if one.call and one.landed for name in _names(one.call, options)}
            there = run.tables if what == "table" else landed
            found.setdefault(what, []).extend(name for name in _names(entry.call, options) if name not in there)
    return [
        f"There is no {what} {' or '.join(dict.fromkeys(names))} here: let it stand in template.yaml, and its name "
        "among the function's variables"
        for what, names in found.items()
        if names
    ]


def made_up(run: Run) -> list[str]:
    """Say what the recorder made up, where nothing else is to blame: the provider may answer in another shape."""
    says_why = any(isinstance(one.error, SAYS_WHY) for one in run.seen.returns)
    if run.troubled or says_why or not run.made_up:
        return []
    answers = ", ".join(f"{name} was answered with {one.made_up!r}" for name, one in run.made_up.items())
    functions = [one.function for one in run.made_up.values()]
    options = ", ".join(
        f"EffectRecorder({name}=…)" if name.isidentifier() else f"EffectRecorder(answers={{{name!r}: …}})"
        for name in functions
    )
    words = " ".join(f"--answer {name}=JSON" for name in functions)
    if any(isinstance(one.error, AttributeError) for one in run.seen.returns):
        own = "put the call into a function of your own and give that, --effects jobs.billing:charge"
        words = f"JSON has no attributes, so {own}"
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
