"""What no schedule may do, asked at every move and at every end.

The promises are those of docs/guarantees.md. What is asked of a play's effects at the end is the play's own `Check`.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from explore.behaviour import Kind
from explore.space import CLAIMS, OUTBOX, SECONDS
from onceq.record import Record, Status
from onceq.steps import read_steps
from onceq.testing.clock import START_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from explore.behaviour import Node
    from explore.outside import Snapshot
    from explore.space import Play, Used
    from onceq.testing.calls import Call

SKEW_MS = 10_000
LEFT = ("claim.lost", "message.faulted")
ENDED = (Status.COMPLETED, Status.REJECTED, Status.UNCERTAIN)


class Watch:
    """Watches one play.

    Attributes:
        changes: Each change of a record that a write made: before, after, when, and whose it was.
    """

    def __init__(self, play: Play) -> None:
        """Have seen nothing."""
        self.play = play
        self.changes: set[tuple[Record | None, Record, int, str]] = set()

    def of_write(self, before: Snapshot, after: Snapshot, node: Node, now: int) -> Iterator[str]:
        """G2, G3, G6: a write that landed followed what its claimant had seen, and took nothing back."""
        if not self.play.job_type:
            yield from _of_others(before, after)
            return
        old_items, new_items = before.tables.get(CLAIMS, {}), after.tables.get(CLAIMS, {})
        for pk in {*old_items, *new_items}:
            if pk.startswith("~") or old_items.get(pk) == new_items.get(pk):
                continue
            if pk not in new_items:
                yield "G3: a record was deleted"
                continue
            old = Record.from_item(old_items[pk]) if pk in old_items else None
            new = Record.from_item(new_items[pk])
            self.changes.add((old, new, now, node.role.name))
            yield from _of_change(old, new, now, node.role.name)
        yield from _of_entries(before, after)

    def of_effect(self, before: Snapshot, after: Snapshot, node: Node) -> Iterator[str]:
        """G6, G9: a claimant does not run a recorded step again, and what happens once at most does not twice."""
        name = node.what.name
        for item in before.tables.get(CLAIMS, {}).values():
            record = Record.from_item(item) if "claimant" in item else None
            if record is not None and record.claimant.startswith(_tokens(node.role.name)):
                state = read_steps(record.steps).get(name)
                if state is not None and "started" not in state:
                    yield f"G6: the recorded step {name} was run again by the claimant"
        if name in self.play.once and len(after.happened(name)) > 1:
            yield f"G9: the effect {name} happened twice"

    def of_acknowledgement(self, before: Snapshot, node: Node) -> Iterator[str]:
        """G4: only a message whose job has ended, or that was copied to the dead-letter queue, is acknowledged."""
        copied = any(_is_told(call, node) for call in _sent_by(node))
        if self.play.job_type and not copied and not any(_has_ended(item) for item in _of_message(before, node)):
            yield f"G4: {node.role.message_id} was acknowledged, and its job has not ended"

    def of_running(self, running: Sequence[Node], now: int) -> tuple[str, ...]:
        """G1: of two that run one job, all but one are past their lease."""
        if not self.play.job_type:
            # Another make's lease is as long as the function may run.
            asked = self.play.exclusive and now < START_MS + SECONDS * 1000
            return ("G1: two workers are at it at once, and no lease has passed",) if asked else ()
        within = [key_of(node) for node in running if now < lease_of(node) + SKEW_MS]
        return ("G1: two claimants run at once, both within their lease",) if len(within) > len({*within}) else ()

    def of_node(self, node: Node) -> Iterator[str]:
        """G2, G3, G11, from what one worker was told: what it makes of refusals."""
        if not self.play.job_type:
            return
        if node.kind is not Kind.CLOCK:
            yield from _of_refusal(node)
        if node.kind is not Kind.ANSWER:
            return
        path = node.path
        told = {event.name for one in path for event in one.news.events}
        for before, after in itertools.pairwise(path):
            seen = refused_for(after)
            if before.kind is not Kind.CALL or seen is None:
                continue
            own = owner_of(before.call)
            mine = own is not None and own.startswith(_tokens(node.role.name))
            # Or its next write was not answered, and it left the job to the next delivery.
            if mine and not seen.claimant.startswith(_tokens(node.role.name)) and told.isdisjoint(LEFT):
                yield "G2: a claimant whose write was refused for another's was not told that its claim is lost"
            if own is None and seen.status is Status.COMPLETED:
                if any(one.news.starts for one in path):
                    yield "G3: a duplicate of a completed job started it"
                if node.what.get("batchItemFailures"):
                    yield "G3: a duplicate of a completed job was not acknowledged"

    def of_the_end(self, outside: Snapshot, used: Used) -> Iterator[str]:
        """G6: everything was recovered; and the play's own check of the effects."""
        for item in outside.tables.get(CLAIMS, {}).values():
            if self.play.job_type and "claimant" in item and not _has_ended(item):
                yield f"G6: {item['pk']['S']} never ended: {item['status']['S']}"
        yield from self.play.check(outside, used)


