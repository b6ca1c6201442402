"""What a job receives beside its payload."""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from onceq.codec import encode
from onceq.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

_STEP_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
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

        Args:
            name: Names the effect inside the job, for example ``"charge"``.

        Returns:
            At most 255 characters of ASCII: the name and a SHA-256 over job type, key and name. Different jobs and
            different names never share one. (Stripe takes 255: https://docs.stripe.com/api/idempotent_requests)

        Raises:
            ValueError: If the name is empty, longer than 100, or holds more than letters, digits, ``_``, ``.``, ``-``.

        Example:
            >>> ctx = Context("process_payment", "o-1")
            >>> ctx.idempotency_key_for("charge") == ctx.idempotency_key_for("charge")
            True
        """
        if not isinstance(name, str) or not _STEP_NAME.fullmatch(name):
            message = f"the effect's name {name!r}: give 1 to 100 letters, digits, '_', '.' or '-'"
            raise ValueError(message)
        digest = hashlib.sha256(encode([self.job_type, self.key, name]).encode()).hexdigest()
        return f"{name}-{digest}"


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's fields and keeps those of the call."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs
