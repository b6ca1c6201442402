"""Buckets for large messages: a world with one, objects in it, the pointers of other clients, and faults of S3."""

from __future__ import annotations

import functools
import json
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from botocore.exceptions import ClientError
from botocore.response import StreamingBody

from kit.faults import FaultyClient
from onceq.client import make_client
from onceq.clock import OpenDeadline
from onceq.offload import CLASS, JOB_TYPE, KEY, LEGACY_CLASS, LEGACY_SIZE, SIZE
from onceq.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kit.faults import Call
    from kit.world import World
    from onceq.bucket import Bucket

BUCKET = "payloads"
# Of other producers, which a function names in ONCEQ_FETCH_FROM.
FOREIGN = "partner-payloads"
# As the Extended Client for Java and the one for Python write them: class names, and the attribute with the size.
DIALECTS = ((CLASS, SIZE), (LEGACY_CLASS, LEGACY_SIZE), (CLASS, LEGACY_SIZE), (LEGACY_CLASS, SIZE), (CLASS, None))


@functools.cache
def _shared_client() -> Any:
    # One for every world on moto: making it takes longer than most tests.
    return make_client("s3", 50)


@contextmanager
def open_buckets(world: World, *, payload_bucket: str = BUCKET, **settings: Any) -> Iterator[FaultyClient]:
    """Give a world on moto its buckets, and yield the client under its runtime, which faults are planned on.

    Args:
        world: The world; its settings and its runtime are replaced.
        payload_bucket: Where it off-loads; empty for nowhere.
        settings: Other settings.
    """
    client = FaultyClient(_shared_client())
    for name in (BUCKET, FOREIGN):
        _shared_client().create_bucket(Bucket=name)
    with patch("onceq.bucket.make_client", lambda _service, _connections: client):
        configure(world, payload_bucket=payload_bucket, **settings)
        yield client


def configure(world: World, **settings: Any) -> None:
    """Give a world other settings, and so another runtime on the same clock and tokens."""
    world.settings = replace(world.settings, **settings)
    world.runtime = Runtime(world.settings, clock=world.clock, tokens=world.tokens)


def put(key: str, body: str | bytes, *, bucket: str = BUCKET, **options: str) -> None:
    """Let an object stand in a bucket."""
    data = body.encode() if isinstance(body, str) else body
    _shared_client().put_object(Bucket=bucket, Key=key, Body=data, **options)


def objects(bucket: str = BUCKET) -> dict[str, bytes]:
    """Return every object of a bucket by its key."""
    client = _shared_client()
    listed = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    return {one["Key"]: client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in listed}


def pointer(key: str, *, bucket: str = BUCKET, named: str = CLASS) -> str:
    """Return a pointer as the Extended Client writes it."""
    return json.dumps([named, {"s3BucketName": bucket, "s3Key": key}])


def attribute(value: str, kind: str = "String") -> dict[str, Any]:
    """Return a message attribute as Lambda passes it."""
    return {"stringValue": value, "stringListValues": [], "binaryListValues": [], "dataType": kind}


def stamped(job_type: str, key: str, size: int = 1) -> dict[str, Any]:
    """Return the attributes that stand beside a pointer of ours, as Lambda passes them."""
    return {SIZE: attribute(str(size), "Number"), JOB_TYPE: attribute(job_type), KEY: attribute(key)}


def as_lambda_passes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a SendMessage as the consumer gets them."""
    return {name: attribute(one["StringValue"], one["DataType"]) for name, one in attributes.items()}


def answering(data: bytes, *, length: int | None = None, encoding: str = "") -> Callable[[Call], Any]:
    """Answer GetObject with this content, whatever length it tells.

    Args:
        data: What comes.
        length: What the header tells; without it the truth.
        encoding: The content encoding.
    """
    told = len(data) if length is None else length

    def meet(_call: Call) -> dict[str, Any]:
        body = StreamingBody(BytesIO(data), told)
        return {"Body": body, "ContentLength": told} | ({"ContentEncoding": encoding} if encoding else {})

    return meet


def refusing(code: str, status: int) -> Callable[[Call], Any]:
    """Answer with an error of S3."""

    def meet(call: Call) -> Any:
        response: Any = {"Error": {"Code": code, "Message": "planned"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise ClientError(response, call.method)

    return meet


def bucket_of(world: World) -> Bucket:
    """Return the seam to S3 of a world."""
    return world.runtime.bucket(OpenDeadline())
