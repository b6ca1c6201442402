"""What may be wrong with a run, by name, and what undisturbed runs told beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceq.testing.done import Path


class Diagnosis(StrEnum):
    """What is wrong, in the order in which one is named before another: the nearest to the cause first."""

    KEPT_IN_MEMORY = "the job remembers in its process: a warm one does something else than a fresh one"
    FALSY_RESULT = "a result that is false counts as none, so the job runs again"
    CHECK_THEN_ACT = "check, then act: nothing is claimed by a conditional write before the effect"
    EFFECT_BEFORE_CLAIM = "the effect comes before the claim"
    LOST_AFTER_COMPLETION = "the effect comes after the completion: a crash between the two loses it"
    LOCK_ONLY = "a lock alone: nothing remembers that the job is done"
    RELEASED_BY_ANOTHER = "a claim is deleted by a worker that does not hold it any more"
    COMPLETED_BY_ANOTHER = "a record is written by a worker that does not hold the claim any more"
    KEY_RANDOM = "the downstream key is made of something random, so that every attempt has another"
    KEY_SHARED = "two different jobs have one downstream key, so that the second has no effect"
    KEY_WITH_OTHER_ARGUMENTS = "one downstream key came with other arguments: a provider refuses the second call"
    MIXED_UP = "the effect of one job was given what is another job's"
    KEY_FROM_MESSAGE_ID = "the key is made of the message id, which every send and every redrive changes"
    KEY_FROM_SEND = "the key is made of when the message was sent, so that a second send has another"
    KEY_FROM_TIME = "the key is made of the time, so that a later attempt has another"
    KEY_FROM_ATTEMPT = "the downstream key changes from one attempt to the next"
    OUTSIDE_STEP = "an effect outside a step, without a downstream key: every further attempt repeats it"
    NO_DOWNSTREAM_KEY = "an effect without a downstream key: a crash between it and its record repeats it"
    NO_EFFECT = "acknowledged without its effect"
    STARTED_AGAIN = "a job that had ended was run again"
    STARTED_TWICE = "what may start at most once was started twice"
    TWO_AT_ONCE = "two workers ran the job at once, and neither lease was over"
    TWICE = "an effect happened more than once"
    TOO_FEW = "an effect is missing"
    NOT_COMPLETED = "the job is not completed"
    COMPLETED_TWICE = "the job was completed more than once"
    RESULT_DIFFERS = "the stored result is not the one that the job returned"
    NEVER_SETTLED = "the message never comes to an end"
    OTHER_PATH = "the job takes another path from one run to the next, so that it cannot be proved"
    NOTHING_COUNTED = "nothing was counted: say with effects= what the job does outside"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a run.

    Args:
        diagnosis: What is wrong.
        evidence: What shows it, in one sentence.
    """

    diagnosis: Diagnosis
    evidence: str


@dataclass(frozen=True)
class Own:
    """What a job does undisturbed and alone.

    Args:
        key: Its key, as its starts and its effects have it.
        counts: How many effects of each name it has.
        given: The values that they are called with, by name and place; none of a place that varies from run to run.
    """

    key: str
    counts: Mapping[str, int]
    given: Mapping[tuple[str, Path], frozenset[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Hints:
    """What undisturbed runs told, in which only one thing was different.

    Args:
        expected: How many effects of each name the job on trial has.
        own: What each job does undisturbed and alone, by its number; 0 is the one on trial.
        varies: What the downstream keys and the keys of items changed with.
        forgotten: Whether the effect was missing when the job ran in the same process once more.
        falsy: Whether the job's results are false in this run.
        after_completion: Whether an effect comes after the last write.
        claims: Whether anything was written beside the effects.
        remembers: Whether anything stands in the consumer's own table when it is done; ``None`` for onceq's.
    """

    expected: Mapping[str, int] = field(default_factory=dict)
    own: Mapping[int, Own] = field(default_factory=dict)
    varies: tuple[Diagnosis, ...] = ()
    forgotten: bool = False
    falsy: bool = False
    after_completion: bool = False
    claims: bool = True
    remembers: bool | None = None


def by_memory(findings: list[Finding]) -> list[Finding]:
    """Say of what is wrong in a warm process alone, and not in fresh ones, that it comes of what that remembers."""
    return [Finding(Diagnosis.KEPT_IN_MEMORY, f"{one.evidence}: {one.diagnosis}") for one in findings]
