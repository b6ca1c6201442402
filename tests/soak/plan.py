"""What a soak sends, and what goes wrong when: all of it drawn from a seed, before anything runs.

The same seed gives the same messages in the same order, the same schedule, and the same fault to the n-th request of a
name. When processes come to it is theirs, so two runs of one seed differ in what meets what.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Pieces on the shelf: of the second article there is not enough for all, also in a short soak.
SHELF = {"plenty": 1_000_000, "scarce": 12}
# Many, since a batch that is held by a worker that is stopped holds each of its groups.
ACCOUNTS = {f"account-{number}": 1_000 for number in range(12)}
# Some entries fail first, and right behind each come others of its group, which must wait.
FAILING_ENTRIES, BEHIND = 0.2, 2
LARGE_BYTES = 1_100_000
FALSY: tuple[Any, ...] = (0, "", [], {}, None, False)
UNSERVED = "later"
# How often each kind comes, of a thousand. Some of the rare ones cost a process, and with it seconds.
OF_A_THOUSAND = {
    "charge": 280,
    "trip": 100,
    "mail": 80,
    "book": 60,
    "visit": 50,
    "reserve": 100,
    "entry": 90,
    "flaky": 60,
    "answer": 60,
    "refuse": 25,
    "declined": 15,
    "snooze": 20,
    "count": 10,
    "big": 3,
    "killer": 1,
    "charge dies": 2,
    "trip dies": 2,
    "book dies": 2,
    "visit dies": 2,
    "reserve dies": 1,
    "unreadable": 8,
    "duplicate": 80,
    "reuse": 10,
}
# These kill the process they run in; and these are of an earlier message.
DEADLY = ("charge dies", "trip dies", "book dies", "visit dies", "reserve dies", "killer")
OF_ANOTHER = ("duplicate", "reuse")
APART = 12
# Where a kind comes once at the beginning, and no more.
ONCE = ("unserved",)
# A duplicate is of one of the last so many; a key is used again when its first message has long been there.
NEAR, FAR = 60, 40
# Of what takes its time, so many come once more right behind, to a worker who finds it under way.
SLOW_SECONDS, ECHOES, ECHO_AFTER = 0.2, 0.8, (2, 6)
SECOND_PAYLOAD_OF = ("charge", "trip", "answer")


@dataclass(frozen=True)
class Message:
    """One message to send.

    Args:
        number: Its place in the plan.
        kind: What it shows.
        job_type: Its job type; empty for a body that is sent as it is.
        key: Its idempotency key.
        payload: Its payload.
        body: A body that is sent as it is.
    """

    number: int
    kind: str
    job_type: str = ""
    key: str = ""
    payload: dict[str, Any] = field(default_factory=dict)
    body: str = ""

    @property
    def job(self) -> str:
        """The job's name in the claims table; empty for a body that is no job."""
        return f"{self.job_type}#{self.key}" if self.job_type else ""

    @property
    def group(self) -> str | None:
        """The message group: entries are in the order of their account."""
        return self.payload["account"] if self.job_type == "entry" else None


def messages(seed: int) -> Iterator[Message]:
    """Yield messages without end: each kind once at the beginning, and then as often as their share is."""
    chance = random.Random(f"messages {seed}")
    first = [kind for kind in (*OF_A_THOUSAND, *ONCE) if kind not in (*DEADLY, *OF_ANOTHER)]
    chance.shuffle(first)
    first += OF_ANOTHER
    kinds, shares = zip(*OF_A_THOUSAND.items(), strict=True)
    # Not all at once: a process that dies takes its whole batch with it.
    others = {kind: share for kind, share in OF_A_THOUSAND.items() if kind not in DEADLY}
    for kind in DEADLY:
        first += [*chance.choices(tuple(others), tuple(others.values()), k=APART), kind]
    sent: list[Message] = []
    echoes: list[tuple[int, Message]] = []
    behind: list[str] = []
    for number in itertools.count(1):
        if behind:
            message = _message(number, "entry", chance, sent)
            sent.append(replace(message, payload={**message.payload, "account": behind.pop(), "fails": 0}))
            yield sent[-1]
            continue
        if echoes and number >= echoes[0][0]:
            yield replace(echoes.pop(0)[1], number=number, kind="duplicate")
            continue
        kind = first.pop(0) if first else chance.choices(kinds, shares)[0]
        message = _message(number, kind, chance, sent)
        sent.append(message)
        is_slow = message.payload.get("seconds", 0) >= SLOW_SECONDS
        if is_slow and kind != "reuse" and chance.random() < ECHOES:
            echoes.append((number + chance.randrange(*ECHO_AFTER), message))
        if message.kind == "entry" and message.payload["fails"]:
            behind = [message.payload["account"]] * BEHIND
        yield message


