"""onceq: an AWS serverless SQS consumer framework; each job's effect happens effectively once.

Write plain functions in ``src/jobs/``, compose them in ``src/app.py``, run ``sam deploy``. This package is the
framework: it is replaced as a whole on upgrade, so do not edit it; everything else in the repository is yours.

Read ``executor`` first: the life of one message, on one page.
"""

from __future__ import annotations

from onceq.application import App
from onceq.codec import ResultNotStored
from onceq.context import Context
from onceq.errors import (
    ClaimLost,
    ConfigurationError,
    EnqueueFailed,
    EnqueueRefused,
    IdempotencyKeyError,
    LockBusy,
    OnceqError,
    PayloadError,
    Reject,
    Retry,
    Snooze,
    StoreError,
)
from onceq.job_type import JobType, job
from onceq.keys import join_key
from onceq.powertools import PowertoolsHook
from onceq.producer import Enqueued, Producer
from onceq.record import Semantics
from onceq.retry import Backoff
from onceq.sealing import Entry
from onceq.settings import Settings
from onceq.status import JobStatus
from onceq.telemetry import Event

__all__ = [
    "App",
    "Backoff",
    "ClaimLost",
    "ConfigurationError",
    "Context",
    "EnqueueFailed",
    "EnqueueRefused",
    "Enqueued",
    "Entry",
    "Event",
    "IdempotencyKeyError",
    "JobStatus",
    "JobType",
    "LockBusy",
    "OnceqError",
    "PayloadError",
    "PowertoolsHook",
    "Producer",
    "Reject",
    "ResultNotStored",
    "Retry",
    "Semantics",
    "Settings",
    "Snooze",
    "StoreError",
    "job",
    "join_key",
]

__version__ = "0.1.0"
