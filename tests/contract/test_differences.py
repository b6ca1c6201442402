"""Where moto and ministack differ from what AWS documents: each difference pinned, and shown by ``docs/local.md``.

A new version that changes one fails here, and the page with it. Nothing of the framework is tested.
"""

from __future__ import annotations

import importlib.metadata
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.conftest import Backend

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "local.md"
AWS = "https://docs.aws.amazon.com/"
API = f"{AWS}amazondynamodb/latest/APIReference/API_"
GUIDE = f"{AWS}amazondynamodb/latest/developerguide/"
SQS_API = f"{AWS}AWSSimpleQueueService/latest/APIReference/API_"
SQS_GUIDE = f"{AWS}AWSSimpleQueueService/latest/SQSDeveloperGuide/"
ACCEPTED = "accepted"
REFUSED = "refused"


@dataclass(frozen=True)
class Difference:
    """One row of the page.

    Args:
        what: What is done.
        source: The page of AWS that says what happens.
        aws: What happens there.
        moto: What moto does.
        ministack: What ministack does.
        probe: Does it, and tells what happened in the same words.
    """

    what: str
    source: str
    aws: str
    moto: str
    ministack: str
    probe: Callable[[Backend], str]

    @property
    def row(self) -> str:
        """The row as the page has it."""
        cells = ["as AWS" if found == self.aws else found for found in (self.moto, self.ministack)]
        return f"| {self.what} | [{self.aws}]({self.source}) | {' | '.join(cells)} |"


def answer_to(call: Callable[..., Any], **request: Any) -> str:
    """Send a request and tell whether it was accepted."""
    try:
        call(**request)
    except ClientError:
        return REFUSED
    except (KeyError, TypeError, ValueError, NotImplementedError) as error:
        return f"a Python {type(error).__name__}"
    return ACCEPTED


def received(backend: Backend, url: str, **options: Any) -> list[dict[str, Any]]:
    """Receive what is visible."""
    messages: list[dict[str, Any]] = backend.sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"], **options
    ).get("Messages", [])
    return messages


def in_flight(backend: Backend, url: str, **sent: Any) -> str:
    """Send and receive one message; return its receipt handle."""
    backend.sqs.send_message(QueueUrl=url, MessageBody="m", **sent)
    return str(received(backend, url)[0]["ReceiptHandle"])


# ------------------------------------------------------------------------------------------------------------ DynamoDB


def counted(backend: Backend, key: str, first: int, second: int) -> tuple[str, str]:
    """Send two transactions that add to a counter under one client token; return the answers to both."""
    answers, token = [], uuid.uuid4().hex  # a server knows its tokens longer than a module's tables
    for number in (first, second):
        update = {
            "TableName": backend.table,
            "Key": {"pk": {"S": key}},
            "UpdateExpression": "ADD n :n",
            "ExpressionAttributeValues": {":n": {"N": str(number)}},
        }
        request = {"TransactItems": [{"Update": update}], "ClientRequestToken": token}
        answers.append(answer_to(backend.dynamodb.transact_write_items, **request))
    return answers[0], answers[1]


def token_sent_twice(backend: Backend) -> str:
    """Count in a transaction, and send it again."""
    key = backend.name()
    counted(backend, key, 1, 1)
    item = backend.item(key)
    assert item is not None
    return {"1": "applied once", "2": "applied twice"}[item["n"]["N"]]


def token_with_another_request(backend: Backend) -> str:
    """Send another transaction under the first one's token."""
    return counted(backend, backend.name(), 1, 2)[1]


def partiql_insert_of_a_key_that_is_there(backend: Backend) -> str:
    """Insert an item twice."""
    key = backend.name()
    backend.dynamodb.put_item(TableName=backend.table, Item={"pk": {"S": key}})
    statement = f"""INSERT INTO "{backend.table}" VALUE {{'pk': '{key}', 'n': 2}}"""
    return answer_to(backend.dynamodb.execute_statement, Statement=statement)


