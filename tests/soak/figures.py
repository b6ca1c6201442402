"""What happened in a soak, as counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from soak.checks import is_taken_over

if TYPE_CHECKING:
    from soak.chaos import Chaos
    from soak.person import Person
    from soak.producer import Producer
    from soak.seen import Seen
    from soak.stand import Stand


def figures_of(seen: Seen, producer: Producer, chaos: Chaos, person: Person, stand: Stand) -> dict[str, int]:
    """Return what happened; in a run of a minute none of it is nothing."""
    taken, refused = _of_zombies(seen)
    stopped = {one["pid"] for one in chaos.zombies}
    return {
        "messages": len(seen.sent),
        "jobs": len(seen.records),
        "job types": len({job.partition("#")[0] for job in seen.records}),
        "attempts": sum(map(len, seen.attempts.values())),
        "second sends": sum(message.kind == "duplicate" for message in seen.sent) + producer.again,
        "replays": seen.told["job.replayed"],
        "processes killed": len(seen.exits),
        "killed from outside": len(chaos.kills),
        "of them at a request": chaos.done["kill at a request"],
        "processes stopped": len(chaos.zombies),
        "stopped at a request": chaos.done["stop at a request"],
        "jobs taken over meanwhile": taken,
        "late writes of theirs refused": refused,
        "claims lost": sum(event["pid"] in stopped for event in seen.events("claim.lost")),
        "requests": stand.proxy.requests,
        "faults on the wire": stand.proxy.met_faults.total(),
        "outages": chaos.done["outage"],
        "redriven by a person": person.redriven.total(),
        "resolved by a person": len(person.resolved),
        "sweeps": chaos.done["recover"],
    }


def _of_zombies(seen: Seen) -> tuple[int, int]:
    """Return how many jobs were taken over from processes that were stopped, and writes of theirs refused after it."""
    owners: dict[str, int] = {}
    for line in seen.log:
        if line.get("claimant"):
            owners.setdefault(line["claimant"], line["pid"])
    taken = 0
    for zombie in seen.zombies:
        for event in seen.events("job.taken_over"):
            if owners.get(event["previous_claimant"]) == zombie["pid"] and zombie["from"] < event["at"]:
                taken += event["at"] < (zombie["to"] or event["at"] + 1)
    pids = {zombie["pid"] for zombie in seen.zombies}
    late = [write for write in seen.refused if write["after"] and is_taken_over(seen, write)]
    refused = sum(owners.get(write["after"][0]) in pids for write in late)
    return taken, refused
