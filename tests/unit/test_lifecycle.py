"""The tables of docs/lifecycle.md, cell by cell, against the code that decides and writes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest

from kit.clock import FakeLambdaContext
from kit.tables import LIFECYCLE, table
from kit.world import TABLE, event_of, kept
from onceq import Context, Reject, Retry, Snooze, recovery, resolving
from onceq import decision as decisions
from onceq import outcome as ends
from onceq.claim import Claim, claim, decide
from onceq.clock import OpenDeadline
from onceq.errors import (
    ClaimLost,
    ConditionNotMet,
    JobTimedOut,
    ResolveRefused,
    StepUncertain,
    StoreUnavailable,
    TransactionContended,
    TransactionDenied,
    TransactionRefused,
)
from onceq.job_type import JobType
from onceq.locks import LockItem
from onceq.message import DeadLetterNote
from onceq.record import Record, Semantics, Status
from onceq.retry import Backoff
from onceq.runtime import Runtime
from onceq.steps import open_steps, read_steps
from onceq.store import Refused, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World
    from onceq.clock import Deadline

STATES = table("states")
DECIDED = table("sweep and people")
ENDS = table("ends")
OUTCOMES = table("outcomes")

NOW = 1_795_953_600_000
SKEW_MS = 10_000
MAX_ATTEMPTS = 5

BASE = Record(
    pk="pay#k-1",
    job_type="pay",
    idempotency_key="k-1",
    status=Status.PROCESSING,
    claimant="owner",
    version=3,
    fencing_token=NOW - 100_000,
    attempts=2,
    created_at=NOW - 200_000,
    expires_at=NOW // 1000 + 1_000,
    payload_fingerprint="same",
    message_id="m-1",
    lease_expires_at=NOW - SKEW_MS,
)
OVER = {"expires_at": NOW // 1000}
FAILED: dict[str, Any] = {"status": Status.FAILED, "lease_expires_at": None, "error": "boom"}
COMPLETED = {"status": Status.COMPLETED, "lease_expires_at": None, "completed_at": NOW - 1, "result": '"done"'}
REJECTED = {"status": Status.REJECTED, "lease_expires_at": None, "error": "no"}
AT_MOST_ONCE = {"semantics": Semantics.AT_MOST_ONCE}
STEP_STARTED = {"steps": '{"charge":{"result":{"id":"ch_1"}},"call":{"started":1795953500000}}'}

# Each state at its edge: one millisecond or one second earlier or later it is another row.
ROWS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "processing, live": {"lease_expires_at": NOW - SKEW_MS + 1},
    "processing, stale": {},
    "processing, stale, attempts used up": {"attempts": MAX_ATTEMPTS},
    "processing, stale, at most once": AT_MOST_ONCE,
    "processing, stale, a step was started": STEP_STARTED,
    "failed, waiting": FAILED | {"not_before": NOW + 1},
    "failed, due": FAILED | {"not_before": NOW},
    "failed, due, at most once": FAILED | AT_MOST_ONCE | {"not_before": NOW, "expires_at": None},
    "failed, due, a step was started": FAILED | STEP_STARTED | {"not_before": NOW},
    "failed, given back after going stale": FAILED | {"not_before": NOW, "went_stale": 1},
    "failed, marked by recovery": FAILED | {"not_before": NOW, "went_stale": 1, "error": recovery.STALE},
    "failed, resolved for another attempt": FAILED
    | AT_MOST_ONCE
    | {"not_before": NOW, "attempts": 0, "resolved_at": NOW, "expires_at": None},
    "failed, attempts used up": FAILED | {"not_before": NOW, "attempts": MAX_ATTEMPTS},
    "failed, past retention": FAILED | {"not_before": NOW - 1} | OVER,
    "completed": COMPLETED | {"expires_at": NOW // 1000 + 1},
    "completed, past retention": COMPLETED | OVER,
    "rejected": REJECTED | {"expires_at": NOW // 1000 + 1},
    "rejected, last start went stale": REJECTED | {"went_stale": 1},
    "rejected, at most once": REJECTED | AT_MOST_ONCE,
    "rejected, a step was started": REJECTED | STEP_STARTED,
    "rejected, past retention": REJECTED | OVER,
    "uncertain": AT_MOST_ONCE
    | {"status": Status.UNCERTAIN, "lease_expires_at": None, "expires_at": None, "error": "may have happened"},
}
DELIVERIES: dict[str, dict[str, Any]] = {
    "Delivery": {},
    "Delivery with another payload": {"fingerprint": "another"},
    "Redrive, this version": {"redriven_version": BASE.version},
    "Redrive, an older version": {"redriven_version": BASE.version - 1},
}
OWN_END, LATE = "Its claimant's end", "A zombie's or late write"


def record_of(row: str) -> Record | None:
    """Return the record of a row."""
    changes = ROWS[row]
    return None if changes is None else replace(BASE, **changes)


def request_of(column: str, *, alone: bool) -> decisions.Request:
    """Return what a delivery of a column asks."""
    asked = decisions.Request(
        pk=BASE.pk,
        job_type=BASE.job_type,
        idempotency_key=BASE.idempotency_key,
        fingerprint="same",
        message_id="m-2",
        redriven_version=None,
        max_attempts=MAX_ATTEMPTS,
        lease_ms=30_000,
        skew_ms=SKEW_MS,
        retention_s=600,
        alone=alone,
    )
    return replace(asked, **DELIVERIES[column])


def put(world: World, record: Record | None) -> Store:
    """Let this record, or none, stand in the table."""
    world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": BASE.pk}})
    if record is not None:
        world.dynamodb.put_item(TableName=TABLE, Item=record.to_item())
    return world.runtime.store(OpenDeadline())


def expected_decision(cell: str, record: Record, *, alone: bool) -> decisions.Decision:
    """Translate the words of a cell; words that are not known fail."""
    where_alone = cell.removesuffix(", alone")
    if where_alone != cell:
        return expected_decision(where_alone, record, alone=alone) if alone else decisions.Stale(record)
    known: dict[str, Callable[[], decisions.Decision]] = {
        "busy until lease and skew are over": lambda: decisions.Busy(int(record.lease_expires_at or 0) + SKEW_MS),
        "busy until `not_before`": lambda: decisions.Busy(int(record.not_before or 0)),
        "key reuse": lambda: decisions.KeyReuse(record),
        "take over": lambda: decisions.TakeOver(record.attempts + 1),
        "take over as attempt 1": lambda: decisions.TakeOver(1),
        "reject": decisions.Exhausted,
        "hold": decisions.Hold,
        "replay": lambda: decisions.Replay(record),
        "end again": lambda: decisions.Ended(record, before=True),
    }
    return known[cell]()


def test_the_state_table_names_every_state_and_only_states() -> None:
    """A status that is missing from the table, or a row that the test does not build, fails."""
    assert list(STATES) == list(ROWS)
    assert {row.partition(",")[0] for row in STATES} == {"none", *Status}
    assert all(list(cells) == [*DELIVERIES, OWN_END, LATE] for cells in STATES.values())
    for row in ROWS:
        record = record_of(row)
        assert record is None or record.status == row.partition(",")[0]


def test_the_state_table_has_every_decision() -> None:
    """A decision that no cell leads to is missing from the table."""
    found: set[type] = set()
    for row, cells in STATES.items():
        record = record_of(row)
        for column in DELIVERIES:
            if record is not None and cells[column] != "claim":
                found |= {type(expected_decision(cells[column], record, alone=alone)) for alone in (False, True)}

    assert found == set(get_args(decisions.Decision))
    assert set(get_args(decisions.Settled)) < found


@pytest.mark.parametrize("alone", [False, True], ids=["beside-others", "alone"])
def test_a_delivery_does_what_its_cell_says(world: World, subtests: pytest.Subtests, *, alone: bool) -> None:
    """G1, G3: the decision and what stands in the table afterwards are those of the cell."""
    for row in ROWS:
        for column in DELIVERIES:
            with subtests.test(row=row, column=column):
                check_delivery(world, row, column, alone=alone)


def check_delivery(world: World, row: str, column: str, *, alone: bool) -> None:
    """Check one cell of a delivery's column."""
    cell, record = STATES[row][column], record_of(row)
    request = request_of(column, alone=alone)
    store = put(world, record)

    answer = claim(store, request, world.clock, world.tokens)
    after = store.get(BASE.pk)

    if cell == "claim":
        assert isinstance(answer, Claim)
        assert after == answer.record
        assert (after.attempts, after.version, after.status) == (1, 1, Status.PROCESSING)
        assert (answer.previous, after.error, after.result) == (None, None, None)
        return
    assert record is not None
    expected = expected_decision(cell, record, alone=alone)
    assert decide(record, request, world.clock.now_ms()) == expected
    match expected:
        case decisions.TakeOver(attempt):
            assert isinstance(answer, Claim)
            assert after == answer.record
            assert (after.attempts, after.version, answer.previous) == (attempt, record.version + 1, record)
            assert after.fencing_token > record.fencing_token
            assert after.claimant != record.claimant
        case decisions.Exhausted() | decisions.Hold():
            status = Status.REJECTED if isinstance(expected, decisions.Exhausted) else Status.UNCERTAIN
            assert after is not None
            assert answer == decisions.Ended(after, before=False)
            assert (after.status, after.version, after.attempts) == (status, record.version + 1, record.attempts)
            assert after.claimant != record.claimant
            assert (after.expires_at is None) == (status is Status.UNCERTAIN)
        case _:
            assert answer == expected
            assert after == record


