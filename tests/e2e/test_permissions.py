"""Each statement of each policy that is deployed, taken away: the right thing fails, nothing is lost or done twice.

IAM is enforced by ministack (``AUTH=true``); what it does not ask, `NOT_SHOWN` names. `test_deployment` shows that with
all of them everything works, and each scene here shows it again once its statement is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from e2e.scenes import a_key, done, mails, payment, reservation, stage_receipt, stand_stale, webhook
from kit.stack import eventually
from onceq import EnqueueFailed, StoreError
from onceq.errors import TransactionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from demo.provider import Provider
    from kit.stack import Stack

pytestmark = pytest.mark.timeout(600)

NOT_SHOWN = {
    ("VpcPolicy", "EnterVpc"): "ministack knows no Join in a condition, so the policy is there; a VPC to enter is not",
    ("ConsumerRole", "Log"): "ministack writes a function's log itself",
    ("RelayRole", "Log"): "the same",
    ("RecoveryRole", "Log"): "the same",
    ("JobsPolicy", "JobsNeverDestroy"): "it denies, and without it nothing is allowed either",
    (
        "NightlyReportRole",
        "Send",
    ): "ministack's scheduler knows no scheduled time, so what it sends is no message of ours",
}


def retry_now(stack: Stack, job_type: str, payload: dict[str, Any], key: str) -> None:
    """Run a job that was denied its tables, as a person does who does not wait up to 15 minutes for it."""
    with stack.app("ResolvePolicy") as app:
        app.resolve(job_type, key, "retry")
    stack.send(job_type, payload, key=key)
    eventually(stack.has_ended(job_type, key))


def claim(stack: Stack, provider: Provider) -> Iterator[None]:
    """Without a claim the job is not started: nothing is charged, and the message waits."""
    key = a_key()
    message_id = stack.send("process_payment", payment(key), key=key)
    [fault, *_] = eventually(stack.was_told("message.faulted", message_id))
    assert "PutItem" in fault["reason"]
    assert (stack.record("process_payment", key), done(provider, "charges", key)) == (None, (0, 0))
    assert stack.messages() == 1
    yield
    eventually(stack.has_ended("process_payment", key))
    assert done(provider, "charges", key) == (1, 1)
    eventually(lambda: stack.messages() == 0)


def stage(stack: Stack, provider: Provider) -> Iterator[None]:
    """Without the outbox a job that sends cannot complete; its step stands, so it does not charge again."""
    key, before = a_key(), stack.messages()
    sent = payment(key, email="ada@example.com")
    stack.send("process_payment", sent, key=key)
    failed = eventually(stack.has_ended("process_payment", key, "failed"))
    assert "TransactionDenied" in str(failed.error)
    assert (stack.entries_for(key), stack.messages(), done(provider, "charges", key)) == ([], before + 1, (1, 1))
    yield
    retry_now(stack, "process_payment", sent, key)
    eventually(stack.has_ended("send_receipt", key))
    assert (done(provider, "charges", key), mails(provider, key)) == ((1, 1), 1)


def dead_letter(stack: Stack, provider: Provider) -> Iterator[None]:
    """Without sending there is no copy for the dead-letter queue, so the message itself is kept."""
    key = a_key()
    message_id = stack.send("process_payment", payment(key, amount=-1), key=key)
    [failed, *_] = eventually(stack.was_told("message.copy_failed", message_id))
    assert "SendMessage" in failed["reason"]
    eventually(stack.has_ended("process_payment", key, "rejected"))
    assert (stack.letter(key)(), stack.messages()) == (None, 1)
    yield
    assert eventually(stack.letter(key))["note"]["key"] == key
    eventually(lambda: stack.messages() == 0)


def defer(stack: Stack, provider: Provider) -> Iterator[None]:
    """Without changing its visibility a message comes back at the queue's own time."""
    key = a_key()
    message_id = stack.send("process_payment", payment(key, "cus_flaky-3"), key=key)
    [kept, *_] = eventually(stack.was_told("visibility.not_changed", message_id))
    assert "ChangeMessageVisibility" in kept["reason"]
    assert stack.messages() == 1
    yield
    eventually(stack.has_ended("process_payment", key))
    assert done(provider, "charges", key) == (3, 1)
    eventually(lambda: stack.messages() == 0)


