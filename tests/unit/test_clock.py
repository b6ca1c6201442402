"""Time and tokens."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.clock import FakeLambdaContext, FrozenClock
from onceq.clock import LambdaDeadline, OpenDeadline, SystemClock, TokenFactory, deadline_of

SRC = Path(__file__).resolve().parents[2] / "src"


@given(st.integers(0, 2**48 - 1))
def test_a_new_key_is_a_uuid_of_version_7_that_tells_its_time(now_ms: int) -> None:
    """RFC 9562: 48 bits of time in front, then version and variant, the rest random."""
    made = uuid.UUID(TokenFactory(FrozenClock(now_ms)).key())

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == now_ms


@given(st.integers(0, 2**47), st.integers(1, 2**40))
def test_new_keys_sort_by_the_time_they_were_made(now_ms: int, later: int) -> None:
    """A table or a log sorted by key shows the order of creation."""
    clock = FrozenClock(now_ms)
    tokens = TokenFactory(clock)
    earlier = tokens.key()
    clock.advance(later / 1000)

    assert clock.now_ms() > now_ms
    assert earlier < tokens.key()


def test_tokens_and_keys_are_unique() -> None:
    """Two claim attempts never share a token; the clock stands still all the while."""
    tokens = TokenFactory(FrozenClock())

    assert len({tokens.token() for _ in range(10_000)}) == 10_000
    assert len({tokens.key() for _ in range(10_000)}) == 10_000
    assert {len(tokens.token()) for _ in range(100)} == {32}


def test_jitter_stays_between_its_limits() -> None:
    """Full jitter is drawn from the whole range."""
    tokens = TokenFactory(FrozenClock())
    drawn = [tokens.uniform(2, 3) for _ in range(1000)]

    assert all(2 <= value <= 3 for value in drawn)
    assert max(drawn) - min(drawn) > 0.5


def test_the_system_clock_tells_the_machines_time() -> None:
    """Milliseconds since the epoch, and a clock that never steps back."""
    clock = SystemClock()
    first, second = clock.now_ms(), clock.now_ms()

    assert 1_700_000_000_000 < first <= second
    assert clock.monotonic() <= clock.monotonic()


@pytest.mark.parametrize("context", [None, object(), "context", type("C", (), {"get_remaining_time_in_millis": 5})()])
def test_a_context_that_tells_no_time_has_no_deadline(context: Any) -> None:
    """``context=None``, or one without the method: nothing kills the process."""
    deadline = deadline_of(context)

    assert (deadline.remaining(), deadline.kills, deadline.accepting) == (float("inf"), False, True)


def test_a_lambda_context_is_a_deadline_that_kills() -> None:
    """No time left is zero, and not "unknown"."""
    context = FakeLambdaContext(1_500)
    deadline = deadline_of(context)
    assert isinstance(deadline, LambdaDeadline)
    assert (deadline.remaining(), deadline.kills) == (1.5, True)

    context.remaining_ms = 0
    assert deadline.remaining() == 0


def test_a_runner_that_stops_takes_no_new_job() -> None:
    """An open deadline passes through as it is, and says when the runner is stopping."""
    stopping = [False]
    deadline = OpenDeadline(lambda: stopping[0])
    assert deadline_of(deadline) is deadline
    assert deadline.accepting

    stopping[0] = True
    assert not deadline_of(deadline).accepting


def test_nothing_random_is_drawn_before_the_first_message() -> None:
    """SnapStart clones what is made at init: a token made at import or by App() would be shared by its clones."""
    script = """
import os, random, uuid
from onceq import clock
def refuse(*_): raise SystemExit("a random number was drawn at init")
clock.os.urandom = refuse
random.SystemRandom.random = random.SystemRandom.getrandbits = refuse
random.random = random.getrandbits = uuid.uuid4 = uuid.uuid1 = refuse
import app
from onceq import App, Producer
App(list(app.app.job_types)); Producer({"default": "https://sqs.example/1/Jobs"})
try:
    app.app.runtime.tokens.token()
except SystemExit:
    print("watched")
"""
    found = subprocess.run([sys.executable, "-c", script], cwd=SRC, capture_output=True, text=True, check=False)

    assert (found.stdout.strip(), found.stderr) == ("watched", "")
