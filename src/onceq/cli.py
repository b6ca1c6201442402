"""The command line: ``python -m onceq --help``.

``dev`` runs everything locally; ``enqueue``, ``show``, ``records`` and ``dlq`` talk to the session that runs in this
folder, or to AWS where the environment names the queues and the table; ``invoke`` needs neither.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onceq
from onceq.application import JobStatus
from onceq.clock import OpenDeadline
from onceq.codec import decode
from onceq.console import INVOKE_HINTS, WORK_HINTS, ConsoleHook, JobLogHandler
from onceq.errors import ConfigurationError, EnqueueFailed, OnceqError, PayloadError, QueueError, StoreError
from onceq.listing import (
    job_text,
    job_values,
    lease_values,
    letter_values,
    letters_text,
    record_values,
    records_text,
)
from onceq.loading import load_app, parameters_of, read_env_json, read_event
from onceq.message import check_key
from onceq.options import parser_of
from onceq.powertools import PowertoolsHook
from onceq.record import Status, pk_of
from onceq.store import is_free

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from onceq.application import App
    from onceq.record import Record
    from onceq.telemetry import Event

FAILED = 1
USAGE = 2
# Others may still read the queue: what was only looked at is back this soon, should it not be given back at once.
PEEK_SECONDS = 10
PEEK_MOST = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after ``onceq``; without them this process's own.

    Returns:
        The exit code: 0, 1 if something failed, 2 if the input or the settings cannot be used.
    """
    options = parser_of(COMMANDS, onceq.__version__).parse_args(arguments)
    try:
        return int(options.run(options))
    except (QueueError, StoreError, EnqueueFailed) as error:
        return _fail(error, FAILED)
    except OnceqError as error:
        return _fail(error, USAGE)
    except BrokenPipeError:
        # `onceq records | head`: the reader has enough. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _fail(error: object, code: int) -> int:
    print(f"onceq: {error}", file=sys.stderr)
    return code


# ----------------------------------------------------------------------------------------------------------- commands


def _dev(options: argparse.Namespace) -> int:
    from onceq.dev import session, unfitting  # noqa: PLC0415 - only this command needs them
    from onceq.local import replaced_environment  # noqa: PLC0415 - as above

    console = ConsoleHook()

    def say(line: str) -> None:
        console.line("dev", line)

    passed = [f"--{name.replace('_', '-')}" for name in ("json_logs", "verbose") if getattr(options, name)]
    with session(
        Path(options.template),
        app=options.app,
        workers=options.workers,
        say=say,
        parameters=parameters_of(options.parameter),
        env_json=read_env_json(options.env_vars),
        options=tuple(passed),
        grace=options.grace,
    ) as running:
        with replaced_environment(running.workers[0].environment):
            job_types = _app(options).job_types
        print(running.banner(onceq.__version__), flush=True)
        for source, settings in running.consumed:
            for line in unfitting(job_types, source, settings):
                console.line("warning", line)
        running.run()
    return 0


def _work(options: argparse.Namespace) -> int:
    from onceq.worker import work  # noqa: PLC0415 - only this command needs it

    app = _app(options)
    console = ConsoleHook(options.name, verbose=options.verbose, hints=WORK_HINTS)
    if not options.json_logs:
        _log_to(console)
    work(
        app,
        queue=options.queue,
        batch_size=options.batch_size,
        wait=options.wait,
        grace=options.grace,
        hooks=_hooks(app, console, json_logs=options.json_logs),
        report=lambda line: print(f"onceq {options.name}: {line}", file=sys.stderr, flush=True),
        follow_stdin=options.follow_stdin,
    )
    return 0


def _invoke(options: argparse.Namespace) -> int:
    from onceq.dev import shell_environment, sources_of, unfitting  # noqa: PLC0415 - only this command needs them
    from onceq.local import embedded_moto  # noqa: PLC0415 - as above
    from onceq.resources import create_resources  # noqa: PLC0415 - as above
    from onceq.template import function_environment, load_template  # noqa: PLC0415 - as above

    event = read_event(options.event)
    template = load_template(options.template)
    shell = shell_environment(os.environ)
    with embedded_moto():
        resources = create_resources(template, parameters=parameters_of(options.parameter), embedded=True)
        sources = sources_of(template, resources)
        function = options.function or sources[0].function
        environment = function_environment(
            template, resources, function=function, env_json=read_env_json(options.env_vars), shell=shell
        )
        for name in [name for name in os.environ if name.startswith("ONCEQ_")]:
            del os.environ[name]
        os.environ.update({name: value for name, value in environment.items() if name != "AWS_ENDPOINT_URL"})
        app = _app(options)
        # The event's receipt handles are nobody's, so no visibility can be changed here.
        hidden = ("visibility.not_changed",)
        console = ConsoleHook(stream=sys.stderr, verbose=options.verbose, hidden=hidden, hints=INVOKE_HINTS)
        settings = app.runtime.settings
        for source in sources:
            for line in unfitting(app.job_types, source, settings) if source.function == function else ():
                console.line("warning", line)
        if not options.json_logs:
            _log_to(console)
        app = app.with_hooks(_hooks(app, console, json_logs=options.json_logs))
        if options.queue:
            arn = settings.queue(options.queue).arn
            for record in event["Records"]:
                record["eventSourceARN"] = arn
        try:
            answer = app.consumer(event)
        except ConfigurationError:
            raise
        except OnceqError as error:
            return _fail(f"the handler raised {type(error).__name__}: {error}", FAILED)
        except Exception as error:  # noqa: BLE001 - whatever it is, Lambda would report a failed invocation
            traceback.print_exc()
            return _fail(f"the handler raised {type(error).__name__}", FAILED)
        found = _records(environment["ONCEQ_CLAIMS_TABLE"])
        if options.json:
            print(json.dumps({"response": answer, "records": [record_values(record) for record in found]}))
        else:
            print(json.dumps(answer))
            if found:
                print(records_text(found))
    return 0


