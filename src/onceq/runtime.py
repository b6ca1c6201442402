"""What a process makes once, at the first use and not at import: settings, one client a service, one event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onceq.clock import OpenDeadline, SystemClock, TokenFactory
from onceq.errors import ConfigurationError
from onceq.locks import Locks
from onceq.outbox import Outbox
from onceq.settings import Settings
from onceq.store import Store
from onceq.telemetry import LOGGER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceq.bucket import Bucket
    from onceq.clock import Clock, Deadline
    from onceq.dynamodb import DynamoDB
    from onceq.queue import Queue


class Runtime:
    """The parts that an `onceq.App` and a `onceq.Producer` work with."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        tokens: TokenFactory | None = None,
        clients: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what is given; the environment is read for the rest at the first use.

        Args:
            settings: Instead of the environment's.
            clock: The time.
            tokens: Where tokens come from.
            clients: botocore clients to share, by service: ``dynamodb``, ``sqs`` and ``s3``.
        """
        self._clients = clients or {}
        self.clock: Clock = clock or SystemClock()
        self.tokens = tokens or TokenFactory(self.clock)
        self._given = settings
        # Clients are made under a lock: botocore's client creation is not safe to race in (botocore issue 619).
        self._lock = threading.RLock()

    @property
    def settings(self) -> Settings:
        """The settings, read once."""
        with self._lock:
            return self._settings

    def store(self, deadline: Deadline) -> Store:
        """Return the claims table, its retries bounded by a deadline.

        Raises:
            ConfigurationError: If no claims table is named.
        """
        settings = self.settings
        if not settings.claims_table:
            message = "ONCEQ_CLAIMS_TABLE is not set: name the claims table (template.yaml does)"
            raise ConfigurationError(message)
        with self._lock:
            return Store(self._dynamodb, settings.claims_table, deadline)

    def locks(self, deadline: Deadline) -> Locks:
        """Return the locks, which stand in the claims table. Raises: ConfigurationError, if none is named."""
        store = self.store(deadline)
        return Locks(store.dynamodb, store.table, deadline)

    def outbox(self, deadline: Deadline) -> Outbox:
        """Return the outbox table, its retries bounded by a deadline; where none is named, nothing is staged in it."""
        with self._lock:
            return Outbox(self._dynamodb, self.settings.outbox_table, deadline)

    def queue(self, deadline: Deadline) -> Queue:
        """Return the seam to SQS, its retries bounded by a deadline."""
        with self._lock:
            return self._queue.within(deadline)

    def bucket(self, deadline: Deadline) -> Bucket:
        """Return the seam to S3, its retries bounded by a deadline."""
        with self._lock:
            return self._bucket.within(deadline)

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop that ``async def`` jobs run on, in a thread of its own."""
        with self._lock:
            return self._loop

    @cached_property
    def _settings(self) -> Settings:
        return self._given if self._given is not None else Settings.from_env(os.environ)

    @cached_property
    def _dynamodb(self) -> DynamoDB:
        from onceq.dynamodb import DynamoDB  # noqa: PLC0415 - a producer needs none

        return DynamoDB(self.clock, self.tokens, **self._shared("dynamodb"))

    @cached_property
    def _queue(self) -> Queue:
        from onceq.queue import Queue  # noqa: PLC0415 - beside the DynamoDB one

        return Queue(self.clock, self.tokens, OpenDeadline(), **self._shared("sqs"))

    @cached_property
    def _bucket(self) -> Bucket:
        from onceq.bucket import Bucket  # noqa: PLC0415 - most applications have no large messages

        return Bucket(self.clock, self.tokens, OpenDeadline(), **self._shared("s3"))

    def _shared(self, service: str) -> dict[str, Any]:
        return {"connections": self.settings.concurrency, "client": self._clients.get(service)}

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=_run_for_ever, args=[loop], name="onceq-loop", daemon=True).start()
        return loop


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        try:
            loop.run_forever()
        except BaseException:
            # A task that a job made raised SystemExit, which asyncio lets out of the loop: the other jobs go on.
            logging.getLogger(LOGGER).exception("loop.interrupted")
