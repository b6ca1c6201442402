"""The command line, as a person uses it: each command in a process of its own, end to end."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import onceq
from kit.project import TEMPLATE, Project, wait_until
from onceq import cli
from onceq.listing import lease_values
from onceq.record import Record, Status

if TYPE_CHECKING:
    import subprocess


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project folder; nothing runs in it."""
    return Project.at(tmp_path)


def event_of(*payloads: object, arn: str = "arn:aws:sqs:us-east-1:123456789012:JobsQueue") -> dict[str, Any]:
    """Return an SQS event with an envelope for each payload."""
    return {
        "Records": [
            {
                "messageId": f"m-{number}",
                "receiptHandle": f"r-{number}",
                "body": json.dumps(
                    {"onceq": 1, "job_type": "mark", "idempotency_key": f"k-{number}", "payload": payload}
                ),
                "attributes": {"ApproximateReceiveCount": "1"},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": arn,
                "awsRegion": "us-east-1",
            }
            for number, payload in enumerate(payloads)
        ]
    }


def write_event(project: Project, event: object) -> str:
    """Write an event into the project."""
    (project.folder / "event.json").write_text(json.dumps(event), encoding="utf-8")
    return "event.json"


def test_dev_enqueue_show_records_and_dlq_work_together(project: Project) -> None:
    """A user enqueues from another terminal, sees what became of it, and Ctrl-C leaves nothing behind."""
    dev = project.start("dev", "--workers", "2", "--parameter", "ClockSkew=0.2", "--parameter", "VisibilityTimeout=77")
    try:
        wait_until(lambda: "Ctrl-C stops." in " ".join(project.lines("stdout")), "dev is up")
        state = json.loads((project.folder / ".onceq" / "dev.json").read_text(encoding="utf-8"))
        assert state["pid"] == dev.pid
        modes = [
            path.stat().st_mode & 0o777 for path in (project.folder / ".onceq", project.folder / ".onceq/dev.json")
        ]
        assert modes == [0o700, 0o600], "env.json's secrets stand there"
        assert state["endpoint"] == state["environment"]["AWS_ENDPOINT_URL"]

        first = project.run("enqueue", "mark", "--payload", '{"key": "from-payload"}', "--json").stdout
        second = project.run(
            "enqueue", "mark", "--payload", "-", "--key", "o-1", "--delay", "1", text='{"reject": true}'
        )
        assert re.fullmatch(r"enqueued mark o-1 \(message [0-9a-f-]+\)\n", second.stdout)

        wait_until(
            lambda: '"completed"' in project.run("show", "mark", "from-payload", "--json").stdout, "it completes"
        )
        shown = json.loads(project.run("show", "mark", json.loads(first)["key"], "--json").stdout)
        assert (shown["status"], shown["result"], shown["attempts"]) == ("completed", 1, 1)
        assert re.search(r"^status +completed$", project.run("show", "mark", "from-payload").stdout, re.MULTILINE)
        assert "never: not claimed yet, or never enqueued" in project.run("show", "mark", "never").stderr

        wait_until(lambda: "message.dead_lettered" in output(project), "the rejected one is in the DLQ")
        (letter,) = json.loads(project.run("dlq", "--json").stdout)
        assert (letter["key"], letter["error"]) == ("o-1", "as asked")
        assert "as asked" in project.run("dlq").stdout
        records = project.run("records", "--json").stdout
        assert {record["idempotency_key"]: record["status"] for record in json.loads(records)} == {
            "from-payload": "completed",
            "o-1": "rejected",
        }
        assert "o-1" not in project.run("records", "--status", "completed").stdout
        short = project.run("records", "--limit", "1", "--json")
        assert len(json.loads(short.stdout)) == 1
        assert "more than 1 records" in short.stderr
        assert project.run("records", "--limit", "2").stderr == ""

        killed(project, dev, "r1", "relay r1 was killed by SIGKILL; it is restarted( in 2 s)?$")
        killed(
            project,
            dev,
            "w1",
            "worker w1 was killed by SIGKILL; it is restarted( in 2 s)?; its messages come back within 77 s"
            r" \(shorter: make dev ARGS='--parameter VisibilityTimeout=…'\)",
        )
        wait_until(lambda: len(psutil.Process(dev.pid).children()) == 4, "moto, both workers and the relay run")
        family = psutil.Process(dev.pid).children(recursive=True)

        dev.send_signal(signal.SIGINT)
        assert dev.wait(30) == 0
        wait_until(lambda: not any(child.is_running() for child in family), "no process is left")
        assert not (project.folder / ".onceq" / "dev.json").exists()
        text = output(project)
        assert re.search(
            r"^\d\d:\d\d:\d\d w[12] +job\.completed +mark from-payload +attempt 1, \d\.\d\d s$", text, re.MULTILINE
        )
        assert re.search(r"^\d\d:\d\d:\d\d w[12] +log +mark from-payload +marked$", text, re.MULTILINE)
        assert ("Traceback" in text, text.splitlines()[-1]) == (False, "stopped: the local queues and tables are gone")
    finally:
        dev.kill()
        dev.wait()
        assert dev.stdin is not None
        dev.stdin.close()


