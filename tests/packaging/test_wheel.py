"""The wheel: the framework alone, typed, without the user's part of the repository."""

from __future__ import annotations

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
    assert {"onceq/__init__.py", "onceq/py.typed"} <= shipped


def test_its_version_is_the_literal(metadata: Message) -> None:
    """Inside Lambda there is no installed distribution, so the version is a literal that the wheel reads."""
    assert metadata["Version"] == onceq.__version__
    text = (ROOT / "src" / "onceq" / "__init__.py").read_text()
    assert re.search(rf'^__version__ = "{re.escape(onceq.__version__)}"', text, re.MULTILINE)


def test_its_metadata_says_what_pyproject_says(metadata: Message) -> None:
    """Name, Python and dependencies are those of pyproject.toml; moto and pytest stay extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = metadata.get_all("Requires-Dist") or []
    always = {re.split(r"[<>=!]", text)[0] for text in requirements if "extra ==" not in text}
    assert metadata["Name"] == "onceq"
    assert metadata["Requires-Python"] == ">=3.11"
    assert always == {re.split(r"[<>=!]", text)[0] for text in project["dependencies"]}
    assert set(metadata.get_all("Provides-Extra") or []) == {"local", "zstd"}


def test_it_installs_a_command(wheel: zipfile.ZipFile) -> None:
    """`onceq` is a command of the wheel."""
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]
    assert "onceq = onceq.cli:main" in wheel.read(name).decode()
