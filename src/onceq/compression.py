"""Compressed bodies, opened with a cap on what comes out: a few kilobytes can stand for gigabytes."""

from __future__ import annotations

import zlib
from typing import Any

from onceq.codec import printable
from onceq.errors import EncodingUnknown, EnvelopeError

# Any wrapping of deflate: https://docs.python.org/3/library/zlib.html#zlib.decompress
_ANY_WINDOW = zlib.MAX_WBITS | 32
# Opened piece by piece: what follows a member is copied, and a megabyte can hold a hundred thousand empty ones.
CHUNK = 65_536
# Block compressors write one for each 64 KB; a body of more takes longer than its neighbours can wait.
MOST_MEMBERS = 1_000


def decompressed(data: bytes, encoding: str, limit: int) -> bytes:
    """Return compressed data opened.

    Args:
        data: The data, in one or several members.
        encoding: ``gzip`` or ``zstd``.
        limit: The most bytes that may come out.

    Returns:
        What it stands for.

    Raises:
        EncodingUnknown: If this process cannot open it: another name, or zstd without a library for it.
        EnvelopeError: If it is broken, cut off, larger than the limit, or of too many members.

    Example:
        >>> import gzip
        >>> decompressed(gzip.compress(b"{}"), "gzip", 100)
        b'{}'
    """
    out, opener, members = bytearray(), _opener(encoding), 1
    for start in range(0, len(data), CHUNK):
        rest = data[start : start + CHUNK]
        while rest:
            if opener.eof:
                opener, members = _opener(encoding), members + 1
            try:
                out += opener.decompress(rest, limit + 1 - len(out))
            except Exception as error:  # each library has errors of its own
                message = f"the body is not {encoding}: {type(error).__name__}"
                raise EnvelopeError(message) from error
            if len(out) > limit:
                message = f"the body is larger than {limit} bytes (ONCEQ_PAYLOAD_LIMIT)"
                raise EnvelopeError(message)
            if members > MOST_MEMBERS:
                message = f"the {encoding} body has more than {MOST_MEMBERS} members"
                raise EnvelopeError(message)
            rest = opener.unused_data if opener.eof else b""
    if not opener.eof:
        message = f"the {encoding} body is cut off"
        raise EnvelopeError(message)
    return bytes(out)


def check_encoding(encoding: str) -> None:
    """Refuse an encoding that this process cannot open. Raises: EncodingUnknown."""
    _opener(encoding)


def _opener(encoding: str) -> Any:
    if encoding == "gzip":
        return zlib.decompressobj(_ANY_WINDOW)
    if encoding != "zstd":
        message = f"bodies of encoding {printable(encoding, 40)!r} are not opened: gzip and zstd are"
        raise EncodingUnknown(message)
    try:
        return _zstd()
    except ImportError as error:
        message = "a zstd body needs Python 3.14, or the package backports.zstd in src/requirements.txt"
        raise EncodingUnknown(message) from error


def _zstd() -> Any:
    # Looked for only when such a body comes: neither has to be there.
    try:
        from compression.zstd import ZstdDecompressor  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    except ImportError:
        from backports.zstd import ZstdDecompressor  # noqa: PLC0415 - the same names, before Python 3.14
    return ZstdDecompressor()
