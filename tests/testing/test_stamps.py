"""What a producer fills anew with each send: found by its value, or named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceq import ConfigurationError
from onceq.testing import NotEffectivelyOnce, prove_consumer
from onceq.testing.stamps import Stamps

BODY: dict[str, Any] = {
    "order_id": "2026-11-29T12:00:00Z",
    "sent_at": "2026-11-29T12:00:00Z",
    "day": "2026-11-29",
    "cents": 1_795_953_600,
    "timestamp": 1_795_953_600,
    "is_at": True,
    "meta": {"createdAt": 1_795_953_600_000, "trace_id": "t-1"},
    "lines": [{"added": "2026-11-29 12:00:00.5+01:00", "note": "2026-11-29T99:00"}],
}


def test_what_holds_a_time_is_a_stamp_wherever_it_stands() -> None:
    """Text by its form, a number by its field's name, too; not what says which job it is, and not a day."""
    assert Stamps.of(BODY, None, "order_id").names == {"sent_at", "timestamp", "createdAt", "added"}


def test_a_later_send_has_a_later_stamp_of_the_same_form() -> None:
    """And the rest is the same; at the first send all of it is."""
    stamps = Stamps.of(BODY, None, "order_id")

    later = stamps.at(BODY, 61_500)

    assert stamps.at(BODY, 0) is BODY
    assert later == BODY | {
        "sent_at": "2026-11-29T12:01:01.500000Z",
        "timestamp": 1_795_953_661,
        "meta": {"createdAt": 1_795_953_661_500, "trace_id": "t-1"},
        "lines": [{"added": "2026-11-29 12:01:02+01:00", "note": "2026-11-29T99:00"}],
    }


@pytest.mark.parametrize(
    ("name", "value"), [("trace_id", "t-1-5"), ("cents", 1_795_953_600), ("order", 12), ("flag", True), ("none", None)]
)
def test_a_stamp_that_is_named_is_another_value(name: str, value: Any) -> None:
    """Of text and numbers; a number of seconds since 1970 moves on by seconds."""
    body = {"trace_id": "t-1", "cents": 1_795_953_600, "order": 7, "flag": True, "none": None}

    assert Stamps.of(body, [name], "order_id").at(body, 5) == body | {name: value}


def test_without_stamps_two_sends_are_one_job() -> None:
    """That is how the work of a second send is known again; none are given with ``()``."""
    stamps = Stamps.of(BODY, None, "order_id")

    assert stamps.without(stamps.at(BODY, 1000)) == stamps.without(BODY) != BODY
    assert Stamps.of(BODY, (), "order_id").at(BODY, 1000) == BODY
    assert stamps.without("text") == "text"


def test_the_report_says_what_a_second_send_changed() -> None:
    """So that whoever has a time that says which job it is can tell, and give ``stamps=()``."""

    def by_the_whole_body(parts: Any) -> Any:
        def handler(event: dict[str, Any], _context: Any) -> None:
            for record in event["Records"]:
                parts.work(json.loads(record["body"]), idempotency_key=record["body"])

        return handler

    body = {"order_id": "o-1", "starts_at": "2026-11-29T12:00Z"}
    with pytest.raises(NotEffectivelyOnce) as found:
        prove_consumer(by_the_whole_body, body)

    failed = [result.name for result in found.value.report.results if not result.ok]
    assert "sent a second time, 60 s later, with another starts_at" in failed
    assert prove_consumer(by_the_whole_body, body, stamps=()).ok


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["trace"], r"stamps='trace': the body has no such field \(order_id, sent_at\)"),
        (["order_id"], "that field says which job it is"),
        ("sent_at", r"stamps=\['sent_at'\]"),
    ],
)
def test_stamps_that_cannot_be_are_refused(given: Any, told: str) -> None:
    """With the field's name, before anything is run."""
    with pytest.raises(ConfigurationError, match=told):
        prove_consumer(lambda _parts: lambda _event, _context: None, {"order_id": "o-1", "sent_at": "x"}, stamps=given)
