"""How entries are cut into batches that SQS takes."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from onceq.queue import MAX_BYTES, MAX_ENTRIES, in_batches, size_of

SIZES = st.lists(
    st.integers(1, 4_000) | st.integers(MAX_BYTES // 3, MAX_BYTES) | st.sampled_from([MAX_BYTES, MAX_BYTES // 2]),
    max_size=40,
)


@example([1] * 25)
@example([MAX_BYTES // 2] * 3)
@given(SIZES)
def test_batches_hold_ten_entries_and_one_mib_in_order_and_no_more_batches_than_needed(sizes: list[int]) -> None:
    """Every entry once and in order; a batch is closed only where the next entry would break a limit."""
    entries = [{"Id": str(number), "MessageBody": "x" * size} for number, size in enumerate(sizes)]
    batches = list(in_batches(entries))

    assert [entry for batch in batches for entry in batch] == entries
    for batch in batches:
        assert 1 <= len(batch) <= MAX_ENTRIES
        assert sum(map(size_of, batch)) <= MAX_BYTES
    for batch, following in itertools.pairwise(batches):
        assert len(batch) == MAX_ENTRIES or sum(map(size_of, batch)) + size_of(following[0]) > MAX_BYTES


def test_a_size_counts_bytes_of_body_and_attributes() -> None:
    """SQS counts UTF-8, and of an attribute its name, type and value."""
    attributes = {
        "né": {"DataType": "String", "StringValue": "é"},
        "b": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
    }

    assert size_of({"MessageBody": "é😀"}) == 6
    assert size_of({"MessageBody": "é😀", "MessageAttributes": attributes}) == 6 + (3 + 6 + 2) + (1 + 6 + 2)
    assert size_of({"Id": "1", "ReceiptHandle": "x" * 100}) == 0