def _enqueue(options: argparse.Namespace) -> int:
    try:
        payload = decode(sys.stdin.read() if options.payload == "-" else options.payload)
    except PayloadError as error:
        message = f"--payload is not JSON: {str(error).removeprefix('not JSON: ')}"
        raise ConfigurationError(message) from error
    _connect()
    sent = _app(options).enqueue(
        options.job_type,
        payload,
        key=options.key,
        delay=options.delay,
        group=options.group,
        queue=options.queue,
    )
    if options.json:
        print(json.dumps(sent._asdict()))
    else:
        print(f"enqueued {options.job_type} {sent.key} (message {sent.message_id})")
    return 0


def _show(options: argparse.Namespace) -> int:
    _connect()
    app = _app(options)
    runtime, job_type = app.runtime, app.job_types.named(options.job_type)
    record = runtime.store(OpenDeadline()).get(pk_of(job_type.storage_name, check_key(options.key)))
    now_ms = runtime.clock.now_ms()
    if record is None or is_free(record, now_ms):
        reason = "not claimed yet, or never enqueued"
        return _fail(f"there is no record of {options.job_type} {options.key}: {reason}", FAILED)
    values = job_values(JobStatus.of(record))
    if record.status is Status.PROCESSING:
        values |= lease_values(record, now_ms, runtime.settings.clock_skew)
    print(json.dumps(values) if options.json else job_text(values))
    return 0


def _records_command(options: argparse.Namespace) -> int:
    _connect()
    table_name = os.environ.get("ONCEQ_CLAIMS_TABLE", "")
    if not table_name:
        message = "ONCEQ_CLAIMS_TABLE is not set: name the claims table"
        raise ConfigurationError(message)
    read = _records(table_name, options.limit + 1)
    if len(read) > options.limit:
        print(f"onceq: the table has more than {options.limit} records: raise --limit to read them", file=sys.stderr)
    found = [record for record in read[: options.limit] if options.status in (None, record.status)]
    if options.json:
        print(json.dumps([record_values(record) for record in found]))
    elif found:
        print(records_text(found))
    else:
        print("no records" + (f" that are {options.status}" if options.status else ""))
    return 0


def _dlq(options: argparse.Namespace) -> int:
    _connect()
    app = _app(options)
    url = app.runtime.settings.queue(options.queue).dlq_url
    if not url:
        message = f"queue {options.queue!r} has no dlq_url in ONCEQ_QUEUES"
        raise ConfigurationError(message)
    letters = [letter_values(message) for message in _peek(app, url)]
    if options.json:
        print(json.dumps(letters))
    else:
        print(letters_text(letters) if letters else "the dead-letter queue is empty")
    return 0


# -------------------------------------------------------------------------------------------------------- their parts


def _app(options: argparse.Namespace) -> App:
    return load_app(options.app, options.template)


def _hooks(app: App, console: ConsoleHook, *, json_logs: bool) -> list[Callable[[Event], object]]:
    if json_logs:
        return list(app.hooks)
    return [*(hook for hook in app.hooks if not isinstance(hook, PowertoolsHook)), console]


def _log_to(console: ConsoleHook) -> None:
    root = logging.getLogger()
    root.addHandler(JobLogHandler(console))
    root.setLevel(logging.INFO)
    # Every request of every client would stand there.
    for name in ("botocore", "boto3", "urllib3", "moto", "pynamodb", "werkzeug"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _connect() -> None:
    """Take the environment of the session in this folder, unless the shell names queues or a table itself."""
    from onceq.dev import STATE_FILE, running_session  # noqa: PLC0415 - most commands need it, importing cli does not

    if not (os.environ.get("ONCEQ_QUEUES") or os.environ.get("ONCEQ_CLAIMS_TABLE")):
        environment = running_session()
        if environment is None:
            message = (
                f"no session runs in this folder ({STATE_FILE}) and the environment names no queues: "
                "start `make dev` (or `python -m onceq dev`), or set ONCEQ_QUEUES and ONCEQ_CLAIMS_TABLE"
            )
            raise ConfigurationError(message)
        os.environ.update(environment)


def _records(table_name: str, most: int | None = None) -> list[Record]:
    from onceq.models import claims_table, records  # noqa: PLC0415 - pynamodb is not loaded for other commands

    model = claims_table(table_name, host=os.environ.get("AWS_ENDPOINT_URL") or None)
    return sorted(itertools.islice(records(model), most), key=lambda record: record.created_at)


def _peek(app: App, url: str) -> list[dict[str, Any]]:
    queue = app.runtime.queue(OpenDeadline())
    request = {
        "QueueUrl": url,
        "MaxNumberOfMessages": 10,
        "VisibilityTimeout": PEEK_SECONDS,
        "MessageAttributeNames": ["All"],
    }
    messages: list[dict[str, Any]] = []
    while len(messages) < PEEK_MOST:
        batch = queue.call("ReceiveMessage", request).get("Messages", [])
        if not batch:
            break
        messages += batch
    entries = [
        {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
        for number, message in enumerate(messages)
    ]
    queue.change_visibility_batch(url, entries)
    return messages


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "dev": _dev,
    "enqueue": _enqueue,
    "invoke": _invoke,
    "show": _show,
    "records": _records_command,
    "dlq": _dlq,
    "work": _work,
}
