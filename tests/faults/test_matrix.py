"""Every operation of store and queue meets every fault of the wire: the promise that holds, the outcome, the answer.

A fault is met in one invocation, or call; then the message is delivered again, and nothing fails any more.
``FAULTS=all``, which ``make faults`` sets, runs every cell; without it those that `kit.fault_table.a_slice` picks.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kit.fault_operations import BY_NAME, Operation
from kit.fault_stand import Stand, Wire, wired
from kit.fault_table import OUTCOMES, WAITED_FOR, Cell, a_slice, cells

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def wire(ministack: str) -> Iterator[Wire]:
    """A world of ministack behind the proxy, shared by every cell."""
    with wired(ministack) as opened:
        yield opened


def _meet(stand: Stand, operation: Operation, cell: Cell) -> str:
    """Play up to the operation, spoil it, and return what the invocation, or the call, says."""
    act = operation.play(stand)
    queue, dlq = (url.rpartition("/")[2] for url in (stand.queue.url, stand.queue.dlq_url))
    name = operation.request.format(queue=queue, dlq=dlq)
    times = 1 if cell.lasts == "once" else float("inf")
    stand.proxy.plan(name, cell.fault, first=operation.first, times=times)
    before = stand.proxy.met()
    answer = act()
    assert stand.proxy.met() > before, f"no {name} was made: {stand.proxy.names()}"
    stand.proxy.heal()
    if answer == "raised":
        assert act() != "raised", "it fails without a fault"
    return answer


@pytest.mark.parametrize("cell", cells() if os.environ.get("FAULTS") == "all" else a_slice(), ids=str)
def test_a_fault_of_the_wire(wire: Wire, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """G3, G4, G6, G8, G11: no false success, no lost message, no second effect, no hang; and it is told."""
    if cell.fault in WAITED_FOR and cell.lasts == "always":
        monkeypatch.setattr("onceq.client.ATTEMPTS", 2)  # each is waited for in real time
    operation, outcome = BY_NAME[cell.operation], OUTCOMES[cell.outcome]
    stand = Stand(wire, own_tables=operation.own_tables)

    answer = _meet(stand, operation, cell)
    names = stand.names()
    stand.until_quiet()

    assert answer == (outcome.answer or operation.normal)
    told = outcome.told_instead or operation.told
    if told is not None:
        assert (told in names) == outcome.is_told, names
    jobs = outcome.jobs or operation.jobs
    assert sorted(stand.statuses().values()) == sorted(jobs)
    assert sum(stand.charges.values()) == operation.effects + outcome.repeats, stand.charges
    # The provider knows an effect by its key: however often it is attempted, it happens once for each job that pays.
    paying = [key for key in stand.statuses() if not key.endswith("-ask")]
    assert len(stand.charges) == (0 if outcome.repeats < 0 else len(paying)), stand.charges
    assert (stand.dead() > 0) == (operation.is_copied or bool({"rejected", "uncertain"} & set(jobs)))
    assert len(stand.proxy.applied("complete", "commit", "resolve")) == jobs.count("completed")
    if operation.name == "commit":
        assert stand.counted() == 1
    stand.leave()
