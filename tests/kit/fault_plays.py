"""How a real invocation, or a real call, comes to each operation of store and queue.

Each plays up to the point where the operation is next, and returns what does it: called again, it is what a caller does
who was told of a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kit.fault_stand import GOODS
from kit.wire_faults import SERVER_ERROR
from onceq import Context, Entry, Reject, Retry, Semantics, job
from onceq.clock import OpenDeadline
from onceq.errors import ConditionNotMet, EnqueueFailed, QueueError, ResolveRefused, StoreError, TransactionFailed
from onceq.poller import Poller

if TYPE_CHECKING:
    from kit.fault_stand import Stand

Act = Callable[[], str]
STALE_SECONDS = 80


def delivery(stand: Stand, **options: Any) -> Act:
    """Post a message; return its delivery."""
    stand.post()
    return lambda: stand.deliver(**options)


def pays(stand: Stand) -> Act:
    """Play a job that pays and completes."""

    @job("pay", max_duration=20)
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        stand.charge(ctx)
        return "done"

    stand.serve(pay)
    return delivery(stand)


def fails_first(stand: Stand) -> Act:
    """Play a job whose first attempt asks for another one."""

    @job("pay", max_duration=20)
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        stand.charge(ctx)
        if ctx.attempt == 1:
            raise Retry(1)
        return "done"

    stand.serve(pay)
    return delivery(stand)


def takes_over(stand: Stand) -> Act:
    """Play a job whose first attempt failed, up to its second."""
    deliver = fails_first(stand)
    assert deliver() == "kept"
    stand.clock.advance(2)
    return deliver


def commits(stand: Stand) -> Act:
    """Play a job that completes with a write of its own."""

    @job("pay", max_duration=20)
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        stand.charge(ctx)
        ctx.transaction.write(stand.counting())
        return "done"

    stand.serve(pay)
    return delivery(stand)


def rejects(stand: Stand) -> Act:
    """Play a job that rejects itself."""

    @job("pay", max_duration=20)
    def pay(payload: dict[str, Any], ctx: Context) -> None:
        stand.charge(ctx)
        message = "no"
        raise Reject(message)

    stand.serve(pay)
    return delivery(stand)


def holds(stand: Stand) -> Act:
    """Play an at-most-once job that fails."""

    @job("pay", max_duration=20, semantics=Semantics.AT_MOST_ONCE)
    def pay(payload: dict[str, Any], ctx: Context) -> None:
        stand.charge(ctx)
        message = "the line went dead"
        raise OSError(message)

    stand.serve(pay)
    return delivery(stand)


def gone_stale(stand: Stand, **options: Any) -> Act:
    """Play a job without an attempt left whose claim went stale, up to the next delivery."""

    @job("pay", max_duration=20, max_attempts=1, **options)
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        stand.charge(ctx)
        return "done"

    stand.serve(pay)
    deliver = delivery(stand)
    stand.proxy.plan("complete", SERVER_ERROR, times=float("inf"))
    assert deliver() == "kept"
    stand.proxy.heal()
    stand.events.clear()
    stand.clock.advance(STALE_SECONDS)
    return deliver


def rejects_stale(stand: Stand) -> Act:
    """Play the end of a stale job."""
    return gone_stale(stand)


def holds_stale(stand: Stand) -> Act:
    """Play the end of a stale at-most-once job."""
    return gone_stale(stand, semantics=Semantics.AT_MOST_ONCE)


def marks_stale(stand: Stand) -> Act:
    """Play the sweep that finds a stale job."""
    gone_stale(stand)

    def act() -> str:
        try:
            done = stand.app.recovery(None, None)
        except StoreError:
            return "raised"
        assert done["finished"], done
        return "answered"

    return act


def resolves(stand: Stand) -> Act:
    """Play a person's decision about an uncertain job."""
    assert holds(stand)() == "acknowledged"

    def resolve() -> None:
        try:
            stand.app.resolve("pay", stand.key, "done", result="done")
        except ResolveRefused as refused:
            # The refusal says that the decision had been written.
            if "is completed" not in str(refused):
                raise

    return calls(stand, resolve)


def calls(stand: Stand, call: Callable[[], object]) -> Act:
    """Return a call that says whether it was answered."""

    def act() -> str:
        try:
            call()
        except (StoreError, EnqueueFailed, TransactionFailed):
            return "raised"
        return "answered"

    return act


def looks_up(stand: Stand) -> Act:
    """Play a look at a completed job."""
    assert pays(stand)() == "acknowledged"

    def look() -> None:
        status = stand.app.lookup("pay", stand.key)
        assert status is not None, "a completed job is said not to be there"
        assert str(status.status) == "completed"

    return calls(stand, look)


