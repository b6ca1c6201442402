"""What a job receives beside its payload."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.clock import FakeLambdaContext
from kit.world import event_of, kept
from onceq import Context, JobType
from onceq.message import Message

if TYPE_CHECKING:
    from kit.world import World

NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,100}", fullmatch=True)
KEYS = st.text(min_size=1)
JOB_TYPES = st.from_regex(r"[a-z][a-z0-9_.-]{0,99}", fullmatch=True)


def context(job_type: str = "pay", key: str = "k-1", attempt: int = 1, fencing_token: int = 1) -> Context:
    """Return an attempt's context."""
    return Context(job_type, key, attempt, fencing_token, Message("m", None), lambda: 9.0)


@given(JOB_TYPES, KEYS, NAMES, st.integers(1, 99))
def test_a_downstream_key_is_the_same_on_every_attempt(job_type: str, key: str, name: str, attempt: int) -> None:
    """G12: the provider sees one key however often the effect is attempted; it takes 255 characters."""
    first = context(job_type, key).idempotency_key_for(name)

    assert first == context(job_type, key, attempt, attempt * 1000).idempotency_key_for(name)
    assert len(first) <= 255
    assert first.isascii()
    assert first.startswith(f"{name}-")


@given(st.tuples(JOB_TYPES, KEYS, NAMES), st.tuples(JOB_TYPES, KEYS, NAMES))
def test_different_effects_never_share_a_downstream_key(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """Another job type, another key or another name is another effect, however the three read when put together."""

    def made(parts: tuple[str, str, str]) -> str:
        return context(parts[0], parts[1]).idempotency_key_for(parts[2])

    assert (made(one) == made(other)) == (one == other)


def test_the_parts_of_a_downstream_key_cannot_be_shifted() -> None:
    """What leaves one part and enters the next makes another key."""
    made = {
        context("a", "b-c").idempotency_key_for("d"),
        context("a-b", "c").idempotency_key_for("d"),
        context("a", "b").idempotency_key_for("c-d"),
        context("a", '","').idempotency_key_for("d"),
        context("a", "b").idempotency_key_for("d"),
    }

    assert len(made) == 5


def test_a_downstream_key_does_not_change_with_a_release() -> None:
    """A constant: if this fails, an upgrade would charge again what is in flight."""
    assert (
        context("process_payment", "o-1").idempotency_key_for("charge")
        == "charge-c51353f3c01c7910096386129ddd96722bbadf5458a319ca3624ec40bc64d7a7"
    )


@pytest.mark.parametrize("name", ["", " ", "a b", "é", "a" * 101, "a\n", None, 5], ids=repr)
def test_a_name_that_is_no_name_is_refused(name: Any) -> None:
    """It goes into a header of somebody else's API."""
    with pytest.raises(ValueError, match="the effect's name"):
        context().idempotency_key_for(name)


def test_the_logger_carries_the_jobs_fields_and_those_of_the_call(caplog: pytest.LogCaptureFixture) -> None:
    """A line of a job can be found by its job type, key and attempt."""
    with caplog.at_level(logging.INFO, logger="onceq.job"):
        context(attempt=3).log.info("charged", extra={"charge": "c-1"})

    line: Any = caplog.records[0]
    assert (line.job_type, line.idempotency_key, line.attempt, line.charge) == ("pay", "k-1", 3, "c-1")


def test_a_renamed_job_keeps_its_record_and_its_downstream_key(world: World) -> None:
    """G3: a message under the old name, served after the rename, replays what ran before it, and so the reverse."""
    seen: list[tuple[str, str]] = []

    def pay(payload: dict[str, Any], ctx: Context) -> str:
        seen.append((ctx.job_type, ctx.idempotency_key_for("charge")))
        return "paid"

    before, after = JobType(pay, "charge"), JobType(pay, "pay", formerly=("charge",))
    messages = [
        (before, world.message("charge", key="k-1")),
        (after, world.message("charge", key="k-1")),
        (after, world.message("pay", key="k-1")),
        (after, world.message("pay", key="k-2")),
        (after, world.message("charge", key="k-2")),
    ]
    for job_type, message in messages:
        assert kept(world.app(job_type).consumer(event_of(message), FakeLambdaContext())) == []

    assert [job_type for job_type, _ in seen] == ["charge", "charge"]
    assert seen[0][1] == context("charge", "k-1").idempotency_key_for("charge")
    assert world.names().count("job.replayed") == 3
    app = world.app(after)
    assert app.lookup("charge", "k-1") == app.lookup("pay", "k-1") == app.lookup(after, "k-1") is not None
