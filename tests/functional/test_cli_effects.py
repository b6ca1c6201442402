"""The commands about effects: outbox, steps, locks, what a person resolves, one run of the relay and of recovery."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import types
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.claims import record_of
from kit.clock import FakeLambdaContext
from kit.world import OUTBOX_TABLE, TABLE, event_of
from onceq import App, Context, Reject, Semantics, cli, job
from onceq.outbox import OutboxEntry
from onceq.record import Status
from onceq.runtime import Runtime
from onceq.statefile import PLACES, state_file

if TYPE_CHECKING:
    from pathlib import Path

    from kit.world import World
    from onceq.telemetry import Event

NOW = 1_795_953_600_000
CALLS: list[str] = []
OPEN: set[str] = set()


def _call(name: str) -> str:
    CALLS.append(name)
    return f"{name} it is"


@job("pay", max_attempts=2)
def pay(payload: dict[str, Any], ctx: Context) -> list[str]:
    """Take two steps; between them, be rejected where the payload says so, until `OPEN` holds the key."""
    first = ctx.step("charge", _call, "charge")
    if payload.get("closed") and ctx.key not in OPEN:
        message = "no stock"
        raise Reject(message)
    return [first, ctx.step("mail", _call, "mail", semantics=Semantics.AT_MOST_ONCE)]


@job("call_legacy", semantics=Semantics.AT_MOST_ONCE)
def call_legacy(payload: dict[str, Any]) -> str:
    """Fail on the way, so that nobody knows whether it happened."""
    CALLS.append("legacy")
    if len(CALLS) == 1:
        message = "no answer"
        raise OSError(message)
    return "called again"


@dataclass
class Shell:
    """A person's terminal, in this process, on a world."""

    world: World
    app: App
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run one command; return its exit code, and what stands on stdout and stderr."""
        self.capsys.readouterr()
        code = cli.main([words[0], "--app", "shop_under_test:app", *words[1:]])
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err

    def json(self, *words: str) -> Any:
        """Run one command that must succeed, with --json."""
        code, out, err = self.run(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    def deliver(self, job_type: str, payload: dict[str, Any], key: str) -> None:
        """Deliver one message."""
        self.app.consumer(event_of(self.world.message(job_type, payload, key=key)), FakeLambdaContext())


def opened(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], hooks: Any = None
) -> Shell:
    """Return a terminal whose environment names the world's tables.

    Powertools' hook stays unless others are given: what it writes is not for a person, nor for a script that reads the
    answer.
    """
    CALLS.clear()
    OPEN.clear()
    app = world.app(pay, call_legacy, hooks=hooks)
    monkeypatch.setitem(sys.modules, "shop_under_test", types.SimpleNamespace(app=app))
    monkeypatch.setenv("ONCEQ_CLAIMS_TABLE", TABLE)
    return Shell(world, app, capsys)


@pytest.fixture
def shell(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A terminal on locked moto."""
    return opened(world, monkeypatch, capsys)


