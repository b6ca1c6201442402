"""The explorer and the model of the protocol (`tests/model`): do they know the same changes of a record?

A change is what a write makes of a record: status, attempts and step before and after, whether the lease was live
before, and whether the writer had made the claim itself. The model has no clock and no requests; the explorer runs the
code. Where one of them knows a change that the other does not, one of them is wrong, or it is named here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from explore.explorer import Explorer
from explore.invariants import SKEW_MS
from explore.jobs import app, nothing
from explore.space import Play, Used
from model.attempts import work
from model.parts import MAX_ATTEMPTS, Options, State, Worker
from model.world import world
from onceq import Context, JobType, Reject, Semantics
from onceq.record import Record, Status
from onceq.steps import read_steps
from onceq.testing.errors import EffectFailed

if TYPE_CHECKING:
    from explore.outside import Gateway
    from model.parts import Record as ModelRecord
    from onceq.testing.subject import AppSubject


KIND: dict[str, Any] = {"zombies": True, "late": 0, "sweeps": 0, "redrives": 0, "events": 3}


class Side(NamedTuple):
    """A record, as far as both know it."""

    status: str
    attempts: int
    live: bool
    step: str


class Change(NamedTuple):
    """What a write made of it."""

    before: Side | None
    after: Side
    own: bool

    def __str__(self) -> str:
        before = "nothing" if self.before is None else " ".join(str(part) for part in self.before if part != "")
        after = " ".join(str(part) for part in self.after if part not in ("", False))
        return f"{before} -> {after}, by {'its claimant' if self.own else 'a taker'}"


def stepping(gateway: Gateway) -> AppSubject:
    """Run a step, then what may fail."""

    def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        ctx.step("step", lambda: 1)
        return gateway.close()

    return app(JobType(charge, "charge", max_attempts=MAX_ATTEMPTS))


def renewing(gateway: Gateway) -> AppSubject:
    """Run the same outside Lambda, where the lease is renewed while it closes."""
    return stepping(gateway)


def bare_once(gateway: Gateway) -> AppSubject:
    """An at-most-once job that may fail."""

    def charge(_payload: dict[str, Any]) -> Any:
        return gateway.close()

    return app(JobType(charge, "charge", max_attempts=MAX_ATTEMPTS, semantics=Semantics.AT_MOST_ONCE))


def step_once(gateway: Gateway) -> AppSubject:
    """An at-most-once step that may fail, then what may fail."""

    def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        ctx.step("step", gateway.post, semantics=Semantics.AT_MOST_ONCE)
        return gateway.close()

    return app(JobType(charge, "charge", max_attempts=MAX_ATTEMPTS))


def step_once_rejecting(gateway: Gateway) -> AppSubject:
    """An at-most-once step that may reject the job."""

    def post() -> Any:
        try:
            return gateway.post()
        except EffectFailed as error:
            raise Reject(str(error)) from error

    def charge(_payload: dict[str, Any], ctx: Context) -> Any:
        return ctx.step("step", post, semantics=Semantics.AT_MOST_ONCE)

    return app(JobType(charge, "charge", max_attempts=MAX_ATTEMPTS))


# With renewals one lease passes, since the space is too large for two.
RENEWED = "a step and a renewal"
EARLIER = "in the code a lease is renewed where an effect happens, in the model before the step, too"
SECOND = "the lease of a second attempt passes, which is compared without renewals"
NAMED_OF_RENEWALS = {
    "processing 1 True -> processing 1, by its claimant": EARLIER,
    "processing 2 True -> processing 2, by its claimant": EARLIER,
    "processing 2 False done -> completed 2, by its claimant": SECOND,
    "processing 2 False done -> processing 2 done, by its claimant": SECOND,
    "processing 2 False done -> rejected 2 done, by a taker": SECOND,
}


# Two leases pass, since a second attempt may become a zombie, too; time goes on when messages come back.
SETTINGS = {
    "a step": ((stepping,), Options(job="step", **KIND)),
    RENEWED: ((renewing,), Options(job="step", renewals=1, workers=1, **KIND)),
    "an at-most-once job": ((bare_once,), Options(job="bare", amo=True, **KIND)),
    "an at-most-once step": ((step_once, step_once_rejecting), Options(job="once", **KIND)),
}


# The differences, and what they are for.
GIVEN_BACK = "the code gives a claim back uncounted that came too late to start the job; the model starts at once"
AT_ONCE = "the code rejects a job whose last attempt failed at once; the model releases it, and the next taker rejects"
NAMED = {
    "processing 1 False -> failed, by its claimant": GIVEN_BACK,
    "processing 1 True -> failed, by its claimant": GIVEN_BACK,
    "processing 2 False -> failed 1, by its claimant": GIVEN_BACK,
    "processing 2 True -> failed 1, by its claimant": GIVEN_BACK,
    "processing 2 False done -> failed 1 done, by its claimant": GIVEN_BACK,
    "processing 2 True done -> failed 1 done, by its claimant": GIVEN_BACK,
    "failed 0 False -> processing 1, by a taker": GIVEN_BACK,
    "failed 1 False -> processing 2, by a taker": GIVEN_BACK,
    "processing 2 False done -> rejected 2 done, by its claimant": AT_ONCE,
    "processing 2 True done -> rejected 2 done, by its claimant": AT_ONCE,
    "processing 2 False done -> failed 2 done, by its claimant": AT_ONCE,
    "processing 2 True done -> failed 2 done, by its claimant": AT_ONCE,
    "failed 2 False done -> rejected 2 done, by a taker": AT_ONCE,
}


class Compared(NamedTuple):
    """How many changes both know, which of the others have a name, and which have none."""

    shared: int
    named: list[str]
    unexplained: list[str]


def compare(name: str, leases: int = 2) -> Compared:
    """Compare the changes that the code and the model make in one setting, in which so many leases may pass."""
    leases, known = (1, NAMED | NAMED_OF_RENEWALS) if name == RENEWED else (leases, NAMED)
    subjects, opt = SETTINGS[name]
    code = set[Change]().union(*(of_the_code(play(subject, leases)) for subject in subjects))
    model = of_the_model(replace(opt, leases=leases - opt.zombies))
    told = [f"{change} ({'code' if change in code else 'model'} only)" for change in sorted(code ^ model, key=str)]
    named = [one for one in told if one.rpartition(" (")[0] in known]
    return Compared(len(code & model), named, [one for one in told if one not in named])


def play(subject: Any, leases: int) -> Play:
    """Return a job of both as a play."""
    renews = subject is renewing
    used = Used(crashes=int(not renews), expiries=leases, failures=1, renewals=int(renews))
    return Play(subject.__name__, subject, nothing, renews=renews, used=used)


def of_the_code(one: Play) -> set[Change]:
    """Return the changes that the explorer sees."""
    found = Explorer(one).explore()
    assert not found.found, found.found
    return {
        Change(_side(old, now) if old else None, _side(new, now)._replace(live=False), _is_own(old, new))
        for old, new, now, _ in found.changes
    }


def of_the_model(opt: Options) -> set[Change]:
    """Return the changes that the model makes."""
    first = State(None, tuple(Worker("claim", number + 1) for number in range(opt.workers)))
    known, waiting, found = {first}, [first], set[Change]()
    while waiting:
        state = waiting.pop()
        moves = [move for index in range(opt.workers) for move in work(opt, state, index)]
        for _, after in moves:
            if after.record is not None and after.record != state.record:
                old = _of_model(state.record) if state.record else None
                own = state.record is not None and state.record.claimant == after.record.claimant
                found.add(Change(old, _of_model(after.record)._replace(live=False), own))
        for _, after in (*moves, *world(opt, state)):
            if after not in known:
                known.add(after)
                waiting.append(after)
    return found


def _is_own(old: Record | None, new: Record) -> bool:
    return old is not None and old.claimant == new.claimant


def _side(record: Record, now: int) -> Side:
    state = read_steps(record.steps).get("step")
    step = "" if state is None or record.status is Status.COMPLETED else "open" if "started" in state else "done"
    live = record.status is Status.PROCESSING and now < (record.lease_expires_at or 0) + SKEW_MS
    return Side(str(record.status), record.attempts, live, step)


def _of_model(record: ModelRecord) -> Side:
    step = "" if record.status == "completed" else record.step
    return Side(record.status, record.attempts, record.live_lease, step)
