"""The template read for a local run: intrinsic functions, resources, and a function's environment by SAM's rules."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from kit.ministack import open_world_on
from onceq.errors import ConfigurationError
from onceq.intrinsics import NO_VALUE, Resolver
from onceq.local import embedded_moto
from onceq.mappings import Source, function_of, scheduled, sources_of
from onceq.outbox import INDEX
from onceq.record import EXPIRES_AT, PARTITION_KEY
from onceq.resources import Resources, create_resources
from onceq.settings import Settings
from onceq.template import function_environment, load_template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.clock import FrozenClock

TEMPLATE = Path(__file__).parents[2] / "template.yaml"
QUEUES = ("JobsQueue", "DeadLetterQueue")
TABLES = ("ClaimsTable", "OutboxTable", "StockTable")

HEAD = """
Parameters:
  Word: {Type: String, Default: hello}
  Empty: {Type: String, Default: ""}
  Number: {Type: Number, Default: 7}
  Words: {Type: CommaDelimitedList, Default: "a,b,c"}
  Needed: {Type: String}
Mappings:
  Sizes: {small: {cpu: 1}}
Conditions:
  IsHello: !Equals [!Ref Word, hello]
  IsEmpty: !Equals [!Ref Empty, ""]
  Both: !And [Condition: IsHello, !Condition IsEmpty]
  Neither: !Not [!Or [!Condition IsHello, !Condition IsEmpty]]
Resources:
  Thing: {Type: AWS::S3::Bucket}
Value: """


def written(tmp_path: Path, text: str) -> dict[str, Any]:
    """Write and read a template."""
    path = tmp_path / "template.yaml"
    path.write_text(text, encoding="utf-8")
    return load_template(path)


def resolved(tmp_path: Path, text: str) -> Any:
    """Resolve one value against `HEAD`."""
    template = written(tmp_path, HEAD + text)
    known = {("Queue", "Ref"): "url", ("Queue", "Arn"): "arn:q"}
    return Resolver(template, None, lambda *name: known.get(name)).resolve(template["Value"], "Value")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("!Ref Word", "hello"),
        ("!Ref Number", 7),
        ("!Ref Words", ["a", "b", "c"]),
        ("!Ref AWS::Region", "us-east-1"),
        ("!Ref Queue", "url"),
        ("!GetAtt Queue.Arn", "arn:q"),
        ("{Fn::GetAtt: [Queue, Arn]}", "arn:q"),
        (
            '!Sub "${Word} ${Queue} ${Queue.Arn} ${!Literal} ${AWS::AccountId}"',
            "hello url arn:q ${Literal} 123456789012",
        ),
        ('!Sub ["${A}-${Word}", {A: !Ref Number}]', "7-hello"),
        ("!If [IsHello, yes it is, no]", "yes it is"),
        ("!If [Neither, 1, 2]", 2),
        ("!If [Both, 1, 2]", 1),
        ("!Ref AWS::NoValue", NO_VALUE),
        ("{a: !Ref AWS::NoValue, b: 1}", {"b": 1}),
        ("[!Ref AWS::NoValue, 1]", [1]),
        ('!Join ["-", !Ref Words]', "a-b-c"),
        ("!Select [1, !Ref Words]", "b"),
        ('!Split [",", "x,y"]', ["x", "y"]),
        ("!FindInMap [Sizes, small, cpu]", 1),
        ("2012-10-17", "2012-10-17"),
    ],
)
def test_intrinsic_functions_are_resolved(tmp_path: Path, text: str, expected: object) -> None:
    """A local run reads the template as CloudFormation does."""
    assert resolved(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{a: [!Ref Nobody]}", r"Value\.a\[0\]\.Ref: Nobody does not exist in a local run"),
        ("!GetAtt Thing.Arn", r"Value\.Fn::GetAtt: Thing\.Arn does not exist"),
        ('!Sub "${Thing.Arn}"', r"Value\.Fn::Sub: Thing\.Arn"),
        ("!Ref Needed", r"Value\.Ref: parameter Needed has no default"),
        ("!If [Nothing, 1, 2]", "no condition 'Nothing'"),
        ("!Select [9, !Ref Words]", "Select of"),
        ("!FindInMap [Sizes, large, cpu]", "FindInMap of"),
        ("!ImportValue other", "Value.Fn::ImportValue: ImportValue of 'other' cannot be resolved for a local run"),
    ],
)
def test_what_cannot_be_resolved_names_its_place(tmp_path: Path, text: str, said: str) -> None:
    """An error tells where in the template to look."""
    with pytest.raises(ConfigurationError, match=said):
        resolved(tmp_path, text)


def test_an_unknown_parameter_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    """A mistyped parameter must not be passed over."""
    with pytest.raises(ConfigurationError, match=r"no parameter 'Wrod'\. Did you mean 'Word'"):
        Resolver(written(tmp_path, HEAD + "1"), {"Wrod": "x"})


CONSTRAINED = """
Parameters:
  Choice: {Type: String, Default: other, AllowedValues: ["false", "true"]}
  Flag: {Type: String, AllowedValues: [false, true]}
  Days: {Type: Number, AllowedValues: [1, 3]}
  Count: {Type: Number, MinValue: 1, MaxValue: 10}
  Least: {Type: Number, MinValue: 0.5}
  Any: {Type: Number}
  Short: {Type: String, MinLength: 2, MaxLength: 3}
  Shaped: {Type: String, AllowedPattern: "[a-z]+"}
  Several: {Type: CommaDelimitedList, AllowedValues: [a, b]}
  Numbers: {Type: List<Number>, MaxValue: 5}
