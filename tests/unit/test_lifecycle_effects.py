"""The tables of docs/lifecycle.md about steps, the outbox and bad input of effects, cell by cell, against the code."""

from __future__ import annotations

import json
import re
from asyncio import CancelledError
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.sqs import FakeSqs, SpiedRuntime
from kit.tables import table
from kit.world import OUTBOX_TABLE, TABLE, create_table, event_of, kept
from onceq import Context, Reject, Retry, Snooze, relay, resolving
from onceq import decision as decisions
from onceq import outcome as ends
from onceq.claim import decide
from onceq.clock import OpenDeadline
from onceq.errors import Signal, StepNotRecorded, StepUncertain, StoreUnavailable
from onceq.job_type import JobType
from onceq.locks import LockItem
from onceq.outbox import Delivery, OutboxEntry
from onceq.record import Record, Semantics, Status
from onceq.sealing import Sealer
from onceq.steps import Steps, read_steps, with_step
from onceq.store import Refused
from onceq.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.world import World

STEPS = table("steps")
STEP_ENDS = table("step ends")
OUTBOX = table("outbox")
BAD_INPUT = table("bad input of effects")

NOW = 1_795_953_600_000
SKEW_MS = 10_000

STALE = Record(
    pk="pay#k-1",
    job_type="pay",
    idempotency_key="k-1",
    status=Status.PROCESSING,
    claimant="owner",
    version=3,
    fencing_token=NOW - 100_000,
    attempts=2,
    created_at=NOW - 200_000,
    lease_expires_at=NOW - SKEW_MS,
)
DELIVERY = decisions.Request(
    pk=STALE.pk,
    job_type=STALE.job_type,
    idempotency_key=STALE.idempotency_key,
    fingerprint=None,
    message_id="m-2",
    redriven_version=None,
    max_attempts=5,
    lease_ms=30_000,
    skew_ms=SKEW_MS,
    retention_s=600,
    alone=True,
)


def returns(payload: dict[str, Any]) -> int:
    """Return."""
    return 1


SEMANTICS = {"Called at least once": Semantics.AT_LEAST_ONCE, "Called at most once": Semantics.AT_MOST_ONCE}
STALE_COLUMN, RETRY_COLUMN = "Its claim goes stale", 'Resolved `"retry"`'
RECORDED = {
    "nothing": None,
    "started": {"started": NOW},
    "done": {"result": "recorded"},
    "done, result not stored": {"not_stored": "too large"},
}


def word_of(text: str | None) -> str:
    """Return the table's word for what is recorded of the step ``call``."""
    state = read_steps(text).get("call")
    return next(word for word, known in RECORDED.items() if (state or {}).keys() == (known or {}).keys())


@dataclass
class Recorder:
    """Stands for the claim: the text of the steps, and every state that was written."""

    text: str | None = None
    written: list[object] = field(default_factory=list)
    fails_at: type | None = None

    def write(self, name: str, state: Any) -> None:
        """Record a state, or do not answer where it is a result and should not be recorded."""
        if self.fails_at is not None and "result" in (state or {}):
            raise StoreUnavailable
        self.written.append(state)
        self.text = with_step(self.text, name, state)

    def steps(self) -> Steps:
        """Return the steps of an attempt on it."""
        return Steps(write=self.write, now_ms=lambda: NOW, text=self.text)


@pytest.mark.parametrize("column", SEMANTICS)
@pytest.mark.parametrize("row", RECORDED)
def test_a_call_of_a_step_does_what_its_cell_says(row: str, column: str) -> None:
    """G6, G9: what is recorded says whether the function is called."""
    assert list(STEPS) == list(RECORDED)
    assert list(STEPS[row]) == [*SEMANTICS, STALE_COLUMN, RETRY_COLUMN]
    recorder = Recorder(with_step(None, "call", RECORDED[row]))
    steps, calls = recorder.steps(), []

    def call() -> str:
        calls.append([*recorder.written])
        return "called"

    match STEPS[row][column]:
        case "runs":
            assert steps.run("call", call, SEMANTICS[column]) == "called"
            assert calls == [[]]
        case '"started" is recorded, runs':
            assert steps.run("call", call, SEMANTICS[column]) == "called"
            assert calls == [[{"started": NOW}]]
        case "answered":
            assert steps.run("call", call, SEMANTICS[column]) == "recorded"
            assert (calls, recorder.written) == ([], [])
        case "uncertain":
            with pytest.raises(StepUncertain):
                steps.run("call", call, SEMANTICS[column])
            assert (calls, recorder.written) == ([], [])
            assert isinstance(ends.end_of(steps.interrupted, JobType(returns, "pay"), 1, NOW, max), ends.HoldFor)
        case cell:
            pytest.fail(f"a word that the test does not know: {cell}")


