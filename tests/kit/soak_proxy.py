"""The proxy of a soak: spoils requests as a plan says, and keeps a journal of every write to the claims table.

All processes of a soak reach the server through it, so the journal is the history of every record as an outsider saw
it: what landed, what was refused, when it arrived, and whether its writer heard of it. It knows which process sent a
request, so it can kill or stop one at this very request: between two writes lie milliseconds, and a signal that comes
at some time or other hardly ever meets them.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kit import wire_faults
from kit.fault_proxy import Exchange, Fault, FaultProxy, Request, Seen, _Server
from kit.soak_log import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LATENCY_SECONDS = 0.4
# A process of a soak gives its id as the name of the application, which botocore puts into the User-Agent.
SENDER_VARIABLE = "AWS_SDK_UA_APP_ID"
_SENDER = re.compile(r"app/pid-(\d+)")


class Senders(Protocol):
    """Who can be met at a request."""

    def kill_sender(self, pid: int) -> None:
        """Kill a process."""

    def stop_sender(self, pid: int) -> bool:
        """Stop a process; return whether it is stopped by this."""

    def continue_sender(self, pid: int) -> None:
        """Continue a process."""


def sender_name(pid: int) -> str:
    """Return how a process names itself in its requests."""
    return f"pid-{pid}"


def _with_latency(exchange: Exchange) -> None:
    response = exchange.forward()
    time.sleep(LATENCY_SECONDS)
    exchange.reply(response)


def landing_late(seconds: float) -> Fault:
    """Return a connection that is reset at once, and a request that arrives all the same, so much later."""

    def meet(exchange: Exchange) -> None:
        exchange.abort()
        time.sleep(seconds)
        exchange.forward()

    return Fault("lands_late", meet)


def _killed(*, landed: bool) -> Callable[[Exchange], None]:
    def meet(exchange: Exchange) -> None:
        assert isinstance(exchange, SoakExchange)
        if landed:
            exchange.forward()
        senders, pid = exchange.proxy.senders, exchange.sender
        if senders is not None and pid is not None:
            senders.kill_sender(pid)
        exchange.abort()

    return meet


def _stopped(*, landed: bool) -> Callable[[Exchange], None]:
    def meet(exchange: Exchange) -> None:
        assert isinstance(exchange, SoakExchange)
        senders, pid = exchange.proxy.senders, exchange.sender
        # Stopped first: what comes behind this request must not be sent before.
        is_stopped = senders is not None and pid is not None and senders.stop_sender(pid)
        try:
            response = exchange.forward() if landed else None
            if is_stopped:
                exchange.hold()
            # The answer lies there when it goes on: else its own time-out, which went on meanwhile, comes first.
            exchange.reply(response or exchange.forward())
        finally:
            if is_stopped and senders is not None and pid is not None:
                senders.continue_sender(pid)

    return meet


LATENCY = Fault("latency", _with_latency)
KILLED_BEFORE = Fault("killed_before", _killed(landed=False))
KILLED_AFTER = Fault("killed_after", _killed(landed=True))
STOPPED_BEFORE = Fault("stopped_before", _stopped(landed=False))
STOPPED_AFTER = Fault("stopped_after", _stopped(landed=True))
THROTTLED = wire_faults.refused("ThrottlingException")
PROVISIONED = wire_faults.refused("ProvisionedThroughputExceededException")
REQUEST_THROTTLED = wire_faults.refused("RequestThrottled")
FAULTS: dict[str, Fault] = {
    str(fault): fault
    for fault in (
        LATENCY,
        KILLED_BEFORE,
        KILLED_AFTER,
        STOPPED_BEFORE,
        STOPPED_AFTER,
        THROTTLED,
        PROVISIONED,
        REQUEST_THROTTLED,
        wire_faults.SLOW,
        wire_faults.SILENT,
        wire_faults.RESET_BEFORE,
        wire_faults.RESET_AFTER,
        wire_faults.SLOW_BODY,
        wire_faults.TRUNCATED,
        wire_faults.GARBLED,
        wire_faults.WRONG_CRC,
        wire_faults.SERVER_ERROR,
        wire_faults.SERVER_ERROR_AFTER,
        wire_faults.UNAVAILABLE,
        wire_faults.CANCELLED_CONFLICT,
        wire_faults.CANCELLED_THROTTLED,
        wire_faults.CANCELLED_MIXED,
        wire_faults.ENTRY_FAILED,
    )
}
# A write that landed under one of these was not heard of by its writer.
UNHEARD = frozenset(
    {
        "slow", "slow_body", "reset_after", "truncated_body", "garbled_body", "wrong_crc", "500_after", "lands_late",
        "killed_after",
    }
)  # fmt: skip


_HELD = frozenset({"lands_late", "stopped_before", "stopped_after"})


@dataclass
class SoakProxy(FaultProxy):
    """Spoils requests by name and number, and keeps the journal.

    Args:
        claims: Name of the claims table.
        choose: Says which fault the request of that name meets that is the n-th of its name; ``None`` for none.
        late_seconds: How much later a request lands that is thought to be lost.
        hold_seconds: For how long a process is stopped at a request.
        senders: Who kills and stops; without one a request is reset, or answered.
        held: Requests that are to land later than they came.
    """

    claims: str = ""
    choose: Callable[[str, int], str | None] = lambda _name, _number: None
    late_seconds: float = 3.0
    hold_seconds: float = 6.0
    senders: Senders | None = None
    held: int = 0
    journal: list[dict[str, Any]] = field(default_factory=list)
    met_faults: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    is_down: bool = False
    is_healed: bool = False
    _counts: Counter[str] = field(default_factory=Counter)

    def enter(self, request: Request) -> tuple[Seen, Fault | None]:
        """Count a request and return what is planned for it."""
        with self._lock:
            self.requests += 1
            self._counts[request.name] += 1
            name = None if self.is_healed else self.choose(request.name, self._counts[request.name])
            if self.is_down:
                name = str(wire_faults.RESET_BEFORE)
            if name is not None:
                self.met_faults[name] += 1
            self.held += name in _HELD
            fault = landing_late(self.late_seconds) if name == "lands_late" else FAULTS[name] if name else None
            return Seen(request, name), fault

    def note(self, seen: Seen, arrived: int, landed: int | None) -> None:
        """Write a write to the claims table down, if this was one."""
        write = write_of(seen.request, self.claims)
        with self._lock:
            self.held -= seen.fault in _HELD
            if write is not None:
                known = {"arrived": arrived, "landed": landed, "http": seen.status, "fault": seen.fault}
                self.journal.append(write | known)

    def heal(self) -> None:
        """Spoil nothing any more."""
        self.is_healed = True


class SoakExchange(Exchange):
    """One connection, whose requests are noted when they are over."""

    proxy: SoakProxy
    _landed: int | None

    @property
    def sender(self) -> int | None:
        """The process that sent the request, if it is one of the soak's."""
        found = _SENDER.search(self.headers["User-Agent"] or "")
        return int(found[1]) if found else None

    def hold(self) -> None:
        """Let time pass before it goes on."""
        time.sleep(self.proxy.hold_seconds)

    def do_POST(self) -> None:  # noqa: N802 - the base class's name
        """Forward a request, or spoil it, and note what became of it."""
        arrived, self._landed = now_ms(), None
        # A request of a process that is killed while it sends is cut off, and never entered.
        before = getattr(self, "_seen", None)
        try:
            super().do_POST()
        finally:
            seen = getattr(self, "_seen", None)
            if seen is not None and seen is not before:
                self.proxy.note(seen, arrived, self._landed)

    def forward(self, body: dict[str, Any] | None = None) -> Any:
        """Let the server carry the request out, and remember when."""
        if len(self._raw) < int(self.headers["Content-Length"]):
            message = "its sender was killed before it was sent whole"
            raise ConnectionError(message)
        response = super().forward(body)
        self._landed = now_ms()
        return response