def own_end(store: Store, held: Record, target: Record) -> Record | Refused[Record]:
    """The write of the claimant ``held`` that leaves ``target``."""
    match target.status:
        case Status.COMPLETED:
            assert target.result is not None
            assert target.completed_at is not None
            assert target.expires_at is not None
            return store.complete(held, now_ms=target.completed_at, expires_at=target.expires_at, result=target.result)
        case Status.FAILED:
            assert target.not_before is not None
            if target.resolved_at is not None:
                return store.resolve(held, target)
            if target.error == recovery.STALE:
                return store.mark_stale(held, claimant=held.claimant, now_ms=target.not_before, error=recovery.STALE)
            if target.went_stale:
                return store.give_back(held, now_ms=target.not_before)
            return store.release(
                held,
                not_before=target.not_before,
                expires_at=target.expires_at,
                error=target.error,
                attempts=target.attempts,
            )
        case Status.REJECTED:
            assert target.expires_at is not None
            return store.reject(
                held,
                claimant=held.claimant,
                expires_at=target.expires_at,
                error=str(target.error),
                went_stale=target.went_stale,
            )
        case _:
            return store.hold(held, claimant=held.claimant, error=str(target.error))


# A write of the job's own, which is committed with its completion.
LATE_DELETE = {"Delete": {"TableName": TABLE, "Key": {"pk": {"S": "nothing"}}}}


