"""What the scenarios of a proof do: who receives what, and what a second send is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from onceq import App, Context, job
from onceq.testing import (
    Diagnosis,
    EffectRecorder,
    NotEffectivelyOnce,
    Point,
    environment,
    prove_effectively_once,
)
from onceq.testing.plain import PLAIN
from onceq.testing.scenarios import scenarios_of
from onceq.testing.timeline import RECEIVES, Kind

if TYPE_CHECKING:
    from onceq.testing.report import Result

ONE = ", in one warm process"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """What became of each scenario of one proof, by name."""
    gateway, template = EffectRecorder(), tmp_path_factory.mktemp("plain") / "template.yaml"
    template.write_text(json.dumps(PLAIN), encoding="utf-8")

    @job("charge", key="order_id", max_duration=5)
    def charge(order: dict[str, Any], ctx: Context) -> Any:
        key = ctx.idempotency_key_for("charge")
        sent = json.loads(ctx.message.body or "")["created_at"]
        return [gateway.charge(order["cents"], idempotency_key=key), ctx.message.message_id, sent]

    with environment(App([charge]), template=template) as env:
        report = prove_effectively_once(charge, {"order_id": "o-1", "cents": 5}, effects=gateway, env=env)
    return {result.name: result for result in report.results}


def receivers(result: Result) -> list[str]:
    """Return who received something, in order."""
    assert result.run is not None
    entries = result.run.timeline.entries
    return [one.worker for one in entries if one.kind is Kind.DELIVERY and one.what.startswith(RECEIVES)]


def test_each_scenario_has_its_processes(results: dict[str, Result]) -> None:
    """Fresh ones, or one that is warm as long as it lives; the last delivery is a fresh one's in any case."""
    told = {
        "delivered once": ["w1"],
        "delivered twice, one after the other": ["w1", "w2", "w3"],
        f"delivered twice, one after the other{ONE}": ["w1", "w1", "w2"],
        "two different jobs": ["w1", "w2", "w3"],
        f"two different jobs{ONE}": ["w1", "w1", "w2"],
        "two different jobs, one after the other, where the first one's effects fail": ["w1", "w2", "w3", "w4"],
        "effect charge fails the first time": ["w1", "w2", "w3"],
        f"effect charge fails the first time{ONE}": ["w1", "w1", "w2"],
    }

    assert {name: receivers(results[name]) for name in told} == told


@pytest.mark.parametrize(
    "name", ["sent a second time, 26 hours later", "crashed after effect charge, then sent a second"]
)
def test_a_second_send_is_another_message_of_the_same_job(name: str, results: dict[str, Result]) -> None:
    """With an id and a time of its own, and the same key: there is one record of both."""
    [result] = [one for one in results.values() if one.name.startswith(name)]

    run = result.run
    assert run is not None
    assert len(run.records) == 1
    sent = json.loads(run.records[0].result or "")
    # The one that completed is the first of two, or the second one after the first one's death.
    assert sent[1][-1] == ("1" if name.startswith("sent") else "2")
    assert sent[2].startswith("2028-12-31T12:00:00" if name.startswith("sent") else "2028-12-31T12:16:40")


def test_the_first_of_two_jobs_is_the_one_that_fails(results: dict[str, Result]) -> None:
    """And is done after the other."""
    run = results["two different jobs, one after the other, where the first one's effects fail"].run
    assert run is not None

    assert [one.worker for one in run.timeline.entries if one.kind is Kind.FAULT] == ["w1"]
    assert [effect.worker for effect in run.effects] == ["w2", "w3"]


@pytest.mark.parametrize(("first", "names"), [(2, []), (5, ["taken over, then the first one's effect charge fails"])])
def test_only_an_effect_of_the_first_delivery_fails_in_a_zombie(first: int, names: list[str]) -> None:
    """The first worker does not come by the points of a later one: there is nothing for it to fail at."""
    points = [Point("claim"), Point("release"), Point("take over"), Point("effect charge", effect="charge")]

    found = scenarios_of([*points, Point("the answer")], first=first, keys_last=None, most_attempts=5, others=1)

    assert [one.name for one in found if "then the first one's" in one.name] == names


def test_a_run_that_comes_by_another_point_is_told_and_ends_no_proof() -> None:
    """Where an effect was to fail stands a request, at which nothing can: that is another path, and no wrong input."""
    gateway = EffectRecorder()
    told: list[Result] = []

    @job("wavering", key="order_id", max_duration=5)
    def wavering(_order: dict[str, Any], ctx: Context) -> Any:
        if told:
            ctx.step("note", lambda: None)
        return gateway.charge(idempotency_key=ctx.idempotency_key_for("charge"))

    with pytest.raises(NotEffectivelyOnce) as found:
        prove_effectively_once(wavering, {"order_id": "o-1"}, effects=gateway, progress=told.append)

    diagnoses = {one.name: {finding.diagnosis for finding in one.findings} for one in found.value.report.results}
    assert Diagnosis.OTHER_PATH in diagnoses["effect charge fails the first time"]
    assert Diagnosis.OTHER_PATH in diagnoses["taken over, then the first one's effect charge fails"]
