"""Book an order with a system that knows no idempotency keys: at most once, and a person decides what stays open."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from jobs import gateway
from onceq import Context, Retry, Semantics, job

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
ORDERS = "urn:example:orders"


class NotCalled(Exception):
    """Nothing reached the legacy system."""


class Refused(Exception):
    """The legacy system answered that the request is wrong, and that it did nothing."""


@dataclass(frozen=True)
class Booking:
    """What the legacy system is to book."""

    order_id: str
    customer_id: str
    sku: str
    quantity: int


# A second call would book a second time, so nothing may make one: no crash, no duplicate, no redrive. What is not known
# to have finished becomes uncertain; a person looks it up over there, and says what it was with `app.resolve`.
@job("book_order", key="order_id", max_duration=15, semantics=Semantics.AT_MOST_ONCE, reject=(Refused,))
def book_order(booking: Booking, ctx: Context) -> dict[str, Any]:
    """Book the order. Two exceptions say that it did not happen; any other means that it may have."""
    fields = {"OrderId": booking.order_id, "CustomerId": booking.customer_id}
    fields |= {"Sku": booking.sku, "Quantity": str(booking.quantity)}
    try:
        answer = call("BookOrder", fields)
    except NotCalled as error:
        raise Retry(reason=str(error)) from error  # the one way to say that another start is safe
    return {"booking_id": element(answer, f"{{{ORDERS}}}BookingId")}


def call(operation: str, fields: dict[str, str]) -> bytes:
    """Call the endpoint with SOAP 1.1 and return its answer."""
    inner = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
    body = f'<{operation} xmlns="{ORDERS}">{inner}</{operation}>'
    text = f'<soap:Envelope xmlns:soap="{SOAP}"><soap:Body>{body}</soap:Body></soap:Envelope>'
    headers = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": f'"{ORDERS}:{operation}"'}
    try:
        url = gateway.address("LEGACY_URL", "/legacy")
        request = urllib.request.Request(url, data=text.encode(), headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=gateway.TIMEOUT_SECONDS) as response:
            answer: bytes = response.read()
            return answer
    except gateway.ProviderError as error:
        raise NotCalled(str(error)) from error  # there is no address
    except urllib.error.HTTPError as error:
        with error:
            fault = error.read()
        if error.code == 500 and element(fault, "faultcode").endswith("Client"):
            raise Refused(f"the legacy system refused: {element(fault, 'faultstring')}") from error
        raise
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            raise NotCalled("the legacy system is down") from error  # nobody took the call
        raise


def element(answer: bytes, name: str) -> str:
    """Return the text of an element of a SOAP answer; an answer without it is not understood."""
    found = ElementTree.fromstring(answer).find(f".//{name}")
    if found is None or not found.text:
        raise ValueError(f"the legacy system's answer has no {name}: {len(answer)} bytes")
    return found.text
