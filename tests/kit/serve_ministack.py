"""What `.venv-ministack` runs, isolated from everything of ours: ministack, until stdin ends.

It listens before it loads ministack, on a port that the system chose, so no two servers ever want the same one.
ministack's own command line takes a port's number only, and leaves a file with its process id behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading


def end_with_stdin() -> None:
    """End at once when whoever started this is gone: nothing here outlives it, nor a function that runs."""
    sys.stdin.buffer.read()
    with contextlib.suppress(ProcessLookupError):  # where it was not started as the first of a group
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def authorise_batches() -> None:
    """Ask for SendMessage where a batch is sent, as AWS does: IAM has no action of its own for a batch of SQS.

    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsqs.html
    """
    from ministack.core import iam_actions  # type: ignore[import-not-found]

    named = iam_actions._action_from_target

    def action(headers: dict[str, str]) -> str | None:
        name: str | None = named(headers)
        of_sqs = headers.get("x-amz-target", "").startswith("AmazonSQS.")
        return name.removesuffix("Batch") if name and of_sqs else name

    iam_actions._action_from_target = action


def main() -> None:
    """Say the endpoint on stdout and serve."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listener.getsockname()[1]
    # ministack reads its variables when it is loaded, and puts host and port into the URLs of its queues.
    os.environ.update(MINISTACK_HOST="127.0.0.1", GATEWAY_PORT=str(port))
    threading.Thread(target=end_with_stdin, daemon=True).start()
    certificate = os.environ.get("MINISTACK_SSL_CERT")
    print(f"{'https' if certificate else 'http'}://127.0.0.1:{port}", flush=True)
    # Whatever is printed from here on is for the log; nobody reads the pipe any more.
    os.dup2(2, 1)

    from hypercorn.asyncio import serve  # type: ignore[import-not-found]
    from hypercorn.config import Config  # type: ignore[import-not-found]
    from ministack.app import app  # type: ignore[import-not-found]

    authorise_batches()
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.certfile, config.keyfile = certificate, os.environ.get("MINISTACK_SSL_KEY")
    asyncio.run(serve(app, config))


if __name__ == "__main__":
    main()
