"""The life of one message, from claim to outcome. Read this page first.

::

    claim ──► replay, defer, refuse, end again                (nothing runs)
      │
      ▼
    take its lock, if it has one ──► somebody else holds it: give the claim back, defer
      │
      ▼
    run the job ──► what it returned or raised ──► `end_of` decides ──► one write ends the claim ──► outcome
      │  └── each step writes its own record (`onceq.steps`)                  │
      └── what it staged: transaction, messages (`onceq.effects`) ────────────┘  all in that one write, or nothing

If the process dies before the claim, nothing happened. After the claim and before the end, the claim goes stale. A
later delivery then takes the job over, with nothing else in its process: finished steps answer from their record, and
what a foreign effect did meanwhile is attempted again with the same downstream key (G12). Without an attempt left the
job is rejected. An at-most-once job, or one with an at-most-once step under way, is held for a person instead. After
the end is written, the next delivery finds it: replay, defer, run again, or end the same way. Messages that were
committed with it and not sent are the relay's.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never, cast

from onceq import claim as claims
from onceq import decision as decisions
from onceq import effect_events
from onceq import outcome as ends
from onceq import telemetry as events
from onceq.attempt import context_of, renewing, run
from onceq.codec import ResultNotStored, decode_result, encode_result, shown
from onceq.decision import Request
from onceq.errors import ClaimLost, LockBusy, StepNotRecorded, StoreError, TransactionCancelled, TransactionFailed
from onceq.locks import take
from onceq.message import DeadLetterNote
from onceq.record import Status
from onceq.steps import open_steps

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from onceq.attempt import Middleware
    from onceq.catalogue import Job
    from onceq.clock import Clock, Deadline, TokenFactory
    from onceq.effects import Effects
    from onceq.locks import HeldLock, Locks
    from onceq.outbox import Outbox
    from onceq.outcome import GoneStale, Outcome
    from onceq.record import Record
    from onceq.sealing import Sealer
    from onceq.settings import Settings
    from onceq.store import Store
    from onceq.telemetry import Telemetry

# A job that declares no max_duration is started while at least so much remains.
LEAST_SECONDS = 5.0
# Lambda stops the process a little after the time that its context tells; the lease covers that.
LEASE_MARGIN_MS = 1_000
# Outside Lambda nothing kills the process: the lease is this, or max_duration, and is renewed, but not for ever.
OPEN_LEASE_SECONDS = 30.0


class _Ran(NamedTuple):
    value: object
    error: BaseException | None
    seconds: float
    effects: Effects


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs jobs. The same one serves Lambda, the local runner, the tests and the command line."""

    store: Store
    locks: Locks
    outbox: Outbox
    sealer: Sealer
    settings: Settings
    deadline: Deadline
    clock: Clock
    tokens: TokenFactory
    telemetry: Telemetry
    middleware: Sequence[Middleware]
    loop: Callable[[], asyncio.AbstractEventLoop]

    def execute(self, job: Job, *, alone: bool = False) -> Outcome | GoneStale:
        """Run a job, or settle its message by what the record says; whatever was delivered before.

        Args:
            job: The job, read from its message.
            alone: Whether nothing else runs in this process now, so that a stale job may be taken over (G5).

        Returns:
            How the message ends, or `GoneStale`: the job is to be run alone, since its last attempt may have killed its
            process. No exception of the job, the store or the queue leaves this method.

        Raises:
            Signal: One that is not ours to handle.
        """
        if self._need(job) > self.deadline.total:
            return self._never_starts(job)
        if not self._may_start(job):
            return self._not_started(job)
        lease_ms = self._lease_ms(job)
        try:
            answer = claims.claim(self.store, self._request(job, lease_ms, alone=alone), self.clock, self.tokens)
            if isinstance(answer, claims.Claim):
                return self._run(job, answer, lease_ms)
            return self._settled(job, answer)
        except StoreError as error:
            # Nothing ran: the message is kept, and the next delivery decides by the record.
            return self._faulted(job, str(error))
        except ClaimLost as lost:
            return self._lost(job, lost)

    def _run(self, job: Job, claim: claims.Claim, lease_ms: int) -> Outcome:
        self._emit_claimed(job, claim)
        with ExitStack() as held:
            try:
                lock = held.enter_context(self._take(job, job.lock, claim)) if job.lock is not None else None
                self._lengthen(claim, lock, lease_ms)
            except LockBusy as busy:
                record = claim.give_back(self.clock.now_ms())
                self._emit(effect_events.LockWasBusy, job, record, lock=busy.name, until=busy.until)
                return ends.Deferred(busy.until)
            except StoreError:
                claim.give_back(self.clock.now_ms())
                raise
            if not self._may_start(job):
                claim.give_back(self.clock.now_ms())
                return self._not_started(job)
            return self._attempt(job, claim, lock, lease_ms)

    def _lengthen(self, claim: claims.Claim, lock: HeldLock | None, lease_ms: int) -> None:
        """Renew a lease that the claim and the lock were too slow for.

        The first renewal comes after a third of a lease, which must still hold by then.
        """
        now_ms = self.clock.now_ms()
        if not self.deadline.kills and (claim.record.lease_expires_at or 0) - now_ms < lease_ms * 2 / 3:
            claim.renew(now_ms + lease_ms)
            if lock is not None:
                lock.extend(now_ms + lease_ms)

    def _attempt(self, job: Job, claim: claims.Claim, lock: HeldLock | None, lease_ms: int) -> Outcome:
        payload = shown(job.payload) if self.settings.log_payloads else None
        self._emit(events.JobStarted, job, claim.record, payload=payload)
        started = self.clock.monotonic()
        context = context_of(
            job,
            claim,
            deadline=self.deadline,
            clock=self.clock,
            sealer=self.sealer,
            replayed=lambda step: self._emit(effect_events.StepReplayed, job, claim.record, step=step),
        )
        with self._leased(job, claim, lock, lease_ms):
            value, error = run(job, context, self.middleware, self.loop)
        ran = _Ran(value, error, round(self.clock.monotonic() - started, 3), context.effects)
        if (limit := job.job_type.max_duration) is not None and ran.seconds > limit:
            self._emit(events.JobOverran, job, claim.record, seconds=ran.seconds, max_duration=limit)
        try:
            if isinstance(error, StepNotRecorded):
                raise error.fault
            try:
                return self._end(job, claim, ran)
            except TransactionFailed as failed:
                # Neither the job's writes nor its completion happened: the attempt ends as one that raised.
                return self._end(job, claim, ran._replace(error=failed))
        except StoreError as fault:
            # Landed, the end is found by the next delivery; if not, the claim is left leased and goes stale.
            if error is None or (isinstance(error, StepNotRecorded) and error.ran):
                self._emit(events.EffectNotRecorded, job, claim.record, error=str(fault))
            said = "the job returned" if error is None else ends.describe(error)
            return self._faulted(job, f"{said}, and it is not known to be recorded: {fault}")

    def _end(self, job: Job, claim: claims.Claim, ran: _Ran) -> Outcome:
        now_ms, trace, attempt = self.clock.now_ms(), ends.trace_of(ran.error), claim.record.attempts
        kept_until, draw = job.message.kept_until, self.tokens.uniform
        unended = open_steps(claim.record.steps)
        match ends.end_of(ran.error, job.job_type, attempt, now_ms, draw, kept_until=kept_until, open_steps=unended):
            case ends.Complete():
                # Encoded before the write: what cannot be stored must not leave the effect unrecorded (G10).
                result = encode_result(ran.value, self.settings.result_limit)
                record = self._complete(claim, now_ms, result, ran.effects)
                if isinstance(result, ResultNotStored):
                    self._emit(events.ResultWasNotStored, job, record, reason=result.reason)
                self._emit(events.JobCompleted, job, record, seconds=ran.seconds)
                value = decode_result(record.result, record.result_not_stored)
                return ends.Completed(value, tuple(ran.effects.entries))
            case ends.Release(not_before, error, counted):
                record = claim.release(now_ms, not_before=not_before, error=error, counted=counted)
                known = {"not_before": not_before, "error": error, "counted": counted, "trace": trace}
                self._emit(events.JobReleased, job, record, **known)
                return ends.Released(not_before)
            case ends.RejectFor(reason):
                record = claim.reject(now_ms, error=reason)
            case ends.HoldFor(reason):
                record = claim.hold(error=reason)
            case end:
                assert_never(end)
        return self._ended(job, record, before=False, trace=trace)

    def _complete(self, claim: claims.Claim, now_ms: int, result: str | ResultNotStored, effects: Effects) -> Record:
        staged = [self.outbox.staged(entry.committed(now_ms)) for entry in effects.entries]
        try:
            return claim.complete(now_ms, result, [*(write.to_item() for write in effects.transaction.writes), *staged])
        except TransactionCancelled as cancelled:
            raise effects.failure(cancelled) from cancelled

    def _take(self, job: Job, name: str, claim: claims.Claim) -> HeldLock:
        """Take the job's lock for as long as its claim holds: its own retry gets it again after a crash."""
        return take(
            self.locks,
            name,
            holder=job.pk,
            token=claim.record.claimant,
            until=claim.record.lease_expires_at or 0,
            clock=self.clock,
            skew_ms=int(self.settings.clock_skew * 1000),
            lost=lambda reason: self.telemetry.emit(effect_events.LockWasLost(lock=name, reason=reason)),
        )

    def _settled(self, job: Job, decision: decisions.Settled) -> Outcome | GoneStale:
        match decision:
            case decisions.Replay(record):
                self._emit(events.JobReplayed, job, record)
                return ends.Replayed(decode_result(record.result, record.result_not_stored))
            case decisions.Busy(until):
                self._emit(events.JobDeferred, job, None, until=until)
                return ends.Deferred(until)
            case decisions.Stale(record):
                return ends.GoneStale(record.attempts)
            case decisions.Ended(record, before):
                return self._ended(job, record, before=before)
            case decisions.KeyReuse(record):
                reason = "key reuse: the idempotency key belongs to a job with another payload"
                told = f"{reason} ({record.pk})"
                self.telemetry.emit(events.MessageRefused(message_id=job.message.message_id, reason=told))
                return ends.RefusedMessage(DeadLetterNote(reason, job_type=job.job_type.name, idempotency_key=job.key))
            case _:
                assert_never(decision)

    def _ended(self, job: Job, record: Record, *, before: bool, trace: str | None = None) -> Outcome:
        note = DeadLetterNote(
            reason=str(record.status),
            error=record.error or "",
            job_type=job.job_type.name,
            idempotency_key=job.key,
            attempts=record.attempts,
            version=record.version,
        )
        if record.status is Status.UNCERTAIN:
            self._emit(events.JobHeld, job, record, reason=note.error, before=before, trace=trace)
            return ends.Uncertain(note)
        self._emit(events.JobRejected, job, record, reason=note.error, before=before, trace=trace)
        return ends.Rejected(note)

    def _lost(self, job: Job, lost: ClaimLost) -> Outcome:
        seen: Record | None = lost.seen
        if seen is not None and seen.status is Status.COMPLETED and seen.claimant == lost.own.claimant:
            # Our own completion had landed, unheard, before what it was refused for.
            return cast("Outcome", self._settled(job, decisions.Replay(seen)))
        status, winner = (str(seen.status), seen.claimant) if seen else (None, None)
        self._emit(events.ClaimWasLost, job, lost.own, status=status, winner=winner)
        return ends.TakenFromUs(completed=seen is not None and seen.status is Status.COMPLETED)

    def _need(self, job: Job) -> float:
        limit = job.job_type.max_duration
        return LEAST_SECONDS if limit is None else limit + self.settings.reserve

    def _may_start(self, job: Job) -> bool:
        return self.deadline.accepting and self.deadline.remaining() >= self._need(job)

    def _lease_ms(self, job: Job) -> int:
        if self.deadline.kills:
            return int(self.deadline.remaining() * 1000) + LEASE_MARGIN_MS
        return int((job.job_type.max_duration or OPEN_LEASE_SECONDS) * 1000)

    def _request(self, job: Job, lease_ms: int, *, alone: bool) -> Request:
        return Request(
            pk=job.pk,
            job_type=job.job_type.storage_name,
            idempotency_key=job.key,
            fingerprint=job.fingerprint,
            message_id=job.message.message_id,
            redriven_version=job.message.redriven_version_of(job.key),
            max_attempts=job.job_type.max_attempts,
            lease_ms=lease_ms,
            skew_ms=int(self.settings.clock_skew * 1000),
            retention_s=math.ceil(job.job_type.retention.total_seconds()),
            semantics=job.job_type.semantics,
            alone=alone,
        )

    def _leased(
        self, job: Job, claim: claims.Claim, lock: HeldLock | None, lease_ms: int
    ) -> AbstractContextManager[None]:
        if self.deadline.kills:
            return nullcontext()

        return renewing(
            claim,
            lease_ms=lease_ms,
            lock=lock,
            clock=self.clock,
            report=lambda error: self._emit(events.LeaseNotRenewed, job, claim.record, error=str(error)),
        )

    def _never_starts(self, job: Job) -> Outcome:
        reason = (
            f"{job.job_type.name} needs {self._need(job):g} s with the reserve, and this function had "
            f"{self.deadline.total:g} s at its start: raise FunctionTimeout, or declare a lower max_duration"
        )
        self.telemetry.emit(events.MessageUnserved(message_id=job.message.message_id, reason=reason))
        return ends.Unserved(reason)

    def _not_started(self, job: Job) -> Outcome:
        reason = "the time left is too short" if self.deadline.accepting else "the runner is stopping"
        self._emit(events.JobNotStarted, job, None, reason=reason)
        return ends.NotStarted(reason)

    def _emit_claimed(self, job: Job, claim: claims.Claim) -> None:
        previous = claim.previous
        if previous is not None and previous.status is Status.FAILED:
            self._emit(events.JobRetried, job, claim.record)
        elif previous is not None:
            self._emit(
                events.JobTakenOver,
                job,
                claim.record,
                previous_status=str(previous.status),
                previous_claimant=previous.claimant,
            )

    def _faulted(self, job: Job, reason: str) -> Outcome:
        self.telemetry.emit(events.MessageFaulted(message_id=job.message.message_id, reason=reason))
        return ends.Faulted(reason)

    def _emit(self, event: type[events.JobEvent], job: Job, record: Record | None, **values: Any) -> None:
        known: dict[str, Any] = {} if record is None else {"attempt": record.attempts, "claimant": record.claimant}
        self.telemetry.emit(
            event(job_type=job.job_type.name, key=job.key, message_id=job.message.message_id, **(known | values))
        )
