"""What a stand-in has of what it stands in for: its names, parameters, coroutines, exceptions and constants."""

from __future__ import annotations

import inspect
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, Union, get_args, get_origin, get_type_hints

from onceq.errors import ConfigurationError
from onceq.intrinsics import suggestion
from onceq.settings import require
from onceq.testing.keyed import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Constants of what is stood in for.
PLAIN = (str, bytes, int, float, tuple, frozenset, list, dict, Enum)
# What a stand-in that is called itself is named by.
ITSELF = "effect"


class Call(Protocol):
    """Writes a call down and answers it."""

    def __call__(self, asked: Asked, /) -> Any:
        """Take a call that has its key still in it, if it has one."""


class Part:
    """Stands in for one thing; it has no names of its own beside those of what it stands in for.

    Args:
        call: Writes down what it is asked.
        told: Gives a function its name there.
        like: What it stands in for.
    """

    __slots__ = ("_call", "_like", "_told")

    def __init__(self, call: Call, told: Callable[[str], str], like: Any) -> None:
        """Stand in for it."""
        self._call = call
        self._told = told
        self._like = like

    def __getattr__(self, name: str) -> Any:
        """Return a function that is an effect, or what else has that name. Raises: AttributeError, if nothing has."""
        if name.startswith("__"):
            raise AttributeError(name)
        return member(self._like, name, self._told(name), self._call)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Be an effect itself."""
        return self._call(Asked(self._told(ITSELF), arguments, named))


def member(like: Any, name: str, told: str, call: Call) -> Any:
    """Return what stands in for something of that name.

    Args:
        like: What has it; ``None`` where everything is a function.
        name: Its name there.
        told: Its name in what is written down.
        call: Writes a call down and answers it.

    Raises:
        AttributeError: If there is none: then it is a mistake of the job's.
    """
    if like is None:
        return lambda *arguments, **named: call(Asked(told, arguments, named))
    original = getattr(like, name)
    if isinstance(original, PLAIN) or (isinstance(original, type) and issubclass(original, BaseException)):
        return original
    if not inspect.isroutine(original):
        return Part(call, lambda inner: f"{told}.{inner}", original)
    # Of a class the functions have a parameter more than their callers give.
    signature = None if isinstance(like, type) else _signature(original)

    def called(*arguments: Any, **named: Any) -> Any:
        if signature is not None:
            _bind(signature, told, arguments, named)
        return call(Asked(told, arguments, named, signature))

    async def awaited(*arguments: Any, **named: Any) -> Any:
        return called(*arguments, **named)

    return awaited if inspect.iscoroutinefunction(original) else called


def check_names(option: str, names: Iterable[str], like: Any) -> None:
    """Raise if what is stood in for has no such functions.

    Args:
        option: What the names were given as, with room for a name.
        names: The names, of something inside of it with a dot.
        like: What is stood in for.

    Raises:
        ConfigurationError: Naming the first that it lacks, and one that is near.
    """
    for name in names:
        owner = like
        for part in name.split("."):
            if part == ITSELF and callable(owner):
                continue
            try:
                owner = getattr(owner, part)
            except AttributeError:
                known = [one for one in dir(owner) if not one.startswith("_")]
                message = f"{option.format(name)}: {named_as(like)} has no {name!r}{suggestion(part, known)}"
                raise ConfigurationError(message) from None
        is_function = inspect.isroutine(owner) or (name.endswith(ITSELF) and callable(owner))
        require(is_function, f"{option.format(name)}: {name!r} of {named_as(like)} is no function")


def check_own(own: Iterable[str], like: Any) -> None:
    """Raise if what is stood in for has names that the stand-in has itself.

    Raises:
        ConfigurationError: Naming them, and a way round.
    """
    # Not by `hasattr`: a mock, or a proxy, has whatever it is asked for.
    has = [name for name in own if inspect.getattr_static(like, name, None) is not None]
    told = " and ".join(has)
    require(
        not has,
        f"EffectRecorder(like=…): {named_as(like)} has {told}, and so has the recorder itself: the job would call the "
        "wrong one. Let it stand in for something that holds it, EffectRecorder(like=SimpleNamespace(gateway=…)), "
        "and put its .gateway in the place",
    )


def check_answer(name: str, answer: Any, like: Any) -> None:
    """Raise if a function is answered with nothing whose annotation says that it returns something.

    Raises:
        ConfigurationError: Naming the function.
    """
    if answer is not None or like is None:
        return
    original = like
    with suppress(AttributeError):
        for part in name.split("."):
            original = getattr(original, part)
        returned = _hints(original).get("return", Any)
        require(
            _may_be_none(returned),
            f"the answer of {name} is None, and {named_as(like)}'s returns {returned}: did its function forget a "
            "return?",
        )


def _hints(function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except Exception:  # noqa: BLE001 - annotations may name what is imported for type checkers alone
        return {}


def _may_be_none(hint: Any) -> bool:
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        return any(_may_be_none(one) for one in get_args(hint))
    is_class = isinstance(hint, type) or isinstance(get_origin(hint), type)
    return hint in (type(None), object, Any) or not is_class


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # one that is written in C
        return None


def _bind(signature: inspect.Signature, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    try:
        signature.bind(*arguments, **named)
    except TypeError as error:
        message = f"{name}(){signature} cannot be called so: {error}"
        raise TypeError(message) from None


def named_as(like: Any) -> str:
    """Return the name of what is stood in for, or of its class."""
    return str(getattr(like, "__name__", None) or type(like).__name__)
