"""The page of what a deployment without SAM has to create, held against the template and the settings."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.settings import _READERS, PREFIX, Settings
from template.reading import SHIPPED, Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "resources.md").read_text(encoding="utf-8")
# The user's own: it is there for the example jobs, and the page says so.
OF_THE_EXAMPLES = {"StockTable", "JobsPolicy", "LedgerTable", "LedgerPolicy"}
COMPARISONS = {"GreaterThanThreshold": "above", "LessThanThreshold": "below"}
DAY = 24 * 3600


class Everything(Stack):
    """The template with every resource in it, whatever its condition."""

    def holds(self, condition: str) -> bool:
        """Return that it does."""
        return True


STACK = Everything()


def of_type(*types: str) -> dict[str, dict[str, Any]]:
    """Return the shipped resources of some types, resolved, without the examples' own."""
    return {
        name: STACK.properties(name)
        for name, resource in STACK.template["Resources"].items()
        if resource["Type"] in types and name in SHIPPED - OF_THE_EXAMPLES
    }


def functions() -> dict[str, dict[str, Any]]:
    """Return the functions."""
    return of_type("AWS::Serverless::Function")


def name_of(value: Any) -> str:
    """Return the logical id that a reference is to, with what follows it."""
    if not isinstance(value, dict):
        return str(value)
    [(function, argument)] = value.items()
    if function == "Fn::GetAtt":
        return str(argument[0])
    text = argument[0] if isinstance(argument, list) else argument
    return re.sub(r"\$\{(\w+)(\.\w+)?\}", r"\1", str(text))


def listed(value: Any) -> list[Any]:
    """Return a list, of one where it is none."""
    return value if isinstance(value, list) else [value]


def code(*words: object) -> str:
    """Return words as a cell of the page has them."""
    return ", ".join(f"`{word}`" for word in words)


def rows_below(heading: str) -> list[list[str]]:
    """Return the cells of the table whose first heading this is."""
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def cells(heading: str, count: int) -> list[list[str]]:
    """Return the first cells of each row; the others are prose."""
    return [row[:count] for row in rows_below(heading)]


def tables() -> Iterator[list[str]]:
    """Yield what the template says of each table."""
    for name, table in of_type("AWS::DynamoDB::Table").items():
        types = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}

        def keys(schema: list[dict[str, str]], types: dict[str, str] = types) -> str:
            return ", ".join(
                f"`{one['AttributeName']}` ({types[one['AttributeName']]}, {one['KeyType']})" for one in schema
            )

        indexes = [
            f"`{index['IndexName']}`: {keys(index['KeySchema'])}, projects {index['Projection']['ProjectionType']}"
            for index in table.get("GlobalSecondaryIndexes", [])
        ]
        expiry = table["TimeToLiveSpecification"]["AttributeName"]
        yield [code(name), keys(table["KeySchema"]), "; ".join(indexes), code(expiry), code(table["BillingMode"])]


def queues() -> Iterator[list[str]]:
    """Yield what the template says of each queue."""
    for name, queue in of_type("AWS::SQS::Queue").items():
        redrive = queue.get("RedrivePolicy")
        after = (
            f"{code(name_of(redrive['deadLetterTargetArn']))} after {redrive['maxReceiveCount']} receives"
            if redrive
            else ""
        )
        visibility = f"{queue['VisibilityTimeout']} s" if "VisibilityTimeout" in queue else ""
        kind = "FIFO" if queue.get("FifoQueue") else "standard"
        yield [code(name), kind, visibility, f"{queue['MessageRetentionPeriod'] // DAY} days", after]


def buckets() -> Iterator[list[str]]:
    """Yield what the template says of each bucket."""
    for name, bucket in of_type("AWS::S3::Bucket").items():
        [rule] = bucket["LifecycleConfiguration"]["Rules"]
        [encryption] = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        ownership = [one["ObjectOwnership"] for one in bucket["OwnershipControls"]["Rules"]]
        algorithm = encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"]
        yield [code(name), f"{rule['ExpirationInDays']} days", code(algorithm), code(*ownership)]


