"""A queue as other programs see it: bodies that go in as they are, and what lies there, looked at and left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from onceq.settings import require

if TYPE_CHECKING:
    from onceq.queue import Queue
    from onceq.settings import QueueSettings

# Others may still read the queue: what was only looked at is back this soon, should it not be given back at once.
PEEK_SECONDS = 10
PEEK_MOST = 100
_GROUP = re.compile(r"[!-~]{1,128}")


def send_raw(queue: Queue, settings: QueueSettings, body: str, group: str | None, token: str) -> str:
    """Send one body without an envelope.

    Args:
        queue: The seam to SQS.
        settings: The queue.
        body: The body, as it is.
        group: The message group.
        token: What no other message has: a FIFO queue takes the same body twice.

    Returns:
        The message id.

    Raises:
        ConfigurationError: If the group does not fit.
        QueueError: If SQS did not take it.
    """
    require(
        group is None or _GROUP.fullmatch(group) is not None,
        f"--group {group!r}: give 1 to 128 printable ASCII characters without spaces",
    )
    require(
        not settings.is_fifo or group is not None,
        f"queue {settings.name!r} is FIFO: give --group, whose messages are kept in order",
    )
    entry = {"MessageBody": body} | ({} if group is None else {"MessageGroupId": group})
    return queue.send(settings.url, entry | ({"MessageDeduplicationId": token} if settings.is_fifo else {}))


def peek(queue: Queue, url: str) -> list[dict[str, Any]]:
    """Return what lies in a queue, up to `PEEK_MOST` messages, and give it back."""
    request = {
        "QueueUrl": url,
        "MaxNumberOfMessages": 10,
        "VisibilityTimeout": PEEK_SECONDS,
        "MessageAttributeNames": ["All"],
    }
    messages: list[dict[str, Any]] = []
    while len(messages) < PEEK_MOST:
        batch = queue.call("ReceiveMessage", request).get("Messages", [])
        if not batch:
            break
        messages += batch
    entries = [
        {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
        for number, message in enumerate(messages)
    ]
    queue.change_visibility_batch(url, entries)
    return messages
