"""The plan of a soak: everything that is chosen is chosen by the seed."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kit.soak_jobs import JOB_TYPES
from kit.soak_proxy import FAULTS
from soak.effects import EFFECTS, ENDS, SENDS
from soak.plan import BEHIND, DEADLY, EVERY, OF_A_THOUSAND, ONCE, SLOW_SECONDS, SURE, Message, messages, schedule, wire

TESTS = Path(__file__).resolve().parents[1]
# A plan as one line: the first messages, what happens, and what the wire does.
SHOW = """
import itertools, json
from dataclasses import astuple
from soak.plan import messages, schedule, wire
choose = wire(7)
print(json.dumps([
    [astuple(message) for message in itertools.islice(messages(7), 300)],
    [astuple(one) for one in schedule(7, 60, processes=10, consumers=8, stale_after=2.3)],
    [choose(name, number) for name in ("claim", "commit", "SendMessageBatch JobsQueue") for number in range(300)],
]))
"""
NAMES = ("claim", "complete", "commit", "step", "GetItem", "SendMessageBatch JobsQueue", "ReceiveMessage JobsQueue")


def some(seed: int, number: int) -> list[Message]:
    """Return the first messages of a plan."""
    return list(itertools.islice(messages(seed), number))


def test_one_seed_is_one_plan_and_another_seed_another() -> None:
    """A seed reproduces what is sent, what goes wrong when, and which request the wire spoils."""
    arguments = {"processes": 7, "consumers": 5, "stale_after": 2.3}
    assert some(1, 300) == some(1, 300) != some(2, 300)
    assert schedule(1, 120, **arguments) == schedule(1, 120, **arguments) != schedule(2, 120, **arguments)  # type: ignore[arg-type]
    chosen = [[wire(seed)(name, number) for name in NAMES for number in range(500)] for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_a_seed_is_the_same_plan_in_every_process() -> None:
    """A seed that is run again tomorrow is the same one: nothing hangs on the order of a set, or on a hash."""
    shown = {
        subprocess.run(
            [sys.executable, "-c", SHOW],
            env={"PYTHONPATH": str(TESTS), "PYTHONHASHSEED": number},
            capture_output=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(shown) == 1
    assert [len(part) for part in json.loads(shown.pop())][::2] == [300, 900]


def test_every_kind_comes_once_and_then_as_often_as_its_share_is() -> None:
    """A short soak meets every kind; what kills a process comes apart from others of its kind."""
    kinds = [message.kind for message in some(3, 4_000)]
    deaths = [number for number, kind in enumerate(kinds) if kind in DEADLY][: len(DEADLY)]

    assert set(kinds[:140]) == {*OF_A_THOUSAND, *ONCE}
    assert max(deaths) < 140
    assert min(after - before for before, after in itertools.pairwise(deaths)) > 5
    counts = Counter(kinds)
    common = {kind: share for kind, share in OF_A_THOUSAND.items() if share >= 50 and kind != "duplicate"}
    assert all(0.6 < counts[kind] / (4 * share) < 1.4 for kind, share in common.items())
    assert counts["duplicate"] > 4 * OF_A_THOUSAND["duplicate"]  # and those of slow ones
    assert counts["unserved"] == 1


def test_every_job_type_of_a_soak_is_planned_and_judged() -> None:
    """What is not sent shows nothing, and what is not judged is not seen."""
    types = {message.job_type for message in some(1, 3_000)} - {""}
    assert types == {job_type.name for job_type in JOB_TYPES}
    judged = {*EFFECTS, *ENDS, *SENDS, "reserve"}
    assert types <= judged


def test_a_duplicate_is_its_message_and_a_reused_key_has_another_payload() -> None:
    """G3, G4: a second send is the same job, and a key that is used again is not."""
    plan, slow = some(5, 2_000), 0
    first = {message.job: message for message in reversed(plan) if message.job}
    for message in plan:
        if message.kind == "duplicate":
            assert message.payload == first[message.job].payload
            slow += message.payload.get("seconds", 0) >= SLOW_SECONDS
        elif message.kind == "reuse" and "reused" in message.payload:
            assert message.payload != first[message.job].payload
    assert slow > 50  # what is under way when it comes again
    assert {len({message.body}) for message in plan if message.kind == "unreadable"} == {1}


def test_behind_an_entry_that_fails_first_come_others_of_its_group() -> None:
    """Order: what must wait is sent with what it waits for."""
    plan = some(1, 2_000)
    failing = [at for at, one in enumerate(plan[:-BEHIND]) if one.kind == "entry" and one.payload["fails"]]
    assert len(failing) > 20
    for at in failing:
        followers = plan[at + 1 : at + 1 + BEHIND]
        assert {(one.group, one.payload["fails"]) for one in followers} == {(plan[at].group, 0)}


@pytest.mark.parametrize("duration", [4, 60, 600])
def test_everything_happens_at_least_once_and_more_often_in_a_longer_soak(duration: int) -> None:
    """Each kind of fault is met, inside the time; who is stopped is stopped for longer than lease and clock skew."""
    found = schedule(1, duration, processes=7, consumers=5, stale_after=2.3)
    counts = Counter(one.what for one in found)

    assert set(counts) == set(EVERY)
    assert all(number == max(1, round(duration / EVERY[what])) for what, number in counts.items())
    assert all(0 < one.at < duration for one in found)
    stopped = [one for one in found if one.what == "stop"]
    assert all(one.seconds > 2.3 and one.who < 5 for one in stopped)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_short_soak_meets_what_is_rare(seed: int) -> None:
    """G2, G7, G8: every seed kills and stops at writes that end a job, within the first hundred of them."""
    choose = wire(seed, share=0)
    for name, faults in SURE.items():
        assert Counter(filter(None, (choose(name, number) for number in range(100)))) == Counter(faults)
    assert {choose("claim", number) for number in range(100)} == {None}


def test_the_wire_spoils_its_share_by_faults_that_there_are() -> None:
    """Every fault that is chosen exists, every one that exists is chosen, and about as often as it should be."""
    choose = wire(1, share=0.5)
    chosen = [choose(name, number) for name in NAMES for number in range(1_000)]
    met = Counter(filter(None, chosen))

    assert set(met) == {*FAULTS, "lands_late"}
    assert 0.45 < met.total() / len(chosen) < 0.55
    assert not {choose("ReceiveMessage JobsQueue", number) for number in range(500)} & {"lands_late", "entry_failed"}
