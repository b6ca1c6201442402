"""The seam to DynamoDB: one method, typed errors, bounded retries. `store` says what is written on which condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.client import PassingFault, make_client, retrying, send
from onceq.errors import ConditionFailed, StoreError, StoreUnavailable, TransactionCancelled, TransactionContended

if TYPE_CHECKING:
    from onceq.clock import Clock, Deadline, TokenFactory


class DynamoDB:
    """Sends low-level requests to DynamoDB.

    pynamodb 6.1 cannot be this: its single writes cannot ask for the old item on a failed condition, and its client
    creation races between threads (docs/decisions/0001-botocore-behind-one-seam.md).
    """

    def __init__(self, clock: Clock, tokens: TokenFactory, connections: int = 10, client: Any = None) -> None:
        """Make the client at once, unless one is given to share.

        botocore's client creation is not safe to race in (botocore issue 619).

        Args:
            clock: The time.
            tokens: Draws the jitter of retries.
            connections: How many requests may be under way at once.
            client: A client to share.
        """
        self._clock = clock
        self._tokens = tokens
        self._client = client or make_client("dynamodb", connections)

    def call(self, operation: str, request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Send one request and return its response.

        Args:
            operation: The API's name of it, for example ``PutItem``.
            request: Its parameters, items in DynamoDB's own shape.
            deadline: Retries end before it.

        Returns:
            The response.

        Raises:
            ConditionFailed: If the condition of a single write failed.
            TransactionCancelled: If a transaction was refused, with the reason for each of its writes.
            TransactionContended: If others wrote the same items at that moment, however often it was tried.
            StoreUnavailable: If it was not answered; it may have been applied.
            StoreError: If DynamoDB refused it.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - `import onceq` must not load it

        try:
            return retrying(
                lambda: send(self._client, operation, request),
                clock=self._clock,
                tokens=self._tokens,
                deadline=deadline,
            )
        except PassingFault as error:
            if error.contended:
                message = f"others wrote the same items: {error}"
                raise TransactionContended(message) from error
            message = f"{operation} was not answered: {error}"
            raise StoreUnavailable(message) from error
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code == "ConditionalCheckFailedException":
                raise ConditionFailed(error.response.get("Item")) from None
            if reasons := error.response.get("CancellationReasons"):
                raise TransactionCancelled(reasons) from None
            message = f"{operation} was refused: {error}"
            raise StoreError(message, code=code) from error
        except BotoCoreError as error:
            message = f"{operation} could not be sent: {error}"
            raise StoreError(message) from error
