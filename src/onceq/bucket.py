"""The seam to S3, where the bodies of large messages stand. Nothing here deletes: a lifecycle rule does."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from onceq.client import PassingFault, make_client, retrying, send
from onceq.codec import printable
from onceq.errors import BucketError, BucketUnavailable, EnvelopeError, ObjectNotThere

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.clock import Clock, Deadline, TokenFactory
    from onceq.offload import Pointer

# Without s3:ListBucket a missing object reads as forbidden
# (https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html), so the two cannot be told apart. Nor does a key
# that S3 never takes lead anywhere, or an object that was moved to an archive.
NOT_THERE = frozenset(
    {"NoSuchKey", "NoSuchBucket", "AccessDenied", "InvalidObjectState", "KeyTooLongError", "403", "404"}
)
# Between two looks at the time left and at the limit.
CHUNK = 65_536


class Stored(NamedTuple):
    """An object's content, and its content encoding, empty where it has none."""

    data: bytes
    encoding: str


class Bucket:
    """Reads and writes objects."""

    def __init__(
        self, clock: Clock, tokens: TokenFactory, deadline: Deadline, *, connections: int = 10, client: Any = None
    ) -> None:
        """Make the client, unless one is given to share.

        Args:
            clock: The time.
            tokens: Draws the jitter of retries.
            deadline: Retries end before it.
            connections: How many requests may be under way at once.
            client: A client to share.
        """
        self._clock = clock
        self._tokens = tokens
        self._deadline = deadline
        self._client = client or make_client("s3", connections)

    def within(self, deadline: Deadline) -> Bucket:
        """Return this bucket with another deadline for its retries, on the same client."""
        return type(self)(self._clock, self._tokens, deadline, client=self._client)

    def get(self, pointer: Pointer, limit: int) -> Stored:
        """Read an object.

        Args:
            pointer: Where it is.
            limit: The most bytes that are read.

        Returns:
            Its content.

        Raises:
            ObjectNotThere: If it is missing, or may not be read.
            EnvelopeError: If it is larger than the limit.
            BucketUnavailable: If S3 did not answer.
            BucketError: If S3 refused it otherwise.
        """

        def read() -> dict[str, Any]:
            answer = send(self._client, "GetObject", {"Bucket": pointer.bucket, "Key": pointer.key})
            with closing(answer["Body"]) as stream:
                size = answer.get("ContentLength", 0)
                if size > limit:
                    message = f"the body has {size} bytes, more than {limit} (ONCEQ_PAYLOAD_LIMIT)"
                    raise EnvelopeError(message)
                return {"data": self._content(stream, limit), "encoding": answer.get("ContentEncoding", "")}

        answer = self._retried("GetObject", pointer.bucket, pointer.key, read)
        return Stored(answer["data"], answer["encoding"])

    def put(self, pointer: Pointer, data: bytes) -> None:
        """Write an object.

        Args:
            pointer: Where it goes.
            data: Its content, JSON.

        Raises:
            ObjectNotThere: If the bucket is missing, or may not be written.
            BucketUnavailable: If S3 did not answer.
            BucketError: If S3 refused it otherwise.
        """
        request = {"Bucket": pointer.bucket, "Key": pointer.key, "Body": data, "ContentType": "application/json"}
        self.call("PutObject", request)

    def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its response; the errors are those of `put`."""
        bucket, key = request["Bucket"], request.get("Key", "")
        return self._retried(operation, bucket, key, lambda: send(self._client, operation, request))

    def _retried(self, operation: str, bucket: str, key: str, attempt: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - `import onceq` must not load it

        where = printable(f"{operation} of s3://{bucket}/{key}", 300)
        try:
            return retrying(attempt, clock=self._clock, tokens=self._tokens, deadline=self._deadline)
        except PassingFault as error:
            message = f"{where} was not answered: {error}"
            raise BucketUnavailable(message) from error
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            message = f"{where} was refused: {error}"
            raise (ObjectNotThere if code in NOT_THERE else BucketError)(message) from error
        except BotoCoreError as error:
            message = f"{where} was refused: {error}"
            raise BucketError(message) from error

    def _content(self, stream: Any, limit: int) -> bytes:
        """Read a response to its end; what breaks off is asked for again. One that drips has Lambda's bound alone."""
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - as above

        data = bytearray()
        try:
            while chunk := stream.read(CHUNK):
                data += chunk
                if len(data) > limit:
                    message = f"the body has more than {limit} bytes (ONCEQ_PAYLOAD_LIMIT)"
                    raise EnvelopeError(message)
                if self._deadline.remaining() <= 0:
                    message = "the body came too slowly for the time left"
                    raise PassingFault(message)
        except (BotoCoreError, OSError) as error:
            raise PassingFault(str(error)) from error
        return bytes(data)
