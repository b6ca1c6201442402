"""The contract of `onceq.queue.Queue`, whatever backend serves it.

Nothing here rests on what moto is known to do differently: stale receipt handles, FIFO redelivery, deduplication.
Where a backend cannot be made to fail one entry of a batch, a client between us and it does.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from kit.faults import Call, FaultyClient, client_error
from onceq.errors import QueueError, QueueUnavailable
from onceq.queue import ENTRY_ATTEMPTS, MAX_BYTES, MAX_ENTRIES, in_batches, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from contract.conftest import Backend


def entries(bodies: Iterable[str]) -> list[dict[str, Any]]:
    """Return entries of SendMessageBatch."""
    return [{"Id": f"e{number}", "MessageBody": body} for number, body in enumerate(bodies)]


def drained(backend: Backend, url: str, most: int = 40) -> list[dict[str, Any]]:
    """Receive until nothing comes, and leave what came invisible."""
    queue, found = backend.queue(), []
    for _ in range(most):
        batch = queue.receive(url)
        if not batch:
            break
        found += batch
    return found


def bodies(messages: Iterable[dict[str, Any]]) -> list[str]:
    """Return the bodies, sorted: a standard queue promises no order."""
    return sorted(str(message["Body"]) for message in messages)


def requests(client: FaultyClient) -> list[list[str]]:
    """Return the entry ids of every batch request."""
    return [[entry["Id"] for entry in call.request["Entries"]] for call in client.calls]


def failing(codes: dict[str, tuple[str, bool]]) -> Callable[[FaultyClient], Callable[[Call], Any]]:
    """Fail some entries of a batch by their bodies; the others go through to the backend."""

    def of(client: FaultyClient) -> Callable[[Call], Any]:
        def meet(call: Call) -> Any:
            sent = [entry for entry in call.request["Entries"] if entry["MessageBody"] not in codes]
            failed = [entry for entry in call.request["Entries"] if entry["MessageBody"] in codes]
            forwarded = Call(call.name, call.method, call.request | {"Entries": sent})
            answer = dict(client.forward(forwarded)) if sent else {}
            answer["Failed"] = [
                {
                    "Id": entry["Id"],
                    "Code": codes[entry["MessageBody"]][0],
                    "SenderFault": codes[entry["MessageBody"]][1],
                    "Message": "planned",
                }
                for entry in failed
            ]
            return answer

        return meet

    return of


def test_a_message_arrives_as_it_was_sent_with_every_attribute(backend: Backend) -> None:
    """send and receive: the body, the message attributes of all types, and SQS's own."""
    url = backend.new_queue()
    attributes: dict[str, dict[str, Any]] = {
        "text": {"DataType": "String", "StringValue": "é 😀"},
        "number": {"DataType": "Number", "StringValue": "12"},
        "binary": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    message_id = backend.queue().send(url, {"MessageBody": '{"a":"é"}', "MessageAttributes": attributes})

    (message,) = backend.queue().receive(url)

    assert (message["MessageId"], message["Body"]) == (message_id, '{"a":"é"}')
    for name, attribute in attributes.items():
        assert message["MessageAttributes"][name].items() >= attribute.items()
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert int(message["Attributes"]["SentTimestamp"]) > 0
    assert int(message["Attributes"]["ApproximateFirstReceiveTimestamp"]) > 0
    assert message["ReceiptHandle"]


def test_a_fifo_message_arrives_with_its_group(backend: Backend) -> None:
    """A FIFO queue gives the group and the sequence, which lanes are made of."""
    url = backend.new_queue(fifo=True)
    entry = {"Id": "e0", "MessageBody": "b", "MessageGroupId": "g-1", "MessageDeduplicationId": "d-1"}
    sent, failed = backend.queue().send_batch(url, [entry])

    (message,) = backend.queue().receive(url)

    assert (list(sent), failed) == (["e0"], {})
    assert message["Attributes"]["MessageGroupId"] == "g-1"
    assert message["Attributes"]["MessageDeduplicationId"] == "d-1"
    assert message["Attributes"]["SequenceNumber"]


def test_fifo_messages_of_one_group_arrive_in_order(backend: Backend) -> None:
    """The first delivery keeps the order in which a batch was sent."""
    url = backend.new_queue(fifo=True)
    placed = [
        entry | {"MessageGroupId": "g", "MessageDeduplicationId": entry["Id"]} for entry in entries("abcdefghijkl")
    ]
    backend.queue().send_batch(url, placed)

    first = backend.queue().receive(url)

    assert [message["Body"] for message in first] == list("abcdefghijkl")[: len(first)]
    assert first


def test_an_empty_queue_gives_nothing(backend: Backend) -> None:
    """No message is an empty list, not an error."""
    assert backend.queue().receive(backend.new_queue()) == []


def test_receive_takes_no_more_than_it_is_asked_for(backend: Backend) -> None:
    """`most` bounds a batch."""
    url = backend.new_queue()
    backend.queue().send_batch(url, entries("abcde"))

    assert len(backend.queue().receive(url, most=2)) <= 2
    assert backend.queue().receive(url, most=1)


@pytest.mark.parametrize("count", [0, 1, 10, 11, 25])
def test_batches_hold_ten_entries(backend: Backend, count: int) -> None:
    """Every entry is sent once, in batches of ten, and named by its id."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    sent, failed = backend.queue(client).send_batch(url, entries(str(number) for number in range(count)))

    assert (list(sent), failed) == ([f"e{number}" for number in range(count)], {})
    assert [len(ids) for ids in requests(client)] == [10] * (count // 10) + ([count % 10] if count % 10 else [])
    found = drained(backend, url)
    assert bodies(found) == sorted(str(number) for number in range(count))
    assert {message["MessageId"] for message in found} == set(sent.values())


def test_batches_hold_one_mib_in_bytes(backend: Backend) -> None:
    """Batches are cut by bytes of UTF-8, since SQS counts bytes: three of 600,000 are three requests."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    sent, failed = backend.queue(client).send_batch(url, entries(["é" * 300_000, "x" * 600_000, "x", "é" * 300_000]))

    assert (len(sent), failed) == (4, {})
    assert requests(client) == [["e0"], ["e1", "e2"], ["e3"]]
    assert len(drained(backend, url)) == 4


def test_a_batch_of_exactly_one_mib_is_one_request() -> None:
    """The limit itself is allowed, one byte more is not; attributes count with their names and types."""
    half = MAX_BYTES // 2
    attribute = {"a": {"DataType": "String", "StringValue": "é"}}

    assert size_of({"MessageBody": "é", "MessageAttributes": attribute}) == 2 + 1 + 6 + 2
    assert size_of({"MessageBody": "", "MessageAttributes": {"b": {"DataType": "Binary", "BinaryValue": b"xyz"}}}) == 10
    assert [len(batch) for batch in in_batches(entries(["x" * half, "x" * half]))] == [2]
    assert [len(batch) for batch in in_batches(entries(["x" * half, "x" * (half + 1)]))] == [1, 1]
    assert [len(batch) for batch in in_batches(entries("x" * 21))] == [MAX_ENTRIES, MAX_ENTRIES, 1]


def test_one_entry_that_is_too_large_does_not_hurt_the_others(backend: Backend) -> None:
    """G5: an entry that SQS refuses is named with the reason; its neighbours arrive."""
    url = backend.new_queue()
    sent, failed = backend.queue().send_batch(url, entries(["a", "x" * (MAX_BYTES + 1), "b"]))

    assert sorted(sent) == ["e0", "e2"]
    assert list(failed) == ["e1"]
    assert "SendMessageBatch was refused" in failed["e1"]
    assert bodies(drained(backend, url)) == ["a", "b"]


def test_a_failed_entry_is_sent_again_alone(backend: Backend) -> None:
    """SQS answers 200 although entries failed: those, and only those, are tried again."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    client.plan("send_message_batch", failing({"b": ("InternalError", False)})(client))
    sent, failed = backend.queue(client).send_batch(url, entries("abc"))

    assert (sorted(sent), failed) == (["e0", "e1", "e2"], {})
    assert requests(client) == [["e0", "e1", "e2"], ["e1"]]
    assert bodies(drained(backend, url)) == ["a", "b", "c"]


def test_an_entry_that_fails_every_time_is_named_with_its_reason(backend: Backend) -> None:
    """Retries by entry are bounded; then the entry is returned as failed, and the others as sent."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    client.plan("send_message_batch", failing({"b": ("InternalError", False)})(client), times=99)
    slept = len(backend.clock.slept)
    sent, failed = backend.queue(client).send_batch(url, entries("abc"))

    assert (sorted(sent), failed) == (["e0", "e2"], {"e1": "InternalError: planned"})
    assert requests(client) == [["e0", "e1", "e2"], *[["e1"]] * (ENTRY_ATTEMPTS - 1)]
    assert backend.clock.slept[slept:] == [0.1, 0.2]
    assert bodies(drained(backend, url)) == ["a", "c"]


def test_a_senders_fault_is_not_sent_again(backend: Backend) -> None:
    """A sender's fault would only be repeated: it is named at once, beside one that is tried again."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    codes = {"b": ("InvalidMessageContents", True), "c": ("InternalError", False)}
    client.plan("send_message_batch", failing(codes)(client))
    sent, failed = backend.queue(client).send_batch(url, entries("abc"))

    assert (sorted(sent), failed) == (["e0", "e2"], {"e1": "InvalidMessageContents: planned"})
    assert requests(client) == [["e0", "e1", "e2"], ["e2"]]
    assert bodies(drained(backend, url)) == ["a", "c"]


def test_a_batch_that_is_refused_as_a_whole_is_sent_one_by_one(backend: Backend) -> None:
    """G5: SQS refuses a whole batch for one entry that breaks its rules: the others are sent by themselves."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)

    def meet(call: Call) -> Any:
        if any(entry["MessageBody"] == "poison" for entry in call.request["Entries"]):
            raise client_error("InvalidMessageContents", method="send_message_batch")
        return client.forward(call)

    client.plan("send_message_batch", meet, times=99)
    sent, failed = backend.queue(client).send_batch(url, entries(["a", "poison", "c"]))

    assert sorted(sent) == ["e0", "e2"]
    assert list(failed) == ["e1"]
    assert "InvalidMessageContents" in failed["e1"]
    assert requests(client) == [["e0", "e1", "e2"], ["e0"], ["e1"], ["e2"]]
    assert bodies(drained(backend, url)) == ["a", "c"]


def test_what_arrived_before_a_refusal_is_not_sent_again(backend: Backend) -> None:
    """The first answer took one entry; the retry of the rest is refused as a whole: the taken one stays taken."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    passing = failing({"b": ("InternalError", False), "c": ("InternalError", False)})(client)
    client.plan("send_message_batch", passing)
    client.refuse("send_message_batch", "InvalidBatchEntryId")
    sent, failed = backend.queue(client).send_batch(url, entries("abc"))

    assert (sorted(sent), failed) == (["e0", "e1", "e2"], {})
    assert requests(client) == [["e0", "e1", "e2"], ["e1", "e2"], ["e1"], ["e2"]]
    assert bodies(drained(backend, url)) == ["a", "b", "c"]


def test_a_batch_that_is_never_answered_names_every_entry_and_raises_nothing(backend: Backend) -> None:
    """An unanswered batch may have arrived: its entries count as failed; the next batch is sent all the same."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    client.drop("send_message_batch", times=5)
    sent, failed = backend.queue(client).send_batch(url, entries(str(number) for number in range(12)))

    assert sorted(sent) == ["e10", "e11"]
    assert sorted(failed) == sorted(f"e{number}" for number in range(10))
    assert all("was not answered" in reason for reason in failed.values())
    assert len(drained(backend, url)) == 2


def test_a_batch_whose_response_is_lost_is_sent_again(backend: Backend) -> None:
    """At least once: a lost answer costs a duplicate, never a message; claims recognise it."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    client.lose_response("send_message_batch")
    sent, failed = backend.queue(client).send_batch(url, entries("ab"))

    assert (sorted(sent), failed) == (["e0", "e1"], {})
    assert set(bodies(drained(backend, url))) == {"a", "b"}


def test_an_entry_that_the_answer_forgets_is_sent_again_and_then_named(backend: Backend) -> None:
    """Neither successful nor failed is not sent: silence never counts as success."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    client.plan("send_message_batch", lambda _: {"Successful": [{"Id": "e0", "MessageId": "m-0"}]}, times=99)
    sent, failed = backend.queue(client).send_batch(url, entries("ab"))

    assert (sent, failed) == ({"e0": "m-0"}, {"e1": "not answered"})
    assert requests(client) == [["e0", "e1"], ["e1"], ["e1"]]


def test_an_answer_about_somebody_else_is_passed_over(backend: Backend) -> None:
    """Only ids of this batch count, and each once."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    answer = {"Successful": [{"Id": each, "MessageId": f"m-{each}"} for each in ("e0", "e0", "other")]}
    client.plan("send_message_batch", lambda _: answer)

    assert backend.queue(client).send_batch(url, entries("a")) == ({"e0": "m-e0"}, {})


def test_a_received_message_is_hidden_and_a_visibility_of_zero_shows_it_at_once(backend: Backend) -> None:
    """The visibility timeout hides what was received; a change to 0 gives it back, counted as received again."""
    url = backend.new_queue(VisibilityTimeout="600")
    backend.queue().send(url, {"MessageBody": "b"})
    (first,) = backend.queue().receive(url)
    assert backend.queue().receive(url) == []

    shown = {"Id": "e0", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 0}
    assert backend.queue().change_visibility_batch(url, [shown]) == {}

    (second,) = backend.queue().receive(url)
    assert second["MessageId"] == first["MessageId"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_longer_visibility_keeps_a_message_hidden(backend: Backend) -> None:
    """A back-off: the message does not come back before its time."""
    url = backend.new_queue(VisibilityTimeout="600")
    backend.queue().send_batch(url, entries("abc"))
    received = drained(backend, url)
    changes = [
        {"Id": f"e{number}", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 300}
        for number, message in enumerate(received)
    ]

    assert backend.queue().change_visibility_batch(url, changes) == {}
    assert backend.queue().receive(url) == []


def test_a_visibility_that_cannot_be_changed_is_named_and_the_others_are_changed(backend: Backend) -> None:
    """G5: one bad receipt handle does not hurt its neighbours, whether SQS fails the entry or the batch."""
    url = backend.new_queue(VisibilityTimeout="600")
    backend.queue().send_batch(url, entries("ab"))
    handles = [message["ReceiptHandle"] for message in drained(backend, url)]
    assert len(handles) == 2
    changes = [
        {"Id": f"e{number}", "ReceiptHandle": handle, "VisibilityTimeout": 0}
        for number, handle in enumerate([handles[0], "no such handle", handles[1]])
    ]

    failed = backend.queue().change_visibility_batch(url, changes)

    assert list(failed) == ["e1"]
    assert bodies(drained(backend, url)) == ["a", "b"]


def test_deleted_messages_are_gone_in_batches_of_ten(backend: Backend) -> None:
    """delete: twelve messages in two requests, and nothing comes back."""
    url, client = backend.new_queue(VisibilityTimeout="600"), FaultyClient(backend.sqs)
    backend.queue().send_batch(url, entries(str(number) for number in range(12)))
    received = drained(backend, url)
    assert len(received) == 12
    deletes = [
        {"Id": f"e{number}", "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(received)
    ]

    assert backend.queue(client).delete_batch(url, deletes) == {}
    assert [len(ids) for ids in requests(client)] == [10, 2]
    counts = backend.sqs.get_queue_attributes(
        QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    )["Attributes"]
    assert set(counts.values()) == {"0"}


def test_a_delete_that_fails_is_named(backend: Backend) -> None:
    """A message whose deletion failed comes again: the caller is told which."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    answer = {
        "Successful": [{"Id": "e0"}],
        "Failed": [{"Id": "e1", "Code": "ReceiptHandleIsInvalid", "SenderFault": True, "Message": "planned"}],
    }
    client.plan("delete_message_batch", lambda _: answer)
    deletes = [{"Id": f"e{number}", "ReceiptHandle": f"r{number}"} for number in range(2)]

    assert backend.queue(client).delete_batch(url, deletes) == {"e1": "ReceiptHandleIsInvalid: planned"}


def test_a_queue_that_is_not_there_is_an_error_or_a_reason(backend: Backend) -> None:
    """A mistake of the wiring raises for single requests, and is each entry's reason for batches."""
    url = backend.new_queue() + "-not"

    with pytest.raises(QueueError, match="SendMessage was refused"):
        backend.queue().send(url, {"MessageBody": "b"})
    with pytest.raises(QueueError, match="ReceiveMessage was refused"):
        backend.queue().receive(url)
    sent, failed = backend.queue().send_batch(url, entries("ab"))
    assert (sent, sorted(failed)) == ({}, ["e0", "e1"])


def test_a_single_message_that_is_never_answered_is_not_known_to_be_sent(backend: Backend) -> None:
    """QueueUnavailable says that the message may or may not have arrived."""
    url, client = backend.new_queue(), FaultyClient(backend.sqs)
    client.lose_response("send_message", times=5)

    with pytest.raises(QueueUnavailable, match="SendMessage was not answered"):
        backend.queue(client).send(url, {"MessageBody": "b"})

    assert set(bodies(itertools.islice(drained(backend, url), 5))) == {"b"}
