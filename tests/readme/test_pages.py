"""The pages of the documentation do what they say: their Python runs, and what they name is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kit.shared import open_world
from kit.world import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.clock import FrozenClock
    from kit.world import World

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
# The README itself is always among them: a missing page fails.
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
# What the reader is to write, or what a command makes.
NOT_YET = {"src/jobs/anything.py", ".aws-sam/", ".aws-sam", ".onceq/", "env.json"}
# The user's own: what stands there may be deleted, with the example job or after it.
EXAMPLE = ROOT / "src" / "jobs" / "payments.py"
OF_THE_EXAMPLE = ("src/jobs/", "tests/jobs/", "demo/")
NEEDS = "<!-- needs: a queue and a claims table -->"
BLOCK = re.compile(r"^(?P<needs><!-- needs: .* -->\n+)?```python\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def world(clock: FrozenClock) -> Iterator[World]:
    """Tables and queues on locked moto, in this process."""
    with open_world(clock) as opened:
        yield opened


def environment(world: World) -> dict[str, str]:
    """Return what the template gives a function."""
    queue = world.settings.queue("default")
    queues = {"default": {"url": queue.url, "arn": queue.arn, "dlq_url": queue.dlq_url}}
    return {"ONCEQ_QUEUES": json.dumps(queues), "ONCEQ_CLAIMS_TABLE": TABLE}


def pages(*, with_python: bool = False) -> list[Path]:
    """Return the pages, or those with Python in them; the README is one of both."""
    return [page for page in PAGES if page == README or not with_python or "```python" in page.read_text("utf-8")]


def name_of(page: Path) -> str:
    """Return a page's name in the project."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(with_python=True), ids=name_of)
def test_the_python_of_a_page_runs(page: Path, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Block after block in one namespace; only a block that says so finds queues and a table."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))

    assert len(blocks) == text.count("```python") > 0
    for block in blocks:
        if block["needs"]:
            assert block["needs"].strip() == NEEDS
            for name, value in environment(world).items():
                monkeypatch.setenv(name, value)
        line = text.count("\n", 0, block.start("code"))
        # Padded, so that a traceback shows the page's own line.
        exec(compile("\n" * line + block["code"], str(page), "exec"), vars(module))  # noqa: S102 - our own page
    for name, value in list(vars(module).items()):
        if name.startswith("test_"):
            value()


def test_the_job_of_the_readme_runs_as_a_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the README sends is consumed by what it composes, once."""
    for name, value in environment(world).items():
        monkeypatch.setenv(name, value)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for block in BLOCK.finditer(README.read_text(encoding="utf-8")):
        exec(compile(block["code"], str(README), "exec"), vars(module))  # noqa: S102 - as above
    page: Any = module
    url = world.settings.queue("default").url
    (message,) = world.sqs.receive_message(QueueUrl=url)["Messages"]

    event = {"Records": [world.raw(message["Body"]), world.raw(message["Body"])]}
    assert page.consumer(event) == {"batchItemFailures": []}

    status = page.app.lookup(page.process_payment, page.sent.key)
    assert (status.status, status.attempts) == ("completed", 1)


def text_of_all() -> str:
    """Return the text of every page."""
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def test_every_make_verb_that_a_page_names_exists() -> None:
    """A newcomer types what stands here."""
    code = re.findall(r"`([^`\n]+)`|^\$ (.+)$", text_of_all(), re.MULTILINE)
    named = {verb for pair in code for verb in re.findall(r"\bmake ([a-z][a-z-]*)", " ".join(pair))}
    verbs = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert {"demo", "test"} <= named <= verbs


def test_every_command_that_a_page_names_exists() -> None:
    """The same for ``python -m onceq``."""
    named = set(re.findall(r"(?:python -m onceq|`onceq) ([a-z]+)", text_of_all()))
    command = [sys.executable, "-m", "onceq", "--help"]
    known = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True, check=True).stdout

    assert named
    assert all(re.search(rf"\b{name}\b", known) for name in named), named


def paths_in(text: str) -> Iterator[str]:
    """Find what reads as a path of the project: in code, with a slash or a known ending."""
    code = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^\$ (.+)$", text, re.MULTILINE)
    for word in (word for snippet in code for word in re.split(r"[\s=,;:()'\"]+", snippet)):
        if re.fullmatch(r"\.?[a-z_][\w.-]*(/[\w.-]+)*/?", word, re.IGNORECASE) and (
            re.fullmatch(r"(src|docs|tests|events|requirements|demo|tools)/.*", word)
            or word.endswith((".md", ".yaml", ".toml"))
            or ("/" in word and word.endswith((".py", ".json", ".txt")))
        ):
            yield word


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    """Paths start at the project's root, or at src/ as imports do; links start at the page."""
    text = page.read_text(encoding="utf-8")
    paths = {path for path in paths_in(text) if path not in NOT_YET}
    links = {link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if not link.startswith(("http", "mailto:"))}

    if not EXAMPLE.exists():
        paths = {path for path in paths if not path.startswith(OF_THE_EXAMPLE)}

    missing = {path for path in paths if not any((base / path).exists() for base in (ROOT, ROOT / "src", page.parent))}
    assert not missing
    assert not {link for link in links if not (page.parent / link).exists()}


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_no_page_names_an_address_or_a_folder_of_one_machine(page: Path) -> None:
    """A page is read elsewhere; and it promises "effectively once", which is what can be kept."""
    text = page.read_text(encoding="utf-8")

    assert not re.search(r"(?<![\w.])/(?:root|home|work|tmp|Users)/", text)
    assert "exactly once" not in text.lower()
