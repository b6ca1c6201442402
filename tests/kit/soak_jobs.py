"""The job types of a soak: one of each kind that a user writes, each of which tells what it does.

What a job does is in its payload, which the plan wrote, so its end is known before it runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kit.soak_log import tell
from kit.soak_provider import call
from onceq import Backoff, Context, JobType, Reject, Retry, Semantics, Snooze, job

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")
Payload = dict[str, Any]

PROVIDER = "SOAK_PROVIDER"
# Outside Lambda max_duration is the lease: short, so that what was killed or stopped is taken over within seconds.
LEASE_SECONDS = float(os.environ.get("SOAK_LEASE", "2"))
STOCK, LINES, ACCOUNTS = "SoakStock", "SoakLines", "SoakAccounts"
# The killed ones use up attempts of their neighbours', and of nobody so many.
MANY = 60
KILLER_ATTEMPTS = 2
SNOOZE_SECONDS = 0.5
UNENCODABLE, TOO_LARGE = "unencodable", "too_large"


class Declined(Exception):
    """The provider does not take it until a person has seen to it."""


class ProviderFailed(Exception):
    """The provider failed, or did not answer."""


def common(name: str, **options: Any) -> Callable[[Callable[P, R]], JobType[P, R]]:
    """Return the decorator of a job type with the times of a soak."""
    known: dict[str, Any] = {"max_attempts": MANY, "max_duration": LEASE_SECONDS, "backoff": Backoff(0.2, 1.0)}
    return job(name, **(known | options))


def die() -> None:
    """Kill this process without a word to anybody but the log."""
    tell("process.died")
    os.kill(os.getpid(), signal.SIGKILL)


def effect(ctx: Context, name: str, payload: Payload) -> dict[str, Any]:
    """Have an effect at the provider, under the job's key for it."""
    body = {"job": f"{ctx.job_type}#{ctx.key}", "effect": name, "spoil": payload.get("spoil")}
    try:
        status, answer = call(os.environ[PROVIDER], "/effects", body, ctx.idempotency_key_for(name))
    except OSError as error:
        raise ProviderFailed(str(error)) from error
    if status == 402:
        raise Declined
    if status != 200:
        raise ProviderFailed(str(status))
    return answer


def step(ctx: Context, name: str, payload: Payload) -> dict[str, Any]:
    """Have an effect as a step, and tell when its body runs."""
    return ctx.step(name, _told, ctx, name, partial(effect, ctx, name, payload))


def once(ctx: Context, name: str, payload: Payload) -> dict[str, Any]:
    """Call the system that knows no keys; the first attempt may die behind it."""
    try:
        done = call(os.environ[PROVIDER], "/legacy", {"job": f"{ctx.job_type}#{ctx.key}", "effect": name})[1]
    except OSError as error:
        raise ProviderFailed(str(error)) from error
    if payload.get("dies") and ctx.attempt == 1:
        die()
    return done


def _told(ctx: Context, name: str, have: Any) -> Any:
    tell("step.began", job=f"{ctx.job_type}#{ctx.key}", step=name, token=ctx.fencing_token)
    return have()


def _take_time(payload: Payload) -> None:
    time.sleep(payload.get("seconds", 0))


@common("charge", reject=(Declined,))
def charge(payload: Payload, ctx: Context) -> dict[str, Any]:
    """Charge in a step; the first attempt may die behind the effect, or behind its record."""
    if payload.get("dies") == "behind the effect" and ctx.attempt == 1:
        effect(ctx, "charge", payload)
        die()
    done = step(ctx, "charge", payload)
    if payload.get("dies") and ctx.attempt == 1:
        die()
    _take_time(payload)
    return {"charge": done["effect"]}


@common("trip")
def trip(payload: Payload, ctx: Context) -> list[int]:
    """Book three things, each in a step."""
    booked = []
    for number, name in enumerate(("flight", "hotel", "car"), start=1):
        booked.append(step(ctx, name, payload)["effect"])
        _take_time(payload)
        if payload.get("dies") == number and ctx.attempt == 1:
            die()
    return booked


@common("mail")
async def mail(payload: Payload, ctx: Context) -> None:
    """Send a mail from an ``async def`` job."""
    await asyncio.sleep(payload.get("seconds", 0))
    await asyncio.to_thread(effect, ctx, "mail", payload)


@common("book", semantics=Semantics.AT_MOST_ONCE)
def book(payload: Payload, ctx: Context) -> dict[str, Any]:
    """Book where no keys are known: at most once."""
    if payload.get("retries") and ctx.attempt == 1:
        raise Retry(0.1, reason="nothing was called yet")
    done = once(ctx, "book", payload)
    _take_time(payload)
    return done


