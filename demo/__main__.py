"""`python -m demo`: the example jobs on an embedded moto, with duplicates, failures and killed workers."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console
from rich.live import Live

from demo import screen
from demo.plan import LEAST_PAYMENTS
from demo.progress import Progress
from demo.run import Options, run
from demo.workers import WorkersFail
from onceq import OnceqError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from demo.report import Report

EPILOG = """
exit codes: 0 every promise held; 1 an effect happened more or less than once, a message was lost or stayed in the
outbox, or the run did not show what it set out to show; 2 wrong usage; 130 or 143 stopped by a signal
"""
# For stopping the workers and measuring, after the limit.
CLOSING_SECONDS = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and say what it saw."""
    options, as_json = _options(arguments)
    signal.signal(signal.SIGTERM, _stopped)
    signal.signal(signal.SIGALRM, _overdue)
    signal.alarm(int(options.limit) + CLOSING_SECONDS)
    console = Console(highlight=False)
    try:
        report = run(options) if as_json else _shown(options, console)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except (OnceqError, WorkersFail, TimeoutError) as error:
        print(f"the demo failed: {error}", file=sys.stderr)
        return 1
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        _print(report, console)
    return 0 if report.ok else 1


def _options(arguments: Sequence[str] | None) -> tuple[Options, bool]:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__, epilog=EPILOG)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, and nothing else")
    parser.add_argument("--payments", type=int, default=Options().payments, help="how many (default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=Options().workers, help="processes at once (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=Options().seed, help="another one mixes the messages differently")
    parser.add_argument("--limit", type=float, default=Options().limit, help="seconds until it gives up (%(default)g)")
    parser.add_argument(
        "--careless",
        action="store_true",
        help="run two jobs with a mistake: no idempotency key, no transaction; to see the check fail",
    )
    parser.add_argument("--no-relay", action="store_false", dest="relay", help="start no relay, to see the check fail")
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("json")
    options = Options(**given)
    if options.payments < LEAST_PAYMENTS or options.workers < 1 or options.limit < 1:
        parser.error(f"give --payments from {LEAST_PAYMENTS} on, --workers from 1 on and --limit from 1 on")
    return options, as_json


def _shown(options: Options, console: Console) -> Report:
    if not console.is_terminal:
        console.print(screen.title(options))
        return run(options)
    view = screen.Live(options)
    starting = Progress(messages=0, story=["starting moto, the provider, the workers and the relay"])
    with Live(view(starting), console=console, transient=True, auto_refresh=False) as live:
        return run(options, lambda progress: live.update(view(progress), refresh=True))


def _print(report: Report, console: Console) -> None:
    if console.is_terminal:
        console.print(screen.table(report))
    else:
        print(f"\n{screen.text(report, console)}")


def _stopped(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _overdue(_number: int, _frame: FrameType | None) -> NoReturn:
    message = "it took too long and was stopped"
    raise TimeoutError(message)


if __name__ == "__main__":
    sys.exit(main())
