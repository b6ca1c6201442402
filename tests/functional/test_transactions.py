"""A job's transaction: its DynamoDB writes happen with its completion, exactly once, or not at all (guarantee G7)."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import Worker, pass_lease, stored
from kit.clock import FakeLambdaContext
from kit.faults import client_error
from kit.seams import OneRenewalClock, Point, Seams, SimulatedCrash
from kit.shop import (
    LINES,
    ORDERS,
    STOCK,
    Line,
    Order,
    Stock,
    Till,
    address_of,
    everything,
    is_on_moto,
    items,
    open_shop,
    pieces_of,
    put,
)
from kit.world import OUTBOX_TABLE, TABLE, event_of, kept
from onceq import App, Context, Reject, Retry, Semantics, Snooze, job
from onceq.client import ATTEMPTS, CONTENDED_ATTEMPTS
from onceq.codec import ResultNotStored
from onceq.errors import StoreUnavailable, TransactionRefused
from onceq.powertools import PowertoolsHook
from onceq.record import Status
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.faults import Call
    from kit.world import World

# 60 s of lease, a second of margin, 10 s of skew.
PAST_LEASE = 72
SECRET = "4111-1111"


@pytest.fixture
def till(both_worlds: World) -> Till:
    """The app, on moto and on ministack; one article with five pieces."""
    till = Till(both_worlds)
    put(both_worlds, Stock("s-1", pieces=5))
    return till


@pytest.fixture
def moto_till(world: World) -> Till:
    """The app on moto alone: for what rests on neither isolation nor tokens."""
    till = Till(world)
    put(world, Stock("s-1", pieces=5))
    return till


def commits(till: Till) -> list[dict[str, Any]]:
    """Return the requests of the commits so far."""
    return [call.request for call in till.client.calls if call.name == "commit"]


def error_of(till: Till) -> str:
    """Return what the record says of the last attempt."""
    error = stored(till.world).error
    assert error is not None
    return error


def five_kinds(ctx: Context) -> None:
    """Stage one write of every kind: models with one key and with two, a version, a nested attribute, a plain one."""
    ctx.transaction.save(Order("o-1", address=address_of("Kings Road", "a", 1)), Order.order_id.does_not_exist())
    ctx.transaction.update(Order("o-2", version=4), [Order.state.set("paid")], Order.state == "new")
    ctx.transaction.delete(Line("o-2", 1), Line.sku == "s-1")
    ctx.transaction.check(Line("o-2", 2), Line.sku.exists())
    ctx.transaction.write(
        {
            "Update": {
                "TableName": STOCK,
                "Key": {"sku": {"S": "s-1"}},
                "UpdateExpression": "SET pieces = pieces - :one",
                "ConditionExpression": "pieces >= :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
        }
    )


def furnish(world: World) -> None:
    """Let stand what `five_kinds` meets."""
    put(world, Order("o-2", version=4), Line("o-2", 1, sku="s-1"), Line("o-2", 2, sku="s-2"))


def test_every_kind_of_write_happens_with_the_completion(till: Till) -> None:
    """G7: two requests for the whole job, and before the second nothing of it is seen anywhere."""
    furnish(till.world)
    before = everything(till.world)

    def stage(ctx: Context) -> dict[str, bool]:
        five_kinds(ctx)
        assert everything(till.world) == before
        return {"paid": True}

    till.stage = stage

    assert not till.deliver()

    assert till.client.names() == ["claim", "commit"]
    address = {"street": {"S": "Kings Road"}, "lines": {"L": [{"S": "a"}, {"N": "1"}]}}
    assert items(till.world, ORDERS) == [
        {"order_id": {"S": "o-1"}, "state": {"S": "new"}, "version": {"N": "1"}, "address": {"M": address}},
        {"order_id": {"S": "o-2"}, "state": {"S": "paid"}, "version": {"N": "5"}},
    ]
    assert items(till.world, LINES) == [{"order_id": {"S": "o-2"}, "number": {"N": "2"}, "sku": {"S": "s-2"}}]
    assert pieces_of(till.world, "s-1") == (4, 0)
    record = stored(till.world)
    assert (record.status, record.version, record.attempts) == (Status.COMPLETED, 2, 1)
    assert json.loads(record.result or "") == {"paid": True}
    assert record.lease_expires_at is None


def test_a_duplicate_of_a_committed_job_is_answered_and_writes_nothing(till: Till) -> None:
    """G3, G7: the result comes back, and every table is as the first delivery left it."""
    furnish(till.world)
    till.stage = five_kinds
    till.deliver()
    after = everything(till.world, claims=True)
    till.client.calls.clear()

    assert not till.deliver()

    assert till.client.names() == ["claim"]
    assert everything(till.world, claims=True) == after
    assert till.attempts == [1]


def test_a_job_that_stages_nothing_is_completed_by_a_plain_update(moto_till: Till) -> None:
    """A transaction costs twice: it is only used where there is something to write along."""
    till = moto_till

    assert not till.deliver()

    assert till.client.names() == ["claim", "complete"]


FAILING: dict[str, tuple[Callable[[Context], None], str]] = {
    "save": (
        lambda ctx: ctx.transaction.save(Order("o-2"), Order.order_id.does_not_exist()),
        "Put of OrdersTable {'order_id': 'o-2'}",
    ),
    "save of an old version": (
        lambda ctx: ctx.transaction.save(Order("o-2", version=3)),
        "Put of OrdersTable {'order_id': 'o-2'}",
    ),
    "update": (
        lambda ctx: ctx.transaction.update(Line("o-2", 1), [Line.sku.set("x")], Line.sku == "s-9"),
        "Update of LinesTable {'order_id': 'o-2', 'number': '1'}",
    ),
    "update of an old version": (
        lambda ctx: ctx.transaction.update(Order("o-2", version=3), [Order.state.set("paid")]),
        "Update of OrdersTable {'order_id': 'o-2'}",
    ),
    "delete": (
        lambda ctx: ctx.transaction.delete(Line("o-2", 9), Line.sku.exists()),
        "Delete of LinesTable {'order_id': 'o-2', 'number': '9'}",
    ),
    "check": (
        lambda ctx: ctx.transaction.check(Order("o-9"), Order.state == "paid"),
        "ConditionCheck of OrdersTable {'order_id': 'o-9'}",
    ),
    "write": (
        lambda ctx: ctx.transaction.write(
            {
                "Delete": {
                    "TableName": ORDERS,
                    "Key": {"order_id": {"S": "o-2"}},
                    "ConditionExpression": "#s = :s",
                    "ExpressionAttributeNames": {"#s": "state"},
                    "ExpressionAttributeValues": {":s": {"S": "void"}},
                }
            }
        ),
        "Delete of OrdersTable {'order_id': 'o-2'}",
    ),
}


@pytest.mark.parametrize(("stage", "named"), FAILING.values(), ids=FAILING)
def test_one_condition_that_fails_leaves_every_table_as_it_was(
    till: Till, stage: Callable[[Context], None], named: str
) -> None:
    """G7, nothing: neither the writes before it nor those after it, no completion; and the write is named."""
    furnish(till.world)
    before = everything(till.world)

    def surrounded(ctx: Context) -> None:
        till.take_one(ctx)
        stage(ctx)
        ctx.transaction.save(Stock("s-2", pieces=1))

    till.stage = surrounded

    assert till.deliver()

    assert everything(till.world) == before
    record = stored(till.world)
    assert (record.status, record.attempts, record.result) == (Status.FAILED, 1, None)
    assert error_of(till).startswith(f"ConditionNotMet: {named}: its condition did not hold: ")


def test_a_condition_that_did_not_hold_is_retried_and_may_hold_later(till: Till) -> None:
    """The default: an attempt is used, the job runs again after its back-off, and stages anew."""
    put(till.world, Stock("s-1", pieces=0))
    till.stage = till.take_one
    assert till.deliver()
    assert error_of(till) == (
        "ConditionNotMet: Update of StockTable {'sku': 's-1'}: its condition did not hold: the item has {'pieces': '0'}"
    )
    [released] = [event.fields() for event in till.world.events if event.name == "job.released"]
    assert (released["counted"], released["error"]) == (True, error_of(till))
    put(till.world, Stock("s-1", pieces=1))
    till.world.clock.advance(2)

    assert not till.deliver()

    assert (till.attempts, pieces_of(till.world, "s-1")) == ([1, 2], (0, 1))
    assert (stored(till.world).status, stored(till.world).error) == (Status.COMPLETED, None)


def test_a_condition_that_never_holds_uses_the_attempts_up(moto_till: Till) -> None:
    """G4: the message ends in the dead-letter queue with the write that failed."""
    till = moto_till
    put(till.world, Stock("s-1", pieces=0))
    till.stage = till.take_one
    for _ in range(2):
        assert till.deliver()
        till.world.clock.advance(60)

    assert not till.deliver()

    assert stored(till.world).status is Status.REJECTED
    [letter] = till.world.dead_letters()
    assert letter["note"]["attempts"] == 3
    assert "attempts used up" in letter["note"]["error"]
    assert "Update of StockTable {'sku': 's-1'}: its condition did not hold" in letter["note"]["error"]
    assert pieces_of(till.world, "s-1") == (0, 0)


def test_a_condition_may_end_the_job_for_good(till: Till) -> None:
    """``on_conflict="reject"``: no second attempt, the reason in the dead-letter queue, nothing written."""
    put(till.world, Stock("s-1", pieces=0))

    def stage(ctx: Context) -> None:
        ctx.transaction.save(Line("o-1", 1))
        taken = [Stock.pieces.set(Stock.pieces - 1)]
        ctx.transaction.update(Stock("s-1"), taken, Stock.pieces >= 1, on_conflict="reject")

    till.stage = stage
    before = everything(till.world)

    assert not till.deliver()

    reason = "Update of StockTable {'sku': 's-1'}: its condition did not hold: the item has {'pieces': '0'}"
    assert (stored(till.world).status, error_of(till)) == (Status.REJECTED, reason)
    assert [letter["note"]["error"] for letter in till.world.dead_letters()] == [reason]
    assert everything(till.world) == before
    assert not till.deliver()
    assert till.attempts == [1]


def test_only_the_write_that_failed_says_what_it_means(moto_till: Till) -> None:
    """A write beside it that would reject does not reject for another one's condition."""
    till = moto_till
    put(till.world, Stock("s-1", pieces=0))

    def stage(ctx: Context) -> None:
        ctx.transaction.save(Line("o-1", 1), Line.order_id.does_not_exist(), on_conflict="reject")
        till.take_one(ctx)

    till.stage = stage

    assert till.deliver()
    assert stored(till.world).status is Status.FAILED


