"""The commands that talk to the session in this folder, or to AWS where the environment names queues and tables."""

from __future__ import annotations

import itertools
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from onceq.clock import OpenDeadline
from onceq.codec import decode
from onceq.console import ConsoleHook, hooks_for
from onceq.errors import ConfigurationError, PayloadError
from onceq.keys import check_effect_name, check_key
from onceq.listing import (
    entries_text,
    entry_values,
    job_text,
    job_values,
    lease_values,
    letter_values,
    letters_text,
    lock_values,
    locks_text,
    record_values,
    records_text,
    step_values,
)
from onceq.loading import load_app, read_body
from onceq.locks import KIND, LockItem
from onceq.outbox import SHARDS, Delivery, OutboxEntry
from onceq.raw import peek, send_raw
from onceq.record import Status, pk_of
from onceq.settings import require
from onceq.statefile import connect
from onceq.status import JobStatus
from onceq.store import is_free

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from onceq.application import App
    from onceq.outbox import Outbox
    from onceq.record import Record
    from onceq.settings import Settings
    from onceq.store import Table

FAILED = 1
USAGE = 2
# Later than any entry is tried.
_ALWAYS_MS = 10**15
DONE, RETRY = "done", "retry"
AFTER_RETRY = "its next message runs it: redrive its copy from the dead-letter queue, or enqueue it again with its key"


def fail(error: object, code: int) -> int:
    """Say an error and return the exit code."""
    sys.stderr.write(f"onceq: {error}\n")
    return code


def app_of(options: argparse.Namespace) -> App:
    """Return the application that the options name."""
    return load_app(options.app, options.template)


def enqueue(options: argparse.Namespace) -> int:
    """Put one job into its queue."""
    payload = _decoded("--payload", sys.stdin.read() if options.payload == "-" else options.payload)
    connect()
    sent = app_of(options).enqueue(
        options.job_type,
        payload,
        key=options.key,
        delay=options.delay,
        group=options.group,
        queue=options.queue,
    )
    return _answer(options, sent._asdict(), f"enqueued {options.job_type} {sent.key} (message {sent.message_id})")


def send(options: argparse.Namespace) -> int:
    """Send one body as it is, as another program would."""
    body = read_body(options.body)
    connect()
    runtime = app_of(options).runtime
    queue = runtime.settings.queue(options.queue)
    message_id = send_raw(runtime.queue(OpenDeadline()), queue, body, options.group, runtime.tokens.token())
    values = {"message_id": message_id, "queue": queue.name, "bytes": len(body.encode())}
    return _answer(options, values, f"sent {values['bytes']} bytes to {queue.name} (message {message_id})")


def show(options: argparse.Namespace) -> int:
    """Show how one job stands."""
    connect()
    app = app_of(options)
    record = _record(app, options)
    if record is None or is_free(record, app.runtime.clock.now_ms()):
        reason = "not claimed yet, or never enqueued"
        return fail(f"there is no record of {options.job_type} {options.key}: {reason}", FAILED)
    return _answer_job(options, app, JobStatus.of(record), record)


def list_records(options: argparse.Namespace) -> int:
    """List the records of the claims table."""
    connect()
    read = read_records(_claims_table(), options.limit + 1)
    if len(read) > options.limit:
        _note(f"the table has more than {options.limit} records: raise --limit to read them")
    found = [record for record in read[: options.limit] if options.status in (None, record.status)]
    none = "no records" + (f" that are {options.status}" if options.status else "")
    return _answer(options, [record_values(record) for record in found], records_text(found) if found else none)


def list_dead_letters(options: argparse.Namespace) -> int:
    """List what lies in the dead-letter queues."""
    connect()
    runtime = app_of(options).runtime
    named = _dead_letter_queues(runtime.settings, options.queue)
    queue = runtime.queue(OpenDeadline())
    letters = [{"queue": name, **letter_values(one)} for url, name in named.items() for one in peek(queue, url)]
    whose = (
        f"queue of {', '.join(named.values())} is" if len(named) == 1 else f"queues of {', '.join(named.values())} are"
    )
    text = letters_text(letters, with_queue=len(named) > 1) if letters else f"the dead-letter {whose} empty"
    return _answer(options, letters, text)


