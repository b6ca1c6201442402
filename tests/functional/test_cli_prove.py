"""``python -m onceq prove``: the proof from the shell: its table, its picture, its exit codes and its complaints."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.cli import main
from onceq.local import AWS_VARIABLES, child_environment
from onceq.stand_ins import Names, recorded
from onceq.testing.diagnosis import Diagnosis
from onceq.testing.timeline import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(360)  # a proof takes seconds of its own; a busy machine makes them minutes

SRC = Path(onceq.__file__).parents[1]
GATEWAY = '''
class Declined(Exception):
    """The provider says no."""


def charge(cents, *, idempotency_key=None):
    raise RuntimeError("the real provider was called")


async def mail(cents, *, idempotency_key=None):
    raise RuntimeError("a real mail was sent")
'''
JOBS = '''
from __future__ import annotations

import logging
from dataclasses import dataclass

import cli_gateway as gateway
import cli_gateway as mailer
from cli_gateway import charge

from onceq import Context, job

PREPARED = []
LIMIT = 3


@dataclass(frozen=True)
class Order:
    order_id: str
    cents: int = 500


@job("keyed", key="order_id")
def keyed(order: Order, ctx: Context):
    print("a line that the job prints")
    logging.getLogger("jobs").warning("a line that the job logs")
    try:
        return gateway.charge(order.cents, idempotency_key=ctx.idempotency_key_for("charge"))
    except gateway.Declined:
        return None


@job("unsafe", key="order_id")
def unsafe(order: Order, ctx: Context):
    return gateway.charge(order.cents)


@job("by_function")
async def by_function(order: dict, ctx: Context):
    if charge(order["cents"], idempotency_key=ctx.key)["state"] != "paid":
        raise ValueError("not paid")
    await mailer.mail(order["cents"], idempotency_key=ctx.idempotency_key_for("mail"))


@job("in_order", queue="ledger", key=lambda order: order["number"] // 10 + LIMIT)
def in_order(order: dict, ctx: Context):
    if not PREPARED:
        raise ValueError("nothing was put into the tables")
    gateway.charge(1, idempotency_key=ctx.key)


@job("stamped", key=lambda order: f"{order['order_id']}-{order['trace']}-{order['sent_at']}")
def stamped(order: dict, ctx: Context):
    return gateway.charge(1, idempotency_key=ctx.key)


@job("sends_on")
def sends_on(order: dict, ctx: Context) -> None:
    ctx.send(sends_on, order, key=f"{ctx.key}-next")


@job("the_same", key=lambda _order: "k")
def the_same(order: dict, ctx: Context) -> None:
    gateway.charge(1, idempotency_key=ctx.key)


@job("posts")
def posts(order: dict, ctx: Context) -> None:
    gateway.charge(1, idempotency_key=ctx.key).raise_for_status()


@job("sends_away")
def sends_away(order: dict, ctx: Context) -> None:
    ctx.send(idle, order, key=f"{ctx.key}-next")


@job("idle")
def idle(order: dict) -> None:
    """Do nothing."""


def prepare():
    PREPARED.append(1)
'''
APP = """
from onceq import App
import cli_jobs

SEEN = []

def note(call_next, ctx, payload):
    SEEN.append(ctx.key)
    return call_next()

app = App([cli_jobs.keyed, cli_jobs.in_order], middleware=[note])
"""
FIXED = """
from dataclasses import dataclass


class Slotted:
    __slots__ = ("pay",)

    def charge(self, cents):
        return {}


@dataclass(frozen=True)
class Frozen:
    def charge(self, cents):
        return {}


def key():
    return 1


class Carrier:
    def send(self, idempotency_key, cents):
        return cents

    @staticmethod
    def track(idempotency_key, cents):
        return cents


slotted, frozen = Slotted(), Frozen()
slotted.pay = print
"""
FILES = {
    "cli_fixed": FIXED,
    "cli_gateway": GATEWAY,
    "cli_jobs": JOBS,
    "cli_app": APP,
    "cli_broken": "raise RuntimeError('no database')",
    "cli_lacking": "import no_such_library",
}
ORDER = '{"order_id": "o-1"}'
RECORDED = ("--effects", "cli_jobs:gateway")


@dataclass(frozen=True)
class Ran:
    """What one command came to."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it printed."""
        return self.out.splitlines()


