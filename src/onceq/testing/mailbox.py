"""What lies in the queues of a run, on the kit's clock: visibility, receive counts, dead-letter queues, FIFO groups.

moto's queues live in real time, redeliver a FIFO group out of order, forget what they took once it is deleted, and
delete by any receipt handle. So whatever is sent to them is taken out at once and kept here, where a message becomes
visible when the frozen clock says so; and requests about messages that were received are answered here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceq.errors import ConfigurationError
from onceq.poller import lambda_event, to_delete
from onceq.settings import require
from onceq.testing.contents import SENDER, Place, checksums, deduplication_id, message_id_of, sent_to
from onceq.testing.given import check_text, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onceq.testing.clock import FrozenClock

# For so long SQS knows a deduplication id, whether the message was deleted meanwhile or not.
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-exactly-once-processing.html
DEDUPLICATION_MS = 300_000
# Of an event from a queue that no function of the template consumes.
SECONDS = 60.0


@dataclass(eq=False)
class Letter:
    """A message that lies in a queue.

    Args:
        place: Its queue.
        message: As ReceiveMessage gives it.
        visible_at: When it can be received, epoch ms.
        name: Its name in timelines.
        home: ARN of the queue that it was sent to first.
        receives: How often it was received.
        handle: The newest receipt handle.
        first_received: When it was received first, epoch ms; 0 until then.
        troubled: The receives at which something was made to go wrong, by their numbers, from 1.
        received_before: How often it was received before it came to this queue.
        source: The queue whose redrive policy moved it here; ``None`` where none did.
    """

    place: Place
    message: dict[str, Any]
    visible_at: int
    name: str
    home: str
    receives: int = 0
    handle: str = ""
    first_received: int = 0
    troubled: set[int] = field(default_factory=set)
    received_before: int = 0
    source: Place | None = None

    @property
    def message_id(self) -> str:
        """SQS's id of it."""
        return str(self.message["MessageId"])

    @property
    def body(self) -> str:
        """Its body."""
        return str(self.message["Body"])

    @property
    def attributes(self) -> dict[str, Any]:
        """Its message attributes: text or bytes by name."""
        given = self.message.get("MessageAttributes", {})
        return {name: one.get("StringValue", one.get("BinaryValue")) for name, one in given.items()}

    @property
    def group(self) -> str | None:
        """Its message group on a FIFO queue, else ``None``."""
        return self.message["Attributes"].get("MessageGroupId") if self.place.is_fifo else None


def check_letter(given: object) -> None:
    """Raise: ConfigurationError, if this is no message."""
    told = "give one that `enqueue` or `put` returned, or one of `letters()` and `dead_letters()`"
    require(isinstance(given, Letter), f"{shown(given)} is no message: {told}")


