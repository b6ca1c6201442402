"""What the stack consists of, held against the code that uses it."""

from __future__ import annotations

import importlib
import json
import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from onceq import telemetry
from onceq.models import ClaimModel
from onceq.powertools import PowertoolsHook
from onceq.record import EXPIRES_AT, PARTITION_KEY
from onceq.settings import _READERS, PREFIX, Settings
from onceq.telemetry import ClaimWasLost, Event, JobReplayed, MessageRefused
from template.reading import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS = [kind for kind in vars(telemetry).values() if isinstance(kind, type) and issubclass(kind, Event) and kind.name]


def _event_source(stack: Stack) -> dict[str, Any]:
    [event] = stack.properties("ConsumerFunction")["Events"].values()
    assert event["Type"] == "SQS"
    properties = event["Properties"]
    assert isinstance(properties, dict)
    return properties


def _text(value: Any) -> Any:
    """Resolve an environment value as a deployment would, with made-up names."""
    if isinstance(value, dict) and "Fn::Sub" in value:
        return re.sub(r"\$\{([A-Za-z:.]+)\}", lambda match: f"name-of-{match[1]}", value["Fn::Sub"])
    return f"name-of-{value['Ref']}" if isinstance(value, dict) else str(value)


def _environment(stack: Stack) -> dict[str, str]:
    variables = stack.properties("ConsumerFunction")["Environment"]["Variables"]
    return {name: _text(value) for name, value in variables.items()}