def every_write(store: Store, held: Record) -> dict[str, Record | Refused[Record]]:
    """Try every write there is on the record that its writer believes in."""
    later = NOW // 1000 + 5
    return {
        "step": store.step(held, steps='{"late":{"result":1}}', expires_at=None),
        "complete": store.complete(held, now_ms=NOW, expires_at=later, result="1"),
        "commit": store.commit(held, [LATE_DELETE], now_ms=NOW, expires_at=later, result="1"),
        "release": store.release(held, not_before=NOW, expires_at=later, error="late", attempts=held.attempts),
        "give_back": store.give_back(held, now_ms=NOW),
        "reject": store.reject(held, claimant=held.claimant, expires_at=later, error="late"),
        "hold": store.hold(held, claimant=held.claimant, error="late"),
        "renew": store.renew(held, lease_expires_at=NOW + 99),
        "take_over": store.take_over(held, replace(held, claimant="taker", version=held.version + 1)),
        "mark_stale": store.mark_stale(held, claimant="sweep", now_ms=NOW, error="late"),
        "resolve": store.resolve(held, replace(held, claimant="person", version=held.version + 1)),
    }


def test_the_claimants_own_end_does_what_its_cell_says(world: World, subtests: pytest.Subtests) -> None:
    """G2, G11: an end is recorded, or recognised when it arrives twice, or lost."""
    for row in ROWS:
        with subtests.test(row=row):
            check_own_end(world, row)


