"""The gallery's consumers and jobs as plays: what depends on timing must be found, what is right must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from explore.jobs import app, booked, booking, charged
from explore.space import BODY, LEAP_SECONDS, OWN, Play, Used
from gallery import consumers, field, jobs, right
from onceq.testing.process import CURRENT
from onceq.testing.subject import ConsumerSubject, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from explore.outside import Gateway, Snapshot
    from explore.space import Check
    from onceq import JobType
    from onceq.testing.subject import Handler, Parts

TABLE = "orders"
# What such consumers send may be lost, but most do not know that, so it is no part of what is asked of them here.
UNKIND = Used(crashes=1, expiries=1)


def by_hand(
    make: Callable[[Parts], Handler], used: Used = UNKIND, *, exclusive: bool = False, leap: int = LEAP_SECONDS
) -> Play:
    """Return a consumer of another make as a play."""

    def subject(gateway: Gateway) -> Subject:
        def work(body: dict[str, Any], **named: Any) -> Any:
            return gateway.charge(body["amount_cents"], **named)

        return ConsumerSubject(make, TABLE, work)

    known: dict[str, Any] = {"job_type": "", "used": used, "exclusive": exclusive, "leap": leap}
    return Play(make.__name__, subject, charged_by_hand, **known)


def charged_by_hand(outside: Snapshot, used: Used) -> Iterator[str]:
    """At least one charge; and one alone where nothing went wrong, or where the provider is given a key."""
    charges = outside.happened("charge")
    keyed = all(one.key is not None for one in charges)
    if not charges or (len(charges) > 1 and (used.nothing or keyed)):
        yield f"effects: charge happened {len(charges)} times, for 1"


def of_job(job_type: JobType[..., Any], used: Used = UNKIND, check: Check | None = None, **known: Any) -> Play:
    """Return a job of the gallery as a play; what its module asks is replaced when the subject is made."""

    def subject(gateway: Gateway) -> Subject:
        for name, asked in {"gateway": gateway, "dynamodb": _dynamodb, "booking_of": _booking_of}.items():
            setattr(jobs, name, asked)
        jobs._receipt_of = _receipt_of
        return app(job_type)

    known |= {"job_type": job_type.name, "used": used, "bodies": {"m1": dict(BODY)}}
    return Play(job_type.name, subject, check or charged("charge"), **known)


def _dynamodb() -> Any:
    process = CURRENT.get()
    assert process is not None
    return process.watched["dynamodb"]


def _booking_of(_order: Any) -> dict[str, Any]:
    """Return the update of the gallery in a table whose partition key the doubles know."""
    return booking()


def _receipt_of(order: Any) -> dict[str, Any]:
    return {"TableName": OWN, "Item": {"pk": {"S": f"receipt#{order.order_id}"}}}


# What is wrong, and what a schedule must show of it.
WRONG = (
    (by_hand(consumers.check_then_act, Used()), "effects: charge happened 2 times"),
    (by_hand(consumers.lock_only, Used()), "effects: charge happened 2 times"),
    (by_hand(consumers.charge_then_claim, Used()), "effects: charge happened 2 times"),
    (by_hand(consumers.complete_without_owner), "G3: a completed record was changed"),
    (by_hand(consumers.delete_on_failure_without_owner, Used(expiries=1, failures=1)), "G3: a record was deleted"),
    (by_hand(consumers.effect_after_completion), "effects: charge happened 0 times"),
    (by_hand(consumers.acknowledges_what_is_in_progress), "effects: charge happened 0 times"),
    (by_hand(field.takes_over_at_once, Used(), exclusive=True), "G1: two workers are at it at once"),
    (by_hand(field.never_takes_over), "deadlock: m1 comes back again and again"),
    (by_hand(field.takes_its_own_claim_for_anothers, Used(losses=1)), "deadlock: m1 comes back again and again"),
    (by_hand(consumers.key_from_a_timestamp, Used(expiries=1)), "effects: charge happened 2 times"),
    (
        by_hand(field.takes_over_too_early, Used(expiries=1), exclusive=True, leap=2),
        "G1: two workers are at it at once",
    ),
    (by_hand(field.forgets_after_five_minutes, Used(expiries=1), leap=360), "effects: charge happened 2 times"),
    (of_job(jobs.effect_outside_the_step), "effects: charge happened 2 times"),
    (of_job(jobs.effect_in_a_step_without_key), "effects: charge happened 2 times"),
    (of_job(jobs.key_from_the_attempt), "effects: charge happened 2 times"),
    (of_job(jobs.key_from_the_fencing_token), "effects: charge happened 2 times"),
    (of_job(jobs.key_from_a_timestamp), "effects: charge happened 2 times"),
    (of_job(jobs.key_from_the_month, leap=3 * 86_400), "effects: charge happened 2 times"),
    (of_job(jobs.another_key_from_the_third_attempt, Used(crashes=2, expiries=1)), "effects: charge happened 2 times"),
    (of_job(jobs.gives_up_after_the_first_attempt), "effects: charge happened 0 times"),
    (of_job(jobs.charges_again_to_be_sure, Used(failures=1)), "effects: charge happened 2 times"),
    (of_job(jobs.at_most_once_but_retries, Used(failures=1)), "effects: charge happened 2 times"),
    (of_job(jobs.writes_beside_the_transaction, check=booked), "G7: 3 bookings for one completion"),
)
RIGHT = (
    by_hand(right.right_in_short, exclusive=True),
    by_hand(right.right_with_downstream_key, Used(crashes=1, losses=1, expiries=1, failures=1), exclusive=True),
)
