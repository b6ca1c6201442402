"""The local poller: receive, build the Lambda event, invoke, read the answer as strictly as AWS does, delete."""

from __future__ import annotations

import base64
import json
import threading
import traceback
from typing import TYPE_CHECKING, Any

from onceq.clock import OpenDeadline, SystemClock
from onceq.codec import printable
from onceq.errors import QueueError
from onceq.queue import MAX_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from onceq.clock import Clock
    from onceq.queue import Queue
    from onceq.telemetry import Event

Message = dict[str, Any]

FAILURES = "batchItemFailures"
IDENTIFIER = "itemIdentifier"
# After SQS did not answer.
PAUSE_SECONDS = 1.0


def to_delete(ids: Iterable[str], answer: object) -> set[str]:
    """Say which messages of a batch AWS would delete after this answer.

    AWS reads anything that it cannot place as "keep everything"
    (https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html#services-sqs-batchfailurereporting).

    Args:
        ids: Message ids of the batch.
        answer: What the handler returned.

    Returns:
        The ids to delete: all of them for null, ``{}``, and a list of failures that is empty or null; none if the
        answer is no object, has another key only, or an id in it is empty, null, unknown, duplicated or under a
        wrong key.

    Example:
        >>> sorted(to_delete(["a", "b"], {"batchItemFailures": [{"itemIdentifier": "b"}]}))
        ['a']
    """
    batch = set(ids)
    if answer is None or answer == {}:
        return batch
    if not isinstance(answer, dict) or FAILURES not in answer:
        return set()
    failures = answer[FAILURES]
    if failures is None:
        return batch
    if not isinstance(failures, list | tuple):
        return set()
    kept = [entry.get(IDENTIFIER) if isinstance(entry, dict) else None for entry in failures]
    if not all(isinstance(one, str) and one in batch for one in kept) or len(set(kept)) < len(kept):
        return set()
    return batch - set(kept)


def lambda_event(messages: Iterable[Message], queue_arn: str) -> dict[str, Any]:
    """Build the event that Lambda's event source mapping makes of received messages.

    Args:
        messages: Messages in ReceiveMessage's shape.
        queue_arn: ARN of their queue.

    Returns:
        The event, with every attribute; binary values are Base64
        (https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html).
    """
    return {"Records": [_record(message, queue_arn) for message in messages]}


def _record(message: Message, queue_arn: str) -> dict[str, Any]:
    record = {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message.get("Attributes", {})),
        "messageAttributes": {name: _attribute(raw) for name, raw in message.get("MessageAttributes", {}).items()},
        "md5OfBody": message.get("MD5OfBody", ""),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }
    if "MD5OfMessageAttributes" in message:
        record["md5OfMessageAttributes"] = message["MD5OfMessageAttributes"]
    return record


def _attribute(raw: dict[str, Any]) -> dict[str, Any]:
    attribute: dict[str, Any] = {"stringListValues": [], "binaryListValues": [], "dataType": raw["DataType"]}
    if "StringValue" in raw:
        attribute["stringValue"] = raw["StringValue"]
    if "BinaryValue" in raw:
        attribute["binaryValue"] = base64.b64encode(raw["BinaryValue"]).decode()
    return attribute


class Poller:
    """Polls one queue and invokes a handler, as Lambda's event source mapping does.

    The context that the handler gets says when to stop starting jobs. `see` is a telemetry hook: it tells which
    messages of the batch are under way, so that the others can be given back the moment the poller is stopped.
    """

    def __init__(
        self,
        handler: Callable[[dict[str, Any], object], object],
        queue: Queue,
        *,
        url: str,
        arn: str,
        batch_size: int = MAX_ENTRIES,
        wait: int = 1,
        report: Callable[[str], object] = lambda _line: None,
        clock: Clock | None = None,
    ) -> None:
        """Make a poller.

        Args:
            handler: The Lambda handler.
            queue: The seam to SQS.
            url: URL of the queue.
            arn: Its ARN.
            batch_size: Messages in one event at most.
            wait: Seconds that one receive waits for a message; stopping an idle poller takes as long.
            report: Told, in one string, what went wrong outside of jobs.
            clock: The time.
        """
        self._handler = handler
        self._queue = queue
        self._url = url
        self._arn = arn
        self._batch_size = batch_size
        self._wait = wait
        self._report = report
        self._clock = clock or SystemClock()
        self._context = OpenDeadline(stopping=lambda: self.stopping)
        self._lock = threading.Lock()
        self._untouched: dict[str, Message] = {}
        self.stopping = False

    def run(self) -> None:
        """Poll until stopped."""
        while not self.stopping:
            try:
                self.poll()
            except QueueError as error:
                self._report(f"the queue cannot be reached, trying again: {error}")
                self._clock.sleep(PAUSE_SECONDS)

    def poll(self) -> int:
        """Receive and handle one batch.

        Returns:
            How many messages were received.

        Raises:
            QueueError: If SQS did not answer the receive.
        """
        messages = self._receive()
        if not messages:
            return 0
        with self._lock:
            self._untouched = {message["MessageId"]: message for message in messages}
            handed_over = not self.stopping
        if not handed_over:
            self._give_back()
            return len(messages)
        try:
            done = to_delete([message["MessageId"] for message in messages], self._invoke(messages))
        finally:
            with self._lock:
                self._untouched = {}
        self._delete([message for message in messages if message["MessageId"] in done])
        return len(messages)

    def stop(self) -> None:
        """Receive no more and start no more jobs; messages that are not under way become visible at once.

        Called from another thread. A message that starts at this very moment may become visible too: its claim
        protects it.
        """
        self.stopping = True
        self._give_back()

    def see(self, event: Event) -> None:
        """Note, as a telemetry hook, that a message is under way."""
        message_id = getattr(event, "message_id", None)
        if message_id is not None:
            with self._lock:
                self._untouched.pop(message_id, None)

    def _receive(self) -> list[Message]:
        messages: list[Message] = []
        while len(messages) < self._batch_size and not self.stopping:
            most = min(MAX_ENTRIES, self._batch_size - len(messages))
            received = self._queue.receive(self._url, most=most, wait=0 if messages else self._wait)
            messages += received
            if len(received) < most:
                break
        return messages

    def _invoke(self, messages: Sequence[Message]) -> object:
        try:
            answer = self._handler(lambda_event(messages, self._arn), self._context)
            # As Lambda's runtime: what is not JSON is a failed invocation.
            return json.loads(json.dumps(answer))
        except Exception:  # noqa: BLE001 - whatever it is, AWS keeps the whole batch
            self._report(f"the handler failed, the whole batch is kept:\n{traceback.format_exc()}")
            return FAILURES

    def _give_back(self) -> None:
        with self._lock:
            messages, self._untouched = list(self._untouched.values()), {}
        entries = [
            {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
            for number, message in enumerate(messages)
        ]
        for reason in set(self._queue.change_visibility_batch(self._url, entries).values()):
            self._report(f"messages keep the queue's visibility timeout: {printable(reason)}")

    def _delete(self, messages: Sequence[Message]) -> None:
        entries = [
            {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(messages)
        ]
        for reason in set(self._queue.delete_batch(self._url, entries).values()):
            self._report(f"messages were not deleted and come again: {printable(reason)}")
