"""The stock job: as a plain function, delivered twice, by sixteen workers at once, and with a worker that dies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import boto3
import pytest

from jobs.legacy import Booking, book_order
from jobs.stock import Reservation, reserve_stock
from kit.clock import FakeLambdaContext
from kit.provider import Provider
from kit.racing import eager_switching
from kit.world import World, event_of, kept
from onceq import Context, Reject
from onceq.testing import Environment, prove_effectively_once

RESERVATION = Reservation(order_id="o-1", customer_id="cus_1", sku="book", quantity=2)


def test_a_reservation_stages_its_write_and_its_booking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called as a plain function the job writes and sends nothing: the context shows what it would."""
    monkeypatch.setenv("STOCK_TABLE", "StockTable")
    ctx = Context(key="o-1")

    assert reserve_stock(RESERVATION, ctx) == {"sku": "book", "reserved": 2}

    [write] = ctx.transaction.writes
    assert (str(write), write.on_conflict) == ("Update of StockTable {'sku': 'book'}", "reject")
    [sending] = ctx.sent
    assert (sending.job_type, sending.payload) == ("book_order", Booking("o-1", "cus_1", "book", 2))


@pytest.mark.parametrize("quantity", [0, -1])
def test_a_quantity_that_is_not_positive_is_rejected(quantity: int) -> None:
    """A negative one would put stock back that nobody has."""
    ctx = Context(key="o-1")

    with pytest.raises(Reject, match="quantity must be positive"):
        reserve_stock(Reservation("o-1", "cus_1", "book", quantity), ctx)

    assert (ctx.transaction.writes, ctx.sent) == ([], [])


def test_a_message_that_comes_twice_reserves_once(world: World, provider: Provider, stock_in, work) -> None:
    """The write happens with the completion; the second delivery gets the stored result and books nothing."""
    stock = stock_in(world)
    stock.put("book", 5)
    app = world.app(reserve_stock, book_order)

    for _ in range(2):
        message = world.message("reserve_stock", asdict(RESERVATION), key="o-1")
        assert kept(app.consumer(event_of(message))) == []
    work(reserve_stock, book_order)

    assert stock.available("book") == 3
    assert provider.bookings == {"o-1": 1}


@pytest.mark.parametrize("available", [None, 0, 1])
def test_what_is_not_there_is_rejected_and_says_so(
    world: World, provider: Provider, stock_in, work, available: int | None
) -> None:
    """Out of stock, or no such article: to the dead-letter queue with the reason, and nothing is booked."""
    stock = stock_in(world)
    if available is not None:
        stock.put("book", available)
    app = world.app(reserve_stock, book_order)

    app.consumer(event_of(world.message("reserve_stock", asdict(RESERVATION), key="o-1")))
    work(reserve_stock, book_order)

    [letter] = world.dead_letters()
    met = "there was no item" if available is None else f"the item has {{'available': '{available}'}}"
    assert letter["note"]["reason"] == "rejected"
    assert letter["note"]["error"] == f"Update of StockTable {{'sku': 'book'}}: its condition did not hold: {met}"
    assert available is None or stock.available("book") == available
    assert not provider.bookings


@pytest.mark.parametrize("available", [2, 1])
def test_sixteen_workers_at_once_reserve_once_and_never_below_zero(
    both_worlds: World, stock_in, at_once, available: int
) -> None:
    """One transaction goes through, if there is enough; the others wait and are answered from its end."""
    stock = stock_in(both_worlds)
    stock.put("book", available)

    with eager_switching():
        at_once(both_worlds, "reserve_stock", asdict(RESERVATION), reserve_stock, book_order, key="o-1", workers=16)

    status = both_worlds.app(reserve_stock).lookup(reserve_stock, "o-1")
    assert status is not None
    assert (status.status, stock.available("book")) == (("completed", 0) if available == 2 else ("rejected", 1))


def test_orders_that_compete_for_the_last_pieces_get_no_more_than_there_are(
    both_worlds: World, stock_in: Callable, at_once
) -> None:
    """Five orders for three pieces, at once: three completed, two rejected, none left."""
    stock = stock_in(both_worlds)
    stock.put("book", 3)
    app = both_worlds.app(reserve_stock, book_order)
    orders = [f"o-{number}" for number in range(1, 6)]
    messages = [
        both_worlds.message("reserve_stock", asdict(Reservation(order, "cus_1", "book", 1)), key=order)
        for order in orders
    ]

    while messages:
        keep = kept(app.consumer(event_of(*messages), FakeLambdaContext()))
        messages = [message for message in messages if message["messageId"] in keep]
        both_worlds.clock.advance(60)

    ends = [app.lookup(reserve_stock, order) for order in orders]
    assert sorted(str(end and end.status) for end in ends) == ["completed"] * 3 + ["rejected"] * 2
    assert stock.available("book") == 0


def test_a_worker_that_dies_at_any_call_reserves_once_and_books_at_most_once(
    world: World, provider: Provider, stock_in, deaths
) -> None:
    """G7: before the commit nothing has happened, after it everything; the booking leaves with it."""
    stock = stock_in(world)
    stock.put("book", 1000)
    left = 1000 - 1  # one is reserved by the run without a death

    for key, point in deaths(reserve_stock, lambda key: Reservation(key, "cus_1", "book", 1), book_order):
        left -= 1
        assert stock.available("book") == left, point
        assert provider.bookings[key] <= 1, point


def test_a_cold_start_loads_no_pynamodb() -> None:
    """The model is made at its first use, and so is the look at the environment."""
    script = "import sys, app; print({'pynamodb', 'botocore'} & set(sys.modules))"
    src = Path(__file__).parents[2] / "src"

    found = subprocess.run([sys.executable, "-c", script], cwd=src, capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "set()"


def test_whatever_happens_stock_is_taken_and_booked_once(onceq_env: Environment) -> None:
    """The write and the message to the legacy system are the job's transaction: the kit counts both by itself."""

    def shelf() -> None:
        boto3.resource("dynamodb").Table("StockTable").put_item(Item={"sku": "book", "available": 9})

    report = prove_effectively_once(reserve_stock, RESERVATION, setup=shelf, env=onceq_env)

    assert report.effects == {"the message to book_order": 1, "the transaction: Update of StockTable": 1}
