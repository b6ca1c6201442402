"""Local time, and the hours that summer time gains and loses: nothing here reads it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kit import nursery

TESTS = Path(__file__).parents[1]
# As POSIX writes them, so that no database of zones is needed: New York, and Lord Howe, whose switch is half an hour.
NEW_YORK, LORD_HOWE = "EST5EDT,M3.2.0,M11.1.0", "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0"
SWITCHES = {
    "New York gains an hour": (NEW_YORK, datetime(2026, 11, 1, 6, tzinfo=UTC), [-4 * 3600, -5 * 3600]),
    "New York loses an hour": (NEW_YORK, datetime(2027, 3, 14, 7, tzinfo=UTC), [-5 * 3600, -4 * 3600]),
    "Lord Howe gains half an hour": (LORD_HOWE, datetime(2027, 4, 3, 15, tzinfo=UTC), [39_600, 37_800]),
}


def _run(zone: str, at: datetime) -> dict[str, Any]:
    environment = os.environ | {"TZ": zone, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])}
    ended = nursery.run("kit.zone_worker", str(int(at.timestamp() * 1000)), environment=environment, seconds=100)
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


@pytest.mark.parametrize("name", SWITCHES)
def test_a_claim_and_its_replay_across_a_switch_are_those_of_utc(name: str) -> None:
    """Records, answers, waits, events, envelope and status are the same in every zone, to the millisecond."""
    zone, at, offsets = SWITCHES[name]

    local, utc = _run(zone, at), _run("UTC0", at)

    assert local.pop("offsets") == offsets, "the zone switches there, so the test can fail"
    assert utc.pop("offsets") == [0, 0]
    assert local == utc
    kept = [len(answer["batchItemFailures"]) for answer in local["answers"]]
    assert kept == [1, 1, 0, 0], "a second before its time it waits, then it runs, then it is replayed"
    assert [record["attempts"] for record in local["records"]] == [1, 1, 2, 2]
