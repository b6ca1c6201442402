"""The longer run: many thousand events, one line of counts, and every failure with what runs it alone.

``make fuzz`` runs it; ``make fuzz SEED=7 ARGS="--only 1234"`` runs one case of it and prints it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from fuzz.cases import Judge
from fuzz.whole_events import run_whole_events

MOST_SHOWN = 5


def main() -> int:
    """Run the cases; return 1 if one of them is wrong."""
    parser = argparse.ArgumentParser(prog="make fuzz", description="Fuzz the consumer with whole Lambda events.")
    parser.add_argument("--events", type=int, default=20_000, help="how many mutated events at least (20000)")
    parser.add_argument("--examples", type=int, default=1_000, help="how many events of hypothesis (1000)")
    parser.add_argument("--seed", type=int, default=1, help="of both (1)")
    parser.add_argument("--only", type=int, help="run the case of this number alone, and print it")
    options = parser.parse_args()
    judge = Judge()
    if options.only is not None:
        return _alone(judge, options.seed, options.only)
    ends: Counter[str] = Counter()
    failures = cases = events = 0
    started = time.perf_counter()
    while events < options.events:
        verdict = judge.judge(judge.case(options.seed, cases))
        ends.update(verdict.ends)
        events += verdict.deliveries
        if verdict.wrong:
            failures += 1
            if failures <= MOST_SHOWN:
                _show(judge, options.seed, cases, verdict.wrong)
        cases += 1
    rate = f"{events / (time.perf_counter() - started):.0f} events/s"
    try:
        events += run_whole_events(judge, options.examples, options.seed) if options.examples else 0
    except AssertionError as wrong:
        failures += 1
        print(
            f"\nan event of strategies is wrong:\n{wrong}".encode("ascii", "backslashreplace").decode(), file=sys.stderr
        )
    counts = ", ".join(f"{name} {count}" for name, count in ends.most_common())
    print(f"{events} events, {cases} mutated cases of seed {options.seed}: {failures} failures, {rate}; {counts}")
    return 1 if failures else 0


def _show(judge: Judge, seed: int, number: int, wrong: list[str]) -> None:
    case = judge.shrunk(judge.case(seed, number))
    told = [f"\ncase {number} of seed {seed} is wrong: make fuzz SEED={seed} ARGS='--only {number}'", *wrong]
    print("\n".join([*told, "shrunk:", case.shown()]).encode("ascii", "backslashreplace").decode(), file=sys.stderr)


def _alone(judge: Judge, seed: int, number: int) -> int:
    case = judge.case(seed, number)
    verdict = judge.judge(case)
    print("\n".join([case.shown(), *verdict.ends]).encode("ascii", "backslashreplace").decode())
    if verdict.wrong:
        _show(judge, seed, number, verdict.wrong)
        return 1
    print(f"case {number} of seed {seed}: nothing is wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
