"""A project outside the repository that has the framework as a vendored wheel. `make adoption` runs this."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from template.reading import Stack, _Loader, load_template

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
PROJECT = Path(__file__).parent / "project"
# What a team should have to write for two queues, a ten-minute job, a secret and its own logger.
MOST_LINES = 40
SECONDS = 600  # for one command, on a machine that does other things too
# Environments are made and the artefact is built inside the first test that needs them.
pytestmark = pytest.mark.timeout(3 * SECONDS)


@dataclass(frozen=True)
class Adopted:
    """The project in a folder of its own.

    Args:
        folder: Its root.
        wheel: The vendored framework.
        python: The Python of an environment that has the wheel, what it depends on, and its test kit.
    """

    folder: Path
    wheel: Path
    python: Path

    def run(
        self, *words: str | Path, path: str = os.environ["PATH"], variables: Mapping[str, str] | None = None
    ) -> str:
        """Run a command in the project, away from everything of the checkout; return what it said."""
        return run(words, self.folder, {"PATH": path, **(variables or {})})


def run(words: tuple[str | Path, ...], folder: Path, variables: Mapping[str, str]) -> str:
    """Run a command to its end, with an environment of its own; fail with what it said."""
    # HTTPS and pip may be configured by the machine; of Python, AWS and ours nothing is passed on.
    foreign = ("PYTHON", "VIRTUAL_ENV", "AWS_", "ONCEQ_", "POWERTOOLS_", "PYTEST_", "COVERAGE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    environment |= {"SAM_CLI_TELEMETRY": "0", "AWS_DEFAULT_REGION": "us-east-1", **variables}
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, f"{words}\n{ended.stdout}"
    return ended.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Adopted:
    """The project laid out, with the wheel of this tree in `vendor/` and an environment made of that wheel."""
    folder = tmp_path_factory.mktemp("adopted") / "studio"
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    vendor = folder / "vendor"
    run((sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", vendor, ROOT), folder, {})
    [wheel] = vendor.glob("onceq-*.whl")
    shutil.copy(ROOT / "src" / "requirements.txt", vendor / "pins.txt")
    for requirements in folder.rglob("requirements*.txt"):
        text = requirements.read_text(encoding="utf-8")
        requirements.write_text(text.replace("VERSION", wheel.name.split("-")[1]), encoding="utf-8")
    run((sys.executable, "-m", "venv", folder / ".venv"), folder, {})
    python = folder / ".venv" / "bin" / "python"
    # Resolved, not only unpacked: what the wheel says that it needs is what the project gets.
    constraints = ("-c", ROOT / "requirements" / "dev.txt")
    run((python, "-m", "pip", "install", "-q", "--no-compile", *constraints, "-r", "requirements-dev.txt"), folder, {})
    return Adopted(folder, wheel, python)


@pytest.fixture(scope="module")
def artefact(project: Adopted) -> Path:
    """What `sam build` makes of it, for the Python that this machine has."""
    version = os.environ.get("LAMBDA_PYTHON", "3.13")
    lambda_python = run((ROOT / "tools" / "find-python", version), ROOT, {}).strip()
    path = f"{Path(lambda_python).parent}{os.pathsep}{os.environ['PATH']}"
    project.run(sam(), "build", "--parameter-overrides", f"Runtime=python{version}", path=path)
    return project.folder / ".aws-sam" / "build"


def sam() -> Path:
    """Return the SAM CLI, which has an environment of its own."""
    return ROOT / ".venv-sam" / "bin" / "sam"


def written_lines(text: str) -> int:
    """Count the lines of Python that an author wrote: not blank, not a comment, not a docstring."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    prose = {
        number
        for node in nodes
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(text.splitlines(), start=1)
    return sum(1 for number, line in lines if number not in prose and line.strip() and not line.strip().startswith("#"))


def test_its_author_writes_few_lines() -> None:
    """Two queues, a ten-minute job, a secret, a logger of its own: at most 40 lines, none too long to be one."""
    texts = [path.read_text(encoding="utf-8") for path in (PROJECT / "src").rglob("*.py")]

    assert 20 <= sum(map(written_lines, texts)) <= MOST_LINES
    assert not [line for text in texts for line in text.splitlines() if len(line) > 120 or ";" in line]
    assert (
        written_lines('"""Prose\nover two lines."""\n\n# a comment\nx = 1  # code\ny = """text\nin two lines"""\n') == 3
    )


def resources() -> dict[str, Any]:
    """Return the resources of the project's template, as it declares them."""
    template = yaml.load((PROJECT / "template.yaml").read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a SafeLoader
    return dict(template["Resources"])


def functions() -> dict[str, Any]:
    """Return the properties of its functions."""
    return {name: one["Properties"] for name, one in resources().items() if one["Type"] == "AWS::Serverless::Function"}


def allowed(policies: list[dict[str, Any]], table: str) -> set[str]:
    """Return what policies allow on a table and its index."""
    return {
        action
        for policy in policies
        for statement in policy.get("PolicyDocument", policy)["Statement"]
        if table in json.dumps(statement["Resource"])
        for action in (statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]])
    }