def test_dev_outbox_recovery_locks_and_resolve_work_together(project: Project) -> None:
    """A message that a job sends is seen while it waits; what needs a person is decided from the other terminal."""
    dev = project.start("dev", "--workers", "1", "--relay-every", "0.2", "--parameter", "RecoveryRate=9")
    try:
        wait_until(lambda: "Ctrl-C stops." in output(project), "dev is up")
        state = json.loads((project.folder / ".onceq" / "dev.json").read_text(encoding="utf-8"))
        assert state["environments"]["recovery"]["ONCEQ_RECOVERY_RATE"] == "9"
        assert re.search(r"^  workers +w1  \(queue default: JobsQueue\)$", output(project), re.MULTILINE)
        assert re.search(r"^  relay +r1  \(every 0\.2 s\)$", output(project), re.MULTILINE)
        assert re.search(
            r"^Schedules do not run here\. By hand:\n  RecoveryFunction +\S+ -m onceq recovery\n"
            r"  NightlyReportSchedule +\S+ -m onceq enqueue nightly_report --key nightly_report:20\S+Z --payload '",
            output(project),
            re.MULTILINE,
        )

        project.run("enqueue", "mark", "--payload", '{"reject": true}', "--key", "o-1")
        project.run("enqueue", "mark", "--payload", '{"send": [0, 300]}', "--key", "s")
        wait_until(lambda: '"completed"' in project.run("show", "mark", "s-0", "--json").stdout, "what it sent is done")
        (waits,) = json.loads(project.run("outbox", "--json").stdout)
        assert (waits["key"], waits["status"], -300 < waits["seconds_past_due"] < -200) == ("s-1", "pending", True)
        assert [entry["key"] for entry in json.loads(project.run("outbox", "--sent", "--json").stdout)] == [
            "s-1",
            "s-0",
        ]
        swept = json.loads(project.run("recovery", "--json").stdout)
        assert swept == {"scanned": 3, "failed": 0, "uncertain": 0, "lost": 0, "finished": True}
        assert project.run("relay", "--once").stdout == '{"sent": 0, "failed": 0, "left": 0, "overdue": 0}\n'
        assert project.run("locks").stdout == "no locks\n"
        resolved = project.run("resolve", "mark", "o-1", "retry", "--version", "2", "--reason", "again", "--json")
        assert json.loads(resolved.stdout)["status"] == "failed"
        late = project.run("resolve", "mark", "o-1", "done", "--version", "2")
        assert (late.returncode, "of version 3, and 2 was decided about" in late.stderr) == (1, True)

        dev.send_signal(signal.SIGINT)
        assert dev.wait(30) == 0
        assert re.search(
            r"^\d\d:\d\d:\d\d w1 +outbox\.sent +mark s-0 +\d\.\d\d s past due$", output(project), re.MULTILINE
        )
        assert "Traceback" not in output(project)
    finally:
        dev.kill()
        dev.wait()
        assert dev.stdin is not None
        dev.stdin.close()


