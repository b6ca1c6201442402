"""What a stand-in has of what it stands in for: its names, parameters, coroutines, exceptions and constants."""

from __future__ import annotations

import inspect
from contextlib import suppress
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Union, get_args, get_origin, get_type_hints

from onceq.errors import ConfigurationError
from onceq.intrinsics import suggestion
from onceq.settings import require
from onceq.testing.keyed import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# Constants of what is stood in for.
PLAIN = (str, bytes, int, float, tuple, frozenset, list, dict, Enum)
# What a stand-in that is called itself is named by.
ITSELF = "effect"
# How deep functions are looked for in what is stood in for; what is deeper may take any parameter.
DEEPEST = 3


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
    signatures = _signatures_of(like, name, original)

    def called(*arguments: Any, **named: Any) -> Any:
        return call(Asked(told, arguments, named, _bound(signatures, told, arguments, named)))

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


def check_key(option: str, key: str, likes: Mapping[str, Any]) -> None:
    """Raise if no function of what is stood in for has a parameter of that name.

    Args:
        option: What the name was given as.
        key: The name.
        likes: What is stood in for, by what a person calls it.

    Raises:
        ConfigurationError: With a name that is near.
    """
    signatures = [signature for like in likes.values() for signature in _signatures(like, DEEPEST)]
    parameters = [one for signature in signatures if signature is not None for one in signature.parameters.values()]
    takes_any = None in signatures or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    known = {one.name for one in parameters}
    require(
        takes_any or not signatures or key in known,
        f"{option}: no function of {', '.join(likes)} takes {key!r}{suggestion(key, sorted(known))}",
    )


def _signatures(like: Any, depth: int) -> Iterator[inspect.Signature | None]:
    """Yield what can be called of something, and inside of it: ``None`` for what may take anything."""
    if inspect.isroutine(like):
        yield _signature(like)
        return
    if depth == 0 or hasattr(like if isinstance(like, type | ModuleType) else type(like), "__getattr__"):
        yield None
        return
    itself = getattr(*((like, "__init__") if isinstance(like, type) else (type(like), "__call__")), None)
    if inspect.isfunction(itself):
        yield _signature(itself)
    for name in dir(like):
        static = inspect.getattr_static(like, name, None)
        if name.startswith("_") or isinstance(static, PLAIN):
            continue
        if inspect.isdatadescriptor(static):
            yield None
            continue
        inner: Any = getattr(like, name, None)
        is_error = isinstance(inner, type) and issubclass(inner, BaseException)
        if not is_error and not _is_imported(inner, like):
            yield from _signatures(inner, depth - 1)


def _is_imported(inner: Any, like: Any) -> bool:
    """Return whether this is a module that another one uses, and no part of it."""
    both = isinstance(like, ModuleType) and isinstance(inner, ModuleType)
    return both and not inner.__name__.startswith(f"{like.__name__}.")


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


def check_whole(like: Any) -> None:
    """Raise if what is stood in for is one function, which has none itself.

    Raises:
        ConfigurationError: With the way to replace it.
    """
    name = named_as(like)
    require(
        not inspect.isroutine(like),
        f"EffectRecorder(like=…): {name} is a function: let it stand in for something that holds it, "
        f"EffectRecorder(like=SimpleNamespace({name}={name})), and put its .{name} in the place",
    )


def is_stand_in(given: object) -> bool:
    """Return whether this is what stands in for a function, or for something inside of what is stood in for."""
    return getattr(given, "__module__", None) == __name__


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


def _signatures_of(like: Any, name: str, original: Any) -> list[inspect.Signature]:
    """Return what a function takes, the likelier first: of a class it is called without its object, or with it."""
    signature = _signature(original)
    if signature is None:
        return []
    if not isinstance(like, type) or not inspect.isfunction(inspect.getattr_static(like, name, None)):
        return [signature]
    return [signature.replace(parameters=[*signature.parameters.values()][1:]), signature]


def _bound(
    signatures: list[inspect.Signature], name: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> inspect.Signature | None:
    """Return the first that can be called so. Raises: TypeError, as the original, if none can be."""
    told = []
    for signature in signatures:
        try:
            signature.bind(*arguments, **named)
        except TypeError as error:
            told.append(f"{name}(){signature} cannot be called so: {error}")
        else:
            return signature
    if told:
        raise TypeError(told[0])
    return None


def named_as(like: Any) -> str:
    """Return the name of what is stood in for, or of its class."""
    return str(getattr(like, "__name__", None) or type(like).__name__)
