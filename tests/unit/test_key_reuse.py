"""When another payload under one key is a mistake, and when it is the same message read differently."""

from __future__ import annotations

import pytest

from kit.claims import NOW, record_of, request_of
from onceq.claim import decide
from onceq.decision import KeyReuse
from onceq.record import Status


@pytest.mark.parametrize(
    ("asked", "stored", "reuse"),
    [
        ("m-1", "m-2", True),
        ("m-1", "m-1", False),
        (None, None, True),
        (None, "m-1", True),
        ("m-1", None, True),
    ],
)
@pytest.mark.parametrize("status", Status)
def test_one_message_never_reuses_its_own_key(
    status: Status, asked: str | None, stored: str | None, *, reuse: bool
) -> None:
    """G4: a deployment that compares something else refuses no message under way; no id is nobody else's id."""
    record = record_of(status, payload_fingerprint="f-1", message_id=stored)
    request = request_of(fingerprint="f-2", message_id=asked)

    assert isinstance(decide(record, request, NOW), KeyReuse) == reuse


@pytest.mark.parametrize(("asked", "stored"), [(None, "f-1"), ("f-1", None), (None, None), ("f-1", "f-1")])
def test_what_was_not_compared_or_agrees_is_no_reuse(asked: str | None, stored: str | None) -> None:
    """``fingerprint=None`` compares nothing, then or now."""
    request = request_of(fingerprint=asked, message_id="m-1")

    assert not request.reuses_key_of(record_of(payload_fingerprint=stored, message_id="m-2"))
    assert request_of(fingerprint="f-3").reuses_key_of(record_of(payload_fingerprint="f-4", message_id="m-2"))
