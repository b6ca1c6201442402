"""What happens without a delivery: late writes land, time passes, recovery sweeps, people decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.outbox import relay
from model.parts import IDLE, PEOPLE, RECOVERY, RESOLVABLE, Late, applied, lands, starts_once, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from model.parts import Move, Options, Record, State


def world(opt: Options, state: State) -> Iterator[Move]:
    """What happens without a worker."""
    for position, late in enumerate(state.late):
        rest = state._replace(late=state.late[:position] + state.late[position + 1 :])
        if lands(opt, state, late):
            yield f"late {late.name} lands", applied(opt, rest, late)
        else:
            yield f"late {late.name} refused", rest
    if state.entry is not None:
        yield from relay(opt, state)
        if state.entry.waiting:
            yield "the entry is due", state._replace(entry=state.entry._replace(waiting=False))
    if state.record is not None:
        yield from time(opt, state, state.record)
        yield from others(opt, state, state.record)


def time(opt: Options, state: State, record: Record) -> Iterator[Move]:
    """Leases and back-offs pass, and records age past their retention."""
    holder = any(worker.token == record.claimant and worker.pc not in IDLE for worker in state.workers)
    may_pass = opt.zombies or not holder
    if record.status == "processing" and record.live_lease and state.leases < opt.leases + opt.zombies and may_pass:
        yield "lease passes", state._replace(record=record._replace(live_lease=False), leases=state.leases + 1)
    if record.status == "failed" and record.backoff:
        yield "back-off over", state._replace(record=record._replace(backoff=False))
    # No request is on its way for so long, but a person may take that long to decide.
    decided_only = all(late.name.startswith("resolve") for late in state.late)
    if opt.aging and record.status != "uncertain" and not record.aged and state.agings < 1 and decided_only:
        yield "record ages past retention", state._replace(record=record._replace(aged=True), agings=1)
    if record.aged and not holder and not record.live_lease and expires(opt, record):
        forgotten = state._replace(record=None)
        yield (
            "TTL deletes it",
            forgotten._replace(starts=0) if record.status in ("completed", "rejected") else forgotten,
        )


def expires(opt: Options, record: Record) -> bool:
    """Whether TTL may delete the record: what starts once is remembered until it ends."""
    if record.status in ("completed", "rejected"):
        return True
    marked = opt.job == "once" and record.step != "" and opt.expiry == "removed"
    return record.status != "uncertain" and not opt.amo and not marked


def others(opt: Options, state: State, record: Record) -> Iterator[Move]:
    """Recovery and people: each writes on UNCHANGED as seen, with a token of its own, at once or late."""
    base = written(record)._replace(version=record.version + 1)
    seen = (record.claimant, record.version)
    if record.status == "processing" and not record.live_lease and state.sweeps < opt.sweeps:
        token = RECOVERY - state.sweeps if opt.sweep_token == "yes" else record.claimant
        status = "uncertain" if starts_once(opt, record) else "failed"
        late = Late("recovery", seen, base._replace(status=status, claimant=token))
        yield from write(opt, state._replace(sweeps=state.sweeps + 1), late)
    if record.status in RESOLVABLE and state.resolves < opt.resolves:
        tried = state._replace(resolves=state.resolves + 1)
        base = base._replace(claimant=PEOPLE - state.resolves)
        yield from write(opt, tried, Late("resolve-done", seen, base._replace(status="completed")))
        yield from write(opt, tried, Late("resolve-reject", seen, base._replace(status="rejected")))
        again = base._replace(status="failed", attempts=0 if opt.reopen == "fresh" else record.attempts)
        if record.step != "open":
            yield from write(opt, tried, Late("resolve-retry", seen, again))
        else:
            cleared = again._replace(step="" if opt.reopen == "fresh" else "open")
            yield from write(opt, tried, Late("resolve-retry", seen, cleared))
            # The person found out what the step did, and gives its result.
            yield from write(opt, tried, Late("resolve-retry-after-step", seen, again._replace(step="done")))


def write(opt: Options, state: State, late: Late) -> Iterator[Move]:
    """A write whose response matters to nobody here; sent again after a lost one, it changes nothing."""
    yield late.name, applied(opt, state, late)
    if len(state.late) < opt.late:
        yield late.name + " (late)", state._replace(late=(*state.late, late))
