"""A job type: a plain function with a stable name, and how its jobs are run.

`job` makes a plain value; nothing is registered anywhere. The closed set that an `onceq.App` serves is in
`onceq.catalogue`.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, ParamSpec, TypeVar

from onceq.codec import fingerprint, fit, fits_json
from onceq.errors import ConfigurationError, IdempotencyKeyError, PayloadError
from onceq.keys import check_key, join_key
from onceq.record import Semantics
from onceq.retry import Backoff
from onceq.selector import Selector, check_expression, select
from onceq.settings import require
from onceq.source import Source

P = ParamSpec("P")
R = TypeVar("R")

NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}")
# Twelve hours are the longest that SQS hides a message, and Lambda stops far below.
LONGEST_DURATION = 43_200
# SQS moves a message away by itself after 100 receives (template.yaml), and deferrals are receives too.
MOST_ATTEMPTS = 90
DEFAULT_RETENTION = timedelta(days=60)


class _All:
    """The whole payload.

    Example:
        >>> job("measure")(len).fingerprint
        ALL
    """

    def __repr__(self) -> str:
        return "ALL"


ALL = _All()


@dataclass(frozen=True)
class JobType(Generic[P, R]):
    """A function with a stable name, and how its jobs are run. Make one with `job`.

    Calling it calls the plain function, so a unit test needs no framework.

    Example:
        >>> @job("greet", max_attempts=3)
        ... def greet(payload: dict) -> str:
        ...     return "Hello " + payload["name"]
        >>> greet.name, greet.max_attempts, greet({"name": "Ada"})
        ('greet', 3, 'Hello Ada')
    """

    function: Callable[P, R]
    name: str
    queue: str = "default"
    formerly: tuple[str, ...] = ()
    key: Selector | None = None
    fingerprint: Selector | _All | None = ALL
    max_attempts: int = 5
    max_duration: float | None = None
    backoff: Backoff = field(default_factory=Backoff)
    reject: tuple[type[Exception], ...] = ()
    retention: timedelta = DEFAULT_RETENTION
    semantics: Semantics = Semantics.AT_LEAST_ONCE
    lock: str | Callable[[Any], str] | None = None
    downstream_key_lifetime: float | None = None
    source: Source | None = None

    def __post_init__(self) -> None:
        """Check every option, so that a mistake shows at import and not at the first message.

        Raises:
            ConfigurationError: Naming the option and what it takes.
        """
        require(isinstance(self.formerly, tuple), f"{self.name}: formerly={self.formerly!r}: give a tuple of names")
        for name in (self.name, *self.formerly):
            require(
                isinstance(name, str) and NAME.fullmatch(name) is not None,
                f"job type name {name!r}: give lower-case letters, digits, '_', '.' and '-', a letter first",
            )
        require(callable(self.function), f"job type {self.name!r} needs a function")
        require(
            not inspect.isgeneratorfunction(self.function) and not inspect.isasyncgenfunction(self.function),
            f"{self.name}: its function is a generator, whose body a call does not run: return the result instead",
        )
        require(
            isinstance(self.max_attempts, int)
            and 1 <= self.max_attempts <= MOST_ATTEMPTS
            and self.max_attempts is not True,
            f"{self.name}: max_attempts={self.max_attempts!r}: give a whole number from 1 to {MOST_ATTEMPTS}",
        )
        require(
            self.max_duration is None
            or (isinstance(self.max_duration, int | float) and 0 < self.max_duration <= LONGEST_DURATION),
            f"{self.name}: max_duration={self.max_duration!r}: give seconds above 0, the worst case of one attempt",
        )
        require(
            isinstance(self.retention, timedelta) and self.retention >= timedelta(seconds=1),
            f"{self.name}: retention={self.retention!r}: give a timedelta of a second or more",
        )
        require(
            isinstance(self.reject, tuple)
            and all(isinstance(error, type) and issubclass(error, Exception) for error in self.reject),
            f"{self.name}: reject={self.reject!r}: give a tuple of exception classes",
        )
        require(
            isinstance(self.semantics, Semantics),
            f"{self.name}: semantics={self.semantics!r}: give Semantics.AT_LEAST_ONCE or Semantics.AT_MOST_ONCE",
        )
        require(
            self.lock is None or callable(self.lock) or (isinstance(self.lock, str) and self.lock.strip() != ""),
            f"{self.name}: lock={self.lock!r}: give the lock's name, or a function of the payload that returns it",
        )
        if isinstance(self.lock, str):
            try:
                check_key(self.lock, "the lock's name")
            except IdempotencyKeyError as error:
                raise ConfigurationError(f"{self.name}: {error}") from error
        require(
            self.downstream_key_lifetime is None
            or (isinstance(self.downstream_key_lifetime, int | float) and self.downstream_key_lifetime > 0),
            f"{self.name}: downstream_key_lifetime={self.downstream_key_lifetime!r}: give seconds above 0",
        )
        require(
            self.source is None or isinstance(self.source, Source),
            f"{self.name}: source={self.source!r}: give one of onceq.source, for example source.s3()",
        )
        require(
            self.source is None or not self.source.takes_all or (self.key or self.source.key) is not None,
            f"{self.name}: source.plain() and source.sns(raw=True) know no key: declare key= here or there",
        )
        require(isinstance(self.backoff, Backoff), f"{self.name}: backoff={self.backoff!r}: give a Backoff")
        named = isinstance(self.queue, str) and self.queue != ""
        require(named, f"{self.name}: queue={self.queue!r}: give a queue's name")
        for option, selector in (("key", self.key), ("fingerprint", self.fingerprint)):
            require(
                selector is None or isinstance(selector, str | _All) or callable(selector),
                f"{self.name}: {option}={selector!r}: give a callable or a JMESPath expression",
            )
            if isinstance(selector, str):
                check_expression(f"{self.name}: {option}", selector)
        _ = self._parameters
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            object.__setattr__(self, name, getattr(self.function, name, None))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function."""
        return self.function(*args, **kwargs)

    @property
    def storage_name(self) -> str:
        """The oldest name: records and downstream keys use it, so a rename never runs a job again."""
        return self.formerly[-1] if self.formerly else self.name

    def invoke(self, payload: Any, context: Any) -> Any:
        """Call the function with what its parameters ask for."""
        payload_type, takes_context = self._parameters
        arguments = ([] if payload_type is None else [payload]) + ([context] if takes_context else [])
        return self.function(*arguments)  # type: ignore[call-arg]  # the signature was read from the function itself

    def load(self, payload: Any) -> Any:
        """Return decoded JSON as the type that the payload parameter declares.

        Raises:
            PayloadError: If it does not fit.
        """
        payload_type = self._parameters[0]
        return payload if payload_type is None else fit(payload, payload_type)

    def key_of(self, payload: Any, loaded: Any) -> str:
        """Derive the idempotency key from a payload.

        Args:
            payload: The payload as JSON, which a JMESPath expression reads.
            loaded: The payload as its type, which a callable reads.

        Raises:
            IdempotencyKeyError: If the job type declares no key, or it selects nothing usable.
        """
        if self.key is None:
            message = f"no idempotency key: stamp one (onceq's producer does) or declare key= on {self.name!r}"
            raise IdempotencyKeyError(message)
        called = f"key= of {self.name!r}"
        selected = select(self.key, payload, loaded, called=called, error_type=IdempotencyKeyError)
        parts = selected if isinstance(selected, tuple | list) else (selected,)
        if any(part is None for part in parts):
            called = f"key={self.key!r} of {self.name!r}" if isinstance(self.key, str) else called
            what = "nothing" if selected is None else "not all of its parts"
            raise IdempotencyKeyError(f"{called} selects {what} in the payload")
        return join_key(*selected) if isinstance(selected, tuple | list) else check_key(selected)

    def fingerprint_of(self, payload: Any, loaded: Any) -> str | None:
        """Return the payload fingerprint, or ``None`` where the comparison is off.

        Raises:
            PayloadError: If what is selected cannot be encoded.
        """
        if self.fingerprint is None:
            return None
        if isinstance(self.fingerprint, _All):
            return fingerprint(payload if self.source is None else self.source.compared_in(payload))
        called = f"fingerprint= of {self.name!r}"
        return fingerprint(select(self.fingerprint, payload, loaded, called=called, error_type=PayloadError))

    def lock_of(self, loaded: Any) -> str | None:
        """Return the name of the lock that a job with this payload needs, if any.

        Raises: MessageError, if ``lock=`` raised or names none.
        """
        if self.lock is None or isinstance(self.lock, str):
            return self.lock
        called = f"lock= of {self.name!r}"
        return check_key(select(self.lock, None, loaded, called=called), called)

    @cached_property
    def _parameters(self) -> tuple[Any, bool]:
        """The payload's type (``None`` without a payload parameter), and whether the context is asked for."""
        try:
            signature = inspect.signature(self.function)
            hints = typing.get_type_hints(self.function)
        except (NameError, AttributeError, TypeError, ValueError) as error:
            message = (
                f"{self.name}: the annotations of its function cannot be read ({error}): "
                "import what they name outside `if TYPE_CHECKING:`"
            )
            raise ConfigurationError(message) from error
        payload: list[Any] = []
        takes_context = False
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            hint = hints.get(parameter.name, Any)
            # `Context | None` too: a unit test calls the plain function without one.
            is_context = any(getattr(one, "__onceq_context__", False) for one in (hint, *typing.get_args(hint)))
            is_context = is_context or (hint is Any and parameter.name in ("ctx", "context"))
            require(
                not takes_context and not (payload and not is_context) and parameter.kind is not parameter.KEYWORD_ONLY,
                f"{self.name}: a job takes a payload and then, if it wants it, `ctx: Context`; not {signature}",
            )
            if is_context:
                takes_context = True
            else:
                payload.append(hint)
        for hint in payload:
            require(
                fits_json(hint),
                f"{self.name}: no JSON can become a {getattr(hint, '__name__', hint)}: "
                "annotate the payload as a dict, a dataclass, a TypedDict, a msgspec Struct or a pydantic model",
            )
        return (payload[0] if payload else None), takes_context


