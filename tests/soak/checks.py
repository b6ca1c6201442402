"""The promises about the claim, one by one: G1, G2, G3, G10 and G11. `soak.effects` has those about effects.

Each check compares what was promised with what was seen, and says what it compared, with counts. It finds violations
as pairs of a job and a sentence.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soak.seen import Line, Seen


@dataclass
class Verdict:
    """What came of one promise.

    Args:
        promise: Its number.
        compared: What was compared.
        counts: What there was of it.
        violations: Jobs, or other names, and what is wrong with each.
    """

    promise: str
    compared: str
    counts: dict[str, int] = field(default_factory=dict)
    violations: list[tuple[str, str]] = field(default_factory=list)


def check_one_claimant(seen: Seen) -> Verdict:
    """G1: two attempts overlap only where the lease of the first and the clock skew had passed at the take-over."""
    verdict = Verdict("G1", "begin and end of every attempt of a job, with the leases that its claimant had written")
    overlaps = 0
    for job, attempts in seen.attempts.items():
        for number, later in enumerate(attempts):
            claim = seen.claims.get((job, later.token))
            if claim is None:
                verdict.violations.append((job, f"an attempt under token {later.token}, which no claim has"))
                continue
            # The token is the time of the decision, where it is no successor of one that was later.
            taken = min(claim["arrived"], later.token)
            for earlier in attempts[:number]:
                if earlier.token == later.token:
                    verdict.violations.append((job, f"two attempts under one token, {later.token}"))
                elif later.began < earlier.ended:
                    overlaps += 1
                    lease = _lease_of(seen, job, earlier.token, claim["version"])
                    if taken < lease + seen.skew_ms:
                        verdict.violations.append((job, f"taken over {lease + seen.skew_ms - taken} ms too early"))
    verdict.counts = {
        "jobs": len(seen.attempts),
        "attempts": sum(map(len, seen.attempts.values())),
        "overlaps of zombies": overlaps,
    }
    return verdict


def _lease_of(seen: Seen, job: str, token: int, before: int) -> int:
    """Return the last lease that the claimant of a token had written when the record became that version."""
    claimant = seen.claims[job, token]["claimant"] if (job, token) in seen.claims else ""
    leases = [
        write["lease"]
        for write in seen.landed[job]
        if write["claimant"] == claimant and write["version"] < before and write["lease"] is not None
    ]
    return max(leases, default=0)


def check_late_writes(seen: Seen) -> Verdict:
    """G2: every write that landed follows the one before it; nobody writes after he was taken over; ends stay."""
    verdict = Verdict(
        "G2", "the chain of writes of every record, each claimant's place in it, and the table at the end"
    )
    for job, writes in seen.landed.items():
        verdict.violations += [(job, what) for what in _breaks(writes)]
        final, last = seen.records.get(job), writes[-1]
        if final is None:
            verdict.violations.append((job, "its record is gone"))
            continue
        if (final["claimant"], final["version"]) != (last["claimant"], last["version"]):
            verdict.violations.append(
                (job, f"the table has v{final['version']}, the last write was v{last['version']}")
            )
        first = seen.completions.get(job)
        if first and (first["claimant"], first["version"], first["result"]) != (
            final["claimant"],
            final["version"],
            final.get("result"),
        ):
            verdict.violations.append((job, "its completion was changed"))
    zombies = [write for write in seen.refused if write["after"] and is_taken_over(seen, write)]
    verdict.counts = {
        "writes": sum(map(len, seen.landed.values())),
        "completions": len(seen.completions),
        "refused": len(seen.refused),
        "of them zombies'": len(zombies),
    }
    return verdict


def _breaks(writes: list[Line]) -> list[str]:
    found = []
    places: dict[str, list[int]] = defaultdict(list)
    for number, write in enumerate(writes):
        places[write["claimant"]].append(number)
        before = writes[number - 1] if number else None
        if write["version"] != number + 1:
            found.append(f"{write['write']} is v{write['version']} and the {number + 1}. write")
        elif before and write["after"] != [before["claimant"], before["version"]]:
            found.append(f"{write['write']} v{write['version']} does not follow {before['write']} v{before['version']}")
    found += [
        f"{claimant[:6]} wrote again after he was taken over"
        for claimant, own in places.items()
        if own != list(range(own[0], own[0] + len(own)))
    ]
    return found


def is_taken_over(seen: Seen, refused: Line) -> bool:
    """Return whether somebody else held the record when a write was refused."""
    claimant, version = refused["after"]
    later = [write for write in seen.landed.get(refused["job"], ()) if write["version"] > version]
    return any(
        write["claimant"] != claimant and write["landed"] <= (refused["landed"] or refused["arrived"])
        for write in later
    )


def check_completed_once(seen: Seen) -> Verdict:
    """G3: nothing is run after the completion, no job is completed by two, and each effect happened once."""
    verdict = Verdict("G3", "attempts and effects of every completed job, after its completion")
    for job, completion in seen.completions.items():
        own = [write["fencing"] for write in seen.landed[job] if write["fencing"] is not None]
        late = [attempt for attempt in seen.attempts.get(job, ()) if own and attempt.token > max(own)]
        late += [
            attempt
            for attempt in seen.attempts.get(job, ())
            if (claim := seen.claims.get((job, attempt.token))) and claim["version"] > completion["version"]
        ]
        if late:
            verdict.violations.append((job, f"run {len(late)} times after its completion"))
    completers: dict[str, set[str]] = defaultdict(set)
    for event in seen.events("job.completed"):
        completers[event["job"]].add(event["claimant"])
    for job, claimants in completers.items():
        if len(claimants) > 1:
            verdict.violations.append((job, f"{len(claimants)} claimants say that they completed it"))
        final = seen.records.get(job)
        if final and final["claimant"] not in claimants:
            verdict.violations.append((job, "the record names another one than who says that he completed it"))
    keys: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, effect in seen.books["effects"].items():
        if effect["done"]:
            keys[effect["job"], effect["effect"]].append(key)
    for (job, effect), own_keys in keys.items():
        if len(own_keys) > 1:
            verdict.violations.append((job, f"{effect}: {len(own_keys)} effects, each under a key of its own"))
    calls = sum(len(effect["calls"]) for effect in seen.books["effects"].values())
    verdict.counts = {
        "completed": len(seen.completions),
        "replays": seen.told["job.replayed"],
        "effects": len(keys),
        "calls of them": calls,
    }
    return verdict


def check_results(seen: Seen) -> Verdict:
    """G10: the stored result is what the attempt returned; one that cannot be stored is never a reason to run again."""
    verdict = Verdict("G10", "what the completing attempt returned, and what is stored")
    falsy = unstorable = compared = 0
    for job, completion in seen.completions.items():
        own = {write["fencing"] for write in seen.landed[job] if write["claimant"] == completion["claimant"]}
        returned = [run for run in seen.attempts.get(job, ()) if run.token in own and run.error is None]
        if not returned:
            continue  # a person completed it
        compared += 1
        final = seen.records.get(job, {})
        run = returned[-1]
        if not run.value:
            unstorable += 1
            if not final.get("result_not_stored"):
                verdict.violations.append((job, "its result cannot be stored, and the record does not say so"))
        elif final.get("result") is None or json.loads(final["result"]) != run.value[0]:
            stored = str(final.get("result"))[:40]
            verdict.violations.append((job, f"it returned {str(run.value[0])[:40]}, and {stored} is stored"))
        else:
            falsy += not run.value[0]
    verdict.counts = {"results": compared, "false ones": falsy, "not stored": unstorable}
    return verdict


def check_lost_responses(seen: Seen) -> Verdict:
    """G11: whose answer was lost goes on with what landed; nobody loses a claim to himself."""
    verdict = Verdict("G11", "writes that landed unheard, and what their writer did next")
    heard = defaultdict(list)
    for event in seen.log:
        if "claimant" in event:
            heard[event["job"], event["claimant"]].append(event["at"])
    recognised = 0
    for write in seen.unheard:
        job, claimant = write["job"], write["claimant"]
        next_own = any(
            other["claimant"] == claimant and other["version"] == write["version"] + 1 for other in seen.landed[job]
        )
        recognised += next_own or any(at >= write["landed"] for at in heard[job, claimant])
    for event in seen.events("claim.lost"):
        if event.get("winner") == event["claimant"]:
            verdict.violations.append((event["job"], "a claimant lost the claim to himself"))
    for name, status in (("job.completed", "completed"), ("job.rejected", "rejected"), ("job.held", "uncertain")):
        for event in seen.events(name):
            if not any(
                write["status"] == status and write["claimant"] == event["claimant"]
                for write in seen.landed.get(event["job"], ())
            ):
                verdict.violations.append((event["job"], f"{name} by {event['claimant'][:6]}, who never wrote it"))
    verdict.counts = {
        "landed unheard": len(seen.unheard),
        "recognised": recognised,
        "writer gone or given up": len(seen.unheard) - recognised,
    }
    return verdict
