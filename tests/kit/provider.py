"""A provider over HTTP, in this process, that counts: it honours idempotency keys, and at ``/legacy`` knows none."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LEGACY = "/legacy"


class Provider:
    """What the provider saw and will answer.

    Attributes:
        url: Its base URL.
        calls: Raw calls by idempotency key.
        effects: What happened, by idempotency key: the first body that came with it.
        answers: Status codes for the next calls, before any effect; empty means 200.
        bookings: SOAP calls that were executed, by order: each one that arrives is.
        faults: SOAP fault codes for the next calls of ``/legacy``, before any effect; empty means none.
        hanging: Set on first calls while not ``None``: the effect is done, the answer trickles on until it is set.
    """

    def __init__(self, url: str) -> None:
        """Start with nothing seen."""
        self.url = url
        self.calls: Counter[str] = Counter()
        self.effects: dict[str, dict[str, object]] = {}
        self.answers: list[int] = []
        self.bookings: Counter[str] = Counter()
        self.faults: list[str] = []
        self.hanging: threading.Event | None = None
        self._lock = threading.Lock()

    def take(self, key: str, body: dict[str, object]) -> tuple[int, dict[str, object]]:
        """Answer one call."""
        with self._lock:
            self.calls[key] += 1
            if self.answers:
                return self.answers.pop(0), {"error": "as the test says"}
            self.effects.setdefault(key, body)
            return 200, {"id": f"effect-{list(self.effects).index(key) + 1}"}

    def book(self, text: str) -> tuple[int, str]:
        """Answer one SOAP call, in XML."""
        with self._lock:
            if self.faults:
                fault = f"<faultcode>soap:{self.faults.pop(0)}</faultcode><faultstring>as the test says</faultstring>"
                return 500, _in_an_envelope(f"<soap:Fault>{fault}</soap:Fault>")
            self.bookings[" ".join(re.findall("<OrderId>(.*?)</OrderId>", text))] += 1
            number = f"<BookingId>booking-{self.bookings.total()}</BookingId>"
            return 200, _in_an_envelope(f'<BookOrderResponse xmlns="urn:example:orders">{number}</BookOrderResponse>')


def _in_an_envelope(inner: str) -> str:
    envelope = '<soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/">'
    return f"{envelope}<soap:Body>{inner}</soap:Body></soap:Envelope>"


@contextmanager
def serving_provider() -> Iterator[Provider]:
    """Serve a provider on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == LEGACY:
                status, text = provider.book(body.decode())
            else:
                status, answer = provider.take(self.headers["Idempotency-Key"], json.loads(body))
                text = json.dumps(answer)
            self.send_response(status)
            self.send_header("Content-Type", "text/xml" if self.path == LEGACY else "application/json")
            self.end_headers()  # no length: the answer ends with the connection
            try:
                while provider.hanging and not provider.hanging.wait(0.5):
                    self.wfile.write(b" ")  # a client's time-out counts silence, and JSON may start with spaces
                self.wfile.write(text.encode())
            except OSError:
                self.close_connection = True  # the caller died

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = Provider(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