def check_own_end(world: World, row: str) -> None:
    """Check one cell of the claimant's column."""
    cell, record = STATES[row][OWN_END], record_of(row)
    if cell == "lost":
        answers = every_write(put(world, record), BASE)
        assert all(answer == Refused(record) for answer in answers.values()), answers
        return
    assert record is not None
    if cell == "recorded":
        ended = replace(record, version=record.version + 1, lease_expires_at=None)
        for changes in (COMPLETED, FAILED | {"not_before": NOW + 9}, REJECTED, {"status": Status.UNCERTAIN}):
            store = put(world, record)
            target = replace(ended, **changes)
            if target.status is Status.UNCERTAIN:
                target = replace(target, expires_at=None, error="unknown")
            elif target.status is Status.COMPLETED:
                target = replace(target, steps=None)
            assert own_end(store, record, target) == target
            assert store.get(BASE.pk) == target
        store = put(world, record)
        steps = '{"charge":{"result":1}}'
        noted = store.step(record, steps=steps, expires_at=record.expires_at)
        assert noted == store.get(BASE.pk) == replace(record, version=record.version + 1, steps=steps)
        return
    assert cell == "recognised"
    held = replace(
        record,
        status=Status.PROCESSING,
        version=record.version - 1,
        lease_expires_at=NOW,
        not_before=None,
        result=None,
        completed_at=None,
        error=None,
        expires_at=NOW // 1000 + 77,
    )
    if record.error == recovery.STALE:
        held = replace(held, expires_at=record.expires_at)
    elif record.went_stale and record.status is Status.FAILED:
        known: dict[str, Any] = {"went_stale": 1, "error": record.error, "expires_at": record.expires_at}
        held = replace(held, attempts=record.attempts + 1, **known)
    store = put(world, held)
    first, second = own_end(store, held, record), own_end(store, held, record)
    assert first == second == store.get(BASE.pk) == record


def test_a_zombies_or_late_write_does_what_its_cell_says(world: World, subtests: pytest.Subtests) -> None:
    """G2: whatever a zombie writes, and whatever lands late, changes nothing."""
    for row in ROWS:
        with subtests.test(row=row):
            check_late_writes(world, row)


def check_late_writes(world: World, row: str) -> None:
    """Check one cell of the zombie's column."""
    assert STATES[row][LATE] == "lost"
    record = record_of(row)
    store = put(world, record)
    zombie = replace(BASE, claimant="zombie")

    for held in (zombie, replace(BASE, version=BASE.version - 1), replace(zombie, version=BASE.version - 1)):
        answers = every_write(store, held)
        assert all(answer == Refused(record) for answer in answers.values()), answers
    assert store.get(BASE.pk) == record

    ends_of_claim: list[Callable[[Claim], object]] = [
        lambda held: held.step("late", {"result": 1}),
        lambda held: held.complete(NOW, "1"),
        lambda held: held.complete(NOW, "1", [LATE_DELETE]),
        lambda held: held.release(NOW, not_before=NOW, error="late", counted=True),
        lambda held: held.give_back(NOW),
        lambda held: held.reject(NOW, error="late"),
        lambda held: held.hold(error="late"),
        lambda held: held.renew(NOW),
    ]
    for end in ends_of_claim:
        with pytest.raises(ClaimLost) as lost:
            end(Claim(store, zombie, request_of("Delivery", alone=True), previous=None))
        assert lost.value.seen == record
    assert store.get(BASE.pk) == record


def test_the_diagram_shows_every_state_and_every_end() -> None:
    """The one diagram names the five states, and no other."""
    diagram = LIFECYCLE.read_text(encoding="utf-8").partition("```mermaid\n")[2].partition("```")[0]
    arrows = re.findall(r"^ *(\S+) --> ([^:\s]+): (.+)$", diagram, re.MULTILINE)

    assert LIFECYCLE.read_text(encoding="utf-8").count("```mermaid") == 1
    assert {state for arrow in arrows for state in arrow[:2]} == {"[*]", *Status}
    assert {label for source, _, label in arrows if source == "processing"} == {
        "complete",
        "release, or marked by recovery",
        "reject",
        "hold, or marked by recovery",
        "renew, record a step, or take over when stale",
    }
    assert ("[*]", "processing", "claim") in arrows
    held = {row.partition(",")[0] for row, cells in STATES.items() if "hold" in cells.values()}
    assert {source for source, target, label in arrows if target == "uncertain" and "hold" in label} == held
    shown = {(source, target) for source, target, label in arrows if "resolved" in label}
    found = {
        (row.partition(",")[0], cells[column])
        for row, cells in DECIDED.items()
        for column in RESOLVED
        if cells[column] != "refused"
    }
    assert shown == {(source, target) for source, target in found if source != target}
    marked = {target for source, target, label in arrows if "recovery" in label}
    assert marked == {cells["Recovery"] for cells in DECIDED.values()} - {"passed over"}