def job(
    name: str,
    *,
    queue: str = "default",
    formerly: Iterable[str] = (),
    key: Selector | None = None,
    fingerprint: Selector | _All | None = ALL,
    max_attempts: int = 5,
    max_duration: float | None = None,
    backoff: Backoff = Backoff(),  # noqa: B008 - frozen
    reject: Iterable[type[Exception]] = (),
    semantics: Semantics = Semantics.AT_LEAST_ONCE,
    lock: str | Callable[[Any], str] | None = None,
    retention: timedelta = DEFAULT_RETENTION,
    downstream_key_lifetime: float | timedelta | None = None,
    source: Source | None = None,
) -> Callable[[Callable[P, R]], JobType[P, R]]:
    """Make a job type of a function.

    Args:
        name: Its stable name, stored in records and messages; never the function's own, which you may rename.
        queue: Name of the queue its jobs are sent to.
        formerly: Earlier names, the oldest last; messages and records under them still count.
        key: Selects the idempotency key from messages that no onceq producer made: a callable over the typed payload,
            or a JMESPath expression over its JSON. Several parts (a tuple or list) are joined without collisions.
        fingerprint: What of the payload must agree between duplicates: all of it, what a callable or a JMESPath
            expression selects, or ``None`` to compare nothing.
        max_attempts: Starts after which a failing job is rejected.
        max_duration: The realistic worst case of one attempt, in seconds. A job is not started when less time remains;
            an ``async def`` job is cancelled at it. Without it a job is started while at least 5 s remain.
        backoff: When a failed job runs again.
        reject: Exception classes that are permanent: a job that raises one is rejected at once.
        semantics: With ``AT_MOST_ONCE`` the job is never started again, except by its own ``Retry`` or ``Snooze`` or a
            person: an attempt that dies, or fails, leaves it uncertain.
        lock: Name of a lock that the job holds while it runs, or a function of the payload. It saves work and proves
            nothing (`onceq.App.lock`): a job that does not get it comes back later, unstarted.
        retention: How long an ended job is remembered, so that duplicates are recognised.
        downstream_key_lifetime: For how long the services that the job calls remember its keys, in seconds or as a
            ``timedelta`` (Stripe at least 24 hours). A later attempt whose keyed effect is still open goes to a person.
        source: Which messages of other services on its queue it takes (`onceq.source`).

    Returns:
        A decorator that makes a `JobType`; calling it calls the plain function.

    Raises:
        ConfigurationError: If an option cannot be used.

    Example:
        >>> @job("greet", max_attempts=3)
        ... def greet(payload: dict) -> str:
        ...     return "Hello " + payload["name"]
        >>> greet({"name": "Ada"})
        'Hello Ada'
    """
    above = getattr(name, "__name__", name)
    require(not callable(name), f'write @job("a_stable_name") above {above}: a job type needs a name')
    if isinstance(downstream_key_lifetime, timedelta):
        downstream_key_lifetime = downstream_key_lifetime.total_seconds()

    def decorate(function: Callable[P, R]) -> JobType[P, R]:
        return JobType(
            function,
            name,
            queue=queue,
            formerly=_tuple(formerly),
            key=key,
            fingerprint=fingerprint,
            max_attempts=max_attempts,
            max_duration=max_duration,
            backoff=backoff,
            reject=_tuple(reject),
            semantics=semantics,
            lock=lock,
            retention=retention,
            downstream_key_lifetime=downstream_key_lifetime,
            source=source,
        )

    return decorate


def _tuple(values: Any) -> Any:
    # A lone string or class is left as it is, for `JobType` to refuse: its letters are no names.
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str | type) else values
