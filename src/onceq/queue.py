"""The seam to SQS. Batches are cut to ten entries and one MiB; failed entries are found by their id and named.

SQS answers a batch with HTTP 200 although entries failed
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html), so every method
here returns what failed and why, and never raises for it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from onceq.client import READ_TIMEOUT, PassingFault, make_client, retrying, send
from onceq.errors import QueueError, QueueUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onceq.clock import Clock, Deadline, TokenFactory

MAX_ENTRIES = 10
MAX_BYTES = 1_048_576
MAX_ATTRIBUTES = 10
MAX_VISIBILITY = 43_200
MAX_DELAY = 900
# Entries are tried again by themselves; a sender's fault never is, since it would only be repeated.
ENTRY_ATTEMPTS = 3
# Left over for the answer itself.
LEAST_SECONDS = 0.5

BatchEntry = dict[str, Any]


def size_of(entry: Mapping[str, Any]) -> int:
    """Return what SQS counts of a message: the body and its attributes' names, types and values, in bytes."""
    size = len(str(entry.get("MessageBody", "")).encode())
    for name, attribute in (entry.get("MessageAttributes") or {}).items():
        value = attribute.get("BinaryValue", b"") or attribute.get("StringValue", "").encode()
        size += len(name.encode()) + len(attribute["DataType"].encode()) + len(value)
    return size