@pytest.mark.parametrize("row", RECORDED)
def test_a_recorded_step_whose_claim_ends_is_what_its_cells_say(row: str) -> None:
    """G9: a stale claim with a started step is held; whoever opens the job again has looked at that step."""
    stale = replace(STALE, steps=with_step(None, "call", RECORDED[row]))
    retry = resolving.Resolution("retry")
    waiting = replace(stale, status=Status.UNCERTAIN)

    decision = decide(stale, DELIVERY, NOW)
    opened = resolving.decided(waiting, retry, token="p", now_ms=NOW, retention_s=60, result_limit=9)

    assert decision == {"take over": decisions.TakeOver(3), "hold": decisions.Hold()}[STEPS[row][STALE_COLUMN]]
    assert word_of(opened.steps) == STEPS[row][RETRY_COLUMN]


STEP_RAISES: dict[str, BaseException] = {
    "raises `Retry()`": Retry(),
    "raises `Snooze(60)`": Snooze(60),
    "raises `Reject(reason)`": Reject("no"),
    "raises another exception": RuntimeError("boom"),
    "is cancelled": CancelledError(),
}
STEP_VALUES: dict[str, object] = {
    "runs, or its process dies": 1,
    "returns": 1,
    "returns what cannot be stored": "x" * 40_000,
    "returns, and the table does not answer": 1,
}


@pytest.mark.parametrize("column", SEMANTICS)
@pytest.mark.parametrize("row", [*STEP_VALUES, *STEP_RAISES])
def test_a_step_ends_as_its_cell_says(row: str, column: str) -> None:
    """G6, G9, G10: what is recorded of a step after its function ended, and the signal that ends the attempt."""
    assert sorted(STEP_ENDS) == sorted([*STEP_VALUES, *STEP_RAISES])
    recorded, _, signal = STEP_ENDS[row][column].partition("; ")
    recorder = Recorder(fails_at=StoreUnavailable if row.endswith("does not answer") else None)
    steps, seen = recorder.steps(), []

    def call() -> object:
        seen.append(recorder.text)
        if row in STEP_RAISES:
            raise STEP_RAISES[row]
        return STEP_VALUES[row]

    raised: BaseException | None = None
    try:
        steps.run("call", call, SEMANTICS[column])
    except BaseException as error:  # noqa: BLE001 - a signal is none of Exception's
        raised = error

    assert word_of(seen[0] if row.startswith("runs") else recorder.text) == recorded
    known: dict[str, type[Signal]] = {"`StepUncertain`": StepUncertain, "`StepNotRecorded`": StepNotRecorded}
    if signal:
        assert isinstance(raised, known[signal])
        assert steps.interrupted is raised
    else:
        assert raised is STEP_RAISES.get(row)
        assert steps.interrupted is None


DUE = re.compile(r"pending, due (?:now|in (\d+) s)(, FIFO)?")
ENTRY_COLUMNS = ["The consumer", "The relay finds it", "Marked as sent", "Marked as failed"]


def staged(world: World, row: str) -> OutboxEntry:
    """Put an entry of a row into the outbox, as a transaction does, and return it."""
    found = DUE.fullmatch(row)
    seconds, fifo = (int(found[1] or 0), bool(found[2])) if found else (0, False)
    placing: dict[str, Any] = {"queue": "ordered", "group": "g"} if fifo else {}
    sealer = Sealer(world.runtime)
    entry = sealer.stage("pay", {}, key="k-1", delay=seconds, token="entry", **placing).committed(NOW)
    world.dynamodb.put_item(TableName=OUTBOX_TABLE, Item=entry.to_item())
    return entry


def stored(world: World) -> OutboxEntry:
    """Read the one entry."""
    (item,) = world.dynamodb.scan(TableName=OUTBOX_TABLE, ConsistentRead=True)["Items"]
    return OutboxEntry.from_item(item)


