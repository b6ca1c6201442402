"""The real template, built and deployed by the SAM CLI to ministack, with IAM enforced and connections encrypted.

What this does not show:

- **Packaging.** ministack runs a function under its own Python with its own site-packages behind the function's, and
  changes nothing about the machine: what is missing from the artefact and happens to be there is not missed.
  `tests/artefact` runs the artefact alone.
- **A broken answer.** Where AWS keeps the whole batch for an empty, null or unknown id, ministack deletes it. The
  answers are proved by the strict reading of `onceq.poller` in the other tests.
- **What AWS would refuse in a template**: a visibility timeout below the function's, a batch of more than 10 without a
  window. `tests/template` holds those.
- **The mapping's permission to receive**: ministack polls without asking the role. Nor does it ask a role for its logs,
  nor know the keys of a condition on `dynamodb:LeadingKeys`.
- **The words that EventBridge Scheduler fills in** (`<aws.scheduler.scheduled-time>`): they are filled in here.
- **The network**: ministack reads the condition `InVpc` as true and makes `VpcPolicy`, since it knows no ``Join`` in a
  condition. The functions are in no VPC.
- Throttling, cold starts as they are, memory limits, delayed metrics, alarms.

Two corrections are made, both where it departs from AWS: IAM asks for ``SendMessage`` where a batch is sent
(`kit.serve_ministack`), and the mapping's `MaximumConcurrency` is told again as a number (`kit.stack`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psutil
import pytest
from botocore.exceptions import ClientError

from e2e.scenes import a_key, done, payment, reservation, stage_receipt, stand_stale, webhook
from kit.stack import envelope, eventually

if TYPE_CHECKING:
    from demo.provider import Provider
    from kit.stack import Stack

pytestmark = pytest.mark.timeout(600)  # the first test waits for the deployment


def test_everything_listens_on_127_0_0_1_alone(stack: Stack) -> None:
    """Neither ministack nor a function that it runs listens where others could reach it."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [
        f"https://{each.laddr.ip}:{each.laddr.port}"
        for process in processes
        for each in process.net_connections()
        if each.status == psutil.CONN_LISTEN
    ]

    assert stack.cloud.endpoint in listening
    assert all(each.startswith("https://127.0.0.1:") for each in listening)


def test_envelopes_made_by_hand_complete(stack: Stack, provider: Provider) -> None:
    """A producer without onceq: whoever has `ProducerPolicy` sends JSON; the records hold what the jobs returned."""
    keys = [a_key() for _ in range(3)]
    producer = stack.client("sqs", stack.user("ProducerPolicy"))
    # The last one has no key: the job type derives it from the payload.
    bodies = [envelope("process_payment", payment(key), key if key != keys[-1] else None) for key in keys]
    for body in bodies:
        producer.send_message(QueueUrl=stack.outputs["JobsQueueUrl"], MessageBody=body)

    for key in keys:
        record = eventually(stack.has_ended("process_payment", key))
        assert json.loads(record.result or "")["charge_id"].startswith("ch_")
        assert (record.attempts, done(provider, "charges", key)) == (1, (1, 1))


def test_what_the_application_enqueues_completes(stack: Stack, provider: Provider) -> None:
    """`app.enqueue` in a process of its own account's user, and the job's result by `app.lookup` there."""
    key = a_key()
    with stack.app("ProducerPolicy") as app:
        app.enqueue("process_payment", payment(key), key=key)

    eventually(stack.has_ended("process_payment", key))
    with stack.app("LookupPolicy") as app:
        status = app.lookup("process_payment", key)
    assert status is not None
    assert status.result["charge_id"].startswith("ch_")
    assert done(provider, "charges", key) == (1, 1)


def test_a_duplicate_is_replayed(stack: Stack, provider: Provider) -> None:
    """G3: two messages of one job, one charge; both messages are gone."""
    key = a_key()
    first = stack.send("process_payment", payment(key), key=key)
    eventually(stack.has_ended("process_payment", key))
    second = stack.send("process_payment", payment(key), key=key)

    eventually(stack.was_told("job.replayed", second))
    assert first != second
    assert done(provider, "charges", key) == (1, 1)
    eventually(lambda: stack.messages() == 0)


