"""The parts of a soak that its verdict rests on: the journal of the proxy, and what a person takes for over."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
import urllib.parse
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kit.fault_proxy import Request
from kit.soak_log import now_ms
from kit.soak_proxy import SoakProxy, sender_name, soak_proxy, write_of
from kit.world import TABLE
from soak.chaos import Chaos
from soak.person import SURE_MS, Person

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLAIM = {
    "TableName": TABLE,
    "Item": {
        "pk": {"S": "charge#k-1"}, "claimant": {"S": "c"}, "version": {"N": "1"}, "status": {"S": "processing"},
        "lease_expires_at": {"N": "3000"}, "fencing_token": {"N": "1000"},
    },
}  # fmt: skip
COMPLETE = {
    "TableName": TABLE,
    "Key": {"pk": {"S": "charge#k-1"}},
    "UpdateExpression": "SET …",
    "ConditionExpression": "claimant = :claimant AND version = :version",
    "ExpressionAttributeValues": {
        ":claimant": {"S": "c"}, ":version": {"N": "1"}, ":new_version": {"N": "2"}, ":new_result": {"S": "7"},
        ":new_status": {"S": "completed"},
    },
}  # fmt: skip


@pytest.fixture
def upstream() -> Iterator[tuple[str, list[tuple[float, str]]]]:
    """A server that takes everything, and tells when what came."""
    came: list[tuple[float, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((time.monotonic(), body.decode()))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", came
    server.shutdown()
    server.server_close()


@contextmanager
def connected(proxy: SoakProxy) -> Iterator[http.client.HTTPConnection]:
    """Open a connection to a proxy."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(proxy.endpoint).netloc, timeout=10)
    try:
        yield connection
    finally:
        connection.close()


def post(proxy: SoakProxy, body: dict[str, Any], operation: str = "PutItem", *, sender: str = "") -> int:
    """Send a request on a connection of its own."""
    headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "User-Agent": f"Botocore/1 app/{sender}"}
    with connected(proxy) as connection:
        connection.request("POST", "/", json.dumps(body), headers)
        return connection.getresponse().status


