"""The promises about messages and effects, one by one: G4 to G9."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from soak.checks import Verdict
from soak.seen import TERMINAL, job_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from soak.plan import Message
    from soak.seen import Seen

COMPLETED, REJECTED, UNCERTAIN = TERMINAL
# How a message of each kind may end; every other kind is completed.
ENDS = {
    "declined": {COMPLETED, REJECTED},
    "entry": {COMPLETED, REJECTED},
    "refuse": {REJECTED},
    "killer": {REJECTED},
    "book": {COMPLETED, UNCERTAIN, REJECTED},
    "visit": {COMPLETED, UNCERTAIN, REJECTED},
}
# What a completed job of a type had at the provider, and in the system that knows no keys.
EFFECTS = {
    "charge": ("charge",),
    "trip": ("flight", "hotel", "car"),
    "mail": ("mail",),
    "visit": ("before", "after"),
    "count": ("count",),
    "flaky": ("charge",),
    "snooze": ("snooze",),
    "answer": ("answer",),
    "big": ("big",),
}
ONCE = ("book", "visit")
SENDS = {"reserve": ("mail", "book"), "flaky": ("mail",)}
REUSE = "key reuse"
OWN_WORD = ("Retry", "Snooze")


def ends_of(message: Message) -> set[str]:
    """Return how the job of a message may end."""
    if message.job_type == "reserve" and message.payload["sku"] == "scarce":
        return {COMPLETED, REJECTED}
    if message.payload.get("spoil") == "decline":
        return ENDS["declined"]
    return ENDS.get(message.job_type, {COMPLETED})


def check_nothing_lost(seen: Seen) -> Verdict:
    """G4: every message that was taken, and every one of the outbox, has an end, a dead letter, or is in its queue."""
    verdict = Verdict("G4", "every message sent, with its job's record, the dead-letter queues and the queues")
    # A message that uses a key again is refused for itself: its copy says nothing of the job that has the key.
    dead_jobs = {_job_of(letter) for letter in seen.letters if not _is_reuse(letter)}
    dead_bodies = Counter(letter["body"] for letter in seen.letters)
    left = Counter(seen.left)
    left_jobs = {job_in(body) for body in seen.left}
    counts: Counter[str] = Counter({"messages": 0, "completed": 0, "dead letters": 0, "in the queue": 0})
    for message in seen.sent:
        counts["messages"] += 1
        if not message.job:
            where = "dead letters" if dead_bodies[message.body] else "in the queue" if left[message.body] else ""
        else:
            where = _where(seen, message.job, dead_jobs, left_jobs)
        if message.kind == "reuse" and _reuses(seen, message):
            where = "dead letters" if _refused_reuse(seen, message.job) else ""
        if where:
            counts[where] += 1
        else:
            name = message.job or message.body
            verdict.violations.append((name, f"message {message.number} is lost: {seen.status(message.job)}"))
    for entry in seen.outbox:
        counts["of the outbox"] += 1
        if entry["status"] == "sent" and not _where(seen, entry["job"], dead_jobs, left_jobs):
            verdict.violations.append((entry["job"], f"sent from the outbox and lost: {seen.status(entry['job'])}"))
    verdict.counts = dict(counts)
    return verdict


def _where(seen: Seen, job: str, dead_jobs: set[str], left_jobs: set[str]) -> str:
    if seen.status(job) == COMPLETED:
        return "completed"
    return "dead letters" if job in dead_jobs else "in the queue" if job in left_jobs else ""


def _job_of(letter: dict[str, Any]) -> str:
    note = letter["note"]
    return f"{note.get('job_type')}#{note.get('key')}" if note.get("key") else job_in(letter["body"])


def _reuses(seen: Seen, message: Message) -> bool:
    return len({str(one.payload) for one in seen.plans[message.job]}) > 1


def _refused_reuse(seen: Seen, job: str) -> bool:
    return any(job_in(letter["body"]) == job and _is_reuse(letter) for letter in seen.letters)


def _is_reuse(letter: dict[str, Any]) -> bool:
    return str(letter["note"].get("reason", "")).startswith(REUSE)


def check_neighbours(seen: Seen) -> Verdict:
    """G5: what is broken, or kills its process, ends for itself, and what was in one batch with it as it should."""
    verdict = Verdict("G5", "batches with a broken message or a job that kills, and how their other jobs ended")
    poison = {message.job for message in seen.sent if message.kind in ("killer", "reuse")}
    jobs = set(seen.plans) - {""}
    batches = neighbours = 0
    harmed: dict[str, str] = {}
    for batch in seen.events("batch.delivered"):
        broken = [job for job in batch["jobs"] if job in poison or not (job in jobs or job in seen.records)]
        if not broken or len(batch["jobs"]) == len(broken):
            continue
        batches += 1
        for job in batch["jobs"]:
            if job in broken:
                continue
            neighbours += 1
            wanted = ends_of(seen.plans[job][0]) if job in jobs else ENDS.get(job.partition("#")[0], {COMPLETED})
            if seen.status(job) not in wanted:
                harmed[job] = f"{seen.status(job)}, beside {broken[0] or 'what cannot be read'}"
    for message in seen.sent:
        status = seen.status(message.job)
        if message.job and status not in ends_of(message):
            harmed.setdefault(message.job, f"{message.kind}: {status}, and should be {' or '.join(ends_of(message))}")
    verdict.violations = list(harmed.items())
    killers = [message.job for message in seen.sent if message.kind == "killer"]
    verdict.counts = {"batches": batches, "neighbours": neighbours, "killers": len(killers)}
    return verdict


def check_recovered(seen: Seen) -> Verdict:
    """G6: what a crash cut is ended by a later delivery, and no step is run again that was recorded before."""
    verdict = Verdict("G6", "the record of every step, with later runs of its body; jobs whose process died")
    finished: dict[tuple[str, str], int] = {}
    for job, writes in seen.landed.items():
        token = 0
        for write in writes:
            token = write["fencing"] or token
            for step, state in (write["steps"] or {}).items():
                if "started" not in state:
                    finished.setdefault((job, step), token)
    for event in seen.events("step.began"):
        done = finished.get((event["job"], event["step"]))
        if done is not None and event["token"] > done:
            verdict.violations.append((event["job"], f"step {event['step']} was run again after its record"))
    cut = {attempt.job for runs in seen.attempts.values() for attempt in runs if attempt.error == "killed"}
    for job in cut:
        if seen.status(job) not in TERMINAL:
            verdict.violations.append((job, f"its process died, and nobody recovered it: {seen.status(job)}"))
    verdict.counts = {
        "steps recorded": len(finished),
        "answered from the record": seen.told["step.replayed"],
        "jobs cut by a death": len(cut),
        "taken over": seen.told["job.taken_over"],
    }
    return verdict


def check_transactions(seen: Seen) -> Verdict:
    """G7: the user's tables agree with the completions, to the piece and to the cent."""
    verdict = Verdict("G7", "pieces off the shelf, lines written and balances, with the completions they came with")
    reserved = set(seen.completed("reserve"))
    verdict.violations += [
        (f"reserve#{key}", "completed without its line") for key in sorted(reserved - set(seen.lines))
    ]
    verdict.violations += [
        (f"reserve#{key}", "its line without completion") for key in sorted(set(seen.lines) - reserved)
    ]
    taken: Counter[str] = Counter()
    for sku, pieces in seen.lines.values():
        taken[sku] += pieces
    for sku, pieces in seen.shelf.items():
        off = pieces - seen.stock.get(sku, 0)
        if off != taken[sku] or seen.stock.get(sku, 0) < 0:
            verdict.violations.append((sku, f"{off} pieces off the shelf, {taken[sku]} in the lines"))
    posted: Counter[str] = Counter()
    entries = set(seen.completed("entry"))
    for job, planned in seen.plans.items():
        if job.removeprefix("entry#") in entries and planned[0].job_type == "entry":
            posted[planned[0].payload["account"]] += planned[0].payload["amount"]
    for account, cents in seen.accounts.items():
        if seen.balances.get(account) != cents + posted[account] or seen.balances[account] < 0:
            said = f"{seen.balances.get(account)} cents, and its entries say {cents + posted[account]}"
            verdict.violations.append((account, said))
    verdict.counts = {"reservations": len(reserved), "pieces": taken.total(), "entries": len(entries)}
    return verdict


def check_outbox(seen: Seen) -> Verdict:
    """G8: there is exactly one message for each that a completed job sent, none for others, and it was applied once."""
    verdict = Verdict("G8", "entries of the outbox with the completions of their senders, and the jobs they started")
    wanted = {
        f"{job_type}#{key}-{job_type}"
        for sender, sends in SENDS.items()
        for key in seen.completed(sender)
        for job_type in sends
    }
    entries = Counter(entry["job"] for entry in seen.outbox)
    verdict.violations += [
        (job, "its sender completed, and there is no message") for job in sorted(wanted - set(entries))
    ]
    verdict.violations += [(job, "a message whose sender did not complete") for job in sorted(set(entries) - wanted)]
    verdict.violations += [(job, f"staged {number} times") for job, number in entries.items() if number > 1]
    verdict.violations += [(one["job"], "still pending") for one in seen.outbox if one["status"] != "sent"]
    children = [job for job in seen.records if job.endswith(("-mail", "-book"))]
    verdict.violations += [(job, "it ran, and no message started it") for job in children if job not in wanted]
    for job in wanted & set(entries):
        if seen.status(job) not in ENDS.get(job.partition("#")[0], {COMPLETED}):
            verdict.violations.append((job, f"its message was sent, and it is {seen.status(job)}"))
    verdict.violations += _missing_effects(seen, seen.records)
    sendings = seen.told["outbox.sent"]
    verdict.counts = {"messages": len(entries), "sendings": sendings, "applied": len(wanted & set(seen.records))}
    return verdict


