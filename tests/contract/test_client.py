"""How requests reach AWS: time-outs, which faults pass, and retries inside the time left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import botocore.exceptions as faults
import pytest
from botocore.parsers import ResponseParserError

from kit.clock import CountingTokens, FrozenClock
from kit.faults import ENDPOINT, FaultyClient, client_error
from onceq.client import ATTEMPTS, PassingFault, make_client, retrying, send
from onceq.clock import LambdaDeadline, OpenDeadline
from onceq.dynamodb import DynamoDB
from onceq.errors import ConditionFailed, QueueError, QueueUnavailable, StoreError, StoreUnavailable
from onceq.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST = {"TableName": "t", "Key": {"pk": {"S": "k"}}}


@dataclass
class Scripted:
    """A client that answers what it is given, in turn; the last answer stands for every later call."""

    answers: list[Any]
    calls: int = 0

    def __getattr__(self, method: str) -> Any:
        """Return a method that gives the next answer."""

        def call(**request: Any) -> Any:
            answer = self.answers[min(self.calls, len(self.answers) - 1)]
            self.calls += 1
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def dynamodb_on(client: Any, clock: FrozenClock) -> DynamoDB:
    """Return the seam on that client."""
    with patch("onceq.dynamodb.make_client", return_value=client):
        return DynamoDB(clock, CountingTokens(clock), 1)


# What the services' own pages say to try again, written out: the code's list must not be its own test.
PASSING_CODES = (
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "ServiceUnavailable",
    "ThrottlingException",
    "TransactionConflictException",
    "TransactionInProgressException",
)
PASS = [
    faults.ReadTimeoutError(endpoint_url=ENDPOINT),
    faults.ConnectTimeoutError(endpoint_url=ENDPOINT),
    faults.EndpointConnectionError(endpoint_url=ENDPOINT),
    faults.ConnectionClosedError(endpoint_url=ENDPOINT),
    faults.SSLError(endpoint_url=ENDPOINT, error="reset"),
    faults.HTTPClientError(error="odd"),
    faults.IncompleteReadError(actual_bytes=1, expected_bytes=2),
    ResponseParserError("not JSON"),
    client_error("Anything", status=500),
    client_error("ServiceUnavailable", status=503),
    *(client_error(code) for code in PASSING_CODES),
]
PERMANENT = [
    client_error("ValidationException"),
    client_error("AccessDeniedException"),
    client_error("ResourceNotFoundException"),
    client_error("ItemCollectionSizeLimitExceededException"),
    client_error("ExpiredTokenException", status=403),
    faults.NoCredentialsError(),
    faults.ParamValidationError(report="a bad request"),
]


@pytest.mark.parametrize("service", ["dynamodb", "sqs"])
def test_time_outs_are_short_and_botocore_does_not_retry(service: str) -> None:
    """A hung connection must not eat the invocation; a retry that we do not see ignores the time left."""
    config = make_client(service, 7).meta.config

    assert (config.connect_timeout, config.read_timeout) == (1.0, 2.0)
    assert config.retries["total_max_attempts"] == 1
    assert config.max_pool_connections == 7


def test_a_failing_request_is_sent_once_by_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's retries are off in fact, not only in the configuration."""
    client = make_client("dynamodb", 1)
    sent: list[Any] = []

    def refuse(**event: Any) -> Any:
        sent.append(event)
        raise faults.EndpointConnectionError(endpoint_url=ENDPOINT)

    client.meta.events.register("before-send.dynamodb.GetItem", refuse)
    with pytest.raises(PassingFault):
        send(client, "GetItem", REQUEST)

    assert len(sent) == 1


@pytest.mark.parametrize("fault", PASS, ids=str)
def test_a_fault_that_passes_is_tried_again(fault: Exception, clock: FrozenClock) -> None:
    """Throttling, 5xx, conflicts and everything of the network pass: the next answer counts."""
    client = Scripted([fault, {"Item": {}}])

    assert dynamodb_on(client, clock).call("GetItem", REQUEST, OpenDeadline()) == {"Item": {}}
    assert client.calls == 2


@pytest.mark.parametrize("fault", PERMANENT, ids=str)
def test_a_mistake_is_not_repeated(fault: Exception, clock: FrozenClock) -> None:
    """Every other fault is a mistake, which a retry only repeats: one request, one StoreError."""
    client = Scripted([fault])

    with pytest.raises(StoreError) as caught:
        dynamodb_on(client, clock).call("GetItem", REQUEST, OpenDeadline())

    assert not isinstance(caught.value, StoreUnavailable)
    assert (client.calls, clock.slept) == (1, [])


def test_a_failed_condition_is_neither_fault_nor_retry(clock: FrozenClock) -> None:
    """A refusal comes at once, with the item that it shows."""
    refusal = client_error("ConditionalCheckFailedException")
    refusal.response["Item"] = {"pk": {"S": "k"}}
    client = Scripted([refusal])

    with pytest.raises(ConditionFailed) as caught:
        dynamodb_on(client, clock).call("PutItem", REQUEST, OpenDeadline())

    assert (caught.value.item, client.calls) == ({"pk": {"S": "k"}}, 1)