def test_of_a_batch_only_the_failing_message_comes_back(stack: Stack, provider: Provider) -> None:
    """G5: the good ones of a batch run once and are deleted; the one whose provider fails twice returns twice."""
    good, bad = [a_key() for _ in range(4)], a_key()
    customers = dict.fromkeys(good, "cus_1") | {bad: "cus_flaky-1"}
    entries = [
        {"Id": str(number), "MessageBody": envelope("process_payment", payment(key, customer), key)}
        for number, (key, customer) in enumerate(customers.items())
    ]
    stack.sqs.send_message_batch(QueueUrl=stack.outputs["JobsQueueUrl"], Entries=entries)

    record = eventually(stack.has_ended("process_payment", bad))
    assert (record.attempts, done(provider, "charges", bad)) == (3, (3, 1))
    started = stack.events("job.started", bad)
    assert [event["attempt"] for event in started] == [1, 2, 3]
    assert len({event["message_id"] for event in started}) == 1
    for key in good:
        assert eventually(stack.has_ended("process_payment", key)).attempts == 1
        assert len(stack.events("job.started", key)) == 1
    eventually(lambda: stack.messages() == 0)


def test_what_ends_for_good_lies_in_the_dead_letter_queue_with_the_reason(stack: Stack, provider: Provider) -> None:
    """G4: rejected by the job, by a `reject=` class, and refused unread: each copy says why."""
    rejected, declined, unread = a_key(), a_key(), a_key()
    stack.send("process_payment", payment(rejected, amount=-1), key=rejected)
    stack.send("process_payment", payment(declined, "cus_declined-1"), key=declined)
    stack.sqs.send_message(QueueUrl=stack.outputs["JobsQueueUrl"], MessageBody=f"not JSON: {unread}")

    note = eventually(stack.letter(rejected))["note"]
    assert (note["reason"], note["error"]) == ("rejected", "amount must be positive")
    assert (note["key"], note["attempts"]) == (rejected, 1)
    assert (note["job_type"], note["source_queue"]) == ("process_payment", "default")
    record = eventually(stack.has_ended("process_payment", rejected, "rejected"))
    assert note["version"] == record.version
    assert "declined" in eventually(stack.letter(declined))["note"]["error"]
    assert eventually(stack.letter(unread))["note"]["job_type"] == ""
    eventually(lambda: stack.messages() == 0)


def test_an_unknown_job_type_is_kept_until_sqs_itself_moves_it(stack: Stack) -> None:
    """The redrive policy is the backstop, at 100 receives; here at 2, and with a visibility of a second.

    What SQS moves has no note of ours, and its receive count.
    """
    key = a_key()
    policy = {"deadLetterTargetArn": stack.outputs["DeadLetterQueueArn"], "maxReceiveCount": 2}
    with stack.attributes(RedrivePolicy=json.dumps(policy), VisibilityTimeout="1"):
        message_id = stack.send("nobody_serves_this", {}, key=key)
        letter = eventually(stack.letter(key))

    assert letter["note"] is None
    assert letter["MessageId"] == message_id
    assert int(letter["Attributes"]["ApproximateReceiveCount"]) > policy["maxReceiveCount"]
    assert len(stack.events("message.unserved", message_id)) == policy["maxReceiveCount"]
    assert stack.record("nobody_serves_this", key) is None


def test_what_a_job_sends_leaves_with_its_completion(stack: Stack, provider: Provider) -> None:
    """G8: the receipt's message is staged with the completion, sent at once by whoever committed it, and runs."""
    key = a_key()
    stack.send("process_payment", payment(key, email="ada@example.com"), key=key)

    eventually(stack.has_ended("process_payment", key))
    eventually(stack.has_ended("send_receipt", key))
    [entry] = stack.entries_for(key)
    assert (entry.status, entry.attempts, entry.job_type) == ("sent", 1, "send_receipt")
    assert done(provider, "mails", f"Your receipt for {key}") == (1, 1)


def test_the_relay_sends_what_is_due_and_nothing_else(stack: Stack, provider: Provider) -> None:
    """G8: whoever committed these died before sending them: the relay's function sends the one that is due."""
    due, later = a_key(), a_key()
    sent, waiting = stage_receipt(stack, due), stage_receipt(stack, later, in_ms=3_600_000)

    error, answer = stack.invoke("RelayFunction")

    assert (error, answer["sent"], answer["failed"]) == (None, 1, 0)
    assert (stack.entry(sent).status, stack.entry(waiting).status) == ("sent", "pending")
    eventually(stack.has_ended("send_receipt", due))
    assert stack.record("send_receipt", later) is None
    assert done(provider, "mails", f"Your receipt for {due}") == (1, 1)


def test_the_relay_comes_by_its_schedule(stack: Stack) -> None:
    """The rule of the template, once it may, invokes the function within a minute."""
    events, rule = stack.client("events"), stack.physical["RelayFunctionEveryMinute"]
    key = a_key()
    pk = stage_receipt(stack, key)

    events.enable_rule(Name=rule)
    try:
        eventually(lambda: stack.entry(pk).status == "sent")
    finally:
        events.disable_rule(Name=rule)
    assert events.describe_rule(Name=rule)["ScheduleExpression"] == "rate(1 minute)"
    eventually(stack.has_ended("send_receipt", key))