def _message(number: int, kind: str, chance: random.Random, sent: list[Message]) -> Message:
    if kind == "duplicate":
        near = [one for one in sent[-NEAR:] if one.job_type and one.kind not in ("reuse", "killer", "big")]
        return replace(chance.choice(near), number=number, kind=kind)
    if kind == "reuse":
        before = sent[:-FAR] or sent
        of = chance.choice([one for one in before[-FAR * 4 :] if one.kind in SECOND_PAYLOAD_OF] or [sent[0]])
        if of.kind in SECOND_PAYLOAD_OF:
            return replace(of, number=number, kind=kind, payload={**of.payload, "reused": number})
        kind = "charge"
    if kind == "unreadable":
        return Message(number, kind, body=_unreadable(number, chance))
    if kind == "unserved":
        return Message(number, kind, body=_envelope(UNSERVED, f"k-{number}", {}))
    job_type = {"declined": "charge"}.get(kind, kind.partition(" ")[0])
    return Message(number, kind, job_type, f"k-{number}", _payload(kind, chance))


def _seconds(kind: str, chance: random.Random) -> float:
    """Return how long a job takes: most are quick, some take a good part of a lease, few so long that it is renewed."""
    draw = chance.random()
    # A coroutine is cancelled when its time is over, so that of a mail is shorter.
    slow = chance.uniform(0.2, 0.9) if kind == "mail" else 2.5 if draw > 0.99 else chance.uniform(0.5, 1.5)
    seconds = chance.uniform(0.0, 0.03) if draw < 0.9 else slow
    # A trip takes it three times.
    return round(seconds / 3 if kind == "trip" else seconds, 3)


def _payload(kind: str, chance: random.Random) -> dict[str, Any]:
    """Return a payload, in which everything stands that its job will do."""
    seconds = _seconds(kind, chance)
    spoil = chance.choices((None, "fail", "lose"), (94, 3, 3))[0]
    plain: dict[str, Any] = {"seconds": seconds, **({"spoil": spoil} if spoil else {})}
    match kind:
        case "declined":
            return {"spoil": "decline"}
        case "charge dies":
            return {"dies": chance.choice(("behind the effect", "behind the record"))}
        case "book dies" | "visit dies":
            return {"dies": True}
        case "trip dies":
            return {"dies": chance.choice((1, 2, 3))}
        case "reserve" | "reserve dies":
            sku = chance.choices(tuple(SHELF), (8, 2))[0] if kind == "reserve" else "plenty"
            dies = {"dies": True} if kind == "reserve dies" else {}
            return {"sku": sku, "pieces": chance.randrange(1, 4), "seconds": seconds, **dies}
        case "entry":
            account, amount = chance.choice(tuple(ACCOUNTS)), chance.randrange(-400, 500)
            fails = int(chance.random() < FAILING_ENTRIES)
            return {"account": account, "amount": amount, "seconds": seconds, "fails": fails}
        case "flaky":
            return {"fails": chance.randrange(1, 4)}
        case "answer":
            return {"value": chance.choice((*FALSY, *FALSY, "too_large", "unencodable", {"nested": [1, None, "é"]}))}
        case "big":
            return {"text": f"{chance.getrandbits(LARGE_BYTES * 4):x}"}
        case "book":
            return {"seconds": seconds, "retries": chance.random() < 0.2}
        case "refuse" | "killer" | "snooze":
            return {}
    return plain


def _envelope(job_type: str, key: str, payload: object) -> str:
    stamped = {"onceq": 1, "job_type": job_type, "idempotency_key": key, "created_at": "2026-11-30T12:00:00Z"}
    return json.dumps({**stamped, "payload": payload})


def _unreadable(number: int, chance: random.Random) -> str:
    return chance.choice(
        (
            f"not JSON, {number}",
            json.dumps({"onceq": 1, "number": number}),
            _envelope("charge", f"k-{number}", [number]),
            _envelope("charge", " ", {"number": number}),
            json.dumps(["a list", number]),
        )
    )