@pytest.mark.parametrize("on_conflict", ["retry", "reject"])
def test_an_at_most_once_job_whose_condition_did_not_hold_goes_to_a_person(world: World, on_conflict: Any) -> None:
    """G9: it ran, so it is not started again; only where its own write says so it is rejected."""
    till = Till(world, semantics=Semantics.AT_MOST_ONCE)
    put(world, Stock("s-1", pieces=0))

    def stage(ctx: Context) -> None:
        taken = [Stock.pieces.set(Stock.pieces - 1)]
        ctx.transaction.update(Stock("s-1"), taken, Stock.pieces >= 1, on_conflict=on_conflict)

    till.stage = stage

    assert not till.deliver()

    ended = Status.UNCERTAIN if on_conflict == "retry" else Status.REJECTED
    assert stored(world).status is ended
    assert "its condition did not hold" in error_of(till)
    assert [letter["note"]["reason"] for letter in world.dead_letters()] == [str(ended)]
    put(world, Stock("s-1", pieces=1))
    world.clock.advance(100)
    assert not till.deliver()
    assert (till.attempts, pieces_of(world, "s-1")) == ([1], (1, 0))


@pytest.mark.parametrize("on_conflict", ["retry", "reject"])
def test_nothing_of_the_items_but_what_the_condition_speaks_about_leaves_the_process(
    world: World, capsys: pytest.CaptureFixture[str], on_conflict: Any
) -> None:
    """No other attribute of the old item, and none of the new one, in an event, a log line, the record or a copy."""
    till = Till(world, max_attempts=1)
    till.app = App([till.job_type], runtime=world.runtime, hooks=[world.events.append, PowertoolsHook()])
    put(world, Order("o-1", card=SECRET, version=3))

    def stage(ctx: Context) -> None:
        order = Order("o-1", card=SECRET, state="paid", version=2)
        ctx.transaction.save(order, on_conflict=on_conflict)

    till.stage = stage

    assert not till.deliver()

    [letter] = world.dead_letters()
    assert "its condition did not hold: the item has {'version': '3'}" in letter["note"]["error"]
    printed = capsys.readouterr()
    assert "condition did not hold" in str(stored(world).error)
    told = [str(event.fields()) for event in world.events]
    for text in (*told, printed.out, printed.err, str(items(world, TABLE)), str(letter)):
        assert SECRET not in text


