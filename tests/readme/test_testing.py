"""The page of testing: its files are a project with green tests, its commands print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from onceq import testing
from onceq.local import AWS_VARIABLES, child_environment
from onceq.testing import Diagnosis, Environment
from onceq.testing.on_trial import FALSY
from onceq.testing.scenarios import once, scenarios_of, sent_again

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "src" / "jobs" / "payments.py"
FILES = re.findall(r"^<!-- file: ([\w/.]+) -->\n```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(
    r"^```console\n\$ \.venv/bin/python -m onceq ((?:[^\n]*\\\n)*[^\n]*\n)(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
)
# What the page says to put into the list of the application.
JOBS = re.findall(r"`((?:labels|orders)\.\w+)`", PAGE.partition("<!-- file:")[0])
APP = f"""
from onceq import App
from jobs import labels, orders

app = App([{", ".join(JOBS)}])
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page in a folder, with what it takes as given."""
    folder = tmp_path_factory.mktemp("page")
    given = {"src/jobs/__init__.py": "", "src/app.py": APP, "pytest.ini": "[pytest]\n"}
    for name, text in [*FILES, *given.items()]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, as wide as the page."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ONCEQ_", "PYTEST_"))}
    environment = child_environment({**plain, **AWS_VARIABLES, "COLUMNS": "120", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    path = os.pathsep.join([str(folder / "src"), environment["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(600)  # four proofs, in a process of their own
def test_the_tests_of_the_page_pass(project: Path) -> None:
    """Whoever copies them has tests that are green, and finds the wrong ones out."""
    tests = sum(text.count("\ndef test_") for _, text in FILES)

    done = run(project, "-m", "pytest", "-q", "-p", "onceq.testing.plugin", "-p", "no:cacheprovider", "tests")

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests + 1} passed in" in done.stdout  # one has two cases


def test_the_files_of_the_page_take_no_others_place() -> None:
    """Whoever copies all of them into this repository still has its examples."""
    assert len(FILES) == len({name for name, _ in FILES}) > 0
    assert [name for name, _ in FILES if (ROOT / name).exists()] == []


def close(text: str) -> str:
    """Return a text with its columns moved together."""
    return re.sub(" {2,}", "  ", text)


def shown(text: str) -> re.Pattern[str]:
    """Return what output has to look like: a line ``…`` stands for any lines, and scenarios may become more."""
    parts = ["(?:.*\n)*?" if line == "…" else re.escape(line) + "\n" for line in close(text).splitlines()]
    return re.compile(re.sub(r"\d+\\ scenarios", r"\\d+\\ scenarios", "".join(parts)))


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_a_command_prints_what_the_page_shows(number: int, project: Path) -> None:
    """Word for word; the number of scenarios, and how far apart columns are, may differ."""
    words, output = COMMANDS[number]
    arguments = shlex.split(words.replace("\\\n", " "))
    is_example = arguments[1].startswith(f"jobs.{EXAMPLE.stem}:")
    if is_example and not EXAMPLE.exists():
        pytest.skip("the example job was deleted")
    folder = ROOT if is_example else project

    done = run(folder, "-m", "onceq", *arguments)

    assert shown(output).fullmatch(close(done.stdout)), done.stdout + done.stderr


def test_there_are_commands() -> None:
    """One job that takes effect once, one that does not."""
    assert [shlex.split(words.replace("\\\n", " "))[0] for words, _ in COMMANDS] == ["prove", "prove"]


def table(name: str) -> list[list[str]]:
    """Return the rows of a table of the page, without its head."""
    text = PAGE.partition(f"<!-- table: {name} -->\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return rows[2:]


def test_every_diagnosis_has_a_row_that_says_what_to_do() -> None:
    """In the words that a report has, in the order in which one is named before another; the advice is the code's."""
    rows = table("diagnoses")

    assert rows == [[f"`{one.name}`: {one}", one.advice] for one in Diagnosis]
    assert all(len(row[1]) > 20 for row in rows)


def test_every_public_name_of_the_kit_has_a_row() -> None:
    """One of the table of names, and no other: whoever looks for a name finds what it is for."""
    named = [name for row in table("names") for name in re.findall(r"`(\w+)`", row[0])]

    assert sorted(named) == testing.__all__


def test_every_group_of_scenarios_has_a_row() -> None:
    """Those of a job, those of a consumer, and no others."""
    from onceq.testing.points import Point

    points = [Point("claim"), Point("effect charge", effect="charge"), Point("complete"), Point("the answer")]
    scenarios = [once(), *scenarios_of(points, first=4, keys_last=None, most_attempts=5, others=1), sent_again(1.0)]
    groups = {scenario.group for scenario in scenarios} | {"lost", *(["result"] if FALSY else [])}

    assert {row[0].strip("`") for row in table("scenarios")} == groups
    assert all(re.fullmatch(r"G\d+(, G\d+)*", row[3]) for row in table("scenarios"))


def test_what_the_page_calls_in_an_environment_is_there() -> None:
    """A method that was renamed would be looked for in vain."""
    named = set(re.findall(r"`env\.(\w+)", PAGE)) | set(re.findall(r"onceq_env\.(\w+)", PAGE))
    known = {*dir(Environment), *re.findall(r"^        (\w+): ", Environment.__doc__ or "", re.MULTILINE)}

    assert {"drain", "record"} <= named <= known


def test_what_an_environment_has_is_on_the_page_or_the_kits_own() -> None:
    """Whoever looks at its names knows which of them stay."""
    own = {"app_given", "check", "close", "patience", "process", "used_by"}

    named = set(re.findall(r"`(?:onceq_)?env\.(\w+)", PAGE))

    assert {name for name in dir(Environment) if not name.startswith("_")} - named == own
    assert set(re.findall(r"``(\w+)``", (Environment.__doc__ or "").partition("The kit's own")[2])) == own
