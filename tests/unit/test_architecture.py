"""The shape of the code, as rules: which module may import which, and what `import onceq` loads."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import onceq
from onceq import errors

SRC = Path(onceq.__file__).parent
MODULES = sorted(path.stem for path in SRC.glob("*.py") if path.stem not in {"__init__", "__main__"})
KIT = sorted(f"testing.{path.stem}" for path in (SRC / "testing").glob("*.py") if path.stem != "__init__")
HERE = Path(__file__).parent

# From the ground up. A module may import those of the floors below its own, for its types too, so there is no cycle.
FLOORS: list[set[str]] = [
    {"errors", "clock", "lanes", "record", "telemetry"},
    {"codec", "retry", "client", "effect_events", "intrinsics", "models", "powertools", "running"},
    {
        "settings",
        "keys",
        "layers",
        "s3_object",
        "selector",
        "compression",
        "dynamodb",
        "queue",
        "template",
        "transaction",
    },
    {"message", "source"},
    {"steps", "store", "job_type", "offload"},
    {"decision", "outbox", "locks", "catalogue", "status", "bucket"},
    {"claim", "effects", "outcome", "resolving", "runtime"},
    {"context", "sealing", "recovery", "relay"},
    {"attempt", "settling", "producer", "fetching"},
    {"executor"},
    {"consumer"},
    {"invocation"},
    {"application"},
    {"local", "poller", "console", "resources", "listing", "statefile", "raw"},
    {"worker", "mappings"},
    {"supervisor"},
    {"dev", "options", "loading"},
    {"up"},
    {"commands"},
    {"stand_ins"},
    {"proof"},
    {"cli"},
]
# The test kit, in the same order. It stands above all but the command line, and nothing below imports it.
KIT_FLOORS: list[set[str]] = [
    {"wording"},
    {"errors", "plain", "contents", "variants", "done", "keyed", "given", "memory"},
    {"clock"},
    {"calls", "mailbox", "events", "likeness", "stamps", "failure"},
    {"timeline", "watched"},
    {"points"},
    {"process"},
    {"subject"},
    {"recorder"},
    {"invoking", "counting", "staged"},
    {"world"},
    {"ground", "tried", "on_trial"},
    {"outcome"},
    {"trial"},
    {"directors"},
    {"two_jobs"},
    {"diagnosis"},
    {"undisturbed", "claiming", "causes"},
    {"scenarios", "verdict"},
    {"report", "venue"},
    {"proving"},
    {"plugin"},
]
# The leaves, and all that each may import of ours.
LEAVES: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "lanes": set(),
    "record": set(),
    "telemetry": set(),
    "codec": {"errors"},
    "retry": {"errors"},
    "settings": {"codec", "errors"},
    "keys": {"codec", "errors"},
    "layers": {"codec", "errors"},
    "selector": {"codec", "errors"},
    "message": {"codec", "errors", "layers"},
}
# Beside the hot path: nothing that runs in Lambda may import these.
LOCAL_ONLY = {
    "local",
    "poller",
    "raw",
    "console",
    "resources",
    "listing",
    "options",
    "loading",
    "intrinsics",
    "template",
    "mappings",
    "statefile",
    "worker",
    "supervisor",
    "dev",
    "up",
    "commands",
    "stand_ins",
    "proof",
    "cli",
    "models",
}
# Who may import what is not ours.
FOREIGN: dict[str, set[str]] = {
    "moto": {"local", "testing.contents"},
    "pytest": {"testing.plugin"},
    "time_machine": {"testing.ground"},
    "boto3": set(),
    "botocore": {"client", "dynamodb", "queue", "bucket", "local", "testing.process", "testing.ground"},
    "pynamodb": {"models"},
    "pydantic": set(),
    "aws_lambda_powertools": {"powertools"},
    "yaml": {"template"},
    "rich": set(),
    "jobs": set(),
    "app": set(),
    "demo": set(),
}
# Who may look at os.environ. powertools does for one variable of Powertools' own, since EphemeralMetrics demands a
# namespace where Metrics has a default; the others start or describe local processes.
ENVIRONMENT = {"runtime", "powertools"} | {
    *("local", "resources", "template", "statefile", "console", "dev", "commands", "cli", "testing.ground"),
}
MOST_LINES = 350
# All that can be raised stands on one page, however long it gets; so does all that an environment of the kit can do.
LONGER = {"errors": 450, "testing.world": 455}


@functools.cache
def tree_of(module: str) -> ast.Module:
    """Return a module's syntax tree."""
    return ast.parse(path_of(module).read_text(encoding="utf-8"))


