"""The operator's page, held against the code that it describes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from onceq import telemetry
from onceq.settings import _READERS, PREFIX

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")


def table_below(heading: str) -> list[list[str]]:
    """Return the cells of the table that starts with this heading, without the heading itself."""
    rows = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


def test_the_table_of_events_is_the_code_s() -> None:
    """Every event stands on the page once, with its metric or without one."""
    listed = [(name, metric) for name, metric, *_ in table_below("Event")]
    found = [kind for kind in vars(telemetry).values() if inspect.isclass(kind) and issubclass(kind, telemetry.Event)]

    assert sorted(listed) == sorted((kind.name, kind.metric or "") for kind in found if kind.name)
    assert all(means for _, _, means, _ in table_below("Event"))


def test_the_table_of_variables_is_the_code_s() -> None:
    """Every setting stands on the page, and no other is named on it."""
    assert sorted(row[0] for row in table_below("Variable")) == sorted(_READERS)
    assert set(re.findall(rf"\b{PREFIX}[A-Z_]+", PAGE)) == set(_READERS)


def test_the_table_of_alarms_is_the_template_s() -> None:
    """Whoever is woken by an alarm finds it on the page."""
    template = (Path(__file__).parents[2] / "template.yaml").read_text(encoding="utf-8")
    alarms = re.findall(r"^  (\w+):\n    Type: AWS::CloudWatch::Alarm$", template, re.MULTILINE)

    assert sorted(row[0] for row in table_below("Alarm")) == sorted(alarms)
    assert alarms


def test_the_query_of_the_page_names_what_the_filter_counts() -> None:
    """The lines that raised the alarm are those that the query finds."""
    template = (Path(__file__).parents[2] / "template.yaml").read_text(encoding="utf-8")
    [query] = re.findall(r"filter event in \[(.*)\]", PAGE)

    assert set(re.findall(r'"([a-z_.]+)"', query)) == set(re.findall(r'\$\.event = "([a-z_.]+)"', template))