Resources: {}
"""


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("Choice", "yes", "one of false, true"),
        ("Flag", "True", "one of false, true"),
        ("Days", 2, "one of 1, 3"),
        ("Count", "11", "a number from 1 to 10"),
        ("Count", 0, "a number from 1 to 10"),
        ("Count", "many", "a number"),
        ("Least", "0.4", "a number from 0.5"),
        ("Any", "nan", "a number"),
        ("Short", "a", "a length from 2 to 3"),
        ("Short", "abcd", "a length from 2 to 3"),
        ("Shaped", "a1", r"what the pattern \[a-z\]\+ takes"),
        ("Several", "a,c", "one of a, b"),
        ("Several", ["c"], "one of a, b"),
        ("Numbers", "1,6", "a number to 5"),
    ],
)
def test_a_parameter_that_cloudformation_would_refuse_is_refused(
    tmp_path: Path, name: str, value: object, wanted: str
) -> None:
    """A local run with a value that no stack takes would show what never is."""
    with pytest.raises(ConfigurationError, match=rf"parameter {name}=.*: give {wanted}$"):
        Resolver(written(tmp_path, CONSTRAINED), {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("Choice", "true"), ("Flag", True), ("Days", "3"), ("Days", 1), ("Count", "10"), ("Count", 1)),
        *(("Least", 7), ("Any", "-1.5"), ("Short", "ab"), ("Shaped", "abc"), ("Several", "a,b"), ("Numbers", "1,5")),
    ],
)
def test_a_parameter_within_its_limits_is_taken(tmp_path: Path, name: str, value: object) -> None:
    """The limits themselves are within, and a value counts as its text: a number, a text and a boolean."""
    assert Resolver(written(tmp_path, CONSTRAINED), {name: value}).resolve({"Ref": name}, "Value") in (
        value,
        str(value).split(","),
    )


def test_a_template_cannot_be_read_without_pyyaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel alone has none: that is said, and what to install, in the place of a traceback."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigurationError, match=r"without PyYAML: are the local .* \(onceq's extra \[local\]\)\?"):
        written(tmp_path, "Resources: {}")


@pytest.mark.parametrize("text", ["[1", "just words", "Resources: []"])
def test_what_is_no_template_is_a_clear_error(tmp_path: Path, text: str) -> None:
    """A broken file ends in one sentence with its name."""
    with pytest.raises(ConfigurationError, match=r"template\.yaml"):
        written(tmp_path, text)


@pytest.fixture
def resources() -> Iterator[Resources]:
    """The real template's resources on moto in this process."""
    with embedded_moto():
        yield create_resources(load_template(TEMPLATE), embedded=True)


