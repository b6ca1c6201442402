"""The test kit: run your jobs on local AWS with the time standing still, and prove that each takes effect once.

::

    from onceq.testing import EffectRecorder, prove_effectively_once

    def test_a_payment_is_charged_once(monkeypatch):
        gateway = EffectRecorder(like=payments.gateway)
        monkeypatch.setattr(payments, "gateway", gateway)
        prove_effectively_once(payments.process_payment, PAYMENT, effects=gateway)

`prove_effectively_once` runs the job in every way in which SQS may deliver it and a worker may fail: see
``docs/testing.md``. `environment` is the world that it runs in, for tests of your own; in pytest it is the fixture
``onceq_env``. Install it with the extra ``testing``; nothing of it belongs into a Lambda function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceq.testing.clock import CountingTokens, FrozenClock, LambdaContext
    from onceq.testing.diagnosis import Diagnosis, Finding
    from onceq.testing.errors import Crash, EffectFailed, NeverSettled, NotEffectivelyOnce
    from onceq.testing.events import envelope, queue_arn, sqs_event, sqs_record
    from onceq.testing.ground import environment
    from onceq.testing.invoking import Delivered
    from onceq.testing.mailbox import Letter
    from onceq.testing.memory import Effect
    from onceq.testing.points import Director, Move, Point
    from onceq.testing.process import Worker
    from onceq.testing.proving import prove_consumer, prove_effectively_once
    from onceq.testing.recorder import EffectRecorder
    from onceq.testing.report import Report, Result
    from onceq.testing.subject import Handler, Parts
    from onceq.testing.world import Environment

__all__ = [
    "CountingTokens",
    "Crash",
    "Delivered",
    "Diagnosis",
    "Director",
    "Effect",
    "EffectFailed",
    "EffectRecorder",
    "Environment",
    "Finding",
    "FrozenClock",
    "Handler",
    "LambdaContext",
    "Letter",
    "Move",
    "NeverSettled",
    "NotEffectivelyOnce",
    "Parts",
    "Point",
    "Report",
    "Result",
    "Worker",
    "envelope",
    "environment",
    "prove_consumer",
    "prove_effectively_once",
    "queue_arn",
    "sqs_event",
    "sqs_record",
]

# Loaded when a name is asked for: every run of pytest loads the plugin, which is a module of this package.
_MODULES = {
    "CountingTokens": "clock",
    "Crash": "errors",
    "Delivered": "invoking",
    "Diagnosis": "diagnosis",
    "Director": "points",
    "Effect": "memory",
    "EffectFailed": "errors",
    "EffectRecorder": "recorder",
    "Environment": "world",
    "Finding": "diagnosis",
    "FrozenClock": "clock",
    "Handler": "subject",
    "LambdaContext": "clock",
    "Letter": "mailbox",
    "Move": "points",
    "NeverSettled": "errors",
    "NotEffectivelyOnce": "errors",
    "Parts": "subject",
    "Point": "points",
    "Report": "report",
    "Result": "report",
    "Worker": "process",
    "envelope": "events",
    "environment": "ground",
    "prove_consumer": "proving",
    "prove_effectively_once": "proving",
    "queue_arn": "events",
    "sqs_event": "events",
    "sqs_record": "events",
}


def __getattr__(name: str) -> Any:
    """Return a public name; its module is loaded now."""
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