@dataclass
class Mailbox:
    """The queues of a run.

    Args:
        clock: The time.
        places: The queues.
        letters: What lies in them, in the order of sending.
        deleted: What was acknowledged, or deleted otherwise.
    """

    clock: FrozenClock
    places: Sequence[Place]
    letters: list[Letter] = field(default_factory=list)
    deleted: list[Letter] = field(default_factory=list)
    _taken: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _came: set[Letter] = field(default_factory=set)
    _handles: int = 0
    _number: int = 0

    def place_of(self, name: str) -> Place:
        """Return a queue by its name, here or in ``ONCEQ_QUEUES``, its ARN or its URL. Raises: ConfigurationError."""
        for place in self.places:
            if name and name in (place.name, place.alias, place.arn, place.url):
                return place
        names = ", ".join(name for place in self.places for name in (place.name, place.alias) if name)
        message = f"there is no queue {shown(name)} in this environment: {names}"
        raise ConfigurationError(message)

    def timeout_of(self, arn: str) -> float:
        """Return how long an invocation for a queue may take, in seconds."""
        return next((place.timeout for place in self.places if place.arn == arn and place.timeout), SECONDS)

    @property
    def dead(self) -> list[Place]:
        """The dead-letter queues."""
        named = {place.dlq_arn for place in self.places}
        return [place for place in self.places if place.arn in named]

    def lying_in(self, places: Sequence[Place]) -> list[Letter]:
        """Return what lies in these queues now, visible or not, in the order of sending."""
        self.collect()
        self.move_dead()
        return [letter for letter in self.letters if letter.place in places]

    def collect(self) -> list[Letter]:
        """Take over what was sent to the queues, and return it."""
        before = len(self.letters)
        for place in self.places:
            for message, visible_at in sent_to(place.url):
                if not self._is_swallowed(place, message["Attributes"]):
                    self._take_over(place, message, visible_at)
        return self.letters[before:]

    def _is_swallowed(self, place: Place, system: Mapping[str, str]) -> bool:
        """Return whether a FIFO queue has taken this deduplication id a short time ago."""
        given = system.get("MessageDeduplicationId")
        if not place.is_fifo or given is None:
            return False
        at = (place.arn, system["MessageGroupId"] if place.dedupes_by_group else "", given)
        sent = int(system["SentTimestamp"])
        if at in self._taken and sent - self._taken[at] < DEDUPLICATION_MS:
            return True
        self._taken[at] = sent
        return False

    def put(self, place: Place, body: str, *, attributes: dict[str, Any] | None = None, group: str = "") -> Letter:
        """Let a message lie in a queue that nobody sent through SQS.

        Args:
            place: The queue.
            body: The body.
            attributes: Message attributes as SendMessage takes them.
            group: The message group; on a FIFO queue ``g`` without one.
        """
        check_text("group", group)
        number, group = self._number + 1, group or ("g" if place.is_fifo else "")
        system = {"SenderId": SENDER, "SentTimestamp": str(self.clock.now_ms())}
        if group:
            system["MessageGroupId"] = group
        if place.is_fifo:
            system["MessageDeduplicationId"] = deduplication_id(number, body)
        message: dict[str, Any] = {"Body": body, "Attributes": system}
        if attributes:
            message["MessageAttributes"] = attributes
        return self._take_over(place, message | checksums(message), self.clock.now_ms())

    def _take_over(self, place: Place, message: dict[str, Any], visible_at: int) -> Letter:
        """Keep a message under an id, and in an order, that are the same in every run."""
        self._number += 1
        system = dict(message["Attributes"])
        if place.is_fifo:
            system["SequenceNumber"] = f"{self._number:020}"
        named = {**message, "MessageId": message_id_of(self._number), "Attributes": system}
        letter = Letter(place, named, visible_at, f"m{self._number}", place.arn)
        self.letters.append(letter)
        self._came.add(letter)
        return letter

    def check_came(self, letter: object) -> None:
        """Raise: ConfigurationError, if this is no message that has come here, for example in a run before this one."""
        check_letter(letter)
        told = f"{getattr(letter, 'name', letter)} is no message of this environment as it is now"
        require(letter in self._came, f"{told}: a `reset` came after it, or it is another one's. Send it anew")

    def skip(self) -> None:
        """Give the next message another id than it would have had."""
        self._number += 1

    def duplicate(self, letter: Letter, *, place: Place | None = None) -> Letter:
        """Let the same message come a second time, under a message id of its own, as after a redrive or a second send.

        Args:
            letter: The message, which stays where it is.
            place: The queue; without it the one that it was sent to first.
        """
        attributes = letter.message.get("MessageAttributes")
        group = letter.message["Attributes"].get("MessageGroupId", "")
        return self.put(place or self.place_of(letter.home), letter.body, attributes=attributes, group=group)

    def replace(self, letter: Letter) -> Letter:
        """Let a message come under another message id instead of its own, as a redrive does."""
        self.letters = [one for one in self.letters if one is not letter]
        return self.duplicate(letter)

    def due(self, place: Place | None = None) -> list[Letter]:
        """Return what can be received now: of a FIFO group nothing behind a message that is hidden."""
        now, hidden = self.clock.now_ms(), set[tuple[str, str]]()
        found = []
        for letter in self.letters:
            if place is not None and letter.place != place:
                continue
            behind = letter.group is not None and (letter.place.arn, letter.group) in hidden
            if letter.visible_at <= now and not behind:
                found.append(letter)
            elif letter.group is not None:
                hidden.add((letter.place.arn, letter.group))
        return found

    def next_at(self, letters: Sequence[Letter]) -> int | None:
        """Return when the next of these can be received that cannot now, epoch ms; ``None`` if there is none."""
        groups = {(one.place.arn, one.group) for one in letters if one.group is not None}
        waiting = [one for one in self.letters if one in letters or (one.place.arn, one.group) in groups]
        return min((one.visible_at for one in waiting if one.visible_at > self.clock.now_ms()), default=None)

    def receive(self, letters: Iterable[Letter]) -> dict[str, Any]:
        """Receive these messages, at least one, and return the event that Lambda makes of them.

        Raises:
            ConfigurationError: If there are none, one is there twice or is not of this run, or they are of several
                queues.
        """
        received = [*letters]
        require(bool(received), "an event has one message at least: none is given")
        for number, letter in enumerate(received):
            self.check_came(letter)
            told = "give each message once; its duplicate is a message that `put(letter.body)` makes"
            require(letter not in received[:number], f"{letter.name} comes twice in one event: {told}")
        if len({letter.place.arn for letter in received}) > 1:
            message = f"an event has the messages of one queue: {', '.join(one.place.name for one in received)}"
            raise ConfigurationError(message)
        return lambda_event(self.received(received), received[0].place.arn)

    def received(self, letters: Iterable[Letter], visibility: int | None = None) -> list[dict[str, Any]]:
        """Return messages as ReceiveMessage does: counted, hidden, with a new receipt handle."""
        received = []
        for letter in letters:
            self._handles += 1
            letter.receives += 1
            letter.handle = f"receipt-{self._handles}"
            letter.first_received = letter.first_received or self.clock.now_ms()
            hidden = letter.place.visibility if visibility is None else visibility
            letter.visible_at = self.clock.now_ms() + hidden * 1000
            system = {
                **letter.message["Attributes"],
                "ApproximateReceiveCount": str(letter.receives),
                "ApproximateFirstReceiveTimestamp": str(letter.first_received),
            }
            received.append({**letter.message, "ReceiptHandle": letter.handle, "Attributes": system})
        return received

    def settle(self, event: Mapping[str, Any], answer: object) -> list[Letter]:
        """Delete what an answer acknowledges, read as strictly as AWS does, and return it."""
        handles = {str(record.get("messageId")): record.get("receiptHandle", "") for record in event["Records"]}
        done = to_delete(handles, answer)
        return [letter for message_id, handle in handles.items() if message_id in done for letter in self.drop(handle)]

    def drop(self, handle: str) -> list[Letter]:
        """Delete a message by its newest receipt handle, and return it if there is such a one."""
        # A message that was received again since is not deleted by an older handle.
        gone = [letter for letter in self.letters if handle and letter.handle == handle]
        self.letters = [letter for letter in self.letters if letter not in gone]
        self.deleted += gone
        return gone

    def hide(self, handle: str, seconds: int) -> bool:
        """Change a message's visibility by its newest receipt handle; return whether there is such a one."""
        for letter in self.letters:
            if handle and letter.handle == handle:
                letter.visible_at = self.clock.now_ms() + seconds * 1000
                return True
        return False

    def move_dead(self) -> None:
        """Move what was received too often to its dead-letter queue, as the redrive policy says.

        It is the same message there: its id and its receive count stay. On a FIFO queue the time of sending is set
        anew, and the message id becomes the deduplication id.
        https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html
        https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html
        """
        for letter in self.letters:
            source, received = letter.place, letter.receives - letter.received_before
            if not (source.dlq_arn and source.most_receives and received >= source.most_receives):
                continue
            if letter.visible_at <= self.clock.now_ms():
                system = letter.message["Attributes"]
                system["DeadLetterQueueSourceArn"] = source.arn
                if source.is_fifo:
                    system |= {
                        "SentTimestamp": str(self.clock.now_ms()),
                        "MessageDeduplicationId": letter.message_id,
                    }
                letter.place, letter.source, letter.handle = self.place_of(source.dlq_arn), source, ""
                letter.received_before = letter.receives

    def is_used_up(self, letter: Letter) -> bool:
        """Return whether at every receive that a dead letter's queue allows something was made to go wrong."""
        # What a consumer sent to the dead-letter queue itself is a copy; what it was received as has the same body.
        same = [one for one in (*self.letters, *self.deleted) if one is letter or one.body == letter.body]
        places = [(one, one.source or one.place) for one in same]
        policies = [(one, place.most_receives) for one, place in places if place.dlq_arn and place.most_receives]
        return any(len(one.troubled) >= most_receives for one, most_receives in policies)

    def come_early(self, letter: Letter) -> None:
        """Let a message come while it is in flight: who has it cannot delete it, who gets it may have to wait."""
        if letter.visible_at > self.clock.now_ms():
            letter.troubled |= {letter.receives, letter.receives + 1}

    def redrive(self, source: Place, destination: Place) -> list[Letter]:
        """Move what lies in a dead-letter queue back, and return it.

        A redrive makes new messages: with new ids, sent now, and not received yet.
        https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html
        """
        moved = [letter for letter in self.letters if letter.place == source]
        self.letters = [letter for letter in self.letters if letter not in moved]
        return [self.duplicate(letter, place=destination) for letter in moved]

    def back(self, letter: Letter) -> Letter:
        """Move a dead letter back to its queue, under a new message id, and return it. Raises: ConfigurationError."""
        self.check_came(letter)
        source = next((place for place in self.places if place.dlq_arn == letter.place.arn), None)
        if source is None or letter not in self.letters:
            message = f"{letter.name} does not lie in a dead-letter queue: redrive what `dead_letters` returns"
            raise ConfigurationError(message)
        self.letters.remove(letter)
        return self.duplicate(letter, place=source)
