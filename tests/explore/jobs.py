"""The jobs that are explored. Each is a real application; the provider stands in for what they call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from explore.outside import RELAY
from explore.space import KEY, OUTBOX, OWN, Play, Used
from onceq import App, Context, JobType, Reject, Semantics
from onceq.testing.errors import EffectFailed
from onceq.testing.subject import AppSubject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from explore.outside import Gateway, Snapshot

RENEWED = Used(crashes=1, losses=1, expiries=1, renewals=1)


def app(*job_types: JobType[..., Any]) -> AppSubject:
    """Return an application as it is delivered to."""
    return AppSubject(App(job_types, hooks=[]))


def plain(gateway: Gateway) -> AppSubject:
    """Charge, with the downstream key."""

    def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        return gateway.charge(500, idempotency_key=ctx.idempotency_key_for("charge"))

    return app(JobType(charge, "charge", max_attempts=3))


def one_step(gateway: Gateway) -> AppSubject:
    """Charge in a step."""

    def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        return ctx.step("charge", gateway.charge, 500, idempotency_key=ctx.idempotency_key_for("charge"))

    return app(JobType(charge, "charge", max_attempts=3))


def asynchronous(gateway: Gateway) -> AppSubject:
    """Charge in a step that is awaited."""

    async def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        async def pay() -> Any:
            return gateway.charge(500, idempotency_key=ctx.idempotency_key_for("charge"))

        return await ctx.step("charge", pay)

    return app(JobType(charge, "charge", max_attempts=3))


def two_steps(gateway: Gateway) -> AppSubject:
    """Charge, then book, each in a step."""

    def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        ctx.step("charge", gateway.charge, 500, idempotency_key=ctx.idempotency_key_for("charge"))
        return ctx.step("book", gateway.book, idempotency_key=ctx.idempotency_key_for("book"))

    return app(JobType(charge, "charge", max_attempts=3))


def booking() -> dict[str, Any]:
    """Return an update that counts a booking."""
    return {
        "TableName": OWN,
        "Key": {"pk": {"S": "account"}},
        "UpdateExpression": "ADD bookings :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }


def transactional(_gateway: Gateway) -> AppSubject:
    """Count a booking in a table of its own, with the completion."""

    def charge(_payload: dict[str, Any], ctx: Context) -> int:
        ctx.transaction.write({"Update": booking()})
        return 1

    return app(JobType(charge, "charge", max_attempts=3))


def sending(gateway: Gateway) -> AppSubject:
    """Send a receipt with the completion; the receipt is mailed without a key."""

    def charge(_payload: dict[str, Any], ctx: Context) -> str:
        return ctx.send("receipt", {"order_id": KEY})

    def receipt(_payload: dict[str, Any]) -> Any:
        return gateway.mail()

    return app(JobType(charge, "charge", max_attempts=3), JobType(receipt, "receipt"))


def once(gateway: Gateway) -> AppSubject:
    """Post what cannot be posted twice: an at-most-once job."""

    def charge(_payload: dict[str, Any]) -> Any:
        return gateway.post()

    return app(JobType(charge, "charge", semantics=Semantics.AT_MOST_ONCE))


def step_once(gateway: Gateway) -> AppSubject:
    """Post what cannot be posted twice, in an at-most-once step."""

    def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        return ctx.step("post", gateway.post, semantics=Semantics.AT_MOST_ONCE)

    return app(JobType(charge, "charge", max_attempts=3))


def fails_first(gateway: Gateway) -> AppSubject:
    """Fail at the first attempt, charge at the second."""

    def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        if ctx.attempt == 1:
            message = "not yet"
            raise ValueError(message)
        return gateway.charge(500, idempotency_key=ctx.idempotency_key_for("charge"))

    return app(JobType(charge, "charge", max_attempts=3))


def rejecting(gateway: Gateway) -> AppSubject:
    """Look at the order, and reject it."""

    def charge(_payload: dict[str, Any]) -> None:
        gateway.look()
        message = "no such order"
        raise Reject(message)

    return app(JobType(charge, "charge", max_attempts=3))


def locked(gateway: Gateway) -> AppSubject:
    """Charge, holding a lock."""

    def charge(payload: dict[str, Any], ctx: Context) -> Any:
        return gateway.charge(payload["order_id"], idempotency_key=ctx.idempotency_key_for("charge"))

    return app(JobType(charge, "charge", lock="ledger", max_attempts=3))


def falsy(gateway: Gateway) -> AppSubject:
    """Post without a key in a step, and return what is false."""

    def charge(_payload: dict[str, Any], ctx: Context) -> list[Any]:
        ctx.step("charge", gateway.charge, idempotency_key=ctx.idempotency_key_for("charge"))
        return []

    return app(JobType(charge, "charge", max_attempts=3))


def rejected_first(gateway: Gateway) -> AppSubject:
    """Charge: a charge that fails rejects the job, until it is redriven."""

    def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        return gateway.charge(500, idempotency_key=ctx.idempotency_key_for("charge"))

    return app(JobType(charge, "charge", reject=(EffectFailed,), max_attempts=3))


def charged(*names: str, most: int = 1) -> Any:
    """Return a check that each of these effects happened, exactly once, however the world was."""

    def check(outside: Snapshot, _used: Used) -> Iterator[str]:
        for name in names:
            count = len(outside.happened(name))
            if not 1 <= count <= most:
                yield f"effects: {name} happened {count} times, for 1"

    return check


def at_most_once(outside: Snapshot, used: Used) -> Iterator[str]:
    """At most once, and exactly once if nothing went wrong."""
    count = len(outside.happened("post"))
    if count > 1 or (used.nothing and not count):
        yield f"effects: post happened {count} times"


def booked(outside: Snapshot, _used: Used) -> Iterator[str]:
    """G7: exactly one booking, with the completion."""
    count = int((outside.item(OWN, "account") or {"bookings": {"N": "0"}})["bookings"]["N"])
    if count != 1:
        yield f"G7: {count} bookings for one completion"


def sent(outside: Snapshot, _used: Used) -> Iterator[str]:
    """G8: there is one entry, it was sent and marked, and however often it was sent its job ran once."""
    entries = outside.tables.get(OUTBOX, {}).values()
    if [entry["status"]["S"] for entry in entries] != ["sent"]:
        yield f"G8: {len(entries)} entries for one completion, {sum('shard' in entry for entry in entries)} to be sent"
    mails = len(outside.happened("mail"))
    if mails != 1:
        yield f"G8: mail happened {mails} times, for 1"


def renewed(gateway: Gateway) -> AppSubject:
    """Charge in a step, then look: what takes so long that the lease is renewed."""

    def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        charged = ctx.step("charge", gateway.charge, 500, idempotency_key=ctx.idempotency_key_for("charge"))
        gateway.look()
        return charged

    return app(JobType(charge, "charge", max_attempts=3))


def nothing(_outside: Snapshot, _used: Used) -> Iterator[str]:
    """Nothing is asked."""
    yield from ()


def plays() -> list[Play]:
    """Return the plays with two workers, on one message that is delivered twice if not said otherwise."""
    return [
        Play("plain", plain, charged("charge")),
        Play("one step", one_step, charged("charge")),
        Play("async step", asynchronous, charged("charge")),
        Play("two steps", two_steps, charged("charge", "book")),
        Play("transaction", transactional, booked),
        Play("outbox", sending, sent, relayed=True),
        Play("at-most-once job", once, at_most_once, at_most_once=True, once=("post",)),
        Play("at-most-once step", step_once, at_most_once, once=("post",)),
        Play("fails first", fails_first, charged("charge")),
        Play("reject", rejecting, nothing),
        Play("falsy result", falsy, charged("charge")),
        Play("lock, one job", locked, charged("charge")),
        Play("two messages", one_step, charged("charge"), messages=("m1", "m2")),
        Play(
            "lock, two jobs",
            locked,
            charged("charge", most=2),
            messages=("m1", "m2"),
            bodies={"m2": {"order_id": "o-2"}},
        ),
        Play("redrive", rejected_first, charged("charge"), messages=("redriven1", "redriven1"), before=("m1",)),
        Play("redrive and duplicate", rejected_first, charged("charge"), messages=("redriven1", "m2"), before=("m1",)),
        Play("renewals", plain, charged("charge"), renews=True, used=RENEWED),
        Play("renewals and a step", renewed, charged("charge"), renews=True, used=RENEWED),
        Play("renewals and a lock", locked, charged("charge"), renews=True, used=RENEWED),
        Play("renewals and an at-most-once step", step_once, at_most_once, once=("post",), renews=True, used=RENEWED),
        Play("renewals overtake", plain, charged("charge"), renews=True, used=Used(losses=1, late=1, renewals=2)),
        Play("relay", sending, sent, messages=("m1", "m1", RELAY), relayed=True),
    ]
