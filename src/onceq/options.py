"""The words that the command line takes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from onceq.record import Status
from onceq.worker import GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def parser_of(commands: Mapping[str, Callable[[argparse.Namespace], int]], version: str) -> argparse.ArgumentParser:
    """Return the parser.

    Args:
        commands: What runs each command, by its name; the parsed options hold it as ``run``.
        version: What ``--version`` says.
    """
    parser = argparse.ArgumentParser(prog="onceq", description="SQS jobs that take effect once.")
    parser.add_argument("--version", action="version", version=f"onceq {version}")
    added = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, summary: str) -> argparse.ArgumentParser:
        made = added.add_parser(name, help=summary, description=summary)
        made.set_defaults(run=commands[name])
        made.add_argument("--app", default="app:app", help="module:name of the App (default: %(default)s)")
        made.add_argument("--template", default="template.yaml", help="the template (default: %(default)s)")
        return made

    dev = command("dev", "Run locally: locked moto, the template's resources, worker processes.")
    dev.add_argument("--workers", type=_positive, default=2, help="processes for each queue (default: %(default)s)")
    _local_options(dev)
    _log_options(dev)
    _grace_option(dev)

    enqueue = command("enqueue", "Put one job into its queue.")
    enqueue.add_argument("job_type", metavar="JOB_TYPE")
    enqueue.add_argument("--payload", required=True, help="JSON, or - to read it from stdin")
    enqueue.add_argument("--key", help="the idempotency key (default: the job type's own, or a new one)")
    enqueue.add_argument("--delay", type=float, default=0, metavar="SECONDS", help="deliver it that much later")
    enqueue.add_argument("--group", help="message group, for FIFO queues")
    enqueue.add_argument("--queue", help="name of the queue (default: the job type's)")
    enqueue.add_argument("--json", action="store_true", help="print JSON")

    invoke = command("invoke", "Invoke the consumer with one event, in this process, without Docker.")
    invoke.add_argument("event", metavar="EVENT.json", help="an SQS event as Lambda gets it, or - for stdin")
    invoke.add_argument("--function", help="logical id of the function (default: the first with an SQS event)")
    invoke.add_argument("--queue", help="take the records as from this queue, whatever their eventSourceARN")
    invoke.add_argument("--json", action="store_true", help="print the response and the records as one JSON object")
    _local_options(invoke)
    _log_options(invoke)

    show = command("show", "Show how one job stands.")
    show.add_argument("job_type", metavar="JOB_TYPE")
    show.add_argument("key", metavar="KEY")
    show.add_argument("--json", action="store_true", help="print JSON")

    listing = command("records", "List the records of the claims table.")
    listing.add_argument("--status", choices=[str(status) for status in Status], help="only these")
    listing.add_argument("--limit", type=_positive, default=1000, help="read at most so many (default: %(default)s)")
    listing.add_argument("--json", action="store_true", help="print JSON")

    dlq = command("dlq", "List what lies in the dead-letter queue, with the reasons.")
    dlq.add_argument("--queue", default="default", help="whose dead-letter queue (default: %(default)s)")
    dlq.add_argument("--json", action="store_true", help="print JSON")

    work = command("work", "Consume a queue in this process, with this process's environment (dev starts these).")
    work.add_argument("--queue", default="default", help="name of the queue (default: %(default)s)")
    work.add_argument("--batch-size", type=_positive, default=10, help="messages in one event (default: %(default)s)")
    work.add_argument(
        "--wait", type=int, choices=range(21), default=1, metavar="SECONDS", help="long poll (default: 1)"
    )
    work.add_argument("--name", default="", help="stands in every line")
    work.add_argument("--follow-stdin", action="store_true", help="stop also when stdin ends")
    _log_options(work)
    _grace_option(work)
    return parser


def _local_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env-vars", metavar="FILE", help="SAM's env.json (default: env.json, if there is one)")
    parser.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUE", help="a template parameter")


def _log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json-logs", action="store_true", help="the App's own hooks: JSON log lines, as on Lambda")
    parser.add_argument("--verbose", action="store_true", help="show every event")


def _grace_option(parser: argparse.ArgumentParser) -> None:
    text = "how long jobs under way may take at the end (default: %(default)s)"
    parser.add_argument("--grace", type=float, default=GRACE_SECONDS, metavar="SECONDS", help=text)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give a whole number from 1 on")
    return number