RESOLVED: dict[str, resolving.Decision] = {
    'Resolved `"done"`': "done",
    'Resolved `"retry"`': "retry",
    'Resolved `"reject"`': "reject",
}


def test_the_table_of_recovery_and_people_names_every_state() -> None:
    """What stands in the table of deliveries stands here too."""
    assert list(DECIDED) == list(ROWS)
    assert all(list(cells) == ["Recovery", *RESOLVED] for cells in DECIDED.values())


def test_recovery_does_what_its_cell_says(world: World, subtests: pytest.Subtests) -> None:
    """G6, G9: stale claims alone are marked, with a token of the sweep's own; nothing runs."""
    for row in ROWS:
        with subtests.test(row=row):
            record, cell = record_of(row), DECIDED[row]["Recovery"]
            store = put(world, record)

            answer = world.app().recovery(None, FakeLambdaContext())

            after = store.get(BASE.pk)
            counted = {name: answer[name] for name in ("failed", "uncertain", "lost", "finished")}
            assert counted == {
                "failed": cell == "failed",
                "uncertain": cell == "uncertain",
                "lost": 0,
                "finished": True,
            }
            if cell == "passed over":
                assert after == record
                continue
            assert record is not None
            assert after is not None
            assert (after.status, after.version, after.attempts) == (cell, record.version + 1, record.attempts)
            assert after.claimant not in (record.claimant, "")
            assert (after.steps, after.lease_expires_at) == (record.steps, None)
            if cell == "failed":
                assert (after.went_stale, after.not_before, after.error) == (1, NOW, recovery.STALE)
            else:
                assert (after.went_stale, after.expires_at, after.error) == (1, None, recovery.UNCERTAIN)


@pytest.mark.parametrize("column", RESOLVED)
def test_a_persons_decision_does_what_its_cell_says(world: World, subtests: pytest.Subtests, column: str) -> None:
    """G9: what has ended, or waits, can be resolved; what runs or is completed cannot."""
    app, decision = world.app(JobType(returns, "pay")), RESOLVED[column]
    for row in ROWS:
        with subtests.test(row=row):
            record, cell = record_of(row), DECIDED[row][column]
            store = put(world, record)

            if cell == "refused":
                with pytest.raises(ResolveRefused):
                    app.resolve("pay", "k-1", decision, result="by hand", reason="looked")
                assert store.get(BASE.pk) == record
                continue
            assert record is not None
            answer = app.resolve("pay", "k-1", decision, result="by hand", reason="looked", version=record.version)

            after = store.get(BASE.pk)
            assert after is not None
            assert (answer.status, after.status, after.version) == (cell, cell, record.version + 1)
            assert after.claimant != record.claimant
            if decision == "done":
                assert (after.result, after.steps, after.error) == ('"by hand"', None, None)
            elif decision == "reject":
                assert (after.error, after.steps) == ("looked", record.steps)
            else:
                assert (after.attempts, after.not_before, after.resolved_at) == (0, NOW, NOW)
                assert open_steps(after.steps) == []
                assert read_steps(after.steps).keys() == read_steps(record.steps).keys() - {*open_steps(record.steps)}
                forgotten = record.expires_at is not None and record.semantics is Semantics.AT_LEAST_ONCE
                assert (after.expires_at is not None) == forgotten


class Declined(Exception):
    """Stands for a permanent error."""


