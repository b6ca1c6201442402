"""The ordered job: as a plain function, in its group's order, delivered twice, by many at once, and with deaths."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from jobs.ledger import Entry, post_entry
from kit.clock import FakeLambdaContext
from kit.delivery import Poller
from kit.racing import eager_switching
from kit.seams import Point, Seams, SimulatedCrash
from kit.world import World, event_of, kept
from onceq import Context, EnqueueRefused
from onceq.testing import Environment, prove_effectively_once

QUEUE = "LedgerJobsQueue.fifo"
DEAD = "LedgerDeadLetterQueue.fifo"
# A stale claim's lease and the clock skew have passed, and a back-off.
LATER_SECONDS = 100


def entry(number: int, amount_cents: int, account: str = "acc_1") -> Entry:
    """Return an entry."""
    return Entry(account, f"e-{number}", amount_cents)


def message(world: World, posted: Entry) -> dict[str, Any]:
    """Return an entry as a record of the ledger's queue, in its account's group."""
    return world.message("post_entry", asdict(posted), key=posted.entry_id, queue=QUEUE, group=posted.account)


def deliver(world: World, *entries: Entry) -> list[str]:
    """Deliver the entries as one batch; return the ids that are kept."""
    batch = event_of(*(message(world, each) for each in entries))
    return kept(world.app(post_entry).consumer(batch, FakeLambdaContext()))


def test_an_entry_stages_its_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called as a plain function the job writes nothing: the context shows what it would."""
    monkeypatch.setenv("LEDGER_TABLE", "LedgerTable")
    ctx = Context(key="e-1")

    assert post_entry(entry(1, -500), ctx) == {"account": "acc_1", "amount_cents": -500}

    [write] = ctx.transaction.writes
    assert (str(write), write.on_conflict) == ("Update of LedgerTable {'account': 'acc_1'}", "reject")
    assert (post_entry.queue, ctx.sent) == ("ledger", [])


def test_entries_of_an_account_are_posted_in_order(both_worlds: World, ledger_in: Callable) -> None:
    """Paid in, then taken: the other way round the second would be refused. Other accounts are nobody's hurry."""
    ledger = ledger_in(both_worlds)
    batch = [entry(1, 5000), entry(2, 700, "acc_2"), entry(3, -3000), entry(4, -2000), entry(5, 1)]

    assert deliver(both_worlds, *batch) == []

    assert (ledger.balance("acc_1"), ledger.last_entry("acc_1")) == (1, "e-5")
    assert (ledger.balance("acc_2"), ledger.last_entry("acc_2")) == (700, "e-2")


def test_an_order_is_kept_from_enqueue_to_balance(world: World, ledger_in: Callable) -> None:
    """`app.enqueue` gives the account as the group; without one SQS would have no order to keep."""
    ledger = ledger_in(world)
    app = world.app(post_entry)
    for each in (entry(1, 100), entry(2, -100), entry(3, 100), entry(4, -100)):
        app.enqueue(post_entry, each, group=each.account)

    assert Poller.of(app, "ledger").poll() == 4

    assert (ledger.balance("acc_1"), ledger.last_entry("acc_1")) == (0, "e-4")
    with pytest.raises(EnqueueRefused, match="is FIFO: give group="):
        app.enqueue(post_entry, entry(5, 1))


def test_what_an_account_has_not_is_refused_and_its_next_entry_goes_on(both_worlds: World, ledger_in: Callable) -> None:
    """A rejected head goes to the queue's own dead letters, with the reason; it does not stop its group."""
    ledger = ledger_in(both_worlds)

    assert deliver(both_worlds, entry(1, 100), entry(2, -101), entry(3, -100)) == []

    assert (ledger.balance("acc_1"), ledger.last_entry("acc_1")) == (0, "e-3")
    [letter] = both_worlds.dead_letters(DEAD)
    assert (letter["note"]["reason"], letter["note"]["key"]) == ("rejected", "e-2")
    assert "its condition did not hold" in letter["note"]["error"]


def test_a_message_that_comes_twice_is_posted_once(world: World, ledger_in: Callable) -> None:
    """The write happens with the completion; a duplicate in the same group is replayed and posts nothing."""
    ledger = ledger_in(world)

    assert deliver(world, entry(1, 100), entry(1, 100)) == []
    assert deliver(world, entry(1, 100), entry(2, 10)) == []

    assert (ledger.balance("acc_1"), ledger.last_entry("acc_1")) == (110, "e-2")


def test_sixteen_workers_at_once_post_once(both_worlds: World, ledger_in: Callable, at_once: Callable) -> None:
    """SQS gives a group to one consumer at a time; even if it did not, one entry is one change of the balance."""
    ledger = ledger_in(both_worlds)

    with eager_switching():
        at_once(both_worlds, "post_entry", asdict(entry(1, 100)), post_entry, key="e-1", workers=16)

    assert ledger.balance("acc_1") == 100


def test_a_worker_that_dies_at_any_call_posts_once(world: World, ledger_in: Callable, deaths: Callable) -> None:
    """G7: before the commit nothing has happened, after it everything."""
    ledger = ledger_in(world)

    for posted, (_, point) in enumerate(deaths(post_entry, lambda key: Entry("acc_1", key, 1)), start=2):
        assert ledger.balance("acc_1") == posted, point  # one more is of the run without a death


def test_a_worker_that_dies_holds_up_its_account_and_no_other(world: World, ledger_in: Callable) -> None:
    """What stands behind an entry of unknown end waits for it: it is taken over, then the rest follows in order."""
    ledger = ledger_in(world)
    batch = [message(world, each) for each in (entry(1, 100), entry(2, -100), entry(3, 7, "acc_2"))]
    with pytest.raises(SimulatedCrash):
        dying = Seams((Point("Store", "claim", "after"), 1)).process(world.runtime)
        world.app(post_entry, runtime=dying).consumer(event_of(batch[0]), FakeLambdaContext())
    app = world.app(post_entry)

    keep = kept(app.consumer(event_of(*batch), FakeLambdaContext()))

    assert keep == [batch[0]["messageId"], batch[1]["messageId"]]
    assert (ledger.balance("acc_1"), ledger.balance("acc_2")) == (0, 7)
    world.clock.advance(LATER_SECONDS)
    assert kept(app.consumer(event_of(*batch[:2]), FakeLambdaContext())) == []
    assert (ledger.balance("acc_1"), ledger.last_entry("acc_1")) == (0, "e-2")


def test_the_sample_event_is_served(world: World, ledger_in: Callable) -> None:
    """`make invoke EVENT=events/ledger-entries.json` runs it, with the queue switched on."""
    ledger = ledger_in(world)
    event = json.loads((Path(__file__).parents[2] / "events" / "ledger-entries.json").read_text())

    assert kept(world.app(post_entry).consumer(event, FakeLambdaContext())) == []

    assert (ledger.balance("acc_1"), ledger.balance("acc_2")) == (500, 700)


@pytest.fixture(scope="session")
def onceq_parameters() -> dict[str, object]:
    """The ledger's queue is an option of the template."""
    return {"LedgerQueue": "true"}


def test_whatever_happens_an_entry_is_posted_once(onceq_env: Environment) -> None:
    """On its ordered queue; the write is the job's transaction, which the kit counts by itself."""
    report = prove_effectively_once(post_entry, entry(1, 500), group="acc_1", env=onceq_env)

    assert report.effects == {"the transaction: Update of LedgerTable": 1}
