"""What a producer is told when SQS did not take its one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kit.delivery import Poller, peek
from kit.faults import FaultyClient, faulty_sqs
from onceq import EnqueueFailed, EnqueueRefused, JobType, Producer
from onceq.client import ATTEMPTS
from onceq.errors import QueueError, QueueUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World


def _refuse(client: FaultyClient) -> None:
    client.refuse("send_message", "AccessDenied", status=403)


def _lose(client: FaultyClient) -> None:
    client.lose_response("send_message", times=ATTEMPTS)


def _drop(client: FaultyClient) -> None:
    client.drop("send_message", times=ATTEMPTS)


def _counting(runs: list[Any]) -> JobType[..., Any]:
    def act(payload: Any) -> None:
        runs.append(payload)

    return JobType(act, "act")


@pytest.mark.parametrize(
    ("plan", "cause"),
    [(_refuse, QueueError), (_lose, QueueUnavailable), (_drop, QueueUnavailable)],
    ids=["refused", "lost", "dropped"],
)
@pytest.mark.parametrize("key", [None, "own"])
def test_a_message_that_was_not_taken_is_told_with_its_key(
    world: World, plan: Callable[[FaultyClient], None], cause: type[Exception], key: str | None
) -> None:
    """The key was stamped before the message was sent: it is in the one failed entry, also where none was given."""
    app = world.app(_counting([]))
    plan(faulty_sqs(world.runtime))

    with pytest.raises(EnqueueFailed) as caught:
        app.enqueue("act", {"n": 1}, key=key)

    ((entry, reason),) = caught.value.failed
    assert len(caught.value.sent) == 0
    assert entry.key
    assert key in (None, entry.key)
    assert entry.payload == {"n": 1}
    assert reason
    assert type(caught.value.__cause__) is cause


def test_a_message_whose_answer_was_lost_is_sent_again_as_the_same_job(world: World) -> None:
    """G3: all of its copies carry one key, and the job runs once."""
    runs: list[Any] = []
    app = world.app(_counting(runs))
    _lose(faulty_sqs(world.runtime))

    with pytest.raises(EnqueueFailed) as caught:
        app.enqueue("act", {"n": 1})
    again = app.enqueue_many([entry for entry, _ in caught.value.failed])

    url = world.settings.queue("default").url
    assert len(peek(url)) == ATTEMPTS + 1
    poller = Poller.of(app)
    while poller.poll():
        pass
    assert runs == [{"n": 1}]
    assert [sent.key for sent in again] == [caught.value.failed[0][0].key]
    assert peek(url) == []


def test_a_producer_without_an_application_says_the_same(world: World) -> None:
    """An API function has no ``App``."""
    client = faulty_sqs(world.runtime)
    _refuse(client)

    with pytest.raises(EnqueueFailed) as caught:
        Producer(runtime=world.runtime).enqueue("act", {}, key="k")

    assert [entry.key for entry, _ in caught.value.failed] == ["k"]
    assert client.names() == ["send_message"]


def test_what_is_refused_before_it_is_sent_is_no_failure_of_the_queue(world: World) -> None:
    """Sending that again would be refused again, so it has an error of its own."""
    client = faulty_sqs(world.runtime)

    with pytest.raises(EnqueueRefused):
        world.app(_counting([])).enqueue("act", {}, key="")

    assert client.calls == []
