"""The soak: real processes, faults of every kind, and a checker that asserts the promises one by one.

``make soak DURATION=120 SEED=1 BACKEND=moto`` runs it; without a backend it runs on moto and then on ministack.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.soak_jobs import JOB_TYPES
from kit.soak_log import read_log
from onceq import App, Settings
from soak.chaos import Chaos
from soak.figures import figures_of
from soak.person import Person
from soak.plan import schedule
from soak.producer import ASK_SECONDS, Producer
from soak.reading import read_state, unsettled, waiting
from soak.report import Report, judge
from soak.seen import TERMINAL
from soak.stand import Times, open_stand

if TYPE_CHECKING:
    from soak.stand import Stand

BACKENDS = ("moto", "ministack")
# moto delivers a group again in another order, the last message first.
KEEP_ORDER = ("ministack",)
KEPT = ("log.jsonl", "output.txt")
LOOK_SECONDS = 0.2
# If so long nothing more ends, something hangs: a job whose process has died is taken over within seconds.
SETTLE_SECONDS = 60.0
QUIET_LOOKS = 3
START_SECONDS = 30.0
# Beside the run: starting, settling, reading and judging take half a minute, and on a busy machine some.
MORE_SECONDS = 480.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A run of so many seconds has shown everything, or shows that it does not.
WHOLE_SECONDS = 60


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    backend: str = "moto"
    seed: int = 1
    duration: float = 120.0
    workers: int = 12
    relays: int = 2
    most: int = 1_000_000
    folder: Path | None = None
    settle: float = SETTLE_SECONDS
    times: Times = field(default_factory=Times)


def soak(options: Options, say: Any = lambda _line: None) -> Report:
    """Run one soak and judge it.

    The environment of this process is changed: what belongs to AWS in it is replaced, so that nothing real is reached.

    Args:
        options: What to run.
        say: Told how it stands, once in a while.
    """
    started = time.monotonic()
    for name in [name for name in os.environ if name.startswith(("AWS_", "ONCEQ_", "POWERTOOLS_"))]:
        del os.environ[name]
    with ExitStack() as stack:
        kept = options.folder / options.backend if options.folder else None
        folder = kept or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onceq-soak-")))
        folder.mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            # What an earlier run left there would be judged with this one.
            (folder / name).unlink(missing_ok=True)
        stand = stack.enter_context(
            open_stand(
                options.backend, options.seed, folder, options.times, workers=options.workers, relays=options.relays
            )
        )
        settings = Settings.from_env({name: v for name, v in stand.environment.items() if name.startswith("ONCEQ_")})
        app = App(JOB_TYPES, settings=settings, hooks=[])
        person = Person(stand, app, options.seed)
        stand.start()
        _wait_for_all(stand)
        happenings = schedule(
            options.seed,
            options.duration,
            processes=len(stand.processes),
            consumers=options.workers,
            stale_after=options.times.stale,
        )
        chaos = Chaos(stand, person, happenings)
        producer = Producer(stand, app, options.seed, options.most)
        sending = threading.Thread(target=producer.run, daemon=True)
        # First of all at the end, however it comes: a Ctrl-C then must not leave something running.
        stack.callback(producer.stopping.set)
        stack.callback(_hear_no_signal)
        sending.start()
        chaos.start()
        begun = time.monotonic()
        while time.monotonic() - begun < options.duration:
            stand.tend()
            say(_progress(options, time.monotonic() - begun, producer, chaos, stand))
            time.sleep(LOOK_SECONDS)
        producer.stopping.set()
        stand.proxy.heal()
        chaos.stop()
        sending.join()
        settled = _settle(stand, producer, person, options.settle, say)
        person.recover()
        codes = stand.end()
        seen = read_state(stand, producer.sent, zombies=chaos.zombies, settle=options.times.visibility + 2)
        seen.redriven, seen.resent = dict(person.redriven), producer.resent
        seen.keeps_order = options.backend in KEEP_ORDER
        verdicts, timeline = judge(seen)
        report = Report(
            settings={
                "soak of": options.backend,
                "seed": options.seed,
                "seconds": round(options.duration),
                "in all": round(time.monotonic() - started),
            },
            figures=figures_of(seen, producer, chaos, person, stand),
            faults=dict(stand.proxy.met_faults),
            verdicts=verdicts,
            timeline=timeline,
        )
        report.problems += [] if settled else [f"not settled: nothing more ended for {options.settle:g} s"]
        report.problems += [f"a process ended with exit code {code}" for code in codes if code != 0]
        unasked = [one for one in stand.exits if one["code"] != -signal.SIGKILL]
        report.problems += [f"{one['name']} ended by itself with exit code {one['code']}" for one in unasked]
        report.problems += [*chaos.errors, *filter(None, [producer.error])]
        if options.duration >= WHOLE_SECONDS:
            report.problems += [f"not shown: {name}" for name, number in report.figures.items() if not number]
        if any(verdict.violations for verdict in verdicts) or unasked or not settled:
            report.problems += _last_words(folder)
        return report


def _wait_for_all(stand: Stand) -> None:
    """Wait until every process has started: it takes seconds on a machine that is busy."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if sum(line["name"] == "process.started" for line in read_log(stand.log)) == len(stand.processes):
            return
        time.sleep(LOOK_SECONDS / 2)