def in_batches(entries: Sequence[BatchEntry]) -> Iterator[list[BatchEntry]]:
    """Cut entries into batches that SQS takes: ten entries, and one MiB together.

    Example:
        >>> [len(batch) for batch in in_batches([{"MessageBody": "x" * 600_000}] * 3)]
        [1, 1, 1]
    """
    batch: list[BatchEntry] = []
    total = 0
    for entry in entries:
        size = size_of(entry)
        if batch and (len(batch) == MAX_ENTRIES or total + size > MAX_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(entry)
        total += size
    if batch:
        yield batch


class Queue:
    """Sends, defers, receives and deletes messages."""

    def __init__(
        self,
        clock: Clock,
        tokens: TokenFactory,
        deadline: Deadline,
        *,
        connections: int = 10,
        longest_wait: float = 0,
        client: Any = None,
    ) -> None:
        """Make the client, unless one is given to share.

        Args:
            clock: The time.
            tokens: Draws the jitter of retries.
            deadline: Retries end before it.
            connections: How many requests may be under way at once.
            longest_wait: Seconds that a `receive` of this queue waits at most: a long poll is silent for so long.
            client: A client to share.
        """
        self._clock = clock
        self._tokens = tokens
        self._deadline = deadline
        self._client = client or make_client("sqs", connections, read_timeout=READ_TIMEOUT + longest_wait)

    def within(self, deadline: Deadline) -> Queue:
        """Return this queue with another deadline for its retries, on the same client."""
        return type(self)(self._clock, self._tokens, deadline, client=self._client)

    def send(self, url: str, entry: BatchEntry) -> str:
        """Send one message.

        Args:
            url: The queue's URL.
            entry: Parameters of SendMessage without the URL.

        Returns:
            The message id.

        Raises:
            QueueError: If SQS did not take it.
        """
        return str(self.call("SendMessage", {"QueueUrl": url, **entry})["MessageId"])

    def send_batch(self, url: str, entries: Sequence[BatchEntry]) -> tuple[dict[str, str], dict[str, str]]:
        """Send messages in batches.

        Args:
            url: The queue's URL.
            entries: Entries of SendMessageBatch, each with an ``Id`` of its own.

        Returns:
            Message ids by entry id, and the reasons of those that failed by entry id.
        """
        sent: dict[str, str] = {}
        failed = self._batches(
            "SendMessageBatch", url, entries, lambda answer: sent.update({answer["Id"]: answer["MessageId"]})
        )
        return sent, failed

    def change_visibility_batch(self, url: str, entries: Sequence[BatchEntry]) -> dict[str, str]:
        """Change when messages become visible again.

        Args:
            url: The queue's URL.
            entries: Entries of ChangeMessageVisibilityBatch.

        Returns:
            The reasons of those that failed by entry id: they keep their present visibility timeout.
        """
        return self._batches("ChangeMessageVisibilityBatch", url, entries)

    def delete_batch(self, url: str, entries: Sequence[BatchEntry]) -> dict[str, str]:
        """Delete messages.

        Returns:
            The reasons of those that failed by entry id: they are delivered again.
        """
        return self._batches("DeleteMessageBatch", url, entries)

    def receive(self, url: str, *, most: int = MAX_ENTRIES, wait: int = 0) -> list[dict[str, Any]]:
        """Receive messages with all their attributes.

        Args:
            url: The queue's URL.
            most: How many at the most, up to 10.
            wait: Seconds to wait for the first one, up to 20 and to this queue's ``longest_wait``.

        Returns:
            The messages in the API's shape.

        Raises:
            QueueError: If SQS did not answer.
        """
        request = {
            "QueueUrl": url,
            "MaxNumberOfMessages": most,
            "WaitTimeSeconds": wait,
            "MessageAttributeNames": ["All"],
            "MessageSystemAttributeNames": ["All"],
        }
        return list(self.call("ReceiveMessage", request).get("Messages", []))

    def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its response.

        Raises:
            QueueUnavailable: If SQS did not answer.
            QueueError: If SQS refused it.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - `import onceq` must not load it

        try:
            return retrying(
                lambda: send(self._client, operation, request),
                clock=self._clock,
                tokens=self._tokens,
                deadline=self._deadline,
            )
        except PassingFault as error:
            message = f"{operation} was not answered: {error}"
            raise QueueUnavailable(message) from error
        except (ClientError, BotoCoreError) as error:
            message = f"{operation} was refused: {error}"
            raise QueueError(message) from error

    def _batches(
        self,
        operation: str,
        url: str,
        entries: Sequence[BatchEntry],
        landed: Callable[[Any], object] = lambda _: None,
    ) -> dict[str, str]:
        # On a FIFO queue nothing of a group may be sent after what failed of it, nor that itself again behind the rest.
        ordered = operation == "SendMessageBatch" and url.endswith(".fifo")
        attempts = 1 if ordered else ENTRY_ATTEMPTS
        failed: dict[str, str] = {}
        stopped: set[object] = set()
        pending = deque(in_batches(entries))
        while pending:
            batch = pending.popleft()
            if self._deadline.remaining() < LEAST_SECONDS:
                # The answer to SQS is worth more than the rest of the batches: without it every record comes back.
                failed |= {entry["Id"]: "no time is left in this invocation" for entry in batch}
                continue
            behind = {
                entry["Id"]: "an earlier message of its group failed" for entry in batch if _group(entry) in stopped
            }
            waiting = {entry["Id"]: entry for entry in batch if entry["Id"] not in behind}
            failed |= behind
            try:
                failed |= self._batch(operation, url, waiting, landed, attempts)
            except QueueUnavailable as error:
                failed |= dict.fromkeys(waiting, str(error))
            except QueueError as error:
                if len(waiting) > 1:
                    # SQS refuses a whole batch for one entry that breaks its rules; the others must not suffer (G5).
                    pending.extendleft([entry] for entry in reversed(waiting.values()))
                    continue
                failed |= dict.fromkeys(waiting, str(error))
            if ordered:
                stopped |= {_group(entry) for entry in batch if entry["Id"] in failed}
        return failed

    def _batch(
        self,
        operation: str,
        url: str,
        waiting: dict[str, BatchEntry],
        landed: Callable[[Any], object],
        attempts: int,
    ) -> dict[str, str]:
        """Send what waits and take out of it what is answered; what a QueueError leaves is what is still to be sent."""
        failed: dict[str, str] = {}
        passing: dict[str, str] = {}
        for number in range(attempts):
            if not waiting:
                break
            if number:
                self._clock.sleep(self._tokens.uniform(0, 0.1 * 2 ** (number - 1)))
            response = self.call(operation, {"QueueUrl": url, "Entries": list(waiting.values())})
            for answer in response.get("Successful", []):
                if waiting.pop(answer["Id"], None) is not None:
                    landed(answer)
            passing = {}
            for answer in response.get("Failed", []):
                reason = f"{answer.get('Code')}: {answer.get('Message', '')}"
                if answer.get("SenderFault"):
                    waiting.pop(answer["Id"], None)
                    failed[answer["Id"]] = reason
                else:
                    passing[answer["Id"]] = reason
        return failed | {entry_id: passing.get(entry_id, "not answered") for entry_id in waiting}


def _group(entry: BatchEntry) -> object:
    # Without a group an entry has no order with any other.
    return entry.get("MessageGroupId") or entry["Id"]
