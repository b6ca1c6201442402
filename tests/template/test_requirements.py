"""The pinned files: what `sam build` and `make` install, held against pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from template.reading import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = [
    "src/requirements.txt",
    *(f"requirements/{name}.txt" for name in ("dev", "sam", "lambda-runtime", "ministack")),
]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _lines(file: str) -> list[str]:
    text = (ROOT / file).read_text()
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _pins(file: str) -> dict[str, str]:
    pairs = (line.split("==") for line in _lines(file))
    return {canonicalize_name(name): version for name, version in pairs}


def _needed(requirements: list[str]) -> Iterator[Requirement]:
    """Yield what these requirements need on this Python, theirs included, as installed here."""
    seen = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        yield requirement
        if key in seen:
            continue
        seen.add(key)
        for text in importlib.metadata.requires(requirement.name) or []:
            inner = Requirement(text)
            extras = ["", *requirement.extras]
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(inner)


@pytest.mark.parametrize("file", FILES)
def test_every_line_is_an_exact_pin(file: str) -> None:
    """Names and exact versions only: no address, no hash, no index, no option; so a file works wherever pip does."""
    for line in _lines(file):
        assert re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9a-z.]*", line), line
    assert _lines(file) == sorted(_lines(file), key=lambda line: line.split("==")[0])


def test_the_artefact_has_what_the_package_depends_on() -> None:
    """src/requirements.txt satisfies pyproject.toml, transitively; without it `sam build` succeeds with nothing."""
    pins = _pins("src/requirements.txt")
    for requirement in _needed(PROJECT["dependencies"]):
        name = canonicalize_name(requirement.name)
        assert name in pins, requirement
        assert requirement.specifier.contains(pins[name]), requirement


def test_the_artefact_has_nothing_else() -> None:
    """Every pin of the artefact is needed: what is shipped is paid for at each cold start."""
    needed = {canonicalize_name(requirement.name) for requirement in _needed(PROJECT["dependencies"])}
    assert set(_pins("src/requirements.txt")) == needed


def test_boto3_and_botocore_are_a_pair() -> None:
    """pynamodb brings botocore; mixed with another boto3 the pair can break, so both are pinned alike."""
    for file in ("src/requirements.txt", "requirements/dev.txt"):
        pins = _pins(file)
        assert pins["boto3"] == pins["botocore"], file


def test_tests_run_on_what_is_deployed() -> None:
    """Every version in the artefact is the one that the tests ran with."""
    dev = _pins("requirements/dev.txt")
    assert {name: dev.get(name) for name in _pins("src/requirements.txt")} == _pins("src/requirements.txt")


def test_the_pins_of_the_environment_are_complete() -> None:
    """requirements/dev.txt names everything that it needs, since make installs it without resolving."""
    pins = _pins("requirements/dev.txt")
    wanted = [*PROJECT["dependencies"], *_lines("requirements/dev.txt")]
    wanted += [text for extra in PROJECT["optional-dependencies"].values() for text in extra]
    for requirement in _needed(wanted):
        name = canonicalize_name(requirement.name)
        assert name in pins, requirement
        assert requirement.specifier.contains(pins[name], prereleases=True), requirement