RAISED: dict[str, BaseException | None] = {
    "returns": None,
    "raises `Retry()`": Retry(),
    "raises `Retry(delay=30)`": Retry(delay=30),
    "raises `Snooze(60)`": Snooze(60),
    "raises `Reject(reason)`": Reject("no"),
    "raises a class in `reject=`": Declined("no"),
    "raises another exception": RuntimeError("boom"),
    "raises `SystemExit`": SystemExit(1),
    "is cancelled at `max_duration`": JobTimedOut("cancelled after max_duration, 1 s"),
    "is ended by `StepUncertain`": StepUncertain("nobody knows"),
    "returns, an at-most-once step still open": None,
    "raises `Retry()`, an at-most-once step still open": Retry(),
    "raises `Reject(reason)`, an at-most-once step still open": Reject("no"),
    "is ended by `StepNotRecorded`": None,
    "returns, and a condition of its transaction does not hold": ConditionNotMet(
        "x", write="x", item=None, rejects=False
    ),
    'the same, with `on_conflict="reject"`': ConditionNotMet("x", write="x", item=None, rejects=True),
    "returns, and its transaction is contended": TransactionContended("others wrote the same items"),
    "returns, and a table is missing or may not be written": TransactionDenied("AccessDeniedException"),
    "returns, and its transaction is refused": TransactionRefused("too large"),
}
# Decided by no function: the executor writes nothing.
LEFT_LEASED = "is ended by `StepNotRecorded`"
ATTEMPTS = {
    "Attempts left": (MAX_ATTEMPTS - 1, Semantics.AT_LEAST_ONCE),
    "Last attempt": (MAX_ATTEMPTS, Semantics.AT_LEAST_ONCE),
    "At most once, attempts left": (MAX_ATTEMPTS - 1, Semantics.AT_MOST_ONCE),
    "At most once, last attempt": (MAX_ATTEMPTS, Semantics.AT_MOST_ONCE),
}
BACKOFF = Backoff(base=2, cap=100)


def checked_end(cell: str, end: ends.End, attempt: int) -> type[ends.End]:
    """Check one cell of the end table and return which end it is."""
    if cell == "complete":
        assert end == ends.Complete()
    elif cell == "hold":
        assert isinstance(end, ends.HoldFor)
    elif cell.startswith("reject"):
        assert isinstance(end, ends.RejectFor)
        assert end.reason.startswith("attempts used up (5 of 5): ") == (cell == "reject, attempts used up")
    else:
        known = {
            "release for the back-off": (BACKOFF.limit(attempt), True),
            "release for up to 30 s, not counted": (30, False),
            "release for up to 15 min, not counted": (900, False),
            "release for 30 s": (30, True),
            "release for 60 s, not counted": (60, False),
        }
        seconds, counted = known[cell]
        assert isinstance(end, ends.Release)
        assert (end.not_before, end.counted) == (NOW + seconds * 1000, counted)
    return type(end)


def test_the_end_table_holds_in_every_cell() -> None:
    """What a job returns or raises, and the attempts left, say how its attempt ends."""
    assert list(ENDS) == list(RAISED)
    found = set()
    for row, cells in ENDS.items():
        assert list(cells) == list(ATTEMPTS)
        if row == LEFT_LEASED:
            assert {*cells.values()} == {"kept, left leased"}
            continue
        for column, (attempt, semantics) in ATTEMPTS.items():
            job_type = JobType(
                returns,
                "pay",
                max_attempts=MAX_ATTEMPTS,
                backoff=BACKOFF,
                reject=(Declined,),
                semantics=semantics,
            )
            still_open = ["call"] if row.endswith("still open") else []
            end = ends.end_of(RAISED[row], job_type, attempt, NOW, max, open_steps=still_open)
            found.add(checked_end(cells[column], end, attempt))
    assert found == set(get_args(ends.End))


@pytest.mark.parametrize("column", ATTEMPTS)
def test_a_step_that_is_not_recorded_ends_as_its_row_says(world: World, column: str) -> None:
    """G4, G6: the message is kept, nothing is written, and the claim is left to go stale."""
    attempt, semantics = ATTEMPTS[column]
    assert ENDS[LEFT_LEASED][column] == "kept, left leased"
    before = replace(
        BASE, **FAILED, not_before=NOW, attempts=attempt - 1, semantics=semantics, payload_fingerprint=None
    )
    put(world, before)

    def stepping(payload: dict[str, Any], ctx: Context) -> None:
        runtime.failing = True
        try:
            ctx.step("charge", lambda: 1)
        finally:
            runtime.failing = False  # an end would be written, if one were tried

    runtime = FaultyFromNow(world.runtime, "UpdateItem")
    job_type = JobType(stepping, "pay", max_attempts=MAX_ATTEMPTS, semantics=semantics)
    message = world.message("pay")
    answer = world.app(job_type, runtime=runtime).consumer(event_of(message), FakeLambdaContext())

    after = world.record("pay", "k-1")
    assert kept(answer) == [message["messageId"]]
    assert after is not None
    assert (after.status, after.attempts, after.version) == (Status.PROCESSING, attempt, before.version + 1)
    assert (after.steps, world.dead_letters()) == (None, [])


