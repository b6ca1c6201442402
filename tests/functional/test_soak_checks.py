"""The soak's checker, shown states that were doctored: it finds each broken promise, and names it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from soak.order import check_order
from soak.report import CHECKS, Report, judge
from soak.states import body_of, kept_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from soak.seen import Seen

    Doctor = Callable[[Seen], object]


def write(seen: Seen, job: str, number: int) -> dict[str, Any]:
    """Return a write to a job's record, by its place."""
    return [one for one in seen.journal if one["job"] == job][number]


def told(seen: Seen, name: str, job: str) -> dict[str, Any]:
    """Return what was told of a job."""
    return next(line for line in seen.log if line["name"] == name and line.get("job") == job)


def again(seen: Seen, name: str, job: str, **changed: Any) -> None:
    """Let something be told of a job once more, otherwise."""
    seen.log.append({**told(seen, name, job), **changed})


def take_over_early(seen: Seen) -> None:
    """Let the taker come while the lease holds."""
    write(seen, "count#k-3", 1).update(arrived=3_299)


def run_unclaimed(seen: Seen) -> None:
    """Let an attempt run that no claim belongs to."""
    again(seen, "attempt.began", "charge#k-1", token=1_001, pid=12)


def run_under_one_token(seen: Seen) -> None:
    """Let two processes run under one token."""
    again(seen, "attempt.began", "charge#k-1", pid=12)


def land_late(seen: Seen) -> None:
    """Let the zombie's write land."""
    write(seen, "count#k-3", 3).update(http=200)


def write_unheld(seen: Seen) -> None:
    """Let a write name another version than the one before it."""
    write(seen, "trip#k-2", 4)["after"] = ["dead", 2]


def return_from_the_dead(seen: Seen) -> None:
    """Let the first claimant write once more behind the second."""
    seen.journal[:] = [one for one in seen.journal if one["job"] != "trip#k-2" or one["version"] < 5]
    write(seen, "trip#k-2", 3).update(claimant="dead")


def change_completion(seen: Seen) -> None:
    """Let the table have another result than the completion."""
    seen.records["charge#k-1"]["result"] = "2"


def change_owner(seen: Seen) -> None:
    """Let the table have a version that nobody was seen to write."""
    seen.records["charge#k-1"]["version"] = 9


def run_again(seen: Seen) -> None:
    """Let a completed job be claimed and run again."""
    again(seen, "attempt.began", "charge#k-1", token=8_000, pid=12)
    seen.journal.append({**write(seen, "charge#k-1", 0), "version": 4, "fencing": 8_000, "landed": 8_001})


def complete_twice(seen: Seen) -> None:
    """Let two say that they completed a job."""
    again(seen, "job.completed", "charge#k-1", claimant="other")


def complete_for_another(seen: Seen) -> None:
    """Let the record name another claimant than who says that he completed it."""
    seen.records["charge#k-1"]["claimant"] = "other"


def charge_twice(seen: Seen) -> None:
    """Let an effect happen under a second key."""
    effects = seen.books["effects"]
    effects["another"] = copy.deepcopy(effects["charge#k-1/charge"])


def lose(job: str) -> Doctor:
    """Return what takes every trace of a job away."""

    def doctor(seen: Seen) -> None:
        seen.records.pop(job, None)
        seen.letters[:] = [one for one in seen.letters if one["note"].get("key") != job.partition("#")[2]]

    return doctor


def lose_letters(seen: Seen) -> None:
    """Empty the dead-letter queues."""
    seen.letters.clear()


def leave_unended(seen: Seen) -> None:
    """Let a job that a crash had cut be left as it was."""
    seen.records["trip#k-2"]["status"] = "processing"


def harm_neighbour(seen: Seen) -> None:
    """Let what was in one batch with a bad message end rejected."""
    seen.records["count#k-3"]["status"] = "rejected"


def end_killer(seen: Seen) -> None:
    """Let a job that always kills its process be completed."""
    seen.records["killer#k-91"]["status"] = "completed"


def repeat_step(seen: Seen) -> None:
    """Let a recorded step be run by the next attempt."""
    again(seen, "step.began", "trip#k-2", token=3_400, pid=12)


def off(table: str, name: str, by: int) -> Doctor:
    """Return what lets one number of the user's tables be off."""

    def doctor(seen: Seen) -> None:
        getattr(seen, table)[name] += by

    return doctor


def drop_line(seen: Seen) -> None:
    """Let a completion come without its line."""
    seen.lines.clear()


def drop_completion(seen: Seen) -> None:
    """Let a line come without its completion."""
    seen.records["reserve#k-4"]["status"] = "failed"


def stage(**entry: Any) -> Doctor:
    """Return what puts an entry into the outbox."""
    return lambda seen: seen.outbox.append({"job": "mail#k-4-mail", "status": "sent", "pk": "x", **entry})


def drop_entry(seen: Seen) -> None:
    """Let the outbox lack a message."""
    seen.outbox.pop()


def send_unstaged(seen: Seen) -> None:
    """Let a job of the outbox run whose sender was rejected."""
    seen.records["mail#k-9-mail"] = dict(seen.records["mail#k-4-mail"])


