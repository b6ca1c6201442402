"""What a person sees of events in a terminal."""

from __future__ import annotations

import io
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from onceq import effect_events as effects
from onceq import telemetry as events
from onceq.console import WORK_HINTS, ConsoleHook, JobLogHandler, is_coloured
from onceq.context import Context
from onceq.listing import letter_values, letters_text, table
from onceq.message import Message

if TYPE_CHECKING:
    from kit.clock import FrozenClock


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def shown(clock: FrozenClock, *given: events.Event, label: str = "w1", verbose: bool = False) -> list[str]:
    """Return the lines of events, without the time."""
    stream = io.StringIO()
    hook = ConsoleHook(label, stream=stream, verbose=verbose, clock=clock)
    for event in given:
        hook(event)
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_with_its_stable_name(clock: FrozenClock) -> None:
    """What stands in the terminal can be looked up under the same name on Lambda."""
    until = clock.now_ms() + 2_500
    lines = shown(
        clock,
        events.JobCompleted(job_type="t", key="k", attempt=2, claimant="secret-token", seconds=0.123),
        events.JobReleased(job_type="t", key="k", attempt=1, not_before=until, error="E: broken", counted=True),
        events.MessageRefused(message_id="m-1", reason="not JSON"),
    )
    assert [re.sub(" +", " ", line) for line in lines] == [
        "w1 job.completed t k attempt 2, 0.12 s",
        "w1 job.released t k attempt 1, again in 2.5 s, E: broken",
        "w1 message.refused m-1 not JSON",
    ]


def test_what_happens_to_effects_is_told_for_people(clock: FrozenClock) -> None:
    """A message of the outbox is named by its job, and seconds say what they count."""
    entry = {"entry": "e-1", "job_type": "mail", "key": "k"}
    lines = shown(
        clock,
        effects.OutboxSent(**entry, message_id="m-1", seconds=0.25),
        effects.OutboxFailed(**entry, attempts=2, error="no such queue"),
        effects.OutboxOverdue(entries=2, seconds=400),
        effects.RelayEnded(sent=1, failed=2, left=3, seconds=400),
        effects.RelayEnded(sent=1, failed=0, left=0, seconds=0),
        effects.LockWasBusy(job_type="t", key="k", lock="till", until=clock.now_ms() + 1_500),
        effects.JobResolved(job_type="t", key="k", decision="done", reason="seen"),
        label="r1",
    )
    assert [re.sub(" +", " ", line) for line in lines] == [
        "r1 outbox.sent mail k 0.25 s past due",
        "r1 outbox.failed mail k attempts 2, no such queue",
        "r1 outbox.overdue entries 2, the oldest 400 s past due",
        "r1 relay.ended sent 1, failed 2, left 3, the oldest 400 s past due",
        "r1 relay.ended sent 1, failed 0, left 0",
        "r1 lock.busy t k lock till, again in 1.5 s",
        "r1 job.resolved t k decision done, seen",
    ]


@pytest.mark.parametrize("counts", [{}, {"sent": 1}, {"failed": 1}, {"left": 1}], ids=str)
def test_a_run_of_the_relay_that_did_nothing_is_no_line(clock: FrozenClock, counts: dict[str, int]) -> None:
    """One a minute says nothing to anybody, unless every event is asked for."""
    ended = effects.RelayEnded(**({"sent": 0, "failed": 0, "left": 0, "seconds": 0} | counts))
    assert len(shown(clock, ended)) == len(counts)
    assert len(shown(clock, ended, verbose=True)) == 1


def test_starts_and_debug_events_are_shown_when_asked_for(clock: FrozenClock) -> None:
    """Normally a start and its end would be two lines for one thing."""
    given = events.JobStarted(job_type="t", key="k", attempt=1), events.BatchAnswered(records=1, kept=0)
    assert shown(clock, *given) == []
    assert len(shown(clock, *given, verbose=True)) == 2


def test_an_unknown_job_type_in_dev_hints_at_a_restart(clock: FrozenClock) -> None:
    """Workers keep the code that they began with, so a job type written since is unknown to them."""
    stream = io.StringIO()
    hook = ConsoleHook("w1", stream=stream, hints=WORK_HINTS, clock=clock)
    hook(events.MessageUnserved(message_id="m-1", reason="no job type is named 'new'"))
    hook(events.MessageUnserved(message_id="m-2", reason="the envelope is of version 2: a newer release made it"))
    first, second = stream.getvalue().splitlines()
    assert first.endswith("no job type is named 'new' (is it in App([…])? Restart after changing code)")
    assert second.endswith("a newer release made it")


def test_a_fault_shows_its_trace(clock: FrozenClock) -> None:
    """The place of a fault is what one needs next."""
    lines = shown(clock, events.MessageFaulted(message_id="m-1", reason="a fault", trace="Traceback\n  here\n"))
    assert lines[1:] == ["Traceback", "  here"]


def test_what_a_job_logs_has_the_same_shape(clock: FrozenClock) -> None:
    """`ctx.log` lines stand among the events, with job type and key."""
    stream = io.StringIO()
    handler = JobLogHandler(ConsoleHook("w1", stream=stream, clock=clock))
    logger = logging.getLogger("onceq.job")
    logger.addHandler(handler)
    try:
        Context("t", "k", 1, 1, Message("m", None), lambda: 9.0).log.warning("charged %d", 5)
    finally:
        logger.removeHandler(handler)
    assert re.fullmatch(r"\d\d:\d\d:\d\d w1 +log +t k +charged 5\n", stream.getvalue())


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_are_for_terminals_that_take_them(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """A file gets plain text, and NO_COLOR is obeyed."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert is_coloured(Terminal())
    assert not is_coloured(io.StringIO())
    monkeypatch.setenv(name, value)
    assert not is_coloured(Terminal())


def test_columns_line_up_and_cells_stay_on_their_line() -> None:
    """A key with a line break must not break the table; what is not known is a dash."""
    text = table([("a", 1), ("b\nb", None)], ("NAME", "N"))
    assert text.splitlines() == ["NAME  N", "a     1", "b b   -"]


@pytest.mark.parametrize("note", [None, "{", "[]", "{}"])
def test_a_dead_letter_without_our_note_is_listed_too(note: str | None) -> None:
    """The redrive policy moves messages as they are; a broken note is no reason to hide a message."""
    message: dict[str, Any] = {"MessageId": "m-1", "Body": "{}"}
    if note is not None:
        message |= {"MessageAttributes": {"onceq": {"DataType": "String", "StringValue": note}}}
    letter = letter_values(message)
    assert (letter["message_id"], letter["reason"], letter["body"]) == ("m-1", "", "{}")
    assert letters_text([letter]).splitlines()[1].split() == ["-", "-", "0", "-", "-"]
