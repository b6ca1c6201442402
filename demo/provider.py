"""The services that the example jobs call: a real HTTP server on 127.0.0.1, for the demo, the tests and `make dev`.

``POST /charges``, ``/mails`` and ``/webhooks`` do something once for an ``Idempotency-Key``, as Stripe does
(https://docs.stripe.com/api/idempotent_requests). ``POST /legacy`` speaks SOAP, knows no keys and executes every call.
``GET /stats`` tells what was called and what was done.

======================================  ================================================================
the first call with a key               executed; the answer is stored, a decline too
the same key and body again             the stored answer, with ``Idempotent-Replayed: true``
the same key, another body              422, nothing is done
the same key, the first still executed  409, nothing is done
no key, and every call of ``/legacy``   executed every time
======================================  ================================================================

How a call goes is chosen by its customer: ``customer_id`` of a charge or a webhook, ``CustomerId`` of a booking, the
part before the ``@`` of a mail's ``to``. What follows a ``-`` only tells customers apart, so ``cus_slow-7`` is slow.

================  ======================================================================================
``cus_flaky``     503 for the first two calls of an order, before anything is executed or stored
``cus_slow``      executed after `demo.ledger.SLOW_SECONDS`
``cus_declined``  402, nothing is charged
``cus_kill``      executed and stored; then, before the answer is sent, the process that called is killed
                  with SIGKILL, once for an order (only where the provider was told how: the demo does)
any other         executed
================  ======================================================================================

``/legacy`` says the same with SOAP's faults: ``Server`` for a 503, ``Client`` for a 402.

``python -m demo.provider --run -- COMMAND`` runs a command with the addresses in its environment (`VARIABLES`).
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
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import psutil

from demo.ledger import FIELDS, LEGACY, Answer, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import FrameType, TracebackType
    from typing import Self

# Where the example jobs look for the addresses of what they call; here it is one.
VARIABLES = ("PAYMENTS_URL", "MAIL_URL", "WEBHOOK_URL", "LEGACY_URL")
LARGEST_BODY = 65_536
SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
NOWHERE = Answer(404, {"error": "not_found", "message": f"there are /stats, {', '.join(FIELDS)}"})


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
        self._send_json(Answer(200, self.server.ledger.stats()) if self.path == "/stats" else NOWHERE)

    def do_POST(self) -> None:
        data, ledger = self._data(), self.server.ledger
        if self.path not in FIELDS:
            self._send_json(NOWHERE)
        elif self.path == LEGACY:
            fields = None if data is None else _soap_fields(data)
            wrong = Answer(400, {"error": "bad_request", "message": "send a SOAP envelope"})
            answer = wrong if fields is None else ledger.call(LEGACY, "", fields, port=self.client_address[1])
            if answer is not None:
                self._send(*_soap(answer), content_type="text/xml; charset=utf-8")
        else:
            body = None if data is None else _json_object(data)
            wrong = Answer(400, {"error": "bad_request", "message": "send a JSON object"})
            key = self.headers.get("Idempotency-Key", "").strip()
            answer = wrong if body is None else ledger.call(self.path, key, body, port=self.client_address[1])
            if answer is not None:
                self._send_json(answer)

    def _data(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        return self.rfile.read(int(length)) if length.isdigit() and int(length) <= LARGEST_BODY else None

    def _send_json(self, answer: Answer) -> None:
        replayed = {"Idempotent-Replayed": "true"} if answer.replayed else {}
        self._send(answer.status, json.dumps(answer.body), content_type="application/json", **replayed)

    def _send(self, status: int, text: str, *, content_type: str, **headers: str) -> None:
        data = text.encode()
        try:
            self.send_response(status)
            for name, value in {"Content-Type": content_type, "Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True  # the caller died meanwhile; what was done stays done

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: `/stats` tells what happened."""


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _soap_fields(data: bytes) -> dict[str, Any] | None:
    """Return the fields of the operation in a SOAP envelope."""
    try:
        operation = ET.fromstring(data).find(f"{{{SOAP}}}Body/*")  # noqa: S314 - from our own workers
    except ET.ParseError:
        return None
    if operation is None:
        return None
    return {field.tag.rpartition("}")[2]: field.text or "" for field in operation}


def _soap(answer: Answer) -> tuple[int, str]:
    """Return status and text of an answer in SOAP 1.1, whose faults all come with 500."""
    if answer.status == HTTPStatus.CREATED:
        status, booking = HTTPStatus.OK, f"<BookingId>{answer.body['id']}</BookingId>"
        inner = f'<BookOrderResponse xmlns="urn:example:orders">{booking}</BookOrderResponse>'
    else:
        status, code = HTTPStatus.INTERNAL_SERVER_ERROR, "Client"
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            code = "Server"
        fault = f"<faultcode>soap:{code}</faultcode><faultstring>{answer.body['message']}</faultstring>"
        inner = f"<soap:Fault>{fault}</soap:Fault>"
    return status, f'<soap:Envelope xmlns:soap="{SOAP}"><soap:Body>{inner}</soap:Body></soap:Envelope>'


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
        environment = os.environ | dict.fromkeys(VARIABLES, provider.url)
        # A group of its own: a terminal sends Ctrl-C to the whole group, and the command would get it twice.
        child = subprocess.Popen(command, env=environment, process_group=0)
        code = child.wait()
    return code if code >= 0 else 128 - code


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted, or run a command beside the provider."""
    parser = argparse.ArgumentParser(
        prog="python -m demo.provider", description="The services that the example jobs call."
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--run", action="store_true", help="run COMMAND with the addresses in its environment")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if bool(command) != options.run:
        parser.error("give --run and, after --, a command; or neither")
    if options.run:
        return run(command, port=options.port)
    with Provider(port=options.port) as provider:
        print("\n".join(f"{variable}={provider.url}" for variable in VARIABLES), flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
    return 130


if __name__ == "__main__":
    sys.exit(main())