def killed(project: Project, dev: subprocess.Popen[bytes], name: str, told: str) -> None:
    """Kill a process of a dev, and wait until that is told: within two seconds of its start it is not restarted yet."""
    next(child for child in psutil.Process(dev.pid).children(recursive=True) if name in child.cmdline()).kill()
    wait_until(lambda: re.search(told, output(project), re.MULTILINE), f"{name} is restarted")


def output(project: Project) -> str:
    """Return what the started command wrote so far."""
    return "\n".join(project.lines("stdout"))


def test_nothing_outlives_a_dev_that_is_killed(project: Project) -> None:
    """No orphan: workers and moto end by themselves when their parent is gone."""
    dev = project.start("dev", "--workers", "1")
    try:
        wait_until(lambda: "Ctrl-C stops." in output(project), "dev is up")
        wait_until(lambda: len(psutil.Process(dev.pid).children()) == 3, "moto, the worker and the relay run")
        family = psutil.Process(dev.pid).children(recursive=True)
    finally:
        dev.kill()
        dev.wait()
        assert dev.stdin is not None
        dev.stdin.close()
    wait_until(lambda: not any(child.is_running() for child in family), "no process is left")
    # The state file is left; it names a process that is gone, so it counts for nothing.
    done = project.run("enqueue", "mark", "--payload", "{}", "--key", "k")
    assert (done.returncode, "no session runs in this folder" in done.stderr) == (2, True)


