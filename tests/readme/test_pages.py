"""The pages of the documentation do what they say: their Python runs, and what they name is there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import types
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kit.shared import open_world
from kit.world import OUTBOX_TABLE, TABLE, create_table
from onceq import App, JobType
from onceq.cli import COMMANDS
from onceq.options import parser_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.clock import FrozenClock
    from kit.world import World

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
EFFECTS = ROOT / "docs" / "effects.md"
# The README itself is always among them: a missing page fails.
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
# What the reader is to write, or what a command makes.
NOT_YET = {"src/jobs/anything.py", ".aws-sam/", ".aws-sam", ".onceq/", "env.json"}
# The user's own: what stands there may be deleted, with the example job or after it.
EXAMPLE = ROOT / "src" / "jobs" / "payments.py"
OF_THE_EXAMPLE = ("src/jobs/", "tests/jobs/", "demo/")
FILE = "<!-- file: "
NEEDS = "<!-- needs: queues and tables -->"
# What the jobs of the pages write themselves: the user's own tables, each with its key.
USERS_TABLES = {"Orders": "order_id", "Baskets": "order_id", "Stock": "sku"}
BLOCK = re.compile(
    r"^(?P<needs><!-- (?:needs|file): [^\n]* -->\n+)?```python\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)


@contextmanager
def users_world(clock: FrozenClock) -> Iterator[World]:
    """Open tables and queues on locked moto, in this process, the user's own tables among them."""
    with open_world(clock) as opened:
        for name, key in USERS_TABLES.items():
            create_table(opened.dynamodb, name, key=key)
        yield opened


@pytest.fixture
def world(clock: FrozenClock) -> Iterator[World]:
    """Tables and queues, for a whole test."""
    with users_world(clock) as opened:
        yield opened


def environment(world: World) -> dict[str, str]:
    """Return what the template gives a function."""
    queue = world.settings.queue("default")
    queues = {"default": {"url": queue.url, "arn": queue.arn, "dlq_url": queue.dlq_url}}
    return {"ONCEQ_QUEUES": json.dumps(queues), "ONCEQ_CLAIMS_TABLE": TABLE, "ONCEQ_OUTBOX_TABLE": OUTBOX_TABLE}


def pages(*, with_python: bool = False) -> list[Path]:
    """Return the pages, or those with Python in them; the README is one of both."""
    return [page for page in PAGES if page == README or not with_python or "```python" in page.read_text("utf-8")]


def name_of(page: Path) -> str:
    """Return a page's name in the project."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(with_python=True), ids=name_of)
def test_the_python_of_a_page_runs(
    page: Path, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Block after block in one namespace; only a block that says so, or a test of `world`, finds queues and a table."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))

    assert len(blocks) == text.count("```python") > 0
    with users_world(clock) as world:
        for block in blocks:
            if (block["needs"] or "").startswith(FILE):
                continue  # a file of a project: its page's own test writes and runs it
            if block["needs"]:
                assert block["needs"].strip() == NEEDS
                for name, value in environment(world).items():
                    monkeypatch.setenv(name, value)
            line = text.count("\n", 0, block.start("code"))
            # Padded, so that a traceback shows the page's own line.
            exec(compile("\n" * line + block["code"], str(page), "exec"), vars(module))  # noqa: S102 - our own page
        tests = [value for name, value in vars(module).items() if name.startswith("test_")]
        for test in tests:
            if test.__code__.co_argcount:
                test(world)
    for test in tests:  # one may open a world of its own
        if not test.__code__.co_argcount:
            test()


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


def waiting(world: World) -> list[dict[str, Any]]:
    """Receive what waits in the jobs queue, as records of Lambda events."""
    url = world.settings.queue("default").url
    messages = world.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    for message in messages:
        world.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return [world.raw(message["Body"]) for message in messages]


def drained(world: World, page: Any) -> list[str]:
    """Consume every message until none is left, each delivered twice; return their job types."""
    job_types: list[str] = []
    while records := waiting(world):
        twice = [record | {"messageId": f"{record['messageId']}-{number}"} for record in records for number in (1, 2)]
        assert page.app.consumer({"Records": twice}) == {"batchItemFailures": []}
        job_types += [json.loads(record["body"])["job_type"] for record in records]
    return job_types


@pytest.fixture
def effects(world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the page of effects composes, served by one application, on tables and queues."""
    for name, value in environment(world).items():
        monkeypatch.setenv(name, value)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    world.dynamodb.put_item(TableName="Stock", Item={"sku": {"S": "s-1"}, "left": {"N": "1"}})
    for block in BLOCK.finditer(EFFECTS.read_text(encoding="utf-8")):
        exec(compile(block["code"], str(EFFECTS), "exec"), vars(module))  # noqa: S102 - as above
    page: Any = module
    page.app = App([value for value in vars(page).values() if isinstance(value, JobType)], hooks=[])
    return page


