#!/usr/bin/env python3
"""An executable model of the claim protocol (`onceq.claim`, `onceq.store`), explored exhaustively.

Deliveries of one job's messages race on one record: crashes, lost responses, writes that land late, leases that
pass while the claimant lives (zombies), failures with back-off, renewals whose outcome stays unknown while the job goes
on to its next write, a recovery sweep, redrives from the DLQ, duplicates, expiry of old records. Every reachable state
is checked; a violation prints the shortest trace.

Five switches weaken the protocol on purpose, to show what each rule is for; the explorer must then find a violation::

    --cas claimant         UNCHANGED compares the claimant alone
    --sweep-token no       the recovery sweep writes no token of its own
    --free loose           FREE frees every record by age, not only those that ended
    --recognise version    a refused write is taken for ours by claimant and version alone, not by the whole record
    --follow no            a refusal that shows an earlier write of ours counts as a lost claim (no rule 5)

Change this model first, then the code.
"""

from __future__ import annotations

import argparse
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

IDLE = ("acked", "kept", "dead", "lost")
MAX_ATTEMPTS = 2
ENDS = ("completed", "rejected", "uncertain")
AFTER = {"record-step": "finish", "complete": "acked", "release": "kept", "end-uncertain": "acked"}


class Record(NamedTuple):
    """The item. ``live_lease``, ``backoff`` and ``aged`` stand for what the time makes of it."""

    status: str
    claimant: int
    version: int
    attempts: int
    live_lease: bool = False
    backoff: bool = False
    aged: bool = False
    step_done: bool = False
    reopened: bool = False
    lease: int = 0


class Worker(NamedTuple):
    """One delivery: where it is, what it saw when it took over, and the record as it last knows it wrote it."""

    pc: str
    token: int
    seen: Record | None = None
    held: Record | None = None
    retried: bool = False
    adopted: bool = False
    redrive: int | None = None


class Late(NamedTuple):
    """A write on its way: it lands if its condition holds when it arrives; without one it is a first claim."""

    name: str
    condition: tuple[int, int] | None
    new: Record


class State(NamedTuple):
    """Everything, and how often the world has already been unkind."""

    record: Record | None
    workers: tuple[Worker, ...]
    late: tuple[Late, ...] = ()
    starts: int = 0
    step_again: bool = False
    crashes: int = 0
    leases: int = 0
    sweeps: int = 0
    redrives: int = 0
    agings: int = 0
    events: int = 0
    renewals: int = 0
    wrong: str = ""


Move = tuple[str, State]


@dataclass(frozen=True)
class Options:
    """What is explored: how unkind the world is, and which rule is weakened."""

    amo: bool = False
    zombies: bool = False
    aging: bool = False
    cas: Literal["claimant", "version"] = "version"
    sweep_token: Literal["yes", "no"] = "yes"
    free: Literal["strict", "loose"] = "strict"
    recognise: Literal["record", "version"] = "record"
    follow: Literal["yes", "no"] = "yes"
    workers: int = 2
    renewals: int = 0
    late: int = 1
    crashes: int = 1
    events: int = 1
    sweeps: int = 1
    redrives: int = 1


@dataclass
class Exploration:
    """How many states there are, and the shortest trace to each kind of violation."""

    states: int = 0
    found: dict[str, list[str]] = field(default_factory=dict)


def written(record: Record) -> Record:
    """Return what a write decides of a record: without what the passing of time makes of it."""
    return record._replace(live_lease=False, backoff=False, aged=False)


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


def unchanged(opt: Options, record: Record | None, claimant: int, version: int) -> bool:
    """The condition of every write after the first claim."""
    return record is not None and record.claimant == claimant and (opt.cas == "claimant" or record.version == version)


def put(state: State, index: int, worker: Worker) -> State:
    """Return the state with that worker."""
    workers = list(state.workers)
    workers[index] = worker
    return state._replace(workers=tuple(workers))


def start(state: State, index: int, worker: Worker, new: Record) -> State:
    """The claim is made, as far as the worker knows: the job runs."""
    running = worker._replace(pc="step", held=written(new), retried=False)
    return put(state, index, running)._replace(starts=min(state.starts + 1, 2))


def decide(opt: Options, state: State, index: int, worker: Worker) -> State:
    """What a refused claim or take-over does next, from the record it was shown."""
    record = state.record
    if record is None:
        return put(state, index, worker._replace(pc="claim"))
    acked, kept = worker._replace(pc="acked"), worker._replace(pc="kept")
    run_or_reject = "run" if record.attempts < MAX_ATTEMPTS else "reject"
    if record.status in ("completed", "uncertain"):
        return put(state, index, acked)
    if record.status == "rejected":
        redriven = worker.redrive == record.version and (record.reopened or not opt.amo)
        return put(state, index, worker._replace(pc="take-run", seen=record) if redriven else acked)
    if record.status == "failed":
        return put(state, index, kept if record.backoff else worker._replace(pc="take-" + run_or_reject, seen=record))
    if record.live_lease:
        return put(state, index, kept)
    return put(state, index, worker._replace(pc="take-" + ("hold" if opt.amo else run_or_reject), seen=record))


