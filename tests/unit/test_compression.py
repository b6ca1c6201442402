"""Compressed bodies are opened as far as a cap, in bounded memory and time, or refused with a reason."""

from __future__ import annotations

import gzip
import importlib
import sys
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from onceq import compression
from onceq.compression import MOST_MEMBERS, decompressed
from onceq.errors import EncodingUnknown, EnvelopeError

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1_048_576
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}


def bomb(encoding: str) -> bytes:
    """Return a gigabyte of zeros, compressed to a megabyte or less, without ever standing in memory."""
    if encoding == "zstd":
        compressor = zstd.ZstdCompressor()
        return b"".join([*(compressor.compress(bytes(MIB)) for _ in range(1_024)), compressor.flush()])
    # A piece that depends on nothing before it, so it can be repeated; the checksum is never reached.
    deflate = zlib.compressobj(9, wbits=-15)
    piece = deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + piece * 1_024 + deflate.flush()


@pytest.fixture(params=COMPRESS)
def encoding(request: pytest.FixtureRequest) -> str:
    """Each encoding."""
    return str(request.param)


@given(st.sampled_from(sorted(COMPRESS)), st.lists(st.binary(max_size=200_000), min_size=1, max_size=4))
def test_members_come_out_joined(encoding: str, members: list[bytes]) -> None:
    """Property: what was compressed in one or several members comes out as it was, empty ones included."""
    data = b"".join(COMPRESS[encoding](member) for member in members)

    assert decompressed(data, encoding, 1_000_000) == b"".join(members)


def test_the_limit_itself_is_taken_and_one_byte_more_is_not(encoding: str) -> None:
    """At the cap exactly, in one member and over two."""
    one, two = COMPRESS[encoding](b"x" * 1_000), COMPRESS[encoding](b"x" * 500)

    assert len(decompressed(one, encoding, 1_000)) == len(decompressed(two + two, encoding, 1_000)) == 1_000
    for data in (one, two + two):
        with pytest.raises(EnvelopeError, match=r"^the body is larger than 999 bytes \(ONCEQ_PAYLOAD_LIMIT\)$"):
            decompressed(data, encoding, 999)


@pytest.mark.parametrize("limit", [1_024, MIB])
def test_a_bomb_is_refused_in_the_memory_of_the_limit(encoding: str, limit: int) -> None:
    """A gigabyte of zeros in a megabyte: no more comes out than is asked for, and one byte."""
    data = bomb(encoding)
    tracemalloc.start()
    try:
        with pytest.raises(EnvelopeError, match="larger than"):
            decompressed(data, encoding, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(data) < 1.1 * MIB
    assert peak < 4 * limit + MIB


def test_a_bomb_of_many_members_is_refused_at_the_limit(encoding: str) -> None:
    """The cap is on all members together."""
    member = COMPRESS[encoding](bytes(100_000))

    with pytest.raises(EnvelopeError, match="larger than"):
        decompressed(member * 100, encoding, 1_000_000)


def test_a_body_of_too_many_members_is_refused(encoding: str) -> None:
    """A megabyte holds a hundred thousand empty members: opening them all would take a minute."""
    empty = COMPRESS[encoding](b"")

    assert decompressed(empty * MOST_MEMBERS, encoding, 10) == b""
    with pytest.raises(EnvelopeError, match=f"the {encoding} body has more than {MOST_MEMBERS} members"):
        decompressed(empty * (MOST_MEMBERS + 1), encoding, 10)


def test_what_follows_a_member_is_copied_a_piece_at_a_time(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An opener keeps a copy of what follows its member: of a large body with many that would be its square."""
    seen: list[int] = []
    make = compression._opener

    class Watching:
        def __init__(self, name: str) -> None:
            self._inner = make(name)
            self.eof, self.unused_data = False, b""

        def decompress(self, data: bytes, most: int) -> bytes:
            seen.append(len(data))
            out = bytes(self._inner.decompress(data, most))
            self.eof, self.unused_data = self._inner.eof, self._inner.unused_data
            return out

    monkeypatch.setattr(compression, "_opener", Watching)
    rest = COMPRESS[encoding](bytes(range(256)) * 4_000)
    data = COMPRESS[encoding](b"") * 100 + rest * (200_000 // len(rest))
    decompressed(data, encoding, 1_000 * MIB)

    assert len(data) > 150_000
    assert len(seen) > 100
    assert max(seen) == 65_536


@pytest.mark.parametrize("left", [0, 1, 9, 30, -1, -4, -8])
def test_a_body_that_is_cut_off_is_refused(encoding: str, left: int) -> None:
    """In its header, its data or its checksum; also an empty one."""
    data = COMPRESS[encoding](bytes(range(256)) * 40)[:left]

    with pytest.raises(EnvelopeError, match=f"the {encoding} body is cut off"):
        decompressed(data, encoding, MIB)


def test_a_second_member_that_is_cut_off_is_refused(encoding: str) -> None:
    """The first alone is not the body."""
    member = COMPRESS[encoding](b"{}")

    with pytest.raises(EnvelopeError, match="cut off"):
        decompressed(member + member[:-1], encoding, MIB)


@pytest.mark.parametrize(
    "data", [b"{}", b"\x00" * 50, b"\x1f\x8b\x00junk-junk", b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff"]
)
def test_what_is_not_compressed_is_refused(encoding: str, data: bytes) -> None:
    """With the encoding that it is not; nothing of the data is told."""
    with pytest.raises(EnvelopeError, match=f"^the (body is not {encoding}: [A-Za-z]*|{encoding} body is cut off)$"):
        decompressed(data, encoding, MIB)


def test_rubbish_behind_a_member_is_refused(encoding: str) -> None:
    """It is no second member."""
    with pytest.raises(EnvelopeError, match=f"the body is not {encoding}"):
        decompressed(COMPRESS[encoding](b"{}") + b"rubbish-rubbish", encoding, MIB)


def test_a_flipped_bit_is_refused() -> None:
    """The checksum of a member is compared."""
    data = bytearray(gzip.compress(b'{"amount": 5}' * 50))
    data[-6] ^= 1

    with pytest.raises(EnvelopeError, match="the body is not gzip: error"):
        decompressed(bytes(data), "gzip", MIB)


def test_deflate_in_its_own_wrapping_is_opened() -> None:
    """Some name gzip what zlib.compress made."""
    assert decompressed(zlib.compress(b"{}"), "gzip", 10) == b"{}"


@pytest.mark.parametrize("named", ["br", "deflate", "gzip, zstd", "zstd\x00\n", "x" * 100])
def test_another_encoding_is_not_known_and_no_fault_of_the_body(named: str) -> None:
    """A release that knows it may open it; the name is told bounded and printable."""
    with pytest.raises(EncodingUnknown) as caught:
        decompressed(b"", named, 10)

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 110


def test_without_a_library_for_zstd_its_bodies_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason says what to install; gzip needs nothing."""
    for name in ("compression", "compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(EncodingUnknown, match=r"a zstd body needs Python 3\.14, or the package backports\.zstd in "):
        decompressed(zstd.compress(b"{}"), "zstd", 10)
    assert decompressed(gzip.compress(b"{}"), "gzip", 10) == b"{}"


def test_the_library_of_python_itself_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.14 on no package is needed."""
    monkeypatch.setitem(sys.modules, "compression", importlib.import_module("backports"))
    monkeypatch.setitem(sys.modules, "compression.zstd", importlib.import_module("backports.zstd"))
    monkeypatch.setitem(sys.modules, "backports.zstd", None)

    assert decompressed(zstd.compress(b"{}"), "zstd", 10) == b"{}"
