"""What a job receives beside its payload."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from onceq.codec import encode
from onceq.effects import Effects, Sending
from onceq.keys import check_effect_name
from onceq.message import Message
from onceq.record import Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from datetime import timedelta

    from onceq.job_type import JobType
    from onceq.transaction import Transaction

R = TypeVar("R")
JOB_LOGGER = "onceq.job"


@dataclass(frozen=True)
class Context:
    """One attempt at a job, as the job sees it. The framework makes it; every field has a default, for unit tests.

    Args:
        job_type: The job type's oldest name, which stored and downstream keys use.
        key: The idempotency key.
        attempt: Which start of the job this is, from 1.
        fencing_token: Rises with every attempt; give it to stores of your own, which refuse lower ones.
        message: The message that this attempt came from.
        seconds_left: Tells the seconds left.
        effects: What this attempt records and stages.

    Example:
        >>> Context(key="o-1").attempt
        1
    """

    __onceq_context__: ClassVar[bool] = True

    job_type: str = "job"
    key: str = "key"
    attempt: int = 1
    fencing_token: int = 1
    message: Message = field(default_factory=lambda: Message(None, None))
    seconds_left: Callable[[], float] = lambda: float("inf")
    effects: Effects = field(default_factory=Effects, repr=False, compare=False)

    def remaining(self) -> float:
        """Return the seconds this attempt may still take: until its ``max_duration``, or until Lambda stops us."""
        return self.seconds_left()

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose every line carries the job type, key and attempt."""
        extra = {"job_type": self.job_type, "idempotency_key": self.key, "attempt": self.attempt}
        return _JobLogger(logging.getLogger(JOB_LOGGER), extra)

    def idempotency_key_for(self, name: str) -> str:
        """Return the key to give to a service that this job calls: the same on every attempt.

        Made of the job's own key, never of what is bought by whom and when: two real orders of one customer on one
        day are two charges, and a retry after midnight is still the first one.

        A service forgets keys (Stripe after 24 hours or more: https://docs.stripe.com/api/idempotent_requests). With
        ``@job(downstream_key_lifetime=…)`` a later attempt does not get the key of an effect that may have happened
        before that: the job becomes uncertain, and waits for a person.

        Args:
            name: Names the effect inside the job, for example ``"charge"``.

        Returns:
            At most 255 characters of ASCII: the name and a SHA-256 over job type, key and name. Different jobs and
            different names never share one. (Stripe takes 255: https://docs.stripe.com/api/idempotent_requests)

        Raises:
            ValueError: If the name is empty, longer than 100, or holds more than letters, digits, ``_``, ``.``, ``-``.
            StepUncertain: If the service may have forgotten the key, and no step of that name is done.

        Example:
            >>> ctx = Context("process_payment", "o-1")
            >>> ctx.idempotency_key_for("charge") == ctx.idempotency_key_for("charge")
            True
        """
        name = check_effect_name(name)
        digest = hashlib.sha256(encode([self.job_type, self.key, name]).encode()).hexdigest()
        self.effects.use_key(name)
        return f"{name}-{digest}"

    def step(
        self,
        name: str,
        function: Callable[..., R],
        /,
        *args: Any,
        semantics: Semantics = Semantics.AT_LEAST_ONCE,
        **kwargs: Any,
    ) -> R:
        """Run an effect once it is needed, and record its result: later attempts get the result and do not run it.

        Between the effect and its record a process may still die, and then the effect is attempted again. So give the
        service that it calls a key (`idempotency_key_for`); where it takes none, say ``Semantics.AT_MOST_ONCE``: then
        "started" is recorded first, and a step that was started and is not known to have ended makes the job uncertain.

        Args:
            name: Names the step inside the job; each name once.
            function: The effect; its result must be JSON. An ``async def`` one gives an awaitable.
            args: What it gets.
            semantics: What a crash in the middle of it means.
            kwargs: What it gets by name.

        Returns:
            What it returned, as it is stored: plain JSON values, the same on every attempt.

        Raises:
            StepRefused: If the name was used before in this attempt, or the job's steps are too large together.
            ValueError: If the name holds more than letters, digits, ``_``, ``.``, ``-``.
            StepUncertain: A signal: if the step was started before and nobody knows how it ended, if an at-most-once
                step failed, or if the result cannot be stored (32 KB, ``ONCEQ_RESULT_LIMIT``). It is then recorded as
                done, and the job waits for a person.
            StepNotRecorded: A signal: if the claims table did not answer.
            ClaimLost: A signal: if somebody else took the job over.

        Example:
            >>> ctx = Context("process_payment", "o-1")
            >>> ctx.step("charge", lambda cents: {"id": "ch_1", "cents": cents}, 500)["id"]
            'ch_1'
        """
        result: R = self.effects.steps.run(name, partial(function, *args, **kwargs), semantics)
        return result

    @property
    def transaction(self) -> Transaction:
        """DynamoDB writes that happen once, with this job's completion, or not at all (guarantee G7).

        Inside a step nothing is staged (`TransactionRefused`): a later attempt does not call the step's function again.

        Example:
            >>> ctx = Context()
            >>> ctx.transaction.write({"Delete": {"TableName": "Carts", "Key": {"id": {"S": "c-1"}}}})
            >>> len(ctx.transaction.writes)
            1
        """
        return self.effects.transaction

    def send(
        self,
        job_type: JobType[..., Any] | str,
        payload: Any,
        *,
        key: str | int | None = None,
        delay: float | timedelta = 0,
        group: str | None = None,
        queue: str | None = None,
    ) -> str:
        """Send another job, if and only if this one completes (guarantee G8).

        The message is written to the outbox with the completion and sent at the end of the batch, or by the relay
        within a minute or two.

        Args:
            job_type: The job type, or its name.
            payload: What the job gets.
            key: The idempotency key. Without it the job type's ``key=`` derives one; failing that it is made of this
                job's key and of how many messages this job has sent before.
            delay: Seconds (or a ``timedelta``) until it is delivered; any length, on a FIFO queue too.
            group: The message group: needed on a FIFO queue.
            queue: Name of the queue; without it the job type's.

        Returns:
            The idempotency key.

        Raises:
            EnqueueRefused: If SQS, DynamoDB or the job type would refuse it.
            TransactionRefused: If the transaction has no room for it, or inside a step.
            ConfigurationError: If the job type, the queue or the outbox table is not known.
            BucketError: If the payload is too large for the outbox, and S3 did not take it.

        Example:
            >>> ctx = Context()
            >>> ctx.send("send_receipt", {"order_id": "o-1"}, key="o-1")
            'o-1'
            >>> [sending.job_type for sending in ctx.sent]
            ['send_receipt']
        """
        return self.effects.send(job_type, payload, key=key, delay=delay, group=group, queue=queue)

    @property
    def sent(self) -> list[Sending]:
        """What this attempt has staged to be sent, in order."""
        return list(self.effects.sent)


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's fields and keeps those of the call."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs
