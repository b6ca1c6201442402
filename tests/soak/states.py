"""States as a soak may leave them, made by hand: what the checker is shown, and then with something wrong in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from soak.plan import Message
from soak.seen import Seen

LEASE_MS, SKEW_MS = 2_000, 300
NOT_JSON = "not JSON, 7"
Line = dict[str, Any]


class State:
    """Writes the history of jobs, as the journal, the log and the tables would have it."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.seen = Seen(skew_ms=SKEW_MS)

    def send(self, kind: str, key: str, *, job_type: str = "", **payload: Any) -> str:
        """Let a message be sent, and return its job."""
        number = len(self.seen.sent) + 1
        message = Message(number, kind, job_type or kind, key, payload)
        self.seen.sent.append(message)
        return message.job

    def claim(self, job: str, at: int, *, claimant: str, pid: int, **more: Any) -> None:
        """Claim a job, or take it over, and begin an attempt whose fencing token is the time."""
        name = "take_over" if job in self.seen.records else "claim"
        self.write(job, at, name, claimant=claimant, status="processing", lease=at + LEASE_MS, fencing=at, **more)
        self.tell(at + 1, "job.started", pid, job=job, claimant=claimant)
        self.tell(at + 2, "attempt.began", pid, job=job, token=at)

    def write(self, job: str, at: int, name: str, *, claimant: str, **fields: Any) -> None:
        """Let a write land."""
        record = self.seen.records.get(job)
        version = record["version"] + 1 if record else 1
        after = [record["claimant"], record["version"]] if record else None
        empty = dict.fromkeys(("status", "lease", "fencing", "steps", "result", "token", "fault"))
        known = {"write": name, "job": job, "after": after, "claimant": claimant, "version": version}
        times = {"arrived": at, "landed": at + 1, "http": 200}
        self.seen.journal.append({**empty, **known, **times, **fields})
        kept = {name: value for name, value in fields.items() if name in ("status", "result") and value is not None}
        self.seen.records[job] = {**(record or {}), "claimant": claimant, "version": version, **kept}

    def step(self, job: str, at: int, name: str, *, claimant: str, pid: int, token: int) -> None:
        """Run a step and record it."""
        self.tell(at, "step.began", pid, job=job, step=name, token=token)
        self.effect(job, name, at)
        self.write(job, at + 5, "step", claimant=claimant, steps={name: {"result": 1}})

    def effect(self, job: str, name: str, at: int = 1, *, key: str = "") -> None:
        """Have an effect at the provider."""
        entry = {"job": job, "effect": name, "calls": [at], "done": at}
        self.seen.books["effects"][key or f"{job}/{name}"] = entry

    def complete(self, job: str, at: int, *, claimant: str, pid: int, token: int, value: Any = None) -> None:
        """End an attempt and complete its job."""
        self.tell(at, "attempt.ended", pid, job=job, token=token, value=value)
        self.write(job, at + 2, "complete", claimant=claimant, status="completed", result=json.dumps(value))
        self.tell(at + 4, "job.completed", pid, job=job, claimant=claimant)

    def tell(self, at: int, name: str, pid: int, **values: Any) -> None:
        """Let a process tell something."""
        self.seen.log.append({"at": at, "pid": pid, "name": name, **values})

    def plain(self, job: str, at: int, *, pid: int = 11, value: Any = None) -> None:
        """Run a job from its claim to its completion."""
        claimant = f"c-{job}"
        self.claim(job, at, claimant=claimant, pid=pid)
        self.complete(job, at + 20, claimant=claimant, pid=pid, token=at, value=value)


def kept_state() -> Seen:
    """Return a state in which every promise is kept: a zombie, a killed process, duplicates and bad messages in it."""
    state = State()
    seen = state.seen
    _charges(state)
    _zombie(state)
    _reservation(state)
    _once(state)
    _answers(state)
    _bad_ones(state)
    seen.sent.append(replace(seen.sent[0], number=len(seen.sent) + 1, kind="duplicate"))
    state.tell(9_000, "job.replayed", 12, job=seen.sent[0].job, claimant="c-charge#k-1")
    return seen


def _charges(state: State) -> None:
    job = state.send("charge", "k-1")
    state.claim(job, 1_000, claimant="c-charge#k-1", pid=11)
    state.step(job, 1_010, "charge", claimant="c-charge#k-1", pid=11, token=1_000)
    # The answer to its completion is lost.
    state.complete(job, 1_030, claimant="c-charge#k-1", pid=11, token=1_000, value={"charge": 1})
    state.seen.journal[-1]["fault"] = "reset_after"
    # A process is killed behind a step, and another one goes on with it.
    job = state.send("trip", "k-2")
    state.claim(job, 1_000, claimant="dead", pid=13)
    state.step(job, 1_010, "flight", claimant="dead", pid=13, token=1_000)
    state.seen.exits.append({"at": 1_100, "pid": 13, "name": "worker 1", "code": -9})
    state.claim(job, 3_400, claimant="heir", pid=12)
    state.tell(3_402, "job.taken_over", 12, job=job, claimant="heir", previous_claimant="dead")
    state.tell(3_403, "step.replayed", 12, job=job, step="flight", claimant="heir")
    for number, name in enumerate(("hotel", "car")):
        state.step(job, 3_410 + number * 10, name, claimant="heir", pid=12, token=3_400)
    state.complete(job, 3_500, claimant="heir", pid=12, token=3_400, value=[1, 2, 3])


def _zombie(state: State) -> None:
    """A process is stopped in a job; another one completes it meanwhile, and the late write is refused."""
    job = state.send("count", "k-3")
    state.claim(job, 1_000, claimant="zombie", pid=11)
    state.seen.zombies.append({"pid": 11, "from": 1_010, "to": 6_000, "name": "worker 1"})
    state.effect(job, "count")
    state.claim(job, 3_500, claimant="taker", pid=12)
    state.complete(job, 3_520, claimant="taker", pid=12, token=3_500, value=2)
    state.tell(6_001, "attempt.ended", 11, job=job, token=1_000, value=1)
    late = {"write": "complete", "job": job, "after": ["zombie", 1], "claimant": "zombie", "version": 2}
    refused = dict.fromkeys(("lease", "fencing", "steps", "token", "fault")) | {"status": "completed", "result": "1"}
    state.seen.journal.append({**refused, **late, "arrived": 6_002, "landed": 6_003, "http": 400})
    state.tell(6_004, "claim.lost", 11, job=job, claimant="zombie", winner="taker", status="completed")


def _reservation(state: State) -> None:
    seen = state.seen
    job = state.send("reserve", "k-4", sku="plenty", pieces=3)
    state.plain(job, 2_000, value=3)
    seen.shelf, seen.stock, seen.lines = {"plenty": 100}, {"plenty": 97}, {"k-4": ("plenty", 3)}
    seen.outbox = [{"job": f"{name}#k-4-{name}", "status": "sent", "pk": name} for name in ("mail", "book")]
    state.effect("mail#k-4-mail", "mail")
    state.plain("mail#k-4-mail", 2_100)
    seen.books["legacy"].append({"at": 2_201, "job": "book#k-4-book"})
    state.plain("book#k-4-book", 2_200)
    entry = state.send("entry", "k-5", account="a", amount=50)
    state.plain(entry, 2_300, value=50)
    entry = state.send("entry", "k-15", account="a", amount=-10)
    state.plain(entry, 2_400, value=-10)
    seen.accounts, seen.balances = {"a": 100}, {"a": 140}


def _once(state: State) -> None:
    """A job that may start once asks itself for a second start, and one that died waits for a person."""
    job = state.send("book", "k-6")
    state.claim(job, 2_000, claimant="first", pid=11)
    state.tell(2_010, "attempt.ended", 11, job=job, token=2_000, error="Retry")
    state.write(job, 2_011, "release", claimant="first", status="failed")
    state.claim(job, 2_500, claimant="second", pid=12)
    state.seen.books["legacy"].append({"at": 2_505, "job": job})
    state.complete(job, 2_510, claimant="second", pid=12, token=2_500)
    job = state.send("book", "k-7")
    state.claim(job, 1_000, claimant="died", pid=13)
    state.write(job, 3_500, "hold", claimant="holder", status="uncertain")
    state.tell(3_501, "job.held", 12, job=job, claimant="holder")
    state.seen.letters.append({"note": {"job_type": "book", "key": "k-7", "reason": "uncertain"}, "body": body_of(job)})


def _answers(state: State) -> None:
    values: tuple[Any, ...] = (0, "", [], False, None)
    for number, value in enumerate(values):
        job = state.send("answer", f"k-8{number}", value=value)
        state.effect(job, "answer")
        state.plain(job, 4_000 + number * 100, value=value)
    job = state.send("answer", "k-90", value="too_large")
    state.effect(job, "answer")
    state.plain(job, 4_900)
    del state.seen.log[-2]["value"]
    state.seen.records[job] |= {"result": None, "result_not_stored": "too large"}
    state.seen.journal[-1]["result"] = None


def _bad_ones(state: State) -> None:
    seen = state.seen
    job = state.send("killer", "k-91")
    state.claim(job, 5_000, claimant="killed", pid=14)
    seen.exits.append({"at": 5_010, "pid": 14, "name": "worker 2", "code": -9})
    state.write(job, 7_500, "reject", claimant="rejecter", status="rejected")
    state.tell(7_501, "job.rejected", 12, job=job, claimant="rejecter")
    seen.letters.append({"note": {"job_type": "killer", "key": "k-91", "reason": "rejected"}, "body": body_of(job)})
    seen.sent.append(Message(len(seen.sent) + 1, "unreadable", body=NOT_JSON))
    seen.letters.append({"note": {"reason": "no envelope"}, "body": NOT_JSON})
    reused = state.send("reuse", "k-1", job_type="charge", reused=1)
    seen.letters.append({"note": {"reason": "key reuse: another payload"}, "body": body_of(reused)})
    state.tell(5_001, "batch.delivered", 14, jobs=["", job, "count#k-3"])


def body_of(job: str) -> str:
    """Return the body of a job's message."""
    job_type, _, key = job.partition("#")
    return json.dumps({"onceq": 1, "job_type": job_type, "idempotency_key": key, "payload": {}})