def test_a_conflict_that_passes_is_not_seen_by_the_job(moto_till: Till) -> None:
    """Others wrote the same item at that moment: the same request goes again, and the job runs once."""
    till = moto_till
    till.stage = till.take_one
    till.client.cancel("commit", "None", "TransactionConflict", "None", times=3)

    assert not till.deliver()

    assert till.client.names() == ["claim", *["commit"] * 4]
    assert all(request == commits(till)[0] for request in commits(till))
    assert (till.attempts, pieces_of(till.world, "s-1")) == ([1], (4, 1))
    assert stored(till.world).status is Status.COMPLETED


CONTENTION = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"]


@pytest.mark.parametrize("code", CONTENTION)
def test_a_conflict_for_ever_gives_the_job_back_uncounted(moto_till: Till, code: str) -> None:
    """Nothing was applied and it is nobody's fault: released after a bounded number of tries, no attempt used."""
    till = moto_till
    till.stage = till.take_one
    before = everything(till.world)
    till.client.cancel("commit", "None", code, "None", times=CONTENDED_ATTEMPTS)

    assert till.deliver()

    assert till.client.names() == ["claim", *["commit"] * CONTENDED_ATTEMPTS, "release"]
    assert everything(till.world) == before
    record = stored(till.world)
    assert (record.status, record.attempts, record.lease_expires_at) == (Status.FAILED, 0, None)
    assert error_of(till).startswith("TransactionContended: ")
    [released] = [event.fields() for event in till.world.events if event.name == "job.released"]
    assert released["counted"] is False
    assert record.not_before is not None
    assert record.not_before > till.world.clock.now_ms()
    till.world.clock.advance(60)
    assert not till.deliver()
    assert (till.attempts, pieces_of(till.world, "s-1")) == ([1, 1], (4, 1))