def conditions() -> Iterator[list[str]]:
    """Yield which parameter makes which resources, in the template's order."""
    made: dict[str, list[str]] = {}
    for name, resource in STACK.template["Resources"].items():
        if "Condition" in resource and name in SHIPPED:
            made.setdefault(resource["Condition"], []).append(name)
    for condition, names in made.items():
        expression = STACK.template["Conditions"][condition]
        [parameter] = set(re.findall(r"'Ref': '(\w+)'", str(expression)))
        yield [code(parameter), code(*sorted(names))]


def handlers() -> Iterator[list[str]]:
    """Yield what the template says of each function, and what invokes it."""
    for name, function in functions().items():
        [event] = function["Events"].values()
        source = event["Properties"].get("Queue") or event["Properties"].get("Schedule")
        yield [code(name), code(function["Handler"]), f"{function['Timeout']} s", code(name_of(source))]


def mappings() -> Iterator[list[str]]:
    """Yield the settings of each event source mapping, one a row."""
    for name, function in functions().items():
        for event in function["Events"].values():
            if event["Type"] != "SQS":
                continue
            for setting, value in event["Properties"].items():
                for part, one in value.items() if setting == "ScalingConfig" else [("", value)]:
                    words = f"{setting}.{part}" if part else setting
                    shown = ", ".join(map(name_of, listed(one)))
                    yield [code(name), code(words), code(shown)]


def permissions() -> Iterator[tuple[str, str, frozenset[str], str]]:
    """Yield who may do what on which resource, and under which condition."""
    for name, policy in of_type("AWS::IAM::Role", "AWS::IAM::ManagedPolicy").items():
        documents = [one["PolicyDocument"] for one in policy.get("Policies", [])] or [policy["PolicyDocument"]]
        allowed: dict[tuple[str, str], set[str]] = {}
        for statement in (one for document in documents for one in document["Statement"]):
            assert statement["Effect"] == "Allow"
            condition = "; ".join(
                f"{code(key)} like {code(*values)}"
                for operator, wanted in statement.get("Condition", {}).items()
                for key, values in wanted.items()
                if operator == "ForAllValues:StringLike"
            )
            assert bool(condition) == ("Condition" in statement)
            for resource in map(name_of, listed(statement["Resource"])):
                allowed.setdefault((resource, condition), set()).update(listed(statement["Action"]))
        yield from ((name, on, frozenset(actions), condition) for (on, condition), actions in allowed.items())


def schedules() -> Iterator[list[str]]:
    """Yield what the template runs by the clock."""
    for name, function in functions().items():
        for event in function["Events"].values():
            if event["Type"] == "Schedule":
                yield [code(event["Properties"]["Schedule"]), code(name)]
    for name, schedule in of_type("AWS::Scheduler::Schedule").items():
        assert name
        yield [code(schedule["ScheduleExpression"]), code(name_of(schedule["Target"]["Arn"]))]


def alarms() -> Iterator[list[str]]:
    """Yield when each alarm rings."""
    for name, alarm in of_type("AWS::CloudWatch::Alarm").items():
        of = f" of {code(name_of(alarm['Dimensions'][0]['Value']))}" if "Dimensions" in alarm else ""
        bound = f"{COMPARISONS[alarm['ComparisonOperator']]} {alarm['Threshold']}"
        periods = alarm["EvaluationPeriods"]
        points = alarm.get("DatapointsToAlarm", periods)
        times = f"{points} of {periods} x {alarm['Period']} s"
        yield [code(name), f"{code(alarm['MetricName'])}{of}", f"{alarm['Statistic']} {bound}", times]


def filters() -> Iterator[list[str]]:
    """Yield what each metric filter counts."""
    for metric_filter in of_type("AWS::Logs::MetricFilter").values():
        [made] = metric_filter["MetricTransformations"]
        pattern = " ".join(metric_filter["FilterPattern"].split())
        yield [
            code(made["MetricName"]),
            code(name_of(metric_filter["LogGroupName"])),
            code(pattern.replace("|", "\\|")),
        ]