@common("visit")
def visit(payload: Payload, ctx: Context) -> list[int]:
    """Call in an at-most-once step between two others."""
    before = step(ctx, "before", payload)["effect"]
    called = partial(_told, ctx, "visit", partial(once, ctx, "visit", payload))
    ctx.step("visit", called, semantics=Semantics.AT_MOST_ONCE)
    _take_time(payload)
    return [before, step(ctx, "after", payload)["effect"]]


@common("reserve")
def reserve(payload: Payload, ctx: Context) -> int:
    """Take pieces off the shelf, write the line, and send two messages, all with the completion."""
    taken = {":taken": {"N": str(payload["pieces"])}}
    update = {"TableName": STOCK, "Key": {"pk": {"S": payload["sku"]}}, "ExpressionAttributeValues": taken}
    update |= {"UpdateExpression": "SET pieces = pieces - :taken", "ConditionExpression": "pieces >= :taken"}
    ctx.transaction.write({"Update": update}, on_conflict="reject")
    line = {"pk": {"S": ctx.key}, "sku": {"S": payload["sku"]}, "pieces": {"N": str(payload["pieces"])}}
    ctx.transaction.write(
        {"Put": {"TableName": LINES, "Item": line, "ConditionExpression": "attribute_not_exists(pk)"}}
    )
    ctx.send(mail, {}, key=f"{ctx.key}-mail")
    ctx.send(book, {}, key=f"{ctx.key}-book")
    _take_time(payload)
    if payload.get("dies") and ctx.attempt == 1:
        die()
    return int(payload["pieces"])


@common("entry", queue="ordered")
def entry(payload: Payload, ctx: Context) -> int:
    """Post an amount to an account, in the order of its group; what is not there is not taken. It may fail first."""
    amount = {":amount": {"N": str(payload["amount"])}, ":needed": {"N": str(-payload["amount"])}}
    update = {"TableName": ACCOUNTS, "Key": {"pk": {"S": payload["account"]}}, "ExpressionAttributeValues": amount}
    update |= {"UpdateExpression": "SET cents = cents + :amount", "ConditionExpression": "cents >= :needed"}
    ctx.transaction.write({"Update": update}, on_conflict="reject")
    _take_time(payload)
    if ctx.attempt <= payload["fails"]:
        message = "as planned"
        raise RuntimeError(message)
    return int(payload["amount"])


@common("count", lock="soak-count")
def count(payload: Payload, ctx: Context) -> int:
    """Work under a lock."""
    effect(ctx, "count", payload)
    return ctx.attempt


@common("refuse")
def refuse(payload: Payload, ctx: Context) -> None:
    """Stage a message, and reject: the message must never exist."""
    ctx.send(mail, {}, key=f"{ctx.key}-mail")
    raise Reject("as planned")


@common("flaky")
def flaky(payload: Payload, ctx: Context) -> int:
    """Fail so many times, behind a step that is done; each failed attempt stages a message, too."""
    done = step(ctx, "charge", payload)["effect"]
    ctx.send(mail, {}, key=f"{ctx.key}-mail")
    if ctx.attempt <= payload["fails"]:
        message = "as planned"
        raise RuntimeError(message)
    return int(done)


@common("snooze")
def snooze(payload: Payload, ctx: Context) -> str:
    """Run later without using an attempt: the first run leaves a step behind."""
    first = []
    ctx.step("asked", lambda: first.append(True))
    if first:
        raise Snooze(SNOOZE_SECONDS)
    effect(ctx, "snooze", payload)
    return "woken"


@common("answer")
def answer(payload: Payload, ctx: Context) -> Any:
    """Return what the plan says: also what is false, too large or not to be encoded."""
    effect(ctx, "answer", payload)
    value = payload["value"]
    return {UNENCODABLE: object(), TOO_LARGE: "x" * 40_000}.get(value, value) if isinstance(value, str) else value


@common("big")
def big(payload: Payload, ctx: Context) -> int:
    """Get what SQS does not take."""
    effect(ctx, "big", {})
    return len(payload["text"])


@common("killer", max_attempts=KILLER_ATTEMPTS)
def killer(payload: Payload) -> None:
    """Kill the process at every attempt."""
    die()


JOB_TYPES: tuple[JobType[..., Any], ...] = (
    charge, trip, mail, book, visit, reserve, entry, count, refuse, flaky, snooze, answer, big, killer
)  # fmt: skip