@pytest.mark.parametrize("fault", ["lost", "never applied"])
def test_a_conflict_for_ever_after_an_unheard_request_is_not_known_to_have_changed_nothing(
    moto_till: Till, fault: str
) -> None:
    """G9, G11: the first request may have been applied, so the attempt's end is unknown, and the lease decides."""
    till = moto_till
    till.stage = till.take_one
    {"lost": till.client.lose_response, "never applied": till.client.drop}[fault]("commit")
    till.client.cancel("commit", "None", "TransactionConflict", "None", times=CONTENDED_ATTEMPTS)

    assert till.deliver()

    assert "release" not in till.client.names()
    assert stored(till.world).status is (Status.COMPLETED if fault == "lost" else Status.PROCESSING)
    till.world.clock.advance(PAST_LEASE)
    assert not till.deliver()
    assert pieces_of(till.world, "s-1") == (4, 1)
    assert till.attempts == ([1] if fault == "lost" else [1, 2])


def test_a_conflict_beside_a_condition_is_tried_again_before_the_condition_is_believed(moto_till: Till) -> None:
    """What failed while others were writing may hold when they are done."""
    till = moto_till
    till.stage = till.take_one
    till.client.cancel("commit", "None", "ConditionalCheckFailed", "TransactionConflict")

    assert not till.deliver()

    assert pieces_of(till.world, "s-1") == (4, 1)


def test_a_conflict_is_not_waited_for_beyond_the_time_left(moto_till: Till) -> None:
    """Retries end before Lambda does: the job is given back while there is time to write it down."""
    till = moto_till
    till.stage = till.take_one
    context = FakeLambdaContext()

    def meet(call: Call) -> Any:
        context.remaining_ms = 90
        error = client_error("TransactionCanceledException", method=call.method)
        error.response["CancellationReasons"] = [{"Code": "TransactionConflict"}]
        raise error

    till.client.plan("commit", meet, times=CONTENDED_ATTEMPTS)

    assert till.deliver(context=context)

    assert till.client.names() == ["claim", "commit", "release"]
    assert stored(till.world).status is Status.FAILED


def test_an_at_most_once_job_that_meets_a_conflict_for_ever_goes_to_a_person(world: World) -> None:
    """G9: the job has run, and only it may say that it may run again."""
    till = Till(world, semantics=Semantics.AT_MOST_ONCE)
    put(world, Stock("s-1", pieces=5))
    till.stage = till.take_one
    till.client.cancel("commit", "None", "TransactionConflict", "None", times=CONTENDED_ATTEMPTS)

    assert not till.deliver()

    assert stored(world).status is Status.UNCERTAIN
    assert pieces_of(world, "s-1") == (5, 0)


REFUSED = ["ValidationException", "ItemCollectionSizeLimitExceededException"]
DENIED = ["AccessDeniedException", "ResourceNotFoundException", "UnrecognizedClientException"]


@pytest.mark.parametrize("code", REFUSED)
def test_a_transaction_that_is_refused_as_a_whole_is_the_attempts_end(moto_till: Till, code: str) -> None:
    """No leased claim that nobody renews: the attempt failed, with DynamoDB's own word, and is retried or rejected."""
    till = moto_till
    till.stage = till.take_one
    till.client.refuse("commit", code, times=3)

    for attempt in (1, 2):
        assert till.deliver()
        record = stored(till.world)
        assert (record.status, record.attempts, record.lease_expires_at) == (Status.FAILED, attempt, None)
        assert error_of(till).startswith("TransactionRefused: TransactWriteItems was refused: ")
        assert code in error_of(till)
        till.world.clock.advance(60)
    assert not till.deliver()

    assert stored(till.world).status is Status.REJECTED
    assert pieces_of(till.world, "s-1") == (5, 0)
    assert [code in letter["note"]["error"] for letter in till.world.dead_letters()] == [True]
    # One request each: what DynamoDB refuses it refuses again.
    assert till.client.names().count("commit") == 3


@pytest.mark.parametrize("code", DENIED)
def test_a_transaction_that_a_deployment_forbids_uses_no_attempt(moto_till: Till, code: str) -> None:
    """G4: a permission that is missing sends nothing to the dead-letter queue; when it is there, the job goes on."""
    till = moto_till
    till.stage = till.take_one
    till.client.refuse("commit", code, times=9)

    for _ in range(9):
        assert till.deliver()
        record = stored(till.world)
        assert (record.status, record.attempts, record.lease_expires_at) == (Status.FAILED, 0, None)
        assert error_of(till).startswith("TransactionDenied: ")
        assert code in error_of(till)
        # A hundred receives are SQS's own end of a message: they are to last for hours.
        assert (record.not_before or 0) >= till.world.clock.now_ms() + 60_000
        till.world.clock.advance(900)
    assert not till.deliver()

    assert stored(till.world).status is Status.COMPLETED
    assert pieces_of(till.world, "s-1") == (4, 1)


NATURAL: dict[str, tuple[list[dict[str, Any]], str]] = {
    "two puts to one item, whose key nobody told": (
        [
            {"Put": {"TableName": ORDERS, "Item": {"order_id": {"S": "o-1"}, "state": {"S": "new"}}}},
            {"Put": {"TableName": ORDERS, "Item": {"order_id": {"S": "o-1"}, "state": {"S": "paid"}}}},
        ],
        "ValidationException",
    ),
    "a parameter that is none": (
        [{"Put": {"TableName": STOCK, "Item": {"sku": {"S": "s-2"}}, "Condition": "x"}}],
        "Unknown parameter",
    ),
    "a value of no kind": ([{"Put": {"TableName": STOCK, "Item": {"sku": {"X": "s-2"}}}}], "Unknown parameter|must be"),
}


