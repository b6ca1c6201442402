"""The claim: the state machine of a job, and the argument why it is safe.

One attempt's life on Lambda, and who may do what to its record::

    claim                    the job runs                  invocation ends   stale
      |------------------------------------------------------------|------------|-----------> time
      |<------------------ lease: time left + margin ------------->|<-- skew -->|
      others: busy until the lease and the clock skew have passed               others: take over

1.  *One claimant at a time (G1).* A claim starts by a put on `FREE` or a write on `UNCHANGED`; DynamoDB lets one of
    several racing writers through. Until the lease and the clock skew have passed, `decide` answers everybody else
    with `Busy`. On Lambda the lease ends no sooner than the process is killed, so a stale claim has no living owner.
2.  *Zombies and late writes change nothing (G2).* Every write names the claimant and the version it follows. A taker
    writes its own token, so what the previous claimant sends later, or sent earlier and lands late, is refused.
3.  *A completed job stays completed (G3).* No condition lets a completed record be written before its retention ends.
4.  *A lost response is not a lost claim (G11).* A refused write whose record is the one being written was ours.
5.  *A renewal whose outcome is unknown* may have landed. Nobody else writes our token, so a refusal that shows our
    token on a record still processing shows our own earlier write: the next write follows that record.

`tests/model/claim_model.py` is these rules as a model; every state of it is explored, and weakened it breaks a promise.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from onceq.decision import Busy, Ended, Exhausted, Hold, KeyReuse, Replay, Stale, TakeOver
from onceq.errors import ClaimLost
from onceq.record import Record, Semantics, Status
from onceq.store import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.clock import Clock, TokenFactory
    from onceq.codec import ResultNotStored
    from onceq.decision import Decision, Request, Settled
    from onceq.store import Store

# A record that moves on between each of our looks is busy indeed; the message is back in a few seconds.
ROUNDS = 5
CROWDED_MS = 3_000


def decide(record: Record, request: Request, now_ms: int) -> Decision:
    """Say what a delivery does with the record that stands in its way.

    Args:
        record: The record as the refused write returned it.
        request: What the delivery asks.
        now_ms: Now, epoch ms.

    Returns:
        One decision; `docs/lifecycle.md` has the table, asserted cell by cell.
    """
    if request.fingerprint and record.payload_fingerprint and request.fingerprint != record.payload_fingerprint:
        return KeyReuse(record)
    match record.status:
        case Status.COMPLETED:
            return Replay(record)
        case Status.UNCERTAIN:
            return Ended(record, before=True)
        case Status.REJECTED:
            redriven = request.redriven_version == record.version
            if redriven and record.semantics is Semantics.AT_LEAST_ONCE:
                return TakeOver(attempt=1)
            return Ended(record, before=True)
        case Status.FAILED:
            if record.not_before is not None and now_ms < record.not_before:
                return Busy(record.not_before)
            return _next_attempt(record, request)
        case Status.PROCESSING:
            stale_from = (record.lease_expires_at or 0) + request.skew_ms
            if now_ms < stale_from:
                return Busy(stale_from)
            if record.semantics is Semantics.AT_MOST_ONCE:
                return Hold()
            if record.attempts < request.max_attempts and not request.alone:
                return Stale(record)
            return _next_attempt(record, request)


def _next_attempt(record: Record, request: Request) -> Decision:
    return TakeOver(record.attempts + 1) if record.attempts < request.max_attempts else Exhausted()


class Claim:
    """One attempt's hold on a job. Its writes are serialised, since a renewal may meet the end of the job."""

    def __init__(self, store: Store, record: Record, *, previous: Record | None, retention_s: int) -> None:
        """Hold ``record``; ``previous`` is what was taken over, if anything."""
        self._store = store
        self._held = record
        self._lock = threading.Lock()
        self._retention_s = retention_s
        self.previous = previous

    @property
    def record(self) -> Record:
        """The record as this attempt last wrote it."""
        return self._held

    def complete(self, now_ms: int, result: str | ResultNotStored) -> Record:
        """Complete the job. Raises: ClaimLost, StoreError."""
        expires_at = now_ms // 1000 + self._retention_s
        return self._write(lambda held: self._store.complete(held, now_ms=now_ms, expires_at=expires_at, result=result))

    def release(self, now_ms: int, *, not_before: int, error: str | None, counted: bool) -> Record:
        """Give the job back until ``not_before``. Raises: ClaimLost, StoreError."""
        # A back-off may be longer than the retention; a failed record must outlive it.
        expires_at = max(now_ms, not_before) // 1000 + self._retention_s
        return self._write(
            lambda held: self._store.release(
                held,
                not_before=not_before,
                expires_at=expires_at,
                error=error,
                attempts=held.attempts if counted else held.attempts - 1,
            )
        )

    def reject(self, now_ms: int, *, error: str) -> Record:
        """End the job for good. Raises: ClaimLost, StoreError."""
        expires_at = now_ms // 1000 + self._retention_s
        return self._write(
            lambda held: self._store.reject(held, claimant=held.claimant, expires_at=expires_at, error=error)
        )

    def hold(self, *, error: str) -> Record:
        """Leave the job to a person. Raises: ClaimLost, StoreError."""
        return self._write(lambda held: self._store.hold(held, claimant=held.claimant, error=error))

    def renew(self, lease_expires_at: int) -> Record:
        """Move the lease. Raises: ClaimLost, StoreError."""
        return self._write(lambda held: self._store.renew(held, lease_expires_at=lease_expires_at))

    def _write(self, write: Callable[[Record], Record | Refused]) -> Record:
        with self._lock:
            if self._held.status is not Status.PROCESSING:
                raise ClaimLost(self._held)
            answer = write(self._held)
            if isinstance(answer, Refused) and self._is_own_earlier_write(answer.seen):
                self._held = answer.seen
                answer = write(self._held)
            if isinstance(answer, Refused):
                raise ClaimLost(answer.seen)
            self._held = answer
            return answer

    def _is_own_earlier_write(self, seen: Record | None) -> TypeGuard[Record]:
        return (
            seen is not None
            and seen.claimant == self._held.claimant
            and seen.status is Status.PROCESSING
            and seen.version > self._held.version
        )


