"""A stand-in for what a job calls outside: it writes every call down, and remembers keys as a provider does."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from onceq.running import running_step
from onceq.settings import require
from onceq.testing.failure import Fails, check_failure, failure
from onceq.testing.keyed import KEY, Asked, keyed
from onceq.testing.likeness import (
    ITSELF,
    check_answer,
    check_key,
    check_names,
    check_own,
    check_whole,
    member,
    named_as,
)
from onceq.testing.memory import Effect, Memory
from onceq.testing.process import CURRENT
from onceq.testing.subject import JOB
from onceq.testing.timeline import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from onceq.errors import ConfigurationError

# Names that a recorder has beside those of what it stands in for.
OWN = ("call", "calls", "clear", "count", "effects")


class EffectRecorder:
    """Stands in for a gateway: every function of it is an effect that is written down, but those that only read.

    A call with ``idempotency_key=`` is answered as providers do: the first time it happens, and later calls with the
    same key get the same answer and do nothing. A call without a key happens every time.

    Example:
        >>> gateway = EffectRecorder(charge={"id": "ch_1"})
        >>> gateway.charge("cus_1", 500, idempotency_key="k-1")
        {'id': 'ch_1'}
        >>> gateway.charge("cus_1", 500, idempotency_key="k-1")
        {'id': 'ch_1'}
        >>> gateway.count("charge"), len(gateway.calls)
        (1, 2)
        >>> http = EffectRecorder(key=lambda url, *, headers, **_: headers.get("Idempotency-Key"))
        >>> http.post("https://api.example.com/charges", json={"cents": 500}, headers={"Idempotency-Key": "k-1"})
        {'id': 'post-1'}
        >>> http.effects[0].key
        'k-1'

    Its own names (``call``, ``calls``, ``clear``, ``count``, ``effects``) come before the gateway's; ``like=`` what has
    such a name, too, is refused.
    """

    def __init__(
        self,
        *,
        key: str | Callable[..., object] = KEY,
        like: Any = None,
        fails: Fails = None,
        reads: Collection[str] = (),
        answers: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        """Answer each function with what is given for it, or with ``{"id": "<name>-<number>"}``.

        Args:
            key: The name of the parameter that takes the downstream key; with ``like=`` it is found by its position,
                too. Or a function that gets a call's arguments, and returns the key or ``None``: for a key in headers
                or a body. Headers that have it are not compared from one attempt to the next.
            like: What it stands in for, for example a module: its exception classes and constants are kept, so that a
                job's ``except gateway.CardDeclined`` works, what is ``async def`` there is awaited here, and a call
                that the original's parameters do not allow is a ``TypeError`` as there.
            fails: What a scenario lets a call raise, a class of exceptions or an exception; without it a
                ``ConnectionError``. Give what your client raises when the provider does not answer, since a job that
                catches that exception alone is put on trial by no other.
            reads: Functions that only look something up, for example ``["balance"]``: answered, but no effects.
            answers: Answers by function: a value, or a callable that gets the call's arguments and may raise. A
                function inside of something is named with a dot, for example ``{"api.charge": {"status": "paid"}}``.
            named: The same, by keyword, where a function has no name of these options.

        Raises:
            ConfigurationError: If ``key`` is neither a name nor a function, ``fails`` no exception, ``key``, ``reads``
                or an answer name what ``like`` does not have, an answer is ``None`` where its function returns
                something, or given twice, or ``like`` is a function, or has one of the recorder's own names.
        """
        require(not isinstance(reads, str), f"reads= is a list of names: reads=[{reads!r}]")
        check_failure("fails=", fails)
        self._keyed = keyed(key)
        given = {} if answers is None else answers
        told = f"answers= is a mapping of names to answers, no {type(given).__name__}"
        require(isinstance(given, Mapping), f"{told}: answers={{'charge': …}}")
        for name in named:
            require(name not in given, f"{name!r} has two answers: give it in answers= or by its name")
        if like is not None:
            check_whole(like)
            check_own(OWN, like)
            check_names("EffectRecorder({}=…)", named, like)
            check_names("EffectRecorder(answers={{{!r}: …}})", given, like)
            check_names("EffectRecorder(reads=[{!r}])", reads, like)
            for name, answer in {**given, **named}.items():
                check_answer(name, answer, like)
            if isinstance(key, str) and key != KEY:
                check_key(f"EffectRecorder(key={key!r})", key, {named_as(like): like})
            self.__name__ = named_as(like)
        self._reads = frozenset(reads)
        self._like = like
        self._fails = fails
        self._answers = {**given, **named}
        self._memory = Memory()

    def __getattr__(self, name: str) -> Any:
        """Return a function that is an effect.

        Raises:
            AttributeError: If what it stands in for has no such name, or the name begins with an underscore and nothing
                is stood in for: whatever copies or patches objects asks for such names.
        """
        if name.startswith("__") or (name.startswith("_") and self._like is None):
            raise AttributeError(name)
        return member(self._like, name, name, self._take)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Be an effect itself, named ``effect``: for a job that takes one function."""
        return self.call(ITSELF, *arguments, **named)

    def call(self, name: str, /, *arguments: Any, **named: Any) -> Any:
        """Write an effect down and answer it: what a function of the recorder does, by the function's name.

        Args:
            name: The function's name.
            arguments: What it is called with.
            named: What it is called with by name, the downstream key too.

        Returns:
            The answer; of a key that is known, the one that it got the first time.

        Raises:
            EffectFailed: Where a scenario lets it fail.
            Crash: Where a scenario lets the process die.
        """
        return self._take(Asked(name, arguments, named))

    def _take(self, asked: Asked) -> Any:
        process, name = CURRENT.get(), asked.function
        worker = "" if process is None else process.name
        if name in self._reads:
            look = partial(self._look, asked, worker)
            return look() if process is None else process.read(name, look)
        with self._memory.noting():
            keyed_call = self._keyed(asked)
        act = partial(self._happen, keyed_call, worker)
        return act() if process is None else process.effect(name, act, lambda: failure(self._fails, name))

    @property
    def calls(self) -> list[Effect]:
        """Every call that came."""
        return self._memory.calls

    @property
    def effects(self) -> list[Effect]:
        """What happened: the calls without those that repeated a key, were refused, or only read."""
        return [call for call in self.calls if call.happened]

    def count(self, name: str | None = None) -> int:
        """Return how many effects happened.

        Args:
            name: Of this function alone; without it, of all.

        Returns:
            The number: a call that repeated a key, was refused, or only read is none.

        Raises:
            ConfigurationError: If what it stands in for has no such function: none would be counted.
        """
        if name is not None and self._like is not None and all(call.name != name for call in self.calls):
            check_names("count({!r})", [name], self._like)
        return sum(name in (None, effect.name) for effect in self.effects)

    def clear(self) -> None:
        """Forget everything, as if no call had come."""
        self._memory = Memory()

    def _look(self, asked: Asked, worker: str) -> Any:
        memory = self._memory
        with memory.lock:
            number = len(memory.calls) + 1
            name, named = asked.function, dict(asked.named)
            answer = self._made_up(name, number)
            memory.add(
                Effect(name, None, asked.arguments, named, worker, number, read=True, function=name, made_up=answer)
            )
        return _own(self._answer(asked, number))

    def _happen(self, asked: Asked, worker: str) -> Any:
        process, memory = CURRENT.get(), self._memory
        name, key = asked.function, asked.key
        compared = plain(asked.compared)
        with memory.lock:
            first = None if key is None else memory.first.setdefault((name, key), compared)
            number, at = len(memory.calls) + 1, 0
            owner = number if key is None else memory.owners.get((name, key), number)
            known = owner != number
            if process is not None:
                told = (
                    f" again, as {key}: nothing happens"
                    if known
                    else ", without a key"
                    if key is None
                    else f", as {key}"
                )
                at = process.timeline.add(worker, Kind.EFFECT, f"{name}{told}").number
            call = Effect(
                name,
                key,
                asked.arguments,
                dict(asked.named),
                worker,
                number,
                known,
                at,
                bool(running_step()),
                differs=key is not None and not same(first, compared),
                job=JOB.get(),
                function=name,
                made_up=self._made_up(name, owner),
            )
            memory.add(call)
            if key is not None and (name, key) in memory.answers:
                return _own(memory.answers[name, key])
        # Outside of the lock: the answer may be a callable that stands still. So a key that comes meanwhile does not
        # wait for it, else its worker would stand for ever: it makes an answer of its own, and the first one stays.
        try:
            answer = self._answer(asked, owner)
        except Exception:
            memory.refuse(call)
            raise
        return _own(memory.answer(call, answer))

    def _made_up(self, name: str, number: int) -> dict[str, str] | None:
        return None if name in self._answers else {"id": f"{name}-{number}"}

    def _answer(self, asked: Asked, number: int) -> Any:
        name = asked.function
        answer = self._answers.get(name, self._made_up(name, number))
        made = answer(*asked.arguments, **asked.named) if callable(answer) else answer
        if isinstance(made, Exception):
            raise made
        if made is not answer:
            with self._memory.noting():
                check_answer(name, made, self._like)
        return made


