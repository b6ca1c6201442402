"""Post the entries of an account in order: a queue of its own, FIFO, with a function of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from onceq import Context, job


@dataclass(frozen=True)
class Entry:
    """What an account gets, or below zero what is taken from it."""

    account: str
    entry_id: str
    amount_cents: int


@cache
def ledger_table() -> type[Any]:
    """Return the pynamodb model of the accounts; see `stock` for why here."""
    from pynamodb.attributes import NumberAttribute, UnicodeAttribute
    from pynamodb.models import Model

    class Account(Model):
        class Meta:
            table_name = os.environ["LEDGER_TABLE"]

        account = UnicodeAttribute(hash_key=True)
        balance_cents = NumberAttribute()
        last_entry = UnicodeAttribute()

    return Account


# Order matters here: money that is taken before what was paid in is refused. So the entries of one account are one
# message group, `app.enqueue(post_entry, entry, group=entry.account)`, and the queue is FIFO. Standard queues, with
# or without a group, have no order.
# Ten entries of one account may come as one batch, and run one after another: ten times 5 s fit into its function's 60.
@job("post_entry", queue="ledger", key="entry_id", max_attempts=8, max_duration=5)
def post_entry(entry: Entry, ctx: Context) -> dict[str, Any]:
    """Add the entry to its account, whose balance never goes below zero."""
    accounts = ledger_table()
    ctx.transaction.update(
        accounts(entry.account),
        actions=[
            accounts.balance_cents.set((accounts.balance_cents | 0) + entry.amount_cents),
            accounts.last_entry.set(entry.entry_id),
        ],
        condition=accounts.balance_cents >= -entry.amount_cents if entry.amount_cents < 0 else None,
        on_conflict="reject",  # the account has not enough, and its next entries are not held up
    )
    return {"account": entry.account, "amount_cents": entry.amount_cents}