def put(backend: Backend, **options: Any) -> str:
    """Put an item under a key of its own."""
    item = {"pk": {"S": backend.name()}} | options.pop("item", {})
    return answer_to(backend.dynamodb.put_item, TableName=backend.table, Item=item, **options)


def item_of_409_000_bytes(backend: Backend) -> str:
    """Put an item just below 400 KB, which is 409,600 bytes."""
    return put(backend, item={"a": {"S": "a" * 409_000}})


def number_of_39_digits(backend: Backend) -> str:
    """Put a number of more than 38 digits."""
    return put(backend, item={"a": {"N": "1" * 39}})


def unused_value(backend: Backend) -> str:
    """Put with a value too many."""
    condition = {"ConditionExpression": "attribute_not_exists(pk)", "ExpressionAttributeValues": {":a": {"S": "a"}}}
    return put(backend, **condition)


def undefined_value(backend: Backend) -> str:
    """Put with a value too few."""
    return put(backend, ConditionExpression="pk = :nowhere")


def number_compared_with_text(backend: Backend) -> str:
    """Put on a condition that can never hold."""
    key = backend.name()
    backend.dynamodb.put_item(TableName=backend.table, Item={"pk": {"S": key}, "n": {"S": "1"}})
    condition = {"ConditionExpression": "n < :n", "ExpressionAttributeValues": {":n": {"N": "2"}}}
    return put(backend, item={"pk": {"S": key}}, **condition)


def two_writes_of_one_attribute(backend: Backend) -> str:
    """Set an attribute twice in one update."""
    update = {"UpdateExpression": "SET a = :a, a = :a", "ExpressionAttributeValues": {":a": {"S": "a"}}}
    key = {"pk": {"S": backend.name()}}
    return answer_to(backend.dynamodb.update_item, TableName=backend.table, Key=key, **update)


def key_longer_than_2048_bytes(backend: Backend) -> str:
    """Get an item by a key that is too long."""
    return answer_to(backend.dynamodb.get_item, TableName=backend.table, Key={"pk": {"S": "k" * 2049}})


def batch_of_26(backend: Backend) -> str:
    """Write more than 25 items in one batch."""
    puts = [{"PutRequest": {"Item": {"pk": {"S": backend.name()}}}} for _ in range(26)]
    return answer_to(backend.dynamodb.batch_write_item, RequestItems={backend.table: puts})


def units_of_3_kb(backend: Backend) -> str:
    """Put 3 KB and tell what it took."""
    item = {"pk": {"S": backend.name()}, "a": {"S": "a" * 3000}}
    answer = backend.dynamodb.put_item(TableName=backend.table, Item=item, ReturnConsumedCapacity="TOTAL")
    return f"{answer['ConsumedCapacity']['CapacityUnits']:g}"


# ----------------------------------------------------------------------------------------------------------------- SQS


def deletion_with_a_stale_handle(backend: Backend) -> str:
    """Delete with a handle of an earlier delivery, and look whether the message is there."""
    url = backend.new_queue()
    stale = in_flight(backend, url)
    backend.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=stale, VisibilityTimeout=0)
    fresh = received(backend, url)[0]["ReceiptHandle"]
    answer = answer_to(backend.sqs.delete_message, QueueUrl=url, ReceiptHandle=stale)
    answer_to(backend.sqs.change_message_visibility, QueueUrl=url, ReceiptHandle=fresh, VisibilityTimeout=0)
    return f"{answer}; the message {'stays' if received(backend, url) else 'is gone'}"


def visibility_of_a_message_that_is_visible(backend: Backend) -> str:
    """Change the visibility of a message that is in flight no more."""
    url = backend.new_queue()
    handle = in_flight(backend, url)
    change = {"QueueUrl": url, "ReceiptHandle": handle}
    backend.sqs.change_message_visibility(**change, VisibilityTimeout=0)
    return answer_to(backend.sqs.change_message_visibility, **change, VisibilityTimeout=30)