@pytest.fixture
def both_shells(both_worlds: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A terminal on either emulator: ministack knows DynamoDB's reserved words, moto does not."""
    return opened(both_worlds, monkeypatch, capsys)


def put(world: World, pk: str, **changes: Any) -> OutboxEntry:
    """Put an entry into the outbox that is due now."""
    entry = OutboxEntry(pk, "pay", f"k-{pk}", "default", '{"secret": 1}', NOW, NOW, shard="3", next_at=NOW)
    entry = replace(entry, **changes)
    world.dynamodb.put_item(TableName=OUTBOX_TABLE, Item=entry.to_item())
    return entry


def sent(world: World, pk: str, at: int) -> OutboxEntry:
    """Put an entry into the outbox that was sent at that time."""
    entry = put(world, pk).sent(f"m-{pk}", at)
    world.dynamodb.put_item(TableName=OUTBOX_TABLE, Item=entry.to_item())
    return entry


def test_the_outbox_lists_what_waits_and_how_late_it_is(both_shells: Shell) -> None:
    """G8: delivery state is visible: an entry that cannot be sent shows its attempts and its last error."""
    shell = both_shells
    put(shell.world, "later", due_at=NOW + 90_400, next_at=NOW + 30_400, shard="0")
    put(
        shell.world, "late", due_at=NOW - 400_000, attempts=3, error="queue 'gone' is not in ONCEQ_QUEUES", queue="gone"
    )
    sent(shell.world, "done", NOW - 5_000)

    late, later = shell.json("outbox")
    assert late == {
        "id": "late",
        "job_type": "pay",
        "key": "k-late",
        "queue": "gone",
        "group": None,
        "status": "pending",
        "due_at": "2026-11-29T11:53:20+00:00",
        "seconds_past_due": 400.0,
        "attempts": 3,
        "error": "queue 'gone' is not in ONCEQ_QUEUES",
        "sent_at": None,
        "message_id": None,
    }
    assert (later["id"], later["seconds_past_due"]) == ("later", -90.4)
    _, out, err = shell.run("outbox")
    header, first, second = out.splitlines()
    assert re.split("  +", header) == ["ID", "JOB TYPE", "KEY", "QUEUE", "STATUS", "DUE", "ATTEMPTS", "LAST ERROR"]
    assert re.split("  +", first) == [
        *("late", "pay", "k-late", "gone", "pending", "2026-11-29T11:53:20+00:00 (400 s ago)"),
        *("3", "queue 'gone' is not in ONCEQ_QUEUES"),
    ]
    assert re.split("  +", second)[5:] == ["2026-11-29T12:01:30+00:00 (in 90 s)", "0", "-"]
    assert err == ""
    assert "secret" not in out


def test_sent_entries_follow_those_that_wait_when_they_are_asked_for(both_shells: Shell) -> None:
    """Pending first, then the last one that was sent, with the message's id to find it by."""
    shell = both_shells
    sent(shell.world, "first", NOW - 9_000)
    sent(shell.world, "last", NOW - 1_000)
    put(shell.world, "waits")

    entries = shell.json("outbox", "--sent")
    assert [(entry["id"], entry["status"]) for entry in entries] == [
        *(("waits", "pending"), ("last", "sent"), ("first", "sent"))
    ]
    assert entries[1] | {"sent_at": "2026-11-29T11:59:59+00:00", "message_id": "m-last", "attempts": 1} == entries[1]
    assert entries[1]["seconds_past_due"] is None
    assert [entry["id"] for entry in shell.json("outbox")] == ["waits"]
    text = shell.run("outbox", "--sent")[1].splitlines()
    assert [re.split("  +", line)[5] for line in text[1:]] == [
        "2026-11-29T12:00:00+00:00 (0 s ago)",
        *["2026-11-29T12:00:00+00:00"] * 2,
    ]


def test_a_long_outbox_is_cut_and_that_is_said(shell: Shell) -> None:
    """A hundred entries unless more are asked for; those in front are the ones that are tried first."""
    for number in range(101):
        put(shell.world, f"e-{number:03}", next_at=NOW + 200 - number, shard=str(number % 8))

    code, out, err = shell.run("outbox")
    assert (code, len(out.splitlines())) == (0, 101)
    assert "e-100" in out.splitlines()[1]
    assert "e-000" not in out
    assert err == "onceq: more than 100 entries wait: raise --limit to read them\n"
    assert len(shell.json("outbox", "--limit", "101")) == 101
    assert shell.run("outbox", "--limit", "101")[2] == ""
    assert [entry["id"] for entry in shell.json("outbox", "--limit", "3")] == ["e-100", "e-099", "e-098"]


def test_a_long_list_of_sent_entries_is_cut_and_that_is_said(shell: Shell) -> None:
    """What waits is never cut off by what was sent."""
    put(shell.world, "waits")
    for number in range(3):
        sent(shell.world, f"s-{number}", NOW - number)

    code, out, err = shell.run("outbox", "--sent", "--limit", "3", "--json")
    assert (code, [entry["status"] for entry in json.loads(out)]) == (0, ["pending", "sent", "sent"])
    assert "1 entries wait and more were sent than fit into 3: raise --limit to read them" in err
    assert shell.run("outbox", "--sent", "--limit", "4")[2] == ""


def test_every_page_of_the_outbox_is_read(both_shells: Shell) -> None:
    """DynamoDB answers with 1 MB at a time, whatever is asked for."""
    shell = both_shells
    for number in range(4):
        put(shell.world, f"w-{number}", body="x" * 370_000)
        done = replace(put(shell.world, f"s-{number}"), body="x" * 370_000).sent("m", NOW + number)
        shell.world.dynamodb.put_item(TableName=OUTBOX_TABLE, Item=done.to_item())

    waiting = [f"w-{number}" for number in range(4)]
    assert [entry["id"] for entry in shell.json("outbox")] == waiting
    assert [entry["id"] for entry in shell.json("outbox", "--sent")] == [*waiting, "s-3", "s-2", "s-1", "s-0"]


def test_an_empty_outbox_and_no_locks_are_said(shell: Shell) -> None:
    """A person gets an answer, a script an empty list."""
    assert shell.run("outbox") == (0, "the outbox is empty\n", "")
    assert shell.run("outbox", "--sent") == (0, "the outbox is empty\n", "")
    assert shell.run("locks") == (0, "no locks\n", "")
    assert (shell.json("outbox"), shell.json("locks")) == ([], [])


def test_locks_are_listed_with_holder_and_end(both_shells: Shell) -> None:
    """Held ones and those whose holder died; what was released, jobs and the sweep's place are left out."""
    shell = both_shells
    with shell.app.lock("released"):
        pass
    shell.app.recovery()
    shell.world.dynamodb.put_item(TableName=TABLE, Item=record_of().to_item())
    died = shell.app.lock("till", seconds=30)
    died.__enter__()
    shell.world.clock.advance(45)
    with shell.app.lock("shelf:a b", seconds=90):
        shelf, till = shell.json("locks")
        text = shell.run("locks")[1].splitlines()

    assert (shelf["name"], shelf["ends_at"], shelf["seconds_left"]) == ("shelf:a b", "2026-11-29T12:02:15+00:00", 90.0)
    assert (till["name"], till["seconds_left"]) == ("till", -15.0)
    assert re.split("  +", text[1]) == ["shelf:a b", shelf["holder"], "2026-11-29T12:02:15+00:00 (in 90 s)"]
    assert re.split("  +", text[2]) == ["till", till["holder"], "2026-11-29T12:00:30+00:00 (15 s ago)"]
    assert len(text) == 3


def test_many_locks_are_cut_and_that_is_said(shell: Shell) -> None:
    """As every list."""
    with ExitStack() as held:
        for number in range(3):
            held.enter_context(shell.app.lock(f"l-{number}"))

        code, out, err = shell.run("locks", "--limit", "2", "--json")
        assert (code, len(json.loads(out))) == (0, 2)
        assert err == "onceq: there are more than 2 locks: raise --limit to read them\n"
        assert shell.run("locks", "--limit", "3")[2] == ""


def test_records_passes_over_what_is_no_job(both_shells: Shell) -> None:
    """Locks and the sweep's place stand in the same table, and are no records."""
    shell = both_shells
    shell.app.recovery()
    shell.deliver("pay", {}, "k-1")
    with shell.app.lock("till"):
        found = shell.json("records")

    assert [record["pk"] for record in found] == ["pay#k-1"]
    pages = shell.world.dynamodb.scan(TableName=TABLE)["Items"]
    assert sorted(item["pk"]["S"] for item in pages) == ["pay#k-1", "~lock#till", "~recovery"]


STEPS: dict[str, dict[str, Any]] = {
    "charge": {"result": {"card": "4711"}},
    "print": {"not_stored": "too large: 40002 bytes, and at most 32768 are stored"},
    "call": {"started": NOW},
}


def test_show_tells_steps_and_version_and_results_only_when_asked(shell: Shell) -> None:
    """A step's result may be large, or nobody's business."""
    record = record_of(Status.UNCERTAIN, job_type="pay", pk="pay#k-1", steps=json.dumps(STEPS))
    shell.world.dynamodb.put_item(TableName=TABLE, Item=record.to_item())

    shown = shell.json("show", "pay", "k-1")
    assert shown["version"] == record.version
    assert shown["steps"] == {
        "charge": {"state": "done"},
        "print": {"state": "done", "result_not_stored": STEPS["print"]["not_stored"]},
        "call": {"state": "started", "started_at": "2026-11-29T12:00:00+00:00"},
    }
    text = shell.run("show", "pay", "k-1")[1]
    assert re.search(rf"^version +{record.version}$", text, re.MULTILINE)
    assert re.search(r"^step charge +done$", text, re.MULTILINE)
    assert re.search(r"^step call +started, started at 2026-11-29T12:00:00\+00:00$", text, re.MULTILINE)
    assert re.search(r"^step print +done, result not stored too large: 40002 bytes", text, re.MULTILINE)
    assert "4711" not in text
    assert shell.json("show", "pay", "k-1", "--results")["steps"]["charge"]["result"] == {"card": "4711"}
    with_results = shell.run("show", "pay", "k-1", "--results")[1]
    assert re.search(r'^step charge +done, result {"card": "4711"}$', with_results, re.MULTILINE)


def test_show_of_a_job_without_a_record_fails(shell: Shell) -> None:
    """A script can tell; a person reads what it may mean."""
    said = "onceq: there is no record of pay never: not claimed yet, or never enqueued\n"
    assert shell.run("show", "pay", "never") == (1, "", said)


def test_show_of_a_job_without_steps_says_nothing_of_them(shell: Shell) -> None:
    """Steps are gone with the completion."""
    shell.deliver("pay", {}, "k-1")

    shown = shell.json("show", "pay", "k-1")
    assert (shown["status"], "steps" in shown, shown["version"]) == ("completed", False, 5)
    assert "step" not in shell.run("show", "pay", "k-1")[1]


def test_resolve_done_completes_an_uncertain_job_with_its_result(both_shells: Shell) -> None:
    """G9: a person has looked; a duplicate gets what they wrote down, and nothing is called again."""
    shell = both_shells
    shell.deliver("call_legacy", {}, "k-1")
    assert shell.json("show", "call_legacy", "k-1")["status"] == "uncertain"

    words = (
        "resolve",
        "call_legacy",
        "k-1",
        "done",
        "--result",
        '{"booking": 7}',
        "--version",
        "2",
        "--reason",
        "seen",
    )
    code, out, err = shell.run(*words, "--json")
    assert code == 0
    shown = json.loads(out)
    assert (shown["status"], shown["result"], shown["version"]) == ("completed", {"booking": 7}, 3)
    assert re.fullmatch(r"\d\d:\d\d:\d\d job\.resolved +call_legacy k-1 +decision done, seen\n", err)
    shell.deliver("call_legacy", {}, "k-1")
    assert CALLS == ["legacy"]
    assert shell.json("show", "call_legacy", "k-1") == shown


def test_resolve_reject_ends_a_job_for_good(shell: Shell) -> None:
    """The reason stands in the record, and for a person the record is shown."""
    shell.deliver("call_legacy", {}, "k-1")

    code, out, err = shell.run("resolve", "call_legacy", "k-1", "reject", "--reason", "the customer withdrew")
    assert code == 0
    assert re.search(r"^status +rejected$", out, re.MULTILINE)
    assert re.search(r"^error +the customer withdrew$", out, re.MULTILINE)
    assert re.search(r"^version +3$", out, re.MULTILINE)
    assert "enqueue it again" not in err
    shell.deliver("call_legacy", {}, "k-1")
    assert CALLS == ["legacy"]


def test_resolve_retry_opens_a_job_and_keeps_what_is_known_to_be_done(both_shells: Shell) -> None:
    """G9: the next message runs it; a step that the person vouches for is answered with the result that they gave."""
    shell = both_shells
    shell.deliver("pay", {"closed": True}, "k-1")
    assert shell.json("show", "pay", "k-1")["steps"] == {"charge": {"state": "done"}}

    words = ("resolve", "pay", "k-1", "retry", "--step", 'mail={"sent": true}', "--step", "print=null")
    code, out, err = shell.run(*words, "--json")
    assert code == 0
    shown = json.loads(out)
    assert (shown["status"], shown["attempts"], sorted(shown["steps"])) == ("failed", 0, ["charge", "mail", "print"])
    assert "its next message runs it: redrive its copy from the dead-letter queue, or enqueue it again" in err

    OPEN.add("k-1")
    shell.deliver("pay", {"closed": True}, "k-1")
    assert shell.json("show", "pay", "k-1")["result"] == ["charge it is", {"sent": True}]
    assert CALLS == ["charge"], "neither was called again"


def test_what_is_shown_is_what_was_decided_and_not_what_came_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next message may be there at once; its outcome under the word "retry" would be misread."""

    def deliver_at_once(event: Event) -> None:
        if event.name == "job.resolved":
            terminal.deliver("pay", {"closed": True}, "k-1")

    terminal = opened(world, monkeypatch, capsys, hooks=[deliver_at_once])
    terminal.deliver("pay", {"closed": True}, "k-1")

    shown = terminal.json("resolve", "pay", "k-1", "retry")
    assert (shown["status"], shown["version"], "steps" in shown) == ("failed", 4, False)
    after = terminal.json("show", "pay", "k-1")
    assert (after["status"], after["version"], "steps" in after) == ("rejected", 6, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["pay", "k-9", "done"], 1, "there is no job pay#k-9: it was never claimed, or its retention is over"),
        (["pay", "k-1", "done"], 1, "pay#k-1 is completed: only a job that is uncertain, rejected or failed"),
        (["pay", "k-2", "done", "--version", "1"], 1, "is of version 4, and 1 was decided about: look again"),
        (["pay", "k-2", "done", "--result", '"' + "x" * 40_000 + '"'], 1, "the result cannot be stored: too large"),
        (["pey", "k-2", "done"], 2, "no job type is named 'pey': did you mean 'pay'?"),
        (["pay", " ", "done"], 2, "the idempotency key is blank"),
        (["pay", "k-2", "done", "--result", "{x"], 2, "--result is not JSON: JSON is malformed"),
        (["pay", "k-2", "done", "--result", ""], 2, "--result is not JSON"),
        (["pay", "k-2", "retry", "--result", "1"], 2, "--result is what a job that is done returned"),
        (["pay", "k-2", "reject", "--result", "1"], 2, "--result is what a job that is done returned"),
        (["pay", "k-2", "done", "--step", "a=1"], 2, "--step is for the next attempt: it goes with `retry`"),
        (["pay", "k-2", "retry", "--step", "a"], 2, "--step a: give NAME=JSON"),
        (["pay", "k-2", "retry", "--step", "a=b"], 2, "--step a is not JSON"),
        (["pay", "k-2", "retry", "--step", "a=1", "--step", "a=2"], 2, "--step a is given twice"),
        (["pay", "k-2", "retry", "--step", "a b=1"], 2, "the effect's name 'a b': give 1 to 100 letters"),
    ],
)
def test_a_decision_that_cannot_be_taken_is_said_and_changes_nothing(
    shell: Shell, words: list[str], code: int, said: str
) -> None:
    """One sentence; 1 if the job is not one to decide about, 2 if the words cannot be used."""
    shell.world.dynamodb.put_item(TableName=TABLE, Item=record_of(Status.COMPLETED, pk="pay#k-1").to_item())
    waits = record_of(Status.UNCERTAIN, pk="pay#k-2").to_item()
    shell.world.dynamodb.put_item(TableName=TABLE, Item=waits)

    found, out, err = shell.run("resolve", *words)
    assert (found, out) == (code, "")
    assert err.startswith("onceq: ")
    assert said in err
    assert shell.world.dynamodb.get_item(TableName=TABLE, Key={"pk": {"S": "pay#k-2"}})["Item"] == waits


def test_a_decision_needs_one_of_three_words(shell: Shell) -> None:
    """The usage names them."""
    with pytest.raises(SystemExit) as ended:
        shell.run("resolve", "pay", "k-1", "undo")
    assert ended.value.code == 2
    assert "invalid choice: 'undo' (choose from 'done', 'retry', 'reject')" in shell.capsys.readouterr().err


def test_recovery_marks_what_went_stale_and_counts_it(both_shells: Shell) -> None:
    """What no delivery comes for any more shows; a person reads which, a script how many."""
    shell = both_shells
    stale = {"lease_expires_at": NOW - 60_000, "job_type": "pay"}
    for key, changes in (
        ("k-1", {}),
        ("k-2", {"semantics": Semantics.AT_MOST_ONCE}),
        ("k-3", {"lease_expires_at": NOW}),
    ):
        record = record_of(Status.PROCESSING, key, **(stale | changes))
        shell.world.dynamodb.put_item(TableName=TABLE, Item=record.to_item())

    code, out, err = shell.run("recovery")
    assert (code, out) == (0, "scanned 3, marked failed 1, marked uncertain 1, lost to others 0\n")
    assert sorted(re.sub(r"^[\d:]+ | {2,}.*$", "", line) for line in err.splitlines()) == ["claim.went_stale"] * 2
    assert re.search(r"claim\.went_stale +pay k-2 +attempt 2, status uncertain$", err, re.MULTILINE)
    assert shell.json("recovery") == {"scanned": 4, "failed": 0, "uncertain": 0, "lost": 0, "finished": True}
    assert CALLS == []


def test_one_run_of_the_relay_sends_and_says_what_it_did(both_shells: Shell) -> None:
    """A script reads the counts; a person sees each message that was sent."""
    shell = both_shells
    shell.app.enqueue_with([], pay, {}, key="k-1", delay=120)
    assert shell.run("relay", "--once")[1] == '{"sent": 0, "failed": 0, "left": 0, "overdue": 0}\n'
    put(shell.world, "lost", queue="gone", due_at=NOW - 600_000)
    shell.world.clock.advance(120)

    code, out, err = shell.run("relay", "--once")
    assert (code, json.loads(out)) == (0, {"sent": 1, "failed": 1, "left": 0, "overdue": 1})
    assert re.search(r"outbox\.sent +pay k-1 +0\.00 s past due$", err, re.MULTILINE)
    assert re.search(r"outbox\.failed +pay k-lost +attempts 1, queue 'gone' is not in ONCEQ_QUEUES$", err, re.MULTILINE)
    assert re.search(r"outbox\.overdue +entries 1, the oldest 720 s past due$", err, re.MULTILINE)
    (left,) = shell.json("outbox")
    assert (left["id"], left["attempts"], left["error"]) == ("lost", 1, "queue 'gone' is not in ONCEQ_QUEUES")


@pytest.mark.parametrize(
    ("words", "handler", "name", "table"),
    [
        (["relay", "--once"], "relay", "ONCEQ_OUTBOX_TABLE", OUTBOX_TABLE),
        (["recovery"], "recovery", "ONCEQ_CLAIMS_TABLE", TABLE),
        (["records"], "consumer", "ONCEQ_CLAIMS_TABLE", TABLE),
    ],
)
def test_a_command_runs_in_the_environment_of_its_own_function(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    words: list[str],
    handler: str,
    name: str,
    table: str,
) -> None:
    """In a session the relay and recovery have what their functions would have on Lambda, and no more."""
    monkeypatch.chdir(tmp_path)
    app = App([pay], runtime=Runtime(clock=shell.world.clock, tokens=shell.world.tokens))
    monkeypatch.setitem(sys.modules, "shop_under_test", types.SimpleNamespace(app=app))
    for place in PLACES:
        monkeypatch.setenv(place, "")
    environments = dict.fromkeys(("consumer", "relay", "recovery"), dict.fromkeys(PLACES, "nowhere"))
    environments[handler] = {name: table}
    state = {"pid": os.getpid(), "environment": environments.pop("consumer"), "environments": environments}

    with state_file(state):
        code, _, err = shell.run(*words)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["outbox"], "ONCEQ_OUTBOX_TABLE is not set"),
        (["relay", "--once"], "ONCEQ_OUTBOX_TABLE is not set"),
        (["relay", "--every", "1"], "ONCEQ_OUTBOX_TABLE is not set"),
        (["locks"], "ONCEQ_CLAIMS_TABLE is not set"),
        (["recovery"], "ONCEQ_CLAIMS_TABLE is not set"),
        (["resolve", "pay", "k-1", "done"], "ONCEQ_CLAIMS_TABLE is not set"),
    ],
)
def test_a_table_that_is_not_named_is_said(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    """The environment names what the command needs, or the command says what to name."""
    world = shell.world
    bare = Runtime(replace(world.settings, claims_table="", outbox_table=""), clock=world.clock, tokens=world.tokens)
    module = types.SimpleNamespace(app=world.app(pay, runtime=bare))
    monkeypatch.setitem(sys.modules, "shop_under_test", module)
    logged_by = [*logging.getLogger().handlers]

    code, out, err = shell.run(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert logging.getLogger().handlers == logged_by, "whoever calls it logs as before"


@pytest.mark.parametrize(
    "words", [["outbox"], ["outbox", "--sent"], ["locks"], ["show", "pay", "k"], ["resolve", "pay", "k", "done"]]
)
def test_a_table_that_is_gone_is_said(shell: Shell, words: list[str]) -> None:
    """Exit code 1 and one sentence, as for any fault of a service."""
    for name in (TABLE, OUTBOX_TABLE):
        shell.world.dynamodb.delete_table(TableName=name)

    code, out, err = shell.run(*words)
    assert (code, out) == (1, "")
    assert "ResourceNotFoundException" in err
    assert "Traceback" not in err
