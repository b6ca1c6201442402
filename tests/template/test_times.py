"""The inequalities of times and counts, for the defaults and for every section of samconfig.toml."""

from __future__ import annotations

import math

import pytest

from app import app
from onceq import outbox, recovery, relay
from onceq.executor import LEAST_SECONDS
from template.reading import Stack

FOURTEEN_DAYS = 14 * 24 * 3600
# The relay's schedule.
MINUTE = 60
# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
LONGEST_INVOCATION = 900


def test_a_full_batch_of_the_slowest_job_fits_into_an_invocation(deployment: Stack) -> None:
    """ceil(batch size / concurrency) x max_duration + reserve <= function timeout, so no job is cut off (G1, G6)."""
    p = deployment.parameters
    rounds, reserve, timeout = math.ceil(p["BatchSize"] / p["Concurrency"]), p["Reserve"], p["FunctionTimeout"]
    unfitting = [
        f"{job_type.name}: {rounds} x max_duration {job_type.max_duration} + Reserve {reserve} > FunctionTimeout "
        f"{timeout}: lower max_duration, or raise FunctionTimeout"
        for job_type in app.job_types
        if job_type.queue == "default" and rounds * (job_type.max_duration or 0) + reserve > timeout
    ]
    assert not unfitting, "; ".join(unfitting)


def test_a_full_batch_of_one_group_fits_into_the_ordered_function(deployment: Stack) -> None:
    """A FIFO batch counts as one lane: batch size x max_duration + reserve <= its own timeout (G1, G6)."""
    function = deployment.properties("LedgerFunction")
    [event] = function["Events"].values()
    batch, reserve = event["Properties"]["BatchSize"], deployment.parameters["Reserve"]
    durations = [job_type.max_duration or 0 for job_type in app.job_types if job_type.queue == "ledger"]
    if not durations:
        pytest.skip("no job type has the ledger's queue: the example job is gone")
    slowest = max(durations)

    assert batch * slowest + reserve <= function["Timeout"]
    assert slowest > 0, "a job of the ledger's queue says how long it takes at the most"


def test_a_message_of_the_ordered_queue_stays_invisible_while_its_invocation_may_live(deployment: Stack) -> None:
    """Visibility >= timeout + skew, without a window; and not much more, since a whole group waits for so long."""
    least = deployment.properties("LedgerFunction")["Timeout"] + deployment.parameters["ClockSkew"]

    assert least <= deployment.properties("LedgerJobsQueue")["VisibilityTimeout"] <= 2 * least


def test_the_ordered_queue_takes_what_fifo_takes(stack: Stack) -> None:
    """SQS has no batching window for FIFO and ten messages in a batch, and wants FIFO dead letters.

    https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-parameters.html
    """
    [event] = stack.declared("LedgerFunction")["Events"].values()
    queue, dead = stack.properties("LedgerJobsQueue"), stack.properties("LedgerDeadLetterQueue")

    assert "MaximumBatchingWindowInSeconds" not in event["Properties"]
    assert 1 <= event["Properties"]["BatchSize"] <= 10
    assert queue["FifoQueue"] is dead["FifoQueue"] is True
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": ["LedgerDeadLetterQueue", "Arn"]}
    # Each enqueue has a deduplication id of its own, since claims do the deduplication.
    assert "ContentBasedDeduplication" not in queue | dead


def test_the_body_of_a_large_message_outlives_the_message(deployment: Stack) -> None:
    """The least that is allowed is above what queue and dead-letter queue keep: a redelivery finds its key."""
    [rule] = deployment.properties("PayloadBucket")["LifecycleConfiguration"]["Rules"]
    days = deployment.template["Parameters"]["PayloadRetentionDays"]

    assert days["MinValue"] * 24 * 3600 > 2 * FOURTEEN_DAYS
    assert rule["ExpirationInDays"] == deployment.parameters["PayloadRetentionDays"] >= days["MinValue"]
    assert rule["Status"] == "Enabled"


def test_a_message_stays_invisible_while_its_invocation_may_live(deployment: Stack) -> None:
    """Visibility >= timeout + window + skew, so a redelivery finds a stale claim and not a live one."""
    p = deployment.parameters
    assert p["VisibilityTimeout"] >= p["FunctionTimeout"] + p["BatchingWindow"] + p["ClockSkew"]
    assert deployment.properties("JobsQueue")["VisibilityTimeout"] == p["VisibilityTimeout"]
    assert deployment.properties("ConsumerFunction")["Timeout"] == p["FunctionTimeout"]


def test_the_default_visibility_is_the_advised_one(stack: Stack) -> None:
    """The default is at least 6 x timeout + window, as Lambda's documentation advises."""
    p = stack.parameters
    assert p["VisibilityTimeout"] >= 6 * p["FunctionTimeout"] + p["BatchingWindow"]


def test_a_large_batch_has_a_window(deployment: Stack) -> None:
    """Lambda refuses a batch size above 10 without a batching window."""
    assert deployment.parameters["BatchSize"] <= 10 or deployment.parameters["BatchingWindow"] >= 1