def queue_attributes(url: str) -> dict[str, Any]:
    """Read a queue's attributes."""
    attributes: dict[str, Any] = boto3.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    return dict(attributes["Attributes"])


def test_the_queues_are_created_as_the_template_says(resources: Resources) -> None:
    """Visibility, retention and redrive policy come from the template, so a local run meets what AWS would do."""
    template = load_template(TEMPLATE)
    jobs = queue_attributes(resources.queue_url("JobsQueue"))
    dead = queue_attributes(resources.queue_url("DeadLetterQueue"))
    declared = template["Resources"]["JobsQueue"]["Properties"]
    policy = json.loads(jobs["RedrivePolicy"])

    assert jobs["VisibilityTimeout"] == str(template["Parameters"]["VisibilityTimeout"]["Default"])
    assert jobs["MessageRetentionPeriod"] == str(declared["MessageRetentionPeriod"])
    assert policy["deadLetterTargetArn"] == dead["QueueArn"] == resources.queue_arn("DeadLetterQueue")
    assert int(policy["maxReceiveCount"]) == declared["RedrivePolicy"]["maxReceiveCount"]
    assert jobs["SqsManagedSseEnabled"] == "true"
    assert set(resources.queues) == {"JobsQueue", "DeadLetterQueue"}


@pytest.fixture(params=["moto", "ministack"])
def anywhere(request: pytest.FixtureRequest, clock: FrozenClock) -> Iterator[tuple[Resources, Any]]:
    """The real template's resources on either emulator, where nothing stood before, and a client of its DynamoDB."""
    if request.param == "moto":
        with embedded_moto():
            yield create_resources(load_template(TEMPLATE), embedded=True), boto3.client("dynamodb")
    else:
        with open_world_on(request.getfixturevalue("ministack"), clock) as world:
            for name in world.dynamodb.list_tables()["TableNames"]:
                world.dynamodb.delete_table(TableName=name)
            for url in world.sqs.list_queues()["QueueUrls"]:
                world.sqs.delete_queue(QueueUrl=url)
            # Its own client: boto3's session keeps the credentials, and so the account, of whoever came first.
            yield create_resources(load_template(TEMPLATE)), world.dynamodb


@pytest.mark.parametrize(("logical_id", "key"), [*zip(TABLES, (PARTITION_KEY, PARTITION_KEY, "sku"), strict=True)])
def test_a_table_is_created_as_the_template_says(anywhere: tuple[Resources, Any], logical_id: str, key: str) -> None:
    """Keys and TTL attribute of the tables are those that the code writes; the stock is kept for ever."""
    resources, dynamodb = anywhere
    table = dynamodb.describe_table(TableName=resources.table_name(logical_id))["Table"]
    expiry = dynamodb.describe_time_to_live(TableName=logical_id)["TimeToLiveDescription"]

    assert table["KeySchema"] == [{"AttributeName": key, "KeyType": "HASH"}]
    assert expiry["TimeToLiveStatus"] == ("DISABLED" if logical_id == "StockTable" else "ENABLED")
    assert expiry.get("AttributeName") == (None if logical_id == "StockTable" else EXPIRES_AT)


