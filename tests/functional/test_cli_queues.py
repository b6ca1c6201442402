"""The commands about several queues: `dlq` over all of them, and `send`, which puts a body in as it is."""

from __future__ import annotations

import io
import json
import sys
import types
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kit.clock import FakeLambdaContext
from kit.world import TABLE, event_of
from onceq import Reject, cli, job, source
from onceq.queue import MAX_BYTES
from onceq.raw import PEEK_MOST
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from pathlib import Path

    from kit.world import World
    from onceq import App

BODY = '{"order": "o-1"}\n'


@job("take", source=source.plain(key="body.order"))
def take(payload: dict[str, Any]) -> None:
    """Take a foreign body."""


@job("post", queue="ordered", key="entry")
def post(payload: dict[str, Any]) -> None:
    """Be rejected."""
    message = "no such account"
    raise Reject(message)


class Shell:
    """A person's terminal, in this process, on a world with two queues."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """Name the world's tables in the environment."""
        self.world, self.capsys, self.monkeypatch = world, capsys, monkeypatch
        monkeypatch.setenv("ONCEQ_CLAIMS_TABLE", TABLE)
        self.app = self.serve(world.app(take, post))

    def serve(self, app: App) -> App:
        """Let the commands find that application."""
        self.monkeypatch.setitem(sys.modules, "shop_under_test", types.SimpleNamespace(app=app))
        return app

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run one command; return its exit code, and what stands on stdout and stderr."""
        self.capsys.readouterr()
        code = cli.main([words[0], "--app", "shop_under_test:app", *words[1:]])
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err

    def letters(self, *words: str) -> list[tuple[str, str]]:
        """Return queue and body of the dead letters that are listed."""
        code, out, err = self.run("dlq", "--json", *words)
        assert code == 0, err
        return [(letter["queue"], letter["body"]) for letter in json.loads(out)]

    def received(self, name: str) -> dict[str, Any]:
        """Receive the only message of a queue."""
        url = self.world.settings.queue(name).url
        [message] = self.world.sqs.receive_message(
            QueueUrl=url, AttributeNames=["All"], MessageAttributeNames=["All"], MaxNumberOfMessages=10
        )["Messages"]
        return dict(message)


@pytest.fixture
def shell(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A terminal on locked moto."""
    return Shell(world, monkeypatch, capsys)


