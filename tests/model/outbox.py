"""What becomes of an outbox entry: the finishing consumer and the relay send it, and mark it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.parts import Late, applied, lands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from model.parts import Move, Options, State


def sending(opt: Options, state: State, pc: str) -> Iterator[tuple[str, State, str]]:
    """One move of whoever sends, and what it does after that: nothing more, if that is empty."""
    entry = state.entry
    assert entry is not None
    if pc == "send":
        sent = state._replace(entry=entry._replace(delivered=True))
        yield "sends", sent, "" if opt.mark_first else "mark-sent"
        if state.failures < opt.failures and not opt.mark_first:
            yield "cannot send", state._replace(failures=state.failures + 1), "note-failure"
            yield "sends, and is not answered", sent._replace(failures=state.failures + 1), "note-failure"
        return
    after = "send" if opt.mark_first and pc == "mark-sent" else ""
    late = Late(pc)
    if lands(opt, state, late):
        yield pc, applied(opt, state, late), after
    else:
        yield pc + " refused", state, after
    if len(state.late) < opt.late:
        yield pc + " (late)", state._replace(late=(*state.late, late)), after


def relay(opt: Options, state: State) -> Iterator[Move]:
    """The relay, at any time, and as often as it takes. It may die between any two moves."""
    entry, pc = state.entry, state.relay
    if entry is None:
        return
    if pc == "idle":
        first = "mark-sent" if opt.mark_first else "send"
        if entry.indexed and not entry.waiting:
            taken = entry._replace(status="sending", indexed=False) if opt.relay == "takes" else entry
            yield "relay finds it", state._replace(relay=first, entry=taken)
        elif entry.status == "sent" and not opt.mark_first:
            # The index is eventually consistent.
            yield "relay finds it in an old index", state._replace(relay=first)
        return
    yield "relay dies", state._replace(relay="idle")
    for label, after, to in sending(opt, state, pc):
        yield "relay " + label, after._replace(relay=to or "idle")