def own_table(stack: Stack, provider: Provider) -> Iterator[None]:
    """Without the user's own table the transaction does not happen: no stock is taken, nothing is booked."""
    key, sku, before = a_key(), a_key(), stack.messages()
    stack.put("StockTable", {"sku": {"S": sku}, "available": {"N": "5"}})
    stack.send("reserve_stock", reservation(key, sku, 2), key=key)
    failed = eventually(stack.has_ended("reserve_stock", key, "failed"))
    assert "TransactionDenied" in str(failed.error)
    assert (stack.stock(sku), stack.entries_for(key), stack.messages()) == (5, [], before + 1)
    yield
    retry_now(stack, "reserve_stock", reservation(key, sku, 2), key)
    eventually(stack.has_ended("book_order", key))
    assert (stack.stock(sku), done(provider, "legacy", key)) == (3, (1, 1))


def find_pending(stack: Stack, provider: Provider) -> Iterator[None]:
    """Without its query the relay fails as a whole, which its alarm counts; the entry waits."""
    key = a_key()
    pk = stage_receipt(stack, key)
    error, answer = stack.invoke("RelayFunction")
    assert (error, "Query" in answer["errorMessage"]) == ("Unhandled", True)
    assert stack.entry(pk).status == "pending"
    yield
    eventually(lambda: stack.invoke("RelayFunction")[1]["sent"])
    eventually(stack.has_ended("send_receipt", key))


def mark(stack: Stack, provider: Provider) -> Iterator[None]:
    """Without its mark an entry is sent, and sent again: two messages, one job."""
    key = a_key()
    pk = stage_receipt(stack, key)
    assert stack.invoke("RelayFunction")[1]["sent"] == 1
    eventually(stack.has_ended("send_receipt", key))
    assert stack.entry(pk).status == "pending"
    assert "UpdateItem" in str(stack.events("outbox.not_marked", pk, "Relay"))
    yield
    eventually(lambda: stack.invoke("RelayFunction")[1]["sent"])
    assert stack.entry(pk).status == "sent"
    eventually(stack.was_told("job.replayed", key))
    assert mails(provider, key) == 1


def relay_send(stack: Stack, provider: Provider) -> Iterator[None]:
    """Without sending the relay writes down why, and the entry stays pending."""
    key = a_key()
    pk = stage_receipt(stack, key)
    assert stack.invoke("RelayFunction")[1]["failed"] == 1
    entry = stack.entry(pk)
    assert (entry.status, entry.attempts, "SendMessage" in str(entry.error)) == ("pending", 1, True)
    yield
    eventually(lambda: stack.invoke("RelayFunction")[1]["sent"])
    eventually(stack.has_ended("send_receipt", key))


def recover(stack: Stack, provider: Provider) -> Iterator[None]:
    """Without the table recovery fails as a whole, and the stale claim stands as it stood."""
    key = a_key()
    stand_stale(stack, key)
    error, answer = stack.invoke("RecoveryFunction")
    assert (error, "not authorized" in answer["errorMessage"]) == ("Unhandled", True)
    assert stack.has_ended("process_payment", key, "processing")()
    yield
    assert stack.invoke("RecoveryFunction")[1]["failed"] == 1
    assert stack.has_ended("process_payment", key, "failed")()


def produce(stack: Stack, provider: Provider) -> Iterator[None]:
    """Whoever enqueues is told, with the entry that was not sent."""
    key = a_key()
    with stack.app("ProducerPolicy") as app:
        with pytest.raises(EnqueueFailed, match="SendMessage") as told:
            app.enqueue("process_payment", payment(key), key=key)
        assert [entry.key for entry, _ in told.value.failed] == [key]
        yield
        app.enqueue("process_payment", payment(key), key=key)
    eventually(stack.has_ended("process_payment", key))


def stage_outside(stack: Stack, provider: Provider) -> Iterator[None]:
    """Whoever enqueues through the outbox is told that nothing happened, and nothing is sent."""
    key = a_key()
    with stack.app("OutboxProducerPolicy") as app:
        with pytest.raises(TransactionFailed, match="not authorized"):
            app.enqueue_with([], "deliver_webhook", webhook(key), key=key)
        assert stack.entries_for(key) == []
        yield
        app.enqueue_with([], "deliver_webhook", webhook(key), key=key)
    eventually(stack.has_ended("deliver_webhook", key))


