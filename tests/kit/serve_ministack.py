"""What `.venv-ministack` runs, isolated from everything of ours: ministack, until stdin ends.

It listens before it loads ministack, on a port that the system chose, so no two servers ever want the same one.
ministack's own command line takes a port's number only, and leaves a file with its process id behind.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading


def end_with_stdin() -> None:
    """End at once when whoever started this is gone: nothing here outlives it."""
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Say the endpoint on stdout and serve."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listener.getsockname()[1]
    # ministack reads its variables when it is loaded, and puts host and port into the URLs of its queues.
    os.environ.update(MINISTACK_HOST="127.0.0.1", GATEWAY_PORT=str(port))
    threading.Thread(target=end_with_stdin, daemon=True).start()
    print(f"http://127.0.0.1:{port}", flush=True)
    # Whatever is printed from here on is for the log; nobody reads the pipe any more.
    os.dup2(2, 1)

    from hypercorn.asyncio import serve  # type: ignore[import-not-found]
    from hypercorn.config import Config  # type: ignore[import-not-found]
    from ministack.app import app  # type: ignore[import-not-found]

    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    asyncio.run(serve(app, config))


if __name__ == "__main__":
    main()