@pytest.mark.parametrize(("writes", "said"), NATURAL.values(), ids=NATURAL)
def test_what_only_dynamodb_can_refuse_ends_the_attempt_with_its_word(
    till: Till, writes: list[dict[str, Any]], said: str
) -> None:
    """The same, refused by the table itself: the other writes did not happen, and the claim is not left leased."""

    def stage(ctx: Context) -> None:
        till.take_one(ctx)
        for write in writes:
            ctx.transaction.write(write)

    till.stage = stage
    before = everything(till.world)

    assert till.deliver()

    record = stored(till.world)
    assert (record.status, record.attempts, record.lease_expires_at) == (Status.FAILED, 1, None)
    assert error_of(till).startswith("TransactionRefused: ")
    assert any(word in error_of(till) for word in said.split("|")), error_of(till)
    assert everything(till.world) == before


def test_a_reason_of_one_write_names_it(moto_till: Till) -> None:
    """An item that would grow beyond 400 KB is told in the reasons: the write is named, the claim not left leased."""
    till = moto_till
    till.stage = till.take_one
    till.client.cancel("commit", "None", "ValidationError", "None")

    assert till.deliver()

    assert (
        error_of(till)
        == "TransactionRefused: Update of StockTable {'sku': 's-1'}: ValidationError: planned ValidationError"
    )
    assert stored(till.world).status is Status.FAILED


@pytest.mark.parametrize("code", ["ThrottlingException", "TransactionInProgressException", "InternalServerError"])
def test_a_fault_that_passes_is_tried_again_with_the_same_token(moto_till: Till, code: str) -> None:
    """It may have been applied: only the same request with the same token is safe to send."""
    till = moto_till
    till.stage = till.take_one
    till.client.refuse("commit", code, status=500 if code == "InternalServerError" else 400, times=2)

    assert not till.deliver()

    assert len(commits(till)) == 3
    assert all(request == commits(till)[0] for request in commits(till))
    assert (till.attempts, pieces_of(till.world, "s-1")) == ([1], (4, 1))


def test_a_commit_that_is_never_answered_leaves_the_claim_leased(moto_till: Till) -> None:
    """Nobody knows whether it happened: the message is kept, others wait, and after the lease one takes over."""
    till = moto_till
    till.stage = till.take_one
    till.client.drop("commit", times=ATTEMPTS)

    assert till.deliver()

    assert stored(till.world).status is Status.PROCESSING
    assert "effect.not_recorded" in till.world.names()
    assert till.deliver()
    till.world.clock.advance(PAST_LEASE)
    assert not till.deliver()
    assert (till.attempts, pieces_of(till.world, "s-1")) == ([1, 2], (4, 1))


def test_a_commit_whose_response_is_lost_is_ours_and_applied_once(till: Till) -> None:
    """G7, G11: on AWS and ministack the token answers the second request; on moto, as after ten minutes, the record."""
    till.stage = till.take_one
    heard: list[str] = []
    till.client.lose_response("commit")

    def watch(call: Call) -> Any:
        try:
            answer = till.client.forward(call)
        except Exception as error:
            heard.append(type(error).__name__)
            raise
        heard.append("answered")
        return answer

    till.client.plan("commit", watch)

    assert not till.deliver()

    assert heard == ["TransactionCanceledException" if is_on_moto() else "answered"]
    assert (till.attempts, pieces_of(till.world, "s-1")) == ([1], (4, 1))
    record = stored(till.world)
    assert (record.status, record.version) == (Status.COMPLETED, 2)
    assert "claim.lost" not in till.world.names()
    assert "job.completed" in till.world.names()
    assert not till.deliver()
    assert till.attempts == [1]


def test_a_commit_that_landed_without_any_answer_is_found_by_the_next_delivery(till: Till) -> None:
    """G3, G7: the writer does not know, so the message is kept; the next one replays at once, nothing is doubled."""
    till.stage = till.take_one
    till.client.lose_response("commit", times=ATTEMPTS)

    assert till.deliver()
    assert not till.deliver()

    assert (till.attempts, pieces_of(till.world, "s-1")) == ([1], (4, 1))
    assert "job.replayed" in till.world.names()


LANDINGS = ["before anybody else", "while the other runs", "after the other completed"]


