"""The provider of the demo and of `make dev`: what its callers can rely on."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from onceq import Context

pytest.importorskip("demo", reason="the demo is gone")

from demo.ledger import LEGACY, SLOW_SECONDS, Ledger
from demo.provider import VARIABLES, Provider, main

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY = {"customer_id": "cus_plain", "amount_cents": 500, "order_id": "o-1"}


def ledger(**options: Any) -> Ledger:
    """Return a ledger that never waits."""
    options.setdefault("pause", lambda _seconds: None)
    return Ledger(**options)


def charge(book: Ledger, key: str = "k-1", port: int = 0, **changes: Any) -> tuple[int, bool]:
    """Call for a charge; return the status, and whether the answer was a stored one."""
    answer = book.call("/charges", key, BODY | changes, port=port)
    assert answer is not None
    return answer.status, answer.replayed


def order(book: Ledger, order_id: str = "o-1", *, what: str = "charges") -> dict[str, Any]:
    """Return what was counted for an order."""
    found: dict[str, Any] = book.stats()[what]["orders"][order_id]
    return found


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that runs."""
    with Provider() as running:
        yield running


def post(
    provider: Provider, path: str, data: bytes, *, key: str | None = None, method: str = "POST"
) -> tuple[int, dict[str, Any], bool]:
    """Send a request; return the status, the body, and whether it says that it was stored."""
    connection = http.client.HTTPConnection(urlsplit(provider.url).netloc, timeout=10)
    try:
        connection.request(method, path, data, {} if key is None else {"Idempotency-Key": key})
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers.get("Idempotent-Replayed") == "true"
    finally:
        connection.close()


def test_the_same_key_and_body_is_charged_once_and_answered_again() -> None:
    """A repeated call with its key gets the stored answer, and is counted as a call."""
    book = ledger()
    assert [charge(book), charge(book)] == [(201, False), (201, True)]
    assert order(book) == {"calls": 2, "done": 1, "by_key": {"k-1": {"calls": 2, "done": 1}}}


def test_the_same_key_with_another_body_is_refused() -> None:
    """A key belongs to one body: another one is not charged."""
    book = ledger()
    assert [charge(book), charge(book, amount_cents=501)] == [(201, False), (422, False)]
    assert order(book)["done"] == 1


def test_a_call_that_comes_while_the_first_is_executed_is_refused() -> None:
    """Two calls at once with one key never charge twice: the second is told to wait."""
    during: list[tuple[int, bool]] = []

    def pause(_seconds: float) -> None:
        during.append(charge(book, customer_id="cus_slow"))

    book = ledger(pause=pause)
    assert charge(book, customer_id="cus_slow") == (201, False)
    assert during == [(409, False)]
    assert order(book)["done"] == 1


def test_a_call_without_a_key_is_charged_every_time() -> None:
    """Without a key the provider cannot know that it was asked before."""
    book = ledger()
    assert [charge(book, key=""), charge(book, key="")] == [(201, False), (201, False)]
    assert order(book)["done"] == 2


def test_two_keys_for_one_order_are_two_charges_and_show_as_such() -> None:
    """Charges are counted by order too, so a job that makes up a new key for each attempt is found out."""
    book = ledger()
    charge(book, key="k-1")
    charge(book, key="k-2")
    assert order(book)["done"] == 2
    assert set(order(book)["by_key"]) == {"k-1", "k-2"}


def test_a_declined_card_is_never_charged_and_the_answer_is_stored() -> None:
    """A decline is an answer like any other: it is given again."""
    book = ledger()
    answers = [charge(book, customer_id="cus_declined-1"), charge(book, customer_id="cus_declined-1")]
    assert answers == [(402, False), (402, True)]
    assert order(book)["done"] == 0


def test_a_flaky_order_fails_twice_and_then_works() -> None:
    """What was refused before it was executed is not stored, so the same key works later."""
    book = ledger()
    assert [charge(book, customer_id="cus_flaky")[0] for _ in range(4)] == [503, 503, 201, 201]
    assert order(book) == {"calls": 4, "done": 1, "by_key": {"k-1": {"calls": 4, "done": 1}}}


def test_a_slow_order_waits_before_it_is_charged() -> None:
    """A slow call takes its time once; its stored answer comes at once."""
    waited: list[float] = []
    book = ledger(pause=waited.append)
    charge(book, customer_id="cus_slow")
    charge(book, customer_id="cus_slow")
    assert waited == [SLOW_SECONDS]


