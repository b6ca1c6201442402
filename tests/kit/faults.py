"""Faults between us and AWS: a client that loses responses, drops requests, or lets a write land later.

It stands where the botocore client stands, below the retry loop, so what is tested is what runs in production.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.runtime import Runtime

ENDPOINT = "http://127.0.0.1:1"
_REFUSED = {"ConditionalCheckFailedException", "TransactionCanceledException"}
_ENDS = {"completed": "complete", "failed": "release", "rejected": "reject", "uncertain": "hold"}


@dataclass(frozen=True)
class Call:
    """One request as it reached the client.

    Args:
        name: The transition it writes (``claim``, ``take_over``, ...), or the client's method for everything else.
        method: The client's method.
        request: Its parameters.
    """

    name: str
    method: str
    request: dict[str, Any]


@dataclass
class _Fault:
    name: str
    times: int
    meet: Callable[[Call], Any]


class FaultyClient:
    """Forwards to a real client, except where a test has planned otherwise. Faults are used up in their order."""

    def __init__(self, client: Any) -> None:
        """Stand before that client."""
        self._client = client
        self._faults: list[_Fault] = []
        self.calls: list[Call] = []
        self.held_back: list[Call] = []

    def __getattr__(self, method: str) -> Any:
        """Return the client's method, with the planned faults before it."""

        def call(**request: Any) -> Any:
            made = Call(transition_of(method, request), method, request)
            self.calls.append(made)
            for fault in self._faults:
                if fault.name in (made.name, made.method) and fault.times > 0:
                    fault.times -= 1
                    return fault.meet(made)
            return self.forward(made)

        return call

    def forward(self, call: Call) -> Any:
        """Let a request through."""
        return getattr(self._client, call.method)(**call.request)

    def plan(self, name: str, meet: Callable[[Call], Any], *, times: int = 1) -> None:
        """Let ``meet`` answer the next requests of that name."""
        self._faults.append(_Fault(name, times, meet))

    def lose_response(self, name: str, *, times: int = 1) -> None:
        """Apply the request, then time out: nobody hears what became of it."""

        def meet(call: Call) -> Any:
            with suppress(ClientError):
                self.forward(call)
            raise ReadTimeoutError(endpoint_url=ENDPOINT)

        self.plan(name, meet, times=times)

    def drop(self, name: str, *, times: int = 1) -> None:
        """Never apply the request: no connection."""

        def meet(call: Call) -> Any:
            raise EndpointConnectionError(endpoint_url=ENDPOINT)

        self.plan(name, meet, times=times)

    def refuse(self, name: str, code: str, *, status: int = 400, times: int = 1) -> None:
        """Answer with an error of the service."""

        def meet(call: Call) -> Any:
            raise client_error(code, status=status, method=call.method)

        self.plan(name, meet, times=times)

    def cancel(self, name: str, *codes: str, times: int = 1) -> None:
        """Cancel a transaction for these reasons, one for each of its writes; ``None`` stands for "not this one"."""

        def meet(call: Call) -> Any:
            error = client_error("TransactionCanceledException", method=call.method)
            error.response["CancellationReasons"] = [{"Code": code, "Message": f"planned {code}"} for code in codes]
            raise error

        self.plan(name, meet, times=times)

    def hold_back(self, name: str, *, times: int = 1) -> None:
        """Time out and keep the request on its way: `land` lets it arrive."""

        def meet(call: Call) -> Any:
            self.held_back.append(call)
            raise ReadTimeoutError(endpoint_url=ENDPOINT)

        self.plan(name, meet, times=times)

    def before(self, name: str, action: Callable[[], object], *, times: int = 1) -> None:
        """Let something happen between our last look and the arrival of the request."""

        def meet(call: Call) -> Any:
            action()
            return self.forward(call)

        self.plan(name, meet, times=times)

    def land(self) -> list[bool]:
        """Let the requests that were held back arrive, oldest first; return which were applied.

        A transaction whose token is known is answered as applied too, and changes nothing.
        """
        applied = []
        for call in self.held_back:
            try:
                self.forward(call)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _REFUSED:
                    raise
                applied.append(False)
            else:
                applied.append(True)
        self.held_back.clear()
        return applied

    def names(self) -> list[str]:
        """Return the names of the requests so far."""
        return [call.name for call in self.calls]


def transition_of(method: str, request: dict[str, Any]) -> str:
    """Return the transition of `onceq.store.Store`, or the outbox's mark, that a request writes.

    Other requests keep their method's name.
    """
    if method == "put_item":
        return "claim"
    if method == "transact_write_items":
        return "commit"
    if method != "update_item":
        return method
    values = request["ExpressionAttributeValues"]
    if ":pending" in values:
        return "mark_sent" if ":new_sent_at" in values else "mark_failed"
    status = values.get(":new_status", {}).get("S")
    if ":new_fencing_token" in values:
        return "take_over"
    if ":new_claimant" in values and _is_a_persons(status, values):
        return "resolve"
    if status == "failed" and ":new_claimant" in values:
        return "mark_stale"
    if status in _ENDS:
        return _ENDS[status]
    return "step" if "#steps" in request.get("ExpressionAttributeNames", {}) else "renew"


def _is_a_persons(status: str | None, values: dict[str, Any]) -> bool:
    """Return whether a write by somebody who is no claimant is a person's decision."""
    if ":new_resolved_at" in values or status in (None, "completed"):
        return True
    # A taker that found no attempt left writes the same attributes; its words tell them apart.
    return status == "rejected" and not values[":new_error"]["S"].startswith("attempts used up:")


def client_error(code: str, *, status: int = 400, method: str = "put_item") -> ClientError:
    """Return the error that botocore raises for an error response."""
    response = {"Error": {"Code": code, "Message": "planned"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, method)


def faulty_dynamodb(runtime: Runtime) -> FaultyClient:
    """Put a faulty client under a runtime's claims table and return it."""
    seam = runtime._dynamodb
    client = FaultyClient(seam._client)
    seam._client = client
    return client


def faulty_sqs(runtime: Runtime) -> FaultyClient:
    """Put a faulty client under a runtime's queues and return it."""
    seam = runtime._queue
    client = FaultyClient(seam._client)
    seam._client = client
    return client
