"""What an environment is given wrongly: the error says what was given and what to give, and nothing is lost by it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from onceq import ConfigurationError, Context, JobType, job
from onceq.testing import Move, envelope, environment, sqs_event, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.testing import Environment


def plain(_payload: dict[str, Any]) -> None:
    """Be no job type: nothing stands above it."""


@job("stranger", max_duration=5)
def stranger(_payload: dict[str, Any], _ctx: Context) -> None:
    """Be in no App."""


CRASH: Any = Move.CRASH
DIRECTED = (
    r"director= is <Move\.CRASH: 2>: give a function that is asked at every Point and answers with a Move, for example "
)
MESSAGES = "is nothing to deliver: give a message"
BY_JOB = "is no job type: give the function that has @job above it, or its name"

TRIES: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "nothing is delivered": (lambda env, _: env.deliver(None), f"^None {MESSAGES}"),
    "a text is delivered": (lambda env, _: env.deliver("text"), f"^'text' {MESSAGES}"),
    "a number is delivered": (lambda env, _: env.deliver(5), f"^5 {MESSAGES}"),
    "no message is delivered": (lambda env, _: env.deliver([]), rf"^\[\] {MESSAGES}"),
    "texts are delivered": (lambda env, one: env.deliver([one, "m2"]), rf"^\[.*\] {MESSAGES}"),
    "a message is delivered twice at once": (
        lambda env, one: env.deliver([one, one]),
        r"^m1 comes twice in one event: give each message once; its duplicate is a message that `put\(letter\.body\)` ",
    ),
    "a message is started twice at once": (lambda env, one: env.start([one, one]), "^m1 comes twice in one event: "),
    "nothing is received": (lambda env, _: env.mailbox.receive([]), "^an event has one message at least: none is gi"),
    "nothing is started": (lambda env, _: env.start(None), f"^None {MESSAGES}"),
    "a text is redelivered": (lambda env, _: env.redeliver("x"), "^'x' is no message: give one that "),
    "a list is redelivered": (lambda env, one: env.redeliver([one]), r"^\[.*\] is no message: give one that "),
    "a text is redriven": (lambda env, _: env.redrive("x"), "^'x' is no message: give one that "),
    "a list is redriven": (lambda env, _: env.redrive(env.dead_letters()), r"^\[\] is no message: give one "),
    "what lies in no dead-letter queue is redriven": (lambda env, one: env.redrive(one), "redrive what `dead_letters`"),
    "a move directs a delivery": (lambda env, one: env.deliver(one, director=CRASH), f"^{DIRECTED}"),
    "a move directs a second delivery": (lambda env, one: env.redeliver(one, director=CRASH), f"^{DIRECTED}"),
    "a move directs all": (lambda env, _: env.drain(director=CRASH), f"^{DIRECTED}"),
    "a move directs the relay": (lambda env, _: env.relay(director=CRASH), f"^{DIRECTED}"),
    "a message says which": (lambda env, one: env.drain(only=one), "^only= is .*: give a function "),
    "time is a text": (lambda env, _: env.pass_time("5"), "^'5' is no time that can pass: give a number of seconds"),
    "time is nothing": (lambda env, _: env.pass_time(None), "^None is no time that can pass"),
    "time is a timedelta": (lambda env, _: env.pass_time(timedelta(minutes=1)), r"total_seconds\(\)"),
    "time goes back": (lambda env, _: env.pass_time(-5), "^-5 is no time that can pass"),
    "time is no number": (lambda env, _: env.pass_time(float("nan")), "^nan is no time that can pass"),
    "time has no end": (lambda env, _: env.pass_time(float("inf")), "^inf is no time that can pass"),
    "time is longer than a calendar": (lambda env, _: env.pass_time(1e30), "^1e.30 is no time that can pass"),
    "no job type is enqueued": (lambda env, _: env.enqueue(None, {}), f"^None {BY_JOB}"),
    "a function is enqueued": (lambda env, _: env.enqueue(plain, {}), f"^<function plain.*> {BY_JOB}"),
    "a foreign job is enqueued": (
        lambda env, _: env.enqueue(stranger, {}),
        "^job type 'stranger' is not in the App's ",
    ),
    "an unknown job is enqueued": (lambda env, _: env.enqueue("charge", {}), "^no job type is named 'charge': "),
    "a function has a record": (lambda env, _: env.record(plain, "k"), f"^<function plain.*> {BY_JOB}"),
    "an unknown queue is looked into": (lambda env, _: env.letters("other"), "^there is no queue 'other' in this "),
    "a job is a queue": (lambda env, _: env.put("x", queue=stranger), "^there is no queue JobType.* in this "),
    "attributes are a list": (
        lambda env, _: env.put("x", attributes=["a"]),
        r"^attributes= is \['a'\]: give .* by name",
    ),
    "an attribute is a number": (
        lambda env, _: env.put("x", attributes={"a": 5}),
        "^the message attribute 'a' is 5: give",
    ),
    "an attribute has no type": (
        lambda env, _: env.put("x", attributes={"a": {"x": 1}}),
        "^the message attribute 'a' is ",
    ),
    "an attribute has no value": (
        lambda env, _: env.put("x", attributes={"a": {"DataType": "String"}}),
        "^the message attribute 'a' is ",
    ),
    "a group is a number": (lambda env, _: env.put("x", group=5), "^group= is 5: give a text"),
    "a group of a record is a number": (lambda _e, _: sqs_record("x", group=5), "^group= is 5: give a text"),  # type: ignore[arg-type]
    "an attribute of an event is a number": (
        lambda _e, _: sqs_event("x", attributes={"a": 5}),
        "^the message attribute 'a'",
    ),
    "a queue of a record is none": (lambda _e, _: sqs_record("x", queue=None), "^queue= is None: give "),  # type: ignore[arg-type]
    "an envelope of a function": (lambda _e, _: envelope(plain, {}, key="k"), f"^<function plain.*> {BY_JOB}"),
    "an App is a list": (lambda env, _: env.use([stranger]), r"^\[.*\] is no App: give App\(\[…\]\) of your job types"),
    "an unknown table is read": (
        lambda env, _: env.stock("Stok"),
        "^there is no table 'Stok' in this environment: .*ClaimsT",
    ),
}


@pytest.mark.parametrize("name", TRIES)
def test_what_is_given_wrongly_is_told_and_nothing_is_lost(
    name: str, env: Environment, charge: JobType[..., Any]
) -> None:
    """The message is where it was, not received, no process has begun, and the time has not moved."""
    attempt, told = TRIES[name]
    letter, now = env.enqueue(charge, {"cents": 5}, key="k"), env.clock.now_ms()

    with pytest.raises(ConfigurationError, match=told):
        attempt(env, letter)

    assert env.mailbox.letters == [letter]
    assert (letter.receives, letter.visible_at, env.clock.now_ms(), env.timeline.entries) == (0, now, now, [])
    assert env.deliver(letter).worker == "w1"


def test_an_application_that_is_none_is_told_as_it_is_opened(charge: JobType[..., Any]) -> None:
    """A list of job types is what an App is made of."""
    for given in ([charge], charge):
        with (
            pytest.raises(ConfigurationError, match=r"is no App: give App\(\[…\]\) of your job types"),
            environment(given),  # type: ignore[arg-type]  # that is the point
        ):
            pass


@pytest.mark.parametrize("attempt", ["deliver", "start", "redeliver", "redrive"])
def test_a_message_of_the_time_before_a_reset_is_none_any_more(
    attempt: str, env: Environment, charge: JobType[..., Any]
) -> None:
    """It lies nowhere: it would be delivered beside what the queues hold now."""
    old = env.enqueue(charge, {"cents": 5}, key="k")
    env.reset()
    letter = env.enqueue(charge, {"cents": 5}, key="k")

    with pytest.raises(ConfigurationError, match=r"^m1 is no message of this environment as it is now: a `reset` ca"):
        getattr(env, attempt)(old)

    assert (env.mailbox.letters, old.receives, env.timeline.entries) == ([letter], 0, [])


def test_another_consumer_that_is_none_leaves_all_as_it_was(env: Environment, charge: JobType[..., Any]) -> None:
    """The time, too, to which the next `reset` goes back."""
    began, wrong = env.clock.now_ms(), cast("Any", [charge])

    with pytest.raises(ConfigurationError, match="is no App"), env.used_by(wrong, at_ms=began + 1):
        pass

    env.reset()
    assert env.clock.now_ms() == began


def test_what_is_redelivered_with_a_wrong_director_does_not_come_back(
    env: Environment, charge: JobType[..., Any]
) -> None:
    """A message that was acknowledged stays so."""
    letter = env.enqueue(charge, {"cents": 5}, key="k")
    env.deliver(letter)

    with pytest.raises(ConfigurationError, match=DIRECTED):
        env.redeliver(letter, director=CRASH)

    assert env.letters() == []
