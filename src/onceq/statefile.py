"""The file by which other commands find the session that runs in this folder."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STATE_FILE = Path(".onceq") / "dev.json"
# What says where the queues and tables are. The shell's own values of these would send a local run somewhere else.
PLACES = ("ONCEQ_QUEUES", "ONCEQ_CLAIMS_TABLE", "ONCEQ_OUTBOX_TABLE")


def running_state() -> dict[str, Any] | None:
    """Return what the session that runs in this folder wrote down, or ``None``."""
    try:
        state: dict[str, Any] = json.loads(STATE_FILE.read_text(encoding="utf-8"))
        os.kill(state["pid"], 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return state


def connect(handler: str = "consumer") -> None:
    """Take the environment of the session in this folder, unless the shell names queues or tables itself.

    Args:
        handler: Whose environment; the consumer's where the template has no function for it.

    Raises:
        ConfigurationError: If there is neither.
    """
    if any(os.environ.get(name) for name in PLACES):
        return
    state = running_state()
    if state is None:
        message = (
            f"no session runs in this folder ({STATE_FILE}) and the environment names no queues: "
            "start `make dev` (or `python -m onceq dev`), or set ONCEQ_QUEUES and ONCEQ_CLAIMS_TABLE"
        )
        raise ConfigurationError(message)
    os.environ.update(state.get("environments", {}).get(handler) or state["environment"])


@contextmanager
def state_file(state: Mapping[str, Any]) -> Iterator[None]:
    """Let other commands know about this session while the block runs."""
    # For this user alone: the variables of env.json stand in it, secrets too.
    STATE_FILE.parent.mkdir(exist_ok=True)
    STATE_FILE.parent.chmod(0o700)
    # The folder ignores itself, whatever the repository's own .gitignore says.
    (STATE_FILE.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    # One that was left behind would keep its own mode.
    STATE_FILE.unlink(missing_ok=True)
    with os.fdopen(os.open(STATE_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(state, indent=2) + "\n")
    try:
        yield
    finally:
        STATE_FILE.unlink(missing_ok=True)