def test_the_caller_is_killed_after_the_charge_and_once_for_an_order() -> None:
    """The charge is recorded, nobody is answered, and the next call with the key gets the stored answer."""
    killed: list[int] = []

    def kill(port: int) -> int:
        assert order(book)["done"] == 1
        killed.append(port)
        return 4711

    book = ledger(kill=kill)
    assert book.call("/charges", "k-1", BODY | {"customer_id": "cus_kill-1"}, port=555) is None
    assert charge(book, customer_id="cus_kill-1", port=556) == (201, True)
    assert charge(book, key="", customer_id="cus_kill-1", port=557) == (201, False)
    assert killed == [555]
    assert book.stats()["kills"] == [{"path": "/charges", "order_id": "o-1", "pid": 4711}]


def test_a_caller_that_is_not_found_is_answered() -> None:
    """A process that died already, or that is none of the workers, is not counted as killed."""
    book = ledger(kill=lambda _port: None)
    assert charge(book, customer_id="cus_kill") == (201, False)
    assert book.stats()["kills"] == []


def test_a_webhook_is_taken_once_for_its_key() -> None:
    """The receiver of webhooks knows keys, too; an event is counted by its own id."""
    book, event = ledger(), {"event_id": "e-1", "customer_id": "cus_plain"}
    answers = [book.call("/webhooks", key, event) for key in ("k-1", "k-1", "k-2")]
    assert [(answer.status, answer.replayed) for answer in answers if answer] == [
        (201, False),
        (201, True),
        (201, False),
    ]
    assert order(book, "e-1", what="webhooks")["done"] == 2


def test_the_legacy_endpoint_executes_every_call_whatever_key_it_carries() -> None:
    """It knows no keys: who calls it twice has booked twice."""
    book, booking = ledger(), {"OrderId": "o-1", "CustomerId": "cus_plain"}
    assert [answer.status for answer in (book.call(LEGACY, "k-1", booking) for _ in range(2)) if answer] == [201, 201]
    assert order(book, what="legacy") == {"calls": 2, "done": 2, "by_key": {"": {"calls": 2, "done": 2}}}


def test_the_caller_of_the_legacy_endpoint_is_killed_after_the_booking() -> None:
    """The booking is done and nobody is told; the next caller books again, and is not killed."""
    killed: list[int] = []

    def kill(port: int) -> int:
        killed.append(port)
        return 4711

    book = ledger(kill=kill)
    booking = {"OrderId": "o-1", "CustomerId": "cus_kill-o-1"}
    assert book.call(LEGACY, "", booking, port=555) is None
    assert book.call(LEGACY, "", booking, port=556) is not None
    assert (killed, order(book, what="legacy")["done"]) == ([555], 2)
    assert book.stats()["kills"] == [{"path": LEGACY, "order_id": "o-1", "pid": 4711}]


