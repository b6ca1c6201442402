"""The page of guarantees names tests that exist and that quote the guarantee."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
NAMED = [
    (number, path, name)
    for section in SECTIONS
    for number in re.findall(r"\A(?:Not promised \()?(G\d+)", section)
    for path, name in re.findall(r"^- `tests/([\w/]+\.py)::(\w+)`$", section, flags=re.MULTILINE)
]


@functools.cache
def docstrings_of(path: str) -> dict[str, str]:
    """Return the docstrings of a file's tests by name."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("number", "path", "name"), NAMED, ids=[f"{number}-{name}" for number, _, name in NAMED])
def test_a_named_test_exists_and_quotes_its_guarantee(number: str, path: str, name: str) -> None:
    """Every line of the page is a test that says which promise it proves."""
    docstring = docstrings_of(path)[name]

    quoted = re.match(r"(?:G\d+(?:, )?)+", docstring)
    assert quoted is not None
    assert number in re.findall(r"G\d+", quoted.group())


def test_every_promise_is_on_the_page() -> None:
    """A promise without a test is none."""
    assert {number for number, _, _ in NAMED} == {f"G{number}" for number in range(1, 13)}