def variables() -> Iterator[list[str]]:
    """Yield each setting with its default and the functions that the template gives it to."""
    defaults = {field.name: field for field in dataclasses.fields(Settings)}
    for variable, (name, _) in _READERS.items():
        default = defaults[name].default
        plain = "" if default is dataclasses.MISSING or default in ("", ()) else code(str(default).lower())
        given = [one for one, function in functions().items() if variable in function["Environment"]["Variables"]]
        yield [code(variable), plain, code(*given)]


def test_the_tables_are_the_template_s() -> None:
    """Keys, index, TTL attribute and billing are what the framework finds where SAM deploys it."""
    assert cells("Table", 5) == list(tables())


def test_the_queues_are_the_template_s() -> None:
    """Type, times and redrive policy too; and each is encrypted and refuses plain HTTP, as the page says."""
    assert cells("Queue", 5) == list(queues())
    assert all(queue["SqsManagedSseEnabled"] for queue in of_type("AWS::SQS::Queue").values())
    denied = of_type("AWS::SQS::QueuePolicy").values()
    assert {name_of(queue) for policy in denied for queue in policy["Queues"]} == set(of_type("AWS::SQS::Queue"))


def test_the_buckets_are_the_template_s() -> None:
    """An object outlives its message: 14 days in each of the two queues."""
    assert cells("Bucket", 4) == list(buckets())
    assert all(int(row[1].split()[0]) > 28 for row in buckets())
    for bucket in of_type("AWS::S3::Bucket").values():
        assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}


def test_what_is_made_by_a_parameter_is_said_to_be() -> None:
    """Nobody looks for a queue that there is not."""
    assert cells("Parameter", 2) == list(conditions())


def test_the_functions_are_the_template_s() -> None:
    """Handler, time-out, and what invokes each."""
    assert cells("Function", 4) == list(handlers())


def test_the_event_source_mappings_are_the_template_s() -> None:
    """Among them the one that must not be forgotten."""
    found = list(mappings())

    assert cells("Mapping of", 3) == found
    consumers = [name for name, one in functions().items() if one["Handler"].endswith(".consumer")]
    assert [row[0] for row in found if row[2] == "`ReportBatchItemFailures`"] == [code(name) for name in consumers]


def test_the_variables_are_those_of_the_settings() -> None:
    """Each with its default and who gets it; no other name with the prefix stands on the page."""
    rows = rows_below("Variable")

    assert [row[:3] for row in rows] == list(variables())
    assert all(row[3] for row in rows)
    assert set(re.findall(rf"\b{PREFIX}[A-Z_]+", PAGE)) == set(_READERS)


def test_the_permissions_are_the_template_s() -> None:
    """Who may do what on which resource: no action too few, and none too many."""
    found = [
        (who.strip("`"), on.strip("`"), frozenset(re.findall(r"`([\w:]+)`", actions)), condition)
        for who, on, actions, condition in rows_below("Who")
    ]

    assert found == list(permissions())


def test_the_schedules_are_the_template_s() -> None:
    """The relay's, recovery's and the example's."""
    assert cells("Expression", 2) == list(schedules())


def test_the_alarms_and_what_they_count_are_the_template_s() -> None:
    """Metric, bound and periods; and the log lines behind the metrics that are the stack's own."""
    assert cells("Alarm", 4) == list(alarms())
    # A cell of Markdown has its bars escaped, which the plain reader above would split at.
    table = PAGE.split("| Counted as |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    assert [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip("|"))] for row in table] == list(filters())


def test_nothing_that_the_template_makes_is_forgotten() -> None:
    """Every resource that is shipped is named on the page, or is of a kind that the page leaves to the reader."""
    left = {"AWS::Logs::LogGroup", "AWS::CloudWatch::Dashboard", "AWS::SQS::QueuePolicy", "AWS::Logs::MetricFilter"}
    left.add("AWS::S3::BucketPolicy")
    named = set(re.findall(r"`(\w+)", PAGE))
    made = {name for name, one in STACK.template["Resources"].items() if one["Type"] not in left and name in SHIPPED}

    assert made - named - {"NightlyReportSchedule"} == set()
