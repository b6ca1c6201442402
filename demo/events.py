"""What the processes of a run tell: events in one file, which each of them appends to and the demo reads."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.telemetry import Event

EVENTS_FILE = "DEMO_EVENTS"


@dataclass
class EventFile:
    """Appends events to the file that the environment names, one JSON object a line.

    Each line is one write to a file opened for appending, so several processes may share it and a killed one leaves
    whole lines.

    Args:
        who: What kind of process this is: ``worker`` or ``relay``.
    """

    who: str

    def __call__(self, event: Event) -> None:
        """Append a telemetry event."""
        self.write(event.name, event.fields())

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Append an event."""
        line = json.dumps({"name": name, "who": self.who, "pid": os.getpid(), **values})
        os.write(self._file, line.encode() + b"\n")

    @cached_property
    def _file(self) -> int:
        return os.open(os.environ[EVENTS_FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@dataclass(slots=True)
class EventLog:
    """The events, read from their file as they come."""

    path: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the events that are new."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # the last line may still be under way
        self._offset += len(whole)
        new = [json.loads(line) for line in whole.splitlines()]
        self.events += new
        return new
