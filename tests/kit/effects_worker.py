"""A worker of its own process, whose jobs kill it between and inside their effects.

Run as ``python -m kit.effects_worker NOW_MS VERB FILE``. It appends the name of every effect to the file, and prints
what the handler answered, if it lives to. The verbs are a job type to deliver, ``poll`` and ``relay``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from kit.clock import FakeLambdaContext, FrozenClock
from kit.delivery import Poller
from kit.dying_worker import record
from onceq import App, Context, Semantics, job
from onceq.runtime import Runtime
from onceq.telemetry import Event, JobCompleted

KEY = "k-1"
effects = Path(os.devnull)


def die() -> None:
    """Kill this process without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


def have(effect: str) -> None:
    """Have an effect that outlives this process."""
    with effects.open("a") as file:
        file.write(f"{effect}\n")


@job("mail")
def mail(payload: dict[str, Any]) -> None:
    """Have one effect."""
    have("mail")


@job("order")
def order(payload: dict[str, Any], ctx: Context) -> None:
    """Send a message; the process dies when this is committed, and before the message is sent."""
    ctx.send(mail, {})


@job("call")
def call(payload: dict[str, Any], ctx: Context) -> None:
    """Die inside an at-most-once step, behind its effect."""

    def called() -> None:
        have("call")
        die()

    ctx.step("call", called, semantics=Semantics.AT_MOST_ONCE)


@job("pay")
def pay(payload: dict[str, Any], ctx: Context) -> None:
    """Die once between two steps."""
    ctx.step("charge", have, "charge")
    if ctx.attempt == 1:
        die()
    ctx.step("receipt", have, "receipt")


def on_event(event: Event) -> None:
    """Die between the commit of an order and what comes next."""
    if isinstance(event, JobCompleted) and event.job_type == order.name:
        die()


def main(now_ms: int, verb: str) -> None:
    """Do what the verb says."""
    app = App([order, mail, call, pay], runtime=Runtime(clock=FrozenClock(now_ms)), hooks=[on_event])
    answer: Any
    if verb == "relay":
        answer = app.relay(None, FakeLambdaContext())
    elif verb == "poll":
        answer = Poller.of(app).poll()
    else:
        answer = app.consumer({"Records": [record(KEY, kill=True, job_type=verb)]}, FakeLambdaContext())
    print(json.dumps(answer))


if __name__ == "__main__":
    effects = Path(sys.argv[3])
    main(int(sys.argv[1]), sys.argv[2])