def visibility_above_twelve_hours(backend: Backend) -> str:
    """Change the visibility to a second above twelve hours."""
    url = backend.new_queue()
    request = {"QueueUrl": url, "ReceiptHandle": in_flight(backend, url), "VisibilityTimeout": 43_201}
    return answer_to(backend.sqs.change_message_visibility, **request)


def fifo_redelivery(backend: Backend) -> str:
    """Receive a group, let it become visible again, and receive it once more."""
    url = backend.new_queue(fifo=True)
    for number in range(4):
        body = str(number)
        sent = {"MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": body}
        backend.sqs.send_message(QueueUrl=url, **sent)
    assert len(received(backend, url, VisibilityTimeout=1)) == 4
    bodies = [message["Body"] for message in received(backend, url, WaitTimeSeconds=5)]
    return {"0123": "all of it, in order", "3": "only the last"}["".join(bodies)]


def fifo_duplicate_after_a_deletion(backend: Backend) -> str:
    """Send, delete, and send once more with the same deduplication id."""
    url = backend.new_queue(fifo=True)
    sent = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    backend.sqs.delete_message(QueueUrl=url, ReceiptHandle=in_flight(backend, url, **sent))
    backend.sqs.send_message(QueueUrl=url, MessageBody="m", **sent)
    return "delivered" if received(backend, url) else "not delivered"


def body_above_1_mib_in_bytes(backend: Backend) -> str:
    """Send 600,000 characters of two bytes."""
    return answer_to(backend.sqs.send_message, QueueUrl=backend.new_queue(), MessageBody="é" * 600_000)


def text_attribute(text: str) -> dict[str, str]:
    """Return a message attribute."""
    return {"DataType": "String", "StringValue": text}


def body_and_attributes_above_1_mib(backend: Backend) -> str:
    """Send a body below the limit with attributes that pass it."""
    attributes = {"a": text_attribute("a" * 60_000)}
    request = {"MessageBody": "a" * 1_000_000, "MessageAttributes": attributes}
    return answer_to(backend.sqs.send_message, QueueUrl=backend.new_queue(), **request)


def eleven_attributes(backend: Backend) -> str:
    """Send one attribute too many."""
    attributes = {f"a{number}": text_attribute("a") for number in range(11)}
    request = {"MessageBody": "m", "MessageAttributes": attributes}
    return answer_to(backend.sqs.send_message, QueueUrl=backend.new_queue(), **request)


def empty_body(backend: Backend) -> str:
    """Send nothing."""
    return answer_to(backend.sqs.send_message, QueueUrl=backend.new_queue(), MessageBody="")


def body_with_a_control_character(backend: Backend) -> str:
    """Send what XML does not know."""
    return answer_to(backend.sqs.send_message, QueueUrl=backend.new_queue(), MessageBody="\x01")


def delay_above_15_minutes(backend: Backend) -> str:
    """Send with a delay of a second too long."""
    return answer_to(backend.sqs.send_message, QueueUrl=backend.new_queue(), MessageBody="m", DelaySeconds=901)


def long_poll_above_20_seconds(backend: Backend) -> str:
    """Receive with a wait of a second too long."""
    url = backend.new_queue()
    backend.sqs.send_message(QueueUrl=url, MessageBody="m")
    return answer_to(backend.sqs.receive_message, QueueUrl=url, WaitTimeSeconds=21)


def purge_within_a_minute(backend: Backend) -> str:
    """Purge a queue twice."""
    url = backend.new_queue()
    backend.sqs.purge_queue(QueueUrl=url)
    return answer_to(backend.sqs.purge_queue, QueueUrl=url)


def dead_letter(backend: Backend) -> dict[str, Any]:
    """Let a message be moved into a dead-letter queue by a redrive policy; return it."""
    dead = backend.new_queue()
    arn = backend.sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "1"}}'
    url = backend.new_queue(RedrivePolicy=policy)
    handle = in_flight(backend, url)
    backend.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    assert received(backend, url) == []
    [message] = received(backend, dead)
    return message | {"arn": arn}


def source_of_a_dead_letter(backend: Backend) -> str:
    """Look for the attribute of a message that its redrive policy moved."""
    return "told" if "DeadLetterQueueSourceArn" in dead_letter(backend)["Attributes"] else "not told"


