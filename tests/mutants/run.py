"""Break the code on purpose, one small way at a time, and see that the tests named for it fail.

`mutants.toml` is the list. Each mutant is applied in a copy of the project, and only its own tests run. A mutant that
no test notices fails the run; so does one whose text is not there any more, and one whose tests fail without it.

Processes are forked, not started: moto, botocore and pytest are loaded once, the framework and its tests anew in every
child, from the copy.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")
COPIED = ("src", "tests", "docs", "events", "demo", "template.yaml", "pyproject.toml", "README.md")
# A mutant that makes the code wait for ever is noticed too; the slowest of its tests needs a few seconds.
HANG_SECONDS = 30.0
POLL_SECONDS = 0.01
# One more than there are cores, since those that hang use none.
WORKERS = (os.cpu_count() or 1) + 1
# What tests and framework import, and no mutant changes; never the framework itself.
PRELOADED = (
    "asyncio",
    "aws_lambda_powertools",
    "boto3",
    "hypothesis",
    "hypothesis.strategies",
    "jmespath",
    "moto.dynamodb.models",
    "moto.sqs.models",
    "msgspec",
    "pytest",
    "unittest.mock",
)
BROKEN_EXIT = 99
# Of pytest: all passed, or none of them is for this backend.
PASSED = (0, 5)
# First on moto, which is quick; what that does not notice on both, since some promises rest on what moto does not do.
MOTO, BOTH = "moto", "both"


@dataclass(frozen=True)
class Mutant:
    """One way to break the code.

    Args:
        id: Its name.
        file: The file it changes, under ``src/onceq``.
        edits: Old and new text; each old text stands exactly once in the file.
        tests: Node ids of the tests that must fail.
        protects: What is lost with it, by its G-number or in words.
    """

    id: str
    file: str
    edits: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]
    protects: str

    def applied_to(self, text: str) -> str:
        """Return the text with the mutant in it.

        Raises:
            ValueError: If it does not apply, or leaves what is no Python.
        """
        for old, new in self.edits:
            if text.count(old) != 1:
                message = f"stands {text.count(old)} times in the file: {old!r}"
                raise ValueError(message)
            text = text.replace(old, new)
        try:
            compile(text, self.file, "exec")
        except SyntaxError as error:
            message = f"is no Python: {error}"
            raise ValueError(message) from error
        return text


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: ``killed``, ``survived``, ``broken`` or ``does not apply``."""

    id: str
    status: str
    by: str
    seconds: float
    protects: str


def read_list(path: Path = LIST) -> list[Mutant]:
    """Read the mutants, the names of test selections put in.

    Raises:
        ValueError: If an id comes twice, or a mutant changes nothing.
    """
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    selections: dict[str, list[str]] = raw["selections"]
    mutants = []
    for entry in raw["mutant"]:
        edits = entry.get("edits") or [[entry["old"], entry["new"]]]
        tests = chain.from_iterable(selections.get(name, [name]) for name in entry["tests"])
        mutant = Mutant(
            entry["id"],
            entry["file"],
            tuple((old, new) for old, new in edits),
            tuple(dict.fromkeys(tests)),
            entry["protects"],
        )
        if not mutant.tests or any(old == new for old, new in mutant.edits):
            message = f"{mutant.id} changes nothing, or names no test"
            raise ValueError(message)
        mutants.append(mutant)
    doubled = [name for name, number in Counter(mutant.id for mutant in mutants).items() if number > 1]
    if doubled:
        message = f"these ids come twice: {', '.join(doubled)}"
        raise ValueError(message)
    return mutants


def preload() -> None:
    """Load what every child needs and no mutant changes. Nothing here starts a thread, so forking is safe."""
    for name in PRELOADED:
        importlib.import_module(name)
    import hypothesis
    from botocore import session

    # One loader for every session: it reads the descriptions of the services once, most of a client's making.
    session.create_loader = functools.cache(session.create_loader)
    # A failure is enough: to look for its smallest example takes longer than all the rest.
    hypothesis.settings.register_profile("mutants", phases=set(hypothesis.Phase) - {hypothesis.Phase.shrink})
    hypothesis.settings.load_profile("mutants")
    _warm_moto()
    gc.collect()
    gc.freeze()