def list_outbox(options: argparse.Namespace) -> int:
    """List the messages that wait in the outbox, and those that were sent where they are asked for."""
    connect()
    runtime = app_of(options).runtime
    runtime.settings.named_outbox()
    outbox, limit = runtime.outbox(OpenDeadline()), options.limit
    entries = _pending(outbox, limit + 1)
    if len(entries) > limit:
        _note(f"more than {limit} entries wait: raise --limit to read them")
    elif options.sent:
        pending, entries = entries, entries + _sent(outbox, limit + 1 - len(entries))
        if len(entries) > limit:
            _note(f"{len(pending)} entries wait and more were sent than fit into {limit}: raise --limit to read them")
    now_ms = runtime.clock.now_ms()
    values = [entry_values(entry, now_ms) for entry in entries[:limit]]
    return _answer(options, values, entries_text(values) if values else "the outbox is empty")


def list_locks(options: argparse.Namespace) -> int:
    """List the locks that were taken and not released."""
    connect()
    runtime = app_of(options).runtime
    given = {":prefix": {"S": f"{KIND}#"}, ":released": {"N": "0"}}
    condition = "begins_with(pk, :prefix) AND lease_expires_at > :released"
    items = _scan(runtime.locks(OpenDeadline()), options.limit + 1, condition, given)
    if len(items) > options.limit:
        _note(f"there are more than {options.limit} locks: raise --limit to read them")
    now_ms = runtime.clock.now_ms()
    locks = sorted((LockItem.from_item(item) for item in items[: options.limit]), key=lambda lock: lock.name)
    values = [lock_values(lock, now_ms) for lock in locks]
    return _answer(options, values, locks_text(values) if values else "no locks")


def resolve(options: argparse.Namespace) -> int:
    """Write down what a person decided about a job, and show it."""
    is_done, is_retry = options.decision == DONE, options.decision == RETRY
    require(is_done or options.result is None, "--result is what a job that is done returned: it goes with `done`")
    require(is_retry or not options.step, "--step is for the next attempt: it goes with `retry`")
    result = None if options.result is None else _decoded("--result", options.result)
    steps = _steps_of(options.step)
    connect()
    app = app_of(options)
    status = app.with_hooks(hooks_for(app, ConsoleHook(stream=sys.stderr))).resolve(
        options.job_type,
        options.key,
        options.decision,
        result=result,
        reason=options.reason,
        steps=steps,
        version=options.version,
    )
    record = _record(app, options)
    if is_retry:
        _note(AFTER_RETRY)
    # What it became meanwhile is not what was decided.
    return _answer_job(options, app, status, record if record and record.version == status.version else None)


def recover(options: argparse.Namespace) -> int:
    """Sweep the claims table once."""
    connect("recovery")
    app = app_of(options)
    console = ConsoleHook(stream=sys.stderr, hidden=("recovery.ended",))
    swept = app.with_hooks(hooks_for(app, console)).recovery()
    text = "scanned {scanned}, marked failed {failed}, marked uncertain {uncertain}, lost to others {lost}"
    return _answer(options, swept, text.format(**swept))


def read_records(table_name: str, most: int | None = None) -> list[Record]:
    """Read records of a claims table, the oldest first."""
    from onceq.models import claims_table, records  # noqa: PLC0415 - pynamodb is not loaded for other commands

    model = claims_table(table_name, host=os.environ.get("AWS_ENDPOINT_URL") or None)
    return sorted(itertools.islice(records(model), most), key=lambda record: record.created_at)


# -------------------------------------------------------------------------------------------------------- their parts


def _answer(options: argparse.Namespace, values: object, text: str) -> int:
    sys.stdout.write(f"{json.dumps(values) if options.json else text}\n")
    return 0


