"""What happened, as text and as a picture that fits a terminal."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from onceq.testing import FrozenClock
from onceq.testing.timeline import TIMES, WORLD, Kind, Timeline, words
from onceq.testing.wording import WIDEST, lasting, numbered

KEY = "charge-97319ce8172a4b5c6d7e8f9012345678"


@pytest.fixture
def timeline() -> Timeline:
    """A run of two workers, the second of which takes over."""
    told = Timeline(FrozenClock())
    told.add("w1", Kind.CALL, "claim")
    told.add("w1", Kind.EFFECT, f"charge, as {KEY}")
    told.clock.advance(26 * 3600)
    told.add(WORLD, Kind.TIME, "a day passes")
    told.add("w2", Kind.CALL, "take over")
    told.add("w1", Kind.FAULT, f"effect {KEY}: fails")
    told.add("w2", Kind.RETURN, "true")
    told.add("w2", Kind.ANSWER, "acknowledges m1")
    return told


def test_a_line_for_each_entry(timeline: Timeline) -> None:
    """With its number, its time, its worker, and whole keys."""
    assert timeline.text().splitlines()[:4] == [
        "  1      +0.000 s  w1  claim",
        f"  2      +0.000 s  w1  effect: charge, as {KEY}",
        "  3     +26:00:00  --  a day passes",
        "  4     +26:00:00  w2  take over",
    ]
    assert timeline.workers == ["w1", "w2"]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.25, "+0.250 s"),
        (3599.999, "+3599.999 s"),
        (3600, "+1:00:00"),
        (93_690.9, "+26:01:30"),
        (60 * 86_400, "+1440:00:00"),
    ],
)
def test_from_an_hour_on_it_is_hours(seconds: float, told: str) -> None:
    """Nobody counts a day in seconds."""
    timeline = Timeline(FrozenClock())
    timeline.clock.advance(seconds)
    timeline.add("w1", Kind.CALL, "claim")

    assert timeline.text().split("  w1")[0].removeprefix("  1").strip() == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.5, "0.5 s"), (90, "90 s"), (3600, "1 h"), (3690, "1 h 90 s"), (93_600, "26 h")]
)
def test_how_long_something_takes_is_told_in_hours_from_one_on(seconds: float, told: str) -> None:
    """And in seconds beneath."""
    assert lasting(seconds) == told


def test_one_is_no_plural() -> None:
    """As people count."""
    assert [numbered(number, "record") for number in (0, 1, 2)] == ["0 records", "1 record", "2 records"]


def test_a_lane_for_each_worker(timeline: Timeline) -> None:
    """Time goes down; a worker that is under way has a line; keys are cut; what is nobody's goes across."""
    assert timeline.lanes().splitlines() == [
        "                            w1                               w2",
        "              ──────────────────────────────   ──────────────────────────────",
        "    +0.000 s  claim",
        "    +0.000 s  effect: charge, as",
        "              charge-97319ce8172…",
        "   +26:00:00  ························· a day passes ························",
        "   +26:00:00  │                                take over",
        "   +26:00:00  ✗ effect charge-97319ce8172…:    │",
        "              fails                            │",
        "   +26:00:00                                   returns true",
        "   +26:00:00                                   → acknowledges m1",
    ]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_lanes_fit_a_terminal(workers: int) -> None:
    """Up to five workers stand side by side in 120 columns, whatever long words there are."""
    told = Timeline(FrozenClock())
    for number in range(workers):
        told.add(f"w{number}", Kind.EFFECT, f"charge, as {KEY}{KEY}, arn:aws:sqs:us-east-1:123456789012:JobsQueue")
    told.add(WORLD, Kind.TIME, "1 s pass")

    lines = told.lanes().splitlines()

    assert max(map(len, lines)) <= WIDEST
    assert len([line for line in lines if "charge-97319ce8" in line]) == workers
    assert not any(KEY in line for line in lines)


def attempts(told: Timeline, *whats: str) -> None:
    """Let a worker each do these things, a minute apart."""
    for number, what in enumerate(whats, 1):
        told.add(f"w{number}", Kind.DELIVERY, f"receives m1, receive {number}")
        told.add(f"w{number}", Kind.CALL, what)
        told.add(f"w{number}", Kind.KEPT, "keeps m1")
        told.clock.advance(60)
        told.add(WORLD, Kind.TIME, "60 s pass")


def test_attempts_that_are_alike_are_one_and_their_number() -> None:
    """Numbers in their words are no difference; lanes and lists say the same, and all of them if asked."""
    told = Timeline(FrozenClock())
    attempts(told, "claim", *["take over"] * 5, "complete")

    lines, lanes = told.text().splitlines(), told.lanes().splitlines()

    assert [line[19:] for line in lines[4:9]] == [
        "w2  receives m1, receive 2",
        "w2  take over",
        "w2  → keeps m1",
        f"w2  {TIMES}5, the last by w6",
        "--  60 s pass",
    ]
    assert lines[7].startswith(" 23    +300.000 s")
    assert len(lines) == 13
    assert "w6" not in lanes[0]
    assert sum(f"{TIMES}5, the last by w6" in line for line in lanes) == 1
    assert len(told.text(folded=False).splitlines()) == len(told.entries) == 28
    assert not any(TIMES in line for line in told.lanes(folded=False).splitlines())


@pytest.mark.parametrize("kind", [Kind.EFFECT, Kind.CALL])
def test_two_attempts_and_those_with_effects_are_shown(kind: Kind) -> None:
    """What happened outside is what a reader counts."""
    told = Timeline(FrozenClock())
    for number in range(5 if kind is Kind.EFFECT else 2):
        told.add(f"w{number}", Kind.DELIVERY, "receives m1")
        told.add(f"w{number}", kind, "charge")

    assert told.text() == told.text(folded=False)


def test_a_warm_process_has_several_attempts() -> None:
    """Each begins where it receives something."""
    told = Timeline(FrozenClock())
    for number in range(1, 4):
        told.add("w1", Kind.DELIVERY, f"receives m1, receive {number}")
        told.add("w1", Kind.KEPT, "keeps m1")

    assert [line.split("  ")[-1] for line in told.text().splitlines()][-1] == f"{TIMES}3, the last by w1"


def test_hashes_are_shortened_in_a_list_too() -> None:
    """64 digits fill a line; what is shorter stays, and what is longer is no hash."""
    told = Timeline(FrozenClock())
    told.add("w1", Kind.EFFECT, f"charge, as {'ab' * 32}, {'c' * 63}, {'d' * 65}, k-{'e' * 64}")

    assert told.text().endswith(f"charge, as abababababab…, {'c' * 63}, {'d' * 65}, k-eeeeeeeeeeee…")


def test_an_empty_timeline_is_empty() -> None:
    """It has no lanes."""
    told = Timeline(FrozenClock())

    assert (told.text(), told.lanes().strip(), told.workers) == ("", "", [])


def test_each_kind_has_its_words(timeline: Timeline) -> None:
    """Effects, faults, ends and answers are told apart."""
    assert [words(entry)[:9] for entry in timeline.entries] == [
        "claim", "effect: c", "a day pas", "take over", "✗ effect ", "returns t", "→ acknowl",
    ]  # fmt: skip


def test_entries_of_many_threads_are_numbered_in_their_order() -> None:
    """The lanes of one batch write at once: whoever reads a number finds that entry there."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    timeline = Timeline(FrozenClock())
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda _: [timeline.add("w1", Kind.DELIVERY, "x") for _ in range(2_000)], range(4)):
                pass
    finally:
        sys.setswitchinterval(before)

    assert [entry.number for entry in timeline.entries] == list(range(1, 8_001))