def write(
    opt: Options, state: State, index: int, late: Late, *, heard: Callable[[State], State], label: str
) -> Iterator[Move]:
    """A write that may land, land with the response lost, or land late while the writer retries."""
    worker = state.workers[index]
    landed = state._replace(record=late.new)
    yield label, heard(landed)
    if worker.retried:
        return
    yield label + " (response lost)", put(landed, index, worker._replace(retried=True))
    if len(state.late) < opt.late:
        on_its_way = state._replace(late=(*state.late, late))
        yield label + " (late)", put(on_its_way, index, worker._replace(retried=True))


def claim(opt: Options, state: State, index: int, worker: Worker) -> Iterator[Move]:
    """The first claim: a put on FREE."""
    record, me = state.record, f"w{index}:"
    new = Record("processing", worker.token, 1, 1, live_lease=True)
    if record is None or (record.aged and (opt.free == "loose" or record.status in ("completed", "rejected"))):
        late = Late("claim", None, new)
        yield from write(
            opt, state, index, late, heard=lambda landed: start(landed, index, worker, new), label=me + "claim"
        )
    elif recognised(opt, record, new):
        wrong = doubt(record, new, "claim")
        yield me + "claim own write seen", start(state, index, worker, new)._replace(wrong=wrong)
    else:
        yield me + "claim refused", decide(opt, state, index, worker)


def take(opt: Options, state: State, index: int, worker: Worker) -> Iterator[Move]:
    """A take-over, or the end that a taker writes: a write on UNCHANGED as seen."""
    record, me, seen = state.record, f"w{index}:", worker.seen
    assert seen is not None
    base = seen._replace(claimant=worker.token, version=seen.version + 1, live_lease=False, backoff=False, aged=False)
    if worker.pc == "take-run":
        attempts = 1 if seen.status == "rejected" else seen.attempts + 1
        new = base._replace(status="processing", attempts=attempts, live_lease=True, reopened=False)
    else:
        new = base._replace(status="rejected" if worker.pc == "take-reject" else "uncertain")

    def heard(landed: State) -> State:
        if worker.pc == "take-run":
            return start(landed, index, worker, new)
        return put(landed, index, worker._replace(pc="acked", retried=False))

    if unchanged(opt, record, seen.claimant, seen.version):
        late = Late(worker.pc, (seen.claimant, seen.version), new)
        yield from write(opt, state, index, late, heard=heard, label=me + worker.pc)
    elif recognised(opt, record, new):
        yield me + worker.pc + " own write seen", heard(state)._replace(wrong=doubt(record, new, worker.pc))
    else:
        yield me + worker.pc + " refused", decide(opt, state, index, worker._replace(retried=False))


def own_earlier(opt: Options, record: Record | None, held: Record) -> bool:
    """Rule 5: our token on a record still processing, further than we know, is an earlier write of ours."""
    return (
        opt.follow == "yes"
        and record is not None
        and record.claimant == held.claimant
        and record.status == "processing"
        and record.version > held.version
    )


def hold(opt: Options, state: State, index: int, worker: Worker) -> Iterator[Move]:
    """A write of the claimant: a step's record, or one of the four ends."""
    record, held, name, me = state.record, worker.held, worker.pc, f"w{index}:"
    assert held is not None
    base = (held if record is None or opt.cas == "version" else record)._replace(aged=False)
    base = base._replace(version=base.version + 1, live_lease=record is not None and record.live_lease)
    new = {
        "record-step": base._replace(step_done=True),
        "complete": base._replace(status="completed", live_lease=False),
        "release": base._replace(status="failed", live_lease=False, backoff=True),
        "end-uncertain": base._replace(status="uncertain", live_lease=False),
    }[name]

    def heard(landed: State) -> State:
        done = worker._replace(pc=AFTER[name], held=written(new), retried=False, adopted=False)
        return put(landed, index, done)

    if worker.retried and recognised(opt, record, new):
        yield me + name + " own write seen", heard(state)._replace(wrong=doubt(record, new, name))
    elif unchanged(opt, record, held.claimant, held.version) and (
        opt.cas == "version" or (record is not None and record.status == "processing")
    ):
        late = Late(name, (held.claimant, held.version), new)
        yield from write(opt, state, index, late, heard=heard, label=me + name)
    elif recognised(opt, record, new):
        yield me + name + " taken for ours", heard(state)._replace(wrong=doubt(record, new, name))
    elif record is not None and own_earlier(opt, record, held) and not worker.adopted:
        follows = worker._replace(held=written(record), retried=False, adopted=True)
        yield me + name + " finds an earlier write of ours", put(state, index, follows)
    else:
        ours = record is not None and record.claimant == worker.token
        wrong = "G2: a claim was given up that nobody took" if ours else ""
        yield me + name + " lost", put(state, index, worker._replace(pc="lost"))._replace(wrong=wrong)
    if worker.retried and opt.renewals:
        yield me + name + " unanswered", put(state, index, worker._replace(pc="kept"))
        # The renewing thread was on its way when the job ended: its request is sent after the end's.
        if state.renewals < opt.renewals and len(state.late) < opt.late:
            stray = Late("renew", (held.claimant, held.version), renewed(held, state.renewals))
            gone = put(state, index, worker._replace(pc="kept"))
            yield (
                me + name + " unanswered, a renewal behind it",
                gone._replace(late=(*state.late, stray), renewals=state.renewals + 1),
            )