@pytest.fixture
def both_shells(both_worlds: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A terminal on either emulator."""
    return Shell(both_worlds, monkeypatch, capsys)


def test_dead_letters_of_all_queues_are_listed_with_their_queue(both_shells: Shell) -> None:
    """G5: what was rejected is seen, whichever queue it came from, and lies there as before."""
    shell = both_shells
    shell.app.consumer(event_of(shell.world.message("post", {"entry": "e-1"}, queue="Ordered.fifo", group="g")))
    shell.app.consumer(event_of(shell.world.raw("poison")), FakeLambdaContext())

    for _ in range(2):
        (one, body), (other, _envelope) = shell.letters()
        assert ((one, body), other) == (("default", "poison"), "ordered")
    assert shell.letters("--queue", "ordered")[0][0] == "ordered"
    head, first, second = shell.run("dlq")[1].splitlines()
    assert head.split() == ["QUEUE", "JOB", "TYPE", "KEY", "ATTEMPTS", "REASON", "ERROR"]
    assert (first.split()[0], second.split()[0]) == ("default", "ordered")
    assert "no such account" in second
    assert "QUEUE" not in shell.run("dlq", "--queue", "ordered")[1]


def test_dead_letters_that_are_not_there_are_said_by_queue(shell: Shell) -> None:
    """Empty is said of the queues that were looked into, and of no other."""
    assert shell.run("dlq")[1] == "the dead-letter queues of default, ordered are empty\n"
    assert shell.run("dlq", "--queue", "ordered")[1] == "the dead-letter queue of ordered is empty\n"
    assert shell.run("dlq", "--queue", "none")[0] == 2


def test_a_dead_letter_queue_of_two_queues_is_read_once(shell: Shell) -> None:
    """Two queues may share one: its letters are not listed twice."""
    settings = shell.world.settings
    shared = replace(settings.queue("default"), name="second", url="http://127.0.0.1:9/second", arn="")
    only_sent_to = replace(shared, name="third", dlq_url="")
    queues = {"default": settings.queue("default"), "second": shared, "third": only_sent_to}
    runtime = Runtime(replace(settings, queues=queues), clock=shell.world.clock, tokens=shell.world.tokens)
    shell.app.consumer(event_of(shell.world.raw("poison")), FakeLambdaContext())
    shell.serve(shell.world.app(take, runtime=runtime))

    assert shell.letters() == [("default, second", "poison")]
    code, _, said = shell.run("dlq", "--queue", "third")
    assert (code, said) == (2, "onceq: queue 'third' has no dlq_url in ONCEQ_QUEUES\n")
    bare = replace(settings, queues={"third": only_sent_to})
    shell.serve(shell.world.app(take, runtime=Runtime(bare, clock=shell.world.clock, tokens=shell.world.tokens)))
    code, _, said = shell.run("dlq")
    assert (code, said) == (2, "onceq: no queue has a dlq_url in ONCEQ_QUEUES\n")


def test_no_more_dead_letters_are_looked_at_than_a_person_reads(shell: Shell) -> None:
    """A full queue is not read to its end, and all of it is there again at once."""
    url = shell.world.settings.queue("default").dlq_url
    for number in range(PEEK_MOST + 15):
        shell.world.sqs.send_message(QueueUrl=url, MessageBody=str(number))

    assert len(shell.letters("--queue", "default")) == PEEK_MOST
    counts = shell.world.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"


@pytest.mark.parametrize("given", ["text", "file", "stdin"])
def test_a_body_is_sent_as_it_is(
    both_shells: Shell, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No envelope, no attribute, not a byte more or less; and a job type with source= takes it."""
    shell, path = both_shells, tmp_path / "body.json"
    path.write_text(BODY, encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BODY.encode())))
    word = {"text": BODY, "file": str(path), "stdin": "-"}[given]

    code, out, err = shell.run("send", "--body", word, "--json")

    assert code == 0, err
    message = shell.received("default")
    assert message["Body"] == BODY
    assert "MessageAttributes" not in message
    assert json.loads(out) == {"message_id": message["MessageId"], "queue": "default", "bytes": len(BODY)}
    assert shell.app.consumer(event_of(shell.world.raw(BODY)), FakeLambdaContext()) == {"batchItemFailures": []}
    assert shell.app.lookup(take, "o-1") is not None


def test_a_fifo_queue_takes_the_same_body_twice(both_shells: Shell) -> None:
    """Whoever sends it again means it; SQS's own deduplication would swallow it for five minutes."""
    shell = both_shells
    for _ in range(2):
        code, out, err = shell.run("send", "--queue", "ordered", "--group", "account-1", "--body", "é")
        assert code == 0, err
        assert out.startswith("sent 2 bytes to ordered (message ")

    url = shell.world.settings.queue("ordered").url
    found = shell.world.sqs.receive_message(QueueUrl=url, AttributeNames=["All"], MaxNumberOfMessages=10)["Messages"]
    assert [(one["Body"], one["Attributes"]["MessageGroupId"]) for one in found] == [("é", "account-1")] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--body", ""], "--body is empty, and SQS takes no empty body"),
        (["--body", "empty"], "--body is empty"),
        (["--body", "x", "--queue", "none"], "queue 'none' is not in ONCEQ_QUEUES (known: default, ordered)"),
        (["--body", "x", "--queue", "ordered"], "queue 'ordered' is FIFO: give --group"),
        (["--body", "x", "--group", "a b"], "--group 'a b': give 1 to 128 printable ASCII characters"),
        (["--body", "evnts/one.json"], "there is no file evnts/one.json"),
        (["--body", "latin"], "--body is not UTF-8"),
        (["--body", "\udcff"], "--body is not UTF-8"),
        (["--body", "large"], f"--body has more than {MAX_BYTES} bytes"),
        (["--body", "x" * (MAX_BYTES + 1)], f"--body has more than {MAX_BYTES} bytes"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_body_that_cannot_be_sent_is_said(
    shell: Shell, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line and exit code 2, before anything is sent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "latin").write_bytes(b"\xe9")
    (tmp_path / "large").write_bytes(b"x" * (MAX_BYTES + 1))

    code, out, err = shell.run("send", *words)

    assert (code, out) == (2, "")
    assert err.startswith("onceq: ")
    assert said in err
    for name in ("default", "ordered"):
        url = shell.world.settings.queue(name).url
        assert "Messages" not in shell.world.sqs.receive_message(QueueUrl=url)