def forget_effect(seen: Seen) -> None:
    """Let a completed job never have had its effect."""
    del seen.books["effects"]["mail#k-4-mail/mail"]


def start_twice(seen: Seen) -> None:
    """Let a job that may start once be started by a taker."""
    again(seen, "attempt.began", "book#k-7", token=3_400, pid=12)


def call(job: str) -> Doctor:
    """Return what lets a job call the system that knows no keys."""
    return lambda seen: seen.books["legacy"].append({"at": 9_000, "job": job})


def forget_call(seen: Seen) -> None:
    """Let a job be completed that never called."""
    seen.books["legacy"].clear()


def store(job: str, result: str | None) -> Doctor:
    """Return what lets another result be stored, by its own completion."""

    def doctor(seen: Seen) -> None:
        seen.records[job]["result"] = result
        write(seen, job, -1)["result"] = result

    return doctor


def forget_why(seen: Seen) -> None:
    """Let a result be missing without a word."""
    seen.records["answer#k-90"]["result_not_stored"] = None


def lose_to_himself(seen: Seen) -> None:
    """Let a claimant lose the claim to his own write."""
    told(seen, "claim.lost", "count#k-3")["winner"] = "zombie"


def take_for_own(seen: Seen) -> None:
    """Let a zombie take another's completion for his."""
    again(seen, "job.completed", "count#k-3", claimant="zombie", pid=11)


def never_write(seen: Seen) -> None:
    """Let the completion that was told never have been written."""
    seen.journal[:] = [one for one in seen.journal if one["job"] != "entry#k-5" or one["status"] != "completed"]


def begin_early(seen: Seen) -> None:
    """Let a job of a group begin while the one before it runs."""
    told(seen, "attempt.began", "entry#k-15")["at"] = 2_320


def pass_by(seen: Seen) -> None:
    """Let the job before it never end."""
    seen.journal[:] = [one for one in seen.journal if one["job"] != "entry#k-5" or one["status"] != "completed"]


DOCTORED: dict[str, tuple[str, Doctor, str]] = {
    "taken over too early": ("G1", take_over_early, "1 ms too early"),
    "an attempt without a claim": ("G1", run_unclaimed, "which no claim has"),
    "one token for two": ("G1", run_under_one_token, "under one token"),
    "a late write that landed": ("G2", land_late, "is v2 and the 3. write"),
    "a write that follows another one": ("G2", write_unheld, "does not follow"),
    "a claimant who comes back": ("G2", return_from_the_dead, "after he was taken over"),
    "a completion that was changed": ("G2", change_completion, "completion was changed"),
    "a record that nobody wrote": ("G2", change_owner, "the last write was v3"),
    "a record that is gone": ("G2", lose("charge#k-1"), "record is gone"),
    "a run after the completion": ("G3", run_again, "after its completion"),
    "two who completed": ("G3", complete_twice, "2 claimants"),
    "a completion under another name": ("G3", complete_for_another, "the record names another one"),
    "an effect under two keys": ("G3", charge_twice, "2 effects"),
    "a message without a trace": ("G4", lose("charge#k-1"), "is lost: None"),
    "a rejected job without a copy": ("G4", lose_letters, "is lost: rejected"),
    "a body without a copy": ("G4", lose_letters, "is lost: None"),
    "a job that nobody recovers": ("G4", leave_unended, "is lost: processing"),
    "a message of the outbox that is lost": ("G4", lose("mail#k-4-mail"), "from the outbox and lost"),
    "a neighbour that was harmed": ("G5", harm_neighbour, "beside what cannot be read"),
    "a killer that completed": ("G5", end_killer, "should be rejected"),
    "a step that was run again": ("G6", repeat_step, "flight was run again"),
    "a crash that is not recovered": ("G6", leave_unended, "nobody recovered it"),
    "a piece too few": ("G7", off("stock", "plenty", -1), "4 pieces off the shelf, 3 in the lines"),
    "a piece too many": ("G7", off("stock", "plenty", 1), "2 pieces off the shelf, 3 in the lines"),
    "a cent too few": ("G7", off("balances", "a", -1), "139 cents"),
    "a completion without its line": ("G7", drop_line, "completed without its line"),
    "a line without its completion": ("G7", drop_completion, "line without completion"),
    "a message that nobody sent": ("G8", stage(job="mail#k-9-mail"), "did not complete"),
    "a message that was sent and never staged": ("G8", send_unstaged, "no message started it"),
    "a message that is missing": ("G8", drop_entry, "there is no message"),
    "a message that is there twice": ("G8", stage(), "staged 2 times"),
    "a message that is never sent": ("G8", stage(status="pending"), "still pending"),
    "a message that is not applied": ("G8", lose("mail#k-4-mail"), "was sent, and it is None"),
    "a completion without its effect": ("G8", forget_effect, "completed without mail"),
    "a second start": ("G9", start_twice, "started 2 times, and 1 were allowed"),
    "a second call": ("G9", call("book#k-6"), "called 2 times"),
    "a completion without its call": ("G9", forget_call, "nobody called"),
    "another result": ("G10", store("charge#k-1", '{"charge": 2}'), "is stored"),
    "a false result that became null": ("G10", store("answer#k-80", "null"), "it returned 0"),
    "a result that vanished": ("G10", forget_why, "does not say so"),
    "lost to himself": ("G11", lose_to_himself, "to himself"),
    "taken for his own": ("G11", take_for_own, "who never wrote it"),
    "told and never written": ("G11", never_write, "who never wrote it"),
    "a job that overtakes its group": ("FIFO", begin_early, "began 3 ms before the end of entry#k-5"),
    "a job that passes one that is stuck": ("FIFO", pass_by, "began inf ms before"),
}
PROMISES = {*(f"G{number}" for number in range(1, 12)), "FIFO"}


