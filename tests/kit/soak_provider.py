"""What the jobs of a soak call, as a process of its own: a provider that honours keys, and a system that knows none.

Run as ``python -m kit.soak_provider``: it prints its URL and ends with stdin.

- ``POST /effects`` with ``Idempotency-Key``: has the effect once for a key. The first call of a key may be spoiled, as
  its body says: ``fail`` answers 500 before the effect, ``lose`` closes the connection after it, and ``decline``
  answers 402 until somebody posts the job to ``/fix``.
- ``POST /legacy``: counts every call that arrives.
- ``GET /books``: everything that was seen.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import urllib.parse
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from kit.soak_log import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECONDS = 10.0


class Books:
    """What was seen."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.effects: dict[str, dict[str, Any]] = {}
        self.legacy: list[dict[str, Any]] = []
        self.fixed: set[str] = set()
        self._lock = threading.Lock()

    def take(self, key: str, body: Mapping[str, Any]) -> tuple[int | None, dict[str, Any]]:
        """Return the answer to a call; no status means that the connection is closed without one."""
        with self._lock:
            fresh = {"job": body["job"], "effect": body["effect"], "number": len(self.effects), "calls": [], "done": 0}
            entry = self.effects.setdefault(key, fresh)
            entry["calls"].append(now_ms())
            first = len(entry["calls"]) == 1
            if body.get("spoil") == "fail" and first:
                return 500, {"error": "as it was asked to"}
            if body.get("spoil") == "decline" and body["job"] not in self.fixed:
                return 402, {"error": "declined"}
            entry["done"] = entry["done"] or now_ms()
            if body.get("spoil") == "lose" and first:
                return None, {}
            return 200, {"effect": entry["number"]}

    def post(self, path: str, key: str, body: dict[str, Any]) -> tuple[int | None, dict[str, Any]]:
        """Return the answer to any call."""
        if path == "/effects":
            return self.take(key, body)
        with self._lock:
            if path == "/fix":
                self.fixed.add(body["job"])
            else:
                self.legacy.append({"at": now_ms(), **body})
            return 200, {"number": len(self.legacy)}

    def to_json(self) -> dict[str, Any]:
        """Return everything."""
        with self._lock:
            return {"effects": self.effects, "legacy": self.legacy, "fixed": sorted(self.fixed)}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    books: Books

    def do_POST(self) -> None:
        """Take a call."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = self.books.post(self.path, self.headers.get("Idempotency-Key", ""), body)
        if status is not None:
            self._answer(status, answer)

    def do_GET(self) -> None:
        """Show the books."""
        self._answer(200, self.books.to_json())

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # the caller was killed

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about callers that were killed."""


def call(url: str, path: str, body: Mapping[str, Any] | None = None, key: str = "") -> tuple[int, dict[str, Any]]:
    """Call the provider; return the status and the answer.

    Raises:
        OSError: If it did not answer.
    """
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=SECONDS)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body).encode(), {"Idempotency-Key": key})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


@contextmanager
def serving_provider(environment: Mapping[str, str]) -> Iterator[str]:
    """Run the provider in a process of its own while the block runs, and yield its URL."""
    command = [sys.executable, "-m", "kit.soak_provider"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()


def main() -> None:
    """Serve until stdin ends."""
    server = _Server(("127.0.0.1", 0), type("_Handler", (Handler,), {"books": Books()}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