def test_the_outbox_table_has_the_index_that_the_relay_reads(anywhere: tuple[Resources, Any]) -> None:
    """Only what waits is in it, first come first: an entry without `shard` and `next_at` is not there."""
    resources, dynamodb = anywhere
    name = resources.table_name("OutboxTable")
    (index,) = dynamodb.describe_table(TableName=name)["Table"]["GlobalSecondaryIndexes"]
    waiting = [{"pk": {"S": pk}, "shard": {"S": "0"}, "next_at": {"N": at}} for pk, at in (("b", "2"), ("a", "1"))]
    for item in (*waiting, {"pk": {"S": "sent"}}):
        dynamodb.put_item(TableName=name, Item=item)
    found = dynamodb.query(
        TableName=name,
        IndexName=INDEX,
        KeyConditionExpression="#shard = :shard AND next_at <= :now",
        ExpressionAttributeNames={"#shard": "shard"},
        ExpressionAttributeValues={":shard": {"S": "0"}, ":now": {"N": "2"}},
    )

    assert (index["IndexName"], index["Projection"]) == (INDEX, {"ProjectionType": "ALL"})
    assert index["KeySchema"] == [
        {"AttributeName": "shard", "KeyType": "HASH"},
        {"AttributeName": "next_at", "KeyType": "RANGE"},
    ]
    assert found["Items"] == [waiting[1], waiting[0]]


def test_parameters_override_defaults() -> None:
    """The demo shortens the visibility timeout without a template of its own."""
    with embedded_moto():
        made = create_resources(load_template(TEMPLATE), parameters={"VisibilityTimeout": 2}, embedded=True)
        assert queue_attributes(made.queue_url("JobsQueue"))["VisibilityTimeout"] == "2"


def test_a_fifo_queue_a_condition_and_a_circle(tmp_path: Path) -> None:
    """A FIFO queue's name ends in .fifo; a resource whose condition is false is not made; a circle is said."""
    text = """
Conditions: {Never: !Equals [1, 2]}
Resources:
  Ordered: {Type: AWS::SQS::Queue, Properties: {FifoQueue: true, ContentBasedDeduplication: false}}
  Absent: {Type: AWS::SQS::Queue, Condition: Never}
"""
    with embedded_moto():
        made = create_resources(written(tmp_path, text), embedded=True)
        assert made.attributes["Ordered"]["QueueName"] == "Ordered.fifo"
        assert made.queue_arn("Ordered").endswith(":Ordered.fifo")
        assert list(made.queues) == ["Ordered"]
        with pytest.raises(ConfigurationError, match="no Absent"):
            made.queue_url("Absent")
        circle = (
            "Resources: {A: {Type: AWS::SQS::Queue, Properties: {RedrivePolicy: {deadLetterTargetArn: !GetAtt A.Arn}}}}"
        )
        with pytest.raises(ConfigurationError, match="circle"):
            create_resources(written(tmp_path, circle), embedded=True)