def test_retries_are_bounded_and_back_off_with_a_cap(clock: FrozenClock) -> None:
    """Five requests at the most, the pauses between them doubling; then the outcome is unknown."""
    client = Scripted([PASS[0]])

    with pytest.raises(StoreUnavailable):
        dynamodb_on(client, clock).call("PutItem", REQUEST, OpenDeadline())

    assert client.calls == ATTEMPTS == 5
    assert clock.slept == [0.05, 0.1, 0.2, 0.4]


@pytest.mark.parametrize("mode", ["legacy", "standard", "adaptive"])
def test_botocore_holds_no_request_back(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adaptive mode waits before it sends, past any deadline: the environment does not choose it for us."""
    monkeypatch.setenv("AWS_RETRY_MODE", mode)

    client = make_client("dynamodb", 1)

    assert client.meta.config.retries["mode"] == "standard"


@pytest.mark.parametrize(("left_ms", "calls"), [(0, 1), (50, 1), (51, 2), (149, 2), (151, 3), (60_000, 5)])
def test_no_retry_starts_when_its_pause_would_outlast_the_deadline(
    left_ms: int, calls: int, clock: FrozenClock
) -> None:
    """Retries end inside the time left: after the deadline nobody would read the answer."""
    client = Scripted([client_error("ThrottlingException")])
    ends = clock.now_ms() + left_ms

    with pytest.raises(StoreUnavailable):
        dynamodb_on(client, clock).call("PutItem", REQUEST, LambdaDeadline(lambda: ends - clock.now_ms()))

    assert client.calls == calls
    assert clock.now_ms() < ends or calls == 1


@pytest.mark.parametrize("fault", PASS[:2], ids=["read", "connect"])
@pytest.mark.parametrize(("left_ms", "calls"), [(2_050, 1), (2_051, 2), (60_000, 5)])
def test_after_a_time_out_a_retry_needs_the_time_for_another(
    fault: Exception, left_ms: int, calls: int, clock: FrozenClock
) -> None:
    """A service that is silent would be waited for past the deadline, and Lambda would kill the whole batch."""
    client = Scripted([fault])
    ends = clock.now_ms() + left_ms

    with pytest.raises(StoreUnavailable):
        dynamodb_on(client, clock).call("PutItem", REQUEST, LambdaDeadline(lambda: ends - clock.now_ms()))

    assert client.calls == calls


def test_the_pause_is_drawn_between_nothing_and_its_limit(clock: FrozenClock) -> None:
    """Full jitter: many clients that failed together do not come back together."""
    asked: list[tuple[float, float]] = []

    class Tokens(CountingTokens):
        def uniform(self, low: float, high: float) -> float:
            asked.append((low, high))
            return 0.0

    def fail() -> dict[str, Any]:
        raise PassingFault

    with pytest.raises(PassingFault):
        retrying(fail, clock=clock, tokens=Tokens(clock), deadline=OpenDeadline())

    assert asked == [(0, 0.05), (0, 0.1), (0, 0.2), (0, 0.4), (0, 0.8)]


@pytest.mark.parametrize(
    ("fault", "error", "calls"),
    [(PASS[0], QueueUnavailable, 5), (PASS[2], QueueUnavailable, 5), (PERMANENT[1], QueueError, 1)],
)
def test_the_queue_has_the_same_retries(
    fault: Exception, error: type[Exception], calls: int, clock: FrozenClock
) -> None:
    """SQS and DynamoDB share one retry loop: what passes is tried again, a mistake is not."""
    client = Scripted([fault])
    queue = Queue(clock, CountingTokens(clock), OpenDeadline(), client=client)

    with pytest.raises(error) as caught:
        queue.send("url", {"MessageBody": "b"})

    assert type(caught.value) is error
    assert client.calls == calls


def test_a_queue_within_another_deadline_shares_the_client(clock: FrozenClock) -> None:
    """One client a process: a deadline of its own costs no connection of its own."""
    client = Scripted([PASS[0]])
    queue = Queue(clock, CountingTokens(clock), OpenDeadline(), client=client)

    with pytest.raises(QueueUnavailable):
        queue.within(LambdaDeadline(lambda: 0.0)).send("url", {"MessageBody": "b"})

    assert client.calls == 1


def test_a_request_that_was_dropped_and_one_that_was_lost_look_alike(clock: FrozenClock) -> None:
    """A time-out does not say whether the request was applied: both ways it is tried again."""
    applied: list[str] = []

    class Real:
        def put_item(self, **_: Any) -> dict[str, Any]:
            applied.append("put")
            return {}

    for plan, times in ((FaultyClient.lose_response, 2), (FaultyClient.drop, 1)):
        applied.clear()
        client = FaultyClient(Real())
        planned: Callable[[FaultyClient, str], object] = plan
        planned(client, "put_item")
        dynamodb_on(client, clock).call("PutItem", REQUEST, OpenDeadline())
        assert (len(applied), len(client.calls)) == (times, 2)