def until(condition: Any) -> None:
    """Wait for another thread, a bounded time."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_journal_reads_each_kind_of_write_to_a_job_and_nothing_else() -> None:
    """G1, G2: claims, updates and transactions of the claims table, with what each follows and leaves."""
    claim = write_of(Request("claim", "PutItem", CLAIM), TABLE)
    complete = write_of(Request("complete", "UpdateItem", COMPLETE), TABLE)
    transaction = {"TransactItems": [{"Update": COMPLETE}, {"Put": {}}], "ClientRequestToken": "t"}
    commit = write_of(Request("commit", "TransactWriteItems", transaction), TABLE)

    assert claim is not None
    assert (claim["job"], claim["after"], claim["version"], claim["lease"], claim["fencing"]) == (
        "charge#k-1", None, 1, 3000, 1000,
    )  # fmt: skip
    assert complete is not None
    assert (complete["after"], complete["version"], complete["claimant"]) == (["c", 1], 2, "c")
    assert (complete["status"], complete["result"], complete["token"]) == ("completed", "7", None)
    assert commit == complete | {"write": "commit", "token": "t"}
    bare = {**COMPLETE, "ExpressionAttributeValues": {":new_version": {"N": "2"}}}
    unconditional = write_of(Request("complete", "UpdateItem", bare), TABLE)
    assert unconditional is not None
    assert (unconditional["after"], unconditional["version"]) == (["", 0], 2)
    lock: dict[str, Any] = {**CLAIM, "Item": {**CLAIM["Item"], "pk": {"S": "~lock#x"}}}  # type: ignore[dict-item]
    others: list[tuple[dict[str, Any], str]]
    others = [({**CLAIM, "TableName": "Mine"}, "PutItem"), (lock, "PutItem"), ({"TableName": TABLE}, "GetItem")]
    assert [write_of(Request("x", operation, body), TABLE) for body, operation in others] == [None, None, None]


def test_a_request_that_lands_late_is_reset_at_once_and_arrives_all_the_same(
    upstream: tuple[str, list[tuple[float, str]]],
) -> None:
    """G2: its writer thinks it lost and sends it again; the journal knows when it landed, and that he did not hear."""
    url, came = upstream
    proxy = SoakProxy(url, claims=TABLE, choose=lambda _, number: "lands_late" if number == 1 else None)
    proxy.late_seconds = 0.3
    with soak_proxy(proxy):
        begun = time.monotonic()
        with pytest.raises(OSError, match="reset"):
            post(proxy, CLAIM)
        assert post(proxy, CLAIM) == 200
        until(lambda: len(proxy.journal) == 2)

    assert [write["fault"] for write in proxy.journal] == [None, "lands_late"]
    assert all(write["http"] == 200 for write in proxy.journal)
    assert came[1][0] - begun >= 0.3
    assert proxy.met_faults == {"lands_late": 1}


def test_an_outage_refuses_connections_resets_those_that_are_open_and_passes(
    upstream: tuple[str, list[tuple[float, str]]],
) -> None:
    """G4: for a while nothing gets through, on the same address as before and after."""
    url, came = upstream
    proxy = SoakProxy(url, claims=TABLE)
    headers = {"X-Amz-Target": "DynamoDB_20120810.PutItem"}
    with soak_proxy(proxy) as be_down, connected(proxy) as connection:
        connection.request("POST", "/", json.dumps(CLAIM), headers)
        assert connection.getresponse().read() == b"{}"
        outage = threading.Thread(target=be_down, args=[0.5])
        outage.start()
        until(lambda: proxy.is_down)
        with pytest.raises(OSError):  # noqa: PT011 - refused or reset: the system's own words
            post(proxy, CLAIM)
        connection.request("POST", "/", json.dumps(CLAIM), headers)
        with pytest.raises(OSError):  # noqa: PT011 - as above
            connection.getresponse()
        outage.join()
        assert len(came) == 1
        assert post(proxy, CLAIM) == 200
    assert len(came) == 2


def test_a_request_whose_sender_is_killed_meanwhile_never_arrives(
    upstream: tuple[str, list[tuple[float, str]]],
) -> None:
    """G2: neither the server nor the journal gets half a request, nor the one before it a second time."""
    url, came = upstream
    proxy = SoakProxy(url, claims=TABLE)
    whole = json.dumps(CLAIM).encode()
    head = f"POST / HTTP/1.1\r\nX-Amz-Target: D.PutItem\r\nContent-Length: {len(whole)}\r\n\r\n".encode()
    with soak_proxy(proxy):
        for sent in (whole[:50], b""):
            with socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(proxy.endpoint).port or 0)) as own:
                own.sendall(head + whole)
                assert own.recv(4_096).startswith(b"HTTP/1.1 200")
                own.sendall(head + sent)
        assert post(proxy, CLAIM) == 200
        until(lambda: proxy.requests >= 4)  # an empty body is read, and goes no further
    assert len(came) == 3
    assert len(proxy.journal) == 3


class Hands:
    """Who kills and stops, and writes it down."""

    def __init__(self, came: list[tuple[float, str]]) -> None:
        """Watch what has come to the server."""
        self._came = came
        self.done: list[tuple[str, int, int]] = []

    def kill_sender(self, pid: int) -> None:
        """Write it down, with how many requests had landed."""
        self.done.append(("kill", pid, len(self._came)))

    def stop_sender(self, pid: int) -> bool:
        """Write it down; one of these processes is stopped already."""
        self.done.append(("stop", pid, len(self._came)))
        return pid != 99

    def continue_sender(self, pid: int) -> None:
        """Write it down."""
        self.done.append(("continue", pid, len(self._came)))


@pytest.mark.parametrize(
    ("fault", "done", "answered", "noted"),
    [
        ("killed_before", [("kill", 7, 0)], False, None),
        ("killed_after", [("kill", 7, 1)], False, 200),
        ("stopped_before", [("stop", 7, 0), ("continue", 7, 1)], True, 200),
        ("stopped_after", [("stop", 7, 0), ("continue", 7, 1)], True, 200),
    ],
)
def test_a_process_is_met_at_its_request(
    upstream: tuple[str, list[tuple[float, str]]],
    fault: str,
    done: list[tuple[str, int, int]],
    answered: bool,  # noqa: FBT001 - of the table
    noted: int | None,
) -> None:
    """G1, G2, G6: killed before a write or behind it; stopped, so that it lands late, or is heard of late."""
    url, came = upstream
    hands, held = Hands(came), []
    proxy = SoakProxy(url, claims=TABLE, choose=lambda *_: fault, senders=hands)
    proxy.hold_seconds = 0.2
    with soak_proxy(proxy):
        begun = time.monotonic()
        outcome: int | None = None
        with suppress(OSError):
            outcome = post(proxy, CLAIM, sender=sender_name(7))
            held.append(time.monotonic() - begun)
        until(lambda: len(proxy.journal) == 1 and not proxy.held)

    assert hands.done == done
    assert (outcome == 200) is answered
    assert all(seconds >= 0.2 for seconds in held)
    assert proxy.journal[0]["http"] == noted
    late = [at - begun for at, _ in came]
    assert [seconds >= 0.2 for seconds in late] == ([] if noted is None else [fault == "stopped_before"])


@pytest.mark.parametrize(("fault", "sender"), [("stopped_before", sender_name(99)), ("stopped_before", "a user's")])
def test_who_cannot_be_stopped_is_answered_at_once(
    upstream: tuple[str, list[tuple[float, str]]], fault: str, sender: str
) -> None:
    """G4: it is stopped already, or none of the soak's processes: nobody continues it for this."""
    url, came = upstream
    hands = Hands(came)
    proxy = SoakProxy(url, claims=TABLE, choose=lambda *_: fault, senders=hands)
    with soak_proxy(proxy):
        assert post(proxy, CLAIM, sender=sender) == 200
    assert "continue" not in {what for what, _, _ in hands.done}


