"""Break the code in every way that `operators.py` knows, and see how much of it the tests notice.

First every test runs once, on moto, on a copy that notes which statements it reaches. Then each mutant meets the tests
that reach it: a few that are quick, and if none of these notices, others as far as they fit in the time. What survives
and is not in `equivalents.toml` is a test to write.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import random
import re
import sys
import time
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mutants.operators import Change, changes_of, statements_of
from mutants.run import MOTO, PASSED, ROOT, WORKERS, Child, Copy, Mutant, copies, ended, preload, start

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
FILES = ("store.py", "claim.py", "executor.py", "consumer.py", "outbox.py", "decision.py")
FOLDERS = ("tests/unit", "tests/contract", "tests/functional", "tests/crash")
# What tells of a file's text, and not of what it does, would notice every mutant, or the notes themselves.
LEFT_OUT = re.compile(
    r"test_(architecture|doctests|demo\w*|cli\w*|local_(worker|up|template)|killed_workers|real_kill)\.py"
)
# A file of tests that takes longer than this to be mapped is left out.
FILE_SECONDS = 300.0
QUICK_TESTS, QUICK_SECONDS = 12, 3.0
MOST_TESTS, MOST_SECONDS = 400, 60.0
# Added to five times what the tests took when they were mapped: the machine may be busier now.
HANG_SECONDS = 20.0
POLL_SECONDS = 0.01
# The name under which the notes are taken; no module has it.
NOTE = "__reached__"


@dataclass
class Reached:
    """What the tests reach.

    Args:
        seconds: How long each test took.
        tests: Tests by file and line of a statement.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    tests: dict[tuple[str, int], list[str]] = field(default_factory=lambda: defaultdict(list))

    @functools.cached_property
    def reach(self) -> Counter[str]:
        """How many statements each test reaches."""
        return Counter(test for tests in self.tests.values() for test in tests)

    def of(self, change: Change, constants: dict[str, list[tuple[str, int]]]) -> list[str]:
        """Return the tests that reach a change, those first that reach little else, and of different functions."""
        lines = [(change.file, line) for line in change.lines] or constants.get(change.constant or "", [])
        if not lines:
            lines = [each for each in self.tests if each[0] == change.file]
        by_function: dict[str, list[str]] = defaultdict(list)
        for test in {test for line in lines for test in self.tests.get(line, ())}:
            by_function[test.partition("[")[0]].append(test)
        for tests in by_function.values():
            tests.sort(key=lambda test: (self.reach[test], self.seconds[test], test))
        # One of each function, then a second of each, and so on.
        ranked = [(rank, self.reach[test], test) for tests in by_function.values() for rank, test in enumerate(tests)]
        return [test for _, _, test in sorted(ranked)]


class Noter:
    """A pytest plugin: notes what each test reaches, and how long it took."""

    def __init__(self) -> None:
        """Nothing was reached so far."""
        self.reached: set[tuple[str, int]] = set()
        self.notes: dict[str, tuple[float, list[tuple[str, int]]]] = {}
        self._failed = False
        self._seconds = 0.0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin anew."""
        self.reached.clear()
        self._failed, self._seconds = False, 0.0

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a failure and the time."""
        self._failed = self._failed or not report.passed
        self._seconds += report.duration

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Keep what a test that passed has reached."""
        if not self._failed:
            self.notes[nodeid] = self._seconds, sorted(self.reached)

    def pytest_sessionfinish(self) -> None:
        """Write it down, where the child runs."""
        Path("reached.json").write_text(json.dumps(self.notes), encoding="utf-8")


def _noting(file: str, source: str) -> str:
    """Return a file that notes each statement before it runs it."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    seen: set[int] = set()
    for function in functions:
        for body in statements_of(function):
            if id(body) not in seen:
                seen.add(id(body))
                noted = [each for node in body for each in (_note(file, node.lineno), node)]
                is_text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
                body[:] = noted[1:] if is_text else noted
    return ast.unparse(ast.fix_missing_locations(tree))


def _note(file: str, line: int) -> ast.stmt:
    return ast.parse(f"{NOTE}.add(({file!r}, {line}))").body[0]


