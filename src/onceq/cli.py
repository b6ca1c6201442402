"""The command line: ``python -m onceq --help``.

``dev`` runs everything locally, ``work`` and ``relay`` are its processes, ``up`` runs what is left without them, and
``invoke`` and ``prove`` need none of it. What talks to queues and tables that are there already stands in
`onceq.commands`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import onceq
from onceq import commands
from onceq.commands import FAILED, USAGE, app_of, fail, read_records
from onceq.console import INVOKE_HINTS, WORK_HINTS, ConsoleHook, JobLogHandler, hooks_for
from onceq.errors import ConfigurationError, EnqueueFailed, OnceqError, QueueError, ResolveRefused, StoreError
from onceq.listing import record_values, records_text
from onceq.loading import parameters_of, read_env_json, read_event
from onceq.options import parser_of
from onceq.statefile import connect

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

STOPPED = "stopped: the local queues and tables are gone"


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
    except (QueueError, StoreError, EnqueueFailed, ResolveRefused) as error:
        return fail(error, FAILED)
    except OnceqError as error:
        return fail(error, USAGE)
    except BrokenPipeError:
        # `onceq records | head`: the reader has enough. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


# ----------------------------------------------------------------------------------------------------------- commands


def _dev(options: argparse.Namespace) -> int:
    from onceq.dev import session  # noqa: PLC0415 - only this command needs it
    from onceq.local import replaced_environment  # noqa: PLC0415 - as above
    from onceq.mappings import unfitting  # noqa: PLC0415 - as above

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
        relay_every=options.relay_every,
    ) as running:
        with replaced_environment(running.children[0].environment):
            job_types = app_of(options).job_types
        print(running.banner(onceq.__version__), flush=True)
        for source, settings in running.consumed:
            for line in unfitting(job_types, source, settings):
                console.line("warning", line)
        running.run()
    print(STOPPED, flush=True)
    return 0


def _up(options: argparse.Namespace) -> int:
    from onceq.up import end_by_signal, local_services, wait_for_signal  # noqa: PLC0415 - only this command needs it

    end_by_signal()
    with local_services(
        Path(options.template),
        bridge=options.bridge,
        parameters=parameters_of(options.parameter),
        env_json=read_env_json(options.env_vars),
    ) as up:
        print(up.banner(onceq.__version__), flush=True)
        wait_for_signal()
    print(STOPPED, flush=True)
    return 0


def _work(options: argparse.Namespace) -> int:
    from onceq.worker import work  # noqa: PLC0415 - only this command needs it

    app = app_of(options)
    console = ConsoleHook(options.name, verbose=options.verbose, hints=WORK_HINTS)
    with _logged_to(console, options):
        work(
            app,
            queue=options.queue,
            batch_size=options.batch_size,
            wait=options.wait,
            grace=options.grace,
            hooks=hooks_for(app, console, json_logs=options.json_logs),
            report=_reporter(options),
            follow_stdin=options.follow_stdin,
        )
    return 0


def _relay(options: argparse.Namespace) -> int:
    from onceq.worker import send_on  # noqa: PLC0415 - only this command needs it

    connect("relay")
    app = app_of(options)
    console = ConsoleHook(options.name, stream=sys.stderr if options.once else None, verbose=options.verbose)
    hooks = hooks_for(app, console, json_logs=options.json_logs)
    if options.once:
        print(json.dumps(app.with_hooks(hooks).relay()))
        return 0
    with _logged_to(console, options):
        send_on(
            app,
            every=options.every,
            grace=options.grace,
            hooks=hooks,
            report=_reporter(options),
            follow_stdin=options.follow_stdin,
        )
    return 0


def _invoke(options: argparse.Namespace) -> int:
    from onceq.dev import shell_environment  # noqa: PLC0415 - only this command needs it
    from onceq.local import embedded_moto  # noqa: PLC0415 - as above
    from onceq.mappings import sources_of, unfitting  # noqa: PLC0415 - as above
    from onceq.resources import create_resources  # noqa: PLC0415 - as above
    from onceq.template import function_environment, load_template  # noqa: PLC0415 - as above

    event = read_event(options.event)
    template = load_template(options.template)
    shell = shell_environment(os.environ)
    with embedded_moto():
        resources = create_resources(template, parameters=parameters_of(options.parameter), embedded=True)
        sources = sources_of(template, resources)
        arns = [record.get("eventSourceARN") for record in event["Records"][:1]]
        consuming = [source.function for source in sources if source.arn in arns]
        function = options.function or (consuming or [sources[0].function])[0]
        environment = function_environment(
            template, resources, function=function, env_json=read_env_json(options.env_vars), shell=shell
        )
        for name in [name for name in os.environ if name.startswith("ONCEQ_")]:
            del os.environ[name]
        os.environ.update({name: value for name, value in environment.items() if name != "AWS_ENDPOINT_URL"})
        app = app_of(options)
        # The event's receipt handles are nobody's, so no visibility can be changed here.
        hidden = ("visibility.not_changed",)
        console = ConsoleHook(stream=sys.stderr, verbose=options.verbose, hidden=hidden, hints=INVOKE_HINTS)
        settings = app.runtime.settings
        for source in sources:
            for line in unfitting(app.job_types, source, settings) if source.function == function else ():
                console.line("warning", line)
        app = app.with_hooks(hooks_for(app, console, json_logs=options.json_logs))
        if options.queue:
            arn = settings.queue(options.queue).arn
            for record in event["Records"]:
                record["eventSourceARN"] = arn
        try:
            with _logged_to(console, options):
                answer = app.consumer(event)
        except ConfigurationError:
            raise
        except OnceqError as error:
            return fail(f"the handler raised {type(error).__name__}: {error}", FAILED)
        except Exception as error:  # noqa: BLE001 - whatever it is, Lambda would report a failed invocation
            traceback.print_exc()
            return fail(f"the handler raised {type(error).__name__}", FAILED)
        found = read_records(environment["ONCEQ_CLAIMS_TABLE"])
        if options.json:
            print(json.dumps({"response": answer, "records": [record_values(record) for record in found]}))
        else:
            print(json.dumps(answer))
            if found:
                print(records_text(found))
    return 0


def _prove(options: argparse.Namespace) -> int:
    from onceq.proof import prove  # noqa: PLC0415 - only this command needs it, and the test kit

    return prove(options)


# -------------------------------------------------------------------------------------------------------- their parts


def _reporter(options: argparse.Namespace) -> Callable[[str], object]:
    return lambda line: print(f"onceq {options.name}: {line}", file=sys.stderr, flush=True)


@contextmanager
def _logged_to(console: ConsoleHook, options: argparse.Namespace) -> Iterator[None]:
    """Write what is logged in the console's shape, unless JSON was asked for; afterwards logging is as it was."""
    if options.json_logs:
        yield
        return
    handler, root = JobLogHandler(console), logging.getLogger()
    # Every request of every client would stand there.
    quiet = [logging.getLogger(name) for name in ("botocore", "boto3", "urllib3", "moto", "pynamodb", "werkzeug")]
    levels = {logger: logger.level for logger in (root, *quiet)}
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for logger in quiet:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for logger, level in levels.items():
            logger.setLevel(level)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "dev": _dev,
    "up": _up,
    "invoke": _invoke,
    "prove": _prove,
    "work": _work,
    "relay": _relay,
    **commands.COMMANDS,
}
