"""What each fault is, and what comes of it at each operation: data. `docs/faults.md` is the same for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kit import wire_faults as wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.fault_proxy import Fault

Lasts = Literal["once", "always"]


@dataclass(frozen=True)
class Outcome:
    """What comes of a fault.

    Args:
        answer: What the invocation, or the call, says; ``None`` is what it says without a fault.
        repeats: How often the job's effect is attempted again, always under the same downstream key.
        jobs: How the job ends if not as it does without a fault.
        is_told: Whether the operation's own event is told.
        also_told: Another event that is told instead.
    """

    answer: str | None
    repeats: int = 0
    jobs: tuple[str, ...] | None = None
    is_told: bool = True
    told_instead: str | None = None


OUTCOMES = {
    "healed": Outcome(None, is_told=False),
    "kept": Outcome("kept"),
    "repeated": Outcome("kept", repeats=1),
    "ended": Outcome("kept"),
    "held": Outcome("kept", jobs=("uncertain",)),
    "never ran": Outcome("kept", repeats=-1, jobs=("uncertain",)),
    "released": Outcome("kept", repeats=1, told_instead="job.released"),
    "goes on": Outcome(None),
    "raised": Outcome("raised"),
}
KINDS: dict[str, tuple[Fault, ...]] = {
    "not applied": (
        wire.SILENT,
        wire.RESET_BEFORE,
        wire.SERVER_ERROR,
        wire.UNAVAILABLE,
        wire.refused("ThrottlingException"),
    ),
    "applied": (
        wire.SLOW,
        wire.RESET_AFTER,
        wire.SLOW_BODY,
        wire.TRUNCATED,
        wire.GARBLED,
        wire.SERVER_ERROR_AFTER,
    ),
    "refused": (
        wire.refused("ExpiredTokenException"),
        wire.refused("AccessDeniedException"),
    ),
}
# What only one of the services says.
OF_DYNAMODB: dict[str, tuple[Fault, ...]] = {
    "not applied": (wire.refused("ProvisionedThroughputExceededException"), wire.refused("RequestLimitExceeded")),
    "applied": (wire.WRONG_CRC,),
    "refused": (wire.refused("ResourceNotFoundException"), wire.refused("ValidationException")),
}
OF_SQS: dict[str, tuple[Fault, ...]] = {
    "not applied": (wire.refused("RequestThrottled"), wire.refused("KMS.ThrottlingException")),
    "refused": (wire.refused("OverLimit"), wire.refused("AWS.SimpleQueueService.NonExistentQueue")),
}
OF_WRITES: dict[str, tuple[Fault, ...]] = {"not applied": (wire.CONFLICT,)}
OF_TRANSACTIONS: dict[str, tuple[Fault, ...]] = {
    "contended": (wire.CANCELLED_CONFLICT, wire.CANCELLED_THROTTLED, wire.CANCELLED_MIXED),
    "refused": (wire.MISMATCH, wire.CANCELLED_VALIDATION),
}
OF_BATCHES: dict[str, tuple[Fault, ...]] = {"not applied": (wire.ENTRY_FAILED,), "refused": (wire.ENTRY_REFUSED,)}
# botocore does not look at it, and the message is where it belongs.
UNNOTICED: dict[str, tuple[Fault, ...]] = {"unnoticed": (wire.WRONG_MD5,)}
# These make the client wait in real time.
# As far as the retry loop sees, these are as an error of their kind, or as another answer that comes too late.
ALIKE = {wire.SERVER_ERROR, wire.UNAVAILABLE, wire.SERVER_ERROR_AFTER, wire.SLOW_BODY}
WAITED_AT = {"claim", "complete", "copy to the dead-letter queue"}
WAITED_FOR = {wire.SILENT, wire.SLOW, wire.SLOW_BODY}
COLUMNS = ("once, then answered", "not applied", "applied", "refused")
# What comes of each operation: where it is answered when it is sent again; where no answer ever comes, and the server
# has not, or has, carried it out; and where it is refused.
TABLE: dict[str, tuple[str, str, str, str]] = {
    "claim": ("healed", "kept", "kept", "kept"),
    "take over": ("healed", "kept", "kept", "kept"),
    "step, started": ("healed", "kept", "never ran", "kept"),
    "step, finished": ("healed", "repeated", "ended", "repeated"),
    "step, finished, at most once": ("healed", "held", "ended", "held"),
    "complete": ("healed", "repeated", "ended", "repeated"),
    "commit": ("healed", "repeated", "ended", "released"),
    "release": ("healed", "kept", "kept", "kept"),
    "give back": ("healed", "kept", "kept", "kept"),
    "reject": ("healed", "repeated", "ended", "repeated"),
    "reject, by a taker": ("healed", "ended", "ended", "ended"),
    "hold": ("healed", "ended", "ended", "ended"),
    "hold, by a taker": ("healed", "ended", "ended", "ended"),
    "renew": ("healed", "goes on", "goes on", "goes on"),
    "get": ("healed", "raised", "raised", "raised"),
    "resolve": ("healed", "raised", "raised", "raised"),
    "mark stale": ("healed", "raised", "raised", "raised"),
    "acquire a lock": ("healed", "kept", "kept", "kept"),
    "extend a lock": ("healed", "goes on", "goes on", "goes on"),
    "release a lock": ("healed", "goes on", "goes on", "goes on"),
    "stage with a caller's writes": ("healed", "raised", "raised", "raised"),
    "mark as sent": ("healed", "goes on", "goes on", "goes on"),
    "mark as failed": ("healed", "goes on", "goes on", "goes on"),
    "read what is pending": ("healed", "raised", "raised", "raised"),
    "send": ("healed", "raised", "raised", "raised"),
    "send many": ("healed", "raised", "raised", "raised"),
    "send what was staged": ("healed", "goes on", "goes on", "goes on"),
    "copy to the dead-letter queue": ("healed", "ended", "ended", "ended"),
    "change visibility": ("healed", "goes on", "goes on", "goes on"),
    "receive": ("healed", "raised", "raised", "raised"),
    "delete": ("healed", "goes on", "goes on", "goes on"),
}
# Of transactions alone: others were in the way, again and again. Nothing was written, and that is known.
CONTENDED = {"commit": "released", "stage with a caller's writes": "raised"}
# SQS refuses a batch as a whole: it is sent again entry by entry, and refused once then.
SPLIT = {"send many"}
READS = {"get", "read what is pending"}


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix."""

    operation: str
    fault: Fault
    kind: str
    lasts: Lasts

    def __str__(self) -> str:
        """Name it for a test's id."""
        return f"{self.operation}-{self.fault}-{self.lasts}".replace(" ", "_").replace(",", "")

    @property
    def outcome(self) -> str:
        """What comes of it, by the table."""
        once, not_applied, applied, refused = TABLE[self.operation]
        if self.kind == "refused":
            is_split = self.operation in SPLIT and self.lasts == "once" and self.fault is not wire.ENTRY_REFUSED
            return once if is_split else refused
        if self.lasts == "once" or self.kind == "unnoticed":
            return once
        if self.kind == "contended":
            return CONTENDED[self.operation]
        return applied if self.kind == "applied" else not_applied


