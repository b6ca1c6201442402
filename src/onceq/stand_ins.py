"""What the command line puts in the place of what a job calls outside, found by the names that a person types."""

from __future__ import annotations

import importlib
import inspect
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceq.errors import ConfigurationError
from onceq.intrinsics import suggestion
from onceq.settings import require
from onceq.testing.failure import check_failure
from onceq.testing.keyed import KEY
from onceq.testing.likeness import Part, check_key
from onceq.testing.recorder import EffectRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

EXAMPLE = "for example jobs.payments:gateway"
EXAMPLES = {
    "JOB": "for example jobs.payments:process_payment",
    "--fails": "for example jobs.payments:ProviderError",
    "--setup": "for example jobs.payments:put_rows",
}


class Names:
    """What is imported by the names that a person types."""

    def __init__(self, source: Path) -> None:
        self._source = source
        if str(source) not in sys.path:
            sys.path.insert(0, str(source))

    def value(self, option: str, word: str) -> Any:
        """Return what a word like ``jobs.payments:process_payment`` names."""
        owner, name = self.place(option, word)
        return getattr(owner, name)

    def place(self, option: str, word: str) -> tuple[Any, str]:
        """Return what has the attribute that a word names, and the attribute's name."""
        module_name, _, path = word.partition(":")
        require(bool(module_name and path), f"{option} {word}: give MODULE:NAME, {EXAMPLES.get(option, EXAMPLE)}")
        owner = self._module(option, word, module_name)
        *outer, last = path.split(".")
        for name in outer:
            owner = self._attribute(option, word, owner, name)
        self._attribute(option, word, owner, last)
        return owner, last

    def _module(self, option: str, word: str, name: str) -> Any:
        try:
            return importlib.import_module(name)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name in (name, name.partition(".")[0]):
                message = f"{option} {word}: there is no module {error.name!r} in {self._source}"
            else:
                message = f"{option} {word}: {name} cannot be imported: {type(error).__name__}: {error}"
            raise ConfigurationError(message) from error

    def _attribute(self, option: str, word: str, owner: Any, name: str) -> Any:
        try:
            return getattr(owner, name)
        except AttributeError:
            told = getattr(owner, "__name__", owner)
            message = f"{option} {word}: {told!s} has no {name!r}{suggestion(name, dir(owner))}"
            raise ConfigurationError(message) from None


class _Recorder(EffectRecorder):
    """Counts what parts of it are called with, each in a place of its own; it stands in none itself."""

    def part(self, told: Callable[[str], str], like: Any) -> Part:
        """Return what stands in for one thing."""
        return Part(self._take, told, like)


@dataclass(frozen=True)
class _Place:
    """What a recorder stands in for: the attribute of an owner, as a person named it."""

    word: str
    owner: Any
    name: str
    original: Any
    stood: Any
    is_own: bool

    @property
    def path(self) -> str:
        return self.word.partition(":")[2]

    def replace(self, stand_in: Any) -> None:
        """Put a stand-in there. Raises: ConfigurationError, if the owner does not let anything be put there."""
        try:
            setattr(self.owner, self.name, stand_in)
        except (AttributeError, TypeError) as error:
            whole = self.word.rpartition(".")[0] or "an object that holds it"
            why = f"{type(error).__name__}: {error}"
            message = (
                f"--effects {self.word}: nothing can stand there ({why}): give {whole}, or what the job's own module "
                "calls it"
            )
            raise ConfigurationError(message) from error

    def restore(self) -> None:
        if self.is_own:
            setattr(self.owner, self.name, self.stood)
        else:
            delattr(self.owner, self.name)


@contextmanager
def recorded(
    words: Sequence[str],
    answers: Mapping[str, Any],
    names: Names,
    *,
    reads: Sequence[str] = (),
    fails: str | None = None,
    key: str | None = None,
) -> Iterator[EffectRecorder | None]:
    """Put stand-ins in the place of what the words name, and the originals back after the block."""
    require(bool(words) or not answers, "--answer is what a recorded function returns: it goes with --effects")
    require(bool(words) or not reads, "--read is a recorded function that has no effect: it goes with --effects")
    places = [_place(word, names) for word in words]
    told = "--downstream-key is the parameter of a recorded function that takes the key: it goes with --effects"
    require(bool(words) or key is None, told)
    require(bool(words) or fails is None, "--fails is what a recorded function raises: it goes with --effects")
    error = None if fails is None else names.value("--fails", fails)
    check_failure(f"--fails {fails}", error)
    recorder = _Recorder(key=KEY if key is None else key, reads=reads, answers=answers, fails=error)
    called = _called(places)
    if key is not None:
        check_key(f"--downstream-key {key}", key, {place.word: place.original for place in places})
    _check_names("--answer", answers, places, called)
    _check_names("--read", reads, places, called)
    with ExitStack() as stack:
        for place in places:
            place.replace(_stand_in(recorder, place, called[id(place.original)]))
            stack.callback(place.restore)
        yield recorder if places else None


def _place(word: str, names: Names) -> _Place:
    owner, name = names.place("--effects", word)
    # A slot, or a property, is the class's, and what stands there the object's own.
    has_slot = inspect.isdatadescriptor(inspect.getattr_static(type(owner), name, None))
    original, own = getattr(owner, name), getattr(owner, "__dict__", {})
    # In a class a static method stands there as such, and not as the function that it gives.
    return _Place(word, owner, name, original, own.get(name, original), has_slot or name in own)


def _called(places: Sequence[_Place]) -> dict[int, Callable[[str], str]]:
    """Return how the effects of each original are called: with its name in front where there are several."""
    several = {id(place.original): place for place in places}
    paths = [place.path for place in several.values()]

    def namer(place: _Place) -> Callable[[str], str]:
        own = place.path if paths.count(place.path) == 1 else place.word
        if inspect.isroutine(place.original):
            return lambda _name: own
        return lambda name: f"{own}.{name}" if len(several) > 1 else name

    return {number: namer(place) for number, place in several.items()}


def _stand_in(recorder: _Recorder, place: _Place, told: Callable[[str], str]) -> Any:
    if inspect.isroutine(place.original):
        stand_in = getattr(recorder.part(told, place.owner), place.name)
        # Of a class it is called with what its caller gives, as the recorder that takes the class's place is.
        return staticmethod(stand_in) if isinstance(place.owner, type) else stand_in
    return recorder.part(told, place.original)


def _check_names(
    option: str, given: Iterable[str], places: Sequence[_Place], called: Mapping[int, Callable[[str], str]]
) -> None:
    known = set()
    for place in places:
        told, is_function = called[id(place.original)], inspect.isroutine(place.original)
        functions = [place.name] if is_function else [n for n in dir(place.original) if not n.startswith("_")]
        known |= {told(name) for name in functions}
    for name in given:
        message = f"{option} {name}: --effects has no function of that name{suggestion(name, sorted(known))}"
        require(name in known, message)
