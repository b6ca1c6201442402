"""Which tests a run for one backend has: with `BACKEND` a test is never lost, and doubled only on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kit.backends import BACKENDS, INTEGRATION, TESTS, asked, of_contract, runs_on

if TYPE_CHECKING:
    from pathlib import Path

SUITE, MAIN, OTHER = (TESTS / name for name in ("contract/test_x.py", "functional/test_main_job.py", "unit/test_x.py"))
RUNS = (("moto",), ("ministack",), BACKENDS, ("endpoint",))


@pytest.mark.parametrize(
    ("path", "fixtures", "runs"),
    [
        (SUITE, {"backend"}, RUNS),
        (OTHER, {"both_worlds", "clock"}, RUNS[:3]),
        (OTHER, {"both_worlds", "world"}, RUNS[:3]),
        (OTHER, {"ministack"}, (("ministack",), BACKENDS)),
        (MAIN, {"ministack", "world"}, (("ministack",), BACKENDS)),
        (MAIN, {"world"}, RUNS[:3]),
        (MAIN, {"clock"}, (("moto",), BACKENDS)),
        (OTHER, {"world"}, (("moto",), BACKENDS)),
        (OTHER, (), (("moto",), BACKENDS)),
        (SUITE, (), (("moto",), BACKENDS)),
    ],
)
def test_a_test_runs_for_the_backends_that_it_can_tell_something_about(
    path: Path, fixtures: set[str], runs: tuple[tuple[str, ...], ...]
) -> None:
    """By the fixtures that it takes, and where its module is one of integration tests."""
    assert tuple(run for run in RUNS if runs_on(path, fixtures, run)) == runs


def test_whatever_a_run_for_moto_leaves_out_is_one_of_the_contract() -> None:
    """Or it would run nowhere: continuous integration runs the tests for moto, and of ministack the contract."""
    for path in (SUITE, MAIN, OTHER):
        for fixtures in ({"backend"}, {"both_worlds"}, {"ministack"}, {"world"}, {"ministack", "world"}):
            assert runs_on(path, fixtures, ("moto",)) or of_contract(path, fixtures)


def test_the_integration_modules_exist() -> None:
    """A module that was renamed would run on moto alone, and nobody would know."""
    assert [name for name in sorted(INTEGRATION) if not (TESTS / name).exists()] == []


@pytest.mark.parametrize(
    ("backend", "endpoint", "expected"),
    [
        ("", "", ("moto",)),
        ("both", "", BACKENDS),
        ("moto", "", ("moto",)),
        ("ministack", "", ("ministack",)),
        ("moto", "u", ("endpoint",)),
    ],
)
def test_the_environment_says_which_backends(
    monkeypatch: pytest.MonkeyPatch, backend: str, endpoint: str, expected: tuple[str, ...]
) -> None:
    """moto alone where nothing is said, which needs no second environment; a third endpoint goes before both."""
    monkeypatch.setenv("BACKEND", backend)
    monkeypatch.setenv("CONTRACT_ENDPOINT", endpoint)

    assert asked() == expected


def test_a_backend_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error must not pass as a run on moto."""
    monkeypatch.setenv("BACKEND", "minstack")

    with pytest.raises(SystemExit, match="BACKEND=minstack: it is moto, ministack or both"):
        asked()


def collected(backend: str) -> list[str]:
    """Return the ids of the tests that a run collects from one module of each kind."""
    names = ("contract/test_ministack.py", "functional/test_main_job.py", "functional/test_steps_crash.py")
    paths = [str(TESTS / name) for name in names]
    words = [sys.executable, "-m", "pytest", "-n0", "-q", "--collect-only", "-p", "no:cacheprovider", *paths]
    environment = {name: value for name, value in os.environ.items() if name != "CONTRACT_ENDPOINT"}
    environment["BACKEND"] = backend
    answer = subprocess.run(words, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=True)
    return [line for line in answer.stdout.splitlines() if "::" in line]


def test_a_run_for_each_backend_has_every_test_and_none_twice_but_the_integration_tests() -> None:
    """Collected as pytest does it: what `.ci/run` rests on."""
    moto, ministack, everything = (collected(backend) for backend in ("moto", "ministack", "both"))

    assert sorted({*moto, *ministack}) == sorted(everything)
    assert [name.rpartition("::")[0] for name in {*moto} & {*ministack}] == ["tests/functional/test_main_job.py"]
    assert all("[moto" not in name for name in ministack)
    assert all("[ministack" not in name for name in moto)
    assert len(everything) > len(moto) > 0 < len(ministack)
