"""Where the downstream key of a call is: in the parameter of a name, or where a function of the caller's finds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Protocol

from onceq.errors import ConfigurationError
from onceq.settings import require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
        return _Found(key)
    require(
        isinstance(key, str) and key != "",
        "EffectRecorder(key=…): key= is the name of the parameter that takes the downstream key, or a function that "
        f"gets a call's arguments and returns the key, not {key!r}: key='request_id', or key=lambda url, **named: …",
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
        return replace(asked, arguments=tuple(arguments), named=named, key=_text(given))


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
        return replace(asked, key=_text(given))


def _text(key: object) -> str | None:
    return None if key is None else str(key)
