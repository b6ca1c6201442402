"""Several count what a job does outside: recorders and functions, each by itself and by a name of its own."""

from __future__ import annotations

import json
from types import ModuleType
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from onceq import App, ConfigurationError, Context, job
from onceq.testing import Diagnosis, EffectRecorder, NotEffectivelyOnce, prove_consumer, prove_effectively_once
from onceq.testing.counting import counters_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.testing import Environment, Parts, Report

# Tables of the jobs' own, as far as these tests need them.
PARCELS: list[str] = []
LABELS: list[str] = []


def parcels() -> int:
    """Count the rows."""
    return len(PARCELS)


def labels() -> int:
    """Count other rows."""
    return len(LABELS)


def module(name: str) -> Any:
    """Return a module that calls a provider."""
    made: Any = ModuleType(name)
    made.charge = lambda cents, *, idempotency_key=None: {"cents": cents, "key": idempotency_key}
    return made


def broken(proof: Callable[[], object]) -> Report:
    """Return what is wrong."""
    with pytest.raises(NotEffectivelyOnce) as found:
        proof()
    report: Report = found.value.report
    return report


def test_calls_and_rows_of_one_job_are_both_counted(env: Environment) -> None:
    """Each by its name: what the recorder stands in for, and the function's own."""
    gateway = EffectRecorder(like=module("jobs.gateway"))

    @job("charge_and_pack", max_duration=5)
    def charge_and_pack(_payload: dict[str, Any], ctx: Context) -> None:
        gateway.charge(500, idempotency_key=ctx.key)
        if ctx.key not in PARCELS:
            PARCELS.append(ctx.key)

    report = prove_effectively_once(
        charge_and_pack, {}, effects=[gateway, parcels], setup=PARCELS.clear, app=App([charge_and_pack]), env=env
    )

    assert report.effects == {"gateway.charge": 1, "parcels": 1}
    assert report.summary().endswith("scenarios, gateway.charge x1, parcels x1 in each")


def test_which_one_is_there_twice_is_told(env: Environment) -> None:
    """By its name, however well the other is protected."""
    gateway = EffectRecorder(like=module("gateway"))

    @job("pack_again", max_duration=5)
    def pack_again(_payload: dict[str, Any], ctx: Context) -> None:
        PARCELS.append(ctx.key)
        gateway.charge(500, idempotency_key=ctx.key)

    report = broken(
        lambda: prove_effectively_once(pack_again, {}, effects=(parcels, gateway), app=App([pack_again]), env=env)
    )

    assert report.effects == {"parcels": 1, "gateway.charge": 1}
    assert report.diagnosis is Diagnosis.TWICE
    assert {one.evidence.partition(":")[0] for result in report.results for one in result.findings} == {"parcels"}


def test_one_twice_and_the_other_never_is_not_as_many_in_all(env: Environment) -> None:
    """Two functions whose sum is right in every run."""

    @job("pack_or_label", max_duration=5)
    def pack_or_label(_payload: dict[str, Any], ctx: Context) -> None:
        if len(PARCELS) + len(LABELS) < 2:
            PARCELS.append(ctx.key)
        ctx.step("between", int)
        if len(PARCELS) + len(LABELS) < 2:
            LABELS.append(ctx.key)

    def empty() -> None:
        PARCELS.clear()
        LABELS.clear()

    def proof(*effects: Callable[[], int]) -> Report:
        return broken(
            lambda: prove_effectively_once(
                pack_or_label, {}, key="o-1", effects=effects, setup=empty, app=App([pack_or_label]), env=env
            )
        )

    crashed = [one for one in proof(parcels, labels).results if one.group == "crash"]
    assert "parcels: 2 times instead of 1" in {one.evidence for result in crashed for one in result.findings}
    summed = [one for one in proof(lambda: len(PARCELS) + len(LABELS)).results if one.group == "crash"]
    assert all(result.ok for result in summed)


@pytest.mark.parametrize("like", [None, module("jobs.gateway")], ids=["anything", "module"])
def test_a_function_of_a_recorder_counts_nothing(like: Any) -> None:
    """Nor does the class of recorders: the message says what to give."""
    recorder = EffectRecorder(like=like)

    @job("pay", max_duration=5)
    def pay(_payload: dict[str, Any]) -> None:
        recorder.charge(5)

    given: Any
    for given, place in ((recorder.charge, "effects="), ([recorder, recorder.charge], r"effects\[1\]")):
        with pytest.raises(ConfigurationError, match=rf"^{place} takes the recorder itself, not a function of it"):
            prove_effectively_once(pay, {}, effects=given)
    given = EffectRecorder
    with pytest.raises(ConfigurationError, match=r"^effects= is a class, EffectRecorder: give one that is made, Effec"):
        prove_effectively_once(pay, {}, effects=given)
    assert recorder.calls == []