def fails_by_default(recorder: EffectRecorder) -> bool:
    """Return whether nobody said what its calls fail with. No attribute: every name of it may be the gateway's."""
    return recorder._fails is None  # noqa: SLF001 - said here


def mistakes_of(recorder: EffectRecorder) -> list[ConfigurationError]:
    """Return what its calls showed that it was given wrongly."""
    return recorder._memory.mistakes  # noqa: SLF001 - as above


def _own(answer: Any) -> Any:
    """Return an answer of the caller's own, who may take it apart; what cannot be copied is handed out itself."""
    try:
        return deepcopy(answer)
    except Exception:  # noqa: BLE001 - whatever its own copying raises: a client, a lock, a mock
        return answer


def plain(value: Any) -> Any:
    """Return what of a call can be compared with that of another: no object that is another one in every attempt."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return tuple(plain(one) for one in value)
    if isinstance(value, set | frozenset):
        return frozenset(plain(one) for one in value)
    kind = type(value)
    if isinstance(value, Enum):
        return kind.__name__, value.name
    names = _field_names(value)
    if names is not None:
        return kind.__name__, tuple(plain(getattr(value, name, None)) for name in names)
    return value if any("__eq__" in vars(base) for base in kind.__mro__[:-1]) else kind.__name__


def _field_names(value: Any) -> Collection[str] | None:
    """Return what a dataclass, a msgspec Struct, an attrs class or a pydantic model consists of; else ``None``."""
    kind = type(value)
    if is_dataclass(kind):
        return [one.name for one in fields(kind)]
    for attribute in ("__struct_fields__", "model_fields"):
        if hasattr(kind, attribute):
            return [*getattr(kind, attribute)]
    return [one.name for one in kind.__attrs_attrs__] if hasattr(kind, "__attrs_attrs__") else None


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, as far as they say so: an array answers with an array."""
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - whatever a class of somebody's raises
        return repr(one) == repr(other)
