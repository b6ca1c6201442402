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

from onceq.decision import (
    Busy,
    Ended,
    Exhausted,
    Hold,
    KeyReuse,
    Replay,
    Stale,
    TakeOver,
    may_have_started_what_starts_once,
)
from onceq.errors import ClaimLost
from onceq.record import Record, Semantics, Status
from onceq.steps import open_steps, with_step
from onceq.store import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

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
            if not redriven or _starts_once(record, request):
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
            if _starts_once(record, request):
                return Hold()
            return _next_attempt(record, request)


def _starts_once(record: Record, request: Request) -> bool:
    return request.semantics is Semantics.AT_MOST_ONCE or may_have_started_what_starts_once(record)


def _next_attempt(record: Record, request: Request) -> Decision:
    since_a_release = request.semantics is Semantics.AT_MOST_ONCE and record.semantics is not Semantics.AT_MOST_ONCE
    if since_a_release and record.went_stale is not None and record.attempts:
        return Hold()  # its last attempt died before the release that says it may start once; the sweep marked it
    if open_steps(record.steps):
        return Hold()  # an attempt that left one open is held by itself; this is for what an older release left
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

    def step(self, name: str, state: Mapping[str, Any] | None) -> Record:
        """Record what became of a step; ``None`` forgets it. Raises: ClaimLost, StoreError."""

        def write(own: Record) -> Record | Refused[Record]:
            steps = with_step(own.steps, name, state)
            # TTL deletes whatever the status: it must not forget what may start only once (G9).
            return self._store.step(own, steps=steps, expires_at=None if open_steps(steps) else own.expires_at)

        return self._write(write)

    def complete(self, now_ms: int, result: str | ResultNotStored, others: Sequence[Mapping[str, Any]] = ()) -> Record:
        """Complete the job, together with other writes if there are any.

        Raises: ClaimLost, StoreError; with other writes, TransactionCancelled and TransactionFailed: none of them, and
        not the completion, has happened.
        """
        expires_at = self._request.ended_until(self._own.retained_from(now_ms))
        end: dict[str, Any] = {"now_ms": now_ms, "expires_at": expires_at, "result": result}
        if others:
            return self._write(lambda own: self._store.commit(own, others, **end))
        return self._write(lambda own: self._store.complete(own, **end))

    def release(self, now_ms: int, *, not_before: int, error: str | None, counted: bool) -> Record:
        """Give the job back until ``not_before``. Raises: ClaimLost, StoreError."""
        # A back-off may be longer than the retention; a failed record must outlive it.
        return self._write(
            lambda own: self._store.release(
                own,
                not_before=not_before,
                expires_at=own.expires_at and self._request.unended_until(max(now_ms, not_before)),
                error=error,
                attempts=own.attempts if counted else own.attempts - 1,
            )
        )

    def give_back(self, now_ms: int) -> Record:
        """Give a job back that was never started; the start is not counted. Raises: ClaimLost, StoreError."""
        first = self.previous is None or self.previous.never_started
        otherwise = None if first else "given back before it was started again"
        return self._write(lambda own: self._store.give_back(own, now_ms=now_ms, error=otherwise))

    def reject(self, now_ms: int, *, error: str) -> Record:
        """End the job for good. Raises: ClaimLost, StoreError."""
        expires_at = self._request.rejected_until(self._own.retained_from(now_ms))
        return self._write(
            lambda own: self._store.reject(own, claimant=own.claimant, expires_at=expires_at, error=error)
        )

    def hold(self, *, error: str) -> Record:
        """Leave the job to a person. Raises: ClaimLost, StoreError."""
        return self._write(lambda own: self._store.hold(own, claimant=own.claimant, error=error))

    def renew(self, lease_expires_at: int) -> Record:
        """Move the lease. Raises: ClaimLost, StoreError."""
        return self._write(lambda own: self._store.renew(own, lease_expires_at=lease_expires_at))

    def _write(self, write: Callable[[Record], Record | Refused[Record]]) -> Record:
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
                    stale = seen.status is Status.PROCESSING
                    last = "the last attempt never ended" if stale else seen.error or "the last one failed"
                    answer = store.reject(
                        seen,
                        claimant=tokens.token(),
                        expires_at=request.rejected_until(seen.retained_from(now_ms)),
                        error=f"attempts used up: {last}",
                        went_stale=1 if seen.may_kill else None,
                    )
                case Hold():
                    what = ", ".join(open_steps(seen.steps)) or "the job"
                    error = f"the attempt never ended, and may start at most once: {what}. The effect may have happened"
                    went_stale = 1 if seen.may_kill else None
                    answer = store.hold(seen, claimant=tokens.token(), error=error, went_stale=went_stale)
                case _:
                    return decision
            if isinstance(answer, Record):
                return Ended(answer, before=False)
    return Busy(clock.now_ms() + CROWDED_MS)