@pytest.mark.parametrize("endpoint", ["", "https://sqs.us-east-1.amazonaws.com", "http://10.0.0.1:5000"])
def test_resources_are_never_created_elsewhere(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forgotten endpoint must not create queues and tables in an account."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(ConfigurationError, match="only created on an emulator on this machine"):
        create_resources(load_template(TEMPLATE))


@pytest.fixture
def known() -> Resources:
    """The real template's resources as they would be, with nothing created."""
    queues = {name: {"Ref": f"http://{name}", "QueueUrl": f"http://{name}", "Arn": f"arn:{name}"} for name in QUEUES}
    return Resources(load_template(TEMPLATE), {}, queues | {name: {"Ref": name} for name in TABLES})


def test_the_functions_environment_is_read_by_the_settings(resources: Resources) -> None:
    """What the template declares is what the code reads: table, queue, ARN and dead-letter queue of the local run."""
    environment = function_environment(load_template(TEMPLATE), resources, shell={})
    settings = Settings.from_env(environment)
    queue = settings.queue("default")

    assert settings.claims_table == resources.table_name("ClaimsTable")
    assert settings.outbox_table == resources.table_name("OutboxTable")
    assert environment["STOCK_TABLE"] == resources.table_name("StockTable")
    assert (queue.url, queue.arn) == (resources.queue_url("JobsQueue"), resources.queue_arn("JobsQueue"))
    assert queue.dlq_url == resources.queue_url("DeadLetterQueue")
    assert sources_of(load_template(TEMPLATE), resources) == [
        Source("ConsumerFunction", queue.arn, 10, 30.0, "FunctionTimeout")
    ]


def test_the_relays_and_recoverys_environments_are_read_by_the_settings(anywhere: tuple[Resources, Any]) -> None:
    """Each has what its handler needs, and nothing of the others': as on Lambda, on either emulator."""
    template, (resources, _) = load_template(TEMPLATE), anywhere
    relay, recovery = (
        Settings.from_env(function_environment(template, resources, function=function, shell={}))
        for function in ("RelayFunction", "RecoveryFunction")
    )

    assert (relay.outbox_table, relay.claims_table, relay.outbox_overdue) == ("OutboxTable", "", 300)
    assert {name: queue.url for name, queue in relay.queues.items()} == {"default": resources.queue_url("JobsQueue")}
    assert (recovery.claims_table, recovery.outbox_table, recovery.queues) == ("ClaimsTable", "", {})
    assert (recovery.clock_skew, recovery.recovery_rate) == (10.0, 50)


def test_a_function_is_found_by_its_handler(tmp_path: Path) -> None:
    """Whatever it is called, and whatever the module: a user may rename both. Globals count too."""
    template = load_template(TEMPLATE)
    assert [function_of(template, name) for name in ("consumer", "relay", "recovery", "elay", "nothing")] == [
        *("ConsumerFunction", "RelayFunction", "RecoveryFunction"),
        *(None, None),
    ]
    shared = written(
        tmp_path,
        """
Globals: {Function: {Handler: my.shop.relay}}
Resources:
  Bucket: {Type: AWS::S3::Bucket, Properties: {Handler: app.relay}}
  Own: {Type: AWS::Serverless::Function, Properties: {Handler: !Sub "app.relay"}}
  Shared: {Type: AWS::Serverless::Function}
""",
    )
    assert function_of(shared, "relay") == "Shared"


def test_what_runs_by_a_schedule_is_told_with_the_words_that_do_it_by_hand(known: Resources) -> None:
    """The nightly report's own envelope, with the time put in; the relay runs here and is not among it."""
    payload = '{"scheduled_at": "2026-11-29T12:00:00Z"}'
    assert scheduled(known.template, known, 1_795_953_600_999) == [
        ("RecoveryFunction", "recovery"),
        (
            "NightlyReportSchedule",
            f"enqueue nightly_report --key nightly_report:2026-11-29T12:00:00Z --payload '{payload}'",
        ),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"job_type": "a", "idempotency_key": "it\'s", "payload": [1]}',
            """enqueue a --key 'it'"'"'s' --payload '[1]'""",
        ),
        ('{"job_type": "a", "payload": {}}', ""),
        ('{"source": "aws.events"}', ""),
        ("plain words", ""),
        ("[]", ""),
    ],
)
def test_a_schedule_that_sends_no_envelope_is_named_without_words(tmp_path: Path, text: str, words: str) -> None:
    """A user's own function or target runs by a schedule as well: it is said that it does not run here."""
    template = written(
        tmp_path,
        """
Resources:
  Own: {Type: AWS::Serverless::Function, Properties: {Handler: x.y, Events: {Daily: {Type: ScheduleV2}}}}
  Other: {Type: AWS::Serverless::Function, Properties: {Handler: x.z, Events: {Api: {Type: HttpApi}}}}
  Empty: {Type: AWS::Scheduler::Schedule}
  Unknown: {Type: AWS::Scheduler::Schedule, Properties: {Target: {Input: !GetAtt Own.Arn}}}
""",
    )
    template["Resources"]["Sends"] = {"Type": "AWS::Scheduler::Schedule", "Properties": {"Target": {"Input": text}}}

    assert scheduled(template, Resources(template, {}), 0) == [
        *(("Own", ""), ("Empty", ""), ("Unknown", "")),
        ("Sends", words),
    ]


