"""The jobs as the plain functions that they are: no queue, no table, nothing of the framework but `Context`."""

import pytest
import work
from work import Video, bill, render

from onceq import Context, Reject


def test_a_video_is_rendered_and_then_billed_to_its_account(monkeypatch):
    """The farm gets the same key on every attempt; the bill leaves with the completion, in the account's order."""
    calls = []
    monkeypatch.setattr(work, "farm", lambda video_id, **given: calls.append((video_id, given)) or "farm://v-1")
    ctx = Context("render", "v-1")

    assert render(Video("v-1", "a-1", 3), ctx) == "farm://v-1"

    assert calls == [("v-1", {"idempotency_key": ctx.idempotency_key_for("farm")})]
    [sent] = ctx.sent
    assert (sent.job_type, sent.payload, sent.group) == ("bill", Video("v-1", "a-1", 3), "a-1")


def test_an_empty_video_is_rejected():
    """It is never tried again."""
    with pytest.raises(Reject, match="nothing to render"):
        render(Video("v-1", "a-1", 0), Context("render", "v-1"))


def test_a_bill_is_written_with_the_completion(monkeypatch):
    """The context shows what the job would write."""
    monkeypatch.setenv("ACCOUNTS", "accounts")
    ctx = Context("bill", "v-1")

    bill(Video("v-1", "a-1", 3), ctx)

    assert [str(write) for write in ctx.transaction.writes] == ["Update of accounts {'account': 'a-1'}"]
