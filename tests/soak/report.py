"""The report of a soak: a line for each promise, and what happened meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from soak.checks import (
    check_completed_once,
    check_late_writes,
    check_lost_responses,
    check_one_claimant,
    check_results,
)
from soak.effects import (
    check_at_most_once,
    check_neighbours,
    check_nothing_lost,
    check_outbox,
    check_recovered,
    check_transactions,
)
from soak.order import check_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from soak.checks import Verdict
    from soak.seen import Seen

CHECKS = (
    check_one_claimant, check_late_writes, check_completed_once, check_nothing_lost, check_neighbours, check_recovered,
    check_transactions, check_outbox, check_at_most_once, check_results, check_lost_responses, check_order,
)  # fmt: skip
MOST_NAMED = 5


@dataclass
class Report:
    """What came of a soak.

    Args:
        settings: What was run.
        figures: What happened, as counts.
        faults: What the wire did, by name.
        verdicts: What came of each promise.
        problems: What is wrong beside the promises, in sentences.
        timeline: Of the first violation.
    """

    settings: Mapping[str, Any]
    figures: Mapping[str, int]
    faults: Mapping[str, int]
    verdicts: list[Verdict]
    problems: list[str] = field(default_factory=list)
    timeline: list[str] = field(default_factory=list)

    @property
    def is_kept(self) -> bool:
        """Whether every promise was kept, and shown."""
        return not self.problems and not any(verdict.violations for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        promises = [
            {
                "promise": verdict.promise,
                "compared": verdict.compared,
                "counts": verdict.counts,
                "violations": [{"job": job, "what": what} for job, what in verdict.violations],
            }
            for verdict in self.verdicts
        ]
        return {
            "ok": self.is_kept,
            "settings": dict(self.settings),
            "figures": dict(self.figures),
            "faults": dict(self.faults),
            "promises": promises,
            "problems": self.problems,
            "timeline": self.timeline,
        }

    def to_text(self) -> str:
        """Return it for a person."""
        lines = ["", "  ".join(f"{name} {value}" for name, value in self.settings.items()), ""]
        width = max(map(len, self.figures))
        lines += [f"  {name:<{width}}  {number:>7,}" for name, number in self.figures.items()]
        spoiled = ", ".join(f"{name} {number}" for name, number in sorted(self.faults.items()))
        lines += ["", *_wrapped(f"spoiled on the wire: {spoiled or 'nothing'}"), ""]
        for verdict in self.verdicts:
            word = "broken" if verdict.violations else "kept"
            counts = ", ".join(f"{name} {number:,}" for name, number in verdict.counts.items())
            lines += [f"  {verdict.promise:<4}{word:<7}{counts}", f"      {verdict.compared}"]
            named = verdict.violations[:MOST_NAMED]
            lines += [f"      {job}: {what}" for job, what in named]
            if len(verdict.violations) > len(named):
                lines.append(f"      and {len(verdict.violations) - len(named)} more")
        if self.timeline:
            lines += ["", "  the first violation, in seconds:", *(f"    {line}" for line in self.timeline)]
        lines += ["", *(f"  {problem}" for problem in self.problems)]
        violations = sum(len(verdict.violations) for verdict in self.verdicts)
        said = "NOT as promised" if violations else "every promise was kept"
        also = ", and yet it is no proof: see above" if self.problems and not violations else ""
        lines.append(f"  {violations} violations: {said}{also}")
        return "\n".join(lines)


def _wrapped(text: str, width: int = 100) -> list[str]:
    lines = [" "]
    for word in text.split(", "):
        if len(lines[-1]) + len(word) > width:
            lines.append("     ")
        lines[-1] += f" {word},"
    lines[-1] = lines[-1].rstrip(",")
    return lines


def judge(seen: Seen) -> tuple[list[Verdict], list[str]]:
    """Return what came of each promise, and the timeline of the first violation."""
    verdicts = [check(seen) for check in CHECKS]
    first = next((job for verdict in verdicts for job, _ in verdict.violations), None)
    return verdicts, seen.timeline(first) if first else []
