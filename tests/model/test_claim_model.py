"""The protocol holds in every state that the model reaches, and no rule of it is idle."""

from __future__ import annotations

import pytest

from model.claim_model import Options, explore

# Enough for rule 5: renewals, the end behind them, all three on their way at once. Larger ones: run the model itself.
SOUND = {
    "renewals of unknown outcome, then an end": Options(workers=1, renewals=2, late=2, events=0, sweeps=0, redrives=0),
    "two deliveries and a renewal": Options(renewals=1, crashes=0, events=0, sweeps=0, redrives=0),
    "a zombie renews": Options(zombies=True, renewals=1, late=0, crashes=0, events=0, sweeps=0, redrives=0),
    "an at-most-once job": Options(amo=True, workers=1, renewals=1),
    "no renewals, as the design explores it": Options(events=0),
}
WEAKENED = {
    "UNCHANGED without the version": (
        Options(cas="claimant"),
        ["G3: a completed record was changed", "G6: a recorded step was lost"],
    ),
    "FREE by age alone": (
        Options(free="loose", aging=True),
        ["G1: two claimants run at once", "G6: a recorded step was lost"],
    ),
    "a sweep without a token of its own": (
        Options(sweep_token="no", zombies=True, crashes=0, events=0, redrives=0),
        ["G2: a claim was given up that nobody took"],
    ),
    "no rule 5": (
        Options(follow="no", workers=1, renewals=1),
        ["G2: a claim was given up that nobody took"],
    ),
    "recognition by claimant and version, and a sweep without a token": (
        Options(sweep_token="no", recognise="version", zombies=True, crashes=0, events=0, redrives=0),
        ["G11: a record-step was believed recorded that was not"],
    ),
    "recognition by claimant and version": (
        Options(recognise="version", workers=1, renewals=2, late=2),
        [
            "G11: a renewal was believed recorded that was not",
            "G11: a record-step was believed recorded that was not",
            "G11: a complete was believed recorded that was not",
            "G11: a release was believed recorded that was not",
        ],
    ),
}


@pytest.mark.parametrize("options", SOUND.values(), ids=SOUND)
def test_no_state_breaks_a_promise(options: Options) -> None:
    """G1, G2, G3, G4, G6, G9, G11 hold in every reachable state, with renewals whose outcome stays unknown."""
    result = explore(options)

    assert result.found == {}
    assert result.states > 1_000


@pytest.mark.parametrize(("options", "expected"), WEAKENED.values(), ids=WEAKENED)
def test_a_weakened_rule_breaks_a_promise(options: Options, expected: list[str]) -> None:
    """Each rule is there for a reason: without it the explorer prints how a promise breaks."""
    found = explore(options, until=expected).found

    assert set(expected) <= set(found)


def test_a_completion_is_not_believed_because_of_a_renewal() -> None:
    """G11: recognised by claimant and version alone, a renewal of unknown outcome passes for the completion."""
    complete = "G11: a complete was believed recorded that was not"
    weakened = explore(Options(recognise="version", workers=1, renewals=1), until=[complete])

    assert "w0:renew (never heard of)" in weakened.found[complete]
    assert weakened.found[complete][-1] == "w0:complete taken for ours"
