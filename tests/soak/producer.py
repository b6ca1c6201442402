"""Sends what is planned, as far ahead of the workers as the server bears."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq import Entry
from onceq.errors import EnqueueFailed
from soak.plan import messages
from soak.reading import queues_of, waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq import App
    from soak.plan import Message
    from soak.stand import Stand

# So many lie in the queues at most: moto looks through the whole queue for each message.
AHEAD = 100
PART = 50
# Whoever asks the server more often takes its time from the workers.
ASK_SECONDS = 0.5


@dataclass
class Producer:
    """Sends what is planned, a bit ahead of the workers, until it is told to stop.

    Args:
        stand: Where.
        app: The application, whose queue is reached through the proxy.
        seed: The plan's seed.
        most: Messages at most.
    """

    stand: Stand
    app: App
    seed: int
    most: int
    sent: list[Message] = field(default_factory=list)
    again: int = 0
    resent: set[str] = field(default_factory=set)
    error: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Send until told to stop."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - told in the report, unless the soak is over
            self.error = "" if self.stopping.is_set() else f"the producer failed: {type(error).__name__}: {error}"

    def _run(self) -> None:
        sqs = self.stand.client("sqs")
        planned = itertools.islice(messages(self.seed), self.most)
        while not self.stopping.wait(ASK_SECONDS):
            if waiting(self.stand, sqs) > AHEAD:
                continue
            part = list(itertools.islice(planned, PART))
            if not part:
                return
            self._send([message for message in part if message.job])
            for message in part:
                if not message.job:
                    sqs.send_message(QueueUrl=queues_of(self.stand)["default"]["url"], MessageBody=message.body)
                    self.sent.append(message)

    def _send(self, part: Sequence[Message]) -> None:
        """Send until everything was taken; what was not answered is sent again, and may be there twice."""
        rest = {id(entry): (entry, message) for message in part for entry in [_entry(message)]}
        while rest:
            given = [entry for entry, _ in rest.values()]
            try:
                self.app.enqueue_many(given)
            except EnqueueFailed as failed:
                refused = Counter((_name(entry), str(entry.payload)) for entry, _ in failed.failed)
                self.again += refused.total()
                self.resent |= {_name(entry) for entry, _ in failed.failed}
                kept = {}
                for number, (entry, message) in rest.items():
                    if refused[_name(entry), str(entry.payload)] > 0:
                        refused[_name(entry), str(entry.payload)] -= 1
                        kept[number] = (entry, message)
                    else:
                        self.sent.append(message)
                rest = kept
            else:
                self.sent += [message for _, message in rest.values()]
                return


def _entry(message: Message) -> Entry:
    return Entry(message.job_type, message.payload, key=message.key, group=message.group)


def _name(entry: Entry) -> str:
    return f"{entry.job_type}#{entry.key}"