@dataclass(frozen=True)
class Happening:
    """Something that goes wrong, or that a person does, at a time.

    Args:
        at: Seconds from the beginning.
        what: ``kill``, ``stop``, ``outage``, ``redrive``, ``resolve`` or ``recover``.
        who: Number of the process, of those that are killed or stopped.
        seconds: How long it lasts.
    """

    at: float
    what: str
    who: int = 0
    seconds: float = 0.0


# Seconds from one to the next, on average.
EVERY = {"kill": 5.0, "stop": 8.0, "outage": 20.0, "redrive": 20.0, "resolve": 12.0, "recover": 25.0}


def schedule(seed: int, duration: float, *, processes: int, consumers: int, stale_after: float) -> list[Happening]:
    """Return what happens, in the order of time: each at least once.

    Args:
        seed: The seed.
        duration: Seconds.
        processes: How many there are; any may be killed.
        consumers: How many of them, the first ones, are stopped.
        stale_after: Lease and clock skew: who is stopped for longer is a zombie.
    """
    chance = random.Random(f"schedule {seed}")
    found = []
    for what, every in EVERY.items():
        times = max(1, round(duration / every))
        for number in range(times):
            at = (number + chance.uniform(0.3, 0.9)) * duration / times
            if what == "stop":
                # The message must have come back, too, for somebody to take over meanwhile.
                lasting, who = chance.uniform(stale_after * 2, stale_after * 4), chance.randrange(consumers)
            else:
                lasting, who = chance.uniform(0.5, 1.5), chance.randrange(processes)
            found.append(Happening(round(at, 3), what, who, round(lasting, 3)))
    return sorted(found, key=lambda one: (one.at, one.what, one.who))


# What the wire does, and how often in comparison. Those at the end cost a whole read time-out.
_COMMON = {
    "latency": 8, "reset_before": 6, "reset_after": 8, "500": 4, "500_after": 6, "503": 2, "truncated_body": 3,
    "garbled_body": 3, "slow": 2, "silent": 1, "slow_body": 1, "killed_before": 1, "killed_after": 1,
    "stopped_before": 1, "stopped_after": 1,
}  # fmt: skip
_TABLE = {"ThrottlingException": 4, "ProvisionedThroughputExceededException": 2, "wrong_crc": 2}
_TRANSACTION = {"cancelled_conflict": 4, "cancelled_throttled": 3, "cancelled_mixed": 2, "lands_late": 4}
# Nothing tells a zombie from others but a write that comes too late, so most of these go to the writes.
_OF_A_CLAIM = {"killed_before": 3, "killed_after": 5, "stopped_before": 8, "stopped_after": 3}
# One job in five has one, and behind it its messages are to be sent.
_OF_A_COMMIT = {**_OF_A_CLAIM, "killed_before": 8, "killed_after": 16}
_SQS = {"RequestThrottled": 4}
_SQS_BATCH = {"entry_failed": 4}
SHARE = 0.04
# What also a short soak is to meet, each at a request that is drawn from the first hundred of its name.
SURE = {
    "commit": ("killed_before", *["killed_after"] * 5, "stopped_before"),
    "complete": ("killed_before", "killed_after", *["stopped_before"] * 3, "stopped_after", "lands_late"),
}
_SURE_AMONG = range(20, 100)
_CLAIM_WRITES = ("claim", "take_over", "step", "complete", "release", "reject", "hold", "renew")


def wire(seed: int, share: float = SHARE) -> Callable[[str, int], str | None]:
    """Return what says which fault the n-th request of a name meets, if any."""
    sure: dict[tuple[str, int], str] = {}
    for name, faults in SURE.items():
        numbers = random.Random(f"sure {seed} {name}").sample(_SURE_AMONG, len(faults))
        sure |= {(name, number): fault for number, fault in zip(numbers, faults, strict=True)}

    def choose(name: str, number: int) -> str | None:
        if (name, number) in sure:
            return sure[name, number]
        chance = random.Random(f"wire {seed} {name} {number}")
        if chance.random() >= share:
            return None
        weights = _weights(name)
        return chance.choices(list(weights), list(weights.values()))[0]

    return choose


def _weights(name: str) -> dict[str, int]:
    if " " in name:  # an operation and its queue
        batch = "Batch " in name
        return {**_COMMON, **_SQS, **(_SQS_BATCH if batch else {})}
    if name == "commit":
        return {**_COMMON, **_TABLE, **_TRANSACTION, **_OF_A_COMMIT}
    return {**_COMMON, **_TABLE, **({"lands_late": 6, **_OF_A_CLAIM} if name in _CLAIM_WRITES else {})}