def reached_by_the_tests(made: Sequence[Copy]) -> Reached:
    """Run every test once on copies that take notes; return what each test reaches."""
    import builtins

    # Handed to the children as they are forked; each has a set of its own.
    noter = Noter()
    setattr(builtins, NOTE, noter.reached)
    for copy in made:
        for path in sorted((copy.root / "src" / "onceq").glob("*.py")):
            path.write_text(_noting(path.name, path.read_text(encoding="utf-8")), encoding="utf-8")
    waiting = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).glob("test_*.py"))
        if not LEFT_OUT.fullmatch(path.name)
    ]
    found = Reached()
    running: list[Child] = []
    free = list(made)
    while waiting or running:
        while waiting and free:
            copy = free.pop()
            (copy.root / "reached.json").unlink(missing_ok=True)
            running.append(
                start(copy, [waiting.pop()], FILE_SECONDS, first=True, backend=MOTO, plugin=noter, stop=False)
            )
        for child in list(running):
            if ended(child) is not None:
                running.remove(child)
                free.append(child.copy)
                path = child.copy.root / "reached.json"
                notes = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
                for test, (seconds, lines) in notes.items():
                    found.seconds[test] = seconds
                    for file, line in lines:
                        found.tests[file, line].append(test)
        time.sleep(POLL_SECONDS)
    return found


