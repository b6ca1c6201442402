"""The test kit fails every wrong job and consumer of the gallery, by its right name, and passes the right ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gallery import consumers, counted, field, further, jobs, right, right_jobs
from gallery.outside import BODY, Order
from gallery.table import BUGS, CONSUMERS, JOBS, RIGHT_CONSUMERS, RIGHT_JOBS, name_of
from onceq import App, JobType
from onceq.testing import NotEffectivelyOnce, environment, prove_consumer, prove_effectively_once
from onceq.testing.timeline import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from gallery.table import Effects, Job, Make, Wrong
    from onceq.testing import Environment, Report

TEMPLATE = Path(__file__).with_name("template.yaml")
# What is stuck for ever costs a round for each receive.
MOST_RECEIVES = 10
ORDER = Order()
# The bugs that the kit has to find at the least, in every run, and what is right by each protection; the others with
# `make gallery`.
WHOLE = os.environ.get("GALLERY") == "all"
PROTECTED = {"keyed_step", "at_most_once_step", "at_most_once_job", "transactional", "sends_on"}
BY_HAND = {"right_in_short", "right_with_downstream_key", "right_with_a_transaction"}
# What the job under proof sends to, beside it.
OTHERS = [right_jobs.send_receipt]


@pytest.fixture(scope="module")
def env() -> Iterator[Environment]:
    """The tables and queues of the gallery."""
    with environment(template=TEMPLATE, parameters={"MostReceives": MOST_RECEIVES}) as opened:
        yield opened


@pytest.fixture(autouse=True)
def cold() -> None:
    """Begin in a process that remembers nothing."""
    jobs.REMEMBERED.clear()
    jobs.FIRST.clear()
    counted.FIRST.clear()
    further.REMEMBERED.clear()


@pytest.mark.parametrize("wrong", [one for one in CONSUMERS if WHOLE or one.bug], ids=str)
def test_a_wrong_consumer_is_caught(wrong: Wrong[Make], env: Environment) -> None:
    """A wrong consumer is failed, and its mistake is called by its name."""
    with pytest.raises(NotEffectivelyOnce) as caught:
        prove_consumer(wrong.subject, BODY, env=env)

    assert caught.value.report.diagnosis is wrong.diagnosis, caught.value.report.text()
    _shows(caught.value.report, wrong)


@pytest.mark.parametrize("wrong", [one for one in JOBS if WHOLE or one.bug], ids=str)
def test_a_wrong_job_is_caught(wrong: Wrong[Job], env: Environment) -> None:
    """A wrong job is failed, and its mistake is called by its name."""
    with pytest.raises(NotEffectivelyOnce) as caught:
        prove_effectively_once(wrong.subject, ORDER, effects=wrong.effects, app=App([wrong.subject, *OTHERS]), env=env)

    assert caught.value.report.diagnosis is wrong.diagnosis, caught.value.report.text()
    _shows(caught.value.report, wrong)


@pytest.mark.parametrize(
    ("make", "effects"),
    [pytest.param(*row, id=name_of(row[0])) for row in RIGHT_CONSUMERS if WHOLE or name_of(row[0]) in BY_HAND],
)
def test_a_right_consumer_passes(make: Make, effects: Callable[[], int] | None, env: Environment) -> None:
    """A consumer that is right passes, though it is written in another way than the framework."""
    report = prove_consumer(make, BODY, effects=effects, env=env)

    assert report.ok
    assert sum(report.effects.values()) == 1


@pytest.mark.parametrize(
    ("job_type", "effects"),
    [pytest.param(*row, id=name_of(row[0])) for row in RIGHT_JOBS if WHOLE or name_of(row[0]) in PROTECTED],
)
def test_a_right_job_passes(job_type: Job, effects: Effects | None, env: Environment) -> None:
    """A job that is right passes, whatever protects its effects."""
    payload: Any = {"order_id": ORDER.order_id} if job_type in OTHERS else ORDER
    app = App(dict.fromkeys([job_type, *OTHERS]))

    report = prove_effectively_once(job_type, payload, effects=effects, app=app, env=env)

    assert report.ok
    assert sum(report.effects.values()) >= 1


def test_every_bug_is_in_the_gallery() -> None:
    """Each mistake that the kit has to find at the least is in the gallery, and each protection."""
    assert {name_of(job_type) for job_type, _ in RIGHT_JOBS} >= PROTECTED
    assert {name_of(make) for make, _ in RIGHT_CONSUMERS} >= BY_HAND
    shown = {wrong.bug for wrong in CONSUMERS} | {wrong.bug for wrong in JOBS}

    assert shown - {""} == {*BUGS}


@pytest.mark.parametrize(
    ("module", "listed"),
    [
        pytest.param(consumers, [str(one) for one in CONSUMERS], id="consumers"),
        pytest.param(counted, [str(one) for one in JOBS], id="counted"),
        pytest.param(field, [str(one) for one in CONSUMERS], id="field"),
        pytest.param(further, [str(one) for one in CONSUMERS], id="further"),
        pytest.param(jobs, [str(one) for one in JOBS], id="jobs"),
        pytest.param(right, [name_of(make) for make, _ in RIGHT_CONSUMERS], id="right"),
        pytest.param(right_jobs, [name_of(job_type) for job_type, _ in RIGHT_JOBS], id="right_jobs"),
    ],
)
def test_nothing_of_the_gallery_is_left_out(module: ModuleType, listed: list[str]) -> None:
    """Each job and each consumer that is written is proved, or failed."""
    written = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        if isinstance(value, JobType) or (callable(value) and _returns_a_handler(value, module))
    ]

    assert written
    assert {*written} <= {*listed}


def _returns_a_handler(value: Any, module: ModuleType) -> bool:
    return value.__module__ == module.__name__ and getattr(value, "__annotations__", {}).get("return") == "Handler"


def _shows(report: Report, wrong: Wrong[Any]) -> None:
    """Check that a report names the scenario, and draws the effects that were too many, or what there was of them."""
    worst = report.worst
    assert worst is not None
    assert worst.run is not None
    text = report.text()
    picture = "\n".join(report.picture())

    assert wrong.diagnosis in text
    assert f"✗ {worst.group}" in text
    assert f"\n{worst.name}:\n" in picture
    run = worst.run
    happened = sum(entry.kind is Kind.EFFECT for entry in run.timeline.entries)
    assert picture.count("effect: ") == happened
    if any(run.distinct(name) > number * run.jobs for name, number in report.effects.items()):
        assert picture.count(wrong.told) >= 2