def steps(stand: Stand, semantics: Semantics) -> Act:
    """Play a job with one step."""

    @job("pay", max_duration=20)
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        done: str = ctx.step("charge", lambda: stand.charge(ctx), semantics=semantics)
        return done

    stand.serve(pay)
    return delivery(stand)


def renews(stand: Stand, *names: str, lock: str | None = None) -> Act:
    """Play a job outside Lambda that runs until its lease, or its lock, was renewed or was not."""

    @job("pay", max_duration=20, lock=lock)
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        stand.charge(ctx)
        stand.wait_for(*names)
        return "done"

    stand.serve(pay, renewing=True)
    return delivery(stand, deadline=False)


def locks(stand: Stand) -> Act:
    """Play a job with a lock."""

    @job("pay", max_duration=20, lock=stand.lock)
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        stand.charge(ctx)
        return "done"

    stand.serve(pay)
    return delivery(stand)


def gives_back(stand: Stand) -> Act:
    """Play a job whose lock somebody else holds."""
    deliver = locks(stand)
    unlock = stand.hold_lock()

    def act() -> str:
        answer = deliver()
        unlock()
        return answer

    return act


def serves(stand: Stand) -> None:
    """Serve a job that pays."""

    @job("pay", max_duration=20)
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        stand.charge(ctx)
        return "done"

    stand.serve(pay)


def stages(stand: Stand) -> Act:
    """Play a caller that sends a job with a write of its own."""
    serves(stand)
    order = {"TableName": GOODS, "Item": {"pk": {"S": f"order-{stand.number}"}}}
    write = {"Put": {**order, "ConditionExpression": "attribute_not_exists(pk)"}}

    def enqueue() -> None:
        try:
            stand.app.enqueue_with([write], "pay", {}, key=stand.key)
        except ConditionNotMet:
            # The caller's own condition says that it had happened; the relay sends what was staged with it.
            assert stand.pending()

    return calls(stand, enqueue)


def sends(stand: Stand) -> Act:
    """Play a job that sends another one."""

    @job("ask", max_duration=20)
    def ask(payload: dict[str, Any], ctx: Context) -> None:
        ctx.send(pay, {}, key=stand.key)

    @job("pay", max_duration=20)
    def pay(payload: dict[str, Any], ctx: Context) -> str:
        stand.charge(ctx)
        return "done"

    stand.serve(ask, pay)
    stand.post("ask", key=f"{stand.key}-ask")
    return stand.deliver


def fails_to_send(stand: Stand) -> Act:
    """Play a job that sends another one to a queue that is down."""
    act = sends(stand)
    stand.proxy.plan(f"SendMessageBatch {_name(stand.queue.url)}", SERVER_ERROR, times=float("inf"))
    return act


def relays(stand: Stand) -> Act:
    """Play the relay that finds a message."""
    assert fails_to_send(stand)() == "acknowledged"
    stand.proxy.heal()
    stand.events.clear()
    stand.clock.advance(STALE_SECONDS)

    def act() -> str:
        try:
            done = stand.relay()
        except StoreError:
            return "raised"
        # An entry that waits is sent, or is said not to have been.
        assert done["sent"] + done["failed"] == 1, done
        return "answered"

    return act


def enqueues(stand: Stand) -> Act:
    """Play a producer of one job."""
    serves(stand)
    return calls(stand, lambda: stand.app.enqueue("pay", {}, key=stand.key))


def enqueues_many(stand: Stand) -> Act:
    """Play a producer of three jobs."""
    serves(stand)
    entries = [Entry("pay", {}, key=f"{stand.key}-{number}") for number in range(3)]
    return calls(stand, lambda: stand.app.enqueue_many(entries))


def polls(stand: Stand) -> Act:
    """Play the local poller, with one message."""
    serves(stand)
    stand.post()
    # What is received and not deleted is visible again at once: this server's time is not ours to move.
    stand.sqs.set_queue_attributes(QueueUrl=stand.queue.url, Attributes={"VisibilityTimeout": "0"})
    queue = stand.app.runtime.queue(OpenDeadline())
    poller = Poller(stand.app.consumer, queue, url=stand.queue.url, arn=stand.queue.arn, wait=0, clock=stand.clock)

    def act() -> str:
        try:
            poller.poll()
        except QueueError:
            return "raised"
        return "answered"

    return act


def _name(url: str) -> str:
    return url.rpartition("/")[2]
