"""A small payment and mail provider: a real HTTP server on 127.0.0.1, for the demo, the tests and `make dev`.

``POST /charges`` and ``POST /mails`` do something once for an ``Idempotency-Key``, as Stripe does
(https://docs.stripe.com/api/idempotent_requests). ``GET /stats`` tells what was called and what was done.

======================================  ================================================================
the first call with a key               executed; the answer is stored, a decline too
the same key and body again             the stored answer, with ``Idempotent-Replayed: true``
the same key, another body              422, nothing is done
the same key, the first still executed  409, nothing is done
no key                                  executed every time
======================================  ================================================================

How a call goes is chosen by its customer: ``customer_id`` of a charge, the part before the ``@`` of a mail's ``to``.
What follows a ``-`` only tells customers apart, so ``cus_slow-7`` is slow.

================  ======================================================================================
``cus_flaky``     503 for the first two calls of an order, before anything is executed or stored
``cus_slow``      executed after `SLOW_SECONDS`
``cus_declined``  402, nothing is charged
``cus_kill``      executed and stored; then, before the answer is sent, the process that called is killed
                  with SIGKILL, once for an order (only where the provider was told how: the demo does)
any other         executed
================  ======================================================================================

``python -m demo.provider --run -- COMMAND`` runs a command with PAYMENTS_URL and MAIL_URL set.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import FrameType, TracebackType
    from typing import Self

SLOW_SECONDS = 0.6
FAILURES = 2
LARGEST_BODY = 65_536
# What names the order in a body, and what is done, by path.
KINDS = {"/charges": ("order_id", "customer_id"), "/mails": ("subject", "to")}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call is answered with."""

    status: int
    body: dict[str, Any]
    replayed: bool = False


@dataclass(slots=True)
class _Call:
    """The first call with a key; ``answer`` is ``None`` while it is executed."""

    body: dict[str, Any]
    answer: Answer | None = None