@pytest.mark.parametrize(
    ("given", "broken"),
    [
        ({}, set()),
        ({"BatchSize": "11"}, {"LargeBatchesNeedAWindow"}),
        ({"BatchSize": "11", "BatchingWindow": "1"}, set()),
        ({"VpcSubnetIds": "subnet-1,subnet-2"}, {"SubnetsNeedSecurityGroups"}),
        ({"VpcSecurityGroupIds": "sg-1"}, {"SecurityGroupsNeedSubnets"}),
        ({"VpcSubnetIds": "subnet-1", "VpcSecurityGroupIds": "sg-1,sg-2"}, set()),
    ],
)
def test_parameters_that_do_not_fit_are_refused(given: dict[str, str], broken: set[str]) -> None:
    """What CloudFormation's rules can say without arithmetic stops a deployment before it begins."""
    assert Stack(given=given).broken_rules() == broken


def test_a_function_lives_long_enough_to_start_a_job(stack: Stack) -> None:
    """A job without max_duration starts only while 5 s remain, so a shorter function would never start one."""
    least = stack.template["Parameters"]["FunctionTimeout"]["MinValue"]
    assert least >= LEAST_SECONDS + stack.parameters["Reserve"]


def test_two_runs_of_the_relay_rarely_overlap(stack: Stack) -> None:
    """It comes every minute and is over before it comes again; nothing makes up for a run that was missed."""
    function = stack.properties("RelayFunction")
    [event] = function["Events"].values()
    assert event == {"Type": "Schedule", "Properties": {"Schedule": "rate(1 minute)"}}
    assert function["Timeout"] < MINUTE
    assert function["EventInvokeConfig"] == {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": MINUTE}


def test_the_relay_has_time_for_every_queue_but_a_dead_one(stack: Stack) -> None:
    """A queue that does not answer takes its share of a run, and others have theirs beside it (G8)."""
    assert stack.properties("RelayFunction")["Timeout"] > 2 * relay.QUEUE_SECONDS + relay.RESERVE_SECONDS


def test_a_delay_within_the_look_ahead_is_no_longer_than_the_schedule(stack: Stack) -> None:
    """What is due before the relay comes again is sent now, with SQS's own delay: no entry falls between two runs."""
    assert outbox.LOOK_AHEAD_MS >= MINUTE * 1000


def test_a_relay_that_works_raises_no_alarm(deployment: Stack) -> None:
    """A message becomes due just after a run began, and the next run is at its end when it sends it."""
    worst = MINUTE + deployment.properties("RelayFunction")["Timeout"]
    assert deployment.parameters["OutboxOverdue"] >= worst
    assert deployment.template["Parameters"]["OutboxOverdue"]["MinValue"] >= worst


def test_recovery_has_all_the_time_there_is(stack: Stack) -> None:
    """A sweep goes on as far as the time goes: the longest invocation, of which it needs a little to end by itself."""
    assert stack.properties("RecoveryFunction")["Timeout"] == LONGEST_INVOCATION > 10 * recovery.RESERVE_SECONDS
    assert "EventInvokeConfig" not in stack.properties("RecoveryFunction"), "Lambda's retries go on where it stopped"


def test_the_redrive_policy_is_only_the_backstop(stack: Stack) -> None:
    """maxReceiveCount is 100: our attempts decide, so deferrals and a bad deployment send nothing to the DLQ."""
    for queue, dead in (("JobsQueue", "DeadLetterQueue"), ("LedgerJobsQueue", "LedgerDeadLetterQueue")):
        redrive = stack.properties(queue)["RedrivePolicy"]
        assert redrive["maxReceiveCount"] == 100
        assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": [dead, "Arn"]}
        assert redrive["maxReceiveCount"] > max((job_type.max_attempts for job_type in app.job_types), default=0)


def test_queues_keep_messages_for_fourteen_days(stack: Stack) -> None:
    """No message is lost for a holiday (G4): queue and DLQ keep it as long as SQS can."""
    for queue in stack.of_type("AWS::SQS::Queue").values():
        assert queue["MessageRetentionPeriod"] == FOURTEEN_DAYS


def test_a_completed_job_is_remembered_longer_than_its_message_can_live() -> None:
    """A duplicate is replayed within the retention (G3), and a redrive starts the DLQ's clock anew."""
    for job_type in app.job_types:
        assert job_type.retention.total_seconds() > 3 * FOURTEEN_DAYS, job_type.name


def test_parameters_are_inside_their_own_limits(deployment: Stack) -> None:
    """Every value is one that CloudFormation accepts, and every parameter says what it is for."""
    for name, declaration in deployment.template["Parameters"].items():
        value = deployment.parameters[name]
        assert declaration["Description"].endswith("."), name
        assert value in declaration.get("AllowedValues", [value]), name
        if declaration["Type"] == "Number":
            assert declaration.get("MinValue", value) <= value <= declaration.get("MaxValue", value), name


def test_overrides_name_parameters(deployment: Stack) -> None:
    """samconfig.toml sets only what the template declares; SAM would only warn."""
    assert set(deployment.given) <= set(deployment.template["Parameters"])
