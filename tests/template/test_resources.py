"""What the stack consists of, held against the code that uses it."""

from __future__ import annotations

import importlib
import json
import logging
import re
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from app import app
from onceq import effect_events, telemetry
from onceq.effect_events import ClaimWentStale, OutboxOverdue, OutboxSent
from onceq.models import ClaimModel
from onceq.outbox import INDEX, LONGEST_PAUSE_MS, OutboxEntry
from onceq.powertools import PowertoolsHook
from onceq.record import EXPIRES_AT, PARTITION_KEY
from onceq.settings import _RANGES, _READERS, PREFIX, QueueSettings, Settings
from onceq.telemetry import ClaimWasLost, Event, JobHeld, JobReplayed, MessageRefused
from template.reading import FUNCTION, SHIPPED, Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS = {
    kind.name: kind
    for module in (telemetry, effect_events)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind.name
}
FUNCTIONS = {
    "ConsumerFunction": "app.consumer",
    "LedgerFunction": "app.consumer",
    "RelayFunction": "app.relay",
    "RecoveryFunction": "app.recovery",
}
# What each function's code reads of the settings; the rest of them is the consumer's.
RELAY = {"ONCEQ_OUTBOX_TABLE", "ONCEQ_QUEUES", "ONCEQ_OUTBOX_OVERDUE"}
RECOVERY = {"ONCEQ_CLAIMS_TABLE", "ONCEQ_CLOCK_SKEW", "ONCEQ_RECOVERY_RATE"}
ENTRY = OutboxEntry("e-1", "t", "k", "default", "{}", created_at=1, due_at=1, shard="0", next_at=1)
# The filters that count what raises an alarm: in whose log, into which metric, and lines that count and do not.
CONSUMERS = ("ConsumerFunction", "LedgerFunction")
FILTERS: dict[str, tuple[str, str, list[Event], list[Event]]] = {
    "NeedsAPersonFilter": (
        "Consumer",
        "NeedsAPerson",
        [ClaimWasLost(job_type="t", key="k", status=None, winner=None)],
        [JobHeld(job_type="t", key="k", reason="no")],
    ),
    "UncertainJobsFilter": (
        "Consumer",
        "UncertainJobs",
        [JobHeld(job_type="t", key="k", reason="no")],
        [JobHeld(job_type="t", key="k", reason="no", before=True), JobReplayed(job_type="t", key="k")],
    ),
    "LedgerNeedsAPersonFilter": (
        "Ledger",
        "NeedsAPerson",
        [ClaimWasLost(job_type="t", key="k", status=None, winner=None)],
        [JobHeld(job_type="t", key="k", reason="no")],
    ),
    "LedgerUncertainJobsFilter": (
        "Ledger",
        "UncertainJobs",
        [JobHeld(job_type="t", key="k", reason="no")],
        [JobHeld(job_type="t", key="k", reason="no", before=True), JobReplayed(job_type="t", key="k")],
    ),
    "UncertainInRecoveryFilter": (
        "Recovery",
        "UncertainJobs",
        [ClaimWentStale(job_type="t", key="k", status="uncertain")],
        [ClaimWentStale(job_type="t", key="k", status="failed")],
    ),
    "OutboxOverdueFilter": (
        "Relay",
        "OverdueMessages",
        [OutboxOverdue(entries=2, seconds=400)],
        [OutboxSent(entry="e", job_type="t", key="k", message_id="m", seconds=0.1)],
    ),
    "StaleClaimsFilter": (
        "Recovery",
        "StaleClaims",
        [ClaimWentStale(job_type="t", key="k", status=status) for status in ("failed", "uncertain")],
        [ClaimWasLost(job_type="t", key="k", status=None, winner=None)],
    ),
}


def _event_source(stack: Stack, function: str = "ConsumerFunction") -> dict[str, Any]:
    [event] = stack.properties(function)["Events"].values()
    assert event["Type"] == "SQS"
    properties = event["Properties"]
    assert isinstance(properties, dict)
    return properties