def lines_by_constant() -> dict[str, list[tuple[str, int]]]:
    """Return where each name in capitals is used, inside functions."""
    used: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path in sorted((ROOT / "src" / "onceq").glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for statement in (each for body in statements_of(function) for each in body):
                    for node in ast.walk(statement):
                        if isinstance(node, ast.Name) and node.id.isupper():
                            used[node.id].append((path.name, statement.lineno))
    return used


@dataclass
class Result:
    """What became of a change: ``killed``, ``survived`` or ``equivalent``, and by which test or for which reason."""

    change: Change
    status: str
    by: str


class Measure:
    """One run of generated mutants."""

    def __init__(self, made: Sequence[Copy], reached: Reached, *, show: bool) -> None:
        """Use these copies, whose framework is as it should be; ``show`` prints each verdict as it comes."""
        self._free = list(made)
        self._reached = reached
        self._constants = lines_by_constant()
        self._sources = {name: (ROOT / "src" / "onceq" / name).read_text(encoding="utf-8") for name in FILES}
        self._show = show

    def run(self, changes: Sequence[Change]) -> list[Result]:
        """Run each change with its quick tests, and what survives these with the others."""
        known = equivalents()
        found: dict[str, Result] = {}
        waiting = [(change, self._rounds_of(change)) for change in reversed(changes)]
        running: list[tuple[Child, Change, list[list[str]]]] = []
        while waiting or running:
            while waiting and self._free:
                change, rounds = waiting.pop()
                if not rounds:
                    status = "equivalent" if change.name in known else "survived"
                    self._tell(found, Result(change, status, known.get(change.name, "")))
                    continue
                running.append((self._start(change, rounds[0]), change, rounds[1:]))
            for entry in list(running):
                child, change, rounds = entry
                end = ended(child)
                if end is None:
                    continue
                running.remove(entry)
                self._free.append(child.copy)
                child.copy.restore()
                summary = child.summary
                if not end[0] and summary.get("code") in PASSED:
                    waiting.append((change, rounds))
                else:
                    by = "hang" if end[0] else summary.get("failed") or "what is around its tests"
                    self._tell(found, Result(change, "killed", by))
            time.sleep(POLL_SECONDS)
        return [found[change.name] for change in changes]

    def _tell(self, found: dict[str, Result], result: Result) -> None:
        found[result.change.name] = result
        if self._show:
            print(f"{len(found):4} {result.status:10} {result.by}  {result.change.name}", flush=True)

    def _start(self, change: Change, tests: Sequence[str]) -> Child:
        copy, source = self._free.pop(), self._sources[change.file]
        copy.apply(Mutant(change.name, change.file, ((source, change.applied_to(source)),), (), ""))
        limit = HANG_SECONDS + 5 * sum(self._reached.seconds[test] for test in tests)
        return start(copy, tests, limit, first=False, backend=MOTO)

    def _rounds_of(self, change: Change) -> list[list[str]]:
        """Return the tests of a change: those that are quick, and as many others as fit; no empty list."""
        tests = self._reached.of(change, self._constants)
        quick = self._that_fit(tests, QUICK_TESTS, QUICK_SECONDS)
        rest = self._that_fit([test for test in tests if test not in quick], MOST_TESTS, MOST_SECONDS)
        return [each for each in (quick, rest) if each]

    def _that_fit(self, tests: Iterable[str], most: int, seconds: float) -> list[str]:
        fitting: list[str] = []
        for test in tests:
            seconds -= self._reached.seconds[test]
            if len(fitting) == most or (fitting and seconds < 0):
                break
            fitting.append(test)
        return fitting


def equivalents() -> dict[str, str]:
    """Return the names of the changes that no test can notice, with the reason."""
    groups = tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8"))["group"]
    return {name: group["reason"] for group in groups for name in group["changes"]}


def all_changes(files: Iterable[str]) -> list[Change]:
    """Return every change of these files."""
    return [
        change
        for name in files
        for change in changes_of(name, (ROOT / "src" / "onceq" / name).read_text(encoding="utf-8"))
    ]


def chosen(options: argparse.Namespace) -> list[Change]:
    """Return the changes that were asked for, in the order of the files."""
    changes = all_changes(options.file or FILES)
    if options.only:
        changes = [change for change in changes if any(text in change.name for text in options.only)]
    if options.sample is not None and options.sample < len(changes):
        picked = sorted(random.Random(options.seed).sample(range(len(changes)), options.sample))
        changes = [changes[position] for position in picked]
    return changes


def report(results: Sequence[Result], seconds: float) -> None:
    """Print the survivors, and a line for each file and for all."""
    for result in results:
        if result.status == "survived":
            print(f"survived       line {_line(result.change)}  {result.change.name}")
    for name in (*FILES, "all"):
        numbers = Counter(result.status for result in results if name in (result.change.file, "all"))
        if total := numbers.total():
            parts = ", ".join(f"{numbers[status]} {status}" for status in ("killed", "equivalent", "survived"))
            print(f"{name:14} {total} mutants, {parts}")
    print(f"{seconds:.0f} s")


def _line(change: Change) -> int:
    return (ROOT / "src" / "onceq" / change.file).read_bytes()[: change.start].count(b"\n") + 1


def main() -> int:
    """Run generated mutants; return 0 if every one was killed or is known to be equivalent."""
    parser = argparse.ArgumentParser(description="Break the code in every small way; say what the tests do not notice.")
    parser.add_argument("--sample", type=int, metavar="N", help="so many, chosen by the seed; all without it")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--file", action="append", metavar="NAME", choices=FILES, help="only those of this file")
    parser.add_argument("--only", action="append", metavar="TEXT", help="only those whose name has this text in it")
    parser.add_argument("--list", action="store_true", help="print their names, and run nothing")
    parser.add_argument("--show", action="store_true", help="print each verdict as it comes")
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="N", help=f"at once, here {WORKERS}")
    parser.add_argument(
        "--map", type=Path, metavar="FILE", help="keep there what the tests reach, or read it from there"
    )
    options = parser.parse_args()
    changes = chosen(options)
    if options.list:
        print("\n".join(change.name for change in changes))
        return 0
    # Processes that the tests start import from the copies.
    os.environ.pop("PYTHONPATH", None)
    started = time.monotonic()
    preload()
    if options.map and options.map.exists():
        reached = read_map(options.map)
    else:
        with copies(options.workers) as made:
            reached = reached_by_the_tests(made)
        if options.map:
            write_map(reached, options.map)
    with copies(options.workers) as made:
        results = Measure(made, reached, show=options.show).run(changes)
    report(results, time.monotonic() - started)
    return 0 if all(result.status != "survived" for result in results) else 1


def read_map(path: Path) -> Reached:
    """Read what `write_map` wrote."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    names = [name for name, _ in raw["seconds"]]
    tests = {(file, line): [names[number] for number in numbers] for file, line, numbers in raw["tests"]}
    return Reached(dict(raw["seconds"]), tests)


def write_map(reached: Reached, path: Path) -> None:
    """Write what the tests reach to a file."""
    numbers = {name: number for number, name in enumerate(reached.seconds)}
    tests = [(*line, [numbers[name] for name in names]) for line, names in reached.tests.items()]
    path.write_text(json.dumps({"seconds": [*reached.seconds.items()], "tests": tests}), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
