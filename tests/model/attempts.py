"""What the deliveries of a job's messages do: claim, run, record, end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.outbox import sending
from model.parts import (
    IDLE,
    MAX_ATTEMPTS,
    PEOPLE,
    Entry,
    Late,
    Record,
    Worker,
    applied,
    doubt,
    ended,
    is_free,
    put,
    recognised,
    starts_once,
    unchanged,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from model.parts import Move, Options, State

AFTER = {
    "record-step": "finish",
    "mark": "marked",
    "unmark": "release",
    "complete": "acked",
    "release": "kept",
    "retry": "kept",
    "reject": "acked",
    "end-uncertain": "acked",
}


def start(opt: Options, state: State, index: int, worker: Worker, new: Record) -> State:
    """The claim is made, as far as the worker knows: the job runs."""
    pc = "finish" if opt.job == "bare" else "step"
    running = worker._replace(pc=pc, held=written(new), seen=None, redrive=None, retried=False)
    return put(state, index, running)._replace(starts=min(state.starts + opt.amo, 2))


def decide(opt: Options, state: State, index: int, worker: Worker) -> State:
    """What a refused claim or take-over does next, from the record it was shown."""
    record = state.record
    if record is None:
        return put(state, index, worker._replace(pc="claim"))
    same_end, kept = ended(worker, record), worker._replace(pc="kept")
    run_or_reject = "run" if record.attempts < MAX_ATTEMPTS else "reject"
    if record.status in ("completed", "uncertain"):
        return put(state, index, same_end)
    if record.status == "rejected":
        redriven = worker.redrive == record.version and not opt.amo
        return put(state, index, worker._replace(pc="take-run", seen=record) if redriven else same_end)
    if record.status == "failed":
        return put(state, index, kept if record.backoff else worker._replace(pc="take-" + run_or_reject, seen=record))
    if record.live_lease:
        return put(state, index, kept)
    to = "hold" if starts_once(opt, record) else run_or_reject
    return put(state, index, worker._replace(pc="take-" + to, seen=record))


def write(
    opt: Options, state: State, index: int, late: Late, *, heard: Callable[[State], State], label: str
) -> Iterator[Move]:
    """A write that may land, land with the response lost, or land late while the writer retries."""
    worker = state.workers[index]
    landed = applied(opt, state, late)
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

    def heard(landed: State) -> State:
        return start(opt, landed, index, worker, new)

    if is_free(opt, record):
        yield from write(opt, state, index, Late("claim", None, new), heard=heard, label=me + "claim")
    elif recognised(opt, record, new):
        yield me + "claim own write seen", heard(state)._replace(wrong=doubt(record, new, "claim"))
    else:
        yield me + "claim refused", decide(opt, state, index, worker)


def take(opt: Options, state: State, index: int, worker: Worker) -> Iterator[Move]:
    """A take-over, or the end that a taker writes: a write on UNCHANGED as seen."""
    record, me, seen = state.record, f"w{index}:", worker.seen
    assert seen is not None
    base = written(seen)._replace(claimant=worker.token, version=seen.version + 1)
    if worker.pc == "take-run":
        attempts = 1 if seen.status == "rejected" else seen.attempts + 1
        new = base._replace(status="processing", attempts=attempts, live_lease=True)
    else:
        new = base._replace(status="rejected" if worker.pc == "take-reject" else "uncertain")

    def heard(landed: State) -> State:
        if worker.pc == "take-run":
            return start(opt, landed, index, worker, new)
        wrong = ""
        if worker.pc == "take-reject" and seen.claimant <= PEOPLE:
            wrong = "a job that a person opened again was ended without a start"
        if worker.pc == "take-reject" and seen.step == "open":
            wrong = "G9: a job whose step may have happened was rejected instead of held"
        return put(landed, index, ended(worker, new))._replace(wrong=wrong)

    if unchanged(opt, record, seen.claimant, seen.version):
        late = Late(worker.pc, (seen.claimant, seen.version), new)
        yield from write(opt, state, index, late, heard=heard, label=me + worker.pc)
    elif recognised(opt, record, new):
        landed = heard(state)
        yield me + worker.pc + " own write seen", landed._replace(wrong=landed.wrong or doubt(record, new, worker.pc))
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


def next_record(opt: Options, record: Record | None, held: Record, name: str) -> Record:
    """Return what a write of the claimant makes of the record that it follows."""
    base = (held if record is None or opt.cas == "version" else record)._replace(aged=False)
    base = base._replace(version=base.version + 1, live_lease=record is not None and record.live_lease)
    match name:
        case "mark":
            return base._replace(step="open")
        case "record-step":
            return base._replace(step="done")
        case "unmark":
            return base._replace(step="")
        case "release" | "retry":
            return base._replace(status="failed", live_lease=False, backoff=True)
        case _:
            status = {"complete": "completed", "reject": "rejected", "end-uncertain": "uncertain"}[name]
            return base._replace(status=status, live_lease=False)


def hold(opt: Options, state: State, index: int, worker: Worker) -> Iterator[Move]:
    """A write of the claimant: what becomes of a step, or one of the four ends."""
    record, held, name, me = state.record, worker.held, worker.pc, f"w{index}:"
    assert held is not None
    new = next_record(opt, record, held, name)
    ours = record is not None and record.claimant == worker.token

    def heard(landed: State) -> State:
        done = worker._replace(pc=AFTER[name], held=written(new), retried=False, adopted=False)
        return put(landed, index, after_end(opt, done, new) if done.pc == "acked" else done)

    if worker.retried and recognised(opt, record, new):
        yield me + name + " own write seen", heard(state)._replace(wrong=doubt(record, new, name))
    elif unchanged(opt, record, held.claimant, held.version) and (
        opt.cas == "version" or (record is not None and record.status == "processing")
    ):
        late = Late(name, (held.claimant, held.version), new)
        yield from write(opt, state, index, late, heard=heard, label=me + name)
        if name == "complete" and opt.commit != "none" and state.conflicts < opt.conflicts:
            # Also after an earlier request of unknown outcome: the two see the user's items at different times.
            refused = put(state, index, refused_by_user(opt, worker))._replace(conflicts=state.conflicts + 1)
            yield me + "complete refused by the user's condition", refused
    elif recognised(opt, record, new):
        yield me + name + " taken for ours", heard(state)._replace(wrong=doubt(record, new, name))
    elif record is not None and own_earlier(opt, record, held) and not worker.adopted:
        follows = worker._replace(held=written(record), retried=False, adopted=True)
        yield me + name + " finds an earlier write of ours", put(state, index, follows)
    elif record is not None and ours and record.status == "completed" and opt.completion == "seen":
        # An earlier request of the commit landed after all; ClaimLost tells that the job is completed.
        yield me + name + " finds our completion", put(state, index, ended(worker, record))
    else:
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


def refused_by_user(opt: Options, worker: Worker) -> Worker:
    """A failed condition of the user's is no Retry of the job's own: an at-most-once job is held for it."""
    pc = "end-uncertain" if opt.amo and opt.conflict == "hold" else "release"
    return worker._replace(pc=pc, retried=False, adopted=False)


def after_end(opt: Options, worker: Worker, new: Record) -> Worker:
    """Return what follows an end: what was staged and is due is sent before the message is acknowledged."""
    if new.status != "completed" or opt.commit == "none":
        return ended(worker, new)
    if opt.commit == "separate":
        return worker._replace(pc="put-entry")
    return ended(worker, new) if opt.delayed else worker._replace(pc="mark-sent" if opt.mark_first else "send")


def renewed(held: Record, renewals: int) -> Record:
    """Return the record with its lease moved; no two renewals move it to the same time."""
    return held._replace(version=held.version + 1, live_lease=True, lease=renewals + 1)


def renew(opt: Options, state: State, index: int, worker: Worker) -> Iterator[Move]:
    """A renewal: nobody waits for its outcome, the job goes on."""
    record, held, me = state.record, worker.held, f"w{index}:"
    if state.renewals >= opt.renewals or held is None:
        return
    new = renewed(held, state.renewals)
    late = Late("renew", (held.claimant, held.version), new)
    tried = state._replace(renewals=state.renewals + 1)
    if record is not None and unchanged(opt, record, held.claimant, held.version):
        landed = applied(opt, tried, late._replace(new=new._replace(step=record.step)))
        yield me + "renew", put(landed, index, worker._replace(held=written(new)))
        yield me + "renew (never heard of)", landed
        if len(state.late) < opt.late:
            yield me + "renew (late)", tried._replace(late=(*state.late, late))
    elif recognised(opt, record, new):
        believed = put(tried, index, worker._replace(held=written(new)))
        yield me + "renew taken for ours", believed._replace(wrong=doubt(record, new, "renewal"))
    elif record is not None and own_earlier(opt, record, held):
        yield me + "renew finds an earlier write of ours", put(state, index, worker._replace(held=written(record)))


def run(opt: Options, state: State, index: int, worker: Worker) -> Iterator[Move]:
    """The job itself: its step, with or without a mark, and what it returns or raises."""
    me, held, pc = f"w{index}:", worker.held, worker.pc
    assert held is not None

    def to(pc: str) -> State:
        return put(state, index, worker._replace(pc=pc))

    raised = "end-uncertain" if opt.amo else "release"
    if pc == "step":
        if held.step == "done":
            yield me + "step replayed", to("finish")
        elif held.step == "open" and opt.open_step != "rerun":
            yield me + "step found started", to("end-uncertain")
        elif opt.job == "once":
            yield me + "step is due", to("mark" if opt.started == "first" and not held.step else "marked")
        else:
            yield me + "step runs", begun(opt, to("record-step"), worker)
        return
    if pc == "marked":
        begins = begun(opt, to("effect"), worker)
        yield me + "effect starts", begins._replace(starts=begins.starts if opt.amo else min(begins.starts + 1, 2))
    elif pc == "effect":
        yield me + "effect returns", to("record-step")
        yield me + "effect raises", to("end-uncertain")
        yield me + "effect rejects", to("reject")
        if state.retries < opt.retries:
            to_release = "unmark" if opt.retry_mark == "removed" else "release"
            yield me + "effect raises Retry", to(to_release)._replace(retries=state.retries + 1)
    else:
        yield me + "returns", to("complete")
        if opt.commit == "separate":
            yield me + "returns, its entry is put first", to("complete")._replace(entry=Entry())
        yield me + "raises", to(raised)
        if opt.amo and state.retries < opt.retries:
            yield me + "raises Retry", to("retry")._replace(retries=state.retries + 1)
    if opt.parallel and pc in ("marked", "effect"):
        # Another branch of the job ends it while the step is under way.
        yield me + "returns meanwhile", to("end-uncertain" if opt.ends == "hold" else "complete")
        yield me + "raises meanwhile", to("end-uncertain" if opt.ends == "hold" else raised)


def begun(opt: Options, state: State, worker: Worker) -> State:
    """The step's function is called: is it recorded as done?"""
    record = state.record
    again = record is not None and record.step == "done" and (record.claimant == worker.token or not opt.zombies)
    return state._replace(wrong="G6: a recorded step was run again") if again else state


def deliver(opt: Options, state: State, index: int, worker: Worker) -> Iterator[Move]:
    """A message comes again: redelivered, redriven, or a duplicate."""
    me, fresh = f"w{index}:", Worker("claim", worker.token + 10)
    if state.events < opt.events:
        label = "duplicate" if worker.pc == "acked" else "redelivered"
        yield me + label, put(state, index, fresh)._replace(events=state.events + 1)
    if worker.note is not None and state.redrives < opt.redrives:
        redriven = put(state, index, fresh._replace(redrive=worker.note))
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
    elif pc == "put-entry":
        due = worker._replace(pc="mark-sent" if opt.mark_first else "send")
        yield me + "puts its entry", put(state, index, due)._replace(entry=state.entry or Entry())
    elif pc in ("send", "mark-sent", "note-failure"):
        for label, after, to in sending(opt, state, pc):
            yield me + label, put(after, index, worker._replace(pc=to or "acked"))
    else:
        yield from renew(opt, state, index, worker)
        yield from run(opt, state, index, worker)
