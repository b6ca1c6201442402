"""What happened in one run, in order, and how it looks: a list of lines, or lanes, one for each worker."""

from __future__ import annotations

import itertools
import re
import textwrap
import threading
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from onceq.testing.wording import WIDEST, since

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.testing.calls import Call
    from onceq.testing.clock import FrozenClock

LANE_WIDTH = 30
NARROWEST = 16
AT_WIDTH = 12  # as wide as the seconds of an hour, and as sixty days in hours
LONGEST_WORD = 20
WORLD = ""
RECEIVES = "receives "
TIMES = "×"  # noqa: RUF001 - the sign itself, which no letter is meant by
HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# Enough of a hash to tell two apart.
KEY_SHOWN = 12
# Two are shown: a reader sees that they are alike.
FEWEST_ALIKE = 3


class Kind(StrEnum):
    """What an entry of a timeline is."""

    DELIVERY = "delivery"
    CALL = "call"
    EFFECT = "effect"
    READ = "read"
    FAULT = "fault"
    DEATH = "death"
    RETURN = "return"
    ERROR = "error"  # the job raised
    RAISE = "raise"  # the invocation failed
    TIME = "time"
    ANSWER = "answer"
    ACKNOWLEDGED = "acknowledged"
    KEPT = "kept"
    AGAIN = "again"  # what stands for attempts that are left out


