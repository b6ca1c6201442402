"""Faults on the wire: an HTTP proxy before a real server, which spoils the requests that a test has planned.

It stands on 127.0.0.1 between botocore and the server, so botocore's own reading of a broken answer is part of what is
tested. `kit.faults` stands above botocore and knows nothing of that.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import struct
import threading
import urllib.parse
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from botocore import xform_name

from kit.faults import transition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOLD_SECONDS = 30.0
# A plan of this name is for every request.
EVERYTHING = "*"
# What belongs to one connection and is not passed on.
_OWN = {"connection", "content-length", "transfer-encoding", "date", "server", "keep-alive"}
_LOCK = "~lock#"


@dataclass(frozen=True)
class Request:
    """A request as it came in.

    Args:
        name: What it does, as `name_of` says.
        operation: The API's name of it.
        body: Its parameters.
    """

    name: str
    operation: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Response:
    """The server's answer."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Fault:
    """A fault: what the client sees of it.

    Args:
        name: Its name, for a test's id.
        meet: Answers the request, or does not.
    """

    name: str
    meet: Callable[[Exchange], object]

    def __str__(self) -> str:
        """Name it."""
        return self.name


@dataclass
class Seen:
    """One request in the proxy's book: what it was, what spoiled it, and the server's status if the server got it."""

    request: Request
    fault: str | None = None
    status: int | None = None


@dataclass
class _Plan:
    name: str
    fault: Fault
    first: int
    last: float
    count: int = 0


@dataclass
class FaultProxy:
    """Forwards to a server, except where a test has planned otherwise.

    Args:
        server: The server's endpoint.
        endpoint: Its own.
        silence: Told that a client is made to wait until it gives up.
        answered: Told of every request that was answered without a fault.
    """

    server: str
    endpoint: str = ""
    silence: Callable[[], object] = lambda: None
    answered: Callable[[Request], object] = lambda _request: None
    seen: list[Seen] = field(default_factory=list)
    _plans: list[_Plan] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def plan(self, name: str, fault: Fault, *, first: int = 1, times: float = 1) -> None:
        """Spoil the requests of that name, of that API operation, or `EVERYTHING`, from the ``first`` one on."""
        self._plans.append(_Plan(name, fault, first, first + times - 1))

    def reset(self) -> None:
        """Forget plans, book and hooks."""
        with self._lock:
            self._plans.clear()
            self.seen.clear()
            self.silence, self.answered = (lambda: None), (lambda _request: None)

    def heal(self) -> None:
        """Forget the plans: from here on every request is answered."""
        with self._lock:
            self._plans.clear()

    def met(self) -> int:
        """Return how many requests were spoiled."""
        return sum(one.fault is not None for one in self.seen)

    def names(self) -> list[str]:
        """Return the names of the requests so far."""
        return [one.request.name for one in self.seen]

    def applied(self, *names: str) -> list[Request]:
        """Return the requests of these names that the server carried out, a transaction once for its token."""
        done = [one.request for one in self.seen if one.request.name in names and one.status == http.HTTPStatus.OK]
        return list(
            {request.body.get("ClientRequestToken", number): request for number, request in enumerate(done)}.values()
        )

    def enter(self, request: Request) -> tuple[Seen, Fault | None]:
        """Write a request down and return what is planned for it."""
        with self._lock:
            found = None
            for plan in self._plans:
                if plan.name in (request.name, request.operation, EVERYTHING):
                    plan.count += 1
                    if plan.first <= plan.count <= plan.last and found is None:
                        found = plan.fault
            entry = Seen(request, found.name if found is not None else None)
            self.seen.append(entry)
            return entry, found


