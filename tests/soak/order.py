"""The order of a message group: a job begins when the one before it has ended."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import TYPE_CHECKING

from soak.checks import Verdict
from soak.seen import TERMINAL

if TYPE_CHECKING:
    from soak.seen import Seen


def check_order(seen: Seen) -> Verdict:
    """Order: no job of a group begins before the one that was sent before it has ended."""
    verdict = Verdict("FIFO", "each job of a message group with the end of the one that was sent before it")
    if not seen.keeps_order:
        verdict.compared = "nothing: this server does not keep the order of a message group"
        return verdict
    began = {job: min(run.began for run in runs) for job, runs in seen.attempts.items()}
    ended = {
        job: min((write["landed"] for write in writes if write["status"] in TERMINAL), default=math.inf)
        for job, writes in seen.landed.items()
    }
    groups: dict[str, list[str]] = defaultdict(list)
    for job, planned in seen.plans.items():
        if planned[0].group is not None and job not in seen.resent:
            groups[planned[0].group].append(job)
    pairs = 0
    for jobs in groups.values():
        for before, job in itertools.pairwise(jobs):
            if job in began:
                pairs += 1
                early = ended.get(before, math.inf) - began[job]
                if early > 0:
                    verdict.violations.append((job, f"began {early:g} ms before the end of {before}"))
    verdict.counts = {"groups": len(groups), "jobs": sum(map(len, groups.values())), "compared": pairs}
    return verdict