def relay_of(world: World, sqs: FakeSqs) -> relay.Relay:
    """Return a relay whose SQS is a list of requests."""
    deadline = OpenDeadline()
    runtime = SpiedRuntime(world.runtime, sqs)
    outbox = runtime.outbox(deadline)
    return relay.Relay(outbox, runtime.queue(deadline), runtime.settings, deadline, world.clock, Telemetry([]))


def test_the_table_of_the_outbox_names_every_state() -> None:
    """A state that is missing, or a row that the test cannot build, fails."""
    assert {row.partition(",")[0] for row in OUTBOX} == {*Delivery}
    assert all(DUE.fullmatch(row) or row.startswith("sent") for row in OUTBOX)
    assert all(list(cells) == ENTRY_COLUMNS for cells in OUTBOX.values())


@pytest.mark.parametrize("row", OUTBOX)
def test_the_consumer_sends_an_entry_as_its_cell_says(world: World, row: str) -> None:
    """G8: what is due within the minute is sent at once; a consumer that has not heard of its mark sends it again."""
    entry, sqs, cell = staged(world, row), FakeSqs(), OUTBOX[row]["The consumer"]
    before = entry
    if row.startswith("sent"):
        marked = world.runtime.outbox(OpenDeadline()).mark_sent(entry, "m-1", NOW)
        assert isinstance(marked, OutboxEntry)
        before = marked

    relay_of(world, sqs).send([entry])

    if cell == "leaves it":
        assert (sqs.requests, stored(world)) == ([], entry)
        return
    (message,) = sqs.entries("send")
    assert json.loads(message["MessageBody"])["idempotency_key"] == entry.idempotency_key
    assert message.get("DelaySeconds") == (60 if cell == "sends it, with SQS's delay" else None)
    if entry.group:
        assert message["MessageDeduplicationId"] == entry.pk
    known = {"sends it", "sends it, with SQS's delay"}
    if cell in known:
        assert stored(world).status == Delivery.SENT
    else:
        assert (cell, stored(world)) == ("sends it again, as the same job", before)


@pytest.mark.parametrize("row", OUTBOX)
def test_the_relay_finds_an_entry_when_its_cell_says(world: World, row: str) -> None:
    """G8: not a millisecond earlier, and then it is sent; what was sent is in no index."""
    entry, sqs, cell = staged(world, row), FakeSqs(), OUTBOX[row]["The relay finds it"]
    if cell == "never":
        world.runtime.outbox(OpenDeadline()).mark_sent(entry, "m-1", NOW)
        world.clock.advance(10**6)
        assert relay_of(world, sqs).run_once().to_json() == {"sent": 0, "failed": 0, "left": 0, "overdue": 0}
        return
    seconds = re.fullmatch(r"after (\d+) s", cell)
    assert seconds is not None

    world.clock.advance(int(seconds[1]) - 0.001)
    assert relay_of(world, sqs).run_once().sent == 0
    world.clock.advance(0.001)
    assert relay_of(world, sqs).run_once().sent == 1

    after = stored(world)
    assert (after.status, after.attempts) == (Delivery.SENT, 1)


@pytest.mark.parametrize("row", OUTBOX)
def test_a_mark_leaves_an_entry_as_its_cell_says(world: World, row: str) -> None:
    """G8: a mark is written while the entry waits, and never over one that was sent."""
    outbox = world.runtime.outbox(OpenDeadline())
    entry, cells = staged(world, row), OUTBOX[row]
    if row.startswith("sent"):
        before = outbox.mark_sent(entry, "m-1", NOW)
        assert isinstance(before, OutboxEntry)
        assert (cells["Marked as sent"], cells["Marked as failed"]) == ("unchanged", "unchanged")
        assert outbox.mark_sent(entry, "m-2", NOW + 1) == Refused(before)
        assert outbox.mark_failed(entry, "late", NOW + 1) == Refused(before)
        assert stored(world) == before
        return
    world.clock.advance((entry.next_at or 0) / 1000 - NOW / 1000)

    refusing = FakeSqs(lambda *_: {"SenderFault": True, "Code": "Gone", "Message": "no"})
    assert relay_of(world, refusing).run_once().failed == 1

    failed = stored(world)
    assert (failed.status, failed.attempts, failed.error, failed.expires_at) == ("pending", 1, "Gone: no", None)
    pause = {"pending, after a pause": 1_000, "pending, in its place": 0}[cells["Marked as failed"]]
    assert failed.next_at == (entry.next_at or 0) + pause
    assert cells["Marked as sent"] == "sent"
    sent = outbox.mark_sent(failed, "m-1", NOW)
    assert sent == stored(world) == replace(failed, **SENT)


