"""The tables of the documentation, read as data."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIFECYCLE = ROOT / "docs" / "lifecycle.md"


def table(name: str, page: Path = LIFECYCLE) -> dict[str, dict[str, str]]:
    """Return the table that stands under ``<!-- table: name -->``: its cells by row and column.

    An empty cell, a short row and a doubled row are errors.
    """
    text = page.read_text(encoding="utf-8").partition(f"<!-- table: {name} -->\n")[2]
    lines = text.strip().splitlines()
    rows = lines[: next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    assert len(rows) > 2, f"no table {name!r} in {page.name}"
    columns = _cells(rows[0])
    found: dict[str, dict[str, str]] = {}
    for row in rows[2:]:
        cells = _cells(row)
        assert len(cells) == len(columns), f"{len(cells)} cells for {len(columns)} columns: {row}"
        assert all(cells), f"an empty cell: {row}"
        assert cells[0] not in found, f"the row {cells[0]!r} stands twice"
        found[cells[0]] = dict(zip(columns[1:], cells[1:], strict=True))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
