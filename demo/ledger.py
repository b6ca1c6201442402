"""What the provider of the demo was asked and what it did: its books, without HTTP."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SLOW_SECONDS = 0.6
FAILURES = 2
LEGACY = "/legacy"
# What names the order in a body, and whose order it is, by path.
FIELDS = {
    "/charges": ("order_id", "customer_id"),
    "/mails": ("subject", "to"),
    "/webhooks": ("event_id", "customer_id"),
    LEGACY: ("OrderId", "CustomerId"),
}
# What is made, by path.
MADE = {"/charges": "ch", "/mails": "mail", "/webhooks": "event", LEGACY: "booking"}


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
        self._orders: dict[str, dict[str, _Order]] = {path: {} for path in FIELDS}
        self._kills: list[dict[str, Any]] = []

    def call(self, path: str, key: str, body: dict[str, Any], *, port: int = 0) -> Answer | None:
        """Answer a call.

        Args:
            path: One of `FIELDS`.
            key: The idempotency key, or ``""``; ``/legacy`` knows none.
            body: The body.
            port: The caller's TCP port.

        Returns:
            The answer, or ``None`` where the caller was killed and nobody waits for one.
        """
        order_field, customer_field = FIELDS[path]
        order_id, customer = str(body.get(order_field, "")), str(body.get(customer_field, ""))
        behaviour = customer.partition("@")[0].partition("-")[0]
        key = "" if path == LEGACY else key
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
            self._kills.append({"path": path, "order_id": order_id, "pid": pid})
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
        return Answer(201, {"id": f"{MADE[path]}_{number}"})


def _again(first: _Call, body: dict[str, Any]) -> Answer:
    if first.body != body:
        return Answer(422, {"error": "idempotency_error", "message": "the key was used with another body"})
    if first.answer is None:
        return Answer(409, {"error": "idempotency_key_in_use", "message": "the first call is still executed"})
    return Answer(first.answer.status, first.answer.body, replayed=True)