NOTE = DeadLetterNote("why")
INSTANCES: dict[str, ends.Outcome] = {
    "Completed": ends.Completed(1),
    "Replayed": ends.Replayed(1),
    "Deferred": ends.Deferred(NOW + 7_500),
    "Deferred, its lock is held": ends.Deferred(NOW + 7_500),
    "Released": ends.Released(NOW + 7_500),
    "Rejected": ends.Rejected(NOTE),
    "RefusedMessage": ends.RefusedMessage(NOTE),
    "Uncertain": ends.Uncertain(NOTE),
    "NotStarted": ends.NotStarted("why"),
    "TakenFromUs, theirs is completed": ends.TakenFromUs(completed=True),
    "TakenFromUs, theirs is not": ends.TakenFromUs(completed=False),
    "Unserved": ends.Unserved("why"),
    "NoWork": ends.NoWork("why"),
    "Faulted": ends.Faulted("why"),
}
ANSWERS = {
    "acknowledged": ends.Answer(keep=False),
    "kept": ends.Answer(keep=True),
    "kept, visible at once": ends.Answer(keep=True, visible_in=0),
    "kept, visible at `not_before`": ends.Answer(keep=True, visible_in=8),
    "kept, visible at `until` plus jitter": ends.Answer(keep=True, visible_in=11),
    "copied, then acknowledged": ends.Answer(keep=False, copy=NOTE),
}


def test_the_outcome_table_names_every_outcome_and_its_answer() -> None:
    """Each outcome has one answer to SQS; an outcome class that is missing from the table fails."""
    assert list(OUTCOMES) == list(INSTANCES)
    assert {row.partition(",")[0] for row in OUTCOMES} == {cls.__name__ for cls in get_args(ends.Outcome)}
    for row, cells in OUTCOMES.items():
        outcome = INSTANCES[row]
        assert type(outcome).__name__ == row.partition(",")[0]
        assert ends.answer_of(outcome, NOW, 3.0) == ANSWERS[cells["Answer to SQS"]], row
    assert {cells["Answer to SQS"] for cells in OUTCOMES.values()} == set(ANSWERS)


def test_a_wait_is_rounded_up_and_below_twelve_hours() -> None:
    """SQS takes whole seconds and 12 hours in all; a moment too soon would only find the record still busy."""

    def visible(until: int) -> int | None:
        return ends.answer_of(ends.Released(until), NOW, 0).visible_in

    assert [visible(NOW - 5), visible(NOW), visible(NOW + 1), visible(NOW + 1000)] == [0, 0, 1, 1]
    assert visible(NOW + 10**12) == ends.LONGEST_VISIBILITY < 43_200


