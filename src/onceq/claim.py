"""The claim: the state machine of a job, and the argument why it is safe.

One attempt's life on Lambda, and who may do what to its record::

    claim                    the job runs                  invocation ends   stale
      |------------------------------------------------------------|------------|-----------> time
      |<------------------ lease: time left + margin ------------->|<-- skew -->|
      others: busy until the lease and the clock skew have passed               others: take over

1.  *One claimant at a time (G1).* A claim starts by a put on `FREE` or a write on `UNCHANGED`; DynamoDB lets one of
    several racing writers through. Until the lease and the clock skew have passed, `decide` answers everybody else
    with `Busy`. On Lambda the lease ends no sooner than the process is killed, so a stale claim has no living owner.
    Elsewhere the lease is short and renewed; a claimant whose renewals fail for longer than lease and skew is a zombie.
2.  *Zombies and late writes change nothing (G2).* Every write names the claimant and the version it follows. A taker
    writes its own token, so what the previous claimant sends later, or sent earlier and lands late, is refused.
3.  *A completed job stays completed (G3).* `FREE` does not hold for it within its retention, `decide` answers it with
    `Replay`, and no write that was sent before the completion follows its version.
4.  *A lost response is not a lost claim (G11).* A refused write whose record is the one being written was ours.
5.  *A renewal whose outcome is unknown* may have landed. Nobody else writes our token, so a refusal that shows our
    token on a record still processing shows our own earlier write: the next write follows that record.

`tests/model/claim_model.py` is these rules as a model; every state of it is explored, and weakened it breaks a promise.
"""

from __future__ import annotations

import threading
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
    if request.reuses_key_of(record):
        return KeyReuse(record)
    match record.status:
        case Status.COMPLETED:
            return Replay(record)
        case Status.UNCERTAIN:
            return Ended(record, before=True)
        case Status.REJECTED:
            redriven = request.redriven_version == record.version
            if not redriven or Semantics.AT_MOST_ONCE in (record.semantics, request.semantics):
                return Ended(record, before=True)
            return _run(record, request, attempt=1)
        case Status.FAILED:
            if record.not_before is not None and now_ms < record.not_before:
                return Busy(record.not_before)
            return _next_attempt(record, request)
        case Status.PROCESSING:
            stale_from = (record.lease_expires_at or 0) + request.skew_ms
            if now_ms < stale_from:
                return Busy(stale_from)
            if Semantics.AT_MOST_ONCE in (record.semantics, request.semantics):
                return Hold()
            return _next_attempt(record, request)


def _next_attempt(record: Record, request: Request) -> Decision:
    if record.attempts >= request.max_attempts:
        return Exhausted()
    return _run(record, request, attempt=record.attempts + 1)


def _run(record: Record, request: Request, *, attempt: int) -> Decision:
    """Take over, but what may have killed its process only alone (G5)."""
    return Stale(record) if record.may_kill and not request.alone else TakeOver(attempt)


class Claim:
    """One attempt's hold on a job. Its writes are serialised, since a renewal may meet the end of the job."""

    def __init__(self, store: Store, record: Record, request: Request, *, previous: Record | None) -> None:
        """Hold ``record``; ``previous`` is what was taken over, if anything."""
        self._store = store
        self._own = record
        self._lock = threading.Lock()
        self._request = request
        self.previous = previous

    @property
    def record(self) -> Record:
        """The record as this attempt last wrote it."""
        return self._own

    def complete(self, now_ms: int, result: str | ResultNotStored) -> Record:
        """Complete the job. Raises: ClaimLost, StoreError."""
        expires_at = self._request.ended_until(now_ms)
        return self._write(lambda own: self._store.complete(own, now_ms=now_ms, expires_at=expires_at, result=result))

    def release(self, now_ms: int, *, not_before: int, error: str | None, counted: bool) -> Record:
        """Give the job back until ``not_before``. Raises: ClaimLost, StoreError."""
        # A back-off may be longer than the retention; a failed record must outlive it.
        return self._write(
            lambda own: self._store.release(
                own,
                not_before=not_before,
                expires_at=self._request.unended_until(max(now_ms, not_before)),
                error=error,
                attempts=own.attempts if counted else own.attempts - 1,
            )
        )

    def give_back(self, now_ms: int) -> Record:
        """Give a job back that was never started; the start is not counted. Raises: ClaimLost, StoreError."""
        return self._write(lambda own: self._store.give_back(own, now_ms=now_ms))

    def reject(self, now_ms: int, *, error: str) -> Record:
        """End the job for good. Raises: ClaimLost, StoreError."""
        expires_at = self._request.ended_until(now_ms)
        return self._write(
            lambda own: self._store.reject(own, claimant=own.claimant, expires_at=expires_at, error=error)
        )

    def hold(self, *, error: str) -> Record:
        """Leave the job to a person. Raises: ClaimLost, StoreError."""
        return self._write(lambda own: self._store.hold(own, claimant=own.claimant, error=error))

    def renew(self, lease_expires_at: int) -> Record:
        """Move the lease. Raises: ClaimLost, StoreError."""
        return self._write(lambda own: self._store.renew(own, lease_expires_at=lease_expires_at))

    def _write(self, write: Callable[[Record], Record | Refused]) -> Record:
        with self._lock:
            if self._own.status is not Status.PROCESSING:
                raise ClaimLost(self._own, self._own)
            answer = write(self._own)
            if isinstance(answer, Refused) and self._is_own_earlier_write(answer.seen):
                self._own = answer.seen
                answer = write(self._own)
            if isinstance(answer, Refused):
                raise ClaimLost(answer.seen, self._own)
            self._own = answer
            return answer

    def _is_own_earlier_write(self, seen: Record | None) -> TypeGuard[Record]:
        return (
            seen is not None
            and seen.claimant == self._own.claimant
            and seen.status is Status.PROCESSING
            and seen.version > self._own.version
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
        new = request.first(tokens.token(), now_ms)
        answer = store.claim(new, now_ms)
        for _ in range(ROUNDS):
            if isinstance(answer, Record):
                return Claim(store, answer, request, previous=None)
            seen = answer.seen
            if seen is None:
                break  # it was refused and is gone: TTL or a person deleted it in between, so claim again
            now_ms = clock.now_ms()
            decision = decide(seen, request, now_ms)
            match decision:
                case TakeOver(attempt):
                    new = request.next(seen, tokens.token(), now_ms, attempt)
                    answer = store.take_over(seen, new)
                    if isinstance(answer, Record):
                        return Claim(store, answer, request, previous=seen)
                case Exhausted():
                    last = "the last attempt never ended" if seen.status is Status.PROCESSING else seen.error
                    answer = store.reject(
                        seen,
                        claimant=tokens.token(),
                        expires_at=request.ended_until(now_ms),
                        error=f"attempts used up: {last}",
                        went_stale=1 if seen.may_kill else None,
                    )
                case Hold():
                    error = "the attempt of an at-most-once job never ended: its effect may have happened"
                    answer = store.hold(seen, claimant=tokens.token(), error=error)
                case _:
                    return decision
            if isinstance(answer, Record):
                return Ended(answer, before=False)
    return Busy(clock.now_ms() + CROWDED_MS)