def test_invoke_prints_the_partial_batch_response_and_the_records(project: Project) -> None:
    """One event, in one process, with nothing else running; the answer is what Lambda would get."""
    done = project.run("invoke", write_event(project, event_of({}, {"reject": True})), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["response"] == {"batchItemFailures": []}
    statuses = {record["idempotency_key"]: record["status"] for record in answer["records"]}
    assert statuses == {"k-0": "completed", "k-1": "rejected"}
    assert "job.completed" in done.stderr
    assert project.lines("effects") == ["k-0"]


def test_invoke_reads_for_people_too_and_from_stdin(project: Project) -> None:
    """Without --json the response is the first line, and a table of the records follows."""
    done = project.run("invoke", "-", text=json.dumps(event_of({})))
    first, header, row = done.stdout.splitlines()
    assert json.loads(first) == {"batchItemFailures": []}
    assert header.split()[:4] == ["JOB", "TYPE", "KEY", "STATUS"]
    assert row.split()[:3] == ["mark", "k-0", "completed"]


def test_invoke_takes_a_foreign_event_as_from_a_queue(project: Project) -> None:
    """An event that was caught on AWS names a queue of that account; --queue says which one it stands for."""
    event = write_event(project, event_of({}, arn="arn:aws:sqs:eu-west-1:111111111111:prod-JobsQueue-1A2B"))
    kept = json.loads(project.run("invoke", event, "--json").stdout)["response"]["batchItemFailures"]
    assert kept == [{"itemIdentifier": "m-0"}]
    taken = json.loads(project.run("invoke", event, "--json", "--queue", "default").stdout)
    assert taken["response"] == {"batchItemFailures": []}


def test_invoke_fails_when_the_handler_raises(project: Project) -> None:
    """`sam local invoke` exits 0 then; here a script can tell."""
    event = {"Records": [{"eventSource": "aws:s3"}]}
    done = project.run("invoke", write_event(project, event))
    assert done.returncode == 1
    assert "the handler raised NotAnSqsEvent" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_repositorys_own_event_can_be_invoked() -> None:
    """`make invoke EVENT=events/one-payment.json` works on a fresh clone; without a provider the job is kept."""
    pytest.importorskip("jobs.payments", reason="the example job is gone")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = Project(TEMPLATE.parent, environment).run("invoke", "events/one-payment.json", "--json")
    (record,) = json.loads(done.stdout)["records"]
    assert (record["idempotency_key"], record["status"]) == ("o-1", "failed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["enqueue", "mark", "--payload", "[1 2]", "--key", "k"], "onceq: --payload is not JSON: JSON is malformed"),
        (["enqueue", "mark", "--payload", "{}", "--key", "k"], "no session runs in this folder"),
        (["enqueue", "mark", "--payload", "{}"], "start `make dev` (or `python -m onceq dev`)"),
        (["show", "mark", "k"], "no session runs in this folder"),
        (["records"], "no session runs in this folder"),
        (["send", "--body", "x"], "no session runs in this folder"),
        (["dlq"], "no session runs in this folder"),
        (["outbox"], "no session runs in this folder"),
        (["locks"], "no session runs in this folder"),
        (["resolve", "mark", "k", "done"], "no session runs in this folder"),
        (["resolve", "mark", "k", "done", "--step", "a=1"], "--step is for the next attempt"),
        (["recovery"], "no session runs in this folder"),
        (["relay"], "no session runs in this folder"),
        (["relay", "--once"], "no session runs in this folder"),
        (["invoke", "missing.json"], "there is no file missing.json"),
        (["invoke", "template.yaml"], "template.yaml is not JSON: Expecting value: line 1"),
        (["invoke", "src"], "src cannot be read: Is a directory"),
        (["invoke", "payload.json"], "payload.json is no SQS event: it has no list Records"),
        (["invoke", "event.json", "--parameter", "Nope"], "give NAME=VALUE"),
        (["invoke", "event.json", "--parameter", "BatchSise=1"], "Did you mean 'BatchSize'"),
        (["invoke", "event.json", "--parameter", "LedgerQueue=yes"], "LedgerQueue='yes': give one of false, true"),
        (["invoke", "event.json", "--env-vars", "event.json"], "'Records' is no function of the template"),
        (["invoke", "event.json", "--template", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["dev", "--env-vars", "missing.json"], "there is no file missing.json"),
    ],
)
def test_input_that_cannot_be_used_is_said_without_a_traceback(
    project: Project, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, and exit code 2."""
    write_event(project, {"Records": []})
    (project.folder / "payload.json").write_text('{"order_id": "o-1"}', encoding="utf-8")
    monkeypatch.chdir(project.folder)
    assert cli.main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("onceq: ")
    assert said in printed.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--app", "nowhere:app"], "there is no module 'nowhere'"),
        (["--app", "app:nothing"], "no onceq.App named 'nothing'"),
        (["--app", "app:mark"], "no onceq.App named 'mark'"),
    ],
)
def test_an_app_that_is_not_there_is_said(project: Project, words: list[str], said: str) -> None:
    """A mistyped --app ends in one sentence."""
    project.environment["ONCEQ_QUEUES"] = '{"default": {"url": "http://127.0.0.1:9/q"}}'
    done = project.run("enqueue", "mark", "--payload", "{}", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_session_in_one_folder_is_refused(project: Project) -> None:
    """Two sessions would share one state file, and `enqueue` would meet either."""
    (project.folder / ".onceq").mkdir()
    state = {"pid": os.getpid(), "endpoint": "http://127.0.0.1:9", "environment": {}}
    (project.folder / ".onceq" / "dev.json").write_text(json.dumps(state), encoding="utf-8")
    done = project.run("dev")
    assert done.returncode == 2
    assert f"a session runs in this folder already (pid {os.getpid()}, .onceq/dev.json): stop it first" in done.stderr
    assert (project.folder / ".onceq" / "dev.json").exists()


def test_a_job_under_way_shows_its_lease_and_a_forced_stop_promises_nothing(project: Project) -> None:
    """A person sees how long a job's claim still holds; after the second Ctrl-C there is nothing left to take over."""
    dev = project.start("dev", "--workers", "1")
    try:
        wait_until(lambda: "Ctrl-C stops." in output(project), "dev is up")
        project.run("enqueue", "mark", "--payload", '{"wait": true}', "--key", "k-1")
        wait_until(lambda: project.lines("started"), "the job runs")
        block = project.run("show", "mark", "k-1").stdout
        assert re.search(r"^status +processing$", block, re.MULTILINE)
        assert re.search(r"^lease expires at +20\d\d-.*\+00:00$", block, re.MULTILINE)
        assert re.search(r"^stale +false$", block, re.MULTILINE)
        assert "result" not in block
        assert json.loads(project.run("show", "mark", "k-1", "--json").stdout)["stale"] is False

        dev.send_signal(signal.SIGINT)
        wait_until(lambda: "Ctrl-C again" in output(project), "dev is stopping")
        dev.send_signal(signal.SIGINT)
        assert dev.wait(30) == 0
        text = output(project)
        assert "killed: jobs under way were cut off; this session's queues and claims are gone with it" in text
        assert "taken over" not in text
    finally:
        dev.kill()
        dev.wait()
        assert dev.stdin is not None
        dev.stdin.close()


def test_a_claim_is_shown_as_stale_when_lease_and_skew_have_passed() -> None:
    """G1: not before the skew has passed too, as the consumer decides it."""
    record = Record("mark#k", "mark", "k", Status.PROCESSING, "c", 1, 1, 1, 0, None, lease_expires_at=1_000)
    shown = [lease_values(record, now_ms, 0.5) for now_ms in (1_499, 1_500)]
    assert [values["stale"] for values in shown] == [False, True]
    assert shown[0]["lease_expires_at"] == "1970-01-01T00:00:01+00:00"


FITS = "FunctionTimeout=7"
TOO_SHORT = "mark: max_duration=1 and Reserve 5 do not fit into FunctionTimeout 6: lower max_duration or raise "


@pytest.mark.parametrize("parameter", ["FunctionTimeout=6", FITS])
def test_a_job_type_that_does_not_fit_into_the_function_is_said(project: Project, parameter: str) -> None:
    """What runs here and would be kept on Lambda is said before it is deployed: once, by invoke."""
    words = ("--parameter", "Reserve=5", "--parameter", parameter)
    done = project.run("invoke", write_event(project, event_of({})), *words)
    assert done.returncode == 0
    assert done.stderr.count(TOO_SHORT) == (parameter != FITS)


def test_dev_says_what_does_not_fit_and_when_to_restart(project: Project) -> None:
    """The warning stands below the banner; an unknown job type is met with the hint that the code may be newer."""
    dev = project.start("dev", "--workers", "1", "--parameter", "FunctionTimeout=6", "--parameter", "Reserve=5")
    try:
        wait_until(lambda: TOO_SHORT in output(project), "the warning is there")
        assert "Restart after changing code." in output(project)
        assert dev.poll() is None
    finally:
        dev.send_signal(signal.SIGTERM)
        assert dev.wait(30) == 0
        assert dev.stdin is not None
        dev.stdin.close()


@pytest.mark.parametrize("globally", [True, False])
def test_the_timeout_may_be_a_number_or_lambdas_default(project: Project, *, globally: bool) -> None:
    """Globals count, and a function without Timeout has Lambda's 3 s; no parameter is named then."""
    path = project.folder / "template.yaml"
    text = path.read_text(encoding="utf-8").replace("      Timeout: !Ref FunctionTimeout\n", "", 1)
    text = text + "\nGlobals: {Function: {Timeout: 2}}\n" if globally else text
    path.write_text(text, encoding="utf-8")
    done = project.run("invoke", write_event(project, event_of({})), "--parameter", "Reserve=2")
    assert f"Reserve 2 do not fit into ConsumerFunction's Timeout {2 if globally else 3}" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "said", "frame"),
    [
        ("def broken(:\n", "SyntaxError", ""),
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'", "in <module>"),
        ("from onceq import job\n@job('x', max_atempts=1)\ndef x(payload): ...\n", "TypeError", "line 2, in <module>"),
        ("from onceq import job\n@job('Not a name')\ndef x(payload): ...\n", "Not a name", "line 2, in <module>"),
    ],
)
@pytest.mark.parametrize("command", ["invoke", "dev"])
def test_an_app_that_cannot_be_imported_shows_only_the_users_own_lines(
    project: Project, command: str, wrong: str, said: str, frame: str
) -> None:
    """A mistake in one's own file is not found among importlib's frames and ours; dev does not even begin."""
    (project.folder / "src" / "app.py").write_text("import other\n", encoding="utf-8")
    (project.folder / "src" / "other.py").write_text(wrong, encoding="utf-8")
    words = [write_event(project, event_of({}))] if command == "invoke" else []
    done = project.run(command, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("onceq: app:app cannot be imported\n")
    assert said in done.stderr.splitlines()[-1]
    assert "other.py" in done.stderr
    assert frame in done.stderr
    assert "importlib" not in done.stderr
    assert "Traceback" not in done.stderr
    assert str(Path(onceq.__file__).parent) not in done.stderr


@pytest.mark.parametrize("command", ["dev", "invoke"])
def test_a_misspelt_setting_in_the_shell_is_refused(project: Project, command: str) -> None:
    """The template passes only what it declares, so a mistyped one would be dropped in silence."""
    project.environment["ONCEQ_CONCURENCY"] = "3"
    done = project.run(command, *([write_event(project, event_of({}))] if command == "invoke" else []))
    assert done.returncode == 2
    assert done.stderr == "onceq: unknown setting ONCEQ_CONCURENCY. Did you mean ONCEQ_CONCURRENCY?\n"


def test_invoke_says_a_wrong_configuration_as_every_command_does(project: Project) -> None:
    """It is the caller's to mend, not a fault of the handler."""
    app = project.folder / "src" / "app.py"
    app.write_text(
        app.read_text(encoding="utf-8").replace("App([mark])", "App([mark], default={'nope': mark})"), encoding="utf-8"
    )
    done = project.run("invoke", write_event(project, event_of({})))
    assert (done.returncode, done.stderr.startswith("onceq: default= names queues")) == (2, True)


def test_invoke_hints_at_what_an_event_needs(project: Project) -> None:
    """Each sample event that does not run as it is says what it needs."""
    foreign = event_of({}, arn="arn:aws:sqs:us-east-1:123456789012:JobsQueue.fifo")
    unknown = event_of({})
    unknown["Records"][0]["body"] = unknown["Records"][0]["body"].replace('"mark"', '"nobodys"')
    bare = event_of({})
    bare["Records"][0]["body"] = "{}"
    hints = [project.run("invoke", write_event(project, event)).stderr for event in (foreign, unknown, bare)]
    assert "is not in ONCEQ_QUEUES (to take the records as from a queue of the template: --queue NAME;" in hints[0]
    assert "no job type is named 'nobodys' (is it in App([…])?)" in hints[1]
    assert hints[2].count("(to serve such bodies: App([…], default=a_job_type))") == 1


@pytest.mark.parametrize(
    "words",
    [
        *([], ["nonsense"], ["enqueue", "mark"], ["work", "--batch-size", "0"], ["outbox", "--limit", "0"]),
        *(
            [*words, seconds]
            for words in (["relay", "--every"], ["dev", "--relay-every"])
            for seconds in ("0", "nan", "1e9")
        ),
        *(["resolve", "mark", "k"], ["resolve", "mark", "k", "done", "--version", "two"]),
    ],
)
def test_a_wrong_command_line_prints_the_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's own exit code for it is 2 as well."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert "usage: onceq" in capsys.readouterr().err


def test_the_version_is_the_packages(project: Project) -> None:
    """`python -m onceq --version` says which release is vendored."""
    assert project.run("--version").stdout.strip() == f"onceq {onceq.__version__}"
