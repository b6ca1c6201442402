"""The at-most-once job: as a plain function, delivered twice, by two at once, and with a worker that dies."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict
from pathlib import Path
from urllib.error import HTTPError

import pytest

from jobs import legacy
from jobs.legacy import Booking, Refused, book_order
from kit.clock import FakeLambdaContext
from kit.provider import Provider
from kit.world import World, event_of, kept
from onceq import Context, Retry, Semantics
from onceq.testing import EffectRecorder, Environment, prove_effectively_once

BOOKING = Booking(order_id="o-1", customer_id="cus_1", sku="book", quantity=2)


def deliver(world: World) -> str:
    """Deliver the booking once; return how the job stands."""
    app = world.app(book_order)
    app.consumer(event_of(world.message("book_order", asdict(BOOKING), key="o-1")), FakeLambdaContext())
    status = app.lookup(book_order, "o-1")
    assert status is not None
    return str(status.status)


def test_an_order_is_booked_over_soap(provider: Provider) -> None:
    """The endpoint gets the order and no key; its number is the result."""
    assert book_order(BOOKING, Context(key="o-1")) == {"booking_id": "booking-1"}

    assert provider.bookings == {"o-1": 1}
    assert book_order.semantics is Semantics.AT_MOST_ONCE


def test_what_stands_in_a_field_stays_in_it(provider: Provider) -> None:
    """A name with markup in it is text, and starts no element of its own."""
    book_order(Booking("o-1", "cus</CustomerId><OrderId>o-2</OrderId>", "b&w", 1), Context(key="o-1"))

    assert provider.bookings == {"o-1": 1}


def test_a_call_that_nobody_took_is_safe_to_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address, or nobody listens there: the job says by `Retry` that nothing happened."""
    monkeypatch.delenv("LEGACY_URL", raising=False)
    with pytest.raises(Retry, match="LEGACY_URL is not set"):
        book_order(BOOKING, Context(key="o-1"))

    with socket.socket() as nobody:  # bound, so that nobody else is there, and not listening
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("LEGACY_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(Retry, match="down"):
            book_order(BOOKING, Context(key="o-1"))


def test_an_answer_that_says_the_request_is_wrong_ends_the_job(provider: Provider) -> None:
    """A fault of the client's means that nothing was booked, and never will be."""
    provider.faults.append("Client")

    with pytest.raises(Refused, match="as the test says"):
        book_order(BOOKING, Context(key="o-1"))
    assert Refused in book_order.reject


def test_any_other_failure_may_have_booked(provider: Provider) -> None:
    """A fault of the server's says nothing about what was done."""
    provider.faults.append("Server")

    with pytest.raises(HTTPError):
        book_order(BOOKING, Context(key="o-1"))


@pytest.mark.parametrize(("fault", "end"), [("Server", "uncertain"), ("Client", "rejected"), (None, "completed")])
def test_how_a_call_ends_the_job(world: World, provider: Provider, fault: str | None, end: str) -> None:
    """G9: what failed and may have happened goes to a person; every later delivery ends the same way, uncalled."""
    provider.faults += [fault] if fault else []

    assert [deliver(world), deliver(world)] == [end, end]

    assert provider.bookings.total() == (0 if fault else 1)
    assert {letter["note"]["reason"] for letter in world.dead_letters()} == (set() if fault is None else {end})


def test_a_system_that_was_down_is_called_later(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `Retry` is the job's own word that it may be started again."""
    with monkeypatch.context() as patch:
        patch.delenv("LEGACY_URL")
        assert deliver(world) == "failed"
    world.clock.advance(60)

    assert deliver(world) == "completed"
    assert provider.bookings == {"o-1": 1}


def test_two_workers_at_once_are_one_booking(world: World, provider: Provider, at_once) -> None:
    """One of them claims the job; the other one waits and is answered from its result."""
    at_once(world, "book_order", asdict(BOOKING), book_order, key="o-1", workers=2)

    assert provider.bookings == {"o-1": 1}


def test_a_worker_that_dies_at_any_call_never_books_twice(world: World, provider: Provider, deaths) -> None:
    """G9: died before its completion was written, it is uncertain, called or not; after that it is completed."""
    app, ends = world.app(book_order), {}
    for key, point in deaths(book_order, lambda key: Booking(key, "cus_1", "book", 1)):
        status = app.lookup(book_order, key)
        assert status is not None
        ends[point] = (str(status.status), provider.bookings[key])

    assert ends.pop("after-Store.claim") == ("uncertain", 0)
    assert ends.pop("before-Store.complete") == ("uncertain", 1)
    assert set(ends.values()) == {("completed", 1)}


def test_a_person_decides_what_an_uncertain_booking_was(world: World, provider: Provider) -> None:
    """Looked up over there it was booked: done, and every duplicate gets that number."""
    provider.faults.append("Server")
    assert deliver(world) == "uncertain"

    world.app(book_order).resolve(book_order, "o-1", "done", result={"booking_id": "7"}, reason="seen in the system")

    message = world.message("book_order", asdict(BOOKING), key="o-1")
    assert kept(world.app(book_order).consumer(event_of(message), FakeLambdaContext())) == []
    assert deliver(world) == "completed"
    assert not provider.bookings


def test_the_sample_event_is_served(world: World, provider: Provider) -> None:
    """`make invoke EVENT=events/one-booking.json` runs it."""
    event = json.loads((Path(__file__).parents[2] / "events" / "one-booking.json").read_text())

    assert kept(world.app(book_order).consumer(event, FakeLambdaContext())) == []

    assert len(provider.bookings) == 1


def test_whatever_happens_an_order_is_booked_at_most_once(
    onceq_env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody can know whether it was, it is uncertain; undisturbed it is booked."""
    answer = f"<Answer xmlns='{legacy.ORDERS}'><BookingId>b-1</BookingId></Answer>".encode()
    call = EffectRecorder(effect=answer)
    monkeypatch.setattr(legacy, "call", call)

    prove_effectively_once(book_order, BOOKING, effects=call, env=onceq_env)