class Exchange(BaseHTTPRequestHandler):
    """One client connection, and what a fault may do to it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: FaultProxy
    request_in: Request
    _seen: Seen
    _raw: bytes
    _server: http.client.HTTPConnection | None = None

    def do_POST(self) -> None:
        """Forward a request, or spoil it."""
        self._raw = self.rfile.read(int(self.headers["Content-Length"]))
        self.request_in = request_of(self.headers["X-Amz-Target"] or "", self._raw)
        self._seen, fault = self.proxy.enter(self.request_in)
        with suppress(ConnectionError):  # the client has given up
            if fault is not None:
                fault.meet(self)
                return
            self.reply(self.forward())
            self.proxy.answered(self.request_in)

    def forward(self, body: dict[str, Any] | None = None) -> Response:
        """Let the server carry the request out, or another one instead, and return its answer."""
        if self._server is None:
            self._server = http.client.HTTPConnection(urllib.parse.urlsplit(self.proxy.server).netloc, timeout=60)
        raw = self._raw if body is None else json.dumps(body).encode()
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
        self._server.request("POST", self.path, raw, headers)
        answer = self._server.getresponse()
        self._seen.status = answer.status
        return Response(answer.status, dict(answer.getheaders()), answer.read())

    def finish(self) -> None:
        """End both connections."""
        super().finish()
        if self._server is not None:
            self._server.close()

    def head(self, response: Response) -> None:
        """Send status and headers, which promise the whole body."""
        self.send_response(response.status)
        for name, value in response.headers.items():
            if name.lower() not in _OWN:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()

    def reply(self, response: Response) -> None:
        """Send a whole response."""
        self.head(response)
        self.wfile.write(response.body)

    def refuse(self, code: str, status: int, **more: Any) -> None:
        """Answer with an error of the service, as that service writes it."""
        sqs = (self.headers["X-Amz-Target"] or "").startswith("AmazonSQS")
        kind = f"com.amazonaws.{'sqs' if sqs else 'dynamodb.v20120810'}#{code}"
        body = json.dumps({"__type": kind, "message": "planned", **more}).encode()
        headers = {"Content-Type": "application/x-amz-json-1.0"}
        # SQS names its errors as its older protocol did, too.
        headers |= {"x-amzn-query-error": f"{code};Sender"} if sqs else {"x-amz-crc32": str(zlib.crc32(body))}
        self.reply(Response(status, headers, body))

    def hang(self) -> None:
        """Say nothing more until the client gives up."""
        self.proxy.silence()
        self._gone(HOLD_SECONDS)
        self.close_connection = True

    def trickle(self, body: bytes, pause: float) -> None:
        """Send a body one byte at a time."""
        for position in range(len(body)):
            if self._gone(pause):
                break
            self.wfile.write(body[position : position + 1])
        self.close_connection = True

    def cut(self) -> None:
        """End the connection in an orderly way."""
        self.close_connection = True

    def abort(self) -> None:
        """Reset the connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())
        self.close_connection = True

    def _gone(self, seconds: float) -> bool:
        return bool(select.select([self.connection], [], [], seconds)[0])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


@contextmanager
def fault_proxy(server: str) -> Iterator[FaultProxy]:
    """Serve a proxy on 127.0.0.1 and a free port while the block runs."""
    proxy = FaultProxy(server)
    listener = _Server(("127.0.0.1", 0), type("Exchange", (Exchange,), {"proxy": proxy}))
    proxy.endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def request_of(target: str, raw: bytes) -> Request:
    """Return a request, recognised by its ``X-Amz-Target``."""
    operation = target.rpartition(".")[2]
    body = json.loads(raw or b"{}")
    return Request(name_of(operation, body), operation, body)


def name_of(operation: str, body: dict[str, Any]) -> str:
    """Return what a request does: a transition of the claim, of a lock or of the outbox, or a call of one queue.

    A request to a queue is named with the queue: ``SendMessageBatch JobsQueue``. What is none of these keeps the API's
    name.
    """
    if "QueueUrl" in body:
        return f"{operation} {body['QueueUrl'].rpartition('/')[2]}"
    key = body.get("Key", body.get("Item", {})).get("pk", {}).get("S", "")
    if key.startswith(_LOCK):
        if operation == "PutItem":
            return "acquire"
        released = body["ExpressionAttributeValues"].get(":new_lease_expires_at", {}).get("N") == "0"
        return "unlock" if released else "extend"
    if operation == "TransactWriteItems":
        # A job's own begins with its claim; a caller's ends with what it stages.
        return (
            "commit"
            if "UpdateExpression" in body["TransactItems"][0].get("Update", {}) and _is_claims(body)
            else "stage"
        )
    named = transition_of(xform_name(operation), body)
    return operation if named == xform_name(operation) else named


def _is_claims(body: dict[str, Any]) -> bool:
    return "claimant" in body["TransactItems"][0]["Update"].get("ConditionExpression", "")
