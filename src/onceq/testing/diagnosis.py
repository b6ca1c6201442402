"""What may be wrong with a run, by name, and what undisturbed runs told beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceq.testing.done import Path


class Diagnosis(StrEnum):
    """What is wrong, in the order in which one is named before another: the nearest to the cause first.

    Attributes:
        advice: What to do about it.

    Example:
        >>> print(f"{Diagnosis.EFFECT_BEFORE_CLAIM.told}. {Diagnosis.EFFECT_BEFORE_CLAIM.advice}")
        EFFECT_BEFORE_CLAIM: the effect comes before the claim. A consumer: claim first
    """

    advice: str

    def __new__(cls, sentence: str, advice: str) -> Self:
        """Be the sentence, and have the advice beside it."""
        member = str.__new__(cls, sentence)
        member._value_, member.advice = sentence, advice
        return member

    KEPT_IN_MEMORY = (
        "the job remembers in its process: a warm one does something else than a fresh one",
        (
            "Keep nothing in module variables, or in a handler's closure, that decides whether something is "
            "done. Only the claim, steps and your tables survive a process"
        ),
    )
    FALSY_RESULT = (
        "a result that is false counts as none, so the job runs again",
        'A consumer: ask whether a result is stored, not whether it is true. `0`, `""`, `[]` and `None` are results',
    )
    CHECK_THEN_ACT = (
        "check, then act: nothing is claimed by a conditional write before the effect",
        (
            "A consumer: claim with one conditional write before the effect. A look beforehand protects nothing, nor "
            "does a condition that always holds: it has to name the item's key"
        ),
    )
    EFFECT_BEFORE_CLAIM = (
        "the effect comes before the claim",
        "A consumer: claim first",
    )
    LOST_AFTER_COMPLETION = (
        "the effect comes after the completion: a crash between the two loses it",
        "Do it before the job returns, or send it as a message with `ctx.send`. A consumer: complete last",
    )
    LOCK_ONLY = (
        "a lock alone: nothing remembers that the job is done",
        "A consumer: keep a record of what is done, for as long as a message may come",
    )
    RELEASED_BY_ANOTHER = (
        "a claim is deleted by a worker that does not hold it any more",
        "A consumer: delete on the condition that the claim is still this worker's",
    )
    COMPLETED_BY_ANOTHER = (
        "a record is written by a worker that does not hold the claim any more",
        "A consumer: write on the condition that the claim is still this worker's",
    )
    OVERWRITES = (
        "one job wrote over what another had written meanwhile",
        (
            "Make the write conditional on what was read, a version for example, so that the second is refused and "
            "attempted again; or let DynamoDB count, with `ADD`"
        ),
    )
    KEY_RANDOM = (
        "the downstream key is made of something random, so that every attempt has another",
        (
            "Use `ctx.idempotency_key_for(name)`, which is the same on every attempt. A job type's own `key=` "
            "is to be made of the payload alone"
        ),
    )
    KEY_SHARED = (
        "two different jobs have one downstream key, so that the second has no effect",
        (
            "Make the key of what identifies the job, not of customer, amount and day: "
            "`ctx.idempotency_key_for(name)`, and that of a message likewise. Where once for both jobs is right, once "
            "for a customer for example, give `other=` of another customer"
        ),
    )
    KEY_WITH_OTHER_ARGUMENTS = (
        "one downstream key came with other arguments: a provider refuses the second call",
        (
            'Give each effect of a job a name of its own: `ctx.idempotency_key_for("postage")`, and each message a '
            "`key=`, which is not the job's own. Make the arguments of a call of the payload, not of the attempt or "
            "the time"
        ),
    )
    KEY_USED_TWICE = (
        "one downstream key came twice in one attempt, so that the second call has no effect",
        (
            'Give each call of a loop a name of its own: `ctx.idempotency_key_for(f"line-{number}")`, and a message '
            "to the job's own type a `key=` that is not the job's. Where the second call only gets what the first one "
            "made, call once, or name the function in `reads=` (`--read`)"
        ),
    )
    MIXED_UP = (
        "the effect of one job was given what is another job's",
        (
            "Keep nothing of a job in a module variable, or in a cache that does not name what it is of. Where "
            "the job rightly passes a text that stands in the first payload and not in the second, give "
            "another `other=`"
        ),
    )
    KEY_FROM_MESSAGE_ID = (
        "the key is made of the message id, which every send and every redrive changes",
        "Make it of the job's key, `ctx.idempotency_key_for(name)`, or of a field of the payload",
    )
    KEY_FROM_SEND = (
        "the key is made of when the message was sent, so that a second send has another",
        (
            "Make it of what says which job it is, `ctx.idempotency_key_for(name)`, and `key=` not of the "
            "whole payload with its producer's time. Where the field is a part of the job, give `stamps=()` "
            "(`--no-stamps`)"
        ),
    )
    KEY_FROM_TIME = (
        "the key is made of the time, so that a later attempt has another",
        (
            "Make it of the job's key, `ctx.idempotency_key_for(name)`, not of a time, nor of a day, which "
            "ends at midnight"
        ),
    )
    KEY_FROM_ATTEMPT = (
        "the downstream key changes from one attempt to the next",
        (
            "Make it of the job's key, `ctx.idempotency_key_for(name)`: neither `ctx.attempt` nor "
            "`ctx.fencing_token` belongs into it"
        ),
    )
    ERROR_PATH = (
        "a further attempt has an effect that an undisturbed run does not have: both may have happened",
        (
            "What failed may have happened, and only its answer is lost. Let the error out of the job, so that the "
            "same call comes again under the same key, before another provider or a refund takes its place. What only "
            "tells somebody of the failure goes by `ctx.send`, or is no effect: `reads=` (`--read`)"
        ),
    )
    OUTSIDE_STEP = (
        "an effect outside a step, without a downstream key: every further attempt repeats it",
        (
            "Give the call a downstream key, `ctx.idempotency_key_for(name)`, and put it into `ctx.step`. If "
            "the provider takes no key, make it an `AT_MOST_ONCE` step. If the call has a key, the recorder did not "
            "find it: say where with `key=` (`--downstream-key`)"
        ),
    )
    NO_DOWNSTREAM_KEY = (
        "an effect without a downstream key: a crash between it and its record repeats it",
        (
            "Give the call in the step `idempotency_key=ctx.idempotency_key_for(name)`. If the provider takes "
            "no key, make it an `AT_MOST_ONCE` step. If the call has a key, the recorder did not find it: say where "
            "with `key=` (`--downstream-key`)"
        ),
    )
    MARKED_FIRST = (
        "a mark of the job's own says that it is done before it is",
        (
            "Leave the mark out: the framework remembers what is done, and a downstream key what is charged. Or write "
            "it in `ctx.transaction`, with the completion"
        ),
    )
    NO_EFFECT = (
        "acknowledged without its effect",
        (
            "Let the provider's exception out of the job, or raise `Retry`. Undisturbed: the recorder stands "
            "in another place than the one that the job calls, whatever else was counted; or the payload takes "
            "a path without its effects: leave `effects=` out there. Of two jobs where once for both is right, one row "
            "of a customer for example: give `other=` of another customer"
        ),
    )
    STARTED_AGAIN = (
        "a job that had ended was run again",
        "A consumer: remember completions, and look at them before the work",
    )
    STARTED_TWICE = (
        "what may start at most once was started twice",
        (
            "Raise `Retry` in an `AT_MOST_ONCE` job only before its effect, where nothing can have happened, and do "
            "not call again what has failed"
        ),
    )
    TWO_AT_ONCE = (
        "two workers ran the job at once, and neither lease was over",
        (
            "A consumer: take over only what is stale, after the longest time that the work may take, plus the "
            "clocks' difference"
        ),
    )
    TWICE = (
        "an effect happened more than once",
        (
            "Stage the write in `ctx.transaction`, or make it conditional on not having happened. Send with "
            "`ctx.send`, not with a producer. Stage once in an attempt: behind the calls that are made again"
        ),
    )
    TOO_FEW = (
        "an effect is missing",
        (
            "Look at the record's error in the report: the job gave up. Raise `max_attempts`, or do not reject "
            "what may pass. A consumer: take a claim over whose worker died or failed"
        ),
    )
    NOT_COMPLETED = (
        "the job is not completed",
        (
            "Look at the error behind it. Undisturbed, it is often an answer of another shape than the "
            "provider's (`EffectRecorder(charge=…)`, `--answer`), or a row that is missing (`setup=`, "
            "`--setup`)"
        ),
    )
    COMPLETED_TWICE = (
        "the job was completed more than once",
        "A job can do nothing about it. Please report it with the timeline",
    )
    RESULT_DIFFERS = (
        "the stored result is not the one that the job returned",
        "A job can do nothing about it. Please report it with the timeline",
    )
    NEVER_SETTLED = (
        "the message never comes to an end",
        "Let the job end: not `Snooze` for ever. Or a lock of the job's own is held by a worker that stands still",
    )
    OTHER_PATH = (
        "the job takes another path from one run to the next, so that it cannot be proved",
        (
            "Make the same requests in every run: nothing by chance. What is made once in a process is made by "
            "the second run"
        ),
    )
    NOTHING_COUNTED = (
        "nothing was counted: say with effects= what the job does outside",
        "Say with `effects=` (`--effects`) what the job does outside, or give a payload with which it does something",
    )

    @property
    def told(self) -> str:
        """Its name, by which it is looked up, and its sentence."""
        return f"{self.name}: {self}"


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
        varies: What the downstream keys changed with.
        renames: What the keys of records and of claims changed with.
        derived: The items that another job wrote by what the one on trial had written there.
        swayed: What each other job, by its number, stages in another number since it looked at what the one on trial
            wrote: how many of it there are at the most of the two, by name, one job after the other.
        forgotten: Whether the effect was missing when the job ran in the same process once more.
        falsy: Whether the job's results are false in this run.
        after_completion: Whether an effect comes after the last write.
        claims: Whether anything was written beside the effects.
        remembers: Whether anything stands in the consumer's own table when it is done; ``None`` for onceq's.
    """

    expected: Mapping[str, int] = field(default_factory=dict)
    own: Mapping[int, Own] = field(default_factory=dict)
    varies: tuple[Diagnosis, ...] = ()
    renames: tuple[Diagnosis, ...] = ()
    derived: frozenset[str] = frozenset()
    swayed: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    forgotten: bool = False
    falsy: bool = False
    after_completion: bool = False
    claims: bool = True
    remembers: bool | None = None


def by_memory(findings: list[Finding]) -> list[Finding]:
    """Say of what is wrong in a warm process alone, and not in fresh ones, that it comes of what that remembers."""
    return [Finding(Diagnosis.KEPT_IN_MEMORY, f"{one.evidence}: {one.diagnosis}") for one in findings]
