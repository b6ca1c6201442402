"""The promises, as what no move may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.parts import ENDS, RUNNING, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from model.parts import Options, State


def violations(opt: Options, before: State, after: State) -> Iterator[str]:
    """Say which promises a move broke."""
    if after.wrong:
        yield after.wrong
    yield from of_the_record(before, after)
    yield from of_attempts(opt, before, after)
    yield from of_the_outbox(opt, after)


def of_the_record(before: State, after: State) -> Iterator[str]:
    """What is recorded stays."""
    old, new = before.record, after.record
    if new is not None and new.step == "open":
        # A person who resolves it as done knows what became of the step.
        goes_on = new.status == "failed" or (new.status == "completed" and new.claimant > 0)
        if goes_on:
            yield f"G9: a job was {new.status} while its step was open"
    if old is None:
        return
    if old.status == "completed" and not old.aged and (new is None or written(new) != written(old)):
        yield "G3: a completed record was changed"
    forgotten = old.aged and (new is None or old.status in ("completed", "rejected"))
    if old.step == "done" and not forgotten and (new is None or new.step != "done"):
        yield "G6: a recorded step was lost"


def of_attempts(opt: Options, before: State, after: State) -> Iterator[str]:
    """One at a time, started no more often than permitted, acknowledged only at an end."""
    if not opt.zombies and sum(worker.pc in RUNNING for worker in after.workers) > 1:
        yield "G1: two claimants run at once"
    if after.starts > 1:
        yield "G9: what starts at most once was started twice"
    acked = [now.pc == "acked" for now in after.workers]
    if after.redrives or after.agings or after.resolves:
        # What had ended may have been opened again since.
        acked = [now and was.pc != "acked" for was, now in zip(before.workers, acked, strict=True)]
    if any(acked) and (after.record is None or after.record.status not in ENDS):
        yield "G4: acknowledged without an end"


def of_the_outbox(opt: Options, state: State) -> Iterator[str]:
    """An entry exists if and only if its transaction committed, and leaves the index when it was sent."""
    record, entry = state.record, state.entry
    if opt.commit != "none" and not state.agings:
        # A person who resolves a job as done commits nothing.
        committed = record is not None and record.status == "completed" and record.claimant > 0
        if entry is not None and not committed:
            yield "G8: an outbox entry without its completion"
        if committed and entry is None:
            yield "G8: a completion without its outbox entry"
    if entry is not None and entry.status == "sent":
        if not entry.delivered and not about_to_send(state):
            yield "G8: an entry is marked sent that nobody sent"
        if entry.indexed:
            yield "G8: a sent entry is in the index of the pending ones"


def about_to_send(state: State) -> bool:
    """Whether a sender lives whose next move is to send."""
    return state.relay == "send" or any(worker.pc == "send" for worker in state.workers)
