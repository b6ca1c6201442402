"""What jobs staged, as effects: the writes of their commits, and the messages that they send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceq.codec import fingerprint
from onceq.errors import EnvelopeError, OnceqError
from onceq.message import Envelope, open_envelope
from onceq.testing.calls import value_of
from onceq.testing.done import Done, leaves
from onceq.testing.recorder import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onceq.catalogue import JobTypes
    from onceq.testing.mailbox import Letter
    from onceq.testing.timeline import Entry

TRANSACTION = "the transaction"
MESSAGE = "the message to"


@dataclass(frozen=True)
class Commit:
    """One commit that landed.

    Args:
        at: Its entry of the timeline.
        worker: Whose it was.
        job: The key of the job that it completes; ``""`` if it is not known.
        writes: The job's own writes, each with its kind.
        bodies: The messages that it stages.
    """

    at: int
    worker: str
    job: str
    writes: Sequence[tuple[str, Mapping[str, object]]]
    bodies: Sequence[str]

    def effects(self) -> Iterator[Done]:
        """Yield an effect for each write, named by what it does and where; a condition alone is none."""
        for kind, write in self.writes:
            table = str(write["TableName"]).rpartition("/")[2]
            if kind != "ConditionCheck":
                given = dict(leaves(plain(write)))
                yield Done(
                    f"{TRANSACTION}: {kind} of {table}",
                    worker=self.worker,
                    at=self.at,
                    job=self.job,
                    given=given,
                    commit=self.at,
                )


def commits_of(entries: Iterable[Entry], keys: Mapping[str, str], outbox: str) -> list[Commit]:
    """Return the commits that landed.

    Args:
        entries: What happened.
        keys: The keys of the jobs, by those of their records.
        outbox: Name of the outbox table.
    """
    found = []
    for entry in entries:
        call = entry.call
        if call is None or not entry.landed or call.update is None or not call.others:
            continue
        parts = [next(iter(one.items())) for one in call.request["TransactItems"]]
        own = [(kind, part) for kind, part in parts if part["TableName"] not in (outbox, call.claims_table)]
        items = [part["Item"] for _, part in parts if part["TableName"] == outbox and "Item" in part]
        bodies = [str(value_of(item.get("body"))) for item in items]
        found.append(Commit(entry.number, entry.worker, keys.get(call.record_key, ""), own, bodies))
    return found


def messages_of(letters: Iterable[Letter], commits: Iterable[Commit]) -> list[Done]:
    """Return the messages to jobs: an onceq consumer applies one key once."""
    staged = {body: commit for commit in commits for body in commit.bodies}
    found = []
    for letter in letters:
        envelope = envelope_of(letter)
        if envelope is None:
            continue
        commit = staged.get(letter.body)
        found.append(
            Done(
                f"{MESSAGE} {envelope.job_type}",
                str(envelope.idempotency_key),
                job="" if commit is None else commit.job,
                given=dict(leaves(plain(envelope.payload))),
                commit=0 if commit is None else commit.at,
            )
        )
    return found


def refused_of(sent: Iterable[Letter], own: Iterable[Letter], job_types: JobTypes) -> list[str]:
    """Return the names of the messages that their receivers refuse: another one with other arguments has their key.

    Args:
        sent: What the jobs sent.
        own: What the proof itself sent: of a job, the first of these is what another one is compared with.
        job_types: The receivers, who say what of a payload is compared.
    """
    theirs, ours = _compared_in(sent, job_types), _compared_in(own, job_types)
    return [_named(at) for at, given in theirs.items() if len({*given, *ours.get(at, [])[:1]} - {None}) > 1]


def in_vain_of(sent: Iterable[Letter], own: Iterable[Letter], job_types: JobTypes) -> list[str]:
    """Return the names of the messages that are duplicates of the job that sent them; the arguments as above."""
    theirs, ours = _compared_in(sent, job_types), _compared_in(own, job_types)
    return [f"{_named(at)}, its own key" for at, given in theirs.items() if given[0] in ours.get(at, [])]


def envelope_of(letter: Letter) -> Envelope | None:
    """Return what a message of onceq's says; ``None`` of another one."""
    try:
        opened = open_envelope(letter.body)
    except EnvelopeError:
        return None
    return opened if isinstance(opened, Envelope) else None


def _named(at: tuple[str, str]) -> str:
    name, key = at
    return f"{MESSAGE} {name}, as {key}"


def _compared_in(letters: Iterable[Letter], job_types: JobTypes) -> dict[tuple[str, str], list[str | None]]:
    """Return what receivers compare of messages, by job type and key."""
    found: dict[tuple[str, str], list[str | None]] = {}
    for letter in letters:
        envelope = envelope_of(letter)
        if envelope is not None:
            at = (envelope.job_type, str(envelope.idempotency_key))
            found.setdefault(at, []).append(_compared(envelope, job_types))
    return found


def _compared(envelope: Envelope, job_types: JobTypes) -> str | None:
    """Return what of a payload its receiver compares; ``None`` where that compares nothing, or cannot read it."""
    job_type = job_types.get(envelope.job_type)
    if job_type is None:
        return fingerprint(envelope.payload)
    try:
        return job_type.fingerprint_of(envelope.payload, job_type.load(envelope.payload))
    except OnceqError:
        return None
