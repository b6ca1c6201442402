"""One attempt's run of the user's function: middleware around it, its coroutine awaited, its lease renewed."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from onceq.context import Context
from onceq.effects import Effects
from onceq.errors import (
    ClaimLost,
    ConfigurationError,
    JobControl,
    JobTimedOut,
    Signal,
    StepNotRecorded,
    StepRefused,
    StepUncertain,
    StoreError,
)
from onceq.message import current_hops
from onceq.sealing import Sender
from onceq.steps import Steps
from onceq.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from onceq.catalogue import Job
    from onceq.claim import Claim
    from onceq.clock import Clock, Deadline
    from onceq.locks import HeldLock
    from onceq.sealing import Sealer

    Middleware = Callable[[Callable[[], Any], Context, Any], Any]

RENEWALS_PER_LEASE = 3
# As long as Lambda's own longest: a job that hangs outside Lambda shows as stale in the end.
LONGEST_LIFE_SECONDS = 900.0


def checked(middleware: Iterable[Middleware]) -> tuple[Middleware, ...]:
    """Return middleware as `run` takes it.

    Raises:
        ConfigurationError: If one is ``async def``: a job would get its coroutine, which nobody runs.
    """
    layers = tuple(middleware)
    for layer in layers:
        if inspect.iscoroutinefunction(layer) or inspect.iscoroutinefunction(getattr(layer, "__call__", None)):  # noqa: B004 - its kind is asked, not whether there is one
            message = f"middleware {layer!r} is `async def`: write a plain function, which wraps async jobs too"
            raise ConfigurationError(message)
    return layers


def context_of(
    job: Job,
    claim: Claim,
    *,
    deadline: Deadline,
    clock: Clock,
    sealer: Sealer,
    replayed: Callable[[str], object] = lambda _step: None,
) -> Context:
    """Return what an attempt that starts now is told, and what it records and stages with.

    Args:
        job: The job.
        claim: Its claim.
        deadline: When the process stops.
        clock: The time.
        sealer: Seals the messages that the job sends.
        replayed: Told the name of a step that is answered from its record.
    """
    ends = clock.monotonic() + (job.job_type.max_duration or float("inf"))
    record, settings = claim.record, sealer.runtime.settings
    return Context(
        job_type=job.job_type.storage_name,
        key=job.key,
        attempt=record.attempts,
        fencing_token=record.fencing_token,
        message=job.message,
        seconds_left=lambda: max(0.0, min(deadline.remaining(), ends - clock.monotonic())),
        effects=Effects(
            steps=Steps(
                write=claim.step,
                now_ms=clock.now_ms,
                text=record.steps,
                limit=settings.result_limit,
                replayed=replayed,
            ),
            transaction=Transaction(reserved=[settings.claims_table, settings.outbox_table], of_a_job=True),
            stage=partial(
                sealer.stage,
                token=record.claimant,
                sender=Sender(job.job_type.storage_name, job.key),
                hops=job.hops + 1,
                deadline=deadline,
            ),
            keys_are_pruned=lambda: _are_pruned(job, claim, clock.now_ms()),
        ),
    )


def _are_pruned(job: Job, claim: Claim, now_ms: int) -> bool:
    """Return whether an earlier attempt may have used keys that the services have forgotten by now."""
    lifetime = job.job_type.downstream_key_lifetime
    if lifetime is None or claim.previous is None or claim.previous.never_started:
        return False
    since = max(claim.record.created_at, claim.record.resolved_at or 0)
    return now_ms - since > lifetime * 1000


def run(
    job: Job, context: Context, middleware: Sequence[Middleware], loop: Callable[[], asyncio.AbstractEventLoop]
) -> tuple[Any, BaseException | None]:
    """Call the job's function inside its middleware, the first one outermost.

    Args:
        job: The job.
        context: What the function and the middleware see.
        middleware: Callables ``(call_next, context, payload)`` that return what the job returns.
        loop: Where coroutines run.

    Returns:
        The value and no exception, or ``None`` and the exception. SystemExit too ends an attempt and not the batch.

    Raises:
        Signal: One that the framework, or a test of it, sent through the job.
    """
    hops = current_hops.set(job.hops)
    try:
        value, error = _run(job, context, middleware, loop)
    finally:
        current_hops.reset(hops)
    steps = context.effects.steps
    context.effects.close()
    if isinstance(error, StepUncertain | StepNotRecorded) and error is not steps.interrupted:
        error = StepRefused(f"the job raised what another attempt ended with: {error}")
    if steps.interrupted is not None:
        # Whatever the job made of the signal, the attempt is over.
        error = steps.interrupted
        if isinstance(error, ClaimLost):
            raise error
    elif error is None and steps.refusal is not None:
        error = steps.refusal
    elif error is None and steps.unfinished:
        message = f"the job returned before its steps had ended: {', '.join(steps.unfinished)}; await them"
        error = StepRefused(message)
    return (value, None) if error is None else (None, error)


def _run(
    job: Job, context: Context, middleware: Sequence[Middleware], loop: Callable[[], asyncio.AbstractEventLoop]
) -> tuple[Any, BaseException | None]:
    def innermost() -> Any:
        value = job.job_type.invoke(job.payload, context)
        return (
            _awaited(value, job.job_type.max_duration, context.effects.steps, loop())
            if inspect.isawaitable(value)
            else value
        )

    call = innermost
    for layer in reversed(middleware):
        call = partial(layer, call, context, job.payload)
    try:
        value = call()
        if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
            # Nothing would ever run it, so the job did not run.
            message = f"the job returned a {type(value).__name__} that nobody runs: is a middleware async?"
            raise TypeError(message)  # noqa: TRY301 - it ends the attempt as the job's own errors do
    except Signal as signal:
        if isinstance(signal, ClaimLost | StepUncertain | StepNotRecorded):
            # This attempt's own one is also kept by its steps; any other was raised by the job's code, whatever it is.
            return None, signal
        raise
    except BaseException as error:  # noqa: BLE001
        return None, error
    # Returned instead of raised, it can only mean the same.
    return (None, value) if isinstance(value, JobControl) else (value, None)


def _awaited(awaitable: Any, seconds: float | None, steps: Steps, loop: asyncio.AbstractEventLoop) -> Any:
    async def body() -> tuple[Any, BaseException | None]:
        # Caught inside: a SystemExit that reaches the task would end the loop that every other job runs on.
        try:
            async with asyncio.timeout(seconds) as limit:
                try:
                    return await awaitable, None
                finally:
                    await steps.ended()
        except TimeoutError as error:
            if limit.expired():
                return None, JobTimedOut(f"cancelled after max_duration, {seconds:g} s")
            return None, error
        except BaseException as error:  # noqa: BLE001
            return None, error

    value, error = asyncio.run_coroutine_threadsafe(body(), loop).result()
    if error is not None:
        raise error
    return value


@contextmanager
def renewing(
    claim: Claim,
    *,
    lease_ms: int,
    clock: Clock,
    report: Callable[[StoreError], object],
    lock: HeldLock | None = None,
) -> Iterator[None]:
    """Renew the claim's lease, and the job's lock with it, from a thread of its own while the block runs.

    Args:
        claim: The claim.
        lease_ms: How long each renewal holds.
        clock: The time.
        report: Told when a renewal did not reach the table; the next one is tried all the same.
        lock: The job's lock, if it has one.
    """
    done = threading.Event()

    def renew() -> None:
        started = clock.monotonic()
        while not clock.wait(done, lease_ms / 1000 / RENEWALS_PER_LEASE):
            if clock.monotonic() - started > LONGEST_LIFE_SECONDS:
                return
            try:
                until = clock.now_ms() + lease_ms
                claim.renew(until)
                if lock is not None:
                    lock.extend(until)
            except ClaimLost:
                return  # the end of the job finds the same, and reports it
            except StoreError as error:
                report(error)

    threading.Thread(target=renew, daemon=True).start()
    try:
        yield
    finally:
        done.set()
