"""The claims table as a pynamodb model, beside the hot path: for the command line, tools and users' own queries.

A contract test holds this view and `onceq.record.Record` together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pynamodb.attributes import NumberAttribute, UnicodeAttribute
from pynamodb.models import Model

from onceq.record import RESERVED, Record

if TYPE_CHECKING:
    from collections.abc import Iterator


class ClaimModel(Model):
    """One job's item. Read-only by intent: every write of it is a transition in `onceq.store`."""

    class Meta:
        """Filled by `claims_table`."""

        table_name = ""
        region: str | None = None
        host: str | None = None

    pk = UnicodeAttribute(hash_key=True)
    job_type = UnicodeAttribute()
    idempotency_key = UnicodeAttribute()
    status = UnicodeAttribute()
    semantics = UnicodeAttribute(null=True)
    claimant = UnicodeAttribute()
    version = NumberAttribute()
    fencing_token = NumberAttribute()
    attempts = NumberAttribute()
    created_at = NumberAttribute()
    expires_at = NumberAttribute(null=True)
    payload_fingerprint = UnicodeAttribute(null=True)
    message_id = UnicodeAttribute(null=True)
    lease_expires_at = NumberAttribute(null=True)
    not_before = NumberAttribute(null=True)
    result = UnicodeAttribute(null=True)
    result_not_stored = UnicodeAttribute(null=True)
    error = UnicodeAttribute(null=True)
    completed_at = NumberAttribute(null=True)
    steps = UnicodeAttribute(null=True)
    resolved_at = NumberAttribute(null=True)
    went_stale = NumberAttribute(null=True)


def claims_table(name: str, *, host: str | None = None, region: str | None = None) -> type[ClaimModel]:
    """Return the model of a claims table.

    Args:
        name: Name of the table.
        host: Endpoint, where it is not AWS's own.
        region: Region, where it is not the environment's.

    Returns:
        A model class of its own, so that two tables never share one.
    """
    meta = type("Meta", (), {"table_name": name, "host": host, "region": region})
    return type("BoundClaimModel", (ClaimModel,), {"Meta": meta})


def records(table: type[ClaimModel]) -> Iterator[Record]:
    """Iterate over every job's record of a table, by a consistent scan; locks and the sweep's place are passed over."""
    for item in table.scan(~table.pk.startswith(RESERVED), consistent_read=True):
        raw: dict[str, Any] = item.serialize()
        yield Record.from_item(raw)