def test_it_asks_for_what_the_framework_has_to_serve() -> None:
    """The project is the hard case that it claims to be, and shares no name with the repository's own template."""
    fifo = [name for name, one in resources().items() if one.get("Properties", {}).get("FifoQueue")]
    source = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "src").rglob("*.py"))

    assert not resources().keys() & load_template()["Resources"].keys()
    assert fifo == ["BillingQueue", "BillingLetters"]
    assert functions()["RenderFunction"]["Timeout"] == 900
    assert "max_duration=600" in source
    assert "inject_lambda_context(app.consumer)" in source
    assert resources()["FarmSecret"]["Properties"].keys() == {"Description", "GenerateSecretString"}


def test_its_template_has_what_the_framework_needs() -> None:
    """What `docs/resources.md` asks for: the tables' shape, the partial batch response, the permissions and no more."""
    ours, theirs = Stack(), resources()
    pairs = {"ClaimsTable": "JobClaims", "OutboxTable": "JobOutbox"}
    same = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "TimeToLiveSpecification", "BillingMode")
    roles = {"RenderFunction": "ConsumerRole", "OutboxFunction": "RelayRole", "SweepFunction": "RecoveryRole"}
    mappings = [one["Events"] for one in functions().values() if one["Handler"] == "main.consumer"]

    for table, its in pairs.items():
        declared = ours.properties(table)
        assert [theirs[its]["Properties"].get(name) for name in same] == [declared.get(name) for name in same]
        for function, role in roles.items():
            asked = allowed(ours.properties(role)["Policies"], table)
            assert allowed(functions()[function]["Policies"], its) == asked
    assert len(mappings) == 2
    for [mapping] in (events.values() for events in mappings):
        assert mapping["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_it_imports_the_wheel_and_nothing_of_the_checkout(project: Adopted) -> None:
    """`onceq` is the one of the project's environment, and no path leads into the repository."""
    code = "import json, onceq, os, sys; print(json.dumps([onceq.__file__, *map(os.path.realpath, sys.path)]))"
    imported, *path = json.loads(project.run(project.python, "-c", code))

    assert Path(imported).is_relative_to(project.folder / ".venv")
    assert path
    assert not [entry for entry in path if Path(entry).is_relative_to(ROOT)]


def test_its_own_tests_pass(project: Adopted) -> None:
    """Plain functions, both queues on moto, proofs with the wheel's test kit: with warnings as errors."""
    said = project.run(project.python, "-m", "pytest", "-q", "-p", "no:cacheprovider")

    assert re.search(r"^7 passed", said, re.MULTILINE), said


def test_its_code_has_types(project: Adopted) -> None:
    """The wheel's types serve a project that is checked strictly, and its tests with the test kit."""
    words = ("-m", "mypy", "--strict", "--python-executable", project.python, "src", "tests/test_once.py")
    said = project.run(sys.executable, *words, variables={"MYPYPATH": "src"})

    assert "no issues found in 3 source files" in said


def test_the_wheels_command_finds_the_function_of_a_message(project: Adopted) -> None:
    """`onceq invoke` runs the project's own event against its own template, by the queue that the message is from."""
    said = project.run(project.python, "-m", "onceq", "invoke", "events/bill.json", "--app", "main", "--json")
    answer = json.loads(said.splitlines()[-1])

    assert answer["response"] == {"batchItemFailures": []}, said
    [record] = answer["records"]
    assert (record["job_type"], record["status"]) == ("bill", "completed")


def test_its_template_is_valid(project: Adopted) -> None:
    """`sam validate --lint` has nothing to say."""
    said = project.run(sam(), "validate", "--lint")

    assert "is a valid SAM Template" in said


def test_sam_builds_it_with_the_vendored_framework(project: Adopted, artefact: Path) -> None:
    """Every function's artefact holds the wheel's files, byte for byte, in the versions that were pinned."""
    functions = [folder for folder in artefact.iterdir() if folder.is_dir()]
    pins = dict(re.findall(r"^([\w.-]+)==(.+)$", (ROOT / "src" / "requirements.txt").read_text(), re.MULTILINE))

    assert {folder.name for folder in functions} == {
        "RenderFunction",
        "BillingFunction",
        "OutboxFunction",
        "SweepFunction",
    }
    with zipfile.ZipFile(project.wheel) as wheel:
        modules = [name for name in wheel.namelist() if name.startswith("onceq/")]
        assert "onceq/application.py" in modules
        for folder in functions:
            assert not [name for name in modules if (folder / name).read_bytes() != wheel.read(name)]
            shipped = {path.name.removesuffix(".dist-info").replace("_", "-") for path in folder.glob("*.dist-info")}
            assert shipped - {f"onceq-{project.wheel.name.split('-')[1]}"} == {
                f"{name}-{pin}" for name, pin in pins.items()
            }


def test_its_artefact_is_whole(project: Adopted, artefact: Path) -> None:
    """The handlers are imported from the artefact alone, by the Python that Lambda runs."""
    version = os.environ.get("LAMBDA_PYTHON", "3.13")
    lambda_python = run((ROOT / "tools" / "find-python", version), ROOT, {}).strip()
    # -I: neither the folder nor the user's own packages are on the path; -S: nor what is installed for this Python.
    code = "import sys; sys.path.insert(0, '.'); import main, onceq; main.relay, main.recovery; print(onceq.__file__)"
    said = run((lambda_python, "-I", "-S", "-c", code), artefact / "RenderFunction", {})

    assert Path(said.strip()).resolve().is_relative_to(artefact)