ENDS = (Kind.ACKNOWLEDGED, Kind.KEPT, Kind.ANSWER, Kind.RAISE, Kind.DEATH)
PREFIXES = {
    Kind.EFFECT: "effect: ",
    Kind.READ: "reads ",
    Kind.FAULT: "✗ ",
    Kind.DEATH: "✗ ",
    Kind.RETURN: "returns ",
    Kind.ERROR: "raises ",
    Kind.RAISE: "✗ fails: ",
    Kind.ANSWER: "→ ",
    Kind.ACKNOWLEDGED: "→ ",
    Kind.KEPT: "→ ",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened.

    Args:
        number: Its place in the timeline, from 1.
        at_ms: When, epoch ms on the kit's clock.
        worker: Whose doing it was; ``""`` for the world's.
        kind: What it is.
        what: Its words.
        call: The request, if it is one.
        landed: Whether a request was applied.
    """

    number: int
    at_ms: int
    worker: str
    kind: Kind
    what: str
    call: Call | None = None
    landed: bool = True


@dataclass
class Timeline:
    """What happened, in order.

    Example:
        >>> from onceq.testing.clock import FrozenClock
        >>> timeline = Timeline(FrozenClock())
        >>> _ = timeline.add("w1", Kind.CALL, "claim")
        >>> timeline.clock.advance(2)
        >>> _ = timeline.add("w2", Kind.EFFECT, "charge")
        >>> print(timeline.text())
          1      +0.000 s  w1  claim
          2      +2.000 s  w2  effect: charge
    """

    clock: FrozenClock
    entries: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Note when it began."""
        self.began_ms = self.clock.now_ms()
        # The lanes of one batch are threads, and write at once.
        self._adding = threading.Lock()

    def add(self, worker: str, kind: Kind, what: str, *, call: Call | None = None, landed: bool = True) -> Entry:
        """Write down what happened now."""
        with self._adding:
            entry = Entry(len(self.entries) + 1, self.clock.now_ms(), worker, kind, what, call, landed)
            self.entries.append(entry)
        return entry

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return (self.clock.now_ms() - self.began_ms) / 1000

    @property
    def workers(self) -> list[str]:
        """The workers, in the order in which they appear."""
        return _workers(self.entries)

    @property
    def under_way(self) -> list[str]:
        """The workers that have received something, and have neither answered nor died."""
        last = {one.worker: one for one in self.entries if one.kind in (*ENDS, Kind.DELIVERY)}
        return [worker for worker, one in last.items() if one.kind is Kind.DELIVERY]

    def text(self, *, folded: bool = True) -> str:
        """Return a line for each entry; of attempts that are alike, the first, and how many there were."""
        return "\n".join(
            f"{entry.number:3}  {self._at(entry)}  {entry.worker or '--'}  {short_keys(words(entry))}"
            for entry in self._shown(folded=folded)
        )

    def lanes(self, columns: int = WIDEST, *, folded: bool = True) -> str:
        """Return a picture: time goes down, each worker has a lane, what is nobody's goes across.

        Args:
            columns: How wide it may be.
            folded: Whether to show of attempts that are alike only the first.
        """
        entries = self._shown(folded=folded)
        workers = _workers(entries)
        width = min(LANE_WIDTH, (columns - AT_WIDTH - 2) // max(1, len(workers)) - 3)
        if width < NARROWEST:
            return self.text(folded=folded)
        # From its first to its last entry a worker is under way.
        spans = {entry.worker: [entry.number, entry.number] for entry in reversed(entries)}
        for entry in entries:
            spans[entry.worker][1] = entry.number
        rows = [_row("", [worker.center(width) for worker in workers], width)]
        rows.append(_row("", ["─" * width for _ in workers], width))
        for entry in entries:
            if entry.worker == WORLD:
                across = (width + 3) * len(workers) - 3
                rows.append(f"{self._at(entry)}  {f' {entry.what} '.center(across, '·')}")
                continue
            rails = ["│" if spans[one][0] < entry.number < spans[one][1] else "" for one in workers]
            for number, line in enumerate(textwrap.wrap(_shortened(words(entry), width), width) or [""]):
                cells = [line if one == entry.worker else rail for one, rail in zip(workers, rails, strict=True)]
                rows.append(_row("" if number else self._at(entry), cells, width))
        return "\n".join(row.rstrip() for row in rows)

    def _shown(self, *, folded: bool) -> list[Entry]:
        return _folded(self.entries) if folded else self.entries

    def _at(self, entry: Entry) -> str:
        return f"{since((entry.at_ms - self.began_ms) / 1000):>{AT_WIDTH}}"


def words(entry: Entry) -> str:
    """Return what an entry says."""
    return f"{PREFIXES.get(entry.kind, '')}{entry.what}"


def short_keys(text: str) -> str:
    """Return a text in which of a hash, 64 hexadecimal digits, the beginning says which one it is."""
    return HASH.sub(lambda found: f"{found[0][:KEY_SHOWN]}…", text)


def _workers(entries: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(entry.worker for entry in entries if entry.worker))


def _folded(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries, but of attempts that come one after the other and are alike the first, and their number."""
    shown: list[Entry] = []
    for _, alike in itertools.groupby(_attempts(entries), key=_likeness):
        attempts = [*alike]
        if len(attempts) < FEWEST_ALIKE or any(one.kind is Kind.EFFECT for one in attempts[0]):
            shown += [entry for attempt in attempts for entry in attempt]
            continue
        ends = [*itertools.takewhile(lambda entry: entry.worker == WORLD, reversed(attempts[-1]))]
        last = attempts[-1][-1 - len(ends)]
        first = [entry for entry in attempts[0] if entry.worker != WORLD]
        times = f"{TIMES}{len(attempts)}, the last by {last.worker}"
        again = replace(last, worker=first[0].worker, kind=Kind.AGAIN, what=times, call=None)
        shown += [*first, again, *reversed(ends)]
    return shown


def _attempts(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Split entries where a worker receives something, or another worker goes on."""
    found: list[list[Entry]] = []
    worker = ""
    for entry in entries:
        receives = entry.kind is Kind.DELIVERY and entry.what.startswith(RECEIVES)
        if not found or receives or (entry.worker not in (WORLD, worker)):
            found.append([])
        found[-1].append(entry)
        worker = entry.worker or worker
    return found


def _likeness(attempt: Sequence[Entry]) -> tuple[tuple[Kind, str], ...]:
    """Return what an attempt did, whatever its number, its message's and its time are."""
    return tuple((one.kind, re.sub(r"\d+", "#", one.what)) for one in attempt if one.worker != WORLD)


def _shortened(text: str, width: int) -> str:
    """Return a text whose words fit into a lane: of a key, an ARN, a URL the beginning says which one it is."""
    most = min(width, LONGEST_WORD)
    return re.sub(rf"[^\s]{{{most + 1},}}", lambda found: _cut(found[0], most), text)


def _cut(word: str, most: int) -> str:
    bare = word.rstrip(",:;.")
    return word if len(bare) <= most - 2 else f"{bare[: most - 2]}…{word[len(bare) :][:1]}"


def _row(at: str, cells: Sequence[str], width: int) -> str:
    return f"{at:>{AT_WIDTH}}  " + "   ".join(f"{cell:<{width}}" for cell in cells)
