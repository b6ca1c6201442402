"""The protocol holds in every state that the model reaches, and no rule of it is idle."""

from __future__ import annotations

import re

import pytest

from model import claim_model
from model.claim_model import NEVER_SENT, explore, options

ONE = "--workers 1"
ONCE = "--job once --workers 1"
COMMIT = "--job bare --commit atomic --workers 1"
TWICE = "G9: what starts at most once was started twice"
FAILED_OPEN = "G9: a job was failed while its step was open"
UNSEEN = "G2: a person's decision changed a record that the person had not seen"
GIVEN_UP = "G2: a claim was given up that nobody took"
BELIEVED = "G11: a {} was believed recorded that was not"

# A slice of each setting; the model's docstring has those that take longer.
SOUND = [
    # Deliveries, renewals of unknown outcome with an end behind them, zombies.
    "--events 0",
    "--renewals 1 --crashes 0 --events 0 --sweeps 0 --redrives 0",
    f"{ONE} --renewals 2 --late 2 --events 0 --sweeps 0 --redrives 0",
    f"{ONE} --renewals 1 --amo",
    "--zombies --renewals 1 --late 0 --crashes 0 --events 0 --sweeps 0 --redrives 0",
    # An at-most-once step: two deliveries, a Retry, a person, zombies, TTL, branches that end the job meanwhile.
    "--job once --retries 1 --events 0 --redrives 0 --sweeps 0",
    "--job once --zombies --late 0 --crashes 0 --events 0 --redrives 0",
    f"{ONCE} --retries 1 --resolves 1 --redrives 0 --late 0",
    f"{ONCE} --retries 1 --renewals 1 --events 0",
    f"{ONCE} --retries 1 --parallel",
    f"{ONCE} --retries 1 --aging --redrives 0",
    f"{ONCE} --resolves 1 --aging --events 0 --crashes 0",
    # An at-most-once job and a person.
    f"{ONE} --amo --retries 1 --resolves 1",
    "--amo --job bare --resolves 1 --events 0 --redrives 0",
    # Completions with an entry, whoever sends it.
    "--job bare --commit atomic --crashes 0 --events 0 --sweeps 0",
    f"{COMMIT} --failures 1 --redrives 0 --sweeps 0",
    f"{COMMIT} --failures 1 --delayed --redrives 0",
    f"{COMMIT} --conflicts 1 --redrives 0 --sweeps 0",
    f"{COMMIT} --amo --conflicts 1 --resolves 1 --redrives 0 --crashes 0",
    f"{COMMIT} --zombies --crashes 0",
    "--job once --commit atomic --workers 1 --retries 1 --events 0 --sweeps 0",
]
WEAKENED = {
    "--cas claimant": ["G3: a completed record was changed", "G6: a recorded step was lost"],
    "--free loose --aging": ["G1: two claimants run at once", "G6: a recorded step was lost"],
    "--sweep-token no --zombies --crashes 0 --events 0 --redrives 0": [GIVEN_UP],
    f"{ONE} --follow no --renewals 1": [GIVEN_UP],
    "--sweep-token no --recognise version --zombies --crashes 0 --events 0 --redrives 0": [
        BELIEVED.format("record-step")
    ],
    f"{ONE} --recognise version --renewals 2 --late 2": [
        BELIEVED.format(name) for name in ("renewal", "record-step", "complete", "release")
    ],
    "--sweep blind --redrives 0": ["G1: two claimants run at once", "G6: a recorded step was lost"],
    f"{ONCE} --started never": [TWICE],
    f"{ONCE} --open-step rerun": [TWICE],
    f"{ONCE} --open-step unseen": [FAILED_OPEN],
    f"{ONCE} --open-step unseen --retries 1 --events 2 --sweeps 0": [
        "G9: a job whose step may have happened was rejected instead of held"
    ],
    f"{ONCE} --retry-mark kept --retries 1": [FAILED_OPEN],
    f"{ONCE} --ends as-is --parallel": [FAILED_OPEN, "G9: a job was completed while its step was open"],
    f"{ONCE} --expiry kept --aging": [TWICE],
    f"{ONCE} --resolve version --resolves 1 --aging --redrives 0": [UNSEEN],
    f"{ONCE} --resolve status --resolves 1": [UNSEEN, "G6: a recorded step was lost"],
    f"{ONCE} --resolve blind --resolves 1": [UNSEEN, "G3: a completed record was changed"],
    f"{ONCE} --reopen kept --resolves 1": [
        FAILED_OPEN,
        "a job that a person opened again was ended without a start",
    ],
    "--job bare --commit separate --workers 1": [
        "G8: an outbox entry without its completion",
        "G8: a completion without its outbox entry",
    ],
    f"{COMMIT} --completion lost --conflicts 1": [GIVEN_UP],
    f"{COMMIT} --conflict retry --amo --conflicts 1": [TWICE],
    f"{COMMIT} --mark-first": ["G8: an entry is marked sent that nobody sent"],
    f"{COMMIT} --relay takes": [NEVER_SENT],
    f"{COMMIT} --note blind --failures 1": ["G8: a sent entry is in the index of the pending ones"],
}


@pytest.mark.parametrize("setting", SOUND)
def test_no_state_breaks_a_promise(setting: str) -> None:
    """G1 to G4, G6 to G9 and G11 hold in every reachable state, and every pending entry can still be sent."""
    result = explore(options(setting.split()))

    assert result.found == {}
    assert result.states > 400


@pytest.mark.parametrize(("setting", "expected"), WEAKENED.items(), ids=WEAKENED)
def test_a_weakened_rule_breaks_a_promise(setting: str, expected: list[str]) -> None:
    """Each rule is there for a reason: without it the explorer prints how a promise breaks."""
    found = explore(options(setting.split()), until=expected).found

    assert set(expected) <= set(found)
    assert all(found[broken] for broken in expected)


def test_every_switch_that_weakens_is_tried() -> None:
    """A rule whose switch no test uses may be idle, so the switches of the docstring and of the tests are the same."""
    text = str(claim_model.__doc__).split("These switches weaken")[1]
    switches = set(re.findall(r"^    (--[a-z-]+(?: [a-z-]+)?)  ", text, flags=re.MULTILINE))

    assert len(switches) > 20
    assert [switch for switch in switches if not any(switch in setting for setting in WEAKENED)] == []


def test_a_completion_is_not_believed_because_of_a_renewal() -> None:
    """G11: recognised by claimant and version alone, a renewal of unknown outcome passes for the completion."""
    complete = BELIEVED.format("complete")
    weakened = explore(options(f"{ONE} --recognise version --renewals 1".split()), until=[complete])

    assert "w0:renew (never heard of)" in weakened.found[complete]
    assert weakened.found[complete][-1] == "w0:complete taken for ours"


def test_a_zombie_may_start_after_a_person_has_decided() -> None:
    """The limit of G9: a zombie between its mark and its effect is stopped by nobody: it must be dead for sure."""
    zombies = "--job once --zombies --resolves 1 --late 0 --crashes 0 --sweeps 0 --redrives 0"
    trace = explore(options(zombies.split()), until=[TWICE]).found[TWICE]
    decided = trace.index("resolve-retry")

    assert trace.index("lease passes") < decided < trace.index("w0:effect starts")
    assert decided < trace.index("w1:effect starts")
