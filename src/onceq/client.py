"""How requests reach AWS: one botocore client a service, and one bounded retry loop.

botocore's own retries are switched off: a retry that we do not see is a retry that ignores the time left, and
after every one of ours a refusal is compared with what was being written (guarantee G11, `onceq.store`).
"""

from __future__ import annotations

import functools
import itertools
import json
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.clock import Clock, Deadline, TokenFactory

CONNECT_TIMEOUT = 1.0
READ_TIMEOUT = 2.0
ATTEMPTS = 5
BACKOFF_BASE = 0.05
BACKOFF_CAP = 1.0

# Faults that pass by themselves; every other code is a mistake that a retry repeats.
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
PASSING = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "KMS.ThrottlingException",
        "KmsThrottled",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)


# Reasons for which a transaction was cancelled that pass by themselves.
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
CONTENDED = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})
# Of two transactions that meet on one item at least one is cancelled, so with many on a hot item it takes some tries.
CONTENDED_ATTEMPTS = 25
# Left for the write that gives the job back: it is known that nothing was applied.
CONTENDED_RESERVE = 2.0


class PassingFault(Exception):
    """A request failed for a reason that may pass, or its response never came.

    Attributes:
        contended: Whether it is known that nothing was applied, since others wrote the same items.
        waited: Whether it is known only because a time-out had passed; the next try may take as long.
    """

    def __init__(self, message: str = "", *, contended: bool = False, waited: bool = False) -> None:
        """Keep all three."""
        self.contended = contended
        self.waited = waited
        super().__init__(message)


def make_client(service: str, connections: int, *, read_timeout: float = READ_TIMEOUT) -> Any:
    """Return a botocore client with our time-outs and no retries of its own.

    Args:
        service: ``dynamodb``, ``sqs`` or ``s3``.
        connections: How many requests may be under way at once.
        read_timeout: Seconds until a silent connection counts as failed.

    Returns:
        The client; the endpoint, region and credentials come from the environment as usual.
    """
    from botocore.config import Config  # noqa: PLC0415 - `import onceq` must not load botocore

    config = Config(
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=read_timeout,
        max_pool_connections=max(1, connections),
        # Named, since the adaptive mode of the environment holds requests back before they are sent, past any deadline.
        retries={"total_max_attempts": 1, "mode": "standard"},
    )
    client = _session().create_client(service, config=config)
    if service != "s3":  # whose answers are no JSON, and whose objects are streams
        client.meta.events.register("before-parse", _check_whole)
    return client


def _check_whole(response_dict: dict[str, Any], **_: Any) -> None:
    """Raise where an answer is not the one that was sent.

    botocore reads a body that was cut off as an empty answer, and so a completed job as none: it does not enforce the
    length, takes what is no JSON for ``{}``, and compares DynamoDB's checksum in its legacy retry mode alone.
    """
    body, headers = response_dict["body"], response_dict["headers"]
    length, crc = headers.get("content-length"), headers.get("x-amz-crc32")
    try:
        whole = (length is None or int(length) == len(body)) and (crc is None or int(crc) == zlib.crc32(body))
        # SQS gives no checksum.
        if whole and crc is None and body and response_dict["status_code"] < 300:  # noqa: PLR2004 - HTTP's own limit
            whole = isinstance(json.loads(body), dict)
    except ValueError:
        whole = False
    if not whole:
        message = "the response did not arrive whole"
        raise PassingFault(message)


@functools.cache
def _session() -> Any:
    # One for all services: each would load the same data files and credentials again.
    import botocore.session  # noqa: PLC0415 - as above

    return botocore.session.get_session()


def forget_session() -> None:
    """Let the next client be made from a new session: moto answers only those that were made after its import."""
    _session.cache_clear()


def send(client: Any, operation: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send one request.

    Raises:
        PassingFault: If it failed for a reason that may pass.
        botocore.exceptions.ClientError: If the service refused it.
        botocore.exceptions.BotoCoreError: If it could not be sent at all.
    """
    from botocore import exceptions, xform_name  # noqa: PLC0415
    from botocore.parsers import ResponseParserError  # noqa: PLC0415

    try:
        response: dict[str, Any] = getattr(client, xform_name(operation))(**request)
    except exceptions.ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = error.response.get("Error", {}).get("Code", "")
        contended = any(reason.get("Code") in CONTENDED for reason in error.response.get("CancellationReasons") or [])
        if status >= 500 or code in PASSING or contended:  # noqa: PLR2004 - HTTP's own limit
            raise PassingFault(str(error), contended=contended) from error
        raise
    except (
        exceptions.ConnectionError,  # no connection, or not in time: not a kind of HTTPClientError
        exceptions.HTTPClientError,
        exceptions.IncompleteReadError,
        ResponseParserError,
    ) as error:
        waited = isinstance(error, exceptions.ReadTimeoutError | exceptions.ConnectTimeoutError)
        raise PassingFault(str(error), waited=waited) from error
    return response


def retrying(
    attempt: Callable[[], dict[str, Any]], *, clock: Clock, tokens: TokenFactory, deadline: Deadline
) -> dict[str, Any]:
    """Run a request until it is answered, a bounded number of times and inside the time left.

    Raises:
        PassingFault: The last one, when attempts or time are used up.
    """
    applied = False
    for number in itertools.count():
        try:
            return attempt()
        except PassingFault as fault:
            pause = tokens.uniform(0, min(BACKOFF_CAP, BACKOFF_BASE * 2 ** min(number, ATTEMPTS)))
            most = CONTENDED_ATTEMPTS if fault.contended else ATTEMPTS
            applied = applied or not fault.contended
            needed = pause + (CONTENDED_RESERVE if fault.contended else READ_TIMEOUT if fault.waited else 0)
            if number + 1 >= most or deadline.remaining() <= needed:
                # What was not answered before may have been applied after all.
                raise PassingFault(str(fault), contended=not applied) from fault
            clock.sleep(pause)
    raise AssertionError  # pragma: no cover - the loop returns or raises