@pytest.mark.parametrize(
    ("shell", "env_json", "expected"),
    [
        ({}, {}, ""),
        ({"PAYMENTS_URL": "shell"}, {}, "shell"),
        ({"PAYMENTS_URL": "shell"}, {"Parameters": {"PAYMENTS_URL": "all"}}, "all"),
        ({}, {"Parameters": {"PAYMENTS_URL": "all"}, "ConsumerFunction": {"PAYMENTS_URL": "one"}}, "one"),
        ({}, {"ConsumerFunction": {"PAYMENTS_URL": 5}}, "5"),
        ({}, {"ConsumerFunction": {"PAYMENTS_URL": True}}, "true"),
    ],
)
def test_a_value_comes_from_env_json_then_the_shell_then_the_template(
    known: Resources, shell: dict[str, str], env_json: dict[str, Any], expected: str
) -> None:
    """SAM's order, so that one env.json serves `sam local invoke` and `onceq dev` alike."""
    environment = function_environment(known.template, known, shell=shell, env_json=env_json)
    assert environment["PAYMENTS_URL"] == expected


def test_only_declared_variables_are_passed(known: Resources) -> None:
    """As on Lambda, what the template does not declare is not there."""
    shell = {"HOME": "/", "ONCEQ_LATER": "3"}
    environment = function_environment(known.template, known, shell=shell)
    assert {"HOME", "ONCEQ_LATER"}.isdisjoint(environment)


@pytest.mark.parametrize(
    ("env_json", "said"),
    [
        ({"ConsumerFunction": {"PAYMENT_URL": "x"}}, "does not declare 'PAYMENT_URL'.*Did you mean 'PAYMENTS_URL'"),
        ({"Parameters": {"NOBODYS": "x"}}, "does not declare 'NOBODYS'"),
        ({"ConsumerFunktion": {}}, "'ConsumerFunktion' is no function.*Did you mean 'ConsumerFunction'"),
        ({"Parameters": "x"}, "must hold an object"),
        ({"ConsumerFunction": {"PAYMENTS_URL": []}}, "is text, not list"),
    ],
)
def test_a_wrong_env_json_is_said(known: Resources, env_json: dict[str, Any], said: str) -> None:
    """SAM drops an undeclared name in silence; here it is an error with a suggestion."""
    with pytest.raises(ConfigurationError, match=said):
        function_environment(known.template, known, shell={}, env_json=env_json)


def test_globals_count_and_what_is_overridden_need_not_resolve(tmp_path: Path) -> None:
    """A variable that names a resource without a local twin can be given in env.json instead."""
    text = """
Globals: {Function: {Environment: {Variables: {EVERYWHERE: all, NAME: global}}}}
Resources:
  Topic: {Type: AWS::SNS::Topic}
  F: {Type: AWS::Serverless::Function, Properties: {Environment: {Variables: {NAME: own, TOPIC: !Ref Topic}}}}
"""
    template = written(tmp_path, text)
    resources = Resources(template, {})
    with pytest.raises(
        ConfigurationError, match=r"Variables\.TOPIC\.Ref: Topic does not exist.*give TOPIC in env\.json"
    ):
        function_environment(template, resources, function="F", shell={})
    env_json = {"F": {"TOPIC": "t"}}
    environment = function_environment(template, resources, function="F", shell={}, env_json=env_json)
    assert environment == {"EVERYWHERE": "all", "NAME": "own", "TOPIC": "t"}
    with pytest.raises(ConfigurationError, match="no function 'G'"):
        function_environment(template, resources, function="G", shell={})
