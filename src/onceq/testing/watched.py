"""Clients of AWS whose requests are seen before they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from onceq.testing.calls import Call

if TYPE_CHECKING:
    from collections.abc import Callable


class Caller(Protocol):
    """Sends requests, as far as it is let."""

    claims_table: str

    def call(self, call: Call, forward: Callable[[], Any]) -> Any:
        """Send a request, by calling ``forward``."""


class Watched:
    """A botocore client, or a double of one, every request of which passes its process."""

    def __init__(self, client: Any, service: str, process: Caller, *, own: bool = False) -> None:
        """Stand before that client.

        Args:
            client: The client.
            service: Its service.
            process: What its requests pass.
            own: Whether it is the job's own.
        """
        self._client = client
        self._service = service
        self._process = process
        self._own = own

    def __getattr__(self, method: str) -> Any:
        """Return the client's method, watched if it is a request."""
        forward = getattr(self._client, method)
        operation = self._client.meta.method_to_api_mapping.get(method)
        if operation is None:
            return forward
        process, own = self._process, self._own
        return lambda **request: process.call(
            Call(self._service, operation, request, process.claims_table, own), lambda: forward(**request)
        )


def told_of(error: Exception) -> str:
    """Say in a word what a request came to that failed."""
    code = (getattr(error, "response", None) or {}).get("Error", {}).get("Code", "")
    if code in ("ConditionalCheckFailedException", "TransactionCanceledException"):
        return "refused"
    return str(code or type(error).__name__)
