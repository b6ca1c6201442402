"""Both jobs take effect once, whatever happens to their messages and workers; and all together, on the template."""

import pytest
import work
from work import Video, bill, render

from onceq.testing import EffectRecorder, Environment, prove_effectively_once

VIDEO = Video("v-1", "a-1", 3)


def test_a_video_is_rendered_once(onceq_env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    farm = EffectRecorder()
    monkeypatch.setattr(work, "farm", farm)

    prove_effectively_once(render, VIDEO, effects=farm, env=onceq_env)


def test_a_video_is_billed_once(onceq_env: Environment) -> None:
    prove_effectively_once(bill, VIDEO, group="a-1", env=onceq_env)


def test_a_video_goes_through_both_queues(onceq_env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "farm", EffectRecorder())
    onceq_env.redeliver(onceq_env.enqueue(render, VIDEO))

    onceq_env.drain()

    [account] = onceq_env.stock("AccountsTable")
    assert account["minutes"] == {"N": "3"}
    assert {record.status for record in onceq_env.records()} == {"completed"}
