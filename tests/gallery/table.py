"""The gallery as a table: each mistake, what the test kit is to call it, and what becomes of the customer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gallery import consumers as by_hand
from gallery import counted, field, further, jobs, outside, right, right_jobs
from onceq import JobType
from onceq.testing import Diagnosis, EffectRecorder, Parts
from onceq.testing.subject import Handler

Make = Callable[[Parts], Handler]
Job = JobType[..., Any]
S = TypeVar("S", Make, Job)
Effects = EffectRecorder | Callable[[], int]

# The mistakes that the kit has to find at the least.
BUGS = (
    "charge then claim",
    "check then act",
    "lock only",
    "delete on failure without owner",
    "complete without owner",
    "effect outside the step",
    "key from the message id",
    "key from a timestamp",
    "result truthiness",
    "effect after completion",
    "acknowledging without an effect",
    "a downstream key made of customer, amount and day",
)


@dataclass(frozen=True)
class Wrong(Generic[S]):
    """One mistake.

    Args:
        subject: The job, or what makes the consumer.
        diagnosis: What the kit is to call it.
        harm: What becomes of the customer.
        bug: Which of the `BUGS` it is; ``""`` for a further one.
        effects: What counts a job's effects; ``None`` is what it sends.
        told: What an effect reads as in a timeline.
    """

    subject: S
    diagnosis: Diagnosis
    harm: str
    bug: str = ""
    effects: Effects | None = outside.gateway
    told: str = "effect: "

    def __str__(self) -> str:
        """Return its name."""
        return name_of(self.subject)


def name_of(subject: Job | Make) -> str:
    """Return a job type's name, or a consumer's."""
    return subject.name if isinstance(subject, JobType) else str(getattr(subject, "__name__", ""))


CONSUMERS: tuple[Wrong[Make], ...] = (
    Wrong(
        by_hand.charge_then_claim,
        Diagnosis.EFFECT_BEFORE_CLAIM,
        "Charged once more whenever the message comes again.",
        BUGS[0],
    ),
    Wrong(
        by_hand.check_then_act,
        Diagnosis.CHECK_THEN_ACT,
        "Charged twice when two workers look at the same moment.",
        BUGS[1],
    ),
    Wrong(
        by_hand.lock_only,
        Diagnosis.LOCK_ONLY,
        "Charged again by a duplicate that comes a minute later, when the lock is free.",
        BUGS[2],
    ),
    Wrong(
        by_hand.delete_on_failure_without_owner,
        Diagnosis.RELEASED_BY_ANOTHER,
        "Charged a second time, since a slow worker's failure wiped out that it was done.",
        BUGS[3],
    ),
    Wrong(
        by_hand.complete_without_owner,
        Diagnosis.COMPLETED_BY_ANOTHER,
        "Shown one receipt number today and another tomorrow.",
        BUGS[4],
    ),
    Wrong(
        by_hand.key_from_the_message_id,
        Diagnosis.KEY_FROM_MESSAGE_ID,
        "Charged again after each redrive from the dead-letter queue.",
        BUGS[6],
    ),
    Wrong(
        by_hand.key_from_a_timestamp,
        Diagnosis.KEY_FROM_TIME,
        "Charged again by each duplicate, since no two come in the same millisecond.",
        BUGS[7],
    ),
    Wrong(
        by_hand.result_truthiness,
        Diagnosis.FALSY_RESULT,
        "Charged again by each duplicate of an order whose result is 0.",
        BUGS[8],
    ),
    Wrong(
        by_hand.effect_after_completion,
        Diagnosis.LOST_AFTER_COMPLETION,
        "Never charged, though the record says so: the worker died in between.",
        BUGS[9],
    ),
    Wrong(
        by_hand.acknowledges_without_effect,
        Diagnosis.NO_EFFECT,
        "Never charged, since the provider was down when the message came.",
        BUGS[10],
    ),
    Wrong(
        by_hand.acknowledges_what_is_in_progress,
        Diagnosis.NO_EFFECT,
        "Never charged: the worker died that the duplicate had trusted in.",
        BUGS[10],
    ),
    Wrong(
        by_hand.customer_amount_day,
        Diagnosis.KEY_SHARED,
        "Gets the second of two equal orders of a day for nothing.",
        BUGS[11],
    ),
    Wrong(
        field.takes_its_own_claim_for_anothers,
        Diagnosis.TOO_FEW,
        "Never charged: the claim is waited for by the one who holds it.",
    ),
    Wrong(field.never_takes_over, Diagnosis.TOO_FEW, "Never charged: a worker died, and its claim stands for ever."),
    Wrong(field.takes_over_at_once, Diagnosis.TWO_AT_ONCE, "Served by two workers at once."),
    Wrong(field.takes_over_too_early, Diagnosis.TWO_AT_ONCE, "Served by two workers at once when the first is slow."),
    Wrong(field.answers_nothing, Diagnosis.NO_EFFECT, "Never charged: what failed was acknowledged."),
    Wrong(
        field.answers_under_another_name,
        Diagnosis.NEVER_SETTLED,
        "In the dead-letter queue, with every other order, though all went well.",
    ),
    Wrong(field.swallows_everything_in_the_batch, Diagnosis.NO_EFFECT, "Never charged: what failed was acknowledged."),
    Wrong(
        field.reports_the_last_failure_alone,
        Diagnosis.NO_EFFECT,
        "Never charged: another order of the batch failed, too, and only that one was kept.",
    ),
    Wrong(
        field.reports_the_record_before,
        Diagnosis.NO_EFFECT,
        "Never charged: the order before it in the batch was kept instead.",
    ),
    Wrong(
        field.forgets_after_five_minutes,
        Diagnosis.KEY_FROM_TIME,
        "Charged again by a duplicate that comes six minutes later.",
    ),
    Wrong(
        further.remembers_in_its_module,
        Diagnosis.KEPT_IN_MEMORY,
        "Charged again by a duplicate that another container gets.",
    ),
    Wrong(
        further.remembers_in_its_handler,
        Diagnosis.EFFECT_BEFORE_CLAIM,
        "Charged again by a duplicate that another container gets.",
    ),
    Wrong(further.remembers_what_it_began, Diagnosis.KEPT_IN_MEMORY, "Never charged: the container was warm."),
    Wrong(
        further.keeps_the_first_order,
        Diagnosis.KEPT_IN_MEMORY,
        "Gets the order for nothing if somebody's was charged by the same container.",
    ),
    Wrong(
        further.keeps_its_failures,
        Diagnosis.KEPT_IN_MEMORY,
        "In the dead-letter queue, with every later order, since one failed in this container.",
    ),
    Wrong(further.key_from_the_whole_body, Diagnosis.KEY_FROM_SEND, "Charged again when the shop sends it again."),
    Wrong(further.key_from_when_it_was_sent, Diagnosis.KEY_FROM_SEND, "Charged again when the shop sends it again."),
    Wrong(
        further.keeps_what_failed_once,
        Diagnosis.NEVER_SETTLED,
        "Charged, and in the dead-letter queue all the same, where a person charges again.",
    ),
    Wrong(
        further.completes_by_transaction_without_owner,
        Diagnosis.COMPLETED_BY_ANOTHER,
        "Shown one receipt number today and another tomorrow.",
    ),
    Wrong(
        further.completes_by_batch_without_owner,
        Diagnosis.COMPLETED_BY_ANOTHER,
        "Shown one receipt number today and another tomorrow.",
    ),
    Wrong(
        further.does_the_first_order_again,
        Diagnosis.KEPT_IN_MEMORY,
        "Charged for everybody's orders that the container gets after theirs.",
    ),
    Wrong(
        further.leaves_the_batch_at_a_duplicate,
        Diagnosis.NO_EFFECT,
        "Never charged: the order before it in the batch was done already.",
    ),
    Wrong(
        further.leaves_the_batch_at_what_is_in_progress,
        Diagnosis.NO_EFFECT,
        "Never charged: somebody was at the order before it in the batch.",
    ),
    Wrong(
        further.drops_a_batch_with_a_completed_order,
        Diagnosis.NO_EFFECT,
        "Never charged: another order of the batch was done already.",
    ),
    Wrong(
        further.claims_the_first_for_the_batch,
        Diagnosis.NO_EFFECT,
        "Never charged: the first order of the batch was done already.",
    ),
    Wrong(
        further.takes_any_refusal_for_done,
        Diagnosis.NO_EFFECT,
        "Never charged, since the table was busy when the message came.",
    ),
    Wrong(
        further.takes_a_failed_look_for_blocked,
        Diagnosis.NO_EFFECT,
        "Never charged, since the table was busy when the message came.",
    ),
    Wrong(
        further.gives_up_by_the_receive_count,
        Diagnosis.NO_EFFECT,
        "Never charged, and nobody hears of it: the provider was down for an hour.",
    ),
    Wrong(
        further.gives_up_by_a_counter,
        Diagnosis.NO_EFFECT,
        "Never charged, and nobody hears of it: the provider was down for an hour.",
    ),
    Wrong(
        field.claims_by_a_condition_that_always_holds,
        Diagnosis.CHECK_THEN_ACT,
        "Charged once for each time that the message comes.",
    ),
    Wrong(
        field.looks_beside_an_audit_row,
        Diagnosis.CHECK_THEN_ACT,
        "Charged twice when two workers look at the same moment.",
    ),
)

JOBS: tuple[Wrong[Job], ...] = (
    Wrong(
        jobs.effect_outside_the_step,
        Diagnosis.OUTSIDE_STEP,
        "Charged again by every further attempt.",
        BUGS[5],
    ),
    Wrong(
        jobs.effect_in_a_step_without_key,
        Diagnosis.NO_DOWNSTREAM_KEY,
        "Charged again where a worker dies between the charge and its record.",
    ),
    Wrong(
        jobs.key_from_the_message_id,
        Diagnosis.KEY_FROM_MESSAGE_ID,
        "Charged again when a failed order is redriven.",
        BUGS[6],
    ),
    Wrong(jobs.key_from_the_attempt, Diagnosis.KEY_FROM_ATTEMPT, "Charged once for each attempt."),
    Wrong(jobs.key_from_the_fencing_token, Diagnosis.KEY_FROM_TIME, "Charged once for each attempt."),
    Wrong(jobs.key_from_a_timestamp, Diagnosis.KEY_FROM_TIME, "Charged once for each attempt.", BUGS[7]),
    Wrong(jobs.key_from_chance, Diagnosis.KEY_RANDOM, "Charged once for each attempt."),
    Wrong(
        jobs.customer_amount_day,
        Diagnosis.KEY_SHARED,
        "Gets the second of two equal orders of a day for nothing.",
        BUGS[11],
    ),
    Wrong(jobs.customer_and_amount, Diagnosis.KEY_SHARED, "Gets everything that costs the same for nothing."),
    Wrong(jobs.job_key_from_chance, Diagnosis.KEY_RANDOM, "Charged once for each time that the order is sent."),
    Wrong(
        jobs.swallows_the_error,
        Diagnosis.NO_EFFECT,
        "Never charged, since the provider was down when the message came.",
        BUGS[10],
    ),
    Wrong(jobs.gives_up_politely, Diagnosis.NO_EFFECT, "Never charged, since the provider was down for an hour."),
    Wrong(jobs.gives_up_at_the_last_attempt, Diagnosis.NO_EFFECT, "Never charged, and nobody hears of it."),
    Wrong(jobs.returns_when_it_comes_often, Diagnosis.NO_EFFECT, "Never charged, since the provider was down."),
    Wrong(
        jobs.charges_again_to_be_sure,
        Diagnosis.KEY_FROM_ATTEMPT,
        "Charged twice when the provider's first answer is lost.",
    ),
    Wrong(jobs.remembers_in_memory, Diagnosis.KEPT_IN_MEMORY, "Never charged: the container was warm."),
    Wrong(jobs.remembers_what_is_done, Diagnosis.KEPT_IN_MEMORY, "Charged again by another container."),
    Wrong(jobs.key_from_when_it_was_sent, Diagnosis.KEY_FROM_SEND, "Charged again when the shop sends it again."),
    Wrong(
        jobs.skips_while_the_provider_is_down,
        Diagnosis.NO_EFFECT,
        "Never charged: somebody else's charge had failed in that minute.",
    ),
    Wrong(jobs.gives_up_after_the_first_attempt, Diagnosis.NO_EFFECT, "Never charged: the first attempt died early."),
    Wrong(
        jobs.at_most_once_but_retries,
        Diagnosis.STARTED_TWICE,
        "Charged twice when the receipt could not be printed.",
    ),
    Wrong(
        jobs.writes_beside_the_transaction,
        Diagnosis.TWICE,
        "Booked twice where a worker dies before the completion.",
        effects=outside.bookings,
        told="UpdateItem BookingsTable",
    ),
    Wrong(
        jobs.swallows_what_the_table_says,
        Diagnosis.NO_EFFECT,
        "Never booked, since the table was busy when the message came.",
        effects=outside.bookings,
    ),
    Wrong(jobs.empty_key, Diagnosis.OUTSIDE_STEP, "Charged again by every further attempt."),
    Wrong(
        jobs.two_charges_under_one_key,
        Diagnosis.KEY_WITH_OTHER_ARGUMENTS,
        "Gets the postage for nothing, or no order at all.",
    ),
    Wrong(jobs.key_from_the_month, Diagnosis.KEY_FROM_TIME, "Charged twice on New Year's Eve."),
    Wrong(
        jobs.another_key_from_the_third_attempt,
        Diagnosis.KEY_FROM_ATTEMPT,
        "Charged twice after two workers died.",
    ),
    Wrong(jobs.amount_of_the_attempt, Diagnosis.KEY_WITH_OTHER_ARGUMENTS, "Charged twice the price, or not at all."),
    Wrong(jobs.charges_the_first_order, Diagnosis.MIXED_UP, "Charged for everybody's orders after their own."),
    Wrong(jobs.swallows_the_second_error, Diagnosis.NO_EFFECT, "Gets the postage for nothing."),
    Wrong(jobs.enqueues_directly, Diagnosis.KEY_RANDOM, "Gets two receipts by mail.", told="send a message"),
    Wrong(
        jobs.swallows_what_the_queue_says,
        Diagnosis.NO_EFFECT,
        "Gets no receipt, since the queue was busy for a few seconds.",
        effects=None,
    ),
    Wrong(
        jobs.swallows_what_the_queue_says_of_many,
        Diagnosis.NO_EFFECT,
        "Gets no receipts, since the queue was busy for a few seconds.",
        effects=None,
    ),
    Wrong(
        jobs.takes_a_failed_look_for_no,
        Diagnosis.NO_EFFECT,
        "Never charged, since the table was busy when the message came.",
    ),
    Wrong(
        jobs.one_attempt_without_a_key,
        Diagnosis.OUTSIDE_STEP,
        "Charged again when the order is redriven from the dead-letter queue.",
    ),
    Wrong(jobs.one_attempt_that_swallows, Diagnosis.NO_EFFECT, "Never charged, and nobody hears of it."),
    Wrong(
        counted.one_message_for_two_readers,
        Diagnosis.KEY_WITH_OTHER_ARGUMENTS,
        "The shop never gets its copy: its message lies in the dead-letter queue.",
        effects=None,
    ),
    Wrong(
        counted.sends_itself_its_own_key, Diagnosis.KEY_WITH_OTHER_ARGUMENTS, "Gets all but the first page for nothing."
    ),
    Wrong(counted.sends_itself_again, Diagnosis.KEY_USED_TWICE, "Charged on the first day alone."),
    Wrong(
        counted.message_under_the_customers_key,
        Diagnosis.KEY_SHARED,
        "Gets no receipt for the second order.",
        effects=None,
    ),
    Wrong(
        counted.books_in_the_first_attempt,
        Diagnosis.NO_EFFECT,
        "Has a receipt, and no booking, since a worker died.",
        effects=None,
    ),
    Wrong(
        counted.books_unless_marked,
        Diagnosis.MARKED_FIRST,
        "Has a receipt, and no booking, since a worker died.",
        effects=None,
    ),
    Wrong(counted.marks_before_it_charges, Diagnosis.MARKED_FIRST, "Never charged, since a worker died."),
    Wrong(
        counted.books_the_first_order,
        Diagnosis.MIXED_UP,
        "Not booked: the first order of the container was booked again.",
        effects=None,
    ),
    Wrong(counted.sends_the_first_order, Diagnosis.MIXED_UP, "Gets somebody else's receipt.", effects=None),
    Wrong(counted.sends_in_a_loop, Diagnosis.TWICE, "Gets two receipts by mail.", told="charge"),
    Wrong(
        counted.counts_on_what_it_read, Diagnosis.OVERWRITES, "One of two orders at once is not counted.", effects=None
    ),
    Wrong(
        counted.puts_what_it_read,
        Diagnosis.OVERWRITES,
        "One of two orders at once is not booked.",
        effects=outside.bookings,
    ),
    Wrong(counted.one_key_for_every_line, Diagnosis.KEY_USED_TWICE, "Gets the second line for nothing."),
    Wrong(counted.at_most_once_but_waits, Diagnosis.STARTED_TWICE, "Charged twice, each time."),
    Wrong(
        counted.at_most_once_but_calls_again,
        Diagnosis.STARTED_TWICE,
        "Charged twice when the provider's first answer is lost.",
    ),
    Wrong(
        counted.turns_to_another_provider,
        Diagnosis.ERROR_PATH,
        "Charged by two providers when the first one's answer is lost.",
    ),
    Wrong(
        counted.refunds_in_a_step,
        Diagnosis.ERROR_PATH,
        "Gets the order for nothing: the charge is refunded, and known by its key.",
    ),
    Wrong(
        counted.posts_to_another_provider,
        Diagnosis.ERROR_PATH,
        "Charged by two providers when the first one's answer is lost.",
    ),
    Wrong(
        counted.sells_the_last_seat,
        Diagnosis.OVERWRITES,
        "Stands before a seat that is taken: it was sold twice at one moment.",
        effects=None,
    ),
    Wrong(counted.another_key_beside_an_audit_row, Diagnosis.KEY_FROM_ATTEMPT, "Charged once for each attempt."),
)

# With what counts their effects; ``None`` is the work that they were given.
RIGHT_CONSUMERS: tuple[tuple[Make, Callable[[], int] | None], ...] = (
    (right.right_by_sending_again, None),
    (right.right_beside_an_audit_row, None),
    (right.right_in_short, None),
    (right.right_by_the_providers_key, None),
    (right.right_with_downstream_key, None),
    (right.right_with_a_memory, None),
    (right.right_by_a_hash, None),
    (right.right_with_a_transaction, outside.bookings),
    (right.right_with_a_look_between, None),
    (right.right_with_a_row_of_its_own, None),
    (right.right_with_a_sum, None),
    (right.right_that_takes_the_records_out, None),
    (right.right_that_clears_the_event, None),
    (right.right_that_asks_again, None),
)
# With what counts their effects; ``None`` is what they stage.
RIGHT_JOBS: tuple[tuple[Job, Effects | None], ...] = (
    (right_jobs.send_receipt, outside.gateway),
    (right_jobs.keyed_step, outside.gateway),
    (right_jobs.keyed_effect, outside.gateway),
    (right_jobs.key_of_the_order, outside.gateway),
    (right_jobs.at_most_once_job, outside.gateway),
    (right_jobs.at_most_once_step, outside.gateway),
    (right_jobs.at_most_once_retrying, outside.gateway),
    (right_jobs.transactional, None),
    (right_jobs.writes_its_own_row, outside.bookings),
    (right_jobs.sends_on, None),
    (right_jobs.asynchronous, outside.gateway),
    (right_jobs.retrying, outside.gateway),
    (right_jobs.several_effects, outside.gateway),
    (right_jobs.looks_first, outside.gateway),
    (right_jobs.falsy_result, outside.gateway),
    (right_jobs.result_of_the_clock, outside.gateway),
    (right_jobs.two_charges, outside.gateway),
    (right_jobs.sends_to_itself, None),
    (right_jobs.notes_the_last_order, None),
    (right_jobs.makes_the_account_once, None),
    (right_jobs.sells_the_last_seat_once, None),
    (right_jobs.prints_two_labels, outside.gateway),
    (right_jobs.tells_of_a_failed_look, outside.gateway),
    (right_jobs.writes_an_audit_row, outside.gateway),
    (right_jobs.charges_and_asks_again, outside.gateway),
    (right_jobs.charges_and_mails_later, outside.gateway),
    (right_jobs.one_attempt, outside.gateway),
    (right_jobs.two_attempts, outside.gateway),
    (right_jobs.enqueues_by_keys, None),
    (right_jobs.looks_into_its_table, outside.gateway),
)