def renewed(held: Record, renewals: int) -> Record:
    """Return the record with its lease moved; no two renewals move it to the same time."""
    return held._replace(version=held.version + 1, live_lease=True, lease=renewals + 1)


def renew(opt: Options, state: State, index: int, worker: Worker) -> Iterator[Move]:
    """A renewal: nobody waits for its outcome, the job goes on."""
    record, held, me = state.record, worker.held, f"w{index}:"
    if state.renewals >= opt.renewals or held is None:
        return
    new = renewed(held, state.renewals)
    tried = state._replace(renewals=state.renewals + 1)
    if unchanged(opt, record, held.claimant, held.version):
        landed = tried._replace(record=new._replace(step_done=record is not None and record.step_done))
        yield me + "renew", put(landed, index, worker._replace(held=written(new)))
        yield me + "renew (never heard of)", landed
        if len(state.late) < opt.late:
            yield (
                me + "renew (late)",
                tried._replace(late=(*state.late, Late("renew", (held.claimant, held.version), new))),
            )
    elif recognised(opt, record, new):
        believed = put(tried, index, worker._replace(held=written(new)))
        yield me + "renew taken for ours", believed._replace(wrong=doubt(record, new, "renewal"))
    elif record is not None and own_earlier(opt, record, held):
        yield me + "renew finds an earlier write of ours", put(state, index, worker._replace(held=written(record)))


def step(state: State, index: int, worker: Worker) -> Iterator[Move]:
    """Run the step, or replay it from the record."""
    me, record = f"w{index}:", state.record
    if worker.seen is not None and worker.seen.step_done:
        yield me + "step replayed", put(state, index, worker._replace(pc="finish"))
        return
    again = record is not None and record.step_done and record.claimant == worker.token
    running = put(state, index, worker._replace(pc="record-step"))
    yield me + "step runs", running._replace(step_again=state.step_again or again)


def deliver(opt: Options, state: State, index: int, worker: Worker) -> Iterator[Move]:
    """A message comes again: redelivered, redriven, or a duplicate."""
    record, me, pc = state.record, f"w{index}:", worker.pc
    fresh = Worker("claim", worker.token + 10)
    if state.events < opt.events:
        label = "duplicate" if pc == "acked" else "redelivered"
        yield me + label, put(state, index, fresh)._replace(events=state.events + 1)
    if pc == "acked" and record is not None and record.status == "rejected" and state.redrives < opt.redrives:
        redriven = put(state, index, fresh._replace(redrive=record.version))
        yield me + "redriven", redriven._replace(redrives=state.redrives + 1)


def work(opt: Options, state: State, index: int) -> Iterator[Move]:
    """What one worker may do next."""
    worker = state.workers[index]
    me, pc = f"w{index}:", worker.pc
    if pc in IDLE:
        yield from deliver(opt, state, index, worker)
        return
    if state.crashes < opt.crashes:
        yield me + "crash@" + pc, put(state, index, worker._replace(pc="dead"))._replace(crashes=state.crashes + 1)
    if pc == "claim":
        yield from claim(opt, state, index, worker)
    elif pc.startswith("take-"):
        yield from take(opt, state, index, worker)
    elif pc in AFTER:
        yield from hold(opt, state, index, worker)
    else:
        yield from renew(opt, state, index, worker)
        if pc == "step":
            yield from step(state, index, worker)
        else:
            yield me + "returns", put(state, index, worker._replace(pc="complete"))
            raised = "end-uncertain" if opt.amo else "release"
            yield me + "raises", put(state, index, worker._replace(pc=raised))


