"""The contract of `onceq.bucket.Bucket`, whatever backend serves it.

Where a backend cannot be made to fail, a client between us and it does.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError, ResponseStreamingError

from kit.buckets import answering, refusing
from kit.faults import ENDPOINT, FaultyClient
from onceq.bucket import CHUNK, Bucket
from onceq.client import ATTEMPTS, make_client
from onceq.clock import OpenDeadline, ShorterDeadline
from onceq.errors import BucketError, BucketUnavailable, EnvelopeError, ObjectNotThere
from onceq.offload import Pointer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.conftest import Backend
    from kit.faults import Call

MIB = 1_048_576


@dataclass
class Stand:
    """An empty bucket, a seam to it, and the client below the seam."""

    backend: Backend
    name: str
    client: FaultyClient
    plain: Any

    def seam(self, seconds: float | None = None) -> Bucket:
        """Return the seam under test, with so many seconds left."""
        clock = self.backend.clock
        deadline = OpenDeadline() if seconds is None else ShorterDeadline(OpenDeadline(), seconds, clock)
        return Bucket(clock, self.backend.tokens, deadline, client=self.client)

    def pointer(self, key: str = "") -> Pointer:
        """Return a pointer to that key, or to one that no other test uses."""
        return Pointer(self.name, key or self.backend.name())

    def stored(self, data: bytes, **options: str) -> Pointer:
        """Let an object stand there, past the seam."""
        pointer = self.pointer()
        self.plain.put_object(Bucket=self.name, Key=pointer.key, Body=data, **options)
        return pointer


@pytest.fixture(scope="module")
def served(backend: Backend) -> Iterator[tuple[str, Any]]:
    """A bucket for the module, and a client."""
    client, name = make_client("s3", 4), f"onceq-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    yield name, client
    for one in client.list_objects_v2(Bucket=name).get("Contents", []):
        client.delete_object(Bucket=name, Key=one["Key"])
    client.delete_bucket(Bucket=name)


@pytest.fixture
def stand(backend: Backend, served: tuple[str, Any]) -> Stand:
    """The bucket behind a client that faults can be planned on."""
    name, client = served
    return Stand(backend, name, FaultyClient(client), client)


def reset(_call: Call) -> Any:
    """Break the connection off."""
    raise EndpointConnectionError(endpoint_url=ENDPOINT)


def silence(_call: Call) -> Any:
    """Never answer."""
    raise ReadTimeoutError(endpoint_url=ENDPOINT)


class Breaking:
    """A body that begins and breaks off."""

    def __init__(self) -> None:
        """Start open."""
        self.closed = False

    def read(self, _most: int) -> bytes:
        """Break off."""
        raise ResponseStreamingError(error="reset")

    def close(self) -> None:
        """Note it."""
        self.closed = True


class Dripping(Breaking):
    """A body that comes, but slowly: a second for each piece."""

    def __init__(self, backend: Backend) -> None:
        """Keep the clock."""
        super().__init__()
        self._clock = backend.clock

    def read(self, _most: int) -> bytes:
        """Return a byte."""
        self._clock.advance(1)
        return b"x"


@pytest.mark.parametrize("data", [b"", b"{}", "ü😀\x00".encode(), bytes(range(256)) * 20_000], ids=len)
def test_what_was_put_is_got(stand: Stand, data: bytes) -> None:
    """Byte for byte, of any length, with no encoding."""
    pointer = stand.pointer()

    stand.seam().put(pointer, data)

    assert stand.seam().get(pointer, max(len(data), 1)) == (data, "")
    assert stand.plain.head_object(Bucket=pointer.bucket, Key=pointer.key)["ContentType"] == "application/json"


@pytest.mark.parametrize("key", ["a b%20+ü😀", "deep/er//k", "/lead", "&<>\"'#?*", "a\tb", "x" * 1_024, "k."])
def test_a_key_of_any_characters_is_found(stand: Stand, key: str) -> None:
    """Other producers name their objects as they like, up to S3's 1,024 bytes."""
    stand.seam().put(stand.pointer(key), b"{}")

    assert stand.seam().get(stand.pointer(key), 2).data == b"{}"


def test_a_put_that_is_repeated_is_one_object(stand: Stand) -> None:
    """Its answer was lost: it is put again, under the same name."""
    pointer = stand.pointer()
    stand.client.lose_response("put_object")

    stand.seam().put(pointer, b"{}")

    assert stand.client.names() == ["put_object", "put_object"]
    assert stand.seam().get(pointer, 2).data == b"{}"


def test_the_encoding_of_an_object_is_told(stand: Stand) -> None:
    """And its content is not opened here, nor by the client."""
    pointer = stand.stored(b"\x1f\x8b-compressed", ContentEncoding="gzip")

    assert stand.seam().get(pointer, 100) == (b"\x1f\x8b-compressed", "gzip")


def test_an_object_of_the_limit_is_read_and_one_byte_more_is_not(stand: Stand) -> None:
    """By what S3 tells, before the content is read; the bucket goes on to serve."""
    pointer = stand.stored(b"x" * MIB)

    assert len(stand.seam().get(pointer, MIB).data) == MIB
    for _ in range(6):
        with pytest.raises(EnvelopeError, match=r"the body has 1048576 bytes, more than 1048575 \(ONCEQ_PAYLOAD_LIMIT"):
            stand.seam().get(pointer, MIB - 1)
    assert len(stand.seam().get(pointer, MIB).data) == MIB


