"""The operator's page, held against the code that it describes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from onceq import effect_events, telemetry
from onceq.settings import _READERS, PREFIX

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
TEMPLATE = (ROOT / "template.yaml").read_text(encoding="utf-8")


def table_below(heading: str) -> list[list[str]]:
    """Return the cells of the table that starts with this heading, without the heading itself."""
    rows = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


def test_the_table_of_events_is_the_code_s() -> None:
    """Every event stands on the page once, with its metric or without one."""
    listed = [(name, metric) for name, metric, *_ in table_below("Event")]
    classes = {**vars(telemetry), **vars(effect_events)}
    found = [kind for kind in classes.values() if inspect.isclass(kind) and issubclass(kind, telemetry.Event)]

    assert sorted(listed) == sorted((kind.name, kind.metric or "") for kind in found if kind.name)
    assert all(means for _, _, means, _ in table_below("Event"))


def test_the_table_of_variables_is_the_code_s() -> None:
    """Every setting stands on the page, and no other is named on it."""
    assert sorted(row[0] for row in table_below("Variable")) == sorted(_READERS)
    assert set(re.findall(rf"\b{PREFIX}[A-Z_]+", PAGE)) == set(_READERS)


def test_a_variable_s_parameter_is_the_one_that_the_template_gives_it() -> None:
    """Whoever turns the knob turns this variable, in every function that has it."""
    given = dict(re.findall(rf"^ +({PREFIX}[A-Z_]+): !Ref (\w+)$", TEMPLATE, re.MULTILINE))
    parameters = parameters_of_the_template()
    expected = {name: given[name] if given.get(name) in parameters else "" for name in _READERS}

    assert {row[0]: row[1] for row in table_below("Variable")} == expected


def parameters_of_the_template() -> set[str]:
    """Return the names of the template's parameters."""
    section = TEMPLATE.split("\nParameters:\n", 1)[1].split("\nRules:\n", 1)[0]
    return set(re.findall(r"^  (\w+):$", section, re.MULTILINE))


def test_a_parameter_and_an_output_that_the_page_names_are_the_template_s() -> None:
    """What is to be set, and the policy that is to be attached, are there."""
    named = {name for row in table_below("Parameter") for name in re.findall(r"[A-Z]\w+", row[0])}
    outputs = set(re.findall(r"^  (\w+):$", TEMPLATE.split("\nOutputs:\n", 1)[1], re.MULTILINE))
    policies = {name for row in table_below("Call") for name in re.findall(r"\w+Arn", row[1])}

    assert named
    assert named <= parameters_of_the_template()
    assert policies == {name for name in outputs if name.endswith("PolicyArn")}


def test_every_alarm_and_event_that_needs_a_runbook_links_to_one() -> None:
    """A link of the page leads to a heading of it."""
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)}
    links = set(re.findall(r"\]\(#([^)]+)\)", PAGE))

    assert links
    assert links <= headings


def test_the_table_of_alarms_is_the_template_s() -> None:
    """Whoever is woken by an alarm finds it on the page."""
    alarms = re.findall(r"^  (\w+):\n    Type: AWS::CloudWatch::Alarm$", TEMPLATE, re.MULTILINE)

    assert sorted(row[0] for row in table_below("Alarm")) == sorted(alarms)
    assert alarms


def test_the_queries_of_the_page_name_what_the_filters_count() -> None:
    """The lines that raised an alarm are those that the query of their log group finds."""
    counted: dict[str, set[str]] = {}
    for resource in TEMPLATE.split("Type: AWS::Logs::MetricFilter\n")[1:]:
        (group,) = re.findall(r"LogGroupName: !Ref (\w+)", resource.split("\n\n", 1)[0])
        counted.setdefault(group, set()).update(re.findall(r'\$\.event = "([a-z_.]+)"', resource.split("\n\n", 1)[0]))
    asked = {group: set(re.findall(r'"([a-z_.]+)"', query)) for group, query in table_below("Log group")}

    assert asked == counted
    assert counted
