"""The list of mutants and what the page of guarantees says about it, held against the code."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from mutants.generated import FILES, all_changes, equivalents
from mutants.run import Mutant, read_list

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "onceq"
SECTION = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8").partition("\n## Mutation\n")[2]
MUTANTS = read_list()


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_every_mutant_of_a_file_changes_it(file: str) -> None:
    """A mutant whose text is gone protects nothing: the code moved on, so must the mutant."""
    text = (SOURCE / file).read_text(encoding="utf-8")

    for mutant in MUTANTS:
        if mutant.file == file:
            assert mutant.applied_to(text) != text, mutant.id


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_the_tests_of_a_mutant_exist(file: str) -> None:
    """What is to notice it is there; a run of the list would say so too, but minutes later."""
    named = {test for mutant in MUTANTS if mutant.file == file for test in mutant.tests}

    for path, _, name in (test.partition("::") for test in named):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^(?:async )?def {name.partition('[')[0]}\(", text, re.MULTILINE), (path, name)


def test_a_mutant_that_changes_nothing_is_refused() -> None:
    """A text that stands twice, or not at all, is no single small way to break the code."""
    mutant = Mutant("twice", "x.py", (("1", "2"),), ("tests/x.py",), "nothing")

    with pytest.raises(ValueError, match="stands 2 times"):
        mutant.applied_to("a = 1\nb = 1\n")
    with pytest.raises(ValueError, match="stands 0 times"):
        mutant.applied_to("a = 0\n")
    with pytest.raises(ValueError, match="is no Python"):
        Mutant("broken", "x.py", (("1", "("),), ("tests/x.py",), "nothing").applied_to("a = 1\n")


def test_the_page_counts_the_mutants_by_file() -> None:
    """The score on the page is the list's: a mutant that is added or removed is counted again."""
    rows = dict(re.findall(r"^\| `(\w+\.py)` \| (\d+) \|", SECTION, re.MULTILINE))
    others = re.search(r"^\| \d+ other files \| (\d+) \|", SECTION, re.MULTILINE)
    total = re.search(r"^\| all \| (\d+) \|", SECTION, re.MULTILINE)
    counted = Counter(mutant.file for mutant in MUTANTS)

    assert others is not None
    assert total is not None
    assert {file: int(number) for file, number in rows.items()} == {file: counted[file] for file in FILES}
    assert int(others[1]) == sum(number for file, number in counted.items() if file not in FILES)
    assert int(total[1]) == len(MUTANTS)


def test_what_is_called_equivalent_is_a_change_of_the_code_as_it_stands() -> None:
    """A reason for a survivor that is gone excuses another one some day."""
    names = {change.name for change in all_changes(FILES)}

    assert len(names) == len(all_changes(FILES))
    assert sorted(set(equivalents()) - names) == []