@pytest.mark.parametrize("landing", LANDINGS)
def test_a_commit_that_lands_late_happens_whole_or_not_at_all(till: Till, landing: str) -> None:
    """G2, G7: taken over meanwhile it is refused as a whole; still unclaimed it is the one that happened."""
    applied: list[bool] = []

    def stage(ctx: Context) -> str:
        till.take_one(ctx)
        ctx.send("pay", {"attempt": ctx.attempt}, key="k-2", delay=3_600)
        if ctx.attempt == 2 and landing == "while the other runs":
            before = everything(till.world, claims=True)
            applied.extend(till.client.land())
            assert everything(till.world, claims=True) == before
        return f"attempt {ctx.attempt}"

    till.stage = stage
    till.client.hold_back("commit", times=ATTEMPTS)
    assert till.deliver()
    assert pieces_of(till.world, "s-1") == (5, 0)
    if landing == "before anybody else":
        applied += till.client.land()
    till.world.clock.advance(PAST_LEASE)

    assert not till.deliver()

    after = everything(till.world, claims=True)
    if landing == "after the other completed":
        applied += till.client.land()
    assert everything(till.world, claims=True) == after
    assert pieces_of(till.world, "s-1") == (4, 1)
    [entry] = items(till.world, OUTBOX_TABLE)
    assert json.loads(entry["body"]["S"])["payload"] == {"attempt": till.attempts[-1]}
    if landing == "before anybody else":
        # The first is applied; the other four are the same request: refused, or known by their token.
        assert applied == [True, *[not is_on_moto()] * (ATTEMPTS - 1)]
        assert (till.attempts, stored(till.world).result) == ([1], '"attempt 1"')
    else:
        assert applied == [False] * ATTEMPTS
        assert (till.attempts, stored(till.world).result) == ([1, 2], '"attempt 2"')