def path_of(module: str) -> Path:
    """Return a module's file."""
    return SRC / f"{module.replace('.', '/')}.py"


def imports_of(module: str) -> set[str]:
    """Return the full names of all that a module imports anywhere, for types or inside a function too."""
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import in {module}"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def ours_in(module: str) -> set[str]:
    """Return the modules of ours that a module imports."""
    return {name.split(".")[1] for name in imports_of(module) if name.startswith("onceq.")} & {*MODULES}


def test_every_module_stands_on_one_floor() -> None:
    """A new module is placed on purpose."""
    placed = [module for floor in FLOORS for module in floor]

    assert sorted(placed) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_the_floors_below(module: str) -> None:
    """Dependencies point one way, ``TYPE_CHECKING`` included: so there is no cycle."""
    floor = next(number for number, floor in enumerate(FLOORS) if module in floor)
    below = set().union(*FLOORS[:floor])

    assert ours_in(module) <= below


def kit_imports(module: str) -> set[str]:
    """Return the modules of the kit that a module imports."""
    return {
        name.split(".")[2] for name in imports_of(module) if name.startswith("onceq.testing.") and name.count(".") > 1
    }


@pytest.mark.parametrize("module", KIT)
def test_a_module_of_the_kit_imports_only_from_the_floors_below(module: str) -> None:
    """The kit has floors of its own, and every module stands on one."""
    name = module.removeprefix("testing.")
    floor = next(number for number, floor in enumerate(KIT_FLOORS) if name in floor)

    assert kit_imports(module) <= set().union(*KIT_FLOORS[:floor])
    assert not ours_in(module) & {"commands", "stand_ins", "proof", "cli"}


def test_every_module_of_the_kit_is_placed() -> None:
    """A new module is placed on purpose."""
    assert sorted(f"testing.{name}" for floor in KIT_FLOORS for name in floor) == KIT


@pytest.mark.parametrize("module", MODULES)
def test_only_the_command_line_knows_the_kit(module: str) -> None:
    """What runs in Lambda, or locally, does not load what is for tests; one command does, in modules of its own."""
    assert not kit_imports(module) or module in {"stand_ins", "proof"}


@pytest.mark.parametrize("module", LEAVES)
def test_a_leaf_imports_only_the_leaves_below_it(module: str) -> None:
    """A leaf can be read, and used, without the rest."""
    assert ours_in(module) <= LEAVES[module]
    assert LEAVES[module] <= {*LEAVES}


@pytest.mark.parametrize("module", sorted({*MODULES} - LOCAL_ONLY))
def test_nothing_that_runs_in_lambda_imports_what_is_local(module: str) -> None:
    """moto, the poller and the command line stay out of the function."""
    assert not ours_in(module) & LOCAL_ONLY


@pytest.mark.parametrize("module", MODULES + KIT)
def test_a_module_uses_what_is_public_in_another(module: str) -> None:
    """A name with an underscore belongs to its module."""
    private = {name for name in imports_of(module) if name.startswith("onceq.") and name.rsplit(".", 1)[-1][0] == "_"}

    assert not private


@pytest.mark.parametrize("package", FOREIGN)
def test_only_these_modules_import_a_foreign_package(package: str) -> None:
    """DynamoDB is reached by dynamodb and models, SQS by queue and local, moto by local; jobs and app by none."""
    importers = {
        module
        for module in MODULES + KIT
        if any(name == package or name.startswith(f"{package}.") for name in imports_of(module))
    }

    assert importers <= FOREIGN[package]


def calls_in(module: str) -> list[tuple[str, list[object]]]:
    """Return name and constant arguments of every call in a module."""
    found: list[tuple[str, list[object]]] = []
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rsplit(".", 1)[-1]
            found.append((name, [argument.value for argument in node.args if isinstance(argument, ast.Constant)]))
    return found