def test_two_recorders_are_two_providers(env: Environment) -> None:
    """The same function with the same key is an effect of each; with one name they are told apart by their places."""
    both: list[EffectRecorder] = []
    for one, other, names in (
        ("jobs.stripe", "jobs.ledger", ("stripe.charge", "ledger.charge")),
        ("stripe.gateway", "ledger.gateway", ("effects[0].charge", "effects[1].charge")),
    ):
        both[:] = [EffectRecorder(like=module(one)), EffectRecorder(like=module(other))]

        @job("charge_both", max_duration=5)
        def charge_both(_payload: dict[str, Any], ctx: Context) -> None:
            for recorder in both:
                recorder.charge(500, idempotency_key=ctx.key)

        report = prove_effectively_once(charge_both, {}, effects=both, app=App([charge_both]), env=env)
        assert report.effects == dict.fromkeys(names, 1)


def test_what_one_of_two_providers_gets_under_one_key_is_told_of_that_one(env: Environment) -> None:
    """The attempt is among the arguments of the second."""
    first, second = EffectRecorder(like=module("stripe")), EffectRecorder(like=module("ledger"))

    @job("charge_by_attempt", max_duration=5)
    def charge_by_attempt(_payload: dict[str, Any], ctx: Context) -> None:
        first.charge(500, idempotency_key=ctx.key)
        second.charge(ctx.attempt, idempotency_key=ctx.key)

    report = broken(
        lambda: prove_effectively_once(
            charge_by_attempt, {}, effects=[first, second], app=App([charge_by_attempt]), env=env
        )
    )
    assert report.diagnosis is Diagnosis.KEY_WITH_OTHER_ARGUMENTS
    assert report.worst is not None
    assert [one.evidence for one in report.worst.findings] == ["ledger.charge"]


def test_what_has_no_name_is_called_by_its_place() -> None:
    """A recorder of nothing in particular, and a function without a name; a list of one is like that one alone."""
    gateway = EffectRecorder()

    def names(effects: Any) -> list[str]:
        counters = counters_of(effects)
        for counter in counters:
            counter.begin()
        gateway.charge()
        return [call.name for counter in counters for call in counter.calls()]

    assert names([lambda: len(gateway.effects), gateway]) == ["effects[0]", "effects[1].charge"]
    assert names([gateway]) == names(gateway) == ["charge"]
    assert names([parcels_of(gateway)]) == names(parcels_of(gateway)) == ["parcels"]
    assert names(lambda: len(gateway.effects)) == ["effects"]


def parcels_of(gateway: EffectRecorder) -> Callable[[], int]:
    """Return a function that has a name."""

    def parcels() -> int:
        return gateway.count()

    return parcels


def test_each_that_counts_nothing_is_told(env: Environment) -> None:
    """It stands in another place than the one that the job calls, or looks at another table."""
    gateway, mailer = EffectRecorder(like=module("gateway")), EffectRecorder(like=module("mailer"))

    @job("charge_alone", max_duration=5)
    def charge_alone(_payload: dict[str, Any], ctx: Context) -> None:
        gateway.charge(500, idempotency_key=ctx.key)

    def told(*effects: Any) -> list[tuple[Diagnosis, str]]:
        [result] = broken(
            lambda: prove_effectively_once(charge_alone, {}, effects=effects, app=App([charge_alone]), env=env)
        ).results
        return [(one.diagnosis, one.evidence) for one in result.findings]

    assert told(mailer, gateway, parcels) == [
        (Diagnosis.NO_EFFECT, "effects[0] (mailer) counted nothing in an undisturbed run"),
        (Diagnosis.NO_EFFECT, "effects[2] (parcels) counted nothing in an undisturbed run"),
    ]
    assert told(mailer) == [(Diagnosis.NO_EFFECT, "effects[0] counted nothing in an undisturbed run")]


