"""The pytest plugin, in a run of its own: fixtures, options, what a failing test prints, what it does not load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceq import testing
from onceq.testing.plain import PLAIN

ROOT = Path(__file__).resolve().parents[2]
JOBS = """
import os
from onceq import App, Context, job

@job("note", max_duration=5)
def note(payload: dict, ctx: Context) -> str:
    return os.environ["RATE"] + payload["word"]

application = App([note])
"""
TESTS = """
import os
import mine
from onceq.testing import prove_effectively_once

def test_the_app_and_the_template_are_those_of_the_options(onceq_env, onceq_app):
    assert onceq_app is mine.application
    assert onceq_env.deliver(onceq_env.enqueue(mine.note, {"word": "a"}, key="k")).kept == []
    assert onceq_env.records()[0].result == '"9a"'                # onceq_variables
    assert onceq_env.mailbox.place_of("default").visibility == 77  # onceq_parameters

def test_a_variable_that_is_patched_inside(monkeypatch, onceq_env):
    monkeypatch.setenv("RATE", "patched")
    monkeypatch.setenv("ONCEQ_CLAIMS_TABLE", "patched")
    monkeypatch.setenv("AWS_PROFILE", "patched")

def test_is_as_it_was_afterwards():
    assert os.environ["RATE"] == "of the shell"
    assert os.environ["AWS_PROFILE"] == "of the shell"
    assert "ONCEQ_CLAIMS_TABLE" not in os.environ

def test_a_recorder_is_at_hand(onceq_recorder):
    onceq_recorder.charge(5)
    assert onceq_recorder.count() == 1

def test_that_fails(onceq_env):
    onceq_env.deliver(onceq_env.enqueue(mine.note, {}, key="k"))
    assert onceq_env.records()[0].status == "completed"

def test_whose_proof_fails(onceq_env):
    prove_effectively_once(mine.note, {"word": "a"}, env=onceq_env)
"""
CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def onceq_parameters():
    return {"Seconds": 77}

@pytest.fixture
def onceq_variables():
    return {"RATE": "9"}
"""
UNUSED = """
import sys

def test_nothing_of_ours():
    loaded = {name.partition(".")[0] for name in sys.modules}
    # time_machine is there by a pytest plugin of its own.
    assert not loaded & {"moto", "boto3", "botocore", "pynamodb", "aws_lambda_powertools"}
    assert {name for name in sys.modules if name.startswith("onceq.testing")} == {
        "onceq.testing", "onceq.testing.plugin",
    }
"""


def run(folder: Path, *words: str, environ: dict[str, str] | None = None) -> str:
    """Run pytest in a project, and return what it said."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "onceq.testing.plugin", *words]
    ended = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | (environ or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=110,
    )
    return ended.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose application and template have names of their own."""
    template = PLAIN | {"Parameters": {"Seconds": {"Type": "Number", "Default": 90}}}
    text = json.dumps(template).replace('"VisibilityTimeout": 90', '"VisibilityTimeout": {"Ref": "Seconds"}')
    text = text.replace('"Variables": {', '"Variables": {"RATE": "of the template", ')
    for path, content in {
        "pytest.ini": "[pytest]\naddopts = -q\nonceq_app = mine:application\nonceq_template = deploy/own.yaml\n",
        "deploy/src/mine.py": JOBS,
        "deploy/own.yaml": text,
        "tests/test_mine.py": TESTS.replace(
            "import mine", f"import sys\nsys.path.append({str(tmp_path / 'deploy/src')!r})\nimport mine"
        ),
        "tests/conftest.py": CONFTEST,
        "unused/test_unused.py": UNUSED,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content, encoding="utf-8")
    return tmp_path


def test_a_project_uses_the_fixtures_and_sees_what_happened(project: Path) -> None:
    """Options and overridden fixtures hold; variables are as before; a failing test prints records and timeline."""
    said = run(project, "tests", environ={"RATE": "of the shell", "AWS_PROFILE": "of the shell"})

    assert "2 failed, 4 passed" in said, said
    first, _, second = said.partition("test_whose_proof_fails")
    assert first.count("onceq: what happened") == 1
    for told in ("records:", "note#k  failed  attempt 1  KeyError: 'word'", "timeline:", "w1  receives m1"):
        assert told in first
    # A proof says itself what happened; the environment is as good as new then.
    assert "nothing was counted" in second
    # Nor do frames of the kit stand between the test and what was found.
    assert "proving.py" not in second
    assert "onceq: what happened" not in second


def test_a_run_that_uses_nothing_of_it_loads_nothing_of_it(project: Path) -> None:
    """Every run of pytest in an environment that has the kit loads the plugin, and no more."""
    assert "1 passed" in run(project, "unused")


def test_an_app_that_is_not_there_is_a_readable_error(project: Path) -> None:
    """It names the option and the module, without a trace through the framework."""
    (project / "pytest.ini").write_text("[pytest]\nonceq_app = nowhere:app\n", encoding="utf-8")

    said = run(project, "tests", "-k", "test_that_fails")

    assert "the ini option onceq_app" in said, said
    assert "nowhere:app: there is no module 'nowhere'" in said
    assert "plugin.py" not in said


def test_every_public_name_is_there_and_loaded_from_its_module() -> None:
    """The table of lazy names, the imports for type checkers and `__all__` are one list."""
    assert sorted(testing.__all__) == testing.__all__ == [*testing._MODULES]
    assert {*testing.__all__} <= {*dir(testing)}
    for name in testing.__all__:
        value = getattr(testing, name)
        assert (value.__name__, value.__module__) == (name, f"onceq.testing.{testing._MODULES[name]}")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = testing.nothing


def test_the_plugin_is_loaded_in_this_repository(pytestconfig: pytest.Config) -> None:
    """Whoever clones it has the fixtures: ``addopts`` names the plugin as its entry point does."""
    assert pytestconfig.pluginmanager.hasplugin("onceq.testing.plugin")
    assert pytestconfig.getini("onceq_app") == "app:app"