def claim(store: Store, request: Request, clock: Clock, tokens: TokenFactory) -> Claim | Settled:
    """Claim a job, or say why not.

    A new job costs one request and no read; so does a duplicate. A take-over costs one more.

    Args:
        store: The claims table.
        request: What the delivery asks.
        clock: The time.
        tokens: Where the claim's token comes from.

    Returns:
        The claim, or the decision that settles the delivery.

    Raises:
        onceq.errors.StoreError: If the table did not answer: the effect must not run.
    """
    for _ in range(ROUNDS):
        now_ms = clock.now_ms()
        new = _first(request, tokens.token(), now_ms)
        answer = store.claim(new, now_ms)
        for _ in range(ROUNDS):
            if isinstance(answer, Record):
                return Claim(store, answer, previous=None, retention_s=request.retention_s)
            seen = answer.seen
            if seen is None:
                break  # the record went between the refusal and now: claim again
            now_ms = clock.now_ms()
            decision = decide(seen, request, now_ms)
            match decision:
                case TakeOver(attempt):
                    new = _next(seen, request, tokens.token(), now_ms, attempt)
                    answer = store.take_over(seen, new)
                    if isinstance(answer, Record):
                        return Claim(store, answer, previous=seen, retention_s=request.retention_s)
                case Exhausted():
                    error = f"attempts used up: {seen.error or 'the last attempt never ended'}"
                    expires_at = now_ms // 1000 + request.retention_s
                    answer = store.reject(seen, claimant=tokens.token(), expires_at=expires_at, error=error)
                case Hold():
                    error = "the claimant of an at-most-once job died: its effect may have happened"
                    answer = store.hold(seen, claimant=tokens.token(), error=error)
                case _:
                    return decision
            if isinstance(answer, Record):
                return Ended(answer, before=False)
    return Busy(clock.now_ms() + CROWDED_MS)


def _first(request: Request, token: str, now_ms: int) -> Record:
    return Record(
        pk=request.pk,
        job_type=request.job_type,
        idempotency_key=request.idempotency_key,
        status=Status.PROCESSING,
        claimant=token,
        version=1,
        fencing_token=now_ms,
        attempts=1,
        created_at=now_ms,
        expires_at=now_ms // 1000 + request.retention_s,
        semantics=request.semantics,
        payload_fingerprint=request.fingerprint,
        message_id=request.message_id,
        lease_expires_at=now_ms + request.lease_ms,
    )


def _next(seen: Record, request: Request, token: str, now_ms: int, attempt: int) -> Record:
    return replace(
        seen,
        status=Status.PROCESSING,
        claimant=token,
        version=seen.version + 1,
        fencing_token=max(seen.fencing_token + 1, now_ms),
        attempts=attempt,
        expires_at=now_ms // 1000 + request.retention_s,
        message_id=request.message_id,
        lease_expires_at=now_ms + request.lease_ms,
        not_before=None,
    )
