"""What the processes of a soak tell: one JSON object a line, appended to a file that all of them share.

Each line is one write to a file opened for appending, so a process that is killed leaves whole lines.
"""

from __future__ import annotations

import json
import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

LOG = "SOAK_LOG"


def now_ms() -> int:
    """Return the wall clock in milliseconds: all processes of a soak are on one machine."""
    return time.time_ns() // 1_000_000


def tell(name: str, **values: Any) -> None:
    """Append a line."""
    line = json.dumps({"at": now_ms(), "pid": os.getpid(), "name": name, **values}, default=str)
    os.write(_file(os.environ[LOG]), line.encode() + b"\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return every line that is whole."""
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


@cache
def _file(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
