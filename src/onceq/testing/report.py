"""What a proof found, as a text that a person reads in the log of a failed test."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceq.testing.diagnosis import Diagnosis, Finding
from onceq.testing.timeline import TIMES, short_keys
from onceq.testing.wording import WIDEST, numbered, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.testing.trial import Run

# A picture that is longer than this is cut in the middle.
MOST_LINES = 70
FAILS_BY_DEFAULT = (
    "  Calls failed with ConnectionError, the default: say with fails= (--fails) what your client raises."
)
# Of the longest group of scenarios, "two jobs".
GROUP_WIDTH = 8


@dataclass(frozen=True)
class Result:
    """What became of one scenario.

    Args:
        group: What the scenario is about.
        name: The scenario.
        findings: What is wrong, the nearest to the cause first; nothing if all is well.
        run: Its facts.
        played: Whether it came to its end: not where a worker waited for one that the scenario let stand still.
    """

    group: str
    name: str
    findings: list[Finding]
    run: Run
    played: bool = True

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def lines(self) -> list[str]:
        """Return its line, and one for each finding."""
        mark = ("✓" if self.played else "?") if self.ok else "✗"
        indent = " " * (GROUP_WIDTH + 6)
        findings = [f"{indent}{one.diagnosis.told} ({short_keys(one.evidence)})" for one in self.findings]
        return [short_keys(f"  {mark} {self.group:<{GROUP_WIDTH}}  {self.name}"), *findings]


@dataclass(frozen=True)
class Report:
    """What a proof found.

    Args:
        subject: Name of what was on trial.
        results: A result for each scenario, in order.
        effects: How many effects of each name one job has.
        uncounted: What the job wrote by itself, undisturbed, that nobody counted: it may be there twice.
        fails_by_default: Whether a recorder's calls failed with what nobody said that they raise.
    """

    subject: str
    results: list[Result]
    effects: dict[str, int]
    uncounted: Sequence[str] = ()
    fails_by_default: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong in any scenario."""
        return all(result.ok for result in self.results)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What is wrong, by the finding that is nearest to the cause."""
        worst = self.worst
        return worst.findings[0].diagnosis if worst else None

    @property
    def worst(self) -> Result | None:
        """The result that shows the nearest cause by the shortest timeline."""
        order = [*Diagnosis]
        failed = [result for result in self.results if result.findings]
        return min(
            failed,
            key=lambda one: (order.index(one.findings[0].diagnosis), len(one.run.timeline.entries)),
            default=None,
        )

    def text(self, *, verbose: bool = False, columns: int | None = None) -> str:
        """Return the whole report: the verdict, the table of scenarios, and the picture of what is wrong.

        Args:
            verbose: Whether to give each scenario a line, and to show every attempt.
            columns: How wide it may be; without it lines are as long as they are, and the picture 120 columns wide.

        Example:
            >>> print(Report("charge_order", [], {"charge": 1}).text())
            charge_order takes effect once: 0 scenarios, charge x1 in each
            <BLANKLINE>
        """
        picture = self.picture(columns or WIDEST, verbose=verbose)
        lines = [*self.verdict(), "", *self.table(verbose=verbose), *picture]
        return "\n".join(lines if columns is None else [part for line in lines for part in wrapped(line, columns)])

    def verdict(self) -> list[str]:
        """Return the summary, and beneath it what to do, if anything is wrong.

        Example:
            >>> Report("charge_order", [], {"charge": 1}).verdict()
            ['charge_order takes effect once: 0 scenarios, charge x1 in each']
        """
        beneath = [f"  what to do: {one.advice}" for one in [self.diagnosis] if one is not None]
        return [self.summary(), *beneath, *([FAILS_BY_DEFAULT] if self.ok and self.fails_by_default else [])]

    def summary(self) -> str:
        """Return one line."""
        ran = numbered(sum(result.played for result in self.results), "scenario")
        failed = sum(not result.ok for result in self.results)
        if not failed:
            counted = ", ".join(f"{name} x{number}" for name, number in self.effects.items())
            beside = f". Not counted: {', '.join(self.uncounted)}" if self.uncounted else ""
            return f"{self.subject} takes effect once: {ran}, {counted} in each{beside}{self._unplayed()}"
        found = "" if self.diagnosis is None else self.diagnosis.told
        fail = f"{failed} of {ran} fail{'s' * (failed == 1)}"
        return f"{self.subject} does not take effect once: {fail}. {found}{self._unplayed()}"

    def _unplayed(self) -> str:
        """Say how many scenarios nothing is known of."""
        number = sum(not result.played for result in self.results)
        told = "in which one worker waits for another that stands still: is there a lock, or a pool, in the module?"
        return f". Not played: {numbered(number, 'scenario')} {told}" if number else ""

    def table(self, *, verbose: bool = False) -> list[str]:
        """Return a line for each scenario; of those where all is well their number in each group, unless verbose."""
        if verbose:
            return [line for result in self.results for line in result.lines()]
        lines = []
        for group in dict.fromkeys(result.group for result in self.results):
            members = [result for result in self.results if result.group == group]
            well = [result for result in members if result.ok and result.played]
            if len(well) > 1:
                lines.append(f"  ✓ {group:<{GROUP_WIDTH}}  {TIMES}{len(well)}")
            else:
                lines += [line for result in well for line in result.lines()]
            lines += [line for result in members if result not in well for line in result.lines()]
        return lines

    def picture(self, columns: int = WIDEST, *, verbose: bool = False) -> list[str]:
        """Return the shortest timeline that shows what is wrong, in lanes; nothing if nothing is.

        Args:
            columns: How wide it may be.
            verbose: Whether to show every attempt, of several that are alike too.
        """
        worst = self.worst
        if worst is None:
            return []
        lines = worst.run.timeline.lanes(columns - 2, folded=not verbose).splitlines()
        if len(lines) > MOST_LINES:
            half = MOST_LINES // 2
            lines = [*lines[:half], f"      … {len(lines) - 2 * half} lines …", *lines[-half:]]
        return ["", f"{short_keys(worst.name)}:", "", *(f"  {line}" for line in lines), "", *_records(worst.run)]

    def to_json(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return {
            "subject": self.subject,
            "ok": self.ok,
            "diagnosis": self.diagnosis and self.diagnosis.name,
            "advice": self.diagnosis and self.diagnosis.advice,
            "effects": self.effects,
            "uncounted": [*self.uncounted],
            "scenarios": [
                {
                    "group": result.group,
                    "name": result.name,
                    "ok": result.ok,
                    "played": result.played,
                    "findings": [{"diagnosis": o.diagnosis.name, "evidence": o.evidence} for o in result.findings],
                }
                for result in self.results
            ],
        }


def _records(run: Run) -> list[str]:
    happened = Counter(effect.name for effect in run.effects)
    lines = [f"  effects: {', '.join(f'{name} x{number}' for name, number in happened.items()) or 'none'}"]
    for record in run.records:
        said = f"  {record.error}" if record.error else ""
        lines.append(f"  record: {record.pk}  {record.status}, attempt {record.attempts}{said}")
    return lines
