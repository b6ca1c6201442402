"""A stand-in for what a job calls outside: it writes every call down, and remembers keys as a provider does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from onceq.settings import require
from onceq.testing.errors import EffectFailed
from onceq.testing.keyed import KEY, Asked, keyed
from onceq.testing.likeness import ITSELF, check_answer, check_names, check_own, member, named_as
from onceq.testing.process import CURRENT
from onceq.testing.subject import JOB
from onceq.testing.timeline import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import FrameType

# Names that a recorder has beside those of what it stands in for.
OWN = ("call", "calls", "clear", "count", "effects")


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect as the outside saw it.

    Args:
        name: What was done, for example ``charge``.
        key: The downstream idempotency key that came with it; ``None`` if there was none.
        arguments: What it was called with, in order, without the key.
        named: What it was called with by name, without the key. One that a function found (``key=``) is still there.
        worker: Which worker did it; ``""`` outside of a run.
        number: Its place among all calls, from 1; a call that repeats a key has a number, too.
        repeated: Whether the key had come before: a provider answers such a call again and does nothing.
        at: The entry of the timeline, from 1; 0 outside of a run.
        in_step: Whether it was called inside a step.
        refused: Whether the answer raised: then nothing happened.
        differs: Whether its key had come with other arguments: a provider refuses such a call.
        read: Whether it only looked something up (``reads=``): then nothing happens, and nothing is counted.
        job: The key of the job that did it; ``""`` outside of a run, and where a thread of the job's own called.
        made_up: What it was answered with where no answer is given; ``None`` where one is.
    """

    name: str
    key: str | None
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    worker: str = ""
    number: int = 0
    repeated: bool = False
    at: int = 0
    in_step: bool = False
    refused: bool = False
    differs: bool = False
    read: bool = False
    job: str = ""
    made_up: Mapping[str, str] | None = None

    @property
    def happened(self) -> bool:
        """Whether anything happened: its key had not come before, and it was neither refused nor only read."""
        return not (self.repeated or self.refused or self.read)


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
        fails: type[Exception] | Exception = EffectFailed,
        reads: Collection[str] = (),
        answers: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        """Answer each function with what is given for it, or with ``{"id": "<name>-<number>"}``.

        Args:
            key: The name of the parameter that takes the downstream key; with ``like=`` it is found by its position,
                too. Or a function that gets a call's arguments, and returns the key or ``None``: for a key in headers
                or a body.
            like: What it stands in for, for example a module: its exception classes and constants are kept, so that a
                job's ``except gateway.CardDeclined`` works, what is ``async def`` there is awaited here, and a call
                that the original's parameters do not allow is a ``TypeError`` as there.
            fails: What a scenario lets a call raise: give what your client raises when the provider does not answer,
                since a job that catches that exception alone is put on trial by no other.
            reads: Functions that only look something up, for example ``["balance"]``: answered, but no effects.
            answers: Answers by function: a value, or a callable that gets the call's arguments and may raise. A
                function inside of something is named with a dot, for example ``{"api.charge": {"status": "paid"}}``.
            named: The same, by keyword, where a function has no name of these options.

        Raises:
            ConfigurationError: If ``key`` is neither a name nor a function, ``reads`` or an answer name what ``like``
                does not have, an answer is ``None`` where its function returns something, or given twice, or ``like``
                has one of the recorder's own names.
        """
        require(not isinstance(reads, str), f"reads= is a list of names: reads=[{reads!r}]")
        given = {} if answers is None else answers
        told = f"answers= is a mapping of names to answers, no {type(given).__name__}"
        require(isinstance(given, Mapping), f"{told}: answers={{'charge': …}}")
        for name in named:
            require(name not in given, f"{name!r} has two answers: give it in answers= or by its name")
        if like is not None:
            check_own(OWN, like)
            check_names("EffectRecorder({}=…)", named, like)
            check_names("EffectRecorder(answers={{{!r}: …}})", given, like)
            check_names("EffectRecorder(reads=[{!r}])", reads, like)
            for name, answer in {**given, **named}.items():
                check_answer(name, answer, like)
            self.__name__ = named_as(like)
        self._reads = frozenset(reads)
        self._keyed = keyed(key)
        self._like = like
        self._fails = fails
        self._answers = {**given, **named}
        self._lock = threading.RLock()
        self._given: dict[tuple[str, str | None], Any] = {}
        self._asked: dict[tuple[str, str], Any] = {}
        self.calls: list[Effect] = []

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
        """Write an effect down and answer it.

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
        act = partial(self._happen, self._keyed(asked), worker)
        return act() if process is None else process.effect(name, act, lambda: self._failure(name))

    def _failure(self, name: str) -> Exception:
        return self._fails if isinstance(self._fails, Exception) else self._fails(f"{name}: the provider is down")

    @property
    def effects(self) -> list[Effect]:
        """What happened: the calls without those that repeated a key, were refused, or only read."""
        return [call for call in self.calls if call.happened]

    def count(self, name: str | None = None) -> int:
        """Return how many effects of that name happened, or of all."""
        return sum(name in (None, effect.name) for effect in self.effects)

    def clear(self) -> None:
        """Forget everything, as if no call had come."""
        with self._lock:
            self.calls.clear()
            self._given.clear()
            self._asked.clear()

    def _look(self, asked: Asked, worker: str) -> Any:
        with self._lock:
            number = len(self.calls) + 1
            named, answer = dict(asked.named), self._made_up(asked.function, number)
            read = Effect(asked.function, None, asked.arguments, named, worker, number, read=True, made_up=answer)
            self.calls.append(read)
        return _own(self._answer(asked, number))

    def _happen(self, asked: Asked, worker: str) -> Any:
        process = CURRENT.get()
        name, key = asked.function, asked.key
        compared = plain([asked.arguments, asked.named])
        with self._lock:
            first = None if key is None else self._asked.setdefault((name, key), compared)
            known = key is not None and (name, key) in self._given
            number, at = len(self.calls) + 1, 0
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
                _in_step(),
                differs=key is not None and not same(first, compared),
                job=JOB.get(),
                made_up=self._made_up(name, number),
            )
            self.calls.append(call)
            if known:
                return _own(self._given[name, key])
        # Outside of the lock: the answer may be a callable that stands still itself.
        try:
            answer = self._answer(asked, number)
        except Exception:
            with self._lock:
                self.calls[number - 1] = replace(call, refused=True)
            raise
        with self._lock:
            return _own(answer if key is None else self._given.setdefault((name, key), answer))

    def _made_up(self, name: str, number: int) -> dict[str, str] | None:
        return None if name in self._answers else {"id": f"{name}-{number}"}

    def _answer(self, asked: Asked, number: int) -> Any:
        name = asked.function
        answer = self._answers.get(name, self._made_up(name, number))
        made = answer(*asked.arguments, **asked.named) if callable(answer) else answer
        if isinstance(made, Exception):
            raise made
        if made is not answer:
            check_answer(name, made, self._like)
        return made


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


def _in_step() -> bool:
    """Return whether a step's function is what calls: the frames of `onceq.steps` stand below it then."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what `traceback.walk_stack` uses, without its cost
    while frame is not None:
        if frame.f_globals.get("__name__") == "onceq.steps":
            return True
        frame = frame.f_back
    return False
