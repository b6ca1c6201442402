"""`MessageGroupId` on a standard queue marks a tenant, by which SQS is fair. It is no order, and nothing waits for it.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from kit.clock import FakeLambdaContext
from kit.delivery import Poller
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, Reject, Retry, job

if TYPE_CHECKING:
    from kit.world import World


def test_a_tenants_failed_message_stops_no_other_one_of_the_tenant(both_worlds: World) -> None:
    """Sent with a group and received with it: the ones behind a failure complete at the same delivery."""
    runs: list[str] = []

    @job("act")
    def act(payload: dict[str, Any], ctx: Context) -> None:
        runs.append(f"{ctx.key} of {ctx.message.group}")
        if ctx.key == "k1" and ctx.attempt == 1:
            raise Retry(delay=0)

    app = both_worlds.app(act)
    for number in range(1, 5):
        app.enqueue(act, {}, key=f"k{number}", group="tenant")

    assert Poller.of(app).poll() == 4
    states = {key: app.lookup(act, key) for key in ("k1", "k2", "k3", "k4")}
    assert {key: state and state.status for key, state in states.items()} == {
        "k1": "failed",
        **dict.fromkeys(("k2", "k3", "k4"), "completed"),
    }
    assert sorted(runs) == [f"k{number} of tenant" for number in range(1, 5)]

    assert Poller.of(app).poll() == 1
    assert runs[-1] == "k1 of tenant"


def test_one_tenants_messages_run_at_the_same_time(world: World) -> None:
    """Ten messages of one tenant meet at a barrier: had they a lane, the first would wait there for ever."""
    together = threading.Barrier(10)

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        together.wait(20)

    batch = [world.message("act", key=str(number), group="tenant") for number in range(10)]

    assert kept(world.app(act).consumer(event_of(*batch), FakeLambdaContext())) == []


def test_what_a_job_sends_for_a_tenant_keeps_its_tenant(both_worlds: World) -> None:
    """The outbox knows the group, on a standard queue too."""
    groups: list[str | None] = []

    @job("second", key="n")
    def second(payload: dict[str, Any], ctx: Context) -> None:
        groups.append(ctx.message.group)

    @job("first", key="n")
    def first(payload: dict[str, Any], ctx: Context) -> None:
        ctx.send(second, payload, group=ctx.message.group)

    app = both_worlds.app(first, second)
    app.enqueue(first, {"n": 1}, group="tenant")
    while Poller.of(app).poll():
        pass

    assert groups == ["tenant"]


def test_a_dead_letter_keeps_its_tenant(world: World) -> None:
    """A redrive brings it back among its tenant's, as when SQS moves a message itself; one without has none."""
    sqs = FakeSqs()

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        raise Reject("no")

    batch = [world.message("act", key=str(number), group=group) for number, group in enumerate(("tenant", None))]
    app = world.app(act, runtime=SpiedRuntime(world.runtime, sqs))

    assert kept(app.consumer(event_of(*batch), FakeLambdaContext())) == []

    assert [entry.get("MessageGroupId") for entry in sqs.entries("send")] == ["tenant", None]
    # A standard queue refuses it (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html).
    assert not any("MessageDeduplicationId" in entry for entry in sqs.entries("send"))
