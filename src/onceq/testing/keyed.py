"""Where the downstream key of a call is: in the parameter of a name, or where a function of the caller's finds it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import Parameter
from numbers import Number
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from onceq.errors import ConfigurationError
from onceq.settings import require

if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature

KEY = "idempotency_key"
BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Asked:
    """What one call asks of a provider.

    Args:
        function: The function's name.
        arguments: What it gets in order.
        named: What it gets by name.
        signature: What its original takes, if that is known.
        key: The downstream key that came with it; ``None`` if there was none, or nobody looked.
    """

    function: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    signature: Signature | None = None
    key: str | None = None

    @property
    def compared(self) -> list[Any]:
        """What a provider compares: all but headers with the key among them, which say more than what is asked."""
        named = {name: value for name, value in self.named.items() if not self._is_headers(value)}
        return [[None if self._is_headers(value) else value for value in self.arguments], named]

    def _is_headers(self, value: object) -> bool:
        if self.key is None or not isinstance(value, Mapping):
            return False
        texts = [one for one in value.values() if isinstance(one, str | bytes)]
        return len(texts) == len(value) and any(_written(one) == self.key for one in texts)


class Keyed(Protocol):
    """Finds the downstream key of a call."""

    def __call__(self, asked: Asked, /) -> Asked:
        """Return the call with its key: what is left is what a provider compares."""


def keyed(key: str | Callable[..., object]) -> Keyed:
    """Return what finds the downstream keys, by what was given as ``key=``.

    Raises:
        ConfigurationError: If that is neither a name nor a function.
    """
    if callable(key):
        told = "EffectRecorder(key=…): key= is a coroutine function: give one that is not `async def`"
        require(not inspect.iscoroutinefunction(key), told)
        return _Found(key)
    require(
        isinstance(key, str) and key != "",
        "EffectRecorder(key=…): key= is the name of the parameter that takes the downstream key, or a function that "
        f"gets a call's arguments and returns the key, not {key!r}: key='request_id', or key=lambda url, **named: …",
    )
    require(
        key.isidentifier(),
        f"EffectRecorder(key=…): key={key!r} is no name of a parameter: for a header give the function that finds it, "
        f"key=lambda url, *, headers, **_: headers.get({key!r})",
    )
    return _Named(key)


@dataclass(frozen=True, slots=True)
class _Named:
    """Takes the key out of what the call gets, by the name of its parameter."""

    name: str

    def __call__(self, asked: Asked) -> Asked:
        parameters = () if asked.signature is None else asked.signature.parameters.values()
        places = [one.name for one in parameters if one.kind in BY_PLACE]
        arguments, named = [*asked.arguments], {**asked.named}
        given = named.pop(self.name, None)
        if self.name in places[: len(arguments)]:
            given = arguments.pop(places.index(self.name))
        return replace(asked, arguments=tuple(arguments), named=named, key=_text(given, asked.function))


@dataclass(frozen=True, slots=True)
class _Found:
    """Lets a function look for the key, wherever it is in what the call gets, and leaves it there."""

    look: Callable[..., object]

    def __call__(self, asked: Asked) -> Asked:
        try:
            given = self.look(*asked.arguments, **asked.named)
        except Exception as error:
            message = (
                f"EffectRecorder(key=…) raised {type(error).__name__}: {error} for a call of {asked.function}. Let it "
                "take whatever the recorder's functions are called with, and return None where a call has no key "
                "(headers.get(…)); a function that only looks something up belongs into reads="
            )
            raise ConfigurationError(message) from error
        return replace(asked, key=_text(given, asked.function))


def _text(key: object, function: str) -> str | None:
    """Return what a provider gets as a key; ``None`` for nothing, and for a text without a character."""
    if key is None:
        return None
    is_written = isinstance(key, str | bytes | Number | UUID) and not isinstance(key, bool)
    require(
        is_written,
        f"the key of a call of {function} is {key!r}, neither a text nor a number: give what the provider gets, for "
        "example ctx.idempotency_key_for('charge')",
    )
    return _written(key) or None


def _written(key: object) -> str:
    return key.decode(errors="replace") if isinstance(key, bytes) else str(key)