@dataclass(slots=True)
class _Order:
    """What happened for one order; ``calls`` and ``done`` are counted by key."""

    calls: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    killed: bool = False

    def summary(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        by_key = {key: {"calls": calls, "done": self.done[key]} for key, calls in self.calls.items()}
        return {"calls": self.calls.total(), "done": self.done.total(), "by_key": by_key}


class Ledger:
    """What was called and what was done. It knows no HTTP; its methods may be called by several threads at once."""

    def __init__(
        self, *, kill: Callable[[int], int | None] = lambda _port: None, pause: Callable[[float], object]
    ) -> None:
        """Start empty.

        Args:
            kill: Kills the process that calls from that TCP port and returns its id, or ``None`` if it found none.
            pause: Waits that many seconds.
        """
        self._kill = kill
        self._pause = pause
        self._lock = threading.Lock()
        self._calls: dict[tuple[str, str], _Call] = {}
        self._orders: dict[str, dict[str, _Order]] = {path: {} for path in KINDS}
        self._kills: list[dict[str, Any]] = []

    def call(self, path: str, key: str, body: dict[str, Any], *, port: int = 0) -> Answer | None:
        """Answer a call.

        Args:
            path: ``/charges`` or ``/mails``.
            key: The idempotency key, or ``""``.
            body: The body.
            port: The caller's TCP port.

        Returns:
            The answer, or ``None`` where the caller was killed and nobody waits for one.
        """
        order_field, customer_field = KINDS[path]
        order_id, customer = str(body.get(order_field, "")), str(body.get(customer_field, ""))
        behaviour = customer.partition("@")[0].partition("-")[0]
        with self._lock:
            order = self._orders[path].setdefault(order_id, _Order())
            order.calls[key] += 1
            if behaviour == "cus_flaky" and order.refused < FAILURES:
                order.refused += 1
                return Answer(503, {"error": "unavailable", "message": "try again"})
            first = self._calls.get((path, key)) if key else None
            if first is not None:
                return _again(first, body)
            call = _Call(body)
            if key:
                self._calls[path, key] = call
        if behaviour == "cus_slow":
            self._pause(SLOW_SECONDS)
        with self._lock:
            call.answer = self._execute(path, key, order, behaviour)
            must_kill = behaviour == "cus_kill" and not order.killed
            order.killed = order.killed or must_kill
        pid = self._kill(port) if must_kill else None
        if pid is None:
            return call.answer
        with self._lock:
            self._kills.append({"order_id": order_id, "pid": pid})
        return None

    def stats(self) -> dict[str, Any]:
        """Return what happened, as JSON values."""
        with self._lock:
            summary: dict[str, Any] = {"kills": [dict(kill) for kill in self._kills]}
            for path, orders in self._orders.items():
                summary[path.strip("/")] = {
                    "calls": sum(order.calls.total() for order in orders.values()),
                    "done": sum(order.done.total() for order in orders.values()),
                    "orders": {order_id: order.summary() for order_id, order in orders.items()},
                }
            return summary

    def _execute(self, path: str, key: str, order: _Order, behaviour: str) -> Answer:
        if behaviour == "cus_declined":
            return Answer(402, {"error": "card_declined", "message": "the card was declined"})
        order.done[key] += 1
        number = sum(each.done.total() for each in self._orders[path].values())
        return Answer(201, {"id": f"{'ch' if path == '/charges' else 'mail'}_{number}"})


def _again(first: _Call, body: dict[str, Any]) -> Answer:
    if first.body != body:
        return Answer(422, {"error": "idempotency_error", "message": "the key was used with another body"})
    if first.answer is None:
        return Answer(409, {"error": "idempotency_key_in_use", "message": "the first call is still executed"})
    return Answer(first.answer.status, first.answer.body, replayed=True)


class Provider:
    """The provider as a server in threads of this process, on a free port of 127.0.0.1.

    Example:
        >>> with Provider() as provider:
        ...     provider.url.startswith("http://127.0.0.1:"), provider.stats()["charges"]["calls"]
        (True, 0)
    """

    def __init__(self, *, workers: Callable[[], Iterable[int]] = tuple, port: int = 0) -> None:
        """Listen, and serve from `__enter__` on.

        Args:
            workers: Ids of the processes that ``cus_kill`` may kill; without them nothing is ever killed.
            port: The port; 0 is a free one.
        """
        self._server = _Server(("127.0.0.1", port), _Handler)
        server_port = self._server.server_port
        self.ledger = Ledger(kill=lambda port: kill_caller(port, server_port, workers()), pause=time.sleep)
        self._server.ledger = self.ledger
        self.url = f"http://127.0.0.1:{server_port}"

    def stats(self) -> dict[str, Any]:
        """Return what ``GET /stats`` answers."""
        return self.ledger.stats()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="provider", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def kill_caller(port: int, server_port: int, pids: Iterable[int]) -> int | None:
    """Kill the process that holds the caller's end of a connection to us.

    Args:
        port: The caller's TCP port.
        server_port: Ours.
        pids: The processes that may be killed; no other one is looked at.

    Returns:
        Its id, or ``None`` if none of them holds it, because it has died already.
    """
    for pid in pids:
        try:
            connections = psutil.Process(pid).net_connections(kind="tcp")
        except psutil.Error:
            continue
        if any(
            connection.laddr
            and connection.laddr.port == port
            and connection.raddr
            and connection.raddr.port == server_port
            for connection in connections
        ):
            os.kill(pid, signal.SIGKILL)
            return pid
    return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The default of 5 makes a burst of workers wait a second for TCP to try again.
    request_queue_size = 128
    ledger: Ledger


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.path == "/stats":
            self._send(Answer(200, self.server.ledger.stats()))
        else:
            self._send(Answer(404, {"error": "not_found", "message": "there are /stats, /charges and /mails"}))

    def do_POST(self) -> None:
        body = self._body()
        if self.path not in KINDS:
            self._send(Answer(404, {"error": "not_found", "message": "there are /stats, /charges and /mails"}))
        elif body is None:
            self._send(Answer(400, {"error": "bad_request", "message": "send a JSON object"}))
        else:
            key = self.headers.get("Idempotency-Key", "").strip()
            answer = self.server.ledger.call(self.path, key, body, port=self.client_address[1])
            if answer is not None:
                self._send(answer)

    def _body(self) -> dict[str, Any] | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            return None
        try:
            value = json.loads(self.rfile.read(int(length)))
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def _send(self, answer: Answer) -> None:
        data = json.dumps(answer.body).encode()
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if answer.replayed:
                self.send_header("Idempotent-Replayed", "true")
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True  # the caller died meanwhile; what was done stays done

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: `/stats` tells what happened."""


def run(command: Sequence[str], *, port: int = 0) -> int:
    """Run a command with a provider beside it; return its exit code, 128 + n where signal n ended it."""
    child: subprocess.Popen[bytes] | None = None

    def forward(number: int, _frame: FrameType | None) -> None:
        if child is None:
            raise SystemExit(128 + number)
        child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    with Provider(port=port) as provider:
        environment = os.environ | {"PAYMENTS_URL": provider.url, "MAIL_URL": provider.url}
        # A group of its own: a terminal sends Ctrl-C to the whole group, and the command would get it twice.
        child = subprocess.Popen(command, env=environment, process_group=0)
        code = child.wait()
    return code if code >= 0 else 128 - code


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted, or run a command beside the provider."""
    parser = argparse.ArgumentParser(prog="python -m demo.provider", description="A small payment and mail provider.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--run", action="store_true", help="run COMMAND with PAYMENTS_URL and MAIL_URL set")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if bool(command) != options.run:
        parser.error("give --run and, after --, a command; or neither")
    if options.run:
        return run(command, port=options.port)
    with Provider(port=options.port) as provider:
        print(f"PAYMENTS_URL={provider.url}\nMAIL_URL={provider.url}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
    return 130


if __name__ == "__main__":
    sys.exit(main())
