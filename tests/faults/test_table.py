"""The matrix is whole, and the page about it says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.fault_operations import OPERATIONS
from kit.fault_table import (
    COLUMNS,
    CONTENDED,
    KINDS,
    OF_BATCHES,
    OF_DYNAMODB,
    OF_SQS,
    OF_TRANSACTIONS,
    OF_WRITES,
    OUTCOMES,
    TABLE,
    UNNOTICED,
    a_slice,
    cells,
)
from kit.seams import SEAMS, methods_of
from kit.tables import ROOT, table

PAGE = ROOT / "docs" / "faults.md"
GROUPS: dict[str, Any] = {
    "both": KINDS,
    "DynamoDB": OF_DYNAMODB,
    "single writes": OF_WRITES,
    "transactions": OF_TRANSACTIONS,
    "SQS": OF_SQS,
    "batches": OF_BATCHES,
    "sends, receives": UNNOTICED,
}


def test_the_page_lists_the_faults() -> None:
    """Each with its kind, and where it is met."""
    listed = [(name.strip("`"), row["Kind"], row["Met by"]) for name, row in table("faults", PAGE).items()]

    assert listed == [
        (fault.name, kind, met_by)
        for met_by, group in GROUPS.items()
        for kind, faults in group.items()
        for fault in faults
    ]


def test_the_page_has_the_outcome_of_every_operation() -> None:
    """Cell by cell, and a sentence for each."""
    listed = table("operations", PAGE)

    assert {name: tuple(row[column] for column in COLUMNS) for name, row in listed.items()} == TABLE
    assert list(listed) == list(TABLE)
    assert all(row["In a sentence"].endswith(".") for row in listed.values())


def test_the_page_says_what_each_outcome_is() -> None:
    """What the message, the caller and the effect are told to meet is what the matrix asserts."""
    answers = {None: "as without the fault", "kept": "kept", "raised": "told by an exception"}
    effects = {0: "once", 1: "attempted again, under the same key", -1: "not at all"}

    listed = {
        name: (row["The message, or the caller"], row["The effect"]) for name, row in table("outcomes", PAGE).items()
    }
    assert listed == {name: (answers[one.answer], effects[one.repeats]) for name, one in OUTCOMES.items()}
    assert CONTENDED == {"commit": "released", "stage with a caller's writes": "raised"}


@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: str(seam.__name__))
def test_every_method_of_a_seam_is_an_operation(seam: type) -> None:
    """A method that is added to a seam fails here until it has a row."""
    covered = {method for operation in OPERATIONS for method in operation.methods}

    assert {f"{seam.__name__}.{method}" for method in methods_of(seam)} <= covered


def test_every_row_is_played_under_every_fault() -> None:
    """No operation, no fault and no outcome of the page is left out of the matrix, nor of the part of every run."""
    whole, part = cells(), a_slice()

    assert [operation.name for operation in OPERATIONS] == list(TABLE)
    assert {cell.outcome for cell in part} == {cell.outcome for cell in whole} == set(OUTCOMES)
    assert {cell.fault.name for cell in part} == {cell.fault.name for cell in whole}
    assert {(cell.operation, cell.kind) for cell in part} == {(cell.operation, cell.kind) for cell in whole}
    lasting = {(cell.operation, cell.kind) for cell in whole if cell.lasts == "always"}
    assert {(cell.operation, cell.kind) for cell in part if cell.lasts == "always"} == lasting
    assert len({str(cell) for cell in whole}) == len(whole)


def test_the_folder_is_where_the_page_says() -> None:
    """The page names the tests that read it."""
    assert str(Path(__file__).parent.relative_to(ROOT)) in PAGE.read_text(encoding="utf-8")
