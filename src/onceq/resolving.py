"""What a person decides about a job that ended uncertain, rejected or failed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from onceq.codec import ResultNotStored, decode, encode, encode_result, printable
from onceq.decision import ended_until, unended_until
from onceq.errors import PayloadError, ResolveRefused
from onceq.keys import check_effect_name
from onceq.record import Record, Status
from onceq.steps import MOST_BYTES, open_steps, read_steps, with_step
from onceq.store import Refused, completed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceq.store import Store

Decision = Literal["done", "retry", "reject"]
RESOLVABLE = (Status.UNCERTAIN, Status.REJECTED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Resolution:
    """A person's decision.

    Args:
        decision: ``"done"``, ``"retry"`` or ``"reject"``.
        result: The result of a job that is done.
        reason: Why, for the record.
        steps: Results of steps that are known to be done, for the next attempt.
        version: The version of the record that the person saw; ``None`` decides about whatever stands there.
    """

    decision: Decision
    result: Any = None
    reason: str = ""
    steps: Mapping[str, Any] = field(default_factory=dict)
    version: int | None = None


def decided(
    record: Record, resolution: Resolution, *, token: str, now_ms: int, retention_s: int, result_limit: int
) -> Record:
    """Return the record as a person's decision leaves it.

    Args:
        record: The record as it stands.
        resolution: The decision.
        token: A token of its own.
        now_ms: Now, epoch ms.
        retention_s: How long an ended job is remembered.
        result_limit: The largest result that is stored, in bytes.

    Raises:
        ResolveRefused: If the record is not one to decide about, or not the one that was seen.
    """
    if record.status not in RESOLVABLE:
        message = f"{record.pk} is {record.status}: only a job that is uncertain, rejected or failed can be resolved"
        raise ResolveRefused(message)
    if resolution.version is not None and resolution.version != record.version:
        message = f"{record.pk} is of version {record.version}, and {resolution.version} was decided about: look again"
        raise ResolveRefused(message)
    if resolution.steps and resolution.decision != "retry":
        message = f'{record.pk}: steps= is for "retry": results of steps that are not to be run again'
        raise ResolveRefused(message)
    if resolution.decision == "done":
        result = encode(_storable(record, resolution.result, result_limit))
        return completed(record, token, now_ms, ended_until(record.retained_from(now_ms), retention_s), result)
    cleared: dict[str, Any] = {
        "claimant": token,
        "version": record.version + 1,
        "lease_expires_at": None,
        "not_before": None,
    }
    said = printable(resolution.reason or "a person decided so")
    if resolution.decision == "reject":
        return replace(
            record,
            status=Status.REJECTED,
            error=said,
            expires_at=ended_until(record.retained_from(now_ms), retention_s),
            **cleared,
        )
    if resolution.decision != "retry":
        message = f'{resolution.decision!r}: decide "done", "retry" or "reject"'
        raise ResolveRefused(message)
    steps = record.steps
    for name in open_steps(steps):
        steps = with_step(steps, name, None)
    for name, value in resolution.steps.items():
        named = _step_name(record, name)
        awaited = {"awaited": True} if "awaited" in read_steps(steps).get(named, {}) else {}
        steps = with_step(steps, named, {"result": _storable(record, value, result_limit), **awaited})
        _check_steps(record, steps)
    # Attempts from 0, and the downstream keys' time anew: a person has made sure that they may be used again.
    opened = {"status": Status.FAILED, "attempts": 0, "not_before": now_ms, "resolved_at": now_ms}
    kept_until = record.expires_at and unended_until(now_ms, retention_s, record.semantics)
    return replace(record, steps=steps, error=said, expires_at=kept_until, **(cleared | opened))


def _check_steps(record: Record, steps: str | None) -> None:
    try:
        read_steps(steps)
    except PayloadError as error:
        message = f"{record.pk}: the steps cannot be read again: {error}"
        raise ResolveRefused(message) from error
    if len((steps or "").encode()) > MOST_BYTES:
        message = f"{record.pk}: the steps have more than {MOST_BYTES} bytes together"
        raise ResolveRefused(message)


def _step_name(record: Record, name: object) -> str:
    try:
        return check_effect_name(name)
    except ValueError as error:
        message = f"{record.pk}: {error}"
        raise ResolveRefused(message) from error


def _storable(record: Record, value: object, limit: int) -> Any:
    text = encode_result(value, limit)
    if isinstance(text, ResultNotStored):
        message = f"{record.pk}: the result cannot be stored: {text.reason}"
        raise ResolveRefused(message)
    return decode(text)


def resolve(
    store: Store, pk: str, resolution: Resolution, *, token: str, now_ms: int, retention_s: int, result_limit: int
) -> Record:
    """Write a person's decision, if the record is still the one that was read.

    Args:
        store: The claims table.
        pk: Partition key of the record.
        resolution: The decision.
        token: A token of its own.
        now_ms: Now, epoch ms.
        retention_s: How long an ended job is remembered.
        result_limit: The largest result that is stored, in bytes.

    Returns:
        The record as written.

    Raises:
        ResolveRefused: If there is no such job, or it is not, or no longer, one to decide about.
        StoreError: If the table did not answer.
    """
    record = store.get(pk)
    if record is None:
        message = f"there is no job {pk}: it was never claimed, or its retention is over"
        raise ResolveRefused(message)
    new = decided(record, resolution, token=token, now_ms=now_ms, retention_s=retention_s, result_limit=result_limit)
    answer = store.resolve(record, new)
    if isinstance(answer, Refused):
        message = f"{pk} moved on while it was decided about: look again"
        raise ResolveRefused(message)
    return answer