def _text(value: Any) -> Any:
    """Resolve an environment value as a deployment would, with made-up names."""
    if isinstance(value, dict) and "Fn::Sub" in value:
        text, variables = value["Fn::Sub"] if isinstance(value["Fn::Sub"], list) else (value["Fn::Sub"], {})
        known = {name: _text(one) for name, one in variables.items()}
        return re.sub(r"\$\{([A-Za-z:.]+)\}", lambda match: known.get(match[1], f"name-of-{match[1]}"), text)
    if isinstance(value, dict) and "Fn::GetAtt" in value:
        return f"name-of-{'.'.join(value['Fn::GetAtt'])}"
    return f"name-of-{value['Ref']}" if isinstance(value, dict) else str(value)


def _environment(stack: Stack, function: str = "ConsumerFunction") -> dict[str, str]:
    variables = stack.properties(function)["Environment"]["Variables"]
    return {name: _text(value) for name, value in variables.items()}


@pytest.mark.parametrize("function", CONSUMERS)
def test_only_named_messages_are_kept(stack: Stack, function: str) -> None:
    """Without ReportBatchItemFailures Lambda deletes a kept message (G4, G5)."""
    assert _event_source(stack, function)["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_the_event_source_takes_its_numbers_from_parameters(stack: Stack) -> None:
    """Batch size, window and concurrency of the event source are what the inequalities were checked with."""
    source = stack.declared("ConsumerFunction")["Events"]["Jobs"]["Properties"]
    assert source["Queue"] == {"Fn::GetAtt": ["JobsQueue", "Arn"]}
    assert source["BatchSize"] == {"Ref": "BatchSize"}
    assert source["MaximumBatchingWindowInSeconds"] == {"Ref": "BatchingWindow"}
    assert source["ScalingConfig"] == {"MaximumConcurrency": {"Ref": "MaximumConcurrency"}}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_handler_exists(stack: Stack, function: str) -> None:
    """The handler that the template names is a callable of the application, and all functions share its code."""
    properties = stack.properties(function)
    module, _, name = properties["Handler"].partition(".")
    assert properties["CodeUri"] == "src/"
    assert properties["Handler"] == FUNCTIONS[function]
    assert callable(getattr(importlib.import_module(module), name))


def test_these_are_all_functions(stack: Stack) -> None:
    """What is tested below of each function is tested of every one."""
    assert set(stack.of_type(FUNCTION)) == {function for function in FUNCTIONS if stack.makes(function)}
    assert {function for function in FUNCTIONS if not Stack().makes(function)} == {"LedgerFunction"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_function_does_not_depend_on_a_dead_letter_queue_of_its_own(stack: Stack, function: str) -> None:
    """A function's own dead-letter queue would keep invocations, of which the next run needs none, and no message."""
    assert "DeadLetterQueue" not in stack.properties(function)


def test_a_chain_of_jobs_is_ended_by_us_and_not_by_lambda(stack: Stack) -> None:
    """Lambda would end a chain after 16 hops, in the dead-letter queue; our own count of hops ends a loop."""
    for function in CONSUMERS:
        assert stack.properties(function)["RecursiveLoop"] == "Allow"
        assert Settings.from_env(_environment(stack, function)).max_hops == stack.parameters["MaxHops"] > 16


def test_the_environment_is_one_that_the_framework_reads(deployment: Stack) -> None:
    """Every ONCEQ_ variable of the template is known, and its value usable."""
    environment = _environment(deployment)
    settings = Settings.from_env(environment)
    queue = settings.queue("default")
    assert settings.claims_table == "name-of-ClaimsTable"
    assert settings.outbox_table == "name-of-OutboxTable"
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
    assert settings.payload_limit == deployment.parameters["PayloadLimit"]
    assert settings.payload_bucket == ("name-of-PayloadBucket" if deployment.makes("PayloadBucket") else "")
    assert settings.log_payloads is False


def test_a_second_queue_is_named_to_whoever_sends_to_it_where_there_is_one(stack: Stack) -> None:
    """Consumer and relay know its address and no more; without the queue they have no name for it."""
    consumer, relay = (Settings.from_env(_environment(stack, name)) for name in ("ConsumerFunction", "RelayFunction"))
    names = {"default", "ledger"} if stack.makes("LedgerJobsQueue") else {"default"}

    assert set(consumer.queues) == set(relay.queues) == names
    for settings in (consumer, relay) if "ledger" in names else ():
        assert settings.queue("ledger") == QueueSettings("ledger", "name-of-LedgerJobsQueue")


def test_the_ordered_function_consumes_its_own_queue_and_knows_no_other(stack: Stack) -> None:
    """A name without permission would only fail at the first message; everything else is as for the consumer."""
    settings, consumer = (Settings.from_env(_environment(stack, name)) for name in reversed(CONSUMERS))
    own = QueueSettings(
        "ledger", "name-of-LedgerJobsQueue", "name-of-LedgerJobsQueue.Arn", "name-of-LedgerDeadLetterQueue"
    )

    assert settings.queues == {"ledger": own}
    assert settings == replace(consumer, queues=settings.queues)
    assert _event_source(stack, "LedgerFunction")["Queue"] == {"Fn::GetAtt": ["LedgerJobsQueue", "Arn"]}


def test_every_queue_of_a_job_type_has_a_function() -> None:
    """A job type of a queue that nobody consumes would never run."""
    everything = Stack(given={"LedgerQueue": "true"})
    consumed = {
        name
        for function in (*CONSUMERS, *everything.added(FUNCTION))
        if "ONCEQ_QUEUES" in _environment(everything, function)
        for name, queue in Settings.from_env(_environment(everything, function)).queues.items()
        if queue.arn
    }
    assert {job_type.queue for job_type in app.job_types} <= consumed >= {"default", "ledger"}


def test_the_ordered_function_has_a_timeout_and_memory_of_its_own(stack: Stack) -> None:
    """They are what a second queue is for: the consumer's parameters do not reach it."""
    own, consumer = (stack.declared(name) for name in reversed(CONSUMERS))
    for name in ("Timeout", "MemorySize", "Role"):
        assert own[name] != consumer[name]
    assert isinstance(own["Timeout"], int)
    assert isinstance(own["MemorySize"], int)


def test_the_relay_and_recovery_work_on_the_consumers_tables_and_queues(deployment: Stack) -> None:
    """They send where the consumer receives and mark what it wrote, by the same clock skew."""
    consumer, _, relay, recovery = (Settings.from_env(_environment(deployment, name)) for name in FUNCTIONS)
    assert relay.outbox_table == consumer.outbox_table
    assert {name: queue.url for name, queue in relay.queues.items()} == {
        name: queue.url for name, queue in consumer.queues.items()
    }
    assert relay.outbox_overdue == deployment.parameters["OutboxOverdue"]
    assert recovery.claims_table == consumer.claims_table
    assert recovery.clock_skew == consumer.clock_skew
    assert recovery.recovery_rate == deployment.parameters["RecoveryRate"]


def test_every_setting_of_the_framework_is_declared(stack: Stack) -> None:
    """A variable that the template does not declare reaches neither Lambda nor a local run."""
    consumer, ledger, relay, recovery = (
        {name for name in _environment(stack, function) if name.startswith(PREFIX)} for function in FUNCTIONS
    )
    assert (relay, recovery) == (RELAY, RECOVERY)
    assert consumer == ledger == set(_READERS) - {"ONCEQ_OUTBOX_OVERDUE", "ONCEQ_RECOVERY_RATE"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_defaults_are_the_frameworks_own(stack: Stack, function: str) -> None:
    """What the template says without overrides is what the code does without a setting."""
    said = Settings.from_env(_environment(stack, function))
    names = {name: getattr(said, name) for name in ("queues", "claims_table", "outbox_table", "payload_bucket")}
    assert said == replace(Settings(), **names)


def test_what_a_parameter_allows_the_framework_takes(stack: Stack) -> None:
    """A deployment succeeds only with numbers with which the functions start, too."""
    checked = set()
    for function in FUNCTIONS:
        for variable, value in stack.declared(function)["Environment"]["Variables"].items():
            parameter = stack.template["Parameters"].get(value.get("Ref") if isinstance(value, dict) else None, {})
            if parameter.get("Type") == "Number" and variable.startswith(PREFIX):
                low, high = _RANGES[_READERS[variable][0]]
                assert low <= parameter["MinValue"] <= parameter["MaxValue"] <= high, variable
                checked.add(_READERS[variable][0])
    assert checked == set(_RANGES)


def test_every_parameter_stands_in_its_group(stack: Stack) -> None:
    """The console shows a parameter that stands in no group last, without a heading."""
    groups = stack.template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    grouped = [name for group in groups for name in group["Parameters"]]
    assert grouped == list(stack.template["Parameters"])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_endpoint_is_declared_and_empty(deployment: Stack, function: str) -> None:
    """`sam local` passes only declared variables; deployed, an empty endpoint means AWS."""
    variables = deployment.declared(function)["Environment"]["Variables"]
    assert variables["AWS_ENDPOINT_URL"] == {"Ref": "EndpointUrl"}
    assert deployment.parameters["EndpointUrl"] == ""


@pytest.mark.parametrize("function", FUNCTIONS)
def test_metrics_of_a_function_tell_whose_they_are(stack: Stack, function: str) -> None:
    """All functions count into the stack's own namespace, each as a service of its own."""
    environment = _environment(stack, function)
    assert environment["POWERTOOLS_METRICS_NAMESPACE"] == "name-of-AWS::StackName"
    assert f"{environment['POWERTOOLS_SERVICE_NAME'].capitalize()}Function" == function


def test_the_table_is_the_one_that_the_code_writes(stack: Stack) -> None:
    """Partition key and TTL attribute are the code's, and there is no sort key."""
    table = stack.properties("ClaimsTable")
    assert table["KeySchema"] == [{"AttributeName": PARTITION_KEY, "KeyType": "HASH"}]
    assert table["AttributeDefinitions"] == [{"AttributeName": PARTITION_KEY, "AttributeType": "S"}]
    assert table["TimeToLiveSpecification"] == {"AttributeName": EXPIRES_AT, "Enabled": True}
    assert {PARTITION_KEY, EXPIRES_AT} <= set(ClaimModel.get_attributes())


def test_the_outbox_table_is_the_one_that_the_code_writes(stack: Stack) -> None:
    """Keys and TTL attribute are the code's, of the types that it writes."""
    table = stack.properties("OutboxTable")
    item = ENTRY.to_item()
    types = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
    assert table["KeySchema"] == [{"AttributeName": PARTITION_KEY, "KeyType": "HASH"}]
    assert types == {name: next(iter(item[name])) for name in (PARTITION_KEY, "shard", "next_at")}
    assert table["TimeToLiveSpecification"] == {"AttributeName": EXPIRES_AT, "Enabled": True}
    assert EXPIRES_AT in ENTRY.sent("m", 1).to_item()


def test_the_relay_finds_pending_entries_whole_and_no_others(stack: Stack) -> None:
    """The index has all attributes, its keys leave an entry when it is sent, and only a sent entry expires (G8)."""
    [index] = stack.properties("OutboxTable")["GlobalSecondaryIndexes"]
    keys = {key["KeyType"]: key["AttributeName"] for key in index["KeySchema"]}
    assert index["IndexName"] == INDEX
    assert keys == {"HASH": "shard", "RANGE": "next_at"}
    assert index["Projection"] == {"ProjectionType": "ALL"}
    assert set(keys.values()) <= set(ENTRY.to_item())
    assert set(keys.values()) <= set(ENTRY.failed("no", next_at=1).to_item())
    assert set(keys.values()).isdisjoint(ENTRY.sent("m", 1).to_item())
    assert EXPIRES_AT not in ENTRY.to_item() | ENTRY.failed("no", next_at=1).to_item()


def test_the_example_has_its_table(stack: Stack) -> None:
    """The stock is kept by article, never expires, and the jobs are told where it is."""
    if not stack.has("StockTable"):
        pytest.skip("the example's table is gone")
    table = stack.properties("StockTable")
    assert table["KeySchema"] == [{"AttributeName": "sku", "KeyType": "HASH"}]
    assert table["AttributeDefinitions"] == [{"AttributeName": "sku", "AttributeType": "S"}]
    assert "TimeToLiveSpecification" not in table
    assert _environment(stack)["STOCK_TABLE"] == "name-of-StockTable"


def test_the_ordered_example_has_its_table(stack: Stack) -> None:
    """Balances are kept by account, never expire, and only the ordered function is told where."""
    table = stack.properties("LedgerTable")
    assert table["KeySchema"] == [{"AttributeName": "account", "KeyType": "HASH"}]
    assert table["AttributeDefinitions"] == [{"AttributeName": "account", "AttributeType": "S"}]
    assert "TimeToLiveSpecification" not in table
    assert _environment(stack, "LedgerFunction")["LEDGER_TABLE"] == "name-of-LedgerTable"
    assert "LEDGER_TABLE" not in _environment(stack)


def test_what_is_ordered_has_one_condition_and_the_bucket_another(stack: Stack) -> None:
    """Switched off, nothing of either is left, and nothing else is missing; defaults are off."""
    conditions = {
        logical_id: resource["Condition"]
        for logical_id, resource in stack.template["Resources"].items()
        if "Condition" in resource and logical_id in SHIPPED
    }
    assert {name for name, condition in conditions.items() if condition == "LedgerQueueExists"} == {
        *(name for name in SHIPPED if "Ledger" in name)
    }
    assert {name for name, condition in conditions.items() if condition == "PayloadBucketExists"} == {
        *("PayloadBucket", "OnlyEncryptedConnectionsToPayloads")
    }
    outputs = stack.template["Outputs"].items()
    assert all(("Ledger" in name) == (output.get("Condition") == "LedgerQueueExists") for name, output in outputs)
    assert (Stack().holds("LedgerQueueExists"), Stack().holds("PayloadBucketExists")) == (False, False)


def test_large_messages_are_private_encrypted_and_expire(stack: Stack) -> None:
    """Nothing public, S3's own encryption, TLS only; it outlives the stack, and incomplete uploads do not last."""
    resource = stack.template["Resources"]["PayloadBucket"]
    bucket = stack.properties("PayloadBucket")
    [rule] = bucket["LifecycleConfiguration"]["Rules"]
    [encryption] = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    [guard] = stack.properties("OnlyEncryptedConnectionsToPayloads")["PolicyDocument"]["Statement"]

    assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    assert encryption == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    # Without versions an expired object is gone; with them it would stay as one that is not current.
    assert "VersioningConfiguration" not in bucket
    assert (guard["Effect"], guard["Principal"], guard["Action"]) == ("Deny", "*", "s3:*")
    assert guard["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert guard["Resource"] == [
        {"Fn::GetAtt": ["PayloadBucket", "Arn"]},
        {"Fn::Sub": "${PayloadBucket.Arn}/*"},
    ]


@pytest.mark.parametrize("table", ["ClaimsTable", "OutboxTable", "StockTable", "LedgerTable"])
def test_what_is_known_outlives_the_stack(stack: Stack, table: str) -> None:
    """Deleting or replacing the stack keeps its tables; they can be restored, are encrypted and on demand (G3, G8)."""
    if table == "StockTable" and not stack.has(table):
        pytest.skip("the example's table is gone")
    resource = stack.template["Resources"][table]
    assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"
    assert resource["Properties"]["BillingMode"] == "PAY_PER_REQUEST"
    assert resource["Properties"]["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True
    assert resource["Properties"]["SSESpecification"]["SSEEnabled"] is True


def test_queues_are_encrypted_and_refuse_plain_http(stack: Stack) -> None:
    """SQS encrypts every queue with its own key, and each denies connections without TLS."""
    guarded = set()
    for policy in stack.of_type("AWS::SQS::QueuePolicy").values():
        # Beside it stands whom the user lets send.
        [statement] = [one for one in policy["PolicyDocument"]["Statement"] if one["Effect"] == "Deny"]
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        guarded |= {queue["Ref"] for queue in policy["Queues"]}
    queues = stack.of_type("AWS::SQS::Queue")
    assert guarded == set(queues) >= {"JobsQueue", "DeadLetterQueue"}
    assert ("LedgerJobsQueue" in queues) == ("LedgerDeadLetterQueue" in queues) == stack.holds("LedgerQueueExists")
    assert all(queue["SqsManagedSseEnabled"] is True for queue in queues.values())


def test_nothing_that_is_shipped_is_missing(stack: Stack) -> None:
    """What the user adds is the user's; of ours only an example's table may be deleted."""
    assert SHIPPED - set(stack.template["Resources"]) <= {"StockTable"}


def test_no_resource_has_a_physical_name(stack: Stack) -> None:
    """A retained table with a fixed name would block the next deployment, and a second stack beside it."""
    names = re.compile(r"^((Queue|Bucket|Table|Function|Role|Alarm|Dashboard|LogGroup|ManagedPolicy)?Name)$")
    resources = stack.template["Resources"]
    for logical_id, resource in ((name, one) for name, one in resources.items() if name in SHIPPED):
        given = {name: value for name, value in resource["Properties"].items() if names.match(name)}
        # A metric filter names the log group that it reads: another resource, by reference.
        assert all(isinstance(value, dict) and value.get("Ref") in resources for value in given.values()), logical_id


def test_no_schedule_has_a_physical_name(stack: Stack) -> None:
    """SAM would give an event of type ScheduleV2 a fixed name: a second stack beside this one could not be made."""
    for function in stack.of_type(FUNCTION).values():
        for event in function["Events"].values():
            assert event["Type"] in {"SQS", "Schedule"}
            assert not {"Name", "RuleName"} & set(event["Properties"])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_metrics_survive_the_log_level(stack: Stack, function: str) -> None:
    """EMF lines have no level, so an application log level above INFO would drop every metric."""
    config = stack.declared(function)["LoggingConfig"]
    assert config["LogFormat"] == "JSON"
    assert config["ApplicationLogLevel"] == {"Ref": "LogLevel"}
    assert set(stack.template["Parameters"]["LogLevel"]["AllowedValues"]) <= {"TRACE", "DEBUG", "INFO"}


@pytest.mark.parametrize("name", ["Consumer", "Ledger", "Relay", "Recovery"])
def test_logs_have_a_group_with_an_end(stack: Stack, name: str) -> None:
    """Each function logs into a group of the stack's own whose lines expire."""
    assert stack.properties(f"{name}Function")["LoggingConfig"]["LogGroup"] == {"Ref": f"{name}LogGroup"}
    assert stack.properties(f"{name}LogGroup")["RetentionInDays"] == stack.parameters["LogRetention"]


@pytest.mark.parametrize(
    ("namespace", "metric", "of"),
    [
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible", {"Fn::GetAtt": ["DeadLetterQueue", "QueueName"]}),
        ("AWS/SQS", "ApproximateAgeOfOldestMessage", {"Fn::GetAtt": ["JobsQueue", "QueueName"]}),
        ("AWS/Lambda", "Errors", {"Ref": "ConsumerFunction"}),
        ("AWS/Lambda", "Throttles", {"Ref": "ConsumerFunction"}),
        ("AWS/Lambda", "Errors", {"Ref": "RelayFunction"}),
        ("AWS/Lambda", "Invocations", {"Ref": "RelayFunction"}),
        ("AWS/Lambda", "Errors", {"Ref": "RecoveryFunction"}),
        *(
            ({"Ref": "AWS::StackName"}, metric, None)
            for metric in sorted({metric for _, metric, *_ in FILTERS.values()})
        ),
    ],
)
def test_what_needs_a_person_raises_an_alarm(stack: Stack, namespace: Any, metric: str, of: Any) -> None:
    """Dead letters, old messages, errors, throttles, a missing relay and what logs tell: each has its alarm."""
    found = [
        alarm
        for alarm in stack.of_type("AWS::CloudWatch::Alarm").values()
        if (alarm["Namespace"], alarm["MetricName"]) == (namespace, metric)
        and alarm.get("Dimensions", [{}])[0].get("Value") == of
    ]
    assert len(found) == 1
    assert found[0]["AlarmDescription"]
    assert "AlarmActions" not in found[0]


@pytest.mark.parametrize(
    ("namespace", "metric", "of"),
    [
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible", {"Fn::GetAtt": ["LedgerDeadLetterQueue", "QueueName"]}),
        ("AWS/SQS", "ApproximateAgeOfOldestMessage", {"Fn::GetAtt": ["LedgerJobsQueue", "QueueName"]}),
        ("AWS/Lambda", "Errors", {"Ref": "LedgerFunction"}),
    ],
)
def test_the_ordered_queue_has_alarms_of_its_own_where_there_is_one(
    stack: Stack, namespace: str, metric: str, of: Any
) -> None:
    """An alarm on a queue that is not there would be refused, or ring for nothing."""
    found = [
        alarm["AlarmDescription"]
        for alarm in stack.of_type("AWS::CloudWatch::Alarm").values()
        if (alarm["Namespace"], alarm["MetricName"], alarm.get("Dimensions", [{}])[0].get("Value"))
        == (namespace, metric, of)
    ]
    assert len(found) == (1 if stack.makes("LedgerJobsQueue") else 0)
    assert all("ledger's" in description for description in found)


def test_a_relay_that_never_runs_raises_an_alarm(stack: Stack) -> None:
    """Where nothing is invoked there is no number at all, and that is what rings, after a few runs that were missed."""
    alarm = stack.properties("RelayNotRunningAlarm")
    assert (alarm["Statistic"], alarm["ComparisonOperator"], alarm["Threshold"]) == ("Sum", "LessThanThreshold", 1)
    assert alarm["TreatMissingData"] == "breaching"
    assert 120 < alarm["Period"] * alarm["EvaluationPeriods"] <= stack.parameters["OutboxOverdue"]


def test_only_a_missing_relay_rings_for_want_of_numbers(stack: Stack) -> None:
    """A stack at rest has no numbers, and must be quiet."""
    alarms = stack.of_type("AWS::CloudWatch::Alarm")
    ringing = {name for name, alarm in alarms.items() if alarm["TreatMissingData"] != "notBreaching"}
    assert ringing == {"RelayNotRunningAlarm"}


def test_the_alarm_of_the_outbox_stays_while_an_entry_fails(stack: Stack) -> None:
    """A failed entry is looked at by the next run after its pause, and only then said to be overdue again."""
    alarm = stack.properties("OutboxOverdueAlarm")
    looked_at_every = LONGEST_PAUSE_MS / 1000 + 60 + stack.properties("RelayFunction")["Timeout"]
    assert alarm["Period"] * alarm["EvaluationPeriods"] >= looked_at_every
    assert alarm["DatapointsToAlarm"] == 1


@pytest.mark.parametrize("name", FILTERS)
def test_the_alarms_of_events_count_events_that_exist(stack: Stack, name: str) -> None:
    """A mistyped name in a log filter would never match: each is an event's, at level ERROR, and what is counted."""
    log, metric, _, _ = FILTERS[name]
    metric_filter = stack.properties(name)
    named = re.findall(r"""\$\.event = "([a-z_.]+)\"""", metric_filter["FilterPattern"])

    assert named
    assert {EVENTS[event].level for event in named} == {logging.ERROR}
    assert metric_filter["LogGroupName"] == {"Ref": f"{log}LogGroup"}
    [made] = metric_filter["MetricTransformations"]
    [alarm] = [
        alarm for alarm in stack.of_type("AWS::CloudWatch::Alarm").values() if alarm["MetricName"] == made["MetricName"]
    ]
    assert (made["MetricNamespace"], made["MetricName"]) == (alarm["Namespace"], metric)
    assert (made["MetricValue"], alarm["Statistic"], alarm["Threshold"]) == ("1", "Sum", 0)


def test_these_are_all_filters(stack: Stack) -> None:
    """What is tested of each filter is tested of every one, and the first one names what it always did."""
    filters = stack.of_type("AWS::Logs::MetricFilter")
    named = re.findall(r"""\$\.event = "([a-z_.]+)\"""", filters["NeedsAPersonFilter"]["FilterPattern"])
    assert set(filters) == {name for name in FILTERS if stack.makes(name)}
    for name in ("NeedsAPerson", "UncertainJobs"):
        of_both = [stack.properties(f"{prefix}{name}Filter")["FilterPattern"] for prefix in ("", "Ledger")]
        assert of_both[0] == of_both[1]
    assert set(named) == {"effect.not_recorded", "claim.lost", "message.unserved", "message.copy_failed"}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_counts_the_lines_that_the_hook_writes(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Each event is a JSON line with its name and fields at the top: there the filters look, and only at the right."""
    _, _, counted, others = FILTERS[name]
    pattern = stack.properties(name)["FilterPattern"]
    lines = [line for line in _written(monkeypatch, capsys, *counted, *others) if "event" in line]

    assert [_matches(pattern, line) for line in lines] == [True] * len(counted) + [False] * len(others)


def _matches(pattern: str, line: dict[str, Any]) -> bool:
    """Evaluate a filter pattern: comparisons in parentheses, joined by && or ||, which binds less.

    The syntax: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html
    """
    assert (pattern[:2], pattern[-2:]) == ("{ ", " }")

    def holds(comparison: str) -> bool:
        found = re.fullmatch(r"""\(?\$\.(\w+) (?:= "([^"]*)"|IS (TRUE|FALSE))\)?""", comparison.strip())
        assert found, f"{comparison!r}: teach this helper the syntax"
        field, text, boolean = found.groups()
        return line.get(field) == text if boolean is None else line.get(field) is (boolean == "TRUE")

    return any(all(map(holds, clause.split("&&"))) for clause in pattern[2:-2].split("||"))


def test_the_dashboard_searches_the_dimensions_that_metrics_have(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SEARCH finds metrics with exactly its dimensions, and messages' metrics have no job type."""
    events = (
        JobReplayed(job_type="t", key="k"),
        MessageRefused(message_id="m", reason="no"),
        OutboxSent(entry="e", job_type="t", key="k", message_id="m", seconds=0.1),
    )
    emf = [line["_aws"] for line in _written(monkeypatch, capsys, *events) if "_aws" in line]
    emitted = {frozenset(one) for line in emf for metrics in line["CloudWatchMetrics"] for one in metrics["Dimensions"]}
    body = _text(stack.properties("Dashboard")["DashboardBody"])
    searched = {frozenset(names.split(",")) for names in re.findall(r"""SEARCH\('\{\\"[^"]+\\",([a-z_,]+)\}""", body)}

    assert emitted == searched == {frozenset({"job_type", "service"}), frozenset({"service"})}


def test_the_dashboard_searches_metrics_that_are_counted(stack: Stack) -> None:
    """The outbox's graph names metrics of events, which have the dimensions that it searches."""
    body = json.loads(_text(stack.properties("Dashboard")["DashboardBody"]))
    [graph] = [widget["properties"] for widget in body["widgets"] if widget["properties"]["title"] == "Outbox"]
    [[search]] = graph["metrics"]
    pattern = r"""SEARCH\('\{"[^"]+",job_type,service\} MetricName=\((.*)\)', 'Sum', 60\)"""
    found = re.fullmatch(pattern, search["expression"])

    assert found
    assert re.findall(r'"(\w+)"', found[1]) == [EVENTS["outbox.sent"].metric, EVENTS["outbox.failed"].metric]


def _written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *events: Event
) -> list[dict[str, Any]]:
    """Return the lines that the default hook writes, with the variables that the template gives it."""
    # A name of its own: Powertools keeps a logger for each service, and with it the stdout of an earlier test.
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"service-{uuid.uuid4()}")
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


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_enters_a_vpc_only_when_asked(function: str) -> None:
    """With subnets every function is inside the VPC; without, none is."""
    inside = Stack(given={"VpcSubnetIds": "subnet-1,subnet-2", "VpcSecurityGroupIds": "sg-1"})
    assert inside.properties(function)["VpcConfig"]["SubnetIds"] == "subnet-1,subnet-2"
    assert "VpcConfig" not in Stack().properties(function)


def test_the_dashboard_is_json(stack: Stack) -> None:
    """CloudWatch refuses a dashboard body that is not JSON at deployment; it is refused here first."""
    body = json.loads(_text(stack.properties("Dashboard")["DashboardBody"]))
    titles = [widget["properties"]["title"] for widget in body["widgets"]]
    places = [(widget["x"], widget["y"]) for widget in body["widgets"]]
    assert len(set(places)) == len(titles) >= 9
    assert ({"Ledger queue", "Ledger function"} <= set(titles)) == stack.holds("LedgerQueueExists")


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
                text, variables = one if isinstance(one, list) else (one, {})
                yield from _references(list(variables.values()))
                names = set(re.findall(r"\$\{([A-Za-z:.]+)\}", text)) - set(variables)
                yield from (name.split(".")[0] for name in names)
            else:
                yield from _references(one)