def test_all_of_them_begin_anew_in_each_scenario(env: Environment) -> None:
    """Whatever was called before the proof, and in whatever order they stand: a function may look at a recorder."""
    first, second = EffectRecorder(like=module("stripe")), EffectRecorder(like=module("ledger"))
    for recorder in (first, second):
        recorder.charge(1)
    PARCELS.append("of before")

    @job("charge_all", max_duration=5)
    def charge_all(_payload: dict[str, Any], ctx: Context) -> None:
        first.charge(5, idempotency_key=ctx.key)
        second.charge(5, idempotency_key=ctx.key)
        if ctx.key not in PARCELS:
            PARCELS.append(ctx.key)

    def charges() -> int:
        return len(first.effects)

    def leave_one() -> None:
        PARCELS[:] = ["of before"]

    report = prove_effectively_once(
        charge_all, {}, effects=[charges, first, second, parcels], setup=leave_one, app=App([charge_all]), env=env
    )
    assert report.effects == {"charges": 1, "stripe.charge": 1, "ledger.charge": 1, "parcels": 1}


def test_what_a_recorder_does_not_count_is_named_beside_a_function_as_well(env: Environment) -> None:
    """Nobody knows of what the function is the number; where functions alone count, nothing is named."""
    gateway, keys = EffectRecorder(), list[str]()

    @job("charge_and_tag", max_duration=5)
    def charge_and_tag(_payload: dict[str, Any], ctx: Context) -> None:
        boto3.client("sqs").tag_queue(QueueUrl=env.settings.queue("default").dlq_url, Tags={"last": "o-1"})
        gateway.charge(idempotency_key=ctx.key)
        if ctx.key not in keys:
            keys.append(ctx.key)

    def proof(*effects: Any) -> Report:
        app = App([charge_and_tag])
        return prove_effectively_once(charge_and_tag, {}, effects=effects, setup=keys.clear, app=app, env=env)

    assert proof(gateway).uncounted == ["TagQueue"]
    assert proof(gateway, lambda: len(gateway.effects)).uncounted == ["TagQueue"]
    assert proof(lambda: len({*keys})).uncounted == []


recorder = EffectRecorder()


@pytest.mark.parametrize(
    ("effects", "told"),
    [
        (
            7,
            "^effects= is an EffectRecorder or a function that returns the number by now, or a list of these, no int",
        ),
        ("gateway", "^effects= is an EffectRecorder or .*, no str: put"),
        ([], "^effects= is an empty list: give an EffectRecorder or .*, or leave it out"),
        ([recorder, None], r"^effects\[1\] is an EffectRecorder or a function .*, no NoneType: put"),
        ([[recorder]], r"^effects\[0\] is an EffectRecorder or a function .*, no list: put"),
        (recorder.count, "^effects= takes the recorder itself, not its count: it is cleared before each scenario"),
        ([parcels, recorder.count], r"^effects\[1\] takes the recorder itself, not its count"),
        ([recorder, parcels, recorder], r"^effects\[2\] stands in the list twice: give each of them once"),
        (lambda: "1", "^effects= returned '1': it is an EffectRecorder, or a function that returns"),
        ([parcels, lambda: 1.5], r"^effects\[1\] returned 1.5: it is an EffectRecorder, or a function that returns"),
    ],
)
def test_what_cannot_count_is_refused(effects: Any, told: str, env: Environment) -> None:
    """With what to give, and where it stands; in a proof of a consumer, too."""

    @job("nothing", max_duration=5)
    def nothing(_payload: dict[str, Any]) -> None:
        """Do nothing."""

    with pytest.raises(ConfigurationError, match=told):
        prove_effectively_once(nothing, {}, effects=effects, app=App([nothing]), env=env)
    with pytest.raises(ConfigurationError, match=told):
        prove_consumer(lambda _parts: lambda _event, _context: None, {"order_id": "o-1"}, effects=effects, env=env)


def test_effects_of_a_consumer_may_be_counted_by_several(env: Environment) -> None:
    """Where they are not those of its work."""
    gateway = EffectRecorder(like=module("gateway"))

    def by_the_providers_key(_parts: Parts) -> Any:
        def handler(event: dict[str, Any], _context: Any) -> None:
            for record in event["Records"]:
                order = json.loads(record["body"])
                gateway.charge(5, idempotency_key=order["order_id"])

        return handler

    def rows() -> int:
        return len(gateway.effects)

    report = prove_consumer(by_the_providers_key, {"order_id": "o-1"}, effects=[gateway, rows], env=env)
    assert report.effects == {"gateway.charge": 1, "rows": 1}
