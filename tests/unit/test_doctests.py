"""The examples in the docstrings are run, so that they stay true."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import onceq

SRC = Path(onceq.__file__).parent
MODULES = sorted(
    "onceq" if path.stem == "__init__" else f"onceq.{path.stem}"
    for path in SRC.glob("*.py")
    if path.stem != "__main__"  # it runs the command line when imported
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    """Every example in a docstring prints what it says."""
    module = importlib.import_module(name)

    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)

    assert failed == 0


def _examples(value: object) -> int:
    found = doctest.DocTestFinder().find(value, name=getattr(value, "__name__", "?"))
    return sum(len(test.examples) for test in found)


@pytest.mark.parametrize("name", sorted(onceq.__all__))
def test_a_public_name_says_what_it_is_and_shows_it(name: str) -> None:
    """Everything public has a docstring of its own and an executed example."""
    value = getattr(onceq, name)
    doc = inspect.getdoc(value)

    assert doc
    assert doc.partition("\n")[0].rstrip().endswith((".", ":", "``"))
    assert _examples(value) > 0
