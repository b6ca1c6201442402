"""What a proof is given wrongly: told before anything is played, with what to give."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from onceq import App, ConfigurationError, Context, JobType, job
from onceq.testing import EffectRecorder, environment, prove_consumer, prove_effectively_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = {"order_id": "o-1"}
prove: Any = prove_effectively_once
consumer: Any = prove_consumer


@job("other", max_duration=5)
def other(_payload: dict[str, Any], _ctx: Context) -> None:
    """Be another job."""


def handler(event: dict[str, Any], _context: Any) -> None:
    """Be a Lambda handler, not what makes one."""
    json.loads(event["Records"][0]["body"])


def handler_of_an_event(event: dict[str, Any], _context: Any = None) -> None:
    """Be one that a call with one argument reaches."""
    json.loads(event["Records"][0]["body"])


def right(parts: Any) -> Any:
    """Make a handler that hands the provider a key."""

    def handle(event: dict[str, Any], _context: Any) -> None:
        for record in event["Records"]:
            body = json.loads(record["body"])
            parts.work(body, idempotency_key=body["order_id"])

    return handle


def makes_none(_parts: Any) -> None:
    """Forget to return the handler."""


MAKES = r"give a function that gets the Parts and returns the handler, handler\(event, context\)"
ENV = r"env= is .*: give an environment that is open, `with environment\(…\) as env:`, or the fixture onceq_env"
WRONG_JOB: dict[str, tuple[dict[str, Any], str]] = {
    "app is a list": ({"app": [other]}, r"^\[JobType.*\] is no App: give App\(\[…\]\) of your job types$"),
    "app is the job type": ({"app": other}, r"^JobType.* is no App: give App"),
    "app lacks the job type": (
        {"app": App([other])},
        r"^app= lacks the job type on trial, 'charge_order': it has other\. Give App\(\[…, charge_order\]\)$",
    ),
    "env is not open": ({"env": environment()}, ENV),
    "setup is no function": ({"setup": "put_stock"}, "^setup= is 'put_stock': give a function that "),
    "progress is no function": ({"progress": 1}, "^progress= is 1: give a function that "),
    "progress is nothing": ({"progress": None}, "^progress= is None: give a function that "),
    "a group where there are none": (
        {"group": "g"},
        "^group= is for a FIFO queue, and the queue 'default' of 'charge_order' is none: leave it out",
    ),
    "stamps are a text": ({"stamps": "cents"}, r"^stamps= is a list of names: stamps=\['cents'\]$"),
    "stamps are a number": ({"stamps": 5}, "^stamps= is a list of names, no int"),
    "stamps hold a number": ({"stamps": [5]}, r"^stamps=5: the body has no such field \(cents\)$"),
    "effects are a number": ({"effects": 5}, "^effects= is "),
}
WRONG_CONSUMER: dict[str, tuple[Callable[[], object], str]] = {
    "the handler itself": (lambda: consumer(handler, BODY), f"^handler fails with the Parts, TypeError: .*: {MAKES}"),
    "a handler of an event": (
        lambda: consumer(handler_of_an_event, BODY),
        f"^handler_of_an_event fails with the Parts, TypeError: .*: {MAKES}",
    ),
    "a maker without a return": (lambda: consumer(makes_none, BODY), f"^makes_none returned None: {MAKES}"),
    "a name": (lambda: consumer("handler", BODY), f"^make= is 'handler': {MAKES}"),
    "a body that is a text": (
        lambda: consumer(right, json.dumps(BODY)),
        "^body= is '.*': give what the JSON of a mess",
    ),
    "a body that is a list": (lambda: consumer(right, ["order_id"]), "^body= is .*: give what the JSON of a message"),
    "effects that are a number": (lambda: consumer(right, BODY, effects=5), "^effects= is "),
    "stamps that are a text": (lambda: consumer(right, BODY, stamps="a"), "^stamps= is a list of names"),
    "env is not open": (lambda: consumer(right, BODY, env=environment()), ENV),
}


@pytest.mark.parametrize("name", WRONG_JOB)
def test_what_a_proof_of_a_job_is_given_wrongly(
    name: str, nowhere: Path, charge: JobType[..., Any], gateway: EffectRecorder
) -> None:
    """Nothing was called."""
    given, told = WRONG_JOB[name]

    with pytest.raises(ConfigurationError, match=told):
        prove(charge, {"cents": 5}, **{"effects": gateway, **given})

    assert gateway.calls == []


def test_stamps_of_a_payload_without_fields_are_told(nowhere: Path) -> None:
    """They would be left out in silence."""

    @job("listed", max_duration=5)
    def listed(_payload: list[int]) -> None:
        """Take no object."""

    with pytest.raises(ConfigurationError, match=r"^stamps='trace': the body has no such field"):
        prove(listed, [1], stamps=["trace"])


@pytest.mark.parametrize("name", WRONG_CONSUMER)
def test_what_a_proof_of_a_consumer_is_given_wrongly(name: str, nowhere: Path) -> None:
    """It says what the maker, the body and the environment are."""
    attempt, told = WRONG_CONSUMER[name]

    with pytest.raises(ConfigurationError, match=told):
        attempt()


def test_a_maker_may_take_more_that_it_has_by_itself(nowhere: Path) -> None:
    """A class, or a function with defaults, is called with the parts alone."""

    def make(parts: Any, *_rest: Any, **_named: Any) -> Any:
        return right(parts)

    assert prove_consumer(make, BODY).ok
