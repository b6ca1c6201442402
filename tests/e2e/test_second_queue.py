"""The stack deployed again, over what runs, with its second queue: FIFO, with a function and permissions of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from e2e.scenes import a_key, done, payment
from kit.stack import eventually
from onceq import Entry

if TYPE_CHECKING:
    from demo.provider import Provider
    from kit.stack import Stack

pytestmark = pytest.mark.timeout(600)


def test_entries_of_one_account_are_posted_in_order(wider_stack: Stack) -> None:
    """What is taken out was paid in before. The entry that the account cannot pay is rejected, the next ones go on."""
    one, other = a_key(), a_key()
    amounts = [100, -50, -60, 20, -70]
    entries = [
        Entry(
            "post_entry", {"account": account, "entry_id": f"{account}-{number}", "amount_cents": amount}, group=account
        )
        for number, amount in enumerate(amounts)
        for account in (one, other)
    ]
    with wider_stack.app("ProducerPolicy") as app:
        app.enqueue_many(entries)

    for account in (one, other):
        eventually(wider_stack.has_ended("post_entry", f"{account}-4"))
        assert wider_stack.account(account) == (0, f"{account}-4")
        assert wider_stack.has_ended("post_entry", f"{account}-2", "rejected")()
        letter = eventually(wider_stack.letter(f"{account}-2", "LedgerDeadLetterQueue"))
        assert (letter["note"]["reason"], letter["note"]["source_queue"]) == ("rejected", "ledger")
    eventually(lambda: wider_stack.messages("LedgerJobsQueue") == 0)
    told = wider_stack.events("job.started", one, "Ledger")
    assert [event["key"] for event in told] == [f"{one}-{number}" for number in range(5)]


def test_the_first_queue_goes_on(wider_stack: Stack, provider: Provider) -> None:
    """What ran before the second deployment runs after it."""
    key = a_key()
    wider_stack.send("process_payment", payment(key), key=key)

    record = eventually(wider_stack.has_ended("process_payment", key))
    assert json.loads(record.result or "")["charge_id"].startswith("ch_")
    assert done(provider, "charges", key) == (1, 1)
