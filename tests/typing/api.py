"""The public API as a type checker sees it; mypy checks this page, nothing runs it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_type

from onceq import (
    App,
    Backoff,
    Context,
    Enqueued,
    Entry,
    JobStatus,
    JobType,
    Producer,
    Reject,
    Retry,
    Settings,
    Snooze,
    job,
    join_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


@dataclass(frozen=True)
class Payment:
    """What is paid."""

    order_id: str
    amount: int


class Declined(Exception):
    """Permanent."""


@job(
    "pay",
    queue="default",
    formerly=("charge",),
    key=lambda payment: payment.order_id,
    fingerprint="order_id",
    max_attempts=3,
    max_duration=20,
    backoff=Backoff(base=2, cap=60),
    reject=(Declined,),
    retention=timedelta(days=30),
)
def pay(payment: Payment, ctx: Context) -> dict[str, str]:
    """Pay."""
    assert_type(ctx.key, str)
    assert_type(ctx.attempt, int)
    assert_type(ctx.fencing_token, int)
    assert_type(ctx.remaining(), float)
    assert_type(ctx.idempotency_key_for("charge"), str)
    if payment.amount < 0:
        raise Reject("negative")
    if payment.amount == 0:
        raise Retry(delay=30)
    if payment.amount == 1:
        raise Snooze(timedelta(minutes=1))
    return {"charge": ctx.idempotency_key_for("charge")}


@job("mail")
async def mail(payload: dict[str, Any]) -> None:
    """Mail."""


# A decorated job keeps its signature: calls are checked as those of the plain function.
assert_type(pay.max_duration, float | None)
mail_function: Callable[[dict[str, Any]], Coroutine[Any, Any, None]] = mail.function
any_job_type: JobType[[Payment, Context], dict[str, str]] = pay


def call(ctx: Context) -> None:
    """Call the plain functions."""
    assert_type(pay(Payment("o-1", 5), ctx), dict[str, str])
    assert_type(pay(payment=Payment("o-1", 5), ctx=ctx), dict[str, str])
    pay("o-1", ctx)  # type: ignore[arg-type]  # a wrong payload is seen
    pay(Payment("o-1", 5))  # type: ignore[call-arg]  # and a missing context


async def call_async() -> None:
    """Await the plain coroutine function."""
    assert_type(await mail({}), None)


def trace(call_next: Callable[[], Any], ctx: Context, payload: Any) -> Any:
    """A middleware."""
    return call_next()


app = App([pay, mail], default={"default": pay}, middleware=[trace], hooks=[print], settings=Settings())
assert_type(app.consumer({"Records": []}, None), dict[str, list[dict[str, str]]])
assert_type(app.enqueue(pay, Payment("o-1", 5), key="o-1", delay=5, group="g"), Enqueued)
assert_type(app.enqueue("pay", {"order_id": "o-1"}, key=join_key("o", 1), delay=timedelta(minutes=1)), Enqueued)
assert_type(app.enqueue_many([Entry(pay, Payment("o-1", 5)), Entry("mail", {}, key=7)]), list[Enqueued])
assert_type(app.lookup(pay, "o-1"), JobStatus | None)
assert_type(Producer({"default": "https://sqs.example/1/Jobs"}).enqueue("pay", {}).key, str)

app.enqueue(pay, Payment("o-1", 5), key=1.5)  # type: ignore[arg-type]  # a float is no key
App([call])  # type: ignore[list-item]  # a plain function is no job type