def run(*words: str, text: str = "") -> Ran:
    """Run ``onceq prove`` in this process."""
    out, err = io.StringIO(), io.StringIO()
    given = sys.stdin
    sys.stdin = io.StringIO(text)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["prove", *words])
    finally:
        sys.stdin = given
    return Ran(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with jobs and no template."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "src").mkdir()
    for name, text in FILES.items():
        (folder / "src" / f"{name}.py").write_text(text, encoding="utf-8")
    before, path, app = Path.cwd(), list(sys.path), sys.modules.pop("app", None)
    sys.path[:] = [entry for entry in path if Path(entry).resolve() != SRC]  # there stands an app of its own
    os.chdir(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "120")  # xdist's workers have 80
        yield folder
    os.chdir(before)
    sys.path[:] = path
    for name in FILES:
        sys.modules.pop(name, None)
    if app is not None:
        sys.modules["app"] = app


@pytest.fixture(scope="module")
def right(project: Path) -> Ran:
    """A job that takes effect once."""
    return run("cli_jobs:keyed", "--payload", ORDER, *RECORDED)


@pytest.fixture(scope="module")
def wrong(project: Path) -> Ran:
    """A job that does not, in a terminal of 80 columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        return run("cli_jobs:unsafe", "--payload", ORDER, *RECORDED)


def test_a_job_that_takes_effect_once_is_a_line_for_each_group_of_scenarios_and_a_verdict(right: Ran) -> None:
    """The verdict comes last, where a terminal shows it, with what nobody said; nothing else is said."""
    *table, empty, verdict, by_default = right.lines
    counts = [int(line.partition(TIMES)[2] or 1) for line in table]

    assert (right.code, right.err, empty) == (0, "a line that the job prints\n" * right.err.count("\n"), "")
    assert verdict == f"keyed takes effect once: {sum(counts)} scenarios, charge x1 in each"
    assert (
        by_default
        == "  Calls failed with ConnectionError, the default: say with fails= (--fails) what your client raises."
    )
    assert {line[:4] for line in table} == {"  ✓ "}
    assert table[0] == "  ✓ once      delivered once"
    groups = [line[4:12].strip() for line in table]
    assert len(groups) == len({*groups})
    assert counts[groups.index("crash")] > 5


def test_a_job_that_does_not_shows_where_and_draws_the_shortest_timeline(wrong: Ran) -> None:
    """Findings stand under their scenario; the picture has a lane for each worker; the verdict comes last."""
    at = wrong.lines.index("  ✗ crash     crashed after: effect charge")
    verdict = " ".join(wrong.out.rpartition("\n\n")[2].split())
    picture = " ".join(wrong.out[wrong.out.index(":\n\n") :].split())

    assert wrong.code == 1
    assert [len(line) - len(line.lstrip()) for line in wrong.lines[at + 1 : at + 3]] == [14, 16]
    assert " ".join(" ".join(wrong.lines[at + 1 : at + 3]).split()).startswith(
        f"{Diagnosis.OUTSIDE_STEP.told} (charge: 2 "
    )
    assert verdict.startswith("unsafe does not take effect once: ")
    assert verdict.endswith(
        f" scenarios fail. {Diagnosis.OUTSIDE_STEP.told} what to do: {Diagnosis.OUTSIDE_STEP.advice}"
    )
    assert all(picture.count(word) == times for word, times in (("effect: charge", 2), ("✗ dies after", 1)))
    assert picture.startswith(": w1 w2 ")
    assert "record: unsafe#o-1 completed" in picture


@pytest.mark.parametrize(("ran", "columns"), [("right", 120), ("wrong", 80)])
def test_the_lines_are_as_wide_as_the_terminal_and_have_no_colours(
    ran: str, columns: int, request: pytest.FixtureRequest
) -> None:
    """What is longer goes on below, further to the right; a file has no codes for a terminal, and 120 columns."""
    text = request.getfixturevalue(ran).out

    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= columns


@pytest.mark.usefixtures("right", "wrong")
def test_what_stood_in_is_gone_afterwards() -> None:
    """The modules have their own functions again, after a proof, a failed one, and one that could not begin."""
    import cli_gateway  # type: ignore[import-not-found]
    import cli_jobs  # type: ignore[import-not-found]

    ran = run("cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--effects", "cli_jobs:no_such")

    assert ran.code == 2
    assert cli_jobs.gateway is cli_gateway
    assert cli_jobs.charge is cli_gateway.charge


def test_what_cannot_be_replaced_leaves_the_others_as_they_were(project: Path) -> None:
    """The places before it have their own again, and the error is the one that came first."""
    names = Names(project / "src")
    gateway = names.value("--effects", "cli_jobs:gateway")

    ran = run("cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--effects", "cli_fixed:frozen.charge")

    assert (ran.code, "Traceback" in ran.err) == (2, False)
    assert names.value("--effects", "cli_jobs:gateway") is gateway


def test_a_slot_has_its_own_again(project: Path) -> None:
    """What stands in an object without a ``__dict__`` is put back, not deleted."""
    names = Names(project / "src")
    slotted = names.value("--effects", "cli_fixed:slotted")

    with recorded(["cli_fixed:slotted.pay"], {}, names) as recorder:
        slotted.pay("x")

    assert recorder is not None
    assert recorder.count() == 1
    assert slotted.pay is print


def test_a_method_of_a_class_is_called_without_its_object(project: Path) -> None:
    """So its key is found by position, too."""
    names = Names(project / "src")
    carrier = names.value("--effects", "cli_fixed:Carrier")

    for function in ("send", "track"):
        with recorded([f"cli_fixed:Carrier.{function}"], {}, names) as recorder:
            getattr(carrier(), function)("k-1", 5)
        assert recorder is not None
        assert [(call.key, call.arguments) for call in recorder.calls] == [("k-1", (5,))]
        assert getattr(carrier(), function)("k-1", 5) == 5


def test_an_answer_may_have_the_name_of_an_option_of_the_recorder(project: Path) -> None:
    """What a function is called is the gateway's affair."""
    names = Names(project / "src")

    with recorded(["cli_fixed:key"], {"key": 7}, names):
        assert names.value("--effects", "cli_fixed:key")() == 7


def test_a_downstream_key_is_found_by_its_parameter(project: Path) -> None:
    """By position and by name; without the option that is ``idempotency_key``."""
    names = Names(project / "src")
    gateway = names.value("--effects", "cli_jobs:gateway")

    with recorded(["cli_jobs:gateway", "cli_jobs:charge"], {}, names, key="cents") as recorder:
        names.value("--effects", "cli_jobs:gateway").charge(5)
        names.value("--effects", "cli_jobs:charge")(cents=5)
    with recorded(["cli_jobs:gateway.charge"], {}, names) as unnamed:
        gateway.charge(5, idempotency_key="k")

    assert recorder is not None
    assert unnamed is not None
    assert [(call.key, call.arguments, dict(call.named)) for call in (*recorder.calls, *unnamed.calls)] == [
        ("5", (), {}), ("5", (), {}), ("k", (5,), {}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ("keyed", "keyed#o-1 is rejected: attempts used up (5 of 5): RuntimeError: the real provider was called"),
        ("unsafe", "unsafe#o-1 is rejected: "),
        ("sends_away", "sends_away#proof-1 is rejected: "),
    ],
)
def test_a_job_that_fails_undisturbed_is_told_what_it_fails_with(job: str, why: str, project: Path) -> None:
    """Not that nothing was counted: what to count is no question before the job comes to its end."""
    ran = run(f"cli_jobs:{job}", "--payload", ORDER, "--json")

    told = json.loads(ran.out)
    assert (ran.code, told["diagnosis"]) == (1, Diagnosis.NOT_COMPLETED.name)
    assert "nothing was counted" not in ran.err
    [scenario] = told["scenarios"]
    assert {one["diagnosis"] for one in scenario["findings"]} == {Diagnosis.NOT_COMPLETED.name}
    assert scenario["findings"][0]["evidence"].startswith(why)


def test_what_json_cannot_answer_belongs_into_a_function_of_ones_own(project: Path) -> None:
    """A response has attributes and methods: no ``--answer`` has them."""
    ran = run("cli_jobs:posts", "--payload", ORDER, *RECORDED)

    said = " ".join(ran.out.split())
    assert ran.code == 1
    assert (
        "the shell: JSON has no attributes, so put the call into a function of your own and give that, --effects"
        in said
    )
    assert "--answer charge=JSON" not in said


def test_json_says_the_same(project: Path) -> None:
    """One object on stdout, whatever the job prints; the exit code is the same. In a process of its own."""
    words = ("cli_jobs:by_function", "--payload", '{"cents": 5}', "--effects", "cli_jobs:charge")

    ran, done = run(*words), child(project, "-m", "onceq", "prove", *words, "--json")

    told = json.loads(done.stdout)
    assert (ran.code, done.returncode) == (1, 1)
    assert (told["subject"], told["ok"], told["diagnosis"]) == ("by_function", False, "NOT_COMPLETED")
    assert [scenario["name"] for scenario in told["scenarios"] if not scenario["ok"]] == ["delivered once"]
    # What it fails with undisturbed is likely an answer of another shape than the provider's.
    assert ran.lines[0] == "  ✗ once      delivered once"
    text = " ".join(ran.out.split())
    assert "by_function#proof-1 is rejected" in text
    assert "KeyError: 'state'" in text
    assert "charge was answered with {'id': 'charge-1'}, which the recorder made up" in text
    assert "--answer charge=JSON" in told["scenarios"][0]["findings"][0]["evidence"]


def test_a_job_is_found_by_its_name_and_has_its_applications_middleware(project: Path) -> None:
    """A name is looked up in ``--app``; payloads come from stdin too."""
    ran = run("keyed", "--app", "cli_app:app", "--payload", "-", "--key", "k-1", *RECORDED, text=ORDER)
    import cli_app  # type: ignore[import-not-found]

    assert ran.code == 0
    assert {*cli_app.SEEN} == {"k-1", "proof-2"}


def test_functions_and_modules_stand_in_for_their_own_and_answer_what_they_are_told(project: Path) -> None:
    """A function counts under its own name, a coroutine is awaited, and a job outside of the App says so."""
    (project / "order.json").write_text('{"cents": 5}', encoding="utf-8")
    words = ("cli_jobs:by_function", "--app", "cli_app:app", "--payload", "@order.json")
    recorded = ("--effects", "cli_jobs:charge", "--effects", "cli_jobs:mailer", "--verbose")

    ran = run(*words, *recorded, "--answer", 'charge={"state": "paid"}')

    assert ran.code == 0, ran
    assert ran.lines[-2].endswith(" scenarios, charge x1, mailer.mail x1 in each")
    assert ran.err.startswith("onceq: by_function is not in cli_app:app: it is proved alone")
    assert ran.out.count("effect: charge") > 20
    assert "  ✓ crash     crashed after: effect charge" in ran.lines
    assert not any(TIMES in line for line in ran.lines)


def test_a_function_that_only_looks_something_up_is_no_effect(project: Path) -> None:
    """Then nothing is counted of a job that does nothing else."""
    ran = run("cli_jobs:unsafe", "--payload", ORDER, *RECORDED, "--read", "charge")

    assert ran.code == 2
    assert "nothing was counted in an undisturbed run of unsafe" in ran.err


def test_a_recorded_function_raises_what_its_client_does(project: Path) -> None:
    """A job that swallows its client's own exception is found out with that alone."""
    ran = run("cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--fails", "cli_gateway:Declined", "--json")

    assert (ran.code, json.loads(ran.out)["diagnosis"]) == (1, Diagnosis.NO_EFFECT.name)


STAMPED = '{"order_id": "o-1", "trace": "t-1", "sent_at": "2026-11-29T12:00:00Z"}'


@pytest.mark.parametrize(
    ("words", "another"),
    [
        ((), "sent_at"),
        (("--stamp", "trace"), "trace"),
        (("--stamp", "trace", "--stamp", "sent_at"), "sent_at and trace"),
        (("--no-stamps",), ""),
    ],
    ids=["none given", "one", "two", "denied"],
)
def test_what_the_producer_stamps_is_named_or_denied(words: tuple[str, ...], another: str, project: Path) -> None:
    """A key that is made of it shows at a second send; where nothing is stamped it is the same job."""
    ran = run("cli_jobs:stamped", "--payload", STAMPED, *RECORDED, *words, "--json")

    told = json.loads(ran.out)
    sent = [one["name"].partition(", with another ")[2] for one in told["scenarios"] if "second time" in one["name"]]
    assert (ran.code, told["diagnosis"]) == ((1, Diagnosis.KEY_FROM_SEND.name) if another else (0, None))
    assert another in sent


def test_stamps_are_not_named_and_denied_at_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line says which two words do not go together."""
    with pytest.raises(SystemExit) as refused:
        main(["prove", "cli_jobs:stamped", "--payload", STAMPED, "--stamp", "trace", "--no-stamps"])

    assert refused.value.code == 2
    assert "--no-stamps: not allowed with argument --stamp" in capsys.readouterr().err


def test_what_is_recorded_and_never_called_is_told_though_something_else_was_counted(project: Path) -> None:
    """The name stands in for what another module calls: the job called the real one."""
    ran = run("cli_jobs:sends_on", "--payload", ORDER, *RECORDED)

    assert ran.code == 2
    assert "it called nothing of cli_jobs:gateway" in ran.err
    assert run("cli_jobs:sends_on", "--payload", ORDER).code == 0


def test_a_fifo_queue_of_the_template_a_group_and_a_second_job(project: Path) -> None:
    """Parameters of the template, ``--setup`` and ``--other`` reach the proof."""
    shutil.copy(SRC.parent / "template.yaml", project / "fifo.yaml")
    words = ("cli_jobs:in_order", "--template", "fifo.yaml", *RECORDED, "--payload", '{"number": 1}', "--group", "a-1")
    setup = ("--setup", "cli_jobs:prepare", "--parameter", "LedgerQueue=true")

    without = run(*words)
    ran = run(*words, *setup, "--other", '{"number": 20}')

    assert without.code == 2
    assert "queue 'ledger' of 'in_order' is not in ONCEQ_QUEUES (known: " in without.err
    assert "set the parameter LedgerQueue: " in without.err
    assert "--parameter" in without.err
    assert ran.code == 0, ran
    assert any(line.startswith("  ✓ two jobs") for line in ran.lines)


BAD: dict[str, tuple[list[str], str]] = {
    "no JSON": (["cli_jobs:keyed", "--payload", "{order}"], "--payload is not JSON: "),
    "other is no JSON": (["cli_jobs:keyed", "--payload", ORDER, "--other", "o-2"], "--other is not JSON: "),
    "no file": (["cli_jobs:keyed", "--payload", "@no.json"], "there is no file no.json"),
    "no template": (["cli_jobs:keyed", "--payload", ORDER, "--template", "no.yaml"], "there is no file no.yaml"),
    "no such module": (["cli_nowhere:keyed", "--payload", ORDER], "there is no module 'cli_nowhere' in "),
    "broken module": (
        ["cli_broken:keyed", "--payload", ORDER],
        "JOB cli_broken:keyed: cli_broken cannot be imported: RuntimeError: no database",
    ),
    "a module lacks another": (
        ["cli_lacking:keyed", "--payload", ORDER],
        "cli_lacking cannot be imported: ModuleNotFoundError: No module named 'no_such_library'",
    ),
    "no such attribute": (
        ["cli_jobs:kyed", "--payload", ORDER],
        "JOB cli_jobs:kyed: cli_jobs has no 'kyed'. Did you mean 'keyed'?",
    ),
    "no job": (["cli_jobs:LIMIT", "--payload", ORDER], "JOB cli_jobs:LIMIT is an int, and no job type: "),
    "no App": (["keyed", "--payload", ORDER], "--app app:app: there is no module 'app' in "),
    "no job type of that name": (
        ["kyed", "--app", "cli_app:app", "--payload", ORDER],
        "no job type is named 'kyed': did you mean 'keyed'?",
    ),
    "payload does not fit": (
        ["cli_jobs:keyed", "--payload", '{"order": 1}'],
        "--payload does not fit keyed: ",
    ),
    "blank key": (["cli_jobs:keyed", "--payload", '{"order_id": " "}', *RECORDED], "key"),
    "effects without attribute": (
        ["cli_jobs:keyed", "--payload", ORDER, "--effects", "cli_gateway"],
        "--effects cli_gateway: give MODULE:NAME, for example jobs.payments:gateway",
    ),
    "fails without attribute": (
        ["cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--fails", "Declined"],
        "--fails Declined: give MODULE:NAME, for example jobs.payments:ProviderError",
    ),
    "effects of nothing": (
        ["cli_jobs:keyed", "--payload", ORDER, "--effects", "cli_jobs:gatway"],
        "--effects cli_jobs:gatway: cli_jobs has no 'gatway'. Did you mean 'gateway'?",
    ),
    "effects in an object with slots": (
        ["cli_jobs:keyed", "--payload", ORDER, "--effects", "cli_fixed:slotted.charge"],
        "'charge' is read-only): give cli_fixed:slotted, or what the job's own module calls it",
    ),
    "effects in a frozen object": (
        ["cli_jobs:keyed", "--payload", ORDER, "--effects", "cli_fixed:frozen.charge"],
        "--effects cli_fixed:frozen.charge: nothing can stand there (FrozenInstanceError: ",
    ),
    "answer without effects": (
        ["cli_jobs:keyed", "--payload", ORDER, "--answer", "charge=1"],
        "it goes with --effects",
    ),
    "answer of nothing": (
        ["cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--answer", "chrage=1"],
        "--answer chrage: --effects has no function of that name. Did you mean 'charge'?",
    ),
    "fails without effects": (["cli_jobs:keyed", "--payload", ORDER, "--fails", "x:Y"], "it goes with --effects"),
    "downstream key without effects": (
        ["cli_jobs:keyed", "--payload", ORDER, "--downstream-key", "ref"],
        "it goes with --effects",
    ),
    "downstream key that nothing takes": (
        ["cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--downstream-key", "idempotencykey"],
        "no function of cli_jobs:gateway takes 'idempotencykey'. Did you mean 'idempotency_key'?",
    ),
    "fails with no exception": (
        ["cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--fails", "cli_gateway:charge"],
        "--fails cli_gateway:charge is <function charge at ",
    ),
    "read without effects": (["cli_jobs:keyed", "--payload", ORDER, "--read", "charge"], "it goes with --effects"),
    "read of nothing": (
        ["cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--read", "chrage"],
        "--read chrage: --effects has no function of that name. Did you mean 'charge'?",
    ),
    "stamp of nothing": (
        ["cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--stamp", "trace"],
        "--stamp 'trace': the body has no such field (order_id)",
    ),
    "group where there are none": (
        ["cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--group", "g"],
        "--group is for a FIFO queue, and the queue 'default' of 'keyed' is none: leave it out",
    ),
    "no second job": (
        ["cli_jobs:the_same", "--payload", "{}", *RECORDED],
        "gives another key. Give --other, the payload of a job with another key, or --key to prove it without",
    ),
    "other is the same": (
        ["cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--other", ORDER],
        "--other has the key of the job itself, 'o-1'",
    ),
    "answer without value": (
        ["cli_jobs:keyed", "--payload", ORDER, *RECORDED, "--answer", "charge"],
        "--answer charge: give NAME=JSON",
    ),
    "nothing counted": (
        ["cli_jobs:idle", "--payload", "{}"],
        "nothing was counted in an undisturbed run of idle: say with --effects MODULE:NAME what the job does",
    ),
    "nothing counted of what was named": (
        ["cli_jobs:idle", "--payload", "{}", *RECORDED],
        "with which it has an effect. A function that counts effects is for pytest: effects=",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_says_what_to_do(name: str, project: Path) -> None:
    """One line on stderr, nothing on stdout, and the exit code 2."""
    words, told = BAD[name]

    ran = run(*words)

    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert ran.lines == []
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("name", ["moto", "yaml", "time_machine"])
def test_what_is_not_installed_is_named_with_the_extra_that_has_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is imported that needs it."""
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one, *rest: None if one == name else find(one, *rest))

    ran = run("cli_jobs:keyed", "--payload", ORDER)

    assert (ran.code, ran.err) == (2, f"onceq: a proof needs {name}: install onceq with its extra [testing]\n")


def child(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project, in a process of its own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ONCEQ_"))}
    environment = child_environment(plain | AWS_VARIABLES)
    return subprocess.run(
        [sys.executable, *words], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def test_other_commands_load_nothing_of_the_kit(project: Path) -> None:
    """The kit's modules come with the one command that needs them."""
    script = (
        "import sys, onceq.cli as cli\n"
        "try: cli.main(['prove', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('onceq.testing')])"
    )

    assert child(project, "-c", script).stdout.splitlines()[-1] == "[]"