def world(opt: Options, state: State) -> Iterator[Move]:
    """What happens without a worker: late writes land, time passes, recovery sweeps."""
    for position, late in enumerate(state.late):
        rest = state.late[:position] + state.late[position + 1 :]
        lands = state.record is None if late.condition is None else unchanged(opt, state.record, *late.condition)
        label = f"late {late.name} {'lands' if lands else 'refused'}"
        yield label, state._replace(record=late.new if lands else state.record, late=rest)
    record = state.record
    if record is None:
        return
    stale = record.status == "processing" and not record.live_lease
    holder = any(worker.token == record.claimant and worker.pc not in IDLE for worker in state.workers)
    may_pass = opt.zombies or not holder
    if record.status == "processing" and record.live_lease and state.leases < 1 + opt.zombies and may_pass:
        yield "lease passes", state._replace(record=record._replace(live_lease=False), leases=state.leases + 1)
    if record.status == "failed" and record.backoff:
        yield "back-off over", state._replace(record=record._replace(backoff=False))
    if stale and state.sweeps < opt.sweeps:
        swept = record._replace(status="uncertain" if opt.amo else "failed", version=record.version + 1)
        if opt.sweep_token == "yes":
            swept = swept._replace(claimant=-1)
        yield "recovery marks it", state._replace(record=swept, sweeps=state.sweeps + 1)
    if opt.aging and record.status != "uncertain" and not record.aged and state.agings < 1 and not state.late:
        yield "record ages past retention", state._replace(record=record._replace(aged=True), agings=1)


def violation(opt: Options, before: State, after: State) -> str:
    """Say which promise the move broke, or nothing."""
    old, new = before.record, after.record
    running = [worker for worker in after.workers if worker.pc in ("step", "record-step", "finish")]
    acked = any(worker.pc == "acked" for worker in after.workers) and not after.redrives and not after.agings
    ended = new is not None and new.status in ENDS
    lost_step = old is not None and new is not None and old.step_done and not new.step_done
    rules = [
        (bool(after.wrong), after.wrong),
        (
            bool(old and new and old.status == "completed" and new.status != "completed" and not old.aged),
            "G3: a completed record was changed",
        ),
        (
            lost_step and not (old is not None and old.aged and old.status in ("completed", "rejected")),
            "G6: a recorded step was lost",
        ),
        (after.step_again, "G6: the claimant ran a recorded step again"),
        (not opt.zombies and len(running) > 1, "G1: two claimants run at once"),
        (opt.amo and after.starts > 1 and not after.agings, "G9: an at-most-once job was started twice"),
        (acked and not ended, "G4: acknowledged without an end"),
    ]
    return next((rule for broken, rule in rules if broken), "")


def explore(opt: Options, *, until: Sequence[str] | None = None) -> Exploration:
    """Visit every state, or stop as soon as each violation named in ``until`` is found."""
    first = State(None, tuple(Worker("claim", number + 1) for number in range(opt.workers)))
    parents: dict[State, tuple[str, State] | None] = {first: None}
    queue, result = deque([first]), Exploration()
    while queue and not (until and all(any(rule in kind for kind in result.found) for rule in until)):
        state = queue.popleft()
        moves = [move for index in range(opt.workers) for move in work(opt, state, index)]
        for label, after in (*moves, *world(opt, state)):
            broken = violation(opt, state, after)
            if broken:
                if broken not in result.found:
                    result.found[broken] = [*trace(parents, state), label]
            elif after not in parents:
                parents[after] = (label, state)
                queue.append(after)
    result.states = len(parents)
    return result


def trace(parents: dict[State, tuple[str, State] | None], state: State) -> list[str]:
    """Return the moves that lead to a state."""
    labels: list[str] = []
    while (parent := parents[state]) is not None:
        label, state = parent
        labels.append(label)
    return labels[::-1]


def main() -> int:
    """Explore what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--amo", action="store_true", help="the job is at-most-once")
    parser.add_argument("--zombies", action="store_true", help="a lease may pass while its claimant lives")
    parser.add_argument("--aging", action="store_true", help="records may pass their retention")
    parser.add_argument("--cas", choices=["claimant", "version"], default="version")
    parser.add_argument("--sweep-token", choices=["yes", "no"], default="yes")
    parser.add_argument("--free", choices=["strict", "loose"], default="strict")
    parser.add_argument("--recognise", choices=["record", "version"], default="record")
    parser.add_argument("--follow", choices=["yes", "no"], default="yes")
    for name, default in (("workers", 2), ("late", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("renewals", 0), ("crashes", 1), ("events", 1), ("sweeps", 1), ("redrives", 1)):
        parser.add_argument(f"--{name}", type=int, default=default, help="how many at the most")
    result = explore(Options(**vars(parser.parse_args())))
    print(f"{result.states} states, {len(result.found)} kinds of violation")
    for broken, labels in result.found.items():
        print(f"  {broken}:\n    {' -> '.join(labels)}")
    return 1 if result.found else 0


if __name__ == "__main__":
    raise SystemExit(main())