def test_the_example_jobs_gateway_speaks_to_it(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charges, mails and declines arrive through the gateway of the example jobs, over HTTP."""
    gateway = pytest.importorskip("jobs.gateway", reason="the example job is gone")
    for variable in VARIABLES:
        monkeypatch.setenv(variable, provider.url + "/")
    first = gateway.charge("cus_plain", 500, order_id="o-1", idempotency_key="k-1")
    assert gateway.charge("cus_plain", 500, order_id="o-1", idempotency_key="k-1") == first
    with pytest.raises(gateway.CardDeclined):
        gateway.charge("cus_declined", 500, order_id="o-2", idempotency_key="k-2")
    with pytest.raises(gateway.ProviderError, match="503"):
        gateway.charge("cus_flaky", 500, order_id="o-3", idempotency_key="k-3")
    gateway.send_mail("cus_plain@example.com", "Hello", "Thank you.", idempotency_key="k-1")
    gateway.call_webhook({"event_id": "e-1", "customer_id": "cus_plain"}, idempotency_key="k-1")
    status, stats, _ = post(provider, "/stats", b"", method="GET")
    assert status == 200
    assert (stats["charges"]["calls"], stats["charges"]["done"], stats["mails"]["done"]) == (4, 1, 1)
    assert stats["webhooks"]["done"] == 1


def test_the_example_jobs_soap_client_speaks_to_it(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bookings and both kinds of fault arrive through the legacy job, over SOAP."""
    legacy = pytest.importorskip("jobs.legacy", reason="the example job is gone")
    monkeypatch.setenv("LEGACY_URL", provider.url)

    def book(order_id: str, customer: str) -> Any:
        return legacy.book_order(legacy.Booking(order_id, customer, "b&w", 1), Context())

    assert book("o-1", "cus_plain") == {"booking_id": "booking_1"}
    with pytest.raises(legacy.Refused, match="declined"):
        book("o-2", "cus_declined")
    with pytest.raises(HTTPError, match="500"):
        book("o-3", "cus_flaky")
    stats = provider.stats()["legacy"]
    assert {order_id: one["done"] for order_id, one in stats["orders"].items()} == {"o-1": 1, "o-2": 0, "o-3": 0}


def test_a_stored_answer_says_so(provider: Provider) -> None:
    """A replayed answer carries Stripe's header."""
    data = json.dumps(BODY).encode()
    assert [post(provider, "/charges", data, key="k-1")[2] for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("path", "data", "status"),
    [("/charges", b"{", 400), ("/charges", b"[]", 400), ("/charges", b"x" * 70_000, 400), ("/refunds", b"{}", 404)],
)
def test_a_call_that_makes_no_sense_is_refused(provider: Provider, path: str, data: bytes, status: int) -> None:
    """A body that is no JSON object or too large, and an unknown path, are answered and charge nothing."""
    assert post(provider, path, data)[0] == status
    assert provider.stats()["charges"]["calls"] == 0


@pytest.mark.parametrize("data", [b"<open>", b"<a/>", b"{}"])
def test_a_booking_that_is_no_soap_is_refused(provider: Provider, data: bytes) -> None:
    """It books nothing, and says so as SOAP does: a fault of the client's."""
    connection = http.client.HTTPConnection(urlsplit(provider.url).netloc, timeout=10)
    connection.request("POST", LEGACY, data)
    response = connection.getresponse()
    assert (response.status, b"soap:Client" in response.read()) == (500, True)
    connection.close()
    assert provider.stats()["legacy"]["calls"] == 0


CALLER = """
import http.client, json, sys
connection = http.client.HTTPConnection(sys.argv[1], timeout=10)
connection.connect()
print("connected", flush=True)
sys.stdin.readline()
body = json.dumps({"customer_id": "cus_kill", "amount_cents": 500, "order_id": "o-1"})
connection.request("POST", "/charges", body, {"Idempotency-Key": "k-1"})
connection.getresponse().read()
"""


@pytest.mark.parametrize("is_worker", [True, False])
def test_only_a_worker_is_killed_and_it_is_the_one_that_called(*, is_worker: bool) -> None:
    """The process is found by the TCP port of its connection, and only among the workers."""
    pids: list[int] = []
    with Provider(workers=lambda: pids) as provider:
        command = [sys.executable, "-c", CALLER, urlsplit(provider.url).netloc]
        callers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
        for caller in callers:
            assert caller.stdout is not None
            assert caller.stdout.readline() == b"connected\n"
        first, second = callers
        if is_worker:
            pids += [second.pid, first.pid]
        first.communicate(b"\n", timeout=30)
        second.communicate(b"\n", timeout=30)
        assert [first.returncode, second.returncode] == [-signal.SIGKILL if is_worker else 0, 0]
        assert provider.stats()["charges"]["orders"]["o-1"]["done"] == 1


def test_a_command_runs_beside_the_provider_and_its_exit_code_is_ours() -> None:
    """`--run` sets every address and ends as the command does."""
    script = f"import os, sys; sys.exit(7 if len({{os.environ[name] for name in {VARIABLES}}}) == 1 else 1)"
    command = [sys.executable, "-m", "demo.provider", "--run", "--", sys.executable, "-c", script]
    assert subprocess.run(command, timeout=60, check=False).returncode == 7


@pytest.mark.parametrize(("ends", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_a_signal_is_passed_on_to_the_command(ends: str, code: int) -> None:
    """The command gets the signal once and ends in its own way; killed by signal n it is 128 + n."""
    script = (
        "import os, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: {ends})\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "demo.provider", "--run", "--", sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == code


def test_a_command_without_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A forgotten `--run` is said, and nothing is served."""
    with pytest.raises(SystemExit, match="2"):
        main(["--", "true"])
    assert "--run" in capsys.readouterr().err
