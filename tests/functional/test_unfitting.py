"""A payload whose own code refuses it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
import pytest

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import EnqueueRefused, JobType
from onceq.codec import fit
from onceq.errors import PayloadError

if TYPE_CHECKING:
    from kit.world import World

SECRET = "4111-1111"


@dataclasses.dataclass
class Order:
    """Looks its country up, and raises what the look-up raises."""

    country: str

    def __post_init__(self) -> None:
        _ = {"de": 1}[self.country]


def _divided(value: int) -> int:
    return 1 // value


class Amount(pydantic.BaseModel):
    """Raises an error that pydantic does not take for one of validation."""

    amount: Annotated[int, pydantic.AfterValidator(_divided)]


TYPES: list[tuple[type, dict[str, Any]]] = [(Order, {"country": SECRET}), (Amount, {"amount": 0})]


@pytest.mark.parametrize(("type_", "payload"), TYPES, ids=["dataclass", "pydantic"])
def test_whatever_a_payloads_own_code_raises_means_that_it_does_not_fit(type_: type, payload: dict[str, Any]) -> None:
    """A KeyError or ZeroDivisionError there is no fault of the framework."""
    with pytest.raises(PayloadError, match="the payload does not fit"):
        fit(payload, type_)


@pytest.mark.parametrize(("type_", "payload"), TYPES, ids=["dataclass", "pydantic"])
def test_such_a_message_is_refused_and_copied(world: World, type_: type, payload: dict[str, Any]) -> None:
    """G4: it would fail the same way for ever, so it ends in the dead-letter queue with the reason."""

    def act(payload: Any) -> None:
        """Take it."""

    act.__annotations__["payload"] = type_
    message = world.message("act", payload)

    assert kept(world.app(JobType(act, "act")).consumer(event_of(message), FakeLambdaContext())) == []
    assert "message.refused" in world.names()
    assert "message.faulted" not in world.names()
    (dead,) = world.dead_letters()
    assert "the payload does not fit" in dead["note"]["reason"]


def test_a_producer_is_told_before_it_sends(world: World) -> None:
    """What the consumer would refuse is not sent."""

    def act(payload: Any) -> None:
        """Take it."""

    act.__annotations__["payload"] = Order

    with pytest.raises(EnqueueRefused, match="does not fit"):
        world.app(JobType(act, "act")).enqueue("act", {"country": "xx"})


def test_what_ends_the_process_is_not_taken_for_a_payload_that_does_not_fit() -> None:
    """Only errors are: a KeyboardInterrupt goes through."""

    @dataclasses.dataclass
    class Interrupted:
        def __post_init__(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit({}, Interrupted)