def _of_change(old: Record | None, new: Record, now: int, worker: str) -> Iterator[str]:
    mine = _tokens(worker)
    if not new.claimant.startswith(mine):
        yield f"G2: {worker} wrote under the token {new.claimant}"
    if new.version != (old.version if old else 0) + 1:
        yield f"G2: version {old.version if old else 0} was followed by {new.version}"
    if old is None:
        return
    if old.status is Status.COMPLETED:
        yield "G3: a completed record was changed"
    if not old.claimant.startswith(mine) and not _is_free_to_take(old, now):
        yield f"G2: {worker} wrote over a record of {old.claimant}, which was {old.status}"
    done = {name for name, state in read_steps(old.steps).items() if "started" not in state}
    if new.status is not Status.COMPLETED and done - {*read_steps(new.steps)}:
        yield "G6: a recorded step was lost"


def _of_entries(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """G8: what was sent stays sent, and only what was sent is marked so."""
    old_entries, entries = before.tables.get(OUTBOX, {}), after.tables.get(OUTBOX, {})
    for pk in {*old_entries, *entries}:
        old, new = old_entries.get(pk), entries.get(pk)
        if old == new:
            continue
        if new is None or (old is not None and old["status"] == {"S": "sent"}):
            yield "G8: an entry was changed that is sent" if new else "G8: an entry was deleted"
        elif new["status"] == {"S": "sent"} and new["body"]["S"] not in {one["MessageBody"] for _, one in after.sent}:
            yield "G8: an entry was marked that nobody has sent"


def _of_others(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """What is asked of another consumer's table: what it calls completed stays so."""
    for table, items in before.tables.items():
        for pk, item in items.items():
            new = after.item(table, pk)
            if item.get("status") == {"S": "completed"} and new != item:
                yield "G3: a record was deleted" if new is None else "G3: a completed record was changed"


def _is_free_to_take(record: Record, now: int) -> bool:
    if record.status is Status.PROCESSING:
        return now >= (record.lease_expires_at or 0) + SKEW_MS
    return record.status is Status.REJECTED or (record.status is Status.FAILED and now >= (record.not_before or 0))


def _of_refusal(node: Node) -> Iterator[str]:
    """G2, G11: a worker does not leave its job after a refusal that showed a write of its own."""
    news = [node.news]
    while node.parent is not None and node.parent.kind is Kind.CLOCK:
        node = node.parent
        news.append(node.news)
    before, seen = node.parent, refused_for(node)
    if before is None or seen is None or not any(one.tells("claim.lost", "job.deferred") for one in news):
        return
    if is_own_write_shown(before.call, node):
        yield "G11: a worker took its own write, whose response was lost, for somebody else's"
    elif seen.claimant.startswith(_tokens(node.role.name)) and seen.status is Status.PROCESSING:
        yield "G2: a claim was given up that nobody took"


def _tokens(worker: str) -> str:
    return f"{worker}-t"


def _has_ended(item: Any) -> bool:
    return item is not None and item["status"]["S"] in ENDED


def _of_message(outside: Snapshot, node: Node) -> list[Any]:
    key = json.loads(node.role.event["Records"][0]["body"])["idempotency_key"]
    return [one for one in outside.tables.get(CLAIMS, {}).values() if one.get("idempotency_key") == {"S": key}]


def _sent_by(node: Node) -> list[Call]:
    calls = [one.what for one in node.path if one.kind is Kind.CALL]
    return [call for call in calls if call.operation == "SendMessageBatch"]


def _is_told(call: Call, node: Node) -> bool:
    body = node.role.event["Records"][0]["body"]
    return any(entry["MessageBody"] == body for entry in call.request["Entries"])


def key_of(node: Node) -> str:
    """Return the key of the job that runs."""
    return next(start.key for one in reversed(node.path) for start in reversed(one.news.starts))


def lease_of(node: Node) -> int:
    """Return until when the claim holds that a worker runs under, epoch ms; a renewal counts once it is answered."""
    while node.parent is not None:
        before = node.parent
        if before.kind is Kind.CALL and before.call.update is not None and _counts(before.call, node):
            request = before.call.update
            values = request.get("ExpressionAttributeValues", {})
            lease = request.get("Item", {}).get("lease_expires_at") or values.get(":new_lease_expires_at")
            if lease is not None:
                return int(lease["N"])
        node = before
    return 0


def _counts(call: Call, node: Node) -> bool:
    assert node.told is not None
    return str(call) != "renew the lease" or node.told.is_answer or is_own_write_shown(call, node)


def owner_of(call: Call) -> str | None:
    """Return the claimant that a write to a record names; ``None`` for a first claim, and for any other request."""
    values = (call.update or {}).get("ExpressionAttributeValues") or {}
    return str(values[":claimant"]["S"]) if ":claimant" in values else None


def shown_to(node: Node) -> Any:
    """Return the item that was shown to a worker whose request before this point was refused; ``None`` if none was."""
    if node.told is None or node.told.refusal is None:
        return None
    response = node.told.refusal[1]
    return response.get("Item") or (response.get("CancellationReasons") or [{}])[0].get("Item")


def refused_for(node: Node) -> Record | None:
    """Return the record for which the request before this point was refused."""
    item = shown_to(node)
    return Record.from_item(item) if item and "claimant" in item else None


def is_own_write_shown(call: Call, node: Node) -> bool:
    """Return whether a write was refused for what that very write had left there."""
    item = shown_to(node)
    if not item or call.update is None:
        return False
    if "Item" in call.update:
        return bool(item == call.update["Item"])
    values, of = call.update.get("ExpressionAttributeValues") or {}, ":new_"
    written = {name.removeprefix(of): value for name, value in values.items() if name.startswith(of)}
    written = {"claimant": values.get(":claimant"), **written}
    return all(item.get(name) == value for name, value in written.items())