def faults_of(operation: str) -> Iterator[tuple[str, Fault]]:
    """Yield the faults that an operation can meet, each with its kind."""
    is_sqs = list(TABLE).index(operation) >= list(TABLE).index("send")
    groups = [KINDS, OF_SQS if is_sqs else OF_DYNAMODB]
    if operation in CONTENDED:
        groups.append(OF_TRANSACTIONS)
    elif not is_sqs and operation not in READS:
        groups.append(OF_WRITES)
    if is_sqs and operation not in {"send", "receive"}:
        groups.append(OF_BATCHES)
    if is_sqs and operation not in {"delete", "change visibility"}:
        groups.append(UNNOTICED)
    for group in groups:
        for kind, faults in group.items():
            yield from ((kind, fault) for fault in faults)


def cells() -> list[Cell]:
    """Return every cell: operation, fault, and whether it happens once or every time."""
    lasting: tuple[Lasts, ...] = ("once", "always")
    return [
        Cell(operation, fault, kind, lasts)
        for operation in TABLE
        for kind, fault in faults_of(operation)
        for lasts in lasting
    ]


def a_slice() -> list[Cell]:
    """Return the cells of every run: what happens once, and of what lasts the first of each kind.

    What lasts looks the same from the retry loop up, whatever of its kind it is. Nor does the loop tell errors apart by
    more than their kind: of those each operation meets one of a kind here, and each is met somewhere. What the client
    waits for, again and again, is left to `WAITED_AT`, for time.
    """
    found, lasting = [], set()
    for cell in cells():
        row, told_apart = list(TABLE).index(cell.operation), _errors(cell.operation, cell.kind)
        is_spread = cell.fault in told_apart and cell.fault is not told_apart[row % len(told_apart)]
        if cell.lasts == "once":
            is_part = not is_spread
        elif cell.fault in WAITED_FOR:
            is_part = cell.operation in WAITED_AT
        else:
            is_part = cell.fault is wire.ENTRY_FAILED or (cell.operation, cell.kind) not in lasting
            lasting.add((cell.operation, cell.kind))
        if is_part:
            found.append(cell)
    return found


def _errors(operation: str, kind: str) -> list[Fault]:
    """Return the faults of that kind that an operation can meet and that a part of the matrix tells apart by kind."""
    found = [fault for of_kind, fault in faults_of(operation) if of_kind == kind and fault is not wire.MISMATCH]
    return [fault for fault in found if fault.name[0].isupper() or fault in ALIKE]