def _warm_moto() -> None:
    """Let moto load and compile what it does at its first requests; its state ends with the block."""
    import boto3
    from moto import mock_aws

    with mock_aws():
        options = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
        sqs = boto3.client("sqs", **options)
        url = sqs.create_queue(QueueName="warm")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="warm")
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1)
        dynamodb = boto3.client("dynamodb", **options)
        dynamodb.create_table(
            TableName="warm",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        dynamodb.put_item(TableName="warm", Item={"pk": {"S": "warm"}})
        dynamodb.update_item(
            TableName="warm",
            Key={"pk": {"S": "warm"}},
            UpdateExpression="SET #a = :a",
            ConditionExpression="pk = :pk",
            ExpressionAttributeNames={"#a": "a"},
            ExpressionAttributeValues={":a": {"S": "a"}, ":pk": {"S": "warm"}},
        )
        dynamodb.get_item(TableName="warm", Key={"pk": {"S": "warm"}})


class Copy:
    """A copy of the project in which one child at a time runs tests."""

    ran_from: ClassVar[str] = "onceq was not loaded from the copy"

    def __init__(self, folder: Path) -> None:
        """Copy the project there."""
        self.root = folder
        self._changed: tuple[Path, str, float] | None = None
        ignore = shutil.ignore_patterns("__pycache__")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=ignore)
            else:
                shutil.copy2(source, folder / name)

    def apply(self, mutant: Mutant) -> None:
        """Change the copy. The time of the file moves on, so that its bytecode does not pass for the mutant's."""
        path = self.root / "src" / "onceq" / mutant.file
        text, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(mutant.applied_to(text), encoding="utf-8")
        os.utime(path, (times.st_atime, times.st_mtime + 3_600))
        self._changed = path, text, times.st_mtime

    def restore(self) -> None:
        """Undo `apply`."""
        if self._changed:
            path, text, modified = self._changed
            path.write_text(text, encoding="utf-8")
            os.utime(path, (modified, modified))
            self._changed = None

    def learn(self, other: Copy) -> None:
        """Take the bytecode that the other copy has and this one has not."""
        for compiled in other.root.rglob("*.pyc"):
            here = self.root / compiled.relative_to(other.root)
            if not here.exists():
                here.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(compiled, here)