def test_recovery_marks_a_stale_claim_and_the_next_message_takes_it_over(stack: Stack, provider: Provider) -> None:
    """G6: a worker died after its claim. Recovery shows it, and the job still runs once its message comes."""
    key = a_key()
    stand_stale(stack, key)

    error, answer = stack.invoke("RecoveryFunction")
    marked = stack.record("process_payment", key)
    assert (error, answer["finished"]) == (None, True)
    assert answer["failed"] >= 1
    assert marked is not None
    assert (marked.status, marked.went_stale) == ("failed", 1)

    stack.send("process_payment", payment(key), key=key)
    assert eventually(stack.has_ended("process_payment", key)).attempts == marked.attempts + 1
    assert done(provider, "charges", key) == (1, 1)


def test_a_transaction_changes_the_stock_once(stack: Stack, provider: Provider) -> None:
    """G7: the write to the user's own table happens with the completion, and two messages are one reservation."""
    key, sku = a_key(), a_key()
    stack.put("StockTable", {"sku": {"S": sku}, "available": {"N": "5"}})
    for _ in range(2):
        stack.send("reserve_stock", reservation(key, sku, 2), key=key)
        eventually(stack.has_ended("reserve_stock", key))

    eventually(stack.has_ended("book_order", key))
    eventually(lambda: stack.messages() == 0)
    assert stack.stock(sku) == 3
    assert done(provider, "legacy", key) == (1, 1)


def test_a_person_resolves_what_is_uncertain(stack: Stack, provider: Provider) -> None:
    """G9: an at-most-once job whose call failed is never started again; a person with `ResolvePolicy` decides."""
    key = a_key()
    booking = {"order_id": key, "customer_id": "cus_flaky-2", "sku": "s-1", "quantity": 1}
    stack.send("book_order", booking, key=key)
    held = eventually(stack.has_ended("book_order", key, "uncertain"))

    assert eventually(stack.letter(key))["note"]["version"] == held.version
    with stack.app("ResolvePolicy") as app:
        app.resolve("book_order", key, "done", result={"booking_id": "b-7"}, version=held.version)
    again = stack.send("book_order", booking, key=key)
    eventually(stack.was_told("job.replayed", again))
    assert done(provider, "legacy", key) == (1, 0)


def test_a_job_is_staged_with_its_callers_own_writes(stack: Stack) -> None:
    """G8 outside of a job: `app.enqueue_with`, for a user who may stage and send and nothing else."""
    key = a_key()
    with stack.app("OutboxProducerPolicy") as app:
        sent = app.enqueue_with([], "deliver_webhook", webhook(key), key=key)

    assert sent.message_id is not None
    [entry] = stack.entries_for(key)
    assert (entry.status, entry.message_id) == ("sent", sent.message_id)
    eventually(stack.has_ended("deliver_webhook", key))


def test_a_lock_is_held_outside_of_a_job(stack: Stack) -> None:
    """A user with `LockPolicy` takes and releases a lock; another one waits meanwhile."""
    name = a_key()
    with stack.app("LockPolicy") as app, app.lock(name, seconds=30) as held:
        assert stack.lock(name).lease_expires_at > 0
        held.renew(seconds=60)
    assert stack.lock(name).lease_expires_at == 0


def test_the_nightly_report_is_a_job_by_the_clock(stack: Stack) -> None:
    """What the schedule sends is a job of ours, once the scheduled time stands where EventBridge Scheduler puts it."""
    schedule = stack.client("scheduler").get_schedule(Name=stack.outputs["NightlyReportScheduleName"])
    assert schedule["Target"]["Arn"] == stack.outputs["JobsQueueArn"]
    night = "2026-11-30T02:00:00Z"
    body = schedule["Target"]["Input"].replace("<aws.scheduler.scheduled-time>", night)

    key = f"nightly_report:{night}"
    for _ in range(2):
        stack.sqs.send_message(QueueUrl=stack.outputs["JobsQueueUrl"], MessageBody=body)
        record = eventually(stack.has_ended("nightly_report", key))
    assert json.loads(record.result or "")["until"] == "2026-11-30T02:00:00+00:00"
    eventually(lambda: stack.messages() == 0)
    assert len(stack.events("job.completed", key)) == 1


@pytest.mark.parametrize("queue", ["JobsQueue", "DeadLetterQueue"])
def test_plain_http_is_refused(stack: Stack, queue: str) -> None:
    """The queues' own policies deny even root what comes over a connection that is not encrypted."""
    client = stack.plain_client("sqs")
    with pytest.raises(ClientError, match="AccessDenied"):
        client.send_message(QueueUrl=stack.physical[queue], MessageBody="{}")