def person_with(
    folder: Path, *lines: tuple[int, str, int, int], stopped: bool = False, pid: int = 11, claims: int = 1
) -> Person:
    """Return a person who sees so many claims, and a log: how long ago, what, which process, under which token."""
    log = folder / "log.jsonl"
    told = [
        {"at": now_ms() - ago, "name": name, "pid": who, "job": "book#k-1", "token": token}
        for ago, name, who, token in lines
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in told))
    processes = [SimpleNamespace(pid=pid, is_stopped=False), SimpleNamespace(pid=99, is_stopped=stopped)]
    queues = json.dumps({"default": {"url": "", "dlq_url": ""}})
    journal = [{"job": "book#k-1", "http": 200, "fencing": token} for token in range(1, claims + 1)]
    stand = SimpleNamespace(
        log=log,
        processes=processes,
        environment={"ONCEQ_QUEUES": queues},
        client=lambda _: None,
        proxy=SimpleNamespace(journal=journal),
    )
    return Person(stand, None, 1)  # type: ignore[arg-type]  # as much of both as is asked for


def test_a_person_decides_only_about_what_is_surely_over(tmp_path: Path) -> None:
    """G9: an attempt that may still call, in a process that lives or is stopped, is none to decide about."""
    long_ago, just_now = SURE_MS + 500, SURE_MS - 500
    began, ended = (long_ago, "attempt.began", 11, 1), (long_ago, "attempt.ended", 11, 1)

    assert person_with(tmp_path, began, ended)._surely_over() == {"book#k-1"}
    assert person_with(tmp_path, began, pid=12)._surely_over() == {"book#k-1"}  # its process is dead
    assert person_with(tmp_path, began)._surely_over() == set()
    assert person_with(tmp_path, began, ended, stopped=True)._surely_over() == {"book#k-1"}
    assert person_with(tmp_path, began, ended, stopped=True, claims=2)._surely_over() == set()
    assert person_with(tmp_path, began, ended, claims=2)._surely_over() == {"book#k-1"}
    assert person_with(tmp_path, began, (just_now, "attempt.ended", 11, 1))._surely_over() == set()
    continued = person_with(tmp_path, began, ended, claims=2)
    continued.last_continued = now_ms()
    assert continued._surely_over() == set()


def test_a_copy_that_comes_after_the_decision_is_redriven_all_the_same(tmp_path: Path) -> None:
    """G4, G9: the record is written before the copy is sent, so a person who is quick finds none yet."""
    person = person_with(tmp_path)
    letters: list[dict[str, Any]] = []
    moved: list[str] = []
    person._sqs = SimpleNamespace(
        receive_message=lambda **_: {"Messages": letters},
        change_message_visibility=lambda **_: None,
        send_message=lambda **sent: moved.append(sent["MessageBody"]),
        delete_message=lambda **_: letters.clear(),
    )
    journal = person.stand.proxy.journal
    journal[:] = [{"job": "book#k-1", "http": 200, "status": "failed"}]
    assert person.bring_back() == 0  # nobody decided anything

    person.retried.add("book#k-1")
    assert person.bring_back() == 0
    note = json.dumps({"job_type": "book", "key": "k-1"})
    attributes = {"onceq": {"DataType": "String", "StringValue": note}}
    letters.append({"MessageId": "m", "ReceiptHandle": "r", "Body": "the copy", "MessageAttributes": attributes})
    assert person.bring_back() == 1
    assert moved == ["the copy"]
    journal.append({"job": "book#k-1", "http": 200, "status": "completed"})
    assert person.bring_back() == 0


def test_whoever_sent_a_request_is_killed_stopped_and_continued() -> None:
    """G1, G6: one of the processes that run now, and nobody else; each is counted."""
    sent: list[tuple[int, signal.Signals]] = []
    process = SimpleNamespace(pid=7, name="worker 1", is_stopped=False)

    def send(who: int, number: signal.Signals) -> int:
        sent.append((who, number))
        process.is_stopped = number is signal.SIGSTOP
        return 7

    stand = SimpleNamespace(processes=[process], who={7: 0}.get, send=send, proxy=SimpleNamespace(senders=None))
    chaos = Chaos(stand, SimpleNamespace(last_continued=0), [])  # type: ignore[arg-type]  # as much as is asked for

    assert chaos.stop_sender(7)
    assert not chaos.stop_sender(7)  # it is stopped already
    chaos.continue_sender(7)
    chaos.kill_sender(7)
    assert not chaos.stop_sender(8)
    chaos.kill_sender(8)
    chaos.continue_sender(8)

    assert sent == [(0, signal.SIGSTOP), (0, signal.SIGCONT), (0, signal.SIGKILL)]
    assert chaos.done == {"stop": 1, "stop at a request": 1, "kill": 1, "kill at a request": 1}
    assert [zombie["to"] >= zombie["from"] > 0 for zombie in chaos.zombies] == [True]