def test_a_state_in_which_every_promise_is_kept_has_no_violation() -> None:
    """All promises: zombies that are refused, deaths, duplicates and bad messages are no violation by themselves."""
    verdicts, timeline = judge(kept_state())

    assert {verdict.promise: verdict.violations for verdict in verdicts} == {promise: [] for promise in PROMISES}
    assert timeline == []


@pytest.mark.parametrize("name", DOCTORED)
def test_each_broken_promise_is_found(name: str) -> None:
    """All promises: a checker that cannot fail proves nothing."""
    promise, doctor, words = DOCTORED[name]
    seen = kept_state()
    doctor(seen)

    verdicts, _ = judge(seen)

    found = next(verdict.violations for verdict in verdicts if verdict.promise == promise)
    assert any(words in what for _, what in found), found
    assert not Report({}, {"jobs": 1}, {}, verdicts).is_kept


def test_every_promise_that_a_soak_asserts_is_doctored() -> None:
    """All promises: none is left out."""
    assert {promise for promise, _, _ in DOCTORED.values()} == PROMISES
    assert len(CHECKS) == len(PROMISES)


def test_the_counts_of_a_kept_state_are_those_of_its_story() -> None:
    """G1, G2, G6, G9, G11: what the report counts is what was there."""
    counts = {verdict.promise: verdict.counts for verdict in judge(kept_state())[0]}

    assert counts["G1"]["overlaps of zombies"] == 1
    assert counts["G2"]["of them zombies'"] == 1
    assert counts["G4"] == {
        "messages": 18, "completed": 14, "dead letters": 4, "in the queue": 0, "of the outbox": 2,
    }  # fmt: skip
    assert (counts["G6"]["jobs cut by a death"], counts["G6"]["answered from the record"]) == (3, 1)
    assert (counts["G9"]["starts"], counts["G9"]["uncertain"]) == (4, 1)
    assert counts["G10"] == {"results": 15, "false ones": 8, "not stored": 1}
    assert counts["FIFO"] == {"groups": 1, "jobs": 2, "compared": 1}
    assert counts["G11"] == {"landed unheard": 1, "recognised": 1, "writer gone or given up": 0}


def test_the_first_violation_is_shown_with_its_timeline() -> None:
    """All promises: the report says what was compared, who broke it, and what happened when."""
    seen = kept_state()
    take_over_early(seen)
    verdicts, timeline = judge(seen)

    text = Report({"seed": 1}, {"jobs": 3}, {"slow": 2}, verdicts, timeline=timeline).to_text()

    assert "G1  broken" in text
    assert "count#k-3: taken over 1 ms too early" in text
    assert [line.split(maxsplit=1)[1] for line in timeline if "SIG" in line] == ["11       SIGSTOP", "11       SIGCONT"]
    assert "table    complete v2 by zombie: refused" in text
    assert text.endswith("1 violations: NOT as promised")
    nothing_shown = Report({}, {"jobs": 0}, {}, judge(kept_state())[0], problems=["not shown: jobs"])
    assert not nothing_shown.is_kept
    assert nothing_shown.to_text().endswith("no proof: see above")


def test_a_message_that_still_lies_in_its_queue_is_not_lost() -> None:
    """G4: it is told from what is lost, and counted."""
    seen = kept_state()
    lose("charge#k-1")(seen)
    seen.left.append(body_of("charge#k-1"))
    # Somebody used its key again; that copy is not one of it.
    seen.letters.append({"note": {"key": "k-1", "reason": "key reuse"}, "body": body_of("charge#k-1")})

    counts = {verdict.promise: (verdict.counts, verdict.violations) for verdict in judge(seen)[0]}["G4"]

    assert counts[0]["in the queue"] == 2  # its duplicate lies there, too
    assert counts[1] == []


def test_the_order_is_asked_where_it_is_known_and_kept() -> None:
    """Order: not of a message that was sent twice for want of an answer, and not on a server that mixes groups up."""
    seen = kept_state()
    begin_early(seen)
    seen.resent.add("entry#k-5")
    assert check_order(seen).violations == []

    seen = kept_state()
    begin_early(seen)
    seen.keeps_order = False
    verdict = check_order(seen)
    assert (verdict.violations, verdict.counts) == ([], {})
