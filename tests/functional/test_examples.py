"""Two jobs with a foreign effect: twice in sequence, twice and sixteen at once, crashed on the way: one effect.

The jobs are the kit's own: `src/jobs/` belongs to the user.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.example_jobs import PROVIDER_URL, charge_order, mail_order
from kit.provider import serving_provider
from kit.racing import all_at_once, eager_switching
from kit.seams import Point, Seams, SimulatedCrash
from kit.world import event_of, kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.provider import Provider
    from kit.seams import When
    from kit.world import World
    from onceq import App
    from onceq.job_type import JobType

PAYLOADS: dict[str, dict[str, Any]] = {
    "charge_order": {"order_id": "o-1", "amount_cents": 500},
    "mail_order": {"order_id": "o-1", "to": "ada@example.com"},
}
JOB_TYPES: list[JobType[..., Any]] = [charge_order, mail_order]
each_job = pytest.mark.parametrize("job_type", JOB_TYPES, ids=lambda job_type: job_type.name)


@pytest.fixture(scope="module")
def served() -> Iterator[Provider]:
    """One server for all tests of this module."""
    with serving_provider() as provider:
        yield provider


@pytest.fixture
def provider(served: Provider, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """A provider that has seen nothing, and is what the jobs call."""
    served.calls.clear()
    served.effects.clear()
    served.answers.clear()
    monkeypatch.setenv(PROVIDER_URL, served.url)
    return served


def _message(world: World, job_type: JobType[..., Any]) -> dict[str, Any]:
    return world.message(job_type.name, PAYLOADS[job_type.name], key="o-1")


def _deliver(app: App, message: dict[str, Any]) -> list[str]:
    return kept(app.consumer(event_of(message), FakeLambdaContext()))


def _process(world: World, job_type: JobType[..., Any], seams: Seams | None = None) -> App:
    return world.app(job_type, runtime=(seams or Seams()).process(world.runtime))


@each_job
def test_twice_in_sequence_is_one_effect(world: World, provider: Provider, job_type: JobType[..., Any]) -> None:
    """G3: the second delivery is replayed: the provider is not even called again."""
    app = _process(world, job_type)
    results = []
    for _ in range(2):
        assert _deliver(app, _message(world, job_type)) == []
        status = app.lookup(job_type, "o-1")
        assert status is not None
        results.append(status.result)

    assert list(provider.calls.values()) == [1]
    assert results[0] == results[1]
    assert world.names().count("job.replayed") == 1


@each_job
@pytest.mark.parametrize("consumers", [2, 16])
def test_many_at_once_are_one_effect(
    world: World, provider: Provider, job_type: JobType[..., Any], consumers: int
) -> None:
    """G1: real consumers meet before the claim; one calls the provider, the others wait, and are replayed later."""
    meet = threading.Barrier(consumers)
    met = threading.local()

    def watch(method: str, when: When) -> None:
        if (method, when) == ("claim", "before") and not hasattr(met, "once"):
            met.once = True
            meet.wait(30)

    apps = [_process(world, job_type, Seams(watch=watch)) for _ in range(consumers)]
    messages = [_message(world, job_type) for _ in range(consumers)]
    with eager_switching():
        answers = all_at_once(
            [
                lambda app=app, message=message: _deliver(app, message)  # type: ignore[misc]
                for app, message in zip(apps, messages, strict=True)
            ]
        )

    assert list(provider.calls.values()) == [1]
    for message, answer in zip(messages, answers, strict=True):
        if answer:
            assert _deliver(_process(world, job_type), message) == []
    assert list(provider.calls.values()) == [1]
    assert world.names().count("job.completed") == 1


@each_job
@pytest.mark.parametrize(
    ("point", "calls"),
    [
        (Point("Store", "claim", "before"), 1),
        (Point("Store", "claim", "after"), 1),
        # Between the effect and its record: it is attempted again, with the same key (G12).
        (Point("Store", "complete", "before"), 2),
        (Point("Store", "complete", "after"), 1),
    ],
    ids=str,
)
def test_a_crash_on_the_way_is_one_effect(
    world: World, provider: Provider, job_type: JobType[..., Any], point: Point, calls: int
) -> None:
    """G6: dead before or after either write, the next delivery ends the job; the provider has the effect once."""
    message = _message(world, job_type)
    with pytest.raises(SimulatedCrash):
        _deliver(_process(world, job_type, Seams((point, 1))), message)

    app = _process(world, job_type)
    for _ in range(3):
        if not _deliver(app, message):
            break
        world.clock.advance(80)

    status = app.lookup(job_type, "o-1")
    assert status is not None
    assert status.status == "completed"
    assert (len(provider.effects), sum(provider.calls.values())) == (1, calls)


@each_job
def test_a_provider_that_fails_twice_is_asked_again_with_the_same_key(
    world: World, provider: Provider, job_type: JobType[..., Any]
) -> None:
    """G12: every attempt carries the one key by which the provider knows the effect."""
    provider.answers[:] = [500, 503]
    app, message = _process(world, job_type), _message(world, job_type)
    for attempt in range(3):
        assert _deliver(app, message) == ([] if attempt == 2 else [message["messageId"]])
        world.clock.advance(60)

    assert (list(provider.calls.values()), len(provider.effects)) == ([3], 1)


@each_job
def test_without_a_provider_the_job_is_kept(
    world: World, provider: Provider, job_type: JobType[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """G4: a deployment without the provider's URL, or with one that nobody answers, loses nothing."""
    app, message = _process(world, job_type), _message(world, job_type)
    for url in ("", "http://127.0.0.1:9"):
        monkeypatch.setenv(PROVIDER_URL, url)
        assert _deliver(app, message) == [message["messageId"]]
        world.clock.advance(60)
    assert provider.calls == {}


def test_a_declined_card_and_a_bad_amount_are_never_tried_again(world: World, provider: Provider) -> None:
    """G4: both go to the dead-letter queue with the reason; neither charges."""
    provider.answers[:] = [402]
    app = world.app(*JOB_TYPES)
    good = PAYLOADS["charge_order"]
    declined = world.message("charge_order", good, key="o-1")
    free = world.message("charge_order", good | {"amount_cents": 0}, key="o-2")

    assert kept(app.consumer(event_of(declined), FakeLambdaContext())) == []
    assert kept(app.consumer(event_of(free), FakeLambdaContext())) == []

    errors = {copy["note"]["key"]: copy["note"]["error"] for copy in world.dead_letters()}
    assert errors == {"o-1": "Declined: the provider declined the card", "o-2": "amount must be positive"}
    assert provider.effects == {}


def test_two_orders_of_one_customer_are_two_charges(world: World, provider: Provider) -> None:
    """The key names the order, not what is bought by whom."""
    app = world.app(*JOB_TYPES)
    for order in ("o-1", "o-2"):
        payload = PAYLOADS["charge_order"] | {"order_id": order}
        message = world.message("charge_order", payload, key=None)
        assert kept(app.consumer(event_of(message), FakeLambdaContext())) == []

    assert len(provider.effects) == 2


def test_the_providers_key_is_what_the_job_would_pass_anywhere(world: World, provider: Provider) -> None:
    """A charge and a mail of one order never share a downstream key."""
    app = world.app(*JOB_TYPES)
    batch = [world.message(name, payload, key="o-1") for name, payload in PAYLOADS.items()]

    assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == []
    assert {key.split("-")[0] for key in provider.effects} == {"charge", "mail"}
