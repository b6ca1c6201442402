"""What `sam build` put into the artefact. `make artefact` builds it first."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = ROOT / ".aws-sam" / "build" / "ConsumerFunction"
# Lambda's limit for an unzipped artefact is 250 MB; ours is near 40, and what is added is paid for at cold starts.
MOST_BYTES = 60_000_000


def _files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_our_code_is_in_it() -> None:
    """Framework, jobs and composition root are in the artefact, file by file."""
    assert _files(ROOT / "src") <= _files(FUNCTION)


def test_its_dependencies_are_in_it_in_the_pinned_versions() -> None:
    """Every pin of src/requirements.txt is there; boto3 and botocore come together, not from the runtime."""
    pins = dict(
        line.split("==")
        for line in (ROOT / "src" / "requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
    shipped = {path.name.removesuffix(".dist-info").replace("_", "-") for path in FUNCTION.glob("*.dist-info")}
    assert shipped == {f"{name}-{version}" for name, version in pins.items()}
    assert {"boto3", "botocore"} <= pins.keys()


def test_nothing_local_is_in_it() -> None:
    """No moto, test kit or type checker is shipped."""
    for name in ("moto", "pytest", "pydantic", "rich", "demo", "tests", "werkzeug"):
        assert not (FUNCTION / name).exists(), name


def test_its_native_code_is_for_the_python_that_runs_it() -> None:
    """Compiled modules are built for the function's Python, which is the emulator's too."""
    config = (ROOT / ".venv-lambda" / "pyvenv.cfg").read_text()
    [version] = re.findall(r"^version = (\d+)\.(\d+)", config, re.MULTILINE)
    native = [path.name for path in FUNCTION.rglob("*.so")]
    assert native
    assert not [name for name in native if f".cpython-{''.join(version)}-" not in name and ".abi3." not in name]


def test_it_is_small() -> None:
    """The artefact stays far below Lambda's limit."""
    assert sum(path.stat().st_size for path in FUNCTION.rglob("*") if path.is_file()) < MOST_BYTES
