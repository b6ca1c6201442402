"""The examples in the kit's docstrings are run, so that they stay true."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

from onceq import testing

MODULES = sorted(path.stem for path in Path(testing.__file__).parent.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    """Every example in a docstring prints what it says."""
    module = importlib.import_module(f"onceq.testing.{name}")

    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)

    assert failed == 0


@pytest.mark.parametrize("name", testing.__all__)
def test_a_public_name_says_what_it_is(name: str) -> None:
    """Everything public has a docstring of its own."""
    doc = inspect.getdoc(getattr(testing, name))

    assert doc
    assert doc.partition("\n")[0].rstrip().endswith((".", ":"))
