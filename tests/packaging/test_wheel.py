"""The wheel: the framework alone, typed, without the user's part of the repository."""

from __future__ import annotations

import configparser
import email
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import onceq

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from this tree with the build back-end that is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert built.returncode == 0, built.stdout + built.stderr
    [path] = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    """The wheel's METADATA file."""
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(wheel.read(name))


def test_it_holds_the_framework_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Every module of src/onceq is in the wheel; jobs, app, tests and the demo are not."""
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "onceq").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert shipped == expected
    assert {"onceq/__init__.py", "onceq/py.typed", "onceq/testing/__init__.py", "onceq/testing/plugin.py"} <= shipped


def test_its_version_is_the_literal(metadata: Message) -> None:
    """Inside Lambda there is no installed distribution, so the version is a literal that the wheel reads."""
    assert metadata["Version"] == onceq.__version__
    text = (ROOT / "src" / "onceq" / "__init__.py").read_text()
    assert re.search(rf'^__version__ = "{re.escape(onceq.__version__)}"', text, re.MULTILINE)


def test_its_metadata_says_what_pyproject_says(metadata: Message) -> None:
    """Name, Python and dependencies are those of pyproject.toml; moto, pytest and time-machine stay extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = metadata.get_all("Requires-Dist") or []
    always = {re.split(r"[<>=!]", text)[0] for text in requirements if "extra ==" not in text}
    assert metadata["Name"] == "onceq"
    assert metadata["Requires-Python"] == ">=3.11"
    assert always == {re.split(r"[<>=!]", text)[0] for text in project["dependencies"]}
    assert set(metadata.get_all("Provides-Extra") or []) == {"local", "testing", "zstd"}
    of_the_kit = {
        re.split(r"[\[<>=!]", text)[0].lower() for text in requirements if re.search(r"extra == .testing", text)
    }
    assert of_the_kit == {"moto", "pytest", "pyyaml", "time-machine"}


def test_it_installs_a_command(wheel: zipfile.ZipFile) -> None:
    """`onceq` is a command of the wheel."""
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]
    assert "onceq = onceq.cli:main" in wheel.read(name).decode()


def test_it_registers_the_plugin_of_the_test_kit(wheel: zipfile.ZipFile) -> None:
    """By the name of its module, as ``-p`` names it where no distribution is installed."""
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]
    entry_points = configparser.ConfigParser()
    entry_points.read_string(wheel.read(name).decode())

    assert dict(entry_points["pytest11"]) == {"onceq.testing.plugin": "onceq.testing.plugin"}


USER = """
from typing import Any

import onceq
from onceq import App, Context, job
from onceq.testing import EffectRecorder, Environment, prove_effectively_once

gateway = EffectRecorder()

@job("charge_order", max_duration=5)
def charge_order(payload: dict[str, Any], ctx: Context) -> Any:
    return ctx.step("charge", gateway.charge, payload["cents"], idempotency_key=ctx.idempotency_key_for("charge"))

app = App([charge_order])

def test_it(onceq_env: Environment, pytestconfig: Any) -> None:
    assert onceq_env.deliver(onceq_env.enqueue(charge_order, {"cents": 5}, key="k")).kept == []
    assert prove_effectively_once(charge_order, {"cents": 5}, effects=gateway, env=onceq_env).effects == {"charge": 1}
    assert "WHEEL" in onceq.__file__
    plugins = [plugin for _, plugin in pytestconfig.pluginmanager.list_name_plugin()]
    assert [getattr(one, "__name__", "") for one in plugins].count("onceq.testing.plugin") == 1
"""


@pytest.fixture(scope="module")
def installed(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files where Python finds them before this repository's; what it depends on is installed here."""
    folder = tmp_path_factory.mktemp("site")
    wheel.extractall(folder)
    return folder


@pytest.mark.parametrize("words", [[], ["-p", "onceq.testing.plugin"]], ids=["by its entry point", "also by name"])
def test_a_users_test_finds_the_kit(installed: Path, tmp_path: Path, words: list[str]) -> None:
    """Fixtures and proof come with the wheel, without a line of configuration; named as well, it is loaded once."""
    (tmp_path / "test_user.py").write_text(USER.replace("WHEEL", str(installed)), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nonceq_app = test_user:app\npythonpath = .\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *words]
    environ = os.environ | {"PYTHONPATH": str(installed)}

    ended = subprocess.run(command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True, timeout=110)

    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