def send_outside(stack: Stack, provider: Provider) -> Iterator[None]:
    """Whoever may stage and not send leaves it to the relay."""
    key = a_key()
    with stack.app("OutboxProducerPolicy") as app:
        assert app.enqueue_with([], "deliver_webhook", webhook(key), key=key).message_id is None
    [entry] = stack.entries_for(key)
    assert (entry.status, "SendMessage" in str(entry.error)) == ("pending", True)
    yield
    eventually(lambda: stack.invoke("RelayFunction")[1]["sent"])
    eventually(stack.has_ended("deliver_webhook", key))


def look(stack: Stack, provider: Provider) -> Iterator[None]:
    """Whoever looks a job up gets an error, and not "there is none"."""
    with stack.app("LookupPolicy") as app:
        with pytest.raises(StoreError, match="GetItem"):
            app.lookup("process_payment", "o-1")
        yield
        assert app.lookup("process_payment", a_key()) is None


def lock(stack: Stack, provider: Provider) -> Iterator[None]:
    """Whoever takes a lock does not get it."""
    name = a_key()
    with stack.app("LockPolicy") as app:
        with pytest.raises(StoreError, match="PutItem"), app.lock(name):
            pass
        yield
        with app.lock(name):
            assert stack.lock(name).lease_expires_at > 0


def decide(stack: Stack, provider: Provider) -> Iterator[None]:
    """Whoever decides about a job changes nothing."""
    key = a_key()
    stack.send("process_payment", payment(key, amount=-1), key=key)
    eventually(stack.has_ended("process_payment", key, "rejected"))
    with stack.app("ResolvePolicy") as app:
        with pytest.raises(StoreError, match="GetItem"):
            app.resolve("process_payment", key, "retry")
        yield
        assert app.resolve("process_payment", key, "retry").status == "failed"


def encrypted(queue: str) -> Callable[[Stack, Provider], Iterator[None]]:
    """Return the scene of a queue that, without its policy, takes what comes over plain HTTP."""

    def scene(stack: Stack, provider: Provider) -> Iterator[None]:
        client, message = stack.plain_client("sqs"), {"QueueUrl": stack.physical[queue], "MessageBody": a_key()}
        client.send_message(**message)
        yield
        with pytest.raises(ClientError, match="AccessDenied"):
            client.send_message(**message)

    return scene


SCENES: dict[tuple[str, str], Callable[[Stack, Provider], Iterator[None]]] = {
    ("ConsumerRole", "Claim"): claim,
    ("ConsumerRole", "EnqueueAndDeadLetter"): dead_letter,
    ("ConsumerRole", "ReceiveAndDefer"): defer,
    ("RelayRole", "FindPending"): find_pending,
    ("RelayRole", "Mark"): mark,
    ("RelayRole", "Send"): relay_send,
    ("RecoveryRole", "ScanAndMark"): recover,
    ("ProducerPolicy", "Enqueue"): produce,
    ("OutboxProducerPolicy", "Stage"): stage_outside,
    ("OutboxProducerPolicy", "Enqueue"): send_outside,
    ("LookupPolicy", "Lookup"): look,
    ("LockPolicy", "Lock"): lock,
    ("ResolvePolicy", "Resolve"): decide,
    ("OnlyEncryptedConnections", "DenyPlainHttp"): encrypted("JobsQueue"),
    ("OnlyEncryptedConnectionsToDeadLetters", "DenyPlainHttp"): encrypted("DeadLetterQueue"),
    # Last, since the messages of these two stay invisible for minutes.
    ("ConsumerRole", "StageAndSend"): stage,
    ("JobsPolicy", "JobsReadAndWriteTheirTables"): own_table,
}


@pytest.mark.parametrize(("resource", "sid"), SCENES, ids=["-".join(row) for row in SCENES])
def test_without_a_statement_the_right_thing_fails_and_nothing_is_lost(
    stack: Stack, provider: Provider, resource: str, sid: str
) -> None:
    """G4: a permission that is missing keeps the message; once it is there, what was kept is done, and done once."""
    scene = SCENES[resource, sid](stack, provider)
    # What is kept for a fault waits for the queue's own visibility timeout.
    with stack.attributes(VisibilityTimeout="5"):
        with stack.without(resource, sid):
            next(scene)
        assert next(scene, "ended") == "ended"


def test_no_statement_is_left_out(stack: Stack) -> None:
    """A new statement needs a scene, or a reason here why there is none."""
    assert stack.statements() == SCENES.keys() | NOT_SHOWN.keys()