def test_content_beyond_the_limit_is_not_read_whatever_length_is_told(stand: Stand) -> None:
    """The header is only what somebody says."""
    body = answering(b"x" * (10 * CHUNK), length=0)
    stand.client.plan("get_object", body)

    with pytest.raises(EnvelopeError, match="the body has more than 10 bytes"):
        stand.seam().get(stand.pointer(), 10)


@pytest.mark.parametrize("missing", ["object", "bucket"])
def test_what_is_not_there_is_told_apart_from_a_fault(stand: Stand, missing: str) -> None:
    """It is not asked for again here: whoever waits, waits for minutes."""
    pointer = stand.pointer() if missing == "object" else Pointer(f"onceq-{uuid.uuid4().hex}", "k")

    with pytest.raises(ObjectNotThere, match=f"GetObject of s3://{pointer.bucket}/{pointer.key} was refused: .*NoSuch"):
        stand.seam().get(pointer, 10)
    assert stand.client.names() == ["get_object"]


def test_a_key_that_s3_never_takes_leads_nowhere(stand: Stand) -> None:
    """Longer than 1,024 bytes; the error is bounded, however long the key is."""
    with pytest.raises(ObjectNotThere) as caught:
        stand.seam().get(stand.pointer("k\n" * 1_000), 10)
    assert len(str(caught.value)) < 600
    assert "k k k" in str(caught.value)


def test_a_bucket_that_is_not_there_takes_nothing(stand: Stand) -> None:
    """The producer is told."""
    with pytest.raises(ObjectNotThere, match=r"PutObject of .*NoSuchBucket"):
        stand.seam().put(Pointer(f"onceq-{uuid.uuid4().hex}", "k"), b"{}")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("AccessDenied", 403, ObjectNotThere),
        ("InvalidObjectState", 403, ObjectNotThere),
        ("ExpiredToken", 400, BucketError),
        ("InvalidAccessKeyId", 403, BucketError),
        ("RequestTimeTooSkewed", 403, BucketError),
        ("SignatureDoesNotMatch", 403, BucketError),
    ],
)
@pytest.mark.parametrize("operation", ["get", "put"])
def test_a_refusal_is_raised_at_once(
    stand: Stand, operation: str, code: str, status: int, kind: type[BucketError]
) -> None:
    """A missing permission counts as "not there"; bad credentials are a fault, since the object may well be there."""
    stand.client.plan(f"{operation}_object", refusing(code, status))
    arguments: Any = (stand.pointer(), 10 if operation == "get" else b"")

    with pytest.raises(BucketError, match=code) as caught:
        getattr(stand.seam(), operation)(*arguments)
    assert type(caught.value) is kind
    assert stand.client.names() == [f"{operation}_object"]


FAULTS = {
    "throttled": refusing("SlowDown", 503),
    "unavailable": refusing("ServiceUnavailable", 503),
    "internal": refusing("InternalError", 500),
    "reset": reset,
    "silent": silence,
    "cut-off": answering(b"{", length=2),
    "broken-off": lambda _call: {"Body": Breaking(), "ContentLength": 2},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_passes_by_itself_is_tried_again(stand: Stand, fault: Any) -> None:
    """Four times; then it is told that S3 did not answer, and nothing is taken for the body."""
    pointer = stand.stored(b"{}")
    stand.client.plan("get_object", fault, times=ATTEMPTS - 1)

    assert stand.seam().get(pointer, 10).data == b"{}"

    stand.client.plan("get_object", fault, times=ATTEMPTS)
    with pytest.raises(BucketUnavailable, match=r"GetObject of .* was not answered"):
        stand.seam().get(pointer, 10)
    assert len(stand.client.calls) == 2 * ATTEMPTS


def test_an_object_that_is_cut_off_is_never_taken_for_the_whole(stand: Stand) -> None:
    """Its beginning might be JSON by chance."""
    stand.client.plan("get_object", answering(b"[1]", length=9), times=ATTEMPTS)

    with pytest.raises(BucketUnavailable):
        stand.seam().get(stand.pointer(), 10)


def test_retries_end_with_the_time(stand: Stand) -> None:
    """A bucket that does not answer takes no more than it is given."""
    stand.client.plan("get_object", silence, times=ATTEMPTS)

    with pytest.raises(BucketUnavailable):
        stand.seam(0).get(stand.pointer(), 10)
    assert len(stand.client.calls) == 1


def test_a_body_that_comes_too_slowly_ends_with_the_time(stand: Stand) -> None:
    """Every piece in time, and the whole never: the reading stops, and the connection is closed."""
    body = Dripping(stand.backend)
    stand.client.plan("get_object", lambda _call: {"Body": body, "ContentLength": 1_000})
    before = stand.backend.clock.monotonic()

    with pytest.raises(BucketUnavailable, match="the body came too slowly for the time left"):
        stand.seam(20).get(stand.pointer(), 1_000)
    assert stand.backend.clock.monotonic() - before == 20
    assert body.closed


def test_nothing_of_the_seam_deletes(stand: Stand) -> None:
    """A redelivery after completion still finds its body; the bucket's lifecycle rule deletes."""
    assert [name for name in vars(Bucket) if not name.startswith("_")] == ["within", "get", "put", "call"]
    pointer = stand.stored(b"{}")
    for _ in range(3):
        stand.seam().get(pointer, 10)
    assert set(stand.client.names()) == {"get_object"}
