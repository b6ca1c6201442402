"""Warm processes: what one remembers is there at the next delivery; a fresh one remembers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.testing import Move, Point, envelope

if TYPE_CHECKING:
    from onceq import JobType
    from onceq.testing import Environment


class Remembering:
    """A consumer that keeps in its handler what came, and its request ids; it acknowledges from the third time on."""

    def handler(self, process: Any, _seen: Any) -> Any:
        """Return a handler with a memory of its own."""
        came: list[str] = []
        self.memories = [*getattr(self, "memories", []), came]

        def handle(event: dict[str, Any], context: Any) -> Any:
            came.append(context.aws_request_id)
            process.reach(Point("the work"))
            failures = [{"itemIdentifier": record["messageId"]} for record in event["Records"]]
            return {"batchItemFailures": failures if len(came) < 3 else []}

        return handle

    def relay(self, _process: Any, _seen: Any) -> None:
        """Return nothing."""


def test_a_warm_process_is_invoked_again_with_its_memory(env: Environment) -> None:
    """Each invocation has a request id of its own; without ``warm`` each process is a fresh one."""
    subject = Remembering()
    env.use(subject)
    letter = env.put("x")

    first = env.deliver(letter)
    again = env.redeliver(letter, warm=True)
    fresh = env.redeliver(letter)

    assert (first.worker, again.worker, fresh.worker) == ("w1", "w1", "w2")
    assert subject.memories == [["w1", "w1-2"], ["w2"]]


def test_the_first_delivery_that_is_to_be_warm_starts_a_process(env: Environment) -> None:
    """There is none to be warm yet."""
    assert env.use(Remembering()).deliver(env.put("x"), warm=True).worker == "w1"


def test_a_process_that_died_is_not_warm(env: Environment) -> None:
    """Its memory died with it."""
    subject = Remembering()
    env.use(subject)
    letter = env.put("x")

    env.deliver(letter, director=lambda point: Move.CRASH if point.what == "the work" else Move.PASS)
    env.redeliver(letter, warm=True)

    assert subject.memories == [["w1"], ["w2"]]


def test_drain_may_keep_one_process_for_all_deliveries(env: Environment) -> None:
    """The third delivery to one process is acknowledged; fresh ones would keep it until the queue gives it up."""
    subject = Remembering()
    env.use(subject)
    env.put("x")

    assert env.drain(warm=True) == 3

    assert subject.memories == [["w1", "w1-2", "w1-3"]]
    assert env.letters() == []


def test_after_a_reset_nothing_is_warm(env: Environment) -> None:
    """A run begins without processes."""
    subject = Remembering()
    env.use(subject).deliver(env.put("x"))

    env.reset()
    env.deliver(env.put("x"), warm=True)

    assert subject.memories == [["w1"], ["w1"]]


def test_an_application_is_warm_too(env: Environment, charge: JobType[..., Any]) -> None:
    """The framework's own process takes one message after the other."""
    for number in range(2):
        letter = env.put(envelope(charge, {"cents": 1}, key=f"k-{number}"))
        assert env.deliver(letter, warm=True).acknowledged == [letter]

    assert {start.worker for start in env.seen.starts} == {"w1"}
