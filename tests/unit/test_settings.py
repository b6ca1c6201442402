"""Settings: read once, frozen, and every mistake named with what to give instead."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from onceq.errors import ConfigurationError
from onceq.runtime import Runtime
from onceq.settings import PREFIX, QueueSettings, Settings

QUEUE = {
    "url": "https://sqs.example/1/Jobs",
    "arn": "arn:aws:sqs:us-east-1:1:Jobs",
    "dlq_url": "https://sqs.example/1/D",
}


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    """Absent and empty variables keep the default; other people's variables are none of ours."""
    expected = Settings(
        queues={},
        claims_table="",
        outbox_table="",
        concurrency=10,
        clock_skew=10.0,
        reserve=1.0,
        result_limit=32_768,
        max_hops=1_000,
        outbox_overdue=300,
        recovery_rate=50,
        log_payloads=False,
        payload_bucket="",
        fetch_from=(),
        payload_limit=4_194_304,
    )

    assert Settings.from_env({}) == expected
    assert Settings.from_env({"ONCEQ_CONCURRENCY": "", "ONCEQ_QUEUES": "", "PATH": "x", "AWS_ONCEQ": "y"}) == expected


def test_every_variable_is_read() -> None:
    """Each documented variable reaches its setting, and there is no setting without a variable."""
    values = {
        "ONCEQ_CLAIMS_TABLE": "claims",
        "ONCEQ_OUTBOX_TABLE": "outbox",
        "ONCEQ_QUEUES": json.dumps({"default": QUEUE, "reports": {"url": "https://sqs.example/1/R"}}),
        "ONCEQ_CONCURRENCY": "3",
        "ONCEQ_CLOCK_SKEW": "0.5",
        "ONCEQ_RESERVE": "2",
        "ONCEQ_RESULT_LIMIT": "0",
        "ONCEQ_MAX_HOPS": "7",
        "ONCEQ_OUTBOX_OVERDUE": "120",
        "ONCEQ_RECOVERY_RATE": "25",
        "ONCEQ_LOG_PAYLOADS": "True",
        "ONCEQ_PAYLOAD_BUCKET": "bodies",
        "ONCEQ_FETCH_FROM": "theirs, others,",
        "ONCEQ_PAYLOAD_LIMIT": "2048",
    }
    read = Settings.from_env(values)

    assert read.queue("default") == QueueSettings("default", *QUEUE.values())
    assert read.queue_of(QUEUE["arn"]) == read.queue("default")
    assert (read.queue_of(""), read.queue_of("arn:other")) == (None, None)
    assert (read.claims_table, read.concurrency, read.clock_skew, read.reserve) == ("claims", 3, 0.5, 2.0)
    assert (read.result_limit, read.max_hops, read.log_payloads) == (0, 7, True)
    assert (read.outbox_table, read.outbox_overdue, read.recovery_rate) == ("outbox", 120, 25)
    assert (read.payload_bucket, read.fetch_from, read.payload_limit) == ("bodies", ("theirs", "others"), 2048)
    assert {PREFIX + field.name.upper() for field in dataclasses.fields(Settings)} == set(values)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("ONCEQ_CLAIM_TABLE", "Did you mean ONCEQ_CLAIMS_TABLE?"),
        ("ONCEQ_CONCURENCY", "Did you mean ONCEQ_CONCURRENCY?"),
        ("ONCEQ_OUTBOX_TABEL", "Did you mean ONCEQ_OUTBOX_TABLE?"),
        ("ONCEQ_XYZ", "Known are ONCEQ_CLAIMS_TABLE, "),
    ],
)
def test_an_unknown_setting_is_an_error_with_a_suggestion(name: str, suggestion: str) -> None:
    """A typing error must not switch a protection off in silence."""
    with pytest.raises(ConfigurationError, match=name) as refused:
        Settings.from_env({name: "1"})

    assert suggestion in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("ONCEQ_CONCURRENCY", "0", "a number from 1 to 100"),
        ("ONCEQ_CONCURRENCY", "101", "a number from 1 to 100"),
        ("ONCEQ_CONCURRENCY", "1.5", "a whole number"),
        ("ONCEQ_CONCURRENCY", "many", "a whole number"),
        ("ONCEQ_CLOCK_SKEW", "-1", "a number from 0 to 3600"),
        ("ONCEQ_CLOCK_SKEW", "nan", "a number from 0 to 3600"),
        ("ONCEQ_CLOCK_SKEW", "inf", "a number from 0 to 3600"),
        ("ONCEQ_RESERVE", "601", "a number from 0 to 600"),
        ("ONCEQ_RESULT_LIMIT", "400000", "a number from 0 to 350000"),
        ("ONCEQ_MAX_HOPS", "-1", "a number from 0 to 1e+06"),
        ("ONCEQ_OUTBOX_OVERDUE", "-1", "a number from 0 to 1.2096e+06"),
        ("ONCEQ_OUTBOX_OVERDUE", "5 min", "a whole number"),
        ("ONCEQ_RECOVERY_RATE", "0", "a number from 1 to 1e+06"),
        ("ONCEQ_LOG_PAYLOADS", "maybe", "give true or false"),
        ("ONCEQ_QUEUES", "nonsense", "is not JSON"),
        ("ONCEQ_QUEUES", "[]", "needs a url"),
        ("ONCEQ_QUEUES", "null", "needs a url"),
        ("ONCEQ_QUEUES", '{"default": "url"}', "queue 'default' needs a url"),
        ("ONCEQ_QUEUES", '{"default": {}}', "queue 'default' needs a url"),
        ("ONCEQ_QUEUES", '{"default": {"url": ""}}', "queue 'default' needs a url"),
        ("ONCEQ_QUEUES", '{"default": {"url": 5}}', "queue 'default' needs a url"),
        ("ONCEQ_QUEUES", '{"default": {"url": "u", "dlq": "d"}}', "knows only"),
        ("ONCEQ_QUEUES", '{"default": {"url": "u", "arn": "a", "dlq_url": null}}', "queue 'default' needs a url"),
    ],
)
def test_a_value_that_cannot_be_used_says_what_to_give(name: str, text: str, hint: str) -> None:
    """Each error names the variable and what it takes."""
    with pytest.raises(ConfigurationError, match=name) as refused:
        Settings.from_env({name: text})

    assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("queues", "hint"),
    [
        ({"default": {"url": "u", "arn": "a"}}, "needs a dlq_url"),
        ({"default": {"url": "u.fifo", "arn": "a", "dlq_url": "d"}}, "or the other way round"),
        ({"default": {"url": "u", "arn": "a", "dlq_url": "d.fifo"}}, "or the other way round"),
        ({"one": QUEUE, "two": QUEUE}, "two queues have the arn"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(queues: dict[str, Any], hint: str) -> None:
    """A queue that is consumed has a dead-letter queue of its kind, and an ARN names one queue."""
    with pytest.raises(ConfigurationError) as refused:
        Settings.from_env({"ONCEQ_QUEUES": json.dumps(queues)})

    assert hint in str(refused.value)


def test_an_unknown_queue_says_which_are_known() -> None:
    """The name is the user's own; the error shows the choice."""
    settings = Settings(queues={"b": QueueSettings("b", "u"), "a": QueueSettings("a", "u")})

    with pytest.raises(ConfigurationError, match=r"queue 'c' is not in ONCEQ_QUEUES \(known: a, b\)"):
        settings.queue("c")


@pytest.mark.parametrize("value", [Settings(), QueueSettings("a", "u")], ids=lambda value: type(value).__name__)
def test_settings_are_frozen(value: object) -> None:
    """What was read once is not changed afterwards."""
    field = dataclasses.fields(value)[0].name  # type: ignore[arg-type]  # both are dataclasses

    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, "other")


def test_the_environment_is_read_once_and_at_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at import and not when an App is made: a test or a Lambda extension may still set it."""
    runtime = Runtime()
    monkeypatch.setenv("ONCEQ_CONCURRENCY", "4")
    assert runtime.settings.concurrency == 4

    monkeypatch.setenv("ONCEQ_CONCURRENCY", "5")
    assert runtime.settings.concurrency == 4


def test_a_consumer_without_a_claims_table_is_told_so() -> None:
    """A job never runs unprotected because a variable is missing."""
    with pytest.raises(ConfigurationError, match="ONCEQ_CLAIMS_TABLE is not set"):
        Runtime(Settings()).store(None)  # type: ignore[arg-type]  # refused before it is looked at
