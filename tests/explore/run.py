"""Every schedule of every play, and what is wrong in them: ``make explore``.

With two workers, and two with the relay, the whole space, once with a lost response and once with a write that lands
late; with a third worker, or a second relay, preemptions are bounded and every response arrives. Then the gallery's
consumers, of which the wrong ones must be found, and the comparison with the model. ``ARGS="--only plain"`` explores
what is called so; ``--json`` prints the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from explore import agreement
from explore.by_hand import RIGHT, WRONG
from explore.explorer import Exploration, Explorer
from explore.jobs import plays
from explore.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from explore.space import Play

# Preemptions with one worker more: with a second relay a single one takes five million states and 2.4 GB.
BOUND, BOUNDS = 2, {"relay": 1}
# These are walked without late writes, which the space is too large for; "renewals" and "outbox" have them.
NEVER_LATE = (
    "renewals and a step",
    "renewals and a lock",
    "renewals and an at-most-once step",
    "renewals overtake",
    "relay",
)


def main() -> int:
    """Explore; return 1 if a promise is broken, or a wrong consumer passes."""
    parser = argparse.ArgumentParser(prog="make explore", description="Walk every schedule of two and three workers.")
    parser.add_argument("--only", default="", help="explore the plays whose name begins so")
    parser.add_argument(
        "--workers", type=int, choices=(2, 3), help="2: without the third worker, or second relay; 3: with it"
    )
    parser.add_argument("--bound", type=int, help=f"preemptions of three workers ({BOUND}), and of two relays (1)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rows, failures = [], []
    for play, bound, rule in _asked(options):
        started = time.process_time()
        result = Explorer(play, bound).explore(until=[rule] if rule else ())
        rows.append(_row(result, rule, time.process_time() - started))
        _tell(rows[-1], options)
        if rule and not any(broken.startswith(rule) for broken in result.found):
            failures.append(f"{play.name}: passes, and is wrong: {rule}")
        elif not rule and result.found:
            failures.append(_picture(play, result))
    if not options.only and not options.workers:
        for name in agreement.SETTINGS:
            compared = agreement.compare(name)
            rows.append({"model": name, **compared._asdict()})
            _tell(rows[-1], options)
            failures += [f"{name}: the model and the code differ: {one}" for one in compared.unexplained]
    if options.json:
        print(json.dumps(rows, indent=2))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def _asked(options: argparse.Namespace) -> Iterator[tuple[Play, int | None, str]]:
    asked = [play for play in plays() if play.name.startswith(options.only)]
    if options.workers != 3:
        for play in asked:
            yield play, None, ""
            if play.name not in NEVER_LATE:
                yield replace(play, used=replace(play.used, losses=0, late=1)), None, ""
    if options.workers != 2:
        for play in asked:
            bound = BOUNDS.get(play.name, BOUND) if options.bound is None else options.bound
            yield play.with_one_more(), bound, ""
    for play, rule in (*WRONG, *((play, "") for play in RIGHT)):
        if play.name.startswith(options.only) and options.workers is None:
            yield play, None, rule


def _row(result: Exploration, rule: str, seconds: float) -> dict[str, Any]:
    return {
        "play": result.play.name,
        "workers": len(result.play.workers),
        "bound": result.bound,
        "used": asdict(result.play.used),
        "schedules": result.schedules,
        "states": result.states,
        "moves": result.transitions,
        "points": result.nodes,
        "runs": result.runs,
        "seconds": round(seconds, 1),
        "wanted": rule,
        "found": list(result.found),
    }


def _tell(row: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        return
    if "model" in row:
        left = f"{len(row['named'])} differ and have a name, {len(row['unexplained'])} differ"
        print(f"model: {row['model']}: {row['shared']} changes of a record in common, {left}", flush=True)
        return
    bound = "" if row["bound"] is None else f", at most {row['bound']} preemptions"
    told = (
        f"{row['states']:,} states, {row['schedules']:,} schedules" if row["schedules"] else f"{row['states']:,} states"
    )
    late = ", a late write" if row["used"]["late"] else ""
    print(f"{row['play']}, {row['workers']} workers{bound}{late}: {told}, {row['seconds']} s", flush=True)
    for broken in row["found"]:
        print(f"  {'as wanted' if row['wanted'] else 'WRONG'}: {broken}", flush=True)


def _picture(play: Play, result: Exploration) -> str:
    rule = min(result.found, key=lambda one: len(result.found[one]))
    rerun = Rerun(play)
    rerun.run(result.found[rule])
    return f"\n{play.name}: {rule}\n{rerun.timeline.lanes()}"


if __name__ == "__main__":
    sys.exit(main())
