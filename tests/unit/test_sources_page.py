"""The page of foreign messages, held against the code, and its YAML against the template."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kit.world import event_of, kept
from onceq import job, source
from template.reading import ROOT, _Loader

if TYPE_CHECKING:
    from kit.world import World

PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
ANCHOR = '            Condition: {Bool: {aws:SecureTransport: "false"}}\n'


def blocks() -> dict[str, str]:
    """Return the page's YAML by where it goes."""
    found = re.findall(r"^<!-- into: (\w+) -->\n```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(found) == PAGE.count("```yaml")
    assert [place for place, _ in found] == ["OnlyEncryptedConnections", "Resources"]
    return dict(found)


def wired() -> str:
    """Return the template with what the page adds, as a user would put it."""
    text, added = (ROOT / "template.yaml").read_text(encoding="utf-8"), blocks()
    if any(f"\n  {name}:\n" in text for name in re.findall(r"^(\w+):", added["Resources"], re.MULTILINE)):
        pytest.skip("the template has it already")
    head, policy = text.split("\n  OnlyEncryptedConnections:\n")
    before, after = policy.split(ANCHOR, 1)
    statements = textwrap.indent(added["OnlyEncryptedConnections"], " " * 10)
    text = f"{head}\n  OnlyEncryptedConnections:\n{before}{ANCHOR}{statements}{after}"
    resources, outputs = text.split("\nOutputs:\n")
    return f"{resources}\n{textwrap.indent(added['Resources'], '  ')}\nOutputs:\n{outputs}"


def lint(template: Path, text: str) -> str:
    """Return what cfn-lint says."""
    template.write_text(text, encoding="utf-8")
    linter = Path(sys.executable).with_name("cfn-lint")
    done = subprocess.run([linter, template], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_what_the_page_adds_to_the_template_is_accepted(tmp_path: Path) -> None:
    """cfn-lint says nothing of it, and names a reference that leads nowhere."""
    text = wired()

    assert lint(tmp_path / "template.yaml", text) == ""
    assert "OrdersTopics" in lint(tmp_path / "broken.yaml", text.replace("!Ref OrdersTopic}", "!Ref OrdersTopics}"))


def test_the_queue_keeps_one_policy_and_each_service_a_statement() -> None:
    """A second policy would replace it; and each statement says who may send, for whom, and only to the jobs queue."""
    # The loader is a SafeLoader.
    template: dict[str, Any] = yaml.load(wired(), Loader=_Loader)  # noqa: S506
    policies = [one for one in template["Resources"].values() if one["Type"] == "AWS::SQS::QueuePolicy"]
    [policy] = [one for one in policies if {"Ref": "JobsQueue"} in one["Properties"]["Queues"]]
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    [denied] = [one for one in statements if one["Effect"] == "Deny"]
    added = [one for one in statements if f"- Sid: {one['Sid']}\n" in blocks()["OnlyEncryptedConnections"]]

    assert (denied["Sid"], denied["Effect"]) == ("DenyPlainHttp", "Deny")
    assert {one["Principal"]["Service"].split(".")[0] for one in added} == {"sns", "events", "s3"}
    for one in added:
        assert (one["Effect"], one["Action"]) == ("Allow", "sqs:SendMessage")
        assert one["Resource"] == {"Fn::GetAtt": ["JobsQueue", "Arn"]}
        assert one["Condition"]
    assert template["Resources"]["UploadsBucket"]["DependsOn"] == "OnlyEncryptedConnections"


def test_the_fields_of_an_object_are_the_page_s() -> None:
    """Each by name, type and order of importance."""
    table = PAGE.split("| Field |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    rows = [re.findall(r"`([^`]+)`", row)[:2] for row in table]

    fields = {field.name: str(field.type) for field in dataclasses.fields(source.S3Object)}
    assert {name: kind.replace("\\|", "|") for name, kind in rows} == fields


def test_the_body_of_the_page_is_the_job_that_it_shows(world: World) -> None:
    """What is sent by hand there has the key that is looked up."""
    [body] = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    [key] = re.findall(r"onceq show make_thumbnail (\S+)", PAGE)

    @job("make_thumbnail", source=source.s3())
    def make_thumbnail(stored: source.S3Object) -> str:
        return stored.key

    app = world.app(make_thumbnail)

    assert kept(app.consumer(event_of(world.raw(body)))) == []
    status = app.lookup(make_thumbnail, key)
    assert status is not None
    assert status.result == "cat.jpg"


def test_the_order_in_which_job_types_are_asked_is_the_page_s() -> None:
    """From what takes least to what takes everything."""
    lines = re.findall(r"^  │     \d\. (.+)$", PAGE, re.MULTILINE)
    kinds = {
        "s3": source.s3(),
        "scheduler": source.scheduler(),
        "records": source.records(),
        "eventbridge": source.eventbridge(),
        "sns": source.sns(),
        "sns(raw=True)": source.sns(raw=True),
        "plain": source.plain(),
    }
    ranks = [
        {kinds[name].rank for name in re.findall(r"[a-z][a-z0-9]*(?:\(raw=True\))?", line) if name in kinds}
        for line in lines
    ]

    assert all(len(rank) == 1 for rank in ranks), ranks
    assert [*ranks] == sorted(ranks, key=min)
    assert len(lines) == 4
    assert source.eventbridge(detail_type="a", source="b").rank < source.eventbridge(detail_type="a").rank
