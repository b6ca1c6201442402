"""Which of the two services a test run is for, and which tests run on which.

``BACKEND`` says it: ``moto``, which it is where nothing is said, ``ministack``, or ``both`` for everything as it comes.
Every test is in the run for moto or in that for ministack, and none in both but the integration tests: their `world` is
the backend that was asked for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

TESTS = Path(__file__).resolve().parents[1]
MOTO, MINISTACK, BOTH, ENDPOINT = "moto", "ministack", "both", "endpoint"
BACKENDS = (MOTO, MINISTACK)
# Their parameter is a backend.
PARAMETRISED = frozenset({"backend", "both_worlds"})
# From a message to its end: the main job, redelivery and duplicates, workers that died, retry, rejection and the
# dead-letter queue, order, results, steps, at most once, transactions, outbox and relay, locks, recovery.
INTEGRATION = frozenset(
    f"functional/test_{name}.py"
    for name in (
        *("main_job", "claim", "races", "zombies", "stale_alone", "lost_responses", "consumer_events"),
        *("backoff", "redrive", "dead_letters", "lanes_order", "fifo_sending", "results"),
        *("steps", "at_most_once", "at_most_once_steps", "transactions", "outbox", "enqueue_with", "relay"),
        *("locks", "recovery"),
    )
)


def asked() -> tuple[str, ...]:
    """Return the backends that this run is for.

    Raises:
        SystemExit: If ``BACKEND`` names none.
    """
    named = os.environ.get("BACKEND") or MOTO
    if named not in (*BACKENDS, BOTH):
        raise SystemExit(f"BACKEND={named}: it is {', '.join(BACKENDS)} or {BOTH}")
    if os.environ.get("CONTRACT_ENDPOINT"):
        return (ENDPOINT,)
    return BACKENDS if named == BOTH else (named,)


def is_integration(path: Path) -> bool:
    """Say whether a module holds integration tests."""
    return path.is_relative_to(TESTS) and path.relative_to(TESTS).as_posix() in INTEGRATION


def runs_on(path: Path, fixtures: Collection[str], backends: Collection[str]) -> bool:
    """Say whether a test belongs to a run for these backends.

    Args:
        path: The test's module.
        fixtures: What it asks for, and what that asks for.
        backends: What `asked` returned.
    """
    if ENDPOINT in backends:
        return "backend" in fixtures
    if PARAMETRISED.intersection(fixtures):
        return True  # its parameters are the backends that were asked for
    if MINISTACK in fixtures:
        return MINISTACK in backends
    return MOTO in backends or (is_integration(path) and "world" in fixtures)


def of_contract(path: Path, fixtures: Collection[str]) -> bool:
    """Say whether a test is one of ``make contract``: the suites, and whatever runs on more than one backend."""
    is_suite = path.is_relative_to(TESTS / "contract")
    return is_suite or bool({*PARAMETRISED, MINISTACK}.intersection(fixtures)) or is_integration(path)
