"""Compressed bodies, in the message (Base64) and in S3: opened with a cap, kept where unknown, refused where broken."""

from __future__ import annotations

import base64
import gzip
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from backports import zstd

from kit.buckets import attribute, configure, open_buckets, pointer, put, stamped
from kit.clock import FakeLambdaContext
from kit.delivery import record_of
from kit.world import arn_of, event_of, kept
from onceq import Reject, job, source
from onceq.fetching import MOST_HELD
from onceq.message import seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kit.faults import FaultyClient
    from kit.world import World
    from onceq import App

LIMIT = 20_000
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}


@pytest.fixture
def s3(world: World) -> Iterator[FaultyClient]:
    """The world's buckets."""
    with open_buckets(world, payload_limit=LIMIT) as client:
        yield client


@pytest.fixture
def ran() -> list[str]:
    """The ids that ran."""
    return []


@pytest.fixture
def app(world: World, s3: FaultyClient, ran: list[str]) -> App:
    """An application whose one job type serves everything."""

    @job("act", key="id")
    def act(payload: dict[str, Any]) -> None:
        ran.append(payload["id"])

    return world.app(act, default=act)


def envelope(key: str = "k-1", **payload: Any) -> bytes:
    """Return the body of a message of ours."""
    text = seal(job_type="act", idempotency_key=key, payload={"id": key, **payload}, created_at="2026-11-29T12:00:00Z")
    return text.encode()


def base64_of(data: bytes) -> str:
    """Return data as it stands in a message."""
    return base64.b64encode(data).decode()


def inline(world: World, data: bytes | str, encoding: str, *, name: str = "Content-Encoding") -> dict[str, Any]:
    """Return a record whose body is compressed."""
    body = base64_of(data) if isinstance(data, bytes) else data
    return world.raw(body, attributes={name: attribute(encoding)})


def consume(app: App, *records: dict[str, Any]) -> list[str]:
    """Deliver a batch and return the ids that are kept."""
    return kept(app.consumer(event_of(*records), FakeLambdaContext()))


@pytest.mark.parametrize("name", ["Content-Encoding", "content-encoding", "CONTENT-ENCODING"])
@pytest.mark.parametrize("value", ["gzip", "GZIP", " zstd ", "Zstd"])
def test_a_compressed_body_is_opened(world: World, app: App, ran: list[str], name: str, value: str) -> None:
    """The attribute and its value are read in any case, as in HTTP."""
    data = COMPRESS[value.strip().lower()](envelope())

    assert consume(app, inline(world, data, value, name=name)) == []
    assert ran == ["k-1"]


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_compressed_foreign_body_in_several_members_is_opened(
    world: World, app: App, ran: list[str], encoding: str
) -> None:
    """Plain JSON in two members."""
    data = COMPRESS[encoding](b'{"id": ') + COMPRESS[encoding](b'"f-1"}')

    assert consume(app, inline(world, data, encoding)) == []
    assert ran == ["f-1"]


@pytest.mark.parametrize("value", ["identity", "Identity", "", " ", "aws-chunked", "identity, identity"])
def test_a_body_that_is_as_it_was_is_not_opened(world: World, app: App, ran: list[str], value: str) -> None:
    """``identity`` names no compression."""
    assert consume(app, inline(world, envelope().decode(), value)) == []
    assert ran == ["k-1"]


@pytest.mark.parametrize(
    "odd", [None, 7, [], "gzip", {"stringValue": None}, {"stringValue": 7}, {"binaryValue": "Z3o="}]
)
def test_an_odd_attribute_names_no_encoding(world: World, app: App, ran: list[str], odd: Any) -> None:
    """G5: whatever stands there, the body is read as it is."""
    record = world.raw(envelope().decode(), attributes={"Content-Encoding": odd})

    assert consume(app, record) == []
    assert ran == ["k-1"]