class _Listener(_Server):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about clients that were killed, and a server that is gone."""


@contextmanager
def soak_proxy(proxy: SoakProxy) -> Iterator[Callable[[float], None]]:
    """Serve the proxy while the block runs; yield what refuses connections for so many seconds."""
    handler = type("_SoakExchange", (SoakExchange,), {"proxy": proxy})
    state: dict[str, Any] = {}

    def start(port: int) -> None:
        listener = state["listener"] = _Listener(("127.0.0.1", port), handler)
        thread = state["thread"] = threading.Thread(
            target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()

    def stop() -> None:
        state["listener"].shutdown()
        state["listener"].server_close()
        state["thread"].join()

    def be_down(seconds: float) -> None:
        port = state["listener"].server_address[1]
        stop()
        proxy.is_down = True  # connections that are open already are reset
        time.sleep(seconds)
        proxy.is_down = False
        start(port)

    start(0)
    proxy.endpoint = f"http://127.0.0.1:{state['listener'].server_address[1]}"
    try:
        yield be_down
    finally:
        stop()


def write_of(request: Request, claims: str) -> dict[str, Any] | None:
    """Return a write to a job's record as the journal has it; ``None`` if the request is none."""
    body, token = request.body, None
    if request.operation == "TransactWriteItems":
        body, token = body["TransactItems"][0].get("Update", {}), body.get("ClientRequestToken")
    if request.operation not in ("PutItem", "UpdateItem", "TransactWriteItems") or body.get("TableName") != claims:
        return None
    new = body.get("Item")
    values = body.get("ExpressionAttributeValues", {})
    pk = (new or body["Key"])["pk"]["S"]
    if pk.startswith("~"):
        return None
    after = None
    if new is None:
        new = {name.removeprefix(":new_"): value for name, value in values.items() if name.startswith(":new_")}
        # One that names nobody, or no version, is in the journal all the same: it follows nothing (G2).
        after = [values.get(":claimant", {}).get("S", ""), int(values.get(":version", {}).get("N", 0))]
    plain = {name: next(iter(value.values())) for name, value in new.items()}
    return {
        "write": request.name,
        "job": pk,
        "after": after,
        "claimant": plain.get("claimant") or (after or [""])[0],
        "version": int(plain["version"]),
        "status": plain.get("status"),
        "lease": int(plain["lease_expires_at"]) if "lease_expires_at" in plain else None,
        "fencing": int(plain["fencing_token"]) if "fencing_token" in plain else None,
        "steps": json.loads(plain["steps"]) if "steps" in plain else None,
        "result": plain.get("result"),
        "token": token,
    }