def test_each_service_has_one_client_in_one_module() -> None:
    """One seam a service: what is not sent through it is not retried, timed out, counted or tested."""
    made = {
        (module, str(arguments[0]))
        for module in MODULES
        for name, arguments in calls_in(module)
        if name in {"make_client", "client", "resource"} and arguments
    }

    assert made == {("dynamodb", "dynamodb"), ("queue", "sqs"), ("bucket", "s3")}
    # local and the kit make no request through it: they are given sessions and clients that moto answers.
    assert {module for module in MODULES if "client" in ours_in(module)} == {"dynamodb", "queue", "bucket", "local"}
    assert {m for m in MODULES if any(name == "create_client" for name, _ in calls_in(m))} == {"client"}


def test_modules_are_imported_by_statements() -> None:
    """An import by name would escape these tests; the command line alone loads the user's own by their names."""
    assert {m for m in MODULES if any(name in {"import_module", "__import__"} for name, _ in calls_in(m))} <= {
        "loading",
        "stand_ins",
    }


@pytest.mark.parametrize("module", MODULES + KIT)
def test_only_these_modules_read_the_environment(module: str) -> None:
    """The settings are read once, in runtime; no module's behaviour depends on a variable that nobody declared."""
    reads = any(
        isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}
        for node in ast.walk(tree_of(module))
    )

    assert not reads or module in ENVIRONMENT
    assert not any(name in {"os.environ", "os.getenv"} for name in imports_of(module))


HEAVY = ["moto", "pytest", "pynamodb", "boto3", "botocore", "pydantic", "aws_lambda_powertools", "yaml", "rich"]


@pytest.mark.parametrize("statement", ["import onceq", "import onceq; onceq.App([]); onceq.Producer({'default': 'u'})"])
def test_importing_onceq_loads_nothing_heavy(statement: str) -> None:
    """A cold start pays for every import: clients, metrics and models come at their first use, local tools never."""
    ours = sorted(f"onceq.{module}" for module in LOCAL_ONLY)
    script = f"{statement}\nimport sys\nprint([name for name in {HEAVY + ours!r} if name in sys.modules])"

    found = subprocess.run([sys.executable, "-c", script], cwd=SRC.parent, capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("module", MODULES + KIT)
def test_a_module_is_short(module: str) -> None:
    """A page that is longer than this is two."""
    lines = len(path_of(module).read_text(encoding="utf-8").splitlines())

    assert lines <= LONGER.get(module, MOST_LINES)


def lines_of_code(module: str) -> int:
    """Count the lines that are not blank, comment or docstring."""
    tree = tree_of(module)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    text: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            text |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = (SRC / f"{module}.py").read_text(encoding="utf-8").splitlines()
    return sum(
        1
        for number, line in enumerate(lines, 1)
        if number not in text and line.strip() and not line.strip().startswith("#")
    )


def test_the_heart_can_be_read_in_one_sitting() -> None:
    """executor, claim and store together: under 700 lines that are not blank, comment or docstring."""
    assert sum(map(lines_of_code, ("executor", "claim", "store"))) < 700


def test_the_public_api_is_the_checked_in_list() -> None:
    """A name that comes or goes is a decision: it is written down here, and in the changelog."""
    listed = (HERE / "public_api.txt").read_text(encoding="utf-8").split()

    assert sorted(onceq.__all__) == listed
    assert len(listed) <= 27
    assert all(hasattr(onceq, name) for name in listed)


def test_every_error_class_lives_in_errors() -> None:
    """One page shows all that can be raised; what never leaves the two seams stays beside them."""
    found = {
        (module, node.name)
        for module in MODULES + KIT
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ClassDef) and any(_is_exception(base) for base in node.bases)
    }

    # The kit has a page of its own.
    assert {name for name in found if name[0] not in {"errors", "testing.errors"}} == {("client", "PassingFault")}
    drawn = inspect.getdoc(errors) or ""
    public = [
        name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, BaseException)
    ]
    assert all(name in drawn for name in public)


def _is_exception(base: ast.expr) -> bool:
    name = ast.unparse(base).rsplit(".", 1)[-1]
    known = getattr(errors, name, None) or getattr(builtins, name, None)
    return inspect.isclass(known) and issubclass(known, BaseException)


def test_the_version_is_a_literal() -> None:
    """Inside Lambda no distribution is installed that could be asked."""
    tree = ast.parse((SRC / "__init__.py").read_text(encoding="utf-8"))
    assigned = {ast.unparse(node.targets[0]): node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)}

    assert isinstance(assigned["__version__"], ast.Constant)
    assert assigned["__version__"].value == onceq.__version__