def _missing_effects(seen: Seen, jobs: Iterable[str]) -> list[tuple[str, str]]:
    had: dict[str, set[str]] = defaultdict(set)
    for effect in seen.books["effects"].values():
        if effect["done"]:
            had[effect["job"]].add(effect["effect"])
    missing = []
    for job in jobs:
        if seen.status(job) == COMPLETED:
            missing += [
                (job, f"completed without {name}")
                for name in EFFECTS.get(job.partition("#")[0], ())
                if name not in had[job]
            ]
    return missing


def check_at_most_once(seen: Seen) -> Verdict:
    """G9: what may start once is started once, but for its own word or a person's."""
    verdict = Verdict("G9", "starts of every at-most-once job and step, its own retries, people's decisions, and calls")
    retried = Counter(
        job
        for job, writes in seen.landed.items()
        for write in writes
        if write["write"] == "resolve" and write["status"] == "failed"
    )
    own = Counter(line["job"] for line in seen.log if line["name"] == "attempt.ended" and line.get("error") in OWN_WORD)
    starts: Counter[str] = Counter(
        line["job"] for line in seen.log if line["name"] == "attempt.began" and line["job"].startswith("book#")
    )
    starts += Counter(event["job"] for event in seen.events("step.began") if event["step"] == "visit")
    for job, number in starts.items():
        allowed = 1 + retried[job] + own[job]
        if number > allowed:
            verdict.violations.append((job, f"started {number} times, and {allowed} were allowed"))
    for job, number in seen.calls.items():
        if number > 1:
            verdict.violations.append((job, f"called {number} times"))
    for name in ONCE:
        for key in seen.completed(name):
            if seen.calls[f"{name}#{key}"] < 1:
                verdict.violations.append((f"{name}#{key}", "completed, and nobody called"))
    verdict.counts = {
        "jobs": len(starts),
        "starts": starts.total(),
        "calls": seen.calls.total(),
        "uncertain": sum(seen.status(job) == UNCERTAIN for job in seen.records),
        "people's retries": retried.total(),
    }
    return verdict
