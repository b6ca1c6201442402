"""The application that the fuzzers deliver to: its jobs do what their payload says, and write it down."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kit.clock import CountingTokens, FrozenClock
from kit.memory import MemoryRuntime
from kit.strict_reading import Identity, Served, Serving, Source
from kit.strict_seen import Effect
from kit.world import OUTBOX_TABLE, TABLE, arn_of
from onceq import App, Context, JobType, Reject, Retry, Semantics, Snooze
from onceq import source as sources
from onceq.settings import QueueSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Of process_payment and its kind, which the files of events/ name, any object is taken.
EXAMPLES = ("process_payment", "book_order", "deliver_webhook", "nightly_report")
URL = "https://sqs.us-east-1.amazonaws.com/123456789012/"
BUCKET = "payloads"
# Asked in this order: the more special first.
SOURCES = {
    "of_s3": sources.s3(),
    "of_scheduler": sources.scheduler(),
    "of_eventbridge": sources.eventbridge(),
    "of_records": sources.records(key="record.dynamodb.Keys.pk.S"),
    "of_sns": sources.sns(),
}


class Vanished(Exception):
    """What a job raises that fails."""


@dataclass(frozen=True)
class Order:
    """The payload of ``typed``."""

    order_id: str
    amount: int
    do: Any = "return"


class Odd:
    """A result that no codec knows, and that does not like to be asked."""

    def __repr__(self) -> str:
        raise SystemExit


# What ``do`` may say beside "return", and what the job then does.
ENDS: dict[str, BaseException] = {
    "raise": Vanished("\ud800 it failed"),
    "raise many": Vanished("x" * 100_000),
    "retry": Retry(),
    "retry late": Retry(delay=40_000),
    "snooze": Snooze(60),
    "reject": Reject("no \x00 such \ud800 order"),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "recurse": RecursionError("maximum recursion depth exceeded"),
}
RESULTS: dict[str, Any] = {
    "nan": float("nan"),
    "set": {1, 2},
    "odd": Odd(),
    "large": "x" * 50_000,
    "surrogate": "\ud800",
    "huge": 10**400,
    "none": None,
    "iterator": iter(()),
}


def succeeds(payload: Any) -> bool:
    """Return whether a job with this payload returns."""
    do = payload.get("do", "return") if isinstance(payload, dict) else "return"
    return not (isinstance(do, str) and do in ENDS)


class Application:
    """One application on both doubles.

    Attributes:
        effects: The starts since the last `reset`.
        told: The telemetry events since then: names and fields.
    """

    def __init__(self, concurrency: int, runtime: Callable[..., Any] = MemoryRuntime) -> None:
        """Compose it, on what ``runtime`` makes of settings, clock and tokens."""
        self.effects: list[Effect] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.clock = FrozenClock()
        self._starts_at = self.clock.now_ms()
        self.tokens = CountingTokens(self.clock)
        queues = {
            "default": QueueSettings("default", URL + "JobsQueue", arn_of("JobsQueue"), URL + "DeadLetterQueue"),
            "ordered": QueueSettings("ordered", URL + "Jobs.fifo", arn_of("JobsQueue.fifo"), URL + "Dead.fifo"),
            "bare": QueueSettings("bare", URL + "Bare", arn_of("Bare"), URL + "BareDead"),
            "foreign": QueueSettings("foreign", URL + "Foreign", arn_of("Foreign"), URL + "ForeignDead"),
        }
        settings = Settings(
            queues=queues,
            claims_table=TABLE,
            outbox_table=OUTBOX_TABLE,
            concurrency=concurrency,
            payload_bucket=BUCKET,
            payload_limit=1_100_000,
        )
        self.runtime = runtime(settings, clock=self.clock, tokens=self.tokens)
        self.job_types = list(self._job_types())
        default = {"default": self._named("derived")}
        options: dict[str, Any] = {"runtime": self.runtime, "hooks": [self._tell], "wrapped_envelopes": True}
        self.app = App(self.job_types, default=default, **options)
        self.serving = Serving(
            job_types={
                **{name: Served(name) for name in (*EXAMPLES, *SOURCES, "sends", "async")},
                "locked": Served("locked", locked=True),
                "derived": Served("derived", key="order_id"),
                "typed": Served("typed", fields={"order_id": str, "amount": int}),
                "once": Served("once", once=True),
                "retitled": Served("old_title"),
                "old_title": Served("old_title"),
            },
            queues={
                queue.arn: Source(
                    queue.dlq_url,
                    fifo=queue.is_fifo,
                    default="derived" if name == "default" else None,
                    foreign=name == "foreign",
                )
                for name, queue in queues.items()
            },
        )

    def reset(self) -> None:
        """Begin anew, in time and names too, so that a case is the same whatever came before it."""
        self.effects.clear()
        self.told.clear()
        self.clock._now_ms = self._starts_at
        self.tokens._count = 0

    def _tell(self, event: Any) -> None:
        self.told.append((event.name, event.fields()))

    def _named(self, name: str) -> JobType[..., Any]:
        return next(one for one in self.job_types if one.name == name)

    def _job_types(self) -> Iterator[JobType[..., Any]]:
        def plain(payload: dict[str, Any], ctx: Context) -> Any:
            return self._run(payload, ctx)

        def typed(payload: Order, ctx: Context) -> Any:
            return self._run({"order_id": payload.order_id, "amount": payload.amount}, ctx, payload.do)

        def sends(payload: dict[str, Any], ctx: Context) -> Any:
            ctx.send("process_payment", {"order_id": ctx.key})
            return self._run(payload, ctx)

        async def asynchronous(payload: dict[str, Any], ctx: Context) -> Any:
            await asyncio.sleep(0)
            return self._run(payload, ctx)

        for name in EXAMPLES:
            yield JobType(plain, name, max_attempts=2)
        yield JobType(plain, "derived", key="order_id", max_attempts=3)
        yield JobType(typed, "typed")
        yield JobType(sends, "sends")
        yield JobType(asynchronous, "async")
        yield JobType(plain, "once", semantics=Semantics.AT_MOST_ONCE)
        yield JobType(plain, "locked", lock="one at a time")
        for kind, source in SOURCES.items():
            yield JobType(plain, kind, queue="foreign", source=source)
        yield JobType(plain, "retitled", formerly=("old_title",), reject=(Vanished,))

    def _run(self, payload: Any, ctx: Context, do: Any = None) -> Any:
        do = payload.get("do", "return") if do is None else do
        fails = isinstance(do, str) and do in ENDS
        again = fails and isinstance(ENDS[do], Retry | Snooze)
        self.effects.append(Effect(Identity(ctx.job_type, ctx.key), payload, done=not fails, again=again))
        if fails:
            raise ENDS[do]
        return RESULTS.get(do, {"key": ctx.key}) if isinstance(do, str) else do
