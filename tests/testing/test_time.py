"""Time stands still for jobs, too; what waits for others goes on."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import json
import os
import time
from typing import Any

import pytest

from onceq import App, job
from onceq.testing import CountingTokens, FrozenClock, LambdaContext, environment, sqs_event
from onceq.testing.clock import START_MS
from onceq.testing.plain import PLAIN

NOON = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)


def test_a_jobs_own_clocks_follow_the_environments(nowhere: Any) -> None:
    """Whatever it reads: so what it makes of the time is the same in every run, and found out if it is a key."""

    @job("look", max_duration=5)
    def look(_payload: dict[str, Any]) -> list[Any]:
        now = dt.datetime.now(dt.UTC)
        today = dt.date.today()  # noqa: DTZ011 - jobs do
        return [time.time(), time.time_ns(), now.isoformat(), today.isoformat(), time.gmtime().tm_hour]

    with environment(App([look])) as env:
        for day in range(2):
            env.deliver(env.enqueue(look, {}, key=f"k-{day}"))
            env.pass_time(86_400)

        assert [returned.value for returned in env.seen.returns] == [
            [
                START_MS / 1000 + day * 86_400,
                START_MS * 1_000_000 + day * 86_400 * 10**9,
                (NOON + dt.timedelta(days=day)).isoformat(),
                f"2026-11-{29 + day}",
                12,
            ]
            for day in range(2)
        ]
    assert abs(time.time() - START_MS / 1000) > 1  # it goes on again


def test_what_waits_for_others_goes_on(nowhere: Any) -> None:
    """Monotonic clocks are the machine's: time-outs of threads and event loops end."""
    with environment() as env:
        began = time.monotonic()

        async def too_long() -> None:
            async with asyncio.timeout(0.05):
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            asyncio.run(too_long())
        assert time.monotonic() > began
        assert time.perf_counter() > 0
        assert env.clock.now_ms() == START_MS


def test_a_deadline_is_the_functions_time_out(nowhere: Any) -> None:
    """It passes with the frozen clock; an event of a queue that nobody consumes has a minute."""
    left: list[int] = []

    class Consumer:
        def handler(self, _process: Any, _seen: Any) -> Any:
            def handle(_event: Any, context: Any) -> None:
                env.pass_time(10)
                left.append(context.get_remaining_time_in_millis())

            return handle

        def relay(self, _process: Any, _seen: Any) -> None:
            return None

    template = copy.deepcopy(PLAIN)
    template["Resources"]["ConsumerFunction"]["Properties"]["Timeout"] = 25
    (nowhere / "template.yaml").write_text(json.dumps(template), encoding="utf-8")
    with environment() as env:
        env.use(Consumer())
        env.deliver(env.put("x"))
        env.deliver(sqs_event("x", queue="Other"))

    assert left == [15_000, 50_000]


def test_a_frozen_clock_moves_when_it_is_told_to() -> None:
    """Sleeping moves it, and is noted."""
    clock = FrozenClock(1000)

    clock.sleep(1.5)
    clock.advance(0.5)

    assert (clock.now_ms(), clock.monotonic(), clock.slept) == (3000, 3.0, [1.5])


def test_tokens_are_counted_and_jitter_is_its_upper_limit() -> None:
    """So that pictures can be compared."""
    tokens = CountingTokens(FrozenClock(), "w1-t")

    assert [tokens.token(), tokens.token(), tokens.uniform(1, 4)] == ["w1-t1", "w1-t2", 4]


def test_a_context_has_what_lambdas_has() -> None:
    """What loggers, tracers and jobs read of it, of the same types as in Lambda."""
    context = LambdaContext(FrozenClock(), seconds=1.5, name="r-1", function="Consumer")

    assert context.get_remaining_time_in_millis() == 1500
    assert (context.aws_request_id, context.function_name, context.function_version) == ("r-1", "Consumer", "$LATEST")
    assert context.invoked_function_arn == "arn:aws:lambda:us-east-1:123456789012:function:Consumer"
    assert context.log_group_name == "/aws/lambda/Consumer"
    assert context.log_stream_name.endswith("r-1")
    assert (context.memory_limit_in_mb, context.identity, context.client_context) == ("512", None, None)


def test_the_process_keeps_its_time_zone(nowhere: Any) -> None:
    """Only what time it is is ours."""
    zone = time.tzname, os.environ.get("TZ")
    with environment():
        assert (time.tzname, os.environ.get("TZ")) == zone