class Faulty(Runtime):
    """A runtime whose claims table does not answer one operation."""

    failing = True

    def __init__(self, base: Runtime, operation: str) -> None:
        super().__init__(base.settings, clock=base.clock, tokens=base.tokens)
        self._base = base
        self._operation = operation

    def store(self, deadline: Deadline) -> Store:
        """Return the claims table behind the fault."""
        inner = self._base.store(deadline)
        runtime = self

        class Seam:
            def call(self, operation: str, request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
                if operation == runtime._operation and runtime.failing:
                    raise StoreUnavailable
                return inner.dynamodb.call(operation, request, deadline)

        return Store(Seam(), inner.table, deadline)  # type: ignore[arg-type]  # it stands in for the seam


class FaultyFromNow(Faulty):
    """A runtime whose claims table answers until it is told not to."""

    failing = False


def returns(payload: dict[str, Any]) -> int:
    """Return."""
    return 1


def refuses(payload: dict[str, Any]) -> None:
    """Ask for the end."""
    raise Reject("no")


def fails(payload: dict[str, Any]) -> None:
    """Fail."""
    raise RuntimeError("boom")


def loses(world: World, *, completing: bool) -> Callable[..., None]:
    """Return a job that somebody else takes over while it runs."""

    def lost(payload: dict[str, Any], ctx: Context) -> None:
        store = world.runtime.store(OpenDeadline())
        seen = store.get("pay#k-1")
        assert seen is not None
        taken = store.take_over(seen, replace(seen, claimant="thief", version=seen.version + 1))
        assert isinstance(taken, Record)
        if completing:
            store.complete(taken, now_ms=NOW, expires_at=NOW // 1000 + 60, result="2")

    return lost


def test_an_outcome_leaves_the_record_and_the_message_as_its_row_says(world: World, subtests: pytest.Subtests) -> None:
    """G3, G4: the record, the answer and the dead-letter queue after each outcome, on a real table."""
    for row in OUTCOMES:
        with subtests.test(row=row):
            put(world, None)
            world.dynamodb.delete_item(TableName=TABLE, Key={"pk": {"S": "~lock#report"}})
            check_outcome(world, row)


ARRANGED: dict[str, Callable[[World], dict[str, Any]]] = {
    "Completed": lambda world: {},
    "Replayed": lambda world: {"earlier": {"n": 1}},
    "Deferred": lambda world: {"record": replace(BASE, lease_expires_at=NOW + 9, payload_fingerprint=None)},
    "Deferred, its lock is held": lambda world: {"lock": "report"},
    "Released": lambda world: {"function": fails},
    "Rejected": lambda world: {"function": refuses},
    "RefusedMessage": lambda world: {"earlier": {"n": 2}},
    "Uncertain": lambda world: {"function": fails, "semantics": Semantics.AT_MOST_ONCE},
    "NotStarted": lambda world: {"context": FakeLambdaContext(0)},
    "TakenFromUs, theirs is completed": lambda world: {"function": loses(world, completing=True)},
    "TakenFromUs, theirs is not": lambda world: {"function": loses(world, completing=False)},
    "Unserved": lambda world: {"name": "unknown"},
    "NoWork": lambda world: {"body": '{"Service": "Amazon S3", "Event": "s3:TestEvent"}'},
    "Faulted": lambda world: {"runtime": Faulty(world.runtime, "UpdateItem")},
}


def check_outcome(world: World, row: str) -> None:
    """Check the record, the answer and the dead-letter queue of one row."""
    given = ARRANGED[row](world)
    if "earlier" in given:
        earlier = world.message("pay", given["earlier"])
        world.app(JobType(returns, "pay")).consumer(event_of(earlier), FakeLambdaContext())
    if "record" in given:
        put(world, given["record"])
    message, before = world.message(given.get("name", "pay"), {"n": 1}), world.record("pay", "k-1")
    message["body"] = given.get("body", message["body"])
    options = {name: given[name] for name in ("semantics", "lock") if name in given}
    job_type = JobType(given.get("function", returns), "pay", **options)
    if "lock" in given:
        lock = LockItem(f"~lock#{given['lock']}", holder="another", token="t", lease_expires_at=NOW + 9, expires_at=NOW)
        world.dynamodb.put_item(TableName=TABLE, Item=lock.to_item())

    app = world.app(job_type, runtime=given.get("runtime"))
    answer = app.consumer(event_of(message), given.get("context", FakeLambdaContext()))

    after, cells = world.record("pay", "k-1"), OUTCOMES[row]
    match cells["Record"]:
        case "untouched":
            assert after == before
        case "theirs":
            assert after is not None
            assert after.claimant == "thief"
        case "unchanged or leased":
            assert after is not None
            assert after.status is Status.PROCESSING
        case status:
            assert after is not None
            assert after.status == Status(status)
    copies = world.dead_letters()
    assert len(copies) == cells["Answer to SQS"].startswith("copied")
    assert kept(answer) == ([message["messageId"]] if cells["Answer to SQS"].startswith("kept") else [])


def test_a_claim_that_cannot_be_made_runs_nothing_and_keeps_the_message(world: World) -> None:
    """G4: where the table does not take the claim, the effect is not run and the record is unchanged."""
    runs: list[int] = []

    def pay(payload: dict[str, Any]) -> None:
        runs.append(1)

    app = world.app(JobType(pay, "pay"), runtime=Faulty(world.runtime, "PutItem"))
    message = world.message("pay")

    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    assert (runs, world.record("pay", "k-1")) == ([], None)