def one_piece(key: str) -> list[dict[str, Any]]:
    """Return what takes one piece and says so, as TransactWriteItems takes it."""
    return [
        {
            "Update": {
                "TableName": STOCK,
                "Key": {"sku": {"S": "s-1"}},
                "UpdateExpression": "SET pieces = pieces - :one, reserved = reserved + :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
        },
        {"Put": {"TableName": LINES, "Item": {"order_id": {"S": key}, "number": {"N": "1"}}}},
    ]


def test_a_renewal_that_lands_between_two_tries_makes_the_next_request_another_one(both_worlds: World) -> None:
    """Rule 5 of the claim: the commit follows the renewal under a token of its own, and only once is anything applied.

    The first try times out and is still on its way; the renewal, of unknown outcome until then, lands; the retry finds
    another version under our token. The next request has another content, which its old token would not stand for.
    """
    open_shop(both_worlds)
    put(both_worlds, Stock("s-1", pieces=5))
    worker = Worker.of(both_worlds)
    claim = worker.take()
    now = both_worlds.clock.now_ms()
    worker.client.hold_back("renew", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        claim.renew(now + 99_000)
    renewals, worker.client.held_back = worker.client.held_back, []
    worker.client.hold_back("commit")
    worker.client.before("commit", lambda: worker.client.forward(renewals[0]))

    completed = claim.complete(now, '"done"', one_piece("k-1"))

    assert (completed.status, completed.version) == (Status.COMPLETED, 3)
    assert stored(both_worlds) == completed
    requests = [call.request for call in worker.client.calls if call.name == "commit"]
    tokens = [request["ClientRequestToken"] for request in requests]
    assert len(tokens) == 3
    assert tokens[0] == tokens[1] != tokens[2]
    assert requests[0] == requests[1]
    assert pieces_of(both_worlds, "s-1") == (4, 1)
    after = everything(both_worlds, claims=True)
    # The first try, on its way all the time: it follows a version that is gone.
    assert worker.client.land() == [False]
    assert everything(both_worlds, claims=True) == after


def test_a_renewal_that_lands_after_the_commit_changes_nothing(both_worlds: World) -> None:
    """G2, G3: the record has moved on."""
    open_shop(both_worlds)
    put(both_worlds, Stock("s-1", pieces=5))
    worker = Worker.of(both_worlds)
    claim = worker.take()
    worker.client.hold_back("renew", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        claim.renew(both_worlds.clock.now_ms() + 99_000)

    completed = claim.complete(both_worlds.clock.now_ms(), '"done"', one_piece("k-1"))

    assert worker.client.land() == [False] * ATTEMPTS
    assert (stored(both_worlds), completed.version) == (completed, 2)


def test_a_request_is_named_by_claimant_and_version(both_worlds: World) -> None:
    """Two claims of one job, and two versions of one claim, never share a token; it is as long as DynamoDB takes."""
    open_shop(both_worlds)
    put(both_worlds, Stock("s-1", pieces=5))
    first, second = Worker.of(both_worlds), Worker.of(both_worlds)
    now = both_worlds.clock.now_ms()
    claims = [first.take()]
    pass_lease(both_worlds)
    claims.append(second.take())
    claims[1].renew(now + 99_000)
    claims.append(first.take("k-2"))

    first.client.drop("commit", times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        claims[0].complete(now, "1", one_piece("k-1"))
    claims[1].complete(now, "1", one_piece("k-1"))
    claims[2].complete(now, "1", one_piece("k-2"))

    calls = [*first.client.calls, *second.client.calls]
    tokens = {call.request["ClientRequestToken"] for call in calls if call.name == "commit"}
    assert len(tokens) == 3
    assert {len(token) for token in tokens} == {36}
    assert pieces_of(both_worlds, "s-1") == (3, 2)


@pytest.mark.parametrize("left", ["completed", "still running"])
def test_a_zombies_transaction_is_refused_as_a_whole(till: Till, left: str) -> None:
    """G2, G7: its claim was taken over while it ran, so none of its writes happens, and its end is not recorded."""
    after: list[Any] = []

    def stage(ctx: Context) -> str:
        till.take_one(ctx)
        if ctx.attempt == 1:
            till.world.clock.advance(PAST_LEASE)
            with suppress(SimulatedCrash):
                till.deliver()
            after.append(everything(till.world, claims=True))
        elif left == "still running":
            raise SimulatedCrash
        return f"attempt {ctx.attempt}"

    till.stage = stage

    assert till.deliver() is (left == "still running")

    assert [everything(till.world, claims=True)] == after
    assert pieces_of(till.world, "s-1") == ((4, 1) if left == "completed" else (5, 0))
    assert "claim.lost" in till.world.names()


RAISED: dict[str, BaseException] = {
    "ValueError": ValueError("no"),
    "Retry": Retry(1),
    "Snooze": Snooze(1),
    "Reject": Reject("no"),
    "SystemExit": SystemExit(1),
    "KeyboardInterrupt": KeyboardInterrupt(),
}


@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
@pytest.mark.parametrize("raised_by", ["job", "middleware"])
def test_what_a_job_staged_before_it_raised_is_written_nowhere(
    moto_till: Till, error: BaseException, raised_by: str
) -> None:
    """G7: without the completion there is no transaction, whatever ended the attempt, and whoever."""
    till = moto_till

    def stage(ctx: Context) -> None:
        till.take_one(ctx)
        if raised_by == "job":
            raise error

    def middleware(call_next: Callable[[], Any], ctx: Context, payload: Any) -> Any:
        call_next()
        raise error

    till.stage = stage
    if raised_by == "middleware":
        till.app = till.world.app(till.job_type, middleware=[middleware])
    before = everything(till.world)

    till.deliver()

    assert everything(till.world) == before
    assert "commit" not in till.client.names()
    assert stored(till.world).status in (Status.FAILED, Status.REJECTED)


def test_an_attempt_stages_for_itself_alone(moto_till: Till) -> None:
    """A retry starts with nothing staged: what the failed attempt had staged is not written by the next one."""
    till = moto_till

    def stage(ctx: Context) -> None:
        till.take_one(ctx)
        ctx.transaction.save(Stock(f"of attempt {ctx.attempt}"))
        if ctx.attempt == 1:
            raise Retry(1)

    till.stage = stage
    assert till.deliver()
    till.world.clock.advance(2)
    assert not till.deliver()

    assert [item["sku"]["S"] for item in items(till.world, STOCK)] == ["of attempt 2", "s-1"]
    assert pieces_of(till.world, "s-1") == (4, 1)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_around_its_commit_leaves_all_or_nothing(till: Till, when: Any) -> None:
    """G6, G7: before it nothing was written, and the next delivery does it; after it everything, and it replays."""
    process = Seams(crash=(Point("Store", "commit", when), 1)).process(till.world.runtime)
    till.stage = till.take_one
    before = everything(till.world)
    dying = till.world.app(till.job_type, runtime=process)
    with pytest.raises(SimulatedCrash):
        dying.consumer(event_of(till.world.message("pay")), FakeLambdaContext())

    if when == "before":
        assert everything(till.world) == before
        assert stored(till.world).status is Status.PROCESSING
        till.world.clock.advance(PAST_LEASE)
    else:
        assert pieces_of(till.world, "s-1") == (4, 1)
    assert not till.deliver()

    assert (till.attempts, pieces_of(till.world, "s-1")) == ([1, 2] if when == "before" else [1], (4, 1))
    assert len(items(till.world, LINES)) == 1


@pytest.mark.parametrize("result", ["x" * 40_000, float("nan"), object()], ids=["too large", "NaN", "no JSON"])
def test_a_result_that_cannot_be_stored_does_not_undo_the_transaction(till: Till, result: object) -> None:
    """G7, G10: the writes happen with a completion that says why there is no result, and never a second time."""

    def stage(ctx: Context) -> object:
        till.take_one(ctx)
        return result

    till.stage = stage

    assert not till.deliver()
    assert not till.deliver()

    assert (till.attempts, pieces_of(till.world, "s-1")) == ([1], (4, 1))
    status = till.app.lookup("pay", "k-1")
    assert status is not None
    assert isinstance(status.result, ResultNotStored)


def test_steps_are_gone_with_the_commit(till: Till) -> None:
    """A finished step's record has served: the commit removes it, as a plain completion does."""

    def stage(ctx: Context) -> Any:
        charged = ctx.step("charge", lambda: {"id": "ch_1"})
        till.take_one(ctx)
        return charged

    till.stage = stage

    assert not till.deliver()

    record = stored(till.world)
    assert (record.status, record.steps, record.result, record.version) == (Status.COMPLETED, None, '{"id":"ch_1"}', 3)
    assert pieces_of(till.world, "s-1") == (4, 1)


def test_a_step_of_an_attempt_whose_condition_failed_is_not_run_again(till: Till) -> None:
    """The foreign effect happened and is recorded, the transaction did not: the next attempt does the rest."""
    charges: list[int] = []
    put(till.world, Stock("s-1", pieces=0))

    def stage(ctx: Context) -> None:
        ctx.step("charge", lambda: charges.append(ctx.attempt))
        till.take_one(ctx)

    till.stage = stage
    assert till.deliver()
    put(till.world, Stock("s-1", pieces=1))
    till.world.clock.advance(60)
    assert not till.deliver()

    assert (charges, till.attempts, pieces_of(till.world, "s-1")) == ([1], [1, 2], (0, 1))


def test_a_refusal_at_staging_is_the_jobs_own_error_and_names_the_write(moto_till: Till) -> None:
    """It is raised where the write stands: the job may catch it and stage less, and what fitted is committed."""
    till = moto_till

    def stage(ctx: Context) -> str:
        till.take_one(ctx)
        try:
            ctx.transaction.update(Stock("s-1"), [Stock.pieces.set(9)])
        except TransactionRefused as refused:
            return str(refused)
        return "taken"

    till.stage = stage

    assert not till.deliver()

    assert stored(till.world).result is not None
    assert "is in the transaction already" in str(stored(till.world).result)
    assert pieces_of(till.world, "s-1") == (4, 1)


@pytest.mark.parametrize("number", [99, 100])
def test_ninety_nine_writes_are_committed_and_a_hundred_are_refused_where_they_are_staged(
    till: Till, number: int
) -> None:
    """100 items with the job's record: the limit is DynamoDB's own, so exactly what is staged fits."""

    def stage(ctx: Context) -> None:
        for each in range(number):
            ctx.transaction.save(Stock(f"s-{each}", pieces=each))

    till.stage = stage

    assert till.deliver() is (number == 100)

    if number == 99:
        assert len(items(till.world, STOCK)) == 99
        assert len(commits(till)[0]["TransactItems"]) == 100
    else:
        assert error_of(till).startswith("TransactionRefused: Put of StockTable {'sku': 's-99'")
        assert pieces_of(till.world, "s-1") == (5, 0)


def test_a_transaction_of_almost_four_megabytes_is_taken(till: Till) -> None:
    """What staging lets through DynamoDB takes: nine items of nearly 400 KB beside the record."""

    def stage(ctx: Context) -> None:
        for each in range(9):
            ctx.transaction.save(Stock(f"l-{each}", supplier="x" * 404_000))

    till.stage = stage

    assert not till.deliver()

    assert len(items(till.world, STOCK)) == 10


def test_async_jobs_and_threads_stage_too(till: Till) -> None:
    """A coroutine and a thread that it waits for write into the same transaction."""

    @job("later", max_duration=20)
    async def later(payload: dict[str, Any], ctx: Context) -> str:
        await asyncio.to_thread(till.take_one, ctx)
        await asyncio.sleep(0)
        ctx.transaction.save(Stock("s-2", pieces=1))
        return "done"

    app = till.world.app(later)

    assert kept(app.consumer(event_of(till.world.message("later")), FakeLambdaContext())) == []

    assert pieces_of(till.world, "s-1") == (4, 1)
    assert pieces_of(till.world, "s-2") == (1, 0)


def test_an_async_job_that_is_cancelled_writes_nothing(moto_till: Till) -> None:
    """Past its ``max_duration`` the attempt has failed, and what it staged with it."""
    till = moto_till

    @job("later", max_duration=0.05)
    async def later(payload: dict[str, Any], ctx: Context) -> None:
        till.take_one(ctx)
        await asyncio.sleep(30)

    app = till.world.app(later)

    assert kept(app.consumer(event_of(till.world.message("later")), FakeLambdaContext())) != []

    assert pieces_of(till.world, "s-1") == (5, 0)
    assert "commit" not in till.client.names()


def test_a_commit_follows_the_renewal_that_came_before_it(both_worlds: World) -> None:
    """Outside Lambda the lease is renewed while the job runs: the commit names the version that the renewal left."""
    runtime = Runtime(both_worlds.settings, clock=OneRenewalClock(both_worlds.clock), tokens=both_worlds.tokens)
    both_worlds.runtime = runtime
    till = Till(both_worlds)
    put(both_worlds, Stock("s-1", pieces=5))
    renewed = threading.Event()

    def meet(call: Call) -> Any:
        answer = till.client.forward(call)
        renewed.set()
        return answer

    def stage(ctx: Context) -> None:
        assert renewed.wait(30)
        till.take_one(ctx)

    till.client.plan("renew", meet)
    till.stage = stage

    assert kept(till.app.consumer(event_of(both_worlds.message("pay")), None)) == []

    assert till.client.names() == ["claim", "renew", "commit"]
    assert pieces_of(both_worlds, "s-1") == (4, 1)
    assert (stored(both_worlds).status, stored(both_worlds).version) == (Status.COMPLETED, 3)
