"""The words that the command line takes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from onceq.record import Status
from onceq.worker import EVERY_SECONDS, GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Command = Callable[[str, str], argparse.ArgumentParser]

# A relay that comes less often than once a day is none.
LONGEST_SECONDS = 86_400


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

    _dev(command)
    _up(command)
    _enqueue(command)
    _send(command)
    _invoke(command)
    _prove(command)
    _show(command)
    _lists(command)
    _resolve(command)
    _recovery(command)
    _work(command)
    _relay(command)
    return parser


def _dev(command: Command) -> None:
    dev = command("dev", "Run locally: locked moto, the template's resources, workers and a relay.")
    dev.add_argument("--workers", type=_positive, default=2, help="processes for each queue (default: %(default)s)")
    text = "how often the relay runs (default: %(default)g)"
    dev.add_argument("--relay-every", type=_seconds, default=EVERY_SECONDS, metavar="SECONDS", help=text)
    _local_options(dev)
    _log_options(dev)
    _grace_option(dev)


def _up(command: Command) -> None:
    up = command("up", "Run locally, without workers: what `sam local invoke` needs, and the words to call it.")
    text = (
        "this machine's address on the bridge of Linux' containers (default: %(default)s, Docker's; Podman: 10.88.0.1)"
    )
    up.add_argument("--bridge", default="172.17.0.1", metavar="ADDRESS", help=text)
    _local_options(up)


def _enqueue(command: Command) -> None:
    enqueue = command("enqueue", "Put one job into its queue.")
    enqueue.add_argument("job_type", metavar="JOB_TYPE")
    enqueue.add_argument("--payload", required=True, help="JSON, or - to read it from stdin")
    enqueue.add_argument("--key", help="the idempotency key (default: the job type's own, or a new one)")
    enqueue.add_argument("--delay", type=float, default=0, metavar="SECONDS", help="deliver it that much later")
    enqueue.add_argument("--group", help="message group, for FIFO queues")
    enqueue.add_argument("--queue", help="name of the queue (default: the job type's)")
    _json_option(enqueue)


def _send(command: Command) -> None:
    send = command("send", "Send one body as it is, as another program would: no envelope, no key.")
    send.add_argument("--queue", default="default", help="name of the queue (default: %(default)s)")
    send.add_argument(
        "--body", required=True, metavar="FILE|-|TEXT", help="a file, - to read stdin, or the body itself"
    )
    send.add_argument("--group", help="message group; FIFO queues need one")
    _json_option(send)


def _invoke(command: Command) -> None:
    invoke = command("invoke", "Invoke the consumer with one event, in this process, without Docker.")
    invoke.add_argument("event", metavar="EVENT.json", help="an SQS event as Lambda gets it, or - for stdin")
    invoke.add_argument("--function", help="logical id of the function (default: the first with an SQS event)")
    invoke.add_argument("--queue", help="take the records as from this queue, whatever their eventSourceARN")
    _json_option(invoke, "print the response and the records as one JSON object")
    _local_options(invoke)
    _log_options(invoke)


def _prove(command: Command) -> None:
    prove = command("prove", "Prove that a job takes effect once: run it in every way in which it may come, or fail.")
    prove.add_argument("job", metavar="JOB", help="module:name of the job type, or its own name, looked up in the App")
    prove.add_argument("--payload", required=True, help="JSON, @FILE, or - to read it from stdin")
    prove.add_argument("--key", help="the idempotency key (default: the job type's own, or a made one)")
    prove.add_argument("--other", metavar="PAYLOAD", help="of a second job, with another key; as --payload")
    prove.add_argument("--group", help="message group, for FIFO queues")
    stamps = prove.add_mutually_exclusive_group()
    text = "a field that the producer fills anew with each send; several times (default: those that hold a time)"
    stamps.add_argument("--stamp", action="append", metavar="FIELD", dest="stamps", help=text)
    text = "the producer fills no field anew: what holds a time is a part of the job"
    stamps.add_argument("--no-stamps", action="store_const", const=[], dest="stamps", help=text)
    text = "what the job calls outside: recorded in its place, and not called; may be given several times"
    prove.add_argument("--effects", action="append", default=[], metavar="MODULE:NAME", help=text)
    text = "what a recorded function returns (default: an id)"
    prove.add_argument("--answer", action="append", default=[], metavar="NAME=JSON", help=text)
    text = "a recorded function that only looks something up: it is no effect; may be given several times"
    prove.add_argument("--read", action="append", default=[], metavar="NAME", help=text)
    text = "the exception that a recorded function raises where a scenario lets it fail (default: a ConnectionError)"
    prove.add_argument("--fails", metavar="MODULE:NAME", help=text)
    text = "the parameter of the recorded functions that takes the downstream key (default: idempotency_key)"
    prove.add_argument("--downstream-key", metavar="NAME", help=text)
    text = "a function to call before each scenario: it puts what the job needs into its tables"
    prove.add_argument("--setup", metavar="MODULE:NAME", help=text)
    _json_option(prove)
    prove.add_argument(
        "--verbose", action="store_true", help="show every scenario, every timeline, and what the jobs log"
    )
    _local_options(prove)


def _show(command: Command) -> None:
    show = command("show", "Show how one job stands.")
    show.add_argument("job_type", metavar="JOB_TYPE")
    show.add_argument("key", metavar="KEY")
    show.add_argument("--results", action="store_true", help="with the results of its steps")
    _json_option(show)


def _lists(command: Command) -> None:
    records = command("records", "List the records of the claims table.")
    records.add_argument("--status", choices=[str(status) for status in Status], help="only these")
    _limit_option(records, "read at most so many (default: %(default)s)", 1000)
    _json_option(records)

    outbox = command("outbox", "List the messages that wait in the outbox, with the last error of each.")
    outbox.add_argument("--sent", action="store_true", help="also those that were sent; reads the whole table")
    _limit_option(outbox, "list at most so many (default: %(default)s)", 100)
    _json_option(outbox, "print JSON, without the messages' bodies")

    locks = command("locks", "List the locks that were taken and not released; reads the whole claims table.")
    _limit_option(locks, "list at most so many (default: %(default)s)", 100)
    _json_option(locks)

    dlq = command("dlq", "List what lies in the dead-letter queues, with the reasons.")
    dlq.add_argument("--queue", help="whose dead-letter queue (default: those of all queues)")
    _json_option(dlq)


def _resolve(command: Command) -> None:
    resolve = command("resolve", "Decide about a job that is uncertain, rejected or failed, and show it.")
    resolve.add_argument("job_type", metavar="JOB_TYPE")
    resolve.add_argument("key", metavar="KEY")
    text = "done: it happened; retry: it did not, so run it again; reject: it is not to happen any more"
    resolve.add_argument("decision", choices=["done", "retry", "reject"], help=text)
    resolve.add_argument("--result", metavar="JSON", help="what a job that is done returned (default: null)")
    resolve.add_argument(
        "--reason", default="", metavar="TEXT", help="why; it is told, and a record to retry or reject keeps it"
    )
    text = "for retry: the result of a step that is known to be done; once for each step"
    resolve.add_argument("--step", action="append", default=[], metavar="NAME=JSON", help=text)
    text = "the version that `show` told; refused if the job has changed since"
    resolve.add_argument("--version", type=int, metavar="N", help=text)
    _json_option(resolve)
    resolve.set_defaults(results=False)


def _recovery(command: Command) -> None:
    recovery = command("recovery", "Mark claims that went stale, once, and count them. It never runs a job.")
    _json_option(recovery)


def _work(command: Command) -> None:
    work = command("work", "Consume a queue in this process, with this process's environment (dev starts these).")
    work.add_argument("--queue", default="default", help="name of the queue (default: %(default)s)")
    work.add_argument("--batch-size", type=_positive, default=10, help="messages in one event (default: %(default)s)")
    work.add_argument(
        "--wait", type=int, choices=range(21), default=1, metavar="SECONDS", help="long poll (default: 1)"
    )
    _process_options(work)


def _relay(command: Command) -> None:
    relay = command("relay", "Send what waits in the outbox, again and again in this process (dev starts one).")
    text = "from one run to the next (default: %(default)g)"
    relay.add_argument("--every", type=_seconds, default=EVERY_SECONDS, metavar="SECONDS", help=text)
    relay.add_argument("--once", action="store_true", help="run once and print what it did as JSON")
    _process_options(relay)


def _process_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="", help="stands in every line")
    parser.add_argument("--follow-stdin", action="store_true", help="stop also when stdin ends")
    _log_options(parser)
    _grace_option(parser)


def _local_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env-vars", metavar="FILE", help="SAM's env.json (default: env.json, if there is one)")
    parser.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUE", help="a template parameter")


def _log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json-logs", action="store_true", help="the App's own hooks: JSON log lines, as on Lambda")
    parser.add_argument("--verbose", action="store_true", help="show every event")


def _grace_option(parser: argparse.ArgumentParser) -> None:
    text = "how long jobs under way may take at the end (default: %(default)s)"
    parser.add_argument("--grace", type=float, default=GRACE_SECONDS, metavar="SECONDS", help=text)


def _limit_option(parser: argparse.ArgumentParser, text: str, default: int) -> None:
    parser.add_argument("--limit", type=_positive, default=default, help=text)


def _json_option(parser: argparse.ArgumentParser, text: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=text)


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"give seconds above 0, at most {LONGEST_SECONDS}")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give a whole number from 1 on")
    return number
