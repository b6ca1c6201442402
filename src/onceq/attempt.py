"""One attempt's run of the user's function: middleware around it, its coroutine awaited, its lease renewed."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from onceq.context import Context
from onceq.errors import ClaimLost, JobControl, JobTimedOut, Signal, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onceq.catalogue import Job
    from onceq.claim import Claim
    from onceq.clock import Clock, Deadline
    from onceq.record import Record

    Middleware = Callable[[Callable[[], Any], Context, Any], Any]

RENEWALS_PER_LEASE = 3
# As long as Lambda's own longest: a job that hangs outside Lambda shows as stale in the end.
LONGEST_LIFE_SECONDS = 900.0


def context_of(job: Job, record: Record, *, deadline: Deadline, clock: Clock) -> Context:
    """Return what an attempt that starts now is told.

    Args:
        job: The job.
        record: Its record, as just claimed.
        deadline: When the process stops.
        clock: The time.
    """
    ends = clock.monotonic() + (job.job_type.max_duration or float("inf"))
    return Context(
        job_type=job.job_type.storage_name,
        key=job.key,
        attempt=record.attempts,
        fencing_token=record.fencing_token,
        message=job.message,
        seconds_left=lambda: max(0.0, min(deadline.remaining(), ends - clock.monotonic())),
    )


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

    def innermost() -> Any:
        value = job.job_type.invoke(job.payload, context)
        return _awaited(value, job.job_type.max_duration, loop()) if inspect.isawaitable(value) else value

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
        if isinstance(signal, ClaimLost) and signal.own is None:
            return None, signal  # raised by the job itself: only a refused write of ours tells that a claim is lost
        raise
    except BaseException as error:  # noqa: BLE001
        return None, error
    # Returned instead of raised, it can only mean the same.
    return (None, value) if isinstance(value, JobControl) else (value, None)


def _awaited(awaitable: Any, seconds: float | None, loop: asyncio.AbstractEventLoop) -> Any:
    async def body() -> tuple[Any, BaseException | None]:
        # Caught inside: a SystemExit that reaches the task would end the loop that every other job runs on.
        try:
            async with asyncio.timeout(seconds) as limit:
                return await awaitable, None
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
def renewing(claim: Claim, *, lease_ms: int, clock: Clock, report: Callable[[StoreError], object]) -> Iterator[None]:
    """Renew the claim's lease from a thread of its own while the block runs.

    Args:
        claim: The claim.
        lease_ms: How long each renewal holds.
        clock: The time.
        report: Told when a renewal did not reach the table; the next one is tried all the same.
    """
    done = threading.Event()

    def renew() -> None:
        started = clock.monotonic()
        while not clock.wait(done, lease_ms / 1000 / RENEWALS_PER_LEASE):
            if clock.monotonic() - started > LONGEST_LIFE_SECONDS:
                return
            try:
                claim.renew(clock.now_ms() + lease_ms)
            except ClaimLost:
                return  # the end of the job finds the same, and reports it
            except StoreError as error:
                report(error)

    threading.Thread(target=renew, daemon=True).start()
    try:
        yield
    finally:
        done.set()
