"""The steps of a job: named effects, each recorded on the claim when it is done, and never run again after that.

What is known of them is one JSON text in the record, a state for each name:

- ``{"result": …}``: done, with its result.
- ``{"not_stored": "why"}``: done, and its result could not be stored. The job cannot go on, so it goes to a person.
- ``{"started": 1795953600000}``: an at-most-once step that began (epoch ms) and is not known to have ended.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from onceq.codec import ResultNotStored, decode, encode, encode_result, text_of
from onceq.errors import (
    ClaimLost,
    Reject,
    Retry,
    Signal,
    Snooze,
    StepNotRecorded,
    StepRefused,
    StepUncertain,
    StoreError,
    TransactionRefused,
)
from onceq.keys import check_effect_name
from onceq.record import Semantics
from onceq.running import inside, running_step

if TYPE_CHECKING:
    from collections.abc import Awaitable

State = Mapping[str, Any]
# The largest result of one step, unless the settings say otherwise.
RESULT_LIMIT = 32_768
# All steps of a job together: every write of the record costs its whole size, and an item ends at 400 KB.
MOST_BYTES = 262_144
# What the state of a step takes beside its result: what must be left before another one begins.
ROOM = 1_024


def read_steps(text: str | None) -> dict[str, State]:
    """Return the state of each step by its name."""
    return {} if text is None else dict(decode(text))


def with_step(text: str | None, name: str, state: State | None) -> str | None:
    """Return the text with another state of one step; ``None`` takes the step out."""
    states = read_steps(text)
    states.pop(name, None)
    if state is not None:
        states[name] = state
    return encode(states) if states else None


def open_steps(text: str | None) -> list[str]:
    """Return the names of the steps that were started and are not known to have ended.

    Example:
        >>> open_steps('{"call": {"started": 1795953600000}, "charge": {"result": null}}')
        ['call']
    """
    return [name for name, state in read_steps(text).items() if "started" in state]


def _write_nothing(_name: str, _state: State | None) -> None:
    """Stand for the record in a unit test."""


@dataclass(slots=True)
class Steps:
    """The steps of one attempt. Several may run at once; each name is given once.

    Args:
        write: Writes the state of a step to the claim, or takes it out. Raises: ClaimLost, StoreError.
        now_ms: Tells the time.
        text: What earlier attempts recorded.
        limit: The largest result that is stored, in bytes.
        replayed: Told the name of a step that was answered from its record.
        interrupted: The first signal that ended the attempt from inside; a job that swallows it does not go on.
    """

    write: Callable[[str, State | None], object] = _write_nothing
    now_ms: Callable[[], int] = lambda: 0
    text: str | None = None
    limit: int = RESULT_LIMIT
    replayed: Callable[[str], object] = lambda _name: None
    interrupted: Signal | None = None
    _used: set[str] = field(default_factory=set)
    _open: set[str] = field(default_factory=set)
    _refused: dict[str, TransactionRefused] = field(default_factory=dict)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _is_over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _finishing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def unfinished(self) -> list[str]:
        """The names of the steps that were begun and have not ended: never awaited, or left in a thread."""
        return sorted(self._open)

    @property
    def refusal(self) -> TransactionRefused | None:
        """Why something was not staged inside a step, if so: whatever the job made of it, it must not complete."""
        return next(iter(self._refused.values()), None)

    def check_staging(self, what: str) -> None:
        """Refuse what would be staged inside a step. Raises: TransactionRefused.

        A later attempt does not call the step's function again, and would commit without it.
        """
        name = running_step()
        if name not in self._open:
            return
        told = f"{what}: inside the step {name!r} nothing is staged, since a later attempt does not call the step's"
        message = f"{told} function again and would commit without it: stage it after the step, of its result"
        raise self._refused.setdefault(name, TransactionRefused(message))

    def is_done(self, name: str) -> bool:
        """Return whether an earlier attempt, or this one, recorded the step as done."""
        state = read_steps(self.text).get(name)
        return state is not None and "started" not in state

    def close(self) -> None:
        """Begin no more steps: the attempt is over, whatever a thread or a task of it still does."""
        with self._lock:
            self._is_over = True

    async def ended(self) -> None:
        """Cancel the steps that still run in tasks of their own when the job has ended, and wait for their end.

        A step that ran on while the next attempt begins would have its effect beside it.
        """
        while tasks := [task for task in self._tasks if not task.done() and task is not asyncio.current_task()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def run(self, name: str, function: Callable[[], Any], semantics: Semantics) -> Any:
        """Run a step, or answer from its record; see `onceq.Context.step`."""
        name, semantics = check_effect_name(name), Semantics(semantics)
        self._take(name)
        if _is_async(function):
            return self._awaited(name, function, semantics)
        found = self._begin(name, semantics)
        if found is not None:
            return self._answer_later(name, found) if "awaited" in found else self._answer(name, found)
        try:
            with inside(name):
                value = _ran(function())
            self._check_refused(name)
        except BaseException as error:
            self._failed(name, semantics, error)
            raise
        if inspect.isawaitable(value):
            return self._rest(name, lambda: value, semantics, awaited=True)
        return self._done(name, value)

    def interrupt(self, signal: Signal, cause: BaseException | None = None) -> NoReturn:
        """End the attempt from inside, even if the job swallows the signal."""
        with self._lock:
            self.interrupted = self.interrupted or signal
        raise signal from cause

    async def _awaited(self, name: str, function: Callable[[], Awaitable[Any]], semantics: Semantics) -> Any:
        self._track()
        found = await _to_its_end(self._begin, name, semantics)
        if found is not None:
            return self._answer(name, found)
        return await self._rest(name, function, semantics)

    async def _rest(
        self, name: str, function: Callable[[], Awaitable[Any]], semantics: Semantics, *, awaited: bool = False
    ) -> Any:
        self._track()
        try:
            with inside(name):
                value = await function()
            self._check_refused(name)
        except BaseException as error:
            await _to_its_end(self._failed, name, semantics, error)
            raise
        return await _to_its_end(self._done, name, value, awaited)

    async def _answer_later(self, name: str, state: State) -> Any:
        return self._answer(name, state)

    def _check_refused(self, name: str) -> None:
        """Let a step fail whose function went on although something was refused: recorded, it would be replayed."""
        if name in self._refused:
            raise self._refused[name]

    def _track(self) -> None:
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)

    def _take(self, name: str) -> None:
        with self._lock:
            if self._is_over:
                message = f"the step {name!r} was begun when its attempt was over"
                raise StepRefused(message)
            if self.interrupted is not None:
                raise self.interrupted
            if name in self._used:
                message = f"the step {name!r} was begun before in this attempt: give each step a name of its own"
                raise StepRefused(message)
            self._used.add(name)
            self._open.add(name)

    def _begin(self, name: str, semantics: Semantics) -> State | None:
        """Return what is known of the step, or nothing: then it is to run."""
        if self._is_over:
            message = f"the step {name!r} was awaited when its attempt was over"
            raise StepRefused(message)
        state = read_steps(self.text).get(name)
        if state is not None and "started" in state:
            self.interrupt(StepUncertain(f"the step {name!r} was started, and is not known to have ended"))
        if state is not None:
            return state
        if len((self.text or "").encode()) + ROOM > MOST_BYTES:
            self._open.discard(name)
            message = f"no room for the step {name!r}: the job's steps have {MOST_BYTES} bytes together; split the job"
            raise StepRefused(message)
        if semantics is Semantics.AT_MOST_ONCE:
            self._record(name, {"started": self.now_ms()})
        return None

    def _answer(self, name: str, state: State) -> Any:
        self._open.discard(name)
        if "not_stored" in state:
            self.interrupt(_without_result(name, state["not_stored"]))
        self.replayed(name)
        return state["result"]

    def _done(self, name: str, value: object, awaited: bool = False) -> Any:  # noqa: FBT001, FBT002 - told once, above
        marked: dict[str, Any] = {"awaited": True} if awaited else {}
        with self._finishing:  # one after the other, so that two large results do not overfill the item together
            room = max(0, MOST_BYTES - len((self.text or "").encode()))
            text = encode_result(value, min(self.limit, room))
            result = text if isinstance(text, ResultNotStored) else decode(text)
            # As deep as it stands in the record: what cannot be read there again is not stored either.
            whole = encode_result({name: {"result": result}}, MOST_BYTES)
            for refused in (text, whole):
                if isinstance(refused, ResultNotStored):
                    # Recorded first, so that the effect is never repeated; then the job ends: it cannot be replayed.
                    self._record(name, {"not_stored": refused.reason, **marked})
                    self.interrupt(_without_result(name, refused.reason))
            # A plain function that gave an awaitable is awaited on later attempts too.
            self._record(name, {"result": result, **marked})
        self._open.discard(name)
        return result

    def _failed(self, name: str, semantics: Semantics, error: BaseException) -> None:
        self._open.discard(name)
        if semantics is not Semantics.AT_MOST_ONCE or isinstance(error, Signal | Reject):
            return
        if isinstance(error, Retry | Snooze):
            # The function says itself that nothing happened: it may be started again.
            self._record(name, None)
            return
        said = f"{type(error).__name__}: {text_of(error)}"
        self.interrupt(StepUncertain(f"the at-most-once step {name!r} failed: {said}"), error)

    def _record(self, name: str, state: State | None) -> None:
        try:
            self.write(name, state)
        except ClaimLost as lost:
            self.interrupt(lost)
        except StoreError as error:
            self.interrupt(StepNotRecorded(name, error, ran=state is None or "started" not in state), error)
        with self._lock:
            self.text = with_step(self.text, name, state)


def _without_result(name: str, reason: str) -> StepUncertain:
    return StepUncertain(f"the step {name!r} is done, and its result is not stored: {reason}")


def _ran(value: Any) -> Any:
    """Return what a step's function gave. Raises: TypeError, if it is a generator, whose body nobody has run."""
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        message = "the step's function is a generator, whose body a call does not run: return the result instead"
        raise TypeError(message)
    return value


def _is_async(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - its kind is asked, not whether there is one


async def _to_its_end(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run what waits for the network in a thread, to its end: a record is worth more than a cancellation."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # looked at, so that asyncio does not complain; `interrupted` has it
        raise