CUT_OFF = {encoding: compress(envelope())[:-5] for encoding, compress in COMPRESS.items()}
BROKEN: dict[str, tuple[bytes | str, str, str]] = {
    "gzip-cut-off": (CUT_OFF["gzip"], "gzip", "the gzip body is cut off"),
    "zstd-cut-off": (CUT_OFF["zstd"], "zstd", "the zstd body is cut off"),
    "not-base64": ("no Base64", "gzip", "the body is not the Base64 that its content-encoding gzip asks for"),
    "base64-cut-off": (base64_of(gzip.compress(b"{}"))[:-1], "gzip", "the body is not the Base64"),
    "base64-with-rubbish": ("!" + base64_of(gzip.compress(b"{}")), "gzip", "the body is not the Base64"),
    "umlauts": ("ü", "zstd", "the body is not the Base64 that its content-encoding zstd asks for"),
    "not-gzip": (b"{}", "gzip", "the body is not gzip: error"),
    "not-zstd": (gzip.compress(b"{}"), "zstd", "the body is not zstd: ZstdError"),
    "above-the-cap": (gzip.compress(b" " * (LIMIT + 1)), "gzip", f"the body is larger than {LIMIT} bytes"),
    "a-bomb": (zstd.compress(bytes(50_000_000)), "zstd", f"the body is larger than {LIMIT} bytes"),
    "not-utf-8": (gzip.compress(b'{"id": "\xff"}'), "gzip", "the body is not UTF-8"),
    "not-json": (gzip.compress(b"{"), "gzip", "not JSON"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_body_that_cannot_be_opened_is_refused_as_it_came(
    world: World, app: App, ran: list[str], broken: tuple[bytes | str, str, str]
) -> None:
    """G5: to the dead-letter queue with the reason, body and attribute as delivered; its neighbour runs."""
    data, encoding, reason = broken
    record = inline(world, data, encoding)

    assert consume(app, record, world.raw(envelope("k-2").decode())) == []
    (copy,) = world.dead_letters()
    assert (copy["Body"], copy["MessageAttributes"]["Content-Encoding"]["StringValue"]) == (record["body"], encoding)
    assert copy["note"]["reason"].startswith(reason)
    assert ran == ["k-2"]


def test_a_body_of_the_cap_exactly_is_opened(world: World, app: App, ran: list[str]) -> None:
    """The cap is on what comes out."""
    filler = LIMIT - len(envelope("k-1", text=""))

    assert consume(app, inline(world, gzip.compress(envelope("k-1", text="x" * filler)), "gzip")) == []
    assert ran == ["k-1"]


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, zstd", "x" * 300, "zstd\n\x00"])
def test_an_encoding_that_is_not_known_is_kept(world: World, app: App, ran: list[str], encoding: str) -> None:
    """G4: a newer release may open it, so that a roll-back does not lose it; the reason is bounded."""
    record = inline(world, gzip.compress(envelope()), encoding)

    assert consume(app, record, world.raw(envelope("k-2").decode())) == [record["messageId"]]
    (event,) = (event for event in world.events if event.name == "message.unserved")
    assert event.fields()["reason"].startswith("bodies of encoding '")
    assert len(event.fields()["reason"]) < 110
    assert ran == ["k-2"]


@pytest.mark.parametrize("body", ["not Base64", '"{}"', ""])
def test_a_body_of_an_unknown_encoding_need_not_be_base64(world: World, app: App, body: str) -> None:
    """G4: how it stands in its message is not known either."""
    record = inline(world, body, "br")

    assert consume(app, record) == [record["messageId"]]
    assert world.dead_letters() == []


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br", "utf-8", "text/plain", "x" * 300])
@pytest.mark.parametrize("where", ["message", "spaced message", "object", "spaced object", "beside a pointer"])
def test_a_body_that_begins_like_json_is_read_as_it_is(
    world: World, app: App, ran: list[str], encoding: str, where: str
) -> None:
    """Whatever is told about it: neither Base64 nor a compressed file begins with a brace."""
    body = " \r\n\t" * ("spaced" in where) + envelope().decode()
    inside, by_attribute = "message" in where, {"Content-Encoding": attribute(encoding)}
    put("k", body, ContentEncoding=encoding if "object" in where else "")

    record = world.raw(body if inside else pointer("k"), attributes={} if "object" in where else by_attribute)
    assert consume(app, record) == []
    assert (ran, world.dead_letters()) == (["k-1"], [])


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_a_list_that_an_encoding_is_told_of_is_read_as_it_is(
    world: World, s3: FaultyClient, ran: list[str], encoding: str
) -> None:
    """A bracket begins JSON as a brace does."""

    @job("listed", source=source.records())
    def listed(payload: dict[str, Any]) -> None:
        ran.append(payload["eventID"])

    body = json.dumps([{"eventSource": "aws:x", "eventID": "e-1"}])

    assert consume(world.app(listed), inline(world, body, encoding)) == []
    assert ran == ["e-1"]


def test_without_zstd_its_bodies_are_kept_until_it_is_installed(
    world: World, app: App, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """G4: the reason says what to install; the message is done by the deployment that has it."""
    record = inline(world, zstd.compress(envelope()), "zstd")
    with monkeypatch.context() as without:
        for name in ("compression", "compression.zstd", "backports.zstd"):
            without.setitem(sys.modules, name, None)
        assert consume(app, record) == [record["messageId"]]
    (event,) = (event for event in world.events if event.name == "message.unserved")
    assert "backports.zstd in src/requirements.txt" in event.fields()["reason"]
    assert world.dead_letters() == []

    assert consume(app, record) == []
    assert ran == ["k-1"]


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (gzip.compress(envelope()), "gzip"),
        (gzip.compress(envelope()), "GZIP"),
        (gzip.compress(envelope()), "gzip,aws-chunked"),
        (zstd.compress(envelope()), "zstd"),
        (envelope(), "identity"),
        (envelope(), "aws-chunked"),
        (envelope(), ""),
    ],
    ids=["gzip", "upper case", "after aws-chunked", "zstd", "identity", "aws-chunked", "none"],
)
def test_a_compressed_object_is_opened(world: World, app: App, ran: list[str], data: bytes, encoding: str) -> None:
    """By the object's own encoding, however a client or another store spells it; it is no Base64 there."""
    put("k", data, ContentEncoding=encoding)

    assert consume(app, world.raw(pointer("k"), attributes=stamped("act", "k-1"))) == []
    assert ran == ["k-1"]


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_compressed_message_that_was_off_loaded_is_opened(
    world: World, app: App, ran: list[str], encoding: str
) -> None:
    """A producer compresses, and its Extended Client off-loads what is still too large: the attribute stays behind."""
    put("k", base64_of(COMPRESS[encoding](envelope())))
    record = world.raw(pointer("k"), attributes={"Content-Encoding": attribute(encoding)})

    assert consume(app, record) == []
    assert ran == ["k-1"]


def test_an_object_with_an_encoding_of_its_own_is_opened_once(world: World, app: App, ran: list[str]) -> None:
    """Attribute and object may say the same."""
    put("k", gzip.compress(envelope()), ContentEncoding="gzip")

    assert consume(app, world.raw(pointer("k"), attributes={"Content-Encoding": attribute("gzip")})) == []
    assert ran == ["k-1"]


@pytest.mark.parametrize(
    ("data", "encoding", "reason"),
    [
        (gzip.compress(b"x" * (LIMIT + 1)), "gzip", f"the body is larger than {LIMIT} bytes"),
        (CUT_OFF["zstd"], "zstd", "the zstd body is cut off"),
        (b"PK\x03\x04", "gzip", "the body is not gzip: error"),
        (gzip.compress(b"\xff"), "gzip", "the body is not UTF-8"),
    ],
    ids=["too-large", "cut-off", "not-gzip", "not-utf-8"],
)
def test_a_compressed_object_that_cannot_be_opened_is_refused(
    world: World, app: App, data: bytes, encoding: str, reason: str
) -> None:
    """The cap is on what comes out, as well as on what is fetched."""
    put("k", data, ContentEncoding=encoding)

    assert consume(app, world.raw(pointer("k"))) == []
    (copy,) = world.dead_letters()
    assert copy["note"]["reason"].startswith(reason)


def test_an_object_of_an_unknown_encoding_is_kept(world: World, app: App) -> None:
    """As in a message."""
    put("k", b"...", ContentEncoding="br")
    record = world.raw(pointer("k"))

    assert consume(app, record) == [record["messageId"]]
    assert world.dead_letters() == []


def test_what_comes_out_counts_for_the_room_of_a_batch(world: World, app: App, ran: list[str]) -> None:
    """Memory: a few bytes that stand for many are held as many."""
    records = [
        inline(world, gzip.compress(envelope(f"k-{number}", text="x" * (LIMIT - 2_000))), "gzip")
        for number in range(10)
    ]

    assert len(consume(app, *records)) == 10 - MOST_HELD
    assert len(ran) == MOST_HELD


def test_a_refused_compressed_message_can_be_redriven(world: World, app: App, ran: list[str]) -> None:
    """Its copy is as delivered: with a larger cap it is served."""
    body = envelope("k-1", text="x" * LIMIT)
    consume(app, inline(world, gzip.compress(body), "gzip"))
    (copy,) = world.dead_letters()
    configure(world, payload_limit=2 * LIMIT)

    @job("act")
    def act(payload: dict[str, Any]) -> None:
        ran.append(payload["id"])

    assert consume(world.app(act), record_of(copy, arn_of("JobsQueue"))) == []
    assert ran == ["k-1"]


def test_one_job_of_a_compressed_notification_can_be_redriven(world: World, s3: FaultyClient) -> None:
    """The copy of one of several jobs is an envelope and not compressed, so nothing beside it may say that it is."""
    closed = {"u-1"}
    ran: list[str] = []

    @job("uploaded", source=source.s3())
    def uploaded(payload: source.S3Object) -> None:
        if payload.key in closed:
            message = "not yet"
            raise Reject(message)
        ran.append(payload.key)

    records = [
        {
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "eventTime": "2026-11-29T12:00:00.000Z",
            "awsRegion": "us-east-1",
            "s3": {"bucket": {"name": "uploads"}, "object": {"key": f"u-{number}", "sequencer": f"0{number}"}},
        }
        for number in range(3)
    ]
    app = world.app(uploaded)
    record = inline(world, gzip.compress(json.dumps({"Records": records}).encode()), "gzip")
    assert consume(app, record) == []
    assert sorted(ran) == ["u-0", "u-2"]
    (copy,) = world.dead_letters()
    assert set(copy["MessageAttributes"]) == {"onceq"}
    closed.clear()

    assert consume(app, record_of(copy, arn_of("JobsQueue"))) == []
    assert sorted(ran) == ["u-0", "u-1", "u-2"]
