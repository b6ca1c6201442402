"""The two views of an item: `onceq.models.ClaimModel` (pynamodb) and `onceq.record.Record` hold the same."""

from __future__ import annotations

import typing
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING

import pytest
from pynamodb.attributes import NumberAttribute, UnicodeAttribute

from kit.claims import NOW, record_of
from kit.world import REGION
from onceq.models import ClaimModel, claims_table, records
from onceq.record import EXPIRES_AT, PARTITION_KEY, Record, Semantics, Status

if TYPE_CHECKING:
    from contract.conftest import Backend

FULL = record_of(
    Status.COMPLETED,
    semantics=Semantics.AT_MOST_ONCE,
    lease_expires_at=NOW + 1,
    not_before=NOW + 2,
    result='{"a":"é😀","n":18446744073709551615}',
    result_not_stored="too large",
    error="",
    fencing_token=9_007_199_254_740_993,
    steps='{"charge":{"result":{"id":"é😀"}},"call":{"started":1795953600000}}',
    resolved_at=NOW + 3,
    went_stale=1,
)


@pytest.fixture
def table(backend: Backend) -> type[ClaimModel]:
    """The backend's claims table as a model."""
    return claims_table(backend.table, host=backend.endpoint, region=REGION)


def test_both_views_have_the_same_attributes() -> None:
    """An attribute added to one view and not the other is a mistake."""
    assert set(ClaimModel.get_attributes()) == {field.name for field in fields(Record)}
    assert {name for name, each in ClaimModel.get_attributes().items() if each.attr_name != name} == set()


def test_both_views_have_the_same_types() -> None:
    """Whole numbers are numbers in both, everything else is text."""
    hints = typing.get_type_hints(Record)
    for field in fields(Record):
        kinds = set(typing.get_args(hints[field.name])) or {hints[field.name]}
        expected = NumberAttribute if int in kinds else UnicodeAttribute
        assert type(ClaimModel.get_attributes()[field.name]) is expected, field.name


def test_both_views_may_lack_the_same_attributes() -> None:
    """What a record may not have is null in the model, and what it always has is not."""
    hints = typing.get_type_hints(Record)
    for field in fields(Record):
        optional = type(None) in typing.get_args(hints[field.name]) or field.default is not MISSING
        assert ClaimModel.get_attributes()[field.name].null is optional, field.name


def test_the_partition_key_and_the_expiry_have_one_name() -> None:
    """The names that the template repeats."""
    hash_key = ClaimModel._hash_keyname
    assert hash_key == PARTITION_KEY
    assert EXPIRES_AT in ClaimModel.get_attributes()


@pytest.mark.parametrize("status", Status)
def test_a_record_that_the_store_wrote_is_read_by_the_model_and_is_equal(
    backend: Backend, table: type[ClaimModel], status: Status
) -> None:
    """The model reads every state as the store wrote it."""
    record = record_of(status, backend.name())
    assert backend.store.claim(record, NOW) == record

    read = table.get(record.pk, consistent_read=True)

    assert Record.from_item(read.serialize()) == record
    assert {field.name: getattr(read, field.name) for field in fields(Record)} == {
        field.name: getattr(record, field.name) for field in fields(Record)
    }


def test_the_full_record_is_full() -> None:
    """An attribute that is added later is tried below as well."""
    assert [field.name for field in fields(Record) if getattr(FULL, field.name) is None] == []


def test_every_attribute_at_once_is_read_by_both(backend: Backend, table: type[ClaimModel]) -> None:
    """Numbers to the digit, text with its odd characters, empty text."""
    record = replace(FULL, pk=f"pay#{backend.name()}")
    backend.store.claim(record, NOW)

    assert Record.from_item(table.get(record.pk).serialize()) == record == backend.store.get(record.pk)


def test_a_record_that_the_model_wrote_is_read_by_the_store(backend: Backend, table: type[ClaimModel]) -> None:
    """The other way round, for tools that repair a table."""
    record = replace(FULL, pk=f"pay#{backend.name()}")
    table(**{field.name: getattr(record, field.name) for field in fields(Record)}).save()

    assert backend.store.get(record.pk) == record
    assert backend.item(record.pk) == record.to_item()


def test_a_record_of_a_later_release_is_read_by_the_model(backend: Backend, table: type[ClaimModel]) -> None:
    """An attribute that this release does not know stops neither view."""
    record = backend.put(record_of(Status.FAILED, backend.name()), plan={"M": {"charge": {"S": "done"}}})

    assert Record.from_item(table.get(record.pk).serialize()) == record


def test_a_scan_yields_every_record(backend: Backend, table: type[ClaimModel]) -> None:
    """`records` reads the whole table consistently, and passes over what is no job: locks, and the sweep's place."""
    put = [backend.put(record_of(Status.REJECTED, backend.name())) for _ in range(3)]
    others = [f"~lock#{backend.name()}", f"~{backend.name()}"]
    for pk in others:
        backend.dynamodb.put_item(TableName=backend.table, Item={"pk": {"S": pk}, "holder": {"S": "somebody"}})

    found = {record.pk: record for record in records(table)}

    assert [found[record.pk] for record in put] == put
    assert not {*others} & {*found}


def test_two_tables_do_not_share_a_model() -> None:
    """A model class of its own for each table: pynamodb keeps name and endpoint on the class."""
    one, two = claims_table("one", host="http://127.0.0.1:1"), claims_table("two")

    assert (one.Meta.table_name, two.Meta.table_name, ClaimModel.Meta.table_name) == ("one", "two", "")
    assert (one.Meta.host, two.Meta.host) == ("http://127.0.0.1:1", None)