SENT: dict[str, Any] = {
    "status": Delivery.SENT,
    "attempts": 2,
    "error": None,
    "message_id": "m-1",
    "sent_at": NOW,
    "expires_at": NOW // 1000 + 7 * 86_400,
    "shard": None,
    "next_at": None,
}


def wrong_job(body: Callable[[Context], object]) -> Callable[[World], dict[str, Any]]:
    """Arrange a job that gets something wrong."""

    def arrange(world: World) -> dict[str, Any]:
        def wrong(payload: dict[str, Any], ctx: Context) -> None:
            ctx.send("pay", {"never": "sent"}, key="staged")
            body(ctx)

        return {"function": wrong}

    return arrange


def twice(ctx: Context) -> None:
    """Use a name twice."""
    ctx.step("charge", lambda: 1)
    ctx.step("charge", lambda: 1)


def filled(world: World) -> dict[str, Any]:
    """Arrange a job whose earlier steps leave less than a kilobyte; moto would not take them one after the other."""
    earlier = with_step(None, "page", {"result": "x" * 261_200})
    failed = replace(STALE, status=Status.FAILED, lease_expires_at=None, not_before=NOW, steps=earlier)
    world.dynamodb.put_item(TableName=TABLE, Item=failed.to_item())
    return wrong_job(lambda ctx: ctx.step("more", lambda: 1))(world)


def forget(ctx: Context) -> None:
    """Make a step that nobody awaits."""

    async def charge() -> None:
        """Charge."""

    unawaited = ctx.step("charge", charge)
    unawaited.close()


def put_of(number: int, size: int = 1) -> dict[str, Any]:
    """Return a write of an item."""
    item = {"pk": {"S": str(number)}, "text": {"S": "x" * size}}
    return {"Put": {"TableName": "Notes", "Item": item}}


def write_all(*writes: dict[str, Any]) -> Callable[[Context], None]:
    """Stage writes."""

    def stage(ctx: Context) -> None:
        for write in writes:
            ctx.transaction.write(write)

    return stage


TWO_WRITES = [
    {"Update": {"TableName": "Notes", "Key": {"pk": {"S": "1"}}, "UpdateExpression": "REMOVE a"}},
    {"Delete": {"TableName": "Notes", "Key": {"pk": {"S": "1"}}}},
]
SCHEDULED = "nightly:<aws.scheduler.scheduled-time>"
WRONG: dict[str, Callable[[World], dict[str, Any]]] = {
    "a schedule's placeholder that nobody replaced": lambda world: {
        "message": world.raw(json.dumps({"onceq": 1, "job_type": "pay", "idempotency_key": SCHEDULED, "payload": {}}))
    },
    "`lock=` raises": lambda world: {"name": "locked", "lock": lambda payload: payload["region"]},
    "`lock=` selects a blank name": lambda world: {"lock": lambda payload: " "},
    "a step's name used twice": wrong_job(twice),
    "a step's name with a space": wrong_job(lambda ctx: ctx.step("the charge", lambda: 1)),
    "steps that fill their room": filled,
    "a step that is not awaited": wrong_job(forget),
    "a step's result of more than 32 KB": wrong_job(lambda ctx: ctx.step("charge", lambda: "x" * 32_769)),
    "a step's result that is no JSON": wrong_job(lambda ctx: ctx.step("charge", object)),
    # The message that `wrong_job` stages and the completion are two of them.
    "100 writes beside the completion": wrong_job(write_all(*(put_of(number) for number in range(99)))),
    "writes of more than 4 MB": wrong_job(write_all(*(put_of(number, 400_000) for number in range(10)))),
    "an item of more than 400 KB": wrong_job(write_all(put_of(1, 410_000))),
    "two writes to one item": wrong_job(write_all(*TWO_WRITES)),
    "a write to the claims table": wrong_job(write_all({"Delete": {"TableName": TABLE, "Key": {"pk": {"S": "x"}}}})),
    "a write without a table": wrong_job(write_all({"Delete": {"Key": {"pk": {"S": "x"}}}})),
    "a message of more than 380,000 bytes": wrong_job(lambda ctx: ctx.send("pay", {"text": "x" * 380_000}, key="k")),
    "a message with a blank key": wrong_job(lambda ctx: ctx.send("pay", {}, key=" ")),
    "a message without a group for a FIFO queue": wrong_job(lambda ctx: ctx.send("pay", {}, queue="ordered")),
    "a message to a job type that nobody serves": wrong_job(lambda ctx: ctx.send("gone", {})),
    "a message to a queue that is not in the settings": wrong_job(lambda ctx: ctx.send("pay", {}, queue="gone")),
    "a message of hop 1001": lambda world: {
        "message": world.raw(json.dumps({"onceq": 1, "job_type": "pay", "idempotency_key": "k-1", "hops": 1001}))
    },
}
NOT_A_JOBS = ["a lock that is never released", "an outbox entry whose queue is gone"]


