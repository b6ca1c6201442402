"""The rows of the table from 1 to 29: claims, results, keys and batches."""

from __future__ import annotations

from public_bugs import batches, claims, results, surroundings
from public_bugs.ground import Row

POWERTOOLS = "aws-powertools/powertools-lambda-python"
TYPESCRIPT = "aws-powertools/powertools-lambda-typescript"
DOCUMENTS = "aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws"

FIRST: dict[int, Row] = {
    1: Row(
        "a batch dies in the middle",
        (f"{DOCUMENTS}#904",),
        "Each redelivery runs the whole batch again",
        "Replays, one take-over, and first runs: as many effects as jobs",
        (claims.ten_jobs_die_with_their_batch,),
    ),
    2: Row(
        "a late run overwrites a success",
        (f"{DOCUMENTS}#989", "awslabs/genai-idp-terraform#197"),
        "A late duplicate ends as failed over the success",
        "Its write is refused; the final state stays",
        (claims.a_late_end_does_not_overwrite_a_success, claims.a_late_end_does_not_overwrite_a_failure_either),
    ),
    3: Row(
        "a duplicate deletes a living record",
        (f"{TYPESCRIPT}#5675",),
        "The one that is turned away cleans up somebody else's record",
        "Who has no claim writes nothing",
        (claims.a_duplicate_writes_nothing,),
    ),
    4: Row(
        "whoever was replaced settles the claim",
        ("margince/margince#649",),
        "An expired claim is completed, failed or extended by its former holder",
        "Every write names claimant and version",
        (claims.whoever_was_replaced_settles_nothing,),
    ),
    5: Row(
        "the response to one's own write is lost",
        ("aws/aws-sdk-java#2667", "aws/aws-sdk-go#3765", "erlcloud/erlcloud#508", "earth-mover/icechunk#2099"),
        "The SDK sends it again, the condition fails, and the job loses to itself",
        "The refusal shows our own record: it was ours, for every write and for transactions",
        (
            claims.a_response_that_is_lost_is_recognised,
            claims.a_take_over_whose_response_is_lost_is_recognised,
            claims.a_transaction_whose_response_is_lost_is_recognised,
        ),
    ),
    6: Row(
        "a start with 0 ms left",
        (f"{POWERTOOLS}#738", f"{POWERTOOLS}#4759"),
        "0 counts as unknown: a claim without an end",
        "Not claimed and not started; the message is kept",
        (claims.nothing_starts_with_no_time_left,),
    ),
    7: Row(
        "a warm process remembers the batch before",
        (f"{TYPESCRIPT}#3673", f"{POWERTOOLS}#1022"),
        "A failed group or exception of one invocation skips records of the next",
        "Nothing is kept between invocations",
        (batches.a_warm_process_forgets_the_batch_before,),
    ),
    8: Row(
        "only the last failure is told",
        (f"{POWERTOOLS}#967",),
        "Failed records are deleted as successes",
        "Every failure is in the answer",
        (batches.every_failure_is_named,),
    ),
    9: Row(
        "a cache answers for the record",
        (f"{TYPESCRIPT}#2309",),
        "A cached record is told as in progress",
        "There is no cache; each delivery asks the record",
        (results.a_warm_process_asks_the_record_every_time,),
    ),
    10: Row(
        "a result is cached before its payload is checked",
        (f"{POWERTOOLS}#3822",),
        "A duplicate with another payload gets the stored result",
        "The payload is checked before the claim, and compared with the record's",
        (results.a_payload_is_checked_before_anything_is_claimed, results.a_replay_is_not_given_to_another_payload),
    ),
    11: Row(
        "an empty result is none",
        (f"{POWERTOOLS}#5251",),
        "None, 0, empty text and lists are replayed as something else, or run again",
        "They are results",
        (results.nothing_is_a_result,),
    ),
    12: Row(
        "a result does not fit",
        ("getmoto/moto#1874", "aaronsu11/langgraph-checkpoint-dynamodb#2"),
        "The effect happens, the record cannot be saved, the effect happens again",
        "Completed with a marker, and told; never run again",
        (results.a_result_that_does_not_fit_never_causes_a_second_run,),
    ),
    14: Row(
        "a key that names nothing",
        (f"{POWERTOOLS}: idempotency, raise_on_no_idempotency_key",),
        "With an empty or missing key the job runs unprotected",
        "Refused with the reason; blank text, None, booleans and containers are no keys",
        (results.a_key_that_names_nothing_is_refused, results.a_key_that_selects_nothing_is_refused),
    ),
    15: Row(
        "a key that is too long",
        ("DynamoDB: 2,048 bytes of a partition key",),
        "The write is refused, or keys are cut and meet",
        "Hashed behind a readable beginning; counted in bytes",
        (results.a_long_key_is_hashed_and_stays_itself,),
    ),
    17: Row(
        "parts of a key meet",
        ("justonce 0.2.0: operation_key",),
        '"b:c" and "b", "c" make one key',
        "Parts are escaped",
        (results.parts_never_meet,),
    ),
    18: Row(
        "a whole number as key",
        (f"{POWERTOOLS}#315",),
        "TypeError",
        "Written in decimal; 0 is one",
        (results.a_whole_number_is_a_key,),
    ),
    19: Row(
        "md5 is forbidden",
        ("cert-manager/aws-privateca-issuer#340",),
        "Under FIPS no key can be made",
        "Only SHA-256 is asked for",
        (results.no_weak_digest_is_asked_for,),
    ),
    21: Row(
        "no records, or records that are none",
        (f"{POWERTOOLS}: batch, events without Records",),
        "An exception out of the handler, and the whole batch again",
        "Nothing is a success; another service's event is a clear error; an odd record hurts itself",
        (batches.an_event_of_nothing_is_a_success_and_another_service_is_an_error,),
    ),
    23: Row(
        "one key twice in one batch",
        (f"{POWERTOOLS}: batch with idempotency",),
        "The second fails as in progress behind the first, or both run",
        "One lane: run, then replayed",
        (claims.two_messages_of_one_key_are_one_lane,),
    ),
    24: Row(
        "an answer that AWS cannot place",
        ("getlift/lift#173", "awsdocs/aws-lambda-developer-guide#320", "floci-io/floci#3152"),
        "The whole batch is kept, or in an emulator deleted",
        "The exact shape with ids of this event; local runs read it as strictly",
        (
            batches.the_answer_is_valid_however_strictly_it_is_read,
            batches.an_answer_that_aws_cannot_place_keeps_everything_in_the_local_poller,
        ),
    ),
    25: Row(
        "one FIFO item, hundreds of invocations",
        ("DataBiosphere/azul#8143",),
        "FIFO with Lambda is at least once, too",
        "Claims on FIFO queues as well",
        (claims.a_fifo_message_that_comes_again_and_again_runs_once,),
    ),
    26: Row(
        "the acknowledgement fails",
        ("kalaspuff/tomodachi#2074",),
        "Later copies are ignored as duplicates, and kept until the dead-letter queue",
        "A completed job is acknowledged every time, after a redrive too",
        (
            claims.a_completed_job_is_acknowledged_every_time,
            claims.a_redriven_copy_of_a_completed_job_is_acknowledged,
        ),
    ),
    27: Row(
        "a duplicate uses up its receives",
        ("riverqueue/river: snooze", "sorentwo/oban: snooze"),
        "It backs off many times and is moved while the owner still works",
        "Hidden once for the rest of the lease; attempts are counted in our record",
        (claims.a_duplicate_waits_once_for_the_whole_lease, surroundings.the_backstop_is_far_behind_our_attempts),
    ),
    28: Row(
        "an error outside of the handler",
        ("middyjs/middy#1095",),
        "Raised by middleware it comes back for ever",
        "Whatever is raised around a job is that record's failure, and counted",
        (batches.what_is_raised_around_a_job_is_its_records_failure,),
    ),
    29: Row(
        "a batch call of 109 entries",
        ("middyjs/middy#722",),
        "SQS refuses the request",
        "Ten entries and one MiB at the most",
        (batches.batches_hold_ten_entries_and_one_mib,),
    ),
}
