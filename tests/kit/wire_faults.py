"""The faults of the wire that `kit.fault_proxy` injects: what each does to one exchange."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from kit.fault_proxy import EVERYTHING, Exchange, Fault, Response

if TYPE_CHECKING:
    from collections.abc import Callable


def _slow(exchange: Exchange) -> None:
    exchange.forward()
    exchange.hang()


def _reset_after(exchange: Exchange) -> None:
    exchange.forward()
    exchange.abort()


def _slow_body(exchange: Exchange) -> None:
    response = exchange.forward()
    exchange.head(response)
    exchange.wfile.write(response.body[:1])
    exchange.hang()


def _truncated(exchange: Exchange) -> None:
    response = exchange.forward()
    exchange.head(response)
    exchange.wfile.write(response.body[: len(response.body) // 2])
    exchange.cut()


def _garbled(exchange: Exchange) -> None:
    response = exchange.forward()
    half = response.body[: len(response.body) // 2]
    exchange.reply(Response(response.status, response.headers, half))


def _wrong_crc(exchange: Exchange) -> None:
    response = exchange.forward()
    wrong = {"x-amz-crc32": str(zlib.crc32(response.body) ^ 1)}
    kept = {name: value for name, value in response.headers.items() if name.lower() not in wrong}
    exchange.reply(Response(response.status, kept | wrong, response.body))


def _wrong_md5(exchange: Exchange) -> None:
    response = exchange.forward()
    answer = json.loads(response.body)
    for one in (answer, *answer.get("Successful", []), *answer.get("Messages", [])):
        for name in ("MD5OfMessageBody", "MD5OfBody"):
            if name in one:
                one[name] = "0" * 32
    exchange.reply(Response(response.status, response.headers, json.dumps(answer).encode()))


def _trickle(pause: float) -> Callable[[Exchange], None]:
    def meet(exchange: Exchange) -> None:
        response = exchange.forward()
        exchange.head(response)
        exchange.trickle(response.body, pause)

    return meet


def trickling(pause: float) -> Fault:
    """Return an answer whose body comes one byte at a time, each after a pause."""
    return Fault("trickle", _trickle(pause))


def _error(code: str, status: int, *, applied: bool = False) -> Callable[[Exchange], None]:
    def meet(exchange: Exchange) -> None:
        if applied:
            exchange.forward()
        exchange.refuse(code, status)

    return meet


def _unavailable(exchange: Exchange) -> None:
    # As a load balancer says it, who speaks no JSON.
    exchange.reply(Response(503, {"Content-Type": "text/html"}, b"<html><body>Service Unavailable</body></html>"))


def _cancelled(own: str, others: str) -> Callable[[Exchange], None]:
    def meet(exchange: Exchange) -> None:
        writes = len(exchange.request_in.body["TransactItems"])
        reasons = [{"Code": code, "Message": "planned"} for code in (own, *[others] * (writes - 1))]
        exchange.refuse("TransactionCanceledException", 400, CancellationReasons=reasons)

    return meet


def _entry(code: str, *, sender: bool) -> Callable[[Exchange], None]:
    def meet(exchange: Exchange) -> None:
        first, *others = exchange.request_in.body["Entries"]
        answer: dict[str, Any] = {"Successful": []}
        if others:
            answer = json.loads(exchange.forward({**exchange.request_in.body, "Entries": others}).body)
        answer.setdefault("Failed", []).append({"Id": first["Id"], "Code": code, "SenderFault": sender})
        exchange.reply(Response(200, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(answer).encode()))

    return meet


def refused(code: str, status: int = 400) -> Fault:
    """Return an error of the service, which has not carried the request out."""
    return Fault(code, _error(code, status))


def _down(exchange: Exchange) -> None:
    exchange.proxy.plan(EVERYTHING, SILENT, times=float("inf"))
    exchange.hang()


SLOW = Fault("slow", _slow)
SILENT = Fault("silent", Exchange.hang)
# From this request on nothing is answered any more.
DOWN = Fault("down", _down)
RESET_BEFORE = Fault("reset_before", Exchange.abort)
RESET_AFTER = Fault("reset_after", _reset_after)
SLOW_BODY = Fault("slow_body", _slow_body)
TRUNCATED = Fault("truncated_body", _truncated)
GARBLED = Fault("garbled_body", _garbled)
WRONG_CRC = Fault("wrong_crc", _wrong_crc)
WRONG_MD5 = Fault("wrong_md5", _wrong_md5)
SERVER_ERROR = Fault("500", _error("InternalServerError", 500))
SERVER_ERROR_AFTER = Fault("500_after", _error("InternalServerError", 500, applied=True))
UNAVAILABLE = Fault("503", _unavailable)
CONFLICT = refused("TransactionConflictException")
MISMATCH = refused("IdempotentParameterMismatchException")
CANCELLED_CONFLICT = Fault("cancelled_conflict", _cancelled("TransactionConflict", "None"))
CANCELLED_THROTTLED = Fault("cancelled_throttled", _cancelled("None", "ThrottlingError"))
CANCELLED_MIXED = Fault("cancelled_mixed", _cancelled("TransactionConflict", "ConditionalCheckFailed"))
CANCELLED_VALIDATION = Fault("cancelled_validation", _cancelled("None", "ValidationError"))
ENTRY_FAILED = Fault("entry_failed", _entry("InternalError", sender=False))
ENTRY_REFUSED = Fault("entry_refused", _entry("InvalidMessageContents", sender=True))