def test_the_chain_of_jobs_of_the_page_of_effects_happens_once(world: World, effects: Any) -> None:
    """G7, G8: stock reserved, then paid, then receipted: each message twice, each effect once."""
    assert drained(world, effects) == ["reserve_stock", "pay_order", "send_receipt"]

    stock = world.dynamodb.get_item(TableName="Stock", Key={"sku": {"S": "s-1"}})["Item"]
    order = world.dynamodb.get_item(TableName="Orders", Key={"order_id": {"S": "o-1"}})["Item"]
    assert stock["left"] == {"N": "0"}
    assert order["charge_id"] == {"S": "ch_1"}
    assert len(effects.charges) == 1


def test_a_failed_condition_on_the_page_of_effects_reads_as_the_page_says(world: World, effects: Any) -> None:
    """G7: without stock the job is rejected with the text that the page shows, and nothing else happens."""
    drained(world, effects)
    effects.place(effects.Order("o-2", "cus_1", "s-1", 500))

    assert drained(world, effects) == ["reserve_stock"]

    status = effects.app.lookup("reserve_stock", "o-2")
    assert status.status == "rejected"
    assert f"`{status.error}`" in EFFECTS.read_text(encoding="utf-8")


def test_the_other_jobs_of_the_page_of_effects_do_what_it_says(world: World, effects: Any) -> None:
    """G9: a person resolves the at-most-once job; a doubled schedule is a replay; a chain ends by itself."""
    drained(world, effects)
    effects.app.enqueue("book_with_carrier", {"order_id": "o-1"})
    effects.app.enqueue("import_page", {"number": 1, "last": 3}, key="import")
    envelope = re.search(r"```json\n(.*?)```", EFFECTS.read_text(encoding="utf-8"), re.DOTALL)
    assert envelope is not None
    scheduled = envelope[1].replace("<aws.scheduler.scheduled-time>", "2026-11-30T02:00:00Z")
    world.sqs.send_message(QueueUrl=world.settings.queue("default").url, MessageBody=scheduled)

    assert sorted(drained(world, effects)) == sorted(
        ["book_with_carrier", "nightly_report", "import_page", "import_page", "import_page"]
    )

    assert effects.app.lookup("nightly_report", "nightly_report:2026-11-30T02:00:00Z").status == "completed"
    assert effects.app.lookup("book_with_carrier", "o-1").status == "uncertain"
    assert [effects.decide("o-1"), effects.decide("o-1")] == ["done", "nothing to decide"]
    assert effects.app.lookup("book_with_carrier", "o-1").result == {"consignment": "C-7"}


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


def test_every_command_line_of_a_page_can_be_typed() -> None:
    """Its words and options are the command's own; what follows is up to the queues and tables."""
    lines = re.findall(r"^ *\$ \.venv/bin/python -m onceq ((?:.*\\\n)*.*)$", text_of_all(), re.MULTILINE)
    commands = re.findall(r"`python -m onceq ([^`…\n|]+)`", text_of_all())
    parser = parser_of(COMMANDS, "0")

    assert len(lines) >= 5
    for line in lines:
        parser.parse_args(shlex.split(line.replace("\\\n", " "), comments=True))
    for command in commands:
        assert command.split()[0] in COMMANDS


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