def _answer_job(options: argparse.Namespace, app: App, status: JobStatus, record: Record | None) -> int:
    values = job_values(status)
    if record is not None and record.status is Status.PROCESSING:
        values |= lease_values(record, app.runtime.clock.now_ms(), app.runtime.settings.clock_skew)
    if record is not None and (steps := step_values(record, results=options.results)):
        values["steps"] = steps
    return _answer(options, values, job_text(values))


def _note(line: str) -> None:
    fail(line, 0)


def _decoded(option: str, text: str) -> Any:
    try:
        return decode(text)
    except PayloadError as error:
        message = f"{option} is not JSON: {str(error).removeprefix('not JSON: ')}"
        raise ConfigurationError(message) from error


def _steps_of(words: Sequence[str]) -> dict[str, Any]:
    """Read ``NAME=JSON`` words."""
    steps: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        require(equals != "", f"--step {word}: give NAME=JSON, the step's name and its result")
        require(name not in steps, f"--step {name} is given twice")
        try:
            steps[check_effect_name(name)] = _decoded(f"--step {name}", text)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
    return steps


def _record(app: App, options: argparse.Namespace) -> Record | None:
    job_type = app.job_types.named(options.job_type)
    return app.runtime.store(OpenDeadline()).get(pk_of(job_type.storage_name, check_key(options.key)))


def _dead_letter_queues(settings: Settings, name: str | None) -> dict[str, str]:
    """Return the names of the queues by the URL of their dead-letter queue, which several may share."""
    queues = settings.queues.values() if name is None else [settings.queue(name)]
    named: dict[str, str] = {}
    for queue in queues:
        if queue.dlq_url:
            named[queue.dlq_url] = ", ".join(filter(None, (named.get(queue.dlq_url), queue.name)))
    which = "no queue has a" if name is None else f"queue {name!r} has no"
    require(named != {}, f"{which} dlq_url in ONCEQ_QUEUES")
    return named


def _claims_table() -> str:
    table_name = os.environ.get("ONCEQ_CLAIMS_TABLE", "")
    require(table_name != "", "ONCEQ_CLAIMS_TABLE is not set: name the claims table")
    return table_name


def _pending(outbox: Outbox, most: int) -> list[OutboxEntry]:
    """Read the entries that wait, those in front that are tried first."""
    entries: list[OutboxEntry] = []
    for shard in map(str, range(SHARDS)):
        start: Mapping[str, Any] | None = None
        read = 0
        while read < most:
            page = outbox.pending(shard, now_ms=_ALWAYS_MS, start=start, limit=most - read)
            start = page.following
            entries += page.entries
            read += len(page.entries) + len(page.unreadable)
            if start is None:
                break
    return sorted(entries, key=lambda entry: (entry.next_at or 0, entry.pk))[:most]


def _sent(outbox: Outbox, most: int) -> list[OutboxEntry]:
    """Read entries that were sent, the last one in front; which ones, if there are more, is the table's choice."""
    items = _scan(outbox, most, "#status = :sent", {":sent": {"S": Delivery.SENT}}, {"#status": "status"})
    return sorted((OutboxEntry.from_item(item) for item in items), key=lambda entry: -(entry.sent_at or 0))


def _scan(
    table: Table, most: int, condition: str, values: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Read items that meet a condition, page after page of the whole table, until there are so many."""
    request: dict[str, Any] = {
        "TableName": table.table,
        "FilterExpression": condition,
        "ExpressionAttributeValues": dict(values),
        "ConsistentRead": True,
        **({"ExpressionAttributeNames": dict(names)} if names else {}),
    }
    items: list[dict[str, Any]] = []
    while len(items) < most:
        answer = table.dynamodb.call("Scan", request, table.deadline)
        items += answer.get("Items", [])
        if "LastEvaluatedKey" not in answer:
            break
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    return items[:most]


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "enqueue": enqueue,
    "send": send,
    "show": show,
    "records": list_records,
    "outbox": list_outbox,
    "locks": list_locks,
    "dlq": list_dead_letters,
    "resolve": resolve,
    "recovery": recover,
}