def _settle(stand: Stand, producer: Producer, person: Person, patience: float, say: Any) -> bool:
    """Wait until nothing is under way any more; return whether it came to that.

    It is given up when for so many seconds no job has ended that had not, and nothing has left a queue. Each end
    counts: on a busy machine what comes back meanwhile hides in the sum that it goes on.
    """
    sqs, dynamodb = stand.client("sqs"), stand.client("dynamodb")
    staying = sum(message.kind == "unserved" for message in producer.sent)
    least, ends, quiet = sys.maxsize, 0, 0
    since = time.monotonic()
    while quiet < QUIET_LOOKS and time.monotonic() - since < patience:
        stand.tend()
        left = waiting(stand, sqs)
        say(f"settling: {left} messages left")
        under_way = max(0, left - staying) or unsettled(stand, dynamodb) or person.bring_back()
        quiet = 0 if under_way else quiet + 1
        journal = [write for write in list(stand.proxy.journal) if write["http"] == HTTPStatus.OK]
        ended = len({write["job"] for write in journal if write["status"] in TERMINAL})
        if under_way < least or ended > ends:
            least, ends, since = min(least, under_way), ended, time.monotonic()
        time.sleep(ASK_SECONDS)
    return quiet >= QUIET_LOOKS


def _progress(options: Options, seconds: float, producer: Producer, chaos: Chaos, stand: Stand) -> str:
    zombies = sum(one["to"] > 0 for one in chaos.zombies)
    return (
        f"{seconds:4.0f} of {options.duration:.0f} s: {len(producer.sent)} messages, {len(stand.exits)} killed, "
        f"{zombies} zombies, {stand.proxy.met_faults.total()} faults, "
        f"{chaos.person.redriven.total()} redriven, {len(chaos.person.resolved)} resolved"
    )


def _last_words(folder: Path) -> list[str]:
    output = folder / "output.txt"
    lines = output.read_text(errors="replace").splitlines()[-15:] if output.exists() else []
    faults = Counter(
        str(line.get("reason"))[:100] for line in read_log(folder / "log.jsonl") if line["name"] == "message.faulted"
    )
    return [f"output: {line}" for line in lines] + [f"{number} times: {text}" for text, number in faults.most_common(3)]


def main() -> int:
    """Run the soaks that were asked for; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="make soak", description="Soak the framework in faults, and check it.")
    parser.add_argument("--duration", type=float, default=120, help="seconds of faults (120)")
    parser.add_argument("--seed", type=int, default=1, help="chooses messages and faults (1)")
    parser.add_argument(
        "--backend", choices=(*BACKENDS, "both"), default="both", help="server (both, one after another)"
    )
    parser.add_argument("--lease", type=float, default=2, help="seconds that a claim holds unless renewed (2)")
    parser.add_argument("--workers", type=int, default=12, help="consumers, of which a third takes the FIFO queue (12)")
    parser.add_argument("--relays", type=int, default=2, help="relays (2)")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages at most")
    parser.add_argument(
        "--settle", type=float, default=SETTLE_SECONDS, help="seconds without any end, after which it is given up (60)"
    )
    parser.add_argument("--folder", type=Path, help="where the log and the processes' output of each backend stay")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each backend")
    options = parser.parse_args()
    kept = True
    try:
        for backend in BACKENDS if options.backend == "both" else (options.backend,):
            end_at_a_signal()
            signal.signal(signal.SIGALRM, _too_long)
            signal.setitimer(signal.ITIMER_REAL, options.duration + MORE_SECONDS)
            report = soak(
                Options(
                    backend,
                    options.seed,
                    options.duration,
                    options.workers,
                    options.relays,
                    options.messages,
                    options.folder,
                    options.settle,
                    Times.of(options.lease),
                ),
                _teller(quiet=options.json),
            )
            signal.setitimer(signal.ITIMER_REAL, 0)
            print(json.dumps(report.to_json()) if options.json else report.to_text(), flush=True)
            kept = kept and report.is_kept
    except KeyboardInterrupt:
        print("soak: stopped; nothing runs on", file=sys.stderr)
        return 130
    return 0 if kept else 1


def end_at_a_signal() -> None:
    """Let the first signal that asks for an end raise `KeyboardInterrupt`, wherever it comes, and hear no other."""

    def end(_number: int, _frame: object) -> None:
        _hear_no_signal()
        raise KeyboardInterrupt

    for number in SIGNALS:
        signal.signal(number, end)


def _hear_no_signal() -> None:
    for number in SIGNALS:
        # Not SIG_IGN: of two that come at once Python has the second in hand already, and complains of it.
        signal.signal(number, lambda _number, _frame: None)


def _too_long(_number: int, _frame: object) -> None:
    message = "soak: it took far too long, and was stopped"
    raise SystemExit(message)


def _teller(*, quiet: bool) -> Any:
    """Return what tells the progress: one line that is written over on a terminal, and now and then one elsewhere."""
    terminal = sys.stderr.isatty()
    last = [0.0]

    def say(line: str) -> None:
        if quiet or (not terminal and time.monotonic() - last[0] < 15):
            return
        last[0] = time.monotonic()
        if terminal:
            # Cut, since a line that is broken cannot be written over.
            line = f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}"
        print(line, end="" if terminal else "\n", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    sys.exit(main())