def test_every_row_of_bad_input_has_its_case() -> None:
    """A row without a case, and a case without a row, fail."""
    assert list(BAD_INPUT) == [*WRONG, *NOT_A_JOBS]


@pytest.mark.parametrize("row", WRONG)
def test_bad_input_of_effects_ends_as_its_row_says(world: World, row: str) -> None:
    """G4, G7, G8: it says what is wrong, nothing that was staged happens, and nothing is lost."""
    says, happens = BAD_INPUT[row]["What it says"].replace("`", ""), BAD_INPUT[row]["What happens"]
    given = WRONG[row](world)
    create_table(world.dynamodb, "Notes")
    name = given.get("name", "pay")
    job_type = JobType(given.get("function", returns), name, lock=given.get("lock"))
    message = given.get("message") or world.message(name)

    answer = world.app(job_type).consumer(event_of(message), FakeLambdaContext())

    record, copies = world.record(name, "k-1"), world.dead_letters()
    assert kept(answer) == ([message["messageId"]] if happens == "released" else [])
    if happens == "copied":
        assert record is None
        assert says in copies[0]["note"]["reason"]
    else:
        assert record is not None
        assert record.status == {"released": Status.FAILED, "uncertain": Status.UNCERTAIN}[happens]
        assert says in str(record.error)
        assert len(copies) == (happens == "uncertain")
    for table_name in ("Notes", OUTBOX_TABLE):
        assert world.dynamodb.scan(TableName=table_name)["Items"] == []


def test_a_lock_that_is_never_released_ends_by_itself(world: World) -> None:
    """Its holder is gone; the job is deferred until its time and the clock skew are over, and then runs."""
    says, happens = BAD_INPUT[NOT_A_JOBS[0]].values()
    create_lock = LockItem("~lock#report", "gone", "t", NOW + 40_000, NOW)
    world.dynamodb.put_item(TableName=TABLE, Item=create_lock.to_item())
    app, message = world.app(JobType(returns, "pay", lock="report")), world.message("pay")

    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == [message["messageId"]]
    [busy] = [event for event in world.events if event.name == says]
    assert (happens, busy.fields()["until"]) == ("kept until the lock ends by itself", NOW + 40_000 + SKEW_MS)
    world.clock.advance(50)
    assert kept(app.consumer(event_of(message), FakeLambdaContext())) == []

    record = world.record("pay", "k-1")
    assert record is not None
    assert (record.status, record.attempts) == (Status.COMPLETED, 1)


def test_an_entry_whose_queue_is_gone_waits_and_says_so(world: World) -> None:
    """G8: it stays pending with the reason, and is sent when the queue is back."""
    says, happens = BAD_INPUT[NOT_A_JOBS[1]].values()
    staged(world, "pending, due now")
    world.clock.advance(30)
    without = relay_of(world, FakeSqs())
    without.settings = replace(world.settings, queues={})

    assert without.run_once().failed == 1
    entry = stored(world)
    assert happens == "pending, tried again"
    assert (entry.status, entry.error, entry.attempts) == (Delivery.PENDING, says, 1)
    world.clock.advance(60)
    assert relay_of(world, FakeSqs()).run_once().sent == 1
