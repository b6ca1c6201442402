"""What the model is made of: the item and everything around it as values, and the options of an exploration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

IDLE = ("acked", "kept", "dead", "lost")
RUNNING = ("step", "record-step", "mark", "marked", "effect", "unmark", "finish")
MAX_ATTEMPTS = 2
ENDS = ("completed", "rejected", "uncertain")
TO_PEOPLE = ("rejected", "uncertain")
RESOLVABLE = ("rejected", "uncertain", "failed")
# Whoever is no claimant writes a token of its own: recovery from here down, and people from the second line down.
RECOVERY = -1
PEOPLE = -10


class Record(NamedTuple):
    """The item. ``live_lease``, ``backoff`` and ``aged`` stand for what the time makes of it."""

    status: str
    claimant: int
    version: int
    attempts: int
    live_lease: bool = False
    backoff: bool = False
    aged: bool = False
    step: Literal["", "open", "done"] = ""
    lease: int = 0


class Entry(NamedTuple):
    """The outbox entry of the job. ``waiting`` is what the time makes of it; ``delivered`` is what SQS has seen."""

    status: Literal["pending", "sending", "sent"] = "pending"
    indexed: bool = True
    waiting: bool = False
    delivered: bool = False


class Worker(NamedTuple):
    """One delivery: where it is, what it saw when it took over, and the record as it last knows it wrote it.

    ``redrive`` is the version in the note of a redriven message, ``note`` the one in the note of its dead-letter copy.
    """

    pc: str
    token: int
    seen: Record | None = None
    held: Record | None = None
    retried: bool = False
    adopted: bool = False
    redrive: int | None = None
    note: int | None = None


class Late(NamedTuple):
    """A write: where it lands, its condition is compared with what stands there then.

    Without a condition it is a first claim, or a write to the entry.
    """

    name: str
    condition: tuple[int, int] | None = None
    new: Record | None = None


class State(NamedTuple):
    """Everything, and how often the world has already been unkind. ``starts`` counts since the last permission."""

    record: Record | None
    workers: tuple[Worker, ...]
    late: tuple[Late, ...] = ()
    entry: Entry | None = None
    relay: str = "idle"
    starts: int = 0
    crashes: int = 0
    leases: int = 0
    sweeps: int = 0
    redrives: int = 0
    agings: int = 0
    events: int = 0
    renewals: int = 0
    resolves: int = 0
    retries: int = 0
    conflicts: int = 0
    failures: int = 0
    wrong: str = ""


Move = tuple[str, State]


@dataclass(frozen=True)
class Options:
    """What is explored: which job, how unkind the world is, and which rule is weakened."""

    job: Literal["step", "once", "bare"] = "step"
    amo: bool = False
    commit: Literal["none", "atomic", "separate"] = "none"
    parallel: bool = False
    zombies: bool = False
    aging: bool = False
    delayed: bool = False

    cas: Literal["version", "claimant"] = "version"
    sweep_token: Literal["yes", "no"] = "yes"
    free: Literal["strict", "loose"] = "strict"
    recognise: Literal["record", "version"] = "record"
    follow: Literal["yes", "no"] = "yes"
    started: Literal["first", "never"] = "first"
    open_step: Literal["uncertain", "unseen", "rerun"] = "uncertain"
    retry_mark: Literal["removed", "kept"] = "removed"
    ends: Literal["hold", "as-is"] = "hold"
    expiry: Literal["removed", "kept"] = "removed"
    sweep: Literal["unchanged", "blind"] = "unchanged"
    resolve: Literal["unchanged", "version", "status", "blind"] = "unchanged"
    reopen: Literal["fresh", "kept"] = "fresh"
    completion: Literal["seen", "lost"] = "seen"
    conflict: Literal["hold", "retry"] = "hold"
    mark_first: bool = False
    relay: Literal["leaves", "takes"] = "leaves"
    note: Literal["pending", "blind"] = "pending"

    workers: int = 2
    late: int = 1
    crashes: int = 1
    leases: int = 1
    events: int = 1
    sweeps: int = 1
    redrives: int = 1
    renewals: int = 0
    resolves: int = 0
    retries: int = 0
    conflicts: int = 0
    failures: int = 0


@dataclass
class Exploration:
    """How many states there are, and the shortest trace to each kind of violation."""

    states: int = 0
    found: dict[str, list[str]] = field(default_factory=dict)


def put(state: State, index: int, worker: Worker) -> State:
    """Return the state with that worker; one that is idle remembers only what its message carries."""
    if worker.pc in IDLE:
        worker = Worker(worker.pc, worker.token, note=worker.note)
    workers = list(state.workers)
    workers[index] = worker
    return state._replace(workers=tuple(workers))


def ended(worker: Worker, record: Record) -> Worker:
    """Return the worker whose message ends as the record did; what goes to people is noted with its version."""
    return worker._replace(pc="acked", note=record.version if record.status in TO_PEOPLE else None)


def written(record: Record) -> Record:
    """Return what a write decides of a record: without what the passing of time makes of it."""
    return record._replace(live_lease=False, backoff=False, aged=False)


def is_free(opt: Options, record: Record | None) -> bool:
    """FREE: the condition of a first claim."""
    return record is None or (record.aged and (opt.free == "loose" or record.status in ("completed", "rejected")))


def unchanged(opt: Options, record: Record | None, claimant: int, version: int) -> bool:
    """UNCHANGED: the condition of every write after the first claim."""
    return record is not None and record.claimant == claimant and (opt.cas == "claimant" or record.version == version)


def recognised(opt: Options, seen: Record | None, new: Record) -> bool:
    """Whether a refused writer takes the record it is shown for its own write."""
    if seen is None:
        return False
    if opt.recognise == "version":
        return (seen.claimant, seen.version) == (new.claimant, new.version)
    return written(seen) == written(new)


def doubt(seen: Record | None, new: Record, name: str) -> str:
    """Say what is wrong when a write is believed that is not there."""
    if seen is not None and written(seen) == written(new):
        return ""
    return f"G11: a {name} was believed recorded that was not"


def starts_once(opt: Options, record: Record) -> bool:
    """Whether a stale record is for a person: its job, or a step of it, may have started what starts once."""
    return opt.amo or (record.step == "open" and opt.open_step == "uncertain")


def lands(opt: Options, state: State, late: Late) -> bool:
    """Whether a write is applied where it arrives now."""
    record, entry = state.record, state.entry
    if late.name in ("mark-sent", "note-failure"):
        return entry is not None and (entry.status != "sent" or (late.name == "note-failure" and opt.note == "blind"))
    if late.condition is None:
        return is_free(opt, record)
    if late.name.startswith("resolve") and opt.resolve != "unchanged":
        return record is not None and (
            opt.resolve == "blind"
            or (opt.resolve == "status" and record.status in RESOLVABLE)
            or (opt.resolve == "version" and record.status in RESOLVABLE and record.version == late.condition[1])
        )
    if late.name == "recovery" and opt.sweep == "blind":
        return record is not None and record.status == "processing"
    return unchanged(opt, record, *late.condition)


def applied(opt: Options, state: State, late: Late) -> State:
    """Return the state after a write has landed, and what it permits or breaks."""
    old, new, entry = state.record, late.new, state.entry
    if late.name in ("mark-sent", "note-failure"):
        assert entry is not None
        if late.name == "mark-sent":
            return state._replace(entry=entry._replace(status="sent", indexed=False, waiting=False))
        return state._replace(entry=entry._replace(indexed=True, waiting=True))
    assert new is not None
    state = state._replace(record=new)
    # The job said itself that it may start again, or a person did, or nobody remembers it any more.
    permits = ("resolve-retry", "retry" if opt.amo else "unmark")
    if late.name in permits or (late.condition is None and old is not None):
        state = state._replace(starts=0)
    elif old is not None and old.step == "open" and not new.step:
        state = state._replace(wrong="G9: the mark of a started step vanished")
    if late.name.startswith("resolve") and old is not None and (old.claimant, old.version) != late.condition:
        state = state._replace(wrong="G2: a person's decision changed a record that the person had not seen")
    if late.name == "complete" and opt.commit == "atomic":
        state = state._replace(entry=Entry(waiting=opt.delayed))
    return state