class Watcher:
    """A pytest plugin: notes the first failure, and whether a test or something around it failed."""

    def __init__(self) -> None:
        """Nothing failed so far."""
        self.failed = ""
        self.around = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed and report.when == "call":
            self.failed = self.failed or report.nodeid
        elif report.failed:
            self.around = self.around or f"{report.when} of {report.nodeid}"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be read."""
        if report.failed:
            self.around = self.around or f"collection of {report.nodeid}"


@dataclass
class Child:
    """A forked process that runs tests."""

    copy: Copy
    pid: int
    started: float
    limit: float

    @property
    def output(self) -> Path:
        """What it printed."""
        return self.copy.root / "output.txt"

    @property
    def summary(self) -> dict[str, Any]:
        """What its pytest said: exit status and first failure."""
        path = self.copy.root / "summary.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return found


def start(
    copy: Copy,
    tests: Sequence[str],
    limit: float,
    *,
    first: bool,
    backend: str = BOTH,
    plugin: object = None,
    stop: bool = True,
) -> Child:
    """Fork a child that runs these tests in that copy, up to the first that fails.

    Args:
        copy: Where they run.
        tests: Node ids.
        limit: Seconds after which it hangs.
        first: Whether to keep the bytecode for those that follow.
        backend: What the tests run on.
        plugin: A plugin for its pytest.
        stop: Whether to stop at the first that fails.
    """
    (copy.root / "summary.json").unlink(missing_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.environ["BACKEND"] = backend
        _run_in_child(copy.root, tests, first=first, plugins=[plugin] if plugin else [], stop=stop)
    return Child(copy, pid, time.monotonic(), limit)


def _run_in_child(root: Path, tests: Sequence[str], *, first: bool, plugins: list[object], stop: bool) -> None:
    code = BROKEN_EXIT
    try:
        os.setsid()
        output = os.open(root / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(root)
        sys.dont_write_bytecode = not first
        sys.path[:0] = [str(root / "src"), str(root / "tests"), str(root)]
        code = _pytest(root, tests, plugins, stop=stop)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _pytest(root: Path, tests: Sequence[str], plugins: list[object], *, stop: bool) -> int:
    import pytest

    watcher = Watcher()
    # The plugins are loaded already, so pytest cannot rewrite the asserts in them; nobody misses that.
    quiet = ["-q", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    # Without the plugin that collects garbage harder in the end, and without the one that writes a cache.
    without = [option for name in ("cacheprovider", "unraisableexception", "xdist") for option in ("-p", f"no:{name}")]
    options = [*(["-x"] if stop else []), "-c", "pyproject.toml", *quiet, *without]
    code = int(pytest.main([*options, *tests], plugins=[watcher, *plugins]))
    loaded = getattr(sys.modules.get("onceq"), "__file__", "") or ""
    if not Path(loaded).is_relative_to(root):
        watcher.around = f"{Copy.ran_from}: {loaded}"
    summary = {"code": code, "failed": watcher.failed, "around": watcher.around}
    (root / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return code


def ended(child: Child) -> tuple[bool, float] | None:
    """Return whether a child hung and its seconds, or ``None`` while it runs."""
    seconds = time.monotonic() - child.started
    pid, _ = os.waitpid(child.pid, os.WNOHANG)
    if pid:
        return False, seconds
    if seconds <= child.limit:
        return None
    os.killpg(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
    return True, seconds


@contextmanager
def copies(number: int) -> Iterator[list[Copy]]:
    """Make copies of the project, and remove them in the end."""
    with tempfile.TemporaryDirectory(prefix="onceq-mutants-") as folder:
        made = []
        for each in range(number):
            root = Path(folder).resolve() / str(each)
            root.mkdir()
            made.append(Copy(root))
        yield made


class Run:
    """One run of the list."""

    def __init__(self, free: list[Copy], *, show: bool) -> None:
        """Use these copies; ``show`` prints a line for each mutant as it ends."""
        self._free = free
        self._show = show
        self._running: list[tuple[Child, Any]] = []

    def judge(self, mutants: Sequence[Mutant]) -> list[Verdict]:
        """Run every mutant; return what became of each, in the order of the list."""
        found: dict[str, Verdict] = {}
        left = mutants
        for backend in (MOTO, BOTH):
            wrong = self.baseline(left, backend)
            for file, said in wrong.items():
                print(f"{file} fails without any mutant:\n{said}", file=sys.stderr)
            found |= self.verdicts(left, wrong, backend)
            left = [mutant for mutant in left if found[mutant.id].status == "survived"]
        return [found[mutant.id] for mutant in mutants]

    def baseline(self, mutants: Sequence[Mutant], backend: str) -> dict[str, str]:
        """Run every named test once unmutated, file by file; return what is wrong by file."""
        by_file: dict[str, dict[str, None]] = {}
        for test in chain.from_iterable(mutant.tests for mutant in mutants):
            by_file.setdefault(test.partition("::")[0], {})[test] = None
        wrong: dict[str, str] = {}
        waiting = [(file, list(tests)) for file, tests in by_file.items()]
        while waiting or self._running:
            while waiting and self._free:
                file, tests = waiting.pop()
                self._running.append(
                    (start(self._free.pop(), tests, HANG_SECONDS * 10, first=True, backend=backend), file)
                )
            for child, file, hung, _ in self._ended():
                summary = child.summary
                if hung or summary.get("code") not in PASSED:
                    said = child.output.read_text(encoding="utf-8", errors="replace")[-3_000:]
                    wrong[file] = "hangs" if hung else said
        for copy in self._free:
            for other in self._free:
                copy.learn(other)
        return wrong

    def verdicts(self, mutants: Sequence[Mutant], wrong: Mapping[str, str], backend: str) -> dict[str, Verdict]:
        """Run every mutant whose tests pass without it; return what became of each."""
        found: dict[str, Verdict] = {}
        waiting = []
        for mutant in reversed(mutants):
            files = sorted({test.partition("::")[0] for test in mutant.tests} & set(wrong))
            if files:
                said = f"fails without it: {', '.join(files)}"
                found[mutant.id] = Verdict(mutant.id, "broken", said, 0.0, mutant.protects)
            else:
                waiting.append(mutant)
        while waiting or self._running:
            while waiting and self._free:
                mutant = waiting.pop()
                copy = self._free.pop()
                try:
                    copy.apply(mutant)
                except ValueError as error:
                    self._free.append(copy)
                    found[mutant.id] = Verdict(mutant.id, "does not apply", str(error), 0.0, mutant.protects)
                    continue
                self._running.append((start(copy, mutant.tests, HANG_SECONDS, first=False, backend=backend), mutant))
            for child, mutant, hung, seconds in self._ended():
                child.copy.restore()
                status, by = verdict_of(child, hung=hung)
                found[mutant.id] = Verdict(mutant.id, status, by, round(seconds, 2), mutant.protects)
                if self._show:
                    print(f"{len(found):4} {status:14} {seconds:5.1f} s  {mutant.id}", flush=True)
        return found

    def stop(self) -> None:
        """End what still runs: nothing does, unless the run was interrupted."""
        for child, _ in self._running:
            os.killpg(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
        self._running.clear()

    def _ended(self) -> list[tuple[Child, Any, bool, float]]:
        """Wait until a child ends, and return those that did."""
        while True:
            done = []
            for entry in list(self._running):
                end = ended(entry[0])
                if end is not None:
                    self._running.remove(entry)
                    self._free.append(entry[0].copy)
                    done.append((*entry, *end))
            if done:
                return done
            time.sleep(POLL_SECONDS)


def verdict_of(child: Child, *, hung: bool) -> tuple[str, str]:
    """Say what became of a mutant, and by which test."""
    if hung:
        return "killed", "hang"
    summary = child.summary
    code = summary.get("code")
    if code in PASSED:
        return "survived", ""
    if code == 1 and summary["failed"] and not summary["around"].startswith(Copy.ran_from):
        return "killed", summary["failed"]
    tail = child.output.read_text(encoding="utf-8", errors="replace")[-1_500:]
    return "broken", summary.get("around") or tail


def report(verdicts: Sequence[Verdict], seconds: float) -> None:
    """Print what a person has to look at, and one closing line."""
    numbers = Counter(verdict.status for verdict in verdicts)
    for verdict in verdicts:
        if verdict.status != "killed" or verdict.by == "hang":
            print(f"{verdict.status:14} {verdict.id}\n    protects: {verdict.protects}\n    {verdict.by}")
    parts = [f"{len(verdicts)} mutants", f"{numbers['killed']} killed", f"{numbers['survived']} survived"]
    parts += [f"{numbers[status]} {status}" for status in ("broken", "does not apply") if numbers[status]]
    print(f"{', '.join(parts)} ({seconds:.0f} s)")


def main() -> int:
    """Run the list; return 0 if every mutant was killed."""
    parser = argparse.ArgumentParser(description="Break the code on purpose; fail if the tests do not notice.")
    parser.add_argument("--only", action="append", metavar="ID", help="only those whose id begins so")
    parser.add_argument("--list", action="store_true", help="list the mutants and what each protects")
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="N", help=f"mutants at once, here {WORKERS}")
    parser.add_argument("--show", action="store_true", help="print each verdict as it comes")
    options = parser.parse_args()
    mutants = [one for one in read_list() if not options.only or one.id.startswith(tuple(options.only))]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.id:44} {mutant.file:12} {mutant.protects}")
        return 0
    if not mutants:
        print("no mutant has such an id", file=sys.stderr)
        return 2
    started = time.monotonic()
    preload()
    with copies(max(1, options.workers)) as made:
        run = Run(made, show=options.show)
        try:
            verdicts = run.judge(mutants)
        finally:
            run.stop()
    seconds = time.monotonic() - started
    if options.json:
        print(json.dumps({"seconds": round(seconds, 1), "mutants": [asdict(one) for one in verdicts]}, indent=2))
    else:
        report(verdicts, seconds)
    return 0 if all(verdict.status == "killed" for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