def native_redrive(backend: Backend) -> str:
    """Let SQS move dead letters back."""
    return answer_to(backend.sqs.start_message_move_task, SourceArn=dead_letter(backend)["arn"])


def fifo_dead_letters_of_a_standard_queue(backend: Backend) -> str:
    """Create a queue whose dead-letter queue is of the other kind."""
    dead = backend.new_queue(fifo=True)
    arn = backend.sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "1"}}'
    return answer_to(backend.new_queue, RedrivePolicy=policy)


DIFFERENCES = [
    Difference(
        "A transaction sent twice with one client token",
        f"{API}TransactWriteItems.html",
        *("applied once", "applied twice", "applied once"),
        token_sent_twice,
    ),
    Difference(
        "Another transaction with a client token that was used",
        f"{API}TransactWriteItems.html",
        *(REFUSED, ACCEPTED, REFUSED),
        token_with_another_request,
    ),
    Difference(
        "PartiQL's INSERT of a key that is there",
        f"{GUIDE}ql-reference.insert.html",
        *(REFUSED, ACCEPTED, REFUSED),
        partiql_insert_of_a_key_that_is_there,
    ),
    Difference(
        "An item of 409,000 bytes",
        f"{GUIDE}Constraints.html",
        *(ACCEPTED, REFUSED, ACCEPTED),
        item_of_409_000_bytes,
    ),
    Difference(
        "Reading a key of 2,049 bytes",
        f"{GUIDE}Constraints.html",
        *(REFUSED, ACCEPTED, REFUSED),
        key_longer_than_2048_bytes,
    ),
    Difference(
        "A number of 39 digits",
        f"{GUIDE}HowItWorks.NamingRulesDataTypes.html",
        *(REFUSED, ACCEPTED, REFUSED),
        number_of_39_digits,
    ),
    Difference(
        "A value that no expression uses",
        f"{GUIDE}Programming.Errors.html",
        *(REFUSED, ACCEPTED, REFUSED),
        unused_value,
    ),
    Difference(
        "An expression with a value that is not given",
        f"{GUIDE}Programming.Errors.html",
        *(REFUSED, "a Python KeyError", REFUSED),
        undefined_value,
    ),
    Difference(
        "A condition that compares a number with text",
        f"{API}Condition.html",
        *(REFUSED, "a Python TypeError", REFUSED),
        number_compared_with_text,
    ),
    Difference(
        "Two writes of one attribute in one update",
        f"{GUIDE}Expressions.UpdateExpressions.html",
        *(REFUSED, REFUSED, ACCEPTED),
        two_writes_of_one_attribute,
    ),
    Difference(
        "A batch of 26 writes",
        f"{API}BatchWriteItem.html",
        *(REFUSED, ACCEPTED, REFUSED),
        batch_of_26,
    ),
    Difference(
        "The write units of an item of 3 KB",
        f"{GUIDE}read-write-operations.html",
        *("3", "1", "3"),
        units_of_3_kb,
    ),
    Difference(
        "A deletion with a stale receipt handle",
        f"{SQS_API}DeleteMessage.html",
        *("accepted; the message stays", "accepted; the message is gone", "refused; the message stays"),
        deletion_with_a_stale_handle,
    ),
    Difference(
        "A visibility timeout for a message that is visible",
        f"{SQS_API}ChangeMessageVisibility.html",
        *(REFUSED, ACCEPTED, ACCEPTED),
        visibility_of_a_message_that_is_visible,
    ),
    Difference(
        "A visibility timeout above 12 hours",
        f"{SQS_API}ChangeMessageVisibility.html",
        *(REFUSED, REFUSED, ACCEPTED),
        visibility_above_twelve_hours,
    ),
    Difference(
        "A FIFO group delivered again after its visibility timeout",
        f"{SQS_GUIDE}FIFO-queues-understanding-logic.html",
        *("all of it, in order", "only the last", "all of it, in order"),
        fifo_redelivery,
    ),
    Difference(
        "A FIFO duplicate after the first was deleted",
        f"{SQS_GUIDE}using-messagededuplicationid-property.html",
        *("not delivered", "delivered", "not delivered"),
        fifo_duplicate_after_a_deletion,
    ),
    Difference(
        "A body above 1 MiB in bytes, not in characters",
        f"{SQS_API}SendMessage.html",
        *(REFUSED, ACCEPTED, REFUSED),
        body_above_1_mib_in_bytes,
    ),
    Difference(
        "A body that is above 1 MiB with its attributes",
        f"{SQS_GUIDE}sqs-message-metadata.html",
        *(REFUSED, ACCEPTED, ACCEPTED),
        body_and_attributes_above_1_mib,
    ),
    Difference(
        "Eleven message attributes",
        f"{SQS_GUIDE}sqs-message-metadata.html",
        *(REFUSED, ACCEPTED, ACCEPTED),
        eleven_attributes,
    ),
    Difference(
        "An empty body",
        f"{SQS_API}SendMessage.html",
        *(REFUSED, ACCEPTED, REFUSED),
        empty_body,
    ),
    Difference(
        "A body with a control character",
        f"{SQS_API}SendMessage.html",
        *(REFUSED, ACCEPTED, REFUSED),
        body_with_a_control_character,
    ),
    Difference(
        "A delay above 15 minutes",
        f"{SQS_API}SendMessage.html",
        *(REFUSED, REFUSED, ACCEPTED),
        delay_above_15_minutes,
    ),
    Difference(
        "A long poll above 20 seconds",
        f"{SQS_GUIDE}sqs-short-and-long-polling.html",
        *(REFUSED, REFUSED, ACCEPTED),
        long_poll_above_20_seconds,
    ),
    Difference(
        "Two purges within a minute",
        f"{SQS_API}PurgeQueue.html",
        *(REFUSED, REFUSED, ACCEPTED),
        purge_within_a_minute,
    ),
    Difference(
        "Where a dead letter came from, on a native move",
        f"{SQS_API}ReceiveMessage.html",
        *("told", "not told", "told"),
        source_of_a_dead_letter,
    ),
    Difference(
        "A native redrive (`StartMessageMoveTask`)",
        f"{SQS_API}StartMessageMoveTask.html",
        *(ACCEPTED, "a Python NotImplementedError", REFUSED),
        native_redrive,
    ),
    Difference(
        "A FIFO dead-letter queue for a standard queue",
        f"{SQS_API}SetQueueAttributes.html",
        *(REFUSED, ACCEPTED, ACCEPTED),
        fifo_dead_letters_of_a_standard_queue,
    ),
]


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.probe.__name__)
def test_a_service_differs_from_aws_as_the_page_says(backend: Backend, difference: Difference) -> None:
    """No more and no less; a third endpoint (`CONTRACT_ENDPOINT`) is held to what AWS documents."""
    expected = {"moto": difference.moto, "ministack": difference.ministack}.get(backend.served_by, difference.aws)

    assert difference.probe(backend) == expected


def test_the_page_has_these_differences_and_no_others() -> None:
    """A row that nothing proves would outlive the version that it was true of."""
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("| What is done |") :].split("\n\n", 1)[0].splitlines()[2:]

    assert table == [difference.row for difference in DIFFERENCES]


def test_the_page_names_the_versions_that_were_asked() -> None:
    """A pin that moves takes the page with it."""
    pins = (ROOT / "requirements" / "ministack.txt").read_text(encoding="utf-8")
    pinned = re.search(r"^ministack==(\S+)", pins, re.MULTILINE)
    assert pinned is not None

    heading = f"| What is done | AWS | moto {importlib.metadata.version('moto')} | ministack {pinned[1]} |"
    assert heading in PAGE.read_text(encoding="utf-8")


def test_each_difference_is_one() -> None:
    """A row where both do as AWS does is none any more."""
    assert all({each.moto, each.ministack} != {each.aws} for each in DIFFERENCES)
