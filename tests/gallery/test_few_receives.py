"""A queue whose redrive policy allows few receives: what its faults use up is nobody's mistake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gallery import right, right_jobs
from gallery.outside import BODY, Order, gateway
from onceq import App
from onceq.testing import environment, prove_consumer, prove_effectively_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.testing import Environment


@pytest.fixture
def env() -> Iterator[Environment]:
    """The tables and queues of the gallery; a message may be received twice."""
    with environment(template=Path(__file__).with_name("template.yaml"), parameters={"MostReceives": 2}) as opened:
        yield opened


def test_a_right_consumer_passes_on_a_queue_of_few_receives(env: Environment) -> None:
    """Where each of them met a fault, the message may lie in the dead-letter queue, and wait for its effect there."""
    assert prove_consumer(right.right_in_short, BODY, env=env).ok


def test_a_right_job_passes_on_a_queue_of_few_receives(env: Environment) -> None:
    """The same of a job."""
    job_type = right_jobs.keyed_step

    assert prove_effectively_once(job_type, Order(), effects=gateway, app=App([job_type]), env=env).ok