def test_only_named_messages_are_kept(stack: Stack) -> None:
    """Without ReportBatchItemFailures Lambda deletes a kept message (G4, G5)."""
    assert _event_source(stack)["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_the_event_source_takes_its_numbers_from_parameters(stack: Stack) -> None:
    """Batch size, window and concurrency of the event source are what the inequalities were checked with."""
    source = stack.template["Resources"]["ConsumerFunction"]["Properties"]["Events"]["Jobs"]["Properties"]
    assert source["Queue"] == {"Fn::GetAtt": ["JobsQueue", "Arn"]}
    assert source["BatchSize"] == {"Ref": "BatchSize"}
    assert source["MaximumBatchingWindowInSeconds"] == {"Ref": "BatchingWindow"}
    assert source["ScalingConfig"] == {"MaximumConcurrency": {"Ref": "MaximumConcurrency"}}


def test_the_handler_exists(stack: Stack) -> None:
    """The handler that the template names is a callable of the application."""
    consumer = stack.properties("ConsumerFunction")
    module, _, name = consumer["Handler"].partition(".")
    assert consumer["CodeUri"] == "src/"
    assert callable(getattr(importlib.import_module(module), name))


def test_the_function_does_not_depend_on_a_dead_letter_queue_of_its_own(stack: Stack) -> None:
    """A function's own dead-letter queue is used by asynchronous invocations only, never for SQS."""
    assert "DeadLetterQueue" not in stack.properties("ConsumerFunction")


def test_the_environment_is_one_that_the_framework_reads(deployment: Stack) -> None:
    """Every ONCEQ_ variable of the template is known, and its value usable."""
    environment = _environment(deployment)
    settings = Settings.from_env(environment)
    queue = settings.queue("default")
    assert settings.claims_table == "name-of-ClaimsTable"
    assert (queue.url, queue.arn, queue.dlq_url) == (
        "name-of-JobsQueue",
        "name-of-JobsQueue.Arn",
        "name-of-DeadLetterQueue",
    )
    assert settings.concurrency == deployment.parameters["Concurrency"]
    assert settings.clock_skew == deployment.parameters["ClockSkew"]
    assert settings.reserve == deployment.parameters["Reserve"]
    assert settings.result_limit == deployment.parameters["ResultLimit"]
    assert settings.max_hops == deployment.parameters["MaxHops"]
    assert settings.log_payloads is False


def test_every_setting_of_the_framework_is_declared(stack: Stack) -> None:
    """A variable that the template does not declare reaches neither Lambda nor a local run."""
    declared = {name for name in _environment(stack) if name.startswith(PREFIX)}
    assert declared == set(_READERS)


def test_the_defaults_are_the_frameworks_own(stack: Stack) -> None:
    """What the template says without overrides is what the code does without a setting."""
    said = Settings.from_env(_environment(stack))
    assert said == replace(Settings(), queues=said.queues, claims_table=said.claims_table)


def test_the_endpoint_is_declared_and_empty(deployment: Stack) -> None:
    """`sam local` passes only declared variables; deployed, an empty endpoint means AWS."""
    variables = deployment.template["Resources"]["ConsumerFunction"]["Properties"]["Environment"]["Variables"]
    assert variables["AWS_ENDPOINT_URL"] == {"Ref": "EndpointUrl"}
    assert deployment.parameters["EndpointUrl"] == ""


def test_the_table_is_the_one_that_the_code_writes(stack: Stack) -> None:
    """Partition key and TTL attribute are the code's, and there is no sort key."""
    table = stack.properties("ClaimsTable")
    assert table["KeySchema"] == [{"AttributeName": PARTITION_KEY, "KeyType": "HASH"}]
    assert table["AttributeDefinitions"] == [{"AttributeName": PARTITION_KEY, "AttributeType": "S"}]
    assert table["TimeToLiveSpecification"] == {"AttributeName": EXPIRES_AT, "Enabled": True}
    assert {PARTITION_KEY, EXPIRES_AT} <= set(ClaimModel.get_attributes())


def test_completions_outlive_the_stack(stack: Stack) -> None:
    """Deleting or replacing the stack keeps the claims table; it can be restored, is encrypted and on demand (G3)."""
    resource = stack.template["Resources"]["ClaimsTable"]
    assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"
    assert resource["Properties"]["BillingMode"] == "PAY_PER_REQUEST"
    assert resource["Properties"]["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True
    assert resource["Properties"]["SSESpecification"]["SSEEnabled"] is True


def test_queues_are_encrypted_and_refuse_plain_http(stack: Stack) -> None:
    """SQS encrypts both queues with its own key, and both deny connections without TLS."""
    guarded = set()
    for policy in stack.of_type("AWS::SQS::QueuePolicy").values():
        [statement] = policy["PolicyDocument"]["Statement"]
        assert statement["Effect"] == "Deny"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        guarded |= {queue["Ref"] for queue in policy["Queues"]}
    queues = stack.of_type("AWS::SQS::Queue")
    assert guarded == set(queues) == {"JobsQueue", "DeadLetterQueue"}
    assert all(queue["SqsManagedSseEnabled"] is True for queue in queues.values())


def test_no_resource_has_a_physical_name(stack: Stack) -> None:
    """A retained table with a fixed name would block the next deployment, and a second stack beside it."""
    names = re.compile(r"^(Queue|Table|Function|Role|Alarm|Dashboard|LogGroup|ManagedPolicy)Name$")
    resources = stack.template["Resources"]
    for logical_id, resource in resources.items():
        given = {name: value for name, value in resource["Properties"].items() if names.match(name)}
        # A metric filter names the log group that it reads: another resource, by reference.
        assert all(isinstance(value, dict) and value.get("Ref") in resources for value in given.values()), logical_id


def test_metrics_survive_the_log_level(stack: Stack) -> None:
    """EMF lines have no level, so an application log level above INFO would drop every metric."""
    config = stack.template["Resources"]["ConsumerFunction"]["Properties"]["LoggingConfig"]
    assert config["LogFormat"] == "JSON"
    assert config["ApplicationLogLevel"] == {"Ref": "LogLevel"}
    assert set(stack.template["Parameters"]["LogLevel"]["AllowedValues"]) <= {"TRACE", "DEBUG", "INFO"}


def test_logs_have_a_group_with_an_end(stack: Stack) -> None:
    """The function logs into a group of the stack's own whose lines expire."""
    assert stack.properties("ConsumerFunction")["LoggingConfig"]["LogGroup"] == {"Ref": "ConsumerLogGroup"}
    assert stack.properties("ConsumerLogGroup")["RetentionInDays"] == stack.parameters["LogRetention"]


@pytest.mark.parametrize(
    ("namespace", "metric", "of"),
    [
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible", {"Fn::GetAtt": ["DeadLetterQueue", "QueueName"]}),
        ("AWS/SQS", "ApproximateAgeOfOldestMessage", {"Fn::GetAtt": ["JobsQueue", "QueueName"]}),
        ("AWS/Lambda", "Errors", {"Ref": "ConsumerFunction"}),
        ("AWS/Lambda", "Throttles", {"Ref": "ConsumerFunction"}),
        ({"Ref": "AWS::StackName"}, "NeedsAPerson", None),
    ],
)
def test_what_needs_a_person_raises_an_alarm(stack: Stack, namespace: Any, metric: str, of: Any) -> None:
    """Dead letters, an old message, errors, throttles and four events each have an alarm that says what to do."""
    found = [
        alarm
        for alarm in stack.of_type("AWS::CloudWatch::Alarm").values()
        if (alarm["Namespace"], alarm["MetricName"]) == (namespace, metric)
        and alarm.get("Dimensions", [{}])[0].get("Value") == of
    ]
    assert len(found) == 1
    assert found[0]["AlarmDescription"]
    assert "AlarmActions" not in found[0]


def test_the_alarm_of_events_counts_events_that_exist(stack: Stack) -> None:
    """A mistyped name in the log filter would never match: each is an event's, at level ERROR, and what is counted."""
    [metric_filter] = stack.of_type("AWS::Logs::MetricFilter").values()
    named = re.findall(r"""\(\$\.event = "([a-z_.]+)"\)""", metric_filter["FilterPattern"])
    rebuilt = " || ".join(f'($.event = "{name}")' for name in named)
    levels = {kind.name: kind.level for kind in EVENTS}

    assert metric_filter["FilterPattern"] == f"{{ {rebuilt} }}"
    assert set(named) == {"effect.not_recorded", "claim.lost", "message.unserved", "message.copy_failed"}
    assert {levels[name] for name in named} == {logging.ERROR}
    assert metric_filter["LogGroupName"] == {"Ref": "ConsumerLogGroup"}
    [made] = metric_filter["MetricTransformations"]
    alarm = stack.properties("NeedsAPersonAlarm")
    assert (made["MetricNamespace"], made["MetricName"]) == (alarm["Namespace"], alarm["MetricName"])


def test_the_filter_finds_the_name_where_the_hook_writes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each event is a JSON line with its name under `event`, at the top: there the filter looks."""
    written = _written(monkeypatch, capsys, ClaimWasLost(job_type="t", key="k", status=None, winner=None))
    assert [line["event"] for line in written if "event" in line] == ["claim.lost"]


def test_the_dashboard_searches_the_dimensions_that_metrics_have(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SEARCH finds metrics with exactly its dimensions, and messages' metrics have no job type."""
    events = JobReplayed(job_type="t", key="k"), MessageRefused(message_id="m", reason="no")
    emf = [line["_aws"] for line in _written(monkeypatch, capsys, *events) if "_aws" in line]
    emitted = {frozenset(one) for line in emf for metrics in line["CloudWatchMetrics"] for one in metrics["Dimensions"]}
    body = _text(stack.properties("Dashboard")["DashboardBody"])
    searched = {frozenset(names.split(",")) for names in re.findall(r"""SEARCH\('\{\\"[^"]+\\",([a-z_,]+)\}'""", body)}

    assert emitted == searched == {frozenset({"job_type", "service"}), frozenset({"service"})}


def _written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *events: Event
) -> list[dict[str, Any]]:
    """Return the lines that the default hook writes, with the variables that the template gives it."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "consumer")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "stack")
    hook = PowertoolsHook()
    for event in events:
        hook(event)
    hook.flush()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_alarms_notify_the_topic_that_is_given() -> None:
    """With AlarmTopicArn every alarm notifies it; without, none has an action."""
    topic = "arn:aws:sns:us-east-1:123456789012:oncall"
    for alarm in Stack(given={"AlarmTopicArn": topic}).of_type("AWS::CloudWatch::Alarm").values():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [topic]


def test_the_function_enters_a_vpc_only_when_asked() -> None:
    """With subnets the function is inside a VPC; without, it is not."""
    inside = Stack(given={"VpcSubnetIds": "subnet-1,subnet-2", "VpcSecurityGroupIds": "sg-1"})
    assert inside.properties("ConsumerFunction")["VpcConfig"]["SubnetIds"] == "subnet-1,subnet-2"
    assert "VpcConfig" not in Stack().properties("ConsumerFunction")


def test_the_dashboard_is_json(stack: Stack) -> None:
    """CloudWatch refuses a dashboard body that is not JSON at deployment; it is refused here first."""
    body = json.loads(_text(stack.properties("Dashboard")["DashboardBody"]))
    assert [widget["properties"]["title"] for widget in body["widgets"]]


def test_references_lead_somewhere(stack: Stack) -> None:
    """Every Ref, GetAtt and Sub names a parameter or a resource of this template, or a pseudo parameter."""
    known = {*stack.template["Resources"], *stack.template["Parameters"]}
    named = set(_references(stack.template))
    assert len(named) > len(stack.template["Resources"])
    assert {name for name in named if not name.startswith("AWS::")} <= known


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _references(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key == "Ref":
                yield one
            elif key == "Fn::GetAtt":
                yield one[0]
            elif key == "Fn::Sub":
                yield from (name.split(".")[0] for name in re.findall(r"\$\{([A-Za-z:.]+)\}", one))
            else:
                yield from _references(one)
